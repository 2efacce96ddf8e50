"""The operations with hand-written gradients: those of autograd, or of finite differences."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import grad, gradcheck

from puda import fused, native
from puda.fused import Wires, collect, cubes, log_sum, product, products, softplus_mean


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw normal numbers that want a gradient."""
    random = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=random, dtype=dtype).requires_grad_()


COUNTED = torch.tensor([[True, False, True, True], [False, True, False, False]])
"""For two rows of four; something counts in each, since the slope of -inf cannot be measured."""


# --- sums and means of rows


def test_known_sums_of_exponents():
    # ln(e^0 + e^0) = ln 2 with halves as slopes; ln(1 + 3) = ln 4 with a quarter and three.
    values = torch.tensor([[0.0, 0.0], [0.0, math.log(3)]], dtype=torch.float64, requires_grad=True)
    total = log_sum(values, None)
    total.sum().backward()
    assert total.tolist() == pytest.approx([math.log(2), math.log(4)])
    assert values.grad.flatten().tolist() == pytest.approx([0.5, 0.5, 0.25, 0.75])


def test_a_known_mean_of_softplus():
    # u - p = 0 and ln 3: softplus ln 2 and ln 4, slopes 1/2 and 3/4; the third does not count.
    values = torch.tensor([[1.0, 1 + math.log(3), 9.0]], dtype=torch.float64, requires_grad=True)
    below = torch.ones(1, dtype=torch.float64, requires_grad=True)
    mean = softplus_mean(values, below, torch.tensor([[True, True, False]]))
    mean.sum().backward()
    assert mean.item() == pytest.approx((math.log(2) + math.log(4)) / 2)
    assert values.grad.flatten().tolist() == pytest.approx([0.25, 0.375, 0.0])
    assert below.grad.tolist() == pytest.approx([-0.625])


@pytest.mark.parametrize("counted", [None, COUNTED])
def test_the_slopes_of_log_sum_are_those_of_finite_differences(counted):
    assert gradcheck(lambda u: log_sum(u, counted), draw(2, 4))


# Here a row may be empty: its mean is 0 whatever the scores.
@pytest.mark.parametrize("counted", [None, COUNTED, torch.zeros(2, 4, dtype=torch.bool)])
@pytest.mark.parametrize("below", [None, draw(2, seed=1)])
def test_the_slopes_of_softplus_mean_are_those_of_finite_differences(below, counted):
    assert gradcheck(lambda u, p: softplus_mean(u, p, counted), (draw(2, 4), below))


Rows = Callable[[Tensor], Tensor]
OF_ROWS: dict[str, Rows] = {
    "log_sum": lambda u: log_sum(u, COUNTED),
    "softplus_mean": lambda u: softplus_mean(u, u.new_ones(2), COUNTED),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OF_ROWS)
def test_gradients_can_be_asked_for_twice(name, dtype):
    values = draw(2, 4, dtype=dtype)
    risk = OF_ROWS[name](values).square().sum()
    once, again = (grad(risk, values, retain_graph=True)[0] for _ in range(2))
    assert once.abs().sum() > 0
    assert torch.equal(once, again)


@pytest.mark.parametrize("name", OF_ROWS)
def test_a_gradient_of_a_gradient_is_refused_rather_than_wrong(name):
    values = draw(2, 4)
    (slope,) = grad(OF_ROWS[name](values).square().sum(), values, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


# --- cubes


def test_known_cubes_and_their_slopes():
    # |x| = 2, 3, 0: 8 + 27 + 0; by |x|^2 the slope of |x|^3 is 1.5 |x|.
    squares = torch.tensor([[4.0, 9.0, 0.0]], requires_grad=True)
    total = cubes(squares)
    total.backward()
    assert total.item() == pytest.approx(35)
    assert squares.grad.flatten().tolist() == pytest.approx([3, 4.5, 0])


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=9))
def test_cubes_and_their_gradients_are_those_of_the_plain_formula(numbers):
    one, other = (torch.tensor(numbers, dtype=torch.float64, requires_grad=True) for _ in "ab")
    total, plain = cubes(one**2), (other.abs() ** 3).sum()
    assert total.item() == pytest.approx(plain.item())
    (3 * total).backward()  # what comes from above is passed on
    (3 * plain).backward()
    assert torch.allclose(one.grad, other.grad)


