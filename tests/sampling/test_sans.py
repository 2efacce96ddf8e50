"""SANS: draws come from the neighbourhood of the anchor, all of it and nothing else."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.sampling import sans
from puda.sampling.sans import SANSSampler
from puda.seeds import stream
from puda.training.build import build_learner
from puda.types import Batch, Questions

DRAWS = 300  # of at most 7 members: one is missed once in 10^19 times


def score(questions: Questions, ids: Tensor) -> Tensor:
    raise AssertionError("the structure of the graph needs no scores")


def adjacency(graph: KnowledgeGraph) -> np.ndarray:
    """Return the undirected 0/1 adjacency of train (E, E)."""
    dense = np.zeros((graph.num_entities, graph.num_entities), dtype=np.int64)
    for head, _, tail in graph.train.tolist():
        dense[head, tail] = dense[tail, head] = 1
    return dense


def pools_by_powers(graph: KnowledgeGraph, hops: int) -> list[set[int]]:
    """Return the nonzeros of A^k + A^(k-1) by row."""
    power = np.linalg.matrix_power
    reached = power(adjacency(graph), hops) + power(adjacency(graph), hops - 1)
    return [set(np.flatnonzero(row).tolist()) for row in reached]


def pools_of_walks(graph: KnowledgeGraph, hops: int) -> list[set[int]]:
    """Return the nonzeros of A^k by row: where walks of exactly k steps can end."""
    reached = np.linalg.matrix_power(adjacency(graph), hops)
    return [set(np.flatnonzero(row).tolist()) for row in reached]


def all_questions(graph: KnowledgeGraph) -> Batch:
    """Ask every entity's questions, those without a known answer too."""
    sizes = (graph.num_entities, graph.num_relations, 2)
    anchor, relation, side = torch.cartesian_prod(*map(torch.arange, sizes)).T
    return Batch(Questions(anchor, relation, side), torch.zeros(len(anchor), dtype=torch.long))


def check(graph: KnowledgeGraph, sampler: SANSSampler, pools: list[set[int]]) -> int:
    """Check the draws of every question against the pools; return how many fell back."""
    batch = all_questions(graph)
    ids, counted = sampler.draw(batch, score, stream(0, "draws"))
    fallen_back = 0
    for row in range(len(ids)):
        anchor, relation, side = (
            int(x[row])
            for x in (batch.questions.anchor, batch.questions.relation, batch.questions.side)
        )
        known = set(graph.known("train").of(anchor, relation, side).tolist())
        drawn, outside = set(ids[row].tolist()), set(range(graph.num_entities)) - known
        if pools[anchor] - known:
            assert drawn == pools[anchor]
            assert counted[row].tolist() == [i not in known for i in ids[row].tolist()]
        elif outside:  # (where all entities are known answers, see the contract)
            assert drawn == outside
            assert counted[row].all()
            fallen_back += 1
    return fallen_back


@st.composite
def graphs(draw: st.DrawFn) -> KnowledgeGraph:
    """Graphs of a few entities, of which some may have no neighbour in train."""
    size = draw(st.integers(2, 7))
    entity, relation = st.integers(0, size - 1), st.integers(0, 1)
    facts = draw(st.lists(st.tuples(entity, relation, entity), min_size=1, max_size=10))
    everyone = [("e0", "r0", f"e{i}") for i in range(size)]
    return KnowledgeGraph.from_facts(
        [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in facts], test=everyone
    )


@settings(max_examples=60)
@given(graphs(), st.integers(1, 4))
def test_draws_are_the_nonzeros_of_the_powers_of_the_adjacency(graph, hops):
    check(graph, SANSSampler(graph, DRAWS, hops=hops), pools_by_powers(graph, hops))


@settings(max_examples=60)
@given(graphs(), st.integers(1, 3))
def test_draws_are_the_ends_of_walks_of_exactly_so_many_steps(graph, hops):
    # A given path of 3 steps has a chance of at least 1/7^3, so 5,000 walks miss it once in 10^6.
    check(graph, SANSSampler(graph, DRAWS, hops=hops, walks=5000), pools_of_walks(graph, hops))


def path_graph(size: int) -> KnowledgeGraph:
    """Return a path e00 - e01 - e02 - ... and an entity that only test knows."""
    facts = [(f"e{i:02d}", "next", f"e{i + 1:02d}") for i in range(size - 1)]
    return KnowledgeGraph.from_facts(facts, test=[("e00", "next", "lonely")])


def draw_for(sampler: SANSSampler, anchor: int, side: int = 0) -> tuple[list[int], list[bool]]:
    questions = Questions(torch.tensor([anchor]), torch.tensor([0]), torch.tensor([side]))
    ids, counted = sampler.draw(Batch(questions, torch.tensor([0])), score, stream(0, "draws"))
    return ids[0].tolist(), counted[0].tolist()


def test_two_hops_along_a_path_are_the_entity_itself_its_neighbours_and_theirs():
    graph = path_graph(7)
    ids, counted = draw_for(SANSSampler(graph, DRAWS), 3)
    assert set(ids) == {1, 2, 3, 4, 5}
    # Of these, e4 is known to be next and does not count.
    assert {i for i, counts in zip(ids, counted, strict=True) if not counts} == {4}


