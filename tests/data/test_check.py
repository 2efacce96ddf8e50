"""Known answers on graphs small enough to check by hand, and naive loops as oracles."""

import json
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from puda.data.categories import relation_categories
from puda.data.check import (
    DegreeBucket,
    Parts,
    RelationPair,
    Unseen,
    check,
    components,
)
from puda.data.graph import KnowledgeGraph

Fact = tuple[str, str, str]


def ring(size: int, relation: str = "next", prefix: str = "e") -> list[Fact]:
    return [(f"{prefix}{i}", relation, f"{prefix}{(i + 1) % size}") for i in range(size)]


def swap(facts: list[Fact], relation: str) -> list[Fact]:
    return [(tail, relation, head) for head, _, tail in facts]


@pytest.fixture
def family() -> KnowledgeGraph:
    """Three couples, p0-p1, p2-p3, p4-p5; each person p<i> has one child c<i>."""
    parent = [(f"p{i}", "parent", f"c{i}") for i in range(6)]
    child = swap(parent, "child")
    married = [(f"p{i}", "married", f"p{i + 1}") for i in (0, 2, 4)]
    married += swap(married, "married")
    valid, test = [parent[1]], [child[5], married[-1]]
    train = [fact for fact in parent + child + married if fact not in valid + test]
    return KnowledgeGraph.from_facts(train, valid=valid, test=test, name="family")


def test_family_sizes_and_flaws(family: KnowledgeGraph) -> None:
    report = check(family)
    assert (report.name, report.num_entities, report.num_relations) == ("family", 12, 3)
    assert report.num_facts == {"train": 15, "valid": 1, "test": 2}
    assert (report.duplicates, report.self_loops, report.self_loop_examples) == (0, 0, [])
    assert report.repeated == {"train+valid": 0, "train+test": 0, "valid+test": 0}


def test_family_relations_and_what_they_leak(family: KnowledgeGraph) -> None:
    report = check(family)
    assert report.duplicate_relations == []
    assert report.inverse_relations == [RelationPair("child", "parent", 6, 1.0, 1.0)]
    assert report.symmetric_relations == ["married"]
    assert report.leaks == {"valid": 1, "test": 2}
    by_label = {profile.label: profile for profile in report.relations}
    assert [profile.label for profile in report.relations] == ["child", "married", "parent"]
    assert all(profile.train == 5 for profile in report.relations)
    assert (by_label["parent"].valid, by_label["parent"].test) == (1, 0)
    assert (by_label["married"].valid, by_label["married"].test) == (0, 1)
    assert by_label["parent"].category == "1-1"
    assert by_label["parent"].traits == ["functional", "inverse functional"]
    assert by_label["married"].traits == ["functional", "inverse functional", "symmetric"]
    assert by_label["married"].symmetric_share == 1.0


def test_family_parts_degrees_and_hubs(family: KnowledgeGraph) -> None:
    report = check(family)
    assert report.parts == Parts(count=3, largest=[4, 4, 4], share=1 / 3)
    # p1 and c1 lost the valid fact, p5 and c5 a test fact, p4 and p5 the mirrored marriage.
    # Children: 2, 2, 2, 2 of degree 2, c1 and c5 of degree 1.
    # Parents: p0 2+2, p1 1+2, p2 2+2, p3 2+2, p4 2+1, p5 1+1.
    assert report.degrees == [
        DegreeBucket(low=0, high=0, entities=0),
        DegreeBucket(low=1, high=1, entities=2),
        DegreeBucket(low=2, high=3, entities=7),
        DegreeBucket(low=4, high=7, entities=3),
    ]
    assert report.hubs[:5] == [("p0", 4), ("p2", 4), ("p3", 4), ("p1", 3), ("p4", 3)]


def test_report_is_json(family: KnowledgeGraph) -> None:
    written = json.loads(json.dumps(check(family).to_dict()))
    assert written["inverse_relations"][0]["share_of_first"] == 1.0
    assert written["unseen"]["test"]["entities"] == 0
    assert written["degrees"][1] == {"low": 1, "high": 1, "entities": 2}


