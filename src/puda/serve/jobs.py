"""Completions of whole graphs, one at a time behind the scenes."""

import itertools
import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import polars as pl

from puda.errors import PudaError
from puda.serve.models import JobIn, JobOut
from puda.serve.served import Served

WAITING, KEPT = 4, 12
"""Jobs that may be unfinished at a time, and that are remembered in all."""


class TooMany(PudaError):
    """More jobs were asked for than are taken on."""


class Cancelled(Exception):
    """Someone does not want the result any more."""


class Job:
    """One completion."""

    def __init__(self, served: Served, wanted: JobIn) -> None:
        self.served, self.wanted = served, wanted
        self.id = secrets.token_hex(8)
        self.state: Any = "waiting"
        self.done, self.of = 0, len(wanted.relations or served.graph.relations.labels)
        self.facts = pl.DataFrame()
        self.error: str | None = None
        self.unwanted = False

    def show(self) -> JobOut:
        """Say how far it is."""
        return JobOut(
            id=self.id,
            run=self.served.name,
            state=self.state,
            done=self.done,
            of=self.of,
            facts=len(self.facts),
            error=self.error,
        )

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self.state in ("done", "failed", "cancelled")

    def run(self) -> None:
        """Do it."""
        if self.unwanted:
            self.state = "cancelled"
            return
        self.state, wanted = "running", self.wanted
        try:
            self.facts = self.served.run.complete(
                top=wanted.top,
                per_relation=wanted.per_relation,
                minimum=wanted.minimum,
                relations=wanted.relations,
                listener=self._hear,
            )
            self.state = "done"
        except Cancelled:
            self.state = "cancelled"
        except PudaError as error:
            self.state, self.error = "failed", str(error)
        except Exception:
            self.state, self.error = "failed", "an unexpected error: see what puda serve printed"
            raise

    def _hear(self, event: Mapping[str, Any]) -> None:
        if self.unwanted:
            raise Cancelled
        self.done, self.of = event["done"], event["of"]


class Jobs:
    """Takes jobs on and remembers the last of them."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="complete")

    def add(self, served: Served, wanted: JobIn) -> Job:
        """Take on a job; those that were finished first are forgotten first."""
        for label in wanted.relations or []:
            served.graph.relations.find(label)
        if sum(not job.finished for job in self._jobs.values()) >= WAITING:
            raise TooMany(f"{WAITING} jobs wait already: let one finish, or cancel it")
        ended = [job.id for job in self._jobs.values() if job.finished]
        for id in itertools.islice(ended, max(0, len(self._jobs) + 1 - KEPT)):
            del self._jobs[id]
        job = Job(served, wanted)
        self._jobs[job.id] = job
        self._worker.submit(job.run)
        return job

    def all(self) -> list[Job]:
        """Return the jobs, newest first."""
        return [*reversed(self._jobs.values())]

    def get(self, id: str) -> Job | None:
        """Return a job; None if it is unknown or forgotten."""
        return self._jobs.get(id)

    def close(self) -> None:
        """Stop what runs at its next step, without waiting for it."""
        for job in self._jobs.values():
            job.unwanted = True
        self._worker.shutdown(wait=False, cancel_futures=True)
