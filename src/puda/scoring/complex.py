"""ComplEx (Trouillon et al. 2016), with reciprocal relations (Lacroix et al. 2018)."""

import torch
from torch import Tensor, nn

from puda.data.graph import KnowledgeGraph
from puda.scoring.base import ScoringFunction, complex_product, even, halves


class ComplEx(ScoringFunction):
    """Score Re <h, r, conj(t)> over d/2 complex numbers; a row holds real parts, then imaginary.

    With `reciprocal` a head question (?, r, t) is the tail question (t, r + R, ?) of a relation
    of its own; without, it is answered by conj(r), and both sides score a fact alike. Starts from
    N(0, 1e-3), as Lacroix et al. do.
    """

    def __init__(self, graph: KnowledgeGraph, dim: int, reciprocal: bool = True) -> None:
        super().__init__(graph, even(dim, "complex"), reciprocal=reciprocal)
        self.relations = nn.Parameter(torch.randn(self.num_directed, dim) * 1e-3)

    def _relation(self, relation: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
        re, im = halves(self.relations.index_select(0, self.directed(relation, side)))
        if self.reciprocal:
            return re, im
        return re, im * (1 - 2 * side).unsqueeze(-1)  # conj(r) where the head is asked for

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Multiply anchor and relation as complex numbers: (Q, d)."""
        return complex_product(halves(anchor), self._relation(relation, side))

    def relate(self, anchor: Tensor, answer: Tensor, side: Tensor) -> Tensor:
        """Match conj(head) * tail with all relations: (Q, R or 2R)."""
        (a_re, a_im), (b_re, b_im) = halves(anchor), halves(answer)
        im = a_re * b_im - a_im * b_re
        if not self.reciprocal:
            im = im * (1 - 2 * side).unsqueeze(-1)  # the anchor is the tail of a head question
        return torch.cat([a_re * b_re + a_im * b_im, im], dim=-1) @ self.relations.T

    def factors(
        self, anchor: Tensor, relation: Tensor, side: Tensor, answer: Tensor
    ) -> tuple[Tensor, ...]:
        """Squared complex moduli of the three vectors, d/2 each."""
        parts = (halves(anchor), self._relation(relation, side), halves(answer))
        return tuple(re**2 + im**2 for re, im in parts)
