"""The kernels of native.c, where this installation has them; each caller has an equal without.

They are built when the package is, if there is a compiler. All take arrays in row order, of single
precision where they hold numbers: `fits` tells whether tensors are such.
"""

import ctypes
import platform
from collections.abc import Sequence
from ctypes import c_float, c_int, c_int64, c_void_p
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch  # before the library is loaded: both then share one OpenMP and its threads
from numpy.typing import NDArray
from torch import Tensor

from puda.types import Ids

SOURCE = Path(__file__).with_name("native.c")
# Named by its source's digest: one that was built from an older source is not taken for this one.
PATH = SOURCE.with_name(f"libpuda-{sha256(SOURCE.read_bytes()).hexdigest()[:12]}.so")


def _load(path: Path) -> ctypes.CDLL | None:
    """Load the library if it is there and this processor can run it."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    if x86 and torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        return None
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_P, _N = c_void_p, c_int64
_SIGNATURES = {
    "puda_log_sum": (None, _P, _P, _N, _N, _P, _P, _P),
    "puda_log_sum_slope": (None, _P, _P, _P, _P, _N, _N, _P),
    "puda_softplus_mean": (None, _P, _P, _P, _N, _N, _P, _P),
    "puda_softplus_slope": (None, _P, _P, _P, _P, _N, _N, _P, _P),
    "puda_count": (c_int, _P, _N, _N, _P, _P, _P, _P, _P, _P, _P, _P),
    "puda_ahead": (None, _P, _P, _P, _P, _N, _P),
    "puda_mark": (c_int, _P, _N, _P, _N, _P, _N, _P, _P, _P, _P),
    "puda_row_dot": (None, _P, _P, _N, _N, _P),
    "puda_product": (None, _P, _P, _P, _N, _N, _N, _P),
    "puda_collect": (None, _P, _P, _P, _P, _P, _P, _N, _N, _P),
    "puda_edge_dot": (None, _P, _P, _P, _P, _P, _P, _N, _N, _P),
    "puda_distance": (None, c_int, _P, _P, _N, _N, _N, c_int, _P),
    "puda_distance_slope": (None, c_int, _P, _P, _P, _N, _N, _N, c_int, _P, _P),
    "puda_rectified": (None, _P, _P, _P, _P, _N, _N, _N, _N, c_int, _P),
    "puda_rectified_slope": (None, _P, _P, _P, _P, _P, _N, _N, _N, _N, c_int, _P, _P, _P, _P),
    "puda_adagrad": (c_int, _P, _P, _N, _P, _N, _P, _P, _P, c_float),
    "puda_adam": (c_int, _P, _P, _P, _P, _N, _P, _N, _P, _P, _P, c_float),
    "puda_has_tiles": (c_int,),
    "puda_has_vectors": (c_int,),
    "puda_tiled_product": (c_int, _P, _N, _N, _P, _N, _N, _N, _N, _N, _P),
}

library = _load(PATH)


def fits(*tensors: Tensor) -> bool:
    """Whether there are kernels, and they can read these numbers."""
    return library is not None and all(
        t.dtype == torch.float32 and t.is_contiguous() and t.device.type == "cpu" for t in tensors
    )


def _at(values: Tensor | None) -> int | None:
    return None if values is None else values.data_ptr()


def log_sum(values: Tensor, counted: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return ln sum exp (Q,) of rows (Q, N) over what counts: top - ln scale, top and scale."""
    assert library is not None
    total, top, scale = values.new_empty(3, len(values))
    outputs = _at(total), _at(top), _at(scale)
    library.puda_log_sum(_at(values), _at(counted), *values.shape, *outputs)
    return total, top, scale


def log_sum_slope(values: Tensor, counted: Tensor | None, top: Tensor, gradient: Tensor) -> Tensor:
    """Return gradient * exp(values - top) (Q, N) of rows, 0 for what does not count."""
    assert library is not None
    slope = torch.empty_like(values)
    inputs = _at(values), _at(counted), _at(top), _at(gradient)
    library.puda_log_sum_slope(*inputs, *values.shape, _at(slope))
    return slope


