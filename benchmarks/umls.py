"""Every scoring function under PN and PUDA on UMLS, 3 seeds: `make umls` writes docs/umls.md.

Each finished run is kept in benchmarks/results/umls.jsonl; a second call runs what is missing.
All rows share batch, pool and validation rule. The learning rate belongs to the scoring function:
the better of a few by validation MRR under PUDA with one seed (ConvKB: not tried, a guess), and
PN takes the same.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import puda
from puda.config import Config

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "umls.jsonl"
PAGE = HERE.parent / "docs" / "umls.md"

COMMON = [
    "scoring.dim=128",
    "sampler.num_unlabeled=135",
    "generator.num_synthetic=16",
    "training.batch_size=512",
    "training.epochs=60",
    "training.validate_every=5",
    "training.patience=4",
    "objective.weight=0",
]
ADAM = ["optimizer.name=adam"]
MODELS: dict[str, list[str]] = {
    "distmult": [],
    "complex": [],
    "simple": [],
    "transe": [*ADAM, "optimizer.learning_rate=0.003"],
    "crosse": [*ADAM, "optimizer.learning_rate=0.03"],
    "rotate": [*ADAM, "optimizer.learning_rate=0.03", "scoring.dim=64", "training.grouped=true"],
    "conve": [*ADAM, "optimizer.learning_rate=0.01", "training.grouped=true"],
    "convkb": [
        *ADAM,
        "optimizer.learning_rate=0.005",
        "scoring.dim=48",
        "scoring.options.filters=8",
        "scoring.options.dropout=0.0",
        "training.grouped=true",
    ],
    "compgcn": [
        *ADAM,
        "optimizer.learning_rate=0.01",
        "scoring.options.filters=32",
        "scoring.options.kernel=5",
        "training.grouped=true",
    ],
    "hran": [*ADAM, "optimizer.learning_rate=0.003", "training.grouped=true"],
}
OBJECTIVES = ("pn", "puda")
SEEDS = (0, 1, 2)


def run(model: str, objective: str, seed: int) -> dict[str, object]:
    """Train and measure once."""
    settings = [*COMMON, f"scoring.name={model}", *MODELS[model]]
    settings += [f"objective.name={objective}", f"training.seed={seed}"]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        trained = puda.train("umls", Path(folder) / "run", config=Config().with_settings(settings))
        test = trained.metrics["test"]
    return {
        "model": model,
        "objective": objective,
        "seed": seed,
        "settings": settings,
        "seconds": round(time.monotonic() - start, 1),
        "version": puda.__version__,
        "mrr": {side: round(test[side]["mrr"], 4) for side in ("tail", "head", "both")},
        "hits@10": {side: round(test[side]["hits@10"], 4) for side in ("tail", "head", "both")},
    }


def page(results: list[dict]) -> str:
    """Write the table from the result file."""
    lines = [
        "# Every scoring function on UMLS",
        "",
        "Test MRR, filtered, ties at their mean rank; mean and standard deviation over 3 seeds."
        " Made by `make umls` from `benchmarks/results/umls.jsonl`, which holds every setting;"
        " two CPU cores. `pn` and `puda` are as in the paper: pointwise with prior 1/2, and"
        " pairwise with prior 1e-5 and a generator. Learning rates were chosen by a short look at"
        " validation under `puda`, one seed, and `pn` takes the same; ConvKB's is a guess.",
        "",
        "| scoring function | objective | both sides | tail | head | Hits@10 both | minutes |",
        "|---|---|---|---|---|---|---|",
    ]
    for model in MODELS:
        for objective in OBJECTIVES:
            runs = [r for r in results if (r["model"], r["objective"]) == (model, objective)]
            if not runs:
                continue
            cells = [_spread([r["mrr"][side] for r in runs]) for side in ("both", "tail", "head")]
            cells.append(_spread([r["hits@10"]["both"] for r in runs]))
            minutes = statistics.mean(r["seconds"] for r in runs) / 60
            lines.append(f"| {model} | {objective} | {' | '.join(cells)} | {minutes:.1f} |")
    return "\n".join([*lines, "", *_findings(results), ""])


def _findings(results: list[dict]) -> list[str]:
    """Say which objective is ahead by more than two standard errors, for each scoring function."""
    ahead: dict[str, list[str]] = {"puda": [], "pn": [], "neither": []}
    for model in MODELS:
        pn, puda_ = (
            [r["mrr"]["both"] for r in results if (r["model"], r["objective"]) == (model, name)]
            for name in OBJECTIVES
        )
        if min(len(pn), len(puda_)) < 2:
            continue
        gap = statistics.mean(puda_) - statistics.mean(pn)
        error = (statistics.variance(pn) / len(pn) + statistics.variance(puda_) / len(puda_)) ** 0.5
        ahead["neither" if abs(gap) < 2 * error else "puda" if gap > 0 else "pn"].append(model)
    return [
        "Ahead by more than two standard errors, both sides: "
        + "; ".join(f"{name}: {', '.join(models) or 'none'}" for name, models in ahead.items())
        + "."
    ]


def _spread(values: list[float]) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.3f} ± {deviation:.3f}"


def main() -> None:
    """Run what is missing, then write the page."""
    RESULTS.parent.mkdir(exist_ok=True)
    results = [json.loads(x) for x in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    done = {(r["model"], r["objective"], r["seed"]) for r in results}
    wanted = [(m, o, s) for s in SEEDS for m in MODELS for o in OBJECTIVES]
    for model, objective, seed in wanted:
        if (model, objective, seed) not in done:
            result = run(model, objective, seed)
            results.append(result)
            with RESULTS.open("a") as file:
                file.write(json.dumps(result) + "\n")
            sys.stderr.write(f"{model} {objective} {seed} {result['mrr']} {result['seconds']} s\n")
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
