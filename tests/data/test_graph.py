"""A graph is the same whatever the order of its input, and it does not change."""

import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puda.data.graph import SPLITS, KnowledgeGraph
from puda.errors import DataError

Fact = tuple[str, str, str]

ANN, BOB, EVE = ("ann", "knows", "bob"), ("bob", "knows", "ann"), ("eve", "likes", "ann")
facts = st.tuples(st.sampled_from("abcdef"), st.sampled_from("rs"), st.sampled_from("abcdef"))
fact_lists = st.lists(facts, max_size=12)
nonempty_lists = st.lists(facts, min_size=1, max_size=12)


def spell(graph: KnowledgeGraph, ids: np.ndarray) -> list[Fact]:
    """Turn facts as ids back into labels."""
    entity, relation = graph.entities.labels, graph.relations.labels
    return [(entity[h], relation[r], entity[t]) for h, r, t in ids.tolist()]


@given(nonempty_lists, fact_lists, fact_lists)
def test_ids_stand_for_the_labels_they_came_from(train, valid, test) -> None:
    graph = KnowledgeGraph.from_facts(train, valid=valid, test=test)
    for split, given_facts in zip(SPLITS, (train, valid, test), strict=True):
        assert spell(graph, graph.facts(split)) == sorted(set(given_facts))
    everything = train + valid + test
    assert graph.entities.labels == sorted({label for h, _, t in everything for label in (h, t)})
    assert graph.relations.labels == sorted({r for _, r, _ in everything})
    assert graph.num_entities == len(graph.entities)
    assert graph.num_relations == len(graph.relations)


@given(nonempty_lists, fact_lists, st.randoms())
def test_a_graph_does_not_depend_on_the_order_of_its_input(train, test, rng: random.Random) -> None:
    graph = KnowledgeGraph.from_facts(train, test=test)
    rng.shuffle(train)
    rng.shuffle(test)
    again = KnowledgeGraph.from_facts(train, test=test)
    assert again.entities.labels == graph.entities.labels
    assert again.relations.labels == graph.relations.labels
    for split in SPLITS:
        assert np.array_equal(again.facts(split), graph.facts(split))
    assert again.fingerprint == graph.fingerprint


@given(nonempty_lists, fact_lists)
def test_repeated_facts_of_a_split_are_dropped_and_counted(train, valid) -> None:
    graph = KnowledgeGraph.from_facts(train, valid=valid)
    assert graph.duplicates == len(train) - len(set(train)) + len(valid) - len(set(valid))
    assert (len(graph.train), len(graph.valid)) == (len(set(train)), len(set(valid)))


def test_a_frame_and_a_list_of_triples_make_the_same_graph() -> None:
    columns = {"weight": ["1", "2"], "tail": [ANN[2], EVE[2]], "head": [ANN[0], EVE[0]]}
    frame = pl.DataFrame(columns | {"relation": [ANN[1], EVE[1]]})
    from_frame, from_list = (KnowledgeGraph.from_facts(source) for source in (frame, [EVE, ANN]))
    assert from_frame.fingerprint == from_list.fingerprint
    assert spell(from_frame, from_frame.train) == [ANN, EVE]


def test_a_graph_needs_a_training_fact() -> None:
    with pytest.raises(DataError, match="people: there is no training fact"):
        KnowledgeGraph.from_facts([], test=[ANN], name="people")


def test_facts_and_negatives_cannot_be_written_to() -> None:
    graph = KnowledgeGraph.from_facts([ANN], test=[BOB], negatives={"test": [EVE]})
    for ids in (graph.train, graph.test, graph.negatives["test"]):
        with pytest.raises(ValueError, match="read-only"):
            ids[0, 0] = 1
    with pytest.raises(AttributeError):
        graph.train = graph.test  # type: ignore[misc]


def test_negatives_are_encoded_with_the_ids_of_the_graph() -> None:
    untrue = [("zoe", "hates", "ann"), ("bob", "likes", "ann"), ("bob", "likes", "ann")]
    graph = KnowledgeGraph.from_facts([ANN, EVE], negatives={"valid": untrue, "test": []})
    assert spell(graph, graph.negatives["valid"]) == sorted(set(untrue))
    assert graph.negatives["test"].shape == (0, 3)
    assert graph.entities.labels == ["ann", "bob", "eve", "zoe"]  # zoe is in a negative only
    assert graph.relations.labels == ["hates", "knows", "likes"]
    # Negatives are no facts: neither known nor counted.
    assert graph.known("train").of(1, graph.relations.find("likes"), 0).tolist() == []
    assert graph.duplicates == 0


@pytest.mark.parametrize(
    "other",
    [
        KnowledgeGraph.from_facts([ANN, BOB]),  # a fact less
        KnowledgeGraph.from_facts([ANN, BOB, ("eve", "likes", "bob")]),  # another fact
        KnowledgeGraph.from_facts([ANN, BOB, ("eva", "likes", "ann")]),  # same ids, other label
        KnowledgeGraph.from_facts([ANN, BOB, ("eve", "loves", "ann")]),
        KnowledgeGraph.from_facts([BOB, EVE], valid=[ANN]),  # other splits
        KnowledgeGraph.from_facts([BOB, EVE], test=[ANN]),
        KnowledgeGraph.from_facts([ANN, BOB, EVE], valid=[("eve", "likes", "bob")]),
        KnowledgeGraph.from_facts([ANN, BOB, EVE], test=[("eve", "likes", "bob")]),
    ],
)
def test_fingerprints_of_different_graphs_differ(other: KnowledgeGraph) -> None:
    assert KnowledgeGraph.from_facts([ANN, BOB, EVE]).fingerprint != other.fingerprint


def test_fingerprints_differ_when_the_last_fact_moves_to_another_split() -> None:
    prints = {
        KnowledgeGraph.from_facts([ANN, BOB, EVE]).fingerprint,
        KnowledgeGraph.from_facts([ANN, BOB], valid=[EVE]).fingerprint,
        KnowledgeGraph.from_facts([ANN, BOB], test=[EVE]).fingerprint,
    }
    assert len(prints) == 3


def test_fingerprints_differ_when_a_letter_moves_from_a_relation_to_an_entity() -> None:
    one = KnowledgeGraph.from_facts([("a", "cd", "b")])
    other = KnowledgeGraph.from_facts([("a", "d", "bc")])
    assert one.fingerprint != other.fingerprint


def test_a_fingerprint_does_not_depend_on_name_or_duplicates() -> None:
    graph = KnowledgeGraph.from_facts([ANN, EVE], name="one")
    assert KnowledgeGraph.from_facts([EVE, ANN, ANN], name="two").fingerprint == graph.fingerprint


def test_known_answers_are_those_of_the_named_splits() -> None:
    graph = KnowledgeGraph.from_facts(
        [("a", "r", "b")], valid=[("a", "r", "c")], test=[("a", "r", "d")]
    )
    # Entities a b c d have the ids 0 1 2 3; the question is (a, r, TAIL).
    assert graph.known("train").of(0, 0, 0).tolist() == [1]
    assert graph.known("train", "valid").of(0, 0, 0).tolist() == [1, 2]
    assert graph.known("test", "train").of(0, 0, 0).tolist() == [1, 3]
    assert graph.known(*SPLITS).of(0, 0, 0).tolist() == [1, 2, 3]
    assert graph.known("train") is graph.known("train")


def test_an_unknown_split_is_an_error_that_names_the_splits() -> None:
    graph = KnowledgeGraph.from_facts([ANN])
    for ask in (graph.facts, graph.known):
        with pytest.raises(DataError, match="'dev': choose one of train, valid, test"):
            ask("dev")
