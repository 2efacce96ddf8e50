"""Named random generators: one seed gives each purpose and epoch its own reproducible stream.

A stream depends on (seed, name, epoch) only, never on how much another stream was used. So a
training that is resumed at an epoch needs no saved random state to go on with the same bits.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def _number(seed: int, name: str, epoch: int) -> int:
    digest = hashlib.sha256(f"{seed}/{name}/{epoch}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stream(seed: int, name: str, epoch: int = 0) -> torch.Generator:
    """Return the generator of one purpose ("order", "pool", "noise", ...) in one epoch."""
    return torch.Generator().manual_seed(_number(seed, name, epoch))


@contextmanager
def ambient(seed: int, name: str, epoch: int = 0) -> Iterator[None]:
    """Seed what takes no generator (initialisers, dropout); the caller's state comes back after."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_number(seed, name, epoch))
        yield
