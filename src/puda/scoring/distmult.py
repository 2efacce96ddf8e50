"""DistMult (Yang et al. 2015)."""

import torch
from torch import Tensor, nn

from puda.data.graph import KnowledgeGraph
from puda.scoring.base import ScoringFunction


class DistMult(ScoringFunction):
    """Score sum_k h_k r_k t_k (Eq. 1), the same for head and tail questions."""

    def __init__(self, graph: KnowledgeGraph, dim: int) -> None:
        super().__init__(graph, dim)
        self.relations = nn.Parameter(torch.randn(self.num_relations, dim) * 1e-3)

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Multiply anchor and relation: (Q, d)."""
        return anchor * self.relations.index_select(0, relation)

    def factors(
        self, anchor: Tensor, relation: Tensor, side: Tensor, answer: Tensor
    ) -> tuple[Tensor, ...]:
        """Squares of the three vectors."""
        return anchor**2, self.relations.index_select(0, relation) ** 2, answer**2
