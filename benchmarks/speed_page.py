"""Writes docs/speed.md and docs/speed.svg from what benchmarks/speed.py measured."""

import statistics
from pathlib import Path
from typing import Any

Figures = dict[str, Any]
PEERS = {"pykeen": "PyKEEN 1.11.1", "torchkge": "TorchKGE 0.17.7", "ampligraph": "AmpliGraph 2.2.0"}
POOLS = ("256+32", "384+32", "512+32", "1024+32")


class Measured:
    """The lines of the result file by name."""

    def __init__(self, lines: list[Figures]) -> None:
        self.lines = lines

    def of(self, name: str) -> list[Figures]:
        """All rounds of a measurement."""
        return [line for line in self.lines if line["name"] == name]

    def __contains__(self, name: str) -> bool:
        return bool(self.of(name))

    def median(self, name: str, key: str) -> float:
        """Median over the rounds."""
        return statistics.median(line[key] for line in self.of(name))

    def spread(self, name: str, key: str) -> str:
        """Median, and the least and the most of the rounds."""
        values = [line[key] for line in self.of(name)]
        return (
            f"{_figure(statistics.median(values))} ({_figure(min(values))}-{_figure(max(values))})"
        )


def write(lines: list[Figures], docs: Path) -> None:
    """Write the page and the picture."""
    measured = Measured(lines)
    ratios = _ratios(measured)
    _draw(ratios, docs / "speed.svg")
    loads = [line["load_average"] for line in lines]
    parts = [
        "# Speed",
        "",
        "Made by `make bench` from `benchmarks/results/speed.jsonl`. Two CPU cores, no GPU, every"
        " measurement a process of its own, all in turn, medians of one to three rounds with the"
        f" least and the most in brackets; load average before a measurement {min(loads):.2f} to"
        f" {max(loads):.2f} (what the measurement before it leaves). FB15k-237, 256 floats an"
        " entity. `puda bench` does the same on your machine in less than a minute.",
        "",
        "![How many times as fast puda is](speed.svg)",
        "",
        *_training(measured),
        *_ranking(measured),
        *_pairs(measured),
        *_to_mrr(measured),
        *_growth(measured),
        *_same(measured),
    ]
    (docs / "speed.md").write_text("\n".join(parts) + "\n")


def _ratios(measured: Measured) -> list[tuple[str, float]]:
    """How many times as fast puda is, at what."""
    found = []
    for peer, label in PEERS.items():
        name = f"{peer} distmult"
        if name not in measured:
            continue
        epoch, ranking = (
            measured.median(name, key) for key in ("epoch_seconds", "evaluation_seconds")
        )
        for pool in POOLS:
            ours = measured.median(f"puda {pool}", "epoch_seconds")
            found.append((f"{label}: epoch, {pool} against 64", epoch / ours))
        found.append((f"{label}: ranking", ranking / measured.median("puda evaluation", "seconds")))
    for scoring in ("distmult", "transe", "rotate"):
        for peer, label in PEERS.items():
            if f"{peer} {scoring}" in measured:
                ours, theirs = (
                    measured.median(name, "pairs_a_second")
                    for name in (f"puda equal {scoring}", f"{peer} {scoring}")
                )
                found.append((f"{label}: {scoring}, equal pairs", ours / theirs))
    return found


