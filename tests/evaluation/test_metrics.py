"""Figures worked by hand, and intervals that behave like intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puda.evaluation.metrics import (
    adjusted_mean_rank_index,
    describe,
    interval,
    measure,
    select,
    summarize,
)
from puda.evaluation.ranking import Ranks

# Two facts among 11 candidates; columns are the tail and the head question.
# tail: nothing above, 2 level: ranks 1 / 2 / 3;   head: 3 above, none level: rank 4
# tail: 9 above, none level: rank 10;              head: 2 above, 8 level: ranks 3 / 7 / 11
RANKS = Ranks(
    greater=np.array([[0, 3], [9, 2]]),
    equal=np.array([[2, 0], [0, 8]]),
    candidates=np.full((2, 2), 11),
)


def random_ranks(num_facts: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 50, (num_facts, 2)).astype(float)


def test_summary_of_known_ranks() -> None:
    # 1/1 + 1/2 + 1/4 + 1/20 = 1.8, a quarter of it 0.45; 1 + 2 + 4 + 20 = 27, 27 / 4 = 6.75.
    assert summarize(np.array([1.0, 2.0, 4.0, 20.0])) == pytest.approx(
        {"mrr": 0.45, "mr": 6.75, "hits@1": 0.25, "hits@3": 0.5, "hits@10": 0.75}
    )


def test_a_rank_between_two_whole_ones_hits_only_above_it() -> None:
    # Two entities level at the top share the rank 1.5: not a hit at 1.
    assert summarize(np.array([1.5])) == pytest.approx(
        {"mrr": 2 / 3, "mr": 1.5, "hits@1": 0, "hits@3": 1, "hits@10": 1}
    )


def test_adjusted_mean_rank_index_of_known_ranks() -> None:
    # Ranks 1 and 3 of 5 and 9 candidates: mean rank 2, by chance (3 + 5) / 2 = 4;
    # 1 - (2 - 1) / (4 - 1) = 2/3.
    found = adjusted_mean_rank_index(np.array([1.0, 3.0]), np.array([5, 9]))
    assert found == pytest.approx(2 / 3)


@pytest.mark.parametrize(("rank", "expected"), [(1.0, 1.0), (51.0, 0.0), (101.0, -1.0)])
def test_adjusted_mean_rank_index_is_1_at_best_0_in_the_middle_and_minus_1_at_worst(
    rank: float, expected: float
) -> None:
    ranks, candidates = np.full(7, rank), np.full(7, 101)
    assert adjusted_mean_rank_index(ranks, candidates) == pytest.approx(expected)


def test_adjusted_mean_rank_index_of_chance_is_about_0() -> None:
    rng = np.random.default_rng(0)
    candidates = rng.integers(2, 1000, 20_000)
    ranks = rng.integers(1, candidates + 1).astype(float)
    # A rank of c candidates has the deviation c / sqrt(12), here at most 289; the mean of 20,000
    # has 2 and the chance level is 250: four deviations are 0.03.
    assert abs(adjusted_mean_rank_index(ranks, candidates)) < 0.03


def test_with_a_single_candidate_each_the_index_is_1() -> None:
    assert adjusted_mean_rank_index(np.ones(3), np.ones(3)) == 1.0


def test_a_description_shows_all_three_readings_of_ties() -> None:
    found = describe(RANKS)
    assert found["count"] == 4
    # realistic 2, 4, 10, 7
    assert found["mr"] == pytest.approx(23 / 4)
    assert found["mrr"] == pytest.approx((1 / 2 + 1 / 4 + 1 / 10 + 1 / 7) / 4)
    assert (found["hits@1"], found["hits@3"], found["hits@10"]) == (0, 0.25, 1)
    assert found["amri"] == pytest.approx(1 - (23 / 4 - 1) / 5)
    # optimistic 1, 4, 10, 3 and pessimistic 3, 4, 10, 11
    assert found["optimistic"] == pytest.approx(summarize(np.array([1.0, 4.0, 10.0, 3.0])))
    assert found["pessimistic"] == pytest.approx(summarize(np.array([3.0, 4.0, 10.0, 11.0])))


def test_tail_head_and_both_are_measured_apart() -> None:
    found = measure(RANKS)
    assert list(found) == ["tail", "head", "both"]
    assert [found[side]["count"] for side in found] == [2, 2, 4]
    assert found["tail"]["mr"] == pytest.approx((2 + 10) / 2)
    assert found["head"]["mr"] == pytest.approx((4 + 7) / 2)
    assert found["both"]["mr"] == pytest.approx((2 + 10 + 4 + 7) / 4)
    assert found["tail"]["pessimistic"]["mr"] == pytest.approx((3 + 10) / 2)
    assert "mrr_interval" not in found["both"]


def test_intervals_are_given_where_asked_for() -> None:
    found = measure(RANKS, intervals=True)
    for side, columns in (("tail", [0]), ("head", [1]), ("both", [0, 1])):
        assert found[side]["mrr_interval"] == interval(RANKS.realistic[:, columns])


def test_without_facts_there_is_nothing_to_measure() -> None:
    nothing = select(RANKS, np.zeros(2, dtype=bool))
    assert measure(nothing, intervals=True) == {}


def test_selected_facts_keep_their_ranks() -> None:
    chosen = select(RANKS, np.array([False, True]))
    assert chosen.realistic.tolist() == [[10, 7]]
    assert chosen.candidates.tolist() == [[11, 11]]


@given(st.integers(20, 200), st.integers(0, 1000))
def test_an_interval_contains_the_mean_and_lies_between_the_extremes(n: int, seed: int) -> None:
    ranks = random_ranks(n, seed)
    low, high = interval(ranks, draws=200)
    value = (1 / ranks).mean(axis=1)
    assert value.min() <= low < value.mean() < high <= value.max()


@pytest.mark.parametrize("num_facts", [1, 2, 3])
def test_the_interval_of_very_few_facts_lies_between_the_extremes(num_facts: int) -> None:
    low, high = interval(np.full((num_facts, 2), 2.0))
    assert (low, high) == pytest.approx((0.5, 0.5))


def test_an_interval_has_the_width_that_theory_gives() -> None:
    ranks = random_ranks(2000)
    value = (1 / ranks).mean(axis=1)
    low, high = interval(ranks)
    # The mean of n values is about normal: 95 % lie within 1.96 standard errors. 1,000 draws
    # tell the width to a few per cent.
    assert high - low == pytest.approx(2 * 1.96 * value.std() / np.sqrt(2000), rel=0.1)


def test_an_interval_narrows_with_the_number_of_facts() -> None:
    widths = [np.ptp(interval(random_ranks(n))) for n in (50, 500, 5000)]
    assert widths[0] > 2 * widths[1] > 4 * widths[2]  # by sqrt(10) each


def test_the_questions_of_a_fact_stay_together() -> None:
    # Each fact has one rank 1 and one rank 2, so every resampling of facts has MRR 0.75. The 200
    # questions by themselves would vary.
    ranks = np.array([[1.0, 2.0], [2.0, 1.0]] * 50)
    assert interval(ranks) == pytest.approx([0.75, 0.75])
    low, high = interval(ranks.reshape(-1, 1))
    assert high - low > 0.05


def test_the_same_seed_gives_the_same_interval() -> None:
    ranks = random_ranks(100)
    assert interval(ranks, seed=3) == interval(ranks, seed=3)
    assert interval(ranks, seed=3) != interval(ranks, seed=4)
