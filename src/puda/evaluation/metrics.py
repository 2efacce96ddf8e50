"""From ranks to the figures of a report."""

from typing import Any

import numpy as np

from puda.evaluation.ranking import Ranks

HITS = (1, 3, 10)
SIDES: dict[str, list[int]] = {"tail": [0], "head": [1], "both": [0, 1]}
Metrics = dict[str, Any]


def summarize(ranks: np.ndarray) -> Metrics:
    """Return MRR, mean rank and Hits@k of some ranks."""
    hits = {f"hits@{k}": float(np.mean(ranks <= k)) for k in HITS}
    return {"mrr": float(np.mean(1 / ranks)), "mr": float(np.mean(ranks)), **hits}


def adjusted_mean_rank_index(ranks: np.ndarray, candidates: np.ndarray) -> float:
    """AMRI (Berrendorf et al. 2020): 1 is perfect, 0 is what chance gives."""
    by_chance = float(np.mean((candidates - 1) / 2))
    return 1 - (float(np.mean(ranks)) - 1) / by_chance if by_chance else 1.0


def interval(ranks: np.ndarray, *, draws: int = 1000, seed: int = 0) -> list[float]:
    """Bootstrap the 95 % interval of the MRR over facts (n, sides), with 1,000 resamplings.

    A fact's questions stay together. Resampled counts are Poisson(1), close to multinomial.
    """
    value = (1 / ranks).mean(axis=1)  # (n,)
    rng = np.random.default_rng(seed)
    means = np.empty(draws)
    for k in range(draws):
        weight = rng.poisson(1.0, len(value))
        means[k] = weight @ value / weight.sum() if weight.any() else value.mean()
    low, high = np.quantile(means, [0.025, 0.975])
    return [float(low), float(high)]


def describe(ranks: Ranks) -> Metrics:
    """Return the metrics of some questions: ties at their mean rank, the other readings beside."""
    return {
        "count": ranks.greater.size,
        **summarize(ranks.realistic),
        "amri": adjusted_mean_rank_index(ranks.realistic, ranks.candidates),
        "optimistic": summarize(ranks.optimistic),
        "pessimistic": summarize(ranks.pessimistic),
    }


def measure(ranks: Ranks, *, intervals: bool = False) -> Metrics:
    """Return the metrics of tail, head and both sides; empty where there is no fact."""
    if not len(ranks.greater):
        return {}
    report: Metrics = {}
    for side, columns in SIDES.items():
        report[side] = describe(select(ranks, np.s_[:, columns]))
        if intervals:
            report[side]["mrr_interval"] = interval(ranks.realistic[:, columns])
    return report


def select(ranks: Ranks, index: Any) -> Ranks:
    """Return the ranks of some facts, or of one side."""
    return Ranks(*(column[index] for column in ranks))
