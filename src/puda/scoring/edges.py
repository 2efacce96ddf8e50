"""The training facts as messages between entities, for scoring functions that encode the graph."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from puda.data.graph import KnowledgeGraph

CHUNK = 65_536  # edges whose messages are held at a time


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
        self.num_relations = graph.num_relations
        directed = torch.cat([relation, relation + graph.num_relations])
        for name, ids in (
            ("sender", torch.cat([head, tail])),
            ("relation", directed),
            ("receiver", torch.cat([tail, head])),
        ):
            self.register_buffer(name, ids, persistent=False)

    def direction(self, inverse: bool) -> slice:
        """Return the edges that follow the facts, or those against them."""
        return slice(self.num_facts, None) if inverse else slice(0, self.num_facts)

    def collect(
        self,
        edges: slice,
        weight: Tensor,
        rows: Tensor,
        relations: Tensor | None = None,
        compose: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Sum weighted messages at their receivers: (E, width of a message).

        A message is the sender's row (E, d), composed with its relation's (2R, d) if given.
        Messages are computed chunk by chunk, and again for the gradient, not kept.
        """

        def messages(part: slice) -> Tensor:
            sent = rows.index_select(0, self.sender[edges][part])
            if compose is not None and relations is not None:
                sent = compose(sent, relations.index_select(0, self.relation[edges][part]))
            sent = sent * weight[part].unsqueeze(1)
            arrived = sent.new_zeros(self.num_entities, sent.shape[1])
            return arrived.index_add(0, self.receiver[edges][part], sent)

        total: Tensor | None = None
        for start in range(0, len(weight), CHUNK):
            part = slice(start, start + CHUNK)
            arrived: Tensor = checkpoint(messages, part, use_reentrant=False)
            total = arrived if total is None else total + arrived
        assert total is not None  # a graph has at least one training fact
        return total
