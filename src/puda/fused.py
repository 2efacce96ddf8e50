"""Operations with hand-written gradients: one pass over (Q, N) where autograd would make many.

Each takes the kernel of puda.native where there is one, and otherwise does the same in torch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from puda import native

COLUMNS = 1024
"""Candidates of one matrix product: a tile of scores that stays in a core's cache."""

FEW = 8
"""Questions up to which reading the candidates takes longer than multiplying."""

SOME = 40
"""Questions up to which it pays not to lay scattered candidates together first."""

_HALVED: ContextVar[type[Function] | None] = ContextVar("halved", default=None)
"""How products multiply in half precision; None: they do not."""


@contextmanager
def halved(wanted: bool) -> Iterator[None]:
    """Within it products multiply in bfloat16 where the CPU is fast at that; sums are float32.

    By our kernel where there are tiles (AMX); by torch, which rounds the sums at last, where
    vectors of bfloat16 are known to be fast: a quarter of float32's time on Zen 5, twice of it on
    an Intel CPU without tiles.
    """
    kind: type[Function] | None = None
    if wanted and native.has_tiles():
        kind = _TiledProduct
    elif wanted and native.has_vectors():
        kind = _RoundedProduct
    before = _HALVED.set(kind)
    try:
        yield
    finally:
        _HALVED.reset(before)


def _apply(function: Any, *inputs: object) -> Tensor:
    """Apply an autograd function, which torch does not type."""
    out: Tensor = function.apply(*inputs)
    return out


class _LogSum(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, counted: Tensor | None) -> Tensor:
        if native.fits(values):
            counted = _as_bytes(counted, values)
            total, top, scale = native.log_sum(values, counted)
        else:
            counting = _counting(values, counted, -torch.inf)
            top = counting.amax(1)
            # A row where nothing counts has the sum -inf; its slopes are zero all the same.
            whole = (counting - top.clamp(min=-3e38).unsqueeze(1)).exp_().sum(1)
            total, scale = top + whole.log(), 1 / whole.clamp(min=1)
        ctx.save_for_backward(values, counted, top, scale)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        values, counted, top, scale = ctx.saved_tensors
        gradient = gradient * scale
        if native.fits(values):
            return native.log_sum_slope(values, counted, top, gradient), None
        share = (values - top.clamp(min=-3e38).unsqueeze(1)).exp_()
        return _counting(share * gradient.unsqueeze(1), counted, 0), None


def _as_bytes(counted: Tensor | None, values: Tensor) -> Tensor | None:
    """Lay out what counts as the kernels read it: a byte for each value, in row order."""
    return None if counted is None else counted.expand_as(values).contiguous()


def _counting(values: Tensor, counted: Tensor | None, otherwise: float) -> Tensor:
    return values if counted is None else values.masked_fill(~counted, otherwise)


def log_sum(values: Tensor, counted: Tensor | None) -> Tensor:
    """ln sum_j exp(u_j) of each row (Q, N), over what counts: (Q,); -inf where nothing does."""
    return _apply(_LogSum, values, counted)


class _SoftplusMean(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, below: Tensor | None, counted: Tensor | None) -> Tensor:
        if _SoftplusMean.has_kernel(values, below):
            counted = _as_bytes(counted, values)
            mean, weight = native.softplus_mean(values, below, counted)
        else:
            margin = values if below is None else values - below.unsqueeze(1)
            number = values.new_full(values.shape[:1], values.shape[1])
            weight = 1 / (number if counted is None else counted.sum(1)).clamp(min=1)
            mean = _counting(softplus(margin), counted, 0).sum(1) * weight
        ctx.save_for_backward(values, below, counted, weight)
        return mean

    @staticmethod
    def has_kernel(values: Tensor, below: Tensor | None) -> bool:
        return native.fits(values) if below is None else native.fits(values, below)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        values, below, counted, weight = ctx.saved_tensors
        gradient = gradient * weight
        if _SoftplusMean.has_kernel(values, below):
            slope, whole = native.softplus_slope(values, below, counted, gradient)
        else:
            margin = values if below is None else values - below.unsqueeze(1)
            slope = _counting(margin.sigmoid() * gradient.unsqueeze(1), counted, 0)
            whole = slope.sum(1)
        return slope, None if below is None else -whole, None


def softplus_mean(values: Tensor, below: Tensor | None, counted: Tensor | None) -> Tensor:
    """Mean_j softplus(u_j - p) of each row (Q, N), over what counts: (Q,); 0 where nothing does.

    `below` holds p (Q,); None is p = 0.
    """
    return _apply(_SoftplusMean, values, below, counted)


class _Cubes(Function):
    @staticmethod
    def forward(ctx: Any, squares: Tensor) -> Tensor:
        ctx.size = squares.sqrt()
        return torch.dot(squares.flatten(), ctx.size.flatten())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        slope: Tensor = ctx.size * (1.5 * gradient)
        return slope


