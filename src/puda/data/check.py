"""What a graph looks like before anything is trained on it, and what in it deserves attention.

Leaks, unseen entities and repeated relations decide how far any later number can be trusted, so
they are measured here, from the facts alone. Held-out facts are compared with the training facts;
connectivity and degrees are those of the training facts, all that a model sees; the nature of a
relation (category, traits, overlaps) is that of its facts in all splits together.
"""

from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from puda.data.categories import FACT, Floats, categorize, fan_out
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.types import Facts, Ids

OVERLAP = 0.8  # share of the smaller relation's pairs from which it repeats the larger
FUNCTIONAL = 0.99  # share of heads with exactly one tail: leaves room for errors in the data
MIN_FACTS = 5  # fewer facts, or shared pairs, may look like anything by accident
CONNECTED = 0.95  # share of entities in the largest part below which a warning is due
SPARSE = 1 / 3  # share of entities with a single training fact from which a warning is due
NUM_SHOWN = 10  # examples, hubs and parts named in the report

HELD_OUT = SPLITS[1:]


@dataclass(frozen=True)
class RelationPair:
    """Two relations of which one mostly repeats the other's (head, tail) pairs, or mirrors them.

    Mostly: they share at least 5 pairs and 80% of the pairs of the smaller, self-loops aside. Both
    shares near 1 make them equals; one alone makes the smaller a special case of the larger.
    """

    first: str
    second: str
    shared: int  # pairs
    share_of_first: float
    share_of_second: float


@dataclass(frozen=True)
class RelationProfile:
    """How often a relation is used and how it behaves.

    Functional: at least 99% of its heads have exactly one tail. Symmetric: at least 80% of its
    facts, self-loops aside, have their mirror. Neither is said of fewer than 5 facts.
    """

    label: str
    train: int
    valid: int
    test: int
    category: str  # see puda.data.categories
    functional_share: float  # of its heads that have exactly one tail
    inverse_functional_share: float  # of its tails that have exactly one head
    symmetric_share: float  # of its facts that have their mirror
    traits: list[str]  # of "functional", "inverse functional", "symmetric"


@dataclass(frozen=True)
class Unseen:
    """What a held-out split mentions and the training facts do not."""

    entities: int
    entity_facts: int  # held-out facts with an unseen entity
    relations: int
    relation_facts: int
    examples: list[str]  # entities


@dataclass(frozen=True)
class Parts:
    """The weakly connected components of the training facts."""

    count: int
    largest: list[int]  # entities in each, largest first
    share: float  # of the entities with a training fact that are in the largest


@dataclass(frozen=True)
class DegreeBucket:
    """How many entities occur low to high times (both included) in training facts."""

    low: int
    high: int
    entities: int


