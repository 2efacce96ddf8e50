"""KBGAN: a second model learns to pick what the trained model takes for answers."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError, RunError
from puda.runs import RunFolder
from puda.sampling.kbgan import KBGANSampler
from puda.seeds import stream
from puda.training.trainer import build_learner, train
from puda.types import Batch, Questions
from toy import checkerboard, labels

GRAPH = checkerboard()


def score(questions: Questions, ids: Tensor) -> Tensor:
    raise AssertionError("its rewards come by observe")


def whole_batch(graph: KnowledgeGraph = GRAPH) -> Batch:
    return Batch(*Questions.both(torch.tensor(graph.train)))


def learn(sampler: KBGANSampler, reward: Callable[[Tensor], Tensor], steps: int) -> None:
    for epoch in range(steps):
        drawn = sampler.draw(whole_batch(), score, stream(0, "draws", epoch))
        sampler.observe(reward(drawn.ids))


def share_of(sampler: KBGANSampler, entity: int, draws: int = 30) -> float:
    """Return how often an entity is picked for the questions that it may be picked for."""
    batch = whole_batch()
    allowed = sampler.mark(
        sampler.keys(batch.questions), torch.full((len(batch.questions), 1), entity)
    )
    rows = allowed.squeeze(1)
    picked = [
        sampler.draw(batch, score, stream(1, "draws", i)).ids[rows] == entity for i in range(draws)
    ]
    return torch.cat(picked).double().mean().item()


def of_size_one(sampler: KBGANSampler) -> KBGANSampler:
    """Give the picking model weights that make a difference."""
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in (sampler.entities.weight, sampler.model.relations):
            weight.copy_(torch.randn(weight.shape, generator=random))
    return sampler


def small_config(name: str = "distmult", **options: object) -> Config:
    return Config.of(
        {
            "scoring": {"name": name, "dim": 32, "options": options},
            "objective": {"name": "softmax", "weight": 0.0},
            "sampler": {"num_unlabeled": 16},
            "training": {"epochs": 15, "patience": 0, "threads": 1},
        }
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    """Train a picking model."""
    return train(GRAPH, small_config(), tmp_path_factory.mktemp("kbgan") / "picker")


# --- learning


@pytest.mark.parametrize("rewarded", [3, 12])
def test_it_learns_to_pick_the_entity_that_is_rewarded(rewarded):
    sampler = KBGANSampler(GRAPH, 4, dim=16, candidates=12, learning_rate=0.02)
    chance = share_of(sampler, rewarded)
    assert 0.05 < chance < 0.12  # one of the 12 to 16 that are no known answers
    learn(sampler, lambda ids: (ids == rewarded).float(), steps=120)
    # It is among the 12 candidates of some 13 entities in 6 of 10 cases, and picked if so.
    assert share_of(sampler, rewarded) > 4 * chance


def test_it_learns_to_leave_out_the_entity_that_is_punished():
    sampler = KBGANSampler(GRAPH, 4, dim=16, candidates=12, learning_rate=0.02)
    chance = share_of(sampler, 5)
    learn(sampler, lambda ids: -(ids == 5).float(), steps=120)
    assert share_of(sampler, 5) < chance / 4


def test_the_reward_counts_from_a_moving_mean():
    sampler = KBGANSampler(GRAPH, 4, dim=16, candidates=12, learning_rate=0.02)
    learn(sampler, lambda ids: torch.full(ids.shape, 3.0), steps=1)
    assert sampler.baseline.item() == pytest.approx(0.05 * 3)
    learn(sampler, lambda ids: torch.full(ids.shape, 3.0), steps=30)
    assert sampler.baseline.item() == pytest.approx(3 * (1 - 0.95**31))


def test_a_step_goes_up_the_reward_above_the_baseline_times_the_gradient_of_ln_p():
    # By hand: two candidates with picking scores a, b; d ln p(first)/da = 1 - p(first).
    sampler = of_size_one(KBGANSampler(GRAPH, 1, dim=8, candidates=2, learning_rate=0.01))
    sampler.baseline.fill_(0.25)
    one = Batch(whole_batch().questions[:1], whole_batch().answers[:1])
    seen = {}
    update = sampler.entities.optimizer.update

    def listening(weight: Tensor, ids: Tensor, gradients: Sequence[Tensor]) -> None:
        seen.update(zip(ids.tolist(), gradients[0].clone(), strict=True))
        update(weight, ids, gradients)

    sampler.entities.optimizer.update = listening
    rows, relations = sampler.entities.weight.clone(), sampler.model.relations.detach().clone()
    offered = sampler.outside(sampler.keys(one.questions), 2, stream(3, "draws"))[0].tolist()
    anchor, relation = one.questions.anchor.item(), one.questions.relation.item()
    assert len({anchor, *offered}) == 3
    picked = sampler.draw(one, score, stream(3, "draws")).ids.item()
    (other,) = set(offered) - {picked}
    sampler.observe(torch.tensor([[1.0]]))
    question = rows[anchor] * relations[relation]
    chance = torch.sigmoid(question @ rows[picked] - question @ rows[other])
    # The loss is -(1 - 0.25) ln p(picked); ln p falls back through score = question . row.
    torch.testing.assert_close(seen[picked], -0.75 * (1 - chance) * question)
    torch.testing.assert_close(seen[other], 0.75 * (1 - chance) * question)


def test_candidates_are_picked_by_softmax_of_the_picking_scores():
    sampler = of_size_one(KBGANSampler(GRAPH, 1, dim=16, candidates=3))
    batch = whole_batch()
    rows = sampler.entities.weight
    expected = found = variance = 0.0
    for epoch in range(60):
        pool = sampler.outside(sampler.keys(batch.questions), 3, stream(0, "draws", epoch))
        with torch.no_grad():
            question = sampler.model.ask(batch.questions, rows)
            chance = sampler.model.match(question, rows[pool]).softmax(1)
        ids = sampler.draw(batch, score, stream(0, "draws", epoch)).ids
        first = (chance * (pool == pool[:, :1])).sum(1)  # a candidate may be offered twice
        expected += first.sum().item()
        variance += (first * (1 - first)).sum().item()
        found += (ids == pool[:, :1]).sum().item()
    assert abs(found - expected) < 4 * variance**0.5


# --- the picking model


def test_it_starts_from_a_run_that_was_trained_before(run):
    trained = run.load()
    sampler = KBGANSampler(GRAPH, 4, run=str(run.path))
    assert torch.equal(sampler.entities.weight, trained.entities)
    assert torch.equal(sampler.model.relations, trained.model.relations)
    # It picks what that run takes for answers: the likes and dislikes that are held out.
    fresh = KBGANSampler(GRAPH, 4)
    batch = whole_batch()
    hidden = {tuple(fact) for fact in [*GRAPH.valid.tolist(), *GRAPH.test.tolist()]}

    def hits(one: KBGANSampler) -> int:
        found = 0
        for epoch in range(10):
            ids = one.draw(batch, score, stream(0, "draws", epoch)).ids.tolist()
            for i, row in enumerate(ids):
                anchor, relation = int(batch.questions.anchor[i]), int(batch.questions.relation[i])
                for e in row:
                    head, tail = (e, anchor) if batch.questions.side[i] else (anchor, e)
                    found += (head, relation, tail) in hidden
        return found

    assert hits(sampler) > 2 * hits(fresh)


def test_picking_leaves_the_run_that_it_started_from_as_it_was(run):
    before = (run.path / "model.safetensors").read_bytes()
    sampler = KBGANSampler(GRAPH, 4, run=str(run.path), learning_rate=0.1)
    learn(sampler, lambda ids: ids.float(), steps=3)
    assert (run.path / "model.safetensors").read_bytes() == before
    again = KBGANSampler(GRAPH, 4, run=str(run.path))
    assert not torch.equal(again.entities.weight, sampler.entities.weight)


def test_a_run_on_other_entities_is_an_error(run):
    with pytest.raises(ConfigError, match="trained on other entities or relations"):
        KBGANSampler(checkerboard(6), 4, run=str(run.path))


def test_a_run_on_other_relations_is_an_error(run):
    renamed = {"likes": "likes", "dislikes": "not likes"}  # and so numbered the other way round
    other = KnowledgeGraph.from_facts(
        [(h, renamed[r], t) for h, r, t in labels(GRAPH, "train")],
        valid=[(h, renamed[r], t) for h, r, t in labels(GRAPH, "valid")],
        test=[(h, renamed[r], t) for h, r, t in labels(GRAPH, "test")],
    )
    assert other.entities.labels == GRAPH.entities.labels
    with pytest.raises(ConfigError, match="trained on other entities or relations"):
        KBGANSampler(other, 4, run=str(run.path))


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(RunError, match="nowhere"):
        KBGANSampler(GRAPH, 4, run=str(tmp_path / "nowhere"))


def test_a_graph_encoder_cannot_pick():
    with pytest.raises(ConfigError, match="graph encoder"):
        KBGANSampler(GRAPH, 4, scoring="hran", dim=32)


def test_an_unknown_picking_model_is_an_error():
    settings = ["sampler.name=kbgan", "sampler.options.scoring=distmolt"]
    with pytest.raises(ConfigError, match="distmult"):
        build_learner(GRAPH, small_config().with_settings(settings))


@pytest.mark.parametrize("scoring", ["complex", "transe"])
def test_another_scoring_function_can_pick(scoring):
    sampler = KBGANSampler(GRAPH, 4, scoring=scoring, dim=16, candidates=12, learning_rate=0.02)
    before = share_of(sampler, 12)
    learn(sampler, lambda ids: (ids == 12).float(), steps=60)
    assert share_of(sampler, 12) > 1.5 * before
