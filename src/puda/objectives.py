"""Risks as pure functions of scores; equation numbers are those of the PUDA paper (IJCAI-22).

Write p for positive, u for unlabeled, g for synthetic scores; softplus(x) = -ln sigma(-x).
A mean over no entities (N = 0 or M = 0) is 0.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from puda.errors import ConfigError
from puda.types import Risk, Scores

Objective = Callable[..., Risk]
"""(scores, **options) -> Risk."""


def _mean(values: Tensor, counted: Tensor | None) -> Tensor:
    """Average (Q, N) over each question's counted entities, then over questions."""
    if not values.numel():
        return values.new_zeros(())
    if counted is None:
        return values.mean()
    number = counted.sum(1).clamp(min=1)  # a question whose whole pool is known counts as 0
    return ((values * counted).sum(1) / number).mean()


def pointwise(positive: Tensor, others: Tensor, counted: Tensor | None = None) -> Tensor:
    """Mean softplus(u): an entity called positive (Eq. 9)."""
    return _mean(softplus(others), counted)


def pairwise(positive: Tensor, others: Tensor, counted: Tensor | None = None) -> Tensor:
    """Mean softplus(u - p): an entity ranked above its positive (Eqs. 11, 14)."""
    return _mean(softplus(others - positive.unsqueeze(1)), counted)


def listwise(positive: Tensor, others: Tensor, counted: Tensor | None = None) -> Tensor:
    """Mean ln(1 + sum exp(u - p)): the positive is not first of them all (Plackett-Luce; ours)."""
    margin = others - positive.unsqueeze(1)  # (Q, N)
    if counted is not None:
        margin = margin.masked_fill(~counted, -torch.inf)  # leaves the sum: exp(-inf) = 0
    return (
        torch.cat(
            [
                torch.zeros_like(margin[:, :1])
                if margin.numel()
                else positive.new_zeros(len(positive), 1),
                margin,
            ],
            dim=1,
        )
        .logsumexp(1)
        .mean()
    )


ORDERINGS = {"pointwise": pointwise, "pairwise": pairwise, "listwise": listwise}


def puda(scores: Scores, *, prior: float = 1e-5, ordering: str = "pairwise") -> Risk:
    """pi R_p+ + max(0, R_u- + R_*- - pi R_p-) (Eq. 16); `prior` is pi."""
    if ordering not in ORDERINGS:
        raise ConfigError(f"no ordering {ordering!r}: one of {', '.join(ORDERINGS)}")
    order = ORDERINGS[ordering]
    positive, inverted = softplus(-scores.positive).mean(), softplus(scores.positive).mean()
    unlabeled = order(scores.positive, scores.unlabeled, scores.counted)
    synthetic = order(scores.positive, scores.synthetic)
    total = prior * positive + (unlabeled + synthetic - prior * inverted).clamp(min=0)
    return Risk(total, positive, inverted, unlabeled, synthetic)


OBJECTIVES: dict[str, Objective] = {"puda": puda}
