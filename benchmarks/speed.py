"""puda beside other tools: `make bench` measures, then writes docs/speed.md and docs/speed.svg.

Every measurement is a process of its own, all in turn, several rounds; each is kept as a line of
benchmarks/results/speed.jsonl with the load average before it, and a second call measures what is
missing. `python benchmarks/speed.py one NAME` makes one measurement, `page` writes the page alone.
AMPLIGRAPH=<a python that has ampligraph> has AmpliGraph measured too; it needs packages of its own.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "speed.jsonl"
DOCS = HERE.parent / "docs"
FAST = HERE.parent / "experiments" / "fb15k-237" / "fast.toml"

Figures = dict[str, Any]
POOLS = (256, 384, 512, 1024)
DIM, NEGATIVES, BATCH = 256, 64, 1024  # floats, of the peers: negatives and facts a batch
ROUNDS = 3


def _graph() -> Any:
    import puda

    return puda.load("fb15k-237")


def _training(pool: int) -> Figures:
    from puda import bench

    figures = bench.time_training(
        _graph(), bench.CONFIG.with_settings([f"sampler.num_unlabeled={pool}"]), steps=200
    )
    return figures | {"memory_mb": bench.peak_memory()}


def _profile() -> Figures:
    """Ask torch's profiler for the shares of a step's time, products and kernels first."""
    import torch

    from puda import bench

    step = bench.stepper(_graph(), bench.CONFIG)
    for _ in range(10):
        step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        seconds = bench.timed(step, times=40)
    spent = {e.key: e.self_cpu_time_total / 1e6 / seconds for e in profiler.key_averages()}
    largest = sorted(spent.items(), key=lambda item: -item[1])[:12]
    return {"step_ms": 1000 * seconds / 40, "shares": {k: round(v, 4) for k, v in largest}}


def _evaluation() -> Figures:
    from puda import bench

    figures = bench.time_evaluation(_graph(), bench.CONFIG, rounds=5)
    return figures | {"memory_mb": bench.peak_memory()}


def _equal_pairs(scoring: str) -> Figures:
    """Time what the peers do: as many pairs a fact, no generator, as many facts a batch."""
    from puda import bench

    config = bench.CONFIG.with_settings(
        [
            f"scoring.name={scoring}",
            "objective.name=pn",
            f"sampler.num_unlabeled={NEGATIVES // 2}",  # for each of a fact's two questions
            f"training.batch_size={2 * BATCH}",
        ]
    )
    return bench.time_training(_graph(), config, steps=200)


def _pykeen(scoring: str) -> Figures:
    from puda import bench

    config = bench.CONFIG.with_settings([f"scoring.name={scoring}"])
    figures = bench.time_pykeen(_graph(), config, negatives=NEGATIVES, batch=BATCH)
    return figures | {"memory_mb": bench.peak_memory()}


def _torchkge(scoring: str) -> Figures:
    import peers

    from puda import bench

    figures = peers.time_torchkge(_graph(), scoring, DIM, negatives=NEGATIVES, batch=BATCH)
    return figures | {"memory_mb": bench.peak_memory()}


def _ampligraph() -> Figures:
    """Have AmpliGraph's own python do the work on the facts as ids."""
    import numpy as np

    graph = _graph()
    with tempfile.TemporaryDirectory() as folder:
        facts = Path(folder) / "facts.npz"
        np.savez(facts, train=graph.train, valid=graph.valid, test=graph.test)
        command = [os.environ["AMPLIGRAPH"], str(HERE / "ampligraph_peer.py"), str(facts)]
        out = subprocess.run(  # in the folder, since it leaves a log where it runs
            command, check=True, capture_output=True, text=True, cwd=folder
        ).stdout
    figures: Figures = json.loads(out.splitlines()[-1])
    return figures


def _large(entities: int) -> Figures:
    """Train a whole epoch on a graph of OpenBioLink's shape, or with other many entities."""
    from puda import bench
    from puda.data.artificial import SHAPES, artificial_graph
    from puda.training.batches import Batches

    _, relations, facts, held_out = SHAPES["openbiolink"]
    graph = artificial_graph(entities, relations, facts, held_out)
    config = bench.CONFIG.with_settings(["scoring.dim=128", "sampler.num_unlabeled=256"])
    steps, step = len(Batches(graph, config.training)), bench.stepper(graph, config)
    step()  # makes the indexes
    seconds = bench.timed(step, times=steps)
    return {"epoch_seconds": seconds, "steps": steps, "memory_mb": bench.peak_memory()}