def softplus_mean(
    values: Tensor, below: Tensor | None, counted: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return mean softplus(values - below) (Q,) over what counts, and 1 / how many do (Q,)."""
    assert library is not None
    mean, weight = values.new_empty(2, len(values))
    inputs = _at(values), _at(below), _at(counted)
    library.puda_softplus_mean(*inputs, *values.shape, _at(mean), _at(weight))
    return mean, weight


def softplus_slope(
    values: Tensor, below: Tensor | None, counted: Tensor | None, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Turn a gradient (Q,) of softplus sums into that of values (Q, N), and its row sums (Q,)."""
    assert library is not None
    slope, whole = torch.empty_like(values), values.new_empty(len(values))
    inputs = _at(values), _at(below), _at(counted), _at(gradient)
    library.puda_softplus_slope(*inputs, *values.shape, _at(slope), _at(whole))
    return slope, whole


def row_dot(x: Tensor, y: Tensor) -> Tensor:
    """Return the products (n,) of rows (n, d) with rows."""
    assert library is not None
    out = x.new_empty(len(x))
    library.puda_row_dot(_at(x), _at(y), *x.shape, _at(out))
    return out


def product(question: Tensor, candidates: Tensor, ids: Tensor | None = None) -> Tensor:
    """Return the products (Q, P) of few rows (Q, d) with many (P, d), or with those of ids (P,)."""
    assert library is not None
    out = question.new_empty(len(question), len(candidates if ids is None else ids))
    inputs = _at(question), _at(candidates), _at(ids)
    library.puda_product(*inputs, *out.shape, question.shape[1], _at(out))
    return out


def has_tiles() -> bool:
    """Whether the processor multiplies tiles of bfloat16, and there is the kernel for it."""
    return library is not None and _has_tiles(library)


@cache
def _has_tiles(kernels: ctypes.CDLL) -> bool:
    return bool(kernels.puda_has_tiles())


def has_vectors() -> bool:
    """Whether torch multiplies vectors of bfloat16 much faster than of floats here (AMD)."""
    return library is not None and bool(library.puda_has_vectors())


def tiled_product(x: Tensor, y: Tensor) -> Tensor:
    """Return the product (m, n) of x (m, k) and y (k, n), rounded to bfloat16, summed in single."""
    assert library is not None and has_tiles()  # asking for them is what makes them usable
    x, y = (part if 1 in part.stride() else part.contiguous() for part in (x, y))
    out = x.new_empty(len(x), y.shape[1])
    sizes = len(x), y.shape[1], x.shape[1]
    if not library.puda_tiled_product(_at(x), *x.stride(), _at(y), *y.stride(), *sizes, _at(out)):
        raise MemoryError("no memory left for a matrix product")
    return out


def collect(
    weight: Tensor, a: Tensor, i: Tensor, b: Tensor | None, j: Tensor | None, starts: Tensor
) -> Tensor:
    """Return sums (G, d) of weight * a[i] * b[j] over edges (n,) that lie group by group."""
    assert library is not None
    out = a.new_empty(len(starts) - 1, a.shape[1])
    inputs = _at(weight), _at(a), _at(i), _at(b), _at(j), _at(starts)
    library.puda_collect(*inputs, *out.shape, _at(out))
    return out


def edge_dot(
    g: Tensor, o: Tensor, a: Tensor, i: Tensor, b: Tensor | None, j: Tensor | None
) -> Tensor:
    """Return the sums (n,) of g[o] * a[i] * b[j] over their last dimension."""
    assert library is not None
    out = a.new_empty(len(i))
    inputs = _at(g), _at(o), _at(a), _at(i), _at(b), _at(j)
    library.puda_edge_dot(*inputs, len(i), a.shape[1], _at(out))
    return out


def distance(question: Tensor, candidates: Tensor, *, complex_rows: bool) -> Tensor:
    """Return sums (Q, P) of |q - c|, or of complex moduli, over rows (P, d) or (Q, N, d)."""
    assert library is not None
    own, columns = candidates.dim() == 3, candidates.shape[-2]
    out = question.new_empty(len(question), columns)
    library.puda_distance(
        complex_rows, _at(question), _at(candidates), *out.shape, question.shape[1], own, _at(out)
    )
    return out


def distance_slope(
    question: Tensor, candidates: Tensor, gradient: Tensor, *, complex_rows: bool
) -> tuple[Tensor, Tensor]:
    """Turn a gradient (Q, P) of distances into those of questions and of candidates."""
    assert library is not None
    own, to_question = candidates.dim() == 3, torch.zeros_like(question)
    # A row of a question's own is written once, all others are summed up.
    to_candidates = torch.empty_like(candidates) if own else torch.zeros_like(candidates)
    library.puda_distance_slope(
        complex_rows,
        _at(question),
        _at(candidates),
        _at(gradient),
        *gradient.shape,
        question.shape[1],
        own,
        _at(to_question),
        _at(to_candidates),
    )
    return to_question, to_candidates


def rectified(x: Tensor, a: Tensor, w: Tensor, candidates: Tensor) -> Tensor:
    """Return sums (Q, P) of w max(0, x + a c) over filters and rows (P, d) or (Q, N, d)."""
    assert library is not None
    own, columns = candidates.dim() == 3, candidates.shape[-2]
    out = x.new_empty(len(x), columns)
    inputs = _at(x), _at(a), _at(w), _at(candidates)
    library.puda_rectified(*inputs, *out.shape, *x.shape[1:], own, _at(out))
    return out


def rectified_slope(
    x: Tensor, a: Tensor, w: Tensor, candidates: Tensor, gradient: Tensor
) -> tuple[Tensor, ...]:
    """Turn a gradient (Q, P) of `rectified` into those of its four inputs."""
    assert library is not None
    own, inputs = candidates.dim() == 3, (x, a, w, candidates)
    slopes = (*(torch.empty_like(part) for part in inputs[:3]), torch.zeros_like(candidates))
    library.puda_rectified_slope(
        *map(_at, inputs), _at(gradient), *gradient.shape, *x.shape[1:], own, *map(_at, slopes)
    )
    return slopes


def step(
    name: str,
    weight: Tensor,
    state: Sequence[Tensor],
    ids: Tensor,
    gradients: Sequence[Tensor],
    slot: Tensor,
    rate: float,
) -> None:
    """Step rows `ids` (n,), which may repeat, down their gradients, blocks of n rows in all.

    By the optimiser of that name, "adagrad" or "adam", which keeps so many tables of state.
    """
    assert library is not None
    number, ids = len(gradients), ids.contiguous()
    sizes = (c_int64 * number)(*(len(block) for block in gradients))
    starts = (c_void_p * number)(*(block.data_ptr() for block in gradients))
    tables = [_at(table) for table in (weight, *state)]
    done = getattr(library, f"puda_{name}")(
        *tables, weight.shape[1], _at(ids), number, sizes, starts, _at(slot), rate
    )
    if not done:
        raise MemoryError


def mark(
    asked: Ids, keys: Ids, candidates: Ids, question: Ids, offset: Ids, slot: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Return (Q, P) True where a candidate answers a question; see `KnownAnswers.mask`."""
    assert library is not None
    known = np.zeros((len(asked), len(candidates)), dtype=bool)
    asked, candidates = np.ascontiguousarray(asked), np.ascontiguousarray(candidates)
    arrays = asked, keys, candidates, question, offset, slot, known
    assert all(array.flags.c_contiguous for array in arrays)
    a, k, c, *rest = (array.ctypes.data for array in arrays)
    if not library.puda_mark(a, len(asked), k, len(keys), c, len(candidates), *rest):
        raise MemoryError
    return known


def count(
    scores: Tensor, first: Ids, answers: Ids, start: Ids, stop: Ids, known: Ids
) -> tuple[bool, Ids]:
    """Count the rivals of answers in rows of scores (T, E); see puda.evaluation.ranking.

    Returns whether all scores are finite, and the counts (3, I).
    """
    assert library is not None
    counts = np.zeros((3, len(answers)), dtype=np.int64)
    arrays = first, answers, start, stop, known, *counts
    assert all(array.flags.c_contiguous for array in arrays)
    at = (array.ctypes.data for array in arrays)
    return bool(library.puda_count(_at(scores), *scores.shape, *at)), counts


def ahead(
    values: NDArray[np.floating[Any]], begin: Ids, length: Ids, own: NDArray[np.floating[Any]]
) -> NDArray[np.float64]:
    """Count in the stretch of each item (n,) the values before its own, equals as half: (n,)."""
    assert library is not None
    out = np.empty(len(own))
    arrays = values, begin, length, own, out
    assert all(array.flags.c_contiguous for array in arrays)
    v, b, n, o, to = (array.ctypes.data for array in arrays)
    library.puda_ahead(v, b, n, o, len(own), to)
    return out
