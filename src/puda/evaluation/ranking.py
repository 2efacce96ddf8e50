"""Filtered ranks by counting: how many entities that complete no known fact outrank the answer."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from puda.data.index import KnownAnswers
from puda.errors import Diverged
from puda.types import Facts, Ids, Questions

Scorer = Callable[[Questions], Tensor]
"""From questions to their scores over all entities (Q, E)."""

TILE = 8_000_000
"""Scores held at a time: 32 MB, about the size of a processor's cache."""


class Ranks(NamedTuple):
    """Where the true answers stand; columns are tail questions and head questions."""

    greater: Ids  # (n, 2) entities that score higher, known answers left out
    equal: Ids  # (n, 2) other entities that score the same, known answers left out
    candidates: Ids  # (n, 2) entities compared, the answer included

    @property
    def optimistic(self) -> np.ndarray:
        """Ranks (n, 2) with the answer first among equals."""
        return self.greater + 1.0

    @property
    def realistic(self) -> np.ndarray:
        """Ranks (n, 2) with the answer in the middle of its equals."""
        return self.greater + 1.0 + self.equal / 2

    @property
    def pessimistic(self) -> np.ndarray:
        """Ranks (n, 2) with the answer last among equals."""
        return self.greater + 1.0 + self.equal


def rank(score: Scorer, facts: Facts, known: KnownAnswers) -> Ranks:
    """Rank the answers of both questions of each fact (n, 3) among all entities.

    Equal questions are scored once. The answer's own score is read from the same product as its
    rivals', so that ties are ties. A score that is not finite raises Diverged.
    """
    questions, answers = Questions.both(torch.tensor(facts))
    keys = known.key(questions.anchor.numpy(), questions.relation.numpy(), questions.side.numpy())
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    items = np.argsort(group, kind="stable")  # rows of `keys`, equal questions side by side
    ends = np.searchsorted(group[items], np.arange(len(first) + 1))
    greater, equal, left_out = (np.zeros(len(keys), dtype=np.int64) for _ in range(3))
    tile = max(1, TILE // known.num_entities)
    for start in range(0, len(first), tile):
        stop = min(start + tile, len(first))
        scores = score(questions[torch.from_numpy(first[start:stop])])  # (T, E)
        low, high = scores.aminmax()
        if not (torch.isfinite(low) and torch.isfinite(high)):
            raise Diverged("a score is not finite: the model cannot be ranked")
        members = items[ends[start] : ends[stop]]
        for chunk in np.array_split(members, max(1, len(members) // tile)):
            rows = torch.from_numpy(group[chunk] - start)
            counts = _count(scores, rows, answers[chunk], *known.exclude(keys[chunk]))
            greater[chunk], equal[chunk], left_out[chunk] = counts
    candidates = known.num_entities - left_out
    return Ranks(*(column.reshape(2, -1).T for column in (greater, equal, candidates)))


def _count(
    scores: Tensor, rows: Tensor, answers: Tensor, item: Ids, entity: Ids
) -> tuple[Ids, Ids, Ids]:
    """Count rivals above and level with each answer, without the known ones (item, entity)."""
    true = scores[rows, answers]  # (I,)
    if len(rows) != len(scores) or not torch.equal(rows, torch.arange(len(rows))):
        scores, rows = scores.index_select(0, rows), torch.arange(len(rows))
    greater = (scores > true.unsqueeze(1)).sum(1).numpy()
    equal = (scores == true.unsqueeze(1)).sum(1).numpy() - 1  # itself
    rival = entity != answers.numpy()[item]
    item, entity = item[rival], entity[rival]
    known = scores[torch.from_numpy(item), torch.from_numpy(entity)].numpy()
    bound, size = true.numpy()[item], len(rows)
    greater -= np.bincount(item[known > bound], minlength=size)
    equal -= np.bincount(item[known == bound], minlength=size)
    return greater, equal, np.bincount(item, minlength=size)