@dataclass(frozen=True)
class Report:
    """All that `check` found, as plain data."""

    name: str
    num_entities: int
    num_relations: int
    num_facts: dict[str, int]  # split -> facts
    duplicates: int  # dropped when the graph was built
    self_loops: int  # facts, over all splits
    self_loop_examples: list[tuple[str, str, str]]
    repeated: dict[str, int]  # "train+test" -> facts that are in both
    duplicate_relations: list[RelationPair]  # by falling number of shared pairs
    inverse_relations: list[RelationPair]
    symmetric_relations: list[str]
    leaks: dict[str, int]  # held-out split -> facts restated in train by the relations above
    unseen: dict[str, Unseen]  # held-out split -> what training never shows
    parts: Parts
    degrees: list[DegreeBucket]
    hubs: list[tuple[str, int]]  # the entities of highest degree, and their degree
    relations: list[RelationProfile]  # by falling number of training facts

    def to_dict(self) -> dict[str, Any]:
        """Return the report as data that `json` can write."""
        return asdict(self)

    def warnings(self) -> list[str]:
        """Say in plain English what deserves attention, what it means and what to do."""
        said = []
        if self.duplicates:
            said.append(
                f"Reading dropped {_count(self.duplicates, 'fact')} that occurred before in the "
                "same split. Nothing needs doing, unless the file should hold no copies."
            )
        if self.self_loops:
            said.append(
                f"The graph links an entity to itself in {_count(self.self_loops, 'fact')}, e.g. "
                f"'{' '.join(self.self_loop_examples[0])}'. Often that is a join gone wrong; "
                "remove what is not meant."
            )
        for first, second in combinations(SPLITS, 2):
            if number := self.repeated[f"{first}+{second}"]:
                said.append(
                    f"The {second} split repeats {self._part(number, second)} from {first}, which "
                    "asks for memory and not for prediction. Remove each from one of the two."
                )
        if self.duplicate_relations:
            said.append(
                f"The graph has {_count(len(self.duplicate_relations), 'pair')} of relations of "
                f"which one mostly repeats the other, e.g. {_name(self.duplicate_relations[0])}. "
                "The one gives the other away; merge them, or drop the smaller, before splitting "
                "the facts."
            )
        if self.inverse_relations:
            said.append(
                f"The graph has {_count(len(self.inverse_relations), 'pair')} of relations of "
                f"which one mostly mirrors the other, e.g. {_name(self.inverse_relations[0])}. The "
                "one gives the other away; drop the smaller before splitting the facts."
            )
        for split, number in self.leaks.items():
            if number:
                said.append(
                    f"Training restates {self._part(number, split)} of {split} through duplicate, "
                    "inverse or symmetric relations. Copying would find them, so scores flatter "
                    "any model; compare with the inverse-rule baseline, or split so that facts "
                    "that give each other away stay together."
                )
        for split, unseen in self.unseen.items():
            if unseen.entities:
                said.append(
                    f"Training never shows {_count(unseen.entities, 'entity', 'entities')} of "
                    f"{split}, e.g. '{unseen.examples[0]}', which leaves "
                    f"{self._part(unseen.entity_facts, split)} to guesswork. Add training facts "
                    f"about them, or expect lower scores on {split}."
                )
            if unseen.relations:
                said.append(
                    f"Training never shows {_count(unseen.relations, 'relation')} of {split}, "
                    f"which leaves {self._part(unseen.relation_facts, split)} to guesswork. Add "
                    "training facts with them, or leave them out."
                )
        if self.parts.share < CONNECTED:
            said.append(
                f"Training facts form {self.parts.count:,} unconnected parts, the largest with "
                f"{self.parts.share:.1%} of the entities. Little is known across parts; check that "
                "the same thing has the same name everywhere."
            )
        single = sum(bucket.entities for bucket in self.degrees if bucket.low == 1)
        if single >= SPARSE * self.num_entities:
            said.append(
                f"Training shows {_count(single, 'entity', 'entities')} "
                f"({single / self.num_entities:.1%}) only once. Predictions about them are weak; "
                "add facts, or trust those about better-known entities first."
            )
        return said

    def _part(self, number: int, split: str) -> str:
        return f"{_count(number, 'fact')} ({100 * number / self.num_facts[split]:.3g}%)"


