"""One step of Algorithm 1: the model goes down the risk, the generator up, nothing else moves."""

import copy
import math

import numpy as np
import pytest
import torch
from torch.optim import SGD

from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.errors import Diverged
from puda.sampling import Unlabeled
from puda.seeds import stream
from puda.tables import EntityTable
from puda.training.step import Learner, train_step
from puda.training.trainer import build_learner
from puda.types import Questions, Risk
from toy import checkerboard

PRIOR = 0.1
NUM_SYNTHETIC = 6
GRAPH = checkerboard(6)


class FixedPool:
    """A sampler that always draws the same entities, so that a risk can be computed again."""

    def __init__(self, graph: KnowledgeGraph, ids: list[int]) -> None:
        self.known, self.ids = graph.known("train"), torch.tensor(ids)

    def draw(self, questions: Questions, *_: object) -> Unlabeled:
        """Return the pool; known answers do not count."""
        counted = [
            [i not in self.known.of(*question) for i in self.ids.tolist()]
            for question in zip(
                questions.anchor.tolist(),
                questions.relation.tolist(),
                questions.side.tolist(),
                strict=True,
            )
        ]
        return Unlabeled(self.ids, torch.tensor(counted))


def make_learner(
    scoring: str = "distmult",
    *,
    rate: float = 0.01,
    generator_rate: float = 0.01,
    **settings: float,
) -> Learner:
    config = Config.of(
        {
            "scoring": {"name": scoring, "dim": 16},
            "objective": {"options": {"prior": PRIOR}, "weight": settings.get("weight", 0.0)},
            "generator": {"num_synthetic": settings.get("num_synthetic", NUM_SYNTHETIC)},
        }
    )
    learner = build_learner(GRAPH, config)
    learner.sampler = FixedPool(GRAPH, [0, 2, 5, 7, 11])
    random = torch.Generator().manual_seed(0)  # of size 1, so that scores and gradients are too
    with torch.no_grad():
        for weight in learner.model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=random))
    table = torch.randn(GRAPH.num_entities, 16, generator=random)
    learner.entities = EntityTable(table, optimizer="adagrad", learning_rate=rate)
    learner.optimizer = SGD(learner.model.parameters(), lr=rate)
    if learner.generator is not None:
        for layer in learner.generator.modules():
            if isinstance(layer, torch.nn.Dropout):
                layer.p = 0.0
        learner.generator_optimizer = SGD(learner.generator.parameters(), lr=generator_rate)
    return learner


def batch(size: int = 10) -> tuple[Questions, torch.Tensor]:
    questions, answers = Questions.both(torch.tensor(GRAPH.train))
    rows = torch.randperm(len(questions), generator=torch.Generator().manual_seed(3))[:size]
    return questions[rows], answers[rows]


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@torch.no_grad()
def risk_by_hand(
    learner: Learner, questions: Questions, answers: torch.Tensor, synthetic: torch.Tensor
) -> float:
    """Eq. 16 in plain loops, on DistMult scores written out: sum_k a_k r_k c_k."""
    entities = learner.entities.weight.double().numpy()
    relations = learner.model.relations.detach().double().numpy()
    pool = learner.sampler.draw(questions)
    positive, inverted, unlabeled, invented = [], [], [], []
    for q in range(len(questions)):
        asked = entities[questions.anchor[q]] * relations[questions.relation[q]]
        p = float(np.dot(asked, entities[answers[q]]))
        positive.append(softplus(-p))
        inverted.append(softplus(p))
        counted = [int(i) for i, c in zip(pool.ids, pool.counted[q], strict=True) if c]
        unlabeled.append(np.mean([softplus(float(asked @ entities[i]) - p) for i in counted]))
        invented += [softplus(float(asked @ row) - p) for row in synthetic.double().numpy()]
    ranked = np.mean(unlabeled) + (np.mean(invented) if invented else 0.0)
    return PRIOR * np.mean(positive) + max(0.0, ranked - PRIOR * np.mean(inverted))


def snapshot(learner: Learner) -> dict[str, torch.Tensor]:
    kept = {"entities": learner.entities.weight.clone()}
    kept |= {f"model.{k}": v.clone() for k, v in learner.model.state_dict().items()}
    if learner.generator is not None:
        kept |= {f"generator.{k}": v.clone() for k, v in learner.generator.state_dict().items()}
    return kept


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


