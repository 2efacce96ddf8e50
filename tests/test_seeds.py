"""Random streams depend on (seed, name, epoch) and on nothing else."""

import random

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from puda.seeds import ambient, stream

KEYS = st.tuples(
    st.integers(-(2**63), 2**63), st.sampled_from(["order", "draws", "pool"]), st.integers(0, 1000)
)


def first(seed: int, name: str, epoch: int) -> list[int]:
    """Return the first numbers of a stream; two streams agree in them by chance once in 2^124."""
    return torch.randint(2**31, (4,), generator=stream(seed, name, epoch)).tolist()


@given(KEYS)
def test_same_seed_name_and_epoch_give_the_same_stream(key):
    assert first(*key) == first(*key)


@given(KEYS, KEYS)
def test_streams_differ_when_seed_name_or_epoch_differs(one, other):
    assert (first(*one) == first(*other)) == (one == other)


def test_the_number_one_in_the_seed_is_not_the_one_in_the_epoch():
    # A key written without separators would make these equal: 1|x|11 and 1|x1|1.
    assert first(1, "x", 11) != first(1, "x1", 1)
    assert first(11, "x", 1) != first(1, "x", 11)


def test_the_epoch_is_zero_unless_told():
    assert torch.equal(
        torch.rand(4, generator=stream(7, "order")), torch.rand(4, generator=stream(7, "order", 0))
    )


def test_a_stream_does_not_depend_on_how_much_another_was_used():
    untouched = first(3, "noise", 2)
    used = stream(3, "order", 2)
    torch.rand(1000, generator=used)
    torch.rand(1000)
    assert first(3, "noise", 2) == untouched


def test_drawing_from_a_stream_leaves_the_global_state_alone():
    before = torch.get_rng_state()
    torch.rand(10, generator=stream(0, "pool"))
    assert torch.equal(torch.get_rng_state(), before)


def test_ambient_seeds_what_takes_no_generator():
    with ambient(5, "model"):
        one = torch.rand(4)
    torch.rand(3)  # the caller goes on in between
    with ambient(5, "model"):
        assert torch.equal(torch.rand(4), one)
    with ambient(5, "model", 1):
        assert not torch.equal(torch.rand(4), one)
    with ambient(5, "generator"):
        assert not torch.equal(torch.rand(4), one)
    with ambient(6, "model"):
        assert not torch.equal(torch.rand(4), one)


def test_ambient_gives_the_callers_random_state_back():
    torch.manual_seed(99)
    expected = torch.rand(6)
    torch.manual_seed(99)
    torch.rand(3)
    with ambient(1, "dropout"):
        torch.rand(100)
    assert torch.equal(torch.rand(3), expected[3:])


def test_ambient_gives_the_state_back_after_an_error_too():
    before = torch.get_rng_state()
    try:
        with ambient(1, "dropout"):
            torch.rand(100)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert torch.equal(torch.get_rng_state(), before)


def test_the_random_states_of_python_and_numpy_are_never_touched():
    random.seed(1)
    np.random.seed(1)
    python, numpy = random.getstate(), np.random.get_state()[1].copy()
    stream(0, "order")
    with ambient(0, "model"):
        torch.rand(1)
    assert random.getstate() == python
    assert np.array_equal(np.random.get_state()[1], numpy)
