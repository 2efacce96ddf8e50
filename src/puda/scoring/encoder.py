"""Scoring functions whose entities hear from their neighbours in the graph."""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from puda.data.graph import KnowledgeGraph
from puda.scoring.base import ScoringFunction, xavier
from puda.scoring.edges import Edges, Neighbourhood


class GraphEncoder(ScoringFunction):
    """Layers turn the rows of senders and the relations into the rows of receivers.

    A layer is a module of (rows (S, d), relations (2R, d), hop, weights of its messages (m,)), with
    a module `relate` that turns the relations (2R, d) into the next layer's. With `blind`, which is
    ours, the facts that a step of training asks for send no messages: else an entity hears from the
    very answer that is to be found, as it never does of a missing fact. What a row holds beyond d
    passes through. Xavier's normal start.
    """

    whole_graph = True
    layers: nn.ModuleList
    share: Tensor  # (2n,) the weights of all messages

    def __init__(
        self, graph: KnowledgeGraph, dim: int, *, blind: bool, entity_dropout: float = 0.0
    ) -> None:
        super().__init__(graph, dim, reciprocal=True)
        self.blind, self.entity_dropout = blind, entity_dropout
        self.edges = Edges(graph)
        self.relations = nn.Parameter(xavier(self.num_directed, dim))

    def initial_entities(self) -> Tensor:
        """Draw vectors by Xavier; biases are 0."""
        bias = torch.zeros(self.num_entities, self.row_dim - self.dim)
        return torch.cat([xavier(self.num_entities, self.dim), bias], dim=1)

    def neighbourhood(self, wanted: Tensor, asked: Tensor) -> Neighbourhood:
        """Return what entities hear from, a hop for each layer."""
        hidden = asked if self.blind else None
        return self.edges.around(wanted, layers=len(self.layers), without=hidden)

    def contextualize(self, rows: Tensor, near: Neighbourhood | None = None) -> Tensor:
        """Encode the whole graph (E, row) -> (E, row), or what is near (S, row) -> (N, row)."""
        vectors, rest, relations = rows[:, : self.dim], rows[:, self.dim :], self.relations
        hops = [self.edges.everywhere] * len(self.layers) if near is None else near.hops
        share = self.share.to(rows.dtype)
        for layer, hop in zip(self.layers, hops, strict=True):
            vectors, relations = layer(vectors, relations, hop, share[hop.messages.edge])
            vectors = dropout(vectors, self.entity_dropout, self.training)
            rest = hop.receivers(rest)
        return torch.cat([vectors, rest], dim=1)

    def encoded_relations(self) -> Tensor:
        """Return the relations (2R, d) as they are after the last layer."""
        relations: Tensor = self.relations
        for layer in self.layers:
            relations = layer.get_submodule("relate")(relations)
        return relations
