"""NSCaching (Zhang et al. 2019): caches of hard entities, one per question."""

import numpy as np
import torch
from torch import Tensor

from puda.config import Count
from puda.data.graph import KnowledgeGraph
from puda.sampling.base import Sampler, Score, Unlabeled
from puda.types import Batch


class NSCachingSampler(Sampler):
    """Draws uniformly from a cache of N1 entities per question, which it keeps hard.

    Tail questions (h, r) and head questions (r, t) are the paper's two caches. After each draw the
    batch's caches are renewed: of N1 cached and N2 uniform candidates, N1 are drawn without
    replacement by softmax(score) under the current model. Known answers never enter a cache.
    """

    def __init__(
        self, graph: KnowledgeGraph, num_unlabeled: int, cache: Count = 30, candidates: Count = 30
    ) -> None:
        super().__init__(graph, num_unlabeled)
        self.candidates = candidates
        draws = np.random.default_rng(0).random((len(self.known.keys), cache))
        self.cache = torch.from_numpy(self.known.complement(self.known.keys, draws))  # (U, N1)

    def draw(self, batch: Batch, score: Score, stream: torch.Generator) -> Unlabeled:
        """Draw (Q, N) from the caches, then renew them."""
        keys = self.keys(batch.questions)
        place = torch.from_numpy(np.searchsorted(self.known.keys, keys))
        slots = torch.randint(
            self.cache.shape[1], (len(keys), self.num_unlabeled), generator=stream
        )
        ids = self.cache[place].gather(1, slots)
        first = torch.from_numpy(np.unique(place.numpy(), return_index=True)[1])
        self._renew(batch, score, place[first], first, stream)
        return Unlabeled(ids, self.open(keys, self.num_unlabeled))

    def _renew(
        self, batch: Batch, score: Score, place: Tensor, rows: Tensor, stream: torch.Generator
    ) -> None:
        keys = self.known.keys[place.numpy()]
        fresh = self.outside(keys, self.candidates, stream)
        pool = torch.cat([self.cache[place], fresh], dim=1)  # (U, N1 + N2)
        hardness = score(batch.questions[rows], pool)
        # The largest of score + Gumbel noise are a draw by softmax(score) without replacement.
        noise = -torch.log(
            -torch.log(torch.rand(pool.shape, generator=stream).clamp(1e-20, 1 - 1e-7))
        )
        kept = (hardness + noise).topk(self.cache.shape[1], dim=1).indices
        self.cache[place] = pool.gather(1, kept)

    def state(self) -> dict[str, Tensor]:
        """The caches."""
        return {"cache": self.cache}
