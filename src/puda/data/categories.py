"""Kinds of relations by how many heads a tail has, and how many tails a head."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from puda.types import Facts

FACT = ["head", "relation", "tail"]
MANY = 1.5  # mean answers per question from which a side counts as N (Bordes et al. 2013)

Floats = NDArray[np.float64]


def relation_categories(facts: Facts, num_relations: int) -> list[str]:
    """Classify each relation as "1-1", "1-N", "N-1" or "N-N", or "none" if it has no facts.

    The left side is N if a tail has on average at least 1.5 heads under the relation, the right
    side if a head has on average at least 1.5 tails. `facts` (n, 3); a repeated fact counts once.
    """
    distinct = pl.DataFrame(facts, schema=dict.fromkeys(FACT, pl.Int64), orient="row").unique()
    heads_per_tail, _ = fan_out(distinct, "tail", num_relations)
    tails_per_head, _ = fan_out(distinct, "head", num_relations)
    return categorize(heads_per_tail, tails_per_head)


def fan_out(facts: pl.DataFrame, anchor: str, num_relations: int) -> tuple[Floats, Floats]:
    """Return per relation the mean answers of an anchor and the share of anchors with just one."""
    groups = facts.group_by("relation", anchor).len()
    relation, answers = groups["relation"].to_numpy(), groups["len"].to_numpy()
    anchors = np.maximum(np.bincount(relation, minlength=num_relations), 1)
    mean = np.bincount(relation, weights=answers, minlength=num_relations) / anchors
    single = np.bincount(relation, weights=answers == 1, minlength=num_relations) / anchors
    return mean, single


def categorize(heads_per_tail: Floats, tails_per_head: Floats) -> list[str]:
    """Name each relation by its mean heads per tail and tails per head (R,)."""
    return [
        f"{'N' if heads >= MANY else '1'}-{'N' if tails >= MANY else '1'}" if heads else "none"
        for heads, tails in zip(heads_per_tail, tails_per_head, strict=True)
    ]
