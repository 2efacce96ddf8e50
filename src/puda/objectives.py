"""Risks as pure functions of scores; equation numbers are those of the PUDA paper (IJCAI-22).

Write p for positive, u for unlabeled, g for synthetic scores; softplus(x) = -ln sigma(-x).
A mean over no entities (N = 0 or M = 0) is 0. The self-adversarial log-sigmoid loss of RotatE is
"pn" with prior 1/2 under the sampler "self-adversarial", which weighs the mean over u.
"""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import relu, softplus

from puda.config import NonNegative, Share
from puda.errors import ConfigError
from puda.fused import log_sum, softplus_mean
from puda.types import Risk, Scores

Ordering = Literal["pointwise", "pairwise", "listwise"]
Correction = Literal["clamp", "reverse"]
Prior = Annotated[float, Field(ge=0, le=1)]

Objective = Callable[..., Risk]
"""(scores, **options) -> Risk."""


class _Others(NamedTuple):
    """Unlabeled or synthetic scores, to be ordered against the positives."""

    positive: Tensor  # (F,)
    values: Tensor  # (Q, N)
    owner: Tensor | None  # (F,)
    counted: Tensor | None = None  # (Q, N)
    weight: Tensor | None = None  # (Q, N)
    share: Tensor | None = None  # (F,)

    def spread(self) -> "_Others":
        """Lay a question's others beside each of its positives: (F, N)."""
        if self.owner is None:
            return self
        values, counted, weight = (
            None if table is None else table.index_select(0, self.owner)
            for table in (self.values, self.counted, self.weight)
        )
        assert values is not None
        return _Others(self.positive, values, None, counted, weight, self.share)

    def average(self, rows: Tensor) -> Tensor:
        """Average the means of questions (Q,) over the positives."""
        return _mean(rows if self.owner is None else rows.index_select(0, self.owner), self.share)


def _mean(values: Tensor, share: Tensor | None) -> Tensor:
    """Average over the positives (F,)."""
    return values.mean() if share is None else torch.dot(values, share.to(values.dtype))


def pointwise(others: _Others) -> Tensor:
    """Mean softplus(u): an entity called positive (Eq. 9)."""
    if others.weight is not None:  # zero where an entity does not count
        return others.average((softplus(others.values) * others.weight).sum(1))
    return others.average(softplus_mean(others.values, None, others.counted))


def pairwise(others: _Others) -> Tensor:
    """Mean softplus(u - p): an entity ranked above its positive (Eqs. 11, 14)."""
    positive, values, _, counted, weight, share = others.spread()
    if weight is not None:
        return _mean((softplus(values - positive.unsqueeze(1)) * weight).sum(1), share)
    return _mean(softplus_mean(values, positive, counted), share)


def listwise(others: _Others) -> Tensor:
    """Mean ln(1 + sum exp(u - p)): the positive is not first of them all (Plackett-Luce; ours).

    That is softplus(ln sum exp(u) - p), so a question's sum serves all its positives.
    """
    if others.weight is not None:
        raise ConfigError("a listwise risk weighs the unlabeled itself: use the sampler 'uniform'")
    total = log_sum(others.values, others.counted)  # (Q,)
    if others.owner is not None:
        total = total.index_select(0, others.owner)
    return _mean(softplus(total - others.positive), others.share)


ORDERINGS = {"pointwise": pointwise, "pairwise": pairwise, "listwise": listwise}


def _unlabeled_risk(scores: Scores, ordering: str) -> Tensor:
    """R_u-; the generator's step and the discriminator's share one reckoning of it."""
    if scores.unlabeled_risk is not None:
        return scores.unlabeled_risk
    return _risk(_unlabeled(scores), ordering)


def _synthetic_risk(scores: Scores, ordering: str) -> Tensor:
    """R_*-."""
    invented = _Others(scores.positive, scores.synthetic, scores.owner, share=scores.share)
    return _risk(invented, ordering)


