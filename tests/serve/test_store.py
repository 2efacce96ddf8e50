"""Verdicts are kept, all of them, and the last of each author counts: in SQLite and PostgreSQL."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

import postgres
from puda.errors import PudaError
from puda.serve.store import TABLE, Store
from puda.verdicts import Verdict

POSTGRESQL = pytest.param(
    "postgresql",
    marks=pytest.mark.skipif(postgres.lacking() is not None, reason=str(postgres.lacking())),
)


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    with postgres.served() as address:
        yield address


@pytest.fixture(params=["sqlite", POSTGRESQL])
def where(request, tmp_path) -> Iterator[str]:
    """Where verdicts are kept; there are none yet."""
    if request.param == "sqlite":
        yield str(tmp_path / "verdicts.sqlite")
        return
    address = request.getfixturevalue("postgresql")
    yield address
    last = Store(address)
    TABLE.metadata.drop_all(last.engine)
    last.close()


@pytest.fixture
def store(where) -> Iterator[Store]:
    store = Store(where)
    yield store
    store.close()


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


def test_all_words_stay(store):
    keep(store, verdict(said="accept"), verdict(said="reject"))
    with store.engine.connect() as connection:
        rows = connection.exec_driver_sql("select verdict from verdicts order by id")
        assert rows.scalars().all() == ["accept", "reject"]


def test_labels_and_notes_of_any_script_come_back(store):
    said = verdict('São "Tomé" 東京 🌍 \\ %s', note="it's\tso\nindeed; drop table verdicts")
    keep(store, said)
    assert store.page("board", offset=0, k=9, tail=said.tail)[1][0][:6] == said[:6]


def test_no_verdict_is_on_what_a_database_cannot_hold(store):
    keep(store, verdict())
    assert store.page("board", offset=0, k=9, tail="b\0") == (0, [])


def test_graphs_are_kept_apart(store):
    keep(store, verdict(), verdict()._replace(graph="other"))
    assert len(store.latest("board")) == len(store.latest("other")) == 1


def test_a_page_is_newest_first_and_can_be_of_some_facts(store):
    keep(store, *(verdict(tail) for tail in "bcd"))
    total, shown = store.page("board", offset=1, k=1)
    assert (total, [each.tail for each in shown]) == (3, ["c"])
    total, shown = store.page("board", offset=0, k=9, tail="d", head=None)
    assert (total, [each.tail for each in shown]) == (1, ["d"])


def test_two_people_judging_at_once_lose_nothing(store, where):
    other = Store(where)  # as a second server has it open

    def judge(place: tuple[Store, str]) -> None:
        for i in range(25):
            keep(place[0], verdict(f"t{i}", author=place[1]))

    with ThreadPoolExecutor(4) as people:
        list(people.map(judge, [(store, "ann"), (other, "bob"), (store, "cy"), (other, "dee")]))
    other.close()
    assert len(store.latest("board")) == 4 * 25


def test_servers_may_start_at_once_where_there_are_no_verdicts_yet(where):
    with ThreadPoolExecutor(4) as servers:
        stores = list(servers.map(Store, [where] * 4))
    for store, tail in zip(stores, "bcde", strict=True):
        keep(store, verdict(tail))
    assert [len(store.latest("board")) for store in stores] == [4] * 4
    for store in stores:
        store.close()


@pytest.mark.parametrize("where", [POSTGRESQL], indirect=True)
def test_a_connection_that_broke_is_made_anew(store, where):
    keep(store, verdict("b"))
    with closing(Store(where)) as other, other.engine.connect() as connection:
        connection.exec_driver_sql(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where backend_type = 'client backend' and pid <> pg_backend_pid()"
        )
    keep(store, verdict("c"))
    assert len(store.latest("board")) == 2


def test_a_commit_waits_for_the_disk(tmp_path):
    with (
        closing(Store(str(tmp_path / "verdicts.sqlite"))) as store,
        store.engine.connect() as connection,
    ):
        mode, level = (
            connection.exec_driver_sql(f"pragma {name}").scalar_one()
            for name in ("journal_mode", "synchronous")
        )
    assert (mode, level) == ("wal", 2)  # 2: FULL


@pytest.mark.parametrize("where", ["nonsense://x", "/no/such/folder/verdicts.sqlite"])
def test_a_place_that_cannot_be_opened_is_named(where):
    with pytest.raises(PudaError, match=f"cannot open the verdicts {where}"):
        Store(where)


def test_a_password_is_not_shown():
    with pytest.raises(
        PudaError, match=r"cannot open the verdicts nonsense://me:\*\*\*@host/base"
    ) as error:
        Store("nonsense://me:secret@host/base")
    assert "secret" not in str(error.value)
