"""`millstream registry` in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request

import pytest

pytestmark = pytest.mark.disk


def test_it_says_where_it_is_answers_and_ends_with_a_term() -> None:
    """What it prints is the configuration of a client."""
    command = [sys.executable, "-m", "millstream", "registry", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("A schema registry for development: schema.registry.url=http://127.0.0.1:")
            url = said.strip().rpartition("=")[2]
            with urllib.request.urlopen(f"{url}/subjects", timeout=10) as reply:
                assert json.loads(reply.read()) == []
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
