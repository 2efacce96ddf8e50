"""Why a fact is or is not plausible: rules, analogues, what it was learned from, its rivals."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as xml

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from puda.data.graph import SPLITS
from puda.data.rules import Adjacency, Rule, Triple, find_rules
from puda.errors import Diverged, PudaError
from puda.runs import Trained
from puda.types import Ids, Questions, Side

NEAREST, AT_ONCE = 1024, 128
"""Facts whose influence is computed, and so many at a time: convolutions take much memory."""

WIDTH, ROW, BOX, BEND = 1000, 72, (140, 26), 44
"""Pixels of the picture, between its rows, of an entity, and between arrows of the same ends."""

Point = tuple[float, float]
"""Pixels from the left and from the top."""


@dataclass(frozen=True)
class Fact:
    """A fact by its labels, or an atom of a rule over variables."""

    head: str
    relation: str
    tail: str

    def __str__(self) -> str:
        return f"{self.head} {self.relation} {self.tail}"


@dataclass(frozen=True)
class Reason:
    """A rule that leads to the fact, how far it can be trusted, and paths along which it leads.

    See puda.data.rules: the fact itself counts nowhere, neither for nor against.
    """

    rule: str  # X borders Y if Y borders X
    body: list[Fact]  # its conditions over X, Y and what lies between, A and B
    support: int  # cases in which the rule is right
    cases: int  # pairs X, Y of entities that meet the conditions
    confidence: float  # support / cases
    sampled: bool  # cases are those of some X, drawn at random: there are very many
    paths: list[list[Fact]]  # training facts from the head to the tail that meet the conditions

    def __str__(self) -> str:
        cases = ("sampled " if self.sampled else "") + ("case" if self.cases == 1 else "cases")
        return f"{self.rule}: right in {100 * self.confidence:.3g} % of {self.cases:,} {cases}"


@dataclass(frozen=True)
class Analogue:
    """A training fact of the same relation."""

    fact: Fact
    similarity: float  # mean cosine of the two heads' rows and the two tails' rows


@dataclass(frozen=True)
class Influence:
    """A training fact that shares an entity."""

    fact: Fact
    influence: float  # fall of the score per unit of step that learned it, see `_influences`


@dataclass(frozen=True)
class Answer:
    """An entity as the answer to a question."""

    entity: str
    score: float


@dataclass(frozen=True)
class Standing:
    """Where an answer stands among all entities, in one of the fact's two questions.

    Left out are other known answers and, where the relation has no loops, the entity asked about.
    """

    rank: float  # 1 = most plausible; of equals, the mean
    candidates: int  # entities ranked, the answer included
    score: float
    num_known: int  # other answers that are known in the whole graph
    known: list[Answer]  # those of them that score best


@dataclass(frozen=True)
class Explanation:
    """What speaks for a fact."""

    fact: Fact
    split: str | None  # of the graph in which the fact is known
    score: float  # mean of its two questions
    tail: Standing  # of the tail as the answer to (head, relation, ?)
    head: Standing  # of the head as the answer to (?, relation, tail)
    reasons: list[Reason]  # by falling trust (puda.data.rules.Rule)
    analogues: list[Analogue]
    influences: list[Influence]  # by falling influence

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as data that `json` can write."""
        return asdict(self)

    def to_text(self) -> str:
        """Say it in plain lines."""
        fact = self.fact
        known = f"known ({self.split})" if self.split else "not in the graph"
        lines = [f"{fact}: {known}, score {self.score:.4g}"]
        for question, standing in (
            (Fact(fact.head, fact.relation, "?"), self.tail),
            (Fact("?", fact.relation, fact.tail), self.head),
        ):
            shown = ", ".join(f"{other.entity} ({other.score:.4g})" for other in standing.known)
            lines.append(
                f"  {question}: rank {standing.rank:g} of {standing.candidates:,};"
                f" other known answers: {standing.num_known:,}{shown and f', {shown}'}"
            )
        parts = {
            "Rules that lead to it": [
                line
                for reason in self.reasons
                for line in (str(reason), *(f"  {_sentence(path)}" for path in reason.paths))
            ],
            "Known facts like it": [
                f"{a.fact} (similarity {a.similarity:.3f})" for a in self.analogues
            ],
            "Facts that raise its score": [
                f"{i.fact} (influence {i.influence:.3g})" for i in self.influences
            ],
        }
        for title, said in parts.items():
            lines += [f"{title}:", *(f"  {line}" for line in said or ["none"])]
        return "\n".join(lines) + "\n"

    def to_svg(self) -> str:
        """Draw the fact, dashed, and the first path of each rule."""
        return _draw(self.fact, [reason.paths[0] for reason in self.reasons])


