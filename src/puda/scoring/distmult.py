"""DistMult (Yang et al. 2015)."""

import torch
from torch import Tensor, nn

from puda.data.graph import KnowledgeGraph
from puda.scoring.base import ScoringFunction


class DistMult(ScoringFunction):
    """Score sum_k h_k r_k t_k (Eq. 1); symmetric in h and t unless `reciprocal`.

    Starts from N(0, 1e-3), as Lacroix et al. (2018) do.
    """

    def __init__(self, graph: KnowledgeGraph, dim: int, reciprocal: bool = False) -> None:
        super().__init__(graph, dim, reciprocal=reciprocal)
        self.relations = nn.Parameter(torch.randn(self.num_directed, dim) * 1e-3)

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Multiply anchor and relation: (Q, d)."""
        return anchor * self.relations.index_select(0, self.directed(relation, side))

    def relate(self, anchor: Tensor, answer: Tensor, side: Tensor) -> Tensor:
        """Match anchor * answer with all relations: (Q, R or 2R)."""
        return (anchor * answer) @ self.relations.T

    def factors(
        self, anchor: Tensor, relation: Tensor, side: Tensor, answer: Tensor
    ) -> tuple[Tensor, ...]:
        """Squares of the three vectors."""
        vectors = self.relations.index_select(0, self.directed(relation, side))
        return anchor**2, vectors**2, answer**2
