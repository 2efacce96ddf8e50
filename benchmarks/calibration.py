"""Whether probabilities and answer sets keep their word: `python benchmarks/calibration.py`.

Trains, calibrates on validation facts and checks on test, of CoDEx-M against its annotated true
negatives; then hides training facts, which join the test facts, and looks whether it is noticed
that they are missing. Each finished run is kept in benchmarks/results/calibration.jsonl; a second
call measures what is not there. Writes docs/calibration.md and the reliability picture of CoDEx-M.
"""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import puda
from puda import config as configs
from puda.calibrate import check, cover
from puda.evaluation.calibration import Reliability
from puda.paper import hide
from puda.pictures import draw_reliability

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "calibration.jsonl"
DOCS = HERE.parent / "docs"
RUNS = [("world", "best", 0, 0.0), ("world", "best", 1, 0.0), ("world", "best", 2, 0.0)]
RUNS += [("umls", "best", 0, 0.0), ("codex-m", "fast", 0, 0.0), ("fb15k-237", "fast", 0, 0.0)]
RUNS += [(name, "best", 0, share) for name in ("world", "umls") for share in (0.3, 0.6)]
OFTEN = 100  # test facts from which a relation's coverage is told


def measure(name: str, preset: str, seed: int, hidden: float) -> dict[str, object]:
    """Train, calibrate and check one run."""
    graph, taken = hide(puda.load(name), hidden, seed=0)
    graph = replace(graph, test=np.concatenate([graph.test, taken]))
    config = configs.preset(preset).with_settings([f"training.seed={seed}"])
    with tempfile.TemporaryDirectory() as folder:
        run = puda.train(graph, Path(folder) / "run", config=config)
        calibration = run.calibrate()
        found, covered = check(run.trained, calibration), cover(run.trained, calibration)
    counts = np.bincount(graph.test[:, 1], minlength=graph.num_relations)
    often = {graph.relations.labels[r] for r in np.flatnonzero(counts >= OFTEN)}
    return {
        "graph": name,
        "preset": preset,
        "seed": seed,
        "hidden": hidden,
        "negatives": calibration.negatives,
        "missing": len(graph.test),
        "estimated": calibration.missing,
        **found._asdict(),
        "coverage": covered.overall,
        "coverage of relations": sorted(covered.relations[label] for label in often),
    }


def page(results: list[dict[str, object]]) -> str:
    """Write the table, a line a run, and the picture's frame."""
    lines = [
        "# Do probabilities and answer sets keep their word?",
        "",
        "Fitted to validation facts, checked on test. ECE is the expected calibration error; the",
        'column "0.9 and more" says how many of them came true. CoDEx-M is checked against its',
        "annotated true negatives. The other graphs have none: there the test facts are looked for",
        "among all other candidates of their questions, and what is not in test counts as false",
        "although it may be a missing fact, so that what came true is less than what is true.",
        "Answer sets promise 90 %. Made by `python benchmarks/calibration.py`.",
        "",
        "| graph | preset | seed | against | ECE | Brier | 0.9 and more | coverage |"
        f" relations with {OFTEN} test facts: least, median, most |",
        "|---" * 9 + "|",
    ]
    for r in results:
        if r["hidden"]:
            continue
        own: list[float] = r["coverage of relations"]  # type: ignore[assignment]
        spread = ", ".join(f"{v:.1%}" for v in (own[0], float(np.median(own)), own[-1]))
        cells = [
            r["graph"],
            r["preset"],
            r["seed"],
            "true negatives" if r["negatives"] else "all candidates",
            f"{r['ece']:.4f}",
            f"{r['brier']:.4f}",
            came_true(r),
            f"{r['coverage']:.1%}",
            spread,
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", "CoDEx-M, test facts and true negatives:", ""]
    lines += ["![What is true over what was said](calibration.svg)", ""]
    lines += [
        "## Is it noticed how much is missing?",
        "",
        "A share of the training facts is hidden before training and joins the test facts. The",
        "calibration is told nothing of it; it estimates how many facts are missing, and never",
        "says fewer than validation holds, which is what it says of world and FB15k-237 with",
        "nothing hidden. Test is about as large as validation there: that, too, makes",
        "probabilities fit it.",
        "",
        "| graph | hidden | missing | estimated | ECE | 0.9 and more |",
        "|---" * 6 + "|",
    ]
    for r in results:
        if r["estimated"] is not None and not r["seed"]:
            cells = [r["graph"], f"{r['hidden']:.0%}", f"{r['missing']:,}"]
            cells += [f"{r['estimated']:,.0f}", f"{r['ece']:.4f}", came_true(r)]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def came_true(result: dict[str, object]) -> str:
    """Say how many of the most probable facts are among the test facts."""
    high = [(share, number) for mean, share, number in result["bins"] if mean >= 0.9]  # type: ignore[attr-defined]
    return f"{high[0][0] * high[0][1]:.0f} of {high[0][1]}" if high else "none"


def write(results: list[dict[str, object]]) -> None:
    """Write page and picture from what is measured so far."""
    (DOCS / "calibration.md").write_text(page(results))
    for r in results:
        if r["graph"] == "codex-m":
            found = Reliability(r["brier"], r["ece"], [tuple(b) for b in r["bins"]])  # type: ignore
            (DOCS / "calibration.svg").write_text(draw_reliability(found, "CoDEx-M"))


def main() -> None:
    """Measure what is missing and write the page."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    results = [json.loads(line) for line in lines]
    done = {(r["graph"], r["preset"], r["seed"], r["hidden"]) for r in results}
    for run in RUNS:
        if run not in done:
            results.append(measure(*run))
            with RESULTS.open("a") as file:
                file.write(json.dumps(results[-1]) + "\n")
            write(results)
    write(results)


if __name__ == "__main__":
    main()
