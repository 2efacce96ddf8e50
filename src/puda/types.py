"""The few words that all of puda speaks: sides, questions, scores, risks, predictions."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ids = NDArray[np.int64]
"""Entity, relation or question ids."""

Facts = NDArray[np.int64]
"""(n, 3) ids: head, relation, tail."""


class Side(IntEnum):
    """Which end of a fact is asked for."""

    TAIL = 0
    HEAD = 1


@dataclass(frozen=True)
class Questions:
    """A batch of questions "(anchor, relation, side): which entities complete this?"."""

    anchor: Tensor  # (Q,) entity ids: the head of a tail question, the tail of a head question
    relation: Tensor  # (Q,) relation ids
    side: Tensor  # (Q,) 0 = TAIL is asked for, 1 = HEAD

    def __len__(self) -> int:
        return len(self.anchor)

    def __getitem__(self, index: slice | Tensor) -> "Questions":
        if isinstance(index, Tensor):  # several times as fast as indexing
            return Questions(*(p.index_select(0, index) for p in self._parts))
        return Questions(*(part[index] for part in self._parts))

    @property
    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.anchor, self.relation, self.side

    @classmethod
    def of(cls, facts: Tensor, side: Side) -> tuple["Questions", Tensor]:
        """Ask for one side of each fact (n, 3); returns the questions and their answers (n,)."""
        anchor, answer = (0, 2) if side is Side.TAIL else (2, 0)
        asked = torch.full((len(facts),), int(side))
        return cls(facts[:, anchor], facts[:, 1], asked), facts[:, answer]

    @classmethod
    def both(cls, facts: Tensor) -> tuple["Questions", Tensor]:
        """Ask for both sides of each fact: the n tail questions, then the n head questions."""
        (tail, tails), (head, heads) = cls.of(facts, Side.TAIL), cls.of(facts, Side.HEAD)
        return cls(
            torch.cat([tail.anchor, head.anchor]),
            torch.cat([tail.relation, head.relation]),
            torch.cat([tail.side, head.side]),
        ), torch.cat([tails, heads])


class Batch(NamedTuple):
    """Questions with known answers to learn from."""

    questions: Questions  # (Q,)
    answers: Tensor  # (F,) entity ids
    owner: Tensor | None = None  # (F,) each answer's question; None: question i has answer i
    weight: Tensor | None = None  # (F,) each answer's part in means, not yet of sum 1; None: equal

    @property
    def facts(self) -> Tensor:
        """The facts (F, 3) that questions and answers make."""
        asked = self.questions if self.owner is None else self.questions[self.owner]
        ends = torch.stack([asked.anchor, self.answers])  # the head of a tail question comes first
        head, tail = torch.where(asked.side == 0, ends, ends.flip(0))
        return torch.stack([head, asked.relation, tail], dim=1)


class Scores(NamedTuple):
    """What an objective sees of a batch; larger means more plausible."""

    positive: Tensor  # (F,) of the known answers
    unlabeled: Tensor  # (Q, N) of entities that complete no known fact
    synthetic: Tensor  # (Q, M) of invented entities
    counted: Tensor | None = None  # (Q, N) False where an unlabeled entity is a known answer
    weight: Tensor | None = None  # (Q, N) rows sum to 1: parts in a mean; None: equal parts
    owner: Tensor | None = None  # (F,) each positive's question; None: question i has positive i
    unlabeled_risk: Tensor | None = None  # R_u- where it is known already, a scalar
    prior: Tensor | None = None  # (F,) pi of each positive's question; None: one for all
    share: Tensor | None = None  # (F,) of sum 1: each positive's part in means; None: equal parts


class Risk(NamedTuple):
    """An objective's value and its parts, each a scalar (equation numbers of the paper)."""

    total: Tensor
    positive: Tensor  # R_p+ (7): positives called positive
    inverted: Tensor  # R_p- (8): positives called negative
    unlabeled: Tensor  # R_u- (9 or 11)
    synthetic: Tensor  # R_*- (14, 15)


class Prediction(NamedTuple):
    """One answer to a question, as labels."""

    head: str
    relation: str
    tail: str
    score: float
    rank: int  # among the entities shown, 1 = most plausible
    known: bool  # the fact is in the graph already
    margin: float | None = None  # by how much it scores above the next answer, if there is one
    probability: float | None = None  # of being true, if the run is calibrated
    agreement: int | None = None  # members of an ensemble that have it among their own first k
    members: int | None = None  # of the ensemble
