"""How `puda serve` bears 16 clients: `python benchmarks/serve.py RUN` measures and writes the page.

Clients ask about test facts of the run, one request after the other without a pause: of ten
requests six are predictions (k = 10, tail and head questions by turns), three are searches with a
typo, one is a verdict. Then the same with a tenth of a second between requests, and with a second,
as people would. The result is kept as a line of benchmarks/results/serve.jsonl and put into
docs/serve.md.
"""

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "serve.jsonl"
PAGE = HERE.parent / "docs" / "serve.md"
CLIENTS = 16
STARTS = 3
Times = dict[str, list[float]]


class Client:
    """A connection that stays open; as little work as possible, it shares the processor."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    async def open(self) -> None:
        """Connect."""
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)

    async def call(self, path: str, body: dict[str, str] | None = None) -> tuple[int, bytes]:
        """Send a request and read the answer."""
        content = json.dumps(body).encode() if body else b""
        lines = [f"{'POST' if body else 'GET'} /api/v1{path} HTTP/1.1", f"Host: {self.host}"]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        return int(head.split(b" ", 2)[1]), await self.reader.readexactly(int(length[1]))


class Load:
    """What clients ask, and how long they waited."""

    def __init__(self, run: Path) -> None:
        from puda.runs import RunFolder

        graph = RunFolder(run).load_graph()
        self.name, self.run = graph.name, run.resolve().name
        self.entities, self.relations = graph.entities.labels, graph.relations.labels
        self.facts = graph.test.tolist()
        self.times: Times = defaultdict(list)
        self.errors = 0

    def request(self, chance: random.Random) -> tuple[str, str, dict[str, str] | None]:
        """Draw a request: its kind, its path and its body."""
        head, relation, tail = chance.choice(self.facts)
        labels = self.entities[head], self.relations[relation], self.entities[tail]
        kind = chance.choices(("predict", "search", "verdict"), (6, 3, 1))[0]
        if kind == "predict":
            asked = {"head": labels[0]} if chance.random() < 0.5 else {"tail": labels[2]}
            query = urlencode(asked | {"relation": labels[1], "k": 10})
            return kind, f"/runs/{self.run}/predict?{query}", None
        if kind == "search":
            typed = labels[0][:1] + labels[0][2:8]  # a letter is missing
            return kind, f"/runs/{self.run}/search?{urlencode({'text': typed})}", None
        said = dict(zip(("head", "relation", "tail"), labels, strict=True))
        return kind, f"/runs/{self.run}/verdicts", said | {"verdict": "accept", "author": "load"}

    async def client(self, host: str, port: int, seed: int, until: float, pause: float) -> None:
        """Ask until the time is over."""
        # Not what was asked before the pauses: that is kept.
        chance, client = random.Random(f"{seed} {pause}"), Client(host, port)
        await client.open()
        await asyncio.sleep(pause * chance.random())
        while time.perf_counter() < until:
            kind, path, body = self.request(chance)
            start = time.perf_counter()
            status, _ = await client.call(path, body)
            self.times[kind].append(time.perf_counter() - start)
            self.errors += status >= 400
            await asyncio.sleep(pause)

    async def press(self, host: str, port: int, *, seconds: float, pause: float) -> dict[str, Any]:
        """Let all clients ask at once; returns milliseconds by kind."""
        self.times.clear()
        self.errors, until = 0, time.perf_counter() + seconds
        await asyncio.gather(
            *(self.client(host, port, seed, until, pause) for seed in range(CLIENTS))
        )
        number = sum(map(len, self.times.values()))
        return {
            "pause": pause,
            "seconds": seconds,
            "errors": self.errors,
            "requests_per_second": round(number / seconds, 1),
            "milliseconds": {kind: quantiles(times) for kind, times in self.times.items()},
        }


def quantiles(times: list[float]) -> dict[str, float]:
    """Return the number of requests and quantiles of their milliseconds."""
    order = sorted(times)
    found = {f"p{p}": round(1e3 * order[int(len(order) * p / 100)], 1) for p in (50, 95, 99)}
    return {"number": len(order), **found, "max": round(1e3 * order[-1], 1)}


def measure(run: Path, seconds: float) -> dict[str, Any]:
    """Start the service and press it."""
    load, before = Load(run), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        words = [run, "--port", "0", "--verdicts", Path(folder) / "verdicts.sqlite"]
        command = [Path(sys.executable).with_name("puda"), "serve", *map(str, words)]
        process, place, first = _serve(command)
        ready = [first]
        while len(ready) < STARTS:
            process.terminate()
            process.wait()
            process, place, again = _serve(command)
            ready.append(again)
        try:
            rounds = []
            for length, pause in ((seconds, 0.0), (seconds / 2, 0.1), (seconds / 2, 1.0)):
                spent = _processor_seconds(process.pid)
                figures = asyncio.run(load.press(*place, seconds=length, pause=pause))
                spent = _processor_seconds(process.pid) - spent
                number = sum(ms["number"] for ms in figures["milliseconds"].values())
                rounds.append(figures | {"processor_ms": round(1e3 * spent / number, 2)})
            memory = sum(_most_kilobytes(pid) for pid in _family(process.pid))
        finally:
            process.terminate()
            process.wait()
    config = (run / "config.toml").read_text()
    scoring = re.search(r'\[scoring\]\nname = "(\w+)"\ndim = (\d+)', config)
    assert scoring is not None
    return {
        "graph": load.name,
        "scoring": scoring[1],
        "dim": int(scoring[2]),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(before, 2),
        "start_seconds": ready,
        "memory_mb": memory // 1000,
        "rounds": rounds,
    }


def _family(pid: int) -> list[int]:
    """Return a process and its children."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def _processor_seconds(pid: int) -> float:
    """Return the time that a process and its children had; it tells of load, not of waiting."""
    ticks = 0
    for each in _family(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _most_kilobytes(pid: int) -> int:
    """Return the most memory that a process has had; what two share counts for both."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) if found else 0


def _serve(command: Sequence[str | Path]) -> tuple[subprocess.Popen[str], tuple[str, int], float]:
    """Start the service; returns it, its address and the seconds until it answered."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"http://([\d.]+):(\d+)", process.stdout.readline())
    assert found is not None
    place = found[1], int(found[2])
    asyncio.run(_first(*place))
    return process, place, round(time.perf_counter() - start, 2)


async def _first(host: str, port: int) -> None:
    client = Client(host, port)
    await client.open()
    status, _ = await client.call("/runs")
    assert status == 200


def table(measured: dict[str, Any]) -> str:
    """Write a measurement as Markdown."""
    lines = [
        f"{measured['graph']}, {measured['scoring']} of {measured['dim']} floats,"
        f" {measured['cores']} cores (the clients' included), load average before"
        f" {measured['load_before']}; ready"
        f" {', '.join(f'{ready:g}' for ready in measured['start_seconds'])} s after the command"
        f" ({STARTS} starts, the first of which may read from the disk),"
        f" {measured['memory_mb']:,} MB at most.",
        "",
        "| pause | request | number | p50, ms | p95, ms | p99, ms | most, ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in measured["rounds"]:
        for kind, ms in sorted(each["milliseconds"].items()):
            figures = " | ".join(f"{ms[name]:,}" for name in ("number", "p50", "p95", "p99", "max"))
            lines.append(f"| {each['pause']:g} s | {kind} | {figures} |")
    total = "; ".join(
        f"{each['requests_per_second']:,} requests a second, {each['processor_ms']:g} ms of the"
        f" processor for each, and {each['errors']} errors in {each['seconds']:g} s with"
        f" {each['pause']:g} s of pause"
        for each in measured["rounds"]
    )
    return "\n".join([*lines, "", f"In all: {total}."])


def main() -> None:
    """Measure, keep, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    measured = measure(given.run, given.seconds)
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(measured) + "\n")
    shown = table(measured)
    print(shown)
    parts = re.split(r"(<!-- load -->\n|\n<!-- end -->)", PAGE.read_text(encoding="utf-8"))
    PAGE.write_text("".join([*parts[:2], shown, *parts[3:]]), encoding="utf-8")


if __name__ == "__main__":
    main()
