"""Algorithm 1 of the paper on one page: a step of the discriminator, then one of the generator."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from puda.errors import Diverged
from puda.generator import Generator
from puda.sampling import Sampler
from puda.scoring import ScoringFunction
from puda.tables import EntityTable
from puda.types import Questions, Risk, Scores


@dataclass
class Learner:
    """All that a step moves, and the rules by which it does."""

    model: ScoringFunction
    entities: EntityTable
    generator: Generator | None  # None: M = 0
    num_synthetic: int
    sampler: Sampler
    objective: Callable[[Scores], Risk]
    penalty: Callable[..., Tensor] | None  # of the factors, weight included
    optimizer: Optimizer  # of the model's own parameters
    generator_optimizer: Optimizer | None


def train_step(
    learner: Learner, questions: Questions, answers: Tensor, stream: torch.Generator
) -> Risk:
    """Step the discriminator down Eq. 16 and the generator up; returns the discriminator's risk."""
    model, entities = learner.model, learner.entities
    unlabeled = learner.sampler.draw(questions, stream)
    synthetic = _invent(learner, stream).detach()  # (M, d)

    # The working set: only the rows that this batch touches.
    asked = [questions.anchor, answers, unlabeled.ids.flatten()]
    ids, place = torch.unique(torch.cat(asked), return_inverse=True)
    rows = entities.pull(ids)  # (U, d)
    anchor, answer, pool = (
        rows.index_select(0, p) for p in place.split([len(part) for part in asked])
    )
    question = model.encode(anchor, questions.relation, questions.side)
    scores = Scores(
        positive=model.match(question, answer.unsqueeze(1)).squeeze(1),  # (Q,)
        unlabeled=model.match(question, pool.view(*unlabeled.ids.shape, -1)),  # (Q, N)
        synthetic=model.match(question, synthetic),  # (Q, M)
        counted=unlabeled.counted,
    )
    risk = learner.objective(scores)
    total = risk.total
    if learner.penalty is not None:
        total = total + learner.penalty(
            model.factors(anchor, questions.relation, questions.side, answer)
        )
    if not torch.isfinite(total):
        raise Diverged("the risk is not finite")
    total.backward()
    assert rows.grad is not None
    entities.push(ids, rows.grad)
    learner.optimizer.step()
    learner.optimizer.zero_grad()

    if learner.generator is not None:
        _generator_step(learner, questions, answers, scores, stream)
    return risk


def _invent(learner: Learner, stream: torch.Generator) -> Tensor:
    if learner.generator is None:
        return torch.empty(0, learner.model.dim)
    rows: Tensor = learner.generator(learner.num_synthetic, stream)
    return rows


def _generator_step(
    learner: Learner, questions: Questions, answers: Tensor, seen: Scores, stream: torch.Generator
) -> None:
    """Step G up Eq. 16 with fresh noise, against the model as it is after its own step.

    The unlabeled scores are those from before it: they reach G only through max(0, .).
    """
    assert learner.generator_optimizer is not None
    model, table = learner.model, learner.entities.weight
    with torch.no_grad():
        question = model.ask(questions, table)
        answer = table.index_select(0, answers)
        positive = model.match(question, answer.unsqueeze(1)).squeeze(1)
    synthetic = model.match(question, _invent(learner, stream))
    scores = seen._replace(
        positive=positive, unlabeled=seen.unlabeled.detach(), synthetic=synthetic
    )
    (-learner.objective(scores).total).backward()  # also fills the model's own gradients:
    learner.optimizer.zero_grad()  # they are not G's to use
    learner.generator_optimizer.step()
    learner.generator_optimizer.zero_grad()
