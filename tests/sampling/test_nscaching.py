"""NSCaching: caches fill with what the model takes for answers, and draws come from them."""

import math

import pytest
import torch
from torch import Tensor

from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.sampling.nscaching import NSCachingSampler
from puda.seeds import stream
from puda.training.trainer import train
from puda.types import Batch, Questions
from toy import checkerboard

GRAPH = checkerboard()
HARD = {1, 6, 10, 15}


def score(questions: Questions, ids: Tensor) -> Tensor:
    """Score the hard entities far above the others."""
    return torch.isin(ids, torch.tensor(sorted(HARD))) * 50.0


def indifferent(questions: Questions, ids: Tensor) -> Tensor:
    return torch.zeros(ids.shape)


def whole_batch(graph: KnowledgeGraph = GRAPH) -> Batch:
    return Batch(*Questions.both(torch.tensor(graph.train)))


def as_tuples(questions: Questions) -> list[tuple[int, int, int]]:
    parts = (questions.anchor, questions.relation, questions.side)
    return list(zip(*(part.tolist() for part in parts), strict=True))


def key(sampler: NSCachingSampler, place: int) -> tuple[int, int, int]:
    """Return the question (anchor, relation, side) of a row of the cache."""
    kind, anchor = divmod(int(sampler.known.keys[place]), sampler.num_entities)
    side, relation = divmod(kind, sampler.known.num_relations)
    return anchor, relation, side


def test_caches_fill_with_the_hard_entities_that_are_no_known_answers():
    sampler = NSCachingSampler(GRAPH, 4, cache=8, candidates=8)
    easy = [set(row.tolist()) - HARD for row in sampler.cache]
    assert all(easy)  # at first they hold what chance gives
    for epoch in range(30):
        sampler.draw(whole_batch(), score, stream(0, "draws", epoch))
    for place, row in enumerate(sampler.cache.tolist()):
        assert set(row) <= HARD - set(sampler.known.of(*key(sampler, place)).tolist())


def test_known_answers_never_enter_however_hard_they_look():
    def answers_look_best(questions: Questions, ids: Tensor) -> Tensor:
        known, rows = GRAPH.known("train"), zip(as_tuples(questions), ids.tolist(), strict=True)
        return torch.tensor([[100.0 * (i in known.of(*asked)) for i in row] for asked, row in rows])

    sampler = NSCachingSampler(GRAPH, 4, cache=8, candidates=8)
    for epoch in range(10):
        for place, row in enumerate(sampler.cache.tolist()):
            assert not set(row) & set(sampler.known.of(*key(sampler, place)).tolist())
        sampler.draw(whole_batch(), answers_look_best, stream(0, "draws", epoch))


def test_there_is_a_cache_for_every_question_of_train_in_both_directions():
    sampler = NSCachingSampler(GRAPH, 4, cache=5)
    assert sampler.cache.shape == (len(GRAPH.known("train").keys), 5)
    asked = {key(sampler, place) for place in range(len(sampler.cache))}
    facts = GRAPH.train.tolist()
    assert asked == {(h, r, 0) for h, r, _ in facts} | {(t, r, 1) for _, r, t in facts}


def test_draws_are_uniform_over_the_cache_as_it_was_before_it_is_renewed():
    sampler = NSCachingSampler(GRAPH, 3000, cache=6, candidates=20)
    batch = whole_batch()
    before = sampler.cache.clone()
    drawn = sampler.draw(batch, score, stream(0, "draws"))
    assert drawn.counted is None
    assert not torch.equal(sampler.cache, before)
    keys = sampler.keys(batch.questions).tolist()
    for asked, ids in zip(keys, drawn.ids, strict=True):
        slots = before[sampler.known.keys.tolist().index(asked)]
        for entity in range(GRAPH.num_entities):
            share = (slots == entity).double().mean().item()
            error = math.sqrt(share * (1 - share) / 3000)
            assert (ids == entity).double().mean().item() == pytest.approx(share, abs=5 * error)


