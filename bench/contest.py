"""Contestants in processes of their own, and how a job is run on one of them.

All have one broker, the same topics and as many threads as there are cores. A job's time runs from its first
record to its last result. It begins when a contestant reads its first record, or, for Spark by hand, when its
first micro-batch is triggered. It ends at the broker's timestamp of the last result. So no start of a
process, of a client or of a consumer group is included. CPU seconds are those of a contestant and everything
it has started, from the start of the job to its last result.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.children import Child, Failed, Used
from bench.figures import Progress, rounds
from bench.kafka_streams import FAST, QUICK_TO_ANSWER, JavaStreams
from bench.lab import Lab, NotMeasured
from bench.quix import PROGRAM, quix_python
from bench.words import PARTITIONS
from bench.workloads import LONG, TEXT, WINDOW, Input, Tally, Workload, finish

__all__ = [
    "LABELS",
    "NAMES",
    "Contest",
    "Contestant",
    "Outcome",
    "PythonContestant",
    "Run",
    "hire",
    "in_rounds",
]

LABELS: Mapping[str, str] = {
    "millstream": "Millstream",
    "java": "Kafka Streams",
    "spark": "Spark by hand",
    "quix": "Quix Streams",
}
NAMES = ("millstream", "java", "spark", "quix")
_STARTED_S = 100.0
_ANSWER_S = 30.0
_STOPPED_S = 70.0
_NEVER_WARM = ("quix",)
"""Contestants with a new process for each job."""
_MOST_FAILURES = 2
"""A contestant is given up after this many failures in a row, because each may take a minute."""


@dataclass(frozen=True, slots=True)
class Run:
    """One job: seconds from its first record to its last result, and what it used."""

    seconds: float
    records: int
    written: int
    cpu_s: float
    memory_mb: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds


@dataclass(frozen=True, slots=True)
class Outcome:
    """A contestant's runs of one workload, or why it has none."""

    runs: tuple[Run, ...] = ()
    why: str = ""


class Contestant(Protocol):
    """What runs jobs, one after the other."""

    def wait_until_ready(self) -> None:
        """Wait until it accepts commands."""

    def start(self, job: str, left: str, right: str, output: str) -> None:
        """Begin a job; it is running when this returns, or soon will be."""

    def begun(self) -> float:
        """When it began with its first record."""

    def check(self) -> None:
        """Raises what has ended it."""

    def stop(self) -> None:
        """End the job."""

    def used(self) -> Used:
        """What it has used so far."""

    @property
    def log_end(self) -> str:
        """The last lines it logged."""

    def close(self) -> None:
        """End it."""


class PythonContestant:
    """Millstream, or Spark by hand: `bench.contestant`."""

    def __init__(
        self,
        lab: Lab,
        name: str,
        settings: Mapping[str, object],
    ) -> None:
        self._lab = lab
        kind = "spark" if name == "spark" else "millstream"
        log = lab.path(f"{name}-log")
        command = [
            sys.executable,
            "-m",
            "bench.contestant",
            kind,
            lab.bootstrap_servers,
            json.dumps(settings),
        ]
        self.child = Child(LABELS[name], command, log, {"MILLSTREAM_SPARK_LOG": str(log)})
        self._counts = kind == "spark"

    def wait_until_ready(self) -> None:
        self.child.ask(_STARTED_S, do="ready")

    def start(
        self, job: str, left: str, right: str, output: str, settings: Mapping[str, object] | None = None
    ) -> None:
        self.begin(job, left, right, output, settings)
        self.begun_running()

    def begin(
        self, job: str, left: str, right: str, output: str, settings: Mapping[str, object] | None = None
    ) -> None:
        """Like `start`, but without waiting. `settings` are for this job's client alone."""
        if self._counts and job in ("words", "count", "windows"):
            right = self._lab.topic("changelog", PARTITIONS, {"cleanup.policy": "compact"})
        directory = self._lab.path("state")
        topics = {"left": left, "right": right, "output": output}
        start = {"do": "start", "job": job, "directory": str(directory), "settings": dict(settings or {})}
        self.child.say(json.dumps({**start, **topics}))

    def begun_running(self) -> float:
        """Wait for the job that `begin` began. Returns its seconds, without the process's own start.

        Raises:
            Failed: it did not start.
        """
        answer = json.loads(self.child.answer(_STARTED_S))
        if "error" in answer:
            raise Failed(f"{self.child.name}: {answer['error']}")
        return float(answer["seconds"])

    def begun(self) -> float:
        return float(self.child.ask(_ANSWER_S, do="begun")["at"])

    def check(self) -> None:
        self.child.ask(_ANSWER_S, do="check")

    def stop(self) -> None:
        self.child.ask(_STOPPED_S, do="stop")

    def used(self) -> Used:
        return self.child.used()

    @property
    def log_end(self) -> str:
        return self.child.log_end

    def close(self) -> None:
        self.child.close()


