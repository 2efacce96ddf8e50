"""The generator of synthetic entities (Eq. 12)."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from puda.generator import Generator
from puda.seeds import stream


@given(dim=st.integers(1, 70), count=st.integers(0, 9))
def test_it_invents_rows_of_the_size_of_an_entity(dim, count):
    rows = Generator(dim)(count, stream(0, "noise"))
    assert rows.shape == (count, dim)


@given(dim=st.integers(1, 70), noise_std=st.floats(1e-3, 1e3))
def test_every_number_lies_in_the_range_of_tanh(dim, noise_std):
    rows = Generator(dim, noise_std=noise_std)(20, stream(1, "noise"))
    assert torch.isfinite(rows).all()
    assert rows.abs().max() <= 1


@pytest.mark.parametrize(("dim", "hidden"), [(256, 32), (64, 8), (20, 2), (8, 1), (7, 1), (1, 1)])
def test_the_hidden_layer_has_an_eighth_of_the_entity_size_and_at_least_one(dim, hidden):
    shapes = sorted(tuple(p.shape) for p in Generator(dim).parameters() if p.dim() == 2)
    assert shapes == sorted([(hidden, dim), (dim, hidden)])


def test_eq_12_holds_on_weights_small_enough_to_do_by_hand():
    # d = 2, hidden size 1. W1 = (1, -2), b1 = 0.5, W2 = (3, -1)^T, b2 = (0.1, 0.2).
    # z = (2, 1):  W1 z + b1 = 2 - 2 + 0.5 = 0.5,  relu 0.5,  W2 0.5 + b2 = (1.6, -0.3).
    # z = (0, 1):  W1 z + b1 = -2 + 0.5 = -1.5,    relu 0,    b2 = (0.1, 0.2).
    generator = Generator(2, noise_std=1.0, dropout=0.0)
    first, second = (m for m in generator.modules() if isinstance(m, torch.nn.Linear))
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, -2.0]]))
        first.bias.copy_(torch.tensor([0.5]))
        second.weight.copy_(torch.tensor([[3.0], [-1.0]]))
        second.bias.copy_(torch.tensor([0.1, 0.2]))
    rows = generator.layers(torch.tensor([[2.0, 1.0], [0.0, 1.0]]))
    by_hand = [[math.tanh(1.6), math.tanh(-0.3)], [math.tanh(0.1), math.tanh(0.2)]]
    assert torch.allclose(rows, torch.tensor(by_hand), atol=1e-6)


def test_the_rows_are_eq_12_of_normal_noise_of_the_stated_standard_deviation():
    torch.manual_seed(0)
    generator = Generator(16, noise_std=0.3, dropout=0.0)
    rows = generator(5, stream(4, "noise"))
    noise = 0.3 * torch.randn(5, 16, generator=stream(4, "noise"))
    first, second = (m for m in generator.modules() if isinstance(m, torch.nn.Linear))
    hidden = torch.relu(noise @ first.weight.T + first.bias)
    expected = torch.tanh(hidden @ second.weight.T + second.bias)
    assert torch.allclose(rows, expected, atol=1e-6)


def test_the_authors_generator_has_smaller_noise_and_a_leaky_relu():
    # d = 2, noise and hidden size 1. W1 = 1, b1 = 0, W2 = (1, -1)^T, b2 = 0, z = -2: the hidden
    # value is 0.01 * -2 = -0.02, so G = (tanh -0.02, tanh 0.02). For z = 3 it is 3.
    generator = Generator(2, noise_dim=1, activation="leaky", dropout=0.0)
    first, second = (m for m in generator.modules() if isinstance(m, torch.nn.Linear))
    with torch.no_grad():
        first.weight.fill_(1.0)
        second.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        for layer in (first, second):
            layer.bias.zero_()
    rows = generator.layers(torch.tensor([[-2.0], [3.0]]))
    by_hand = [[math.tanh(-0.02), math.tanh(0.02)], [math.tanh(3), math.tanh(-3)]]
    assert torch.allclose(rows, torch.tensor(by_hand), atol=1e-6)
    assert generator(5, stream(0, "noise")).shape == (5, 2)


def test_the_noise_comes_from_the_stream_alone():
    torch.manual_seed(0)
    generator = Generator(16, dropout=0.0)
    one = generator(4, stream(0, "noise"))
    torch.rand(5)
    assert torch.equal(generator(4, stream(0, "noise")), one)
    assert not torch.equal(generator(4, stream(1, "noise")), one)
    source = stream(0, "noise")
    assert torch.equal(generator(4, source), one)
    assert not torch.equal(generator(4, source), one)  # fresh noise at every call


def test_dropout_acts_in_training_and_not_in_evaluation():
    torch.manual_seed(0)
    generator = Generator(64, dropout=0.5)
    in_training = [generator(4, stream(0, "noise")) for _ in range(2)]
    assert not torch.equal(*in_training)
    generator.eval()
    in_evaluation = [generator(4, stream(0, "noise")) for _ in range(2)]
    assert torch.equal(*in_evaluation)


def test_gradients_reach_every_weight():
    torch.manual_seed(0)
    generator = Generator(32)
    generator(50, stream(0, "noise")).sum().backward()
    for weight in generator.parameters():
        assert torch.isfinite(weight.grad).all()
        assert weight.grad.abs().sum() > 0
