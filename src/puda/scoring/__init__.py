"""Scoring functions: each answers "(anchor, relation, side): which entities complete this?"."""

from puda.scoring.base import ScoringFunction, TiledScoring
from puda.scoring.registry import SCORING, build_model, register

__all__ = ["SCORING", "ScoringFunction", "TiledScoring", "build_model", "register"]
