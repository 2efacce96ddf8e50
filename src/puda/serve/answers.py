"""Answers to many people's questions at once, the same as puda.predict gives to one.

Scoring a question reads the whole entity table, scoring sixteen together reads it once: so the
questions that wait are answered in one go (puda.serve.desk). The best answers of each question are
kept for whoever turns the page.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from puda.api import Run
from puda.calibrate import Calibration
from puda.data.graph import SPLITS
from puda.errors import Diverged
from puda.evaluation.calibration import Floats
from puda.runs import Trained
from puda.scoring.ensemble import Ensemble
from puda.types import Facts, Ids, Prediction, Questions, Side

DEPTH = 128  # answers kept of a question; who stands lower is ranked anew
KEPT = 64_000_000  # bytes of them in all
TILE = 16_000_000  # scores computed at a time, but at least those of one question
ALONE = 64_000_000  # floats of an entity table that one thread reads in some ten milliseconds

Key = tuple[int, int, int]
"""A question: anchor, relation, side."""


class Asked(NamedTuple):
    """A question about entities and which of its answers are wanted."""

    anchor: int
    relation: int
    side: Side
    k: int
    offset: int = 0
    include_known: bool = False

    @property
    def key(self) -> Key:
        """The question alone."""
        return self.anchor, self.relation, int(self.side)


class Best(NamedTuple):
    """The best answers to a question, best first, known ones apart."""

    fresh: NDArray[np.int32]  # (up to DEPTH,) not known to complete a fact
    fresh_scores: Floats
    known: Ids  # all that are
    known_scores: Floats
    candidates: int  # how many are not known

    def bytes(self) -> int:
        """Return how much memory they take."""
        return sum(part.nbytes for part in self[:4])


class Page(NamedTuple):
    """The answers that are wanted, before they are put into words."""

    facts: Facts  # (n, 3)
    scores: Floats  # (n or n + 1,) theirs, then that of the next one if there is one
    known: NDArray[np.bool_]  # (n,)
    places: Floats  # (n, 2) as of puda.places.places; NaN where they are not known


K = TypeVar("K")
V = TypeVar("V")


class Kept(Generic[K, V]):
    """What was asked for last, as much as there is room for."""

    def __init__(self, room: int, size: Callable[[V], int]) -> None:
        self.room, self.size = room, size
        self._values: OrderedDict[K, V] = OrderedDict()
        self._taken = 0
        self._lock = threading.Lock()  # several threads answer

    def __len__(self) -> int:
        return len(self._values)

    def find(self, keys: Iterable[K]) -> dict[K, V]:
        """Return those that are kept."""
        with self._lock:
            found = {key: self._values[key] for key in keys if key in self._values}
            for key in found:
                self._values.move_to_end(key)
            return found

    def keep(self, values: Mapping[K, V]) -> None:
        """Keep new ones, in place of those that were asked for longest ago."""
        with self._lock:
            for key, value in values.items():  # a difference of keys would go through all kept
                if key not in self._values:
                    self._values[key] = value
                    self._taken += self.size(value)
            while self._taken > self.room and len(self._values) > 1:
                self._taken -= self.size(self._values.popitem(last=False)[1])


class Answers:
    """Answers questions about one run, many at once."""

    def __init__(self, run: Run, *, kept: int = KEPT) -> None:
        self.trained: Trained = run.trained
        self.calibration: Calibration | None = run.calibration
        self._best: Kept[Key, Best] = Kept(kept, Best.bytes)

    def prepare(self) -> None:
        """Do in the thread that is to answer what whoever asks first would wait for."""
        graph = self.trained.graph
        if self.trained.rows.numel() < ALONE:  # several threads would wait longer than they help
            torch.set_num_threads(1)  # for this thread's products, not for those of others
        _ = graph.known(*SPLITS), graph.reflexive

    def answer(self, batch: Sequence[Asked]) -> list[list[Prediction]]:
        """Answer some questions; each as `puda.predict.predict` would."""
        best = self._find([asked.key for asked in batch])
        pages = {asked: self._choose(asked, best[asked.key]) for asked in batch}
        if not pages:
            return []
        facts = np.concatenate([page.facts for page in pages.values()])
        places = np.concatenate([page.places for page in pages.values()])
        chances = self.probability(facts, places)
        answers, start = {}, 0
        for asked, page in pages.items():
            stop = start + len(page.facts)
            own = None if chances is None else chances[start:stop]
            answers[asked] = self._write(asked, page, own)
            start = stop
        return [answers[asked] for asked in batch]

    def probability(self, facts: Facts, places: Floats | None = None) -> Floats | None:
        """Return P(true) of facts (n, 3); None for a run that is not calibrated."""
        if self.calibration is None:
            return None
        return self.calibration.probability(self.trained, facts, given=places)

    def _find(self, keys: Sequence[Key]) -> dict[Key, Best]:
        """Return the best answers of questions, from memory where they are there."""
        found = self._best.find(keys)
        missing = [key for key in dict.fromkeys(keys) if key not in found]
        rows = max(1, TILE // self.trained.graph.num_entities)
        for start in range(0, len(missing), rows):
            some = missing[start : start + rows]
            found |= dict(zip(some, self._score(some), strict=True))
        self._best.keep(found)
        return found

    def _score(self, keys: Sequence[Key]) -> list[Best]:
        index, size = self.trained.graph.known(*SPLITS), self.trained.graph.num_entities
        anchor, relation, side = np.array(keys).T
        scores = self.trained.score(Questions(*map(torch.tensor, (anchor, relation, side))))
        if not all(map(torch.isfinite, scores.aminmax())):
            raise Diverged("a score is not finite: this run cannot predict, train it anew")
        row, entity = index.exclude(index.key(anchor, relation, side))
        rows, entities = torch.from_numpy(row), torch.from_numpy(entity)
        known_scores = scores[rows, entities].numpy()
        scores[rows, entities] = -torch.inf  # finite scores stand before it
        values, ids = scores.topk(min(DEPTH, size), dim=1)
        ends = np.searchsorted(row, np.arange(len(keys) + 1))
        found = []
        for i in range(len(keys)):
            known, own = entity[ends[i] : ends[i + 1]], known_scores[ends[i] : ends[i + 1]]
            order = np.argsort(-own, kind="stable")
            left = size - len(known)
            depth = min(left, ids.shape[1])
            fresh = ids[i, :depth].int().numpy(), values[i, :depth].numpy().copy()
            found.append(Best(*fresh, known[order], own[order], left))
        return found

    def _choose(self, asked: Asked, best: Best) -> Page:
        """Return a page of answers."""
        ids: NDArray[np.integer[Any]] = best.fresh
        scores, stop = best.fresh_scores, asked.offset + asked.k + 1
        if stop + 1 > len(ids) < best.candidates:  # deeper than what is kept; one may be a loop
            ids, scores = self._deeper(asked, stop + 1)
        known, candidates = np.zeros(len(ids), dtype=bool), best.candidates
        if asked.include_known:
            candidates += len(best.known)
            known = np.append(known, np.ones(len(best.known), dtype=bool))
            ids = np.append(ids, best.known)
            scores = np.append(scores, best.known_scores)
            order = np.argsort(-scores, kind="stable")
            ids, scores, known = ids[order], scores[order], known[order]
        ids, scores, known = ids[: stop + 1], scores[: stop + 1], known[: stop + 1]
        places = self._places(asked, ids, scores, known)
        if len(ids) < candidates:  # equals of the last one may stand behind it
            places[scores == scores[-1]] = np.nan
        if asked.relation not in self.trained.graph.reflexive:
            itself = ids != asked.anchor
            ids, scores, known, places = ids[itself], scores[itself], known[itself], places[itself]
        page = slice(asked.offset, stop - 1)
        ids, known, places = ids[page], known[page], places[page]
        facts = np.empty((len(ids), 3), dtype=np.int64)
        facts[:, 1] = asked.relation
        ends = (asked.anchor, ids) if asked.side is Side.TAIL else (ids, asked.anchor)
        facts[:, 0], facts[:, 2] = ends
        both = np.full((len(ids), 2), np.nan)
        both[:, asked.side] = places
        return Page(facts, scores[asked.offset : stop], known, both)

    def _places(
        self,
        asked: Asked,
        ids: NDArray[np.integer[Any]],
        scores: Floats,
        known: NDArray[np.bool_],
    ) -> Floats:
        """Rank the first answers, best first, among those that come near: (n,).

        As puda.places.places does, which would score them once more.
        """
        index = self.trained.graph.known(*SPLITS)
        near = (
            index.count(index.key(ids.astype(np.int64), np.array(asked.relation), 1 - asked.side))
            > 0
        )
        rivals = near & ~known
        ahead, up_to = (
            np.searchsorted(-scores[rivals], -scores, where) for where in ("left", "right")
        )
        places: Floats = 1 + ahead + (up_to - ahead - rivals) / 2  # no one is their own rival
        return places

    def _deeper(self, asked: Asked, depth: int) -> tuple[Ids, Floats]:
        index = self.trained.graph.known(*SPLITS)
        question = Questions(*(torch.tensor([part]) for part in asked.key))
        scores = self.trained.score(question)[0]
        scores[torch.from_numpy(index.of(*asked.key))] = -torch.inf
        values, ids = scores.topk(min(depth, int(torch.isfinite(scores).sum())))
        return ids.numpy(), values.numpy()

    @torch.no_grad()
    def _votes(self, asked: Asked) -> Ids | None:
        """Count the members of an ensemble that have an entity on or before this page (E,)."""
        trained = self.trained
        if not isinstance(trained.model, Ensemble):
            return None
        question = Questions(*(torch.tensor([part]) for part in asked.key))
        each = trained.model.each(trained.model.ask(question, trained.rows), trained.rows)[:, 0]
        if not asked.include_known:
            each[:, torch.from_numpy(trained.graph.known(*SPLITS).of(*asked.key))] = -torch.inf
        if asked.relation not in trained.graph.reflexive:
            each[:, asked.anchor] = -torch.inf
        first = each.topk(min(asked.offset + asked.k, each.shape[1])).indices
        return np.bincount(first.flatten().numpy(), minlength=each.shape[1])

    def _write(self, asked: Asked, page: Page, chances: Floats | None) -> list[Prediction]:
        graph, model = self.trained.graph, self.trained.model
        entities, relations = graph.entities.labels, graph.relations.labels
        votes, answer = self._votes(asked), 2 if asked.side is Side.TAIL else 0
        facts, scores, known, _ = page
        margins: list[float | None] = [*(scores[:-1] - scores[1:]).tolist(), None]
        return [
            Prediction(
                head=entities[facts[i, 0]],
                relation=relations[facts[i, 1]],
                tail=entities[facts[i, 2]],
                score=float(scores[i]),
                rank=asked.offset + i + 1,
                known=bool(known[i]),
                margin=margins[i],
                probability=None if chances is None else float(chances[i]),
                agreement=None if votes is None else int(votes[facts[i, answer]]),
                members=len(model) if isinstance(model, Ensemble) else None,
            )
            for i in range(len(facts))
        ]
