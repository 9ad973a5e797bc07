"""Runs the tests tier by tier: the fast one first, then the others, some at a time.

Each tier has its own process, so that none inherits another's JVM, broker, settings or threads. The first
tier takes seconds and needs no engine. If it fails, it ends the run, because the rest would only say the same
more slowly. Of the others, some compute and some mostly wait: for a broker, a session that times out, a
process that starts. So the tiers that compute run at a lower priority, and those that wait and look at the
clock get the CPU when they need it. The output of a tier is kept together and shown when the tier is done.

Arguments after `--` go to pytest. The last line has the totals of all tiers.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Tier:
    """A part of the tests, and how it is run."""

    name: str
    markers: str
    limit_s: int
    """Far more than a run needs, so that a hanging run ends by itself."""
    spread: bool = False
    """Whether its tests are spread over processes; for tests that share nothing slow to create."""
    yields: bool = False
    """Whether it leaves the CPU to other tiers that need it."""

    @property
    def words(self) -> str:
        """The markers that a file with tests of this tier names; for a database it needs none (tiers.py)."""
        words = self.markers.split()
        named = [word for before, word in zip(["", *words], words, strict=False) if before != "not"]
        return " ".join(word for word in named if word not in ("and", "not", "disk"))


TIERS = {
    tier.name: tier
    for tier in (
        Tier("pure", "not disk and not spark and not kafka and not cluster", 300, spread=True),
        Tier("spark", "spark and not kafka and not cluster", 3600, yields=True),
        Tier("disk", "disk and not spark and not kafka and not cluster", 600, spread=True, yields=True),
        Tier("kafka", "kafka and not spark and not cluster", 2400),
        Tier("end-to-end", "kafka and spark and not cluster", 2400),
        Tier("cluster", "cluster", 3600),
    )
}
"""Each test belongs to exactly one tier, that of the heaviest thing it needs; `end-to-end` tests need two."""

FIRST = "pure"
THEN = ("cluster", "spark", "end-to-end", "kafka", "disk")
"""The tiers that run once the first one has passed, longest first. Whichever lane is free takes the next."""

LANES = min(len(THEN), max(3, (os.cpu_count() or 2) // 2))
"""How many run at the same time: more than two cores have, because a third of the time each lane waits."""

WORKERS = 3
"""More than two cores have, because many tests wait: of two, three and four, three are the fastest there. Not
one for each of many cores, because each of them imports and collects all tests."""

MARKERS = "MILLSTREAM_TEST_MARKERS"
"""The variable with the markers of a tier. A file that names none of its tests so is not even imported, which
takes longer than some tiers' tests (tests/conftest.py)."""

EVERYTHING = bool(os.environ.get("ALL"))
"""Whether the tests that wait for the night run as well (tests/nightly.py)."""

NO_TESTS = 5
"""pytest's exit code when nothing was selected."""

LOST = -2
"""In place of an exit code: the result of a tier is not known."""

BEHIND_OTHERS = ("nice", "-n", "10")
"""How a command begins that runs at a lower priority."""

INTERRUPTED = 130
_GRACE_S = 30
"""How long a tier may take to end its broker and its clients when it is stopped."""


@dataclass(frozen=True, slots=True)
class Outcome:
    tier: str
    seconds: float
    exit_code: int
    tests: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def good(self) -> bool:
        return self.exit_code in (0, NO_TESTS)

    @property
    def passed(self) -> int:
        return self.tests - self.failed - self.skipped


