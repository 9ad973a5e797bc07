"""What the campaign of faults says of results that are wrong. It starts nothing itself."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faults import Campaign
from proof import _differing

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(("found", "verdict"), [(3, "silent"), (1, "loud")])
def test_a_wrong_count_is_silent_although_a_handler_was_called(found: int, verdict: str) -> None:
    """One that is too low may only be late, and the handler has said why."""
    (detail,) = _differing({"w1": found}, Counter(w1=2))
    client: Any = SimpleNamespace(
        states=list, process=SimpleNamespace(poll=lambda: None), handled=lambda: [{"at": time.time()}]
    )
    world: Any = SimpleNamespace(cluster=SimpleNamespace(clients=(client,)))
    assert Campaign(Path())._verdict(world, detail) == verdict
