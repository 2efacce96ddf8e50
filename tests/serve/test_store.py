"""Verdicts are kept, all of them, and the last of each author counts."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from puda.errors import PudaError
from puda.serve.store import Store
from puda.verdicts import Verdict


def verdict(tail: str = "b", said: str = "accept", author: str = "ann", **more: str) -> Verdict:
    return Verdict("a", "r", tail, said, author, graph="board", **more)


def keep(store: Store, *said: Verdict) -> None:
    for each in said:
        store.add(each, run="board", data="0")


def test_the_last_word_of_each_author_counts(store):
    keep(store, verdict(said="accept"), verdict(said="reject", author="bob"))
    keep(store, verdict(said="reject"), verdict("c"))
    assert [each[:5] for each in store.latest("board")] == [
        ("a", "r", "b", "reject", "bob"),
        ("a", "r", "b", "reject", "ann"),
        ("a", "r", "c", "accept", "ann"),
    ]


def test_all_words_stay_in_the_file(store, tmp_path):
    keep(store, verdict(said="accept"), verdict(said="reject"))
    with sqlite3.connect(tmp_path / "verdicts.sqlite") as file:
        assert file.execute("select verdict from verdicts").fetchall() == [("accept",), ("reject",)]


def test_graphs_are_kept_apart(store):
    keep(store, verdict(), verdict()._replace(graph="other"))
    assert len(store.latest("board")) == len(store.latest("other")) == 1


def test_a_page_is_newest_first_and_can_be_of_some_facts(store):
    keep(store, *(verdict(tail) for tail in "bcd"))
    total, shown = store.page("board", offset=1, k=1)
    assert (total, [each.tail for each in shown]) == (3, ["c"])
    total, shown = store.page("board", offset=0, k=9, tail="d", head=None)
    assert (total, [each.tail for each in shown]) == (1, ["d"])


def test_two_people_judging_at_once_lose_nothing(store, tmp_path):
    other = Store(str(tmp_path / "verdicts.sqlite"))  # as a second server has it open

    def judge(place: tuple[Store, str]) -> None:
        for i in range(25):
            keep(place[0], verdict(f"t{i}", author=place[1]))

    with ThreadPoolExecutor(4) as people:
        list(people.map(judge, [(store, "ann"), (other, "bob"), (store, "cy"), (other, "dee")]))
    other.close()
    assert len(store.latest("board")) == 4 * 25


def test_a_commit_waits_for_the_disk(store):
    with store.engine.connect() as connection:
        mode, level = (
            connection.exec_driver_sql(f"pragma {name}").scalar_one()
            for name in ("journal_mode", "synchronous")
        )
    assert (mode, level) == ("wal", 2)  # 2: FULL


@pytest.mark.parametrize("where", ["nonsense://x", "/no/such/folder/verdicts.sqlite"])
def test_a_place_that_cannot_be_opened_is_named(where):
    with pytest.raises(PudaError, match=f"cannot open the verdicts {where}"):
        Store(where)