def check(graph: KnowledgeGraph) -> Report:
    """Measure a graph: sizes, flaws, leaks, connectivity, degrees and the nature of relations."""
    splits = {split: _frame(graph.facts(split)) for split in SPLITS}
    train = splits["train"]
    facts = pl.concat(splits.values()).unique()
    is_loop = pl.col("head") == pl.col("tail")
    linked, loops = facts.filter(~is_loop), facts.filter(is_loop).sort(FACT)
    sizes = np.bincount(linked["relation"], minlength=graph.num_relations)
    same, swapped = _overlaps(linked, ["head", "tail"]), _overlaps(linked, ["tail", "head"])
    mirrored = np.zeros_like(sizes)
    itself = swapped.filter(pl.col("first") == pl.col("second"))
    mirrored[itself["first"]] = itself["shared"]
    symmetric = (mirrored >= MIN_FACTS) & (mirrored >= OVERLAP * sizes)
    duplicate, inverse = _select_alike(same, sizes), _select_alike(swapped, sizes)
    rules = _rules(duplicate, inverse, np.flatnonzero(symmetric))
    degree = np.bincount(graph.train[:, [0, 2]].ravel(), minlength=graph.num_entities)
    entity, relation = graph.entities.labels, graph.relations.labels

    def label_pairs(pairs: pl.DataFrame) -> list[RelationPair]:
        return [
            RelationPair(
                first=relation[first],
                second=relation[second],
                shared=shared,
                share_of_first=shared / int(sizes[first]),
                share_of_second=shared / int(sizes[second]),
            )
            for first, second, shared in pairs.iter_rows()
        ]

    return Report(
        name=graph.name,
        num_entities=graph.num_entities,
        num_relations=graph.num_relations,
        num_facts={split: len(frame) for split, frame in splits.items()},
        duplicates=graph.duplicates,
        self_loops=len(loops),
        self_loop_examples=[
            (entity[h], relation[r], entity[t]) for h, r, t in loops.head(NUM_SHOWN).iter_rows()
        ],
        repeated={
            f"{first}+{second}": len(splits[second].join(splits[first], on=FACT, how="semi"))
            for first, second in combinations(SPLITS, 2)
        },
        duplicate_relations=label_pairs(duplicate),
        inverse_relations=label_pairs(inverse),
        symmetric_relations=[relation[r] for r in np.flatnonzero(symmetric)],
        leaks={split: _count_leaks(splits[split], train, rules) for split in HELD_OUT},
        unseen={split: _find_unseen(graph, split) for split in HELD_OUT},
        parts=_measure_parts(graph.train, degree),
        degrees=_bucket(degree),
        hubs=[(entity[e], int(degree[e])) for e in np.argsort(-degree, kind="stable")[:NUM_SHOWN]],
        relations=_profile(graph, facts, symmetric, mirrored / np.maximum(sizes, 1)),
    )


def components(facts: Facts, num_entities: int) -> Ids:
    """Name the weakly connected component of each entity by its smallest entity; returns (E,).

    Each round hangs every root under the smallest root that a fact links it to, then pointer
    jumping flattens the trees. Two rounds at least halve the roots that still have neighbours.
    """
    root = np.arange(num_entities)
    one, other = facts[:, 0], facts[:, 2]
    while len(one):
        one, other = root[one], root[other]
        apart = one != other
        one, other = one[apart], other[apart]
        np.minimum.at(root, np.maximum(one, other), np.minimum(one, other))
        while not np.array_equal(root, above := root[root]):
            root = above
    return root


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _name(pair: RelationPair) -> str:
    return (
        f"'{pair.first}' and '{pair.second}' ({_count(pair.shared, 'shared pair')}, "
        f"{pair.share_of_first:.0%} and {pair.share_of_second:.0%} of theirs)"
    )


def _frame(facts: Facts) -> pl.DataFrame:
    return pl.DataFrame(facts, schema=dict.fromkeys(FACT, pl.Int64), orient="row")


def _overlaps(linked: pl.DataFrame, ends: list[str]) -> pl.DataFrame:
    """Count the entity pairs that any two relations share: columns first <= second, shared."""
    first = linked.lazy().rename({"relation": "first"})
    second = linked.lazy().rename({"relation": "second"})
    return (
        first.join(second, left_on=["head", "tail"], right_on=ends)
        .filter(pl.col("first") <= pl.col("second"))  # the mirror image says the same
        .group_by("first", "second")
        .agg(pl.len().cast(pl.Int64).alias("shared"))
        .collect(engine="streaming")  # relations that repeat each other make huge joins
    )


def _select_alike(overlaps: pl.DataFrame, sizes: Ids) -> pl.DataFrame:
    """Keep two different relations if they share most pairs of the smaller; most shared first."""
    smaller = np.minimum(sizes[overlaps["first"]], sizes[overlaps["second"]])
    return overlaps.filter(
        pl.col("first") < pl.col("second"),
        pl.col("shared") >= MIN_FACTS,
        pl.col("shared") >= OVERLAP * pl.Series(smaller),
    ).sort("shared", "first", "second", descending=[True, False, False])


