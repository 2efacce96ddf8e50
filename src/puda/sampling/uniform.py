"""Unlabeled entities drawn uniformly."""

import torch

from puda.data.graph import KnowledgeGraph
from puda.sampling.base import Unlabeled
from puda.types import Questions


class UniformSampler:
    """One pool of distinct entities for the whole batch; known training answers do not count.

    Each question then sees a uniform sample of its own complement, so the risk has the same
    expectation as with N draws of its own, while its scores are one matrix product.
    """

    def __init__(self, graph: KnowledgeGraph, num_unlabeled: int) -> None:
        self.known = graph.known("train")
        self.num_entities = graph.num_entities
        self.size = min(num_unlabeled, graph.num_entities)

    def draw(self, questions: Questions, stream: torch.Generator) -> Unlabeled:
        """Draw the pool (P,) and mark what counts (Q, P)."""
        if self.size * 4 >= self.num_entities:
            ids = torch.randperm(self.num_entities, generator=stream)[: self.size]
        else:  # a permutation of all entities would cost more than the step
            ids = torch.randint(self.num_entities, (self.size,), generator=stream).unique()
        keys = self.known.key(
            questions.anchor.numpy(), questions.relation.numpy(), questions.side.numpy()
        )
        known = torch.from_numpy(self.known.mask(keys, ids.numpy()))
        return Unlabeled(ids, ~known)