def test_duplicates_self_loops_and_repeated_facts() -> None:
    facts = ring(6)
    graph = KnowledgeGraph.from_facts(
        [*facts, facts[0], facts[0], ("e2", "next", "e2")],
        valid=[facts[1]],
        test=[facts[1], facts[2], ("e1", "next", "e1")],
    )
    report = check(graph)
    assert report.duplicates == 2
    assert report.self_loops == 2
    assert report.self_loop_examples == [("e1", "next", "e1"), ("e2", "next", "e2")]
    assert report.repeated == {"train+valid": 1, "train+test": 2, "valid+test": 1}


def test_duplicate_relations_with_unequal_shares() -> None:
    facts = ring(10)
    likes = [(head, "likes", tail) for head, _, tail in facts[:5]]
    test = [("e5", "likes", "e6")]
    report = check(KnowledgeGraph.from_facts(facts + likes, test=test))
    assert report.duplicate_relations == [RelationPair("likes", "next", 6, 1.0, 0.6)]
    assert report.leaks == {"valid": 0, "test": 1}


def test_unseen() -> None:
    test = [("e0", "next", "new"), ("new", "eats", "newer"), ("e0", "eats", "e1")]
    report = check(KnowledgeGraph.from_facts(ring(6), test=test))
    assert report.unseen["test"] == Unseen(
        entities=2, entity_facts=2, relations=1, relation_facts=2, examples=["new", "newer"]
    )
    assert report.unseen["valid"] == Unseen(0, 0, 0, 0, [])
    assert report.parts == Parts(count=1, largest=[6], share=1.0)
    assert report.degrees[0] == DegreeBucket(low=0, high=0, entities=2)


def test_nothing_but_self_loops() -> None:
    report = check(KnowledgeGraph.from_facts([("a", "is", "a")]))
    assert (report.self_loops, report.parts.largest) == (1, [1])
    assert report.hubs == [("a", 2)]
    assert report.relations[0].symmetric_share == 0


def test_functional_leaves_room_for_one_error_in_a_hundred() -> None:
    born = [(f"p{i}", "born in", "Rome") for i in range(100)]
    one_error = [*born, ("p0", "born in", "Paris")]
    two_errors = [*one_error, ("p1", "born in", "Paris")]
    first, second = (
        check(KnowledgeGraph.from_facts(f)).relations[0] for f in (one_error, two_errors)
    )
    assert (first.functional_share, first.traits) == (0.99, ["functional"])
    assert (second.functional_share, second.traits) == (0.98, [])
    assert first.inverse_functional_share == 0.5  # Paris has one head, Rome a hundred
    assert first.category == "N-1"


def test_relation_categories() -> None:
    one_to_many = [(0, 1, t) for t in (1, 2, 3)]
    many_to_one = [(h, 2, 0) for h in (1, 2, 3)]
    many_to_many = [(h, 3, t) for h in (0, 1) for t in (2, 3)]
    one_to_one = [(0, 0, 1), (1, 0, 2), (2, 0, 3), (2, 0, 4)]  # 4/3 tails per head
    at_threshold = [(0, 5, 1), (0, 5, 2), (1, 5, 3)]  # 3/2 tails per head
    twice = [(0, 6, 1), (0, 6, 1)]
    facts = one_to_many + many_to_one + many_to_many + one_to_one + at_threshold + twice
    expected = ["1-1", "1-N", "N-1", "N-N", "none", "1-N", "1-1"]
    assert relation_categories(np.array(facts), 7) == expected
    assert relation_categories(np.zeros((0, 3), dtype=np.int64), 2) == ["none", "none"]


@given(
    st.integers(1, 40).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=60),
        )
    )
)
def test_components_agree_with_scipy(drawn: tuple[int, list[tuple[int, int]]]) -> None:
    size, links = drawn
    facts = np.array([(h, 0, t) for h, t in links], dtype=np.int64).reshape(-1, 3)
    adjacency = coo_array((np.ones(len(facts)), (facts[:, 0], facts[:, 2])), shape=(size, size))
    _, part = connected_components(adjacency, directed=False)
    smallest = [int(np.flatnonzero(part == p)[0]) for p in part]
    assert components(facts, size).tolist() == smallest