def test_at_zero_the_slope_of_cubes_is_zero_and_not_undefined():
    # The root's slope is infinite there, and autograd would multiply it by zero.
    x = torch.zeros(3, requires_grad=True)
    cubes(x**2).backward()
    assert x.grad.tolist() == [0, 0, 0]


# --- products in half precision by torch


@pytest.fixture
def vectors(monkeypatch):
    """Take this processor for one that multiplies vectors of bfloat16 fast."""
    if native.has_tiles():
        pytest.skip("torch's products of bfloat16 may crash where there are tiles: see puda.native")
    monkeypatch.setattr("puda.native.has_vectors", lambda: True)


def rounded(x: Tensor) -> Tensor:
    """Keep what bfloat16 can hold."""
    return x.detach().bfloat16().float()


def near(found: Tensor, expected: Tensor) -> bool:
    """Whether numbers are equal but for one rounding to bfloat16, of eight bits."""
    return torch.allclose(found, expected, rtol=2**-8, atol=2**-8 * expected.abs().max().item())


@pytest.mark.parametrize("kept", [torch.float32, torch.bfloat16])
def test_halved_products_are_those_of_rounded_factors_and_so_are_their_gradients(vectors, kept):
    x, y = draw(37, 48, dtype=torch.float32), draw(1100, 48, seed=1, dtype=torch.float32)
    slope = draw(37, 1100, seed=2, dtype=torch.float32).detach()
    with fused.halved(True):
        out = product(x.to(kept), y)
    out.backward(slope)
    assert out.dtype == x.grad.dtype == y.grad.dtype == torch.float32
    assert not torch.equal(out, x @ y.T)
    assert near(out, rounded(x) @ rounded(y).T)
    assert near(x.grad, rounded(slope) @ rounded(y))
    assert near(y.grad, rounded(slope).T @ rounded(x))


def test_halved_products_of_small_matrices_stay_in_half_precision(vectors):
    x, y = draw(5, 3, 7, dtype=torch.float32), draw(5, 7, 4, seed=1, dtype=torch.float32)
    with fused.halved(True):
        out = products(x, y)
    assert out.dtype == torch.bfloat16
    assert near(out.float(), torch.bmm(rounded(x), rounded(y)))
    assert torch.equal(products(x, y), torch.bmm(x, y))


def test_double_precision_is_never_halved(vectors):
    x, y = draw(2, 3, 4), draw(2, 4, 5)
    with fused.halved(True):
        assert torch.equal(products(x, y), torch.bmm(x, y))
        assert torch.equal(product(x[0], y[0].T), x[0] @ y[0])


# --- products by tiles


@pytest.fixture
def narrow(monkeypatch):
    """Make a tile three candidates wide."""
    monkeypatch.setattr(fused, "COLUMNS", 3)


def is_tiled(scores: Tensor) -> bool:
    return "_Product" in type(scores.grad_fn).__name__


@pytest.mark.parametrize("number", [1, 3, 4, 6, 8])  # up to one tile, and with a last one cut short
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
def test_a_product_by_tiles_is_the_plain_one_and_so_are_its_gradients(narrow, number, wanted):
    ours = [draw(5, 7), draw(number, 7, seed=1)]
    plain = [part.detach().clone() for part in ours]
    for parts in (ours, plain):
        for part, want in zip(parts, wanted, strict=True):
            part.requires_grad_(want)
    scores, expected = product(*ours), plain[0] @ plain[1].T
    assert is_tiled(scores) == (number > 3)
    assert torch.allclose(scores, expected, rtol=1e-12)
    weight = draw(5, number, seed=2).detach()
    (scores * weight).sum().backward()
    (expected * weight).sum().backward()
    for part, other, want in zip(ours, plain, wanted, strict=True):
        assert (part.grad is not None) == want
        assert not want or torch.allclose(part.grad, other.grad, rtol=1e-12)