class _Java:
    """Kafka Streams."""

    def __init__(self, lab: Lab, settings: Mapping[str, str]) -> None:
        self._lab, self._settings = lab, settings
        self._streams = JavaStreams(lab)

    def wait_until_ready(self) -> None:
        self._streams.first_record()

    def start(self, job: str, left: str, right: str, output: str) -> None:
        self._streams.start(self._lab.name("java"), self._settings, job, left, right or "-", output)

    def begun(self) -> float:
        return self._streams.first_record()

    def check(self) -> None:
        self._streams.first_record()

    def stop(self) -> None:
        self._streams.ask("stop")

    def used(self) -> Used:
        return self._streams.child.used()

    @property
    def log_end(self) -> str:
        return self._streams.child.log_end

    def close(self) -> None:
        self._streams.close()


class _Quix:
    """Quix Streams: a process for each job, because it has nothing that would warm up."""

    def __init__(self, lab: Lab, linger_ms: int) -> None:
        self._lab, self._python = lab, quix_python()
        self._environment = {"QUIX_LINGER_MS": str(linger_ms)}
        self._child: Child | None = None
        self._first: float | None = None

    def wait_until_ready(self) -> None:
        """Nothing to wait for: it is started for each job."""

    def start(self, job: str, left: str, right: str, output: str) -> None:
        self._first = None
        arguments = [job, self._lab.bootstrap_servers, left, right or "-", output, self._lab.name("quix")]
        directory = self._lab.path("quix")
        log = self._lab.path("quix-log")
        command = [self._python, PROGRAM, *arguments, directory]
        self._child = Child(LABELS["quix"], command, log, self._environment)

    def begun(self) -> float:
        if self._first is None:
            self._first = float(json.loads(self._running.answer(_ANSWER_S))["at"])
        return self._first

    def check(self) -> None:
        if not self._running.is_alive:
            self._running.answer(0.1)
            raise Failed(f"{LABELS['quix']} has ended")

    def stop(self) -> None:
        self.close()

    def used(self) -> Used:
        return self._child.used() if self._child else Used(0.0, 0.0)

    @property
    def log_end(self) -> str:
        return self._child.log_end if self._child else ""

    def close(self) -> None:
        if self._child is not None:
            self._child.close(2.0)
            self._child = None

    @property
    def _running(self) -> Child:
        assert self._child is not None
        return self._child


def hire(
    lab: Lab, name: str, *, quick_to_answer: bool = False, settings: Mapping[str, object] | None = None
) -> Contestant:
    """A contestant, whose process is started.

    Raises:
        NotMeasured: it is not available here.
    """
    if name == "java":
        return _Java(lab, QUICK_TO_ANSWER if quick_to_answer else FAST)
    if name == "quix":
        return _Quix(lab, 0 if quick_to_answer else 20)
    uncached = {"statestore.cache.max.bytes": "0"} if quick_to_answer and name == "millstream" else {}
    return PythonContestant(lab, name, {**uncached, **(settings or {})})


