"""Readers of facts: what a source holds is found from its content and reported, never assumed."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from puda.data.columns import BAD_LINES, ROLES, Table, choose_columns, take_header
from puda.data.text import load_text, read_lines, sort_records
from puda.errors import DataError

NUM_EXAMPLES = 5
_DELIMITER_NAMES = {"\t": "tab", " ": "space", ",": "comma", ";": "semicolon", "|": "bar"}

# Files that name ids, for entities and for relations, and how a line of them reads.
_ID_FIRST = r"^\s*(?<id>\d+)[\t ]+(?<label>.*\S)"
_ID_LAST = r"^\s*(?<label>.*\S)[\t ]+(?<id>\d+)\s*$"
_ID_MAPS = (
    ("entities.dict", "relations.dict", _ID_FIRST),
    ("entity_ids.del", "relation_ids.del", _ID_FIRST),
)
_OPENKE_MAPS = (("entity2id.txt", "relation2id.txt", _ID_LAST),)


@dataclass(frozen=True)
class BadLine:
    """A line that holds no fact, and why."""

    number: int
    reason: str
    text: str


@dataclass(frozen=True)
class ReadReport:
    """What was detected in a source of facts, and what was rejected."""

    source: str  # path, "frame" or "list"
    format: str  # tsv, csv, openke, parquet, n-triples, turtle, frame or list
    delimiter: str | None
    header: bool
    columns: dict[str, str]  # head, relation, tail -> column name, or 1-based number as text
    lines: int  # data lines seen
    facts: int  # lines kept
    bad: int  # lines rejected
    examples: tuple[BadLine, ...]  # the first of them
    notes: tuple[str, ...]

    def summary(self) -> str:
        """Say in one or more lines what was detected and what was rejected."""
        details = [self.format]
        if self.delimiter is not None:
            details.append(f"separated by {_DELIMITER_NAMES[self.delimiter]}")
        details.append("with header" if self.header else "no header")
        details += [f"{role}={column}" for role, column in self.columns.items()]
        text = [f"{self.source}: {self.facts:,} facts ({', '.join(details)})"]
        text += [f"  {note}" for note in self.notes]
        if self.bad:
            text.append(f"  {self.bad:,} of {self.lines:,} lines rejected:")
            text += [f"    line {bad.number}: {bad.reason}: {bad.text!r}" for bad in self.examples]
        if self.bad > len(self.examples):
            text.append(f"    and {self.bad - len(self.examples):,} more")
        return "\n".join(text)


def read_facts(
    source: object, *, columns: Mapping[str, str] | None = None
) -> tuple[pl.DataFrame, ReadReport]:
    """Read facts from a path, a polars or pandas frame, or an iterable of 3-tuples.

    The frame has the String columns head, relation and tail in the order of the source, repeated
    facts included. `columns` maps roles to column names or 1-based numbers and overrides what
    would be detected.
    """
    table = take_header(_load(source), columns or {})
    chosen, order_notes = choose_columns(table, columns or {})
    facts, bad = _take_facts(table, chosen)
    examples = tuple(
        BadLine(number, reason, text[:80])
        for number, reason, text in bad.sort("number").head(NUM_EXAMPLES).iter_rows()
    )
    _check_enough(table, facts, bad, examples)
    facts, id_notes = _name_ids(facts, table)
    names = table.names or table.columns
    return facts, ReadReport(
        source=table.source,
        format=table.format,
        delimiter=table.delimiter,
        header=bool(table.names),
        columns={role: names[int(column) - 1] for role, column in chosen.items()},
        lines=facts.height + bad.height,
        facts=facts.height,
        bad=bad.height,
        examples=examples,
        notes=(*table.notes, *order_notes, *id_notes),
    )


def parse_columns(text: str) -> dict[str, str]:
    """Turn "head=subject,relation=predicate,tail=3" into a mapping from roles to columns."""
    columns: dict[str, str] = {}
    for piece in text.split(","):
        role, _, column = (part.strip() for part in piece.partition("="))
        if role not in ROLES or not column:
            raise DataError(
                f"columns: {piece.strip()!r} is not ROLE=COLUMN with ROLE one of "
                f"{', '.join(ROLES)}; for example head=subject,relation=predicate,tail=3"
            )
        if role in columns:
            raise DataError(f"columns: {piece.strip()!r} names the {role} a second time")
        columns[role] = column
    return columns


def _load(source: object) -> Table:
    if isinstance(source, str | os.PathLike):
        return _load_path(Path(source))
    if isinstance(source, pl.DataFrame):
        return _load_frame(source, source="frame", format="frame")
    if type(source).__module__.partition(".")[0] == "pandas":
        return _load_frame(_from_pandas(source), source="frame", format="frame")
    if isinstance(source, Iterable):
        records = [_as_record(item) for item in source]
        rows, bad = sort_records(range(1, len(records) + 1), records, delimiter=", ", width=3)
        return Table("list", "list", rows, bad, order=("1", "2", "3"))
    raise DataError(
        f"cannot read facts from {type(source).__name__}; give a path, a polars or pandas frame, "
        "or a list of (head, relation, tail)"
    )


def _load_path(path: Path) -> Table:
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder; name the file of facts in it")
        with path.open("rb") as file:
            start = file.read(4)
            file.seek(-len(start), os.SEEK_END)
            end = file.read()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; check the path") from None
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{path} is in UTF-16; save it as UTF-8")
    if start == end == b"PAR1":  # at both ends: PAR1 is also the name of a gene
        try:
            return _load_frame(pl.read_parquet(path), source=str(path), format="parquet")
        except pl.exceptions.PolarsError as error:
            raise DataError(f"{path} is a damaged Parquet file: {error}") from None
    return load_text(path)


def _load_frame(frame: pl.DataFrame, *, source: str, format: str) -> Table:
    try:
        rows = frame.cast(pl.String)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{source}: a column cannot be read as labels: {error}") from None
    rows.columns = [str(place) for place in range(1, frame.width + 1)]
    rows = rows.with_row_index("number", offset=1).cast({"number": pl.Int64})
    bad = pl.DataFrame(schema=BAD_LINES)
    return Table(source, format, rows, bad, names=tuple(frame.columns))


def _from_pandas(frame: Any) -> pl.DataFrame:
    # pl.from_pandas would need pyarrow for text.
    return pl.DataFrame(
        {
            str(name): [
                None if missing else str(value)
                for value, missing in zip(column, column.isna(), strict=True)
            ]
            for name, column in frame.items()
        }
    )


def _as_record(item: object) -> list[str | None]:
    fields = item if isinstance(item, Iterable) and not isinstance(item, str | bytes) else [item]
    return [None if field is None else str(field) for field in fields]


def _take_facts(table: Table, chosen: Mapping[str, str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Take the chosen columns of all rows in which none is empty; the others are bad."""
    rows = table.rows.select(
        "number",
        *(pl.col(column).str.strip_chars().alias(role) for role, column in chosen.items()),
    )
    empty = {role: pl.col(role).is_null() | (pl.col(role) == "") for role in ROLES}
    any_empty = rows.select(pl.any_horizontal(*empty.values())).to_series()
    reason = pl.coalesce(
        pl.when(is_empty).then(pl.lit(f"empty {role}")) for role, is_empty in empty.items()
    )
    text = pl.concat_str(pl.col(ROLES).fill_null(""), separator=table.delimiter or ", ")
    bad = rows.filter(any_empty).select("number", reason.alias("reason"), text.alias("text"))
    return rows.filter(~any_empty).select(ROLES), pl.concat([table.bad, bad])


