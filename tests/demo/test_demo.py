"""`millstream demo` as a person runs it: a real broker, real Spark, in a process of its own."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from spark_start import java_options
from waiting import wait_until

from millstream.polling import looks

TEXT = "To be, or not to be: that is the question.\nDon't panic, don't.\n\nStraße\n"
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 300.0
CLOSED_WITHIN_S = 2.0
MEMBERS = 4
"""The broker, its supervisor, that one's watcher, and Spark's JVM."""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]


class Demo:
    """A running demo; what it prints is collected, and every process that it ever starts is remembered."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        # All that is temporary goes to a place of its own, so that what is left behind can be seen.
        told = shlex.join(["--conf", f"spark.driver.extraJavaOptions={java_options()}", "pyspark-shell"])
        environment = {**os.environ, "TMPDIR": str(folder), "NO_COLOR": "1", "PYSPARK_SUBMIT_ARGS": told}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "millstream", "demo", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            cwd=ROOT,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.family: dict[int, psutil.Process] = {}
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, name="demo-output", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="demo-family", daemon=True)
        self._reader.start()
        self._watcher.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def _watch(self) -> None:
        try:
            root = psutil.Process(self.process.pid)
            while not self._ended.wait(0.05):
                for child in root.children(recursive=True):
                    self.family.setdefault(child.pid, child)
        except psutil.NoSuchProcess:
            return

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, text: str) -> None:
        def said() -> bool:
            assert text in self.text or self.process.poll() is None, f"ended without {text!r}:\n{self.text}"
            return text in self.text

        wait_until(said, f"it says {text!r}", DEADLINE_S)

    def wait_until_ended(self, timeout_s: float) -> int:
        """The exit code; all output has been read."""
        code = self.process.wait(timeout_s)
        self._reader.join(10)
        return code

    def survivors(self, timeout_s: float) -> list[str]:
        """The processes of its family that still run after so long."""
        left: list[psutil.Process] = []
        for _ in looks(timeout_s, every_s=0.02):
            left = [process for process in self.family.values() if _runs(process)]
            if not left:
                break
        return [f"{process.pid} {process.name()}" for process in left]

    def close(self) -> None:
        self._ended.set()
        for process in list(self.family.values()):
            if _runs(process):
                process.kill()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def demos() -> Iterator[list[Demo]]:
    started: list[Demo] = []
    yield started
    for demo in started:
        demo.close()


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A short path: Spark's and Kafka's own names below it are long."""
    with tempfile.TemporaryDirectory(prefix="demo-test-") as folder:
        yield Path(folder)


def start(demos: list[Demo], folder: Path, *arguments: str) -> Demo:
    text = folder / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    scratch = folder / "tmp"
    scratch.mkdir()
    demo = Demo(scratch, *arguments, str(text))
    demos.append(demo)
    return demo


def test_the_demo_counts_checks_answers_and_leaves_nothing_behind(demos: list[Demo], temporary: Path) -> None:
    """From the first line to the exit code. `--keep`: a word and a prefix are queries of the store; a line
    goes through Kafka and Spark; the end of the input is the end. No process stays, and no file but the log
    that was asked for."""
    log = temporary / "millstream.log"
    demo = start(demos, temporary, "--plain", "--keep", "--log", str(log))
    demo.wait_for("everything keeps running")
    for line in (
        "4 lines are in Kafka",
        "the client is RUNNING",
        "4 lines are counted, the store is up to date",
        "all 12 counts equal those of plain Python",
        "OK: 15 words, 12 distinct",
    ):
        assert line in demo.text
    assert "don't         2" in demo.text
    assert demo.process.stdin is not None
    demo.process.stdin.write("Don't\nqu*\nzebra\n+ to be again\n")
    demo.process.stdin.flush()
    demo.wait_for("from here through Kafka and Spark into the store")
    demo.process.stdin.close()
    assert demo.wait_until_ended(60) == 0, demo.text
    assert "2  don't" in demo.text
    assert "1  question" in demo.text
    assert "0  zebra" in demo.text
    assert "to 3" in demo.text
    assert "again 1" in demo.text
    assert demo.survivors(5) == []
    assert list(demo.folder.iterdir()) == []
    assert "State transition from REBALANCING to RUNNING" in log.read_text()


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("the words of", signal.SIGINT),
        ("Kafka is up", signal.SIGTERM),
        ("the client is RUNNING", signal.SIGINT),
    ],
)
def test_a_signal_ends_the_demo_at_any_moment(
    demos: list[Demo], temporary: Path, moment: str, number: signal.Signals
) -> None:
    """It ends within two seconds with the shell's exit code and leaves nothing behind."""
    demo = start(demos, temporary, "--plain")
    demo.wait_for(moment)
    # As a terminal does it: to the whole group, those that were started included.
    os.killpg(demo.process.pid, number)
    began = time.monotonic()
    code = demo.wait_until_ended(30)
    # A machine that runs other things meanwhile gets twice the time.
    assert time.monotonic() - began < 2 * CLOSED_WITHIN_S
    assert code == 128 + number
    assert "stopped" in demo.text
    assert demo.survivors(3) == []
    assert list(demo.folder.glob("millstream-demo-*")) == []


def test_a_killed_demo_takes_its_children_along(demos: list[Demo], temporary: Path) -> None:
    """The broker and the JVM end by themselves when the demo is killed with -9."""
    demo = start(demos, temporary, "--plain")
    demo.wait_for("the client is RUNNING")
    demo.process.kill()
    demo.process.wait(10)
    assert len(demo.family) >= MEMBERS
    assert demo.survivors(20) == []
