"""Labels are found by their beginnings, by later words, and through typos."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz import process
from rapidfuzz.distance import OSA

from puda.data.vocabulary import Vocabulary
from puda.serve import search
from puda.serve.search import ALIKE, Search, fold, letters

LABELS = [
    "Brazil",
    "Central African Republic",
    "Czech Republic",
    "France",
    "Franca",
    "Germany",
    "South Africa",
    "São Paulo",
    "has_capital",
]


def found(text: str, k: int = 3, weight: dict[str, int] | None = None) -> list[str]:
    heavy = np.array([(weight or {}).get(label, 1) for label in LABELS])
    return [LABELS[i] for i in Search(Vocabulary(LABELS, kind="entity"), heavy).find(text, k)]


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("france", "France"),
        ("Fra", "France"),
        ("republ", "Central African Republic"),
        ("afri", "Central African Republic"),
        ("sao p", "São Paulo"),
        ("capital", "has_capital"),
        ("Frnace", "France"),
        ("Grmany", "Germany"),
        ("Soth Afr", "South Africa"),
        ("  GERMANY ", "Germany"),
    ],
)
def test_what_is_meant_comes_first(typed, first):
    weight = {"France": 5, "Central African Republic": 5}
    assert found(typed, weight=weight)[0] == first


def test_a_whole_label_goes_before_heavier_beginnings():
    assert found("franca", weight={"France": 9})[0] == "Franca"
    assert found("fran", weight={"France": 9})[:2] == ["France", "Franca"]


def test_beginnings_go_before_typos_and_nothing_is_found_twice():
    shown = found("republic", k=9)
    assert shown[:2] == ["Central African Republic", "Czech Republic"]
    assert len(shown) == len(set(shown))


def test_letters_are_told_of_all_texts_block_by_block(monkeypatch):
    texts = ["ab", "", "a" * 300, "北京", "zz"]
    whole = letters(texts).tolist()
    monkeypatch.setattr(search, "BLOCK", 2)
    assert letters(texts).tolist() == whole
    assert [bits.bit_count() for bits in whole] == [2, 0, 1, 2, 1]
    assert letters([]).tolist() == []


def test_nothing_typed_shows_the_heaviest():
    assert found("", k=1, weight={"Brazil": 7}) == ["Brazil"]


def test_what_is_like_nothing_finds_nothing():
    assert found("qqqqqqqq") == []


def test_marks_alone_are_a_text_too():
    assert fold("???") == "???"
    assert found("???") == []


@given(
    typed=st.text("abcdeé 北", min_size=1, max_size=9),
    labels=st.lists(st.text("abcdeé 北", min_size=1, max_size=12), min_size=1, max_size=20),
)
def test_a_typo_is_forgiven_as_if_all_were_compared(typed, labels):
    labels = sorted({*labels, "abcde"})
    index = Search(Vocabulary(labels, kind="entity"), np.ones(len(labels), dtype=int))
    sought = fold(typed) or "a"
    begun = [entry[: len(sought) + 1] for entry, _, _ in index.entries]
    likeness = process.cdist(
        [sought], begun, scorer=OSA.normalized_similarity, score_cutoff=ALIKE, dtype=np.float64
    )[0]
    alike = [(index.entries[row][2], likeness[row]) for row in np.flatnonzero(likeness)]
    assert sorted(index._nearly(sought, len(begun))) == sorted(alike)
