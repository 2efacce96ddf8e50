"""Answers to a person's question, by label: the tails, heads or relations that complete it best."""

import torch
from torch import Tensor

from puda.calibrate import Calibration
from puda.errors import Diverged, PudaError
from puda.runs import Trained
from puda.scoring.ensemble import Ensemble
from puda.types import Prediction, Questions, Side


def predict(
    trained: Trained,
    *,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    k: int = 10,
    include_known: bool = False,
    calibration: Calibration | None = None,
) -> list[Prediction]:
    """Complete a fact of which two parts are given; the k most plausible, best first.

    Known facts of the whole graph are left out unless `include_known`, and so is the entity asked
    about where the relation links nothing with itself: no country borders itself.
    """
    if k < 1:
        raise PudaError(f"k = {k}: ask for at least one answer")
    given = {"head": head, "relation": relation, "tail": tail}
    missing = [part for part, label in given.items() if label is None]
    if len(missing) != 1:
        raise PudaError("give two of head, relation and tail: the third is predicted")
    graph = trained.graph
    h = None if head is None else graph.entities.find(head)
    r = None if relation is None else graph.relations.find(relation)
    t = None if tail is None else graph.entities.find(tail)
    if h is not None and t is not None:
        each, known = _score_relations(trained, h, t)
        loop = torch.zeros_like(known)
    else:
        side = Side.TAIL if t is None else Side.HEAD
        anchor = h if side is Side.TAIL else t
        assert anchor is not None and r is not None
        question = Questions(*(torch.tensor([value]) for value in (anchor, r, int(side))))
        each = _score_each(trained, question, trained.rows)[:, 0]  # (S, E)
        known, loop = torch.zeros(2, graph.num_entities, dtype=torch.bool)
        known[graph.known("train", "valid", "test").of(anchor, r, side)] = True
        if r not in graph.reflexive:
            loop[anchor] = True

    scores = each.mean(0)
    if not torch.isfinite(scores).all():
        raise Diverged("a score is not finite: this run cannot predict, train it anew")
    left_out = loop if include_known else loop | known
    candidates = (~left_out).nonzero().squeeze(1)
    value, place = scores[candidates].topk(min(k + 1, len(candidates)))  # one more, for the margin
    margin = [*(value[:-1] - value[1:]).tolist(), None]
    place = place[:k]
    found = candidates[place]
    votes = torch.zeros(len(candidates), dtype=torch.long)
    for own in each[:, candidates]:
        votes[own.topk(min(k, len(candidates))).indices] += 1
    facts = torch.stack(
        [found if part is None else torch.full_like(found, part) for part in (h, r, t)], dim=1
    ).numpy()
    probability = [None] * len(found)
    if calibration is not None:
        probability = calibration.probability(trained, facts).tolist()
    entities, relations = graph.entities.labels, graph.relations.labels
    return [
        Prediction(
            head=entities[head_id],
            relation=relations[relation_id],
            tail=entities[tail_id],
            score=value[i].item(),
            rank=i + 1,
            known=bool(known[found[i]]),
            margin=margin[i],
            probability=probability[i],
            agreement=int(votes[place[i]]) if len(each) > 1 else None,
            members=len(each) if len(each) > 1 else None,
        )
        for i, (head_id, relation_id, tail_id) in enumerate(facts.tolist())
    ]


@torch.no_grad()
def _score_each(trained: Trained, questions: Questions, candidates: Tensor) -> Tensor:
    """Score candidates by each member of an ensemble, or by the one model there is: (S, Q, P)."""
    question = trained.model.ask(questions, trained.rows)
    if isinstance(trained.model, Ensemble):
        return trained.model.each(question, candidates)
    return trained.model.match(question, candidates).unsqueeze(0)


def _score_relations(trained: Trained, head: int, tail: int) -> tuple[Tensor, Tensor]:
    """Score all relations between two entities, the mean of both sides' questions (S, R)."""
    relation = torch.arange(trained.graph.num_relations)
    facts = torch.stack(
        [torch.full_like(relation, head), relation, torch.full_like(relation, tail)], dim=1
    )
    questions, answers = Questions.both(facts)
    rows = trained.rows.index_select(0, answers).unsqueeze(1)  # (2R, 1, d)
    each = _score_each(trained, questions, rows)  # (S, 2R, 1)
    index = trained.graph.known("train", "valid", "test")
    known = [tail in index.of(head, int(r), Side.TAIL) for r in relation]
    return each.view(len(each), 2, -1).mean(1), torch.tensor(known)
