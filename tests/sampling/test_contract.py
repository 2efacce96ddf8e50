"""What every sampler owes: no known answer counts, same stream same draw, and it can resume."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from puda.config import Config, TrainingConfig
from puda.data.graph import KnowledgeGraph
from puda.sampling import SAMPLERS, Sampler, Unlabeled
from puda.seeds import stream
from puda.training.batches import Batches
from puda.training.trainer import resume, train
from puda.types import Batch, Questions
from toy import checkerboard, labels

NUMBER = 6


def annotated() -> KnowledgeGraph:
    """Return a checkerboard on which some likes and dislikes are known to be untrue."""
    graph = checkerboard()
    opposite = {"likes": "dislikes", "dislikes": "likes"}
    untrue = [(h, opposite[r], t) for h, r, t in sorted(labels(graph, "train"))[::3]]
    return KnowledgeGraph.from_facts(
        labels(graph, "train"),
        valid=labels(graph, "valid"),
        test=labels(graph, "test"),
        negatives={"train": untrue},
        name="checkerboard",
    )


GRAPH = annotated()
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    **{name: (name, {}) for name in SAMPLERS},
    "uniform own": ("uniform", {"pool": "own"}),
    "uniform weighed": ("uniform", {"temperature": 0.5}),
    "uniform with anchors": ("uniform", {"anchors": True}),
    "self-adversarial own": ("self-adversarial", {"pool": "own"}),
    "nscaching small": ("nscaching", {"cache": 3, "candidates": 4}),
    "sans walks": ("sans", {"walks": 5, "hops": 3}),
    "sans next": ("sans", {"hops": 1}),
    "sans shared": ("sans", {"pool": "shared"}),
}


every_sampler = pytest.mark.parametrize("variant", VARIANTS)
plain_and_grouped = pytest.mark.parametrize("grouped", [False, True], ids=["plain", "grouped"])


def build(variant: str, graph: KnowledgeGraph = GRAPH, number: int = NUMBER) -> Sampler:
    name, options = VARIANTS[variant]
    return SAMPLERS[name](graph, number, **options)


def score(questions: Questions, ids: Tensor) -> Tensor:
    """Score as a model would, by any fixed rule."""
    return torch.sin(ids * 1.7 + questions.anchor.unsqueeze(1) * 0.9) * 2


def batches(grouped: bool, *, size: int = 20) -> Iterator[Batch]:
    settings = TrainingConfig(grouped=grouped, batch_size=size)
    for epoch in range(1000):
        yield from Batches(GRAPH, settings).of_epoch(stream(0, "order", epoch))


def own_ids(batch: Batch, drawn: Unlabeled) -> Tensor:
    """Lay a shared pool (P,) beside each question: (Q, P)."""
    ids = drawn.ids
    return ids if ids.dim() == 2 else ids.expand(len(batch.questions), -1)


def step(sampler: Sampler, batch: Batch, epoch: int) -> Unlabeled:
    """Draw, and tell the sampler how it was scored."""
    drawn = sampler.draw(batch, score, stream(0, "draws", epoch))
    sampler.observe(score(batch.questions, own_ids(batch, drawn)))
    return drawn


def same(one: Unlabeled, other: Unlabeled) -> bool:
    if (one.counted is None) != (other.counted is None):
        return False
    counted = one.counted is None or torch.equal(one.counted, other.counted)
    return torch.equal(one.ids, other.ids) and counted


def known_answers(graph: KnowledgeGraph, questions: Questions) -> list[set[int]]:
    asked = zip(
        *(x.tolist() for x in (questions.anchor, questions.relation, questions.side)), strict=True
    )
    facts = graph.train.tolist()
    return [
        {t for h, r, t in facts if (h, r) == (a, relation)}
        if side == 0
        else {h for h, r, t in facts if (t, r) == (a, relation)}
        for a, relation, side in asked
    ]


@plain_and_grouped
@every_sampler
def test_what_is_drawn_is_in_range_and_of_one_shape_with_what_counts(variant, grouped):
    sampler = build(variant)
    for epoch, batch in enumerate(islice(batches(grouped), 5)):
        drawn = step(sampler, batch, epoch)
        assert drawn.ids.dtype == torch.int64
        assert drawn.ids.dim() in (1, 2)
        shape = own_ids(batch, drawn).shape
        assert shape[0] == len(batch.questions)
        room = 2 * NUMBER + ("anchors" in variant) * len(batch.questions)
        assert 0 < shape[1] <= room
        assert drawn.ids.min() >= 0
        assert drawn.ids.max() < GRAPH.num_entities
        if drawn.counted is not None:
            assert drawn.counted.dtype == torch.bool
            assert drawn.counted.shape == shape


@plain_and_grouped
@every_sampler
def test_no_known_answer_counts(variant, grouped):
    sampler, seen = build(variant), 0
    for epoch, batch in enumerate(islice(batches(grouped), 40)):
        drawn = step(sampler, batch, epoch)
        counted = torch.ones(own_ids(batch, drawn).shape, dtype=torch.bool)
        if drawn.counted is not None:
            counted = drawn.counted
        rows = zip(
            own_ids(batch, drawn), counted, known_answers(GRAPH, batch.questions), strict=True
        )
        for ids, counts, known in rows:
            assert not known & set(ids[counts].tolist())
            seen += int(counts.sum())
    assert seen > 1000


@plain_and_grouped
@every_sampler
def test_the_same_stream_gives_the_same_draws_and_another_does_not(variant, grouped):
    one, again, other = (build(variant, number=12) for _ in range(3))
    differ = False
    for epoch, batch in enumerate(islice(batches(grouped), 5)):
        drawn = step(one, batch, epoch)
        assert same(drawn, step(again, batch, epoch))
        differ |= not same(drawn, step(other, batch, epoch + 1000))
    assert differ


@every_sampler
def test_the_global_random_state_plays_no_part(variant):
    batch = next(batches(False))
    drawn = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.random.get_rng_state()
        drawn.append(step(build(variant), batch, 0))
        assert torch.equal(torch.random.get_rng_state(), before)
    assert same(*drawn)


@every_sampler
def test_a_batch_is_not_changed_by_a_draw(variant):
    batch = next(batches(True))
    questions, answers, owner = batch[:3]
    parts = [questions.anchor, questions.relation, questions.side, answers, owner]
    before = [part.clone() for part in parts]
    step(build(variant), batch, 0)
    assert all(torch.equal(x, y) for x, y in zip(parts, before, strict=True))


@pytest.mark.parametrize("steps", [0, 4])
@every_sampler
def test_a_restored_sampler_goes_on_as_the_one_that_was_kept(variant, steps, tmp_path):
    source = batches(False)
    kept = build(variant)
    for epoch, batch in enumerate(islice(source, steps)):
        step(kept, batch, epoch)
    state = kept.state()
    if state:  # as a run folder keeps it
        save_file({k: v.contiguous() for k, v in state.items()}, tmp_path / "state")
        state = load_file(tmp_path / "state")
    restored = build(variant)
    if steps:  # else the state would not matter
        assert all(not torch.equal(state[k], v) for k, v in restored.state().items())
    restored.restore(state)
    for epoch, batch in enumerate(islice(source, 8), start=100):
        assert same(step(restored, batch, epoch), step(kept, batch, epoch))
    for name, tensor in kept.state().items():
        assert torch.equal(tensor, restored.state()[name]), name


@every_sampler
def test_weights_are_parts_of_one_over_what_counts(variant):
    sampler, batch = build(variant), next(batches(False))
    drawn = step(sampler, batch, 0)
    scores = score(batch.questions, own_ids(batch, drawn))
    weight = sampler.weigh(scores, drawn.counted)
    if not sampler.temperature:
        assert weight is None
        return
    assert weight.shape == scores.shape
    assert torch.allclose(weight.sum(1), torch.ones(len(scores)))
    assert (weight > 0).equal(
        torch.ones_like(weight).bool() if drawn.counted is None else drawn.counted
    )


@every_sampler
def test_asked_for_none_it_draws_none(variant):
    batch = next(batches(False))
    drawn = build(variant, number=0).draw(batch, score, stream(0, "draws"))
    assert own_ids(batch, drawn).shape == (len(batch.questions), 0)
    assert drawn.counted is None or drawn.counted.shape == (len(batch.questions), 0)


@pytest.mark.parametrize(
    "variant",
    [pytest.param(v) for v in VARIANTS],
)
def test_told_of_none_it_stays_finite(variant):
    sampler = build(variant, number=0)
    for epoch, batch in enumerate(islice(batches(False), 2)):
        step(sampler, batch, epoch)
    assert all(tensor.isfinite().all() for tensor in sampler.state().values())


def saturated() -> KnowledgeGraph:
    """Return a graph of a question that every entity answers: whom `a` knows."""
    facts = [("a", "knows", x) for x in "abc"] + [("b", "knows", "c")]
    return KnowledgeGraph.from_facts(facts, negatives={"train": [("b", "knows", "a")]})


@every_sampler
def test_a_question_that_every_entity_answers_counts_none(variant):
    graph = saturated()
    questions, answers = Questions.both(torch.tensor(graph.train))
    batch = Batch(questions, answers)
    drawn = build(variant, graph).draw(batch, score, stream(0, "draws"))
    counted = torch.ones(own_ids(batch, drawn).shape, dtype=torch.bool)
    if drawn.counted is not None:
        counted = drawn.counted
    for ids, counts, known in zip(
        own_ids(batch, drawn), counted, known_answers(graph, questions), strict=True
    ):
        assert not known & set(ids[counts].tolist())


@every_sampler
def test_a_run_that_was_interrupted_resumes_to_the_bits_of_one_that_was_not(variant, tmp_path):
    name, options = VARIANTS[variant]
    config = Config.of(
        {
            "scoring": {"name": "distmult", "dim": 8},
            "objective": {"name": "puda", "options": {"ordering": "pairwise"}},
            "sampler": {"name": name, "num_unlabeled": 4, "options": options},
            "generator": {"num_synthetic": 0},
            "training": {"epochs": 4, "validate_every": 1, "patience": 0, "threads": 1},
        }
    )

    def stop(event: Mapping[str, Any]) -> None:
        if event["event"] == "validation" and event["epoch"] == 3:
            raise KeyboardInterrupt

    whole = train(GRAPH, config, tmp_path / "whole")
    halted = train(GRAPH, config, tmp_path / "halted", listener=stop)
    assert [e["reason"] for e in halted.trace() if e["event"] == "stop"] == ["interrupted"]
    resume(halted.path)
    weights = [(run.path / "model.safetensors").read_bytes() for run in (whole, halted)]
    assert weights[0] == weights[1]
