"""Algorithm 1 of the paper on one page: the discriminator steps down the risk, the generator up."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from puda.errors import ConfigError, Diverged
from puda.fused import halved
from puda.generator import Generator
from puda.regularizers import Regularizer
from puda.sampling import Sampler
from puda.scoring import ScoringFunction
from puda.tables import EntityTable
from puda.types import Batch, Questions, Risk, Scores


@dataclass
class Adversary:
    """The generator and how it is trained."""

    generator: Generator
    optimizer: Optimizer  # ascends
    num_synthetic: int  # M
    steps: int  # per step of the discriminator
    order: str  # together with the discriminator, before or after it


@dataclass
class Learner:
    """All that a step moves, and the rules by which it does."""

    model: ScoringFunction
    entities: EntityTable
    optimizer: Optimizer  # of the model's own parameters
    sampler: Sampler
    objective: Callable[[Scores], Risk]
    adversary: Adversary | None = None  # None: M = 0
    penalty: Regularizer | None = None  # weight included
    relation_weight: float = 0.0  # of relation prediction
    relation_share: float = 1.0  # of the facts that it is for
    dropout: float = 0.0  # on question vectors
    priors: Tensor | None = None  # (2, R) pi by side and relation; None: the objective's own
    halved: bool = False  # the pool is scored in half precision

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
    questions, answers, owner, weight = batch
    if len(questions) == 1 and learner.normalizes:
        raise ConfigError("one question cannot be normalised over: raise training.batch_size")
    unlabeled = learner.sampler.draw(batch, learner.score, stream)

    # The working set: only the rows that this batch touches, with those that they hear from.
    asked = [questions.anchor, answers, unlabeled.ids.flatten()]
    if model.whole_graph:
        wanted, place = torch.cat(asked).unique(return_inverse=True)  # (N,)
        near = model.neighbourhood(wanted, batch.facts)
        ids = [near.ids]
        leaves = [entities.pull(near.ids)]
        if near.hops:
            rows = model.contextualize(leaves[0], near)  # (N, row)
        else:
            rows = model.contextualize(leaves[0]).index_select(0, wanted)
        parts = place.split([len(part) for part in asked])
        anchor, answer, pool = (rows.index_select(0, part) for part in parts)
    else:
        ids = asked
        leaves = [entities.pull(part) for part in ids]
        anchor, answer, pool = leaves
    question = model.encode(anchor, questions.relation, questions.side)
    if learner.dropout:
        question = model.drop(question, learner.dropout)
    own = question if owner is None else question.index_select(0, owner)
    with halved(learner.halved):
        others = model.match(question, pool.view(*unlabeled.ids.shape, model.row_dim))  # (Q, N)
    scores = Scores(
        positive=model.match(own, answer.unsqueeze(1)).squeeze(1),  # (F,)
        unlabeled=others,
        synthetic=question.new_empty(len(question), 0),
        counted=unlabeled.counted,
        owner=owner,
        share=None if weight is None else weight / weight.sum(),
    )
    scores = scores._replace(weight=learner.sampler.weigh(scores.unlabeled, scores.counted))
    if learner.priors is not None:
        prior = learner.priors[questions.side, questions.relation]
        scores = scores._replace(prior=prior if owner is None else prior[owner])
    if adversary is not None:
        if adversary.order == "before":
            known = _generator_step(learner, adversary, question, scores, stream)
            scores = scores._replace(unlabeled_risk=known)
        invented = adversary.generator(adversary.num_synthetic, stream)  # (M, row)
        if adversary.order != "together":
            invented = invented.detach()
        scores = scores._replace(synthetic=model.match(question, invented))  # (Q, M)
    risk = learner.objective(scores)
    total = risk.total + _around(learner, batch, question, anchor, answer)
    _finite(total).backward()
    learner.sampler.observe(scores.unlabeled)
    slopes = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]
    entities.push(torch.cat(ids), *slopes)
    learner.optimizer.step()
    learner.optimizer.zero_grad()

    if adversary is not None and adversary.order == "together":
        adversary.optimizer.step()
        adversary.optimizer.zero_grad()
    elif adversary is not None and adversary.order == "after":
        with torch.no_grad():  # the questions as the model sees them now
            rows = learner.rows()
            question = model.ask(questions, rows)
            own = question if owner is None else question.index_select(0, owner)
            positive = model.match(own, rows.index_select(0, answers).unsqueeze(1)).squeeze(1)
        seen = scores._replace(positive=positive, unlabeled_risk=risk.unlabeled.detach())
        _generator_step(learner, adversary, question, seen, stream)
    return risk, scores


def _around(
    learner: Learner, batch: Batch, question: Tensor, anchor: Tensor, answer: Tensor
) -> Tensor:
    """Return what stands around the risk: regularisation and relation prediction."""
    total = question.new_zeros(())
    if learner.penalty is None and not learner.relation_weight:
        return total
    relation, side, owner = batch.questions.relation, batch.questions.side, batch.owner
    if learner.penalty is not None:
        factors = learner.model.factors(anchor, relation, side, answer)
        counts = None if owner is None else torch.bincount(owner, minlength=len(question))
        total = total + learner.penalty(question, factors, counts)
    if learner.relation_weight:
        some = slice(max(1, round(learner.relation_share * len(answer))))  # batches are shuffled
        asked = torch.arange(len(answer))[some] if owner is None else owner[some]
        anchor, relation, side = (x.index_select(0, asked) for x in (anchor, relation, side))
        scores = learner.model.relate(anchor, answer[some], side)
        loss = cross_entropy(scores, learner.model.directed(relation, side))
        total = total + learner.relation_weight * loss
    return total


def _finite(risk: Tensor) -> Tensor:
    if not torch.isfinite(risk):
        raise Diverged("the risk is not finite")
    return risk


def _generator_step(
    learner: Learner, adversary: Adversary, question: Tensor, seen: Scores, stream: torch.Generator
) -> Tensor:
    """Step G up the risk with fresh noise, the model being constant; returns R_u- (a scalar).

    The unlabeled scores are always those of the discriminator's step: they reach G only through
    max(0, .).
    """
    parameters, question = list(adversary.generator.parameters()), question.detach()
    for _ in range(adversary.steps):
        invented = adversary.generator(adversary.num_synthetic, stream)
        synthetic = learner.model.match(question, invented)
        risk = learner.objective(seen._replace(synthetic=synthetic))
        seen = seen._replace(unlabeled_risk=risk.unlabeled)
        slopes = torch.autograd.grad(_finite(risk.total), parameters)
        for parameter, slope in zip(parameters, slopes, strict=True):
            parameter.grad = slope
        adversary.optimizer.step()
    return risk.unlabeled
