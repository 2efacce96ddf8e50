"""What all tests share: quiet hypothesis settings and the benchmark data, where they are."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from puda.data.datasets import DATASETS, load_dataset
from puda.data.graph import KnowledgeGraph

settings.register_profile("puda", deadline=None, derandomize=True)
settings.load_profile("puda")


@pytest.fixture(scope="session")
def benchmark() -> Callable[[str], KnowledgeGraph]:
    """Load a public data set by name from PUDA_MIRROR; skips the test where it is not there."""
    mirror = os.environ.get("PUDA_MIRROR")

    @cache
    def load(name: str) -> KnowledgeGraph:
        if not mirror:
            pytest.skip(f"{name} is not here: PUDA_MIRROR is not set")
        for remote in DATASETS[name].files:
            if not (Path(mirror) / remote.path).is_file():
                pytest.skip(f"{name} is not here: no {remote.path} in PUDA_MIRROR={mirror}")
        return load_dataset(name)

    return load
