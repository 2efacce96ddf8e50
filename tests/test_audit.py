"""Planted errors stand first, and no fact vouches for itself."""

import numpy as np
import pytest

from puda import audit as audits
from puda.audit import audit
from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.errors import PudaError
from puda.runs import RunFolder
from puda.training.trainer import train

TRUE = [
    (f"person {club}{i}", "likes", f"thing {club}{j}")
    for club in range(4)
    for i in range(6)
    for j in range(6)
]
PLANTED = [
    ("person 00", "likes", "thing 10"),
    ("person 13", "likes", "thing 31"),
    ("person 22", "likes", "thing 05"),
    ("person 35", "likes", "thing 24"),
]
CONFIG = Config.of(
    {
        "scoring": {"name": "complex", "dim": 16},
        "objective": {"weight": 0.01},
        "sampler": {"num_unlabeled": 32},
        "generator": {"num_synthetic": 0},
        "training": {"epochs": 30, "batch_size": 64, "threads": 1, "validate_every": 10},
    }
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> RunFolder:
    """Train on facts of which four are wrong, in all three splits."""
    facts = TRUE[::2] + PLANTED[:2]
    held_out = {"valid": TRUE[1::4] + PLANTED[2:3], "test": TRUE[3::4] + PLANTED[3:]}
    graph = KnowledgeGraph.from_facts(facts, **held_out)
    return train(graph, CONFIG, tmp_path_factory.mktemp("audit") / "run")


def test_planted_errors_stand_first_whatever_their_split(folder):
    table = audit(folder, folds=4)
    assert len(table) == len(TRUE) + len(PLANTED)
    first = table.head(8).select("head", "relation", "tail").rows()
    assert {*PLANTED} <= {*first}
    assert {*table.filter(table["split"] != "train").head(8)["split"]} == {"valid", "test"}


def test_doubt_is_the_logarithm_of_the_better_rank(folder):
    table = audit(folder, folds=2)
    table = table.filter(table["doubt"].is_not_null())
    ranks = table.select("tail_rank", "head_rank").to_numpy()
    expected = np.log(ranks.min(1)) / np.log(folder.load_graph().num_entities)
    assert table["doubt"].to_numpy() == pytest.approx(expected)
    assert (np.diff(table["doubt"].to_numpy()) <= 0).all()


def test_a_fact_of_an_entity_without_others_is_not_judged_and_stands_last(tmp_path):
    facts = [*TRUE, ("stranger", "likes", "thing 00")]
    folder = train(KnowledgeGraph.from_facts(facts), CONFIG, tmp_path / "run")
    table = audit(folder, folds=2)
    unjudged = table["doubt"].is_null()
    assert table.filter(table["head"] == "stranger")["doubt"].to_list() == [None]
    assert unjudged.to_list() == sorted(unjudged)
    assert unjudged.sum() < len(TRUE) / 10


def test_every_fact_is_judged_once_by_a_model_that_never_saw_it(folder, monkeypatch):
    seen, judged = [], []
    real_train, real_rank = audits.train, audits.rank

    def watch_train(graph, *rest):
        seen.append({tuple(fact) for fact in graph.train.tolist()})
        assert not len(graph.valid) and not len(graph.test)
        return real_train(graph, *rest)

    def watch_rank(score, facts, known):
        judged.append({tuple(fact) for fact in facts.tolist()})
        return real_rank(score, facts, known)

    monkeypatch.setattr(audits, "train", watch_train)
    monkeypatch.setattr(audits, "rank", watch_rank)
    told = []
    audit(folder, folds=3, listener=told.append)
    assert [(event["done"], event["of"]) for event in told] == [(1, 3), (2, 3), (3, 3)]
    for trained_on, held_out in zip(seen, judged, strict=True):
        assert not trained_on & held_out
        assert len(trained_on | held_out) == len(TRUE) + len(PLANTED)
    assert sum(map(len, judged)) == len(TRUE) + len(PLANTED)


def test_the_models_train_as_long_as_the_runs_best_weights_did(folder):
    best = [event for event in folder.trace() if event["event"] == "stop"][-1]["best"]["epoch"]
    settings = audits._settings(folder).training
    assert (settings.epochs, settings.minutes, settings.patience) == (best, None, 0)


def test_one_fold_is_refused(folder):
    with pytest.raises(PudaError, match="folds = 1"):
        audit(folder, folds=1)


def test_a_run_that_is_not_finished_is_refused(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create(CONFIG, KnowledgeGraph.from_facts(TRUE))
    folder.write_trace([])
    with pytest.raises(PudaError, match="is not finished"):
        audit(folder)
