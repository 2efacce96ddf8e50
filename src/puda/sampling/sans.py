"""SANS, structure-aware negative sampling (Ahrabian et al. 2020)."""

from functools import cached_property
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from puda.config import Count, NonNegative
from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.sampling.base import Sampler, Score, Unlabeled
from puda.sampling.uniform import Pool, distinct
from puda.types import Batch, Facts, Ids

BLOCK = 512  # entities whose neighbourhoods are computed at a time


class SANSSampler(Sampler):
    """Draws from the k-hop neighbourhood of the question's anchor, uniformly over its members.

    With `walks` = 0 the pool of an entity are the nonzeros of A^k + A^(k-1), A the undirected
    adjacency of train; otherwise the endpoints of so many random walks of k steps, each of which
    starts at the entity anew, or with `onward`, as in the released code, where the last one ended:
    then the pool is no neighbourhood any more, but a part of the whole graph that has more of the
    entities with many neighbours.
    A known answer does not count; where none of a question's draws counts, or its pool is empty,
    they are uniform over all entities that are no known answers.
    With `pool` = "shared" the draws are uniform over all entities and serve the whole batch; those
    in the anchor's neighbourhood count, a uniform sample of it that is scored by a matrix product.
    That takes E^2 / 8 bytes.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        num_unlabeled: int,
        hops: Count = 2,
        walks: Annotated[int, Field(ge=0)] = 0,
        onward: bool = False,
        pool: Pool = "own",
        temperature: NonNegative = 0.0,
    ) -> None:
        super().__init__(graph, num_unlabeled, temperature)
        self.pool = pool
        if onward and not walks:
            raise ConfigError(
                "sampler.options.onward: there are no walks to go on with, set"
                " sampler.options.walks, e.g. 1000"
            )
        neighbours = _adjacency(graph.train, graph.num_entities)
        if walks:
            self.members, self.offsets = _walk(*neighbours, hops=hops, walks=walks, onward=onward)
        else:
            self.members, self.offsets = _reach(*neighbours, hops=hops)

    def draw(self, batch: Batch, score: Score, stream: torch.Generator) -> Unlabeled:
        """Draw (Q, N) from the anchors' neighbourhoods, or a pool (P,) with what counts (Q, P)."""
        keys, anchor = self.keys(batch.questions), batch.questions.anchor.numpy()
        start, size = self.offsets[anchor], np.diff(self.offsets)[anchor]
        if self.pool == "shared":
            pool = distinct(self.num_entities, min(self.num_unlabeled, self.num_entities), stream)
            outside = ~self.known.mask(keys, pool.numpy())
            bits = np.unpackbits(self._near[anchor], axis=1, count=self.num_entities)
            near: NDArray[np.bool_] = outside & (bits[:, pool.numpy()] > 0)
            some = near.any(1, keepdims=True)
            return Unlabeled(pool, torch.from_numpy(np.where(some, near, outside)))
        draws = torch.rand(len(keys), self.num_unlabeled, generator=stream, dtype=torch.float64)
        place = start[:, None] + (draws.numpy() * size[:, None]).astype(np.int64)
        place = np.minimum(place, max(len(self.members) - 1, 0))  # of an empty pool: replaced below
        ids = torch.from_numpy(self.members[place])
        counted = self.mark(keys, ids) & torch.from_numpy(size > 0).unsqueeze(1)
        lost = (~counted.any(1)).nonzero().squeeze(1)
        if len(lost):
            ids[lost] = self.outside(keys[lost.numpy()], self.num_unlabeled, stream)
            counted[lost] = self.mark(keys[lost.numpy()], ids[lost])
        return Unlabeled(ids, counted)

    @cached_property
    def _near(self) -> NDArray[np.uint8]:
        """Return the pools as bits (E, E / 8)."""
        rows = []
        for start in range(0, self.num_entities, BLOCK):
            offsets = self.offsets[start : start + BLOCK + 1]
            inside = np.zeros((len(offsets) - 1, self.num_entities), dtype=bool)
            row = np.repeat(np.arange(len(inside)), np.diff(offsets))
            inside[row, self.members[offsets[0] : offsets[-1]]] = True
            rows.append(np.packbits(inside, axis=1))
        return np.concatenate(rows)


def _adjacency(facts: Facts, num_entities: int) -> tuple[Ids, Ids]:
    """Return each entity's distinct neighbours, and offsets by entity (E + 1,)."""
    ends = np.concatenate([facts[:, [0, 2]], facts[:, [2, 0]]])
    pairs = np.unique(ends[:, 0] * num_entities + ends[:, 1])
    counts = np.bincount(pairs // num_entities, minlength=num_entities)
    return pairs % num_entities, np.append(0, np.cumsum(counts))


def _reach(members: Ids, offsets: Ids, *, hops: int) -> tuple[Ids, Ids]:
    """Return the entities that walks of exactly `hops` or `hops` - 1 steps reach.

    By powers of the sparse adjacency on blocks of columns, so that memory stays bounded.
    """
    size = len(offsets) - 1
    rows = np.repeat(np.arange(size), np.diff(offsets))
    places = torch.from_numpy(np.stack([rows, members]))
    adjacency = torch.sparse_coo_tensor(
        places, torch.ones(len(members)), (size, size), is_coalesced=True, check_invariants=False
    )
    pools: list[Tensor] = []
    for start in range(0, size, BLOCK):
        width = min(BLOCK, size - start)
        now = torch.zeros(size, width)
        now[torch.arange(start, start + width), torch.arange(width)] = 1
        before = now
        for _ in range(hops):
            before, now = now, (adjacency @ now).clamp_(max=1)  # 0/1: counts could overflow
        pools.append(((now + before) > 0).T.nonzero() + torch.tensor([start, 0]))
    reached = torch.cat(pools).numpy()
    counts = np.bincount(reached[:, 0], minlength=size)
    return reached[:, 1].copy(), np.append(0, np.cumsum(counts))


def _walk(members: Ids, offsets: Ids, *, hops: int, walks: int, onward: bool) -> tuple[Ids, Ids]:
    """Return the distinct entities at which random walks from each entity end."""
    size, rng = len(offsets) - 1, np.random.default_rng(0)
    degree = np.diff(offsets)
    starts = np.flatnonzero(degree)
    reached: list[Ids] = []
    for origin in np.array_split(starts, max(1, len(starts) * walks // 4_000_000)):
        ends, place = np.empty((walks, len(origin)), dtype=np.int64), origin
        for walk in range(walks):
            place = place if onward else origin
            for _ in range(hops):
                step = (rng.random(len(place)) * degree[place]).astype(np.int64)
                place = members[offsets[place] + step]
            ends[walk] = place
        reached.append(np.unique(origin * size + ends))
    pairs = np.concatenate(reached)
    counts = np.bincount(pairs // size, minlength=size)
    return pairs % size, np.append(0, np.cumsum(counts))
