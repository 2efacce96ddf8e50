"""ComplEx whose entities hear from their neighbours by the messages of CompGCN or of HRAN."""

from typing import Literal

import torch
from torch import Tensor, nn

from puda.config import Share
from puda.data.graph import KnowledgeGraph
from puda.scoring.base import halves
from puda.scoring.complex import ComplEx
from puda.scoring.edges import Edges, Messages, Neighbourhood

STEP = 0.1
"""What scales the weights of messages, so that Adagrad's first step is none too long."""


class Composed(nn.Module):
    """CompGCN's messages: w_in * sum_in s (x * z_r) + w_out * sum_out s (x * z_r')."""

    def __init__(self, edges: Edges, dim: int) -> None:
        super().__init__()
        self.share = edges.normalized
        self.weights = nn.ParameterDict({part: torch.zeros(dim) for part in ("inward", "outward")})

    def forward(self, rows: Tensor, relations: Tensor, messages: Messages, number: int) -> Tensor:
        """Sum what receivers hear of rows (S, d) and relations (2R, d): (number, d)."""
        share = self.share.to(rows.dtype)[messages.edge]
        heard = rows.new_zeros(())
        for part, weight in self.weights.items():
            total = messages.collect(part, share, number, rows, relations)
            heard = heard + STEP * weight * total
        return heard


class Attended(nn.Module):
    """HRAN's messages: w * mean over relations of alpha_r mean of x by r; alpha_r = sigma(a_r)."""

    def __init__(self, edges: Edges, dim: int) -> None:
        super().__init__()
        self.share = edges.by_relation
        self.attention = nn.Parameter(torch.zeros(edges.num_directed))
        self.weight = nn.Parameter(torch.zeros(dim))

    def forward(self, rows: Tensor, relations: Tensor, messages: Messages, number: int) -> Tensor:
        """Sum what receivers hear of rows (S, d): (number, d)."""
        alpha = self.attention.sigmoid()[messages.relation]
        share = self.share.to(rows.dtype)[messages.edge] * alpha
        return STEP * self.weight * messages.collect("all", share, number, rows, None)


MESSAGES: dict[str, type[nn.Module]] = {"compgcn": Composed, "hran": Attended}


class GraphComplEx(ComplEx):
    """ComplEx of entities x_e' = x_e + m_e, which hear m_e from their neighbours.

    Ours: a graph encoder of one linear layer. m_e are the messages of CompGCN, composed by
    multiplication, or those of HRAN, s being the shares of each; vectors of weights w (d,), from 0,
    stand for their matrices; no activation and no normalisation, which would bind the sizes of rows
    that N3 and DURA are to choose; z_r are ComplEx's relations, those of inverse messages conj(z_r)
    without `reciprocal`. In a step of training senders learn nothing from being heard, since
    Adagrad moves them as far by a tiny gradient as by any; the facts that it asks for send no
    messages, nor does a random share `unheard` of the others (DropEdge, Rong et al. 2020), for
    which the rest is scaled up.
    """

    whole_graph = True

    def __init__(
        self,
        graph: KnowledgeGraph,
        dim: int,
        messages: Literal["compgcn", "hran"] = "compgcn",
        unheard: Share = 0.0,
        reciprocal: bool = True,
    ) -> None:
        super().__init__(graph, dim, reciprocal=reciprocal)
        self.edges, self.unheard = Edges(graph), unheard
        self.hear = MESSAGES[messages](self.edges, dim)

    def neighbourhood(self, wanted: Tensor, asked: Tensor) -> Neighbourhood:
        """Return what entities hear from."""
        unheard = self.unheard if self.training else 0.0
        return self.edges.around(wanted, layers=1, without=asked, unheard=unheard)

    def contextualize(self, rows: Tensor, near: Neighbourhood | None = None) -> Tensor:
        """Add messages in the whole graph (E, d) -> (E, d), or what is near (S, d) -> (N, d)."""
        relations: Tensor = self.relations  # (R or 2R, d)
        if not self.reciprocal:
            re, im = halves(relations)
            relations = torch.cat([relations, torch.cat([re, -im], dim=1)])  # (2R, d)
        hop = self.edges.everywhere if near is None else near.hops[0]
        own, senders = hop.receivers(rows), rows if near is None else rows.detach()
        heard: Tensor = self.hear(senders, relations, hop.messages, len(own))
        return own + heard if near is None else own + heard / near.heard
