"""Penalties on the size of the facts' parts, weighted by how often batches hold them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from puda.fused import cubes

Regularizer = Callable[[Tensor, Sequence[Tensor]], Tensor]
"""From the question vectors (Q, ...) and the squared sizes |x|^2 (F, ...) of facts to a scalar."""


def n3(question: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """Nuclear 3-norm (Lacroix et al. 2018): mean over facts of the sum of |x|^3."""
    return torch.stack([cubes(f) / len(f) for f in factors]).sum()


def l2(question: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """Squared norm: mean over facts of the sum of |x|^2."""
    return torch.stack([f.sum() / len(f) for f in factors]).sum()


def dura(question: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """Duality-induced penalty (Zhang et al. 2020): mean of |question|^2 plus mean of |answer|^2.

    Its second half, of the mirrored question, comes from the fact's other side.
    """
    answer = factors[-1]
    return question.pow(2).sum() / len(question) + answer.sum() / len(answer)


REGULARIZERS: dict[str, Regularizer] = {"n3": n3, "l2": l2, "dura": dura}
