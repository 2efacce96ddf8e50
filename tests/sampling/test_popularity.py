"""Popular entities are drawn more often, and a pool's weighted sum still stands for all."""

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.objectives import OBJECTIVES, puda
from puda.sampling.popularity import PopularitySampler
from puda.seeds import stream
from puda.training.build import build_learner
from puda.types import Batch, Questions, Scores
from toy import checkerboard

STAR = KnowledgeGraph.from_facts([("a", "r", "hub"), ("b", "r", "hub"), ("c", "r", "hub")])
"""hub answers one question three times over, a, b and c answer one each."""


def score(questions: Questions, ids: Tensor) -> Tensor:
    raise AssertionError("popularity has no use for scores")


def ask(graph: KnowledgeGraph) -> Batch:
    questions, answers = Questions.both(torch.tensor(graph.train))
    return Batch(questions, answers)


def share(graph: KnowledgeGraph, label: str) -> float:
    chance = PopularitySampler(graph, 1, power=1.0).chance
    return float(chance[graph.entities.find(label)])


def test_an_entity_is_drawn_by_one_more_than_the_answers_that_it_is():
    assert share(STAR, "hub") == pytest.approx(4 / 10)
    assert share(STAR, "a") == pytest.approx(2 / 10)


def test_power_zero_draws_all_alike():
    chance = PopularitySampler(STAR, 1, power=0.0).chance
    assert chance.tolist() == pytest.approx([1 / 4] * 4)


def test_draws_follow_the_chances():
    sampler, draws = PopularitySampler(STAR, 1, power=0.75), 4000
    seen = torch.zeros(STAR.num_entities)
    random = stream(0, "draws", 0)
    for _ in range(draws):
        seen[sampler.draw(ask(STAR), score, random).ids] += 1
    expected = sampler.chance * draws
    assert float(((seen - expected) ** 2 / expected).sum()) < chi2.ppf(0.999, 3)


def test_the_sum_over_a_pool_has_the_expectation_of_the_sum_over_all_entities():
    graph = checkerboard()
    sampler, random = PopularitySampler(graph, 8), stream(1, "draws", 0)
    size = torch.sin(torch.arange(graph.num_entities) * 1.3).exp()  # exp(u) of each entity
    sums = []
    for _ in range(3000):
        drawn = sampler.draw(ask(graph), score, random)
        assert drawn.offset is not None
        sums.append(float((size[drawn.ids] * drawn.offset.exp()).sum()))
    found = torch.tensor(sums)
    error = float(found.std()) / len(sums) ** 0.5
    assert float(found.mean()) == pytest.approx(float(size.sum()), abs=4 * error)


def test_an_entity_that_stands_for_two_counts_as_if_it_were_there_twice():
    positive, unlabeled = torch.tensor([0.3]), torch.tensor([[0.1, -0.4]])
    none = torch.empty(1, 0)
    twice = Scores(positive, unlabeled, none, offset=torch.tensor([2.0, 1.0]).log())
    written_out = Scores(positive, unlabeled[:, [0, 0, 1]], none)
    assert float(puda(twice, ordering="listwise").total) == pytest.approx(
        float(puda(written_out, ordering="listwise").total), rel=1e-6
    )


@pytest.mark.parametrize("objective", sorted(set(OBJECTIVES) - {"softmax"}))
def test_a_risk_that_cannot_reckon_with_it_says_so_before_training(objective):
    settings = Config().with_settings([f"objective.name={objective}", "sampler.name=popularity"])
    with pytest.raises(ConfigError, match="counts every entity alike: use the sampler 'uniform'"):
        build_learner(checkerboard(), settings)


def test_a_pool_of_none_is_empty():
    drawn = PopularitySampler(STAR, 0).draw(ask(STAR), score, stream(0, "draws", 0))
    assert drawn.ids.numel() == 0
