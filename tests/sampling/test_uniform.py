"""Uniform draws are uniform over what completes no known fact, however they are pooled."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from torch import Tensor

from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.objectives import OBJECTIVES
from puda.sampling import SAMPLERS
from puda.sampling.base import Sampler
from puda.sampling.uniform import SelfAdversarialSampler, UniformSampler
from puda.seeds import stream
from puda.training.trainer import build_learner, train
from puda.types import Batch, Questions, Scores
from toy import checkerboard, family_tree

GRAPH = checkerboard()


def score(questions: Questions, ids: Tensor) -> Tensor:
    raise AssertionError("a uniform draw has no use for scores")


def all_questions(graph: KnowledgeGraph) -> Batch:
    """Ask every question of train once for each of its answers."""
    return Batch(*Questions.both(torch.tensor(graph.train)))


def answers_by_loop(graph: KnowledgeGraph, questions: Questions) -> list[set[int]]:
    found = []
    for anchor, relation, side in zip(
        questions.anchor.tolist(), questions.relation.tolist(), questions.side.tolist(), strict=True
    ):
        ends = [
            (h, t) if side == 0 else (t, h) for h, r, t in graph.train.tolist() if r == relation
        ]
        found.append({answer for asked, answer in ends if asked == anchor})
    return found


def complements(graph: KnowledgeGraph, questions: Questions) -> list[list[int]]:
    return [
        [e for e in range(graph.num_entities) if e not in answers]
        for answers in answers_by_loop(graph, questions)
    ]


# --- own pool


@pytest.mark.parametrize("name", ["uniform", "self-adversarial"])
def test_own_draws_are_uniform_over_the_complement_and_reach_all_of_it(name):
    number = 4000
    batch = all_questions(GRAPH)
    batch = Batch(batch.questions[::7], batch.answers[::7])
    sampler = SAMPLERS[name](GRAPH, number, pool="own")
    drawn = sampler.draw(batch, score, stream(0, "draws"))
    assert drawn.counted is None
    statistic, freedom = 0.0, 0
    for ids, others in zip(drawn.ids, complements(GRAPH, batch.questions), strict=True):
        counts = np.bincount(ids.numpy(), minlength=GRAPH.num_entities)
        assert set(np.flatnonzero(counts).tolist()) == set(others)
        expected = number / len(others)
        statistic += float(((counts[others] - expected) ** 2 / expected).sum())
        freedom += len(others) - 1
    # Neither too far from uniform nor too close to it to be random.
    assert 0.001 < chi2.sf(statistic, freedom) < 0.999


def test_own_draws_of_two_questions_are_independent():
    batch = all_questions(GRAPH)
    twice = Batch(batch.questions[torch.tensor([0, 0])], batch.answers[[0, 0]])
    first, second = UniformSampler(GRAPH, 2000, pool="own").draw(twice, score, stream(0, "d")).ids
    size = len(complements(GRAPH, twice.questions)[0])
    agree = (first == second).double().mean().item()
    assert agree == pytest.approx(1 / size, abs=4 * math.sqrt(1 / size / 2000))


@st.composite
def graphs(draw: st.DrawFn) -> KnowledgeGraph:
    """Graphs of few entities, so that questions with many answers occur."""
    size = draw(st.integers(2, 7))
    entity, relation = st.integers(0, size - 1), st.integers(0, 1)
    facts = draw(st.lists(st.tuples(entity, relation, entity), min_size=1, max_size=20))
    everyone = [("e0", "also", f"e{i}") for i in range(size)]
    return KnowledgeGraph.from_facts(
        [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in facts], test=everyone
    )


@settings(max_examples=50)
@given(graphs())
def test_outside_draws_whatever_a_loop_finds_outside(graph):
    batch = all_questions(graph)
    sampler = Sampler(graph, 0)
    drawn = sampler.outside(sampler.keys(batch.questions), 200, stream(0, "draws"))
    for ids, others in zip(drawn.tolist(), complements(graph, batch.questions), strict=True):
        if others:  # 200 draws miss one of at most 7 once in 10^13 times
            assert set(ids) == set(others)


@settings(max_examples=50)
@given(graphs(), st.integers(0, 2**32))
def test_mark_finds_the_known_answers_that_a_loop_finds(graph, seed):
    batch = all_questions(graph)
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(graph.num_entities, (len(batch.questions), 5), generator=random)
    sampler = Sampler(graph, 0)
    assert sampler.mark(sampler.keys(batch.questions), ids).tolist() == [
        [i not in answers for i in row]
        for row, answers in zip(ids.tolist(), answers_by_loop(graph, batch.questions), strict=True)
    ]


# --- shared pool


@pytest.mark.parametrize("number", [3, 6, 200])  # of 30 entities: some of a draw, a part, all
def test_in_a_shared_pool_exactly_the_known_answers_do_not_count(number):
    graph = family_tree()
    batch = all_questions(graph)
    sampler = UniformSampler(graph, number)
    left_out = 0
    for epoch in range(20):
        ids, counted = sampler.draw(batch, score, stream(0, "draws", epoch))
        assert ids.dim() == 1
        assert len(set(ids.tolist())) == len(ids) <= number
        assert counted.tolist() == [
            [i not in answers for i in ids.tolist()]
            for answers in answers_by_loop(graph, batch.questions)
        ]
        left_out += int((~counted).sum())
    assert left_out > 0


@pytest.mark.parametrize("build", [UniformSampler, SelfAdversarialSampler])
def test_with_anchors_the_pool_holds_those_of_the_batch_once_and_known_ones_do_not_count(build):
    graph = family_tree()
    batch = Batch(all_questions(graph).questions[10:60], torch.zeros(50, dtype=torch.long))
    plain = build(graph, 3).draw(batch, score, stream(0, "draws")).ids
    ids, counted = build(graph, 3, anchors=True).draw(batch, score, stream(0, "draws"))
    assert sorted(ids.tolist()) == sorted({*plain.tolist(), *batch.questions.anchor.tolist()})
    assert counted.tolist() == [
        [i not in answers for i in ids.tolist()]
        for answers in answers_by_loop(graph, batch.questions)
    ]


def test_anchors_need_a_pool_that_is_shared():
    with pytest.raises(ConfigError, match='pool="shared"'):
        UniformSampler(GRAPH, 3, "own", anchors=True)


def test_a_pool_as_large_as_the_graph_holds_every_entity_once():
    pool = UniformSampler(GRAPH, 10_000)
    ids = pool.draw(all_questions(GRAPH), score, stream(0, "draws")).ids
    assert sorted(ids.tolist()) == list(range(GRAPH.num_entities))


@pytest.mark.parametrize("number", [2, 6])  # of 16 entities: drawn one by one, or as a part
def test_a_shared_pool_holds_every_entity_equally_often(number):
    batch, sampler = (
        Batch(all_questions(GRAPH).questions[:1], torch.tensor([0])),
        UniformSampler(GRAPH, number),
    )
    counts, draws = np.zeros(GRAPH.num_entities), 4000
    random = stream(0, "draws")
    for _ in range(draws):
        counts[sampler.draw(batch, score, random).ids.numpy()] += 1
    share = counts.sum() / draws / GRAPH.num_entities
    error = math.sqrt(share * (1 - share) * draws)
    assert np.abs(counts - share * draws).max() < 4 * error
    # `number` at most, a few fewer where they were drawn one by one
    assert 0.9 * number < counts.sum() / draws <= number


def test_unmasked_only_the_answer_itself_does_not_count():
    batch = all_questions(GRAPH)
    ids, counted = UniformSampler(GRAPH, 16, masked=False).draw(batch, score, stream(0, "draws"))
    assert counted.tolist() == [
        [i != answer for i in ids.tolist()] for answer in batch.answers.tolist()
    ]
    known = answers_by_loop(GRAPH, batch.questions)
    assert any(len(answers) > 1 for answers in known)  # others of them count


def test_unmasked_all_answers_of_a_grouped_question_do_not_count():
    questions = all_questions(GRAPH).questions[:3]
    known = answers_by_loop(GRAPH, questions)
    answers = torch.tensor([a for row in known for a in sorted(row)])
    owner = torch.repeat_interleave(torch.arange(3), torch.tensor([len(row) for row in known]))
    batch = Batch(questions, answers, owner)
    ids, counted = UniformSampler(GRAPH, 16, masked=False).draw(batch, score, stream(0, "draws"))
    assert counted.tolist() == [[i not in row for i in ids.tolist()] for row in known]


def test_a_pool_that_is_neither_shared_nor_own_is_an_error():
    config = Config().with_settings(["sampler.options.pool=common"])
    with pytest.raises(ConfigError, match="pool = 'common'"):
        build_learner(GRAPH, config)


# --- the same risk


@pytest.mark.parametrize("ordering", ["pointwise", "pairwise"])
@pytest.mark.parametrize(
    ("pool", "number"), [("own", 4), ("shared", 5), ("shared", 12), ("shared", 30)]
)
def test_own_and_shared_pools_estimate_the_same_risk(pool, number, ordering):
    graph = family_tree()
    batch = all_questions(graph)
    rows = torch.randperm(len(batch.questions), generator=torch.Generator().manual_seed(5))[:12]
    batch = Batch(batch.questions[rows], batch.answers[rows])
    random = torch.Generator().manual_seed(1)
    table = 2 * torch.randn(len(rows), graph.num_entities, generator=random)  # fixed scores
    positive = table.gather(1, batch.answers.unsqueeze(1)).squeeze(1)

    def risk(unlabeled: Tensor, counted: Tensor | None) -> float:
        scores = Scores(positive, unlabeled, table[:, :0], counted)
        return OBJECTIVES["pu-r"](scores, prior=0.0, ordering=ordering).total.item()

    outside = [torch.tensor(others) for others in complements(graph, batch.questions)]
    counted = torch.zeros(table.shape, dtype=torch.bool)
    for row, others in enumerate(outside):
        counted[row, others] = True
    exact = risk(table, counted)  # the mean over the whole complement of each question

    sampler, draws = UniformSampler(graph, number, pool=pool), stream(0, "draws")
    risks = []
    for _ in range(1500):
        ids, counted = sampler.draw(batch, score, draws)
        risks.append(risk(table.gather(1, ids) if pool == "own" else table[:, ids], counted))
    error = np.std(risks) / math.sqrt(len(risks))
    assert abs(np.mean(risks) - exact) <= 4 * error + 1e-6
    if number < graph.num_entities:
        assert error < 0.02 * exact  # fine enough to see a pool that is off by a tenth
        unmasked = risk(table, None)
        assert abs(unmasked - exact) > 4 * error  # and one in which known answers count


# --- self-adversarial weights


def test_self_adversarial_weights_are_a_softmax_by_hand():
    sampler = SelfAdversarialSampler(GRAPH, 3, temperature=0.5)
    # exp(0.5 * 2 ln a) = a: parts of 1 + 2 + 5 = 8, and of 3 + 4 = 7 where the last does not count
    unlabeled = 2 * torch.tensor([[1.0, 2.0, 5.0], [3.0, 4.0, 9.0]]).log()
    counted = torch.tensor([[True, True, True], [True, True, False]])
    weight = sampler.weigh(unlabeled, counted)
    expected = torch.tensor([[1 / 8, 2 / 8, 5 / 8], [3 / 7, 4 / 7, 0.0]])
    torch.testing.assert_close(weight, expected)


def test_self_adversarial_weights_are_constants():
    unlabeled = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert not SelfAdversarialSampler(GRAPH, 3).weigh(unlabeled, None).requires_grad


def test_a_question_of_which_nothing_counts_weighs_nothing():
    counted = torch.tensor([[False, False], [True, False]])
    weight = SelfAdversarialSampler(GRAPH, 2).weigh(torch.tensor([[9.0, 1.0], [0.0, 5.0]]), counted)
    assert weight.tolist() == [[0, 0], [1, 0]]


@pytest.mark.parametrize("size", [1e9, -1e9])
def test_weights_of_huge_scores_still_sum_to_one(size):
    unlabeled = torch.tensor([[size, size, 0.0]])
    weight = SelfAdversarialSampler(GRAPH, 3).weigh(unlabeled, None)
    assert weight.sum().item() == pytest.approx(1)
    assert weight.tolist() == [[0.5, 0.5, 0.0] if size > 0 else [0.0, 0.0, 1.0]]


def test_at_temperature_zero_all_parts_are_equal():
    assert UniformSampler(GRAPH, 3).weigh(torch.randn(2, 3), None) is None
    assert SelfAdversarialSampler(GRAPH, 3, temperature=0.0).weigh(torch.randn(2, 3), None) is None


def test_a_hotter_sampler_looks_harder_at_the_hardest():
    unlabeled = torch.tensor([[0.0, 1.0, 2.0]])
    shares = [
        SelfAdversarialSampler(GRAPH, 3, temperature=t).weigh(unlabeled, None)[0, 2].item()
        for t in (0.1, 1.0, 10.0)
    ]
    assert 1 / 3 < shares[0] < shares[1] < shares[2] < 1


@pytest.mark.parametrize("objective", ["softmax", "puda"])
def test_weights_under_a_listwise_risk_are_refused_before_the_folder_is_made(objective, tmp_path):
    settings = ["sampler.name=self-adversarial", f"objective.name={objective}"]
    if objective == "puda":
        settings.append("objective.options.ordering=listwise")
    with pytest.raises(ConfigError, match="listwise"):
        train(GRAPH, Config().with_settings(settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()
