"""ConvE (Dettmers et al. 2018), and its convolution, which graph encoders use as a decoder."""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, unfold

from puda.config import Count, Share
from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.fused import halved, product, products
from puda.scoring.base import ScoringFunction, xavier


def image_shape(dim: int, kernel: int) -> tuple[int, int]:
    """Lay two vectors of d numbers out as an image, about four times as high as wide."""
    width = max(w for w in range(1, dim + 1) if dim % w == 0 and 2 * w * w <= max(dim, 2))
    height = 2 * dim // width
    if min(height, width) < kernel:
        raise ConfigError(
            f"scoring.dim = {dim} makes an image of {height} x {width}, too small for a kernel of"
            f" {kernel} x {kernel}: choose a dim with more divisors, e.g. 200"
        )
    return height, width


def num_places(shape: tuple[int, int], kernel: int) -> int:
    """Count the places of a kernel inside an image."""
    return (shape[0] - kernel + 1) * (shape[1] - kernel + 1)


class Projection(nn.Linear):
    """A linear map that multiplies as all scores do, in half precision where that is asked for."""

    def forward(self, features: Tensor) -> Tensor:
        """Map (Q, features) to (Q, d)."""
        return product(features, self.weight) + self.bias


def features(
    image: Tensor, filters: Tensor, norm: nn.BatchNorm2d, bias: Tensor | None, share: float
) -> Tensor:
    """ReLU(BN(filters * image + bias)), in training without a share of the maps: (Q, C * places).

    image (Q, 1, height, width); filters (C, k, k), or (Q, C, k, k) for filters of a question's own.
    Means and variances of the maps follow from those of the image's patches, so normalisation and
    dropout change the filters: the maps, by far the largest tensor, are made once and not
    rewritten.
    """
    patches = unfold(image, filters.shape[-1])  # (Q, k k, places)
    number, _, places = patches.shape
    filters = filters.flatten(-2)  # (C, k k) or (Q, C, k k)
    mean, variance = norm.running_mean, norm.running_var  # (C,)
    assert mean is not None and variance is not None
    offset = 0.0 if bias is None else bias
    if norm.training:
        middle = patches.mean(2, keepdim=True)  # (Q, k k, 1)
        spread = patches @ patches.mT / places  # (Q, k k, k k)
        if filters.dim() == 2:
            middle, spread = middle.mean(0), spread.mean(0)
        centre = (filters @ middle).squeeze(-1)  # of the maps: (C,) or (Q, C)
        square = (filters @ spread * filters).sum(-1)
        centre, square = centre.view(-1, len(mean)).mean(0), square.view(-1, len(mean)).mean(0)
        varied = (square - centre.square()).clamp(min=0)
        _remember(norm, centre + offset, varied, number * places)
        mean, variance = centre + offset, varied
    scale = norm.weight * (variance + norm.eps).rsqrt()
    shift = norm.bias + (offset - mean) * scale
    kept = dropout(scale.new_ones(number, len(scale), 1), share, norm.training)  # (Q, C, 1)
    whole = torch.cat([filters * scale.unsqueeze(1) * kept, shift.unsqueeze(1) * kept], dim=2)
    ones = patches.new_ones(number, 1, places)
    maps: Tensor = products(whole, torch.cat([patches, ones], dim=1)).relu_()
    return maps.flatten(1)


@torch.no_grad()
def _remember(norm: nn.BatchNorm2d, mean: Tensor, variance: Tensor, number: int) -> None:
    """Follow the batches' statistics as torch does: the variance of a population."""
    assert norm.running_mean is not None and norm.running_var is not None
    assert norm.momentum is not None and norm.num_batches_tracked is not None
    norm.running_mean.lerp_(mean, norm.momentum)
    norm.running_var.lerp_(variance * (number / (number - 1)), norm.momentum)
    norm.num_batches_tracked += 1


class Convolution(nn.Module):
    """g(a, r): anchor and relation as one image, convolved and projected back to d.

    The image stacks a over r, each reshaped to height x width, or interleaves their numbers
    (Vashishth et al. 2020), which lets every filter see both.
    """

    def __init__(
        self, dim: int, *, filters: int, kernel: int, interleaved: bool, dropouts: tuple[float, ...]
    ) -> None:
        super().__init__()
        self.interleaved, self.shape = interleaved, image_shape(dim, kernel)
        image, self.feature_dropout, output = dropouts
        self.image = nn.Sequential(
            nn.BatchNorm2d(1),
            nn.Dropout(image),
            nn.Conv2d(1, filters, kernel),
            nn.BatchNorm2d(filters),
        )
        self.project = nn.Sequential(
            Projection(filters * num_places(self.shape, kernel), dim),
            nn.Dropout(output),
            nn.BatchNorm1d(dim),
            nn.ReLU(),
        )

    def forward(self, anchor: Tensor, relation: Tensor) -> Tensor:
        """Convolve (Q, d) and (Q, d) to (Q, d), in training by half-precision products."""
        both = torch.stack([anchor, relation], dim=2 if self.interleaved else 1)  # (Q, d, 2)
        image_norm, image_dropout, filters, norm = self.image
        assert isinstance(filters, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d)
        image = image_dropout(image_norm(both.view(-1, 1, *self.shape)))
        weights = filters.weight.squeeze(1)
        with halved(self.training):
            maps = features(image, weights, norm, filters.bias, self.feature_dropout)
            question: Tensor = self.project(maps)
        return question


def with_bias(question: Tensor) -> Tensor:
    """Append a one (Q, d + 1), which meets the bias that ends each entity's row."""
    return torch.cat([question, torch.ones_like(question[:, :1])], dim=1)


class ConvE(ScoringFunction):
    """Score g(h, r) . t + b_t, with reciprocal relations; a row holds t, then its bias b_t.

    g: convolution of h over r, or of both interleaved, as one image, ReLU, linear map to d (see
    Convolution). Starts from Xavier's normal distribution, biases from 0.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        dim: int,
        filters: Count = 32,
        kernel: Count = 3,
        interleaved: bool = False,
        input_dropout: Share = 0.2,
        feature_dropout: Share = 0.2,
        output_dropout: Share = 0.3,
    ) -> None:
        super().__init__(graph, dim, reciprocal=True)
        self.row_dim = dim + 1
        self.relations = nn.Parameter(xavier(self.num_directed, dim))
        dropouts = (input_dropout, feature_dropout, output_dropout)
        self.convolution = Convolution(
            dim, filters=filters, kernel=kernel, interleaved=interleaved, dropouts=dropouts
        )

    def initial_entities(self) -> Tensor:
        """Draw vectors by Xavier; biases are 0."""
        return torch.cat(
            [xavier(self.num_entities, self.dim), torch.zeros(self.num_entities, 1)], 1
        )

    def encode(self, anchor: Tensor, relation: Tensor, side: Tensor) -> Tensor:
        """Convolve anchor and relation: (Q, d + 1)."""
        vectors = self.relations.index_select(0, self.directed(relation, side))
        return with_bias(self.convolution(anchor[:, :-1], vectors))