def _unlabeled(scores: Scores) -> _Others:
    own = scores.positive, scores.unlabeled, scores.owner
    return _Others(*own, scores.counted, scores.weight, scores.share)


def _risk(others: _Others, ordering: str) -> Tensor:
    if ordering not in ORDERINGS:
        raise ConfigError(f"no ordering {ordering!r}: one of {', '.join(ORDERINGS)}")
    if not others.values.numel():
        return (0 * others.positive).sum()  # zero, and still a function of the scores
    return ORDERINGS[ordering](others)


def _positive_risks(scores: Scores) -> tuple[Tensor, Tensor]:
    """R_p+ (Eq. 7) and R_p- (Eq. 8)."""
    called, inverted = softplus(-scores.positive), softplus(scores.positive)  # (F,)
    return _mean(called, scores.share), _mean(inverted, scores.share)


def _weighted_risks(scores: Scores, prior: float) -> tuple[Tensor, Tensor]:
    """Return pi R_p+ and pi R_p-, each question by the prior of its own where scores have them."""
    if scores.prior is None:
        positive, inverted = _positive_risks(scores)
        return prior * positive, prior * inverted
    return (
        _mean(scores.prior * softplus(-scores.positive), scores.share),
        _mean(scores.prior * softplus(scores.positive), scores.share),
    )


def _bounded(certain: Tensor, bracket: Tensor, correction: str) -> Tensor:
    """Return certain + max(0, bracket), or its variant.

    "clamp" is the paper's: a negative bracket has no gradient. "reverse" (Kiryo et al. 2017)
    steps against the gradient of a negative bracket, so as to bring it back up.
    """
    if correction == "clamp":
        return certain + bracket.clamp(min=0)
    if correction == "reverse":
        return torch.where(bracket < 0, -bracket, certain + bracket)
    raise ConfigError(f"no correction {correction!r}: clamp or reverse")


def pn(scores: Scores, *, prior: Prior = 0.5, ordering: Ordering = "pointwise") -> Risk:
    """pi R_p+ + (1 - pi) R_u- (Eq. 2): all unlabeled are taken as negative."""
    positive, inverted = _positive_risks(scores)
    unlabeled = _unlabeled_risk(scores, ordering)
    total = prior * positive + (1 - prior) * unlabeled
    return Risk(total, positive, inverted, unlabeled, torch.zeros_like(total))


def pu_c(
    scores: Scores,
    *,
    prior: Prior = 0.1,
    ordering: Ordering = "pointwise",
    correction: Correction = "clamp",
) -> Risk:
    """pi R_p+ + max(0, R_u- - pi R_p-) (Eq. 5), R_u- classifying each entity (Eq. 9).

    The prior alone holds positives up: at the 1e-5 of the other risks nothing is learned.
    """
    certain, excess = _weighted_risks(scores, prior)
    unlabeled = _unlabeled_risk(scores, ordering)
    total = _bounded(certain, unlabeled - excess, correction)
    return Risk(total, *_positive_risks(scores), unlabeled, torch.zeros_like(total))


def pu_r(
    scores: Scores,
    *,
    prior: Prior = 1e-5,
    ordering: Ordering = "pairwise",
    correction: Correction = "clamp",
) -> Risk:
    """pi R_p+ + max(0, R_u- - pi R_p-) (Eq. 5), R_u- ranking each entity (Eq. 11)."""
    return pu_c(scores, prior=prior, ordering=ordering, correction=correction)


def da(
    scores: Scores,
    *,
    prior: Prior = 0.5,
    ordering: Ordering = "pointwise",
    synthetic_ordering: Ordering = "pairwise",
) -> Risk:
    """PN + R_*- (the ablation "DA"): PN with synthetic entities ranked below positives."""
    risk = pn(scores, prior=prior, ordering=ordering)
    synthetic = _synthetic_risk(scores, synthetic_ordering)
    return risk._replace(total=risk.total + synthetic, synthetic=synthetic)


