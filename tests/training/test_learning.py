"""Everything learns: each scoring function, objective and sampler finds facts that are held out."""

from pathlib import Path
from typing import Any

import pytest
import torch

from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.evaluation.metrics import measure
from puda.evaluation.ranking import Scorer, rank
from puda.objectives import OBJECTIVES, ORDERINGS
from puda.regularizers import REGULARIZERS
from puda.runs import Trained
from puda.sampling import SAMPLERS
from puda.scoring import SCORING
from puda.training.trainer import build_learner, train
from puda.types import Questions

STATED = 0.9  # the MRR that everything must reach, of both sides
Settings = dict[str, dict[str, Any]]


def clubs() -> KnowledgeGraph:
    """Four clubs of 5 persons and 4 things: each person `likes` each thing of the club.

    `suits` is the inverse. A fifth of the pairs is held out in both relations, so that nothing
    but the club tells of them. Symmetric scoring functions can represent it, for persons and
    things can be told apart, and so can translations, for one leads from persons to things.
    """
    train_facts, test, untrue = [], [], []
    for club in range(4):
        for i in range(5):
            for j in range(4):
                person, thing, other = (
                    f"person {club}{i}",
                    f"thing {club}{j}",
                    f"thing {club ^ 1}{j}",
                )
                pair = [(person, "likes", thing), (thing, "suits", person)]
                (test if (i + j) % 5 == 0 else train_facts).extend(pair)
                untrue.append((person, "likes", other))
    return KnowledgeGraph.from_facts(
        train_facts, test=test, negatives={"train": untrue}, name="clubs"
    )


GRAPH = clubs()

# Settings beside those of `config`; an entry that is not named here has to do without.
IMAGE = {"kernel": 3, "filters": 4}
STEADY = {"input_dropout": 0.0, "feature_dropout": 0.0, "output_dropout": 0.0}
FOR_SCORING: dict[str, Settings] = {
    "simple": {"optimizer": {"learning_rate": 0.5}},  # starts large
    "transe": {"training": {"epochs": 60}},
    "crosse": {"optimizer": {"learning_rate": 0.3}},
    "rotate": {"scoring": {"options": {"margin": 1.0}}},
    "conve": {"scoring": {"options": {**IMAGE, **STEADY}}},
    "convkb": {"scoring": {"options": {"filters": 4, "dropout": 0.0}}, "training": {"epochs": 20}},
    "compgcn": {"scoring": {"options": {**IMAGE, "dropout": 0.0, "entity_dropout": 0.0}}},
    "hran": {
        "scoring": {"options": {"kernel": 3, "filters": 8, **STEADY}},
        "training": {"epochs": 40},
    },
}
FOR_OBJECTIVE: dict[str, Settings] = {
    # Nothing but the prior holds the positives up.
    "pu-c": {"objective": {"options": {"prior": 0.3}}},
    # KvsAll; a mean over all entities is small, and so must be the regularizer.
    "bce": {
        "objective": {"weight": 0.0},
        "sampler": {"num_unlabeled": GRAPH.num_entities},
        "training": {"grouped": True, "epochs": 60},
    },
}


def config(*changes: Settings) -> Config:
    """Return small settings with changes on top."""
    values: Settings = {
        "scoring": {"name": "distmult", "dim": 32},
        "objective": {"name": "puda", "weight": 0.02},
        "sampler": {"num_unlabeled": 16},
        "generator": {"num_synthetic": 8},
        "optimizer": {"name": "adagrad", "learning_rate": 0.1},
        "training": {
            "epochs": 30,
            "batch_size": 64,
            "validate_every": 1000,
            "patience": 0,
            "threads": 1,
        },
    }
    for change in changes:
        for section, settings in change.items():
            values[section] = values[section] | settings
    return Config.of(values)


def mrr(score: Scorer) -> float:
    report = measure(rank(score, GRAPH.test, GRAPH.known("train", "test")))
    return report["both"]["mrr"]


def mrr_after(settings: Config, path: Path) -> float:
    return mrr(train(GRAPH, settings, path / "run").load().score)


