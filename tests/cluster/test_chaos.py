"""A short soak with one fault of each kind; `make chaos` runs long ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos import FAULTS, Chaos, plan

pytestmark = pytest.mark.cluster

BESIDES = ("poison", "worker", "handover", "broker")
"""The faults of a run with exactly once; test_exactly_once.py kills Spark, and stops a client."""


def test_a_plan_is_the_same_for_the_same_seed_and_has_every_kind() -> None:
    """So that what a run has found can be looked for again."""
    assert plan(7, 60, 8) == plan(7, 60, 8)
    assert plan(7, 60, 8) != plan(8, 60, 8)
    assert {fault.kind for fault in plan(7, 60, len(FAULTS))} == set(FAULTS)


@pytest.mark.timeout(420)  # what the run waits for has limits of its own, which say more
def test_counts_are_exact_after_one_fault_of_each_kind(tmp_path: Path) -> None:
    """Two clients; in the end the output topic is deleted, and who writes it hears of that."""
    report = Chaos(3690, tmp_path, clients=2, last="output").run(14, len(FAULTS))
    print(f"\n{report}")
    assert not report.wrong, str(report)


@pytest.mark.timeout(420)
def test_each_record_is_there_once_after_faults(tmp_path: Path) -> None:
    """Exactly once: a map, a count, a windowed count and a chain, while a record fails, Python workers are
    killed, both pipelines change hands, and the broker is killed."""
    report = Chaos(2176, tmp_path, clients=2, per_second=50, exactly_once=True).run(12, len(BESIDES), BESIDES)
    print(f"\n{report}")
    assert not report.wrong, str(report)
