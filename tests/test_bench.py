"""`puda bench` measures what it says; how fast it is belongs to benchmarks/, not to tests."""

import pytest
import torch

from puda import bench, display
from puda.config import Config
from puda.data.artificial import artificial_graph
from puda.evaluation.ranking import rank
from puda.seeds import stream
from puda.training.batches import Batches
from puda.training.build import build_learner
from puda.training.step import train_step

GRAPH = artificial_graph(60, 4, 300, 20)
CONFIG = Config().with_settings(
    ["scoring.name=distmult", "scoring.dim=8", "sampler.num_unlabeled=10", "training.batch_size=50"]
)


def test_a_stepper_makes_the_steps_of_training_and_goes_on_after_an_epoch():
    step = bench.stepper(GRAPH, CONFIG)
    learner, batches = build_learner(GRAPH, CONFIG), Batches(GRAPH, CONFIG.training)
    learner.model.train()
    draws = stream(0, "draws")
    for epoch in range(2):
        for batch in batches.of_epoch(stream(0, "order", epoch)):
            torch.manual_seed(0)  # the generator's dropout
            risk, _ = train_step(learner, batch, draws)
            torch.manual_seed(0)
            assert step()[0].total == risk.total


def test_the_figures_of_training_belong_together():
    figures = bench.time_training(GRAPH, CONFIG, steps=10)
    assert (figures["batch"], figures["candidates"], figures["floats"]) == (50, 10 + 32, 8)
    assert figures["epoch_seconds"] == pytest.approx(12 * figures["step_ms"] / 1000)
    assert figures["pairs_a_second"] == pytest.approx(50 * 42 / (figures["step_ms"] / 1000))
    ratio = figures["gflops_bare"] / figures["gflops"]
    assert figures["times_bare_products"] == pytest.approx(ratio)


def test_bare_products_of_an_evaluation_cover_every_question_and_entity(monkeypatch):
    monkeypatch.setattr(bench, "HEIGHT", 16)
    monkeypatch.setattr(bench, "WIDTH", 7)
    cells = []
    mm = torch.mm
    monkeypatch.setattr(
        torch, "mm", lambda x, y, out: cells.append(out.numel()) or mm(x, y, out=out)
    )
    bench._bare_tiles(37, torch.randn(60, 8))()
    assert sum(cells) == 37 * 60


def test_an_evaluation_ranks_all_test_facts(monkeypatch):
    ranked = []
    monkeypatch.setattr(
        bench, "rank", lambda score, facts, known: ranked.append(facts) or rank(score, facts, known)
    )
    figures = bench.time_evaluation(GRAPH, CONFIG, rounds=1)
    assert ranked[-1] is GRAPH.test
    assert figures["facts"] == 20
    assert figures["distinct_questions"] <= 40


@pytest.mark.parametrize("scoring", bench.PYKEEN)
def test_pykeen_does_the_same_work(scoring):
    config = CONFIG.with_settings([f"scoring.name={scoring}"])
    figures = bench.time_pykeen(GRAPH, config, negatives=3, batch=50, batches=2, facts=4)
    assert figures["negatives"] == 3
    # 100 facts with 3 negatives were trained, an epoch has 300
    assert figures["pairs_a_second"] == pytest.approx(900 / figures["epoch_seconds"])


@pytest.mark.parametrize("peer", [True, False])
def test_the_figures_are_shown_with_or_without_pykeen(peer, capsys):
    figures = {
        "machine": bench.machine(),
        "training": bench.time_training(GRAPH, CONFIG, steps=10),
        "evaluation": bench.time_evaluation(GRAPH, CONFIG, rounds=1),
        "peak_memory_mb": 123.4,
    }
    figures["training"]["epoch_seconds"] = 2.0
    if peer:
        figures["pykeen"] = {
            "negatives": 64,
            "epoch_seconds": 90.0,
            "pairs_a_second": 1.0,
            "evaluation_seconds": 1.0,
        }
    display.show_bench(figures)
    shown = capsys.readouterr().out
    assert "At most 123 MB" in shown
    assert (" 45 " in shown) == peer  # 90 seconds against 2
    assert ("Install PyKEEN" in shown) != peer