def mrr_before(settings: Config) -> float:
    learner = build_learner(GRAPH, settings)
    return mrr(Trained(settings, GRAPH, learner.model.eval(), learner.entities.weight).score)


# --- what chance gives


def test_chance_is_far_below_what_is_asked_for():
    random = torch.Generator().manual_seed(0)

    def guess(questions: Questions) -> torch.Tensor:
        return torch.rand(len(questions), GRAPH.num_entities, generator=random)

    assert sum(mrr(guess) for _ in range(20)) / 20 < 0.2


def test_knowing_persons_from_things_is_not_enough():
    is_person = torch.tensor([label.startswith("person") for label in GRAPH.entities.labels])
    likes = GRAPH.relations.labels.index("likes")

    def kind(questions: Questions) -> torch.Tensor:
        wants_person = (questions.relation == likes) == (questions.side == 1)
        return (is_person == wants_person.unsqueeze(1)).float()

    assert mrr(kind) < 0.3


# --- learning


@pytest.mark.parametrize("name", SCORING)
def test_every_scoring_function_learns_under_puda(name, tmp_path):
    if name == "pykeen":
        pytest.importorskip("pykeen")
    settings = config(FOR_SCORING.get(name, {}), {"scoring": {"name": name}})
    assert mrr_before(settings) < 0.3
    assert mrr_after(settings, tmp_path) >= STATED


@pytest.mark.parametrize("name", OBJECTIVES)
def test_distmult_learns_under_every_objective(name, tmp_path):
    settings = config(FOR_OBJECTIVE.get(name, {}), {"objective": {"name": name}})
    assert mrr_after(settings, tmp_path) >= STATED


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_distmult_learns_in_every_ordering(ordering, tmp_path):
    # Pointwise, the prior has to hold the positives up.
    options = {"ordering": ordering, "prior": 0.3 if ordering == "pointwise" else 1e-5}
    settings = config({"objective": {"options": options}})
    assert mrr_after(settings, tmp_path) >= STATED


@pytest.mark.parametrize("name", SAMPLERS)
def test_distmult_learns_with_every_sampler(name, tmp_path):
    assert mrr_after(config({"sampler": {"name": name}}), tmp_path) >= STATED


@pytest.mark.parametrize("name", REGULARIZERS)
def test_distmult_learns_under_every_regularizer(name, tmp_path):
    settings = config({"objective": {"regularizer": name}})
    assert mrr_after(settings, tmp_path) >= STATED


@pytest.mark.parametrize(
    "training",
    [{"grouped": True, "epochs": 60}, {"sides": "bernoulli", "epochs": 60}],
    ids=["grouped", "bernoulli"],
)
def test_distmult_learns_from_every_kind_of_batch(training, tmp_path):
    assert mrr_after(config({"training": training}), tmp_path) >= STATED


def test_distmult_learns_by_adam(tmp_path):
    settings = config({"optimizer": {"name": "adam", "learning_rate": 0.01}})
    assert mrr_after(settings, tmp_path) >= STATED


def test_distmult_learns_by_predicting_relations_as_well(tmp_path):
    settings = config({"objective": {"relation_weight": 0.5}})
    assert mrr_after(settings, tmp_path) >= STATED


def test_a_regularizer_that_is_too_heavy_lets_nothing_be_learned(tmp_path):
    assert mrr_after(config({"objective": {"weight": 100.0}}), tmp_path) < 0.3


# --- with less than usual


@pytest.mark.parametrize("name", OBJECTIVES)
def test_without_unlabeled_entities_a_run_comes_to_its_end(name, tmp_path):
    # As ablations have it: of PUDA the synthetic entities are left, of PU-R the prior.
    settings = config(
        {
            "objective": {"name": name},
            "sampler": {"num_unlabeled": 0},
            "training": {"epochs": 2},
        }
    )
    assert 0 < mrr_after(settings, tmp_path) < 1


@pytest.mark.parametrize("name", OBJECTIVES)
def test_without_synthetic_entities_every_objective_learns(name, tmp_path):
    settings = config(
        FOR_OBJECTIVE.get(name, {}),
        {"objective": {"name": name}, "generator": {"num_synthetic": 0}},
    )
    assert mrr_after(settings, tmp_path) >= STATED
