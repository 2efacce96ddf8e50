"""Known facts that the rest of the graph speaks against: candidates for errors."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from puda.config import Config
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.errors import PudaError
from puda.evaluation.ranking import rank
from puda.runs import RunFolder
from puda.training.trainer import train

Listener = Callable[[Mapping[str, Any]], None]


def audit(
    folder: RunFolder, *, folds: int = 5, listener: Listener = lambda event: None
) -> pl.DataFrame:
    """Rank all known facts of a run from the least plausible on.

    Facts are dealt into folds at random. For each fold a model is trained on the others, with the
    run's settings and as many epochs as gave its best weights, and ranks the fold's facts: none
    vouches for itself. Columns: head, relation, tail, split, tail_rank and head_rank (filtered,
    among all entities), and `doubt`, the logarithm of the better rank over that of a last place: 0
    where one of both questions has the fact first, 1 where both have it last. A fact is not judged,
    and stands at the end without doubt, if the other folds say nothing of its head or its tail:
    what nothing is known of is not implausible.
    """
    if folds < 2:
        raise PudaError(f"folds = {folds}: a fact is judged by the others, so there must be two")
    config, graph = _settings(folder), folder.load_graph()
    facts = np.concatenate([graph.facts(split) for split in SPLITS])
    fold = np.random.default_rng(config.training.seed).permutation(len(facts)) % folds
    ranks, judged = np.empty((len(facts), 2)), np.empty(len(facts), dtype=bool)
    known = graph.known(*SPLITS)
    for k in range(folds):
        rest = replace(graph, train=facts[fold != k], valid=facts[:0], test=facts[:0])
        with TemporaryDirectory() as path:
            trained = train(rest, config, Path(path) / "fold").load()
        own = facts[fold == k]
        ranks[fold == k] = rank(trained.score, own, known).realistic
        judged[fold == k] = np.isin(own[:, [0, 2]], rest.train[:, [0, 2]]).all(1)
        listener({"event": "fold", "done": k + 1, "of": folds})
    return _table(graph, facts, ranks, judged)


def _settings(folder: RunFolder) -> Config:
    """Return the run's settings with the epochs that gave its best weights as the budget."""
    ends = [event for event in folder.trace() if event["event"] == "stop"]
    if folder.resumable or not ends:
        raise PudaError(f"{folder.path} is not finished: puda resume it first")
    epochs = max(ends[-1]["best"]["epoch"], 1)
    return folder.load_config().with_settings(
        ["training.minutes=none", f"training.epochs={epochs}", "training.patience=0"]
    )


def _table(
    graph: KnowledgeGraph, facts: np.ndarray, ranks: np.ndarray, judged: np.ndarray
) -> pl.DataFrame:
    entities, relations = (
        np.array(v.labels, dtype=object) for v in (graph.entities, graph.relations)
    )
    sizes = [len(graph.facts(split)) for split in SPLITS]
    doubt = np.log(ranks).min(1) / max(np.log(graph.num_entities), 1e-9)
    return pl.DataFrame(
        {
            "head": entities[facts[:, 0]],
            "relation": relations[facts[:, 1]],
            "tail": entities[facts[:, 2]],
            "split": np.repeat(SPLITS, sizes),
            "doubt": pl.Series(np.where(judged, doubt, np.nan)).fill_nan(None),
            "tail_rank": ranks[:, 0],
            "head_rank": ranks[:, 1],
        }
    ).sort(
        "doubt",
        "head",
        "relation",
        "tail",
        descending=[True, False, False, False],
        nulls_last=True,
    )
