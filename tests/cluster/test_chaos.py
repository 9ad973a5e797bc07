"""A short soak with one fault of each kind; `make chaos` runs long ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos import FAULTS, Chaos, plan

pytestmark = pytest.mark.cluster


def test_a_plan_is_the_same_for_the_same_seed_and_has_every_kind() -> None:
    """So that what a run has found can be looked for again."""
    assert plan(7, 60, 8) == plan(7, 60, 8)
    assert plan(7, 60, 8) != plan(8, 60, 8)
    assert {fault.kind for fault in plan(7, 60, len(FAULTS))} == set(FAULTS)


@pytest.mark.timeout(420)  # what the run waits for has limits of its own, which say more
def test_counts_are_exact_after_one_fault_of_each_kind(tmp_path: Path) -> None:
    """Two clients; in the end the output topic is deleted, and who writes it hears of that."""
    report = Chaos(1012, tmp_path, clients=2, last="output").run(30, len(FAULTS))
    print(f"\n{report}")
    assert not report.wrong, str(report)
