"""What is answered to many at once is what puda.predict answers to one."""

import copy
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import puda
from board import SIZE, board, missing, person
from puda.data.graph import SPLITS
from puda.places import places
from puda.serve import answers as answering
from puda.serve.answers import Answers, Asked, Best, Kept
from puda.types import Prediction, Side

CONFIG = {
    "scoring": {"name": "distmult", "dim": 16},
    "generator": {"num_synthetic": 0},
    "training": {"epochs": 2, "validate_every": 2, "threads": 1},
}


@pytest.fixture
def answers(run):
    return Answers(run)


def ask(run: puda.Run, asked: Asked) -> list[Prediction]:
    """Answer by `predict`, which knows no offset."""
    graph = run.trained.graph
    anchor, relation = graph.entities.labels[asked.anchor], graph.relations.labels[asked.relation]
    given = {"head" if asked.side is Side.TAIL else "tail": anchor, "relation": relation}
    found = run.predict(**given, k=asked.offset + asked.k, include_known=asked.include_known)
    return found[asked.offset :]


def questions(run: puda.Run, **wanted: object) -> list[Asked]:
    entities = range(0, run.trained.graph.num_entities, 5)
    return [
        Asked(anchor, relation, side, **wanted)
        for anchor, relation, side in product(entities, (0, 1), Side)
    ]


def assert_same(found: list[Prediction], expected: list[Prediction]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one[:3] == other[:3] and one[4:6] == other[4:6]
        assert one.score == pytest.approx(other.score, abs=1e-5)
        assert one.probability == pytest.approx(other.probability, abs=1e-4)
        assert (one.margin is None) == (other.margin is None)


@pytest.mark.parametrize("depth", [512, 4])
@pytest.mark.parametrize("wanted", [{"k": 3}, {"k": 7, "offset": 5, "include_known": True}])
def test_a_batch_is_answered_as_each_question_alone(run, answers, wanted, depth, monkeypatch):
    monkeypatch.setattr(answering, "DEPTH", depth)
    batch = questions(run, **wanted)
    for asked, found in zip(batch, answers.answer(batch), strict=True):
        assert_same(found, ask(run, asked))


def test_a_page_behind_the_last_answer_is_empty(answers):
    assert answers.answer([Asked(0, 0, Side.TAIL, k=5, offset=2 * SIZE)]) == [[]]


def test_what_is_kept_stays_within_its_bound_and_does_not_change_answers(run):
    small = Answers(run, kept=10_000)
    batch = questions(run, k=3)
    first = small.answer(batch)
    best = small._best.find(asked.key for asked in batch)
    assert 1 < len(best) < len(batch) and sum(map(Best.bytes, best.values())) <= 10_000
    for again, found in zip(small.answer(batch), first, strict=True):
        assert_same(again, found)


def test_what_was_asked_for_last_is_kept():
    kept = Kept[str, str](10, len)
    kept.keep({"a": "aaaa"})
    kept.keep({"b": "bbbb"})
    assert kept.find("ca") == {"a": "aaaa"}
    kept.keep({"c": "ccc"})
    assert kept.find("abc") == {"a": "aaaa", "c": "ccc"}


@pytest.mark.parametrize("wanted", [{"k": 3}, {"k": 9, "include_known": True}])
def test_places_are_those_of_a_calibration_also_of_equals(run, answers, wanted):
    model = copy.deepcopy(run.trained.model)
    for numbers in model.parameters():
        numbers.data = (4 * numbers.data).round()  # many scores are equal, and none is rounded
    trained = replace(run.trained, model=model, entities=(2 * run.trained.entities).round())
    answers.trained, known = trained, trained.graph.known(*SPLITS)
    for asked in questions(run, **wanted):
        page = answers._choose(asked, answers._find([asked.key])[asked.key])
        expected = places(trained, page.facts, known)
        told = ~np.isnan(page.places)
        assert not told[:, 1 - asked.side].any()
        np.testing.assert_allclose(page.places[told], expected[told])
        np.testing.assert_allclose(places(trained, page.facts, known, page.places), expected)


def test_a_graph_too_large_for_one_tile_is_scored_in_several(run, answers, monkeypatch):
    batch = questions(run, k=3)
    whole = Answers(run).answer(batch)
    monkeypatch.setattr(answering, "TILE", 1)
    for found, expected in zip(answers.answer(batch), whole, strict=True):
        assert_same(found, expected)


def test_the_board_is_learnt(run):
    for i in range(0, SIZE, 3):
        assert run.predict(head=person(i), relation="likes", k=1)[0].tail == missing(i)[2]


def test_members_of_an_ensemble_vote_as_they_do_on_a_single_question(tmp_path):
    together = puda.train(board(), tmp_path / "three", config=CONFIG, seeds=3)
    answers = Answers(together)
    for wanted in ({"k": 4}, {"k": 4, "include_known": True}):
        batch = questions(together, **wanted)
        for asked, found in zip(batch, answers.answer(batch), strict=True):
            expected = ask(together, asked)
            assert [(a.agreement, a.members) for a in found] == [
                (a.agreement, a.members) for a in expected
            ]
