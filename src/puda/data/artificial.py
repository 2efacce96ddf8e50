"""Graphs of any size that look like real ones: typed relations, and degrees that follow Zipf."""

import numpy as np

from puda.data.graph import KnowledgeGraph
from puda.data.vocabulary import Vocabulary
from puda.errors import DataError
from puda.types import Facts, Ids

SHAPES = {  # entities, relations, facts to train, valid and test facts each
    "fb15k-237": (14_541, 237, 272_115, 20_466),
    "openbiolink": (180_992, 28, 4_192_002, 3_000),
}
"""Graphs of which an artificial one of the same shape can be made."""


def artificial_graph(
    entities: int, relations: int, facts: int, held_out: int, *, seed: int = 0
) -> KnowledgeGraph:
    """Draw a graph of so many entities, relations, and facts to train, valid and test.

    Entities fall into types. A relation links one type with another; its share of the facts, and
    an entity's share of its type, fall as 1 / rank, so a few hubs have most facts. The facts have
    no meaning: what is learned of such a graph says nothing, what it costs does.
    """
    random = np.random.default_rng(seed)
    number = max(1, min(round(entities**0.25), 2 * relations))  # of types
    members = np.array_split(random.permutation(entities), number)
    links = random.permutation(np.arange(2 * relations) % number).reshape(-1, 2)  # head, tail
    room = np.array([len(members[h]) * len(members[t]) for h, t in links])
    wanted = facts + 2 * held_out
    if wanted > room.sum() / 4:  # distinct facts would be hard to come by
        raise DataError(
            f"{wanted:,} facts do not fit {entities:,} entities and {relations:,} relations"
        )
    keys = np.empty(0, dtype=np.int64)
    while len(keys) < wanted:
        relation = _zipf(random, relations, wanted)
        head, tail = np.empty_like(relation), np.empty_like(relation)
        for r in np.unique(relation):
            chosen = np.flatnonzero(relation == r)
            for column, kind in ((head, links[r, 0]), (tail, links[r, 1])):
                column[chosen] = members[kind][_zipf(random, len(members[kind]), len(chosen))]
        drawn = (head * relations + relation) * entities + tail
        keys = np.unique(np.concatenate([keys, drawn]))
    keys = random.permutation(keys)[:wanted]
    triples = np.stack([keys // entities // relations, keys // entities % relations], axis=1)
    everything: Facts = np.column_stack([triples, keys % entities])
    valid, test, train = np.split(everything, [held_out, 2 * held_out])
    labels = [f"entity {i:0{len(str(entities))}}" for i in range(entities)]
    names = [f"relation {i:0{len(str(relations))}}" for i in range(relations)]
    return KnowledgeGraph(
        "artificial",
        Vocabulary(labels, kind="entity"),
        Vocabulary(names, kind="relation"),
        train=np.ascontiguousarray(train),
        valid=np.ascontiguousarray(valid),
        test=np.ascontiguousarray(test),
    )


def _zipf(random: np.random.Generator, size: int, number: int) -> Ids:
    """Draw from 0 .. size - 1 with chances that fall as 1 / (rank + 1), by inversion."""
    chances = np.cumsum(1 / np.arange(1, size + 1))
    drawn: Ids = np.searchsorted(chances, random.random(number) * chances[-1])
    return drawn
