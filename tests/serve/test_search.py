"""Labels are found by their beginnings, by later words, and through typos."""

import numpy as np
import pytest

from puda.data.vocabulary import Vocabulary
from puda.serve.search import Search, fold

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
