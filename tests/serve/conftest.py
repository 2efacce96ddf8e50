"""A trained run on the board, served in this process and by the command itself."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from subprocess import Popen

import pytest
from fastapi.testclient import TestClient

import puda
from board import board
from puda.serve.app import create_app
from puda.serve.served import Served
from puda.serve.store import Store
from serving import started

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


@pytest.fixture
def serving(run) -> Callable[..., AbstractContextManager[tuple[Popen[str], str]]]:
    """Start `puda serve` on the board with further words."""
    return lambda *words: started(run.path, *words)
