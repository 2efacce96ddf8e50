"""Experiment files: one per row of a table, with its config, the claims, and what was measured.

    tables = ["table1"]                    # where the row stands
    row = "DistMult"
    base = "listwise.toml"                 # settings shared with other files, beside this one
    claimed = { mrr = 0.313, "hits@1" = 0.224, "hits@10" = 0.490 }       # by the PUDA paper
    side = "both"                          # the side that the claim is about
    known = { mrr = 0.345, "hits@10" = 0.527, source = "KGTuner" }       # best reproduction
    [config.scoring]
    name = "distmult"
    [vary]                                 # a run for each value, where there is such a section
    setting = "objective.options.prior"
    values = [0.0, 1e-5]
    [[measured]]                           # a run that is finished; puda appends these
    seed = 0
    ...

The folder that holds a file is named after its data set. A measurement is of the settings that
the file held at the time: edit them, and it no longer counts.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from puda.config import Config, Section, read_toml, toml
from puda.errors import ConfigError
from puda.runs import replacing

TABLES = {
    "table1": "Table 1: every method on its own",
    "table2": "Table 2: does each part of PUDA help?",
    "table3": "Table 3: PUDA on other scoring functions",
    "table5": "Table 5: annotated true negatives",
    "figure-prior": "The prior",
    "hidden": "Where positive-unlabeled learning helps: hidden facts",
    "ours": "Ours: listwise PUDA",
}
"""What can be reproduced, with its heading on the page of results."""

Figures = dict[str, float]
"""Metrics by their names: mrr, hits@1, ..."""


Value = bool | int | float | str
"""What a setting that varies can be."""


class Vary(Section):
    """A setting that takes several values, each a run of its own."""

    setting: str  # as --set names it, or "hide"
    values: tuple[Value, ...]


class Measured(Section):
    """A finished run."""

    settings: str  # digest of the settings that it had
    value: Value | None = None  # of the setting that varies
    seed: int
    minutes: float | None = None  # the budget
    seconds: float  # spent on training and validation
    threads: int  # that it had
    epochs: int
    best_epoch: int
    version: str  # of puda
    valid: Figures  # both sides
    tail: Figures  # test
    head: Figures
    both: Figures
    hidden: Figures = {}  # of training facts that were hidden, both sides
    classified: Figures = {}  # test facts against true negatives
    curve: tuple[tuple[float, float], ...] = ()  # (seconds, validation MRR of both sides)


class Experiment(Section):
    """The contents of an experiment file."""

    tables: tuple[str, ...]
    row: str
    base: str | None = None
    seeds: int = Field(1, ge=1)
    claimed: Figures = {}
    side: Literal["both", "tail"] = "both"  # which of our figures the claim is to be held against
    known: dict[str, float | str] = {}
    start: str | None = None  # the file, beside this one, whose run the model starts from
    members: tuple[str, ...] = ()  # files beside this one, measured as one; each time another seed
    hide: float = Field(0.0, ge=0, lt=1)  # share of the training facts that are hidden
    config: dict[str, Any] = {}
    vary: Vary | None = None
    measured: tuple[Measured, ...] = ()


@dataclass(frozen=True)
class Trial:
    """One run of an experiment."""

    source: "ExperimentFile"
    config: Config
    hide: float
    value: Value | None

    @property
    def name(self) -> str:
        """Name the run, e.g. fb15k-237/prior 1e-05 seed 0."""
        value = "" if self.value is None else f" {self.value}"
        return f"{self.source.name}{value} seed {self.config.training.seed}"


class ExperimentFile:
    """One file, as read; `record` adds a measurement to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        values = read_toml(path)
        self.experiment = Experiment.of(values, source=str(path))
        unknown = [table for table in self.experiment.tables if table not in TABLES]
        if unknown:
            raise ConfigError(f"{path}: no table {unknown[0]!r} (known: {', '.join(TABLES)})")
        settings: dict[str, Any] = {}
        if self.experiment.base is not None:
            settings = read_toml(path.parent / self.experiment.base).get("config", {})
        self.settings = _merged(settings, self.experiment.config)
        self.config = Config.of(self.settings, source=f"{path}: config")
        if self.settings and self.experiment.members:
            raise ConfigError(f"{path}: members have settings of their own, leave out config")

    @property
    def dataset(self) -> str:
        """The data set, or the file or folder of facts, that the folder is named after."""
        return self.path.parent.name

    @property
    def name(self) -> str:
        """<data set>/<file>."""
        return f"{self.dataset}/{self.path.stem}"

    @property
    def digest(self) -> str:
        """Tell settings apart: those of the file, without defaults, seed and budget."""
        free = ("minutes", "seed")
        training = {k: v for k, v in self.settings.get("training", {}).items() if k not in free}
        experiment = self.experiment
        told = [
            self.settings | {"training": training},
            experiment.hide,
            None if experiment.start is None else self.start.digest,
            None if experiment.vary is None else experiment.vary.setting,
            *(file.digest for file in self.members),
        ]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def start(self) -> "ExperimentFile":
        """The file whose run the model starts from."""
        return ExperimentFile(self.path.parent / str(self.experiment.start))

    @property
    def members(self) -> "list[ExperimentFile]":
        """The files whose runs of a seed make up a run of this one; none: it has its own."""
        return [ExperimentFile(self.path.parent / name) for name in self.experiment.members]

    @property
    def measured(self) -> list[Measured]:
        """The measurements that count: of these settings, with the longest budget there is."""
        current = [m for m in self.experiment.measured if m.settings == self.digest]
        longest = max((_budget(m) for m in current), default=0.0)
        return [m for m in current if _budget(m) == longest]

    def trials(self, *, seeds: int | None = None, minutes: float | None = None) -> Iterator[Trial]:
        """Yield the runs that the file asks for, whether measured or not."""
        vary = self.experiment.vary
        for seed in range(self.experiment.seeds if seeds is None else seeds):
            settings = [f"training.seed={seed}"]
            if minutes is not None:
                settings.append(f"training.minutes={minutes}")
            for value in [None] if vary is None else vary.values:
                hide, varied = self.experiment.hide, list(settings)
                if vary is not None and vary.setting == "hide":
                    hide = _share(value, self.path)
                elif vary is not None:
                    varied.append(f"{vary.setting}={value}")
                yield Trial(self, self.config.with_settings(varied), hide, value)

    def is_done(self, trial: Trial) -> bool:
        """Whether a run is measured already."""
        training = trial.config.training
        wanted = (self.digest, trial.value, training.seed, training.minutes)
        done = {(m.settings, m.value, m.seed, m.minutes) for m in self.experiment.measured}
        return wanted in done

    def record(self, measured: Measured) -> None:
        """Append a measurement to the file, comments and all else left as they are."""
        text = self.path.read_bytes().decode().rstrip("\r\n")  # line ends as they are
        entry = measured.model_dump(exclude_none=True, exclude_defaults=True)
        lines = [text, "", "[[measured]]", *(f"{k} = {toml(v)}" for k, v in entry.items()), ""]
        with replacing(self.path) as part:
            part.write_bytes("\n".join(lines).encode())


