"""Where facts stand: against loops over all entities."""

import numpy as np
import pytest
import torch

from puda import places as stands
from puda.places import fact_scores, places
from puda.runs import Trained
from puda.types import Questions, Side


def test_a_facts_score_is_the_mean_of_its_two_questions(trained_clubs):
    trained = trained_clubs
    fact = trained.graph.test[0]
    (tail, _), (head, _) = (Questions.of(torch.tensor(fact[None]), side) for side in Side)
    expected = (trained.score(tail)[0, fact[2]] + trained.score(head)[0, fact[0]]) / 2
    assert fact_scores(trained, fact[None])[0] == pytest.approx(expected.item(), rel=1e-5)
    assert len(fact_scores(trained, trained.graph.test[:0])) == 0
    whole = fact_scores(trained, trained.graph.test)
    assert fact_scores(trained, trained.graph.test, block=7) == pytest.approx(whole, rel=1e-5)


def places_by_loop(trained: Trained, fact: tuple[int, int, int], known: set) -> list[float]:
    head, relation, tail = fact
    found = []
    for side in Side:
        anchor, answer = (head, tail) if side is Side.TAIL else (tail, head)
        question = Questions(*(torch.tensor([x]) for x in (anchor, relation, int(side))))
        scores = trained.score(question)[0]
        near = {f[2 if side is Side.TAIL else 0] for f in known if f[1] == relation} - {answer}
        ends = {(anchor, e) if side is Side.TAIL else (e, anchor): e for e in near}
        rivals = [e for (h, t), e in ends.items() if (h, relation, t) not in known]
        above = sum(float(scores[e] > scores[answer]) for e in rivals)
        found.append(1 + above + sum(float(scores[e] == scores[answer]) for e in rivals) / 2)
    return found


@pytest.mark.parametrize("tile", [50, 8_000_000])
def test_a_place_is_the_rank_among_entities_that_answer_such_questions(
    trained_clubs, tile, monkeypatch
):
    trained = trained_clubs
    monkeypatch.setattr(stands, "TILE", tile)
    graph = trained.graph
    known = {tuple(fact) for fact in graph.train.tolist()}
    # Held-out facts, known ones, and pairs of entities that never stand where they do here.
    odd = np.array([(5, 0, 2), (2, 1, 5), (7, 1, 7)])
    facts = np.concatenate([graph.test[::9], graph.train[::40], odd])
    expected = [places_by_loop(trained, tuple(fact), known) for fact in facts.tolist()]
    found = places(trained, facts, graph.known("train"))
    np.testing.assert_allclose(found, expected)
