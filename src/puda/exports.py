"""Facts and embeddings as files, in the format that the file's ending names."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import polars as pl

from puda.errors import PudaError
from puda.runs import replacing

Writer = Callable[[pl.DataFrame, Path], object]
"""Writes a frame to a path."""


def write_facts(frame: pl.DataFrame, path: str | Path) -> None:
    """Write facts (columns head, relation, tail and what is said of them) whole or not at all."""
    write = writer(path)
    with replacing(Path(path)) as part:
        write(frame, part)


def write_embeddings(frame: pl.DataFrame, path: str | Path) -> list[Path]:
    """Write embeddings (columns entity, facts, vector); returns the files that were written.

    .parquet holds all three columns. .tsv is for TensorBoard's projector: the bare numbers, and
    beside them <name>-labels.tsv with entity and facts, in which tabs and line breaks of a label
    are spaces, since the projector has no way to write them.
    """
    path = Path(path)
    if path.suffix.lower() == ".parquet":
        with replacing(path) as part:
            frame.write_parquet(part)
        return [path]
    if path.suffix.lower() != ".tsv":
        raise PudaError(f"{path}: embeddings are written as .parquet or .tsv")
    labels = path.with_name(f"{path.stem}-labels.tsv")
    with replacing(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        for vector in frame["vector"]:
            file.write("\t".join(f"{number:.6g}" for number in vector) + "\n")
    with replacing(labels) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        file.write("entity\tfacts\n")
        for entity, facts in frame.select("entity", "facts").iter_rows():
            file.write(f"{' '.join(re.split(_BREAKS, entity))}\t{facts}\n")
    return [path, labels]


def writer(path: str | Path) -> Writer:
    """Return what writes the format that a path's ending names; an unknown ending is an error."""
    ending = Path(path).suffix.lower()
    if ending not in WRITERS:
        raise PudaError(
            f"{path}: cannot write {ending or 'a file without ending'}: "
            f"choose one of {', '.join(WRITERS)}"
        )
    return WRITERS[ending]


def _write_tsv(frame: pl.DataFrame, path: Path) -> None:
    frame.write_csv(path, separator="\t")  # a label with tab, quote or line break is quoted


def _write_ntriples(frame: pl.DataFrame, path: Path) -> None:
    """Write the bare facts; N-Triples has no place for a score."""
    facts = frame.select("head", "relation", "tail").iter_rows()
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(
            f"<{iri(head, 'entity')}> <{iri(relation, 'relation')}> <{iri(tail, 'entity')}> .\n"
            for head, relation, tail in facts
        )


def iri(label: str, kind: str) -> str:
    """Return a label that is an absolute IRI as it is, any other as urn:puda:<kind>:<encoded>."""
    return label if _IRI.fullmatch(label) else f"urn:puda:{kind}:{quote(label, safe='')}"


def _absolute_iri() -> re.Pattern[str]:
    """Compile the grammar of RFC 3987, but for hosts that are IPv6 addresses."""
    planes = "".join(f"{chr(p << 16)}-{chr((p << 16) + 0xFFFD)}" for p in range(1, 14))
    beyond = f"\xa0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef{planes}\U000e1000-\U000efffd"
    char = rf"(?:[A-Za-z0-9\-._~!$&'()*+,;={beyond}]|%[0-9A-Fa-f]{{2}})"
    host = rf"//(?:(?:{char}|:)*@)?{char}*(?::[0-9]*)?(?=[/?#]|\Z)"
    rest = rf"(?:{char}|[:@/])*(?:\?(?:{char}|[:@/?])*)?(?:#(?:{char}|[:@/?])*)?"
    return re.compile(rf"[A-Za-z][A-Za-z0-9+.\-]*:(?:{host}|(?!//)){rest}")


_IRI = _absolute_iri()
_BREAKS = r"[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"

WRITERS: dict[str, Writer] = {
    ".parquet": pl.DataFrame.write_parquet,
    ".tsv": _write_tsv,
    ".csv": pl.DataFrame.write_csv,
    ".jsonl": pl.DataFrame.write_ndjson,
    ".nt": _write_ntriples,
}
