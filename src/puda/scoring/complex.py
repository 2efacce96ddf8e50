"""ComplEx (Trouillon et al. 2016), with reciprocal relations (Lacroix et al. 2018)."""

import torch
from torch import Tensor, nn

from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.scoring.base import ScoringFunction


class ComplEx(ScoringFunction):
    """Score Re <h, r, conj(t)> over d/2 complex numbers; a row holds real parts, then imaginary.

    With `reciprocal` a head question (?, r, t) is the tail question (t, r + R, ?) of a relation
    of its own; without, it is answered by conj(r), and both sides score a fact alike.
    """

    def __init__(self, graph: KnowledgeGraph, dim: int, reciprocal: bool = True) -> None:
        if dim % 2:
            raise ConfigError(f"scoring.dim = {dim}: complex packs two halves, choose an even one")
        super().__init__(graph, dim)
        self.reciprocal = reciprocal
        count = self.num_relations * (2 if reciprocal else 1)
        self.relations = nn.Parameter(torch.randn(count, dim) * 1e-3)

    def _relation(self, relation: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
        if self.reciprocal:
            relation = relation + side * self.num_relations
        re, im = self.relations.index_select(0, relation).chunk(2, dim=-1)
        if self.reciprocal:
            return re, im
        return re, im * (1 - 2 * side).unsqueeze(-1)  # conj(r) where the head is asked for

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Multiply anchor and relation as complex numbers: (Q, d)."""
        (a_re, a_im), (r_re, r_im) = anchor.chunk(2, dim=-1), self._relation(relation, side)
        return torch.cat([a_re * r_re - a_im * r_im, a_re * r_im + a_im * r_re], dim=-1)

    def factors(
        self, anchor: Tensor, relation: Tensor, side: Tensor, answer: Tensor
    ) -> tuple[Tensor, ...]:
        """Squared complex moduli of the three vectors, d/2 each."""
        halves = (anchor.chunk(2, -1), self._relation(relation, side), answer.chunk(2, -1))
        return tuple(re**2 + im**2 for re, im in halves)
