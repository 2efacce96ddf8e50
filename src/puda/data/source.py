"""From whatever a user names (a file, a folder, a data set, a frame) to a graph."""

import difflib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import polars as pl

from puda.data.datasets import DATASETS, load_dataset
from puda.data.files import ReadReport, read_facts
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.data.split import split
from puda.errors import DataError

ENDINGS = ("txt", "tsv", "csv", "parquet", "nt", "ttl", "del")
SPELLINGS = {"valid": ("valid", "val", "dev", "validation")}


class Loaded(NamedTuple):
    """A graph and what was seen while reading its files."""

    graph: KnowledgeGraph
    reports: tuple[ReadReport, ...]


def load(
    source: object,
    *,
    columns: Mapping[str, str] | None = None,
    valid: float = 0.05,
    test: float = 0.05,
    seed: int = 0,
) -> Loaded:
    """Load a graph.

    A data set's name, or a folder with train, valid and test files, keeps its split. One file,
    a frame or a list of triples is split here: `valid` and `test` are the shares held out.
    """
    if isinstance(source, KnowledgeGraph):
        return Loaded(source, ())
    if isinstance(source, str) and source.lower() in DATASETS:
        return Loaded(load_dataset(source.lower()), ())
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.is_dir():
            return _load_folder(path, columns)
        if not path.exists():
            raise DataError(f"no file, folder or data set {str(source)!r}{_nearest(str(source))}")
    facts, report = read_facts(source, columns=columns)
    name = Path(report.source).name.lstrip(".").partition(".")[0] or "graph"
    return Loaded(_divide(facts, valid=valid, test=test, seed=seed, name=name), (report,))


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), DATASETS, n=1)
    return f"; did you mean {near[0]!r}?" if near else f" (data sets: {', '.join(DATASETS)})"


def _divide(
    facts: pl.DataFrame, *, valid: float, test: float, seed: int, name: str
) -> KnowledgeGraph:
    """Split facts by the rules of puda.data.split, on the ids that the labels alone decide."""
    whole = KnowledgeGraph.from_facts(facts, name=name)
    parts = split(whole.train, valid=valid, test=test, seed=seed)
    train, held_valid, held_test = (whole.train[rows] for rows in parts)
    return replace(whole, train=train, valid=held_valid, test=held_test)


def _find(folder: Path, split_name: str, suffix: str = "") -> Path | None:
    """Find the file of one split: train.txt, train.tsv.gz, val.csv, train2id.txt, ..."""
    for spelling in SPELLINGS.get(split_name, (split_name,)):
        for stem in (f"{spelling}{suffix}", f"{spelling}{suffix}2id"):
            for ending in ENDINGS:
                for packed in ("", ".gz", ".zst"):
                    path = folder / f"{stem}.{ending}{packed}"
                    if path.is_file():
                        return path
    return None


def _load_folder(folder: Path, columns: Mapping[str, str] | None) -> Loaded:
    found = {name: _find(folder, name) for name in SPLITS}
    if found["train"] is None:
        raise DataError(
            f"{folder} holds no training file: expected train.txt (or {', '.join(ENDINGS[1:])},"
            " also .gz, .zst), and valid and test beside it"
        )
    tables: dict[str, pl.DataFrame] = {}
    reports: list[ReadReport] = []
    untrue = {f"{name} negatives": _find(folder, name, "_negatives") for name in SPLITS}
    for name, path in {**found, **untrue}.items():
        if path is not None:
            tables[name], report = read_facts(path, columns=columns)
            if columns is None and reports and not report.header and not reports[0].header:
                # A small split says less about the order of its columns than train does.
                tables[name], report = read_facts(path, columns=reports[0].columns)
            reports.append(report)
    negatives = {k.split()[0]: tables.pop(k) for k in list(tables) if k.endswith("negatives")}
    graph = KnowledgeGraph.from_facts(
        tables["train"],
        valid=tables.get("valid", ()),
        test=tables.get("test", ()),
        negatives=negatives,
        name=folder.resolve().name,
    )
    return Loaded(graph, tuple(reports))