def main(arguments: Sequence[str]) -> int:
    own, handed_on = _split(list(arguments))
    parser = argparse.ArgumentParser(description="run the tests tier by tier")
    parser.add_argument("--tiers", default=" ".join(TIERS), help=f"some of: {' '.join(TIERS)}")
    wanted = parser.parse_args(own).tiers.split()
    unknown = [name for name in wanted if name not in TIERS]
    if unknown:
        parser.error(f"there is no tier '{unknown[0]}'; the tiers are {', '.join(TIERS)}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # also if started in the background
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # the terminal is closed; nohup ignores it
        signal.signal(signal.SIGHUP, signal.default_int_handler)

    run = Run(handed_on, alone=len(wanted) == 1)
    try:
        if FIRST in wanted:
            run.lane(deque([FIRST]))
        if all(outcome.good for outcome in run.outcomes):
            run.side_by_side([name for name in THEN if name in wanted], LANES)
    except KeyboardInterrupt:
        try:
            run.stop(_GRACE_S)
        except KeyboardInterrupt:  # a second Ctrl-C means not to wait
            run.stop(0)
        print("\ninterrupted", flush=True)
        return INTERRUPTED
    return report(sorted(run.outcomes, key=lambda outcome: list(TIERS).index(outcome.tier)))


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments before `--`, and those after it."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


class Run:
    """The tiers of one run: the running ones, and the outcomes of the finished ones.

    Args:
        handed_on: Further arguments for pytest.
        alone: Whether there is only one tier, whose output can be shown as it comes.
    """

    def __init__(self, handed_on: Sequence[str], *, alone: bool) -> None:
        self.outcomes: list[Outcome] = []
        self._handed_on = list(handed_on)
        self._alone = alone
        self._running: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []
        self._stopping = False
        self._lock = threading.Lock()

    def side_by_side(self, names: Sequence[str], lanes: int) -> None:
        """Run tiers in this number of lanes, and return when all have ended."""
        left = deque(names)
        self._threads = [
            threading.Thread(target=self.lane, args=(left,), name=f"lane {number}", daemon=True)
            for number in range(min(lanes, len(names)))
        ]
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()

    def lane(self, left: deque[str]) -> None:
        """Run the remaining tiers, one after another; other lanes take from them too."""
        while not self._stopping:
            try:
                name = left.popleft()
            except IndexError:
                return
            outcome = Outcome(name, 0.0, LOST)
            try:
                outcome = self._run(TIERS[name])
            finally:  # a tier without a result counts as failed, whatever happens to this thread
                with self._lock:
                    self.outcomes.append(outcome)

    def stop(self, patience_s: float) -> None:
        """Interrupt the running tiers, so that they end their own processes; kill those that do not."""
        with self._lock:
            self._stopping = True
            running = list(self._running)
        for process in running:
            _signal(process, signal.SIGINT)
        deadline = time.monotonic() + patience_s
        for process in running:
            _end(process, deadline)
        for thread in self._threads:  # each shows its tier's output so far
            thread.join(5)

    def _run(self, tier: Tier) -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            results, output = Path(folder, "results.xml"), Path(folder, "output.txt")
            markers = tier.markers if EVERYTHING else f"{tier.markers} and not nightly"
            command = [sys.executable, "-m", "pytest", "-m", markers, f"--junitxml={results}"]
            command += ["--durations=5", "--durations-min=2"]
            if tier.spread:
                command += [f"--numprocesses={WORKERS}", "--dist=worksteal"]
            started = time.monotonic()
            at_once = self._alone or tier.name == FIRST
            if at_once:
                print(f"\n--- {tier.name} tests ---", flush=True)
            with output.open("wb") as file:
                process = self._start([*command, *self._handed_on], tier, None if at_once else file.fileno())
            code, note = self._wait(process, tier)
            seconds = time.monotonic() - started
            counts = _counts(results)
            if counts is None and code == 0:  # a test ended the process
                code, note = LOST, f"the {tier.name} tests ended without a report\n"
            if not at_once:
                text = output.read_text(encoding="utf-8", errors="replace")
                note = f"\n--- {tier.name} tests, {seconds:.0f} s ---\n{text}{note}"
            if note:
                with self._lock:
                    print(note, end="", flush=True)
            return Outcome(tier.name, seconds, code, **(counts or {}))

    def _start(self, command: list[str], tier: Tier, output: int | None) -> subprocess.Popen[bytes]:
        """Start a tier in its own session, so that only this process signals it, as a whole."""
        with self._lock:
            process = subprocess.Popen(
                [*BEHIND_OTHERS, *command] if tier.yields and not self._alone else command,
                cwd=ROOT,
                env=environment() | {MARKERS: tier.words},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.append(process)
            if not self._stopping:
                return process
        _end(process, time.monotonic())
        return process

    def _wait(self, process: subprocess.Popen[bytes], tier: Tier) -> tuple[int, str]:
        """Wait for it. Returns its exit code, and a note about its end."""
        try:
            code, note = process.wait(tier.limit_s), ""
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGINT)
            _end(process, time.monotonic() + _GRACE_S)
            code, note = -1, f"the {tier.name} tests were stopped: not done after {tier.limit_s} s\n"
        with self._lock:
            self._running.remove(process)
        return code, note


def environment() -> dict[str, str]:
    """Keeps compiled code; otherwise each tier and each client process would compile everything again."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the process only. It ends its own handlers, fixtures and children in their order."""
    if process.poll() is None:
        process.send_signal(number)


def _end(process: subprocess.Popen[bytes], deadline: float) -> None:
    """Wait for its end until the deadline, then kill it. In any case, kill what is left of its session."""
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with suppress(ProcessLookupError):  # everything has ended
        os.killpg(process.pid, signal.SIGKILL)


def _counts(results: Path) -> dict[str, int] | None:
    """The counts in pytest's own report; None if the process ended before it had written all of it."""
    try:
        suites = list(ElementTree.parse(results).iter("testsuite"))
    except (OSError, ElementTree.ParseError):
        return None
    counts = {"tests": 0, "failed": 0, "skipped": 0}
    for suite in suites:
        counts["tests"] += int(suite.get("tests", 0))
        counts["failed"] += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        counts["skipped"] += int(suite.get("skipped", 0))
    return counts


def report(outcomes: Sequence[Outcome]) -> int:
    """Print the table and the closing line. Returns the exit code of the whole run."""
    print()
    for outcome in outcomes:
        note = "" if outcome.good else f"exit code {outcome.exit_code}"
        note = "no tests" if outcome.exit_code == NO_TESTS else note
        counts = f"{outcome.passed:>5} passed {outcome.failed:>4} failed"
        print(f"{outcome.tier:<10} {counts} {outcome.seconds:>7.1f} s   {note}".rstrip())
    passed = sum(outcome.passed for outcome in outcomes)
    bad = [outcome for outcome in outcomes if not outcome.good]
    # A tier that ended badly without a failed test (killed or hanging) has also failed.
    failed = sum(max(outcome.failed, 0 if outcome.good else 1) for outcome in outcomes)
    if not passed and not bad:
        print("no test was run")
    print(f"\n{passed} passed, {failed} failed", flush=True)
    return 0 if passed and not bad else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
