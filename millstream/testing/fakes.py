"""Fakes of the ports, for tests of what stands behind them. Each keeps to its port's contract."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from millstream.errors import PipelineException, StreamsException
from millstream.model import PipelineMetadata, TopicPartition
from millstream.ports import (
    ChangelogBatch,
    CompiledPipeline,
    InternalTopic,
    OffsetOutOfRange,
    PipelineEnd,
    TopicDescription,
)
from millstream.topology.pipeline import Pipeline

__all__ = [
    "FakeChangelogConsumer",
    "FakeEngine",
    "FakeLog",
    "FakePipeline",
    "FakeTopics",
    "ManualClock",
]


class FakeLog:
    """Changelog partitions in memory. Any thread may write; consumers wait for what comes.

    Offsets count up from 0, and go on after `truncate`. `gap` leaves offsets that are no records, as
    transaction markers are.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._first: dict[TopicPartition, int] = {}
        self._records: dict[TopicPartition, list[tuple[bytes, bytes | None, int] | None]] = {}

    def append(self, partition: TopicPartition, *entries: tuple[bytes, bytes | None, int]) -> int:
        """Write records; the offset after the last one."""
        with self.changed:
            self._records.setdefault(partition, []).extend(entries)
            self.changed.notify_all()
            return self.end(partition)

    def gap(self, partition: TopicPartition, offsets: int = 1) -> int:
        """Let the log go on by some offsets that are no records."""
        with self.changed:
            self._records.setdefault(partition, []).extend([None] * offsets)
            self.changed.notify_all()
            return self.end(partition)

    def truncate(self, partition: TopicPartition, first: int) -> None:
        """Drop what is before `first`."""
        with self.changed:
            self._records[partition] = self._records[partition][first - self.first(partition) :]
            self._first[partition] = first

    def recreate(self, partition: TopicPartition) -> None:
        """Delete the topic and make it anew: empty, from offset 0."""
        with self.changed:
            self._records[partition] = []
            self._first[partition] = 0
            self.changed.notify_all()

    def first(self, partition: TopicPartition) -> int:
        """The offset of the first record."""
        with self.changed:
            return self._first.get(partition, 0)

    def end(self, partition: TopicPartition) -> int:
        """The offset after the last record."""
        with self.changed:
            return self._first.get(partition, 0) + len(self._records.get(partition, ()))

    def read(
        self, partition: TopicPartition, offset: int, count: int
    ) -> Sequence[tuple[bytes, bytes | None, int] | None]:
        """Up to `count` records from `offset` on; None for an offset that is no record.

        Raises:
            OffsetOutOfRange: `offset` is before the first record or after the end.
        """
        with self.changed:
            if not self.first(partition) <= offset <= self.end(partition):
                raise OffsetOutOfRange(f"position {offset} is not in '{partition}'", partition=partition)
            start = offset - self.first(partition)
            return self._records.get(partition, [])[start : start + count]


