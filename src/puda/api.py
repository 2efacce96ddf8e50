"""The few verbs: load, train, open_run, resume; and of a run, evaluate, predict, complete ..."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from puda.audit import audit
from puda.calibrate import FEWEST, Calibration, calibrate
from puda.complete import complete
from puda.config import Config
from puda.data.files import read_facts
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.data.source import load as load_source
from puda.errors import ConfigError
from puda.evaluation.metrics import Metrics
from puda.evaluation.report import evaluate
from puda.explain import Explanation, explain
from puda.fold_in import fold_in
from puda.machine import keep_freed_memory
from puda.predict import predict
from puda.runs import MEMBERS, RunFolder, Trained
from puda.training import trainer
from puda.training.trainer import Listener
from puda.types import Prediction


class Run:
    """A trained model in its folder."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    @property
    def path(self) -> Path:
        """Folder of the run."""
        return self.folder.path

    @cached_property
    def trained(self) -> Trained:
        """Config, graph, scoring function and entity table."""
        return self.folder.load()

    def evaluate(self, split: str = "test", *, memory: int | None = None) -> Metrics:
        """Measure on a split: {split: {"tail": {"mrr": ...}, "head": ..., "both": ..., ...}}.

        Scores take up to `memory` megabytes at a time; default: as the run's config says.
        """
        trained = self.trained
        room = trained.config.training.memory if memory is None else memory
        alone = [member.load().score for member in self.folder.members]
        graph = trained.graph
        return {split: evaluate(graph, trained.score, split=split, alone=alone, memory=room)}

    def predict(
        self,
        *,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        k: int = 10,
        include_known: bool = False,
    ) -> list[Prediction]:
        """Complete a fact of which two parts are given; the k most plausible, best first."""
        return predict(
            self.trained,
            head=head,
            relation=relation,
            tail=tail,
            k=k,
            include_known=include_known,
            calibration=self.calibration,
        )

    @cached_property
    def calibration(self) -> Calibration | None:
        """How scores become probabilities; None for a run that is not calibrated."""
        return Calibration.load(self.folder)

    def promise(
        self, *, head: str | None = None, relation: str | None = None, tail: str | None = None
    ) -> float | None:
        """Return how many first answers hold the true one with 90 %; None: that is not known."""
        if self.calibration is None or relation is None or (head and tail):
            return None
        sizes = self.calibration.answers[self.trained.graph.relations.find(relation)]
        return sizes[0 if tail is None else 1]

    def calibrate(self) -> Calibration:
        """Fit probabilities to the validation facts and keep them with the run."""
        self.calibration = calibrate(self.trained)
        self.calibration.save(self.folder)
        return self.calibration

    def complete(
        self,
        out: str | Path | None = None,
        *,
        top: int | None = None,
        per_relation: int | None = None,
        minimum: float | None = None,
        relations: Sequence[str] | None = None,
        pruned: bool = True,
        memory: int | None = None,
        listener: Listener = lambda event: None,
    ) -> pl.DataFrame:
        """Find the most plausible missing facts of the whole graph; see puda.complete.complete."""
        return complete(
            self.trained,
            out,
            top=top,
            per_relation=per_relation,
            minimum=minimum,
            relations=relations,
            pruned=pruned,
            calibration=self.calibration,
            memory=memory,
            listener=listener,
        )

    def embeddings(self) -> pl.DataFrame:
        """Return what each entity is to the model: entity, facts (how many it has), vector.

        Rows as they are matched: a graph encoder's output, a bias as the last number.
        """
        graph, rows = self.trained.graph, self.trained.rows
        ends = np.concatenate([graph.facts(split)[:, [0, 2]].ravel() for split in SPLITS])
        return pl.DataFrame(
            {
                "entity": graph.entities.labels,
                "facts": np.bincount(ends, minlength=graph.num_entities),
                "vector": pl.Series(rows.numpy(), dtype=pl.Array(pl.Float32, rows.shape[1])),
            }
        )

    def explain(self, head: str, relation: str, tail: str, *, k: int = 5) -> Explanation:
        """Say what speaks for a fact: rules, facts like it, what it was learned from."""
        return explain(self.trained, head, relation, tail, k=k)

    def audit(self, *, folds: int = 5, listener: Listener = lambda event: None) -> pl.DataFrame:
        """List all known facts, those that the rest of the graph speaks against first."""
        return audit(self.folder, folds=folds, listener=listener)  # of an ensemble, as its first

    def add_facts(self, facts: object, out: str | Path) -> "Run":
        """Fold facts in, new entities too, without retraining; the result is a new run in `out`.

        `facts` is what `load` takes. Only the rows of new entities are learned; of an ensemble, by
        each member.
        """
        for member in self.folder.members:
            Run(member).add_facts(facts, Path(out) / MEMBERS / member.path.name)
        if self.folder.members:
            return Run(RunFolder(out))
        folded = fold_in(self.trained, read_facts(facts)[0])
        folder = RunFolder(out)
        folder.create(folded.config, folded.graph)
        folder.save_model(folded.model, folded.entities)
        return Run(folder)

    @property
    def metrics(self) -> Metrics:
        """What was measured when training ended; empty if it has not."""
        return self.folder.load_metrics()


