"""PyKEEN's interactions through the adapter: its scores on unpacked rows, and they learn."""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from puda.config import Config, ScoringConfig
from puda.errors import ConfigError
from puda.evaluation.metrics import measure
from puda.evaluation.ranking import rank
from puda.scoring import SCORING, build_model
from puda.scoring.pykeen import PyKEEN
from puda.seeds import ambient
from puda.training.step import train_step
from puda.training.trainer import build_learner, train
from puda.types import Batch, Questions, Side
from toy import checkerboard, family_tree

pytest.importorskip("pykeen", reason="PyKEEN is not installed")

from pykeen.nn import modules  # noqa: E402
from pykeen.nn.modules import interaction_resolver  # noqa: E402

GRAPH = family_tree(3)
DIM = 6
Score = Callable[[Tensor, Tensor, Tensor], Tensor]
"""One head row, relation row and tail row to a score."""


def marked(name: str, *values: Any) -> Any:
    return pytest.param(name, *values, id=name)


@torch.no_grad()
def build(interaction: str, **options: int) -> tuple[PyKEEN, Tensor]:
    """Make a random model in eval mode and an entity table."""
    with ambient(3, "adapter"):
        config = ScoringConfig(
            name="pykeen", dim=DIM, options={"interaction": interaction, **options}
        )
        model = build_model(config, GRAPH)
        model.relations.normal_(0, 0.5)
        return model.eval(), torch.randn(GRAPH.num_entities, model.row_dim)


def _rescal(h: Tensor, r: Tensor, t: Tensor) -> Tensor:
    return modules.RESCALInteraction()(h, r.view(DIM, DIM), t)


def _hole(h: Tensor, r: Tensor, t: Tensor) -> Tensor:
    return modules.HolEInteraction()(h, r, t)


def _triplere(h: Tensor, r: Tensor, t: Tensor) -> Tensor:
    return modules.TripleREInteraction()(h, (r[:DIM], r[DIM : 2 * DIM], r[2 * DIM :]), t)


def _ntn(h: Tensor, r: Tensor, t: Tensor) -> Tensor:
    square = DIM * DIM
    w, v_head, v_tail, b, u = r.split([DIM * square, square, square, DIM, DIM])
    relation = (
        w.view(DIM, DIM, DIM),
        v_head.view(DIM, DIM),
        v_tail.view(DIM, DIM),
        b,
        u,
    )
    return modules.NTNInteraction()(h, relation, t)


def _cp(h: Tensor, r: Tensor, t: Tensor) -> Tensor:
    # Of an entity's two matrices the first is used as head, the second as tail.
    as_head, as_tail = h[: DIM * DIM].view(DIM, DIM), t[DIM * DIM :].view(DIM, DIM)
    return modules.CPInteraction()(as_head, r.view(DIM, DIM), as_tail)


def _complex(h: Tensor, r: Tensor, t: Tensor) -> Tensor:
    return modules.ComplExInteraction()(*(torch.complex(x[:DIM], x[DIM:]) for x in (h, r, t)))


def _pairre(h: Tensor, r: Tensor, t: Tensor) -> Tensor:
    return modules.PairREInteraction(p=2)(h, (r[:DIM], r[DIM:]), t)


def _transh(h: Tensor, r: Tensor, t: Tensor) -> Tensor:
    return modules.TransHInteraction(p=2)(h, (r[:DIM], r[DIM:]), t)


DIRECT: dict[str, Score] = {
    "rescal": _rescal,
    "hole": _hole,
    "triplere": _triplere,
    "ntn": _ntn,
    "cp": _cp,
    "complex": _complex,
    "pairre": _pairre,
    "transh": _transh,
}


