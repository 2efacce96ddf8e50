"""The most plausible missing facts of a whole graph: the pairs of all relations, best first.

A relation's pairs are scored tile by tile, and one comparison with the lowest score that still
counts drops nearly all of a tile. What is found in a relation is kept in a file of its own until
the output is whole, so that a job that was killed goes on.
"""

import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor

from puda import exports
from puda.calibrate import Calibration
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.data.index import SHARE
from puda.errors import Diverged, PudaError
from puda.machine import free_memory
from puda.runs import Trained, replacing
from puda.scoring.ensemble import Ensemble
from puda.training.trainer import Listener
from puda.types import Facts, Ids, Questions, Side

QUESTIONS, TILE, STRIP = 256, 4_000_000, 65_536
"""So many questions are encoded, and so many pairs are scored and searched, at a time."""

DEPTH = 1000
"""Facts of a relation that are found by score, at least; the most probable of them are kept."""

BYTES = 16
"""Of memory for a score: those of both sides, their mean, and what a scorer needs beside."""

FOUND = {"head": pl.Int64, "tail": pl.Int64, "score": pl.Float32}


class Estimate(NamedTuple):
    """What a completion will cost."""

    all_pairs: int  # of any two entities, in each relation
    pairs: int  # of candidates: those that are scored
    seconds: float
    megabytes: int  # at a time, beside the model and the facts found


@dataclass(frozen=True)
class Search:
    """What is looked for in one relation."""

    relation: int
    heads: Ids  # (H,) candidates, sorted
    tails: Ids  # (T,)
    limit: int | None  # most facts to find
    shown: int | None  # most of them that are kept
    floor: float  # lowest score that counts

    @property
    def pairs(self) -> int:
        """Number of pairs to score."""
        return len(self.heads) * len(self.tails)


class Plan(NamedTuple):
    """How a relation's pairs are cut so that memory suffices."""

    span: int  # tails whose encoded questions are kept while the heads pass by
    block: int  # heads scored against them at a time
    size: int  # bytes


def complete(
    trained: Trained,
    path: str | Path | None = None,
    *,
    top: int | None = None,
    per_relation: int | None = None,
    minimum: float | None = None,
    relations: Sequence[str] | None = None,
    pruned: bool = True,
    calibration: Calibration | None = None,
    memory: int | None = None,
    listener: Listener = lambda event: None,
) -> pl.DataFrame:
    """Find the most plausible facts that the graph does not hold, best first.

    A fact's score is the mean of its scores as an answer to (head, r, ?) and to (?, r, tail). Found
    are at most `top` facts in all and `per_relation` of each relation, none below `minimum`. With a
    calibration facts are ordered by probability, in the relation and over all, and `minimum` is
    one: of each relation the most probable of its highest scores, so many of them as are asked for
    and at least 1,000. Ties go by score, then by the ids of relation, head and tail. Left out are
    the known facts of all splits, loops of relations that link nothing with itself, and if `pruned`
    what `candidates` does not admit.

    Columns: head, relation, tail (labels), score, probability if there is one, and the rank in the
    relation; of an ensemble also how many of its `members` agree: have the fact among the highest
    scores of their own, as many of the relation as are asked for. With a `path` they are written
    there as its ending says (puda.exports). Until then the folder <path>.parts holds what was found
    in each finished relation, named by a digest of model, candidates, limits and lowest score: the
    same call goes on from there, another does not take it for its own. Scores and questions take up
    to `memory` megabytes at a time, but at least one pair's; by default a quarter of what is free.
    The listener hears of each relation.
    """
    for name, number in (("top", top), ("per_relation", per_relation)):
        if number is not None and number < 1:
            raise PudaError(f"{name} = {number}: ask for at least one fact")
    limit = min((number for number in (top, per_relation) if number is not None), default=None)
    if limit is None and (minimum is None or calibration is not None):
        raise PudaError("that may be every pair there is: give top or per_relation")
    if path is not None:
        exports.writer(path)  # an ending that is not known is told before the work
    graph, chosen = trained.graph, _chosen(trained.graph, relations)
    folder = None if path is None else Path(path).with_name(Path(path).name + ".parts")
    model = "" if folder is None else _fingerprint(trained)
    order = [*(["probability"] if calibration else []), "score", "relation", "head", "tail"]
    floor = -math.inf if minimum is None or calibration is not None else minimum
    depth = limit if limit is None or calibration is None else max(limit, DEPTH)
    members = _members(trained)
    best: list[pl.DataFrame] = []
    for done, relation in enumerate(chosen, start=1):
        heads, tails = candidates(graph, relation, pruned=pruned)
        search = Search(relation, heads, tails, depth, limit, floor)
        part = None if folder is None else folder / _part_name(model, search)
        found = _find_once(trained, members, search, memory, part)
        best.append(_ranked(trained, found, relation, calibration, minimum, order, limit))
        if top is not None:  # otherwise none can be dropped
            best = [_first(pl.concat(best), order, top)]
        listener(
            {
                "event": "relation",
                "relation": graph.relations.labels[relation],
                "done": done,
                "of": len(chosen),
                "pairs": search.pairs,
                "facts": len(found),
            }
        )
    facts = _labelled(_first(pl.concat(best), order, top), graph)
    if path is not None and folder is not None:
        exports.write_facts(facts, path)
        _drop(folder)
    return facts


