"""Any interaction module of PyKEEN as a scoring function (extra `pykeen`)."""

import inspect
import math
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import dropout

from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.scoring.base import TiledScoring, xavier


class PyKEEN(TiledScoring):
    """Score by the PyKEEN interaction that `interaction` names, e.g. "rescal" or "pairre".

    An entity's representations are packed into one row one after the other, complex numbers as
    real parts, then imaginary. Every symbolic dimension of the interaction is `dim`, but "e" is
    `relation_dim` if that is given. All start from Xavier's normal distribution.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        dim: int,
        interaction: str = "distmult",
        relation_dim: Annotated[int, Field(ge=0)] = 0,
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
        # "k" is the 4 numbers of a quaternion, elsewhere another size of one's choice.
        sizes = {
            "": 1,
            "e": relation_dim or dim,
            "k": 4 if kind.__name__.startswith("Quat") else dim,
        }
        try:
            made: Any = kind(**_arguments(kind, dim, relation_dim or dim))
        except (TypeError, ValueError, AssertionError) as error:
            raise ConfigError(f"PyKEEN's {interaction!r} cannot be made: {error}") from error
        made.reset_parameters()  # until then some leave their memory as they found it
        self.interaction = made
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

    def drop(self, question: Tensor, rate: float) -> Tensor:
        """Drop numbers of anchor and relation, not the side."""
        return torch.cat([dropout(question[:, :-1], rate, self.training), question[:, -1:]], dim=1)

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


def _arguments(kind: type, dim: int, relation_dim: int) -> dict[str, int]:
    """Tell an interaction its sizes where it asks for them, and a norm where it has no default."""
    wanted = inspect.signature(kind).parameters
    sizes = dict.fromkeys(("embedding_dim", "input_dim", "head_dim", "tail_dim"), dim)
    given = {k: v for k, v in {**sizes, "relation_dim": relation_dim}.items() if k in wanted}
    if "p" in wanted and wanted["p"].default is inspect.Parameter.empty:
        given["p"] = 2
    return given


def _shape(symbols: str, dim: int, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(sizes.get(symbol, dim) for symbol in symbols)


def _single(parts: list[Tensor]) -> Tensor | list[Tensor]:
    """PyKEEN takes one representation bare and several as a sequence."""
    return parts[0] if len(parts) == 1 else parts
