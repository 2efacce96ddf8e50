"""CompGCN (Vashishth et al. 2020)."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from puda.config import Count, Share
from puda.data.graph import KnowledgeGraph
from puda.scoring.base import xavier
from puda.scoring.conve import Convolution, with_bias
from puda.scoring.edges import Hop
from puda.scoring.encoder import GraphEncoder

Collect = Callable[[Tensor | None, Tensor | None], Tensor]
"""Sums messages of senders' rows, of relations' rows or of the products of both."""


def _fourier(rows: Tensor) -> tuple[Tensor, Tensor]:
    spectrum = torch.fft.rfft(rows, dim=1)
    return spectrum.real, spectrum.imag


def _correlate(collect: Collect, rows: Tensor, relations: Tensor) -> Tensor:
    """Circular correlation: conj(a) b in the Fourier domain, where sums may be taken as well."""
    (a, ai), (b, bi) = _fourier(rows), _fourier(relations)
    real, imaginary = collect(a, b) + collect(ai, bi), collect(a, bi) - collect(ai, b)
    heard: Tensor = torch.fft.irfft(torch.complex(real, imaginary), n=rows.shape[1], dim=1)
    return heard


COMPOSITIONS: dict[str, Callable[[Collect, Tensor, Tensor], Tensor]] = {
    "subtraction": lambda collect, rows, relations: collect(rows, None) - collect(None, relations),
    "multiplication": lambda collect, rows, relations: collect(rows, relations),
    "correlation": _correlate,
}
"""Sums of messages phi(x_u, z_r); each is linear in what `collect` can sum."""


def _as_it_is(rows: Tensor | None, relations: Tensor | None) -> Tensor:
    """Collect nothing: the message of an entity to itself."""
    if rows is None or relations is None:
        own = relations if rows is None else rows
        assert own is not None
        return own
    return rows * relations


class CompGCN(GraphEncoder):
    """A graph convolution over training facts, decoded by DistMult or ConvE.

    x_v' = tanh(BN((sum_in w phi(x_u, z_r) W_in + sum_out w phi(x_u, z_r') W_out
    + phi(x_v, z_loop) W_loop) / 3)), z' = W_rel z, once per layer; phi subtracts, multiplies or
    correlates circularly; w = 1 / sqrt(messages sent by u * messages received by v), counted by
    direction. The sum of messages is multiplied by W, not each of them: the same, and cheaper.
    Vectors keep one size d throughout (the paper: 100, then 200). With the ConvE decoder (numbers
    interleaved, 7 x 7 filters) a row ends with the entity's bias.
    """

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
        blind: bool = False,
    ) -> None:
        super().__init__(graph, dim, blind=blind, entity_dropout=entity_dropout)
        self.share = self.edges.normalized
        self.convolution = None
        if decoder == "conve":
            self.row_dim = dim + 1
            dropouts = (0.0, 0.3, 0.3)
            self.convolution = Convolution(
                dim, filters=filters, kernel=kernel, interleaved=True, dropouts=dropouts
            )
        self.layers = nn.ModuleList(Layer(dim, composition, dropout) for _ in range(layers))

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Decode anchor and convolved relation: (Q, row)."""
        vectors = self.encoded_relations().index_select(0, self.directed(relation, side))
        if self.convolution is None:
            return anchor * vectors
        return with_bias(self.convolution(anchor[:, : self.dim], vectors))

    def factors(
        self, anchor: Tensor, relation: Tensor, side: Tensor, answer: Tensor
    ) -> tuple[Tensor, ...]:
        """Squares of anchor and answer; under DistMult, as there, of the relation as well."""
        if self.convolution is not None:
            return super().factors(anchor, relation, side, answer)
        vectors = self.encoded_relations().index_select(0, self.directed(relation, side))
        return anchor**2, vectors**2, answer**2


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

    def forward(
        self, rows: Tensor, relations: Tensor, hop: Hop, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Convolve entities (S, d) to receivers (N, d), and relations (2R, d)."""
        compose, own = COMPOSITIONS[self.composition], hop.receivers(rows)
        total = compose(_as_it_is, own, self.loop) @ self.weights["loop"]
        for part in ("inward", "outward"):
            collect = partial(hop.messages.collect, part, weight, len(own))
            heard = compose(collect, rows, relations)
            total = total + dropout(heard @ self.weights[part], self.dropout, self.training)
        return torch.tanh(self.norm(total / 3)), self.relate(relations)