def explain(trained: Trained, head: str, relation: str, tail: str, *, k: int = 5) -> Explanation:
    """Explain a fact, known or not, by up to k rules, analogues, influences and known answers."""
    if k < 1:
        raise PudaError(f"k = {k}: ask for at least one of each kind of reason")
    graph = trained.graph
    triple = graph.entities.find(head), graph.relations.find(relation), graph.entities.find(tail)
    questions, _ = Questions.both(torch.tensor([triple]))
    scores = trained.score(questions)  # (2, E)
    if not torch.isfinite(scores).all():
        raise Diverged("a score is not finite: this run cannot explain, train it anew")
    of_tail = _stand(trained, scores[0], triple, Side.TAIL, k)
    of_head = _stand(trained, scores[1], triple, Side.HEAD, k)
    rules = find_rules(Adjacency.of(graph), triple, k=k)
    return Explanation(
        fact=_label(trained, *triple),
        split=_split(trained, triple),
        score=(of_tail.score + of_head.score) / 2,
        tail=of_tail,
        head=of_head,
        reasons=[_reason(trained, triple, rule, paths) for rule, paths in rules],
        analogues=_analogues(trained, triple, k),
        influences=_influences(trained, triple, k),
    )


def _label(trained: Trained, head: int, relation: int, tail: int) -> Fact:
    entities, relations = trained.graph.entities.labels, trained.graph.relations.labels
    return Fact(entities[head], relations[relation], entities[tail])


def _split(trained: Trained, triple: Triple) -> str | None:
    """Return the first split that holds a fact."""
    head, relation, tail = triple
    for split in SPLITS:
        if tail in trained.graph.known(split).of(head, relation, Side.TAIL):
            return split
    return None


def _stand(trained: Trained, scores: Tensor, triple: Triple, side: Side, k: int) -> Standing:
    """Rank the answer to one question of a fact by the scores of all entities (E,)."""
    graph, (head, relation, tail) = trained.graph, triple
    anchor, answer = (head, tail) if side is Side.TAIL else (tail, head)
    known = torch.tensor(graph.known(*SPLITS).of(anchor, relation, side))
    known = known[known != answer]
    rival = torch.ones(len(scores), dtype=torch.bool)
    rival[known] = False
    rival[answer] = False
    if relation not in graph.reflexive:
        rival[anchor] = False
    own, others = scores[answer], scores[rival]
    best = known[scores[known].argsort(descending=True, stable=True)[:k]]
    return Standing(
        rank=1 + int((others > own).sum()) + int((others == own).sum()) / 2,
        candidates=1 + len(others),
        score=float(own),
        num_known=len(known),
        known=[Answer(graph.entities.labels[e], float(scores[e])) for e in best.tolist()],
    )


def _reason(trained: Trained, triple: Triple, rule: Rule, paths: Ids) -> Reason:
    """Write a rule and its paths (n, L + 1) with labels, each step in its fact's direction."""
    graph, (head, relation, tail) = trained.graph, triple
    names = graph.relations.labels

    def follow(along: Sequence[str]) -> list[Fact]:
        facts = []
        for step, (one, other) in zip(rule.body, pairwise(along), strict=True):
            name = names[step % graph.num_relations]
            forward = step < graph.num_relations
            facts.append(Fact(one, name, other) if forward else Fact(other, name, one))
        return facts

    variables = "X" + "AB"[: len(rule.body) - 1] + ("Y" if head != tail else "X")
    body, claim = follow(variables), Fact("X", names[relation], variables[-1])
    return Reason(
        rule=f"{claim} if {_sentence(body)}",
        body=body,
        support=rule.support,
        cases=rule.cases,
        confidence=rule.confidence,
        sampled=rule.sampled,
        paths=[follow([graph.entities.labels[e] for e in path]) for path in paths.tolist()],
    )


def _sentence(facts: list[Fact]) -> str:
    """Join facts: "A, B and C"."""
    *front, last = map(str, facts)
    return f"{', '.join(front)} and {last}" if front else last


def _analogues(trained: Trained, triple: Triple, k: int) -> list[Analogue]:
    """Find the training facts of the relation that are most alike, those with the tail first.

    Alike: (cos(head, head') + cos(tail, tail')) / 2 of the entities' rows. With the tail in
    common, the order is that of the nearest heads.
    """
    train, (head, relation, tail) = trained.graph.train, triple
    facts = train[(train[:, 1] == relation) & ((train[:, 0] != head) | (train[:, 2] != tail))]
    alike = _cosines(trained, triple)
    similarity = (alike[facts[:, 0], 0] + alike[facts[:, 2], 1]) / 2  # (n,)
    order = np.lexsort((-similarity, facts[:, 2] != tail))[:k]
    return [
        Analogue(_label(trained, *fact), value)
        for fact, value in zip(facts[order].tolist(), similarity[order].tolist(), strict=True)
    ]