def find(
    folder: Path, table: str, *, dataset: str | None = None, only: str | None = None
) -> list[ExperimentFile]:
    """Read the files of one table (or "all"), of one data set or all, by name or all."""
    if table != "all" and table not in TABLES:
        raise ConfigError(f"no table {table!r} (known: {', '.join(TABLES)}, all)")
    paths = sorted(folder.glob("*/*.toml"), key=lambda path: path.with_suffix(""))
    if not paths:
        raise ConfigError(
            f"{folder} holds no experiments: run in a checkout of puda, or set --folder"
        )
    files = [ExperimentFile(path) for path in paths if "tables" in read_toml(path)]
    chosen = [
        file
        for file in files
        if (table == "all" or table in file.experiment.tables)
        and dataset in (None, file.dataset)
        and only in (None, file.path.stem)
    ]
    if not chosen:
        there = sorted(file.name for file in files if table in ("all", *file.experiment.tables))
        raise ConfigError(f"no such experiment of {table} (there are: {', '.join(there)})")
    return chosen


def _budget(measured: Measured) -> float:
    return math.inf if measured.minutes is None else measured.minutes  # epochs are never cut short


def _share(value: object, path: Path) -> float:
    if not isinstance(value, int | float) or not 0 <= value < 1:
        raise ConfigError(f"{path}: cannot hide {value!r} of the facts: a share lies in [0, 1)")
    return float(value)


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Lay nested values over others; an entry of another name leaves the first one's options."""
    merged = dict(first)
    if second.get("name", first.get("name")) != first.get("name"):
        merged.pop("options", None)
    for key, value in second.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _merged(merged[key], value)
        else:
            merged[key] = value
    return merged
