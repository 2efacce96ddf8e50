"""Rules that lead to a fact: chains of up to three training facts from its head to its tail.

A rule reads r(X, Y) <- b1(X, A), b2(A, B), b3(B, Y), each atom in either direction. Different
variables stand for different entities. Otherwise r(X, A), r(B, A), r(B, Y) would hold of every
fact of r, by A = Y and B = X, and each fact would vouch for itself. Rules for a loop r(x, x) are
r(X, X) <- ..., so they are judged by loops alone.
"""

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from puda.data.graph import KnowledgeGraph
from puda.data.index import KnownAnswers, ranges
from puda.types import Ids

Triple = tuple[int, int, int]
"""Ids of a fact's head, relation and tail."""

Body = tuple[int, ...]
"""The steps that lead from X to Y; see Adjacency."""

LINKS = 2_000_000
"""Steps looked at in search of a path's middle."""

GLANCE, BUDGET = 500_000, 1_000_000
"""Paths walked to choose among all bodies, and to measure the chosen ones."""

FIRST = 10
"""So many times its budget may be spent on the first entity at which a body starts."""

FINALISTS = 4
"""So many bodies are chosen for each rule that is asked for."""

AT_ONCE = 128
"""Bodies measured at a time, which bounds the memory."""

DOUBT = 5
"""Cases of a rule that are imagined to be wrong, in comparing it with others."""

EXAMPLES = 3
"""Paths shown of a rule."""


class Adjacency:
    """Training facts as steps from entity to entity.

    A step is a relation walked along (its id r) or against its direction (r + R). So the steps
    that leave an entity are the questions of which it is the anchor, and lead to their answers.
    """

    def __init__(self, known: KnownAnswers) -> None:
        self.known, self.num_entities = known, known.num_entities
        self.num_relations, self.num_steps = known.num_relations, 2 * known.num_relations
        step, source = np.divmod(known.keys, self.num_entities)  # (U,)
        counts = np.diff(known.offsets)
        order = np.argsort(np.repeat(source, counts), kind="stable")
        self.step, self.target = np.repeat(step, counts)[order], known.answers[order]  # (2n,)
        steps = np.bincount(source, weights=counts, minlength=self.num_entities)
        self.degree = steps.astype(np.int64)  # (E,) steps that leave an entity
        self.offsets = np.append(0, np.cumsum(self.degree))  # (E + 1,)
        shuffled = np.random.default_rng(0).permutation(self.num_entities)
        self.sources = source[np.lexsort((shuffled[source], step))]  # (U,) by step, then at random
        self.first_source = np.searchsorted(step, np.arange(self.num_steps + 1))  # (2R + 1,)

    @classmethod
    def of(cls, graph: KnowledgeGraph) -> "Adjacency":
        """Return the graph's adjacency, built when it is first asked for."""
        if graph not in _BUILT:
            _BUILT[graph] = cls(graph.known("train"))
        return _BUILT[graph]

    def reverse(self, step: Ids) -> Ids:
        """Return the steps that lead back."""
        return (step + self.num_relations) % self.num_steps

    def leave(self, entities: Ids, *, without: Triple) -> tuple[Ids, Ids, Ids]:
        """Return all steps from some entities, one fact left out: source, step, target (n,)."""
        start, count = self.offsets[entities], self.degree[entities]
        place, source = ranges(start, count), np.repeat(entities, count)
        step, target = self.step[place], self.target[place]
        kept = ~self.is_fact(without, source, step, target)
        return source[kept], step[kept], target[kept]

    def pairs(self, relation: int) -> Ids:
        """Return head * E + tail of the facts of a relation, sorted."""
        start, stop = np.searchsorted(
            self.known.keys, [relation * self.num_entities, (relation + 1) * self.num_entities]
        )
        heads = self.known.keys[start:stop] % self.num_entities
        offsets = self.known.offsets[start : stop + 1]
        tails = self.known.answers[offsets[0] : offsets[-1]]
        pairs: Ids = np.repeat(heads, np.diff(offsets)) * self.num_entities + tails
        return pairs

    def is_fact(self, fact: Triple, source: Ids, step: Ids, target: Ids) -> NDArray[np.bool_]:
        """Return which steps (n,) go along or against a fact."""
        head, relation, tail = fact
        along = (source == head) & (step == relation) & (target == tail)
        against = (source == tail) & (step == relation + self.num_relations) & (target == head)
        found: NDArray[np.bool_] = along | against
        return found


_BUILT: WeakKeyDictionary[KnowledgeGraph, Adjacency] = WeakKeyDictionary()


