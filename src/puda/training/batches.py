"""The training facts as questions, in batches of a fresh random order each epoch."""

from collections.abc import Iterator

import torch

from puda.config import TrainingConfig
from puda.data.graph import KnowledgeGraph
from puda.data.index import ranges
from puda.errors import ConfigError
from puda.types import Batch, Questions


class Batches:
    """Both questions of each fact; or one by Bernoulli; or distinct questions with all answers.

    Bernoulli (Wang et al. 2014): the head is asked for with probability tph / (tph + hpt), tph
    being the relation's mean number of tails per head and hpt of heads per tail.

    An answer weighs 1 / sqrt(n + m + 6) if subsampled (Sun et al. 2019), n and m being the numbers
    of known answers of its question and of the fact's other one, and 1 / n if by question.
    """

    def __init__(self, graph: KnowledgeGraph, settings: TrainingConfig) -> None:
        self.known, self.settings = graph.known("train"), settings
        facts = torch.tensor(graph.train)
        self.num_facts, self.relation = len(facts), facts[:, 1]
        self.grouped = settings.grouped
        if self.grouped and settings.sides == "bernoulli":
            raise ConfigError("training.grouped asks both sides: leave training.sides at 'both'")
        if self.grouped:
            self.questions = _distinct_questions(graph)
            self.answers = torch.from_numpy(self.known.answers)
        else:
            self.questions, self.answers = Questions.both(facts)
        if settings.sides == "bernoulli":
            self.asks_head = _head_chance(graph)[self.relation]  # (n,)
        self.weight: torch.Tensor | None = None  # of the answers
        if settings.weights != "even":
            self.weight = self._weights()

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        asked = self.num_facts if self.settings.sides == "bernoulli" else len(self.questions)
        return -(-asked // self.settings.batch_size)

    def of_epoch(self, stream: torch.Generator) -> Iterator[Batch]:
        """Yield batches of nearly equal size, so that none is too small to normalise over."""
        asked = torch.arange(len(self.questions))
        if self.settings.sides == "bernoulli":
            head = torch.rand(self.num_facts, generator=stream) < self.asks_head
            asked = torch.arange(self.num_facts) + self.num_facts * head
        order = asked[torch.randperm(len(asked), generator=stream)]
        for rows in order.tensor_split(len(self)):
            yield self._batch(rows)

    def _batch(self, rows: torch.Tensor) -> Batch:
        """Ask some of the questions."""
        places, owner = rows, None  # of the answers
        if self.grouped:
            start = self.known.offsets[rows.numpy()]
            count = self.known.offsets[rows.numpy() + 1] - start
            places = torch.from_numpy(ranges(start, count))
            owner = torch.repeat_interleave(torch.arange(len(rows)), torch.from_numpy(count))
        weight = None if self.weight is None else self.weight.index_select(0, places)
        return Batch(self.questions[rows], self.answers.index_select(0, places), owner, weight)

    def _weights(self) -> torch.Tensor:
        """Return what each answer of an epoch weighs."""
        everything = self._batch(torch.arange(len(self.questions)))
        head, relation, tail = everything.facts.numpy().T
        tails = torch.from_numpy(self.known.count(self.known.key(head, relation, 0)))
        heads = torch.from_numpy(self.known.count(self.known.key(tail, relation, 1)))
        if self.settings.weights == "subsampled":
            return (tails + heads + 6.0).rsqrt()
        side, owner = everything.questions.side, everything.owner
        side = side if owner is None else side.index_select(0, owner)
        return 1.0 / torch.where(side == 0, tails, heads)


def _distinct_questions(graph: KnowledgeGraph) -> Questions:
    """Return the questions that have answers, in the order of the index."""
    keys = torch.from_numpy(graph.known("train").keys)
    anchor, kind = keys % graph.num_entities, keys // graph.num_entities
    return Questions(anchor, kind % graph.num_relations, kind // graph.num_relations)


def _head_chance(graph: KnowledgeGraph) -> torch.Tensor:
    """Return tph / (tph + hpt) of each relation (R,)."""
    questions = _distinct_questions(graph)
    count = torch.bincount(torch.tensor(graph.train[:, 1]), minlength=graph.num_relations)
    heads, tails = (
        torch.bincount(questions.relation[questions.side == side], minlength=len(count))
        for side in (0, 1)
    )
    tails_per_head, heads_per_tail = count / heads.clamp(min=1), count / tails.clamp(min=1)
    return tails_per_head / (tails_per_head + heads_per_tail).clamp(min=1e-9)
