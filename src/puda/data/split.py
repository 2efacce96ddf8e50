"""Holding out facts for validation and test so that the measure is fair."""

from typing import NamedTuple

import numpy as np

from puda.errors import DataError
from puda.types import Facts, Ids


class Split(NamedTuple):
    """Row numbers of each part."""

    train: Ids
    valid: Ids
    test: Ids


def _first(values: Ids) -> Ids:
    """Return the row of each value's first occurrence."""
    return np.unique(values, return_index=True)[1]


def split(facts: Facts, *, valid: float = 0.05, test: float = 0.05, seed: int = 0) -> Split:
    """Hold out shares of the facts (n, 3), by three rules.

    - Every entity and relation of the held-out parts also occurs in train: one fact of each,
      chosen at random, must stay.
    - Facts over the same two entities go together, in whichever direction and by whichever
      relation, so that no duplicate or mirror-inverse of a held-out fact is in train.
    - Each relation gives its share, as far as the first two rules let it.

    A share may come out smaller where the graph is too sparse to give more.
    """
    if not (valid >= 0 and test >= 0 and valid + test < 1):  # so that NaN fails too
        raise DataError(f"cannot hold out valid={valid} and test={test}: shares lie in [0, 1)")
    order = np.random.default_rng(seed).permutation(len(facts))
    head, relation, tail = facts[order].T
    pair = np.minimum(head, tail) * (facts[:, [0, 2]].max(initial=0) + 1) + np.maximum(head, tail)
    _, group = np.unique(pair, return_inverse=True)

    ends = np.stack([head, tail], axis=1).ravel()
    stays = np.zeros(group.max(initial=-1) + 1, dtype=bool)
    stays[group[_first(ends) // 2]] = True  # an entity's first fact, and its group with it
    stays[group[_first(relation)]] = True

    # A group is asked for by the relation of its first fact; its turn within that relation decides.
    leader = _first(group)
    asker = relation[leader]
    free = np.flatnonzero(~stays)
    free = free[np.lexsort((leader[free], asker[free]))]
    sizes = np.bincount(group)[free]
    before = np.cumsum(sizes) - sizes
    starts = _first(asker[free])
    within = before - np.repeat(before[starts], np.diff(np.append(starts, len(free))))

    per_relation = np.bincount(relation)[asker[free]]
    chance = np.random.default_rng([seed, 1]).random(np.bincount(relation).shape)[asker[free]]
    # Small relations give a fact with the probability of their share, so that none is always
    # rounded away: floor(quota + chance) has the quota as its mean.
    test_quota = np.floor(test * per_relation + chance)
    valid_quota = np.floor((test + valid) * per_relation + chance)
    part = np.zeros(len(stays), dtype=np.int8)
    part[free[within < valid_quota]] = 1
    part[free[within < test_quota]] = 2
    part_of_fact = part[group]
    parts = [np.sort(order[part_of_fact == k]) for k in range(3)]
    return Split(*parts)
