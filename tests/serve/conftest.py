"""A trained run on the board, served in this process and by the command itself."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import puda
from board import board
from puda.serve.app import create_app
from puda.serve.served import Served
from puda.serve.store import Store

SCRIPT = Path(sys.executable).with_name("puda")
CONFIG = {
    "scoring": {"name": "distmult", "dim": 16},
    "training": {"epochs": 12, "batch_size": 128, "validate_every": 4, "threads": 1},
    "sampler": {"num_unlabeled": 64},
    "generator": {"num_synthetic": 0},
}


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> puda.Run:
    return puda.train(board(), tmp_path_factory.mktemp("runs") / "board", config=CONFIG)


@pytest.fixture(scope="session")
def served(run) -> Served:
    return Served("board", run)


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    store = Store(str(tmp_path / "verdicts.sqlite"))
    yield store
    store.close()


@pytest.fixture
def client(served, store) -> Iterator[TestClient]:
    app = create_app({"board": served}, store)
    with TestClient(app, base_url="http://127.0.0.1:8000/api/v1/") as client:
        yield client


@contextmanager
def started(*words: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start `puda serve` with some words; gives the process and its address."""
    command = [SCRIPT, "serve", *map(str, words), "--port", "0"]
    quiet = os.environ | {"COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=quiet
    )
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        found = re.search(r"http://\S+", said)
        assert found, said + process.stdout.read()
        yield process, found[0]
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def serving(run) -> Callable[..., object]:
    """Start `puda serve` on the board with further words."""

    def start(*words: object, runs: tuple[Path, ...] = ()) -> object:
        return started(run.path, *runs, *words)

    return start