def _check_enough(
    table: Table, facts: pl.DataFrame, bad: pl.DataFrame, examples: tuple[BadLine, ...]
) -> None:
    if bad.is_empty() and facts.is_empty():
        seen = "; ".join(["no lines below the header" if table.names else "no lines", *table.notes])
        raise DataError(f"{table.source} holds no facts ({seen})")
    if bad.height > facts.height:
        counts = bad["reason"].value_counts(sort=True).iter_rows()
        reasons = ", ".join(f"{count:,} x {reason}" for reason, count in counts)
        first = examples[0]
        raise DataError(
            f"{table.source}: {bad.height:,} of {facts.height + bad.height:,} lines hold no fact "
            f"({reasons}); the first is line {first.number}: {first.text!r}; "
            "give one fact a line: head, relation, tail"
        )


def _name_ids(facts: pl.DataFrame, table: Table) -> tuple[pl.DataFrame, list[str]]:
    """Replace ids by labels where the folder of the file holds a map of them."""
    if table.delimiter is None:
        return facts, []
    folder = Path(table.source).parent
    maps = _OPENKE_MAPS if table.format == "openke" else _ID_MAPS
    present = [names for names in maps if (folder / names[0]).is_file()]
    if not present or not _are_ids(facts, "head", "tail"):
        return facts, []
    entities, relations, pattern = present[0]
    facts, notes = _name_roles(facts, "head", "tail", path=folder / entities, pattern=pattern)
    if (folder / relations).is_file() and _are_ids(facts, "relation"):
        facts, more = _name_roles(facts, "relation", path=folder / relations, pattern=pattern)
        notes += more
    return facts, notes


def _are_ids(facts: pl.DataFrame, *roles: str) -> bool:
    return all(facts[role].str.contains(r"^\d+$").all() for role in roles)


def _name_roles(
    facts: pl.DataFrame, *roles: str, path: Path, pattern: str
) -> tuple[pl.DataFrame, list[str]]:
    lines, _ = read_lines(path)
    names = lines.select(pl.col("text").str.extract_groups(pattern)).unnest("text").drop_nulls()
    if names["id"].is_duplicated().any():
        twice = names["id"].filter(names["id"].is_duplicated())[0]
        raise DataError(f"{path} names id {twice} more than once; keep one line for each id")
    used = pl.concat([facts[role] for role in roles]).unique()
    unknown = used.filter(~used.is_in(names["id"].implode()))
    if not unknown.is_empty():
        if used.is_in(names["label"].implode()).all():
            return facts, []  # as in WN18RR, where the labels themselves are numbers
        raise DataError(
            f"{path} does not name id {unknown.sort()[0]} ({len(unknown):,} of {len(used):,} ids "
            "are missing); complete it, or move it away to keep the ids"
        )
    labelled = pl.col(roles).replace_strict(names["id"], names["label"])
    return facts.with_columns(labelled), [f"ids replaced by labels of {path.name}"]