def estimate(
    trained: Trained,
    *,
    limit: int | None = None,
    relations: Sequence[str] | None = None,
    pruned: bool = True,
    calibration: Calibration | None = None,
    memory: int | None = None,
) -> Estimate:
    """Count the pairs to score, and time one block of the relation that has the most.

    Seconds = those of a question * questions + those of a pair * pairs, and with a calibration
    those of a fact's rival * the rivals of the facts found, `limit` of each relation.
    """
    graph, chosen = trained.graph, _chosen(trained.graph, relations)
    sizes = {r: [len(ids) for ids in candidates(graph, r, pruned=pruned)] for r in chosen}
    all_pairs, pairs = len(chosen) * graph.num_entities**2, sum(map(math.prod, sizes.values()))
    if not pairs:
        return Estimate(all_pairs, pairs, seconds=0.0, megabytes=0)
    largest = max(chosen, key=lambda r: math.prod(sizes[r]))
    heads, tails = candidates(graph, largest, pruned=pruned)
    whole = Search(largest, heads, tails, limit=DEPTH, shown=DEPTH, floor=-math.inf)
    plan = _plan(trained, whole, memory)
    block = replace(whole, heads=heads[: plan.block], tails=tails[: plan.span])
    start = time.perf_counter()
    _ask(trained, block.heads, largest, Side.TAIL)
    asked = time.perf_counter()
    found = _find_together(trained, _members(trained), block, memory)
    told = time.perf_counter()
    question = (asked - start) / len(block.heads)
    pair = max(0.0, told - asked - question * (len(block.heads) + len(block.tails))) / block.pairs
    seconds = question * sum(map(sum, sizes.values())) + pair * pairs
    if calibration is not None and len(found):
        calibration.probability(trained, _ids(found, largest))
        rival = (time.perf_counter() - told) / (len(found) * sum(sizes[largest]))
        depth = max(limit or 0, DEPTH)
        seconds += rival * sum(min(depth, math.prod(own)) * sum(own) for own in sizes.values())
    return Estimate(all_pairs, pairs, seconds, megabytes=math.ceil(plan.size / 1_000_000))


def candidates(graph: KnowledgeGraph, relation: int, *, pruned: bool = True) -> tuple[Ids, Ids]:
    """Return the heads and the tails, sorted, between which facts of a relation are looked for."""
    if not pruned:
        return (everything := np.arange(graph.num_entities)), everything
    known = graph.known(*SPLITS)
    heads, tails = (known.candidates(relation, side, SHARE) for side in (Side.HEAD, Side.TAIL))
    return np.flatnonzero(heads), np.flatnonzero(tails)


def _chosen(graph: KnowledgeGraph, labels: Sequence[str] | None) -> list[int]:
    """Return the ids of relations given by label, each once."""
    if labels is None:
        return list(range(graph.num_relations))
    if not labels:
        raise PudaError("relations is empty: name one, or leave it out for all")
    return sorted({graph.relations.find(label) for label in labels})


class _Best:
    """The facts of a relation that score highest so far; ties go by head and tail."""

    def __init__(self, search: Search) -> None:
        self.limit, self.floor = search.limit, search.floor
        self._found = [pl.DataFrame(schema=FOUND)]
        self._number = 0

    def add(self, head: Ids, tail: Ids, score: np.ndarray) -> None:
        self._found.append(pl.DataFrame({"head": head, "tail": tail, "score": score}, FOUND))
        self._number += len(head)
        if self.limit is not None and self._number >= 2 * self.limit:  # not often: it sorts
            self._found, self._number = [self.facts()], self.limit
            self.floor = self._found[0]["score"][-1]

    def facts(self) -> pl.DataFrame:
        return _first(pl.concat(self._found), ["score", "head", "tail"], self.limit)


