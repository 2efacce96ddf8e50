"""Pairs that are drawn stand for all that could be."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from puda import pairs as drawing
from puda.pairs import draw_pairs
from puda.places import places


def all_pairs(graph) -> np.ndarray:
    """List the pairs of candidates that are neither known nor loops, relation by relation."""
    known = graph.known("train")
    found = [
        (head, relation, tail)
        for relation in range(graph.num_relations)
        for head in np.flatnonzero(known.candidates(relation, 1)).tolist()
        for tail in np.flatnonzero(known.candidates(relation, 0)).tolist()
        if head != tail
    ]
    facts = np.array(found)
    return facts[~graph.known("train", "valid").holds(facts)]


def test_drawn_pairs_are_candidates_that_are_not_known(trained_clubs):
    everything = {tuple(fact) for fact in all_pairs(trained_clubs.graph).tolist()}
    drawn = draw_pairs(trained_clubs, size=500, seed=0)
    assert {tuple(fact) for fact in drawn.facts.tolist()} < everything
    assert 250 < len(drawn.facts) < 1000
    expected = places(trained_clubs, drawn.facts, trained_clubs.graph.known("train"))
    np.testing.assert_array_equal(drawn.places, expected)


def test_a_few_stand_for_all_in_number_and_in_kind(trained_clubs):
    graph = trained_clubs.graph
    everything = all_pairs(graph)
    first = (places(trained_clubs, everything, graph.known("train")) <= 3).all(1)
    whole, near = [], []
    for seed in range(40):
        drawn = draw_pairs(trained_clubs, size=300, seed=seed)
        whole.append(drawn.number.sum())
        near.append(drawn.number[(drawn.places <= 3).all(1)].sum())
    assert np.mean(whole) == pytest.approx(len(everything), rel=0.05)
    assert np.mean(near) == pytest.approx(first.sum(), rel=0.15)
    assert first.mean() < 0.04


def test_where_all_questions_are_asked_no_near_pair_is_missed(trained_clubs):
    graph = trained_clubs.graph
    everything = all_pairs(graph)
    stand = places(trained_clubs, everything, graph.known("train"))
    # A validation fact may be one of ten rivals: nine others are surely drawn.
    near = everything[(stand <= drawing.NEAR - 1).any(1)]
    drawn = {tuple(fact) for fact in draw_pairs(trained_clubs, size=10**6, seed=0).facts.tolist()}
    missed = [fact for fact in near.tolist() if tuple(fact) not in drawn]
    assert len(missed) < 0.01 * len(near)


def test_a_graph_too_large_for_one_tile_is_drawn_from_in_several(trained_clubs, monkeypatch):
    monkeypatch.setattr(drawing, "TILE", 100)
    test_a_few_stand_for_all_in_number_and_in_kind(trained_clubs)


def test_where_nothing_is_told_apart_no_more_are_drawn(trained_clubs):
    flat = replace(trained_clubs, entities=torch.zeros_like(trained_clubs.entities))
    drawn = draw_pairs(flat, size=500, seed=0)
    assert 250 < len(drawn.facts) < 1000


def test_the_same_seed_draws_the_same(trained_clubs):
    one, same, other = (draw_pairs(trained_clubs, size=200, seed=seed) for seed in (1, 1, 2))
    assert all((a == b).all() for a, b in zip(one, same, strict=True))
    assert not np.array_equal(one.facts, other.facts)
