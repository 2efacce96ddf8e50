"""The report on a scorer: its parts add up, and nothing in it is hidden or undefined."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import toy
from puda.api import Run
from puda.config import Config
from puda.data.categories import relation_categories
from puda.data.graph import KnowledgeGraph
from puda.errors import DataError
from puda.evaluation.metrics import Metrics
from puda.evaluation.ranking import Scorer
from puda.evaluation.report import evaluate
from puda.runs import RunFolder
from puda.scoring import build_model
from puda.types import Questions

FIGURES = {"count", "mrr", "mr", "hits@1", "hits@3", "hits@10", "amri", "optimistic", "pessimistic"}


def whims(graph: KnowledgeGraph) -> Scorer:
    """Score by a random table with ties, the same for each question whenever it is asked."""
    shape = (2, graph.num_relations, graph.num_entities, graph.num_entities)
    table = torch.randint(0, 12, shape, generator=torch.Generator().manual_seed(0)).float()

    def score(questions: Questions) -> Tensor:
        return table[questions.side, questions.relation, questions.anchor]

    return score


def fixed(scores: list[float]) -> Scorer:
    return lambda questions: torch.tensor([scores] * len(questions))


def sums(parts: Metrics, side: str) -> dict[str, Any]:
    """Put the groups of a breakdown together again."""
    groups = [group[side] for group in parts.values() if side in group]
    count = sum(group["count"] for group in groups)
    figures = ("mrr", "mr", "hits@1", "hits@3", "hits@10")
    return {"count": count} | {
        name: sum(group["count"] * group[name] for group in groups) / count for name in figures
    }


@pytest.fixture(
    params=[toy.ring, toy.family_tree, toy.checkerboard], ids=lambda make: make.__name__
)
def graph(request: pytest.FixtureRequest) -> KnowledgeGraph:
    make: Callable[[], KnowledgeGraph] = request.param
    return make()


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_breakdowns_add_up_to_the_whole(graph: KnowledgeGraph, split: str) -> None:
    report = evaluate(graph, whims(graph), split=split)
    for side in ("tail", "head", "both"):
        assert report[side]["count"] == len(graph.facts(split)) * (2 if side == "both" else 1)
    for breakdown, sides in (
        ("relations", ("tail", "head", "both")),
        ("categories", ("tail", "head", "both")),
        ("degrees", ("both",)),
    ):
        for side in sides:
            found = sums(report[breakdown], side)
            assert found == pytest.approx({name: report[side][name] for name in found})


def test_tail_and_head_add_up_to_both(graph: KnowledgeGraph) -> None:
    report = evaluate(graph, whims(graph))
    sides = {"tail": {"x": report["tail"]}, "head": {"x": report["head"]}}
    found = sums(sides, "x")
    assert found == pytest.approx({name: report["both"][name] for name in found})


def test_every_side_has_every_figure_and_an_interval_around_its_mrr(graph: KnowledgeGraph) -> None:
    report = evaluate(graph, whims(graph))
    assert set(report) == {
        "tail", "head", "both", "baselines", "relations", "categories", "degrees"
    }  # fmt: skip
    for side in ("tail", "head", "both"):
        assert set(report[side]) == FIGURES | {"mrr_interval"}
        for baseline in ("popularity", "inverse rule"):
            assert set(report["baselines"][baseline][side]) == FIGURES


def test_readings_of_ties_are_in_order(graph: KnowledgeGraph) -> None:
    both = evaluate(graph, whims(graph))["both"]
    best, middle, worst = both["optimistic"]["mrr"], both["mrr"], both["pessimistic"]["mrr"]
    assert best > middle > worst


def test_a_report_can_be_written_as_json_without_nan(graph: KnowledgeGraph) -> None:
    for split in ("train", "valid", "test"):
        report = evaluate(graph, whims(graph), split=split)
        assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_breakdowns_are_by_relation_category_and_degree() -> None:
    # Entities: hub, a, b, c, d. Training facts: "has" leads from the hub to a, b, c, d (1-N);
    # "twin" links a to b (1-1). Degrees: hub 4; a 2, b 2, c 1, d 1.
    graph = KnowledgeGraph.from_facts(
        [("hub", "has", x) for x in "abcd"] + [("a", "twin", "b")],
        test=[("c", "twin", "d"), ("hub", "has", "new")],
    )
    assert relation_categories(graph.train, 2) == ["1-N", "1-1"]
    # Scores 5 4 3 2 1 0 of a b c d hub new, whatever the question.
    report = evaluate(graph, fixed([5, 4, 3, 2, 1, 0]))
    counts = {
        part: {name: group["both"]["count"] for name, group in report[part].items()}
        for part in ("relations", "categories", "degrees")
    }
    assert counts == {
        "relations": {"has": 2, "twin": 2},
        "categories": {"1-N": 2, "1-1": 2},
        # The answers: d and c (degree 1), new (0), hub (4).
        "degrees": {"0": 1, "1-3": 2, "4-15": 1},
    }
    # The answer d of (c, twin, TAIL) is 4th, the answer c of (d, twin, HEAD) 3rd. The answer hub of
    # (new, has, HEAD) is 5th. Of (hub, has, TAIL) a b c d are known, which leaves hub above new.
    ranks = {name: group["both"]["mr"] for name, group in report["degrees"].items()}
    assert ranks == {"0": 2, "1-3": 3.5, "4-15": 5}
    assert report["relations"]["has"]["tail"]["mr"] == 2
    assert report["relations"]["has"]["head"]["mr"] == 5
    assert report["categories"]["1-1"] == report["relations"]["twin"]


def test_relations_that_training_never_shows_have_a_category_of_their_own() -> None:
    graph = KnowledgeGraph.from_facts([("a", "r", "b")], test=[("a", "s", "b"), ("b", "r", "a")])
    report = evaluate(graph, whims(graph))
    assert {name: group["both"]["count"] for name, group in report["categories"].items()} == {
        "1-1": 2,
        "none": 2,
    }


def test_validation_is_filtered_without_the_test_facts_and_test_with_all() -> None:
    # Tail question (a, r, ?) with scores a 0, b 4, c 3, d 2, e 1.
    # valid asks for c: b is in train and left out; d and e are below: rank 1.
    # test asks for d and e: b (train), c (valid) and the other are left out: rank 1 each.
    graph = KnowledgeGraph.from_facts(
        [("a", "r", "b")], valid=[("a", "r", "c")], test=[("a", "r", "d"), ("a", "r", "e")]
    )
    scores = fixed([0, 4, 3, 2, 1])
    assert evaluate(graph, scores, split="valid")["tail"]["mr"] == 1
    assert evaluate(graph, scores, split="test")["tail"]["mr"] == 1
    # With d above c, the test fact outranks the validation answer: it may not help to choose.
    assert evaluate(graph, fixed([0, 4, 2, 3, 1]), split="valid")["tail"]["mr"] == 2


def test_facts_with_unseen_entities_are_measured_too() -> None:
    graph = KnowledgeGraph.from_facts([("a", "r", "b")], test=[("x", "r", "y"), ("a", "r", "x")])
    report = evaluate(graph, whims(graph))
    assert report["both"]["count"] == 4
    assert report["degrees"]["0"]["both"]["count"] == 3


def test_an_empty_split_gives_an_empty_report() -> None:
    graph = KnowledgeGraph.from_facts([("a", "r", "b")])
    report = evaluate(graph, whims(graph))
    assert "both" not in report
    assert report["relations"] == report["categories"] == report["degrees"] == {}


def test_an_unknown_split_is_an_error() -> None:
    graph = toy.ring()
    with pytest.raises(DataError, match="no split 'dev'"):
        evaluate(graph, whims(graph), split="dev")


def test_the_perfect_scorer_has_the_perfect_report() -> None:
    graph = toy.checkerboard()
    facts = {tuple(fact) for fact in graph.test.tolist()}

    def score(questions: Questions) -> Tensor:
        rows = []
        parts = (questions.anchor.tolist(), questions.relation.tolist(), questions.side.tolist())
        for anchor, relation, side in zip(*parts, strict=True):
            ends = [(anchor, e) if side == 0 else (e, anchor) for e in range(graph.num_entities)]
            rows.append([float((h, relation, t) in facts) for h, t in ends])
        return torch.tensor(rows)

    report = evaluate(graph, score)
    for side in ("tail", "head", "both"):
        found = report[side]
        assert [found[name] for name in ("mrr", "mr", "hits@1", "amri")] == [1, 1, 1, 1]
        assert found["mrr_interval"] == pytest.approx([1, 1])


def test_a_run_reports_by_split_and_side(tmp_path: Path) -> None:
    graph, config = toy.family_tree(), Config()
    folder = RunFolder(tmp_path / "run")
    folder.create(config, graph)
    model = build_model(config.scoring, graph)
    folder.save_model(model, model.initial_entities())
    report = Run(folder).evaluate()
    assert list(report) == ["test"]
    for side in ("tail", "head", "both"):
        assert np.isfinite(report["test"][side]["mrr"])
    again = evaluate(graph, folder.load().score)
    assert report["test"] == again