def test_draws_are_uniform_over_the_members_whatever_leads_to_them():
    # e3 is reached from e3 by two walks of two steps (over e2, over e4), e1 and e5 by one each.
    ids, _ = draw_for(SANSSampler(path_graph(7), 5000), 3)
    shares = np.bincount(ids)[[1, 2, 3, 4, 5]] / 5000
    assert shares.tolist() == pytest.approx([1 / 5] * 5, abs=4 * (4 / 25 / 5000) ** 0.5)


def test_every_walk_starts_anew():
    # One walk of two steps from an end of a long path ends at most two away; a walk that went on
    # where the last one ended, as in the released code, would come further.
    pool = SANSSampler(path_graph(40), 50, hops=2, walks=200)
    for anchor in range(40):
        assert all(abs(i - anchor) in (0, 2) for i in draw_for(pool, anchor)[0])


def test_onward_walks_go_on_where_the_last_one_ended():
    # 4,000 walks of two steps are one of 8,000, which comes to every other entity of the path.
    pool = SANSSampler(path_graph(20), DRAWS, hops=2, walks=4000, onward=True)
    for anchor in range(20):
        assert set(draw_for(pool, anchor)[0]) == set(range(anchor % 2, 20, 2))


def test_few_walks_find_a_part_of_the_neighbourhood():
    facts = [("hub", "to", f"leaf {i:02d}") for i in range(30)]
    graph = KnowledgeGraph.from_facts(facts)
    ids, _ = draw_for(SANSSampler(graph, DRAWS, hops=1, walks=4), graph.num_entities - 1)
    assert set(ids) == {0}  # all that a leaf can reach
    hub = 0
    ids, _ = draw_for(SANSSampler(graph, DRAWS, hops=1, walks=4), hub, side=1)
    assert 1 <= len(set(ids)) <= 4
    assert hub not in ids


def test_an_isolated_anchor_falls_back_to_all_entities_that_are_no_known_answers():
    graph = path_graph(5)
    lonely = graph.entities.labels.index("lonely")
    for walks in (0, 50):
        ids, counted = draw_for(SANSSampler(graph, DRAWS, walks=walks), lonely)
        assert set(ids) == set(range(graph.num_entities))
        assert all(counted)


def test_a_pool_of_known_answers_falls_back_to_all_entities_that_are_none():
    # One step from the hub leads to its leaves only, and all of them are known answers.
    facts = [("hub", "to", f"leaf {i}") for i in range(4)] + [("leaf 1", "by", "other")]
    graph = KnowledgeGraph.from_facts(facts)
    hub, to = graph.entities.labels.index("hub"), graph.relations.labels.index("to")
    questions = Questions(torch.tensor([hub]), torch.tensor([to]), torch.tensor([0]))
    sampler = SANSSampler(graph, DRAWS, hops=1, walks=100)
    ids, counted = sampler.draw(Batch(questions, torch.tensor([0])), score, stream(0, "draws"))
    assert {graph.entities.labels[i] for i in ids[0].tolist()} == {"hub", "other"}
    assert counted.all()


def test_the_blocks_in_which_neighbourhoods_are_computed_do_not_show(monkeypatch):
    graph = path_graph(23)
    whole = SANSSampler(graph, 4, hops=3)
    monkeypatch.setattr(sans, "BLOCK", 5)
    parts = SANSSampler(graph, 4, hops=3)
    assert np.array_equal(whole.members, parts.members)
    assert np.array_equal(whole.offsets, parts.offsets)
    assert check(graph, SANSSampler(graph, DRAWS, hops=3), pools_by_powers(graph, 3)) > 0


@settings(max_examples=60)
@given(graphs(), st.integers(1, 3), st.integers(1, 7))
def test_of_a_shared_pool_the_neighbourhood_counts_and_all_of_it_where_that_is_empty(
    graph, hops, number
):
    batch, pools = all_questions(graph), pools_by_powers(graph, hops)
    sampler = SANSSampler(graph, number, hops=hops, pool="shared")
    ids, counted = sampler.draw(batch, score, stream(0, "draws"))
    assert len(set(ids.tolist())) == len(ids) == min(number, graph.num_entities)
    for row in range(len(counted)):
        asked = batch.questions
        anchor, relation, side = (int(x[row]) for x in (asked.anchor, asked.relation, asked.side))
        known = set(graph.known("train").of(anchor, relation, side).tolist())
        outside = set(ids.tolist()) - known
        assert set(ids[counted[row]].tolist()) == (outside & pools[anchor] or outside)


@pytest.mark.parametrize("option", ["hops=0", "hops=-1", "walks=-1"])
def test_no_hops_or_fewer_walks_than_none_are_an_error(option):
    config = Config().with_settings(["sampler.name=sans", f"sampler.options.{option}"])
    with pytest.raises(ConfigError, match=option.replace("=", " = ")):
        build_learner(path_graph(3), config)


def test_onward_without_walks_is_an_error_that_says_what_to_set():
    with pytest.raises(ConfigError, match=r"sampler\.options\.walks, e\.g\. 1000"):
        SANSSampler(path_graph(3), 4, onward=True)