def cubes(squares: Tensor) -> Tensor:
    """Sum |x|^3 over squared sizes |x|^2 (...): a scalar; its slope 1.5 |x| is zero at zero."""
    return _apply(_Cubes, squares)


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, question: Tensor, candidates: Tensor) -> Tensor:
        ctx.save_for_backward(question, candidates)
        if len(question) <= FEW and native.fits(question, candidates):
            return native.product(question, candidates)
        out = question.new_empty(len(question), len(candidates))
        for start in range(0, len(candidates), COLUMNS):
            block = candidates[start : start + COLUMNS]
            torch.mm(question, block.T, out=out[:, start : start + COLUMNS])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        question, candidates = ctx.saved_tensors
        asked, offered = ctx.needs_input_grad
        return gradient @ candidates if asked else None, gradient.T @ question if offered else None


class _TiledProduct(Function):
    @staticmethod
    def forward(ctx: Any, question: Tensor, candidates: Tensor) -> Tensor:
        ctx.save_for_backward(question, candidates)
        return native.tiled_product(question, candidates.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        question, candidates = ctx.saved_tensors
        asked, offered = ctx.needs_input_grad
        return (
            native.tiled_product(gradient, candidates) if asked else None,
            native.tiled_product(gradient.T, question) if offered else None,
        )


class _RoundedProduct(Function):
    @staticmethod
    def forward(ctx: Any, question: Tensor, candidates: Tensor) -> Tensor:
        ctx.kinds = question.dtype, candidates.dtype
        question, candidates = question.bfloat16(), candidates.bfloat16()
        ctx.save_for_backward(question, candidates)
        return (question @ candidates.T).float()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        question, candidates = ctx.saved_tensors
        asked, offered = ctx.needs_input_grad
        gradient = gradient.bfloat16()
        return (
            (gradient @ candidates).to(ctx.kinds[0]) if asked else None,
            (gradient.T @ question).to(ctx.kinds[1]) if offered else None,
        )


def product(question: Tensor, candidates: Tensor) -> Tensor:
    """Q C^T of questions (Q, d) and candidates (P, d), in tiles where there are many: (Q, P)."""
    kind = _HALVED.get()
    rounded = kind is _RoundedProduct and candidates.dtype == torch.float32
    if rounded or (kind is _TiledProduct and native.fits(question, candidates)):
        return _apply(kind, question, candidates)
    if len(candidates) <= COLUMNS:
        return question @ candidates.T
    return _apply(_Product, question, candidates)


def products(x: Tensor, y: Tensor) -> Tensor:
    """X_q Y_q of many small matrices (Q, m, k) and (Q, k, n): (Q, m, n).

    Where torch multiplies in half precision they stay in it: what reads them is bound by memory.
    """
    if _HALVED.get() is _RoundedProduct and x.dtype == torch.float32:
        x, y = x.bfloat16(), y.bfloat16()
    return torch.bmm(x, y)


def product_among(question: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
    """Q R^T of questions (Q, d) and those of the rows (E, d) that have some ids (P,): (Q, P)."""
    if len(ids) > COLUMNS and len(question) <= SOME and native.fits(question, rows):
        return native.product(question, rows, ids)
    return product(question, rows.index_select(0, ids))


class _RowDot(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return native.row_dot(x, y) if native.fits(x, y) else (x * y).sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        gradient = gradient.unsqueeze(1)
        return gradient * y, gradient * x


def row_dot(x: Tensor, y: Tensor) -> Tensor:
    """Product of each row (n, d) of x with that of y: (n,)."""
    return _apply(_RowDot, x, y)


class _Distance(Function):
    @staticmethod
    def forward(ctx: Any, question: Tensor, candidates: Tensor, complex_rows: bool) -> Tensor:
        ctx.save_for_backward(question, candidates)
        ctx.complex_rows = complex_rows
        return native.distance(question, candidates, complex_rows=complex_rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        question, candidates = ctx.saved_tensors
        gradient, complex_rows = gradient.contiguous(), ctx.complex_rows
        slopes = native.distance_slope(question, candidates, gradient, complex_rows=complex_rows)
        return *slopes, None


def distance(question: Tensor, candidates: Tensor, *, complex_rows: bool = False) -> Tensor | None:
    """sum_k |q_k - c_k|, complex moduli if rows hold real, then imaginary parts: (Q, P).

    Candidates are shared (P, d) or own (Q, N, d). None: there is no kernel for it.
    """
    if not native.fits(question, candidates):
        return None
    return _apply(_Distance, question, candidates, complex_rows)


class _Rectified(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, w: Tensor, candidates: Tensor) -> Tensor:
        ctx.save_for_backward(x, a, w, candidates)
        return native.rectified(x, a, w, candidates)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        x, a, w, candidates = ctx.saved_tensors
        return native.rectified_slope(x, a, w, candidates, gradient.contiguous())


def rectified(x: Tensor, a: Tensor, w: Tensor, candidates: Tensor) -> Tensor | None:
    """sum_fk w_fk max(0, x_fk + a_f c_k) of x, w (Q, K, d) and a (Q, K): (Q, P).

    Candidates are shared (P, d) or own (Q, N, d). None: there is no kernel for it.
    """
    inputs = tuple(part.contiguous() for part in (x, a, w))
    return _apply(_Rectified, *inputs, candidates) if native.fits(*inputs, candidates) else None


class Wires:
    """Edges (n,) from rows of one or two tables to groups, with the orders that kernels need.

    Each edge e takes row i[e] of the first table, row j[e] of the second if there is one, and
    ends in group o[e].
    """

    def __init__(self, o: Tensor, groups: int, i: Tensor, j: Tensor | None = None) -> None:
        self.o, self.i, self.j, self.groups = o, i, j, groups
        self._orders: dict[str, tuple[Tensor, Tensor]] = {}

    def order(self, name: str, groups: int) -> tuple[Tensor, Tensor]:
        """Return the edges in the order of their o, i or j, and where each of these begins."""
        if name not in self._orders:
            key: Tensor = getattr(self, name)
            starts = torch.bincount(key, minlength=groups).cumsum(0)
            starts = torch.cat([starts.new_zeros(1), starts])
            self._orders[name] = key.argsort(stable=True), starts
        return self._orders[name]


EDGES = 65_536
"""Whose rows are held at a time where there is no kernel."""


def _collected(
    wires: Wires, to: str, groups: int, weight: Tensor, *sources: tuple[Tensor, Tensor]
) -> Tensor:
    """Sum weight * product of the sources' rows over the edges of each o, i or j."""
    order, starts = wires.order(to, groups)
    tables = [table for table, _ in sources]
    weight, ids = weight[order], [ids[order] for _, ids in sources]
    if native.fits(weight, *tables):
        b, j = (tables[1], ids[1]) if len(tables) > 1 else (None, None)
        return native.collect(weight, tables[0], ids[0], b, j, starts)
    out = tables[0].new_zeros(groups, tables[0].shape[1])
    key: Tensor = getattr(wires, to)[order]
    for part in torch.arange(len(order)).split(EDGES):
        rows = weight[part].unsqueeze(1)
        for table, where in zip(tables, ids, strict=True):
            rows = rows * table.index_select(0, where[part])
        out.index_add_(0, key[part], rows)
    return out


def _edge_dots(wires: Wires, gradient: Tensor, *sources: tuple[Tensor, Tensor]) -> Tensor:
    (a, i), (b, j) = sources[0], sources[1] if len(sources) > 1 else (None, None)
    if native.fits(gradient, *(table for table, _ in sources)):
        return native.edge_dot(gradient, wires.o, a, i, b, j)
    parts = []
    for part in torch.arange(len(wires.o)).split(EDGES):
        rows = gradient.index_select(0, wires.o[part])
        for table, where in sources:
            rows = rows * table.index_select(0, where[part])
        parts.append(rows.sum(1))
    return torch.cat(parts)


class _Collect(Function):
    @staticmethod
    def forward(ctx: Any, wires: Wires, weight: Tensor, a: Tensor, b: Tensor | None) -> Tensor:
        ctx.wires = wires
        ctx.save_for_backward(weight, a, b)
        return _collected(wires, "o", wires.groups, weight, *_Collect.sources(wires, a, b))

    @staticmethod
    def sources(wires: Wires, a: Tensor, b: Tensor | None) -> list[tuple[Tensor, Tensor]]:
        return [(a, wires.i)] if b is None or wires.j is None else [(a, wires.i), (b, wires.j)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        wires, (weight, a, b) = ctx.wires, ctx.saved_tensors
        sources, gradient = _Collect.sources(wires, a, b), gradient.contiguous()
        arrived = (gradient, wires.o)
        _, by_weight, by_a, by_b = ctx.needs_input_grad
        slopes: list[Tensor | None] = [None, None, None]
        if by_weight:
            slopes[0] = _edge_dots(wires, gradient, *sources)
        if by_a:
            slopes[1] = _collected(wires, "i", len(a), weight, arrived, *sources[1:])
        if by_b:
            slopes[2] = _collected(wires, "j", len(b), weight, arrived, sources[0])
        return None, *slopes


def collect(wires: Wires, weight: Tensor, a: Tensor, b: Tensor | None = None) -> Tensor:
    """Sum weight[e] a[i[e]] b[j[e]] over the edges of each group, number by number: (G, d).

    Without b, of weight[e] a[i[e]]. No row of an edge is ever kept.
    """
    b = None if b is None else b.contiguous()
    return _apply(_Collect, wires, weight.contiguous(), a.contiguous(), b)
