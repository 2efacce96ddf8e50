"""Filtered ranks by counting: how many entities that complete no known fact outrank the answer."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from puda import native
from puda.data.index import KnownAnswers, ranges
from puda.errors import Diverged
from puda.machine import free_memory
from puda.types import Facts, Ids, Questions

Scorer = Callable[[Questions], Tensor]
"""From questions to their scores over all entities (Q, E)."""

QUESTIONS, TILE = 256, 8_000_000
"""At a time so many questions are ranked, or as many as have so many scores (32 MB stay in cache).
"""

BYTES = 16
"""Of memory for a score: its own four, and what a scorer needs beside."""


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


def rank(score: Scorer, facts: Facts, known: KnownAnswers, *, memory: int | None = None) -> Ranks:
    """Rank the answers of both questions of each fact (n, 3) among all entities.

    Equal questions are scored once. The answer's own score is read from the same product as its
    rivals', so that ties are ties. A score that is not finite raises Diverged. Scores take up to
    `memory` megabytes at a time, but at least one question's; by default a quarter of what is free.
    """
    questions, answers = Questions.both(torch.tensor(facts))
    keys = known.key(questions.anchor.numpy(), questions.relation.numpy(), questions.side.numpy())
    distinct, one, group = np.unique(keys, return_index=True, return_inverse=True)
    items = np.argsort(group, kind="stable")  # rows of `keys`, equal questions side by side
    ends = np.searchsorted(group[items], np.arange(len(distinct) + 1))
    counts = np.zeros((3, len(keys)), dtype=np.int64)  # greater, equal, left out
    room = (free_memory() // 4 if memory is None else memory * 1_000_000) // BYTES
    tile = max(1, min(max(QUESTIONS, TILE // known.num_entities), room // known.num_entities))
    for start in range(0, len(distinct), tile):
        stop = min(start + tile, len(distinct))
        scores = score(questions[torch.from_numpy(one[start:stop])])  # (T, E)
        here = items[ends[start] : ends[stop]]
        first = ends[start : stop + 1] - ends[start]
        counts[:, here] = _count(
            scores, first, answers.numpy()[here], *known.spans(distinct[start:stop]), known.answers
        )
    counts[2] = known.num_entities - counts[2]
    return Ranks(*(column.reshape(2, -1).T for column in counts))


def _count(
    scores: Tensor, first: Ids, answers: Ids, start: Ids, stop: Ids, known: Ids
) -> np.ndarray:
    """Count rivals of the answers first[q] .. first[q + 1] - 1 in row q of scores (T, E).

    known[start[q] .. stop[q] - 1] are no rivals. Returns (3, I): for each answer how many rivals
    are greater, how many are equal, and how many entities were left out.
    """
    count = native.count if native.fits(scores) else _count_in_torch
    finite, counts = count(scores, first, answers, start, stop, known)
    if not finite:
        raise Diverged("a score is not finite: the model cannot be ranked")
    return counts


def _count_in_torch(
    scores: Tensor, first: Ids, answers: Ids, start: Ids, stop: Ids, known: Ids
) -> tuple[bool, np.ndarray]:
    """Do what `native.count` does, a tile's height of answers at a time."""
    low, high = scores.aminmax()
    row = np.repeat(np.arange(len(scores)), np.diff(first))  # of each answer
    parts = []
    for items in np.array_split(np.arange(len(row)), max(1, len(row) // len(scores))):
        answer, rows = answers[items], row[items]
        own = scores.index_select(0, torch.from_numpy(rows))  # (I, E)
        true = own.gather(1, torch.from_numpy(answer).unsqueeze(1))  # (I, 1)
        greater, equal = (own > true).sum(1).numpy(), (own == true).sum(1).numpy() - 1  # itself
        length = (stop - start)[rows]
        item, entity = np.repeat(np.arange(len(rows)), length), known[ranges(start[rows], length)]
        rival = entity != answer[item]
        item, entity = item[rival], entity[rival]
        other = own[torch.from_numpy(item), torch.from_numpy(entity)].numpy()
        bound, size = true.squeeze(1).numpy()[item], len(rows)
        greater -= np.bincount(item[other > bound], minlength=size)
        equal -= np.bincount(item[other == bound], minlength=size)
        parts.append(np.stack([greater, equal, np.bincount(item, minlength=size)]))
    return bool(torch.isfinite(low) and torch.isfinite(high)), np.concatenate(parts, axis=1)
