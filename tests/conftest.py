"""What all tests share: quiet hypothesis settings and the benchmark data, where they are."""

import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from clubs import clubs
from console import Result
from puda import cli
from puda.config import Config
from puda.data.datasets import DATASETS, load_dataset
from puda.data.graph import KnowledgeGraph
from puda.runs import Trained
from puda.training.trainer import train

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


@pytest.fixture
def command(monkeypatch, capfd) -> Callable[..., Result]:
    """Run `puda` with some words in this process, as its script would."""

    def run(*words: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["puda", *map(str, words)])
        capfd.readouterr()
        try:
            cli.main()
            code = 0
        except SystemExit as ending:
            code = int(ending.code or 0)
        return Result(code, *capfd.readouterr())

    return run


@pytest.fixture(scope="session")
def trained_clubs(tmp_path_factory) -> Trained:
    """Train on the clubs."""
    config = Config.of(
        {
            "scoring": {"name": "complex", "dim": 32},
            "objective": {"weight": 0.01},
            "sampler": {"num_unlabeled": 64},
            "generator": {"num_synthetic": 0},
            "training": {"epochs": 15, "batch_size": 128, "threads": 1, "validate_every": 5},
        }
    )
    return train(clubs(), config, tmp_path_factory.mktemp("calibrate") / "run").load()
