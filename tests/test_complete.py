"""The missing facts of a whole graph are those of a loop over all triples."""

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import puda.complete as completion
import toy
from puda.complete import Estimate, candidates, complete, estimate
from puda.config import Config
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.errors import Diverged, LabelError, PudaError
from puda.runs import Trained
from puda.scoring import build_model
from puda.types import Questions, Side


def make(graph: KnowledgeGraph, scoring: dict[str, Any], seed: int, *, whole: bool) -> Trained:
    """Make a model of random weights; of whole numbers if its scores are to be exact."""
    torch.manual_seed(seed)
    config = Config.of({"scoring": scoring})
    model = build_model(config.scoring, graph).eval()
    entities = torch.randn(graph.num_entities, model.row_dim)
    if whole:
        entities = torch.randint(-2, 3, entities.shape).float()
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(torch.randint(-2, 3, weight.shape))
    return Trained(config, graph, model, entities)


def admitted(graph: KnowledgeGraph, share: float) -> dict[tuple[int, int], set[int]]:
    """Say by (relation, column) which entities are admitted, with sets."""
    facts = [fact for split in SPLITS for fact in graph.facts(split).tolist()]
    places = {
        (r, column): {fact[column] for fact in facts if fact[1] == r}
        for r in range(graph.num_relations)
        for column in (0, 2)
    }
    return {
        place: seen.union(*(s for s in places.values() if s and len(s & seen) >= share * len(s)))
        for place, seen in places.items()
    }


def in_a_loop(
    trained: Trained,
    *,
    pruned: bool = True,
    top: int | None = None,
    per_relation: int | None = None,
    minimum: float = -math.inf,
    calibration: "Rising | None" = None,
) -> list[tuple[Any, ...]]:
    """Score every triple by itself, and sort."""
    graph = trained.graph
    known = {tuple(fact) for split in SPLITS for fact in graph.facts(split).tolist()}
    loops = {r for h, r, t in known if h == t}
    fit = admitted(graph, completion.SHARE)
    found = []
    for r in range(graph.num_relations):
        rows = []
        for h, t in itertools.product(range(graph.num_entities), repeat=2):
            if (h, r, t) in known or (h == t and r not in loops):
                continue
            if pruned and not (h in fit[r, 0] and t in fit[r, 2]):
                continue
            tail = trained.score(asking(h, r, Side.TAIL))[0, t]
            head = trained.score(asking(t, r, Side.HEAD))[0, h]
            score = ((tail + head) / 2).item()
            by = score if calibration is None else calibration.curve(r, score)
            rows.append((-by, -score, r, h, t))
        rows.sort(key=lambda row: row[1:])  # what scores highest is found
        limit = min((n for n in (top, per_relation) if n is not None), default=None)
        if calibration is not None and limit is not None:
            rows = rows[: max(limit, completion.DEPTH)]
        elif limit is not None:
            rows = rows[:limit]
        rows = sorted(row for row in rows if -row[0] >= minimum)[:limit]
        found += [(*row, rank) for rank, row in enumerate(rows, start=1)]
    entity, relation = graph.entities.labels, graph.relations.labels
    shown = []
    for by, score, r, h, t, rank in sorted(found)[:top]:
        probable = () if calibration is None else (-by,)
        shown.append((entity[h], relation[r], entity[t], -score, *probable, rank))
    return shown


def asking(anchor: int, relation: int, side: Side) -> Questions:
    return Questions(*(torch.tensor([value]) for value in (anchor, relation, int(side))))


EXACT = [
    {"name": "complex", "dim": 4},
    {"name": "complex", "dim": 4, "options": {"reciprocal": False}},
    {"name": "distmult", "dim": 2},
    {"name": "transe", "dim": 3},
    {"name": "transe", "dim": 3, "options": {"reciprocal": True}},
]
INEXACT = [
    {"name": "complex", "dim": 8},
    {"name": "rotate", "dim": 8},
    {"name": "conve", "dim": 18},
    {"name": "convkb", "dim": 4},
    # Not decoded by DistMult, which scores a fact and its mirror alike but for rounding.
    {"name": "compgcn", "dim": 18, "options": {"kernel": 3, "filters": 2}},
]


class Blocks(NamedTuple):
    """How the work is cut."""

    questions: int
    tile: int
    strip: int
    free: int  # bytes


