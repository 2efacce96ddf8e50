"""Starts `puda serve` as a person does, in a process of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRIPT = Path(sys.executable).with_name("puda")


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
