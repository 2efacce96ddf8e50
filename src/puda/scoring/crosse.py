"""CrossE (Zhang et al. 2019)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from puda.config import Share
from puda.data.graph import KnowledgeGraph
from puda.scoring.base import ScoringFunction, uniform


class CrossE(ScoringFunction):
    """Score tanh(c_r h + c_r h r + b) . t; head questions have r, c_r and b of their own.

    Each side having its own parameters, there is nothing left for reciprocal relations to add.
    Starts from U(+-6/sqrt(d)), b from 0. Dropout acts on the tanh.
    """

    def __init__(self, graph: KnowledgeGraph, dim: int, dropout: Share = 0.5) -> None:
        super().__init__(graph, dim, reciprocal=True)
        self.bound, self.dropout = 6 / dim**0.5, dropout
        self.relations = uniform(self.num_directed, dim, bound=self.bound)
        self.interactions = uniform(self.num_directed, dim, bound=self.bound)
        self.bias = nn.Parameter(torch.zeros(2, dim))  # by side

    def initial_entities(self) -> Tensor:
        """Draw from U(+-6/sqrt(d))."""
        return uniform(self.num_entities, self.row_dim, bound=self.bound).detach()

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Cross anchor and relation: (Q, d)."""
        directed = self.directed(relation, side)
        crossed = anchor * self.interactions.index_select(0, directed)
        crossed = crossed + crossed * self.relations.index_select(0, directed)
        question = torch.tanh(crossed + self.bias.index_select(0, side))
        return dropout(question, self.dropout, self.training)

    def factors(
        self, anchor: Tensor, relation: Tensor, side: Tensor, answer: Tensor
    ) -> tuple[Tensor, ...]:
        """Squares of the entities', the relation's and the interaction vectors."""
        directed = self.directed(relation, side)
        own = (table.index_select(0, directed) for table in (self.relations, self.interactions))
        return anchor**2, *(vectors**2 for vectors in own), answer**2
