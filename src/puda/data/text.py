"""From the lines of a text file, plain or compressed, to a table of fields."""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from puda.data.columns import BAD_LINES, Table
from puda.data.rdf import rdf_format, read_rdf
from puda.errors import DataError

# Each delimiter with the share of lines it must split alike. The rarest in ordinary text come
# first, so that commas and spaces inside labels do not win; spaces are nearly everywhere.
_DELIMITERS = {"\t": 0.5, "|": 0.5, ";": 0.5, ",": 0.5, " ": 0.75}
_QUOTING = "|;,"  # between tabs and spaces quotes are literal
_QUOTED_FIELD = re.compile(r'(^|[|;,]) *"(?:[^"]|"")*"', re.MULTILINE)
_OPENKE_START = re.compile(r"\s*\d+\s*\n\s*\d+[\t ]+\d+[\t ]+\d+\s*")
_SAMPLE_LINES = 1000

_NOT_BLANK = pl.col("text").str.contains(r"\S")
_MARKED = pl.col("text").str.starts_with("#")

Sorted = tuple[pl.DataFrame, pl.DataFrame]  # rows of a Table, bad lines


def read_lines(path: Path) -> Sorted:
    """Read all lines with their numbers, gz and zst unpacked; apart, those that are not UTF-8.

    Blank and invalid lines are null among all lines.
    """
    for encoding in ("utf8", "utf8-lossy"):
        try:
            # No text holds NUL, so each line becomes one field.
            lines = pl.read_csv(
                path,
                has_header=False,
                schema={"text": pl.String},
                separator="\0",
                quote_char=None,
                encoding=encoding,
                glob=False,
            )
        except OSError as error:
            raise DataError(f"{path} is damaged and cannot be unpacked: {error}") from None
        except pl.exceptions.PolarsError:
            continue
        lines = lines.with_row_index("number", offset=1).cast({"number": pl.Int64})
        if encoding == "utf8":
            return lines, pl.DataFrame(schema=BAD_LINES)
        invalid = pl.col("text").str.contains("\ufffd", literal=True)
        broken = _reject(lines.filter(invalid), pl.lit("invalid UTF-8"))
        return lines.with_columns(pl.when(~invalid).then("text")), broken
    raise DataError(f"{path} is a binary file (NUL bytes); give text, gz, zst or Parquet")


def load_text(path: Path) -> Table:
    """Load RDF, OpenKE or delimited text, whichever the first lines show."""
    lines, broken = read_lines(path)
    filled = lines.filter(_NOT_BLANK)
    sample = filled["text"].head(_SAMPLE_LINES).to_list()
    sample = [line for line in sample if not line.startswith("#")] or sample
    if not sample and not broken.is_empty():
        raise DataError(f"{path} has {broken.height:,} lines, none in UTF-8; save it as UTF-8")
    if not sample:
        raise DataError(f"{path} is empty; give one fact a line: head, relation, tail")
    format = rdf_format(path, sample[0])
    if format is not None:
        table = _load_rdf(path, lines, format)
    elif _OPENKE_START.fullmatch("\n".join(sample[:2])):
        table = _load_openke(path, filled)
    else:
        table = _load_delimited(path, lines, sample)
    return replace(table, bad=pl.concat([table.bad, broken]))


def _reject(lines: pl.DataFrame, reason: pl.Expr) -> pl.DataFrame:
    return lines.select("number", reason.alias("reason"), "text")


def _load_rdf(path: Path, lines: pl.DataFrame, format: str) -> Table:
    text = lines["text"].fill_null("").str.join("\n").item()
    facts, num_literals = read_rdf(text, format=format, source=str(path))
    rows, bad = sort_records(range(1, len(facts) + 1), facts, delimiter=" ", width=3)
    notes = (f"{num_literals:,} facts with a literal object left out",) if num_literals else ()
    return Table(str(path), format, rows, bad, order=("1", "2", "3"), notes=notes)


def _load_openke(path: Path, filled: pl.DataFrame) -> Table:
    """Load a count, then a line of head, tail and relation id for each fact."""
    delimiter = "\t" if "\t" in filled["text"][1] else " "
    even = pl.col("text").str.strip_chars().str.replace_all(r"[\t ]+", delimiter)
    rows, bad = _split(filled[1:].with_columns(even), delimiter=delimiter, width=3)
    notes = ["column order head, tail, relation (OpenKE)"]
    promised = int(filled["text"][0])
    if promised != filled.height - 1:
        notes.append(f"the first line promises {promised:,} facts")
    order = ("1", "3", "2")
    return Table(str(path), "openke", rows, bad, delimiter, order=order, notes=tuple(notes))


