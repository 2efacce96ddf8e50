"""Rules that lead to a fact, against counts by hand and against all assignments of variables."""

import gc
import weakref
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puda.data import rules
from puda.data.graph import KnowledgeGraph
from puda.data.index import KnownAnswers
from puda.data.rules import Adjacency, Rule, Triple, find_paths, find_rules, measure


class Example:
    """A graph with its adjacency, spoken to by labels; "r-" is r against its direction."""

    def __init__(self, *facts: str) -> None:
        self.graph = KnowledgeGraph.from_facts([tuple(fact.split()) for fact in facts])
        self.adjacency = Adjacency.of(self.graph)

    def triple(self, fact: str) -> Triple:
        """Look up "head relation tail"."""
        entity, relation = self.graph.entities.find, self.graph.relations.find
        head, name, tail = fact.split()
        return entity(head), relation(name), entity(tail)

    def body(self, body: str) -> tuple[int, ...]:
        """Look up steps."""
        relations = self.graph.relations
        return tuple(
            relations.find(step.rstrip("-")) + len(relations) * step.endswith("-")
            for step in body.split()
        )

    def measure(self, body: str, fact: str, *, budget: int = 1000) -> Rule:
        """Measure one body."""
        (rule,) = measure(
            self.adjacency, np.array([self.body(body)]), self.triple(fact), budget=budget
        )
        return rule

    def rules(self, fact: str, *, k: int = 100) -> dict[tuple[int, ...], tuple[int, int]]:
        """Find rules: body -> (support, cases)."""
        found = find_rules(self.adjacency, self.triple(fact), k=k)
        return {rule.body: (rule.support, rule.cases) for rule, _ in found}

    def paths(self, body: str, fact: str) -> list[str]:
        """Find the paths shown of a rule, as entities."""
        found = find_rules(self.adjacency, self.triple(fact), k=100)
        (entities,) = (paths for rule, paths in found if rule.body == self.body(body))
        label = self.graph.entities.labels
        return [" ".join(label[e] for e in path) for path in entities.tolist()]


BORDERS = Example("a b b", "b b a", "c b d", "d b c", "e b f", "f b e", "g b h")


def test_symmetry_is_a_rule_and_the_explained_fact_is_no_case_of_it():
    # Y b X without a b b: b b a leads to (a, b), which is explained. Of the mirrored c, d and
    # e, f each is right both ways; g b h leads to (h, g), which is wrong.
    assert BORDERS.rules("a b b") == {BORDERS.body("b-"): (4, 5)}
    # h b g is not known, and g b h leads to it alone.
    assert BORDERS.rules("h b g") == {BORDERS.body("b-"): (6, 6)}
    assert BORDERS.paths("b-", "h b g") == ["h g"]


def test_inverse_and_duplicate_relations_are_told_apart_by_direction():
    example = Example(
        *("ann parent bob", "bob child ann", "ann mother bob"),
        *("cy parent dan", "dan child cy"),
        *("eve parent fay", "eve mother fay"),
    )
    # fay child eve: parent- leads to (bob, ann) and (dan, cy), both right; mother- to (bob, ann).
    assert example.rules("fay child eve") == {
        example.body("parent-"): (2, 2),
        example.body("mother-"): (1, 1),
    }
    # cy mother dan: parent leads to ann bob and eve fay, both right; child- to ann bob.
    assert example.rules("cy mother dan") == {
        example.body("parent"): (2, 2),
        example.body("child-"): (1, 1),
    }


def test_a_chain_of_two_is_right_in_one_of_two_cases():
    example = Example(
        *("a born s", "s in v", "a citizen v"),
        *("b born t", "t in w", "b citizen v"),
        *("d born u", "u in x"),
    )
    assert example.rules("d citizen x") == {example.body("born in"): (1, 2)}
    assert example.paths("born in", "d citizen x") == ["d u x"]
    # b citizen w is wrong so far; (a, v) and (d, x) are the cases.
    assert example.rules("b citizen w") == {example.body("born in"): (1, 2)}


def test_siblings_share_without_a_fact_that_vouches_for_itself():
    # x likes q by "x likes p, B likes p, B likes q". Other cases: (y, q) by w, (y, p) by q and w,
    # and the same of w. (x, p) is none: only A = p, which is Y itself, leads there.
    example = Example("x likes p", "y likes p", "y likes q", "w likes p", "w likes q")
    share = "likes likes- likes"
    assert example.rules("x likes q") == {example.body(share): (4, 4)}
    assert example.paths(share, "x likes q") == ["x p w q", "x p y q"]


