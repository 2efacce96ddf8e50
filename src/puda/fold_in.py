"""New entities without retraining: their rows are learned from their facts, all else stays."""

from dataclasses import replace

import numpy as np
import polars as pl
import torch
from torch import Tensor
from torch.optim import SGD

from puda.data.graph import KnowledgeGraph, Labelled, frame_of
from puda.data.vocabulary import Vocabulary
from puda.errors import DataError
from puda.runs import Trained
from puda.seeds import stream
from puda.tables import EntityTable
from puda.training.build import build_learner
from puda.training.step import train_step
from puda.types import Batch, Questions

BATCH = 1024  # questions a step, at most


class NewRows(EntityTable):
    """An entity table of which only the rows from `first` on can move."""

    first = 0

    def push(self, ids: Tensor, *gradients: Tensor) -> None:
        """Step the new rows among `ids` (n,), which may repeat, down their gradients."""
        moves = (ids >= self.first).nonzero().squeeze(1)
        super().push(ids[moves], torch.cat(gradients).index_select(0, moves))


def fold_in(trained: Trained, facts: Labelled, *, steps: int = 200, seed: int = 0) -> Trained:
    """Add facts, and learn rows for those of their entities that the run does not know.

    The facts join the training facts. Over the questions of facts that name a new entity, the
    risk of the run's own objective is stepped down by the new rows alone, at the learning rate of
    the run falling to zero. Without a generator: it belongs to training.
    """
    graph = extend(trained.graph, facts)
    first = trained.graph.num_entities
    settings = ["generator.num_synthetic=0", "scoring.start=none", f"training.seed={seed}"]
    learner = build_learner(graph, trained.config.with_settings(settings))
    learner.model.load_state_dict(trained.model.state_dict())
    learner.model.eval()  # no dropout, and no statistics over batches of the new facts alone
    learner.optimizer = SGD(learner.model.parameters(), lr=0.0)
    rate = trained.config.optimizer.learning_rate
    table = NewRows(
        torch.cat([trained.entities, _typical(trained, graph)]),
        optimizer=trained.config.optimizer.name,
        learning_rate=rate,
    )
    table.first, learner.entities = first, table

    new = (graph.train[:, [0, 2]] >= first).any(1)
    questions, answers = Questions.both(torch.tensor(graph.train[new]))
    draws = stream(seed, "fold in")
    for step in range(steps if new.any() else 0):
        table.optimizer.learning_rate = rate * (1 - step / steps)
        some = torch.randperm(len(questions), generator=draws)[:BATCH]
        train_step(learner, Batch(questions[some], answers[some]), draws)
    return Trained(trained.config, graph, learner.model, table.weight)


def extend(graph: KnowledgeGraph, facts: Labelled) -> KnowledgeGraph:
    """Add facts to the training facts; new entities take the ids behind the known ones."""
    frame = frame_of(facts)
    strange = set(frame["relation"]) - set(graph.relations.labels)
    if strange:
        raise DataError(
            f"the relation {min(strange)!r} is not in {graph.name}: only entities can be added,"
            " train anew for a relation"
        )
    known = set(graph.entities.labels)
    ends = pl.concat([frame["head"], frame["tail"]]).unique(maintain_order=True)
    added = [label for label in ends if label not in known]
    entities = Vocabulary([*graph.entities.labels, *added], kind="entity")
    ids = np.stack(
        [
            entities.encode(frame["head"]),
            graph.relations.encode(frame["relation"]),
            entities.encode(frame["tail"]),
        ],
        axis=1,
    )
    train = np.unique(np.concatenate([graph.train, ids]), axis=0)
    return replace(graph, entities=entities, train=train)


def _typical(trained: Trained, graph: KnowledgeGraph) -> Tensor:
    """Return the rows (n, row) to start from: the mean of those that stand where a new one does.

    That is over the new entity's facts the mean row of all known entities on the same side of the
    same relation.
    """
    first, old = trained.graph.num_entities, trained.graph.train
    rows = trained.entities.new_zeros(graph.num_entities - first, trained.entities.shape[1])
    count = torch.zeros(len(rows))
    for head, relation, tail in graph.train[(graph.train[:, [0, 2]] >= first).any(1)].tolist():
        for entity, column in ((head, 0), (tail, 2)):
            if entity >= first:
                peers = torch.from_numpy(old[old[:, 1] == relation, column])
                rows[entity - first] += trained.entities[peers].mean(0)
                count[entity - first] += 1
    return rows / count.unsqueeze(1)