@contextmanager
def cut(blocks: Blocks, share: float = completion.SHARE) -> Iterator[None]:
    with (
        mock.patch.object(completion, "QUESTIONS", blocks.questions),
        mock.patch.object(completion, "TILE", blocks.tile),
        mock.patch.object(completion, "STRIP", blocks.strip),
        mock.patch.object(completion, "SHARE", share),
        mock.patch.object(completion, "DEPTH", 4),
        mock.patch.object(completion, "free_memory", lambda: blocks.free),
    ):
        yield


blockings = st.builds(
    Blocks,
    questions=st.integers(1, 7),
    tile=st.integers(1, 40),
    strip=st.integers(1, 20),
    free=st.sampled_from([0, 300, 700, 1500, 4000, 10**9]),
)


@st.composite
def graphs(draw: st.DrawFn) -> KnowledgeGraph:
    entity, relation = st.sampled_from("abcdef"), st.sampled_from("rst")
    fact = st.tuples(entity, relation, entity)
    train = draw(st.lists(fact, min_size=1, max_size=10))
    valid, test = draw(st.lists(fact, max_size=3)), draw(st.lists(fact, max_size=3))
    return KnowledgeGraph.from_facts(train, valid=valid, test=test)


limits = st.one_of(st.none(), st.integers(1, 12))


@settings(max_examples=150)
@given(
    graph=graphs(),
    scoring=st.sampled_from(EXACT),
    seed=st.integers(0, 10_000),
    blocks=blockings,
    share=st.sampled_from([completion.SHARE, 0.5, 1.0]),
    pruned=st.booleans(),
    top=limits,
    per_relation=limits,
    minimum=st.sampled_from([-1000.0, -1.0, 0.0, 2.0]),
)
def test_what_is_found_is_what_a_loop_finds_however_it_is_cut(
    graph, scoring, seed, blocks, share, pruned, top, per_relation, minimum
):
    trained = make(graph, scoring, seed, whole=True)
    asked = {"pruned": pruned, "top": top, "per_relation": per_relation, "minimum": minimum}
    with cut(blocks, share):
        assert complete(trained, **asked).rows() == in_a_loop(trained, **asked)


@pytest.mark.parametrize("scoring", INEXACT, ids=lambda scoring: scoring["name"])
@pytest.mark.parametrize("pruned", [True, False])
@pytest.mark.parametrize("blocks", [None, Blocks(3, 20, 8, 3000)])
def test_scores_of_any_model_are_those_of_its_questions(scoring, pruned, blocks):
    trained = make(toy.ring(6), scoring, 3, whole=False)
    expected = in_a_loop(trained, pruned=pruned, per_relation=9)
    if blocks is None:
        found = complete(trained, pruned=pruned, per_relation=9).rows()
    else:
        with cut(blocks):
            found = complete(trained, pruned=pruned, per_relation=9).rows()
    assert [row[:3] for row in found] == [row[:3] for row in expected]
    assert [row[4] for row in found] == [row[4] for row in expected]
    assert [row[3] for row in found] == pytest.approx([row[3] for row in expected], rel=1e-4)


