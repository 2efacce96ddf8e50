"""The page of results: tables and pictures from what experiment files hold, nothing typed."""

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from puda.config import read_toml
from puda.errors import ConfigError
from puda.experiments import TABLES, ExperimentFile, Measured, Value
from puda.runs import replacing

INTRODUCTION = """\
# Results

Made by `puda reproduce all` from the files in `experiments/`, each of which holds a run's settings,
what is claimed for it and what was measured. A machine of two CPU cores, no GPU; a run that had
one of them shared the machine with another. Filtered ranks over all entities, ties at their mean,
test facts with entities that training never shows included. Settings were chosen on validation
facts, whose ranks are filtered by train and valid alone; test was measured once a run. *Claimed* is
what the PUDA paper prints, *best known* the best reproduction that we know of. The paper's released
code ranks tails only, so its own rows are to be compared with our tail figures, all others with
both sides. `±` is the standard deviation over seeds.
"""

ORDER = (
    *("DistMult", "ComplEx", "SimplE", "TransE", "CrossE", "RotatE", "ConvE", "ConvKB"),
    *("CompGCN", "HRAN", "KBGAN", "NSCaching", "SANS", "PN", "PU-C", "PU-R", "DA", "PUDA"),
)
"""How the rows of the paper's tables begin, as they follow one another there."""


@dataclass(frozen=True)
class Row:
    """A line of a table: an experiment, or one value of what it varies."""

    file: ExperimentFile
    value: Value | None
    runs: Sequence[Measured]

    @property
    def label(self) -> str:
        """Name of the row, with the value of what varies."""
        vary = self.file.experiment.vary
        if vary is None:
            return self.file.experiment.row
        value = f"{self.value:g}" if isinstance(self.value, float) else str(self.value)
        return f"{self.file.experiment.row}, {vary.setting.split('.')[-1]} {value}"

    @property
    def place(self) -> int:
        """Where the paper has it; rows that it has not come last."""
        begins = (i for i, name in enumerate(ORDER) if self.label.startswith(name))
        return next(begins, len(ORDER))

    def mean(self, part: str, metric: str) -> float:
        """Average a figure over seeds."""
        return float(statistics.mean(getattr(run, part)[metric] for run in self.runs))

    def cell(self, part: str, metric: str) -> str:
        """Write a figure, with its spread where there are several seeds."""
        values = [getattr(run, part).get(metric) for run in self.runs]
        if not values or None in values:
            return ""
        spread = f" ± {_short(statistics.stdev(values))}" if len(values) > 1 else ""
        return _short(statistics.mean(values)) + spread


def write(files: Sequence[ExperimentFile], page: Path, findings: Path) -> list[str]:
    """Write the page and its pictures; returns notes on what could not be done."""
    rows = [row for file in files for row in _rows(file)]
    said = read_toml(findings) if findings.exists() else {}
    pictures, notes = _draw(rows, page)
    parts = [INTRODUCTION]
    for table, title in TABLES.items():
        shown = [row for row in rows if table in row.file.experiment.tables]
        if not shown:
            continue
        parts += [f"## {title}", ""]
        if table in said:
            parts += [_filled(said[table], rows, findings), ""]
        parts += [
            f"![{pictures[name]}]({name})\n" for name in pictures if PICTURES[name].table == table
        ]
        for dataset in dict.fromkeys(row.file.dataset for row in shown):
            of_dataset = [row for row in shown if row.file.dataset == dataset]
            of_dataset.sort(key=lambda row: row.place)
            parts += [f"### {dataset}", "", *_table(of_dataset), ""]
    with replacing(page) as part:
        part.write_text("\n".join(parts), encoding="utf-8")
    return notes


def _rows(file: ExperimentFile) -> Iterable[Row]:
    vary = file.experiment.vary
    for value in [None] if vary is None else vary.values:
        runs = [m for m in file.measured if m.value == value]
        yield Row(file, value, runs)


