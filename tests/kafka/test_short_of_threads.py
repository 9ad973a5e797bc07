"""A process that may not start as many threads as a Kafka client needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.disk


@pytest.mark.parametrize(("kind", "number"), [("memory", 30), ("memory", 400), ("threads", 14)])
def test_a_client_that_cannot_have_its_threads_is_an_error_with_what_to_raise(kind: str, number: int) -> None:
    """librdkafka would end the process, or wait for ever and keep every other thread waiting too. What there
    is can still be closed."""
    child = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("short_of_threads.py")), kind, str(number)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = child.stdout.splitlines()
    assert child.returncode == 0, child.stderr
    assert " made, then StreamsException: no Kafka client can be created: it needs 8 more threads" in said[0]
    assert "ulimit -u, ulimit -v" in said[0]
    assert said[1] == "closed"