def _load_delimited(path: Path, lines: pl.DataFrame, sample: list[str]) -> Table:
    delimiter, width = _detect_delimiter(sample)
    if not delimiter:
        raise DataError(
            f"{path} has fewer than three columns: no tab, |, ;, comma or space cuts its lines so; "
            f"first line: {sample[0][:80]!r}; give one fact a line: head, relation, tail"
        )
    lines, num_comments = _drop_comments(lines, delimiter=delimiter, width=width)
    quote = rf'(?:^|{re.escape(delimiter)}) *"'
    if delimiter in _QUOTING and lines["text"].str.contains(quote).any():
        rows, bad = _parse_quoted(lines, delimiter=delimiter, width=width)
    else:
        rows, bad = _split(lines.filter(_NOT_BLANK), delimiter=delimiter, width=width)
    format = "tsv" if delimiter == "\t" else "csv"
    notes = (f"{num_comments} comment lines at the top left out",) if num_comments else ()
    return Table(str(path), format, rows, bad, delimiter, notes=notes)


def _detect_delimiter(sample: list[str]) -> tuple[str, int]:
    """Find what cuts most lines into the same number of fields, three or more, and that number.

    Where nothing cuts enough of them, the best is taken: its bad lines will say why.
    """
    text = "\n".join(sample)
    unquoted = _QUOTED_FIELD.sub(r"\1", text)
    best, best_width, best_share = "", 0, 0.0
    for delimiter, enough in _DELIMITERS.items():
        lines = (unquoted if delimiter in _QUOTING else text).split("\n")
        widths = Counter(line.strip(" ").count(delimiter) + 1 for line in lines)
        width = max(widths, key=lambda width: (width >= 3, widths[width]))
        share = widths[width] / len(lines) if width >= 3 else 0.0
        if share > enough:
            return delimiter, width
        if share > best_share and delimiter != " ":
            best, best_width, best_share = delimiter, width, share
    return best, best_width


def _drop_comments(lines: pl.DataFrame, *, delimiter: str, width: int) -> tuple[pl.DataFrame, int]:
    """Drop lines with # at the top, and count them, where all such lines are there.

    Those of the same shape as the data stay: a header may start with # too.
    """
    comments = lines.filter(_MARKED)
    data = lines.filter(_NOT_BLANK & ~_MARKED)
    if comments.is_empty() or data.is_empty() or comments["number"][-1] > data["number"][0]:
        return lines, 0
    comments = comments.filter(_num_fields(delimiter) != width)
    return lines.join(comments, on="number", how="anti", maintain_order="left"), comments.height


def _num_fields(delimiter: str) -> pl.Expr:
    return pl.col("text").str.count_matches(delimiter, literal=True) + 1


def _split(lines: pl.DataFrame, *, delimiter: str, width: int) -> Sorted:
    """Cut lines at every delimiter, all at once."""
    if delimiter == " ":
        lines = lines.with_columns(pl.col("text").str.strip_chars())
    num_fields = lines.select(_num_fields(delimiter)).to_series()
    usual = num_fields == width
    names = [str(column) for column in range(1, width + 1)]
    cut = pl.col("text").str.split_exact(delimiter, width - 1).struct.rename_fields(names)
    rows = lines.filter(usual).select("number", cut).unnest("text")
    reason = pl.format("{} fields instead of {}", num_fields.filter(~usual), width)
    return rows, _reject(lines.filter(~usual), reason)


def _parse_quoted(lines: pl.DataFrame, *, delimiter: str, width: int) -> Sorted:
    """Parse with CSV quoting, where a field may hold delimiters and line ends."""
    numbers = lines["number"].to_list()
    texts = (lines["text"].fill_null("") + "\n").to_list()
    starts, records, stray = [], [], []
    start = 0
    while start < len(texts):
        rest = map(texts.__getitem__, range(start, len(texts)))
        reader = csv.reader(rest, delimiter=delimiter, skipinitialspace=True, strict=True)
        begin = start
        try:
            for record in reader:
                if record not in ([], [""]):
                    starts.append(numbers[start])
                    records.append(record)
                start = begin + reader.line_num
        except csv.Error:
            # Only the line where the quote was opened is lost: reading goes on below it.
            stray.append((numbers[start], "stray quote", texts[start].rstrip()))
            start += 1
    rows, bad = sort_records(starts, records, delimiter=delimiter, width=width)
    return rows, pl.concat([bad, pl.DataFrame(stray, schema=BAD_LINES, orient="row")])


def sort_records(
    numbers: Sequence[int],
    records: Sequence[Sequence[str | None]],
    *,
    delimiter: str,
    width: int,
) -> Sorted:
    """Divide records into rows of the usual width and bad lines."""
    rows, bad = [], []
    for number, record in zip(numbers, records, strict=True):
        if len(record) == width:
            rows.append((number, *record))
        else:
            text = delimiter.join(field or "" for field in record)
            bad.append((number, f"{len(record)} fields instead of {width}", text))
    schema = {"number": pl.Int64} | {str(column + 1): pl.String for column in range(width)}
    return (
        pl.DataFrame(rows, schema=schema, orient="row"),
        pl.DataFrame(bad, schema=BAD_LINES, orient="row"),
    )
