"""Verdicts in a database: SQLite in a file, or whatever else SQLAlchemy reaches."""

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    Text,
    create_engine,
    event,
    func,
    insert,
    select,
)
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from puda.errors import PudaError
from puda.verdicts import Verdict

TABLE = Table(
    "verdicts",
    MetaData(),
    Column("id", Integer, primary_key=True),  # grows with time: a later verdict has a larger one
    Column("graph", String(200), nullable=False, index=True),
    Column("data", String(64), nullable=False),  # fingerprint of the graph that was judged
    Column("run", String(200), nullable=False),
    Column("head", Text, nullable=False),
    Column("relation", Text, nullable=False),
    Column("tail", Text, nullable=False),
    Column("verdict", String(8), nullable=False),
    Column("author", String(100), nullable=False),
    Column("note", Text, nullable=False),
    Column("time", String(32), nullable=False),
)
"""One row for each verdict; rows are added and never changed, so no one's is lost to another's."""


TRIES = 10  # to make the table while others do


class Store:
    """Keeps verdicts. What `add` has returned is on the disk."""

    def __init__(self, where: str) -> None:
        self.where = re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", where)  # to be shown: no password
        url = where if "://" in where else f"sqlite:///{Path(where).absolute()}"
        try:
            self.engine = create_engine(url, pool_pre_ping=True)  # a server may be restarted
            if self.engine.dialect.name == "sqlite":
                event.listen(self.engine, "connect", _make_durable)
            self._create()
        except (ArgumentError, NoSuchModuleError, ImportError, SQLAlchemyError) as error:
            raise PudaError(
                f"cannot open the verdicts {self.where}: {_first_line(error)}"
            ) from None

    def add(self, verdict: Verdict, *, run: str, data: str) -> Verdict:
        """Keep a verdict; returns it with the time at which it was kept."""
        kept = verdict._replace(time=datetime.now(UTC).isoformat(timespec="milliseconds"))
        with self.engine.begin() as connection:
            connection.execute(insert(TABLE), {"run": run, "data": data, **kept._asdict()})
        return kept

    def latest(self, graph: str) -> list[Verdict]:
        """Return the last verdict of each author on each fact of a graph, oldest first."""
        return self._read(_latest(graph).order_by(TABLE.c.id))

    def page(
        self, graph: str, *, offset: int, k: int, **parts: str | None
    ) -> tuple[int, list[Verdict]]:
        """Return how many last verdicts there are, and some of them, newest first.

        `parts` are those of the facts that are asked about: head, relation, tail, author.
        """
        if any("\0" in label for label in parts.values() if label is not None):
            return 0, []  # PostgreSQL has no such text, and would not be asked for it
        asked = _latest(graph)
        for name, label in parts.items():
            asked = asked if label is None else asked.where(TABLE.c[name] == label)
        with self.engine.connect() as connection:
            total = connection.execute(select(func.count()).select_from(asked.subquery()))
            number = int(total.scalar_one())
        return number, self._read(asked.order_by(TABLE.c.id.desc()).offset(offset).limit(k))

    def _create(self) -> None:
        """Make the table if there is none."""
        self.engine.connect().close()  # a database that is not there is told at once
        for left in reversed(range(TRIES)):
            try:
                return TABLE.metadata.create_all(self.engine)
            except SQLAlchemyError:  # others may have made it between our look and our making
                if not left:
                    raise
                time.sleep(0.05)

    def close(self) -> None:
        """Let go of the database."""
        self.engine.dispose()

    def _read(self, asked: Select[Any]) -> list[Verdict]:
        with self.engine.connect() as connection:
            return [Verdict(*row) for row in connection.execute(asked)]


def _latest(graph: str) -> Select[Any]:
    columns = TABLE.c
    fact = (columns.head, columns.relation, columns.tail, columns.author)
    last = select(func.max(columns.id)).where(columns.graph == graph).group_by(*fact)
    return select(*(columns[name] for name in Verdict._fields)).where(columns.id.in_(last))


def _make_durable(connection: Any, _: object) -> None:
    """Have a commit reach the disk before it returns, and readers not wait for writers."""
    for setting in ("busy_timeout=10000", "journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {setting}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
