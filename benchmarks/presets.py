"""The presets beside each other on two small graphs: `python benchmarks/presets.py`.

Each finished run is kept in benchmarks/results/presets.jsonl; a second call measures what is
missing.
Writes docs/presets.md.
"""

import json
import tempfile
import time
from pathlib import Path

import numpy as np

import puda
from puda import config as configs

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "presets.jsonl"
PAGE = HERE.parent / "docs" / "presets.md"
GRAPHS = ("world", "umls")
SEEDS = (0, 1, 2)


def measure(graph: str, preset: str, seed: int) -> dict[str, object]:
    """Train by one preset and evaluate."""
    config = configs.preset(preset).with_settings([f"training.seed={seed}"])
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        run = puda.train(puda.load(graph), Path(folder) / "run", config=config)
        seconds = time.monotonic() - start
        mrr = {split: run.evaluate(split)[split]["both"]["mrr"] for split in ("valid", "test")}
    return {"graph": graph, "preset": preset, "seed": seed, "seconds": seconds, **mrr}


def page(results: list[dict[str, object]]) -> str:
    """Write the table: mean and standard deviation over seeds."""
    lines = [
        "# The presets on two small graphs",
        "",
        "MRR of both sides, filtered, mean and standard deviation over seeds; seconds of training",
        "and calibration. Made by `python benchmarks/presets.py`.",
        "",
        "| graph | preset | validation | test | seconds | seeds |",
        "|---" * 6 + "|",
    ]
    for graph in GRAPHS:
        for preset in configs.PRESETS:
            own = [r for r in results if (r["graph"], r["preset"]) == (graph, preset)]
            if not own:
                continue
            columns = {key: [float(r[key]) for r in own] for key in ("valid", "test", "seconds")}  # type: ignore[arg-type]
            figures = [
                f"{np.mean(columns[key]):.3f} ± {np.std(columns[key], ddof=len(own) > 1):.3f}"
                for key in ("valid", "test")
            ]
            cells = [graph, preset, *figures, f"{np.mean(columns['seconds']):.0f}", str(len(own))]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure what is missing and write the page."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    results = [json.loads(line) for line in lines]
    done = {(r["graph"], r["preset"], r["seed"]) for r in results}
    for graph in GRAPHS:
        for preset in configs.PRESETS:
            for seed in SEEDS:
                if (graph, preset, seed) not in done:
                    results.append(measure(graph, preset, seed))
                    with RESULTS.open("a") as file:
                        file.write(json.dumps(results[-1]) + "\n")
                    PAGE.write_text(page(results))
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