def _cosines(trained: Trained, triple: Triple) -> NDArray[np.float32]:
    """Compare all entities with the head and with the tail by the cosine of their rows: (E, 2)."""
    rows, (head, _, tail) = trained.rows, triple
    lengths = rows.norm(dim=1, keepdim=True).clamp(min=1e-12)  # a row of zeros is like no other
    ends = rows[[head, tail]] / lengths[[head, tail]]
    cosines: NDArray[np.float32] = (rows @ ends.T / lengths).numpy()
    return cosines


def _influences(trained: Trained, triple: Triple, k: int) -> list[Influence]:
    """Find the training facts that raise the score s of a fact most through the rows they share.

    influence(f) = sum over x in {head, tail} of  ds/dx . ds(f)/dx,  s(f) being the mean score of
    f's two questions. Learning f moves x along ds(f)/dx, by a step e say. Without f that step is
    not taken, and to first order the score falls by e * influence(f). Rows are those matched: of
    a graph encoder the convolved ones, whose own dependence on f is not followed.

    Of a hub's facts only the 1,024 nearest are tried: those whose other end is most like ours.
    """
    train, (head, _, tail) = trained.graph.train, triple
    touching = np.isin(train[:, [0, 2]], [head, tail]).any(axis=1)
    touching &= (train != np.array(triple)).any(axis=1)
    facts = train[touching]
    if len(facts) > NEAREST:
        alike, (heads, _, tails) = _cosines(trained, triple), facts.T
        straight, crossed = alike[heads, 0] + alike[tails, 1], alike[heads, 1] + alike[tails, 0]
        facts = facts[np.argsort(-np.maximum(straight, crossed), kind="stable")[:NEAREST]]
    ends = torch.tensor([head, tail])
    slope = _slopes(trained, torch.tensor([triple]))[0]  # (2, row)
    parts = [torch.empty(0)]
    for some in torch.from_numpy(facts).split(AT_ONCE):
        products = _slopes(trained, some) @ slope.T  # (n, 2, 2) by an end of f, by an end of ours
        shared = some[:, [0, 2], None] == ends
        parts.append((products * shared).sum((1, 2)))
    influence = torch.cat(parts)  # (n,)
    best = influence.argsort(descending=True, stable=True)[:k]
    return [
        Influence(_label(trained, *facts[i].tolist()), float(influence[i]))
        for i in best.tolist()
        if influence[i] > 0
    ]


def _slopes(trained: Trained, facts: Tensor) -> Tensor:
    """Return the gradient of each fact's score by its head's row and its tail's row: (n, 2, row).

    The score is the mean of the two questions. Each question has rows of its own, so that one
    backward pass keeps the facts apart.
    """
    questions, answers = Questions.both(facts)
    anchor = trained.rows.index_select(0, questions.anchor).requires_grad_()
    answer = trained.rows.index_select(0, answers).requires_grad_()
    question = trained.model.encode(anchor, questions.relation, questions.side)
    score = trained.model.match(question, answer.unsqueeze(1)).sum() / 2
    by_anchor, by_answer = torch.autograd.grad(score, (anchor, answer))
    (head, tail), (its_tail, its_head) = by_anchor.chunk(2), by_answer.chunk(2)
    return torch.stack([head + its_head, tail + its_tail], dim=1)


