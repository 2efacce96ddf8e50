"""What a person sees in a terminal: tables, bars and progress, all of it drawn with rich.

Results go to standard output, what accompanies them (progress, warnings) to standard error.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import polars as pl
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from puda.calibrate import COVERAGE
from puda.complete import Estimate
from puda.config import Config
from puda.data.check import Report
from puda.data.files import ReadReport
from puda.data.graph import KnowledgeGraph
from puda.evaluation.calibration import Reliability
from puda.evaluation.metrics import Metrics
from puda.training.trainer import Listener
from puda.types import Prediction
from puda.verdicts import Settled

# Labels are the user's: ":cat:" is a label, not a cat.
out = Console(emoji=False, highlight=False)
err = Console(emoji=False, highlight=False, stderr=True)

FIGURES = {
    "MRR": "mrr",
    "MR": "mr",
    "Hits@1": "hits@1",
    "Hits@3": "hits@3",
    "Hits@10": "hits@10",
    "AMRI": "amri",
}


def show_text(text: str) -> None:
    """Print a plain line."""
    out.print(escape(text), soft_wrap=True)


def show_settled(settled: Settled) -> None:
    """Say what the verdicts come to."""
    err.print(
        f"verdicts: {len(settled.accepted):,} facts accepted, {len(settled.rejected):,} rejected,"
        f" {len(settled.tied):,} undecided"
    )


def show_reading(
    graph: KnowledgeGraph, reports: Sequence[ReadReport], warnings: Sequence[str]
) -> None:
    """Say what was read, how it was understood, and what deserves attention."""
    for report in reports:
        err.print(escape(report.summary()), soft_wrap=True)
    err.print(
        f"{escape(graph.name)}: {graph.num_entities:,} entities, {graph.num_relations:,} relations,"
        f" {len(graph.train):,} / {len(graph.valid):,} / {len(graph.test):,} facts"
        " (train / valid / test)",
        soft_wrap=True,
    )
    for warning in warnings:
        err.print(f"[yellow]note[/] {escape(warning)}", soft_wrap=True)


@contextmanager
def training_progress(config: Config) -> Iterator[Listener]:
    """Draw a bar over the whole budget with risks, validation MRR and time left."""
    settings = config.training
    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[risks]}"),
        TextColumn("{task.fields[mrr]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task("", total=1.0, epoch=0, risks="", mrr="", left="")
        state = {"epoch": 0, "seconds": 0.0}

        def listener(event: Mapping[str, Any]) -> None:
            kind = event["event"]
            if kind == "step":
                done = state["epoch"] + event["done"] / event["of"]
                spent = state["seconds"] + (progress.tasks[0].elapsed or 0.0)
                share = (
                    spent / (60 * settings.minutes)
                    if settings.minutes
                    else (done / settings.epochs)
                )
                left = spent / share - spent if share else 0.0
                progress.update(
                    task,
                    completed=min(share, 1.0),
                    epoch=state["epoch"] + 1,
                    left=f"at most {_duration(left)} left",
                )
            elif kind == "start":
                state["epoch"], state["seconds"] = event["epoch"], event["seconds"]
            elif kind == "epoch":
                state["epoch"] = event["epoch"]
                risks = event["risks"]
                progress.update(
                    task,
                    risks=f"risk {risks['total']:.3f} (unlabeled {risks['unlabeled']:.3f},"
                    f" synthetic {risks['synthetic']:.3f})",
                )
            elif kind == "validation" and event["mrr"]:
                progress.update(
                    task, mrr=f"MRR {event['mrr']['both']:.3f} (best {event['best']['mrr']:.3f})"
                )
            elif kind == "stop":
                best = event["best"]["epoch"]
                progress.console.print(
                    f"{event['epoch']} epochs in {event['seconds']:.1f} s, best after {best}"
                    f" ({event['reason']})"
                )

        yield listener


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02}"


def show_metrics(metrics: Metrics, *, breakdowns: bool = False, relations: bool = False) -> None:
    """Show the sides of each split beside the baselines."""
    for split, report in metrics.items():
        table = _figure_table(f"{split}: filtered ranks over all entities, ties at their mean")
        if not report.get("both"):
            out.print(f"{split}: no facts to measure on")
            continue
        for side in ("tail", "head", "both"):
            _add_figures(table, side, report[side], "bold" if side == "both" else None)
        for name, baseline in report["baselines"].items():
            _add_figures(table, f"{name}, both", baseline["both"], "dim")
        out.print(table)
        low, high = report["both"]["mrr_interval"]
        out.print(f"MRR of both sides: 95 % between {low:.3f} and {high:.3f} (bootstrap)\n")
        if "members" in report:
            alone = report["members"]["mrr"]
            out.print(
                f"Its members alone: MRR {', '.join(f'{mrr:.3f}' for mrr in alone)};"
                f" together {report['both']['mrr'] - sum(alone) / len(alone):+.3f} on their mean\n"
            )
        if "classification" in report:
            told = report["classification"]
            out.print(
                f"Facts against annotated true negatives: AUC {told['auc']:.3f},"
                f" average precision {told['average_precision']:.3f}\n"
            )
        if breakdowns:
            _show_groups("by relation category", report["categories"])
            _show_groups("by training facts of the answer", report["degrees"])
        if relations:
            _show_groups("by relation", report["relations"])


def _figure_table(title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in ("questions", *FIGURES):
        table.add_column(name, justify="right")
    return table


def _add_figures(table: Table, name: str, figures: Metrics, style: str | None = None) -> None:
    cells = [
        f"{figures[key]:.1f}" if key == "mr" else f"{figures[key]:.3f}" for key in FIGURES.values()
    ]
    table.add_row(escape(name), f"{figures['count']:,}", *cells, style=style)


def _show_groups(title: str, groups: Metrics) -> None:
    table = _figure_table(title)
    for name, report in groups.items():
        for side, figures in report.items():
            _add_figures(table, f"{name}, {side}", figures)
    out.print(table)


@contextmanager
def counting(what: str) -> Iterator[Listener]:
    """Draw a bar over things that are done one after the other."""
    columns = (
        TextColumn("{task.completed}/{task.total} " + what),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task("", total=None)

        def listener(event: Mapping[str, Any]) -> None:
            progress.update(task, completed=event["done"], total=event["of"])

        yield listener


def show_estimate(cost: Estimate) -> None:
    """Say what a completion will cost, before it does."""
    err.print(
        f"{cost.pairs:,} pairs to score of {cost.all_pairs:,} that there are,"
        f" about {_duration(cost.seconds)} and {cost.megabytes:,} MB",
        soft_wrap=True,
    )


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def show_facts(facts: pl.DataFrame) -> None:
    """Print facts with all that is said of them."""
    table = Table()
    for name, kind in facts.schema.items():
        table.add_column(name, justify="right" if kind.is_numeric() else "left")
    for row in facts.iter_rows():
        table.add_row(*(escape(_cell(value)) for value in row))
    out.print(table)


def show_predictions(
    answers: Sequence[Prediction],
    *,
    head: str | None,
    relation: str | None,
    tail: str | None,
    promised: float | None = None,
) -> None:
    """Show a ranked list with a bar for each score, from the worst shown to the best."""
    if not answers:
        out.print("nothing left to predict: every candidate is known (--include-known shows them)")
        return
    first = answers[0]
    asked = "head" if head is None else "relation" if relation is None else "tail"
    words = [
        "?" if part == asked else getattr(first, part) for part in ("head", "relation", "tail")
    ]
    table = Table(title=escape(" - ".join(words)), title_justify="left")
    table.add_column("", justify="right")
    table.add_column(asked)
    for name in (
        *(["probability"] if first.probability is not None else []),
        *(["agree"] if first.agreement is not None else []),
        "score",
        "margin",
    ):
        table.add_column(name, justify="right")
    table.add_column("")
    low, high = answers[-1].score, first.score
    for answer in answers:
        share = (answer.score - low) / (high - low) if high > low else 1.0
        mark = "known" if answer.known else ""
        table.add_row(
            str(answer.rank),
            escape(getattr(answer, asked)),
            *([] if answer.probability is None else [f"{answer.probability:.3f}"]),
            *([] if answer.agreement is None else [f"{answer.agreement} of {answer.members}"]),
            f"{answer.score:.2f}",
            "" if answer.margin is None else f"{answer.margin:.2f}",
            _bar(max(share, 0.05)) + (f" {mark}" if mark else ""),
        )
    out.print(table)
    if first.probability is not None:
        new = [a.probability or 0.0 for a in answers if not a.known]
        out.print(f"Expected to be true of the {len(new)} that are not known: {sum(new):.1f}")
    if promised is not None:
        out.print(
            f"Of questions like this one, {COVERAGE:.0%} have their answer among the first"
            f" {promised:,.0f} that are not known"
        )


def show_reliability(found: Reliability, what: str) -> None:
    """Show how probabilities compare with what came true."""
    table = Table(title=what, title_justify="left")
    for name in ("probability", "came true", "facts"):
        table.add_column(name, justify="right")
    table.add_column("")
    for mean, frequency, number in found.bins:
        table.add_row(f"{mean:.3f}", f"{frequency:.3f}", f"{number:,}", _bar(frequency))
    out.print(table)
    out.print(f"Expected calibration error {found.ece:.4f}, Brier score {found.brier:.4f}")


def show_check(report: Report) -> None:
    """Show what a graph is made of."""
    table = Table(title="relations", title_justify="left")
    for name in ("relation", "train", "valid", "test", "", "kind", "traits"):
        table.add_column(name, justify="right" if name in ("train", "valid", "test") else "left")
    most = max(profile.train for profile in report.relations)
    for profile in report.relations:
        counts = (f"{n:,}" for n in (profile.train, profile.valid, profile.test))
        bar, traits = _bar(profile.train / most), ", ".join(profile.traits)
        table.add_row(escape(profile.label), *counts, bar, profile.category, traits)
    out.print(table)

    table = Table(title="entities by their number of training facts", title_justify="left")
    for name in ("facts", "entities", ""):
        table.add_column(name, justify="left" if name == "" else "right")
    most = max(bucket.entities for bucket in report.degrees)
    for bucket in report.degrees:
        span = str(bucket.low) if bucket.low == bucket.high else f"{bucket.low}-{bucket.high}"
        table.add_row(span, f"{bucket.entities:,}", _bar(bucket.entities / most))
    out.print(table)
    hubs = ", ".join(f"{label} ({degree:,})" for label, degree in report.hubs[:5])
    show_text(f"most facts: {hubs}")
    show_text(
        f"parts that no fact joins: {report.parts.count:,};"
        f" the largest holds {report.parts.share:.1%} of the entities"
    )


def _bar(share: float) -> str:
    """Draw a share of the longest bar."""
    return "#" * max(1, round(20 * share)) if share else ""


def show_datasets(rows: Sequence[Mapping[str, Any]]) -> None:
    """List data sets and whether they are on this machine."""
    table = Table()
    for name in ("name", "what", "on this machine"):
        table.add_column(name)
    for row in rows:
        table.add_row(row["name"], row["description"], "yes" if row["here"] else "on first use")
    out.print(table)


def show_bench(figures: Mapping[str, Any]) -> None:
    """Show what `puda bench` measured, and how far ahead of PyKEEN it is."""
    machine, training, ranking = (figures[k] for k in ("machine", "training", "evaluation"))
    peer = figures.get("pykeen")
    load = machine["load_average"]
    show_text(
        f"{machine['threads']} threads, {machine['instructions']},"
        f" {'with' if machine['kernels'] else 'without'} C kernels, torch {machine['torch']}"
        + ("" if load is None else f"; load average {load:.2f} before")
    )
    table = Table()
    for name in ("", "puda", "PyKEEN", "times"):
        table.add_column(name, justify="left" if name == "" else "right")
    rows = [
        ("an epoch (s)", training["epoch_seconds"], peer and peer["epoch_seconds"]),
        ("scored pairs a second", training["pairs_a_second"], peer and peer["pairs_a_second"]),
        ("ranking all test facts (s)", ranking["seconds"], peer and peer["evaluation_seconds"]),
    ]
    for label, ours, theirs in rows:
        ratio = "" if not theirs else f"{max(ours, theirs) / min(ours, theirs):,.0f}"
        table.add_row(label, _figure(ours), _figure(theirs) if theirs else "-", ratio)
    out.print(table)
    show_text(
        f"{training['scoring']}, {training['floats']} floats, {training['candidates']:,} candidates"
        f" a question, two questions a fact, batches of {training['batch']:,}"
        + (
            f"; PyKEEN: {peer['negatives']} negatives a fact, in this process, so that it gains"
            " from puda's memory setting"
            if peer
            else ""
        )
    )
    show_text(
        f"A step takes {training['times_bare_products']:.2f} times its bare matrix products"
        f" ({training['gflops']:.0f} of {training['gflops_bare']:.0f} GFLOP/s), ranking"
        f" {ranking['times_bare_products']:.2f} times."
    )
    memory = figures["peak_memory_mb"]
    if memory is not None:
        show_text(f"At most {memory:,.0f} MB of memory.")
    if not peer:
        show_text("Install PyKEEN (puda[pykeen]) to have it measured as well.")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
