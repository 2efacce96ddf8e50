"""The index of known answers agrees with a loop over the facts."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from puda.data.index import KnownAnswers, ranges

Question = tuple[int, int, int]  # anchor, relation, side


class Case(NamedTuple):
    """Facts over a few entities, questions about them, and candidates."""

    num_entities: int
    num_relations: int
    facts: list[tuple[int, int, int]]
    questions: list[Question]
    candidates: list[int]

    def index(self) -> KnownAnswers:
        """Index the facts."""
        facts = np.array(self.facts, dtype=np.int64).reshape(-1, 3)
        return KnownAnswers(facts, num_entities=self.num_entities, num_relations=self.num_relations)

    def keys(self, index: KnownAnswers) -> np.ndarray:
        """Number the questions."""
        questions = np.array(self.questions, dtype=np.int64).reshape(-1, 3)
        return index.key(questions[:, 0], questions[:, 1], questions[:, 2])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    num_entities, num_relations = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    entity, relation = st.integers(0, num_entities - 1), st.integers(0, num_relations - 1)
    return Case(
        num_entities,
        num_relations,
        draw(st.lists(st.tuples(entity, relation, entity), max_size=25)),
        draw(st.lists(st.tuples(entity, relation, st.integers(0, 1)), max_size=8)),
        draw(st.lists(entity, max_size=8)),
    )


def answers_by_loop(facts: list[tuple[int, int, int]], question: Question) -> list[int]:
    anchor, relation, side = question
    if side == 0:
        return sorted({t for h, r, t in facts if (h, r) == (anchor, relation)})
    return sorted({h for h, r, t in facts if (t, r) == (anchor, relation)})


@given(cases())
def test_answers_of_a_question_are_those_of_a_loop_over_the_facts(case: Case) -> None:
    index = case.index()
    for question in case.questions:
        assert index.of(*question).tolist() == answers_by_loop(case.facts, question)


@given(cases())
def test_exclude_names_each_known_answer_of_each_row(case: Case) -> None:
    index = case.index()
    row, entity = index.exclude(case.keys(index))
    assert list(zip(row.tolist(), entity.tolist(), strict=True)) == [
        (i, answer)
        for i, question in enumerate(case.questions)
        for answer in answers_by_loop(case.facts, question)
    ]


@given(cases())
def test_mask_marks_the_candidates_that_are_known_answers(case: Case) -> None:
    index = case.index()
    marked = index.mask(case.keys(index), np.array(case.candidates, dtype=np.int64))
    assert marked.shape == (len(case.questions), len(case.candidates))
    assert marked.tolist() == [
        [candidate in answers_by_loop(case.facts, question) for candidate in case.candidates]
        for question in case.questions
    ]


@given(cases(), cases())
def test_a_mask_does_not_depend_on_the_mask_before_it(case: Case, other: Case) -> None:
    index = case.index()
    keys, candidates = case.keys(index), np.array(case.candidates, dtype=np.int64)
    first = index.mask(keys, candidates)
    index.mask(keys[::2], np.array(other.candidates, dtype=np.int64) % case.num_entities)
    assert np.array_equal(index.mask(keys, candidates), first)


@given(cases())
def test_a_key_numbers_each_question_once(case: Case) -> None:
    sides = np.indices((case.num_entities, case.num_relations, 2)).reshape(3, -1)
    keys = case.index().key(*sides)
    assert sorted(keys.tolist()) == list(range(2 * case.num_relations * case.num_entities))


def test_a_known_answer() -> None:
    # Facts: 0 -r0-> 1, 0 -r0-> 2, 2 -r0-> 1, 0 -r1-> 1.
    facts = np.array([(0, 0, 2), (0, 1, 1), (2, 0, 1), (0, 0, 1)])
    index = KnownAnswers(facts, num_entities=3, num_relations=2)
    assert index.of(0, 0, 0).tolist() == [1, 2]  # what 0 points to by r0
    assert index.of(1, 0, 1).tolist() == [0, 2]  # what points to 1 by r0
    assert index.of(1, 1, 1).tolist() == [0]
    assert index.of(1, 0, 0).tolist() == []
    keys = index.key(np.array([1, 0, 1]), np.array([0, 0, 0]), np.array([1, 0, 0]))
    assert index.mask(keys, np.array([2, 0, 2])).tolist() == [
        [True, True, True],  # 0 and 2 point to 1
        [True, False, True],  # 0 points to 2, not to itself
        [False, False, False],
    ]


def test_a_fact_that_occurs_twice_is_one_answer() -> None:
    facts = np.array([(0, 0, 1), (0, 0, 1), (0, 0, 1)])
    index = KnownAnswers(facts, num_entities=2, num_relations=1)
    assert index.of(0, 0, 0).tolist() == [1]
    assert [part.tolist() for part in index.exclude(index.key(*np.array([[0], [0], [0]])))] == [
        [0],
        [1],
    ]


def test_without_facts_nothing_is_known() -> None:
    index = KnownAnswers(np.empty((0, 3), dtype=np.int64), num_entities=3, num_relations=2)
    keys = index.key(np.array([0, 2]), np.array([1, 0]), np.array([0, 1]))
    assert index.of(2, 1, 1).tolist() == []
    assert [len(part) for part in index.exclude(keys)] == [0, 0]
    assert not index.mask(keys, np.array([0, 1, 2])).any()


@pytest.mark.parametrize(
    ("starts", "lengths", "expected"),
    [([5, 0, 7], [2, 0, 3], [5, 6, 7, 8, 9]), ([3, 3], [1, 2], [3, 3, 4]), ([], [], [])],
)
def test_ranges_are_put_end_to_end(
    starts: list[int], lengths: list[int], expected: list[int]
) -> None:
    ints = (np.array(numbers, dtype=np.int64) for numbers in (starts, lengths))
    assert ranges(*ints).tolist() == expected


draws = st.lists(st.floats(0, 1, exclude_max=True), min_size=3, max_size=3)


@given(cases(), draws)
def test_complement_picks_by_place_among_the_entities_that_are_no_answers(
    case: Case, numbers: list[float]
) -> None:
    index = case.index()
    keys = case.keys(index)
    found = index.complement(keys, np.array([numbers] * len(keys)).reshape(-1, 3))
    for row, question in zip(found.tolist(), case.questions, strict=True):
        answers = answers_by_loop(case.facts, question)
        others = [entity for entity in range(case.num_entities) if entity not in answers]
        if others:
            assert row == [others[int(number * len(others))] for number in numbers]
        else:  # every entity is an answer
            assert set(row) <= set(answers)


@given(cases())
def test_complement_reaches_every_entity_that_is_no_answer_equally_often(case: Case) -> None:
    index = case.index()
    keys = case.keys(index)
    # A multiple of 1 .. 6, so that evenly spread draws fall evenly on any number of entities.
    even = np.tile((np.arange(60) + 0.5) / 60, (len(keys), 1))
    for row, question in zip(index.complement(keys, even), case.questions, strict=True):
        others = case.num_entities - len(answers_by_loop(case.facts, question))
        counts = np.bincount(row, minlength=case.num_entities)
        if others:
            assert (
                sorted(counts.tolist())
                == [0] * (case.num_entities - others) + [60 // others] * others
            )


@given(cases(), draws)
def test_sample_picks_by_place_among_the_answers(case: Case, numbers: list[float]) -> None:
    assume(case.facts)
    index = case.index()
    keys = case.keys(index)
    found, has_some = index.sample(keys, np.array([numbers] * len(keys)).reshape(-1, 3))
    for row, some, question in zip(found.tolist(), has_some, case.questions, strict=True):
        answers = answers_by_loop(case.facts, question)
        assert some == bool(answers)
        if answers:
            assert row == [answers[int(number * len(answers))] for number in numbers]
        else:  # something that can be looked up, not counted
            assert set(row) <= set(range(case.num_entities))


def test_without_facts_no_question_has_a_sample() -> None:
    index = KnownAnswers(np.empty((0, 3), dtype=np.int64), num_entities=3, num_relations=2)
    _, has_some = index.sample(index.key(np.array([0]), np.array([1]), 0), np.full((1, 2), 0.5))
    assert has_some.tolist() == [False]


def test_room_is_the_share_of_questions_with_so_many_answers_that_have_more():
    facts = [(0, 0, 1), (0, 0, 2), (0, 0, 3), (1, 0, 2), (2, 0, 3)]
    known = KnownAnswers(np.array(facts), num_entities=4, num_relations=1)
    relation, answers = np.zeros(4, dtype=np.int64), np.array([0, 1, 2, 3])
    # Of the three heads, one has more than one tail.
    expected = [(3 + 1) / (3 + 2), (1 + 1) / (3 + 2), (1 + 1) / (1 + 2), (0 + 1) / (1 + 2)]
    assert known.room(relation, 0, answers).tolist() == pytest.approx(expected)


def test_room_is_not_confused_by_a_question_that_all_entities_answer():
    facts = np.array([(0, 0, 0), (0, 0, 1), (1, 0, 0)])  # heads: 0 has two, 1 has one
    known = KnownAnswers(facts, num_entities=2, num_relations=1)
    assert known.room(np.array([0]), 1, np.array([0]))[0] == pytest.approx(3 / 4)


def test_who_is_seen_on_a_side_of_a_relation():
    facts = np.array([(3, 0, 1), (3, 0, 2), (0, 1, 3), (1, 0, 1)])
    known = KnownAnswers(facts, num_entities=4, num_relations=2)
    relation, side = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    spans = zip(*known.seen(relation, side), strict=True)
    seen = [(known.keys[start : start + number] % 4).tolist() for start, number in spans]
    assert seen == [[1, 2], [1, 3], [3], [0]]
