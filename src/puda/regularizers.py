"""Penalties on the size of the facts' parts, weighted by how often batches hold them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from puda.fused import cubes

Regularizer = Callable[..., Tensor]
"""From question vectors (Q, ...) and squared sizes |x|^2 to a scalar.

The sizes are those of anchors and relations (Q, ...), then of answers (F, ...). Where a question
has several answers, `answers` (Q,) is how many, and the parts of a question count as often.
"""


def n3(question: Tensor, factors: Sequence[Tensor], answers: Tensor | None = None) -> Tensor:
    """Nuclear 3-norm (Lacroix et al. 2018): mean over facts of the sum of |x|^3."""
    asked = _repeated(factors[:-1], answers, power=2 / 3)
    return torch.stack([cubes(f) for f in (*asked, factors[-1])]).sum() / len(factors[-1])


def l2(question: Tensor, factors: Sequence[Tensor], answers: Tensor | None = None) -> Tensor:
    """Squared norm: mean over facts of the sum of |x|^2."""
    asked = _repeated(factors[:-1], answers, power=1)
    return torch.stack([f.sum() for f in (*asked, factors[-1])]).sum() / len(factors[-1])


def _repeated(
    factors: Sequence[Tensor], answers: Tensor | None, *, power: float
) -> Sequence[Tensor]:
    """Scale |x|^2 so that |x|^(2 / power) comes out `answers` times as large."""
    if answers is None:
        return factors
    weight = answers.to(factors[0].dtype).pow(power).unsqueeze(1)
    return [f * weight for f in factors]


def dura(question: Tensor, factors: Sequence[Tensor], answers: Tensor | None = None) -> Tensor:
    """Duality-induced penalty (Zhang et al. 2020): mean of |question|^2 plus mean of |answer|^2.

    Its second half, of the mirrored question, comes from the fact's other side. A question counts
    once, however many answers it has.
    """
    answer = factors[-1]
    return question.pow(2).sum() / len(question) + answer.sum() / len(answer)


REGULARIZERS: dict[str, Regularizer] = {"n3": n3, "l2": l2, "dura": dura}
