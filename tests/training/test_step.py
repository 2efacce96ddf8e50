"""One step of Algorithm 1: the model goes down the risk, the generator up, nothing else moves."""

import copy
import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch.optim import SGD

from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.errors import Diverged
from puda.regularizers import REGULARIZERS
from puda.sampling.base import Sampler, Unlabeled
from puda.seeds import ambient, stream
from puda.tables import EntityTable
from puda.training.build import build_learner
from puda.training.step import Learner, train_step
from puda.types import Batch, Questions, Risk, Side
from toy import checkerboard

PRIOR = 0.1
NUM_SYNTHETIC = 6
GRAPH = checkerboard(6)


class FixedPool(Sampler):
    """A sampler that always draws the same entities, so that a risk can be computed again."""

    def __init__(self, graph: KnowledgeGraph, ids: list[int]) -> None:
        super().__init__(graph, len(ids))
        self.ids = torch.tensor(ids)

    def draw(self, batch: Batch, *_: object) -> Unlabeled:
        """Return the pool; known answers do not count."""
        questions = batch.questions
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
    num_synthetic: int = NUM_SYNTHETIC,
    weight: float = 0.0,
    **generator: int | str,
) -> Learner:
    config = Config.of(
        {
            "scoring": {"name": scoring, "dim": 16},
            "objective": {"name": "puda", "options": {"prior": PRIOR}, "weight": weight},
            "generator": {"num_synthetic": num_synthetic, "dropout": 0.0, **generator},
        }
    )
    learner = build_learner(GRAPH, config)
    learner.sampler = FixedPool(GRAPH, [0, 2, 5, 7, 11])
    random = torch.Generator().manual_seed(0)  # of size 1, so that scores and gradients are too
    with torch.no_grad():
        for parameter in learner.model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=random))
    table = torch.randn(GRAPH.num_entities, 16, generator=random)
    learner.entities = EntityTable(table, optimizer="adagrad", learning_rate=rate)
    learner.optimizer = SGD(learner.model.parameters(), lr=rate)
    if learner.adversary is not None:
        weights = learner.adversary.generator.parameters()
        learner.adversary.optimizer = SGD(weights, lr=generator_rate, maximize=True)
    return learner


def draw_batch(size: int = 10) -> Batch:
    questions, answers = Questions.both(torch.tensor(GRAPH.train))
    rows = torch.randperm(len(questions), generator=torch.Generator().manual_seed(3))[:size]
    return Batch(questions[rows], answers[rows])


def invent(learner: Learner, count: int, name: str = "draws", draw: int = 1) -> torch.Tensor:
    """Return the rows that G makes of the first noise of a stream, or of a later one."""
    draws = stream(1, name)
    return [learner.adversary.generator(count, draws).detach() for _ in range(draw)][-1]


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@torch.no_grad()
def risk_by_hand(learner: Learner, batch: Batch, synthetic: torch.Tensor) -> float:
    """Eq. 16 in plain loops, on DistMult scores written out: sum_k a_k r_k c_k."""
    entities = learner.entities.weight.double().numpy()
    relations = learner.model.relations.detach().double().numpy()
    pool = learner.sampler.draw(batch)
    questions, answers = batch[:2]
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
    if learner.adversary is not None:
        state = learner.adversary.generator.state_dict()
        kept |= {f"generator.{k}": v.clone() for k, v in state.items()}
    return kept


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


ORDERS = ["together", "before", "after"]


@pytest.mark.parametrize("order", ORDERS)
def test_the_risk_of_a_step_is_eq_16_worked_out_in_plain_loops(order):
    # The generator rests: if it steps before, the discriminator meets the second noise drawn.
    learner, batch = make_learner(order=order, generator_rate=0.0), draw_batch()
    assert not learner.sampler.draw(batch).counted.all()  # there are known ones in the pool
    synthetic = invent(learner, NUM_SYNTHETIC, draw=2 if order == "before" else 1)
    expected = risk_by_hand(learner, batch, synthetic)
    risk, scores = train_step(learner, batch, stream(1, "draws"))
    assert risk.total.item() == pytest.approx(expected, rel=1e-5)
    assert scores.positive.shape == (10,)
    assert scores.unlabeled.shape == (10, 5)
    assert scores.synthetic.shape == (10, NUM_SYNTHETIC)


