"""Probabilities of a run's facts, and sets of answers that keep a promise.

What a fact's score says depends on its question: a city has one time zone, so that the second
best is false whatever its score. A fact is therefore judged by its score among those of its
relation, by its places among the entities that are known to answer such questions, on both sides,
and by how many answers its questions have.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from puda.data.graph import SPLITS, KnowledgeGraph
from puda.data.index import KnownAnswers
from puda.errors import PudaError, RunError
from puda.evaluation.calibration import (
    Floats,
    Logistic,
    Reliability,
    answer_set_size,
    estimate_prior,
    fit_negative,
    fit_unlabeled,
    reliability,
    shift,
    sigmoid,
)
from puda.evaluation.ranking import rank
from puda.pairs import Pairs, draw_pairs
from puda.places import fact_scores, places
from puda.runs import RunFolder, Trained
from puda.types import Facts, Side

FILE = "calibration.json"
SAMPLE = 100_000  # unlabeled pairs drawn in all
RIVALS = 250_000  # candidates that probabilities are checked on; each is ranked on both sides
FEWEST = 30  # held-out facts without which nothing can be said
ENOUGH = 100  # held-out facts from which a relation has a curve of its own
COVERAGE = 0.9  # of answer sets
FEATURES = (
    "score",
    "tail's place",
    "head's place",
    "known tails",
    "room for tails",
    "known heads",
    "room for heads",
)


@dataclass(frozen=True)
class Calibration:
    """How features become probabilities; lists by relation are in the order of the graph."""

    center: list[float]  # mean score of a relation's unlabeled pairs
    scale: list[float]  # and its standard deviation
    slopes: list[float]  # of FEATURES, shared by all relations
    intercept: float
    curves: list[list[float]]  # slope and intercept over the shared logit; [1, 0] where it serves
    prior: list[float]  # estimated share of true facts among the unlabeled pairs
    answers: list[list[float | None]]  # [tail, head]: how many answers hold the true one; None: all
    negatives: bool  # fitted to annotated true negatives, not to unlabeled pairs
    missing: float | None  # estimated facts beyond training and validation; None: negatives told
    foreign: float  # ln of how many facts lie beyond a relation's candidates, to one within

    @cached_property
    def shared(self) -> Logistic:
        """The fit that all relations share."""
        return Logistic(np.array(self.slopes), self.intercept)

    def probability(
        self,
        trained: Trained,
        facts: Facts,
        *,
        known: Sequence[str] = SPLITS,
        given: Floats | None = None,
    ) -> Floats:
        """Return P(true) of facts (n, 3), given what is known in some splits, and some `places`."""
        if not len(facts):
            return np.empty(0)
        index = trained.graph.known(*known)
        features = _features(trained, facts, index, self.center, self.scale, given)
        logit = self.shared.logit(features)
        slope, intercept = np.array(self.curves)[facts[:, 1]].T
        return sigmoid(slope * logit + intercept + self._strangeness(index, facts))

    def _strangeness(self, known: KnownAnswers, facts: Facts) -> Floats:
        """Return what the logits of facts (n, 3) lose if an entity is no candidate for its place.

        The fit knows only facts and pairs between a relation's candidates. Beyond them there are
        fewer facts and more pairs: the odds fall by the ratio of both ratios.
        """
        loss = np.zeros(len(facts))
        beyond = is_foreign(known, facts)
        for relation in np.unique(facts[beyond, 1]).tolist():
            heads, tails = (int(known.candidates(relation, side).sum()) for side in (1, 0))
            within = max(heads * tails, 1)
            pairs = 0.0 if self.negatives else np.log(known.num_entities**2 / within - 1)
            loss[beyond & (facts[:, 1] == relation)] = min(0.0, self.foreign - pairs)
        return loss

    def save(self, folder: RunFolder) -> None:
        """Write calibration.json into a run folder."""
        folder.write_text(FILE, json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: RunFolder) -> "Calibration | None":
        """Read what was saved; None where a run is not calibrated."""
        path = folder.path / FILE
        if not path.exists():
            return None
        try:
            found = cls(**json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise RunError(f"{folder.path} is damaged: {FILE} ({error})") from None
        except TypeError:
            found = None  # other fields
        if found is None or len(found.slopes) != len(FEATURES):
            raise RunError(f"{path} is of another version of puda: puda calibrate fits it anew")
        return found


def calibrate(trained: Trained, *, seed: int = 0) -> Calibration:
    """Fit probabilities to the validation facts.

    Where the graph has true negatives for validation, facts are told from them, in the numbers that
    were annotated. Otherwise facts are told from the pairs of their relation's candidates, of which
    a share is true that is estimated, not given (puda.evaluation.calibration). Relations share one
    fit; one with at least 100 validation facts has a curve of its own above it. How many facts are
    missing to one that validation hides is estimated for all relations together: those of a single
    one are too few, and would say anything between 1 and 250 on FB15k-237.
    """
    graph = trained.graph
    if len(graph.valid) < FEWEST:
        raise PudaError(
            f"{graph.name} has {len(graph.valid)} validation facts: calibration needs at least"
            f" {FEWEST}, hold out more by data.valid"
        )
    pairs = draw_pairs(trained, size=SAMPLE, seed=seed)
    center, scale = _places(fact_scores(trained, pairs.facts), pairs, graph.num_relations)
    known = graph.known("train")
    positive = _features(trained, graph.valid, known, center, scale)
    annotated = graph.negatives.get("valid", graph.valid[:0])
    negatives = len(annotated) > 0
    if negatives:
        others, weight = annotated, np.ones(len(annotated))
        other = _features(trained, others, known, center, scale)
        shared, prior = fit_negative(positive, other), 0.0
    else:
        others, weight = pairs.facts, pairs.number
        other = _features(trained, others, known, center, scale, pairs.places)
        shared, prior = _fit_shared(positive, other, weight)
    missing = prior * weight.sum()  # of each relation as many to one of its facts
    shares = np.bincount(graph.train[:, 1], minlength=graph.num_relations) / len(graph.train)
    curves, priors = [], []
    for relation in range(graph.num_relations):
        ours, theirs = graph.valid[:, 1] == relation, others[:, 1] == relation
        own = min(1.0, float(missing * shares[relation] / max(weight[theirs].sum(), 1.0)))
        facts, rest = shared.logit(positive[ours]), shared.logit(other[theirs])
        curves.append(_curve(facts, rest, weight[theirs], own))
        priors.append(own)
    return Calibration(
        center,
        scale,
        shared.slopes.tolist(),
        shared.intercept,
        curves,
        priors,
        _answer_sets(trained),
        negatives,
        None if negatives else float(missing),
        _beyond(known, graph.valid) - (_beyond(known, annotated) if negatives else 0.0),
    )


def is_foreign(known: KnownAnswers, facts: Facts) -> np.ndarray:
    """Say of facts (n, 3) whether their head or their tail is no candidate for its place."""
    foreign = np.zeros(len(facts), dtype=bool)
    for relation in np.unique(facts[:, 1]).tolist():
        own = facts[:, 1] == relation
        for side, column in ((Side.HEAD, 0), (Side.TAIL, 2)):
            foreign[own] |= ~known.candidates(relation, int(side))[facts[own, column]]
    return foreign


def _beyond(known: KnownAnswers, facts: Facts) -> float:
    """Return ln of how many facts lie beyond the candidates, to one within; half a fact on each."""
    foreign = int(is_foreign(known, facts).sum())
    return float(np.log((foreign + 0.5) / (len(facts) - foreign + 0.5)))


def check(trained: Trained, calibration: Calibration, *, candidates: int = RIVALS) -> Reliability:
    """Compare probabilities with what is true of the test split.

    Of facts and annotated true negatives where the graph has them for test. Otherwise of all
    candidates for the questions of some test facts, about so many in all: entities that training
    shows on the same side of the relation and that are no known answers. There, what is not in test
    counts as false, although some may be missing facts: what came true is less than what is true.
    """
    graph = trained.graph
    if not len(graph.test):
        raise PudaError(f"{graph.name} has no test facts to check probabilities on")
    untrue = graph.negatives.get("test", graph.test[:0])
    facts = np.concatenate([graph.test, untrue]) if len(untrue) else _rivals(graph, candidates)
    true = graph.known("test").holds(facts)
    return reliability(calibration.probability(trained, facts, known=("train", "valid")), true)


class Coverage(NamedTuple):
    """How often answer sets hold the answer of a test fact's questions, both sides together."""

    overall: float
    relations: dict[str, float]  # by label, of those that test has


