"""Scoring functions by the paper's names in lower case."""

from puda.config import ScoringConfig, accepted, nearest
from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.scoring.base import ScoringFunction
from puda.scoring.complex import ComplEx
from puda.scoring.distmult import DistMult

SCORING: dict[str, type[ScoringFunction]] = {
    "distmult": DistMult,
    "complex": ComplEx,
}


def build_model(config: ScoringConfig, graph: KnowledgeGraph) -> ScoringFunction:
    """Make the scoring function that a config names; its parameters are drawn at random."""
    if config.name not in SCORING:
        raise ConfigError(f"no scoring function {config.name!r}{nearest(config.name, SCORING)}")
    kind = SCORING[config.name]
    options = accepted(kind, config.options, given=("graph", "dim"), what=config.name)
    return kind(graph, config.dim, **options)


__all__ = ["SCORING", "ScoringFunction", "build_model"]
