"""A process that answers questions: scoring then does not wait for the service's interpreter.

In one process the thread that scores and the one that talks to clients take turns: of 16 clients
who asked without a pause, 1 in 20 waited 85 ms for an answer, and with this process 45 ms
(FB15k-237, two cores, two rounds of ten seconds each, side by side).
"""

import multiprocessing
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection

import torch

from puda.api import Run
from puda.serve.answers import ALONE, Answers, Asked
from puda.types import Prediction


class Backroom:
    """Answers questions about some runs in a process of its own, which ends with this one.

    It is forked, so that it is there at once and shares what is loaded: to be made before there are
    other threads.
    """

    def __init__(self, runs: Mapping[str, Run]) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._lock = threading.Lock()  # several runs, several threads that ask
        self.process = context.Process(target=_answer, args=(runs, theirs, self._pipe), daemon=True)
        self.process.start()
        theirs.close()

    @staticmethod
    def suits(runs: Mapping[str, Run]) -> bool:
        """Whether the system can fork, and one thread, all that may be forked, is enough."""
        small = all(run.trained.rows.numel() < ALONE for run in runs.values())
        return small and sys.platform.startswith("linux")

    def answer(self, name: str, batch: list[Asked]) -> list[list[Prediction]]:
        """Answer as `Answers.answer` does; EOFError or OSError: the process is gone."""
        with self._lock:
            self._pipe.send((name, batch))
            found: list[list[Prediction]] | Exception = self._pipe.recv()
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self.process.join()


def _answer(runs: Mapping[str, Run], pipe: Connection, other_end: Connection) -> None:
    """Answer what comes through the pipe until nobody holds its other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which ends this
    other_end.close()
    torch.set_num_threads(1)  # those of the service are not here
    answers = {name: Answers(run) for name, run in runs.items()}
    for own in answers.values():
        own.prepare()
    with suppress(EOFError, OSError):
        while True:
            name, batch = pipe.recv()
            try:
                found: object = answers[name].answer(batch)
            except Exception as error:  # whoever asked must hear of it
                found = error
            pipe.send(found)