def cover(trained: Trained, calibration: Calibration) -> Coverage:
    """Count how often the promise of answer sets is kept on the test split."""
    graph = trained.graph
    ranks = rank(trained.score, graph.test, graph.known(*SPLITS)).realistic  # (n, 2)
    sizes = [[np.inf if size is None else size for size in own] for own in calibration.answers]
    relation = graph.test[:, 1]
    inside = (ranks <= np.array(sizes)[relation]).mean(1)  # (n,) 0, 1/2 or 1
    labels = graph.relations.labels
    own = {labels[r]: float(inside[relation == r].mean()) for r in np.unique(relation)}
    return Coverage(float(inside.mean()), own)


def _rivals(graph: KnowledgeGraph, number: int) -> Facts:
    """Return all candidate facts of the questions of some test facts, known ones left out."""
    found: list[Facts] = []
    for head, relation, tail in np.random.default_rng(0).permutation(graph.test).tolist():
        if sum(map(len, found)) >= number:
            break
        seen = graph.train[graph.train[:, 1] == relation]
        for column, anchor in ((2, head), (0, tail)):
            candidates = np.unique(seen[:, column])
            facts = np.full((len(candidates), 3), relation)
            facts[:, column], facts[:, 2 - column] = candidates, anchor
            found.append(facts)
    facts = np.unique(np.concatenate(found), axis=0)
    loop = (facts[:, 0] == facts[:, 2]) & ~np.isin(facts[:, 1], list(graph.reflexive))
    fresh: Facts = facts[~loop & ~graph.known("train", "valid").holds(facts)]
    return fresh


