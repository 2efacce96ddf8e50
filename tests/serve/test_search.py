"""Labels are found by their beginnings, by later words, and through typos."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import OSA

from puda.data.vocabulary import Vocabulary
from puda.serve.search import ALIKE, Search, fold

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
    search = Search(Vocabulary(labels, kind="entity"), np.ones(len(labels), dtype=int))
    sought = fold(typed)
    alike = {}
    for entry, _, i in search.entries:
        likeness = OSA.normalized_similarity(sought, entry[: len(sought) + 1])
        if likeness >= ALIKE:
            alike.setdefault(i, set()).add(likeness)
    nearly = search._nearly(sought, len(search.entries)) if sought else []
    found: dict[int, set[float]] = {}
    for i, likeness in nearly:
        found.setdefault(i, set()).add(likeness)
    assert found == (alike if sought else {})
