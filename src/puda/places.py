"""Where facts stand: their scores, and their places among rivals on both sides."""

import itertools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from puda import native
from puda.data.index import KnownAnswers, ranges
from puda.errors import Diverged
from puda.evaluation.calibration import Floats
from puda.runs import Trained
from puda.types import Facts, Ids, Questions, Side

TILE = 2_000_000  # floats of rows and of scores that are compared at a time

Scored = NDArray[np.floating[Any]]
"""Scores in the precision of their model."""


@torch.no_grad()
def fact_scores(trained: Trained, facts: Facts, *, block: int = 65_536) -> Floats:
    """Score facts (n, 3): the mean of their scores as answers to both questions (n,)."""
    parts = [torch.empty(0, dtype=torch.double)]
    for start in range(0, len(facts), block):
        questions, answers = Questions.both(torch.tensor(facts[start : start + block]))
        rows = trained.rows.index_select(0, answers).unsqueeze(1)
        scores = trained.model.match(trained.model.ask(questions, trained.rows), rows)
        parts.append(scores.view(2, -1).mean(0).double())
    return torch.cat(parts).numpy()


def places(
    trained: Trained, facts: Facts, known: KnownAnswers, given: Floats | None = None
) -> Floats:
    """Rank facts (n, 3) as answers to their tail and head questions, among those that come near.

    These are the entities that are known to answer some question of the relation and side: others
    would make a fact's place among its like harder to see, and take longer. Known answers of the
    question itself are left out, equals stand at their mean. (n, 2), 1 is first. What is `given`
    (n, 2) and not NaN is taken as it is.
    """
    found = np.full((len(facts), 2), np.nan) if given is None else given.copy()
    fact, side = np.nonzero(np.isnan(found))
    if not len(fact):
        return found
    keys = known.key(facts[fact, np.where(side == Side.TAIL, 0, 2)], facts[fact, 1], side)
    order = np.argsort(keys, kind="stable")  # rows of candidates are taken once for all alike
    fact, side, keys = fact[order], side[order], keys[order]
    fresh = np.diff(keys, prepend=-1) > 0  # an equal question is scored once
    floats = np.cumsum(fresh * (known.seen(facts[fact, 1], side)[1] + trained.rows.shape[1]))
    for block in np.split(np.arange(len(fact)), np.flatnonzero(np.diff(floats // TILE)) + 1):
        here = fact[block], side[block]
        found[here] = _places_on(trained, facts[here[0]], here[1], known)
    return found


@torch.no_grad()
def _places_on(trained: Trained, facts: Facts, side: Ids, known: KnownAnswers) -> Floats:
    """Rank facts (n, 3) each on one side (n,): (n,). Rows of scores lie one behind the other."""
    model, rows = trained.model, trained.rows
    head, relation, tail = facts.T
    anchor, answer = np.where(side == Side.TAIL, (head, tail), (tail, head))
    keys, first, owner = np.unique(
        known.key(anchor, relation, side), return_index=True, return_inverse=True
    )
    questions = (torch.from_numpy(part[first]) for part in (anchor, relation, side))
    vectors = model.ask(Questions(*questions), rows)  # (U, ...)
    start, width = known.seen(relation[first], side[first])
    begin = np.cumsum(width) - width  # (U,) of each question's row
    kinds = np.append(np.unique(keys // known.num_entities, return_index=True)[1], len(keys))
    parts = [rows.new_empty(0)]
    for i, stop in itertools.pairwise(kinds.tolist()):
        near = known.keys[start[i] : start[i] + width[i]] % known.num_entities  # (C,)
        scored = model.match_among(vectors[i:stop], rows, torch.from_numpy(near))
        parts.append(scored.flatten())  # (C of each question,)
    scores = torch.cat(parts).numpy()

    back = known.key(answer, relation, 1 - side)  # the question that the fact's anchor answers
    inside = known.count(back) > 0
    own = (begin - start)[owner] + np.searchsorted(known.keys, back)  # its own score, if inside
    # From the same product as its rivals' scores, so that ties are ties.
    value = np.empty(len(facts), dtype=scores.dtype)
    value[inside] = scores[own[inside]]
    if not inside.all():
        asked, offered = (torch.from_numpy(ids[~inside]) for ids in (owner, answer))
        alone = rows.index_select(0, offered).unsqueeze(1)
        value[~inside] = model.match(vectors.index_select(0, asked), alone).squeeze(1).numpy()
    if not (np.isfinite(scores).all() and np.isfinite(value).all()):
        raise Diverged("a score is not finite: this run has no probabilities, train it anew")

    row, entity = known.exclude(keys)
    back = known.key(entity, relation[first][row], 1 - side[first][row])
    scores[(begin - start)[row] + np.searchsorted(known.keys, back)] = -np.inf
    found = 1 + _ahead(scores, begin[owner], width[owner], value)
    found[inside] -= np.isfinite(scores[own[inside]]) / 2  # no one is their own rival
    return found


def _ahead(values: Scored, begin: Ids, length: Ids, own: Scored) -> Floats:
    """Count in the stretch of each item (n,) the values before its own, equals as half: (n,)."""
    if native.library is not None and values.dtype == own.dtype == np.float32:
        return native.ahead(values, begin, length, own)
    item = np.repeat(np.arange(len(own)), length)
    before = np.heaviside(values[ranges(begin, length)] - own[item], 0.5)
    return np.bincount(item, weights=before, minlength=len(own)).astype(np.float64)
