"""True negatives join the unlabeled, as many as there are of these."""

import math

import pytest
import torch
from torch import Tensor

from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.sampling.true_negatives import TrueNegativesSampler
from puda.seeds import stream
from puda.types import Batch, Questions

NUMBER = 200
TRAIN = [
    ("aspirin", "treats", "headache"),
    ("aspirin", "treats", "fever"),
    ("insulin", "treats", "diabetes"),
    ("vitamin", "treats", "scurvy"),
]
UNTRUE = [
    ("aspirin", "treats", "diabetes"),
    ("aspirin", "treats", "scurvy"),
    ("aspirin", "treats", "fracture"),
    ("insulin", "treats", "fever"),
]
OTHERS = [("vitamin", "treats", "fracture")]


def score(questions: Questions, ids: Tensor) -> Tensor:
    raise AssertionError("true negatives need no scores")


def graph(**negatives: list[tuple[str, str, str]]) -> KnowledgeGraph:
    # Its entities are the same whatever the negatives are.
    return KnowledgeGraph.from_facts(TRAIN, test=UNTRUE + OTHERS, negatives=negatives, name="drugs")


def draw(sampler: TrueNegativesSampler, within: KnowledgeGraph) -> dict[str, tuple[Tensor, Tensor]]:
    """Return what is drawn for each question, as "aspirin treats" or "treats fever"."""
    questions, answers = Questions.both(torch.tensor(within.train))
    ids, counted = sampler.draw(Batch(questions, answers), score, stream(0, "draws"))
    label = [within.entities.labels[a] for a in questions.anchor.tolist()]
    names = [
        f"treats {x}" if side else f"{x} treats"
        for x, side in zip(label, questions.side.tolist(), strict=True)
    ]
    return dict(zip(names, zip(ids, counted, strict=True), strict=True))


def named(within: KnowledgeGraph, ids: Tensor) -> set[str]:
    return {within.entities.labels[i] for i in ids.tolist()}


def test_there_are_as_many_true_negatives_as_unlabeled_and_they_stand_behind_these():
    within = graph(train=UNTRUE)
    drawn = draw(TrueNegativesSampler(within, NUMBER), within)
    for ids, counted in drawn.values():
        assert ids.shape == counted.shape == (2 * NUMBER,)
    ids, counted = drawn["aspirin treats"]
    assert counted.all()
    everything = set(within.entities.labels)
    assert named(within, ids[:NUMBER]) == everything - {"headache", "fever"}
    assert named(within, ids[NUMBER:]) == {"diabetes", "scurvy", "fracture"}
    ids, counted = drawn["treats fever"]
    assert counted.all()
    assert named(within, ids[NUMBER:]) == {"insulin"}


def test_of_a_question_without_true_negatives_only_the_unlabeled_count():
    within = graph(train=UNTRUE)
    drawn = draw(TrueNegativesSampler(within, NUMBER), within)
    for question in ("vitamin treats", "treats headache"):
        ids, counted = drawn[question]
        assert counted[:NUMBER].all()
        assert not counted[NUMBER:].any()
        assert ids.max() < within.num_entities


def test_true_negatives_are_drawn_uniformly_with_replacement():
    within = graph(train=UNTRUE)
    number = 6000
    ids, _ = draw(TrueNegativesSampler(within, number), within)["aspirin treats"]
    counts = ids[number:].bincount(minlength=within.num_entities)
    shares = counts[counts > 0] / number
    assert shares.tolist() == pytest.approx([1 / 3] * 3, abs=4 * math.sqrt(2 / 9 / number))


def test_a_single_true_negative_is_repeated():
    within = graph(train=UNTRUE)
    ids, counted = draw(TrueNegativesSampler(within, 5), within)["insulin treats"]
    assert named(within, ids[5:]) == {"fever"}
    assert counted.sum() == 10


@pytest.mark.parametrize(
    ("negatives", "split", "expected"),
    [
        ({"train": UNTRUE, "valid": OTHERS}, "", "aspirin treats"),
        ({"valid": OTHERS, "train": UNTRUE}, "", "aspirin treats"),
        ({"valid": OTHERS, "test": UNTRUE}, "", "vitamin treats"),
        ({"train": UNTRUE, "valid": OTHERS}, "valid", "vitamin treats"),
        ({"train": UNTRUE, "test": OTHERS}, "test", "vitamin treats"),
    ],
    ids=["train first", "in any order", "else valid", "valid if asked", "test if asked"],
)
def test_the_negatives_are_those_of_train_then_of_valid_or_of_the_split_asked_for(
    negatives, split, expected
):
    within = graph(**negatives)
    drawn = draw(TrueNegativesSampler(within, 5, split=split), within)
    having = {q for q, (_, counted) in drawn.items() if q.endswith(" treats") and counted[5:].all()}
    assert expected in having
    assert ("vitamin treats" in having) == (expected == "vitamin treats")


@pytest.mark.parametrize(
    ("negatives", "split", "message"),
    [
        ({}, "", "drugs has no true negatives: use"),
        ({"test": UNTRUE}, "", "drugs has no true negatives: use"),  # those are for measuring
        ({"train": UNTRUE}, "valid", "drugs has no true negatives for valid"),
        ({"train": UNTRUE}, "trian", "drugs has no true negatives for trian"),
    ],
)
def test_a_graph_without_such_negatives_is_an_error(negatives, split, message):
    with pytest.raises(ConfigError, match=message):
        TrueNegativesSampler(graph(**negatives), 5, split=split)


def test_a_file_of_negatives_that_is_empty_is_no_trouble():
    within = graph(train=[])
    try:
        drawn = draw(TrueNegativesSampler(within, 5), within)
    except ConfigError:
        return
    assert not any(counted[5:].any() for _, counted in drawn.values())


def test_a_known_answer_that_is_annotated_as_untrue_does_not_count():
    within = graph(train=[*UNTRUE, TRAIN[0]])
    ids, counted = draw(TrueNegativesSampler(within, NUMBER), within)["aspirin treats"]
    assert "headache" not in named(within, ids[counted])


def test_the_weights_of_a_temperature_pass_over_what_does_not_count():
    within = graph(train=UNTRUE)
    sampler = TrueNegativesSampler(within, 2, temperature=1.0)
    unlabeled = torch.tensor([[1.0, 2.0, 9.0, 9.0]]).log()
    weight = sampler.weigh(unlabeled, torch.tensor([[True, True, False, False]]))
    torch.testing.assert_close(weight, torch.tensor([[1 / 3, 2 / 3, 0.0, 0.0]]))


def test_a_shared_pool_holds_the_true_negatives_of_all_questions_and_counts_no_known_answer():
    within = graph(train=UNTRUE)
    sampler = TrueNegativesSampler(within, 2, pool="shared")
    questions, answers = Questions.both(torch.tensor(within.train))
    aspirin = Batch(questions[torch.tensor([0])], answers[:1])
    for seed in range(20):
        ids, counted = sampler.draw(aspirin, score, stream(seed, "draws"))
        assert ids.dim() == 1 and counted is not None and counted.shape == (1, len(ids))
        untrue = named(within, ids) & {"diabetes", "scurvy", "fracture"}
        assert len(untrue) >= 2  # as many as are drawn uniformly, of three
        known = named(within, ids[~counted[0]])
        assert known <= {"headache", "fever"}