def test_both_sides_count_by_half():
    # ComplEx with reciprocals, d = 2: <h, r, t> is Re(h r conj t) asked for the tail and
    # Re(t r' conj h) asked for the head. h = 1, t = 2i, r = i, r' = -3i: 2 and 6, mean 4.
    # <t, r, h>: Re(2i i) = -2 and Re(1 * -3i * conj(2i)) = -6, mean -4.
    graph = KnowledgeGraph.from_facts([("h", "s", "t"), ("t", "r", "t"), ("h", "r", "h")])
    config = Config.of({"scoring": {"name": "complex", "dim": 2}})
    model = build_model(config.scoring, graph).eval()
    with torch.no_grad():
        model.relations.zero_()
        model.relations[0], model.relations[2] = torch.tensor([[0.0, 1.0], [0.0, -3.0]])
    trained = Trained(config, graph, model, torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    facts = complete(trained, per_relation=10, relations=["r"])
    assert facts.rows() == [("h", "r", "t", 4.0, 1), ("t", "r", "h", -4.0, 2)]


# Towns on one axis for DistMult with d = 1: the score of <h, r, t> is h r t.
SIZES = {"Athens": 1.0, "Berlin": 2.0, "Cairo": 3.0, "Delhi": -1.0}
WEIGHTS = {"near": 1.0, "twinned with": 2.0}


@pytest.fixture
def towns() -> Trained:
    graph = KnowledgeGraph.from_facts(
        [("Athens", "near", "Berlin"), ("Delhi", "twinned with", "Cairo")],
        valid=[("Athens", "near", "Athens")],
        test=[("Berlin", "near", "Cairo")],
    )
    config = Config.of({"scoring": {"name": "distmult", "dim": 1}})
    model = build_model(config.scoring, graph).eval()
    with torch.no_grad():
        model.relations.copy_(torch.tensor([[WEIGHTS[r]] for r in graph.relations.labels]))
    entities = torch.tensor([[SIZES[label]] for label in graph.entities.labels])
    return Trained(config, graph, model, entities)


def test_known_facts_of_all_splits_and_loops_are_left_out(towns):
    facts = complete(towns, per_relation=100, pruned=False)
    near = facts.filter(pl.col("relation") == "near")
    # Of 16 pairs three are known; Athens is near itself, so Cairo may be.
    assert len(near) == 13
    assert near.row(0) == ("Cairo", "near", "Cairo", 9.0, 1)
    assert ("Berlin", "near", "Cairo", 6.0) not in [row[:4] for row in near.rows()]
    assert ("Cairo", "near", "Berlin", 6.0, 2) in near.rows()
    twinned = facts.filter(pl.col("relation") == "twinned with")
    assert len(twinned) == 16 - 4 - 1  # no town is twinned with itself
    assert not (twinned["head"] == twinned["tail"]).any()
    assert twinned.row(0) == ("Berlin", "twinned with", "Cairo", 12.0, 1)


def test_top_compares_relations_and_per_relation_does_not(towns):
    best = complete(towns, top=3, pruned=False)
    assert best.rows() == [
        ("Berlin", "twinned with", "Cairo", 12.0, 1),
        ("Cairo", "twinned with", "Berlin", 12.0, 2),
        ("Cairo", "near", "Cairo", 9.0, 1),
    ]
    each = complete(towns, per_relation=1, pruned=False)
    assert each.rows() == [best.row(0), best.row(2)]
    assert complete(towns, per_relation=1, top=1, pruned=False).rows() == [best.row(0)]


def test_more_than_there_is_gives_all_there_is(towns):
    everything = complete(towns, top=10**9, pruned=False)
    assert len(everything) == 13 + 11
    assert complete(towns, minimum=-1e9, pruned=False).rows() == everything.rows()
    assert complete(towns, per_relation=10**9, pruned=False).rows() == everything.rows()


def test_a_minimum_cuts_by_score_where_there_is_no_probability(towns):
    assert complete(towns, minimum=9.0, pruned=False)["score"].to_list() == [12.0, 12.0, 9.0]
    assert len(complete(towns, minimum=9.5, pruned=False)) == 2
    assert len(complete(towns, minimum=9.0, top=1, pruned=False)) == 1


@pytest.mark.parametrize("top", [1, 5, 6, 7, 30])
@pytest.mark.parametrize("blocks", [Blocks(2, 6, 3, 10**9), Blocks(2, 6, 3, 200)])
def test_ties_go_by_relation_head_and_tail(top, blocks):
    graph = KnowledgeGraph.from_facts([(h, r, h) for h in "abcd" for r in "rs"])
    trained = make(graph, {"name": "distmult", "dim": 2}, 0, whole=True)
    trained = replace(trained, entities=torch.zeros_like(trained.entities))
    pairs = [(h, r, t) for r in "rs" for h in "abcd" for t in "abcd" if h != t]
    with cut(blocks):
        facts = complete(trained, top=top)
    assert [row[:3] for row in facts.rows()] == pairs[:top]


def test_candidates_are_those_seen_in_the_place_and_those_of_places_alike():
    # Of the 20 that have a capital, the first has a currency, so all fit there. Of the 21 tails of
    # `borders`, one has a capital and none a currency: 1 in 21 is too few for `capital`.
    capital = [(f"land {i:02d}", "capital", f"town {i:02d}") for i in range(20)]
    currency = [("land 00", "currency", "coin")]
    borders = [("sea", "borders", f"coast {i:02d}") for i in range(20)]
    borders += [("sea", "borders", "land 05")]
    graph = KnowledgeGraph.from_facts(capital + currency + borders)
    entity, relation = graph.entities.labels, graph.relations.labels

    def of(label: str) -> tuple[list[str], list[str]]:
        heads, tails = candidates(graph, relation.index(label))
        return [entity[i] for i in heads], [entity[i] for i in tails]

    lands, towns = [head for head, _, _ in capital], [town for _, _, town in capital]
    assert of("currency") == (lands, ["coin"])
    assert of("capital") == (lands, towns)
    # `land 05` borders the sea, so the 1 in 20 that have a capital may border it too.
    assert of("borders") == (["sea"], sorted({tail for _, _, tail in borders} | {*lands}))
    everything = np.arange(graph.num_entities)
    for ids in candidates(graph, 0, pruned=False):
        assert (ids == everything).all()


@given(graphs(), st.sampled_from([0.05, 0.5, 1.0]))
def test_no_entity_that_was_seen_in_a_place_is_left_out_of_it(graph, share):
    with mock.patch.object(completion, "SHARE", share):
        for split in SPLITS:
            for head, relation, tail in graph.facts(split).tolist():
                heads, tails = candidates(graph, relation)
                assert head in heads and tail in tails


def test_relations_are_given_by_label(towns):
    whole = complete(towns, per_relation=3, pruned=False)
    twinned = complete(towns, per_relation=3, pruned=False, relations=["TWINNED", "twinned with"])
    assert twinned.rows() == whole.filter(pl.col("relation") == "twinned with").rows()
    with pytest.raises(LabelError, match="no relation 'neer'.*'near'"):
        complete(towns, top=3, relations=["near", "neer"])
    with pytest.raises(LabelError, match="no relation 'neer'.*'near'"):
        estimate(towns, relations=["neer"])
    with pytest.raises(PudaError, match="relations is empty"):
        complete(towns, top=3, relations=[])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "give top or per_relation"),
        ({"top": 0}, "top = 0: ask for at least one"),
        ({"per_relation": -1, "top": 3}, "per_relation = -1: ask for at least one"),
    ],
)
def test_a_senseless_number_is_refused(towns, asked, message):
    with pytest.raises(PudaError, match=message):
        complete(towns, **asked)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_score_that_is_not_finite_raises(towns, value):
    entities = towns.entities.clone()
    entities[3] = value
    with pytest.raises(Diverged, match="not finite"):
        complete(replace(towns, entities=entities), top=1, pruned=False)