def test_only_the_caches_of_the_batch_are_renewed():
    sampler = NSCachingSampler(GRAPH, 4, cache=6, candidates=20)
    batch = whole_batch()
    few = Batch(batch.questions[:5], batch.answers[:5])
    before = sampler.cache.clone()
    sampler.draw(few, score, stream(0, "draws"))
    renewed = (sampler.cache != before).any(1).nonzero().squeeze(1).tolist()
    asked = set(sampler.keys(few.questions).tolist())
    assert {int(sampler.known.keys[place]) for place in renewed} == asked


def test_a_question_that_occurs_twice_in_a_batch_is_renewed_once():
    asked = []

    def listening(questions: Questions, ids: Tensor) -> Tensor:
        asked.extend(as_tuples(questions))
        return score(questions, ids)

    batch = whole_batch()
    distinct = set(as_tuples(batch.questions))
    assert len(distinct) < len(batch.questions)
    NSCachingSampler(GRAPH, 4).draw(batch, listening, stream(0, "draws"))
    assert sorted(asked) == sorted(distinct)


def test_the_model_is_asked_about_the_cached_and_the_fresh_candidates_of_each_question():
    sampler = NSCachingSampler(GRAPH, 4, cache=3, candidates=5)
    before = sampler.cache.clone()
    seen = {}

    def listening(questions: Questions, ids: Tensor) -> Tensor:
        seen.update(zip(sampler.keys(questions).tolist(), ids, strict=True))
        return score(questions, ids)

    sampler.draw(whole_batch(), listening, stream(0, "draws"))
    for place, number in enumerate(sampler.known.keys.tolist()):
        assert len(seen[number]) == 3 + 5
        assert torch.equal(seen[number][:3], before[place])
        known = sampler.known.of(*key(sampler, place)).tolist()
        assert not set(seen[number].tolist()) & set(known)
        # What is kept is of what was offered, no slot twice.
        kept, offered = (
            sampler.cache[place].bincount(minlength=16),
            seen[number].bincount(minlength=16),
        )
        assert (kept <= offered).all()


def test_what_is_kept_is_drawn_by_softmax_of_the_scores():
    # A star: many questions, each with a cache of one slot and one fresh candidate. Entity 0 is
    # cached everywhere and scores ln 3 above all others, so it is kept in 3 of 4 cases.
    graph = KnowledgeGraph.from_facts([(f"leaf {i:03d}", "of", "star") for i in range(800)])
    sampler = NSCachingSampler(graph, 1, cache=1, candidates=1)
    tails = Batch(*(part[:800] for part in whole_batch(graph)[:2]))
    fresh = {}

    def threefold(questions: Questions, ids: Tensor) -> Tensor:
        fresh.update(zip(sampler.keys(questions).tolist(), ids[:, 1].tolist(), strict=True))
        return (ids == 0) * math.log(3)

    kept = others = 0
    for epoch in range(3):
        sampler.cache[:] = 0
        sampler.draw(tails, threefold, stream(0, "draws", epoch))
        for number, row in zip(sampler.known.keys.tolist(), sampler.cache.tolist(), strict=True):
            if fresh.get(number, 0) != 0:  # asked, and offered another
                kept += row == [0]
                others += 1
    assert others > 2000
    assert kept / others == pytest.approx(3 / 4, abs=4 * math.sqrt(3 / 16 / others))


def test_an_indifferent_model_keeps_the_caches_moving():
    sampler = NSCachingSampler(GRAPH, 1, cache=2, candidates=2)
    seen = [set(row.tolist()) for row in sampler.cache]
    for epoch in range(80):
        sampler.draw(whole_batch(), indifferent, stream(0, "draws", epoch))
        for row, entities in zip(sampler.cache.tolist(), seen, strict=True):
            entities |= set(row)
    for place, entities in enumerate(seen):
        known = set(sampler.known.of(*key(sampler, place)).tolist())
        assert entities == set(range(GRAPH.num_entities)) - known


def test_a_batch_of_one_question_many_times_can_be_scored_by_a_model_that_normalises(tmp_path):
    graph = KnowledgeGraph.from_facts([("hub", "to", f"leaf {i:02d}") for i in range(12)])
    settings = ["scoring.name=conve", "scoring.dim=32", "sampler.name=nscaching"]
    settings += ["objective.name=puda", "training.batch_size=2", "training.epochs=1"]
    train(graph, Config().with_settings(settings), tmp_path / "run")
