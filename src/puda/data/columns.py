"""Which columns of a table are head, relation and tail: by name, by content or as asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from puda.errors import DataError

ROLES = ("head", "relation", "tail")
BAD_LINES = {"number": pl.Int64, "reason": pl.String, "text": pl.String}

# Names a header may use, the most telling first: it can hold both "type" and "label".
_ALIASES = {
    "head": "head subject source from start src h s head_id subject_id start_id x_name",
    "relation": "relation predicate edge rel relationship property interaction metaedge type "
    "label p r relation_id predicate_id",
    "tail": "tail object target to end dst t o tail_id object_id end_id y_name",
}
_SAMPLE_ROWS = 50_000


@dataclass(frozen=True)
class Table:
    """Fields as text, before it is known which of them are head, relation and tail."""

    source: str
    format: str
    rows: pl.DataFrame  # "number", then String columns "1", "2", ...
    bad: pl.DataFrame  # BAD_LINES: the lines that did not become rows
    delimiter: str | None = None
    names: tuple[str, ...] = ()  # of the columns; empty if there is no header
    order: tuple[str, ...] = ()  # columns of head, relation, tail where the format fixes them
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The columns without the line number."""
        return self.rows.columns[1:]


def take_header(table: Table, wanted: Mapping[str, str]) -> Table:
    """Turn the first row into names if it names two roles or a column that is wanted."""
    if table.names or table.order or table.rows.is_empty():
        return table
    first = table.rows.row(0)[1:]
    names = tuple(field.strip() for field in first)
    asked_for = any(name in names for name in wanted.values() if not name.isdigit())
    if not asked_for and not _is_header(table, names):
        return table
    body = table.rows[1:]
    # Files put together with `cat` repeat their header.
    again = pl.all_horizontal(
        pl.col(column) == field for column, field in zip(table.columns, first, strict=True)
    )
    repeats = body.filter(again).select(
        "number", pl.lit("the header again").alias("reason"), pl.col("1").alias("text")
    )
    return replace(
        table, rows=body.filter(~again), bad=pl.concat([table.bad, repeats]), names=names
    )


def _is_header(table: Table, names: Sequence[str]) -> bool:
    roles = _roles_by_name(names)
    if sum(len(names[int(column) - 1]) > 1 for column in roles.values()) >= 2:
        return True
    if len(roles) < 3:
        return False
    # Small graphs have labels like h, r, t: then the relation comes again, with other entities.
    relation = roles["relation"]
    named = table.rows.filter(pl.col(relation).str.strip_chars() == names[int(relation) - 1])
    return named.drop("number").n_unique() == 1


def _roles_by_name(names: Sequence[str]) -> dict[str, str]:
    plain = [name.strip(' #:"').lower() for name in names]
    return {
        role: str(plain.index(alias) + 1)
        for role, aliases in _ALIASES.items()
        if (alias := next((alias for alias in aliases.split() if alias in plain), None))
    }


def choose_columns(table: Table, wanted: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Map roles to columns, and note what is out of the ordinary.

    What is wanted comes first, then what the format fixes, then names, then content.
    """
    if len(table.columns) < 3:
        raise DataError(
            f"{table.source} has {len(table.columns)} columns ({_seen(table)}); "
            "facts need three: head, relation, tail"
        )
    for role in wanted:
        if role not in ROLES:
            raise DataError(f"columns: {role!r} is not one of {', '.join(ROLES)}")
    chosen = {role: _find_column(table, str(column)) for role, column in wanted.items()}
    known = dict(zip(ROLES, table.order, strict=False)) or _roles_by_name(table.names)
    for role, column in known.items():
        if column not in chosen.values():
            chosen.setdefault(role, column)
    missing = [role for role in ROLES if role not in chosen]
    if len(missing) == 3:
        return _choose_by_content(table)
    if missing:
        rest = [column for column in table.columns if column not in chosen.values()]
        if len(rest) != len(missing):
            raise DataError(
                f"{table.source}: which column is the {' and the '.join(missing)}? "
                f"columns seen: {_seen(table)}; say {','.join(f'{role}=NAME' for role in missing)}"
            )
        chosen.update(zip(missing, rest, strict=True))
    if len(set(chosen.values())) < 3:
        asked = ", ".join(f"{role}={column}" for role, column in wanted.items())
        raise DataError(f"columns: {asked}: head, relation and tail need a column each")
    return {role: chosen[role] for role in ROLES}, []


def _choose_by_content(table: Table) -> tuple[dict[str, str], list[str]]:
    notes = []
    if len(table.columns) > 3:
        notes.append(f"{len(table.columns)} columns without known names: the first three used")
    relation = _detect_relation(table.rows)
    head, tail = (column for column in table.columns[:3] if column != relation)
    chosen = {"head": head, "relation": relation, "tail": tail}
    if relation != "2":
        order = sorted(ROLES, key=chosen.__getitem__)
        notes.append(f"column order {', '.join(order)} detected from the content")
    return chosen, notes


def _find_column(table: Table, column: str) -> str:
    if column in table.names:
        return str(table.names.index(column) + 1)
    if column not in table.columns:
        raise DataError(f"{table.source} has no column {column!r}; columns seen: {_seen(table)}")
    return column


def _seen(table: Table) -> str:
    if table.names:
        return ", ".join(repr(name) for name in table.names)
    first = [", ".join(map(repr, row[1:])) for row in table.rows.head(1).iter_rows()]
    return f"{', '.join(table.columns)} (no header; first row: {first[0] if first else 'none'})"


def _detect_relation(rows: pl.DataFrame) -> str:
    """Tell which of the first three columns holds the relations.

    It is the middle one unless the evidence is clear: another column holds few values, none of
    them an entity, and the remaining two share theirs. Where all are ids it is never clear.
    """
    sample = rows.gather_every(max(1, rows.height // _SAMPLE_ROWS))
    values = {
        column: set(sample[column].drop_nulls().str.strip_chars().unique())
        for column in ("1", "2", "3")
    }
    for relation, one, other in (("3", "1", "2"), ("1", "2", "3")):
        if all(value.isdigit() for value in values[relation]):
            continue
        fewest, most = sorted(len(values[column]) for column in (one, other))
        ids = all(value.isdigit() for value in values[one] | values[other])
        # Ids overlap by chance. Of labels, a sample from a large graph repeats only few.
        enough = most / 2 if ids else fewest / 50
        few = 2 * len(values[relation]) <= fewest
        apart = values[relation].isdisjoint(values[one] | values[other])
        if few and apart and len(values[one] & values[other]) >= max(2, enough):
            return relation
    return "2"