def _training(measured: Measured) -> list[str]:
    lines = [
        "## An epoch of DistMult",
        "",
        "puda asks both questions of every fact, each against a shared pool of unlabeled and 32"
        " synthetic entities, generator included, in batches of 4,096 questions. Its limit are the"
        " bare matrix products of the step: scores, and their gradients by questions and by"
        " candidates, on memory that stays in cache. The peers draw 64 negatives a fact, in batches"
        " of 1,024 facts; an epoch of theirs is reckoned from 12 batches.",
        "",
        "| | pairs a fact | seconds | times its bare products | GFLOP/s (of bare) | PyKEEN takes"
        " times as long | peak memory, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    reference = measured.median("pykeen distmult", "epoch_seconds")
    for pool in POOLS:
        name = f"puda {pool}"
        seconds, reached = (measured.median(name, k) for k in ("epoch_seconds", "gflops"))
        lines.append(
            f"| puda, {pool} | {2 * measured.of(name)[0]['candidates']:,} |"
            f" {measured.spread(name, 'epoch_seconds')} |"
            f" {measured.spread(name, 'times_bare_products')} |"
            f" {reached:.0f} ({measured.median(name, 'gflops_bare'):.0f}) |"
            f" {reference / seconds:.0f} | {measured.median(name, 'memory_mb'):,.0f} |"
        )
    for peer, label in PEERS.items():
        name = f"{peer} distmult"
        if name in measured:
            memory = measured.of(name)[0].get("memory_mb")
            lines.append(
                f"| {label} | {measured.of(name)[0]['negatives']} |"
                f" {measured.spread(name, 'epoch_seconds')} | | | |"
                f" {'' if memory is None else f'{memory:,.0f}'} |"
            )
    kept = "pykeen distmult, freed memory kept"
    if kept in measured:
        lines += [
            "",
            "The peers run as they are. With the setting by which puda has glibc keep freed memory"
            f" (`puda.machine`), PyKEEN takes {measured.spread(kept, 'epoch_seconds')} s an epoch"
            f" and {measured.spread(kept, 'evaluation_seconds')} s for the ranking below.",
        ]
    if "puda profile" in measured:
        shares = measured.of("puda profile")[0]["shares"]
        named = ", ".join(f"`{k}` {100 * v:.0f} %" for k, v in list(shares.items())[:8])
        lines += [
            "",
            f"Where the time of a step with 512+32 candidates goes, by torch's profiler: {named};"
            " the rest is Python, and kernels that torch does not see (masks, Adagrad). `aten::mm`"
            " are the products.",
        ]
    return [*lines, ""]


def _ranking(measured: Measured) -> list[str]:
    lines = [
        "## Filtered ranking of the 20,466 test facts, both sides",
        "",
        "The peers are timed on 256 facts, the rest in proportion.",
        "",
        "| | seconds | times its bare products | puda is times as fast |",
        "|---|---|---|---|",
        f"| puda | {measured.spread('puda evaluation', 'seconds')} |"
        f" {measured.spread('puda evaluation', 'times_bare_products')} | |",
    ]
    ours = measured.median("puda evaluation", "seconds")
    for peer, label in PEERS.items():
        name = f"{peer} distmult"
        if name in measured:
            theirs = measured.median(name, "evaluation_seconds")
            spread = measured.spread(name, "evaluation_seconds")
            lines.append(f"| {label} | {spread} | | {theirs / ours:.0f} |")
    return [*lines, ""]


def _pairs(measured: Measured) -> list[str]:
    lines = [
        "## As many pairs as the peers",
        "",
        "64 pairs a fact, batches of 1,024 facts, pointwise PN without a generator: millions of"
        " scored pairs a second, gradients and optimiser included.",
        "",
        "| scoring function | puda | PyKEEN | times | TorchKGE | times |",
        "|---|---|---|---|---|---|",
    ]
    for scoring in ("distmult", "transe", "rotate"):
        ours = measured.median(f"puda equal {scoring}", "pairs_a_second")
        cells = [f"| {scoring} | {ours / 1e6:.1f} "]
        for peer in ("pykeen", "torchkge"):
            name = f"{peer} {scoring}"
            if name not in measured:
                cells.append("| - | - ")
                continue
            theirs = measured.median(name, "pairs_a_second")
            cells.append(f"| {theirs / 1e6:.2f} | {ours / theirs:.0f} ")
        lines.append("".join(cells) + "|")
    return [*lines, "", "TransE by the L1 norm. TorchKGE has no RotatE.", ""]


def _to_mrr(measured: Measured) -> list[str]:
    if "puda to mrr" not in measured:
        return []
    ours = measured.of("puda to mrr")[0]
    test = ours["test"]
    lines = [
        "## Time to a validation MRR (both sides)",
        "",
        "`experiments/fb15k-237/fast.toml`; seconds of training and validation, from the first"
        " step. Validation is filtered by train and valid alone, which reads lower than test:"
        f" the test MRR at the end is {test['tail']:.3f} tail, {test['head']:.3f} head,"
        f" {test['both']:.3f} both.",
        "",
        "| | 0.25 | 0.30 | last |",
        "|---|---|---|---|",
        _course("puda", ours["course"]),
    ]
    if "pykeen to mrr" in measured:
        theirs = measured.of("pykeen to mrr")[0]
        lines.append(_course("PyKEEN, DistMult", theirs["course"]))
        lines += [
            "",
            "PyKEEN: 256 floats, 64 negatives, its default loss, optimiser and rate, not tuned; MRR"
            f" of {theirs['facts']} validation facts, measured off the clock.",
        ]
    return [*lines, ""]


def _course(label: str, course: list[Figures]) -> str:
    def reached(mrr: float) -> str:
        return next((f"{e['seconds']:.0f} s" for e in course if e["mrr"] >= mrr), "not reached")

    last = course[-1]
    end = f"{last['mrr']:.3f} after {last['seconds']:.0f} s ({last['epoch']} epochs)"
    return f"| {label} | {reached(0.25)} | {reached(0.30)} | {end} |"


def _growth(measured: Measured) -> list[str]:
    names = ("openbiolink", "openbiolink, twice the entities")
    if any(name not in measured for name in names):
        return []
    lines = [
        "## Growth",
        "",
        "An artificial graph of OpenBioLink's shape: 28 relations, 4,192,002 training facts with"
        " typed relations and degrees by Zipf's law. DistMult, 128 floats, pool 256 + 32, batches"
        " of 4,096; a whole epoch.",
        "",
        "| entities | seconds | peak memory, MB |",
        "|---|---|---|",
    ]
    for name, entities in zip(names, ("180,992", "361,984"), strict=True):
        seconds, memory = measured.spread(name, "epoch_seconds"), measured.median(name, "memory_mb")
        lines.append(f"| {entities} | {seconds} | {memory:,.0f} |")
    one, two = (measured.median(name, "epoch_seconds") for name in names)
    return [*lines, "", f"Twice the entities: {100 * (two / one - 1):+.0f} % of time.", ""]


def _same(measured: Measured) -> list[str]:
    if "kernels" not in measured or "torch alone" not in measured:
        return []
    lines = [
        "## Nothing is bought with correctness",
        "",
        "Default settings but batches of 2,048, three epochs, the same seed: with the C kernels,"
        " and with the plain torch operations that stand in for them.",
        "",
        "| | test MRR tail | head | both | seconds of training |",
        "|---|---|---|---|---|",
    ]
    for name in ("kernels", "torch alone"):
        line = measured.of(name)[0]
        mrr = " | ".join(f"{line['test'][side]:.4f}" for side in ("tail", "head", "both"))
        lines.append(f"| {name} | {mrr} | {line['training_seconds']:.0f} |")
    return [*lines, ""]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _draw(ratios: list[tuple[str, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "puda"  # the same figures, the same file
    from matplotlib import pyplot as plt

    labels, values = zip(*reversed(ratios), strict=True)
    figure, axes = plt.subplots(figsize=(8, 0.32 * len(values) + 0.9))
    bars = axes.barh(labels, values, color="#3b6ea5")
    axes.bar_label(bars, [f"{value:.0f}x" for value in values], padding=3, fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(1, 3 * max(values))
    axes.set_xlabel("times as fast (logarithmic)", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