class Contest:
    """The contestants. One that fails is restarted for the next job."""

    def __init__(self, lab: Lab, names: Sequence[str], make: Callable[[str], Contestant]) -> None:
        self._lab, self._make = lab, make
        self._held: dict[str, Contestant] = {}
        self.absent: dict[str, str] = {}
        self._in_a_row: Counter[str] = Counter()
        for name in names:
            try:
                self.of(name)
            except NotMeasured as error:
                self.absent[name] = str(error)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._held)

    def of(self, name: str) -> Contestant:
        """The one with that name."""
        if name not in self._held:
            self._held[name] = self._make(name)
        return self._held[name]

    def dismiss(self, name: str) -> None:
        """End a contestant, whatever it is doing."""
        contestant = self._held.pop(name, None)
        if contestant is not None:
            contestant.close()

    def run(self, name: str, workload: Workload, given: Input, deadline_s: float) -> Run:
        """Run one job from start to end.

        Raises:
            Failed: the job was not done in time, or its results are wrong.
        """
        lab = self._lab
        output = lab.topic("out", PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
        try:
            contestant = self.of(name)
            contestant.wait_until_ready()
            deadline = time.monotonic() + deadline_s * lab.patience
            before = contestant.used()
            contestant.start(workload.name, given.left, given.right, output)
            tally = Tally(_decoder(name, workload)) if workload.adds_up else None
            done = finish(lab, output, given.expected, tally, deadline, contestant.check)
            begun, after = contestant.begun(), contestant.used()
            contestant.stop()
        except (TimeoutError, RuntimeError, ValueError, Failed) as error:
            held = self._held.get(name)
            log = f" | {held.log_end}" if held is not None and isinstance(error, TimeoutError) else ""
            self.dismiss(name)
            self._in_a_row[name] += 1
            if self._in_a_row[name] == _MOST_FAILURES:
                self.absent[name] = f"it failed {_MOST_FAILURES} times in a row, the last time: {error}"
            raise Failed(f"{error}{log}") from error
        finally:
            lab.kafka.delete_topic(output)
        self._in_a_row[name] = 0
        return Run(done.at - begun, given.size, done.written, after.cpu_s - before.cpu_s, after.memory_mb)

    def close(self) -> None:
        """End all."""
        for name in tuple(self._held):
            self.dismiss(name)

    def __enter__(self) -> Contest:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _decoder(name: str, workload: Workload) -> Callable[[bytes, bytes], tuple[bytes, int]]:
    if name != "quix":
        return LONG
    return WINDOW if workload.name in ("windows", "sessions") else TEXT


def in_rounds(
    contest: Contest,
    workload: Workload,
    inputs: Mapping[str, Input],
    *,
    most: int,
    until: float,
    deadline_s: float,
    tell: Progress,
) -> dict[str, Outcome]:
    """Run each contestant once to warm up, then in turns, until there are enough rounds or time is up.

    Args:
        inputs: by the contestant's name; and `warm`, for warming up.
        until: by `time.monotonic()`; there is at least one round.
    """
    outcomes = {name: Outcome(why=why) for name, why in {**contest.absent, **workload.without}.items()}
    names = [name for name in NAMES if name not in outcomes]
    runs: dict[str, list[Run]] = {name: [] for name in names}
    took = 0.0
    for number, order in enumerate(rounds(names, most + 1)):
        if number > 1 and time.monotonic() + took > until:
            break
        begun = time.monotonic()
        for name in order:
            if name in outcomes or (not number and name in _NEVER_WARM):
                continue
            given = inputs[name] if number else inputs["warm"]
            what = f"round {number} of {most}" if number else "warming up"
            tell(f"{workload.title}: {what}: {LABELS[name]}")
            try:
                run = contest.run(name, workload, given, deadline_s)
            except (Failed, NotMeasured) as error:
                outcomes[name] = Outcome(tuple(runs[name]), str(error))
                tell(f"{workload.title}: {LABELS[name]} FAILED: {error}")
                continue
            tell(f"{workload.title}: {what}: {LABELS[name]}: {run.rate:,.0f} records/s")
            if number:
                runs[name].append(run)
        took = time.monotonic() - begun
    return {name: outcomes.get(name, Outcome(tuple(runs.get(name, ())))) for name in (*names, *outcomes)}
