"""Reproducing the paper's tables: run what experiment files ask for and record what came out."""

import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from puda import __version__
from puda.config import Config
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.data.source import load
from puda.errors import DataError, RunError
from puda.evaluation.classification import classify
from puda.evaluation.metrics import Metrics, measure
from puda.evaluation.ranking import Scorer, rank
from puda.experiments import ExperimentFile, Figures, Measured, Trial
from puda.machine import keep_freed_memory
from puda.runs import RunFolder
from puda.training import trainer
from puda.training.trainer import Listener

Watch = Callable[[Config], AbstractContextManager[Listener]]
"""From a run's settings to a listener of its events, e.g. a progress bar."""


def reproduce(
    files: Iterable[ExperimentFile],
    runs: Path,
    *,
    seeds: int | None = None,
    minutes: float | None = None,
    watch: Watch,
    tell: Callable[[str], None],
) -> None:
    """Run the trials that are not measured yet; each is recorded as soon as it ends.

    A run that was interrupted goes on from its folder below `runs`.
    """
    keep_freed_memory()
    for file in files:
        for trial in file.trials(seeds=seeds, minutes=minutes):
            if file.is_done(trial):
                continue
            tell(f"{trial.name}: {file.experiment.row}")
            try:
                measured = run(trial, runs, watch)
            except DataError as error:  # a data set that is not here must not keep others waiting
                tell(f"{trial.name}: not run: {error}")
                break
            file.record(measured)
            tell(
                f"{trial.name}: test MRR {measured.tail['mrr']:.3f} tail, "
                f"{measured.head['mrr']:.3f} head, {measured.both['mrr']:.3f} both"
                f" ({measured.seconds:.0f} s)"
            )


def run(trial: Trial, runs: Path, watch: Watch) -> Measured:
    """Train, or go on training, and measure."""
    graph = _graph(trial)
    _, hidden = hide(graph, trial.hide, seed=trial.config.data.seed)
    parts = _members(trial)
    folders = [train(part, runs, watch) for part in parts or [trial]]
    score = _mean([folder.load().score for folder in folders])
    traces = [folder.trace() for folder in folders]
    ends = [events[-1] for events in traces]
    checks = [e for e in traces[0] if e["event"] == "validation" and e["mrr"] and not parts]
    test = _ranked(score, graph, "test")
    return Measured(
        settings=trial.source.digest,
        value=trial.value,
        seed=trial.config.training.seed,
        minutes=trial.config.training.minutes,
        seconds=round(sum(end["seconds"] for end in ends), 1),
        threads=max(events[0]["threads"] for events in traces),
        epochs=max(end["epoch"] for end in ends),
        best_epoch=max(end["best"]["epoch"] for end in ends),
        version=_version(),
        valid=_figures(_ranked(score, graph, "valid")["both"]),
        tail=_figures(test["tail"]),
        head=_figures(test["head"]),
        both=_figures(test["both"]),
        hidden=_hidden(score, graph, hidden),
        classified=_classified(score, graph),
        curve=tuple((round(e["seconds"], 1), round(e["mrr"]["both"], 5)) for e in checks),
    )


def train(trial: Trial, runs: Path, watch: Watch) -> RunFolder:
    """Train, or go on training, to the end."""
    config = trial.config
    if trial.source.experiment.start is not None:
        first = train(_of_seed(trial.source.start, config.training.seed), runs, watch)
        config = config.with_settings([f"scoring.start={first.path}"])
    kept, _ = hide(_graph(trial), trial.hide, seed=config.data.seed)
    folder = RunFolder(runs / trial.name.replace(" ", "-"))
    if not _is_of(folder, config, kept):
        shutil.rmtree(folder.path, ignore_errors=True)
    if not folder.path.exists() or folder.resumable:
        with watch(config) as listener:
            if folder.path.exists():
                trainer.resume(folder.path, listener=listener)
            else:
                trainer.train(kept, config, folder.path, listener=listener)
    if folder.resumable:
        raise KeyboardInterrupt  # the trainer has kept its state
    return folder


def _graph(trial: Trial) -> KnowledgeGraph:
    held_out = trial.config.data
    graph = load(
        trial.source.dataset, valid=held_out.valid, test=held_out.test, seed=held_out.seed
    ).graph
    for split in ("valid", "test"):
        if not len(graph.facts(split)):
            raise DataError(f"{graph.name} has no {split} facts to measure on")
    return graph


def _members(trial: Trial) -> list[Trial]:
    """Return the runs that are measured as one; one listed n times has n seeds of its own."""
    files, seed = trial.source.members, trial.config.training.seed
    names = [file.name for file in files]
    return [
        _of_seed(file, names.count(file.name) * seed + names[:place].count(file.name))
        for place, file in enumerate(files)
    ]


def _of_seed(file: ExperimentFile, seed: int) -> Trial:
    """Return a file's last trial of a seed."""
    *_, trial = file.trials(seeds=seed + 1)
    return trial


def hide(graph: KnowledgeGraph, share: float, *, seed: int) -> tuple[KnowledgeGraph, np.ndarray]:
    """Take a share of the training facts away at random; returns the rest and the facts taken."""
    order = np.random.default_rng(seed).permutation(len(graph.train))
    number = round(share * len(order))
    kept, hidden = np.sort(order[number:]), np.sort(order[:number])
    return replace(graph, train=graph.train[kept]), graph.train[hidden]


def _is_of(folder: RunFolder, config: Config, graph: KnowledgeGraph) -> bool:
    """Whether a folder holds a run of these settings on these facts, not what was before."""
    try:
        return (
            folder.load_config() == config and folder.load_graph().fingerprint == graph.fingerprint
        )
    except RunError:
        return False


def _mean(scores: Sequence[Scorer]) -> Scorer:
    """Take several models as one, whose score is the mean of theirs."""
    return lambda questions: torch.stack([score(questions) for score in scores]).mean(0)


def _ranked(score: Scorer, graph: KnowledgeGraph, split: str) -> Metrics:
    known = graph.known(*(("train", "valid") if split == "valid" else SPLITS))
    return measure(rank(score, graph.facts(split), known))


def _hidden(score: Scorer, graph: KnowledgeGraph, hidden: np.ndarray) -> Figures:
    """Rank hidden facts; `below` is how often a random non-fact stands above one of them.

    That share is exact, not sampled: (mean rank - 1) / (mean number of non-facts) = (1 - AMRI) / 2.
    """
    if not len(hidden):
        return {}
    both = measure(rank(score, hidden, graph.known(*SPLITS)))["both"]
    return {**_figures(both), "below": round((1 - both["amri"]) / 2, 5)}


def _classified(score: Scorer, graph: KnowledgeGraph) -> Figures:
    if not len(graph.negatives.get("test", ())):
        return {}
    return _figures(classify(score, graph.test, graph.negatives["test"]))


def _figures(metrics: dict[str, Any]) -> Figures:
    kept = {k: v for k, v in metrics.items() if isinstance(v, float)}
    return {k: round(v, 5) for k, v in kept.items()}


def _version() -> str:
    """Return puda's version and, in a checkout, the commit."""
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return f"{__version__}+{said.stdout.strip()}"