def _rules(duplicate: pl.DataFrame, inverse: pl.DataFrame, symmetric: Ids) -> pl.DataFrame:
    """List which relation is given away by which source, and whether head and tail swap."""
    itself = pl.DataFrame({"first": symmetric, "second": symmetric})
    both = [
        pairs.select(pl.col(relation).alias("relation"), pl.col(source).alias("source"), swap=swap)
        for pairs, swap in ((duplicate, False), (inverse, True), (itself, True))
        for relation, source in (("first", "second"), ("second", "first"))
    ]
    return pl.concat(both)


def _count_leaks(held_out: pl.DataFrame, train: pl.DataFrame, rules: pl.DataFrame) -> int:
    """Count the held-out facts that a rule derives from a training fact."""
    source = held_out.join(rules, on="relation").with_columns(
        source_head=pl.when("swap").then("tail").otherwise("head"),
        source_tail=pl.when("swap").then("head").otherwise("tail"),
    )
    key = ["source_head", "source", "source_tail"]
    return source.join(train, left_on=key, right_on=FACT, how="semi").select(FACT).n_unique()


def _find_unseen(graph: KnowledgeGraph, split: str) -> Unseen:
    facts, ends = graph.facts(split), graph.facts(split)[:, [0, 2]]
    new_entity = ~np.isin(ends, graph.train[:, [0, 2]])  # (n, 2)
    new_relation = ~np.isin(facts[:, 1], graph.train[:, 1])
    entities = np.unique(ends[new_entity])
    return Unseen(
        entities=len(entities),
        entity_facts=int(new_entity.any(axis=1).sum()),
        relations=len(np.unique(facts[new_relation, 1])),
        relation_facts=int(new_relation.sum()),
        examples=[graph.entities.labels[e] for e in entities[:NUM_SHOWN]],
    )


def _measure_parts(train: Facts, degree: Ids) -> Parts:
    # An entity without a training fact is unseen rather than a part of its own.
    of_entity = components(train, len(degree))[degree > 0]
    sizes = np.sort(np.unique(of_entity, return_counts=True)[1])[::-1]
    return Parts(
        count=len(sizes),
        largest=sizes[:NUM_SHOWN].tolist(),
        share=float(sizes[0] / sizes.sum()),
    )


def _bucket(degree: Ids) -> list[DegreeBucket]:
    """Count entities by degree: 0, 1, 2-3, 4-7, ... (a self-loop adds two)."""
    exponent = np.frexp(degree)[1]  # 0 for 0, else k for 2^(k-1) <= degree < 2^k
    return [
        DegreeBucket(low=2**k // 2, high=2**k - 1, entities=number)
        for k, number in enumerate(np.bincount(exponent).tolist())
    ]


def _profile(
    graph: KnowledgeGraph, facts: pl.DataFrame, symmetric: NDArray[np.bool_], share: Floats
) -> list[RelationProfile]:
    """Describe each relation; `symmetric` (R,) and its `share` (R,) of mirrored facts are given."""
    heads_per_tail, inverse_functional = fan_out(facts, "tail", graph.num_relations)
    tails_per_head, functional = fan_out(facts, "head", graph.num_relations)
    category = categorize(heads_per_tail, tails_per_head)
    used = {k: np.bincount(graph.facts(k)[:, 1], minlength=graph.num_relations) for k in SPLITS}
    enough = np.bincount(facts["relation"], minlength=graph.num_relations) >= MIN_FACTS
    traits = {
        "functional": enough & (functional >= FUNCTIONAL),
        "inverse functional": enough & (inverse_functional >= FUNCTIONAL),
        "symmetric": symmetric,
    }
    return [
        RelationProfile(
            label=graph.relations.labels[r],
            **{split: int(number[r]) for split, number in used.items()},
            category=category[r],
            functional_share=float(functional[r]),
            inverse_functional_share=float(inverse_functional[r]),
            symmetric_share=float(share[r]),
            traits=[trait for trait, holds in traits.items() if holds[r]],
        )
        for r in np.argsort(-used["train"], kind="stable")
    ]