def test_a_graph_that_is_complete_has_an_empty_result(tmp_path):
    graph = KnowledgeGraph.from_facts([(h, "r", t) for h in "ab" for t in "ab"])
    trained = make(graph, {"name": "distmult", "dim": 2}, 0, whole=True)
    for calibration in (None, Rising()):
        facts = complete(trained, tmp_path / "none.tsv", top=5, calibration=calibration)
        assert facts.is_empty()
        columns = ["head", "relation", "tail", "score", "probability", "rank"]
        if calibration is None:
            columns.remove("probability")
        assert facts.columns == columns
        assert (tmp_path / "none.tsv").read_text() == "\t".join(columns) + "\n"


def test_a_relation_that_has_no_known_fact_has_no_candidates_but_unpruned():
    graph = KnowledgeGraph.from_facts(
        [("a", "r", "b")], negatives={"test": [("a", "never", "b"), ("c", "r", "a")]}
    )
    trained = make(graph, {"name": "conve", "dim": 18}, 0, whole=False)
    assert complete(trained, top=9, relations=["never"]).is_empty()
    assert estimate(trained, relations=["never"]) == Estimate(9, 0, 0.0, 0)
    assert len(complete(trained, top=9, relations=["never"], pruned=False)) == 6


# Probabilities: here of each relation another rising function of the score.


class Rising:
    """A calibration that is surer of relation 0; it rounds, so that there are ties."""

    def curve(self, relation: int, score: float) -> float:
        """Return the probability of a score."""
        return round(1 / (1 + math.exp(-(score + 3 - 4 * relation))), 2)

    def probability(self, trained: Trained, facts: np.ndarray) -> np.ndarray:
        """Return those of facts (n, 3)."""
        chances = []
        for h, r, t in facts.tolist():
            tail = trained.score(asking(h, r, Side.TAIL))[0, t]
            head = trained.score(asking(t, r, Side.HEAD))[0, h]
            chances.append(self.curve(r, ((tail + head) / 2).item()))
        return np.array(chances, dtype=float)


