"""The kernels of native.c: equal to what is done without them, and exact where torch is."""

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import softplus

from puda import fused, native, places
from puda.config import Config
from puda.data.index import KnownAnswers
from puda.errors import Diverged
from puda.evaluation import ranking
from puda.scoring.base import ScoringFunction
from puda.scoring.convkb import ConvKB
from puda.scoring.rotate import RotatE
from puda.scoring.transe import TransE
from puda.tables import RowAdagrad, RowAdam
from puda.training.trainer import train
from toy import checkerboard, ring

compiled = pytest.mark.skipif(native.library is None, reason="this installation has no C kernels")

WIDTHS = [0, 1, 3, 7, 8, 9, 16, 23, 600]
"""Of rows: whole vectors of 8, incomplete ones, and more than 64 vectors, after which the softplus
kernel takes the logarithm of its product."""

BAD = [torch.nan, torch.inf, -torch.inf]


def without_kernels() -> Any:
    """Do it in torch or numpy for a while."""
    return mock.patch.object(native, "library", None)


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def close(one: Tensor, other: Tensor, *, rtol: float = 1e-5, atol: float = 1e-6) -> bool:
    """Compare in double precision; the same infinities and NaN are close."""
    return torch.allclose(one.double(), other.double(), rtol=rtol, atol=atol, equal_nan=True)


# --- sums and means of rows


class Rows(NamedTuple):
    """Rows of scores, which of them count, and a score to compare each row with."""

    values: Tensor  # (Q, N)
    below: Tensor | None  # (Q,)
    counted: Tensor | None  # (Q, N)


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    shape = draw(st.integers(0, 5)), draw(st.sampled_from(WIDTHS[1:]))
    seed, scale = draw(st.integers(0, 10_000)), draw(st.sampled_from([0.1, 1.0, 10.0]))
    below = normal(shape[0], seed=seed + 1, scale=scale) if draw(st.booleans()) else None
    share = draw(st.sampled_from([None, 0.0, 0.1, 0.9]))  # of entries that count
    counted = None
    if share is not None:
        counted = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share
    return Rows(normal(*shape, seed=seed, scale=scale), below, counted)