@pytest.mark.parametrize("can", [True, False])
def test_a_pool_is_scored_in_half_precision_where_the_processor_can(can, monkeypatch):
    def rounded_product(x, y):
        return x.bfloat16().float() @ y.bfloat16().float()

    monkeypatch.setattr("puda.native.has_vectors", lambda: False)
    monkeypatch.setattr("puda.native.has_tiles", lambda: can)
    monkeypatch.setattr("puda.native.tiled_product", rounded_product)
    plain, halved = make_learner(), make_learner()
    halved.halved = True
    (_, expected), (_, found) = (
        train_step(learner, draw_batch(), stream(1, "draws")) for learner in (plain, halved)
    )
    assert torch.equal(found.positive, expected.positive)
    assert found.unlabeled.dtype is torch.float32
    assert torch.equal(found.unlabeled, expected.unlabeled) is not can
    torch.testing.assert_close(found.unlabeled, expected.unlabeled, rtol=0.02, atol=0.1)
    before, after = plain.entities.weight, halved.entities.weight
    assert after.dtype is torch.float32
    torch.testing.assert_close(after, before, rtol=0.02, atol=0.1)


def test_a_model_of_ones_own_may_let_rows_depend_on_all_others():
    plain, centred = make_learner(num_synthetic=0), make_learner(num_synthetic=0)
    centred.model.whole_graph = True
    centred.model.contextualize = lambda rows: rows - rows.mean(0)
    table = plain.entities.weight
    table -= table.mean(0)  # what the other one makes of it by itself
    before = centred.entities.weight.clone()
    (expected, _), (risk, _) = (
        train_step(learner, draw_batch(), stream(1, "draws")) for learner in (plain, centred)
    )
    assert risk.total.item() == pytest.approx(expected.total.item(), rel=1e-5)
    assert (centred.entities.weight != before).any(1).all()  # those that were not asked for too


def test_one_step_of_the_discriminator_lowers_the_risk_on_its_own_batch():
    learner, batch = make_learner(rate=0.003), draw_batch()
    synthetic = invent(learner, NUM_SYNTHETIC)
    before = risk_by_hand(learner, batch, synthetic)
    train_step(learner, batch, stream(1, "draws"))
    assert risk_by_hand(learner, batch, synthetic) < before - 1e-3


@pytest.mark.parametrize("still", ["entities", "model"])
def test_entity_rows_and_relation_weights_each_lower_the_risk_alone(still):
    learner, batch = make_learner(rate=0.003, num_synthetic=0), draw_batch()
    if still == "entities":
        learner.entities.optimizer.learning_rate = 0.0
    else:
        learner.optimizer = SGD(learner.model.parameters(), lr=0.0)
    nothing = torch.empty(0, 16)
    before, kept = risk_by_hand(learner, batch, nothing), snapshot(learner)
    train_step(learner, batch, stream(1, "draws"))
    assert not any(name.startswith(still) for name in moved(kept, snapshot(learner)))
    assert risk_by_hand(learner, batch, nothing) < before - 1e-4


@pytest.mark.parametrize("order", ORDERS)
def test_one_step_of_the_generator_raises_the_risk(order):
    # With a model that cannot move, what the step changes is G. The risk is taken over 2,000
    # synthetic rows of the same fresh noise before and after, so that it is close to its mean.
    risks = []
    for steps in (1,) if order == "together" else (1, 5):
        learner = make_learner(
            rate=0.0, generator_rate=0.05, num_synthetic=500, steps=steps, order=order
        )
        batch = draw_batch()
        before = risk_by_hand(learner, batch, invent(learner, 2000, "others"))
        train_step(learner, batch, stream(1, "draws"))
        risks.append(risk_by_hand(learner, batch, invent(learner, 2000, "others")))
        assert risks[-1] > before + 1e-3
    assert risks[-1] > risks[0] + 1e-3 or order == "together"  # five steps go further than one


def test_the_generators_step_does_not_move_entity_rows_or_relation_weights():
    learner = make_learner(rate=0.0)
    before = snapshot(learner)
    train_step(learner, draw_batch(), stream(1, "draws"))
    changed = moved(before, snapshot(learner))
    assert changed == {name for name in before if name.startswith("generator.")}


def test_the_discriminators_step_does_not_move_the_generator():
    learner = make_learner(generator_rate=0.0)
    before = snapshot(learner)
    train_step(learner, draw_batch(), stream(1, "draws"))
    assert moved(before, snapshot(learner)) == {"entities", "model.relations"}