def test_components_of_a_long_path_in_random_order() -> None:
    path = np.random.default_rng(0).permutation(1000)  # needs many rounds, with deep trees
    facts = np.stack([path[:-1], path[:-1], path[1:]], axis=1)
    assert (components(facts, 1001) == [0] * 1000 + [1000]).all()


ids = st.sampled_from("abcd")
triples = st.tuples(ids, st.sampled_from(["r", "s"]), ids)


@settings(deadline=None)  # the first example pays for starting polars
@given(st.sets(triples, min_size=16), st.sets(triples, min_size=1))
def test_overlaps_and_leaks_agree_with_sets(train: set[Fact], test: set[Fact]) -> None:
    report = check(KnowledgeGraph.from_facts(train, test=test))
    pairs: dict[str, set[tuple[str, str]]] = {}
    for head, relation, tail in train | test:
        pairs.setdefault(relation, set())
        if head != tail:
            pairs[relation].add((head, tail))
    mirror = {r: {(t, h) for h, t in found} for r, found in pairs.items()}

    def alike(first: set[tuple[str, str]], second: set[tuple[str, str]]) -> bool:
        shared = len(first & second)
        return shared >= 5 and shared >= 0.8 * min(len(first), len(second))

    same = {(r, s) for r, s in combinations(sorted(pairs), 2) if alike(pairs[r], pairs[s])}
    inverse = {(r, s) for r, s in combinations(sorted(pairs), 2) if alike(pairs[r], mirror[s])}
    symmetric = [r for r in sorted(pairs) if alike(pairs[r], mirror[r])]
    leaked = [
        (h, r, t)
        for h, r, t in test
        if any((h, s, t) in train and ((r, s) in same or (s, r) in same) for s in pairs)
        or any((t, s, h) in train and ((r, s) in inverse or (s, r) in inverse) for s in pairs)
        or (r in symmetric and (t, r, h) in train)
    ]
    assert {(p.first, p.second) for p in report.duplicate_relations} == same
    assert {(p.first, p.second) for p in report.inverse_relations} == inverse
    assert report.symmetric_relations == symmetric
    assert report.leaks["test"] == len(leaked)


six = ring(6)
both_ways = six + swap(six, "next")
after = [(head, "after", tail) for head, _, tail in six]
leaves = [(f"e{i}", "next", f"leaf{i}") for i in range(3)]


@pytest.mark.parametrize(
    ("train", "test", "start"),
    [
        ([*six, six[0]], [], "Reading dropped 1 fact that occurred before"),
        ([*six, ("e0", "next", "e0")], [], "The graph links an entity to itself in 1 fact, e.g."),
        (six, six[:1], "The test split repeats 1 fact (100%) from train"),
        (six + after[:5], [], "The graph has 1 pair of relations of which one mostly repeats"),
        (
            six + swap(six[:5], "before"),
            [],
            "The graph has 1 pair of relations of which one mostly mirrors",
        ),
        (both_ways[:-1], both_ways[-1:], "Training restates 1 fact (100%) of test through"),
        (six, [("e0", "next", "new")], "Training never shows 1 entity of test, e.g. 'new', which"),
        (six, [("e0", "eats", "e3")], "Training never shows 1 relation of test, which leaves 1"),
        (ring(37) + ring(2, prefix="f"), [], "Training facts form 2 unconnected parts"),
        (six + leaves, [], "Training shows 3 entities (33.3%) only once"),
    ],
)
def test_warning_is_given_alone(train: list[Fact], test: list[Fact], start: str) -> None:
    [warning] = check(KnowledgeGraph.from_facts(train, test=test)).warnings()
    assert warning.startswith(start)


@pytest.mark.parametrize(
    "train",
    [
        six,
        both_ways,  # symmetric, but nothing is held out
        six + after[:4],  # too few shared pairs
        ring(7) + after[:5] + [("e6", "after", "e2"), ("e2", "after", "e6")],  # 5 of 7 pairs
        ring(38) + ring(2, prefix="f"),  # 95% connected
        six + leaves[:2],  # a quarter has a single fact
    ],
)
def test_no_warning_without_cause(train: list[Fact]) -> None:
    assert check(KnowledgeGraph.from_facts(train)).warnings() == []
