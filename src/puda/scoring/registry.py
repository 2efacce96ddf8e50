"""Scoring functions by the paper's names in lower case, and how to add one's own."""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TypeVar

from puda.config import ScoringConfig, accepted, nearest
from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.scoring.base import ScoringFunction
from puda.scoring.compgcn import CompGCN
from puda.scoring.complex import ComplEx
from puda.scoring.conve import ConvE
from puda.scoring.convkb import ConvKB
from puda.scoring.crosse import CrossE
from puda.scoring.distmult import DistMult
from puda.scoring.graph_complex import GraphComplEx
from puda.scoring.hran import HRAN
from puda.scoring.pykeen import PyKEEN
from puda.scoring.rotate import RotatE
from puda.scoring.simple import SimplE
from puda.scoring.transe import TransE

SCORING: dict[str, type[ScoringFunction]] = {
    "distmult": DistMult,
    "complex": ComplEx,
    "simple": SimplE,
    "transe": TransE,
    "crosse": CrossE,
    "rotate": RotatE,
    "conve": ConvE,
    "convkb": ConvKB,
    "compgcn": CompGCN,
    "hran": HRAN,
    "graph-complex": GraphComplEx,
    "pykeen": PyKEEN,
}

Kind = TypeVar("Kind", bound=type[ScoringFunction])


def register(name: str) -> Callable[[Kind], Kind]:
    """Decorate a scoring function of one's own so that configs can name it."""

    def add(kind: Kind) -> Kind:
        if SCORING.setdefault(name, kind) is not kind:
            raise ConfigError(f"there is a scoring function {name!r} already: choose another name")
        return kind

    return add


def find(name: str) -> type[ScoringFunction]:
    """Look a scoring function up here, then among the entry points `puda.scoring` of packages."""
    if name not in SCORING:
        plugins = {plugin.name: plugin for plugin in entry_points(group="puda.scoring")}
        if name not in plugins:
            raise ConfigError(f"no scoring function {name!r}{nearest(name, [*SCORING, *plugins])}")
        SCORING[name] = plugins[name].load()
    return SCORING[name]


def build_model(config: ScoringConfig, graph: KnowledgeGraph) -> ScoringFunction:
    """Make the scoring function that a config names; its parameters are drawn at random."""
    kind = find(config.name)
    options = accepted(kind, config.options, given=("graph", "dim"), what=config.name)
    return kind(graph, config.dim, **options)
