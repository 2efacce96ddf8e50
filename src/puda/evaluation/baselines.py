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
        self.num_facts = len(graph.train)
        size = graph.num_relations
        pair = np.stack([head * graph.num_entities + tail, tail * graph.num_entities + head])
        order = np.argsort(pair[0], kind="stable")
        start = np.searchsorted(pair[0][order], pair[1], side="left")
        count = np.searchsorted(pair[0][order], pair[1], side="right") - start
        implied = relation[order[ranges(start, count)]]
        overlap = np.zeros((size, size))
        np.add.at(overlap, (np.repeat(relation, count), implied), 1)
        total = np.maximum(np.bincount(relation, minlength=size), 1)
        self.confidence = overlap / total[:, None]  # (r', r)
        # By side of the question: the facts in which its anchor stands at the other end.
        self.facts, self.offsets = [], []
        for anchor, answer in ((tail, head), (head, tail)):
            order = np.argsort(anchor, kind="stable")
            self.facts.append((relation[order], answer[order]))
            counts = np.bincount(anchor, minlength=graph.num_entities)
            self.offsets.append(np.append(0, np.cumsum(counts)))

    def __call__(self, questions: Questions) -> Tensor:
        """Score all entities: (Q, E)."""
        # Confidences are fractions of at most n facts: two of them differ by 1 / n^2 at least.
        scores = self.popularity(questions).double().div_(2 * self.num_facts**3)
        for side in (0, 1):
            rows = (questions.side == side).nonzero().squeeze(1).numpy()
            anchor = questions.anchor.numpy()[rows]
            start, stop = self.offsets[side][anchor], self.offsets[side][anchor + 1]
            row = np.repeat(rows, stop - start)
            relation, answer = (column[ranges(start, stop - start)] for column in self.facts[side])
            asked = questions.relation.numpy()[row]
            value = torch.from_numpy(self.confidence[relation, asked])
            best = torch.zeros(scores.numel(), dtype=scores.dtype)
            place = torch.from_numpy(row * scores.shape[1] + answer)
            best.scatter_reduce_(0, place, value, "amax")
            scores += best.view_as(scores)
        return scores


BASELINES: dict[str, Callable[[KnowledgeGraph], Scorer]] = {
    "popularity": Popularity,
    "inverse rule": InverseRule,
}
