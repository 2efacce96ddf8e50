"""Penalties on tables worked by hand, and at zero."""

import pytest
import torch

from puda.config import ScoringConfig
from puda.regularizers import REGULARIZERS
from puda.scoring import SCORING, build_model
from toy import checkerboard

QUESTION = torch.tensor([[1.0, -2.0], [0.0, 3.0]])
# Squared sizes of three parts: of |1|, |2|, |0|, |3|; of |2|, |0|, |1|, |1|; of |0|, |0|, |4|, |1|.
FACTORS = (
    torch.tensor([[1.0, 4.0], [0.0, 9.0]]),
    torch.tensor([[4.0, 0.0], [1.0, 1.0]]),
    torch.tensor([[0.0, 0.0], [16.0, 1.0]]),
)
WORKED = {
    # cubes: 1 + 8 + 0 + 27, 8 + 0 + 1 + 1, 0 + 0 + 64 + 1; over two facts
    "n3": (36 + 10 + 65) / 2,
    # squares: 1 + 4 + 0 + 9, 4 + 0 + 1 + 1, 0 + 0 + 16 + 1; over two facts
    "l2": (14 + 6 + 17) / 2,
    # squares of the question, 1 + 4 + 0 + 9, and of the answer, 0 + 0 + 16 + 1; over two facts
    "dura": (14 + 17) / 2,
}

every = pytest.mark.parametrize("name", REGULARIZERS)


def test_every_regularizer_has_a_number_worked_by_hand():
    assert set(WORKED) == set(REGULARIZERS)


@every
def test_a_penalty_is_what_the_table_gives_by_hand(name):
    penalty = REGULARIZERS[name](QUESTION, FACTORS)
    assert penalty.shape == ()
    assert penalty.item() == pytest.approx(WORKED[name])


@every
def test_a_batch_that_holds_every_fact_twice_has_the_same_penalty(name):
    twice = REGULARIZERS[name](QUESTION.repeat(2, 1), [f.repeat(2, 1) for f in FACTORS])
    assert twice.item() == pytest.approx(WORKED[name])


@every
def test_a_question_with_several_answers_counts_once_and_each_of_its_facts_once(name):
    # One question (1, -2) with both facts, as grouped batches have it.
    penalty = REGULARIZERS[name](QUESTION[:1], FACTORS)
    expected = WORKED[name] if name != "dura" else (1 + 4) / 1 + 17 / 2
    assert penalty.item() == pytest.approx(expected)


@every
def test_at_zero_the_penalty_and_its_gradient_are_zero(name):
    question, *parts = (torch.zeros(3, 2, requires_grad=True) for _ in range(4))
    penalty = REGULARIZERS[name](question, [part**2 for part in parts])
    assert penalty.item() == 0
    penalty.backward()
    for x in (question, *parts):
        assert x.grad is None or torch.equal(x.grad, torch.zeros_like(x))


@every
def test_the_gradient_shrinks_what_is_there(name):
    answer = torch.tensor([[0.5, -3.0], [0.0, 1.0]], requires_grad=True)
    REGULARIZERS[name](QUESTION, [FACTORS[0], answer**2]).backward()
    assert torch.equal(answer.grad.sign(), answer.detach().sign())


def test_n3_of_a_complex_number_is_the_cube_of_its_modulus():
    # ComplEx packs real parts, then imaginary: 3 + 4i has modulus 5, 5 + 12i has 13.
    model = build_model(ScoringConfig(name="complex", dim=4), checkerboard(4))
    with torch.no_grad():
        model.relations.zero_()
    anchor, answer = torch.tensor([[3.0, 5.0, 4.0, 12.0]]), torch.zeros(1, 4)
    nowhere = torch.zeros(1, dtype=torch.long)
    factors = model.factors(anchor, nowhere, nowhere, answer)
    assert REGULARIZERS["n3"](anchor, factors).item() == pytest.approx(5**3 + 13**3)
    assert REGULARIZERS["l2"](anchor, factors).item() == pytest.approx(5**2 + 13**2)


@pytest.mark.parametrize("scoring", SCORING)
@every
def test_rows_of_zeros_have_finite_gradients_in_every_scoring_function(scoring, name):
    if scoring == "pykeen":
        pytest.importorskip("pykeen")
    options = {"kernel": 3} if scoring == "compgcn" else {}
    config = ScoringConfig(name=scoring, dim=32, options=options)
    model = build_model(config, checkerboard(4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    anchor, answer = (torch.zeros(3, model.row_dim, requires_grad=True) for _ in range(2))
    relation, side = torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0])
    question = model.encode(anchor, relation, side)
    penalty = REGULARIZERS[name](question, model.factors(anchor, relation, side, answer))
    assert penalty.isfinite()
    penalty.backward()
    for x in (anchor, answer, *model.parameters()):
        assert x.grad is None or x.grad.isfinite().all()
