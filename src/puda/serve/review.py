"""Predicted facts in the order in which a verdict on them is worth most."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from puda.serve.answers import Answers, Asked
from puda.types import Prediction, Side
from puda.verdicts import Labels

QUESTIONS, EACH = 96, 3
"""Questions drawn in a round, and answers taken of each."""

ROUNDS = 20
"""So many rounds are drawn at most to find facts that have no verdict yet."""


class Item(NamedTuple):
    """A fact to review."""

    fact: Labels
    probability: float
    information: float  # bits


def information(probability: float) -> float:
    """Return the bits that an answer to "is it true?" is expected to give."""
    p = np.clip(probability, 1e-12, 1 - 1e-12)
    return float(-p * np.log2(p) - (1 - p) * np.log2(1 - p))


def spread(items: Iterable[Item]) -> list[Item]:
    """Order items by information, each further one of a relation counting for less.

    The n-th of a relation counts 1 / n of its bits: what is learned of one fact is in part learned
    of others like it.
    """
    waiting = sorted(items, key=lambda item: (-item.information, item.fact))
    places: Counter[str] = Counter()
    worth = {}
    for item in waiting:
        places[item.fact[1]] += 1
        worth[item] = item.information / places[item.fact[1]]
    return sorted(waiting, key=lambda item: -worth[item])


class Reviews:
    """Draws facts to review, round by round, and shows those that are not judged."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self._drawn: dict[int | None, tuple[int, dict[Labels, Item]]] = {}
        self._lock = threading.Lock()

    def next(self, k: int, judged: Callable[[Labels], bool], relation: int | None) -> list[Item]:
        """Return the k facts most worth a verdict, of one relation if it is given."""
        with self._lock:
            rounds, drawn = self._drawn.get(relation, (0, {}))
            while True:
                left = [item for fact, item in drawn.items() if not judged(fact)]
                if len(left) >= k or rounds == ROUNDS:
                    break
                drawn = drawn | {item.fact: item for item in self._draw(rounds, relation)}
                rounds += 1
            self._drawn[relation] = rounds, drawn
        return spread(left)[:k]

    def _draw(self, number: int, relation: int | None) -> list[Item]:
        """Take the best answers to questions about training facts, all relations alike."""
        facts = self.answers.trained.graph.train
        if relation is not None:
            facts = facts[facts[:, 1] == relation]
        rng = np.random.default_rng(number)
        shuffled = facts[rng.permutation(len(facts))]
        # The i-th facts of all relations come before the i + 1-th of any.
        order = np.argsort(shuffled[:, 1], kind="stable")
        start = np.searchsorted(shuffled[order, 1], shuffled[order, 1])
        turn = np.empty(len(order), dtype=np.int64)
        turn[order] = np.arange(len(order)) - start
        chosen = shuffled[np.argsort(turn, kind="stable")[:QUESTIONS]]
        asked = [
            Asked(head, r, Side.TAIL, EACH) if i % 2 else Asked(tail, r, Side.HEAD, EACH)
            for i, (head, r, tail) in enumerate(chosen.tolist())
        ]
        return [_item(found) for each in self.answers.answer(asked) for found in each]


def _item(found: Prediction) -> Item:
    chance = found.probability or 0.0
    return Item((found.head, found.relation, found.tail), chance, information(chance))