def puda(
    scores: Scores,
    *,
    prior: Prior = 1e-5,
    ordering: Ordering = "pairwise",
    correction: Correction = "clamp",
    pooled: bool = False,
) -> Risk:
    """pi R_p+ + max(0, R_u- + R_*- - pi R_p-) (Eq. 16); `prior` is pi.

    `pooled` takes one mean over unlabeled and synthetic entities, as the authors' code does.
    """
    certain, excess = _weighted_risks(scores, prior)
    unlabeled, synthetic = _unlabeled_risk(scores, ordering), _synthetic_risk(scores, ordering)
    others = unlabeled + synthetic
    if pooled:
        n, m = scores.unlabeled.shape[1], scores.synthetic.shape[1]
        others = (n * unlabeled + m * synthetic) / max(n + m, 1)
    total = _bounded(certain, others - excess, correction)
    return Risk(total, *_positive_risks(scores), unlabeled, synthetic)


def softmax(scores: Scores) -> Risk:
    """Cross-entropy of the positive against the unlabeled: mean ln(1 + sum exp(u - p)).

    With a pool of all entities this is 1vsAll (Lacroix et al. 2018), known answers left out.
    """
    positive, inverted = _positive_risks(scores)
    unlabeled = _unlabeled_risk(scores, "listwise")
    return Risk(unlabeled, positive, inverted, unlabeled, torch.zeros_like(unlabeled))


def margin(scores: Scores, *, width: NonNegative = 1.0) -> Risk:
    """Margin ranking (Bordes et al. 2013): mean max(0, width + u - p)."""
    positive, inverted = _positive_risks(scores)
    _, values, _, counted, weight, share = _unlabeled(scores).spread()
    loss = relu(width + values - scores.positive.unsqueeze(1))  # (F, N)
    if weight is None:  # equal parts for all that count
        counts = torch.ones_like(loss) if counted is None else counted
        weight = counts / counts.sum(1, keepdim=True).clamp(min=1)
    unlabeled = _mean((loss * weight).sum(1), share)
    return Risk(unlabeled, positive, inverted, unlabeled, torch.zeros_like(unlabeled))


def bce(scores: Scores, *, smoothing: Share = 0.1) -> Risk:
    """Binary cross-entropy with smoothed labels y (1 - smoothing) + 1/C (Dettmers et al. 2018).

    The mean of softplus(s) - y s over the C candidates of each question, answers included. With
    `training.grouped` and a pool of all entities this is KvsAll.
    """
    if scores.weight is not None:
        raise ConfigError("bce counts every entity alike: use the sampler 'uniform'")
    if scores.share is not None:
        raise ConfigError("bce counts every fact alike: set training.weights=even")
    positive, inverted = _positive_risks(scores)
    values = scores.unlabeled  # (Q, N)
    counted = (
        torch.ones_like(values, dtype=torch.bool) if scores.counted is None else scores.counted
    )
    owner = torch.arange(len(values)) if scores.owner is None else scores.owner
    size = counted.sum(1) + torch.bincount(owner, minlength=len(values))  # (Q,) candidates C
    others = (softplus(values) - values / size.unsqueeze(1)).masked_fill(~counted, 0).sum(1) / size
    label = (1 - smoothing) + 1 / size[owner]
    true = (softplus(scores.positive) - label * scores.positive) / size[owner]
    total = others.mean() + true.sum() / len(size)
    return Risk(total, positive, inverted, others.mean(), torch.zeros_like(total))


USES_PRIORS = {"pu-c", "pu-r", "puda"}
"""Objectives that can take a prior for each question."""

OBJECTIVES: dict[str, Objective] = {
    "pn": pn,
    "pu-c": pu_c,
    "pu-r": pu_r,
    "da": da,
    "puda": puda,
    "softmax": softmax,
    "margin": margin,
    "bce": bce,
}

USES_SYNTHETIC = {"da", "puda"}
"""Objectives under which a generator is trained."""
