"""Labels by what a person has typed of them so far, typos and accents forgiven."""

import re
import unicodedata
from bisect import bisect_left
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import process
from rapidfuzz.distance import OSA

from puda.data.vocabulary import Vocabulary
from puda.types import Ids

WORDS = 5  # of a label's words so many can be typed first
BLOCK = 4096  # texts whose letters are laid out at a time: a million of 200 would take gigabytes
ALIKE = 0.6  # share of what was typed that must be right

START = re.compile(r"[^\W_]+")


def fold(text: str) -> str:
    """Write a text without case and accents, words apart by single blanks."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(c for c in plain if not unicodedata.combining(c))
    return " ".join(START.findall(kept)) or kept.strip()


class Search:
    """Finds labels that begin with a text, or have a word that does, or nearly do."""

    def __init__(self, vocabulary: Vocabulary, weight: Ids) -> None:
        self.labels = vocabulary.labels
        self.weight = weight  # (n,) of labels that fit alike, the heavier comes first
        self.find = lru_cache(maxsize=4096)(self._find)
        self.begun = lru_cache(maxsize=4)(self._begun)

    @cached_property
    def entries(self) -> list[tuple[str, int, int]]:
        """Each label from its first word on, from its second on ...: (text, word, id), sorted."""
        found = []
        for i, label in enumerate(self.labels):
            words = fold(label).split(" ")
            for place in range(min(len(words), WORDS)):
                found.append((" ".join(words[place:]), place, i))
        return sorted(found)

    def _find(self, text: str, k: int) -> list[int]:
        """Return up to k ids: whole labels first, then beginnings, later words, and typos last."""
        typed = fold(text)
        if not typed:
            heaviest = sorted(range(len(self.labels)), key=lambda i: (-self.weight[i], i))
            return heaviest[:k]
        best: dict[int, tuple[float, ...]] = {}
        for entry, place, i in self._beginning(typed):
            grade = (0 if entry == typed and not place else 1 if not place else 2, -self.weight[i])
            best[i] = min(best.get(i, grade), grade)
        if len(best) < k:
            for i, likeness in self._nearly(typed, 4 * k):
                best.setdefault(i, (3, -likeness, -self.weight[i]))
        return sorted(best, key=lambda i: (best[i], i))[:k]

    def _beginning(self, typed: str) -> list[tuple[str, int, int]]:
        start = bisect_left(self.entries, (typed,))
        stop = bisect_left(self.entries, (typed + "\U0010ffff",), lo=start)
        return self.entries[start:stop]

    def _begun(self, length: int) -> tuple[list[str], NDArray[np.uint64]]:
        """Return so much of each entry, and which letters are in it."""
        begun = [entry[:length] for entry, _, _ in self.entries]
        return begun, letters(begun)

    def _nearly(self, typed: str, number: int) -> list[tuple[int, float]]:
        """Compare with as much of each entry as was typed; one typo may have dropped a letter."""
        begun, held = self.begun(len(typed) + 1)
        # Where more letters lack, or are too much, than may be wrong, no one need compare.
        own = letters([typed])
        wrong = np.maximum(np.bitwise_count(own & ~held), np.bitwise_count(held & ~own))
        near = np.flatnonzero(wrong <= (1 - ALIKE) * (len(typed) + 1))
        likeness = process.cdist(  # unlike process.extract it lets other threads work meanwhile
            [typed],
            [begun[row] for row in near.tolist()],
            scorer=OSA.normalized_similarity,
            score_cutoff=ALIKE,
            dtype=np.float64,
        )[0]
        found = np.flatnonzero(likeness)
        first = found[np.argsort(-likeness[found], kind="stable")[:number]]
        rows, alike = near[first].tolist(), likeness[first].tolist()
        return [(self.entries[row][2], like) for row, like in zip(rows, alike, strict=True)]


def letters(texts: list[str]) -> NDArray[np.uint64]:
    """Return a bit for each letter that a text has, letters 64 apart sharing one: (n,)."""
    found = np.zeros(len(texts), dtype=np.uint64)
    for start in range(0, len(texts), BLOCK):
        some = np.array(texts[start : start + BLOCK], dtype=np.str_)
        codes = some.view(np.uint32).reshape(len(some), -1)  # (n, longest), 0 behind the end
        bits = np.where(codes > 0, np.uint64(1) << (codes % 64).astype(np.uint64), np.uint64(0))
        found[start : start + BLOCK] = np.bitwise_or.reduce(bits, axis=1)
    return found