def _draw(fact: Fact, paths: list[list[Fact]]) -> str:
    """Draw paths between the ends of a fact as SVG: head and tail on top, a row for each path."""
    places = _places(fact, paths)
    height = max(y for _, y in places.values()) + ROW / 2
    svg = xml.Element("svg", {"xmlns": "http://www.w3.org/2000/svg"})
    svg.attrib |= {"width": f"{WIDTH}", "height": f"{height:g}"}
    svg.attrib |= {"font-family": "sans-serif", "font-size": "11", "text-anchor": "middle"}
    _add(svg, "rect", width=WIDTH, height=height, fill="white")
    tip = _add(svg, "marker", id="tip", orient="auto", refX=8, refY=4)
    tip.attrib |= {"markerWidth": "8", "markerHeight": "8"}
    _add(tip, "path", d="M 0 0 L 8 4 L 0 8 z", fill="#555")
    drawn: Counter[frozenset[str]] = Counter()
    labels: list[tuple[str, Point]] = []
    for arrow in dict.fromkeys([fact, *(step for path in paths for step in path)]):
        ends = frozenset((arrow.head, arrow.tail))
        curve, middle = _curve(places[arrow.head], places[arrow.tail], drawn[ends])
        drawn[ends] += 1
        line = _add(svg, "path", d=curve, fill="none", stroke="#555", marker_end="url(#tip)")
        if arrow == fact:
            line.attrib |= {"stroke": "#c33", "stroke-dasharray": "6 4"}
        labels.append((arrow.relation, middle))
    wide, high = BOX
    for entity, (x, y) in places.items():
        fill = "#cfe3f7" if entity in (fact.head, fact.tail) else "#eee"
        box = _add(svg, "rect", x=x - wide / 2, y=y - high / 2, width=wide, height=high, rx=6)
        box.attrib |= {"fill": fill, "stroke": "#555"}
        _write(svg, entity, (x, y))
    for label, middle in labels:  # last, so that no box hides them
        text = _write(svg, label, middle)
        text.attrib |= {"stroke": "white", "stroke-width": "4", "paint-order": "stroke"}
    return xml.tostring(svg, encoding="unicode")


def _places(fact: Fact, paths: list[list[Fact]]) -> dict[str, Point]:
    """Place head and tail on top and what lies between them on the row of its first path."""
    left, right = BOX[0] / 2 + 10, WIDTH - BOX[0] / 2 - 10
    y = float(ROW + BEND * sum(len(path) == 1 for path in paths))  # direct arrows bend upwards
    if fact.head == fact.tail:
        places = {fact.head: (WIDTH / 2, y)}
    else:
        places = {fact.head: (left, y), fact.tail: (right, y)}
    for path in paths:
        at, between = fact.head, []
        for step in path[:-1]:
            at = step.tail if step.head == at else step.head
            between.append(at)
        if not places.keys() >= set(between):
            y += ROW
        for i, entity in enumerate(between, start=1):
            places.setdefault(entity, (left + (right - left) * i / len(path), y))
    return places


def _curve(start: Point, end: Point, number: int) -> tuple[str, Point]:
    """Return an arrow as SVG path data, and its middle; the number-th between these ends.

    The first is straight, others bend by turns to one side and the other.
    """
    (x, y), (u, v) = start, end
    if start == end:
        low, high = y - BOX[1] / 2, y - BOX[1] / 2 - BEND * (number + 1)
        left, right = x - BOX[0] / 3, x + BOX[0] / 3
        rise = f"M {left:.1f} {low:.1f} C {left:.1f} {high:.1f}"
        curve = f"{rise} {right:.1f} {high:.1f} {right:.1f} {low:.1f}"
        return curve, (x, (low + 3 * high) / 4)
    bend = BEND * ((number + 1) // 2) * (1 if number % 2 else -1)
    across = (v - y, x - u) if start < end else (y - v, u - x)  # one side, whichever way it points
    scale = bend / math.dist(start, end)
    over = (x + u) / 2 + across[0] * scale, (y + v) / 2 + across[1] * scale
    (x, y), (u, v) = _border(start, over), _border(end, over)
    middle = (x + 2 * over[0] + u) / 4, (y + 2 * over[1] + v) / 4
    return f"M {x:.1f} {y:.1f} Q {over[0]:.1f} {over[1]:.1f} {u:.1f} {v:.1f}", middle


def _border(centre: Point, toward: Point) -> Point:
    """Return where the line from an entity's centre leaves its box."""
    across, down = toward[0] - centre[0], toward[1] - centre[1]
    share = 1 / max(abs(across) / (BOX[0] / 2), abs(down) / (BOX[1] / 2))
    return centre[0] + across * share, centre[1] + down * share


def _write(svg: xml.Element, label: str, at: Point) -> xml.Element:
    """Write a label, shortened in the middle, around a point; the whole shows on hovering."""
    label = "".join(c if c.isprintable() else " " for c in label)  # XML has no control characters
    text = _add(svg, "text", x=at[0], y=at[1] + 4)
    text.text = label if len(label) <= 22 else f"{label[:10]}…{label[-11:]}"
    _add(text, "title").text = label
    return text


def _add(parent: xml.Element, tag: str, **attributes: str | float) -> xml.Element:
    written = {
        name.replace("_", "-"): value if isinstance(value, str) else f"{value:.1f}"
        for name, value in attributes.items()
    }
    return xml.SubElement(parent, tag, written)
