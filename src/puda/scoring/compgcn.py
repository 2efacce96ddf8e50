"""CompGCN (Vashishth et al. 2020)."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from puda.config import Count, Share
from puda.data.graph import KnowledgeGraph
from puda.scoring.base import ScoringFunction
from puda.scoring.conve import Convolution, with_bias, xavier
from puda.scoring.edges import Edges


def _multiply_conjugate(sent: Tensor, relation: Tensor) -> Tensor:
    """Circular correlation in the Fourier domain, real parts then imaginary: conj(a) b."""
    (a_re, a_im), (b_re, b_im) = sent.chunk(2, dim=1), relation.chunk(2, dim=1)
    return torch.cat([a_re * b_re + a_im * b_im, a_re * b_im - a_im * b_re], dim=1)


def _to_fourier(rows: Tensor) -> Tensor:
    spectrum = torch.fft.rfft(rows, dim=1)
    return torch.cat([spectrum.real, spectrum.imag], dim=1)


def _from_fourier(spectrum: Tensor, dim: int) -> Tensor:
    rows: Tensor = torch.fft.irfft(spectrum, n=dim, dim=1)
    return rows


COMPOSITIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "subtraction": torch.sub,
    "multiplication": torch.mul,
    "correlation": _multiply_conjugate,  # between rows in the Fourier domain
}


class CompGCN(ScoringFunction):
    """A graph convolution over training facts, decoded by DistMult or ConvE.

    x_v' = tanh(BN((sum_in w phi(x_u, z_r) W_in + sum_out w phi(x_u, z_r') W_out
    + phi(x_v, z_loop) W_loop) / 3)), z' = W_rel z, once per layer; phi subtracts, multiplies or
    correlates circularly; w = 1 / sqrt(messages sent by u * messages received by v), counted by
    direction. The sum of messages is multiplied by W, not each of them: the same, and cheaper.
    Vectors keep one size d throughout (the paper: 100, then 200). With the ConvE decoder (numbers
    interleaved, 7 x 7 filters) a row ends with the entity's bias. Xavier's normal start.
    """

    whole_graph = True

    def __init__(
        self,
        graph: KnowledgeGraph,
        dim: int,
        decoder: Literal["conve", "distmult"] = "conve",
        composition: Literal["subtraction", "multiplication", "correlation"] = "correlation",
        layers: Count = 1,
        filters: Count = 200,
        kernel: Count = 7,
        dropout: Share = 0.1,
        entity_dropout: Share = 0.3,
    ) -> None:
        super().__init__(graph, dim, reciprocal=True)
        self.convolution = None
        if decoder == "conve":
            self.row_dim = dim + 1
            dropouts = (0.0, 0.3, 0.3)
            self.convolution = Convolution(
                dim, filters=filters, kernel=kernel, interleaved=True, dropouts=dropouts
            )
        self.dropout, self.entity_dropout = dropout, entity_dropout
        self.edges = Edges(graph)
        self.relations = nn.Parameter(xavier(self.num_directed, dim))
        self.layers = nn.ModuleList(Layer(dim, composition, dropout) for _ in range(layers))

    def initial_entities(self) -> Tensor:
        """Draw vectors by Xavier; biases are 0."""
        bias = torch.zeros(self.num_entities, self.row_dim - self.dim)
        return torch.cat([xavier(self.num_entities, self.dim), bias], dim=1)

    def contextualize(self, rows: Tensor) -> Tensor:
        """Convolve the graph over all entities (E, row) -> (E, row); biases pass through."""
        vectors, relations = rows[:, : self.dim], self.relations
        for layer in self.layers:
            vectors, relations = layer(vectors, relations, self.edges)
            vectors = dropout(vectors, self.entity_dropout, self.training)
        return torch.cat([vectors, rows[:, self.dim :]], dim=1)

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Decode anchor and convolved relation: (Q, row)."""
        relations: Tensor = self.relations
        for layer in self.layers:
            relations = layer.get_submodule("relate")(relations)
        vectors = relations.index_select(0, self.directed(relation, side))
        if self.convolution is None:
            return anchor * vectors
        return with_bias(self.convolution(anchor[:, : self.dim], vectors))


class Layer(nn.Module):
    """One convolution: see CompGCN."""

    def __init__(self, dim: int, composition: str, dropout: float) -> None:
        super().__init__()
        self.composition, self.dropout = composition, dropout
        names = ("inward", "outward", "loop")
        self.weights = nn.ParameterDict({name: nn.Parameter(xavier(dim, dim)) for name in names})
        self.loop = nn.Parameter(xavier(1, dim))
        self.relate = nn.Linear(dim, dim, bias=False)
        self.norm = nn.BatchNorm1d(dim)

    def forward(self, rows: Tensor, relations: Tensor, edges: Edges) -> tuple[Tensor, Tensor]:
        """Convolve entities (E, d) and relations (2R, d)."""
        total = self._compose(rows, self.loop) @ self.weights["loop"]
        for name, inverse in (("inward", False), ("outward", True)):
            heard = self._collect(rows, relations, edges, edges.direction(inverse))
            total = total + dropout(heard @ self.weights[name], self.dropout, self.training)
        return torch.tanh(self.norm(total / 3)), self.relate(relations)

    def _collect(self, rows: Tensor, relations: Tensor, edges: Edges, part: slice) -> Tensor:
        sender, receiver = edges.sender[part], edges.receiver[part]
        sent = torch.bincount(sender, minlength=len(rows))[sender]
        received = torch.bincount(receiver, minlength=len(rows))[receiver]
        weight = (sent * received).to(rows.dtype).rsqrt()
        compose = COMPOSITIONS[self.composition]
        if self.composition != "correlation":
            return edges.collect(part, weight, rows, relations, compose)
        heard = edges.collect(part, weight, _to_fourier(rows), _to_fourier(relations), compose)
        return _from_fourier(torch.complex(*heard.chunk(2, dim=1)), rows.shape[1])

    def _compose(self, rows: Tensor, relation: Tensor) -> Tensor:
        if self.composition != "correlation":
            return COMPOSITIONS[self.composition](rows, relation)
        product = torch.fft.rfft(rows, dim=1).conj() * torch.fft.rfft(relation, dim=1)
        return _from_fourier(product, rows.shape[1])
