"""Processes of the benchmark: they answer or report why not, and none outlives the benchmark."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from bench.children import Child, Failed, usage
from bench.client import Agreements, Event
from bench.lab import Lab

pytestmark = pytest.mark.disk

_ECHO = "import sys\nfor line in sys.stdin: print(line.strip()[::-1], flush=True)"
_FALLS = "import sys; sys.stdin.readline(); sys.stderr.write('one\\ntwo\\n'); sys.exit(3)"
_DEAF = "import signal\nwhile True: signal.pause()"


def test_a_child_answers_line_by_line(tmp_path: Path) -> None:
    """The child ends when its input does."""
    with Child("echo", [sys.executable, "-c", _ECHO], tmp_path / "log") as child:
        child.say("abc")
        assert child.answer(30) == "cba"
        assert child.used().memory_mb > 1
    assert not child.is_alive
    assert usage(child.pid).cpu_s == 0


def test_who_has_ended_is_failed_with_the_end_of_its_log(tmp_path: Path) -> None:
    """The reason is in the report, not in a file that is gone by then."""
    with Child("it", [sys.executable, "-c", _FALLS], tmp_path / "log") as child:
        child.say("go")
        for _ in range(2):
            with pytest.raises(Failed, match=r"it has ended: one \| two"):
                child.answer(30)


def test_who_says_nothing_is_killed(tmp_path: Path) -> None:
    """A benchmark never hangs because a contestant does."""
    with Child("it", [sys.executable, "-c", _DEAF], tmp_path / "log") as child:
        with pytest.raises(Failed, match=r"it said nothing for 0\.2 s"):
            child.answer(0.2)
        assert not child.is_alive


def test_a_lab_that_is_left_has_no_children(tmp_path: Path) -> None:
    """A benchmark that is interrupted while it starts a process leaves none behind."""
    with Lab() as lab:
        child = Child("it", [sys.executable, "-c", _DEAF], tmp_path / "log")
        assert child.is_alive
        assert lab.directory.exists()
    assert not child.is_alive
    assert not lab.directory.exists()


def test_a_child_ends_with_the_benchmark(tmp_path: Path) -> None:
    """Killed with -9, the benchmark leaves nothing behind."""
    parent = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            "import sys; from pathlib import Path; from bench.children import Child\n"
            f"child = Child('echo', [sys.executable, '-c', {_ECHO!r}], Path({str(tmp_path / 'log')!r}))\n"
            "child.say('x'); child.answer(30); print(child.pid, flush=True); sys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(10)
    with suppress(psutil.NoSuchProcess):
        psutil.Process(child).wait(30)
    assert not psutil.pid_exists(child)
    for stream in (parent.stdin, parent.stdout):
        assert stream is not None
        stream.close()


def test_what_the_group_gave_a_client_is_read_from_its_log() -> None:
    """The line is the one that `coordination.py` words, and the client logs. What another client still runs
    is not its yet."""
    told: list[tuple[str, Event]] = []
    with Agreements(lambda client, event: told.append((client, event))):
        for said in (
            "generation 3: tasks 0_0, 0_1, standbys none, not yet 0_1",
            "generation 4: tasks 0_0, 0_1, standbys 1_0, 1_1",
        ):
            logging.getLogger("millstream.runtime.client").info("%s %s", "stream-client [a-1]", said)
    [(client, event)] = told
    assert (client, event.what, event.detail, event.generation) == ("a-1", "work", "0_0, 0_1", 4)
