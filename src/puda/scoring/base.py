"""What a scoring function is: it encodes a question and matches it with candidate rows."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from puda.types import Questions

if TYPE_CHECKING:
    from puda.data.graph import KnowledgeGraph


class ScoringFunction(nn.Module):
    """Scores answers to questions; larger means more plausible.

    The entities are not in the module: they come as rows, so that a step can work on a few of
    them and a generator can invent some. A bilinear model writes `encode` only.
    """

    def __init__(self, graph: "KnowledgeGraph", dim: int) -> None:
        super().__init__()
        self.num_entities, self.num_relations = graph.num_entities, graph.num_relations
        self.dim = dim  # floats of one entity row

    def initial_entities(self) -> Tensor:
        """Draw the entity table (E, d); N(0, 1e-3) unless the model's paper says otherwise."""
        return torch.randn(self.num_entities, self.dim) * 1e-3

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Turn anchors (Q, d), relation ids (Q,) and sides (Q,) into question vectors (Q, ...)."""
        raise NotImplementedError

    def match(self, question: Tensor, candidates: Tensor) -> Tensor:
        """Score candidates: rows (P, d) shared by all -> (Q, P), rows (Q, N, d) own -> (Q, N)."""
        if candidates.dim() == 2:
            return question @ candidates.T
        return torch.einsum("qd,qnd->qn", question, candidates)

    def factors(
        self, anchor: Tensor, relation: Tensor, side: Tensor, answer: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the squared sizes |x|^2 (Q, ...) of a fact's parts, for regularisers."""
        raise NotImplementedError

    def ask(self, questions: Questions, entities: Tensor) -> Tensor:
        """Encode questions whose anchors are looked up in the whole table (E, d)."""
        anchor = entities.index_select(0, questions.anchor)
        return self.encode(anchor, questions.relation, questions.side)
