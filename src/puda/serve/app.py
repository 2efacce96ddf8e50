"""The service: /api/v1 and the page."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from mimetypes import guess_type
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException as StarletteHTTPException

from puda import __version__, verdicts
from puda.data.vocabulary import Vocabulary
from puda.errors import LabelError, PudaError
from puda.explain import Explanation
from puda.serve.answers import Asked
from puda.serve.guard import LOOPBACK, Guard
from puda.serve.jobs import Job, Jobs, TooMany
from puda.serve.models import (
    API,
    Completed,
    CompletedFact,
    Entity,
    Format,
    Found,
    JobIn,
    JobOut,
    Label,
    Measured,
    Number,
    Offset,
    Predicted,
    PredictedFact,
    Problem,
    ReliabilityBin,
    Reliable,
    Review,
    RunInfo,
    Share,
    VerdictIn,
    VerdictOut,
    Verdicts,
)
from puda.serve.served import NotCalibrated, Served
from puda.serve.store import Store
from puda.types import Side
from puda.verdicts import Verdict

PAGE = {
    path.name: path.read_bytes()
    for path in (Path(__file__).parent / "page").iterdir()
    if path.is_file()
}
"""The page's files by name: a request chooses among these and reaches no others."""

STATUS: list[tuple[type[PudaError], int]] = [
    (LabelError, 404),
    (NotCalibrated, 409),
    (TooMany, 429),
    (PudaError, 400),
]

T = TypeVar("T")

FOUND, PREDICTED = TypeAdapter(list[Found]), TypeAdapter(Predicted)
KEPT = TypeAdapter(VerdictOut)


def create_app(
    runs: Mapping[str, Served],
    store: Store,
    *,
    hosts: tuple[str, ...] | None = LOOPBACK,
    token: str | None = None,
) -> FastAPI:
    """Build the service over some runs; `hosts` are the names it answers to, None: any."""
    workers = ThreadPoolExecutor(2, thread_name_prefix="serve")
    patient = ThreadPoolExecutor(1, thread_name_prefix="serve-long")  # what takes long waits here
    jobs = Jobs()

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        jobs.close()
        for pool in (workers, patient):
            pool.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(
        title="puda",
        version=__version__,
        summary="Which facts are probably missing, how probable, and why.",
        openapi_url=f"{API}/openapi.json",
        docs_url=None,  # they load scripts from the internet
        redoc_url=None,
        lifespan=life,
    )
    app.add_middleware(Guard, hosts=hosts, token=token)
    app.include_router(_api(runs, store, jobs, workers, patient), prefix=API)
    _add_errors(app)
    _add_page(app)
    return app


