"""Unlabeled entities drawn uniformly."""

from typing import Literal

import torch

from puda.config import NonNegative, Positive
from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.sampling.base import Sampler, Score, Unlabeled
from puda.types import Batch

Pool = Literal["shared", "own"]


def distinct(number: int, size: int, stream: torch.Generator) -> torch.Tensor:
    """Draw `size` distinct ids (size,) of so many, every set of them as likely as another."""
    if 4 * size >= number:
        return torch.randperm(number, generator=stream)[:size]
    drawn = torch.empty(0, dtype=torch.long)
    while len(drawn) < size:  # a permutation of all would cost more than the step
        drawn = torch.randint(number, (size + size // 4 + 8,), generator=stream).unique()
    return drawn[torch.randperm(len(drawn), generator=stream)[:size]]


class UniformSampler(Sampler):
    """A pool shared by the batch, or N entities of each question's own as the paper writes it.

    In the shared pool a question's known training answers do not count, so it sees a uniform
    sample of its own complement: both pools give the risk the same expectation, and a shared one
    is scored by one matrix product. `masked=False` lets other known answers count, as 1vsAll
    losses often do, and leaves out only the answer itself. With `anchors` the shared pool holds the
    batch's anchors as well: where facts hardly ever link an entity to itself, distances and graph
    encoders otherwise do not learn so, and put it first.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        num_unlabeled: int,
        pool: Pool = "shared",
        masked: bool = True,
        temperature: NonNegative = 0.0,
        anchors: bool = False,
    ) -> None:
        super().__init__(graph, num_unlabeled, temperature)
        if anchors and pool == "own":
            raise ConfigError(
                "sampler.options.anchors: the anchors of a batch join a pool that it shares, set"
                ' sampler.options.pool="shared"'
            )
        self.pool, self.masked, self.anchors = pool, masked, anchors

    def draw(self, batch: Batch, score: Score, stream: torch.Generator) -> Unlabeled:
        """Draw a pool (P,) with what counts (Q, P), or (Q, N) that all count."""
        keys = self.keys(batch.questions)
        if self.pool == "own":
            number = self.num_unlabeled
            return Unlabeled(self.outside(keys, number, stream), self.open(keys, number))
        size = min(self.num_unlabeled, self.num_entities)
        ids = distinct(self.num_entities, size, stream)
        if self.anchors and size:
            ids = torch.cat([ids, batch.questions.anchor]).unique()
        if not self.masked and batch.owner is None:
            return Unlabeled(ids, ids != batch.answers.unsqueeze(1))
        return Unlabeled(ids, ~torch.from_numpy(self.known.mask(keys, ids.numpy())))


class SelfAdversarialSampler(UniformSampler):
    """Uniform draws weighed by softmax(temperature * score) (Sun et al. 2019)."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        num_unlabeled: int,
        pool: Pool = "shared",
        temperature: Positive = 1.0,
        anchors: bool = False,
    ) -> None:
        super().__init__(graph, num_unlabeled, pool, temperature=temperature, anchors=anchors)