@settings(max_examples=40)
@given(
    graph=graphs(),
    seed=st.integers(0, 1000),
    blocks=blockings,
    top=st.sampled_from([1, 3, 10, 1000]),
    per_relation=limits,
    minimum=st.sampled_from([-1.0, 0.02, 0.5, 0.731, 0.99, 2.0]),
)
def test_a_probability_orders_and_cuts(graph, seed, blocks, top, per_relation, minimum):
    trained = make(graph, EXACT[0], seed, whole=True)
    asked = {
        "top": top,
        "per_relation": per_relation,
        "minimum": minimum,
        "calibration": Rising(),
    }
    with cut(blocks):
        facts = complete(trained, **asked)
        assert facts.rows() == in_a_loop(trained, **asked)
    assert facts.columns[3:] == ["score", "probability", "rank"]


def test_a_probability_cannot_bound_the_search(towns):
    with pytest.raises(PudaError, match="give top or per_relation"):
        complete(towns, minimum=0.9, calibration=Rising())


# Files, and going on.


class Killed(Exception):
    """Stands for the end of a process."""


def killed_after(number: int):
    def listen(event):
        if event["done"] == number:
            raise Killed

    return listen


@pytest.fixture
def family() -> Trained:
    trained = make(toy.family_tree(3), {"name": "complex", "dim": 8}, 1, whole=False)
    with torch.no_grad():
        trained.model.relations.mul_(1000)  # as large as the entities
    return trained


ASKED = [{"top": 20}, {"per_relation": 7}, {"minimum": 1.0}]


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: next(iter(asked)))
@pytest.mark.parametrize("ending", [".parquet", ".tsv", ".nt"])
def test_a_killed_job_goes_on_and_gives_the_same_file(tmp_path, family, asked, ending):
    whole, path = tmp_path / f"whole{ending}", tmp_path / "new" / f"facts{ending}"
    expected = complete(family, whole, **asked)
    assert len(expected) > 10
    for number in (1, 3):
        with pytest.raises(Killed):
            complete(family, path, listener=killed_after(number), **asked)
        assert not path.exists()
    searched = []
    find = completion._find

    def spy(trained, search, memory):
        searched.append(search.relation)
        return find(trained, search, memory)

    with mock.patch.object(completion, "_find", spy):
        facts = complete(family, path, **asked)
    assert searched == [3]  # of relations 0 .. 3 three were done
    assert facts.rows() == expected.rows()
    assert path.read_bytes() == whole.read_bytes()
    assert {file.name for file in tmp_path.rglob("*")} == {whole.name, "new", path.name}


def test_the_file_is_written_as_its_ending_says(tmp_path, family):
    facts = complete(family, str(tmp_path / "facts.parquet"), top=20)
    assert pl.read_parquet(tmp_path / "facts.parquet").rows() == facts.rows()
    complete(family, tmp_path / "facts.csv", top=20)
    read = pl.read_csv(tmp_path / "facts.csv", schema=facts.schema)
    assert read.rows() == facts.rows()


def other_weights(family: Trained) -> Trained:
    return make(family.graph, {"name": "complex", "dim": 8}, 2, whole=False)


def other_relations(family: Trained) -> Trained:
    model = build_model(family.config.scoring, family.graph).eval()
    with torch.no_grad():
        model.relations.copy_(-family.model.relations)
    return replace(family, model=model)


def other_settings(family: Trained) -> Trained:
    """TransE of the same weights, but for its margin."""
    config = Config.of({"scoring": {"name": "transe", "dim": 8, "options": {"margin": 1.0}}})
    model = build_model(config.scoring, family.graph).eval()
    model.load_state_dict(transe(family).model.state_dict())
    return replace(family, config=config, model=model)


def transe(family: Trained) -> Trained:
    torch.manual_seed(0)
    config = Config.of({"scoring": {"name": "transe", "dim": 8}})
    return replace(family, config=config, model=build_model(config.scoring, family.graph).eval())


