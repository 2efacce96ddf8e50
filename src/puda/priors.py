"""The prior pi estimated from the data: how likely a random entity answers a question."""

import torch
from torch import Tensor

from puda.data.graph import KnowledgeGraph


def estimate_priors(graph: KnowledgeGraph) -> Tensor:
    """Return (2, R), for tail and head questions of each relation: answers per question / E.

    Counted over the training facts, for questions that have an answer there. Facts that are
    missing make it too small: without further assumptions the data do not tell how many are.
    """
    known = graph.known("train")
    kind = torch.from_numpy(known.keys // graph.num_entities)  # side * R + relation
    size = 2 * graph.num_relations
    questions = torch.bincount(kind, minlength=size)
    counts = torch.from_numpy(known.offsets[1:] - known.offsets[:-1]).float()
    answers = torch.zeros(size).index_add_(0, kind, counts)
    return (answers / questions.clamp(min=1) / graph.num_entities).view(2, -1)