COLUMNS: dict[str, Callable[[Row], str]] = {
    "": lambda row: row.label,
    "claimed MRR": lambda row: _claim(row.file.experiment.claimed, "mrr"),
    "claimed H@10": lambda row: _claim(row.file.experiment.claimed, "hits@10"),
    "best known": lambda row: _known(row.file.experiment.known),
    "**both** MRR": lambda row: row.cell("both", "mrr"),
    "H@1": lambda row: row.cell("both", "hits@1"),
    "H@3": lambda row: row.cell("both", "hits@3"),
    "H@10": lambda row: row.cell("both", "hits@10"),
    "**tail** MRR": lambda row: row.cell("tail", "mrr"),
    "H@10 ": lambda row: row.cell("tail", "hits@10"),
    "**head** MRR": lambda row: row.cell("head", "mrr"),
    "less claimed": lambda row: _gap(row, row.file.experiment.claimed, row.file.experiment.side),
    "less best known": lambda row: _gap(row, row.file.experiment.known, "both"),
    "AUC": lambda row: row.cell("classified", "auc"),
    "average precision": lambda row: row.cell("classified", "average_precision"),
    "hidden MRR": lambda row: row.cell("hidden", "mrr"),
    "hidden below non-facts": lambda row: row.cell("hidden", "below"),
    "valid MRR": lambda row: row.cell("valid", "mrr"),
    "seeds": lambda row: str(len(row.runs)) if row.runs else "not run yet",
    "minutes": lambda row: (
        f"{statistics.mean(run.seconds for run in row.runs) / 60:.1f}" if row.runs else ""
    ),
    "cores": lambda row: ", ".join(sorted({str(run.threads) for run in row.runs})),
}


def _table(rows: Sequence[Row]) -> list[str]:
    """Lay out rows; a column in which nothing stands is left out."""
    cells = {name: [cell(row) for row in rows] for name, cell in COLUMNS.items()}
    names = [name for name, column in cells.items() if any(column)]
    lines = [" | ".join(names), "|".join("---" for _ in names)]
    lines += [" | ".join(cells[name][k] for name in names) for k in range(len(rows))]
    return [f"| {line} |" for line in lines]


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _claim(claimed: dict[str, float], metric: str) -> str:
    return _short(claimed[metric]) if metric in claimed else ""


def _gap(row: Row, figures: Mapping[str, float | str], side: str) -> str:
    """Say how far our MRR is above or below another."""
    if not row.runs or "mrr" not in figures:
        return ""
    gap = f"{row.mean(side, 'mrr') - float(figures['mrr']):+.3f}".replace("0.", ".")
    return gap if side == "both" else f"{gap} ({side})"


def _known(known: dict[str, float | str]) -> str:
    if "mrr" not in known:
        return ""
    source = known.get("source")
    return _short(float(known["mrr"])) + (f" ({source})" if source else "")


PARTS = ("valid", "tail", "head", "both", "hidden", "classified")


def _filled(text: object, rows: Sequence[Row], source: Path) -> str:
    """Fill in what a finding names: {fb15k-237/puda tail mrr}, of one value {... =0.1}."""

    def figure(found: re.Match[str]) -> str:
        name, part, metric, value = found.groups()
        for row in rows:
            if row.file.name == name and (value is None or str(row.value) == value):
                if not row.runs:
                    return "(not run yet)"
                if part in PARTS and row.cell(part, metric):
                    return row.cell(part, metric)
        raise ConfigError(f"{source}: nothing is measured that {found[0]} could mean")

    if not isinstance(text, str):
        raise ConfigError(f"{source}: a finding is a text, not {text!r}")
    return re.sub(r"\{(\S+) (\w+) ([\w@]+)(?: =(\S+))?\}", figure, text.strip())


# Pictures


@dataclass(frozen=True)
class Picture:
    """A drawing below one heading."""

    table: str
    title: str
    draw: Callable[[Any, Sequence[Row]], None]  # on a matplotlib figure


def _panels(figure: Any, rows: Sequence[Row]) -> Iterable[tuple[Any, list[Row]]]:
    datasets = list(dict.fromkeys(row.file.dataset for row in rows))
    figure.set_size_inches(5.4 * len(datasets), 4.8)
    for k, dataset in enumerate(datasets, start=1):
        axes = figure.add_subplot(1, len(datasets), k)
        axes.set_title(dataset, fontsize=10)
        yield axes, [row for row in rows if row.file.dataset == dataset]


