"""How well scores tell facts from annotated true negatives."""

import numpy as np
import torch

from puda.evaluation.metrics import Metrics
from puda.evaluation.ranking import Scorer
from puda.types import Facts, Questions

QUESTIONS = 256
"""Scored at a time."""


def classify(score: Scorer, facts: Facts, negatives: Facts) -> Metrics:
    """Return AUC and average precision of facts (n, 3) against true negatives (m, 3).

    A fact's score is the mean of its scores as an answer to its two questions. Equal scores count
    half in the AUC, and stand at one threshold in the average precision.
    """
    scores = np.concatenate([fact_scores(score, part) for part in (facts, negatives)])
    true = np.arange(len(scores)) < len(facts)
    levels, level = np.unique(scores, return_inverse=True)
    positive = np.bincount(level[true], minlength=len(levels))[::-1]  # from the highest level down
    negative = np.bincount(level[~true], minlength=len(levels))[::-1]
    found, false = np.cumsum(positive), np.cumsum(negative)
    outranked = (positive * (len(negatives) - false + negative / 2)).sum()
    return {
        "auc": float(outranked / (len(facts) * len(negatives))),
        "average_precision": float((positive * found / (found + false)).sum() / len(facts)),
    }


def fact_scores(score: Scorer, facts: Facts) -> np.ndarray:
    """Score facts (n, 3): the mean over both questions (n,)."""
    questions, answers = Questions.both(torch.tensor(facts))
    parts = [
        score(questions[start : start + QUESTIONS])
        .gather(1, answers[start : start + QUESTIONS].unsqueeze(1))
        .squeeze(1)
        for start in range(0, len(questions), QUESTIONS)
    ]
    return torch.cat(parts).view(2, -1).mean(0).numpy()
