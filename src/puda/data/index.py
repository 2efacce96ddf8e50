"""Known answers per question, as sorted arrays in compressed sparse row form.

Kept in both directions. Question -> answers serves the filter of a ranking. Answer -> questions
serves training: a pool of 512 entities answers some 20,000 questions of FB15k-237 in all, whereas
the answers of 1,024 questions are 150,000, so masking a pool from the pool's side is far cheaper.
"""

from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from puda import native
from puda.types import Facts, Ids

SHARE = 0.05
"""Of the entities of a place that must stand in another for all of them to be candidates there.

With 0.05, the training facts of FB15k-237 admit 99.4 % of its test facts and leave 1 pair in 40 to
score; of WN18RR, whose entities have few facts to tell them apart, 90 % and 1 in 3.6.
"""

KEPT = 64_000_000
"""Bytes of candidates that are kept."""


def ranges(starts: Ids, lengths: Ids) -> Ids:
    """Concatenate the ranges start .. start + length - 1."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)


class KnownAnswers:
    """Which entities answer which question (anchor, relation, side) in a set of facts."""

    def __init__(self, facts: Facts, *, num_entities: int, num_relations: int) -> None:
        self.num_entities, self.num_relations = num_entities, num_relations
        head, relation, tail = facts.T
        keys = np.concatenate([self.key(head, relation, 0), self.key(tail, relation, 1)])
        answers = np.concatenate([tail, head])
        order = np.lexsort((answers, keys))
        keys, answers = keys[order], answers[order]
        fresh = np.ones(len(keys), dtype=bool)  # drop facts that occur twice
        fresh[1:] = (keys[1:] != keys[:-1]) | (answers[1:] != answers[:-1])
        keys, self.answers = keys[fresh], answers[fresh]
        self.keys, first = np.unique(
            keys, return_index=True
        )  # (U,) the questions that have answers
        self.offsets = np.append(first, len(keys))  # (U + 1,)
        self.candidates = lru_cache(max(8, KEPT // max(1, num_entities)))(self._candidates)

    def key(self, anchor: Ids, relation: Ids, side: Ids | int) -> Ids:
        """Number a question."""
        return (side * self.num_relations + relation) * self.num_entities + anchor

    def _rows(self, keys: Ids) -> tuple[Ids, Ids]:
        """Find each question's first answer and its number of answers."""
        if not len(self.keys):
            return np.zeros_like(keys), np.zeros_like(keys)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        count = (self.offsets[place + 1] - self.offsets[place]) * (self.keys[place] == keys)
        return self.offsets[place], count

    def spans(self, keys: Ids) -> tuple[Ids, Ids]:
        """Return where in `answers` each question's known answers start and stop."""
        start, count = self._rows(keys)
        return start, start + count

    def count(self, keys: Ids) -> Ids:
        """Return how many known answers each question has (Q,)."""
        return self._rows(keys)[1]

    @cached_property
    def usual(self) -> NDArray[np.float64]:
        """The mean number of answers of questions that have one: (2, R) by side and relation."""
        kind, size = self.keys // self.num_entities, 2 * self.num_relations
        answers = np.bincount(kind, weights=np.diff(self.offsets), minlength=size)
        usual: NDArray[np.float64] = answers / np.maximum(np.bincount(kind, minlength=size), 1)
        return usual.reshape(2, -1)

    def seen(self, relation: Ids, side: Ids | int) -> tuple[Ids, Ids]:
        """Find the entities that answer some question of a relation and side (n,).

        They are the anchors of the questions of the other side: returns where in `keys` these
        start, and how many there are.
        """
        first = self.key(np.array(0), relation, 1 - side)
        start = np.searchsorted(self.keys, first)
        return start, np.searchsorted(self.keys, first + self.num_entities) - start

    def _candidates(self, relation: int, side: int, share: float = SHARE) -> NDArray[np.bool_]:
        """Mark the entities (E,) that fit among the heads of a relation, or among its tails.

        One fits that stands there in a known fact, or in a place s that shares enough of its
        entities: |s and place| >= share * |s|. What has a capital may have a currency, if 1 in 20
        that have a capital are known to have one.
        """
        places, entities, sizes = self._places
        here = np.zeros(self.num_entities, dtype=bool)
        start, width = self.seen(np.array(relation), side)
        here[entities[start : start + width]] = True
        shared = np.bincount(places[here[entities]], minlength=len(sizes))
        alike = shared >= share * sizes  # (2R,) the place itself among them
        fit = np.zeros(self.num_entities, dtype=bool)
        fit[entities[alike[places]]] = True
        return fit

    @cached_property
    def _places(self) -> tuple[Ids, Ids, Ids]:
        """Where entities stand, each once in each place (U,), and how many in each (2R,).

        The heads of a relation, anchors of its tail questions, are place r; its tails are r + R.
        """
        places, entities = np.divmod(self.keys, self.num_entities)
        return places, entities, np.bincount(places, minlength=2 * self.num_relations)

    @cached_property
    def _sizes(self) -> Ids:
        """How many answers each question has, after its side and relation; sorted."""
        kind = self.keys // self.num_entities
        return np.sort(kind * (self.num_entities + 1) + np.diff(self.offsets))

    def room(self, relation: Ids, side: int, answers: Ids) -> NDArray[np.float64]:
        """Return (n,): of a relation's questions with so many answers, the share that has more.

        (more + 1) / (as many or more + 2): close to 0 where a question has its one answer already.
        """
        stride = self.num_entities + 1  # more than a question can have
        first = (side * self.num_relations + relation) * stride
        end = np.searchsorted(self._sizes, first + stride)
        as_many, more = (
            end - np.searchsorted(self._sizes, first + answers, where)
            for where in ("left", "right")
        )
        share: NDArray[np.float64] = (more + 1) / (as_many + 2)
        return share

    def of(self, anchor: int, relation: int, side: int) -> Ids:
        """Return the known answers of one question, sorted."""
        start, count = self._rows(self.key(np.array([anchor]), np.array([relation]), side))
        return self.answers[start[0] : start[0] + count[0]]

    def exclude(self, keys: Ids) -> tuple[Ids, Ids]:
        """Return what a ranking leaves out: (row, entity) for each known answer of each row."""
        start, count = self._rows(keys)
        return np.repeat(np.arange(len(keys)), count), self.answers[ranges(start, count)]

    def holds(self, facts: Facts) -> NDArray[np.bool_]:
        """Say which facts (n, 3) are known."""
        head, relation, tail = facts.T
        row, answer = self.exclude(self.key(head, relation, 0))
        found = np.zeros(len(facts), dtype=bool)
        found[row[answer == tail[row]]] = True
        return found

    @cached_property
    def _shifted(self) -> Ids:
        """Return for each answer how many entities that are no answers stand before it."""
        row = np.repeat(np.arange(len(self.keys)), np.diff(self.offsets))
        within = np.arange(len(self.answers)) - self.offsets[row]
        shifted: Ids = row * self.num_entities + self.answers - within
        return shifted

    def complement(self, keys: Ids, draws: NDArray[np.float64]) -> Ids:
        """Turn draws (Q, N) from [0, 1) into entities that are no known answers, uniformly.

        The u-th entity of a question's complement is u plus the number of answers that have at
        most u non-answers before them, found by bisection: no draw is rejected. A question that
        all entities answer has no complement; its draws are known answers.
        """
        start, count = self._rows(keys)
        u = (draws * (self.num_entities - count)[:, None]).astype(np.int64)
        row = np.searchsorted(self.keys, keys)[:, None]
        passed = np.searchsorted(self._shifted, row * self.num_entities + u, side="right")
        shift = np.where(count[:, None] > 0, passed - start[:, None], 0)
        return np.minimum(u + shift, self.num_entities - 1)

    def sample(self, keys: Ids, draws: NDArray[np.float64]) -> tuple[Ids, NDArray[np.bool_]]:
        """Turn draws (Q, N) from [0, 1) into answers of each question, and say which has any."""
        start, count = self._rows(keys)
        if not len(self.answers):
            return np.zeros(draws.shape, dtype=np.int64), count > 0
        place = start[:, None] + (draws * count[:, None]).astype(np.int64)
        return self.answers[np.minimum(place, len(self.answers) - 1)], count > 0

    @cached_property
    def _transposed(self) -> tuple[Ids, Ids]:
        """Return answer -> questions: places in `keys`, and offsets by entity (E + 1,)."""
        question = np.repeat(np.arange(len(self.keys)), np.diff(self.offsets))
        order = np.argsort(self.answers, kind="stable")
        counts = np.bincount(self.answers, minlength=self.num_entities)
        return question[order], np.append(0, np.cumsum(counts))

    @cached_property
    def _slot(self) -> NDArray[np.int32]:
        """Return scratch space: a row of the mask by question, -1 between calls."""
        return np.full(len(self.keys) + 1, -1, dtype=np.int32)

    def mask(self, keys: Ids, candidates: Ids) -> NDArray[np.bool_]:
        """Mark known answers: (Q, P) True where candidate p is a known answer of question q."""
        questions, offsets = self._transposed
        if native.library is not None:
            return native.mark(keys, self.keys, candidates, questions, offsets, self._slot)
        place = np.searchsorted(self.keys, keys)
        place[np.append(self.keys, -1)[place] != keys] = len(self.keys)  # questions without answer
        start, count = offsets[candidates], offsets[candidates + 1] - offsets[candidates]
        column = np.repeat(np.arange(len(candidates)), count)
        answered = questions[ranges(start, count)]  # the questions that the candidates answer
        asked, row = np.unique(place, return_inverse=True)
        self._slot[asked] = np.arange(len(asked))
        hit = self._slot[answered]
        self._slot[asked] = -1
        known = np.zeros((len(asked), len(candidates)), dtype=bool)
        known[hit[hit >= 0], column[hit >= 0]] = True
        return known[row]
