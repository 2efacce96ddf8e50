"""The whole report on a model: sides, ties, intervals, breakdowns, baselines."""

from collections.abc import Sequence

import numpy as np

from puda.data.categories import relation_categories
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.evaluation.baselines import BASELINES
from puda.evaluation.classification import classify
from puda.evaluation.metrics import Metrics, describe, measure, select
from puda.evaluation.ranking import Ranks, Scorer, rank

DEGREES = (0, 1, 4, 16, 64, 256)
"""Lower ends of the buckets of an answer's number of training facts."""


def evaluate(
    graph: KnowledgeGraph,
    score: Scorer,
    *,
    split: str = "test",
    alone: Sequence[Scorer] = (),
    memory: int | None = None,
) -> Metrics:
    """Measure a scorer on one split, filtered by all that is known up to it.

    Validation is filtered by train and valid, test by all three: no test fact helps to choose.
    `alone` are the members of an ensemble, whose own MRR is told beside its. `memory` is that of
    puda.evaluation.ranking.rank.
    """
    known = graph.known(*(("train", "valid") if split == "valid" else SPLITS))
    facts = graph.facts(split)
    ranks = rank(score, facts, known, memory=memory)
    report = measure(ranks, intervals=True)
    report["baselines"] = {
        name: measure(rank(baseline(graph), facts, known, memory=memory))
        for name, baseline in BASELINES.items()
    }
    if len(facts) and alone:
        sides = [measure(rank(member, facts, known, memory=memory)) for member in alone]
        report["members"] = {"mrr": [member["both"]["mrr"] for member in sides]}
    if len(facts) and len(graph.negatives.get(split, ())):
        report["classification"] = classify(score, facts, graph.negatives[split])
    report["relations"] = _by(facts[:, 1], ranks, graph.relations.labels)
    categories = np.array(relation_categories(graph.train, graph.num_relations))
    names, category = np.unique(categories, return_inverse=True)
    report["categories"] = _by(category[facts[:, 1]], ranks, list(names))
    report["degrees"] = _by_degree(graph, facts, ranks)
    return report


def _by(group: np.ndarray, ranks: Ranks, names: list[str]) -> Metrics:
    """Measure each group of facts (n,) apart."""
    return {names[g]: measure(select(ranks, group == g)) for g in np.unique(group)}


def _by_degree(graph: KnowledgeGraph, facts: np.ndarray, ranks: Ranks) -> Metrics:
    """Measure by how many training facts the answer has; both sides pooled."""
    degree = np.bincount(graph.train[:, [0, 2]].ravel(), minlength=graph.num_entities)
    answers = facts[:, [2, 0]]  # (n, 2) of tail and head questions
    bucket = np.searchsorted(DEGREES, degree[answers], side="right") - 1
    ends = [*(str(d - 1) for d in DEGREES[1:]), ""]
    report: Metrics = {}
    for b in np.unique(bucket):
        name = f"{DEGREES[b]}-{ends[b]}" if str(DEGREES[b]) != ends[b] else ends[b]
        report[name] = {"both": describe(select(ranks, bucket == b))}
    return report