def test_the_risk_of_a_step_is_eq_16_worked_out_in_plain_loops():
    learner = make_learner()
    questions, answers = batch()
    assert not learner.sampler.draw(questions).counted.all()  # known ones too
    synthetic = learner.generator(NUM_SYNTHETIC, stream(1, "draws")).detach()
    expected = risk_by_hand(learner, questions, answers, synthetic)
    risk = train_step(learner, questions, answers, stream(1, "draws"))
    assert risk.total.item() == pytest.approx(expected, rel=1e-5)


def test_one_step_of_the_discriminator_lowers_the_risk_on_its_own_batch():
    learner = make_learner(rate=0.003)
    questions, answers = batch()
    synthetic = learner.generator(NUM_SYNTHETIC, stream(1, "draws")).detach()
    before = risk_by_hand(learner, questions, answers, synthetic)
    train_step(learner, questions, answers, stream(1, "draws"))
    after = risk_by_hand(learner, questions, answers, synthetic)
    assert after < before - 1e-3


def test_entity_rows_and_relation_weights_each_lower_the_risk_alone():
    questions, answers = batch()
    nothing = torch.empty(0, 16)
    for still in ("entities", "model"):
        learner = make_learner(rate=0.003, num_synthetic=0)
        if still == "entities":
            learner.entities.optimizer.learning_rate = 0.0
        else:
            learner.optimizer = SGD(learner.model.parameters(), lr=0.0)
        before = risk_by_hand(learner, questions, answers, nothing)
        kept = snapshot(learner)
        train_step(learner, questions, answers, stream(1, "draws"))
        assert all(not name.startswith(still) for name in moved(kept, snapshot(learner)))
        assert risk_by_hand(learner, questions, answers, nothing) < before - 1e-4


def test_one_step_of_the_generator_raises_the_risk():
    # With a model that cannot move, what the step changes is G. The risk is taken over 2,000
    # synthetic rows of the same fresh noise before and after, so that it is close to its mean.
    learner = make_learner(rate=0.0, generator_rate=0.05, num_synthetic=500)
    questions, answers = batch()
    before = risk_by_hand(
        learner, questions, answers, learner.generator(2000, stream(9, "x")).detach()
    )
    train_step(learner, questions, answers, stream(1, "draws"))
    after = risk_by_hand(
        learner, questions, answers, learner.generator(2000, stream(9, "x")).detach()
    )
    assert after > before + 1e-3


def test_the_generators_step_does_not_move_entity_rows_or_relation_weights():
    learner = make_learner(rate=0.0)
    before = snapshot(learner)
    train_step(learner, *batch(), stream(1, "draws"))
    changed = moved(before, snapshot(learner))
    assert changed == {name for name in before if name.startswith("generator.")}


def test_the_discriminators_step_does_not_move_the_generator():
    learner = make_learner(generator_rate=0.0)
    before = snapshot(learner)
    train_step(learner, *batch(), stream(1, "draws"))
    changed = moved(before, snapshot(learner))
    assert changed == {"entities", "model.relations"}


@pytest.mark.parametrize("scoring", ["distmult", "complex"])
def test_no_gradient_is_left_behind_for_the_next_step(scoring):
    # If the generator's backward pass leaked into the model's gradients, the second step of a
    # learner would differ from the first step of a copy that is made in between.
    learner = make_learner(scoring)
    train_step(learner, *batch(), stream(1, "draws"))
    fresh = copy.deepcopy(learner)
    fresh.optimizer = SGD(fresh.model.parameters(), lr=0.01)
    fresh.generator_optimizer = SGD(fresh.generator.parameters(), lr=0.01)
    for module in (fresh.model, fresh.generator):
        module.zero_grad(set_to_none=True)
    for one in (learner, fresh):
        train_step(one, *batch(), stream(2, "draws"))
    assert not moved(snapshot(learner), snapshot(fresh))


def test_rows_outside_the_working_set_do_not_move_and_those_inside_do():
    learner = make_learner()
    questions, answers = batch(4)
    before = learner.entities.weight.clone()
    train_step(learner, questions, answers, stream(1, "draws"))
    inside = set(questions.anchor.tolist()) | set(answers.tolist())
    drawn = learner.sampler.draw(questions)
    counted = drawn.ids[drawn.counted.any(0)].tolist()  # a known answer of all has no gradient
    inside |= set(counted)
    outside = set(range(GRAPH.num_entities)) - inside
    assert outside, "the batch is too large for this test"
    changed = (learner.entities.weight != before).any(1).nonzero().squeeze(1).tolist()
    assert set(changed) == inside


