"""Pairs that are no known facts, drawn so that those which come near being one are not missed."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from puda.evaluation.calibration import Floats
from puda.places import places
from puda.runs import Trained
from puda.types import Facts, Ids, Questions, Side

NEAR = 10  # first places of a question, all of which are drawn
FAR = 10  # others that are drawn
TILE = 2_000_000  # scores of one draw, but at least those of a question


class Pairs(NamedTuple):
    """What was drawn, known facts of training and validation left out."""

    facts: Facts  # (n, 3)
    places: Floats  # (n, 2), see puda.places
    number: Floats  # (n,) of pairs that each of them stands for


def draw_pairs(trained: Trained, *, size: int, seed: int) -> Pairs:
    """Draw about `size` pairs of candidates, more of relations that have more facts.

    Of a million pairs a few dozen look like facts, and it is these that probabilities are about:
    a uniform draw would miss them. So questions are drawn, and of each its first places and some of
    its other candidates. A pair can come from its tail and from its head question; it stands for
    1 / (chance + chance) pairs (the balance heuristic of Veach and Guibas, 1995).
    """
    graph, rng = trained.graph, np.random.default_rng(seed)
    known = graph.known("train")
    many = np.sqrt(np.bincount(graph.train[:, 1], minlength=graph.num_relations))
    asked, candidates = np.zeros((2, 2, len(many)))  # the share of questions; how many they have
    drawn = [graph.train[:0]]
    for relation in np.flatnonzero(many).tolist():
        share = size * many[relation] / many.sum()
        fit = [np.flatnonzero(known.candidates(relation, side)) for side in (0, 1)]  # tails, heads
        for side in Side:
            number = min(len(fit[1 - side]), int(np.ceil(share / 2 / (NEAR + FAR))))
            anchors = rng.choice(fit[1 - side], number, replace=False)
            blocks = -(-number * len(fit[side]) // TILE)
            for some in np.array_split(anchors, max(1, blocks)):
                drawn.append(_draw(trained, some, relation, side, fit[side], rng))
            asked[side, relation] = number / len(fit[1 - side])
            candidates[side, relation] = len(fit[side])
    facts = np.concatenate(drawn)
    head, relation, tail = facts.T
    found, chance = places(trained, facts, known), np.zeros(len(facts))
    for side, anchor, answer in ((Side.TAIL, head, tail), (Side.HEAD, tail, head)):
        seen = known.count(known.key(answer, relation, 1 - side)) > 0
        answers = graph.known("train", "valid").count(known.key(anchor, relation, side))
        others = candidates[side, relation] - answers - NEAR
        near = seen & (found[:, side] <= NEAR)
        chance += asked[side, relation] * np.where(near, 1, FAR / np.maximum(others, FAR))
    return Pairs(facts, found, 1 / chance)


@torch.no_grad()
def _draw(
    trained: Trained, anchors: Ids, relation: int, side: Side, fit: Ids, rng: np.random.Generator
) -> Facts:
    """Draw answers among the candidates `fit` (C,); only those that answer elsewhere are near."""
    graph, rows, known = trained.graph, trained.rows, trained.graph.known("train")
    asked = [torch.from_numpy(anchors), *(torch.full((len(anchors),), x) for x in (relation, side))]
    vectors = trained.model.ask(Questions(*asked), rows)
    scores = trained.model.match_among(vectors, rows, torch.from_numpy(fit)).numpy()
    column = np.full(graph.num_entities, -1)
    column[fit] = np.arange(len(fit))
    start, width = known.seen(np.array(relation), int(side))
    rivals = np.zeros(scores.shape, dtype=bool)  # (Q, C), as puda.places has them
    rivals[:, column[known.keys[start : start + width] % graph.num_entities]] = True
    fresh = np.ones(scores.shape, dtype=bool)
    keys = known.key(anchors, np.array(relation), int(side))
    for marks, index in ((rivals, known), (fresh, graph.known("train", "valid"))):
        row, answer = index.exclude(keys)
        inside = column[answer] >= 0
        marks[row[inside], column[answer[inside]]] = False
    if relation not in graph.reflexive:
        fresh &= fit != anchors[:, None]
    near = _least(np.where(rivals, -scores, np.inf), NEAR) & fresh
    far = _least(np.where(fresh & ~near, rng.random(scores.shape), np.inf), FAR)
    question, chosen = np.nonzero(near | far)
    facts = np.full((len(chosen), 3), relation)
    facts[:, 2 * side], facts[:, 2 - 2 * side] = anchors[question], fit[chosen]
    return facts


def _least(values: Floats, number: int) -> NDArray[np.bool_]:
    """Mark so many of the least finite values of each row (Q, C), however many are equal."""
    marks = values < np.inf
    if values.shape[1] > number:
        least = np.zeros_like(marks)
        chosen = np.argpartition(values, number - 1, axis=1)[:, :number]
        np.put_along_axis(least, chosen, values=True, axis=1)
        marks &= least
    return marks