def _find_once(
    trained: Trained,
    members: Sequence[Trained],
    search: Search,
    memory: int | None,
    part: Path | None,
) -> pl.DataFrame:
    """Read what was found before from its file; if there is none, find it and write it there."""
    if part is None:
        return _find_together(trained, members, search, memory)
    with suppress(OSError, pl.exceptions.PolarsError):  # a machine that went down may leave rubbish
        return pl.read_parquet(part, glob=False)
    found = _find_together(trained, members, search, memory)
    with replacing(part) as file:
        found.write_parquet(file)
    return found


def _members(trained: Trained) -> list[Trained]:
    """Return the members of an ensemble; none for a single model."""
    if not isinstance(trained.model, Ensemble):
        return []
    tables = trained.entities.chunk(len(trained.model), dim=1)
    pairs = zip(trained.model.members, tables, strict=True)
    return [replace(trained, model=model, entities=table.contiguous()) for model, table in pairs]


def _find_together(
    trained: Trained, members: Sequence[Trained], search: Search, memory: int | None
) -> pl.DataFrame:
    """Find facts, and count the members that have them among the best of their own."""
    found = _find(trained, search, memory)
    if not members:
        return found
    wanted = len(found) if search.shown is None else min(search.shown, len(found))
    alone = replace(search, limit=max(1, wanted), floor=-math.inf)
    votes = np.zeros(len(found), dtype=np.int64)
    for member in members:
        own = _find(member, alone, memory)
        pair, theirs = (
            facts["head"].to_numpy() * trained.graph.num_entities + facts["tail"].to_numpy()
            for facts in (found, own)
        )
        votes += np.isin(pair, theirs)
    return found.with_columns(agreement=pl.Series(votes), members=pl.lit(len(members)))


