"""From a config to a learner: every registry is looked up and every option checked here."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from torch.optim import Adagrad, Adam, Optimizer

from puda.config import Config, accepted, nearest
from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.generator import Generator
from puda.objectives import OBJECTIVES, USES_PRIORS, USES_SYNTHETIC
from puda.priors import estimate_priors
from puda.regularizers import REGULARIZERS
from puda.runs import RunFolder
from puda.sampling import SAMPLERS
from puda.scoring import ScoringFunction, build_model
from puda.seeds import ambient
from puda.tables import EntityTable
from puda.training.step import Adversary, Learner
from puda.types import Scores

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"adagrad": Adagrad, "adam": Adam}

T = TypeVar("T")


def build_learner(graph: KnowledgeGraph, config: Config) -> Learner:
    """Make all that a step moves, from the seed alone."""
    _check_memory(graph, config)
    with ambient(config.training.seed, "model"):
        model = build_model(config.scoring, graph)
        rows = model.initial_entities()
    if config.scoring.start is not None:
        _start_from(config.scoring.start, graph, model, rows)
    objective = _look_up(OBJECTIVES, config.objective.name, "objective")
    options = accepted(
        objective, config.objective.options, given=("scores",), what=config.objective.name
    )
    sampler = _look_up(SAMPLERS, config.sampler.name, "sampler")
    sampler_options = accepted(
        sampler, config.sampler.options, given=("graph", "num_unlabeled"), what=config.sampler.name
    )
    rate = config.optimizer.learning_rate
    learner = Learner(
        model=model,
        entities=EntityTable(rows, optimizer=config.optimizer.name, learning_rate=rate),
        optimizer=OPTIMIZERS[config.optimizer.name](model.parameters(), lr=rate, fused=True),
        sampler=sampler(graph, config.sampler.num_unlabeled, **sampler_options),
        objective=partial(objective, **options),
        adversary=_adversary(config, model.row_dim),
        penalty=_penalty(config),
        relation_weight=config.objective.relation_weight,
        relation_share=config.objective.relation_share,
        halved=config.training.halved,
        dropout=config.scoring.dropout,
        priors=_priors(config, graph),
    )
    # A first look at nothing: what does not go together is told before any folder is made.
    blank = torch.zeros(1, 1)
    share = None if config.training.weights == "even" else torch.ones(1)
    weight = learner.sampler.weigh(blank, None)
    learner.objective(Scores(blank[0], blank, blank, weight=weight, share=share))
    return learner


def _check_memory(graph: KnowledgeGraph, config: Config) -> None:
    """Refuse what cannot fit, before the system does it less politely."""
    if not hasattr(os, "sysconf"):  # there is no such call on Windows
        return
    copies = {"adagrad": 2, "adam": 3}[config.optimizer.name]  # the table and its state
    copies += config.training.averaged > 0  # and the mean of its epochs
    needed = 4 * copies * graph.num_entities * config.scoring.dim
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise ConfigError(
            f"scoring.dim = {config.scoring.dim} needs {needed / 1e9:,.0f} GB for"
            f" {graph.num_entities:,} entities, this machine has {there / 1e9:,.0f} GB"
        )


def _adversary(config: Config, row_dim: int) -> Adversary | None:
    settings = config.generator
    if not settings.num_synthetic or config.objective.name not in USES_SYNTHETIC:
        return None
    if settings.order == "together" and settings.steps > 1:
        raise ConfigError(
            f"generator.steps = {settings.steps} needs steps of its own:"
            " set generator.order to before or after"
        )
    with ambient(config.training.seed, "generator"):
        generator = Generator(
            row_dim,
            noise_dim=settings.noise_dim,
            noise_std=settings.noise_std,
            activation=settings.activation,
            dropout=settings.dropout,
        )
    optimizer = Adam(generator.parameters(), lr=settings.learning_rate, fused=True, maximize=True)
    return Adversary(generator, optimizer, settings.num_synthetic, settings.steps, settings.order)


def _start_from(path: str, graph: KnowledgeGraph, model: ScoringFunction, rows: Tensor) -> None:
    """Copy entities, and the weights of the same name and shape, from another run."""
    other = RunFolder(path).load()
    if not graph.shares_labels(other.graph):
        raise ConfigError(f"scoring.start = {path!r} was trained on other entities or relations")
    if other.entities.shape[1] > rows.shape[1]:
        raise ConfigError(
            f"scoring.start = {path!r} has {other.entities.shape[1]} floats an entity,"
            f" {rows.shape[1]} are asked for: set scoring.dim accordingly"
        )
    rows[:, : other.entities.shape[1]] = other.entities
    own = model.state_dict()
    for name, weight in other.model.state_dict().items():
        if name in own and own[name].shape == weight.shape:
            own[name].copy_(weight)


def _priors(config: Config, graph: KnowledgeGraph) -> Tensor | None:
    settings = config.objective
    if settings.prior == "fixed":
        return None
    if settings.name not in USES_PRIORS:
        raise ConfigError(
            f"the objective {settings.name!r} takes no estimated prior:"
            f" set objective.prior to fixed, or choose one of {', '.join(sorted(USES_PRIORS))}"
        )
    return estimate_priors(graph)


def _look_up(registry: Mapping[str, T], name: str, what: str) -> T:
    if name not in registry:
        raise ConfigError(f"no {what} {name!r}{nearest(name, registry)}")
    return registry[name]


def _penalty(config: Config) -> Callable[..., Tensor] | None:
    regularizer = _look_up(REGULARIZERS, config.objective.regularizer, "regularizer")
    weight = config.objective.weight
    return (lambda *parts: weight * regularizer(*parts)) if weight else None