@pytest.mark.parametrize("scoring", ["distmult", "convkb"])  # convkb has weights in `match` too
@pytest.mark.parametrize("num_synthetic", [0, NUM_SYNTHETIC])
def test_no_gradient_is_left_behind_for_the_next_step(scoring, num_synthetic):
    # If a gradient of the first step were left over, the second step of a learner would differ
    # from that of a copy made in between whose gradients are wiped.
    learner = make_learner(scoring, num_synthetic=num_synthetic)
    train_step(learner, draw_batch(), stream(1, "draws"))
    fresh = copy.deepcopy(learner)
    fresh.optimizer = SGD(fresh.model.parameters(), lr=0.01)
    fresh.model.zero_grad(set_to_none=True)
    if num_synthetic:
        fresh.adversary.generator.zero_grad(set_to_none=True)
        fresh.adversary.optimizer = SGD(
            fresh.adversary.generator.parameters(), lr=0.01, maximize=True
        )
    for one in (learner, fresh):
        with ambient(2, "dropout"):
            train_step(one, draw_batch(), stream(2, "draws"))
    assert not moved(snapshot(learner), snapshot(fresh))


def test_rows_outside_the_working_set_do_not_move_and_those_inside_do():
    learner, batch = make_learner(), draw_batch(4)
    before = learner.entities.weight.clone()
    train_step(learner, batch, stream(1, "draws"))
    drawn = learner.sampler.draw(batch)
    inside = set(batch.questions.anchor.tolist()) | set(batch.answers.tolist())
    inside |= set(drawn.ids[drawn.counted.any(0)].tolist())  # one that never counts has no gradient
    assert len(inside) < GRAPH.num_entities, "the batch is too large for this test"
    changed = (learner.entities.weight != before).any(1).nonzero().squeeze(1).tolist()
    assert set(changed) == inside


def test_an_entity_that_is_anchor_answer_and_pool_at_once_gets_the_sum_of_its_gradients():
    # One fact <x, r, x> over d = 1 with x = 1, r = 1, and a pool of x itself and y = 1:
    # p = x r x, u = (x r x, x r y), and since softplus(-p) - softplus(p) = -p
    # risk = (softplus(x r x - p) + softplus(x r y - p)) / 2 - pi p, where the first is ln 2.
    # With u = p: d/dx = sigma(0) (r y - 2 r x) / 2 - 2 pi r x = -0.25 - 2 pi;
    # d/dy = sigma(0) r x / 2 = 0.25;  d/dr = sigma(0) (x y - x x) / 2 - pi x x = -pi.
    graph = KnowledgeGraph.from_facts([("x", "r", "x"), ("x", "r", "y")])
    config = Config.of(
        {
            "scoring": {"name": "distmult", "dim": 1},
            "objective": {"name": "puda", "options": {"prior": PRIOR}, "weight": 0.0},
            "generator": {"num_synthetic": 0},
        }
    )
    learner = build_learner(graph, config)
    learner.entities.weight.fill_(1.0)
    with torch.no_grad():
        learner.model.relations.fill_(1.0)
    learner.optimizer = SGD(learner.model.parameters(), lr=1.0)
    pushed = Counter()

    def push(ids: torch.Tensor, *gradients: torch.Tensor) -> None:
        for entity, gradient in zip(ids.tolist(), torch.cat(gradients).tolist(), strict=True):
            pushed[entity] += gradient[0]

    learner.entities.push = push
    learner.sampler = FixedPool(graph, [0, 1])
    learner.sampler.known = graph.known("valid")  # nothing is known, so both count
    question = Questions(torch.tensor([0]), torch.tensor([0]), torch.tensor([0]))
    train_step(learner, Batch(question, torch.tensor([0])), stream(0, "draws"))
    assert graph.entities.labels == ["x", "y"]
    assert pushed == pytest.approx({0: -0.25 - 2 * PRIOR, 1: 0.25}, rel=1e-5)
    assert learner.model.relations.item() == pytest.approx(1.0 + PRIOR, rel=1e-5)


def test_without_synthetic_rows_their_risk_is_zero_and_there_is_no_generator():
    learner = make_learner(num_synthetic=0)
    assert learner.adversary is None
    risk, _ = train_step(learner, draw_batch(), stream(1, "draws"))
    assert risk.synthetic.item() == 0.0


def test_the_penalty_shrinks_what_the_batch_holds():
    # Weighted so heavily that the risk does not matter, N3 must make every fact's parts smaller.
    learner, batch = make_learner(weight=1e4, num_synthetic=0), draw_batch(4)
    touched = torch.cat([batch.questions.anchor, batch.answers]).unique()
    before = learner.entities.weight[touched].abs()
    train_step(learner, batch, stream(1, "draws"))
    after = learner.entities.weight[touched].abs()
    assert (after < before).float().mean() > 0.95  # but for numbers within a step of zero


