"""Answers to many people's questions at once, the same as puda.predict gives to one.

Scoring a question reads the whole entity table, scoring sixteen together reads it once: so the
questions that wait are answered in one go. The best answers of each question are kept for whoever
asks again or turns the page.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, NamedTuple

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

DEPTH = 1024  # answers kept of a question; who stands lower is ranked anew
KEPT = 256_000_000  # bytes of them in all
TOGETHER = 32  # most questions answered at a time
TILE = 16_000_000  # scores computed at a time, but at least those of one question

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


class Answers:
    """Answers questions about one run; a thread of its own does the scoring."""

    def __init__(self, run: Run, *, kept: int = KEPT) -> None:
        self.trained: Trained = run.trained
        self.calibration: Calibration | None = run.calibration
        self._room = max(1, kept // (DEPTH * 8))
        self._best: OrderedDict[Key, Best] = OrderedDict()
        self._lock = threading.Lock()
        self._waiting: SimpleQueue[tuple[Asked, Future[list[Prediction]]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="answers", daemon=True)
        self._thread.start()

    async def ask(self, asked: Asked) -> list[Prediction]:
        """Answer a question, together with those that others ask meanwhile."""
        return await asyncio.wrap_future(self.submit(asked))

    def submit(self, asked: Asked) -> Future[list[Prediction]]:
        """Put a question into the queue."""
        future: Future[list[Prediction]] = Future()
        self._waiting.put((asked, future))
        return future

    def close(self) -> None:
        """Answer what waits, then stop."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        graph = self.trained.graph
        _ = graph.known(*SPLITS), graph.reflexive  # now, behind the start, not for who asks first
        while (first := self._waiting.get()) is not None:
            batch = [first]
            while len(batch) < TOGETHER and not self._waiting.empty():
                following = self._waiting.get()
                if following is None:
                    self._waiting.put(None)
                    break
                batch.append(following)
            try:
                found = self.answer([asked for asked, _ in batch])
            except Exception as error:  # whatever it is, those who wait must hear of it
                for _, future in batch:
                    future.set_exception(error)
            else:
                for (_, future), predictions in zip(batch, found, strict=True):
                    if not future.cancelled():
                        future.set_result(predictions)

    def answer(self, batch: Sequence[Asked]) -> list[list[Prediction]]:
        """Answer some questions; each as `puda.predict.predict` would."""
        best = self._find([asked.key for asked in batch])
        chosen = [self._choose(asked, best[asked.key]) for asked in batch]
        facts = np.concatenate([facts for facts, _, _ in chosen])
        chances = self.probability(facts)
        answers, start = [], 0
        for asked, (own, scores, known) in zip(batch, chosen, strict=True):
            own_chances = None if chances is None else chances[start : start + len(own)]
            start += len(own)
            answers.append(self._write(asked, own, scores, known, own_chances))
        return answers

    def probability(self, facts: Facts) -> Floats | None:
        """Return P(true) of facts (n, 3); None for a run that is not calibrated."""
        if self.calibration is None:
            return None
        return self.calibration.probability(self.trained, facts)

    def _find(self, keys: Sequence[Key]) -> dict[Key, Best]:
        """Return the best answers of questions, from memory where they are there."""
        wanted = dict.fromkeys(keys)
        with self._lock:
            found = {key: self._best[key] for key in wanted if key in self._best}
        missing = [key for key in wanted if key not in found]
        rows = max(1, TILE // self.trained.graph.num_entities)
        for start in range(0, len(missing), rows):
            some = missing[start : start + rows]
            found |= dict(zip(some, self._score(some), strict=True))
        with self._lock:
            for key in wanted:
                self._best[key] = found[key]
                self._best.move_to_end(key)
            while len(self._best) > self._room:
                self._best.popitem(last=False)
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

    def _choose(self, asked: Asked, best: Best) -> tuple[Facts, Floats, np.ndarray]:
        """Return the facts of a page of answers, their scores and one more, and which are known."""
        ids: NDArray[np.integer[Any]] = best.fresh
        scores, stop = best.fresh_scores, asked.offset + asked.k + 1
        if stop + 1 > len(ids) < best.candidates:  # deeper than what is kept; one may be a loop
            ids, scores = self._deeper(asked, stop + 1)
        known = np.zeros(len(ids), dtype=bool)
        if asked.include_known:
            known = np.append(known, np.ones(len(best.known), dtype=bool))
            ids = np.append(ids, best.known)
            scores = np.append(scores, best.known_scores)
            order = np.argsort(-scores, kind="stable")
            ids, scores, known = ids[order], scores[order], known[order]
        if asked.relation not in self.trained.graph.reflexive:
            itself = ids != asked.anchor
            ids, scores, known = ids[itself], scores[itself], known[itself]
        scores, page = scores[asked.offset : stop], slice(asked.offset, stop - 1)
        ids, known = ids[page], known[page]
        facts = np.empty((len(ids), 3), dtype=np.int64)
        facts[:, 1] = asked.relation
        ends = (asked.anchor, ids) if asked.side is Side.TAIL else (ids, asked.anchor)
        facts[:, 0], facts[:, 2] = ends
        return facts, scores, known

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

    def _write(
        self, asked: Asked, facts: Facts, scores: Floats, known: np.ndarray, chances: Floats | None
    ) -> list[Prediction]:
        graph, model = self.trained.graph, self.trained.model
        entities, relations = graph.entities.labels, graph.relations.labels
        votes, answer = self._votes(asked), 2 if asked.side is Side.TAIL else 0
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