def _marked(rows: Sequence[Row]) -> Iterable[tuple[Row, dict[str, str]]]:
    """Give each row, in the paper's order, a look of its own: ten colours, each with two marks."""
    for k, row in enumerate(sorted(rows, key=lambda row: row.place)):
        yield row, {"color": f"C{k % 10}", "marker": "os"[k // 10 % 2], "label": row.label}


def _legend_below(axes: Any) -> None:
    axes.legend(
        fontsize=6.5, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False
    )


def _curves(figure: Any, rows: Sequence[Row]) -> None:
    for axes, shown in _panels(figure, rows):
        for row, look in _marked([row for row in shown if row.runs[0].curve]):
            axes.plot(*zip(*row.runs[0].curve, strict=True), markersize=3, linewidth=1, **look)
        axes.set_xscale("log")
        axes.set_xlabel("seconds")
        axes.set_ylabel("validation MRR, both sides")
        _legend_below(axes)


def _sides(figure: Any, rows: Sequence[Row]) -> None:
    for axes, shown in _panels(figure, rows):
        for row, look in _marked(shown):
            axes.scatter(row.mean("tail", "mrr"), row.mean("head", "mrr"), s=22, **look)
        axes.axline((0.2, 0.2), slope=1, color="#bbbbbb", linewidth=0.8)
        axes.set_xlabel("test MRR, tail")
        axes.set_ylabel("test MRR, head")
        _legend_below(axes)


def _varied(
    figure: Any, rows: Sequence[Row], lines: dict[str, tuple[str, str]], scale: str
) -> None:
    for axes, shown in _panels(figure, rows):
        for name in dict.fromkeys(row.file.experiment.row for row in shown):
            for label, (part, metric) in lines.items():
                own = [row for row in shown if row.file.experiment.row == name]
                own = [row for row in own if row.cell(part, metric)]
                heights = [row.mean(part, metric) for row in own]
                axes.plot([row.value for row in own], heights, marker=".", label=f"{name}, {label}")
        axes.set_xscale(scale, **({"linthresh": 1e-7} if scale == "symlog" else {}))
        axes.legend(fontsize=7)


def _prior(figure: Any, rows: Sequence[Row]) -> None:
    _varied(figure, rows, {"tail": ("tail", "mrr"), "both": ("both", "mrr")}, "symlog")
    for axes in figure.axes:
        axes.set_xlabel("prior")
        axes.set_ylabel("test MRR")


def _hidden(figure: Any, rows: Sequence[Row]) -> None:
    _varied(figure, rows, {"hidden": ("hidden", "mrr")}, "linear")
    for axes in figure.axes:
        axes.set_xlabel("share of training facts hidden")
        axes.set_ylabel("MRR of hidden facts")


PICTURES = {
    "results-curves.svg": Picture("table1", "Validation MRR over seconds of training", _curves),
    "results-sides.svg": Picture("table1", "Tail against head", _sides),
    "results-prior.svg": Picture("figure-prior", "Sensitivity to the prior", _prior),
    "results-hidden.svg": Picture("hidden", "MRR of hidden facts", _hidden),
}


def _draw(rows: Sequence[Row], page: Path) -> tuple[dict[str, str], list[str]]:
    """Draw what has been measured beside the page; returns {file: title} and notes."""
    try:
        import matplotlib
    except ImportError:
        there = {n: p.title for n, p in PICTURES.items() if page.with_name(n).exists()}
        return there, ["no pictures were drawn: pip install 'puda[plot]'"]
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "puda"  # the same figures, the same file
    from matplotlib import pyplot as plt

    drawn = {}
    for name, picture in PICTURES.items():
        shown = [row for row in rows if row.runs and picture.table in row.file.experiment.tables]
        if not shown:
            continue
        figure = plt.figure()
        picture.draw(figure, shown)
        figure.tight_layout()
        with replacing(page.with_name(name)) as part:
            figure.savefig(part, format="svg", metadata={"Date": None})
        plt.close(figure)
        drawn[name] = picture.title
    return drawn, []
