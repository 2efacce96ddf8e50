"""Priors, fits and answer sets: on made data whose truth is known, and against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss

from puda.evaluation.calibration import (
    Logistic,
    answer_set_size,
    estimate_prior,
    fit_negative,
    fit_unlabeled,
    reliability,
    shift,
)


def draw(prior: float, *, number: int = 20_000, apart: float = 3.0):
    """Draw positives N(apart, 1) and unlabeled, a share `prior` of which are positives, too."""
    rng = np.random.default_rng(0)
    positive = rng.normal(apart, 1, number // 4)
    true = rng.random(number) < prior
    unlabeled = np.where(true, rng.normal(apart, 1, number), rng.normal(0, 1, number))
    return positive, unlabeled, true


# --- the prior


@pytest.mark.parametrize("prior", [0.02, 0.1, 0.4, 0.8])
def test_the_prior_of_a_mixture_is_found(prior):
    positive, unlabeled, true = draw(prior)
    assert estimate_prior(positive, unlabeled) == pytest.approx(true.mean(), rel=0.1, abs=0.01)


def test_a_worked_prior():
    # At or above 3 lie half of the positives and a tenth of the unlabeled: 0.1 / 0.5. At or above
    # 1 lie all of both, which is a ratio of 1.
    positive = np.array([1.0, 3.0] * 500)
    unlabeled = np.array([3.0] + [2.0] * 9).repeat(500)
    assert estimate_prior(positive, unlabeled) == pytest.approx(0.2)


def test_a_weight_is_as_good_as_repeating():
    rng = np.random.default_rng(0)
    positive, unlabeled = rng.normal(2, 1, 300), rng.normal(0, 1, 400)
    weight = rng.integers(0, 4, 400)
    repeated = estimate_prior(positive, unlabeled.repeat(weight))
    assert estimate_prior(positive, unlabeled, weight.astype(float)) == pytest.approx(
        repeated, rel=0.25
    )
    assert estimate_prior(positive, unlabeled, np.full(400, 7.0)) == estimate_prior(
        positive, unlabeled
    )


def test_where_nothing_tells_them_apart_all_unlabeled_may_be_true():
    scores = np.random.default_rng(0).normal(size=2000)
    assert estimate_prior(scores[:1000], scores[1000:]) > 0.8


@given(st.lists(st.integers(0, 5), min_size=1), st.lists(st.integers(0, 5), min_size=1))
def test_a_prior_is_a_share(positive, unlabeled):
    assert 0 <= estimate_prior(np.array(positive, float), np.array(unlabeled, float)) <= 1


def test_a_share_of_one_in_ten_thousand_is_found():
    # 100 true among a million, of which all but the nearest 10,000 are drawn as 1 in 1,000.
    rng = np.random.default_rng(0)
    positive, true = rng.normal(5, 1, 2000), rng.normal(5, 1, 100)
    others = np.sort(rng.normal(0, 1, 1_000_000))[::-1]
    unlabeled = np.concatenate([true, others[:10_000], others[10_000::1000]])
    weight = np.concatenate([np.ones(10_100), np.full(990, 1000.0)])
    assert estimate_prior(positive, unlabeled, weight) == pytest.approx(1e-4, rel=0.3)


# --- fits


def test_what_is_added_makes_the_mean_as_wanted():
    logits, weight = np.array([-8.0, -3.0, 2.0]), np.array([5.0, 2.0, 1.0])
    for share in (1e-6, 0.2, 0.9):
        moved = 1 / (1 + np.exp(-(logits + shift(logits, share, weight))))
        assert np.average(moved, weights=weight) == pytest.approx(share, rel=1e-6)


@pytest.mark.parametrize("prior", [0.05, 0.3])
def test_probabilities_fitted_without_a_label_come_true(prior):
    # For two normal distributions of the same width the true curve is a logistic one: of slope
    # `apart`, and as likely as not where prior N(s; apart) = (1 - prior) N(s; 0).
    positive, unlabeled, true = draw(prior, number=50_000)
    fit = fit_unlabeled(positive[:, None], unlabeled[:, None], prior)
    assert reliability(fit(unlabeled[:, None]), true).ece < 0.01
    assert fit.slopes[0] == pytest.approx(3.0, rel=0.1)
    assert fit(unlabeled[:, None]).mean() == pytest.approx(prior, rel=0.1)


def test_a_feature_that_says_nothing_gets_no_slope():
    positive, unlabeled, _ = draw(0.2)
    rng = np.random.default_rng(1)
    with_noise = [np.stack([x, rng.normal(size=len(x))], axis=1) for x in (positive, unlabeled)]
    fit = fit_unlabeled(*with_noise, 0.2)
    assert abs(fit.slopes[1]) < 0.1 < fit.slopes[0]


def test_the_noise_of_a_constant_feature_gets_no_slope():
    positive, unlabeled, _ = draw(0.2, number=2000)
    rng = np.random.default_rng(1)
    noisy = [
        np.stack([x, -3.258 + 1e-15 * rng.integers(0, 3, len(x))], axis=1)
        for x in (positive, unlabeled)
    ]
    for fit in (fit_unlabeled(*noisy, 0.2), fit_negative(*noisy)):
        assert abs(fit.slopes[1]) < 1


def test_weighted_unlabeled_fit_as_repeated_ones_do():
    positive, unlabeled, _ = draw(0.2, number=2000)
    weight = np.random.default_rng(1).integers(1, 4, len(unlabeled))
    one = fit_unlabeled(positive[:, None], unlabeled[:, None], 0.2, weight.astype(float))
    other = fit_unlabeled(positive[:, None], unlabeled.repeat(weight)[:, None], 0.2)
    assert one.slopes == pytest.approx(other.slopes, rel=0.02)
    assert one.intercept == pytest.approx(other.intercept, rel=0.02)


def test_a_fit_to_true_negatives_is_that_of_logistic_regression():
    rng = np.random.default_rng(0)
    positive = rng.normal([2, 0], 1, (3000, 2))
    negative = rng.normal([0, 1], 1.5, (3000, 2))
    fit = fit_negative(positive, negative)
    oracle = LogisticRegression(C=1e9).fit(
        np.concatenate([positive, negative]), np.arange(6000) < 3000
    )
    assert fit.slopes == pytest.approx(oracle.coef_[0], rel=0.02)
    assert fit.intercept == pytest.approx(oracle.intercept_[0], rel=0.02, abs=0.02)


def test_classes_count_in_the_numbers_that_were_annotated():
    rng = np.random.default_rng(0)
    positive, negative = rng.normal(2, 1, (4000, 1)), rng.normal(0, 1, (400, 1))
    # Halfway between both means their densities are equal, so that the odds are ten to one.
    assert fit_negative(positive, negative)(np.array([[1.0]]))[0] == pytest.approx(
        10 / 11, abs=0.02
    )


@pytest.mark.parametrize("scores", [([1.0], [0.0]), ([5.0, 6.0], [1.0, 2.0]), ([1.0], [1.0])])
def test_fits_are_finite_where_classes_do_not_overlap_or_do_not_differ(scores):
    positive, other = (np.array(values)[:, None] for values in scores)
    for fit in (fit_negative(positive, other), fit_unlabeled(positive, other, 0.3)):
        assert np.isfinite(fit.slopes).all() and np.isfinite(fit.intercept)
        assert (np.diff(fit(np.linspace(-10, 10, 50)[:, None])) >= 0).all()


def test_a_known_logistic():
    assert Logistic(np.array([2.0, 1.0]), -1.0)(np.array([[0.5, 0.0]]))[0] == 0.5
    steep = Logistic(np.array([1e6]), 0.0)
    assert steep(np.array([[-1.0], [1.0]])).tolist() == [0.0, 1.0]


# --- reliability


def test_a_worked_reliability():
    # Bin 0: .05, .05 with one true of two; bin 9: .95 true and 1.0 true.
    probability = np.array([0.05, 0.05, 0.95, 1.0])
    found = reliability(probability, np.array([True, False, True, True]))
    assert found.ece == pytest.approx((2 * 0.45 + 2 * 0.025) / 4)
    assert found.brier == pytest.approx((0.95**2 + 0.05**2 + 0.05**2 + 0) / 4)
    assert [number for *_, number in found.bins] == [2, 2]


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1))
def test_the_brier_score_is_scikit_learns(pairs):
    probability, true = (np.array(column) for column in zip(*pairs, strict=True))
    expected = brier_score_loss(true, probability, labels=[False, True], pos_label=True)
    assert reliability(probability, true).brier == pytest.approx(expected)


# --- answer sets


def test_a_worked_answer_set():
    # Of nine ranks, ceil(10 * .9) = the ninth smallest; with .8 the eighth; .95 asks for a tenth.
    ranks = np.arange(9, 0, -1.0)
    assert answer_set_size(ranks, 0.9) == 9
    assert answer_set_size(ranks, 0.8) == 8
    assert answer_set_size(ranks, 0.95) == np.inf


def test_answer_sets_cover_what_they_promise():
    rng = np.random.default_rng(0)
    covered = [
        rng.geometric(0.1) <= answer_set_size(rng.geometric(0.1, 99).astype(float), 0.9)
        for _ in range(3000)
    ]
    assert 0.89 < np.mean(covered) < 0.94  # ties of ranks can only cover more
