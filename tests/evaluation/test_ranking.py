"""Ranks agree with a loop over all entities, and with PyKEEN."""

from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import toy
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.data.index import KnownAnswers
from puda.errors import Diverged
from puda.evaluation import ranking
from puda.evaluation.metrics import HITS, adjusted_mean_rank_index, select, summarize
from puda.evaluation.metrics import SIDES as COLUMNS
from puda.evaluation.ranking import Ranks, Scorer, rank
from puda.scoring.distmult import DistMult
from puda.types import Questions

Fact = tuple[int, int, int]


class Case(NamedTuple):
    """A table of scores by question, facts to rank, and known facts."""

    num_entities: int
    num_relations: int
    facts: list[Fact]
    known: list[Fact]
    seed: int
    tile: int

    @property
    def table(self) -> np.ndarray:
        """Scores -1, 0 or 1 by (side, relation, anchor, answer), so that ties abound."""
        shape = (2, self.num_relations, self.num_entities, self.num_entities)
        return np.random.default_rng(self.seed).integers(-1, 2, shape).astype(np.float32)

    def index(self) -> KnownAnswers:
        """Index the known facts."""
        return KnownAnswers(
            as_ids(self.known), num_entities=self.num_entities, num_relations=self.num_relations
        )


class TableScorer:
    """Looks scores up in a table, and remembers what it was asked."""

    def __init__(self, table: np.ndarray) -> None:
        self.table = torch.from_numpy(table)
        self.asked: list[tuple[int, int, int]] = []
        self.sizes: list[int] = []

    def __call__(self, questions: Questions) -> Tensor:
        """Score all entities: (Q, E)."""
        parts = (questions.side, questions.relation, questions.anchor)
        self.asked += zip(*(part.tolist() for part in parts), strict=True)
        self.sizes.append(len(questions))
        return self.table[parts]


def as_ids(facts: list[Fact]) -> np.ndarray:
    return np.array(facts, dtype=np.int64).reshape(-1, 3)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    num_entities, num_relations = draw(st.integers(1, 6)), draw(st.integers(1, 2))
    entity, relation = st.integers(0, num_entities - 1), st.integers(0, num_relations - 1)
    facts = st.lists(st.tuples(entity, relation, entity), max_size=15)
    ranked, others = draw(facts), draw(facts)
    # The facts to rank may be among the known ones, as usual, or not.
    known = others + (ranked if draw(st.booleans()) else [])
    seed, tile = draw(st.integers(0, 10_000)), draw(st.sampled_from([1, 7, 20, 8_000_000]))
    return Case(num_entities, num_relations, ranked, known, seed, tile)


def rank_by_loop(case: Case) -> list[list[tuple[int, int, int]]]:
    """Return greater, equal and candidates of the tail and the head question of each fact."""
    table, known, entities = case.table, set(case.known), range(case.num_entities)
    result = []
    for h, r, t in case.facts:
        tails = [table[0, r, h, e] for e in entities if e != t and (h, r, e) not in known]
        heads = [table[1, r, t, e] for e in entities if e != h and (e, r, t) not in known]
        row = []
        for rivals, true in ((tails, table[0, r, h, t]), (heads, table[1, r, t, h])):
            greater, equal = sum(x > true for x in rivals), sum(x == true for x in rivals)
            row.append((int(greater), int(equal), len(rivals) + 1))
        result.append(row)
    return result


@given(cases())
def test_ranks_are_those_of_a_loop_over_all_entities(case: Case) -> None:
    with mock.patch.multiple(ranking, TILE=case.tile, QUESTIONS=1):
        ranks = rank(TableScorer(case.table), as_ids(case.facts), case.index())
    found = np.stack(ranks, axis=2)  # (n, 2, 3)
    assert found.tolist() == [[list(side) for side in row] for row in rank_by_loop(case)]


@given(cases())
def test_equal_questions_are_scored_once(case: Case) -> None:
    scorer = TableScorer(case.table)
    with mock.patch.multiple(ranking, TILE=case.tile, QUESTIONS=1):
        rank(scorer, as_ids(case.facts), case.index())
    questions = {(0, r, h) for h, r, _ in case.facts} | {(1, r, t) for _, r, t in case.facts}
    assert sorted(scorer.asked) == sorted(questions)


