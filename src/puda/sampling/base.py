"""What a sampler is: it draws entities that complete no known fact, as far as training knows."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from puda.data.graph import KnowledgeGraph
from puda.types import Batch, Ids, Questions

Score = Callable[[Questions, Tensor], Tensor]
"""The model as it is now: questions (Q,) and ids (Q, N) to scores (Q, N), without gradient."""


class Unlabeled(NamedTuple):
    """Drawn entities."""

    ids: Tensor  # (P,) one pool for the whole batch, or (Q, N) own to each question
    counted: Tensor | None = None  # (Q, N) False where an entity does not count; None: all do


class Sampler:
    """Draws unlabeled entities for a batch of questions.

    `temperature` > 0 weighs them self-adversarially (Sun et al. 2019) in the mean of the risk.
    """

    def __init__(self, graph: KnowledgeGraph, num_unlabeled: int, temperature: float = 0.0) -> None:
        self.known = graph.known("train")
        self.num_entities, self.num_unlabeled = graph.num_entities, num_unlabeled
        self.temperature = temperature

    def draw(self, batch: Batch, score: Score, stream: torch.Generator) -> Unlabeled:
        """Draw for each question of a batch."""
        raise NotImplementedError

    def weigh(self, unlabeled: Tensor, counted: Tensor | None) -> Tensor | None:
        """Return softmax(temperature * u) over what counts, as constants; None: equal parts."""
        if not self.temperature or not unlabeled.numel():
            return None
        hardness = self.temperature * unlabeled.detach()  # (Q, N)
        if counted is not None:
            hardness = hardness.masked_fill(~counted, -torch.inf)
        return hardness.softmax(1).nan_to_num(0.0)  # a row where nothing counts weighs nothing

    def observe(self, unlabeled: Tensor) -> None:
        """Hear how the model scored the draw (Q, N); a sampler that learns does so here."""

    def state(self) -> dict[str, Tensor]:
        """Return what must be kept to resume; tensors that `restore` copies back into."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up a kept state."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])

    def keys(self, questions: Questions) -> Ids:
        """Number the questions as the index of known answers does."""
        return self.known.key(
            questions.anchor.numpy(), questions.relation.numpy(), questions.side.numpy()
        )

    def outside(self, keys: Ids, number: int, stream: torch.Generator) -> Tensor:
        """Draw `number` entities per question uniformly over those that are no known answers."""
        draws = torch.rand(len(keys), number, generator=stream, dtype=torch.float64)
        return torch.from_numpy(self.known.complement(keys, draws.numpy()))

    def open(self, keys: Ids, number: int) -> Tensor | None:
        """Return (Q, N) False for questions that all entities answer; None where there is none."""
        left = self.known.count(keys) < self.num_entities
        return None if left.all() else torch.from_numpy(np.repeat(left[:, None], number, axis=1))

    def mark(self, keys: Ids, ids: Tensor) -> Tensor:
        """Return (Q, N) False where an entity of ids (Q, N) is a known answer of its question."""
        row, entity = self.known.exclude(keys)
        answered = row * self.num_entities + entity  # sorted: rows ascend, answers within too
        asked = (np.arange(len(keys))[:, None] * self.num_entities + ids.numpy()).ravel()
        place = np.minimum(np.searchsorted(answered, asked), max(len(answered) - 1, 0))
        known = answered[place] == asked if len(answered) else np.zeros(len(asked), dtype=bool)
        return torch.from_numpy(~known).view(ids.shape)