def other_facts(family: Trained) -> Trained:
    """The same labels, candidates and weights, but a fact of train is known no more."""
    graph = family.graph
    places = [candidates(graph, r) for r in range(4)]
    for i in range(len(graph.train)):
        fewer = replace(graph, train=np.delete(graph.train, i, axis=0))
        if all(
            np.array_equal(one, other)
            for r in range(4)
            for one, other in zip(places[r], candidates(fewer, r), strict=True)
        ):
            return replace(family, graph=fewer)
    raise AssertionError("every fact changes the candidates")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda f: f, other_weights),
        (lambda f: f, other_relations),
        (lambda f: f, other_facts),
        (transe, other_settings),
    ],
)
def test_parts_of_another_model_are_not_used(tmp_path, family, first, second):
    path = tmp_path / "facts.parquet"
    with pytest.raises(Killed):
        complete(first(family), path, per_relation=300, listener=killed_after(3))
    other = second(family)
    assert len(list(tmp_path.rglob("*.parquet"))) == 3
    assert (
        complete(other, path, per_relation=300).rows() == complete(other, per_relation=300).rows()
    )
    assert (
        complete(other, per_relation=300).rows() != complete(first(family), per_relation=300).rows()
    )
    assert [file.name for file in tmp_path.iterdir()] == ["facts.parquet"]


@pytest.mark.parametrize(
    "asked",
    [
        {"per_relation": 6},
        {"top": 2},
        {"per_relation": 5, "minimum": 3.0},
        {"per_relation": 5, "pruned": False},
        {"per_relation": 5, "minimum": 0.9, "calibration": Rising()},
        {"per_relation": 5, "calibration": Rising()},
    ],
)
def test_parts_of_other_settings_are_not_mistaken(tmp_path, monkeypatch, family, asked):
    monkeypatch.setattr(completion, "SHARE", 1.0)
    path, first = tmp_path / "facts.parquet", complete(family, per_relation=5)
    with pytest.raises(Killed):
        complete(family, path, per_relation=5, listener=killed_after(3))
    assert complete(family, path, **asked).rows() == complete(family, **asked).rows()
    assert complete(family, **asked).rows() != first.rows()


def test_a_damaged_part_is_found_anew(tmp_path, family):
    path = tmp_path / "facts.parquet"
    with pytest.raises(Killed):
        complete(family, path, top=20, listener=killed_after(3))
    first, second, _ = sorted((tmp_path / "facts.parquet.parts").iterdir())
    first.write_bytes(b"")
    second.write_bytes(second.read_bytes()[:40])
    assert complete(family, path, top=20).rows() == complete(family, top=20).rows()


def test_what_else_lies_among_the_parts_stays(tmp_path, family):
    mine = tmp_path / "facts.tsv.parts" / "notes.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    complete(family, tmp_path / "facts.tsv", top=2)
    assert mine.read_text() == "mine"
    assert [file.name for file in mine.parent.iterdir()] == ["notes.txt"]


def test_without_a_path_nothing_is_written(tmp_path, monkeypatch, family):
    monkeypatch.chdir(tmp_path)
    assert len(complete(family, top=2)) == 2
    assert not list(Path().iterdir())


def test_an_unknown_ending_is_told_before_the_work(tmp_path, family):
    heard = []
    with pytest.raises(PudaError, match=r"\.xls: choose one of"):
        complete(family, tmp_path / "facts.xls", top=2, listener=heard.append)
    assert not heard and not list(tmp_path.iterdir())


def test_the_listener_hears_of_each_relation(family):
    heard: list[Any] = []
    facts = complete(family, per_relation=3, listener=heard.append)
    labels = family.graph.relations.labels
    assert [(e["event"], e["relation"], e["done"], e["of"]) for e in heard] == [
        ("relation", label, i, 4) for i, label in enumerate(labels, start=1)
    ]
    assert sum(e["facts"] for e in heard) == len(facts)
    assert sum(e["pairs"] for e in heard) == estimate(family).pairs


# What it costs.


@given(graphs(), st.booleans(), st.sampled_from([0.05, 1.0]))
def test_an_estimate_has_the_true_number_of_pairs(graph, pruned, share):
    trained = make(graph, EXACT[0], 0, whole=True)
    scored = 0
    tiles = completion._tiles

    def count(*args):
        nonlocal scored
        for heads, tails, scores in tiles(*args):
            scored += scores.size
            yield heads, tails, scores

    with mock.patch.object(completion, "SHARE", share):
        foreseen = estimate(trained, pruned=pruned)
        with mock.patch.object(completion, "_tiles", count):
            complete(trained, top=1, pruned=pruned)
        fit = admitted(graph, share)
    assert foreseen.pairs == scored
    assert foreseen.all_pairs == graph.num_relations * graph.num_entities**2
    if pruned:
        expected = [len(fit[r, 0]) * len(fit[r, 2]) for r in range(graph.num_relations)]
        assert foreseen.pairs == sum(expected)
    else:
        assert foreseen.pairs == foreseen.all_pairs
    assert math.isfinite(foreseen.seconds) and foreseen.seconds > 0


