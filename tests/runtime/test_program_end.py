"""How a program that runs a client ends: each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent

PROGRAM = """
import logging, os, signal, sys, threading
sys.path[:0] = sys.argv[2:]
from scenes import SOON, word_count
from millstream.runtime.client import KafkaStreams
from millstream.testing.world import FakeWorld

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
world = FakeWorld({"lines": 1, "out": 1})
config = {"application.id": "app", "bootstrap.servers": "fake:9092", "state.dir": sys.argv[1]}
streams = KafkaStreams(word_count(), config, parts=world.parts())
streams.start()
streams.wait_until_running(SOON)
"""


def run(tmp_path: Path, rest: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + rest, str(tmp_path), str(HERE), str(HERE.parent)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_ctrl_c_in_wait_closes_the_client_and_returns(tmp_path: Path) -> None:
    """No traceback; the program goes on behind wait()."""
    ended = run(
        tmp_path,
        "threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "print('wait gave', streams.wait(), world.everything_closed)\n",
    )
    assert ended.returncode == 0, ended.stderr
    assert "wait gave NOT_RUNNING True" in ended.stdout
    assert "Traceback" not in ended.stderr


def test_a_program_that_ends_closes_its_client(tmp_path: Path) -> None:
    """Nobody called close(): the end of the program does, and says so."""
    ended = run(tmp_path, "print('done')\n")
    assert ended.returncode == 0, ended.stderr
    after = ended.stdout.partition("done")[2]
    assert "nobody closed the client" in after
    assert "State transition from PENDING_SHUTDOWN to NOT_RUNNING" in after
    assert not ended.stderr
    assert not (tmp_path / "app" / ".owner").exists()


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_the_programs(code: int, tmp_path: Path) -> None:
    """Also when it leaves in the middle."""
    assert run(tmp_path, f"sys.exit({code})\n").returncode == code
