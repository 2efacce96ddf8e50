"""Two predictors that learn nothing: what a model must beat to be worth its time."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from puda.data.graph import KnowledgeGraph
from puda.data.index import ranges
from puda.evaluation.ranking import Scorer
from puda.types import Questions


class Popularity:
    """Scores an entity by how often it answers the relation's questions in training."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        facts = graph.train[np.argsort(graph.train[:, 1], kind="stable")]
        self.answers = (facts[:, 2], facts[:, 0])  # by side
        self.offsets = np.searchsorted(facts[:, 1], np.arange(graph.num_relations + 1))
        self.num_entities = graph.num_entities

    def _counts(self, side: int, relation: int) -> np.ndarray:
        answers = self.answers[side][self.offsets[relation] : self.offsets[relation + 1]]
        return np.bincount(answers, minlength=self.num_entities).astype(np.float32)

    def __call__(self, questions: Questions) -> Tensor:
        """Score all entities: (Q, E)."""
        kinds = torch.stack([questions.side, questions.relation], dim=1)
        distinct, row = kinds.unique(dim=0, return_inverse=True)
        counts = np.stack([self._counts(*kind) for kind in distinct.tolist()])
        return torch.from_numpy(counts).index_select(0, row)


class InverseRule:
    """Scores by the best rule "<t, r', h> implies <h, r, t>", popularity breaking ties.

    A rule's confidence is the share of the facts of r' whose mirror is a fact of r.
    """

    def __init__(self, graph: KnowledgeGraph) -> None:
        head, relation, tail = graph.train.T
        self.popularity = Popularity(graph)
        size = graph.num_relations
        pair = np.stack([head * graph.num_entities + tail, tail * graph.num_entities + head])
        order = np.argsort(pair[0], kind="stable")
        start = np.searchsorted(pair[0][order], pair[1], side="left")
        count = np.searchsorted(pair[0][order], pair[1], side="right") - start
        implied = relation[order[ranges(start, count)]]
        overlap = np.zeros((size, size))
        np.add.at(overlap, (np.repeat(relation, count), implied), 1)
        total = np.maximum(np.bincount(relation, minlength=size), 1)
        confidence = overlap / total[:, None]  # (r', r)
        # Only their order matters, by r: 0, 1, 2 ... of the distinct confidences, 0 of none.
        self.level = np.stack(
            [
                np.unique(np.append(0, column), return_inverse=True)[1][1:]
                for column in confidence.T
            ],
            axis=1,
        )
        # By side of the question: the facts in which its anchor stands at the other end.
        self.facts, self.offsets = [], []
        for anchor, answer in ((tail, head), (head, tail)):
            order = np.argsort(anchor, kind="stable")
            self.facts.append((relation[order], answer[order]))
            counts = np.bincount(anchor, minlength=graph.num_entities)
            self.offsets.append(np.append(0, np.cumsum(counts)))

    def __call__(self, questions: Questions) -> Tensor:
        """Score all entities: (Q, E)."""
        scores = self.popularity(questions)
        room = scores.amax(1).double() + 1  # (Q,) a rule counts for more than any popularity
        if room.max() * (self.level.max() + 1) >= 2**24:  # beyond single precision's whole numbers
            scores = scores.double()
        for side in (0, 1):
            rows = (questions.side == side).nonzero().squeeze(1).numpy()
            anchor = questions.anchor.numpy()[rows]
            start, stop = self.offsets[side][anchor], self.offsets[side][anchor + 1]
            row = np.repeat(rows, stop - start)
            relation, answer = (column[ranges(start, stop - start)] for column in self.facts[side])
            level = self.level[relation, questions.relation.numpy()[row]]
            order = np.lexsort((level, answer, row))  # of several rules the best comes last
            row, answer, level = row[order], answer[order], level[order]
            best = np.append((row[1:] != row[:-1]) | (answer[1:] != answer[:-1]), True)[: len(row)]
            place = torch.from_numpy(row[best]), torch.from_numpy(answer[best])
            scores[place] += (torch.from_numpy(level[best]) * room[place[0]]).to(scores.dtype)
        return scores


BASELINES: dict[str, Callable[[KnowledgeGraph], Scorer]] = {
    "popularity": Popularity,
    "inverse rule": InverseRule,
}