def test_the_slopes_of_a_product_by_tiles_are_those_of_finite_differences(narrow):
    assert gradcheck(product, (draw(2, 3), draw(7, 3, seed=1)))


@pytest.mark.parametrize("questions", [3, 50])
def test_a_product_with_some_rows_is_that_with_those_rows(narrow, questions):
    question, rows = torch.randn(questions, 12), torch.randn(40, 12)
    ids = torch.randperm(40)[:30]
    found = fused.product_among(question, rows, ids)
    torch.testing.assert_close(found, question @ rows[ids].T, rtol=1e-5, atol=1e-5)


def test_without_questions_a_product_by_tiles_is_empty(narrow):
    assert product(torch.empty(0, 2), torch.empty(5, 2)).shape == (0, 5)


# --- sums over edges


def wires(edges: int = 40, *, both: bool = True) -> Wires:
    """Draw edges from 5 rows (and 3 of a second table) to 6 groups, of which the last is empty."""
    random = torch.Generator().manual_seed(1)
    o, i, j = (torch.randint(n, (edges,), generator=random) for n in (5, 5, 3))
    return Wires(o, 6, i, j if both else None)


def test_a_known_sum_over_edges():
    # Group 0 hears 2 * (1, 2) * (3, 5) and 1 * (10, 20) * (1, 1); group 1 hears nothing.
    a = torch.tensor([[1.0, 2.0], [10.0, 20.0]])
    b = torch.tensor([[1.0, 1.0], [3.0, 5.0]])
    path = Wires(torch.tensor([0, 0]), 2, torch.tensor([0, 1]), torch.tensor([1, 0]))
    weight = torch.tensor([2.0, 1.0])
    assert collect(path, weight, a, b).tolist() == [[16.0, 40.0], [0.0, 0.0]]
    alone = Wires(path.o, 2, path.i)
    assert collect(alone, weight, a).tolist() == [[12.0, 24.0], [0.0, 0.0]]


@pytest.mark.parametrize("both", [True, False])
def test_the_slopes_of_sums_over_edges_are_those_of_finite_differences(both):
    path = wires(both=both)
    tables = (draw(5, 2, seed=2), draw(3, 2, seed=3))[: 2 if both else 1]
    assert gradcheck(lambda w, *t: collect(path, w, *t), (draw(40), *tables))


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("width", [1, 8, 13])
def test_kernels_for_edges_agree_with_double_precision_and_so_do_their_slopes(both, width):
    path, found = wires(both=both), {}
    for kind in (torch.float32, torch.float64):
        inputs = [draw(40, dtype=torch.float64), draw(5, width, seed=2), draw(3, width, seed=3)]
        inputs = [x.detach().to(kind).requires_grad_() for x in inputs[: 3 if both else 2]]
        out = collect(path, *inputs)
        slopes = grad((out * draw(6, width, seed=4).to(kind)).sum(), inputs)
        found[kind] = [out, *slopes]
    for kernel, plain in zip(*found.values(), strict=True):
        assert torch.allclose(kernel.double(), plain, atol=1e-5)


def test_without_a_kernel_edges_may_come_in_blocks(monkeypatch):
    weight, a, b = draw(40), draw(5, 4, seed=2), draw(3, 4, seed=3)
    whole = collect(wires(), weight, a, b)
    monkeypatch.setattr(fused, "EDGES", 7)
    assert torch.allclose(collect(wires(), weight, a, b), whole)
    gradients = grad(collect(wires(), weight, a, b).sum(), (weight, a, b))
    for gradient, expected in zip(gradients, grad(whole.sum(), (weight, a, b)), strict=True):
        assert torch.allclose(gradient, expected)
