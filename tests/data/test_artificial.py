"""Artificial graphs have the size that was asked for, and the look of real ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puda.data.artificial import SHAPES, artificial_graph
from puda.errors import DataError


@given(st.integers(100, 400), st.integers(1, 12), st.integers(1, 300), st.integers(0, 40))
def test_it_has_as_many_of_everything_as_was_asked_for(entities, relations, facts, held_out):
    graph = artificial_graph(entities, relations, facts, held_out)
    assert (graph.num_entities, graph.num_relations) == (entities, relations)
    assert [len(split) for split in (graph.train, graph.valid, graph.test)] == [
        facts,
        held_out,
        held_out,
    ]
    everything = np.concatenate([graph.train, graph.valid, graph.test])
    assert len(np.unique(everything, axis=0)) == facts + 2 * held_out  # no fact twice
    assert (everything >= 0).all()
    assert (everything < [entities, relations, entities]).all()
    assert len(set(graph.entities.labels)) == entities


def test_the_same_seed_gives_the_same_graph_and_another_seed_another():
    one, same, other = (artificial_graph(200, 5, 900, 20, seed=seed) for seed in (0, 0, 1))
    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_a_few_entities_have_most_facts_and_a_relation_keeps_to_its_types():
    graph = artificial_graph(*SHAPES["fb15k-237"])
    degree = np.sort(np.bincount(graph.train[:, [0, 2]].ravel(), minlength=graph.num_entities))
    assert degree[-145:].sum() > 0.15 * degree.sum()  # the top 1 %; in FB15k-237 it is 18 %
    assert np.median(degree) < 0.5 * degree.mean()
    assert (degree > 0).mean() > 0.99
    heads = [graph.train[graph.train[:, 1] == r][:, 0] for r in range(graph.num_relations)]
    share = [len(np.unique(h)) / graph.num_entities for h in heads]
    assert max(share) < 0.2  # 11 types of nearly equal size


def test_more_facts_than_fit_are_refused():
    with pytest.raises(DataError, match="1,000 facts do not fit 10 entities and 2 relations"):
        artificial_graph(10, 2, 1000, 0)