def slopes(of: Callable[..., Tensor], *inputs: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    """Return rows' values, and the gradients of a sum in which each row has a weight of its own."""
    leaves = [None if x is None else x.clone().requires_grad_() for x in inputs]
    found = of(*leaves)
    weight = torch.arange(1, len(found) + 1, dtype=found.dtype)
    found.mul(weight).nan_to_num(neginf=0).sum().backward()
    return found.detach(), [x.grad for x in leaves if x is not None]


def sum_and_shares(values: Tensor, counted: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return ln sum exp (Q,) of rows and its slopes (Q, N), by the kernels."""
    total, top, scale = native.log_sum(values, counted)
    return total, native.log_sum_slope(values, counted, top, scale)


def mean_and_slopes(
    values: Tensor, below: Tensor | None, counted: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the mean softplus (Q,) of rows and its slopes (Q, N), by the kernels."""
    mean, weight = native.softplus_mean(values, below, counted)
    return mean, native.softplus_slope(values, below, counted, weight)[0]


@compiled
@given(rows())
def test_log_sum_and_its_gradient_are_those_without_kernels(case: Rows) -> None:
    found = slopes(lambda u: fused.log_sum(u, case.counted), case.values)
    with without_kernels():
        expected = slopes(lambda u: fused.log_sum(u, case.counted), case.values)
    assert close(found[0], expected[0])
    assert close(found[1][0], expected[1][0])


@compiled
@given(rows())
def test_softplus_mean_and_its_gradients_are_those_without_kernels(case: Rows) -> None:
    found = slopes(lambda u, p: fused.softplus_mean(u, p, case.counted), *case[:2])
    with without_kernels():
        expected = slopes(lambda u, p: fused.softplus_mean(u, p, case.counted), *case[:2])
    assert close(found[0], expected[0])
    for one, other in zip(found[1], expected[1], strict=True):
        assert close(one, other)


@compiled
@pytest.mark.parametrize("width", [1, 5, 8, 19, 520])
def test_a_row_where_nothing_counts_has_no_share(width):
    counted = torch.ones(3, width, dtype=torch.bool)
    counted[1] = False
    total, share = sum_and_shares(normal(3, width), counted)
    assert total[1] == -torch.inf and total[[0, 2]].isfinite().all()
    assert share[1].tolist() == [0] * width
    mean, slope = mean_and_slopes(normal(3, width), None, counted)
    assert mean[1] == 0 and (mean[[0, 2]] > 0).all()
    assert slope[1].tolist() == [0] * width


@compiled
@pytest.mark.parametrize("size", [1e4, 1e9, 3e38])
@pytest.mark.parametrize("padding", [0, 6, 9])  # the extremes are in the first vector, or the last
def test_extreme_scores_have_exact_sums_and_means(size, padding):
    # Of size, size, -size: ln(2 e^size) = size + ln 2, and each of the two largest has half. What
    # stands before them does not count, large as it is.
    values = torch.cat([torch.full((1, padding), size), torch.tensor([[size, size, -size]])], dim=1)
    counted = torch.cat([torch.zeros(1, padding), torch.ones(1, 3)], dim=1).bool()
    total, share = sum_and_shares(values, counted)
    assert torch.equal(total, torch.tensor([size + math.log(2)], dtype=torch.float32))
    assert share.tolist() == [[0] * padding + [0.5, 0.5, 0]]
    # A third of them against p = -size/6: softplus is size/2 twice, and 0 with slope 0.
    mean, slope = mean_and_slopes(values / 3, torch.tensor([-size / 6]), counted)
    assert mean.item() == pytest.approx(size / 3)
    assert slope.flatten().tolist() == pytest.approx([0] * padding + [1 / 3, 1 / 3, 0])


@compiled
@pytest.mark.parametrize("width", [3, 8, 11, 16, 21])
def test_a_score_that_is_not_a_number_stays_one_wherever_it_is(width):
    for place in range(width):
        values = normal(2, width)
        values[0, place] = torch.nan
        total, share = sum_and_shares(values, None)
        assert total.isnan().tolist() == [True, False]
        assert share[0, place].isnan() and share[1].isfinite().all()
        mean, slope = mean_and_slopes(values, None, None)
        assert mean.isnan().tolist() == [True, False]
        assert slope.isnan().nonzero().tolist() == [[0, place]]  # no other entry is to blame
        alone = torch.arange(width).expand(2, width) == place  # "nothing counts" would hide it
        assert sum_and_shares(values, alone)[0].isnan().tolist() == [True, False]
        assert mean_and_slopes(values, None, alone)[0].isnan().tolist() == [True, False]


@compiled
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("place", [1, 9])
def test_a_bad_score_that_does_not_count_does_no_harm(bad, place):
    values, counted = normal(1, 11), torch.ones(1, 11, dtype=torch.bool)
    counted[0, place] = False
    good = [
        *sum_and_shares(values, counted),
        *mean_and_slopes(values, torch.ones(1), counted),
    ]
    values[0, place] = bad
    spoilt = [
        *sum_and_shares(values, counted),
        *mean_and_slopes(values, torch.ones(1), counted),
    ]
    assert all(torch.equal(one, other) for one, other in zip(good, spoilt, strict=True))


@compiled
@pytest.mark.parametrize("place", [1, 9])
def test_an_infinite_score_is_not_hidden(place):
    values = normal(1, 11)
    values[0, place] = -torch.inf  # has no share, as an entry that does not count
    rest = torch.arange(11) != place
    assert close(sum_and_shares(values, None)[0], values[:, rest].logsumexp(1))
    assert close(mean_and_slopes(values, None, None)[0], softplus(values).mean(1))
    values[0, place] = torch.inf
    assert not sum_and_shares(values, None)[0].isfinite()
    assert mean_and_slopes(values, None, None)[0] == torch.inf


@compiled
@given(st.integers(0, 10_000))
def test_shares_are_right_to_six_digits_over_all_magnitudes(seed):
    # The largest score is 0, so that no difference is rounded: what errs is the exponential.
    values = -80 * torch.rand(3, 1003, generator=torch.Generator().manual_seed(seed))
    values[:, seed % 1003] = 0
    total, share = sum_and_shares(values, None)
    exact = values.double().softmax(1)
    assert exact.min() < 1e-30
    assert ((share.double() - exact) / exact).abs().max() < 2e-6
    assert close(total, values.double().logsumexp(1), rtol=0, atol=1e-6)


@compiled
@given(st.integers(0, 10_000))
def test_softplus_and_its_slopes_are_right_over_all_magnitudes(seed):
    values = 160 * torch.rand(3, 1003, generator=torch.Generator().manual_seed(seed)) - 80
    mean, slope = mean_and_slopes(values, None, None)
    assert close(mean, softplus(values.double(), threshold=800).mean(1), rtol=2e-6, atol=0)
    exact = values.double().sigmoid() / 1003
    assert ((slope.double() - exact) / exact).abs().max() < 2e-6


@compiled
def test_the_mean_of_a_long_row_does_not_overflow():
    # softplus(0) = ln 2, so the product whose logarithm is taken doubles with every score.
    mean, slope = mean_and_slopes(torch.zeros(1, 5003), None, None)
    assert mean.item() == pytest.approx(math.log(2))
    assert slope.sum().item() == pytest.approx(0.5)


# --- counts of rivals


class Items(NamedTuple):
    """Rows of scores and the answers to be ranked in them; the arguments of `_count`."""

    scores: Tensor  # (T, E)
    first: np.ndarray  # (T + 1,)
    answers: np.ndarray  # (I,)
    start: np.ndarray  # (T,)
    stop: np.ndarray  # (T,)
    known: np.ndarray


@st.composite
def items(draw: st.DrawFn) -> Items:
    size, width = draw(st.integers(1, 40)), draw(st.sampled_from(WIDTHS[1:]))
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    levels = draw(st.sampled_from([1, 3, 1000]))  # all scores equal, many ties, or few
    scores = random.integers(0, levels, (size, width)).astype(np.float32)
    number = random.integers(0, 4, size)  # of answers to a row
    known = [np.flatnonzero(random.random(width) < random.choice([0, 0.1, 1])) for _ in range(size)]
    ends = np.cumsum([len(part) for part in known])
    return Items(
        torch.from_numpy(scores),
        np.append(0, np.cumsum(number)),
        random.integers(0, width, number.sum()),
        np.append(0, ends[:-1]),
        ends,
        np.concatenate(known),
    )


@compiled
@given(items())
def test_counts_of_rivals_are_those_without_kernels(case: Items) -> None:
    finite, expected = ranking._count_in_torch(*case)
    assert finite
    assert ranking._count(*case).tolist() == expected.tolist()


@compiled
def test_known_counts_in_a_row_that_is_a_vector_and_a_bit():
    # Answers 1 and 10 score 3 and 1. Above 3: entities 0, 3, 9; level: 4, 8. Above 1: those, 1, 4
    # and 8; level: 5. The known are 1 (the first answer itself), 3, 8 and 10 (the second).
    scores = torch.tensor([[5.0, 3, 0, 9, 3, 1, 0, 0, 3, 7, 1]])
    one = np.array([0])
    known = np.array([1, 3, 8, 10])
    counts = ranking._count(scores, np.array([0, 2]), np.array([1, 10]), one, one + 4, known)
    assert counts.tolist() == [
        [2, 3],  # 0 and 9; 0, 9 and 4
        [1, 1],  # 4; 5
        [3, 3],  # 3, 8, 10; 1, 3, 8
    ]


@compiled
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("width", [1, 7, 8, 11, 24, 29])
def test_a_score_that_is_not_finite_is_found_wherever_it_is(width, bad):
    rows = 40  # more than one share of a thread's work
    nothing = np.zeros(rows, dtype=np.int64)
    for row, place in ((0, 0), (17, width // 2), (rows - 1, width - 1), (rows - 1, 0)):
        scores = normal(rows, width)
        case = scores, np.arange(rows + 1), nothing, nothing, nothing, nothing[:0]
        assert native.count(*case)[0] and ranking._count_in_torch(*case)[0]
        scores[row, place] = bad
        assert not native.count(*case)[0] and not ranking._count_in_torch(*case)[0]
        with pytest.raises(Diverged):
            ranking._count(*case)


@compiled
def test_bad_scores_of_opposite_signs_do_not_cancel():
    scores = torch.zeros(1, 16)
    scores[0, 3], scores[0, 11] = torch.inf, -torch.inf
    nothing = np.zeros(1, dtype=np.int64)
    assert not native.count(scores, np.arange(2), nothing, nothing, nothing, nothing[:0])[0]


@compiled
@pytest.mark.parametrize("kind", [np.float32, np.float64])  # doubles have no kernel
def test_values_before_an_own_one_are_counted_in_each_stretch(kind):
    values = np.array([3, 1, 2, 2, *range(20), -np.inf], dtype=kind)
    begin, length = np.array([0, 1, 4, 2, 24]), np.array([4, 0, 20, 19, 1])
    own = np.array([2, 5, 7.5, 2, -5], dtype=kind)
    assert places._ahead(values, begin, length, own).tolist() == [2, 0, 12, 14 + 1.5, 0]


# --- masks of known answers


def random_index(seed: int, *, num_entities: int = 60, num_facts: int = 400) -> KnownAnswers:
    facts = np.random.default_rng(seed).integers(0, [num_entities, 3, num_entities], (num_facts, 3))
    return KnownAnswers(facts, num_entities=num_entities, num_relations=3)


@compiled
@given(st.integers(0, 10_000), st.integers(0, 400), st.integers(0, 30), st.integers(0, 70))
def test_masks_are_those_without_kernels_and_leave_no_trace(seed, num_facts, height, width):
    index = random_index(seed, num_facts=num_facts)
    random = np.random.default_rng(seed + 1)
    for _ in range(3):  # by turns: both use the same scratch space
        keys = random.integers(0, 2 * 3 * 60, height)  # some have no answers, some are asked twice
        candidates = random.integers(0, 60, width)
        marked = index.mask(keys, candidates)
        with without_kernels():
            expected = index.mask(keys, candidates)
        assert marked.dtype == bool
        assert np.array_equal(marked, expected)
        assert (index._slot == -1).all()


@compiled
def test_keys_and_candidates_that_are_every_second_number_of_an_array_are_read_as_such():
    index, keys, candidates = random_index(0), np.arange(2 * 3 * 60)[::2], np.arange(60)[::2]
    expected = index.mask(keys.copy(), candidates.copy())
    assert expected.any()
    assert np.array_equal(index.mask(keys, candidates), expected)


# --- Adagrad


def blocks(seed: int, dim: int, sizes: tuple[int, ...]) -> tuple[Tensor, list[Tensor]]:
    """Draw ids below 20, which repeat within blocks and across, and a gradient for each."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(20, (sum(sizes),), generator=random)
    return ids, [torch.randn(size, dim, generator=random) for size in sizes]


@compiled
@pytest.mark.parametrize("dim", [1, 6, 8, 35])
def test_adagrad_steps_as_without_kernels_and_as_torch_does_in_double_precision(dim):
    sizes = (9, 0, 30, 1)
    kernel, plain = normal(25, dim), normal(25, dim)
    oracle = torch.nn.Parameter(normal(25, dim).double())
    ours, others = RowAdagrad(kernel, 0.1), RowAdagrad(plain, 0.1)
    dense = torch.optim.Adagrad([oracle], lr=0.1)
    for step in range(8):
        ids, gradients = blocks(step, dim, sizes)
        assert len(ids.unique()) < len(ids)
        ours.update(kernel, ids, gradients)
        with without_kernels():
            others.update(plain, ids, gradients)
        oracle.grad = torch.zeros_like(oracle).index_add_(0, ids, torch.cat(gradients).double())
        dense.step()
    assert close(kernel, plain, rtol=0, atol=1e-6)
    assert close(kernel, oracle.detach(), rtol=0, atol=1e-6)
    assert close(ours.state["sum"], others.state["sum"])
    assert torch.equal(kernel[20:], normal(25, dim)[20:])  # no step named them
    assert not ours.state["sum"][20:].any()


@compiled
@pytest.mark.parametrize("dim", [1, 6, 8, 35])
def test_adam_steps_as_without_kernels_and_as_torch_does_on_rows_of_their_own(dim):
    kernel, plain = normal(25, dim), normal(25, dim)
    rows = [torch.nn.Parameter(row) for row in normal(25, dim).double()]
    ours, others = RowAdam(kernel, 0.1), RowAdam(plain, 0.1)
    alone = [torch.optim.Adam([row], lr=0.1) for row in rows]  # each has a step count of its own
    for step in range(8):
        ids, gradients = blocks(step, dim, (9, 0, 30, 1))
        ours.update(kernel, ids, gradients)
        with without_kernels():
            others.update(plain, ids, gradients)
        total = torch.zeros(25, dim).double().index_add_(0, ids, torch.cat(gradients).double())
        for i in ids.unique().tolist():
            rows[i].grad = total[i]
            alone[i].step()
    assert close(kernel, plain, rtol=0, atol=1e-5)
    assert close(kernel, torch.stack(rows).detach(), rtol=0, atol=1e-5)
    assert all(close(ours.state[name], others.state[name]) for name in ours.state)
    assert torch.equal(kernel[20:], normal(25, dim)[20:])  # no step named them
    assert not any(table[20:].any() for table in ours.state.values())


@compiled
def test_a_row_that_is_named_twice_takes_one_step_down_the_sum_worked_by_hand():
    # lr 0.5. Row 2 has 3 and 1 in two blocks: s = 16, w = -0.5 * 4/4; row 0 has -2: s = 4, w = 0.5.
    weight = torch.zeros(3, 1)
    optimizer = RowAdagrad(weight, 0.5)
    optimizer.update(
        weight, torch.tensor([2, 0, 2]), [torch.tensor([[3.0], [-2]]), torch.ones(1, 1)]
    )
    assert weight.flatten().tolist() == [0.5, 0, -0.5]
    assert optimizer.state["sum"].flatten().tolist() == [4, 0, 16]


@compiled
def test_ids_that_are_every_second_number_of_a_tensor_step_the_rows_they_name():
    weight = torch.zeros(4, 1)
    ids = torch.tensor([1, 0, 3, 0])[::2]
    RowAdagrad(weight, 0.5).update(weight, ids, [torch.ones(2, 1)])
    assert weight.flatten().tolist() == [0, -0.5, 0, -0.5]


# --- distances


DIMS = [(TransE, d) for d in (1, 7, 8, 15, 16, 19, 45)] + [(RotatE, d) for d in (2, 14, 16, 34, 50)]
SHAPES = [(6,), (5, 4)]  # six candidates shared by all questions, or four own to each of five


def exact(model: ScoringFunction, question: Tensor, candidates: Tensor) -> Tensor:
    """Score by the formula and leave gradients to autograd; the root has none at zero."""
    apart = question.unsqueeze(1) - candidates
    if isinstance(model, RotatE):
        squares = apart.unflatten(-1, (2, -1)).square().sum(-2)
        return model.margin - squares.where(squares > 0, 1).sqrt().where(squares > 0, 0).sum(-1)
    return model.margin - apart.abs().sum(-1)


@compiled
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("kind", "dim"), DIMS)
def test_distances_and_their_gradients_are_exact_with_kernels_and_without(kind, dim, shape):
    model = kind(ring(), dim)
    inputs = [normal(5, dim), normal(*shape, dim, seed=1)]
    inputs[1][..., 0, :] = inputs[0][0]  # a question's own row: the distance is 0 ...
    inputs[1][..., 1, : dim // 2 : 2] = inputs[0][1, : dim // 2 : 2]  # ... or is in places
    weight = normal(5, shape[-1], seed=2)
    weight[:, 2] = 0  # as of an entity that does not count

    def scored(match: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
        leaves = [x.to(dtype, copy=True).requires_grad_() for x in inputs]
        scores = match(*leaves)
        scores.backward(weight.to(dtype))
        return [scores.detach(), *(x.grad for x in leaves)]

    expected = scored(partial(exact, model), torch.float64)
    found = scored(model.match, torch.float32)
    with without_kernels():
        plain = scored(model.match, torch.float32)
    for one, other, true in zip(found, plain, expected, strict=True):
        assert close(one, true, atol=1e-5)  # of distances up to 60
        assert close(other, true, atol=1e-5)


@compiled
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("kind", "dim"), DIMS)
def test_where_a_distance_is_zero_so_is_its_gradient(kind, dim, own):
    question = normal(1, dim).requires_grad_()
    candidates = question.detach().clone().unsqueeze(0) if own else question.detach().clone()
    candidates.requires_grad_()
    model = kind(ring(), dim)
    scores = model.match(question, candidates)
    scores.sum().backward()
    assert scores.tolist() == [[model.margin]]
    assert not question.grad.any() and not candidates.grad.any()


@compiled
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("kind", [TransE, RotatE])
def test_a_row_that_is_not_finite_has_no_finite_score(kind, bad):
    for place in range(38):  # in whole vectors of 8 and in the rest
        candidates = normal(3, 38)
        candidates[1, place] = bad
        scores = kind(ring(), 38).match(normal(2, 38, seed=1), candidates)
        assert scores.isfinite().tolist() == [[True, False, True]] * 2


# --- rectified sums


@compiled
@pytest.mark.parametrize("shape", [*SHAPES, (70,), (5, 131)])
@pytest.mark.parametrize("dim", [1, 7, 8, 19])
def test_rectified_sums_and_their_gradients_are_exact_with_kernels_and_without(dim, shape):
    filters = 3
    inputs = [normal(5, filters, dim + 1), normal(*shape, dim, seed=1)]
    gradient = normal(5, shape[-1], seed=2)

    def scored(dtype: torch.dtype, *, by_formula: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = ConvKB(ring(), dim, filters=filters).eval().to(dtype)
        leaves = [x.to(dtype, copy=True).requires_grad_() for x in inputs]
        question, candidates = leaves
        if by_formula:
            x, a = question[:, None, :, :-1], question[:, None, :, -1:]
            maps = torch.relu(x + a * candidates.unsqueeze(-2))  # (Q, P, K, d)
            scores = (maps * model.weight).sum((-2, -1)) + model.offset
        else:
            scores = model.match(question, candidates)
        scores.backward(gradient.to(dtype))
        return [scores.detach(), *(x.grad for x in (*leaves, model.weight, model.offset))]

    expected = scored(torch.float64, by_formula=True)
    found = scored(torch.float32, by_formula=False)
    with without_kernels():
        plain = scored(torch.float32, by_formula=False)
    for one, other, true in zip(found, plain, expected, strict=True):
        assert close(one, true, atol=1e-4)
        assert close(other, true, atol=1e-4)


@compiled
def test_a_number_that_is_none_stays_none_in_a_rectified_sum():
    for place in range(19):
        candidates = normal(6, 19)
        candidates[1, place] = torch.nan
        model = ConvKB(ring(), 19, filters=2).eval()
        scores = model.match(normal(2, 2, 20, seed=1), candidates)
        assert scores.isfinite().tolist() == [[True, False, True, True, True, True]] * 2


# --- threads


def some_counts() -> np.ndarray:
    random = np.random.default_rng(0)
    scores = torch.from_numpy(random.integers(0, 9, (101, 77)).astype(np.float32))
    start = np.zeros(101, dtype=np.int64)
    return native.count(
        scores, np.arange(102), random.integers(0, 77, 101), start, start + 5, np.arange(5)
    )[1]


def some_steps(kind: type[RowAdagrad] | type[RowAdam]) -> Tensor:
    weight = normal(20, 35)
    optimizer = kind(weight, 0.1)
    for step in range(5):
        optimizer.update(weight, *blocks(step, 35, (50, 31)))
    return weight


def some_slopes(kind: type[ScoringFunction], *shape: int) -> list[Tensor]:
    question, candidates = normal(37, 38).requires_grad_(), normal(*shape, 38).requires_grad_()
    scores = kind(ring(), 38).match(question, candidates)
    scores.backward(normal(*scores.shape, seed=1))
    return [scores.detach(), question.grad, candidates.grad]


@compiled
@pytest.mark.parametrize("rows", [1, 3, 4, 8])
@pytest.mark.parametrize("dim", [1, 8, 29])
def test_the_product_of_few_rows_is_the_plain_one(rows, dim):
    question, candidates = normal(rows, dim), normal(1500, dim, seed=1)
    expected = question.double() @ candidates.double().T
    assert close(native.product(question, candidates), expected, atol=1e-5)
    assert torch.equal(fused.product(question, candidates), native.product(question, candidates))


@compiled
@pytest.mark.parametrize("number", [0, 1, 2, 7])
def test_a_product_with_scattered_rows_is_that_of_rows_laid_together(number):
    question, rows = normal(6, 29), normal(40, 29, seed=1)
    ids = torch.tensor([39, 3, 3, 0, 17, 38, 5])[:number]
    found = native.product(question, rows, ids)
    assert torch.equal(found, native.product(question, rows.index_select(0, ids)))
    assert found.shape == (6, number)


@compiled
def test_equal_candidates_are_equal_in_the_product_of_few_rows():
    scores = native.product(normal(5, 29), normal(1, 29, seed=1).repeat(2000, 1))
    assert torch.equal(scores, scores[:, :1].expand_as(scores))


KERNELS: dict[str, Callable[[], Any]] = {
    "product": lambda: (native.product(normal(7, 101), normal(1003, 101)),),
    "row_dot": lambda: (native.row_dot(normal(101, 1003), normal(101, 1003)),),
    "log_sum": lambda: sum_and_shares(normal(101, 1003), None),
    "softplus_mean": lambda: mean_and_slopes(normal(101, 1003), normal(101), None),
    "count": lambda: [torch.from_numpy(some_counts())],
    "mark": lambda: [torch.from_numpy(random_index(0).mask(np.arange(360), np.arange(60)))],
    "adagrad": lambda: [some_steps(RowAdagrad)],
    "adam": lambda: [some_steps(RowAdam)],
    "manhattan": lambda: [*some_slopes(TransE, 53), *some_slopes(TransE, 37, 5)],
    "moduli": lambda: [*some_slopes(RotatE, 53), *some_slopes(RotatE, 37, 5)],
}
if native.has_tiles():
    KERNELS["tiles"] = lambda: (native.tiled_product(normal(101, 1003), normal(1003, 77)),)


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    """Set the number of threads; afterwards it is what it was."""
    number = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(number)


@compiled
@pytest.mark.parametrize("name", KERNELS)
def test_results_do_not_depend_on_the_number_of_threads_to_the_bit(set_threads, name):
    found = []
    for number in (1, 2):
        set_threads(number)
        found.append(KERNELS[name]())
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


# --- the library itself


@compiled
def test_only_contiguous_numbers_of_single_precision_fit():
    assert native.fits(torch.zeros(3, 4), torch.zeros(2))
    assert not native.fits(torch.zeros(3, 4).double())
    assert not native.fits(torch.zeros(3, 4).half())
    assert not native.fits(torch.zeros(3, 4).T)
    assert not native.fits(torch.zeros(3, 4)[:, ::2])
    assert not native.fits(torch.zeros(3, 1).expand(3, 4))
    assert not native.fits(torch.zeros(3, 4), torch.zeros(2).double())  # one of several is enough


def test_without_the_library_nothing_fits():
    with without_kernels():
        assert not native.fits(torch.zeros(3, 4))


@compiled
def test_what_does_not_fit_gives_what_its_copy_gives():
    values, counted = normal(23, 5).T, normal(23, 5, seed=1).T > 0
    assert close(fused.log_sum(values, counted), fused.log_sum(values.contiguous(), counted))
    below = normal(10)[::2]
    one = fused.softplus_mean(values.contiguous(), below, counted)
    assert close(one, fused.softplus_mean(values.contiguous(), below.contiguous(), counted))


def test_a_library_that_is_not_there_is_no_library(tmp_path):
    assert native._load(tmp_path / "libpuda.so") is None


@pytest.mark.parametrize("content", [b"", b"no library at all", b"\x7fELF but cut short"])
def test_a_file_that_is_no_library_is_none(tmp_path, content):
    path = tmp_path / "libpuda.so"
    path.write_bytes(content)
    assert native._load(path) is None


@compiled
def test_a_processor_that_cannot_run_the_library_does_not_load_it(monkeypatch):
    assert native._load(native.PATH) is not None
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert native._load(native.PATH) is None


# In a process of its own, since other packages that tests load bring an OpenMP of theirs.
@compiled
@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc/self/maps")
def test_the_library_shares_the_openmp_of_torch():
    code = "import puda.native, pathlib; print(pathlib.Path('/proc/self/maps').read_text())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    files = {Path(line.split()[-1]) for line in done.stdout.splitlines() if "/" in line}
    assert native.PATH.resolve() in files
    openmp = [file for file in files if file.name.startswith(("libgomp", "libomp", "libiomp"))]
    assert len(openmp) == 1
    # The first to be loaded serves both: where torch has one of its own, it came before.
    shipped = [file.resolve() for file in Path(torch.__file__).parent.glob("lib/libgomp*")]
    assert not shipped or openmp == shipped


# --- products of bfloat16 tiles

tiled = pytest.mark.skipif(not native.has_tiles(), reason="this processor has no tiles")


def rounded(x: Tensor) -> Tensor:
    """Keep what bfloat16 can hold, in double precision."""
    return x.bfloat16().double()


# Less than a tile, whole blocks, edges on either side, and more than is summed at a time.
@tiled
@pytest.mark.parametrize(
    "m, k, n", [(1, 1, 1), (5, 7, 3), (64, 512, 32), (33, 65, 600), (40, 1100, 17)]
)
@pytest.mark.parametrize("flipped", [(False, False), (False, True), (True, False), (True, True)])
def test_a_tiled_product_is_that_of_rounded_numbers(m, k, n, flipped):
    x = normal(k, m).T if flipped[0] else normal(m, k)
    y = normal(n, k, seed=1).T if flipped[1] else normal(k, n, seed=1)
    expected = rounded(x) @ rounded(y)
    assert close(native.tiled_product(x, y), expected, rtol=1e-5, atol=1e-5 * math.sqrt(k))


@tiled
def test_a_tiled_product_reads_numbers_that_lie_anywhere():
    every_other = normal(20, 24)[:, ::2]
    one = normal(1).expand(12, 5)
    assert close(
        native.tiled_product(every_other, one), rounded(every_other) @ rounded(one), atol=1e-4
    )
    assert native.tiled_product(normal(3, 4)[:0], normal(4, 2)).shape == (0, 2)


@tiled
@pytest.mark.parametrize("bad", BAD)
def test_a_tiled_product_keeps_what_is_not_finite(bad):
    x = normal(40, 50).abs()
    x[33, 7] = bad
    found = native.tiled_product(x, normal(50, 20, seed=1).abs())
    assert torch.isfinite(found[:33]).all() and torch.isfinite(found[34:]).all()
    assert not torch.isfinite(found[33]).any()


@tiled
def test_halved_products_have_the_gradients_of_rounded_factors():
    x, y = normal(37, 48).requires_grad_(), normal(1100, 48, seed=1).requires_grad_()
    slope = normal(37, 1100, seed=2)
    with fused.halved(True):
        out = fused.product(x, y)
    out.backward(slope)
    assert close(out, rounded(x) @ rounded(y).T, atol=1e-4)
    assert close(x.grad, rounded(slope) @ rounded(y), atol=1e-3)
    assert close(y.grad, rounded(slope).T @ rounded(x), atol=1e-3)
    exact = fused.product(x, y)  # no longer halved
    assert close(exact, x.double() @ y.double().T, atol=1e-4)
    assert not close(exact, out, atol=1e-4)


# --- vectors of bfloat16


def test_vectors_of_bfloat16_are_taken_for_fast_on_amd_processors_that_have_them():
    if native.library is None or not Path("/proc/cpuinfo").exists():
        pytest.skip("there are no kernels, or nothing to compare with")
    told = Path("/proc/cpuinfo").read_text()
    assert native.has_vectors() == ("AuthenticAMD" in told and "avx512_bf16" in told)


# --- all together


def risks(path: Path, scoring: str, ordering: str) -> list[dict[str, float]]:
    """Train on a checkerboard for two epochs; return the risks of each."""
    settings: dict[str, Any] = {
        "scoring": {"name": scoring, "dim": 18},
        "generator": {"num_synthetic": 4},
        "objective": {"options": {"ordering": ordering}},
        "training": {"epochs": 2, "validate_every": 1, "batch_size": 32, "threads": 1},
    }
    folder = train(checkerboard(), Config.of(settings), path)
    return [event["risks"] for event in folder.trace() if event["event"] == "epoch"]


@compiled
@pytest.mark.parametrize("ordering", ["pointwise", "pairwise", "listwise"])
@pytest.mark.parametrize("scoring", ["distmult", "transe", "rotate"])
def test_training_takes_the_same_course_without_the_library(tmp_path, scoring, ordering):
    found = risks(tmp_path / "with", scoring, ordering)
    with without_kernels():
        expected = risks(tmp_path / "without", scoring, ordering)
    assert len(found) == 2
    assert found[0] != found[1]  # something was learned
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-4)
