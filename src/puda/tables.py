"""The entity table and its row-wise optimisers: a step costs what it touches, not what exists."""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from puda import native
from puda.errors import ConfigError


class RowOptimizer(Protocol):
    """Updates some rows of a table in place and keeps its state by row."""

    learning_rate: float
    state: dict[str, Tensor]
    slot: Tensor  # (E,) scratch of its kernel

    def update(self, weight: Tensor, ids: Tensor, gradients: Sequence[Tensor]) -> None:
        """Step rows `ids` (n,) of weight (E, d) down their gradients, blocks of n rows in all.

        A row that is named more than once takes one step down the sum of its gradients.
        """


def _together(ids: Tensor, gradients: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the distinct ids (U,) and the sum of each one's gradients (U, d)."""
    distinct, place = torch.unique(ids, return_inverse=True)
    total = gradients[0].new_zeros(len(distinct), gradients[0].shape[1])
    for part, block in zip(place.split([len(b) for b in gradients]), gradients, strict=True):
        total.index_add_(0, part, block)
    return distinct, total


def _slot(weight: Tensor) -> Tensor:
    return torch.full((len(weight),), -1, dtype=torch.int32)


def _kernel(
    name: str, by: RowOptimizer, weight: Tensor, ids: Tensor, gradients: Sequence[Tensor]
) -> bool:
    """Step by a kernel if there is one for these numbers; returns whether there is."""
    state = list(by.state.values())
    if not native.fits(weight, *state, *gradients):
        return False
    native.step(name, weight, state, ids, gradients, by.slot, by.learning_rate)
    return True


class RowAdagrad:
    """Adagrad (Duchi et al. 2011); a row without gradient does not move, so this is exact."""

    def __init__(self, weight: Tensor, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.state = {"sum": torch.zeros_like(weight)}
        self.slot = _slot(weight)

    def update(self, weight: Tensor, ids: Tensor, gradients: Sequence[Tensor]) -> None:
        """s += g^2; w -= lr g / (sqrt(s) + 1e-10)."""
        total = self.state["sum"]
        if _kernel("adagrad", self, weight, ids, gradients):
            return
        ids, gradient = _together(ids, gradients)
        squares = total.index_select(0, ids).addcmul_(gradient, gradient)  # (U, d)
        total.index_copy_(0, ids, squares)
        step = gradient / squares.sqrt_().add_(1e-10)
        weight.index_add_(0, ids, step, alpha=-self.learning_rate)


class RowAdam:
    """Lazy Adam (Kingma & Ba 2015): moments and bias correction advance only when a row is touched.

    Dense Adam would also move the untouched rows by their decaying moments; this one does not.
    """

    def __init__(self, weight: Tensor, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.state = {
            "mean": torch.zeros_like(weight),
            "square": torch.zeros_like(weight),
            "steps": torch.zeros(len(weight), 1),
        }
        self.slot = _slot(weight)

    def update(self, weight: Tensor, ids: Tensor, gradients: Sequence[Tensor]) -> None:
        """w -= lr m' / (sqrt(v') + 1e-8), with m' and v' corrected by the row's own step count."""
        if _kernel("adam", self, weight, ids, gradients):
            return
        ids, gradient = _together(ids, gradients)
        steps = self.state["steps"].index_select(0, ids) + 1  # (U, 1)
        mean = self.state["mean"].index_select(0, ids).mul_(0.9).add_(gradient, alpha=0.1)
        square = self.state["square"].index_select(0, ids).mul_(0.999)
        square.addcmul_(gradient, gradient, value=0.001)
        for name, rows in (("steps", steps), ("mean", mean), ("square", square)):
            self.state[name].index_copy_(0, ids, rows)
        # 1 - b^n by expm1: in single precision the plain form loses half its digits.
        first, second = (-torch.expm1(steps * math.log(decay)) for decay in (0.9, 0.999))
        step = (mean / first) / (square / second).sqrt_().add_(1e-8)
        weight.index_add_(0, ids, step, alpha=-self.learning_rate)


ROW_OPTIMIZERS: dict[str, type[RowAdagrad] | type[RowAdam]] = {
    "adagrad": RowAdagrad,
    "adam": RowAdam,
}


class EntityTable:
    """One row per entity: rows are pulled as a leaf of autograd, gradients are pushed back."""

    def __init__(self, weight: Tensor, *, optimizer: str, learning_rate: float) -> None:
        if optimizer not in ROW_OPTIMIZERS:
            raise ConfigError(f"no optimizer {optimizer!r}: one of {', '.join(ROW_OPTIMIZERS)}")
        self.weight = weight  # (E, d)
        self.optimizer: RowOptimizer = ROW_OPTIMIZERS[optimizer](weight, learning_rate)

    def pull(self, ids: Tensor) -> Tensor:
        """Copy rows (n, d); ids may repeat."""
        return self.weight.index_select(0, ids).requires_grad_()

    def push(self, ids: Tensor, *gradients: Tensor) -> None:
        """Step rows `ids` (n,), which may repeat, down their gradients, blocks of n rows in all."""
        self.optimizer.update(self.weight, ids, gradients)


def optimizer_state(optimizer: Optimizer) -> dict[str, Tensor]:
    """Name what a torch optimiser keeps: "parameter number/slot" -> tensor."""
    kept = optimizer.state_dict()["state"]
    return {f"{n}/{slot}": tensor for n, slots in kept.items() for slot, tensor in slots.items()}


def restore_optimizer(optimizer: Optimizer, state: dict[str, Tensor]) -> None:
    """Take up what `optimizer_state` named; slots may not exist before a first step."""
    saved = optimizer.state_dict()
    for key, tensor in state.items():
        number, slot = key.split("/")
        saved["state"].setdefault(int(number), {})[slot] = tensor
    optimizer.load_state_dict(saved)
