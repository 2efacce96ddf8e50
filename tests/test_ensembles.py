"""Several seeds predict together: mean scores, agreement, and folders that resume."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import puda
from puda.complete import complete
from puda.config import Config
from puda.errors import PudaError
from puda.runs import RunFolder
from puda.scoring.ensemble import Ensemble
from puda.scoring.registry import SCORING, build_model
from puda.training import trainer
from puda.types import Questions
from toy import checkerboard

GRAPH = checkerboard()
SETTINGS = {
    "scoring": {"dim": 8},
    "sampler": {"num_unlabeled": 8},
    "generator": {"num_synthetic": 0},
    "training": {"epochs": 3, "validate_every": 1, "threads": 1, "seed": 5},
}
QUESTIONS, _ = Questions.both(torch.tensor(GRAPH.train))


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "ensemble"
    puda.train(GRAPH, path, config=SETTINGS, seeds=3)
    return path


def test_members_are_the_runs_that_their_seeds_give_alone(original, tmp_path):
    alone = Config.of(SETTINGS).with_settings(["training.seed=6"])
    trainer.train(GRAPH, alone, tmp_path / "alone")
    weights = [
        (path / "model.safetensors").read_bytes()
        for path in (tmp_path / "alone", original / "members" / "1")
    ]
    assert weights[0] == weights[1]


def test_it_scores_by_the_mean_of_its_members(original):
    together = RunFolder(original).load().score(QUESTIONS)
    apart = [member.load().score(QUESTIONS) for member in RunFolder(original).members]
    torch.testing.assert_close(together, torch.stack(apart).mean(0))


@pytest.mark.parametrize("name", sorted(set(SCORING) - {"pykeen"}))
def test_any_scoring_function_can_be_a_member(name):
    config = Config.of({"scoring": {"name": name, "dim": 200}}).scoring
    with torch.no_grad():
        models = [build_model(config, GRAPH).eval() for _ in range(2)]
        tables = [model.initial_entities() for model in models]
        ensemble, table = Ensemble(models).eval(), torch.cat(tables, dim=1)
        rows = ensemble.contextualize(table)
        together = ensemble.match(ensemble.ask(QUESTIONS, rows), rows)
        apart = []
        for model, own in zip(models, tables, strict=True):
            own_rows = model.contextualize(own)
            apart.append(model.match(model.ask(QUESTIONS, own_rows), own_rows))
    torch.testing.assert_close(together, torch.stack(apart).mean(0))


def test_a_prediction_says_how_many_members_have_it_among_their_own_first(original):
    answers = puda.open_run(original).predict(head="person 0", relation="likes", k=3)
    own = [
        {p.tail for p in puda.open_run(member.path).predict(head="person 0", relation="likes", k=3)}
        for member in RunFolder(original).members
    ]
    assert [a.agreement for a in answers] == [
        sum(a.tail in first for first in own) for a in answers
    ]
    assert {a.members for a in answers} == {3}


def test_relations_are_voted_on_too(original):
    answers = puda.open_run(original).predict(
        head="person 0", tail="thing 1", k=2, include_known=True
    )
    assert [a.agreement for a in answers] == [3, 3]  # there are only two relations


def test_a_single_run_has_nobody_to_agree_with(original):
    alone = puda.open_run(original / "members" / "0")
    assert alone.predict(head="person 0", relation="likes", k=1)[0].agreement is None


def test_evaluation_tells_what_the_members_reach_alone(original):
    report = puda.open_run(original).evaluate("test")["test"]
    alone = [
        puda.open_run(member.path).evaluate("test")["test"]["both"]["mrr"]
        for member in RunFolder(original).members
    ]
    assert report["members"]["mrr"] == pytest.approx(alone)
    assert "members" not in puda.open_run(original / "members" / "0").evaluate("test")["test"]


def test_an_ensemble_that_was_killed_goes_on_where_it_was(original, tmp_path):
    path = tmp_path / "killed"
    shutil.copytree(original / "members", path / "members")
    for name in ("model.safetensors", "metrics.json", "trace.jsonl"):
        (path / "members" / "2" / name).unlink(missing_ok=True)
    assert RunFolder(path).resumable
    resumed = puda.resume(path)
    assert not resumed.folder.resumable
    kept, again = (
        (folder / "members" / "2" / "model.safetensors").read_bytes() for folder in (original, path)
    )
    assert kept == again
    assert resumed.metrics["test"]["both"] == puda.open_run(original).metrics["test"]["both"]


def test_what_else_a_run_can_do_works_on_an_ensemble(original, tmp_path):
    run = puda.open_run(original)
    assert len(run.complete(top=4)) == 4
    assert "likes" in run.explain("person 0", "likes", "thing 1").to_text()
    assert len(run.audit(folds=2)) == sum(len(GRAPH.facts(s)) for s in ("train", "valid", "test"))
    grown = run.add_facts(
        [("new", "likes", "thing 1"), ("new", "likes", "thing 3")], tmp_path / "grown"
    )
    assert len(grown.folder.members) == 3
    assert np.isfinite(grown.predict(head="new", relation="likes", k=1)[0].score)


def test_members_of_different_graphs_are_refused(original, tmp_path):
    path = tmp_path / "mixed"
    shutil.copytree(original, path)
    shutil.rmtree(path / "members" / "2")
    trainer.train(checkerboard(10), Config.of(SETTINGS), path / "members" / "2")
    with pytest.raises(PudaError, match="members/2 is not of the same graph and model"):
        puda.open_run(path)


def test_a_folder_that_holds_an_ensemble_is_not_trained_into(original):
    with pytest.raises(PudaError, match="holds a run already"):
        puda.train(GRAPH, original, config=SETTINGS)


def test_no_seed_is_refused(tmp_path):
    with pytest.raises(PudaError, match="seeds = 0: train at least one model"):
        puda.train(GRAPH, tmp_path / "none", config=SETTINGS, seeds=0)


def test_the_command_trains_and_shows_agreement(command, tmp_path):
    facts = tmp_path / "facts.tsv"
    pairs = [(f"a{i}", f"b{j}") for i in range(8) for j in range(8) if (i + j) % 2]
    facts.write_text("".join(f"{a}\tlikes\t{b}\n" for a, b in pairs))
    out = tmp_path / "run"
    small = ["scoring.dim=8", "training.epochs=2", "training.threads=1"]
    sets = [word for setting in small for word in ("--set", setting)]
    trained = command("train", facts, "--out", out, "--seeds", 2, *sets)
    assert trained.code == 0
    assert "Its members alone: MRR" in trained.out
    asked = command("predict", out, "--head", "a0", "--relation", "likes", "-k", 2)
    assert "of 2" in asked.out
    told = command("predict", out, "--head", "a0", "--relation", "likes", "-k", 2, "--json")
    assert {p["members"] for p in json.loads(told.out)} == {2}


def test_completion_tells_how_many_members_have_a_fact_among_their_own_best(original):
    facts = complete(RunFolder(original).load(), per_relation=5)
    own = [complete(member.load(), per_relation=5) for member in RunFolder(original).members]
    listed = [set(each.select("head", "relation", "tail").rows()) for each in own]
    expected = [
        sum(fact in each for each in listed)
        for fact in facts.select("head", "relation", "tail").rows()
    ]
    assert facts["agreement"].to_list() == expected
    assert 0 < sum(expected) < 3 * len(facts)  # they agree on some and not on all
    assert set(facts["members"]) == {3}
