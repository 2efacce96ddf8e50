"""Algorithm 1 of the paper on one page: a step of the discriminator, then one of the generator."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from puda.errors import ConfigError, Diverged
from puda.generator import Generator
from puda.sampling import Sampler
from puda.scoring import ScoringFunction
from puda.tables import EntityTable
from puda.types import Batch, Questions, Risk, Scores


@dataclass
class Adversary:
    """The generator and how it is trained."""

    generator: Generator
    optimizer: Optimizer
    num_synthetic: int  # M
    steps: int  # per step of the discriminator
    first: bool  # step before the discriminator, as the authors' code does, not after


@dataclass
class Learner:
    """All that a step moves, and the rules by which it does."""

    model: ScoringFunction
    entities: EntityTable
    optimizer: Optimizer  # of the model's own parameters
    sampler: Sampler
    objective: Callable[[Scores], Risk]
    adversary: Adversary | None = None  # None: M = 0
    penalty: Callable[[Tensor, Sequence[Tensor]], Tensor] | None = None  # weight included
    relation_weight: float = 0.0  # of relation prediction
    dropout: float = 0.0  # on question vectors

    @cached_property
    def normalizes(self) -> bool:
        """Whether the model normalises over the questions of a batch."""
        norms = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)
        return any(isinstance(module, norms) for module in self.model.modules())

    @torch.no_grad()
    def rows(self) -> Tensor:
        """Return the rows of all entities as they are matched now (E, row)."""
        return self.model.contextualize(self.entities.weight)

    @torch.no_grad()
    def score(self, questions: Questions, ids: Tensor) -> Tensor:
        """Score entities (Q, N) as they are now, without dropout: (Q, N)."""
        training = self.model.training
        self.model.eval()
        rows = self.rows()
        own = rows.index_select(0, ids.flatten()).view(*ids.shape, self.model.row_dim)
        scores = self.model.match(self.model.ask(questions, rows), own)
        self.model.train(training)
        return scores


def train_step(learner: Learner, batch: Batch, stream: torch.Generator) -> tuple[Risk, Scores]:
    """Step the discriminator down its risk (Eq. 16) and the generator up.

    Returns the discriminator's risk and scores, from before its step.
    """
    model, entities, adversary = learner.model, learner.entities, learner.adversary
    questions, answers, owner = batch
    if len(questions) == 1 and learner.normalizes:
        raise ConfigError("one question cannot be normalised over: raise training.batch_size")
    unlabeled = learner.sampler.draw(batch, learner.score, stream)
    if adversary is not None and adversary.first:
        _generator_step(learner, adversary, batch, None, stream)
    synthetic = torch.empty(0, model.row_dim)
    if adversary is not None:
        synthetic = adversary.generator(adversary.num_synthetic, stream).detach()  # (M, row)

    # The working set: only the rows that this batch touches (all of them for graph encoders).
    asked = [questions.anchor, answers, unlabeled.ids.flatten()]
    if model.whole_graph:
        ids, place = torch.arange(model.num_entities), torch.cat(asked)
    else:
        ids, place = torch.unique(torch.cat(asked), return_inverse=True)
    leaf = entities.pull(ids)
    rows = model.contextualize(leaf)  # (U, row)
    anchor, answer, pool = (
        rows.index_select(0, part) for part in place.split([len(part) for part in asked])
    )
    question = model.encode(anchor, questions.relation, questions.side)
    if learner.dropout:
        question = model.drop(question, learner.dropout)
    own = question if owner is None else question.index_select(0, owner)
    scores = Scores(
        positive=model.match(own, answer.unsqueeze(1)).squeeze(1),  # (F,)
        unlabeled=model.match(question, pool.view(*unlabeled.ids.shape, model.row_dim)),  # (Q, N)
        synthetic=model.match(question, synthetic),  # (Q, M)
        counted=unlabeled.counted,
        owner=owner,
    )
    scores = scores._replace(weight=learner.sampler.weigh(scores.unlabeled, scores.counted))
    risk = learner.objective(scores)
    total = risk.total + _around(learner, batch, question, anchor, answer)
    if not torch.isfinite(total):
        raise Diverged("the risk is not finite")
    total.backward()
    assert leaf.grad is not None
    learner.sampler.observe(scores.unlabeled)
    entities.push(ids, leaf.grad)
    learner.optimizer.step()
    learner.optimizer.zero_grad()

    if adversary is not None and not adversary.first:
        _generator_step(learner, adversary, batch, scores, stream)
    return risk, scores


def _around(
    learner: Learner, batch: Batch, question: Tensor, anchor: Tensor, answer: Tensor
) -> Tensor:
    """Return what stands around the risk: regularisation and relation prediction."""
    total = question.new_zeros(())
    if learner.penalty is None and not learner.relation_weight:
        return total
    relation, side = batch.questions.relation, batch.questions.side
    if batch.owner is not None:
        anchor, relation, side = (x.index_select(0, batch.owner) for x in (anchor, relation, side))
    if learner.penalty is not None:
        factors = learner.model.factors(anchor, relation, side, answer)
        total = total + learner.penalty(question, factors)
    if learner.relation_weight:
        directed = learner.model.directed(relation, side)
        loss = cross_entropy(learner.model.relate(anchor, answer, side), directed)
        total = total + learner.relation_weight * loss
    return total


def _generator_step(
    learner: Learner,
    adversary: Adversary,
    batch: Batch,
    seen: Scores | None,
    stream: torch.Generator,
) -> None:
    """Step G up the risk with fresh noise, against the model as it is now.

    The unlabeled scores are those seen by the discriminator, if it has stepped: they reach G
    only through max(0, .).
    """
    model = learner.model
    with torch.no_grad():
        rows = learner.rows()
        question = model.ask(batch.questions, rows)
        own = question if batch.owner is None else question.index_select(0, batch.owner)
        positive = model.match(own, rows.index_select(0, batch.answers).unsqueeze(1)).squeeze(1)
    constant = Scores(positive, question.new_empty(len(question), 0), torch.empty(0), None)
    if seen is not None:
        constant = seen._replace(positive=positive, unlabeled=seen.unlabeled.detach())
    for _ in range(adversary.steps):
        synthetic = model.match(question, adversary.generator(adversary.num_synthetic, stream))
        scores = constant._replace(synthetic=synthetic, owner=batch.owner)
        (-learner.objective(scores).total).backward()
        learner.optimizer.zero_grad()  # the model's own parameters are not G's to move
        adversary.optimizer.step()
        adversary.optimizer.zero_grad()
