"""Honest measurement: filtered ranks of both sides, beside trivial baselines."""
