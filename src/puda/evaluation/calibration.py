"""Fits behind probabilities, with a class prior that is estimated and not guessed.

Positives are held-out facts, unlabeled are random pairs that are no known facts. Everything here is
numbers: what is measured of a fact comes as rows of features.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ERRORS = 2.0  # standard errors of the bound that the prior's estimate minimises
ROUNDS = 200  # of expectation and maximisation at most
FLAT = 1e-9  # deviation of a feature that does not vary
RIDGE = 1e-4  # on standardised features; keeps a fit finite where they tell all apart
BINS = 10  # of a reliability table


class Logistic(NamedTuple):
    """P(true | x) = sigma(slopes . x + intercept)."""

    slopes: Floats  # (k,)
    intercept: float

    def logit(self, features: Floats) -> Floats:
        """Return slopes . x + intercept of rows (n, k): (n,)."""
        logits: Floats = features @ self.slopes + self.intercept
        return logits

    def __call__(self, features: Floats) -> Floats:
        """Turn rows (n, k) into probabilities (n,)."""
        return sigmoid(self.logit(features))


def sigmoid(z: Floats) -> Floats:
    """Return 1 / (1 + exp(-z)) without overflow."""
    return np.exp(-np.logaddexp(0, -z))


def estimate_prior(positive: Floats, unlabeled: Floats, weight: Floats | None = None) -> float:
    """Estimate the share of true facts among the unlabeled: best bin estimation.

    Garg et al. (2021): q_u(c) / q_p(c), the shares of unlabeled and of positives that score at
    least c, at the c that makes its upper confidence bound least. Where there is a score above
    which only true facts lie, the ratio there is the prior. Their bound holds for all c at once and
    is wider than the whole prior of a graph, of whose pairs 1 in 10,000 is true: ours goes ERRORS
    standard errors from each share. `weight` is that of the unlabeled.
    """
    weight = np.ones(len(unlabeled)) if weight is None else weight
    order = np.argsort(unlabeled)
    above, squares = (
        np.append(np.cumsum(own[::-1])[::-1], 0.0) for own in (weight[order], weight[order] ** 2)
    )
    thresholds = np.unique(positive)
    first = np.searchsorted(unlabeled[order], thresholds)
    q_p = 1 - np.searchsorted(np.sort(positive), thresholds) / len(positive)
    q_u = above[first] / weight.sum()
    # With the next below, so that to have drawn none is not to be sure that there is none.
    error_u = np.sqrt(squares[np.maximum(first - 1, 0)]) / weight.sum()
    least_p = q_p - ERRORS * np.sqrt(q_p * (1 - q_p) / len(positive))
    bound = np.full(len(q_p), np.inf)
    np.divide(q_u + ERRORS * error_u, least_p, out=bound, where=least_p > 0)
    best = int(np.argmin(bound))
    return float(np.clip(q_u[best] / q_p[best], 0.0, 1.0))


def fit_unlabeled(
    positive: Floats, unlabeled: Floats, prior: float, weight: Floats | None = None
) -> Logistic:
    """Fit to positives (p, k) and unlabeled (u, k) whose share of true facts is `prior`.

    Maximum likelihood for presence-only data by EM (Ward et al. 2009): an unlabeled pair counts as
    true with the probability that the last fit gives it, and the next is fitted to both. Positives
    are more than their share there, which moves the intercept by ln(1 + P / (prior U)), P and U
    being the weights of both.
    """
    own = np.ones(len(unlabeled)) if weight is None else weight
    features = np.concatenate([positive, unlabeled])
    whole = np.concatenate([np.ones(len(positive)), own])
    extra = float(np.log1p(len(positive) / (prior * own.sum())))
    true = np.concatenate([np.ones(len(positive)), np.full(len(unlabeled), prior)])
    last = np.empty(0)
    fitted = None
    for _ in range(ROUNDS):
        # To one positive: most of the many unlabeled tell nothing, and ridge must not outweigh all.
        # The first time to the end; then a step or two keep up with what the last round moved.
        fitted = _newton(
            features,
            whole / len(positive),
            whole * true / len(positive),
            start=fitted,
            steps=50 if fitted is None else 2,
        )
        fit = Logistic(fitted.slopes, fitted.intercept - extra)
        true[len(positive) :] = fit(unlabeled)
        now = np.append(fit.slopes, fit.intercept)
        if len(last) and np.allclose(now, last, atol=1e-4):
            break
        last = now
    return fit


def shift(logits: Floats, share: float, weight: Floats) -> float:
    """Find what to add to logits (n,) so that their probabilities are `share` on average."""
    low, high = -50.0, 50.0
    for _ in range(50):
        middle = (low + high) / 2
        enough = np.average(sigmoid(logits + middle), weights=weight) >= share
        low, high = (low, middle) if enough else (middle, high)
    return high


def fit_negative(positive: Floats, negative: Floats) -> Logistic:
    """Fit to facts (p, k) and annotated true negatives (n, k) in the numbers there are of both.

    The softened targets of Platt (2000) keep it finite where the classes do not overlap.
    """
    sizes = len(positive), len(negative)
    high, low = (sizes[0] + 1) / (sizes[0] + 2), 1 / (sizes[1] + 2)
    features = np.concatenate([positive, negative])
    weight = np.full(len(features), 1 / len(features))
    return _newton(features, weight, weight * np.repeat([high, low], sizes))


def _newton(
    features: Floats,
    weight: Floats,
    true: Floats,
    *,
    start: Logistic | None = None,
    steps: int = 50,
) -> Logistic:
    """Fit to rows (n, k) of weights (n,) of which the parts `true` (n,) are true.

    Minimises sum weight softplus(z) - true z, convex in slopes and intercept, with a little ridge.
    """
    center, scale = features.mean(0), features.std(0)
    scale = np.where(scale > FLAT, scale, 1.0)  # the noise of a constant is none to learn from
    x = np.concatenate([(features - center) / scale, np.ones((len(features), 1))], axis=1)
    wanted, ridge = x.T @ true, RIDGE * np.eye(x.shape[1])
    at = np.zeros(x.shape[1])
    if start is not None:
        at = np.append(start.slopes * scale, start.logit(center))

    def risk(place: Floats) -> float:
        value: float = (weight * np.logaddexp(0, x @ place)).sum() - wanted @ place
        return value + float(place @ ridge @ place) / 2

    for _ in range(steps):
        chance = sigmoid(x @ at)
        slope = x.T @ (weight * chance) - wanted + ridge @ at
        curvature = (x.T * (weight * chance * (1 - chance))) @ x + ridge
        step, length, here = np.linalg.solve(curvature, slope), 1.0, risk(at)
        while risk(at - length * step) > here and length > 1e-8:  # Newton may overshoot
            length /= 2
        at = at - length * step
        if np.abs(length * step).max() < 1e-7:
            break
    slopes = at[:-1] / scale
    return Logistic(slopes, float(at[-1] - slopes @ center))


class Reliability(NamedTuple):
    """How probabilities compare with what came true."""

    brier: float  # mean squared error
    ece: float  # expected calibration error: mean |probability - frequency| over bins
    bins: list[tuple[float, float, int]]  # mean probability, frequency, number


def reliability(probability: Floats, true: NDArray[np.bool_]) -> Reliability:
    """Compare probabilities (n,) with outcomes (n,), in bins of equal width."""
    place = np.minimum((probability * BINS).astype(int), BINS - 1)
    number = np.bincount(place, minlength=BINS)
    mean, frequency = (
        np.bincount(place, weights=values, minlength=BINS) / np.maximum(number, 1)
        for values in (probability, true.astype(float))
    )
    return Reliability(
        brier=float(np.mean((probability - true) ** 2)),
        ece=float((number * np.abs(mean - frequency)).sum() / len(true)),
        bins=[
            (float(m), float(f), int(n))
            for m, f, n in zip(mean, frequency, number, strict=True)
            if n
        ],
    )


def answer_set_size(ranks: Floats, coverage: float) -> float:
    """Return k such that the first k answers hold a new question's true one with `coverage`.

    Split conformal prediction (Vovk et al. 2005) with the rank as the measure of strangeness: the
    ceil((n + 1) coverage)-th smallest rank (n,); infinite where n is too small to promise it.
    """
    place = int(np.ceil((len(ranks) + 1) * coverage))
    return float(np.sort(ranks)[place - 1]) if place <= len(ranks) else np.inf