def test_what_only_the_explained_fact_would_support_is_no_rule():
    # y likes q would be right by "y likes p, x likes p, x likes q", but x likes q is explained.
    example = Example("x likes p", "x likes q", "y likes p", "y likes q")
    assert example.measure("likes likes- likes", "x likes q") == Rule(
        example.body("likes likes- likes"), support=0, cases=0, sampled=False
    )
    assert example.rules("x likes q") == {}
    # Asked about another fact, the same body has cases.
    assert example.measure("likes likes- likes", "x likes y").cases == 4


def test_a_path_never_uses_the_explained_fact_in_either_direction():
    example = Example("x r y", "y s z", "z s y", "x r z")
    found = find_paths(example.adjacency, example.triple("x r y"))
    assert [sorted(paths.steps.tolist()) for paths in found] == [
        [],
        [[*example.body("r s")], [*example.body("r s-")]],
        [],
    ]
    assert found[1].entities.tolist() == [[0, 2, 1]] * 2


def test_loops_are_led_to_by_loops_read_one_way():
    example = Example(
        *("a knows a", "b knows b", "c knows c", "a likes a", "b likes b", "d likes d"),
        *("a has k", "k loves a", "c has l", "l loves c", "d has m", "m loves d"),
    )
    # likes: b right, d wrong. has loves: c right, d wrong; loves- has-, the same from behind, is
    # not said again, nor is has has-, which goes back by the fact it came.
    assert example.rules("a knows a") == {
        example.body("likes"): (1, 2),
        example.body("has loves"): (1, 2),
    }
    assert example.paths("has loves", "a knows a") == ["a k a"]
    # A loop is no case of what leads from one entity to another.
    assert example.measure("likes", "a knows b").cases == 0


def test_the_paths_shown_are_three_through_the_least_linked_entities():
    towns = [f"x via m{i}" for i in range(5)] + [f"m{i} to y" for i in range(5)]
    hubs = [f"m{i} to z{i}{j}" for i in (0, 1) for j in range(3 - i)]
    example = Example(*towns, *hubs, "v via n", "n to w", "v flies w")
    assert example.rules("x flies y")[example.body("via to")] == (1, 6)
    assert example.paths("via to", "x flies y") == ["x m2 y", "x m3 y", "x m4 y"]


def test_the_best_rules_come_first_and_those_without_support_not_at_all():
    example = Example(
        *("a r b", "a s b", "c r d", "c s d", "e s f", "g s h"),  # s: right in 2 of 3
        *("a t b", "e t f"),  # t: right in 1 of 2
        *("a u b", "c u d"),  # u: right in 2 of 2
        *("g t h", "g u h", "g v h"),  # v: without another case
    )
    found = example.rules("g r h")
    assert list(found.items()) == [
        (example.body("u"), (2, 2)),
        (example.body("s"), (2, 3)),
        (example.body("t"), (1, 2)),
    ]
    assert list(example.rules("g r h", k=2)) == [example.body("u"), example.body("s")]


FAN = Example(*(f"x{i} r {end}{i}" for i in range(20) for end in "abc"), "x0 q a0", "x1 q b1")


@pytest.mark.parametrize(("budget", "starts"), [(60, 20), (59, 19), (10, 3), (3, 1), (1, 1)])
def test_beyond_the_budget_some_starts_are_walked_and_each_to_all_its_ends(budget, starts):
    rule = FAN.measure("r", "x5 q x6", budget=budget)
    assert (rule.cases, rule.sampled) == (3 * starts, starts < 20)
    assert FAN.measure("r", "x5 q x6", budget=budget) == rule


def test_which_starts_are_walked_depends_on_chance_not_on_their_order():
    bodies = np.array([FAN.body("r")])
    facts = [FAN.triple(f"x{i} q a{i}") for i in range(20)]
    # The pair of the explained fact is no case: that shows whether its head was walked.
    walked = [measure(FAN.adjacency, bodies, fact, budget=30)[0].cases == 29 for fact in facts]
    assert sum(walked) == 10
    assert walked not in ([True] * 10 + [False] * 10, [False] * 10 + [True] * 10)


def test_a_body_too_wide_at_its_first_start_is_given_up():
    star = Example(*(f"x r y{i}" for i in range(30)), "x q y0", "x q y1")
    assert star.measure("r", "y0 q x", budget=3) == Rule(star.body("r"), 2, 30, sampled=False)
    assert star.measure("r", "y0 q x", budget=2) == Rule(star.body("r"), 0, 0, sampled=True)
    assert star.measure("r r- r", "y0 q x", budget=2).confidence == 0


