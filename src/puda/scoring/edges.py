"""The training facts as messages between entities, for scoring functions that encode the graph."""

from functools import cached_property

import torch
from torch import Tensor, nn

from puda.data.graph import KnowledgeGraph
from puda.fused import Wires, collect


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
        directed = torch.cat([relation, relation + graph.num_relations])
        for name, ids in (
            ("sender", torch.cat([head, tail])),
            ("relation", directed),
            ("receiver", torch.cat([tail, head])),
        ):
            self.register_buffer(name, ids, persistent=False)

    @cached_property
    def parts(self) -> dict[str, slice]:
        """All edges, those that follow the facts, and those against them."""
        n = self.num_facts
        return {"all": slice(None), "inward": slice(0, n), "outward": slice(n, None)}

    @cached_property
    def normalized(self) -> dict[str, Tensor]:
        """Weights 1 / sqrt(messages that the sender sends * that the receiver gets), by part."""
        weights = {}
        for name, part in self.parts.items():
            sender, receiver = self.sender[part], self.receiver[part]
            sent, received = torch.bincount(sender)[sender], torch.bincount(receiver)[receiver]
            weights[name] = (sent * received).double().rsqrt()
        return weights

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor]:
        """The facts' numbers in ascending order, and where in the arrays each of them stands."""
        n = self.num_facts
        numbers = self._number(self.sender[:n], self.relation[:n], self.receiver[:n])
        ascending: tuple[Tensor, Tensor] = numbers.sort(stable=True)
        return ascending

    def _number(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return (relation * self.num_entities + head) * self.num_entities + tail

    def without(self, facts: Tensor) -> Tensor:
        """Return (2n,) 0 for the messages of some of the facts (F, 3), 1 for all others."""
        numbers, places = self._sorted
        found = places[torch.searchsorted(numbers, self._number(*facts.T))]
        kept = torch.ones(2 * self.num_facts)
        kept[found] = kept[found + self.num_facts] = 0
        return kept

    @cached_property
    def _wires(self) -> dict[tuple[str, str], Wires]:
        made = {}
        for name, part in self.parts.items():
            receiver, sender, relation = (
                ids[part] for ids in (self.receiver, self.sender, self.relation)
            )
            made[name, "both"] = Wires(receiver, self.num_entities, sender, relation)
            made[name, "rows"] = Wires(receiver, self.num_entities, sender)
            made[name, "relations"] = Wires(receiver, self.num_entities, relation)
        return made

    def collect(
        self, part: str, weight: Tensor, *, rows: Tensor | None, relations: Tensor | None
    ) -> Tensor:
        """Sum weighted messages of some edges at their receivers: (E, d).

        A message is the sender's row (E, d), its relation's (2R, d), or their product number by
        number, whichever is given.
        """
        if rows is not None and relations is not None:
            return collect(self._wires[part, "both"], weight, rows, relations)
        if rows is not None:
            return collect(self._wires[part, "rows"], weight, rows)
        assert relations is not None
        return collect(self._wires[part, "relations"], weight, relations)
