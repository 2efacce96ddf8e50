"""The estimated prior, counted by hand, and as training uses it."""

import pytest
import torch

from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.objectives import OBJECTIVES, USES_PRIORS
from puda.priors import estimate_priors
from puda.training.build import build_learner
from puda.types import Scores

# Of five entities, a likes b and c, d likes b; a knows e. (valid facts say nothing.)
GRAPH = KnowledgeGraph.from_facts(
    [("a", "likes", "b"), ("a", "likes", "c"), ("d", "likes", "b"), ("a", "knows", "e")],
    valid=[("e", "likes", "a")],
)


def test_a_prior_is_the_answers_of_a_question_as_a_share_of_the_entities():
    # Relations by label: knows, likes. Tails: knows 1 of 1 question, likes 3 of 2 questions (a, d);
    # heads: knows 1 of 1, likes 3 of 2 (b, c).
    assert estimate_priors(GRAPH) == pytest.approx(torch.tensor([[1, 1.5], [1, 1.5]]) / 5)


def test_a_relation_that_training_never_shows_has_prior_zero():
    graph = KnowledgeGraph.from_facts([("a", "r", "b")], valid=[("a", "s", "b")])
    assert estimate_priors(graph)[:, 1].tolist() == [0, 0]


@pytest.mark.parametrize("name", sorted(USES_PRIORS))
def test_equal_priors_of_questions_are_one_prior_for_all(name):
    random = torch.Generator().manual_seed(0)
    positive, unlabeled = torch.randn(4, generator=random), torch.randn(4, 3, generator=random)
    scores = Scores(positive, unlabeled, unlabeled[:, :2])
    one = OBJECTIVES[name](scores, prior=0.3).total
    each = OBJECTIVES[name](scores._replace(prior=torch.full((4,), 0.3)), prior=0.9).total
    assert each.item() == pytest.approx(one.item())


def test_each_positive_is_weighted_by_the_prior_of_its_own_question():
    # Without others the risk is pi R_p+ + max(0, -pi R_p-): at score 0, ln 2 (0.2 + 0.4) / 2.
    scores = Scores(
        torch.zeros(2), torch.empty(2, 0), torch.empty(2, 0), prior=torch.tensor([0.2, 0.4])
    )
    expected = 0.3 * torch.log(torch.tensor(2.0))
    assert OBJECTIVES["pu-r"](scores).total.item() == pytest.approx(expected.item())


def test_a_learner_has_estimated_priors_only_where_they_are_asked_for():
    assert build_learner(GRAPH, Config()).priors is None
    learner = build_learner(GRAPH, Config().with_settings(["objective.prior=estimated"]))
    assert torch.equal(learner.priors, estimate_priors(GRAPH))


def test_an_objective_without_a_prior_to_estimate_is_refused():
    config = Config().with_settings(["objective.name=pn", "objective.prior=estimated"])
    with pytest.raises(ConfigError, match="'pn' takes no estimated prior.*puda"):
        build_learner(GRAPH, config)