def _find(trained: Trained, search: Search, memory: int | None) -> pl.DataFrame:
    """Return the facts (FOUND) that score highest among those that are not known, best first."""
    size, relation = trained.graph.num_entities, search.relation
    known, loops = _known_pairs(trained.graph, relation), relation in trained.graph.reflexive
    best = _Best(search)
    for heads, tails, scores in _tiles(trained, search, memory):
        rows = max(1, STRIP // len(tails))
        for start in range(0, len(heads), rows):
            strip = scores[start : start + rows].ravel()
            place = np.flatnonzero(strip >= best.floor)
            if not len(place):
                continue
            head, tail = heads[start + place // len(tails)], tails[place % len(tails)]
            pair = head * size + tail
            missing = (known[np.searchsorted(known, pair)] != pair) & (loops | (head != tail))
            best.add(head[missing], tail[missing], strip[place[missing]])
    return best.facts()


def _known_pairs(graph: KnowledgeGraph, relation: int) -> Ids:
    """Return head * E + tail of a relation's known facts, sorted, and E * E as an end."""
    heads = np.arange(graph.num_entities)
    known = graph.known(*SPLITS)
    head, tail = known.exclude(known.key(heads, np.full_like(heads, relation), Side.TAIL))
    return np.append(head * graph.num_entities + tail, graph.num_entities**2)


@torch.no_grad()
def _tiles(
    trained: Trained, search: Search, memory: int | None
) -> Iterator[tuple[Ids, Ids, np.ndarray]]:
    """Score all pairs: yields heads (H,), tails (T,) and their scores (H, T).

    S = (match(encode(H, r, TAIL), rows[T]) + match(encode(T, r, HEAD), rows[H])^T) / 2.
    """
    model, rows, relation = trained.model, trained.rows, search.relation
    span, block, _ = _plan(trained, search, memory)
    for tails in _slices(search.tails, span):
        of_tails = rows.index_select(0, torch.from_numpy(tails))  # (T, row)
        asking_head = _ask(trained, tails, relation, Side.HEAD)  # (T, ...)
        for heads in _slices(search.heads, block):
            of_heads = rows.index_select(0, torch.from_numpy(heads))  # (H, row)
            asking_tail = _ask(trained, heads, relation, Side.TAIL)  # (H, ...)
            scores = model.match(asking_tail, of_tails) + model.match(asking_head, of_heads).T
            low, high = scores.div_(2).aminmax()
            if not (torch.isfinite(low) and torch.isfinite(high)):
                raise Diverged("a score is not finite: this run cannot complete, train it anew")
            yield heads, tails, scores.numpy()


def _slices(ids: Ids, length: int) -> Iterator[Ids]:
    for start in range(0, len(ids), length):
        yield ids[start : start + length]


def _plan(trained: Trained, search: Search, memory: int | None) -> Plan:
    """Give half of the memory to the questions and rows of tails, half to scores."""
    half = (free_memory() // 4 if memory is None else memory * 1_000_000) // 2
    question = _ask(trained, np.zeros(1, dtype=np.int64), search.relation, Side.HEAD)
    width = 4 * (question.numel() + trained.model.row_dim)  # bytes of a tail
    span = max(1, min(len(search.tails), half // width))
    block = max(1, min(len(search.heads), TILE // span, half // (BYTES * span)))
    return Plan(span, block, span * (width + BYTES * block))


@torch.no_grad()
def _ask(trained: Trained, anchors: Ids, relation: int, side: Side) -> Tensor:
    """Encode the question of each anchor (Q,): (Q, ...)."""
    parts = []
    for anchor in torch.from_numpy(anchors).split(QUESTIONS):
        asked = torch.full_like(anchor, relation), torch.full_like(anchor, int(side))
        parts.append(trained.model.ask(Questions(anchor, *asked), trained.rows))
    return torch.cat(parts)


def _first(facts: pl.DataFrame, order: Sequence[str], limit: int | None) -> pl.DataFrame:
    """Sort by columns, scores and probabilities from the highest, and keep the first."""
    falling = [name in ("score", "probability") for name in order]
    return facts.sort(order, descending=falling).slice(0, limit)


def _ranked(
    trained: Trained,
    found: pl.DataFrame,
    relation: int,
    calibration: Calibration | None,
    minimum: float | None,
    order: Sequence[str],
    limit: int | None,
) -> pl.DataFrame:
    """Add to a relation's facts, best first, what the result says of them, and keep the first."""
    facts = found.select(
        "head", pl.lit(relation).alias("relation"), "tail", pl.exclude("head", "tail")
    )
    if calibration is not None:
        chances = calibration.probability(trained, _ids(found, relation))
        facts = facts.with_columns(pl.Series("probability", chances, pl.Float64))
        facts = facts if minimum is None else facts.filter(pl.col("probability") >= minimum)
        facts = _first(facts, order, limit)
    return facts.with_columns(pl.int_range(1, pl.len() + 1, dtype=pl.Int64).alias("rank"))


def _ids(found: pl.DataFrame, relation: int) -> Facts:
    """Return the facts (n, 3) that were found of a relation."""
    head, tail = (found[name].to_numpy() for name in ("head", "tail"))
    return np.stack([head, np.full_like(head, relation), tail], axis=1)


def _labelled(facts: pl.DataFrame, graph: KnowledgeGraph) -> pl.DataFrame:
    entities, relations = pl.Series(graph.entities.labels), pl.Series(graph.relations.labels)
    return facts.with_columns(
        head=entities.gather(facts["head"]),
        relation=relations.gather(facts["relation"]),
        tail=entities.gather(facts["tail"]),
    )


def _fingerprint(trained: Trained) -> str:
    """SHA-256 of graph, scoring function and weights: what a score depends on."""
    scoring = trained.config.scoring.model_dump_json()
    digest = hashlib.sha256(f"{trained.graph.fingerprint} {scoring}".encode())
    for name, weight in {**trained.model.state_dict(), "entities": trained.entities}.items():
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(weight.contiguous().view(-1).numpy())
    return digest.hexdigest()


def _part_name(model: str, search: Search) -> str:
    """Name the file of what a search finds after all that this depends on."""
    digest = hashlib.sha256(
        f"{model} {search.relation} {search.limit} {search.shown} {search.floor}".encode()
    )
    for ids in (search.heads, search.tails):
        digest.update(f" {len(ids)} ".encode() + ids.tobytes())
    return f"{search.relation}-{digest.hexdigest()[:16]}.parquet"


def _drop(folder: Path) -> None:
    for part in folder.glob("*.parquet*"):  # those of other calls to the same path as well
        part.unlink()
    with suppress(OSError):  # something else is in there: it is not ours
        folder.rmdir()