def test_an_estimate_extrapolates_from_questions_and_pairs(family):
    # Encoding takes 1 s a question, all else 2 s a pair, whatever the block.
    now = 0.0
    ask, tiles = completion._ask, completion._tiles

    def slow_ask(trained, anchors, relation, side):
        nonlocal now
        now += len(anchors)
        return ask(trained, anchors, relation, side)

    def slow_tiles(*args):
        nonlocal now
        now -= 1  # a plan asks one question to see how large it is
        for heads, tails, scores in tiles(*args):
            now += 2 * scores.size
            yield heads, tails, scores

    graph = family.graph
    sizes = [[len(ids) for ids in candidates(graph, r)] for r in range(graph.num_relations)]
    with (
        cut(Blocks(256, 50, 8, 10**9)),
        mock.patch.object(completion, "_ask", slow_ask),
        mock.patch.object(completion, "_tiles", slow_tiles),
        mock.patch.object(completion.time, "perf_counter", lambda: now),
    ):
        foreseen = estimate(family)
    expected = sum(h + t + 2 * h * t for h, t in sizes)
    assert foreseen.seconds == pytest.approx(expected)


def test_an_estimate_counts_the_rivals_of_facts_that_get_probabilities(family):
    # A probability takes 1 s for each entity that its fact is ranked among, all else no time.
    now = 0.0
    graph = family.graph
    sizes = [[len(ids) for ids in candidates(graph, r)] for r in range(graph.num_relations)]

    class Slow:
        def probability(self, trained, facts):
            nonlocal now
            now += sum(sum(sizes[relation]) for relation in facts[:, 1])
            return np.zeros(len(facts))

    with mock.patch.object(completion.time, "perf_counter", lambda: now):
        few, many = (estimate(family, limit=n, calibration=Slow()) for n in (5, 10**6))
        assert estimate(family).seconds == 0
    whole = sum(h * t * (h + t) for h, t in sizes)
    assert many.seconds == pytest.approx(whole)
    depth = completion.DEPTH  # so many of a relation are looked at even if few are asked for
    assert few.seconds == pytest.approx(sum(min(depth, h * t) * (h + t) for h, t in sizes))


@pytest.mark.parametrize("kilobytes", [1, 4, 16, 64])
def test_memory_bounds_questions_and_scores(kilobytes):
    trained = make(toy.ring(60), {"name": "complex", "dim": 8}, 0, whole=False)
    sizes = []
    match_ = trained.model.match

    def spy(question, rows):
        sizes.append((len(question), len(rows)))
        return match_(question, rows)

    free = 4000 * kilobytes
    with mock.patch.object(trained.model, "match", spy), cut(Blocks(256, 10**6, 64, free)):
        complete(trained, top=1)
        foreseen = completion._plan(
            trained, completion.Search(0, np.arange(60), np.arange(60), 1, 1, 0.0), None
        )
    assert foreseen.size <= 1000 * kilobytes
    for (heads, tails), (asked, rows) in zip(sizes[::2], sizes[1::2], strict=True):
        assert (asked, rows) == (tails, heads)
        assert tails * (8 + 8) * 4 + heads * tails * completion.BYTES <= 1000 * kilobytes
    assert max(a * b for a, b in sizes) > 8 * kilobytes  # and uses what it may


def test_memory_is_given_in_megabytes():
    trained = make(toy.ring(400), {"name": "complex", "dim": 256}, 0, whole=False)
    assert estimate(trained, memory=1).megabytes == 1
    assert estimate(trained, memory=1000).megabytes == math.ceil(400 * (2048 + 16 * 400) / 1e6)
    rows = complete(trained, top=50, memory=1).rows()
    whole = complete(trained, top=50).rows()
    assert [row[:3] for row in rows] == [row[:3] for row in whole]
