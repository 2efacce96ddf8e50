"""AUC and average precision agree with scikit-learn, ties included."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from puda.evaluation import classification
from puda.evaluation.classification import classify, fact_scores
from puda.evaluation.ranking import Scorer
from puda.types import Questions

Values = list[int] | list[float]


def scorer(tail: Values, head: Values) -> Scorer:
    """Score the fact (k, 0, k) as an answer to its two questions; all other answers get -99."""
    own = torch.tensor([tail, head], dtype=torch.float32)  # (side, fact)

    def score(questions: Questions) -> Tensor:
        scores = torch.full((len(questions), own.shape[1]), -99.0)
        rows = torch.arange(len(questions))
        scores[rows, questions.anchor] = own[questions.side, questions.anchor]
        return scores

    return score


def facts(start: int, stop: int) -> np.ndarray:
    return np.array([(k, 0, k) for k in range(start, stop)], dtype=np.int64)


def classified(positive: Values, negative: Values) -> dict[str, float]:
    """Classify facts by scores that both of their questions agree on."""
    number, scores = len(positive), [*positive, *negative]
    return classify(scorer(scores, scores), facts(0, number), facts(number, len(scores)))


def by_sklearn(positive: Values, negative: Values) -> dict[str, float]:
    true, scores = [1] * len(positive) + [0] * len(negative), [*positive, *negative]
    return {
        "auc": roc_auc_score(true, scores),
        "average_precision": average_precision_score(true, scores),
    }


few_levels = st.lists(st.integers(-3, 3), min_size=1, max_size=12)


@given(positive=few_levels, negative=few_levels)
def test_figures_agree_with_sklearn_ties_included(positive, negative):
    assert classified(positive, negative) == pytest.approx(by_sklearn(positive, negative))


def test_figures_agree_with_sklearn_on_more_facts_than_are_scored_at_a_time():
    rng = np.random.default_rng(0)
    number = classification.QUESTIONS + 7
    positive, negative = rng.normal(0.5, 1, number).tolist(), rng.normal(0, 1, number).tolist()
    assert classified(positive, negative) == pytest.approx(by_sklearn(positive, negative))


def test_a_case_worked_by_hand():
    # From the top: a fact (4), a non-fact (3), a fact tied with a non-fact (2), a non-fact (1).
    # AUC: 4 stands above all 3; 2 above one and level with one, 1.5: 4.5 of 6 pairs.
    # Average precision: 1/1 at 4 and, both ties being counted, 2/4 at 2; their mean.
    assert classified([4, 2], [3, 2, 1]) == {"auc": 4.5 / 6, "average_precision": 0.75}


@pytest.mark.parametrize(
    ("positive", "negative", "auc", "precision"),
    [
        ([3, 2], [1, 0], 1.0, 1.0),
        ([0], [1, 2, 3], 0.0, 1 / 4),
        ([5, 5], [5, 5, 5, 5, 5, 5], 0.5, 1 / 4),
    ],
    ids=["all above", "below all", "all alike"],
)
def test_extremes(positive, negative, auc, precision):
    assert classified(positive, negative) == {"auc": auc, "average_precision": precision}


def test_a_fact_has_the_mean_of_its_scores_as_tail_and_as_head():
    score = scorer(tail=[1, 4, 0], head=[3, -4, 0.5])
    assert fact_scores(score, facts(0, 3)).tolist() == [2, 0, 0.25]


def test_the_mean_decides_and_not_one_side():
    # As tails the fact is ahead, as heads the non-fact is, and by more.
    assert classify(scorer([1, 0], [0, 2]), facts(0, 1), facts(1, 2))["auc"] == 0


def test_heads_and_tails_are_not_mixed_up():
    # One relation, three entities; the table is by (side, anchor, answer).
    table = torch.arange(18, dtype=torch.float32).view(2, 3, 3) ** 2

    def score(questions: Questions) -> Tensor:
        return table[questions.side, questions.anchor]

    pairs = [(0, 1), (2, 0), (1, 1)]
    expected = [float(table[0, head, tail] + table[1, tail, head]) / 2 for head, tail in pairs]
    found = fact_scores(score, np.array([(head, 0, tail) for head, tail in pairs]))
    assert found.tolist() == expected
