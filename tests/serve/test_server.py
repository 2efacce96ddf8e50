"""`puda serve` itself: addresses, tokens, and verdicts that outlive it."""

import importlib.util
import itertools
import os
import shutil
import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from board import missing
from puda.errors import PudaError
from puda.serve import server
from puda.serve.server import is_loopback, listen, name_runs
from puda.serve.store import Store

TOKEN = "a-token-of-some-length"


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.1", False),
        ("example.org", False),
    ],
)
def test_what_only_this_machine_reaches(host, local):
    assert is_loopback(host) is local


def test_runs_are_named_by_their_folders_each_in_its_own_way(tmp_path):
    paths = [tmp_path / "a" / "world", tmp_path / "b" / "world", tmp_path / "board"]
    assert name_runs(paths) == dict(zip(("world", "world-2", "board"), paths, strict=True))


def test_a_port_that_is_taken_is_told():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PudaError, match=f"port {port}: .*choose another --port"):
            listen("127.0.0.1", port)


def test_a_small_answer_is_sent_at_once():
    with listen("127.0.0.1", 0) as door:
        assert door.proto == socket.IPPROTO_TCP  # else asyncio leaves TCP_NODELAY unset


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--host", "0.0.0.0"], "give --token"),
        (["--host", "0.0.0.0", "--token", "short"], "at least 16"),
        (["--verdicts", "nonsense://x"], "cannot open the verdicts nonsense://x"),
    ],
)
def test_what_must_not_be_started_is_not(command, run, words, reason):
    result = command("serve", run.path, "--port", 0, *words)
    assert result.code == 2
    assert reason in result.err
    assert "Traceback" not in result.err


def test_without_the_extra_it_is_told_what_to_install(command, run, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = command("serve", run.path)
    assert result.code == 2 and "pip install 'puda[web]'" in result.err


def test_a_folder_that_is_no_run_is_told(command, tmp_path):
    result = command("serve", tmp_path / "none", "--port", 0)
    assert result.code == 2 and "no run folder" in result.err


def test_a_calibration_that_cannot_be_read_is_told_by_this_process(
    command, run, tmp_path, monkeypatch
):
    folder = shutil.copytree(run.path, tmp_path / "board")
    (folder / "calibration.json").write_text("{}")
    monkeypatch.setattr(server, "Backroom", None)  # another process would show a traceback
    result = command("serve", folder, "--port", 0)
    assert result.code == 2 and "puda calibrate fits it anew" in result.err


def test_no_answered_verdict_is_lost_to_a_kill(serving, tmp_path):
    place = tmp_path / "verdicts.sqlite"
    answered: list[str] = []
    head, relation, _ = missing(4)

    def judge(address: str, author: str) -> None:
        with httpx.Client(base_url=address) as client:
            for i in itertools.count():
                said = {"head": head, "relation": relation, "tail": f"thing {i % 4}"}
                said |= {"verdict": "accept", "author": f"{author} {i}"}
                try:
                    answer = client.post("/api/v1/runs/board/verdicts", json=said)
                except httpx.TransportError:
                    return
                assert answer.status_code == 201
                answered.append(said["author"])

    with serving("--verdicts", place) as (process, address):
        people = [threading.Thread(target=judge, args=(address, name)) for name in "ab"]
        for each in people:
            each.start()
        while len(answered) < 40 and any(each.is_alive() for each in people):
            people[0].join(0.01)
        os.kill(process.pid, signal.SIGKILL)  # in the midst of the stream
        for each in people:
            each.join()
    assert len(answered) >= 40
    kept = {each.author for each in Store(str(place)).latest("board")}
    assert set(answered) <= kept


def test_an_interrupt_ends_it_even_while_something_long_runs(serving, tmp_path):
    with serving("--verdicts", tmp_path / "verdicts.sqlite") as (process, address):
        httpx.post(f"{address}api/v1/runs/board/jobs", json={"top": 100_000})
        with suppress(httpx.TimeoutException):
            httpx.get(f"{address}api/v1/runs/board/reliability", timeout=0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
        assert process.stdout is not None and process.stdout.read().endswith("Stopped.\n")


def test_training_takes_up_the_verdicts_of_a_database(command, run, tmp_path):
    from puda.verdicts import Verdict

    place = tmp_path / "verdicts.sqlite"
    store = Store(str(place))
    for i, said in ((4, "accept"), (5, "reject")):
        store.add(Verdict(*missing(i), said, graph="facts"), run="facts", data="0")
    store.close()
    facts = Path(tmp_path / "facts.tsv")
    graph = run.trained.graph
    lines = [
        f"{graph.entities.labels[h]}\t{graph.relations.labels[r]}\t{graph.entities.labels[t]}\n"
        for h, r, t in graph.train.tolist()
    ]
    facts.write_text("".join(lines))
    small = ["--set", "training.epochs=1", "--set", "scoring.dim=8", "--set", "data.seed=0"]
    result = command("train", facts, "--out", tmp_path / "out", "--verdicts", place, *small)
    assert result.code == 0, result.err
    assert "1 facts accepted, 1 rejected" in result.err
    assert 'name = "true-negatives"' in (tmp_path / "out" / "config.toml").read_text()


def test_a_database_that_is_not_there_is_not_made(command, tmp_path):
    result = command("train", "world", "--out", tmp_path / "out", "--verdicts", tmp_path / "x.db")
    assert result.code == 2 and "there is no database" in result.err
    assert not (tmp_path / "x.db").exists()
