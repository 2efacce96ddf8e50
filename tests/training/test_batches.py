"""An epoch holds what it should, each once, in a fresh order, in batches of nearly equal size."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from puda.config import TrainingConfig
from puda.data.graph import KnowledgeGraph
from puda.seeds import stream
from puda.training.batches import Batches
from puda.types import Batch
from toy import checkerboard, family_tree, ring

GRAPHS = {"ring": ring(), "family tree": family_tree(), "checkerboard": checkerboard()}
MODES = {
    "both": {"sides": "both"},
    "bernoulli": {"sides": "bernoulli"},
    "grouped": {"grouped": True},
}
every_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
every_mode = pytest.mark.parametrize("mode", MODES)

Question = tuple[int, int, int]  # anchor, relation, side


def batches_of(graph: KnowledgeGraph, mode: str = "both", size: int = 16) -> Batches:
    return Batches(graph, TrainingConfig(batch_size=size, **MODES[mode]))


def epoch(batches: Batches, number: int = 0) -> list[Batch]:
    return list(batches.of_epoch(stream(0, "order", number)))


def asked(batch: Batch) -> list[Question]:
    parts = (batch.questions.anchor, batch.questions.relation, batch.questions.side)
    return list(zip(*(part.tolist() for part in parts), strict=True))


def facts_of(batch: Batch) -> list[tuple[int, int, int, int]]:
    """Return head, relation, tail and the side asked for, by answer."""
    owner = range(len(batch.answers)) if batch.owner is None else batch.owner.tolist()
    questions = asked(batch)
    found = []
    for answer, row in zip(batch.answers.tolist(), owner, strict=True):
        anchor, relation, side = questions[row]
        head, tail = (answer, anchor) if side else (anchor, answer)
        found.append((head, relation, tail, side))
    return found


def answers_by_loop(graph: KnowledgeGraph) -> dict[Question, set[int]]:
    found: dict[Question, set[int]] = {}
    for head, relation, tail in graph.train.tolist():
        found.setdefault((head, relation, 0), set()).add(tail)
        found.setdefault((tail, relation, 1), set()).add(head)
    return found


# --- both sides


@every_graph
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_both_sides_of_every_fact_are_asked_for_once(graph, size):
    seen = [fact for batch in epoch(batches_of(graph, size=size)) for fact in facts_of(batch)]
    assert sorted(seen) == sorted((*f, side) for f in graph.train.tolist() for side in (0, 1))


@every_graph
def test_of_held_out_facts_none_is_asked_for(graph):
    held_out = {tuple(fact) for fact in [*graph.valid.tolist(), *graph.test.tolist()]}
    for mode in MODES:
        for batch in epoch(batches_of(graph, mode)):
            assert not {fact[:3] for fact in facts_of(batch)} & held_out


# --- Bernoulli


def test_under_bernoulli_every_fact_is_asked_for_once_on_one_side():
    graph = family_tree()
    for number in range(3):
        seen = [
            f for batch in epoch(batches_of(graph, "bernoulli"), number) for f in facts_of(batch)
        ]
        assert sorted(f[:3] for f in seen) == sorted(map(tuple, graph.train.tolist()))
        assert {side for *_, side in seen} == {0, 1}


def test_under_bernoulli_the_head_is_asked_for_by_tails_per_head_and_heads_per_tail():
    # "has": one head with 6 tails: tph = 6, hpt = 1, so heads in 6 of 7 cases.
    # "in": 4 heads with one tail: tph = 1, hpt = 4, so in 1 of 5.
    # "mixed": 3 facts with 2 heads and 2 tails: tph = 3/2 = hpt, so in 1 of 2.
    facts = [("a", "has", f"x{i}") for i in range(6)] + [(f"x{i}", "in", "a") for i in range(4)]
    facts += [("a", "mixed", "b"), ("a", "mixed", "c"), ("d", "mixed", "b")]
    graph = KnowledgeGraph.from_facts(facts)
    expected = {"has": 6 / 7, "in": 1 / 5, "mixed": 1 / 2}
    batches, epochs = batches_of(graph, "bernoulli"), 2000
    heads: Counter[int] = Counter()
    for number in range(epochs):
        for batch in epoch(batches, number):
            heads.update(r for _, r, side in asked(batch) if side == 1)
    for relation, label in enumerate(graph.relations.labels):
        drawn = epochs * int((graph.train[:, 1] == relation).sum())
        chance = expected[label]
        error = math.sqrt(chance * (1 - chance) / drawn)
        assert heads[relation] / drawn == pytest.approx(chance, abs=4 * error), label


def test_a_relation_that_train_does_not_hold_is_no_trouble():
    graph = KnowledgeGraph.from_facts([("a", "r", "b")], test=[("a", "q", "b")])
    assert [len(facts_of(b)) for b in epoch(batches_of(graph, "bernoulli"))] == [1]


# --- grouped


@every_graph
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_grouped_batches_hold_every_question_once_with_exactly_its_answers(graph, size):
    seen: dict[Question, list[int]] = {}
    for batch in epoch(batches_of(graph, "grouped", size)):
        assert len(batch.owner) == len(batch.answers)
        for row, question in enumerate(asked(batch)):
            assert question not in seen
            seen[question] = batch.answers[batch.owner == row].tolist()
    assert all(len(set(answers)) == len(answers) for answers in seen.values())
    assert {q: set(answers) for q, answers in seen.items()} == answers_by_loop(graph)


@st.composite
def graphs(draw: st.DrawFn) -> KnowledgeGraph:
    entity, relation = st.integers(0, 5), st.integers(0, 2)
    facts = draw(st.lists(st.tuples(entity, relation, entity), min_size=1, max_size=15))
    return KnowledgeGraph.from_facts([(f"e{h}", f"r{r}", f"e{t}") for h, r, t in facts])


@settings(max_examples=40)
@given(graphs(), st.integers(1, 9))
def test_whatever_the_graph_an_epoch_holds_each_of_its_questions(graph, size):
    grouped = [
        (question, frozenset(batch.answers[batch.owner == row].tolist()))
        for batch in epoch(batches_of(graph, "grouped", size))
        for row, question in enumerate(asked(batch))
    ]
    expected = {q: frozenset(answers) for q, answers in answers_by_loop(graph).items()}
    assert Counter(grouped) == Counter(expected.items())
    both = [fact for batch in epoch(batches_of(graph, size=size)) for fact in facts_of(batch)]
    assert Counter(both) == Counter((*f, side) for f in graph.train.tolist() for side in (0, 1))


# --- all


@every_mode
@every_graph
@pytest.mark.parametrize("size", [1, 3, 7, 10, 64, 10_000])
def test_batches_are_as_many_as_said_of_nearly_equal_size_and_none_too_large(mode, graph, size):
    batches = batches_of(graph, mode, size)
    sizes = [len(batch.questions) for batch in epoch(batches)]
    assert len(sizes) == len(batches) == math.ceil(sum(sizes) / size)
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1


@every_mode
def test_the_same_stream_gives_the_same_batches_and_another_another_order(mode):
    def written_out(batches: Batches, number: int) -> list:
        return [(asked(b), b.answers.tolist()) for b in epoch(batches, number)]

    one, again = batches_of(family_tree(), mode), batches_of(family_tree(), mode)
    first = written_out(one, 0)
    assert written_out(one, 1) != first
    assert written_out(again, 0) == first  # whatever was drawn in between
    assert written_out(one, 0) == first


@every_mode
def test_the_order_is_fresh_and_not_that_of_the_graph(mode):
    batches = batches_of(family_tree(), mode, size=1000)
    orders = [asked(batch) for number in range(3) for batch in epoch(batches, number)]
    assert len({tuple(order) for order in orders}) == 3
    assert all(order != sorted(order) for order in orders)


def test_every_question_comes_early_and_late_equally_often():
    batches = batches_of(ring(6), size=1000)
    size, epochs = len(batches.questions), 1500
    places = torch.zeros(size)
    index = {q: i for i, q in enumerate(sorted(asked(epoch(batches)[0])))}
    assert len(index) == size
    for number in range(epochs):
        (batch,) = epoch(batches, number)
        for place, question in enumerate(asked(batch)):
            places[index[question]] += place
    error = math.sqrt((size**2 - 1) / 12 / epochs)
    assert (places / epochs - (size - 1) / 2).abs().max() < 4 * error


@every_graph
@every_mode
def test_the_facts_of_a_batch_are_what_its_answers_make_of_its_questions(graph, mode):
    found = Counter(
        tuple(fact) for batch in epoch(batches_of(graph, mode)) for fact in batch.facts.tolist()
    )
    times = 1 if mode == "bernoulli" else 2  # a fact is asked for from one side or from both
    assert found == Counter({tuple(fact): times for fact in graph.train.tolist()})


WEIGHTS = {"subsampled": lambda n, m: 1 / math.sqrt(n + m + 6), "by_question": lambda n, m: 1 / n}


@every_graph
@every_mode
@pytest.mark.parametrize("weights", WEIGHTS)
def test_answers_weigh_by_the_numbers_of_answers_of_a_facts_questions(graph, mode, weights):
    known = answers_by_loop(graph)
    batches = Batches(graph, TrainingConfig(batch_size=16, weights=weights, **MODES[mode]))
    for batch in epoch(batches):
        expected = []
        for head, relation, tail, side in facts_of(batch):
            numbers = [len(known[head, relation, 0]), len(known[tail, relation, 1])]
            expected.append(WEIGHTS[weights](numbers[side], numbers[1 - side]))
        assert batch.weight.tolist() == pytest.approx(expected)


@every_mode
def test_facts_weigh_alike_unless_otherwise_asked_for(mode):
    assert all(batch.weight is None for batch in epoch(batches_of(ring(), mode)))
