"""RotatE (Sun et al. 2019)."""

import math

from torch import Tensor

from puda.config import NonNegative
from puda.data.graph import KnowledgeGraph
from puda.fused import distance, product
from puda.scoring.base import TiledScoring, complex_product, even, halves, uniform


class RotatE(TiledScoring):
    """Score margin - sum_k |h_k r_k - t_k| over d/2 complex numbers, r_k = exp(i theta_k).

    With `squared` the sum is of |h_k r_k - t_k|^2: it ranks as the Euclidean norm does, and is a
    matrix product.
    A row holds real parts, then imaginary. Entities start from U(+-b), b = (margin + 2)/(d/2),
    and so does the relation parameter x, theta = pi x / b, which keeps the paper's step size on
    angles.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        dim: int,
        margin: NonNegative = 9.0,
        squared: bool = False,
        reciprocal: bool = False,
    ) -> None:
        super().__init__(graph, even(dim, "rotate"), reciprocal=reciprocal)
        self.margin, self.squared = margin, squared
        self.bound = (margin + 2) / (dim // 2)
        self.relations = uniform(self.num_directed, dim // 2, bound=self.bound)

    def initial_entities(self) -> Tensor:
        """Draw from U(+-b)."""
        return uniform(self.num_entities, self.row_dim, bound=self.bound).detach()

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Rotate the anchor by theta, or by -theta where the head is asked for: (Q, d)."""
        vectors = self.relations.index_select(0, self.directed(relation, side))
        theta = vectors * (math.pi / self.bound)
        if not self.reciprocal:
            theta = theta * (1 - 2 * side).unsqueeze(-1)
        return complex_product(halves(anchor), (theta.cos(), theta.sin()))

    def match(self, question: Tensor, candidates: Tensor) -> Tensor:
        """Compare by distance, by a product or a kernel where there is one, otherwise by tiles."""
        if self.squared and candidates.dim() == 2:  # |q - c|^2 = |q|^2 + |c|^2 - 2 q c
            sizes = question.pow(2).sum(1, keepdim=True) + candidates.pow(2).sum(1)  # (Q, P)
            return self.margin - sizes + 2 * product(question, candidates)
        apart = None if self.squared else distance(question, candidates, complex_rows=True)
        return super().match(question, candidates) if apart is None else self.margin - apart

    def compare(self, question: Tensor, candidates: Tensor) -> Tensor:
        """Sum moduli of differences or their squares; 1e-24 makes the root's gradient finite."""
        re, im = halves(question - candidates)
        squares = re**2 + im**2
        return self.margin - (squares if self.squared else (squares + 1e-24).sqrt()).sum(-1)

    def factors(
        self, anchor: Tensor, relation: Tensor, side: Tensor, answer: Tensor
    ) -> tuple[Tensor, ...]:
        """Squared moduli of the entities; relations have modulus 1."""
        return tuple(re**2 + im**2 for re, im in (halves(anchor), halves(answer)))
