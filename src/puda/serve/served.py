"""One run as it is served: what its pages show, each found once and kept."""

from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from puda.api import Run
from puda.calibrate import check
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.errors import PudaError
from puda.evaluation.calibration import Reliability
from puda.serve.answers import Answers, Asked
from puda.serve.backroom import Backroom
from puda.serve.desk import Desk
from puda.serve.models import CurvePoint, Entity, KnownFact, RunInfo, Similar
from puda.serve.review import Reviews
from puda.serve.search import Search
from puda.types import Ids, Prediction, Side

ALIKE = 10  # entities that are shown as similar, and whose relations an entity may have as well
PLACES = 64  # relations and sides in which an entity's missing facts are looked for
EACH = 3  # facts looked for in each of them
CHECKED = 25_000  # candidates for test questions that a reliability diagram is made of


class NotCalibrated(PudaError):
    """A run without probabilities was asked for some."""


class Served:
    """A run, its answers, its searches and its queue of facts to review."""

    def __init__(self, name: str, run: Run, backroom: Backroom | None = None) -> None:
        self.name, self.run = name, run
        self.trained = run.trained
        self.graph: KnowledgeGraph = run.trained.graph
        self.answers = Answers(run)
        self.desk = Desk(self.answers, name=name, backroom=backroom)
        self.reviews = Reviews(self.answers)
        self.explain = lru_cache(maxsize=512)(run.explain)
        self.missing = lru_cache(maxsize=512)(self._missing)
        ends, relations = self._counts()
        self.search = {
            "entity": Search(self.graph.entities, ends),
            "relation": Search(self.graph.relations, relations),
        }

    @cached_property
    def info(self) -> RunInfo:
        """Say what the run is."""
        config, metrics = self.trained.config, self.run.metrics
        best: dict[str, Any] = metrics.get("test") or metrics.get("valid") or {}
        return RunInfo(
            name=self.name,
            graph=self.graph.name,
            entities=self.graph.num_entities,
            relations=self.graph.num_relations,
            facts=sum(len(self.graph.facts(split)) for split in SPLITS),
            scoring=config.scoring.name,
            dim=config.scoring.dim,
            objective=config.objective.name,
            calibrated=self.answers.calibration is not None,
            mrr=best.get("both", {}).get("mrr"),
        )

    def entity(self, label: str, *, k: int, offset: int) -> Entity:
        """Say what is known of an entity, training facts first."""
        entity, labels = self.graph.entities.find(label), self.graph.entities.labels
        found = [
            (split, facts[(facts[:, [0, 2]] == entity).any(axis=1)])
            for split, facts in ((split, self.graph.facts(split)) for split in SPLITS)
        ]
        rows = [(split, *fact) for split, facts in found for fact in facts.tolist()]
        return Entity(
            entity=labels[entity],
            num_facts=len(rows),
            facts=[
                KnownFact(
                    head=labels[head],
                    relation=self.graph.relations.labels[relation],
                    tail=labels[tail],
                    split=split,
                )
                for split, head, relation, tail in rows[offset : offset + k]
            ],
            similar=[
                Similar(entity=labels[other], similarity=likeness)
                for other, likeness in self._similar(entity)
            ],
        )

    def _missing(self, label: str, relation: str | None, k: int) -> list[Prediction]:
        """Predict facts of an entity, most probable first; best scores first where not calibrated.

        Looked for in the places (a relation and a side) in which it stands, or entities like it do.
        """
        entity = self.graph.entities.find(label)
        only = None if relation is None else self.graph.relations.find(relation)
        alike = [entity, *(other for other, _ in self._similar(entity))]
        places: dict[tuple[int, Side], int] = {}
        for split in SPLITS:
            facts = self.graph.facts(split)
            for side, column in ((Side.TAIL, 0), (Side.HEAD, 2)):
                stands = facts[np.isin(facts[:, column], alike)][:, [column, 1]]
                for own, where in np.unique(stands, axis=0).tolist():
                    if only in (None, where):
                        weight = len(alike) if own == entity else 1
                        places[where, side] = places.get((where, side), 0) + weight
        likely = sorted(places, key=lambda place: (-places[place], place))[:PLACES]
        asked = [Asked(entity, where, side, EACH) for where, side in likely]
        found = [fact for facts in self.answers.answer(asked) for fact in facts]
        distinct = {(fact.head, fact.relation, fact.tail): fact for fact in found}
        calibrated = self.answers.calibration is not None
        return sorted(
            distinct.values(),
            key=lambda fact: fact.probability or 0.0 if calibrated else fact.score,
            reverse=True,
        )[:k]

    def _similar(self, entity: int) -> list[tuple[int, float]]:
        """Return the entities whose rows are most alike, by cosine."""
        rows = self.trained.rows
        cosines = (rows @ rows[entity] / self._lengths / self._lengths[entity]).numpy()
        cosines[entity] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: min(ALIKE, len(cosines) - 1)]
        return [(int(other), float(cosines[other])) for other in best]

    @cached_property
    def _lengths(self) -> Any:
        return self.trained.rows.norm(dim=1).clamp(min=1e-12)

    def curve(self) -> list[CurvePoint]:
        """Return the validations of the training."""
        return [
            CurvePoint(epoch=event["epoch"], seconds=event["seconds"], **event["mrr"])
            for event in self.run.folder.trace()
            if event.get("event") == "validation"
        ]

    @cached_property
    def reliability(self) -> Reliability:
        """Compare probabilities with what is true of the test facts; takes a while."""
        return check(self.trained, self.calibration, candidates=CHECKED)

    @property
    def calibration(self) -> Any:
        """How scores become probabilities."""
        if self.answers.calibration is None:
            raise NotCalibrated(
                f"the run {self.name} has no probabilities: puda calibrate {self.name}, then serve"
                " it again"
            )
        return self.answers.calibration

    def _counts(self) -> tuple[Ids, Ids]:
        """Count the facts of each entity and of each relation."""
        facts = np.concatenate([self.graph.facts(split) for split in SPLITS])
        return (
            np.bincount(facts[:, [0, 2]].ravel(), minlength=self.graph.num_entities),
            np.bincount(facts[:, 1], minlength=self.graph.num_relations),
        )
