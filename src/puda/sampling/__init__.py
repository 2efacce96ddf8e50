"""Samplers by name."""

from collections.abc import Callable

from puda.sampling.base import Sampler, Unlabeled
from puda.sampling.uniform import UniformSampler

SAMPLERS: dict[str, Callable[..., Sampler]] = {"uniform": UniformSampler}

__all__ = ["SAMPLERS", "Sampler", "Unlabeled"]
