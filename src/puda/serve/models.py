"""What goes over the wire, version 1."""

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from puda.verdicts import Judgement

API = "/api/v1"

Label = Annotated[str, Query(min_length=1, max_length=4_000, description="A label, or its start.")]
Number = Annotated[int, Query(ge=1, le=100, description="How many.")]
Offset = Annotated[int, Query(ge=0, le=10_000, description="How many to pass over.")]
Share = Annotated[float, Query(ge=0, le=1, allow_inf_nan=False)]
Format = Literal["tsv", "jsonl"]

PLAIN = r"^[^\x00-\x08\x0b-\x1f\x7f]*$"
"""Text without control characters but for tabs and line ends."""


class Problem(BaseModel):
    """Why a request was not answered."""

    error: str


class RunInfo(BaseModel):
    """A run that is served."""

    name: str
    graph: str
    entities: int
    relations: int
    facts: int
    scoring: str
    dim: int
    objective: str
    calibrated: bool
    mrr: float | None = Field(description="Of both sides on test facts, else on validation facts.")


class Found(BaseModel):
    """A label that fits what was typed."""

    label: str
    facts: int = Field(description="Known facts that it is part of.")


class PredictedFact(BaseModel):
    """One completion of a fact, as puda.types.Prediction."""

    model_config = ConfigDict(from_attributes=True)

    head: str
    relation: str
    tail: str
    score: float
    rank: int
    known: bool
    margin: float | None
    probability: float | None
    agreement: int | None = None
    members: int | None = None


class Predicted(BaseModel):
    """Answers to a question, best first."""

    head: str | None
    relation: str | None
    tail: str | None
    answers: list[PredictedFact]
    more: bool = Field(description="Whether there are further answers behind these.")
    promise: float | None = Field(
        description="So many first answers hold the true one with 90 %; null: not known."
    )


class KnownFact(BaseModel):
    """A fact of the graph."""

    head: str
    relation: str
    tail: str
    split: str


class Similar(BaseModel):
    """An entity and how much its row is like another's."""

    entity: str
    similarity: float


class Entity(BaseModel):
    """What is known of an entity."""

    entity: str
    num_facts: int
    facts: list[KnownFact]
    similar: list[Similar]


class Review(BaseModel):
    """A predicted fact worth a verdict."""

    head: str
    relation: str
    tail: str
    probability: float
    information: float = Field(description="Bits that a verdict is expected to give.")


class CurvePoint(BaseModel):
    """A validation during training."""

    epoch: int
    seconds: float
    tail: float
    head: float
    both: float


class Measured(BaseModel):
    """All that was measured of a run; `metrics` is the run's metrics.json."""

    metrics: dict[str, Any]
    curve: list[CurvePoint]
    settings: dict[str, Any]


class ReliabilityBin(BaseModel):
    """Predictions of about one probability."""

    probability: float
    true: float
    count: int


class Reliable(BaseModel):
    """How probabilities compare with what is true of the test facts."""

    bins: list[ReliabilityBin]
    error: float = Field(description="Expected calibration error.")
    brier: float


class VerdictIn(BaseModel):
    """What someone says of a fact."""

    model_config = ConfigDict(extra="forbid")

    head: str = Field(min_length=1, max_length=4_000)
    relation: str = Field(min_length=1, max_length=4_000)
    tail: str = Field(min_length=1, max_length=4_000)
    verdict: Judgement
    author: str = Field("", max_length=100, pattern=PLAIN)
    note: str = Field("", max_length=2_000, pattern=PLAIN)


class VerdictOut(VerdictIn):
    """A verdict as it is kept."""

    model_config = ConfigDict(from_attributes=True)

    time: str
    graph: str


class Verdicts(BaseModel):
    """Last words of all authors, newest first."""

    total: int
    verdicts: list[VerdictOut]


class JobIn(BaseModel):
    """A completion of the whole graph."""

    model_config = ConfigDict(extra="forbid")

    top: int = Field(1_000, ge=1, le=100_000)
    per_relation: int | None = Field(None, ge=1, le=100_000)
    minimum: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    relations: list[Annotated[str, Field(min_length=1, max_length=4_000)]] | None = Field(
        None, min_length=1, max_length=100
    )


class JobOut(BaseModel):
    """How far a completion is."""

    id: str
    run: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    done: int
    of: int
    facts: int
    error: str | None


class CompletedFact(BaseModel):
    """A fact that a completion found."""

    head: str
    relation: str
    tail: str
    score: float
    probability: float | None
    rank: int


class Completed(BaseModel):
    """Facts that a completion found, best first."""

    total: int
    facts: list[CompletedFact]
