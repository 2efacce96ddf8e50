"""What a sampler is: it draws entities that complete no known fact, as far as training knows."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from puda.types import Questions


class Unlabeled(NamedTuple):
    """Drawn entities."""

    ids: Tensor  # (P,) one pool for the whole batch, or (Q, N) own to each question
    counted: Tensor | None  # (Q, P) False where an entity is a known answer; None: all count


class Sampler(Protocol):
    """Draws unlabeled entities for a batch of questions."""

    def draw(self, questions: Questions, stream: torch.Generator) -> Unlabeled:
        """Draw for each question."""