@given(cases())
def test_no_more_scores_are_held_at_a_time_than_fit_into_the_memory_given(case: Case) -> None:
    scorer = TableScorer(case.table)
    with mock.patch.object(ranking, "BYTES", 1_000_000):  # so that a megabyte holds one score
        rank(scorer, as_ids(case.facts), case.index(), memory=case.tile)
    assert all(size == 1 or size * case.num_entities <= case.tile for size in scorer.sizes)


def test_a_known_answer_with_ties_and_a_filter() -> None:
    # Question (0, r, TAIL): scores 5 3 3 9 3 1 of the entities 0 to 5. The answer is 2 (score 3).
    # Above it: 0 and 3; level: 1 and 4. Of these 3 and 4 are known, which leaves 0 above and
    # 1 level among 6 - 2 = 4 candidates: rank 2 at best, 3 at worst, 2.5 on average.
    # Question (2, r, HEAD): scores 7 for all. The answer 0 is level with 5 others: 1, 6, 3.5.
    table = np.zeros((2, 1, 6, 6), dtype=np.float32)
    table[0, 0, 0] = [5, 3, 3, 9, 3, 1]
    table[1, 0, 2] = 7
    known = KnownAnswers(as_ids([(0, 0, 2), (0, 0, 3), (0, 0, 4)]), num_entities=6, num_relations=1)
    ranks = rank(TableScorer(table), as_ids([(0, 0, 2)]), known)
    assert ranks.greater.tolist() == [[1, 0]]
    assert ranks.equal.tolist() == [[1, 5]]
    assert ranks.candidates.tolist() == [[4, 6]]
    assert ranks.optimistic.tolist() == [[2, 1]]
    assert ranks.realistic.tolist() == [[2.5, 3.5]]
    assert ranks.pessimistic.tolist() == [[3, 6]]


def test_nothing_to_rank_gives_no_ranks() -> None:
    known = KnownAnswers(as_ids([(0, 0, 1)]), num_entities=2, num_relations=1)
    ranks = rank(TableScorer(np.zeros((2, 1, 2, 2), dtype=np.float32)), as_ids([]), known)
    assert [column.shape for column in ranks] == [(0, 2)] * 3


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("answer", [0, 1, 2])
def test_a_score_that_is_not_finite_raises(value: float, answer: int) -> None:
    # The fact is (0, r, 1): its own score, a rival's or a known answer's (2).
    known = KnownAnswers(as_ids([(0, 0, 1), (0, 0, 2)]), num_entities=3, num_relations=1)
    table = np.zeros((2, 1, 3, 3), dtype=np.float32)
    table[0, 0, 0, answer] = value
    with pytest.raises(Diverged, match="not finite"):
        rank(TableScorer(table), as_ids([(0, 0, 1)]), known)


def test_huge_scores_are_finite() -> None:
    known = KnownAnswers(as_ids([(0, 0, 1)]), num_entities=2, num_relations=1)
    table = np.full((2, 1, 2, 2), 2e38, dtype=np.float32)  # the largest float is 3.4e38
    ranks = rank(TableScorer(table), as_ids([(0, 0, 1)]), known)
    assert ranks.equal.tolist() == [[1, 1]]


# The outside judge: PyKEEN's evaluator with the same embeddings.

METRICS = {
    "mrr": "inverse_harmonic_mean_rank",
    "mr": "arithmetic_mean_rank",
    "amri": "adjusted_arithmetic_mean_rank_index",
    **{f"hits@{k}": f"hits_at_{k}" for k in HITS},
}
READINGS = ("optimistic", "realistic", "pessimistic")


