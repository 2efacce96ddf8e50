"""Samplers by the papers' names in lower case."""

from puda.sampling.base import Sampler, Unlabeled
from puda.sampling.kbgan import KBGANSampler
from puda.sampling.nscaching import NSCachingSampler
from puda.sampling.sans import SANSSampler
from puda.sampling.true_negatives import TrueNegativesSampler
from puda.sampling.uniform import SelfAdversarialSampler, UniformSampler

SAMPLERS: dict[str, type[Sampler]] = {
    "uniform": UniformSampler,
    "self-adversarial": SelfAdversarialSampler,
    "nscaching": NSCachingSampler,
    "kbgan": KBGANSampler,
    "sans": SANSSampler,
    "true-negatives": TrueNegativesSampler,
}

__all__ = ["SAMPLERS", "Sampler", "Unlabeled"]
