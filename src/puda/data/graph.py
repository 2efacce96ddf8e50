"""The knowledge graph: facts as ids in three splits, frozen, with its indexes of known answers."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl

from puda.data.index import KnownAnswers
from puda.data.vocabulary import Vocabulary
from puda.errors import DataError
from puda.types import Facts

Labelled = pl.DataFrame | Iterable[tuple[str, str, str]]
"""Facts by label: a frame with the columns head, relation, tail, or triples of labels."""

SPLITS = ("train", "valid", "test")


def frame_of(facts: Labelled) -> pl.DataFrame:
    """Return facts as a frame of labels with the columns head, relation and tail."""
    if isinstance(facts, pl.DataFrame):
        return facts.select("head", "relation", "tail")
    schema = dict.fromkeys(("head", "relation", "tail"), pl.String)
    return pl.DataFrame(list(facts), schema=schema, orient="row")


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """Facts over entities and relations, split into train, valid and test."""

    name: str
    entities: Vocabulary
    relations: Vocabulary
    train: Facts
    valid: Facts
    test: Facts
    negatives: Mapping[str, Facts] = field(default_factory=dict)  # split -> annotated as untrue
    duplicates: int = 0  # facts that occurred more than once in a split, counted and dropped
    _indexes: dict[tuple[str, ...], KnownAnswers] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        for facts in (self.train, self.valid, self.test, *self.negatives.values()):
            facts.flags.writeable = False  # a change would escape the indexes

    @classmethod
    def from_facts(
        cls,
        train: Labelled,
        *,
        valid: Labelled = (),
        test: Labelled = (),
        negatives: Mapping[str, Labelled] | None = None,
        name: str = "graph",
    ) -> "KnowledgeGraph":
        """Build a graph from labelled facts; ids follow the order of the labels alone."""
        frames = {k: frame_of(v) for k, v in zip(SPLITS, (train, valid, test), strict=True)}
        untrue = {k: frame_of(v) for k, v in (negatives or {}).items()}
        if not len(frames["train"]):
            raise DataError(f"{name}: there is no training fact")
        everything = pl.concat([*frames.values(), *untrue.values()])
        entities = Vocabulary.of(everything["head"], everything["tail"], kind="entity")
        relations = Vocabulary.of(everything["relation"], kind="relation")

        def encode(frame: pl.DataFrame) -> Facts:
            distinct = frame.unique(maintain_order=True)
            columns = [
                entities.encode(distinct["head"]),
                relations.encode(distinct["relation"]),
                entities.encode(distinct["tail"]),
            ]
            facts = np.stack(columns, axis=1)
            return facts[np.lexsort(facts.T[::-1])]  # by head, relation, tail: input order is gone

        splits = [encode(frame) for frame in frames.values()]
        return cls(
            name,
            entities,
            relations,
            train=splits[0],
            valid=splits[1],
            test=splits[2],
            negatives={k: encode(v) for k, v in untrue.items()},
            duplicates=sum(map(len, frames.values())) - sum(map(len, splits)),
        )

    @property
    def num_entities(self) -> int:
        """Number of entities, those of valid, test and negatives included."""
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        """Number of relations."""
        return len(self.relations)

    def shares_labels(self, other: "KnowledgeGraph") -> bool:
        """Whether ids mean the same in another graph."""
        mine, theirs = (self.entities, self.relations), (other.entities, other.relations)
        return all(a.labels == b.labels for a, b in zip(mine, theirs, strict=True))

    def facts(self, split: str) -> Facts:
        """Return the facts of one split by its name."""
        if split not in SPLITS:
            raise DataError(f"no split {split!r}: choose one of {', '.join(SPLITS)}")
        found: Facts = getattr(self, split)
        return found

    def known(self, *splits: str) -> KnownAnswers:
        """Index the known answers of some splits, e.g. known("train", "valid")."""
        if splits not in self._indexes:
            facts = np.concatenate([self.facts(split) for split in splits])
            self._indexes[splits] = KnownAnswers(
                facts, num_entities=self.num_entities, num_relations=self.num_relations
            )
        return self._indexes[splits]

    @cached_property
    def reflexive(self) -> frozenset[int]:
        """Relations that link some entity with itself, in any split."""
        facts = np.concatenate([self.facts(split) for split in SPLITS])
        return frozenset(facts[facts[:, 0] == facts[:, 2], 1].tolist())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of labels and facts: equal for equal graphs, whatever files they came from."""
        digest = hashlib.sha256()

        def add(kind: str, content: bytes) -> None:
            digest.update(f"{kind} {len(content)}\n".encode() + content)  # lengths keep parts apart

        for vocabulary in (self.entities, self.relations):
            add(vocabulary.kind, json.dumps(vocabulary.labels).encode())
        facts = {split: self.facts(split) for split in SPLITS}
        facts |= {f"{split} negatives": self.negatives[split] for split in sorted(self.negatives)}
        for kind, rows in facts.items():
            add(kind, np.ascontiguousarray(rows, dtype="<i8").tobytes())
        return digest.hexdigest()
