"""ConvKB (Nguyen et al. 2018)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from puda.config import Count, Share
from puda.data.graph import KnowledgeGraph
from puda.fused import rectified
from puda.scoring.base import TiledScoring, xavier


class ConvKB(TiledScoring):
    """Score w . relu([h, r, t] * Omega) + c, Omega being K filters of 1 x 3 with bias.

    Filters start at [0.1, 0.1, -0.1], w and the vectors from Xavier's normal distribution; the
    authors start the vectors from a trained TransE, which `scoring.start` does here.
    """

    def __init__(
        self, graph: KnowledgeGraph, dim: int, filters: Count = 32, dropout: Share = 0.5
    ) -> None:
        super().__init__(graph, dim)
        self.dropout = dropout
        self.relations = nn.Parameter(xavier(self.num_relations, dim))
        self.filters = nn.Parameter(torch.tensor([[0.1, 0.1, -0.1]]).repeat(filters, 1))  # (K, 3)
        self.bias = nn.Parameter(torch.zeros(filters))
        self.weight = nn.Parameter(xavier(filters, dim))
        self.offset = nn.Parameter(torch.zeros(()))

    def initial_entities(self) -> Tensor:
        """Draw by Xavier."""
        return xavier(self.num_entities, self.row_dim)

    def width(self) -> int:
        """Each pair has K feature maps of d floats."""
        return self.row_dim * len(self.filters)

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Filter what is given and remember what the answer's filter is: (Q, K, d + 1)."""
        ends = self.filters[:, [0, 2]].T  # (2, K): the head's weight, the tail's weight
        given, asked = ends.index_select(0, side), ends.index_select(0, 1 - side)  # (Q, K)
        vectors = self.relations.index_select(0, relation)
        middle = self.filters[:, 1].unsqueeze(-1) * vectors.unsqueeze(1)  # (Q, K, d)
        filtered = given.unsqueeze(-1) * anchor.unsqueeze(1) + middle + self.bias.unsqueeze(-1)
        return torch.cat([filtered, asked.unsqueeze(-1)], dim=-1)

    def match(self, question: Tensor, candidates: Tensor) -> Tensor:
        """Score in one pass where there is a kernel and otherwise by tiles."""
        # One draw per question serves its candidates: one for each would cost ten times the rest.
        weight = self.weight.expand(len(question), -1, -1)
        weight = dropout(weight, self.dropout, self.training)
        sums = rectified(question[..., :-1], question[..., -1], weight, candidates)
        return super().match(question, candidates) if sums is None else sums + self.offset

    def compare(self, question: Tensor, candidates: Tensor) -> Tensor:
        """Add the answer's part and reduce: (Q, 1, K, d + 1) and (1 or Q, P, d) -> (Q, P)."""
        filtered, asked = question[..., :-1], question[..., -1:]
        maps = torch.relu(filtered + asked * candidates.unsqueeze(2))  # (Q, P, K, d)
        if not (self.training and self.dropout):
            return maps.flatten(2) @ self.weight.flatten() + self.offset
        weight = dropout(self.weight.expand(len(question), -1, -1), self.dropout)
        return (maps.flatten(2) @ weight.flatten(1).unsqueeze(2)).squeeze(2) + self.offset
