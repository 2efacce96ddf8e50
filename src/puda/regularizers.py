"""Penalties on the size of the facts' parts, weighted by how often a batch holds them."""

from collections.abc import Callable, Sequence

from torch import Tensor

Regularizer = Callable[[Sequence[Tensor]], Tensor]
"""From the squared sizes |x|^2 (Q, ...) of the batch's facts to a scalar."""


def n3(factors: Sequence[Tensor]) -> Tensor:
    """Nuclear 3-norm (Lacroix et al. 2018): mean over facts of the sum of |x|^3."""
    # pow, not x * sqrt(x): its gradient at zero is zero, the root's is not a number
    return sum((f.pow(1.5).sum() for f in factors), start=factors[0].new_zeros(())) / len(
        factors[0]
    )


def l2(factors: Sequence[Tensor]) -> Tensor:
    """Squared norm: mean over facts of the sum of |x|^2."""
    return sum((f.sum() for f in factors), start=factors[0].new_zeros(())) / len(factors[0])


REGULARIZERS: dict[str, Regularizer] = {"n3": n3, "l2": l2}