def load(
    source: object,
    *,
    columns: Mapping[str, str] | None = None,
    valid: float = 0.05,
    test: float = 0.05,
    seed: int = 0,
) -> KnowledgeGraph:
    """Load a graph from a file, a folder, a data set's name, a frame or a list of triples."""
    return load_source(source, columns=columns, valid=valid, test=test, seed=seed).graph


def train(
    source: object,
    out: str | Path,
    *,
    config: Config | Mapping[str, Any] | None = None,
    seeds: int = 1,
    listener: Listener = lambda event: None,
) -> Run:
    """Train on a source and keep the run in the new folder `out`.

    `config` may be nested values such as {"training": {"epochs": 20}}; the rest are defaults. With
    several `seeds`, as many models are trained one after the other, and predict together.
    """
    if seeds < 1:
        raise ConfigError(f"seeds = {seeds}: train at least one model")
    keep_freed_memory()
    settings = config if isinstance(config, Config) else Config.of(config or {})
    held_out = settings.data
    graph = load(source, valid=held_out.valid, test=held_out.test, seed=held_out.seed)
    if seeds == 1:
        return _completed(Run(trainer.train(graph, settings, out, listener=listener)))
    RunFolder(out).create_ensemble(settings, graph, seeds)
    return resume(out, listener=listener)


def resume(path: str | Path, *, listener: Listener = lambda event: None) -> Run:
    """Go on with an interrupted run; a finished one is left as it is."""
    keep_freed_memory()
    folder = RunFolder(path)
    for part in folder.members or [folder]:
        trainer.resume(part.path, listener=listener)
        if part.resumable:  # the user has stopped it
            break
    return _completed(Run(folder))


def open_run(path: str | Path) -> Run:
    """Open a run folder; damage is told at once."""
    keep_freed_memory()
    run = Run(RunFolder(path))
    _ = run.trained
    return run


def _completed(run: Run) -> Run:
    """Measure a finished run once, and write metrics and card."""
    if run.folder.resumable or run.metrics:
        return run
    graph = run.trained.graph
    metrics: Metrics = {}
    for split in ("valid", "test"):
        if len(graph.facts(split)):
            metrics |= run.evaluate(split)
    if len(graph.valid) >= FEWEST:
        run.calibrate()
    run.folder.write_text("metrics.json", json.dumps(metrics, indent=1))
    run.folder.write_text("card.md", _card(run, metrics))
    return run


def _card(run: Run, metrics: Metrics) -> str:
    graph, config = run.trained.graph, run.trained.config
    lines = [
        f"# {config.scoring.name} trained by {config.objective.name} on {graph.name}"
        + (f", {len(run.folder.members)} seeds" if run.folder.members else ""),
        "",
        f"{graph.num_entities:,} entities, {graph.num_relations:,} relations, "
        f"{len(graph.train):,} training facts. Data SHA-256 `{graph.fingerprint}`.",
        "",
        "| split | side | MRR | Hits@1 | Hits@3 | Hits@10 | AMRI |",
        "|---|---|---|---|---|---|---|",
    ]
    for split, report in metrics.items():
        for side in ("tail", "head", "both"):
            m = report[side]
            figures = (m["mrr"], m["hits@1"], m["hits@3"], m["hits@10"], m["amri"])
            lines.append(f"| {split} | {side} | " + " | ".join(f"{x:.3f}" for x in figures) + " |")
    lines += [
        "",
        "Filtered ranks over all entities, ties at their mean rank. `metrics.json` has the rest,"
        " `config.toml` every setting, `trace.jsonl` the course of training.",
        "",
    ]
    return "\n".join(lines)
