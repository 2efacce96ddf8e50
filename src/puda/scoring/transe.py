"""TransE (Bordes et al. 2013)."""

from typing import Literal

import torch
from torch import Tensor

from puda.config import NonNegative
from puda.data.graph import KnowledgeGraph
from puda.fused import distance
from puda.scoring.base import ScoringFunction, uniform


class TransE(ScoringFunction):
    """Score margin - ||h + r - t||_norm, norm 1 or 2.

    The margin, which changes no rank, puts the sigmoid of pointwise risks in the right place;
    it and the start U(+-(margin + 2)/d) are those of the RotatE paper. Entities are not
    renormalised.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        dim: int,
        norm: Literal[1, 2] = 1,
        margin: NonNegative = 9.0,
        reciprocal: bool = False,
    ) -> None:
        super().__init__(graph, dim, reciprocal=reciprocal)
        self.norm, self.margin = norm, margin
        self.bound = (margin + 2) / dim
        self.relations = uniform(self.num_directed, dim, bound=self.bound)

    def initial_entities(self) -> Tensor:
        """Draw from U(+-(margin + 2)/d)."""
        return uniform(self.num_entities, self.row_dim, bound=self.bound).detach()

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Translate: h + r, or t - r where the head is asked for: (Q, d)."""
        vectors = self.relations.index_select(0, self.directed(relation, side))
        if self.reciprocal:
            return anchor + vectors
        return anchor + vectors * (1 - 2 * side).unsqueeze(-1)

    def match(self, question: Tensor, candidates: Tensor) -> Tensor:
        """Compare by distance; no form keeps a value per (question, candidate, d)."""
        apart = distance(question, candidates) if self.norm == 1 else None
        if apart is not None:
            return self.margin - apart
        if candidates.dim() == 2:
            return self.margin - torch.cdist(question, candidates, p=self.norm)
        own = torch.cdist(question.unsqueeze(1), candidates, p=self.norm)  # (Q, 1, N)
        return self.margin - own.squeeze(1)

    def factors(
        self, anchor: Tensor, relation: Tensor, side: Tensor, answer: Tensor
    ) -> tuple[Tensor, ...]:
        """Squares of the three vectors."""
        vectors = self.relations.index_select(0, self.directed(relation, side))
        return anchor**2, vectors**2, answer**2