def test_between_hubs_the_middle_is_sought_at_the_least_linked(monkeypatch):
    example = Example("x r a", "a s c", "c t y", "x r b", "b s d", "d t y", "b s e", "b s f")
    fact = example.triple("x t y")
    assert len(find_paths(example.adjacency, fact)[2].steps) == 2
    monkeypatch.setattr(rules, "LINKS", 5)  # a has 2 steps, b has 4
    entities = find_paths(example.adjacency, fact)[2].entities
    labels = example.graph.entities.labels
    assert [[labels[e] for e in path] for path in entities] == [["x", "a", "c", "y"]]


def test_the_adjacency_is_built_once_and_goes_with_its_graph():
    graph = KnowledgeGraph.from_facts([("a", "r", "b")])
    built = weakref.ref(Adjacency.of(graph))
    assert Adjacency.of(graph) is built()
    del graph
    gc.collect()
    assert built() is None


class Case:
    """Facts over five entities and two relations, and a fact to explain."""

    def __init__(self, facts: set[Triple], fact: Triple) -> None:
        known = KnownAnswers(
            np.array(sorted(facts), dtype=np.int64).reshape(-1, 3), num_entities=5, num_relations=2
        )
        self.adjacency, self.fact, self.facts = Adjacency(known), fact, facts - {fact}

    def holds(self, step: int, one: int, other: int) -> bool:
        """Whether a step leads from one entity to another without the explained fact."""
        return ((one, step, other) if step < 2 else (other, step - 2, one)) in self.facts

    def walks(self, body: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Try all entities in place of the body's variables."""
        loop = self.fact[0] == self.fact[2]
        found = []
        for entities in product(range(5), repeat=len(body) + 1):
            if len(set(entities)) != len(entities) - loop or (entities[0] == entities[-1]) != loop:
                continue
            if all(self.holds(*atom) for atom in zip(body, entities, entities[1:], strict=False)):
                found.append(entities)
        return found

    def rule(self, body: tuple[int, ...]) -> Rule:
        """Count cases and support."""
        head, relation, tail = self.fact
        pairs = {(walk[0], walk[-1]) for walk in self.walks(body)} - {(head, tail)}
        support = sum((x, relation, y) in self.facts for x, y in pairs)
        return Rule(body, support, len(pairs), sampled=False)

    def leads(self, body: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the walks of a body from head to tail."""
        head, _, tail = self.fact
        if head == tail and body >= tuple((step + 2) % 4 for step in reversed(body)):
            return []  # the same loop from behind
        return [walk for walk in self.walks(body) if (walk[0], walk[-1]) == (head, tail)]


TRIPLES = st.tuples(st.integers(0, 4), st.integers(0, 1), st.integers(0, 4))
BODIES = [list(product(range(4), repeat=length)) for length in (1, 2, 3)]


@given(st.sets(TRIPLES, max_size=16), TRIPLES)
def test_support_and_cases_are_those_of_all_assignments(facts: set[Triple], fact: Triple) -> None:
    case = Case(facts, fact)
    for bodies in BODIES:
        measured = measure(case.adjacency, np.array(bodies), fact, budget=10_000)
        assert measured == [case.rule(body) for body in bodies]


@given(st.sets(TRIPLES, max_size=16), TRIPLES)
def test_paths_and_rules_are_those_of_all_assignments(facts: set[Triple], fact: Triple) -> None:
    case = Case(facts, fact)
    for bodies, paths in zip(BODIES, find_paths(case.adjacency, fact), strict=True):
        found = zip(
            map(tuple, paths.steps.tolist()), map(tuple, paths.entities.tolist()), strict=True
        )
        expected = [(body, walk) for body in bodies for walk in case.leads(body)]
        assert sorted(found) == sorted(expected)

    everything = [case.rule(body) for bodies in BODIES for body in bodies if case.leads(body)]
    everything.sort(key=lambda rule: (-rule.trust, len(rule.body), rule.body))
    expected = [rule for rule in everything if rule.support]
    for k in (1, 2, 100):  # with k = 1 and many bodies, a glance chooses
        found = find_rules(case.adjacency, fact, k=k)
        assert [rule for rule, _ in found] == expected[:k]
        for rule, entities in found:
            walks = case.leads(rule.body)
            assert len(entities) == min(3, len(walks))
            assert {*map(tuple, entities.tolist())} <= {*walks}
