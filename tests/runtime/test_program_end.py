"""How a program that runs a client ends: each in a process of its own, with real signals and forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).with_name("ending_program.py")
TESTS = PROGRAM.parent.parent

CLOSED = "State transition from PENDING_SHUTDOWN to NOT_RUNNING"


def run(tmp_path: Path, way: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the program until it ends in this way."""
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path), way, *more],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (TESTS, TESTS / "fakes")))},
    )


# --- the end of the program ------------------------------------------------------------------------------


def test_ctrl_c_in_wait_closes_the_client_and_returns(tmp_path: Path) -> None:
    """No traceback; the program goes on behind wait()."""
    ended = run(tmp_path, "ctrl_c_in_wait")
    assert ended.returncode == 0, ended.stderr
    assert "wait gave NOT_RUNNING True" in ended.stdout
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("returns", 0),
        ("exits", 3),
        ("raises", 1),
        ("interrupted", -signal.SIGINT),
    ],
)
def test_a_program_that_ends_closes_its_clients_and_then_what_they_need(
    how: str, code: int, tmp_path: Path
) -> None:
    """Python ends in each way, without close(), with two clients. Spark's JVM was the last to start."""
    ended = run(tmp_path, "two_clients", how)
    assert ended.returncode == code, ended.stderr
    after = ended.stdout.partition("done")[2]
    assert after.count("the client is still open") == 2
    assert after.index("the JVM ends: NOT_RUNNING NOT_RUNNING") < after.index("an earlier hook")
    assert not (tmp_path / "app" / ".owner").exists()
    assert not (tmp_path / "other" / ".owner").exists()


def test_a_client_that_cannot_be_closed_does_not_keep_the_program(tmp_path: Path) -> None:
    """There is a deadline, it is logged, and what comes after clients is closed all the same."""
    ended = run(tmp_path, "a_client_hangs")
    assert ended.returncode == 0, ended.stderr
    assert "'stuck' did not close within 0.3 s" in ended.stdout
    assert ended.stdout.rstrip().endswith("the JVM ends")


# --- SIGTERM ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "way",
    [("sigterm_in_wait",), ("sigterm_in_with",), ("sigterm_in_both",), ("in_asyncio", "SIGTERM")],
    ids=["wait", "with", "both", "asyncio"],
)
def test_sigterm_closes_the_client_and_ends_the_program(way: tuple[str, ...], tmp_path: Path) -> None:
    """The exit code is 143, as shells, Docker, Kubernetes and a JVM have it; `finally` blocks run."""
    ended = run(tmp_path, *way)
    assert ended.returncode == 143, (ended.stdout, ended.stderr)
    assert CLOSED in ended.stdout
    assert "not reached" not in ended.stdout
    assert "nobody closed" not in ended.stdout
    assert "failed" not in ended.stdout
    assert not ended.stderr
    assert ("finally" in ended.stdout) == (way[0] in ("sigterm_in_with", "in_asyncio"))
    assert not (tmp_path / "app" / ".owner").exists()


def test_ctrl_c_in_asyncio_closes_the_client(tmp_path: Path) -> None:
    """It cancels the main task, which leaves `async with`; then it is KeyboardInterrupt, as always."""
    ended = run(tmp_path, "in_asyncio", "SIGINT")
    assert ended.returncode == -signal.SIGINT, (ended.stdout, ended.stderr)
    assert CLOSED in ended.stdout
    assert "nobody closed" not in ended.stdout
    assert ended.stderr.rstrip().endswith("KeyboardInterrupt")


def test_sigterm_while_the_client_starts(tmp_path: Path) -> None:
    """It is closed, not in ERROR: nothing has failed."""
    ended = run(tmp_path, "sigterm_while_starting")
    assert ended.returncode == 143, (ended.stdout, ended.stderr)
    assert CLOSED in ended.stdout
    assert "ERROR" not in ended.stdout
    assert not ended.stderr


@pytest.mark.parametrize(
    ("first", "second"),
    [(signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGINT)],
)
def test_a_second_signal_ends_the_program_at_once(
    first: signal.Signals, second: signal.Signals, tmp_path: Path
) -> None:
    """A listener of the program never returns, so that closing cannot end."""
    ended = run(tmp_path, "two_signals", first.name, second.name)
    assert ended.returncode == -second
    assert "a second signal ends the program at once" in ended.stdout
    assert CLOSED not in ended.stdout


def test_a_handler_of_the_programs_own_stays(tmp_path: Path) -> None:
    """It is the one that is called, in wait() and in `with`; and where there is none, none is left."""
    ended = run(tmp_path, "own_handler")
    assert ended.returncode == 0, ended.stderr
    assert "my own" in ended.stdout
    assert "NOT_RUNNING" in ended.stdout


# --- fork ------------------------------------------------------------------------------------------------


def test_a_forked_child_leaves_its_parents_client_alone(tmp_path: Path) -> None:
    """It ends as it wants to, inside the `with` block: no line of log, no close; using the client raises.
    Its SIGTERM is its own, multiprocessing goes on working, and the parent is as it was."""
    ended = run(tmp_path, "forks")
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    of_child = [line for line in lines if line.startswith("the child")]
    assert len(of_child) == 3
    assert "forked from it" in of_child[0]
    assert "of client" in of_child[1]
    assert "forked from it" in of_child[2]
    late = "State transition from REBALANCING to RUNNING"  # said by the parent's thread after it is RUNNING
    lines = [line for line in lines if not line.endswith(late)]
    between = lines[lines.index(of_child[1]) + 2 : lines.index("the parent: RUNNING")]
    assert between == ["status 7", f"status {-signal.SIGTERM}", "[1, 2]"]
    assert ended.stdout.count("the JVM ends") == 1
    assert ended.stdout.count(CLOSED) == 1
    assert not ended.stderr
