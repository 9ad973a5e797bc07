"""How long it takes after a failure until all is well again, or over: handlers, groups, fail-over.

Times come from the machine's clock, which all processes share. A poison record makes a Python function raise
while a file exists, so it fails once and passes the second time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import psutil
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench.client import POISON, Agreements, Child, Event, program
from bench.figures import Goal, Progress, Report, Table, percentile, spread
from bench.lab import Lab
from bench.words import QUIET, is_up, wait_for
from millstream import KafkaStreams, StreamThreadExceptionResponse

__all__ = ["measure"]

PARTITIONS = 2
_PATIENCE_S = 120.0
_SESSION_MS = 3000
_PAUSE_S = 0.7
_IDLE_S = 10.0
_EVERY_S = 0.05

_Figures = dict[str, list[float]]


def measure(lab: Lab, *, quick: bool, tell: Progress) -> Report:
    """Run each scenario several times, one after the other."""
    times, starts = (2, 1) if quick else (15, 3)
    found: _Figures = {}
    with _logged(Path("build") / "bench" / "failures.log"):
        lab.session(tuned=True)
        for name, counts in (("map", False), ("count", True)):
            found |= _replacements(lab, name, counts, times, tell)
        found |= _deletions(lab, max(3, times // 3), tell)
        found |= _rejoins(lab, times, tell)
        for number in range(starts):
            tell(f"application-wide shutdown {number + 1} of {starts}")
            _add(found, _shutdown(lab))
            ways = (("kill", False),) if quick else (("kill", True), ("kill", False), ("close", True))
            for what, warm in ways:
                tell(f"fail-over {number + 1} of {starts}: {what}, {'warm' if warm else 'cold'}")
                _add(found, _fail_over(lab, kill=what == "kill", warm=warm))
    return _report(found)


# --- (a) a thread is replaced ----------------------------------------------------------------------------


def _replacements(lab: Lab, name: str, counts: bool, times: int, tell: Progress) -> _Figures:
    source, output, flag = lab.topic("in", PARTITIONS), lab.topic("out", PARTITIONS), lab.path("flag")
    asked: list[float] = []

    def handler(exception: BaseException) -> StreamThreadExceptionResponse:
        asked.append(time.time())
        flag.unlink(missing_ok=True)
        return StreamThreadExceptionResponse.REPLACE_THREAD

    failing, again = f"poison to handler, {name}", f"poison to its output, {name}"
    found: _Figures = {failing: [], again: []}
    streams = KafkaStreams(program(source, output, flag, counts=counts), _config(lab))
    streams.set_uncaught_exception_handler(handler)
    with streams, Tail(lab, output) as tail, Sender(lab, source) as sender:
        streams.wait_until_running()
        for number in range(times + 2):
            tell(f"replacing a thread, {name}: {number} of {times + 2}")
            # The first record starts a Python worker. The second one fails, which warms up the handling
            # of failures.
            poisonous = number > 0
            if poisonous:
                flag.touch()
            sent = sender.send(f"r{number}", POISON)
            arrived = tail.wait(f"r{number}", is_up(streams))
            if number > 1:
                found[failing].append(asked[-1] - sent)
                found[again].append(arrived - sent)
            time.sleep(_PAUSE_S)
    if len(asked) != times + 1:
        raise RuntimeError(f"{times + 1} records should fail once each, but the handler was called {asked}")
    return found


# --- (c) a topic is deleted ------------------------------------------------------------------------------


def _deletions(lab: Lab, times: int, tell: Progress) -> _Figures:
    found: _Figures = {"deletion of a topic to handler": []}
    for number in range(times):
        tell(f"deleting a source topic: {number + 1} of {times}")
        source, output = lab.topic("in", PARTITIONS), lab.topic("out", PARTITIONS)
        asked: list[tuple[float, str]] = []

        def handler(
            exception: BaseException, asked: list[tuple[float, str]] = asked
        ) -> StreamThreadExceptionResponse:
            asked.append((time.time(), type(exception).__name__))
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT

        streams = KafkaStreams(program(source, output, counts=False), _config(lab))
        streams.set_uncaught_exception_handler(lambda exception, handler=handler: handler(exception))
        with streams, Tail(lab, output) as tail, Sender(lab, source) as sender:
            streams.wait_until_running()
            sender.send("first", "good")
            tail.wait("first", is_up(streams))
            time.sleep(_PAUSE_S)
            deleted = time.time()
            lab.kafka.delete_topic(source)
            wait_for(lambda asked=asked: bool(asked), _PATIENCE_S, "call of the handler")  # type: ignore[misc]
        if asked[0][1] != "MissingSourceTopicException":
            raise RuntimeError(f"the handler got {asked[0][1]} for a deleted topic")
        found["deletion of a topic to handler"].append(asked[0][0] - deleted)
    return found


# --- (e) the group rebalances ----------------------------------------------------------------------------


def _rejoins(lab: Lab, times: int, tell: Progress) -> _Figures:
    source, output = lab.topic("in", PARTITIONS), lab.topic("out", PARTITIONS)
    application = lab.name("app")
    told: dict[str, Event] = {}
    clients = [
        KafkaStreams(
            program(source, output, counts=True),
            _config(lab, application, **{"client.id": f"c{number}"}),
        )
        for number in range(2)
    ]
    found: _Figures = {"a thread added, to all clients assigned": []}

    def newest() -> int:
        return max((event.generation for event in told.values()), default=0)

    with Agreements(told.__setitem__), clients[0] as first, clients[1] as second:
        for number in range(times):
            tell(f"rebalancing: {number + 1} of {times}")
            for change in (first.add_stream_thread, first.remove_stream_thread):
                first.wait_until_running()
                second.wait_until_running()
                time.sleep(_PAUSE_S)
                before, begun = newest(), time.time()
                change()
                wait_for(
                    lambda before=before: all(  # type: ignore[misc]
                        name in told and told[name].generation > before for name in ("c0", "c1")
                    ),
                    _PATIENCE_S,
                    "agreement",
                )
                if change == first.add_stream_thread:
                    found["a thread added, to all clients assigned"].append(
                        max(event.at for event in told.values()) - begun
                    )
    return found


# --- (b) the application shuts down ----------------------------------------------------------------------


def _shutdown(lab: Lab) -> _Figures:
    """Two clients, a process each; the first has the task and Spark."""
    source, output, flag = lab.topic("in", 1), lab.topic("out", PARTITIONS), lab.path("flag")
    with _pair(lab, source, output, flag, {}) as (first, second), Tail(lab, output) as tail:
        with Sender(lab, source) as sender:
            sender.send("first", "good")
            tail.wait("first", first.is_up)
            time.sleep(_PAUSE_S)
            flag.touch()
            sender.send("second", POISON)
        failed = first.wait("handler").at
        return {
            f"failure to {state}, {who}": [child.wait("state", state).at - failed]
            for who, child in (("the failed client", first), ("the other client", second))
            for state in ("PENDING_ERROR", "ERROR")
        }


# --- (d) another client takes over -----------------------------------------------------------------------


def _fail_over(lab: Lab, *, kill: bool, warm: bool) -> _Figures:
    source, output = lab.topic("in", 1), lab.topic("out", PARTITIONS)
    extra: dict[str, object] = {"keep.spark.warm": True} if warm else {}
    label = f"{'kill -9' if kill else 'close()'}, {'warm' if warm else 'cold'}"
    found: _Figures = {}
    with _pair(lab, source, output, None, extra) as (first, second), Tail(lab, output) as tail:
        if warm:
            second.wait("warm", "True")
        if kill and not warm:
            found |= _idle(second)
        with Sender(lab, source) as sender, sender.steadily(_EVERY_S):
            tail.wait_for_arrivals(20, first.is_up)
            begun = time.time()
            if kill:
                first.kill()
            else:
                first.say("close")
            assigned = second.wait("work", "0_0", after=begun).at
            arrived = tail.wait_after(assigned, second.is_up)
            time.sleep(_PAUSE_S)
        found[f"{label}: assigned to first output"] = [arrived - assigned]
        found[f"{label}: detection"] = [assigned - begun]
        moments = [at for at in tail.arrivals() if at > begun - 1]
        found[f"{label}: longest time without output"] = [
            max(later - earlier for earlier, later in pairwise(moments))
        ]
    return found


def _idle(child: Child) -> _Figures:
    """What a client without tasks costs while nothing happens."""
    process = psutil.Process(child.pid)
    if process.children(recursive=True):
        raise RuntimeError("a client without a task started a process")
    time.sleep(_PAUSE_S)
    before, begun = process.cpu_times(), time.monotonic()
    time.sleep(_IDLE_S)
    after, ended = process.cpu_times(), time.monotonic()
    used = after.user + after.system - before.user - before.system
    return {
        "idle CPU of a client without tasks, % of a core": [100 * used / (ended - begun)],
        "memory of a client without tasks, MB": [process.memory_info().rss / 2**20],
    }


@contextmanager
def _pair(
    lab: Lab, source: str, output: str, flag: Path | None, second_only: dict[str, object]
) -> Iterator[tuple[Child, Child]]:
    """Two RUNNING clients of one application: the first with the only task, the second with none."""
    application = lab.name("app")
    children: list[Child] = []
    try:
        for number in range(2):
            config = _config(
                lab,
                application,
                **{"consumer.session.timeout.ms": _SESSION_MS, **(second_only if number else {})},
            )
            child = Child(
                Path("build") / "bench" / "failures-child.log",
                servers=lab.bootstrap_servers,
                source=source,
                output=output,
                flag=flag or "",
                response="SHUTDOWN_APPLICATION",
                config=config,
            )
            children.append(child)
            child.wait("running")
        first, second = children
        first.wait("work", "0_0")
        yield first, second
    finally:
        for child in children:
            child.kill()


# --- what all of them use --------------------------------------------------------------------------------


def _config(lab: Lab, application: str | None = None, **more: object) -> dict[str, object]:
    return {
        "application.id": application or lab.name("app"),
        "bootstrap.servers": lab.bootstrap_servers,
        "state.dir": str(lab.path("state")),
        **more,
    }


class Sender:
    """Writes records immediately."""

    def __init__(self, lab: Lab, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "linger.ms": 0, **QUIET})

    def send(self, key: str, value: str) -> float:
        """Write a record. Returns when."""
        at = time.time()
        self._producer.produce(self._topic, value, key)
        self._producer.flush(10)
        return at

    @contextmanager
    def steadily(self, every_s: float) -> Iterator[None]:
        """Keep writing records, each with a key of its own, at this interval."""
        stopping = threading.Event()

        def run() -> None:
            number = 0
            while not stopping.wait(every_s):
                number += 1
                self.send(f"k{number}", "good")

        sending = threading.Thread(target=run, name="bench-sender", daemon=True)
        sending.start()
        try:
            yield
        finally:
            stopping.set()
            sending.join(30)

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *error: object) -> None:
        self._producer.flush(10)


class Tail:
    """Reads an output topic, and notes when each record arrives."""

    def __init__(self, lab: Lab, topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": lab.bootstrap_servers,
                "group.id": f"tail-{topic}",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                **QUIET,
            }
        )
        self._consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        )
        self._arrived: list[tuple[float, str]] = []
        self._stopping = threading.Event()
        self._reader = threading.Thread(target=self._read, name=f"tail-{topic}", daemon=True)
        self._reader.start()

    def wait(self, key: str, is_alive: Callable[[], bool] = lambda: True) -> float:
        """When the first record with this key arrived."""
        wait_for(
            lambda: any(each == key for _, each in tuple(self._arrived)),
            _PATIENCE_S,
            f"record '{key}' in '{self._topic}'",
            is_alive,
        )
        return next(at for at, each in self._arrived if each == key)

    def wait_after(self, moment: float, is_alive: Callable[[], bool]) -> float:
        """When the first record after this moment arrived."""
        wait_for(
            lambda: any(at > moment for at in self.arrivals()),
            _PATIENCE_S,
            f"output in '{self._topic}'",
            is_alive,
        )
        return next(at for at in self.arrivals() if at > moment)

    def wait_for_arrivals(self, count: int, is_alive: Callable[[], bool]) -> None:
        wait_for(lambda: len(self._arrived) >= count, _PATIENCE_S, f"output in '{self._topic}'", is_alive)

    def arrivals(self) -> list[float]:
        """When each record arrived, in order of arrival."""
        return [at for at, _ in tuple(self._arrived)]

    def __enter__(self) -> Tail:
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._reader.join(10)

    def _read(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._arrived.append((time.time(), (message.key() or b"").decode()))
        self._consumer.close()


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """Log to a file: what fails here on purpose would fill the terminal with tracebacks."""
    logger = logging.getLogger("millstream")
    path.parent.mkdir(parents=True, exist_ok=True)
    to_file = logging.FileHandler(path, mode="w")
    to_file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger.addHandler(to_file)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = True
        logger.removeHandler(to_file)
        to_file.close()


def _add(found: _Figures, more: _Figures) -> None:
    for name, values in more.items():
        found.setdefault(name, []).extend(values)


# --- the report ------------------------------------------------------------------------------------------

_GOALS = {
    "poison to its output, map": 1.0,
    "poison to its output, count": 1.0,
    "deletion of a topic to handler": 0.5,
    "failure to PENDING_ERROR, the failed client": 0.4,
    "failure to PENDING_ERROR, the other client": 0.4,
    "failure to ERROR, the failed client": 1.0,
    "failure to ERROR, the other client": 1.0,
    "kill -9, warm: assigned to first output": 2.0,
}
"""Seconds, for the median."""
_KAFKA_STREAMS = {
    "poison to its output, map": "43 s",
    "poison to its output, count": "43 s",
    "deletion of a topic to handler": "0.5 to 3 s",
    "failure to PENDING_ERROR, the other client": "1 to 2 s",
    "failure to ERROR, the other client": "1 to 12 s",
}
"""Version 4.3.1 with its defaults, measured separately, for scale."""


def _report(found: _Figures) -> Report:
    rows = []
    for name, values in found.items():
        seen = spread(values)
        in_seconds = "%" not in name and "MB" not in name
        digits = 3 if in_seconds else 1
        rows.append(
            (
                name,
                f"{len(values)}",
                f"{seen.median:.{digits}f}",
                f"{seen.low:.{digits}f}",
                f"{percentile(values, 90):.{digits}f}",
                f"{seen.high:.{digits}f}",
                f"{_GOALS[name]:g}" if name in _GOALS else "",
                _KAFKA_STREAMS.get(name, ""),
            )
        )
    table = Table(
        "After a failure: seconds, unless another unit is given",
        ("what", "n", "median", "min", "p90", "max", "goal", "Kafka Streams"),
        tuple(rows),
        (
            "failure: when the handler is called; the failed client has Spark in a process of its own",
            f"detection after kill -9 takes the session timeout, {_SESSION_MS} ms here; after close() the "
            "group knows at once",
            f"longest time without output: a record is sent every {_EVERY_S * 1000:.0f} ms; "
            "none is missing when output resumes",
            "Kafka Streams: 4.3.1 with its defaults, measured separately, for scale",
        ),
    )
    goals = tuple(
        Goal(name, spread(found[name]).median, limit, "s") for name, limit in _GOALS.items() if name in found
    )
    return Report("failures", (table,), goals, {"seconds": found})
