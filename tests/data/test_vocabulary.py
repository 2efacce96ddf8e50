"""Ids depend on the labels alone, and look-up forgives what a person types."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puda.data.vocabulary import Vocabulary
from puda.errors import DataError, LabelError

CITIES = ["Osaka", "Oslo", "PARIS", "Paris", "Rome", "San Jose", "San Juan", "Straße", "York"]

label_lists = st.lists(st.text(st.characters(codec="utf-8"), max_size=4), min_size=1, max_size=12)


@pytest.fixture
def cities() -> Vocabulary:
    return Vocabulary(CITIES, kind="entity")


@given(label_lists, st.randoms())
def test_ids_are_places_in_code_point_order_whatever_the_input_order(labels, random) -> None:
    expected = sorted(set(labels))
    random.shuffle(labels)
    half = len(labels) // 2
    columns = [pl.Series(part, dtype=pl.String) for part in (labels[:half], labels[half:])]
    vocabulary = Vocabulary.of(*columns, kind="entity")
    assert vocabulary.labels == expected
    assert len(vocabulary) == len(expected)
    assert vocabulary.encode(pl.Series(labels)).tolist() == [expected.index(x) for x in labels]


def test_encoding_an_unknown_label_is_an_error_that_names_it(cities: Vocabulary) -> None:
    with pytest.raises(DataError, match="entity 'Bern'"):
        cities.encode(pl.Series(["Rome", "Bern"]))


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Rome", "Rome"),
        ("rome", "Rome"),
        ("  ROME ", "Rome"),
        ("yo", "York"),
        ("San Ju", "San Juan"),
        ("strasse", "Straße"),  # case folding, not lower case
        ("Paris", "Paris"),  # exact, although PARIS differs by case alone
        ("PARIS", "PARIS"),
    ],
)
def test_find_takes_exact_then_caseless_then_a_unique_prefix(
    cities: Vocabulary, text: str, label: str
) -> None:
    assert cities.labels[cities.find(text)] == label


def test_a_whole_label_wins_over_one_that_it_begins() -> None:
    vocabulary = Vocabulary(["New York", "New York City"], kind="entity")
    assert vocabulary.find("new york") == 0
    assert vocabulary.find("new york c") == 1


@pytest.mark.parametrize(
    ("text", "options", "others"),
    [
        ("paris", ["'PARIS'", "'Paris'"], ["'Oslo'"]),
        ("san", ["'San Jose'", "'San Juan'"], ["'Straße'"]),
    ],
)
def test_a_text_that_fits_several_labels_is_an_error_that_names_them(
    cities: Vocabulary, text: str, options: list[str], others: list[str]
) -> None:
    with pytest.raises(LabelError, match=repr(text)) as caught:
        cities.find(text)
    assert all(option in str(caught.value) for option in options)
    assert not any(other in str(caught.value) for other in others)


def test_of_many_options_five_are_named_and_the_rest_counted() -> None:
    vocabulary = Vocabulary([f"drug {i}" for i in range(9)], kind="entity")
    with pytest.raises(LabelError, match="'drug 0', .*, 'drug 4' and 4 more") as caught:
        vocabulary.find("drug")
    assert "drug 5" not in str(caught.value)


def test_an_unknown_text_is_an_error_that_names_the_nearest_label() -> None:
    relations = Vocabulary(["borders", "has_capital", "speaks"], kind="relation")
    with pytest.raises(LabelError, match="no relation 'bordrs'.*nearest: 'borders'$"):
        relations.find("bordrs")


@pytest.mark.parametrize("text", ["", "  ", "zzzzzz"])
def test_a_text_like_nothing_is_an_error_without_a_hint(cities: Vocabulary, text: str) -> None:
    with pytest.raises(LabelError, match=f"no entity {text!r} in this graph$"):
        cities.find(text)


@given(label_lists)
def test_every_label_finds_itself(labels: list[str]) -> None:
    vocabulary = Vocabulary(sorted(set(labels)), kind="entity")
    assert [vocabulary.find(label) for label in vocabulary.labels] == list(range(len(vocabulary)))