def _api(
    runs: Mapping[str, Served],
    store: Store,
    jobs: Jobs,
    workers: ThreadPoolExecutor,
    patient: ThreadPoolExecutor,
) -> APIRouter:
    api = APIRouter(responses={"4XX": {"model": Problem}})

    async def work(task: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(workers, task)

    async def find_run(run: str) -> Served:  # async: others take a thread
        if run not in runs:
            raise HTTPException(404, f"no run {run!r} is served: {', '.join(runs)}")
        return runs[run]

    async def find_job(job: str) -> Job:
        found = jobs.get(job)
        if found is None:
            raise HTTPException(404, "there is no such job: it may be forgotten")
        return found

    async def find(vocabulary: Vocabulary, text: str | None) -> tuple[int, str]:
        """Return the id and the label that are meant; what is not exact takes a look at all."""
        sought = text or ""
        found = vocabulary.find(sought) if sought in vocabulary else None
        if found is None:
            found = await work(lambda: vocabulary.find(sought))
        return found, vocabulary.labels[found]

    ARun = Annotated[Served, Depends(find_run)]
    AJob = Annotated[Job, Depends(find_job)]

    @api.get("/runs")
    async def list_runs() -> list[RunInfo]:
        """List the runs that are served."""
        return [served.info for served in runs.values()]

    @api.get("/runs/{run}/search", response_model=list[Found])
    async def search(
        served: ARun,
        text: Annotated[str, Query(max_length=200, description="What was typed so far.")] = "",
        kind: Literal["entity", "relation"] = "entity",
        k: Number = 8,
    ) -> Response:
        """Find entities or relations by what was typed of them; typos are forgiven."""
        index = served.search[kind]
        found = await work(lambda: index.find(text, k))
        return _written(
            FOUND, [Found(label=index.labels[i], facts=int(index.weight[i])) for i in found]
        )

    @api.get("/runs/{run}/predict", response_model=Predicted)
    async def predict(
        served: ARun,
        head: Label | None = None,
        relation: Label | None = None,
        tail: Label | None = None,
        k: Number = 10,
        offset: Offset = 0,
        include_known: bool = False,
        minimum: Annotated[
            Share | None, Query(description="Leave out answers that are less probable.")
        ] = None,
    ) -> Response:
        """Complete a fact of which two parts are given, as `puda predict` does."""
        if [head, relation, tail].count(None) != 1:
            raise PudaError("give two of head, relation and tail: the third is predicted")
        if minimum is not None:
            _ = served.calibration
        graph, anchor, about = served.graph, -1, -1
        if head is not None:
            anchor, head = await find(graph.entities, head)
        if tail is not None:
            anchor, tail = await find(graph.entities, tail)
        if relation is not None:
            about, relation = await find(graph.relations, relation)
            side = Side.TAIL if tail is None else Side.HEAD
            found = await served.desk.ask(
                Asked(anchor, about, side, k, offset, include_known=include_known)
            )
        else:
            found = await work(
                lambda: served.run.predict(
                    head=head, tail=tail, k=offset + k, include_known=include_known
                )
            )
            found = found[offset:]
        predicted = Predicted(
            head=head,
            relation=relation,
            tail=tail,
            answers=[
                PredictedFact.model_construct(**each._asdict())
                for each in found
                if minimum is None or (each.probability or 0) >= minimum
            ],
            more=bool(found) and found[-1].margin is not None,
            promise=served.run.promise(head=head, relation=relation, tail=tail),
        )
        return _written(PREDICTED, predicted)

    @api.get("/runs/{run}/explain")
    async def explain(
        served: ARun,
        head: Label,
        relation: Label,
        tail: Label,
        k: Annotated[int, Query(ge=1, le=20, description="How many reasons of each kind.")] = 5,
    ) -> Explanation:
        """Say what speaks for a fact: rules with paths, facts like it, what it was learned from."""
        return await work(lambda: served.explain(head, relation, tail, k=k))

    @api.get("/runs/{run}/entity")
    async def entity(served: ARun, entity: Label, k: Number = 100, offset: Offset = 0) -> Entity:
        """Say what is known of an entity, and which others are most like it."""
        return await work(lambda: served.entity(entity, k=k, offset=offset))

    @api.get("/runs/{run}/entity/predictions")
    async def entity_predictions(
        served: ARun,
        entity: Label,
        relation: Label | None = None,
        k: Number = 10,
        minimum: Share | None = None,
    ) -> list[PredictedFact]:
        """Predict the missing facts of an entity, most probable first."""
        found = await work(lambda: served.missing(entity, relation, k))
        return [
            PredictedFact.model_validate(each)
            for each in found
            if minimum is None or (each.probability or 0) >= minimum
        ]

    @api.get("/runs/{run}/metrics")
    async def metrics(served: ARun) -> Measured:
        """Return all that was measured of a run: figures, learning curve, settings."""
        return await work(
            lambda: Measured(
                metrics=served.run.metrics,
                curve=served.curve(),
                settings=served.trained.config.model_dump(),
            )
        )

    @api.get("/runs/{run}/reliability")
    async def reliability(served: ARun) -> Reliable:
        """Compare probabilities with what is true of the test facts; the first call takes long."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(patient, lambda: served.reliability)
        bins = [ReliabilityBin(probability=p, true=t, count=n) for p, t, n in found.bins]
        return Reliable(bins=bins, error=found.ece, brier=found.brier)

    @api.get("/runs/{run}/queue")
    async def queue(
        served: ARun,
        author: Annotated[str, Query(max_length=100)] = "",
        relation: Label | None = None,
        k: Number = 10,
    ) -> list[Review]:
        """Return predicted facts without a verdict, those from which most is learned first."""
        _ = served.calibration
        only = None if relation is None else served.graph.relations.find(relation)

        def choose() -> list[Review]:
            judged = {
                each.fact
                for each in store.latest(served.graph.name)
                if each.verdict != "unsure" or each.author == author
            }
            items = served.reviews.next(k, judged.__contains__, only)
            return [
                Review(
                    head=item.fact[0],
                    relation=item.fact[1],
                    tail=item.fact[2],
                    probability=item.probability,
                    information=item.information,
                )
                for item in items
            ]

        return await work(choose)

    @api.post("/runs/{run}/verdicts", status_code=201, response_model=VerdictOut)
    def add_verdict(served: ARun, said: VerdictIn) -> Response:
        """Keep a verdict; once this has answered, it is on the disk."""
        graph = served.graph
        verdict = Verdict(
            head=graph.entities.labels[graph.entities.find(said.head)],
            relation=graph.relations.labels[graph.relations.find(said.relation)],
            tail=graph.entities.labels[graph.entities.find(said.tail)],
            verdict=said.verdict,
            author=said.author.strip(),
            note=said.note.strip(),
            graph=graph.name,
        )
        kept = store.add(verdict, run=served.name, data=graph.fingerprint)
        return _written(KEPT, VerdictOut.model_validate(kept), status=201)

    @api.get("/runs/{run}/verdicts")
    def list_verdicts(
        served: ARun,
        head: Label | None = None,
        relation: Label | None = None,
        tail: Label | None = None,
        author: Annotated[str | None, Query(max_length=100)] = None,
        k: Number = 100,
        offset: Offset = 0,
    ) -> Verdicts:
        """List the last words of all authors on facts of the run's graph, newest first."""
        parts = {"head": head, "relation": relation, "tail": tail, "author": author}
        total, found = store.page(served.graph.name, offset=offset, k=k, **parts)
        return Verdicts(total=total, verdicts=[VerdictOut.model_validate(each) for each in found])

    @api.get("/runs/{run}/verdicts/export", response_class=PlainTextResponse)
    def export_verdicts(served: ARun, format: Format = "tsv") -> Response:
        """Return all last words as a file for `puda train --verdicts`."""
        text = verdicts.write(store.latest(served.graph.name), format)
        return _file(text, f"verdicts.{format}")

    @api.post("/runs/{run}/jobs", status_code=202)
    async def add_job(served: ARun, wanted: JobIn) -> JobOut:
        """Start to look for the most plausible missing facts of the whole graph."""
        if wanted.minimum is not None:
            _ = served.calibration
        return jobs.add(served, wanted).show()

    @api.get("/jobs")
    async def list_jobs() -> list[JobOut]:
        """List the jobs that are remembered, newest first."""
        return [job.show() for job in jobs.all()]

    @api.get("/jobs/{job}")
    async def show_job(job: AJob) -> JobOut:
        """Say how far a job is."""
        return job.show()

    @api.delete("/jobs/{job}")
    async def cancel_job(job: AJob) -> JobOut:
        """Cancel a job; one that runs stops after the relation it is at."""
        job.unwanted = True
        return job.show()

    @api.get("/jobs/{job}/facts")
    async def job_facts(
        job: AJob, k: Number = 50, offset: Annotated[int, Query(ge=0, le=100_000)] = 0
    ) -> Completed:
        """Return facts that a finished job found, best first."""
        rows = job.facts.slice(offset, k).to_dicts()
        facts = [CompletedFact(**{"probability": None, **row}) for row in rows]
        return Completed(total=len(job.facts), facts=facts)

    @api.get("/jobs/{job}/export", response_class=PlainTextResponse)
    async def export_job(job: AJob, format: Format = "tsv") -> Response:
        """Return all facts that a finished job found as a file."""
        facts = job.facts
        text = facts.write_ndjson() if format == "jsonl" else facts.write_csv(separator="\t")
        return _file(text if facts.width else "", f"missing.{format}")

    return api


def _written(kind: TypeAdapter[T], value: T, *, status: int = 200) -> Response:
    """Write an answer by its own model; FastAPI would check it again, for as long as scoring."""
    return Response(kind.dump_json(value), status, media_type="application/json")


def _file(text: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return PlainTextResponse(text, headers=headers)


def _add_errors(app: FastAPI) -> None:
    """Answer every error by {"error": what is wrong}."""

    @app.exception_handler(PudaError)
    async def puda_error(_: Request, error: PudaError) -> JSONResponse:
        status = next(status for kind, status in STATUS if isinstance(error, kind))
        return _problem(status, str(error))

    @app.exception_handler(StarletteHTTPException)
    async def http_error(_: Request, error: StarletteHTTPException) -> JSONResponse:
        problem = _problem(error.status_code, str(error.detail))
        problem.headers.update(error.headers or {})
        return problem

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "the body"
        return _problem(422, f"{where}: {first['msg'].lower()}")

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> JSONResponse:
        logging.getLogger("puda.serve").error("unexpected error", exc_info=error)
        return _problem(500, "an unexpected error: see what puda serve printed")


def _problem(status: int, reason: str) -> JSONResponse:
    return JSONResponse({"error": reason.encode("utf-8", "replace").decode()}, status)


def _add_page(app: FastAPI) -> None:
    @app.get("/{name}", include_in_schema=False)
    async def page(name: str) -> Response:
        if name not in PAGE:
            raise HTTPException(404, "there is no such page")
        return Response(PAGE[name], media_type=guess_type(name)[0])

    @app.get("/", include_in_schema=False)
    async def start() -> Response:
        return Response(PAGE["index.html"], media_type="text/html")
