"""Two predictors that learn nothing do what their names say."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import toy
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.evaluation.baselines import BASELINES, InverseRule, Popularity
from puda.evaluation.ranking import Ranks, rank
from puda.types import Questions, Side

graphs = st.lists(
    st.tuples(st.sampled_from("abcde"), st.sampled_from("rs"), st.sampled_from("abcde")),
    min_size=1,
    max_size=20,
).map(KnowledgeGraph.from_facts)


def ask(graph: KnowledgeGraph, anchor: str, relation: str, side: Side) -> Questions:
    parts = graph.entities.find(anchor), graph.relations.find(relation), int(side)
    return Questions(*(torch.tensor([part]) for part in parts))


def every_question(graph: KnowledgeGraph) -> Questions:
    anchor, relation, side = np.indices((graph.num_entities, graph.num_relations, 2))
    return Questions(*(torch.from_numpy(part.ravel()) for part in (anchor, relation, side)))


def by_label(graph: KnowledgeGraph, scores: torch.Tensor) -> dict[str, float]:
    return dict(zip(graph.entities.labels, scores[0].tolist(), strict=True))


def ranks_of(graph: KnowledgeGraph, name: str) -> Ranks:
    return rank(BASELINES[name](graph), graph.test, graph.known(*SPLITS))


def popularity_by_loop(graph: KnowledgeGraph, relation: int, side: int) -> Counter[int]:
    return Counter(f[2 if side == 0 else 0] for f in graph.train.tolist() if f[1] == relation)


def confidence_by_loop(graph: KnowledgeGraph, anchor: int, relation: int, side: int) -> list[float]:
    """Return for each entity the best share of r' that is mirrored in r, with r' applicable."""
    facts = {tuple(fact) for fact in graph.train.tolist()}

    def share(source: int) -> float:
        mirrors = [(t, relation, h) for h, r, t in facts if r == source]
        return sum(mirror in facts for mirror in mirrors) / len(mirrors)

    best = [0.0] * graph.num_entities
    for h, r, t in facts:
        start, answer = (t, h) if side == 0 else (h, t)
        if start == anchor:
            best[answer] = max(best[answer], share(r))
    return best


def test_popularity_counts_the_answers_of_a_relation() -> None:
    graph = KnowledgeGraph.from_facts(
        [
            ("ann", "lives in", "rome"),
            ("bob", "lives in", "rome"),
            ("cid", "lives in", "oslo"),
            ("ann", "likes", "oslo"),
        ],
        test=[("dan", "lives in", "bern")],  # not counted
    )
    score = Popularity(graph)
    none = dict.fromkeys(graph.entities.labels, 0.0)
    tails = by_label(graph, score(ask(graph, "dan", "lives in", Side.TAIL)))
    assert tails == none | {"rome": 2, "oslo": 1}
    heads = by_label(graph, score(ask(graph, "bern", "lives in", Side.HEAD)))
    assert heads == none | {"ann": 1, "bob": 1, "cid": 1}
    assert by_label(graph, score(ask(graph, "bob", "likes", Side.TAIL))) == none | {"oslo": 1}


@given(graphs)
def test_popularity_is_that_of_a_loop_over_the_facts(graph: KnowledgeGraph) -> None:
    questions = every_question(graph)
    scores = Popularity(graph)(questions)
    assert scores.shape == (len(questions), graph.num_entities)
    for row, relation, side in zip(
        scores.tolist(), questions.relation.tolist(), questions.side.tolist(), strict=True
    ):
        counts = popularity_by_loop(graph, relation, side)
        assert row == [counts[entity] for entity in range(graph.num_entities)]


def test_a_relation_without_training_facts_has_no_popular_answers() -> None:
    graph = KnowledgeGraph.from_facts([("a", "r", "b")], test=[("a", "s", "b"), ("b", "s", "a")])
    for baseline in BASELINES.values():
        scores = baseline(graph)(ask(graph, "a", "s", Side.TAIL))
        assert scores.tolist() == [[0, 0]]


def test_the_inverse_rule_ranks_mirrored_facts_first() -> None:
    # What is held out of the family tree is mirrored in train: child of by parent of, which is
    # its inverse, and the symmetric married to and sibling of by themselves.
    graph = toy.family_tree()
    assert len(graph.test) == 7
    assert ranks_of(graph, "inverse rule").pessimistic.tolist() == [[1, 1]] * 7


@pytest.mark.parametrize("make", [toy.ring, toy.family_tree])
def test_the_inverse_rule_beats_popularity_where_facts_are_mirrored(
    make: Callable[[], KnowledgeGraph],
) -> None:
    graph = make()
    rule, popularity = ranks_of(graph, "inverse rule"), ranks_of(graph, "popularity")
    assert rule.realistic.mean() < popularity.realistic.mean()
    assert (rule.realistic <= popularity.realistic).all()


def test_without_mirrors_the_inverse_rule_is_popularity() -> None:
    graph = toy.checkerboard()  # people like things, things like nobody
    rule, popularity = ranks_of(graph, "inverse rule"), ranks_of(graph, "popularity")
    for one, other in zip(rule, popularity, strict=True):
        assert np.array_equal(one, other)


def test_the_inverse_rule_prefers_the_more_certain_rule() -> None:
    # "owns" is mirrored by "belongs to" always (2 of 2), by "near" once in 2.
    graph = KnowledgeGraph.from_facts(
        [
            ("ann", "owns", "hat"),
            ("hat", "belongs to", "ann"),
            ("bob", "owns", "cap"),
            ("cap", "near", "bob"),
            ("bag", "near", "cid"),
            ("pen", "belongs to", "cid"),
            ("cid", "owns", "pen"),
        ],
        test=[("cid", "owns", "bag")],
    )
    scores = by_label(graph, InverseRule(graph)(ask(graph, "cid", "owns", Side.TAIL)))
    best = sorted(scores, key=scores.__getitem__, reverse=True)
    assert best[:2] == ["pen", "bag"]
    assert scores["bag"] > max(score for name, score in scores.items() if name not in best[:2])


@given(graphs)
def test_of_two_entities_alike_in_one_respect_the_other_decides(graph: KnowledgeGraph) -> None:
    questions = every_question(graph)
    parts = (questions.anchor.tolist(), questions.relation.tolist(), questions.side.tolist())
    scores = InverseRule(graph)(questions).tolist()
    entities = range(graph.num_entities)
    for row, anchor, relation, side in zip(scores, *parts, strict=True):
        counts = popularity_by_loop(graph, relation, side)
        confidence = confidence_by_loop(graph, anchor, relation, side)
        for one in entities:
            for two in entities:
                if counts[one] == counts[two]:
                    assert (row[one] > row[two]) == (confidence[one] > confidence[two])
                if confidence[one] == confidence[two]:
                    assert (row[one] > row[two]) == (counts[one] > counts[two])


def test_popularity_does_not_outweigh_a_rule() -> None:
    # Of the ten facts of "knows" one is mirrored in "likes": confidence 0.1. The question
    # (y1, likes, TAIL) has by that rule the answer x1; tea is liked by eight, but only popular.
    knows = [(f"x{i}", "knows", f"y{i}") for i in range(10)]
    likes = [(f"z{i}", "likes", "tea") for i in range(8)]
    graph = KnowledgeGraph.from_facts([*knows, *likes, ("y0", "likes", "x0")])
    scores = by_label(graph, InverseRule(graph)(ask(graph, "y1", "likes", Side.TAIL)))
    assert scores["x1"] > scores["tea"] > scores["x2"]


def test_scores_of_a_batch_are_those_of_its_questions() -> None:
    graph = toy.family_tree()
    questions, _ = Questions.both(torch.tensor(graph.test))
    for baseline in BASELINES.values():
        score = baseline(graph)
        alone = torch.cat([score(questions[i : i + 1]) for i in range(len(questions))])
        assert torch.equal(score(questions), alone)


def test_held_out_facts_do_not_help_a_baseline() -> None:
    graph = toy.family_tree()
    elsewhere = KnowledgeGraph(
        "train alone",
        graph.entities,
        graph.relations,
        graph.train,
        graph.valid[:0],
        graph.test[:0],
    )
    questions, _ = Questions.both(torch.tensor(graph.test))
    for baseline in BASELINES.values():
        assert torch.equal(baseline(graph)(questions), baseline(elsewhere)(questions))