class Paths(NamedTuple):
    """Ways of one length L from the head to the tail of a fact."""

    steps: Ids  # (n, L)
    entities: Ids  # (n, L + 1), the head first, the tail last


class Rule(NamedTuple):
    """What a body is worth as a reason for a relation."""

    body: Body
    support: int  # pairs that the body connects and the relation links
    cases: int  # pairs that the body connects
    sampled: bool  # counted for some of the entities at which the body starts, not for all

    @property
    def confidence(self) -> float:
        """Share of the cases in which the rule is right; 0 where there is none."""
        return self.support / max(1, self.cases)

    @property
    def trust(self) -> float:
        """The confidence if the next few cases were wrong: few cases are little to go by."""
        return self.support / (self.cases + DOUBT)


def find_paths(adjacency: Adjacency, fact: Triple) -> list[Paths]:
    """Find all paths of 1, 2 and 3 steps from head to tail, the fact itself left out.

    All entities of a path are different; if head and tail are one, so are the ends of the path.
    Between great hubs, the paths of 3 steps are those through the head's least linked neighbours.
    """
    head, _, tail = fact
    _, step, near = adjacency.leave(np.array([head]), without=fact)
    one = step[near == tail][:, None]
    out = (near != head) & (near != tail)
    first, a = step[out], near[out]  # head -first-> a
    _, step, near = adjacency.leave(np.array([tail]), without=fact)
    back = (near != head) & (near != tail)
    last, b = adjacency.reverse(step[back]), near[back]  # b -last-> tail
    i, j = _join(a, b)
    two, by = np.stack([first[i], last[j]], axis=1), a[i]

    source, middle, target = adjacency.leave(_least_linked(adjacency, a), without=fact)
    ends = np.zeros(adjacency.num_entities, dtype=bool)
    ends[b] = True
    links = ends[target] & (source != target)
    source, middle, target = source[links], middle[links], target[links]
    i, link = _join(a, source)
    m, j = _join(target[link], b)
    i, link = i[m], link[m]
    three = np.stack([first[i], middle[link], last[j]], axis=1)

    between = [np.empty((len(one), 0), dtype=np.int64), by[:, None], np.stack([a[i], b[j]], axis=1)]
    found = [
        Paths(steps, np.pad(nodes, ((0, 0), (1, 1)), constant_values=((0, 0), (head, tail))))
        for steps, nodes in zip((one, two, three), between, strict=True)
    ]
    return found if head != tail else [_one_way(adjacency, loops) for loops in found]


def _one_way(adjacency: Adjacency, loops: Paths) -> Paths:
    """Keep one of the two ways to walk each loop, and none that goes back by the fact it came."""
    back = adjacency.reverse(loops.steps[:, ::-1])
    kept = _number(adjacency, loops.steps) < _number(adjacency, back)
    return Paths(loops.steps[kept], loops.entities[kept])


def _least_linked(adjacency: Adjacency, entities: Ids) -> Ids:
    """Return distinct entities, those with the fewest steps first, while these are few enough."""
    distinct = np.unique(entities)
    steps = adjacency.degree[distinct]
    order = np.argsort(steps, kind="stable")
    return distinct[order[np.cumsum(steps[order]) <= LINKS]]


def _join(left: Ids, right: Ids) -> tuple[Ids, Ids]:
    """Return the places (i, j) of all equal pairs left[i] == right[j]."""
    order = np.argsort(right, kind="stable")
    start, stop = (np.searchsorted(right[order], left, side=side) for side in ("left", "right"))
    return np.repeat(np.arange(len(left)), stop - start), order[ranges(start, stop - start)]


