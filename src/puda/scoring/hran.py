"""HRAN, the heterogeneous relation attention network (Li et al. 2022)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from puda.config import Count, Share
from puda.data.graph import KnowledgeGraph
from puda.fused import halved
from puda.scoring.conve import Projection, features, image_shape, num_places, with_bias
from puda.scoring.edges import Hop
from puda.scoring.encoder import GraphEncoder


class HRAN(GraphEncoder):
    """Relation-attended means over training facts, decoded by relation-specific filters (ConvD).

    The paper's, per layer: m_(e,r) = mean of h_i over the neighbours of e by r;
    alpha_r = sigma(q . tanh(W r + b)); n_e = mean over e's relations of alpha_r m_(e,r);
    h_e' = ReLU(W_e((1 - beta) n_e + beta h_e)), r' = ReLU(W_r r); score
    f(vec(f([h, r] * Omega_r)) W) . t with filters Omega_r of the relation's own; batch
    normalisation and dropout.

    Ours, where the equations that we could read are silent: sigma is the sigmoid; inverse
    relations and reciprocal questions; Omega_r is a linear map of r'; h is stacked over r as in
    ConvE; f is ReLU; an output bias per entity, which ends its row; one size d throughout; all
    defaults.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        dim: int,
        layers: Count = 1,
        beta: Share = 0.3,
        filters: Count = 32,
        kernel: Count = 3,
        input_dropout: Share = 0.2,
        feature_dropout: Share = 0.2,
        output_dropout: Share = 0.3,
        blind: bool = False,
    ) -> None:
        super().__init__(graph, dim, blind=blind)
        self.row_dim = dim + 1
        self.image, self.filters, self.kernel = image_shape(dim, kernel), filters, kernel
        self.input_dropout, self.feature_dropout = input_dropout, feature_dropout
        self.share = self.edges.by_relation
        self.layers = nn.ModuleList(Layer(dim, beta) for _ in range(layers))
        self.to_filters = nn.Linear(dim, filters * kernel * kernel)
        self.feature_norm = nn.BatchNorm2d(filters)
        self.project = nn.Sequential(
            Projection(filters * num_places(self.image, kernel), dim),
            nn.Dropout(output_dropout),
            nn.BatchNorm1d(dim),
            nn.ReLU(),
        )

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Convolve anchor and relation with the relation's own filters: (Q, d + 1)."""
        relations = self.encoded_relations()
        directed = self.directed(relation, side)
        vectors = relations.index_select(0, directed)
        image = torch.stack([anchor[:, :-1], vectors], dim=1).view(-1, 1, *self.image)
        image = dropout(image, self.input_dropout, self.training)
        filters = self.to_filters(relations).index_select(0, directed)
        filters = filters.view(-1, self.filters, self.kernel, self.kernel)  # (Q, C, kernel, kernel)
        with halved(self.training):
            maps = features(image, filters, self.feature_norm, None, self.feature_dropout)
            return with_bias(self.project(maps))


class Layer(nn.Module):
    """One round of attention: see HRAN."""

    def __init__(self, dim: int, beta: float) -> None:
        super().__init__()
        self.beta = beta
        self.attend = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, 1, bias=False))
        self.transform = nn.Linear(dim, dim, bias=False)
        self.norm = nn.BatchNorm1d(dim)
        self.relate = nn.Sequential(nn.Linear(dim, dim, bias=False), nn.BatchNorm1d(dim), nn.ReLU())

    def forward(
        self, rows: Tensor, relations: Tensor, hop: Hop, share: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attend over entities (S, d) for receivers (N, d), and transform relations (2R, d)."""
        own, messages = hop.receivers(rows), hop.messages
        attention = torch.sigmoid(self.attend(relations)).squeeze(1)  # (2R,)
        weight = share * attention.index_select(0, messages.relation)
        heard = messages.collect("all", weight, len(own), rows, None)
        mixed = self.transform((1 - self.beta) * heard + self.beta * own)
        return torch.relu(self.norm(mixed)), self.relate(relations)