@pytest.mark.parametrize("side", list(Side), ids=lambda side: side.name.lower())
@pytest.mark.parametrize(("name", "score"), [marked(name, score) for name, score in DIRECT.items()])
@torch.no_grad()
def test_scores_are_pykeens_on_unpacked_rows(name, score, side):
    model, rows = build(name)
    number = 5
    anchor = torch.arange(number)
    relation = anchor % GRAPH.num_relations
    questions = Questions(anchor, relation, torch.full((number,), int(side)))
    found = model.match(model.ask(questions, rows), rows)
    own = model.match(model.ask(questions, rows), rows.expand(number, -1, -1))
    expected = torch.empty(number, len(rows))
    for a in range(number):
        for c in range(len(rows)):
            h, t = (a, c) if side is Side.TAIL else (c, a)
            expected[a, c] = score(rows[h], model.relations[relation[a]], rows[t])
    assert expected.std() > 1e-3
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "name", [marked(name) for name in sorted(interaction_resolver.lookup_dict)]
)
@torch.no_grad()
def test_every_interaction_of_pykeen_scores_or_is_refused_in_words(name):
    try:
        model, rows = build(name)
    except ConfigError as error:
        assert name in str(error)
        return
    questions, _ = Questions.both(torch.tensor(GRAPH.train[:6]))
    scores = model.match(model.ask(questions, rows), rows)
    assert scores.shape == (12, GRAPH.num_entities)
    assert scores.isfinite().all()
    if name != "multilineartucker":  # PyKEEN starts its core from zeros: an integer reciprocal
        assert scores.std() > 0
    single = model.match(model.ask(questions[3:4], rows), rows[7:8])
    torch.testing.assert_close(single, scores[3:4, 7:8], rtol=1e-4, atol=1e-4)


def test_relations_may_have_a_size_of_their_own():
    model, rows = build("transd", relation_dim=4)
    assert model.relation_shapes == [(4,), (4,)]
    assert model.entity_shapes == [(DIM,), (DIM,)]
    assert model.row_dim == rows.shape[1] == 2 * DIM
    assert model.relations.shape == (GRAPH.num_relations, 8)


def test_a_size_below_zero_is_refused():
    with pytest.raises(ConfigError, match="relation_dim"):
        build("transd", relation_dim=-4)


def test_an_unknown_interaction_is_refused():
    with pytest.raises(ConfigError, match="PyKEEN has no interaction 'rescall'"):
        build("rescall")


def test_without_pykeen_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pykeen.nn.modules", None)
    with pytest.raises(ConfigError, match=r"pip install 'puda\[pykeen\]'"):
        build("rescal")


def test_the_registry_imports_pykeen_only_when_it_is_asked_for():
    # `import puda.scoring` has to stay quick: the import stands inside the constructor.
    assert SCORING["pykeen"] is PyKEEN
    source = inspect.getsource(sys.modules[PyKEEN.__module__])
    assert "\nfrom pykeen" not in source
    assert "\nimport pykeen" not in source


@pytest.mark.parametrize(
    ("name", "mrr"),
    [
        marked("rescal", 0.9),
        marked("hole", 0.9),
        marked("ntn", 0.8),
        marked("triplere", 0.5),
        marked("pairre", 0.5),
        marked("transh", 0.5),
    ],
)
def test_it_learns_a_checkerboard_under_puda(name, mrr, tmp_path):
    # 12 entities. Chance among 10 candidates: MRR 0.29.
    graph = checkerboard(6)
    config = Config.of(
        {
            "scoring": {"name": "pykeen", "dim": 16, "options": {"interaction": name}},
            "objective": {"name": "puda", "options": {"prior": 1e-3}, "weight": 0.0},
            "generator": {"num_synthetic": 8},
            "training": {
                "epochs": 60,
                "batch_size": 32,
                "validate_every": 20,
                "patience": 0,
                "threads": 1,
            },
        }
    )
    folder = train(graph, config, tmp_path / "run")
    risks = [e["risks"]["total"] for e in folder.trace() if e["event"] == "epoch"]
    assert len(risks) == 60
    assert risks[-1] < 0.3 * risks[0]
    known = graph.known("train", "valid", "test")
    assert measure(rank(folder.load().score, graph.test, known))["both"]["mrr"] >= mrr


def test_dropout_on_question_vectors_does_not_turn_head_questions_into_tail_questions():
    # RESCAL with R = [[0, 1], [0, 0]] scores h_0 t_1. A person is (1, -1), a thing (1, 1): a person
    # as head scores 1 with a thing, as tail -1. Dropout may scale a score, but not turn its sign.
    graph = checkerboard(6)
    scoring = {
        "name": "pykeen",
        "dim": 2,
        "dropout": 0.5,
        "options": {"interaction": "rescal"},
    }
    learner = build_learner(graph, Config.of({"scoring": scoring}))
    questions, answers = Questions.of(torch.tensor(graph.train), Side.HEAD)
    with torch.no_grad():
        learner.model.relations.copy_(torch.tensor([0.0, 1.0, 0.0, 0.0]).expand(2, 4))
    learner.entities.weight.fill_(1.0)
    learner.entities.weight[answers, 1] = -1.0
    with ambient(0, "dropout"):
        _, scores = train_step(learner, Batch(questions, answers), torch.Generator().manual_seed(0))
    assert scores.positive.max() > 0
    assert scores.positive.min() >= 0