def measure(adjacency: Adjacency, bodies: Ids, fact: Triple, *, budget: int) -> list[Rule]:
    """Count cases and support of bodies of one length (b, L) as reasons for a fact's relation.

    Cases: the distinct (X, Y) that a body connects; support: those of them that are facts.
    The pair of the fact itself is left out of both, and so is the fact from all walks.

    A body is walked from all its starts X where that takes no more than `budget` paths at any
    step; otherwise from as many as fit, in a seeded random order. Each X is walked to all its Y,
    so that support / cases estimates the confidence by a ratio of sums over starts. The first X
    may take ten times the budget; a body with more to walk from there is given up, without cases.
    """
    head, relation, tail = fact
    num_entities, length = adjacency.num_entities, bodies.shape[1]
    place = adjacency.first_source[bodies[:, 0]]
    starts = adjacency.first_source[bodies[:, 0] + 1] - place  # (b,)
    tried = np.minimum(starts, budget)
    body, start = np.repeat(np.arange(len(bodies)), tried), adjacency.sources[ranges(place, tried)]
    first = np.cumsum(tried) - tried  # of each body's walks, one walk for each start
    some = first[tried > 0]
    complete = np.ones(len(body), dtype=bool)

    walk, at, via = np.arange(len(body)), start, start
    for i in range(length):
        step = bodies[body[walk], i]
        lead, stop = adjacency.known.spans(step * num_entities + at)  # where its answers are
        count = stop - lead
        paths = np.bincount(walk, weights=count, minlength=len(body)).astype(np.int64)
        total = np.append(0, np.cumsum(paths))
        fits = total[1:] - total[first[body]] <= budget
        fits[some] |= paths[some] <= FIRST * budget
        complete &= fits
        count *= complete[walk]

        target = adjacency.known.answers[ranges(lead, count)]
        walk, at, via, step = (np.repeat(x, count) for x in (walk, at, via, step))
        if i == length - 1 and head == tail:
            apart = target == start[walk]
        else:
            apart = (target != start[walk]) & (target != at) & (target != via)
        apart &= ~adjacency.is_fact(fact, at, step, target)
        walk, at, target = walk[apart], at[apart], target[apart]
        # Many ways lead to the same entity; it matters only by which they came if it is one alone,
        # for then the next step must not go back there. Of several, one is always different.
        reached, index, ways = np.unique(
            walk * num_entities + target, return_index=True, return_counts=True
        )
        via = np.where(ways == 1, at[index], -1)
        walk, at = np.divmod(reached, num_entities)

    other = (start[walk] != head) | (at != tail)
    walk, at = walk[other], at[other]
    right = _contains(adjacency.pairs(relation), start[walk] * num_entities + at)
    cases = np.bincount(body[walk], minlength=len(bodies))
    support = np.bincount(body[walk[right]], minlength=len(bodies))
    walked = np.bincount(body[complete], minlength=len(bodies))
    columns = (support, cases, walked < starts)
    return [
        Rule(tuple(steps), *counts)
        for steps, *counts in zip(bodies.tolist(), *(c.tolist() for c in columns), strict=True)
    ]


def _contains(ordered: Ids, sought: Ids) -> NDArray[np.bool_]:
    """Return which of the sought (n,) are in a sorted array."""
    found: NDArray[np.bool_] = np.append(ordered, -1)[np.searchsorted(ordered, sought)] == sought
    return found


def find_rules(adjacency: Adjacency, fact: Triple, *, k: int) -> list[tuple[Rule, Ids]]:
    """Find the k rules of highest trust that lead to a fact.

    Each comes with the entities (n, L + 1) of up to 3 of its paths from head to tail, those
    through the least linked entities first: a hub leads anywhere. Rules without support, which
    no other fact speaks for, are left out.

    Where there are many bodies, a short look at all of them chooses those that are measured.
    """
    found = find_paths(adjacency, fact)
    keys = [_number(adjacency, paths.steps) for paths in found]
    bodies: list[Body] = []
    for paths, key in zip(found, keys, strict=True):
        one = np.unique(key, return_index=True)[1]
        bodies += map(tuple, paths.steps[one].tolist())
    if len(bodies) > FINALISTS * k:
        chosen = _best(adjacency, bodies, fact, budget=GLANCE)[: FINALISTS * k]
        bodies = [rule.body for rule in chosen]
    rules = []
    for rule in _best(adjacency, bodies, fact, budget=BUDGET)[:k]:
        if rule.support:
            place = len(rule.body) - 1
            same = keys[place] == _number(adjacency, np.array([rule.body]))
            entities = found[place].entities[same]
            order = np.argsort(adjacency.degree[entities].sum(1), kind="stable")
            rules.append((rule, entities[order[:EXAMPLES]]))
    return rules


def _number(adjacency: Adjacency, steps: Ids) -> Ids:
    """Number bodies of one length (n, L), which is quicker than to compare their steps."""
    shape = (adjacency.num_steps,) * steps.shape[1]
    number: Ids = np.ravel_multi_index(tuple(steps.T), shape)
    return number


def _best(adjacency: Adjacency, bodies: list[Body], fact: Triple, *, budget: int) -> list[Rule]:
    """Measure bodies with equal shares of a budget of paths; best first, short before long."""
    rules: list[Rule] = []
    for length in {len(body) for body in bodies}:
        steps = np.array([body for body in bodies if len(body) == length])
        for i in range(0, len(steps), AT_ONCE):
            some = steps[i : i + AT_ONCE]
            rules += measure(adjacency, some, fact, budget=max(1, budget // len(bodies)))
    return sorted(rules, key=lambda r: (-r.trust, len(r.body), r.body))
