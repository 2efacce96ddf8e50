"""Any interaction module of PyKEEN as a scoring function (extra `pykeen`)."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.scoring.base import TiledScoring
from puda.scoring.conve import xavier


class PyKEEN(TiledScoring):
    """Score by the PyKEEN interaction that `interaction` names, e.g. "rescal" or "pairre".

    An entity's representations are packed into one row one after the other, complex numbers as
    real parts, then imaginary. Every symbolic dimension of the interaction is `dim`, but "e" is
    `relation_dim` if that is given. All start from Xavier's normal distribution.
    """

    def __init__(
        self, graph: KnowledgeGraph, dim: int, interaction: str = "distmult", relation_dim: int = 0
    ) -> None:
        try:
            from pykeen.nn.modules import interaction_resolver
        except ImportError:
            raise ConfigError("PyKEEN is not installed: pip install 'puda[pykeen]'") from None
        super().__init__(graph, dim)
        try:
            kind = interaction_resolver.lookup(interaction)
        except (KeyError, ValueError) as error:
            raise ConfigError(f"PyKEEN has no interaction {interaction!r}") from error
        sizes = {"": 1, "e": relation_dim or dim}
        try:
            self.interaction: Any = interaction_resolver.make(interaction)
        except TypeError:  # it has to be told its size
            self.interaction = interaction_resolver.make(interaction, {"embedding_dim": dim})
        self.complex = 2 if kind.is_complex else 1  # floats per number
        self.entity_shapes = [_shape(s, dim, sizes) for s in self.interaction.entity_shape]
        self.relation_shapes = [_shape(s, dim, sizes) for s in self.interaction.relation_shape]
        self.row_dim = self.complex * sum(map(math.prod, self.entity_shapes))
        size = self.complex * sum(map(math.prod, self.relation_shapes))
        self.relations = nn.Parameter(xavier(self.num_relations, size))

    def initial_entities(self) -> Tensor:
        """Draw by Xavier."""
        return xavier(self.num_entities, self.row_dim)

    def width(self) -> int:
        """Take the relation's size too: matrices meet each pair."""
        return self.row_dim + self.relations.shape[1]

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Carry anchor, relation and side along: the interaction takes them all at once."""
        vectors = self.relations.index_select(0, relation)
        return torch.cat([anchor, vectors, side.unsqueeze(1).to(anchor.dtype)], dim=1)

    def compare(self, question: Tensor, candidates: Tensor) -> Tensor:
        """Put anchor and candidate where the side says, and let the interaction score them."""
        sizes = [self.row_dim, self.relations.shape[1], 1]
        anchor, relation, side = question.split(sizes, dim=-1)
        asks_head = side.bool()
        head = torch.where(asks_head, candidates, anchor)
        tail = torch.where(asks_head, anchor, candidates)
        heads, tails = (self._unpack(rows, self.entity_shapes) for rows in (head, tail))
        scores: Tensor = self.interaction(
            h=_single([heads[i] for i in self.interaction.head_indices]),
            r=_single(self._unpack(relation, self.relation_shapes)),
            t=_single([tails[i] for i in self.interaction.tail_indices]),
        )
        return scores.expand(torch.broadcast_shapes(head.shape, tail.shape)[:-1])

    def _unpack(self, rows: Tensor, shapes: list[tuple[int, ...]]) -> list[Tensor]:
        """Cut packed rows (..., row) into representations (..., *shape)."""
        parts = rows.split([self.complex * math.prod(shape) for shape in shapes], dim=-1)
        if self.complex == 2:
            parts = tuple(torch.complex(*part.chunk(2, dim=-1)) for part in parts)
        return [part.view(*part.shape[:-1], *s) for part, s in zip(parts, shapes, strict=True)]


def _shape(symbols: str, dim: int, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(sizes.get(symbol, dim) for symbol in symbols)


def _single(parts: list[Tensor]) -> Tensor | list[Tensor]:
    """PyKEEN takes one representation bare and several as a sequence."""
    return parts[0] if len(parts) == 1 else parts
