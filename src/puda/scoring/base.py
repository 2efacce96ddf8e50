"""What a scoring function is: it encodes a question and matches it with candidate rows."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch.utils.checkpoint import checkpoint

from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.fused import product, product_among, row_dot
from puda.scoring.edges import Neighbourhood
from puda.types import Questions


class ScoringFunction(nn.Module):
    """Scores answers to questions; larger means more plausible.

    The entities are not in the module: they come as rows, so that a step can work on a few of
    them and a generator can invent some. A bilinear model writes `encode` only.
    """

    whole_graph: ClassVar[bool] = False  # True: rows depend on each other, see `contextualize`

    def __init__(self, graph: KnowledgeGraph, dim: int, *, reciprocal: bool = False) -> None:
        super().__init__()
        self.num_entities, self.num_relations = graph.num_entities, graph.num_relations
        self.dim = dim  # floats of an entity's vector
        self.row_dim = dim  # floats of an entity's row: the vector, and a bias where there is one
        self.reciprocal = reciprocal  # head questions have relations of their own, r + R

    @property
    def num_directed(self) -> int:
        """Number of relation vectors: R, or 2R with reciprocal relations."""
        return self.num_relations * (2 if self.reciprocal else 1)

    def directed(self, relation: Tensor, side: Tensor) -> Tensor:
        """Return the ids (Q,) of the relation vectors that questions use."""
        return relation + side * self.num_relations if self.reciprocal else relation

    def initial_entities(self) -> Tensor:
        """Draw the entity table (E, row); N(0, 1e-3) unless the model's paper says otherwise."""
        return torch.randn(self.num_entities, self.row_dim) * 1e-3

    def neighbourhood(self, wanted: Tensor, asked: Tensor) -> Neighbourhood:
        """Return what the rows of entities (N,), ascending, depend on if they depend on others.

        All there is, unless an encoder knows better. `asked` are the facts (F, 3) that a step of
        training asks for.
        """
        return Neighbourhood(torch.arange(self.num_entities), ())

    def contextualize(self, rows: Tensor, near: Neighbourhood | None = None) -> Tensor:
        """Turn table rows (E, row) into the rows that are matched (E, row).

        Graph encoders turn the rows (S, row) of a neighbourhood into those (N, row) it is of.
        """
        return rows

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Turn anchors (Q, row), relation ids (Q,), sides (Q,) into question vectors (Q, ...)."""
        raise NotImplementedError

    def drop(self, question: Tensor, rate: float) -> Tensor:
        """Drop numbers of question vectors in training (`scoring.dropout`).

        Only of the vector: what stands behind it, as the one that meets a bias, stays.
        """
        vector, rest = question[..., : self.dim], question[..., self.dim :]
        return torch.cat([dropout(vector, rate, self.training), rest], dim=-1)

    def match(self, question: Tensor, candidates: Tensor) -> Tensor:
        """Score candidates: rows (P, row) shared by all -> (Q, P), or own (Q, N, row) -> (Q, N)."""
        if candidates.dim() == 2:
            return product(question, candidates)
        if candidates.shape[1] == 1:  # as a known answer is: no need of a batch of products
            return row_dot(question, candidates.squeeze(1)).unsqueeze(1)
        return torch.einsum("qd,qnd->qn", question, candidates)

    def match_among(self, question: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
        """Score those of the rows (E, row) that have some ids (P,), without a gradient: (Q, P)."""
        if type(self).match is ScoringFunction.match:
            return product_among(question, rows, ids)
        return self.match(question, rows.index_select(0, ids))

    def relate(self, anchor: Tensor, answer: Tensor, side: Tensor) -> Tensor:
        """Score all relations between anchors and answers (Q, row): (Q, R), or directed (Q, 2R)."""
        raise ConfigError(
            f"{type(self).__name__} cannot predict relations by a matrix product:"
            " set objective.relation_weight=0"
        )

    def factors(
        self, anchor: Tensor, relation: Tensor, side: Tensor, answer: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the squared sizes |x|^2 (Q, ...) of a fact's parts, for regularisers."""
        return anchor**2, answer**2

    def ask(self, questions: Questions, rows: Tensor) -> Tensor:
        """Encode questions whose anchors are looked up in the rows of all entities (E, row)."""
        anchor = rows.index_select(0, questions.anchor)
        return self.encode(anchor, questions.relation, questions.side)


class TiledScoring(ScoringFunction):
    """A scoring function without matrix-product form: it is computed tile by tile.

    A tile's intermediate values are computed again for the gradient rather than kept, so that
    memory holds one tile of (question, candidate, d) at a time whatever the batch.
    """

    tile: ClassVar[int] = 1_000_000  # floats of one intermediate value: 4 MB stay in cache

    def compare(self, question: Tensor, candidates: Tensor) -> Tensor:
        """Score by broadcasting: questions (Q, 1, ...) and rows (1 or Q, P, row) -> (Q, P)."""
        raise NotImplementedError

    def width(self) -> int:
        """Return the floats of an intermediate value per pair of question and candidate."""
        return self.row_dim

    def match(self, question: Tensor, candidates: Tensor) -> Tensor:
        """Score candidates as `ScoringFunction.match` does, tile by tile."""
        shared = candidates.dim() == 2
        rows = candidates.unsqueeze(0) if shared else candidates  # (1 or Q, P, row)
        number = rows.shape[1]
        high = max(1, self.tile // (self.width() * max(1, min(number, 1024))))
        parts = []
        for start in range(0, len(question), high):
            asked = question[start : start + high].unsqueeze(1)
            own = rows if shared else rows[start : start + high]
            tiles = [self._tile(asked, block) for block in own.split(1024, dim=1)]
            parts.append(torch.cat(tiles, dim=1))
        return torch.cat(parts) if parts else question.new_zeros(0, number)

    def _tile(self, question: Tensor, candidates: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return self.compare(question, candidates)
        scores: Tensor = checkpoint(self.compare, question, candidates, use_reentrant=False)
        return scores


def halves(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Split packed vectors (..., d) into their two halves (..., d/2)."""
    first, second = rows.chunk(2, dim=-1)
    return first, second


def complex_product(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> Tensor:
    """Multiply complex numbers given as real and imaginary parts (..., d/2): packed (..., d)."""
    (a_re, a_im), (b_re, b_im) = a, b
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], dim=-1)


def even(dim: int, name: str) -> int:
    """Check that a model can pack two halves into a row."""
    if dim % 2:
        raise ConfigError(f"scoring.dim = {dim}: {name} packs two halves, choose an even number")
    return dim


def uniform(*shape: int, bound: float) -> nn.Parameter:
    """Draw a parameter from U(-bound, bound)."""
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))


def xavier(*shape: int) -> Tensor:
    """Draw from Xavier's normal distribution."""
    return nn.init.xavier_normal_(torch.empty(*shape))
