"""Several models of one kind as one: what seeds disagree on is not yet known."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from puda.scoring.base import ScoringFunction
from puda.scoring.edges import Neighbourhood


class Ensemble(ScoringFunction):
    """The mean score of models that were trained apart.

    A row holds the members' rows side by side, and so does a question vector, so that whatever
    takes a scoring function takes an ensemble.
    """

    def __init__(self, members: Sequence[ScoringFunction]) -> None:
        nn.Module.__init__(self)
        first = members[0]
        self.num_entities, self.num_relations = first.num_entities, first.num_relations
        self.reciprocal = first.reciprocal
        self.registered = nn.ModuleList(members)  # its weights are the ensemble's
        self.members = list(members)
        self.row_dim = self.dim = sum(member.row_dim for member in members)

    def __len__(self) -> int:
        return len(self.members)

    def contextualize(self, rows: Tensor, near: Neighbourhood | None = None) -> Tensor:
        """Turn each member's part of the table into its rows."""
        parts = rows.chunk(len(self), dim=-1)
        return torch.cat(
            [m.contextualize(part) for m, part in zip(self.members, parts, strict=True)], dim=-1
        )

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Encode by each member, one behind the other in the last dimension."""
        parts = anchor.chunk(len(self), dim=-1)
        return torch.cat(
            [m.encode(part, relation, side) for m, part in zip(self.members, parts, strict=True)],
            dim=-1,
        )

    def each(self, question: Tensor, candidates: Tensor) -> Tensor:
        """Score candidates by each member (S, Q, P), as `match` does."""
        asked, rows = (x.chunk(len(self), dim=-1) for x in (question, candidates))
        pairs = zip(self.members, asked, rows, strict=True)
        # Models without a matrix product read rows where they lie, so these must lie together.
        return torch.stack([m.match(q.contiguous(), c.contiguous()) for m, q, c in pairs])

    def match(self, question: Tensor, candidates: Tensor) -> Tensor:
        """Average the members' scores."""
        return self.each(question, candidates).mean(0)
