"""Probabilities of a run's facts, and sets of answers that keep a promise.

What a fact's score says depends on its question: a city has one time zone, so that the second
best is false whatever its score. A fact is therefore judged by its score among those of its
relation, by its places among the entities that are known to answer such questions, on both sides,
and by how many answers its questions have.
"""

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from puda import native
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.data.index import KnownAnswers, ranges
from puda.errors import Diverged, PudaError, RunError
from puda.evaluation.calibration import (
    Floats,
    Logistic,
    Reliability,
    answer_set_size,
    estimate_prior,
    fit_negative,
    fit_unlabeled,
    reliability,
    sigmoid,
)
from puda.evaluation.ranking import rank
from puda.runs import RunFolder, Trained
from puda.types import Facts, Ids, Questions, Side

FILE = "calibration.json"
SAMPLE = 60_000  # unlabeled pairs drawn in all, 100 to 5,000 of a relation
RIVALS = 250_000  # candidates that probabilities are checked on; each is ranked on both sides
TILE = 2_000_000  # floats of rows and of scores that are compared at a time
BESIDE = 10  # weight of the unlabeled against that of the positives
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

Scored = NDArray[np.floating[Any]]
"""Scores in the precision of their model."""


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
    were annotated. Otherwise facts are told from random pairs of their relation's heads and tails,
    of which a share is true that is estimated, not given. Relations share one fit; one with at
    least 100 validation facts has a curve of its own above it.
    """
    graph = trained.graph
    if len(graph.valid) < FEWEST:
        raise PudaError(
            f"{graph.name} has {len(graph.valid)} validation facts: calibration needs at least"
            f" {FEWEST}, hold out more by data.valid"
        )
    unlabeled = draw_unlabeled(graph, seed=seed)
    center, scale = _places(fact_scores(trained, unlabeled), unlabeled[:, 1], graph.num_relations)
    annotated = graph.negatives.get("valid", graph.valid[:0])
    others = annotated if len(annotated) else unlabeled
    known = graph.known("train")
    positive, other = (
        _features(trained, facts, known, center, scale) for facts in (graph.valid, others)
    )
    weight = _weights(graph.valid[:, 1], others[:, 1], graph.num_relations)
    shared, prior = _fit(positive, other, weight, annotated=bool(len(annotated)))
    curves, priors = [], []
    for relation in range(graph.num_relations):
        ours, theirs = (
            shared.logit(x[facts[:, 1] == relation])[:, None]
            for x, facts in ((positive, graph.valid), (other, others))
        )
        slope, intercept, own = 1.0, 0.0, float(sigmoid(theirs).mean()) if len(theirs) else prior
        if min(len(ours), len(theirs)) >= ENOUGH:
            curve, own = _fit(ours, theirs, np.ones(len(theirs)), annotated=bool(len(annotated)))
            slope, intercept = float(curve.slopes[0]), curve.intercept
        curves.append([slope, intercept])
        priors.append(own)
    return Calibration(
        center,
        scale,
        shared.slopes.tolist(),
        shared.intercept,
        curves,
        priors,
        _answer_sets(trained),
        bool(len(annotated)),
        _beyond(known, graph.valid) - (_beyond(known, annotated) if len(annotated) else 0.0),
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
    true = _is_known(graph.known("test"), facts)
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
    fresh: Facts = facts[~loop & ~_is_known(graph.known("train", "valid"), facts)]
    return fresh


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
        candidates = rows.index_select(0, torch.from_numpy(near))
        parts.append(model.match(vectors[i:stop], candidates).flatten())  # (C of each question,)
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


def draw_unlabeled(graph: KnowledgeGraph, *, seed: int) -> Facts:
    """Draw pairs of heads and tails that training shows with a relation, but not together."""
    rng = np.random.default_rng(seed)
    number = int(np.clip(SAMPLE // graph.num_relations, 100, 5_000))
    known = graph.known("train")
    drawn = [graph.train[:0]]
    for relation in np.unique(graph.train[:, 1]):
        heads, _, tails = (np.unique(ids) for ids in graph.train[graph.train[:, 1] == relation].T)
        head, tail = rng.choice(heads, number), rng.choice(tails, number)
        pairs = np.unique(np.stack([head, np.full(number, relation), tail], axis=1), axis=0)
        fresh = ~_is_known(known, pairs)
        if relation not in graph.reflexive:
            fresh &= pairs[:, 0] != pairs[:, 2]
        drawn.append(pairs[fresh])
    return np.concatenate(drawn)


def _is_known(known: KnownAnswers, facts: Facts) -> np.ndarray:
    head, relation, tail = facts.T
    row, answer = known.exclude(known.key(head, relation, 0))
    found = np.zeros(len(facts), dtype=bool)
    found[row[answer == tail[row]]] = True
    return found


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
    itself = _is_known(known, facts)
    columns = [scores, np.log(ranks[:, 0]), np.log(ranks[:, 1])]
    usual = known.usual
    for side, anchor in ((0, head), (1, tail)):
        answers = known.count(known.key(anchor, relation, side)) - itself  # the other ones
        columns.append(np.log((1 + answers) / (1 + usual[side, relation])))
        columns.append(np.log(known.room(relation, side, answers)))
    return np.stack(columns, axis=1)


def _places(scores: Floats, relation: np.ndarray, number: int) -> tuple[list[float], list[float]]:
    """Return mean and deviation of each relation's scores; where there are none, of all."""
    groups = [scores[relation == r] for r in range(number)]
    groups = [own if len(own) > 1 else scores for own in groups]
    return [float(own.mean()) for own in groups], [float(own.std()) or 1.0 for own in groups]


def _weights(positive: np.ndarray, others: np.ndarray, number: int) -> Floats:
    """Weigh each relation's others so that they are ten to each of its positives."""
    ours, theirs = (np.bincount(relation, minlength=number) for relation in (positive, others))
    weight: Floats = np.divide(BESIDE * ours, np.maximum(theirs, 1))[others]
    return weight


def _fit(
    positive: Floats, others: Floats, weight: Floats, *, annotated: bool
) -> tuple[Logistic, float]:
    """Fit to positives (p, k) and others (n, k); returns the fit and the share of true others."""
    if annotated:
        return fit_negative(positive, others), 0.0
    counts = weight > 0
    others, weight = others[counts], weight[counts]
    first = fit_unlabeled(positive, others, 0.5, weight)  # any prior orders them about alike
    prior = estimate_prior(first.logit(positive), first.logit(others), weight)
    prior = max(prior, 1 / len(others))
    return fit_unlabeled(positive, others, prior, weight), prior


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
