"""What people say of predicted facts, and how a graph takes it up before it is trained on."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import polars as pl

from puda.config import Config
from puda.data.graph import SPLITS, KnowledgeGraph, frame_of
from puda.errors import DataError

Judgement = Literal["accept", "reject", "unsure"]
"""That a fact is true, that it is not, or that one cannot say."""

Labels = tuple[str, str, str]
"""A fact: head, relation, tail."""


class Verdict(NamedTuple):
    """What one person said of one fact."""

    head: str
    relation: str
    tail: str
    verdict: Judgement
    author: str = ""
    note: str = ""
    time: str = ""  # ISO 8601, UTC
    graph: str = ""  # name of the graph that the fact belongs to

    @property
    def fact(self) -> Labels:
        """The fact that was judged."""
        return self.head, self.relation, self.tail


class Settled(NamedTuple):
    """What the verdicts of all authors come to."""

    accepted: list[Labels]
    rejected: list[Labels]
    tied: list[Labels]  # as many for as against: neither


def settle(verdicts: Iterable[Verdict]) -> Settled:
    """Count the last word of each author on each fact; the majority wins, a tie settles nothing.

    Verdicts come in the order of time. Who is unsure does not count.
    """
    last = {(verdict.fact, verdict.author): verdict.verdict for verdict in verdicts}
    votes: Counter[Labels] = Counter()
    for (fact, _), judgement in last.items():
        if judgement != "unsure":
            votes[fact] += 1 if judgement == "accept" else -1
    return Settled(
        accepted=[fact for fact, balance in votes.items() if balance > 0],
        rejected=[fact for fact, balance in votes.items() if balance < 0],
        tied=[fact for fact, balance in votes.items() if not balance],
    )


def judge(graph: KnowledgeGraph, settled: Settled) -> KnowledgeGraph:
    """Return a graph whose training facts and true negatives follow the verdicts.

    Accepted facts join train, unless a split holds them already: what is held out stays so.
    Rejected ones leave every split and become true negatives of train. Entities may be new.
    """
    parts = {split: _labelled(graph, split) for split in SPLITS}
    untrue = {split: _frame(graph, facts) for split, facts in graph.negatives.items()}
    accepted, rejected = frame_of(settled.accepted), frame_of(settled.rejected)
    fresh = _without(accepted, pl.concat(parts.values()))
    train = pl.concat([parts["train"], fresh])
    said = pl.concat([untrue.get("train", rejected.clear()), rejected])
    negatives = untrue | {"train": _without(said, accepted)}
    return KnowledgeGraph.from_facts(
        _without(train, rejected),
        valid=_without(parts["valid"], rejected),
        test=_without(parts["test"], rejected),
        negatives={split: facts for split, facts in negatives.items() if len(facts)},
        name=graph.name,
    )


def heed_rejected(config: Config, settled: Settled) -> Config:
    """Have uniform sampling draw true negatives as well, if some facts were rejected (PUDA+)."""
    if not settled.rejected or config.sampler.name != "uniform":
        return config
    sampler = {**config.sampler.model_dump(), "name": "true-negatives"}
    sampler["options"] = {"pool": config.sampler.options.get("pool", "shared")}
    return Config.of({**config.model_dump(), "sampler": sampler})


def write(verdicts: Sequence[Verdict], format: Literal["tsv", "jsonl"]) -> str:
    """Write verdicts as `read` takes them."""
    if format == "jsonl":
        lines = (json.dumps(verdict._asdict(), ensure_ascii=False) for verdict in verdicts)
        return "".join(f"{line}\n" for line in lines)
    text = io.StringIO()
    writer = csv.writer(text, dialect="excel-tab")
    writer.writerow(Verdict._fields)
    writer.writerows(verdicts)
    return text.getvalue()


def read(path: str | Path) -> list[Verdict]:
    """Read verdicts from a .tsv, .csv or .jsonl file: head, relation, tail, verdict at least."""
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")  # line ends inside of labels stay as they are
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the verdicts {path}: {error}") from None
    rows: Iterable[Any]
    if path.suffix == ".jsonl":
        try:
            rows = [json.loads(line) for line in text.split("\n") if line.strip()]
        except json.JSONDecodeError as error:
            raise DataError(f"{path} is not JSON lines: {error}") from None
    elif path.suffix in (".tsv", ".csv"):
        delimiter = "\t" if path.suffix == ".tsv" else ","
        rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    else:
        raise DataError(f"{path}: verdicts are read from .tsv, .csv and .jsonl files")
    return [_checked(row, f"{path}, verdict {i}") for i, row in enumerate(rows, start=1)]


def _checked(row: Any, where: str) -> Verdict:
    if not isinstance(row, dict):
        raise DataError(f"{where} is no object with the keys {', '.join(Verdict._fields)}")
    missing = [name for name in Verdict._fields[:4] if not row.get(name)]
    if missing:
        raise DataError(f"{where} has no {missing[0]}: head, relation, tail and verdict are needed")
    if row["verdict"] not in get_args(Judgement):
        known = ", ".join(get_args(Judgement))
        raise DataError(f"{where}: {row['verdict']!r} is no verdict: one of {known}")
    return Verdict(**{name: str(row.get(name) or "") for name in Verdict._fields})  # type: ignore[arg-type]


def _labelled(graph: KnowledgeGraph, split: str) -> pl.DataFrame:
    return _frame(graph, graph.facts(split))


def _frame(graph: KnowledgeGraph, facts: Any) -> pl.DataFrame:
    entities, relations = pl.Series(graph.entities.labels), pl.Series(graph.relations.labels)
    return pl.DataFrame(
        {
            "head": entities.gather(facts[:, 0]),
            "relation": relations.gather(facts[:, 1]),
            "tail": entities.gather(facts[:, 2]),
        }
    )


def _without(facts: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    return facts.join(others, on=["head", "relation", "tail"], how="anti", maintain_order="left")