class FakeChangelogConsumer:
    """`ports.ChangelogConsumer` on a `FakeLog`. Holds its user to one thread.

    `fail(error)` makes the next poll raise it; `hold()` makes polls give nothing until `release()`.
    """

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.closed = False
        self.assignments: list[dict[TopicPartition, int | None]] = []
        self._positions: dict[TopicPartition, int] = {}
        self._failure: BaseException | None = None
        self._held = False
        self._user: int | None = None

    def fail(self, error: BaseException) -> None:
        """The next poll raises `error`."""
        with self.log.changed:
            self._failure = error
            self.log.changed.notify_all()

    def hold(self) -> None:
        """Polls give nothing, as when the broker is away."""
        with self.log.changed:
            self._held = True

    def release(self) -> None:
        """The broker is back."""
        with self.log.changed:
            self._held = False
            self.log.changed.notify_all()

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Read exactly these partitions, each from its offset; None: from the beginning."""
        self._check()
        self.assignments.append(dict(positions))
        self._positions = {
            partition: self.log.first(partition) if offset is None else offset
            for partition, offset in positions.items()
        }

    def poll(self, timeout_s: float, max_records: int = 10_000) -> list[ChangelogBatch]:
        """What has arrived; waits up to `timeout_s` for the first record."""
        self._check()
        with self.log.changed:
            self.log.changed.wait_for(self._has_news, timeout_s)
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._held:
                return []
            batches = []
            for partition, offset in self._positions.items():
                records = self.log.read(partition, offset, max_records)
                if records:
                    self._positions[partition] = offset + len(records)
                    entries = [record for record in records if record is not None]
                    batches.append(ChangelogBatch(partition, entries, offset + len(records)))
            return batches

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record that is still there."""
        self._check()
        return {partition: self.log.first(partition) for partition in partitions}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record."""
        self._check()
        return {partition: self.log.end(partition) for partition in partitions}

    def close(self) -> None:
        """Idempotent."""
        self.closed = True

    def _has_news(self) -> bool:
        if self._failure is not None:
            return True
        return not self._held and any(
            offset != self.log.end(partition) for partition, offset in self._positions.items()
        )

    def _check(self) -> None:
        if self.closed:
            raise AssertionError("the consumer is closed")
        thread = threading.get_ident()
        if self._user is None:
            self._user = thread
        if self._user != thread:
            raise AssertionError("a changelog consumer is used by one thread at a time")


class ManualClock:
    """Time that goes on when it is told to."""

    def __init__(self, now: float = 0.0, epoch_ms: int = 1_700_000_000_000) -> None:
        self._now = now
        self._epoch_ms = epoch_ms

    def now(self) -> float:
        """Seconds that only go forward."""
        return self._now

    def epoch_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._epoch_ms

    def advance(self, seconds: float) -> None:
        """Let time go on.

        Raises:
            ValueError: backwards.
        """
        if seconds < 0:
            raise ValueError(f"time does not go backwards; got {seconds}")
        self._now += seconds
        self._epoch_ms += round(seconds * 1000)


class FakeTopics:
    """`ports.Topics` over a dict. `go_away()` makes the cluster unreachable."""

    def __init__(self, topics: Mapping[str, int] | None = None) -> None:
        self.closed = False
        self.away = False
        self.created: list[InternalTopic] = []
        self._topics: dict[str, TopicDescription] = {}
        for name, partitions in (topics or {}).items():
            self.add(name, partitions)

    def add(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic, with an id of its own."""
        self._topics[name] = TopicDescription(name, partitions, uuid.uuid4().hex, dict(configs or {}))

    def remove(self, name: str) -> None:
        """Delete a topic."""
        del self._topics[name]

    def describe(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """The topics that exist, by name; a missing one is left out."""
        self._check()
        return {name: self._topics[name] for name in names if name in self._topics}

    def names(self) -> set[str]:
        """All topics' names."""
        self._check()
        return set(self._topics)

    def create(self, topics: Sequence[InternalTopic], replication_factor: int) -> None:
        """Create topics; one that exists already is left as it is. -1 partitions: one."""
        self._check()
        for topic in topics:
            if topic.name not in self._topics:
                self.created.append(topic)
                self.add(topic.name, max(topic.partitions, 1), topic.configs)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """All 0."""
        self._check()
        return dict.fromkeys(partitions, 0)

    def close(self) -> None:
        """Idempotent."""
        self.closed = True

    def _check(self) -> None:
        if self.closed:
            raise AssertionError("the topics port is closed")
        if self.away:
            raise StreamsException("could not reach the cluster; bootstrap.servers is 'fake:9092'")


class FakeEngine:
    """`ports.Engine` without Spark. A pipeline runs until it is stopped, or a test ends it with `end`.

    Attributes:
        compiled, started, stopped: names of pipelines, in the order of events.
        compile_error, start_error: raised by the next call.
        gate: `start` waits for it; clear it to hold Spark up.
        stop_gate: `stop` of a pipeline waits for it; clear it to hold closing up.
    """

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.compile_error: BaseException | None = None
        self.start_error: BaseException | None = None
        self.closed = False
        self.gate = threading.Event()
        self.gate.set()
        self.stop_gate = threading.Event()
        self.stop_gate.set()
        self._running: dict[str, FakePipeline] = {}
        self._changed = threading.Condition()

    @property
    def running(self) -> set[str]:
        """The pipelines that run now."""
        with self._changed:
            return set(self._running)

    def compile(self, pipeline: Pipeline, partitions: Mapping[str, int]) -> CompiledPipeline:
        """Takes the serdes that the stores declare."""
        assert not self.closed, "the engine is closed"
        assert not self.started, "a pipeline was started before all were compiled"
        if self.compile_error is not None:
            raise self.compile_error
        self.compiled.append(pipeline.name)
        serdes = {store.name: (store.key_serde, store.value_serde) for store in pipeline.stores}
        return CompiledPipeline(pipeline, serdes)

    def start(self, compiled: CompiledPipeline, on_end: Callable[[PipelineEnd], None]) -> FakePipeline:
        """Run it until `stop` or `end`."""
        assert self.gate.wait(30), "nobody opened the gate"
        assert not self.closed, "the engine is closed"
        if self.start_error is not None:
            raise self.start_error
        name = compiled.pipeline.name
        running = FakePipeline(name, self, on_end)
        with self._changed:
            assert name not in self._running, f"pipeline {name} runs already"
            self._running[name] = running
            self.started.append(name)
            self._changed.notify_all()
        return running

    def end(self, name: str, error: BaseException | None = None, timeout_s: float = 10.0) -> None:
        """End a pipeline as Spark would, with an error; waits until it was started."""
        with self._changed:
            assert self._changed.wait_for(lambda: name in self._running, timeout_s), f"{name} does not run"
        self._end(name, error or PipelineException(f"pipeline '{name}' failed", pipeline=name))

    def close(self) -> None:
        """Stops what runs. Idempotent."""
        self.closed = True
        for name in self.running:
            self._end(name, None)

    def _end(self, name: str, error: BaseException | None) -> None:
        with self._changed:
            running = self._running.pop(name, None)
            if running is None:
                return
            self.stopped.append(name)
            self._changed.notify_all()
        running.on_end(PipelineEnd(name, error))


class FakePipeline:
    """`ports.RunningPipeline` of a `FakeEngine`."""

    def __init__(self, name: str, engine: FakeEngine, on_end: Callable[[PipelineEnd], None]) -> None:
        self.name = name
        self.on_end = on_end
        self._engine = engine

    def stop(self) -> None:
        """`on_end` is called once, without an error."""
        assert self._engine.stop_gate.wait(30), "nobody opened the stop gate"
        self._engine._end(self.name, None)

    def metadata(self) -> PipelineMetadata:
        """Whether it runs."""
        return PipelineMetadata(self.name, running=self.name in self._engine.running)