def _features(
    trained: Trained,
    facts: Facts,
    known: KnownAnswers,
    center: Sequence[float],
    scale: Sequence[float],
    given: Floats | None = None,
) -> Floats:
    """Measure facts (n, 3): (n, 7), see FEATURES; `given` as in `places`.

    The score in standard deviations from the mean of the relation's unlabeled pairs; logarithms of
    the `places`; ln((1 + a) / (1 + m)) of the answers a that a question has, m being what questions
    of its relation have on average; and the logarithm of the room for more.
    """
    head, relation, tail = facts.T
    scores = (fact_scores(trained, facts) - np.array(center)[relation]) / np.array(scale)[relation]
    ranks = places(trained, facts, known, given)  # (n, 2)
    itself = known.holds(facts)
    columns = [scores, np.log(ranks[:, 0]), np.log(ranks[:, 1])]
    usual = known.usual
    for side, anchor in ((0, head), (1, tail)):
        answers = known.count(known.key(anchor, relation, side)) - itself  # the other ones
        columns.append(np.log((1 + answers) / (1 + usual[side, relation])))
        columns.append(np.log(known.room(relation, side, answers)))
    return np.stack(columns, axis=1)


def _places(scores: Floats, pairs: Pairs, number: int) -> tuple[list[float], list[float]]:
    """Return mean and deviation of each relation's scores; where there are none, of all."""
    center, scale = [], []
    for relation in range(number):
        own = pairs.facts[:, 1] == relation
        own = own if own.sum() > 1 else np.ones(len(scores), dtype=bool)
        mean = np.average(scores[own], weights=pairs.number[own])
        spread = np.average((scores[own] - mean) ** 2, weights=pairs.number[own]) ** 0.5
        center.append(float(mean))
        scale.append(float(spread) or 1.0)
    return center, scale


def _fit_shared(positive: Floats, others: Floats, weight: Floats) -> tuple[Logistic, float]:
    """Fit to facts (p, k) and unlabeled pairs (n, k); returns the fit and the share of true pairs.

    At least as many are held to be true as there are facts: a graph from which so many could be
    hidden misses no fewer.
    """
    least = min(1.0, len(positive) / weight.sum())
    first = fit_unlabeled(positive, others, least, weight)  # any prior orders them about alike
    prior = max(least, estimate_prior(first.logit(positive), first.logit(others), weight))
    return (fit_unlabeled(positive, others, prior, weight) if prior > least else first), prior


def _curve(positive: Floats, others: Floats, weight: Floats, prior: float) -> list[float]:
    """Return slope and intercept over the shared logits of a relation's facts and other pairs.

    A prior of 0 says that the others are true negatives. Of facts too few for a curve the share
    among the pairs still tells how high it lies.
    """
    if min(len(positive), len(others)) >= ENOUGH:
        rows = positive[:, None], others[:, None]
        fit = fit_unlabeled(*rows, prior, weight) if prior else fit_negative(*rows)
        return [float(fit.slopes[0]), fit.intercept]
    return [1.0, shift(others, prior, weight) if prior and len(others) else 0.0]


def _answer_sets(trained: Trained) -> list[list[float | None]]:
    """Return [tail, head] of each relation: so many first answers hold the true one with 90 %."""
    graph = trained.graph
    ranks = rank(trained.score, graph.valid, graph.known("train", "valid")).realistic  # (n, 2)
    sizes: list[list[float | None]] = []
    for relation in range(graph.num_relations):
        own = ranks[graph.valid[:, 1] == relation]
        found = [answer_set_size(own[:, side], COVERAGE) for side in (0, 1)]
        if len(own) < FEWEST:  # too few to promise by themselves
            found = [answer_set_size(ranks[:, side], COVERAGE) for side in (0, 1)]
        sizes.append([None if np.isinf(size) else size for size in found])
    return sizes
