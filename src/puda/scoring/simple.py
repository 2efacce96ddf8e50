"""SimplE (Kazemi & Poole 2018)."""

import torch
from torch import Tensor

from puda.data.graph import KnowledgeGraph
from puda.scoring.base import ScoringFunction, even, halves, uniform


class SimplE(ScoringFunction):
    """Score (<h_H, r, t_T> + <t_H, r', h_T>) / 2, where an entity e has one vector e_H as head
    and one e_T as tail; a row holds e_H, then e_T, and a relation r, then r'.

    Its two terms are its own reciprocals, so it has no such option. Starts from U(+-6/sqrt(d)).
    The score is not clipped to +-20 as in the authors' code, where that makes ties.
    """  # noqa: D205

    def __init__(self, graph: KnowledgeGraph, dim: int) -> None:
        super().__init__(graph, even(dim, "simple"))
        self.bound = 6 / (dim // 2) ** 0.5
        self.relations = uniform(self.num_relations, dim, bound=self.bound)

    def initial_entities(self) -> Tensor:
        """Draw from U(+-6/sqrt(d))."""
        return uniform(self.num_entities, self.row_dim, bound=self.bound).detach()

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Place what the answer's head vector and its tail vector are multiplied with: (Q, d).

        Tail question: [h_T r', h_H r] / 2; head question: [t_T r, t_H r'] / 2.
        """
        as_head, as_tail = halves(anchor)
        forward, inverse = halves(self.relations.index_select(0, relation))
        asks_head = side.bool().unsqueeze(-1)
        onto_head = as_tail * torch.where(asks_head, forward, inverse)
        onto_tail = as_head * torch.where(asks_head, inverse, forward)
        return torch.cat([onto_head, onto_tail], dim=-1) / 2

    def factors(
        self, anchor: Tensor, relation: Tensor, side: Tensor, answer: Tensor
    ) -> tuple[Tensor, ...]:
        """Squares of the three rows."""
        return anchor**2, self.relations.index_select(0, relation) ** 2, answer**2
