"""From what people say to a graph that is trained on it."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import puda
from board import SIZE, board, missing, person, thing
from puda import verdicts
from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.errors import DataError
from puda.places import fact_scores
from puda.verdicts import Settled, Verdict, heed_rejected, judge, read, settle
from toy import labels

FACT = ("a", "r", "b")
TRAIN = [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a")]


def said(*words: str) -> list[Verdict]:
    """Return verdicts on one fact: "ann accept" ..."""
    return [Verdict(*FACT, verdict, author) for author, verdict in map(str.split, words)]


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        (["ann accept"], "accepted"),
        (["ann reject"], "rejected"),
        (["ann accept", "ann reject"], "rejected"),
        (["ann accept", "bob reject"], "tied"),
        (["ann accept", "bob reject", "cy reject"], "rejected"),
        (["ann accept", "bob reject", "bob accept"], "accepted"),
        (["ann accept", "bob unsure"], "accepted"),
    ],
)
def test_the_majority_of_last_words_decides(words, outcome):
    settled = settle(said(*words))._asdict()
    assert settled.pop(outcome) == [FACT]
    assert all(not facts for facts in settled.values())


def test_who_is_unsure_settles_nothing():
    assert settle(said("ann unsure", "bob accept", "bob unsure")) == ([], [], [])


def graph(**more) -> KnowledgeGraph:
    return KnowledgeGraph.from_facts(TRAIN, valid=[("a", "r", "c")], test=[("b", "r", "a")], **more)


def test_accepted_facts_are_trained_on_and_rejected_ones_are_true_negatives():
    judged = judge(graph(), Settled([("c", "r", "b")], [("a", "r", "a")], []))
    assert labels(judged, "train") == {*TRAIN, ("c", "r", "b")}
    entity = judged.entities.labels
    assert [(entity[h], entity[t]) for h, _, t in judged.negatives["train"]] == [("a", "a")]


def test_what_is_held_out_is_not_moved_into_train():
    judged = judge(graph(), Settled([("a", "r", "c"), ("b", "r", "a")], [], []))
    assert labels(judged, "train") == set(TRAIN)
    assert labels(judged, "valid") | labels(judged, "test") == {("a", "r", "c"), ("b", "r", "a")}
    assert judged.fingerprint == graph().fingerprint


def test_a_known_fact_that_is_rejected_leaves_its_split():
    judged = judge(graph(), Settled([], [("a", "r", "b"), ("b", "r", "a")], []))
    assert labels(judged, "train") == {*TRAIN[1:]}
    assert not len(judged.test)
    assert len(judged.negatives["train"]) == 2


def test_annotated_negatives_stay_unless_accepted():
    untrue = {"train": [("c", "r", "b"), ("a", "r", "a")], "test": [("b", "r", "b")]}
    judged = judge(graph(negatives=untrue), Settled([("c", "r", "b")], [("c", "r", "c")], []))
    entity = judged.entities.labels
    assert {(entity[h], entity[t]) for h, _, t in judged.negatives["train"]} == {
        ("a", "a"),
        ("c", "c"),
    }
    assert len(judged.negatives["test"]) == 1


def test_entities_may_be_new():
    judged = judge(graph(), Settled([("a", "r", "new")], [], []))
    assert "new" in judged.entities.labels


def test_only_uniform_sampling_is_replaced_and_only_if_there_is_something_to_heed():
    rejected, config = Settled([], [FACT], []), Config()
    heeding = heed_rejected(config, rejected).sampler
    assert (heeding.name, heeding.options) == ("true-negatives", {"pool": "shared"})
    assert heeding.num_unlabeled == config.sampler.num_unlabeled
    own = config.with_settings(["sampler.name=uniform", "sampler.options.pool=own"])
    assert heed_rejected(own, rejected).sampler.options == {"pool": "own"}
    assert heed_rejected(config, Settled([FACT], [], [])) == config
    sans = config.with_settings(["sampler.name=sans"])
    assert heed_rejected(sans, rejected) == sans


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
made = st.builds(Verdict, text, text, text, st.sampled_from(["accept", "unsure"]), text, text)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(made, max_size=3), st.sampled_from(["tsv", "jsonl"]))
def test_what_is_written_is_read_again(tmp_path, kept, ending):
    path = tmp_path / f"verdicts.{ending}"
    path.write_text(verdicts.write(kept, ending), encoding="utf-8", newline="")
    assert read(path) == kept


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("v.txt", "", "are read from .tsv, .csv and .jsonl"),
        ("v.jsonl", "{", "not JSON lines"),
        ("v.jsonl", "[]", "verdict 1 is no object"),
        ("v.tsv", "head\trelation\ttail\na\tr\tb\n", "verdict 1 has no verdict"),
        ("v.tsv", "head\trelation\ttail\tverdict\na\tr\tb\tyes\n", "'yes' is no verdict"),
    ],
)
def test_a_file_that_is_not_one_is_told(tmp_path, name, content, reason):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=reason):
        read(tmp_path / name)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(DataError, match="cannot read the verdicts"):
        read(tmp_path / "none.tsv")


def test_training_on_verdicts_raises_what_was_accepted_and_lowers_what_was_rejected(tmp_path):
    config = Config.of(
        {
            "scoring": {"name": "distmult", "dim": 64},
            "objective": {"weight": 0.005},  # so that single facts can go against the pattern
            "training": {"epochs": 40, "batch_size": 64, "threads": 1, "keep": "last"},
            "sampler": {"num_unlabeled": 8},
            "generator": {"num_synthetic": 0},
        }
    ).with_settings(["training.patience=0"])
    accepted = [(person(i), "likes", thing((i + 7) % SIZE)) for i in range(0, SIZE, 4)]
    rejected, unjudged = ([missing(i) for i in range(first, SIZE, 2)] for first in (1, 0))
    settled = Settled(accepted, rejected, [])
    plain = puda.train(board(), tmp_path / "plain", config=config)
    heeding = puda.train(
        judge(board(), settled), tmp_path / "heeding", config=heed_rejected(config, settled)
    )

    def score(run: puda.Run, facts: list[tuple[str, str, str]]) -> float:
        entity, relation = run.trained.graph.entities.find, run.trained.graph.relations.find
        ids = [(entity(h), relation(r), entity(t)) for h, r, t in facts]
        return float(fact_scores(run.trained, np.array(ids)).mean())

    assert score(heeding, accepted) > score(plain, accepted) + 3
    assert score(heeding, rejected) < score(plain, rejected) - 0.5
    assert score(heeding, rejected) < score(heeding, unjudged) - 0.5
