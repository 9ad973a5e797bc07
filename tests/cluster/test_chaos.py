"""A short soak with one fault of each kind; `make chaos` runs long ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos import Chaos, plan

pytestmark = pytest.mark.cluster


def test_a_plan_is_the_same_for_the_same_seed_and_has_every_kind() -> None:
    """So that what a run has found can be looked for again."""
    assert plan(7, 60, 8) == plan(7, 60, 8)
    assert plan(7, 60, 8) != plan(8, 60, 8)
    assert {fault.kind for fault in plan(7, 60, 4)} == {"poison", "kill", "freeze", "broker"}


@pytest.mark.timeout(300)
def test_counts_are_exact_after_one_fault_of_each_kind(tmp_path: Path) -> None:
    """A failing record, kill -9, SIGSTOP and SIGCONT, a restart of the broker; two clients."""
    report = Chaos(5, tmp_path, clients=2).run(30, 4)
    print(f"\n{report}")
    assert not report.wrong, str(report)