def _to_mrr() -> Figures:
    """Train with experiments/fb15k-237/fast.toml; say when validation had reached what."""
    import puda
    from puda import config

    with tempfile.TemporaryDirectory() as folder:
        run = puda.train("fb15k-237", Path(folder) / "run", config=config.read(FAST))
        trace = run.folder.trace()
        test = run.metrics["test"]
    validations = [event for event in trace if event["event"] == "validation"]
    course = [
        {"seconds": e["seconds"], "epoch": e["epoch"], "mrr": e["mrr"]["both"]} for e in validations
    ]
    return {
        "course": course,
        "test": {side: test[side]["mrr"] for side in ("tail", "head", "both")},
    }


def _pykeen_to_mrr() -> Figures:
    import peers

    return peers.pykeen_to_mrr(_graph(), minutes=4)


def _straightforward(kernels: bool) -> Figures:
    """Train three epochs with the C kernels or with torch alone: the same MRR is to come out."""
    import puda
    from puda import native
    from puda.config import Config

    if not kernels:
        native.library = None
    settings = ["training.epochs=3", "training.validate_every=3", "training.batch_size=2048"]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = puda.train("fb15k-237", Path(folder) / "run", config=Config().with_settings(settings))
        trace, test = run.folder.trace(), run.metrics["test"]
    epochs = [e for e in trace if e["event"] == "epoch"]
    return {
        "test": {side: test[side]["mrr"] for side in ("tail", "head", "both")},
        "training_seconds": epochs[-1]["seconds"],
        "seconds": time.perf_counter() - start,
    }


OPENBIOLINK = 180_992

MEASUREMENTS: dict[str, tuple[Callable[[], Figures], int]] = {  # name -> what to do, rounds
    **{f"puda {pool}+32": (lambda p=pool: _training(p), ROUNDS) for pool in POOLS},
    "puda profile": (_profile, 1),
    "puda evaluation": (_evaluation, ROUNDS),
    "pykeen distmult": (lambda: _pykeen("distmult"), ROUNDS),
    "pykeen distmult, freed memory kept": (lambda: _pykeen("distmult"), ROUNDS),
    "torchkge distmult": (lambda: _torchkge("distmult"), 2),
    "puda equal distmult": (lambda: _equal_pairs("distmult"), 2),
    "puda equal transe": (lambda: _equal_pairs("transe"), 2),
    "pykeen transe": (lambda: _pykeen("transe"), 2),
    "torchkge transe": (lambda: _torchkge("transe"), 2),
    "puda equal rotate": (lambda: _equal_pairs("rotate"), 2),
    "pykeen rotate": (lambda: _pykeen("rotate"), 2),
    "ampligraph distmult": (_ampligraph, 1),
    "openbiolink": (lambda: _large(OPENBIOLINK), 2),
    "openbiolink, twice the entities": (lambda: _large(2 * OPENBIOLINK), 2),
    "kernels": (lambda: _straightforward(True), 1),
    "torch alone": (lambda: _straightforward(False), 1),
    "puda to mrr": (_to_mrr, 1),
    "pykeen to mrr": (_pykeen_to_mrr, 1),
}


def measure() -> None:
    """Run what is missing, round by round, each in a process of its own."""
    RESULTS.parent.mkdir(exist_ok=True)
    done = [(r["name"], r["round"]) for r in results()]
    for number in range(max(rounds for _, rounds in MEASUREMENTS.values())):
        for name, (_, rounds) in MEASUREMENTS.items():
            absent = name.startswith("ampligraph") and "AMPLIGRAPH" not in os.environ
            if (name, number) in done or number >= rounds or absent:
                continue
            load = os.getloadavg()[0]
            command = [sys.executable, str(Path(__file__).resolve()), "one", name]
            ended = subprocess.run(command, capture_output=True, text=True)
            if ended.returncode:
                sys.exit(f"{name}: {ended.stderr}")
            figures = json.loads(ended.stdout.splitlines()[-1])
            line = {"name": name, "round": number, "load_average": round(load, 2), **figures}
            with RESULTS.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), file=sys.stderr, flush=True)


def results() -> list[Figures]:
    """Read what was measured."""
    return [json.loads(x) for x in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def main() -> None:
    """Measure and write the page; or make one measurement."""
    from puda.machine import keep_freed_memory

    if sys.argv[1:2] == ["one"]:
        if sys.argv[2].startswith(("puda", "openbiolink")) or "memory kept" in sys.argv[2]:
            keep_freed_memory()  # as the commands of puda do; else the peers run as they are
        print(json.dumps(MEASUREMENTS[sys.argv[2]][0]()))
        return
    if sys.argv[1:2] != ["page"]:
        measure()
    import speed_page

    speed_page.write(results(), DOCS)


if __name__ == "__main__":
    main()