def test_an_entity_that_is_anchor_answer_and_pool_at_once_gets_the_sum_of_its_gradients():
    # One fact <x, r, x> over d = 1 with x = 1, r = 1, and a pool of the one other entity y = 1:
    # p = x r x, u = x r y, risk = pi softplus(-p) + softplus(u - p) - pi softplus(p)
    #   = softplus(u - p) - pi p. With u = p: d/dx = sigma(0) (r y - 2 r x) - 2 pi r x
    #   = 0.5 (1 - 2) - 2 pi = -0.5 - 2 pi;  d/dy = sigma(0) r x = 0.5;
    # d/dr = sigma(0) (x y - x x) - pi x x = -pi.
    graph = KnowledgeGraph.from_facts([("x", "r", "x"), ("x", "r", "y")])
    config = Config.of(
        {
            "scoring": {"name": "distmult", "dim": 1},
            "objective": {"options": {"prior": PRIOR}},
            "generator": {"num_synthetic": 0},
        }
    )
    learner = build_learner(graph, config)
    pushed = {}
    learner.entities.weight.fill_(1.0)
    learner.entities.push = lambda ids, gradient: pushed.update(
        zip(ids.tolist(), gradient.flatten().tolist(), strict=True)
    )
    with torch.no_grad():
        learner.model.relations.fill_(1.0)
    learner.optimizer = SGD(learner.model.parameters(), lr=1.0)
    x, y = graph.entities.find("x"), graph.entities.find("y")

    class OnlyY:
        def draw(self, questions, *_):
            return Unlabeled(torch.tensor([y]), torch.ones(1, 1, dtype=torch.bool))

    learner.sampler = OnlyY()
    question = Questions(torch.tensor([x]), torch.tensor([0]), torch.tensor([0]))
    train_step(learner, question, torch.tensor([x]), stream(0, "draws"))
    assert pushed == pytest.approx({x: -0.5 - 2 * PRIOR, y: 0.5}, rel=1e-5)
    assert learner.model.relations.item() == pytest.approx(1.0 + PRIOR, rel=1e-5)


def test_without_synthetic_rows_their_risk_is_zero_and_there_is_no_generator():
    learner = make_learner(num_synthetic=0)
    assert learner.generator is None
    risk = train_step(learner, *batch(), stream(1, "draws"))
    assert risk.synthetic.item() == 0.0
    assert isinstance(risk, Risk)


def test_the_penalty_shrinks_what_the_batch_holds():
    # Weighted so heavily that the risk does not matter, N3 must make every fact's parts smaller.
    learner = make_learner(rate=0.01, weight=1e4, num_synthetic=0)
    questions, answers = batch(4)
    touched = torch.cat([questions.anchor, answers]).unique()
    before = learner.entities.weight[touched].abs()
    train_step(learner, questions, answers, stream(1, "draws"))
    after = learner.entities.weight[touched].abs()
    assert (after < before).float().mean() > 0.95  # but for numbers within a step of zero


def test_a_pool_own_to_each_question_gives_the_risk_of_those_entities():
    # The same five entities for every question, once shared (P,) and once as rows (Q, N).
    shared, own = make_learner(num_synthetic=0), make_learner(num_synthetic=0)
    questions, answers = batch()

    class OwnPool(FixedPool):
        def draw(self, questions, *_):
            drawn = super().draw(questions)
            return Unlabeled(drawn.ids.repeat(len(questions), 1), drawn.counted)

    own.sampler = OwnPool(GRAPH, [0, 2, 5, 7, 11])
    risks = [
        train_step(learner, questions, answers, stream(1, "draws")) for learner in (shared, own)
    ]
    assert risks[1].total.item() == pytest.approx(risks[0].total.item(), rel=1e-6)
    assert torch.allclose(own.entities.weight, shared.entities.weight, atol=1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])  # 1e30 squared is beyond a float
def test_a_risk_that_is_not_finite_raises_before_anything_moves(value):
    learner = make_learner()
    questions, answers = batch()
    learner.entities.weight[torch.cat([answers[:1], questions.anchor[:1]])] = value
    before = snapshot(learner)
    with pytest.raises(Diverged, match="not finite"):
        train_step(learner, questions, answers, stream(1, "draws"))
    after = snapshot(learner)
    for name in before:
        assert torch.equal(before[name].nan_to_num(), after[name].nan_to_num())
