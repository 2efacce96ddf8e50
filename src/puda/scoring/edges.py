"""The training facts as messages between entities, for scoring functions that encode the graph."""

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from puda.data.graph import KnowledgeGraph
from puda.fused import Wires, collect


class Messages:
    """What receivers hear in one layer: edges from the rows of senders, inward ones first."""

    def __init__(
        self, sender: Tensor, relation: Tensor, receiver: Tensor, *, edge: Tensor, inward: int
    ) -> None:
        self.sender, self.relation, self.receiver = sender, relation, receiver  # (m,) row numbers
        self.edge = edge  # (m,) which of all edges they are
        self.parts = {
            "all": slice(None),
            "inward": slice(0, inward),
            "outward": slice(inward, None),
        }
        self._wires: dict[tuple[str, str], Wires] = {}

    def collect(
        self,
        part: str,
        weight: Tensor,
        receivers: int,
        rows: Tensor | None,
        relations: Tensor | None,
    ) -> Tensor:
        """Sum weighted messages (m,) of all, the inward or the outward edges: (receivers, d).

        A message is the sender's row (S, d), its relation's (2R, d), or their product number by
        number, whichever is given.
        """
        here = self.parts[part]
        sources = [(rows, self.sender), (relations, self.relation)]
        tables = [(table, ids[here]) for table, ids in sources if table is not None]
        kind = part, "".join("x" if table is None else "o" for table, _ in sources)
        if kind not in self._wires:
            self._wires[kind] = Wires(self.receiver[here], receivers, *(ids for _, ids in tables))
        return collect(self._wires[kind], weight[here], *(table for table, _ in tables))


class Hop(NamedTuple):
    """A layer's messages and its receivers."""

    messages: Messages
    own: Tensor | None  # (receivers,) their places among the rows of senders; None: the same rows

    def receivers(self, rows: Tensor) -> Tensor:
        """Return the rows of the receivers alone."""
        return rows if self.own is None else rows.index_select(0, self.own)


class Neighbourhood(NamedTuple):
    """All that the rows of some entities depend on."""

    ids: Tensor  # (S,) the entities whose rows are needed
    hops: tuple[Hop, ...]  # one a layer, the last one's receivers are the entities; none: unknown
    heard: float = 1.0  # the share of their messages that is there


class Edges(nn.Module):
    """Each training fact <h, r, t> twice: t hears of h by r, and h hears of t by r + R.

    Only training facts: an encoder that saw others would know the answers. The arrays are
    buffers that are not saved, since the graph is.
    """

    sender: Tensor  # (2n,) entity ids
    relation: Tensor  # (2n,) directed relation ids
    receiver: Tensor  # (2n,) entity ids

    def __init__(self, graph: KnowledgeGraph) -> None:
        super().__init__()
        head, relation, tail = torch.tensor(graph.train).T
        self.num_facts, self.num_entities = len(head), graph.num_entities
        self.num_directed = 2 * graph.num_relations
        directed = torch.cat([relation, relation + graph.num_relations])
        for name, ids in (
            ("sender", torch.cat([head, tail])),
            ("relation", directed),
            ("receiver", torch.cat([tail, head])),
        ):
            self.register_buffer(name, ids, persistent=False)

    @cached_property
    def normalized(self) -> Tensor:
        """(2n,) 1 / sqrt(messages that the sender sends * that the receiver gets), by direction."""
        weights = []
        for part in (slice(0, self.num_facts), slice(self.num_facts, None)):
            sender, receiver = self.sender[part], self.receiver[part]
            sent, received = torch.bincount(sender)[sender], torch.bincount(receiver)[receiver]
            weights.append((sent * received).double().rsqrt())
        return torch.cat(weights)

    @cached_property
    def by_relation(self) -> Tensor:
        """(2n,) 1 / (relations that the receiver hears by * its neighbours by this relation)."""
        path = self.receiver * self.num_directed + self.relation
        distinct, place, neighbours = path.unique(return_inverse=True, return_counts=True)
        relations = torch.bincount(distinct // self.num_directed, minlength=self.num_entities)
        share: Tensor = 1.0 / (relations[self.receiver] * neighbours[place])
        return share

    @cached_property
    def everywhere(self) -> Hop:
        """All edges, between all entities."""
        edge = torch.arange(2 * self.num_facts)
        ends = self.sender, self.relation, self.receiver
        return Hop(Messages(*ends, edge=edge, inward=self.num_facts), None)

    def around(
        self, wanted: Tensor, *, layers: int, without: Tensor | None, unheard: float = 0.0
    ) -> Neighbourhood:
        """Return what the rows of entities (N,), ascending, depend on after so many layers.

        The facts (F, 3) of `without` send no messages, and of the others' each is left out with
        probability `unheard`.
        """
        kept = torch.ones(2 * self.num_facts, dtype=torch.bool)
        if unheard:
            kept = torch.rand(2 * self.num_facts) >= unheard
        if without is not None:
            numbers, places = self._sorted
            found = places[torch.searchsorted(numbers, self._number(*without.T))]
            kept[found] = kept[found + self.num_facts] = False
        hops: list[Hop] = []
        for _ in range(layers):
            place = torch.full((self.num_entities,), -1)
            place[wanted] = torch.arange(len(wanted))
            edge = (kept & (place[self.receiver] >= 0)).nonzero().squeeze(1)
            receiver = place[self.receiver[edge]]
            ids = torch.cat([wanted, self.sender[edge]]).unique()
            place[ids] = torch.arange(len(ids))
            messages = Messages(
                place[self.sender[edge]],
                self.relation[edge],
                receiver,
                edge=edge,
                inward=int((edge < self.num_facts).sum()),
            )
            hops.insert(0, Hop(messages, place[wanted]))
            wanted = ids
        return Neighbourhood(wanted, tuple(hops), heard=1 - unheard)

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor]:
        """The facts' numbers in ascending order, and where in the arrays each of them stands."""
        n = self.num_facts
        numbers = self._number(self.sender[:n], self.relation[:n], self.receiver[:n])
        ascending: tuple[Tensor, Tensor] = numbers.sort(stable=True)
        return ascending

    def _number(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return (relation * self.num_entities + head) * self.num_entities + tail