def random_floats(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def small_integers(*shape: int) -> Tensor:
    """Draw -1, 0 or 1: scores are whole numbers, so many are equal and equal in any order."""
    generator = torch.Generator().manual_seed(2)
    return torch.randint(-1, 2, shape, generator=generator).double()


class Judged(NamedTuple):
    """What PyKEEN says."""

    ranks: dict[tuple[str, str], np.ndarray]  # (side, reading) -> ranks
    candidates: dict[str, np.ndarray]  # by side
    metrics: dict[str, float]  # "both.realistic.hits_at_10" -> value


def judge(graph: KnowledgeGraph, split: str, entities: Tensor, relations: Tensor) -> Judged:
    """Let PyKEEN evaluate DistMult with given embeddings."""
    pytest.importorskip("pykeen", reason="PyKEEN, the oracle, is not installed")
    from pykeen import models
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.triples import CoreTriplesFactory

    factory = CoreTriplesFactory(
        torch.tensor(graph.train),
        num_entities=graph.num_entities,
        num_relations=graph.num_relations,
    )
    dim = entities.shape[1]
    model = models.DistMult(triples_factory=factory, embedding_dim=dim, random_seed=0).double()
    with torch.no_grad():
        model.entity_representations[0]._embeddings.weight.copy_(entities)
        model.relation_representations[0]._embeddings.weight.copy_(relations)
    evaluator = RankBasedEvaluator(
        metrics=[*list(METRICS.values())[:3], *["hits_at_k"] * len(HITS)],
        metrics_kwargs=[None, None, None, *({"k": k} for k in HITS)],
        add_defaults=False,
        clear_on_finalize=False,
    )
    earlier = SPLITS[: SPLITS.index(split)]
    result = evaluator.evaluate(
        model,
        torch.tensor(graph.facts(split)),
        batch_size=256,
        use_tqdm=False,
        additional_filter_triples=[torch.tensor(graph.facts(name)) for name in earlier],
    )
    return Judged(
        {key: np.concatenate(parts) for key, parts in evaluator.ranks.items()},
        {side: np.concatenate(parts) for side, parts in evaluator.num_candidates.items()},
        result.to_flat_dict(),
    )


def distmult(graph: KnowledgeGraph, entities: Tensor, relations: Tensor) -> Scorer:
    model = DistMult(graph, entities.shape[1]).double()
    with torch.no_grad():
        model.relations.copy_(relations)

    @torch.no_grad()
    def score(questions: Questions) -> Tensor:
        return model.match(model.ask(questions, entities), entities)

    return score


def measure_all(ranks: Ranks) -> dict[str, float]:
    """Return all metrics by PyKEEN's names."""
    found = {}
    for side, columns in COLUMNS.items():
        chosen = select(ranks, np.s_[:, columns])
        for reading in READINGS:
            values = getattr(chosen, reading)
            own = summarize(values)
            own["amri"] = adjusted_mean_rank_index(values, chosen.candidates)
            found |= {f"{side}.{reading}.{METRICS[name]}": value for name, value in own.items()}
    return found


# In double precision, so that no two scores that differ are closer than rounding.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("draw", [random_floats, small_integers])
@pytest.mark.parametrize("name", ["family tree", "umls"])
def test_ranks_and_metrics_are_those_of_pykeen(
    benchmark: Callable[[str], KnowledgeGraph],
    name: str,
    draw: Callable[..., Tensor],
    split: str,
) -> None:
    graph = toy.family_tree() if name == "family tree" else benchmark(name)
    entities, relations = draw(graph.num_entities, 6), draw(graph.num_relations, 6)
    expected = judge(graph, split, entities, relations)
    known = graph.known(*SPLITS[: SPLITS.index(split) + 1])
    ranks = rank(distmult(graph, entities, relations), graph.facts(split), known)
    for column, side in enumerate(("tail", "head")):
        assert ranks.candidates[:, column].tolist() == expected.candidates[side].tolist()
        for reading in READINGS:
            own = getattr(ranks, reading)[:, column]
            assert own.tolist() == expected.ranks[side, reading].tolist(), (side, reading)
    assert (ranks.equal > 0).any() == (draw is small_integers)
    assert (ranks.candidates < graph.num_entities).any()
    # PyKEEN averages realistic ranks in single precision.
    assert measure_all(ranks) == pytest.approx(expected.metrics, rel=1e-6, abs=1e-6)
