"""How long the machines run that do anything with a store, and compare it with a dict."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from tiers import examples

__all__ = ["QUICK"]

QUICK = settings(
    max_examples=examples(25),
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
