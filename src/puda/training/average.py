"""The mean of weights over epochs, which often generalises better than the last of them."""

from collections.abc import Mapping

import torch
from torch import Tensor


class Average:
    """The running mean of named tensors (Izmailov et al. 2018); of whole numbers, the latest."""

    def __init__(self) -> None:
        self.number = 0  # epochs in the mean
        self.tensors: dict[str, Tensor] = {}

    @torch.no_grad()
    def add(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the weights of one more epoch into the mean."""
        self.number += 1
        if self.number == 1:
            self.tensors = {name: tensor.clone() for name, tensor in tensors.items()}
            return
        for name, tensor in tensors.items():
            mean = self.tensors[name]
            if mean.is_floating_point():
                mean.lerp_(tensor, 1 / self.number)
            else:
                mean.copy_(tensor)