def test_a_pool_own_to_each_question_gives_the_risk_of_those_entities():
    # The same five entities for every question, once shared (P,) and once as rows (Q, N).
    class OwnPool(FixedPool):
        def draw(self, batch, *_):
            drawn = super().draw(batch)
            return Unlabeled(drawn.ids.repeat(len(batch.questions), 1), drawn.counted)

    shared, own, batch = make_learner(), make_learner(), draw_batch()
    own.sampler = OwnPool(GRAPH, shared.sampler.ids.tolist())
    risks = [train_step(one, batch, stream(1, "draws"))[0].total.item() for one in (shared, own)]
    assert risks[1] == pytest.approx(risks[0], rel=1e-6)
    assert torch.allclose(own.entities.weight, shared.entities.weight, atol=1e-6)


@pytest.mark.parametrize("around", ["nothing", "n3", "l2", "relation"])
def test_questions_with_several_answers_learn_as_if_they_were_asked_once_for_each(around):
    # What persons 0, 1 and 2 like, with 2, 1 and 2 answers, against the five pairs written out.
    likes = GRAPH.relations.find("likes")
    persons = [GRAPH.entities.find(f"person {i}") for i in range(3)]
    found = [GRAPH.known("train").of(person, likes, Side.TAIL).tolist() for person in persons]
    assert [len(answers) for answers in found] == [2, 2, 2]
    answers = torch.tensor([*found[0], found[1][0], *found[2]])
    owner = torch.tensor([0, 0, 1, 2, 2])
    questions = Questions(torch.tensor(persons), torch.full((3,), likes), torch.zeros(3).long())
    grouped, spread = Batch(questions, answers, owner), Batch(questions[owner], answers)
    one, other = make_learner("complex"), make_learner("complex")
    for learner in (one, other):
        learner.penalty = REGULARIZERS.get(around)
        learner.relation_weight = float(around == "relation")
    risks = [
        train_step(learner, batch, stream(1, "draws"))[0].total.item()
        for learner, batch in ((one, grouped), (other, spread))
    ]
    assert risks[0] == pytest.approx(risks[1], rel=1e-6)
    for name, tensor in snapshot(one).items():
        assert torch.allclose(tensor, snapshot(other)[name], atol=1e-5), name


def test_priors_of_sides_and_relations_reach_the_facts_of_their_questions():
    learner, batch = make_learner(num_synthetic=0), draw_batch(6)
    learner.priors = torch.tensor([[0.1, 0.2], [0.3, 0.4]])  # (side, relation)
    seen = []
    objective = learner.objective
    learner.objective = lambda scores: (seen.append(scores.prior), objective(scores))[1]
    train_step(learner, batch, stream(1, "draws"))
    owner = torch.tensor([0, 0, 3])
    train_step(learner, Batch(batch.questions, batch.answers[:3], owner), stream(1, "draws"))
    asked = zip(batch.questions.side.tolist(), batch.questions.relation.tolist(), strict=True)
    expected = torch.tensor([learner.priors[side, relation] for side, relation in asked])
    assert torch.equal(seen[0], expected)
    assert torch.equal(seen[1], expected[owner])


def test_relations_are_predicted_for_a_share_of_the_facts():
    # For the first half of ten facts, weighted alone: as if the batch held no others.
    def moved_by(batch: Batch, share: float) -> torch.Tensor:
        learner = make_learner("complex", num_synthetic=0)
        learner.objective = lambda scores: Risk(*(0 * scores.positive.sum() for _ in range(5)))
        learner.relation_weight, learner.relation_share = 1.0, share
        train_step(learner, batch, stream(1, "draws"))
        return learner.entities.weight

    batch = draw_batch(10)
    half = Batch(batch.questions[:5], batch.answers[:5])
    assert torch.equal(moved_by(batch, 0.5), moved_by(half, 1.0))
    assert not torch.allclose(moved_by(batch, 1.0), moved_by(half, 1.0))


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])  # 1e30 squared is beyond a float
def test_a_risk_that_is_not_finite_raises_before_anything_moves(value):
    learner, batch = make_learner(), draw_batch()
    spoilt = torch.cat([batch.answers[:1], batch.questions.anchor[:1]])
    learner.entities.weight[spoilt] = value
    before = snapshot(learner)
    with pytest.raises(Diverged, match="not finite"):
        train_step(learner, batch, stream(1, "draws"))
    after = snapshot(learner)
    for name in before:
        assert torch.equal(before[name].nan_to_num(), after[name].nan_to_num())


def test_what_facts_weigh_reaches_the_objective_as_shares():
    learner, batch = make_learner(), draw_batch(3)
    seen = []
    objective = learner.objective
    learner.objective = lambda scores: (seen.append(scores.share), objective(scores))[1]
    train_step(learner, batch, stream(1, "draws"))
    weight = torch.tensor([0.1, 0.1, 0.3])
    train_step(learner, batch._replace(weight=weight), stream(1, "draws"))
    assert seen[0] is None
    assert seen[-1].tolist() == pytest.approx([0.2, 0.2, 0.6])
