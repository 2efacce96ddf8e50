"""Unlabeled entities drawn by how often they answer, for listwise risks."""

import torch

from puda.config import NonNegative
from puda.data.graph import KnowledgeGraph
from puda.sampling.base import Sampler, Score, Unlabeled
from puda.types import Batch


class PopularitySampler(Sampler):
    """A shared pool drawn by q_e ~ (1 + answers that e is)^power, with replacement.

    What is often an answer scores high and rules the sum over all entities. An entity drawn m
    times of P stands for m / (P q_e) entities, so that the pool's sum of exp(u) has the
    expectation of the sum over all (sampled softmax, Bengio and Senecal 2008). Known answers do
    not count.
    """

    listwise = True

    def __init__(
        self, graph: KnowledgeGraph, num_unlabeled: int, power: NonNegative = 0.75
    ) -> None:
        super().__init__(graph, num_unlabeled)
        answers = torch.bincount(torch.from_numpy(self.known.answers), minlength=self.num_entities)
        chance = (1.0 + answers.double()) ** power
        self.chance = chance / chance.sum()  # (E,)
        self.up_to = self.chance.cumsum(0)  # (E,)

    def draw(self, batch: Batch, score: Score, stream: torch.Generator) -> Unlabeled:
        """Draw a pool (P,) of at most N distinct entities."""
        number = self.num_unlabeled
        where = torch.rand(number, generator=stream, dtype=torch.float64) * self.up_to[-1]
        drawn = torch.searchsorted(self.up_to, where, right=True).clamp(max=self.num_entities - 1)
        ids, times = drawn.unique(return_counts=True)
        offset = (times / (number * self.chance[ids])).log().float()
        counted = ~torch.from_numpy(self.known.mask(self.keys(batch.questions), ids.numpy()))
        return Unlabeled(ids, counted, offset)
