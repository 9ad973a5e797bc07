"""Fakes of the ports, for tests of the code that uses them. Each one follows its port's contract."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millstream.errors import IllegalStateException, PipelineException, StreamsException
from millstream.model import BatchReport, OpeningTasks, PipelineMetadata, TopicPartition
from millstream.ports import (
    ChangelogBatch,
    CompiledPipeline,
    OffsetOutOfRange,
    PipelineEnd,
    TopicDescription,
)
from millstream.topology.internal_topics import InternalTopic
from millstream.topology.nodes import FrameTable
from millstream.topology.pipeline import Pipeline

__all__ = [
    "FakeChangelogConsumer",
    "FakeEngine",
    "FakeGroups",
    "FakeLog",
    "FakePipeline",
    "FakeTopics",
    "ManualClock",
]


class FakeLog:
    """Changelog partitions in memory. Any thread may write; consumers wait for new records.

    Offsets count up from 0, and continue after `truncate`. `gap` leaves offsets without records, like
    transaction markers.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._first: dict[TopicPartition, int] = {}
        self._records: dict[TopicPartition, list[tuple[bytes, bytes | None, int] | None]] = {}

    def append(self, partition: TopicPartition, *entries: tuple[bytes, bytes | None, int]) -> int:
        """Write records. Returns the offset after the last one."""
        with self.changed:
            self._records.setdefault(partition, []).extend(entries)
            self.changed.notify_all()
            return self.end(partition)

    def gap(self, partition: TopicPartition, offsets: int = 1) -> int:
        """Advance the log by some offsets without records."""
        with self.changed:
            self._records.setdefault(partition, []).extend([None] * offsets)
            self.changed.notify_all()
            return self.end(partition)

    def truncate(self, partition: TopicPartition, first: int) -> None:
        """Drop the records before `first`."""
        with self.changed:
            self._records[partition] = self._records[partition][first - self.first(partition) :]
            self._first[partition] = first

    def recreate(self, partition: TopicPartition) -> None:
        """Delete the topic and recreate it: empty, from offset 0."""
        with self.changed:
            self._records[partition] = []
            self._first[partition] = 0
            self.changed.notify_all()

    @property
    def is_empty(self) -> bool:
        """Whether there is no record in any partition."""
        with self.changed:
            return not any(self._records.values())

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
        """Up to `count` records from `offset` on; None for an offset without a record.

        Raises:
            OffsetOutOfRange: `offset` is before the first record or after the end.
        """
        with self.changed:
            if not self.first(partition) <= offset <= self.end(partition):
                raise OffsetOutOfRange(f"position {offset} is not in '{partition}'", partition=partition)
            start = offset - self.first(partition)
            return self._records.get(partition, [])[start : start + count]


class FakeChangelogConsumer:
    """`ports.ChangelogConsumer` on a `FakeLog`. Checks that only one thread uses it.

    `fail(error)` makes the next poll raise it; `hold()` makes polls return nothing until `release()`.
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
        """Polls return nothing, as if the broker were unavailable."""
        with self.log.changed:
            self._held = True

    def release(self) -> None:
        """The broker is back."""
        with self.log.changed:
            self._held = False
            self.log.changed.notify_all()

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Read exactly these partitions, each from its offset, or from the beginning if it is None."""
        self._check()
        self.assignments.append(dict(positions))
        self._positions = {
            partition: self.log.first(partition) if offset is None else offset
            for partition, offset in positions.items()
        }

    def poll(self, timeout_s: float, max_records: int = 500) -> list[ChangelogBatch]:
        """The records that have arrived; waits up to `timeout_s` for the first one."""
        self._check()
        with self.log.changed:
            self.log.changed.wait_for(self._has_news, timeout_s)
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._held:
                return []
            batches = []
            left = max_records
            for partition, offset in self._positions.items():
                records = self.log.read(partition, offset, left)
                left -= len(records)
                if records:
                    self._positions[partition] = offset + len(records)
                    batches.append(self._batch(partition, offset, records))
            return batches

    def _batch(
        self,
        partition: TopicPartition,
        offset: int,
        records: Sequence[tuple[bytes, bytes | None, int] | None],
    ) -> ChangelogBatch:
        there = [(record, at) for at, record in enumerate(records, offset) if record is not None]
        entries, offsets = [record for record, _ in there], [at for _, at in there]
        return ChangelogBatch(partition, entries, offset + len(records), offsets)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record that is still there."""
        self._check()
        return {partition: self.log.first(partition) for partition in partitions}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
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
    """A clock that only `advance` moves."""

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
        """Advance the time.

        Raises:
            ValueError: backwards.
        """
        if seconds < 0:
            raise ValueError(f"time does not go backwards; got {seconds}")
        self._now += seconds
        self._epoch_ms += round(seconds * 1000)


class FakeTopics:
    """`ports.Topics` on a dict. `away = True` makes the cluster unreachable.

    Args:
        log: the contents of the topics; without one, they are empty.

    Attributes:
        late: how many more requests are answered by a broker that does not know any topic yet.
        racks: the racks of the brokers that have replicas of a partition of a topic.
    """

    def __init__(self, topics: Mapping[str, int] | None = None, log: FakeLog | None = None) -> None:
        self._log = log or FakeLog()
        self.closed = False
        self.away = False
        self.late = 0
        self.racks: Callable[[str, int], frozenset[str]] = lambda topic, partition: frozenset({""})
        self.created: list[InternalTopic] = []
        self.commits: dict[str, dict[TopicPartition, int]] = {}
        self.alive: set[str] = set()
        self._topics: dict[str, TopicDescription] = {}
        for name, partitions in (topics or {}).items():
            self.add(name, partitions)

    def add(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic, with an id of its own."""
        self._topics[name] = TopicDescription(name, partitions, uuid.uuid4().hex, dict(configs or {}))

    def remove(self, name: str) -> None:
        """Delete a topic."""
        del self._topics[name]

    def recreate(self, name: str) -> None:
        """Delete a topic and recreate it unchanged, with another id."""
        old = self._topics[name]
        self.add(name, old.partitions, old.configs)

    def grow(self, name: str, partitions: int) -> None:
        """Add partitions to a topic, up to this number.

        Raises:
            ValueError: it already has that many; Kafka rejects that too.
        """
        old = self._topics[name]
        if partitions <= old.partitions:
            raise ValueError(f"topic '{name}' has {old.partitions} partitions; it can only get more")
        self._topics[name] = replace(old, partitions=partitions)

    def describe(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """The topics that exist, by name; missing ones are omitted."""
        self._check()
        return {} if self._is_late() else self._there(names)

    def look(self, names: Iterable[str], *, patient: bool = False) -> dict[str, TopicDescription]:
        """Like `describe`, without the configs."""
        return {name: replace(found, configs={}) for name, found in self.describe(names).items()}

    def confirm(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Like `look`, but certain."""
        self._check()
        self.late = 0  # that takes until the brokers know
        return {name: replace(found, configs={}) for name, found in self._there(names).items()}

    def names(self, complete: Callable[[set[str]], bool] = lambda names: True) -> set[str]:
        """All topics' names."""
        self._check()
        known: set[str] = set() if self._is_late() else set(self._topics)
        return known if complete(known) else set(self._topics)

    def create(self, topics: Sequence[InternalTopic], replication_factor: int) -> None:
        """Create topics; an existing one is unchanged. -1 partitions means one."""
        self._check()
        for topic in topics:
            if topic.name not in self._topics:
                self.created.append(topic)
                self.add(topic.name, max(topic.partitions, 1), topic.configs)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record."""
        return {partition: self._log.end(partition) for partition in self._existing(partitions)}

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record."""
        return {partition: self._log.first(partition) for partition in self._existing(partitions)}

    def offsets_at(self, partitions: Iterable[TopicPartition], epoch_ms: int) -> dict[TopicPartition, int]:
        """The offset of each partition's first record from that time on; partitions without one are
        omitted."""
        self._check()
        found: dict[TopicPartition, int] = {}
        for at in partitions:
            first = self._log.first(at)
            records = self._log.read(at, first, self._log.end(at) - first)
            later = [number for number, each in enumerate(records, first) if each and each[2] >= epoch_ms]
            if later:
                found[at] = later[0]
        return found

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """A group's committed offsets of these partitions, from `commits[group]`."""
        self._check()
        commits = self.commits.get(group, {})
        return {partition: commits[partition] for partition in partitions if partition in commits}

    def delete(self, names: Iterable[str]) -> None:
        """Delete topics with their contents."""
        self._check()
        for name in names:
            found = self._topics.pop(name, None)
            for partition in range(found.partitions if found is not None else 0):
                self._log.recreate(TopicPartition(name, partition))

    def delete_group(self, group: str) -> None:
        """Delete a group's committed offsets. A group in `alive` has members."""
        self._check()
        if group in self.alive:
            raise IllegalStateException(f"group '{group}' has members")
        self.commits.pop(group, None)

    def close(self) -> None:
        """Idempotent."""
        self.closed = True

    def _there(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        return {
            name: replace(found, racks=tuple(self.racks(name, each) for each in range(found.partitions)))
            for name in names
            if (found := self._topics.get(name)) is not None
        }

    def _existing(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        self._check()
        wanted = list(partitions)
        for partition in wanted:
            topic = self._topics.get(partition.topic)
            if topic is None or partition.partition >= topic.partitions:
                raise StreamsException(f"there is no partition '{partition}'")
        return wanted

    def _is_late(self) -> bool:
        self.late -= 1
        return self.late >= 0

    def _check(self) -> None:
        if self.closed:
            raise AssertionError("the topics port is closed")
        if self.away:
            raise StreamsException("could not reach the cluster; bootstrap.servers is 'fake:9092'")


class FakeGroups:
    """`ports.Groups`: the groups of a FakeTopics that have committed or are in `alive`.

    Args:
        clients: the ids of the clients that are in any group.
    """

    def __init__(self, cluster: FakeTopics, clients: Callable[[], Iterable[str]] = tuple) -> None:
        self._cluster = cluster
        self._clients = clients
        self.closed = False

    def names(self) -> frozenset[str]:
        """The ids of all groups."""
        return frozenset(self._cluster.commits.keys() | self._cluster.alive)

    def members(self, group: str) -> Mapping[str, str]:
        """One member, if the group is alive; and the clients."""
        alive = [f"{group}-1"] if group in self._cluster.alive else []
        return {name: f"'{name}' at /fake" for name in (*alive, *self._clients())}

    def remove_members(self, group: str, members: Iterable[str]) -> None:
        """Take members out of a group."""
        if set(members) >= self.members(group).keys():
            self._cluster.alive.discard(group)

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the committed offsets of a group without members, for these partitions."""
        assert group not in self._cluster.alive, "the group has members"
        self._cluster.commits.setdefault(group, {}).update(offsets)

    def close(self) -> None:
        """Idempotent."""
        self.closed = True


class FakeEngine:
    """`ports.Engine` without Spark. A pipeline runs until it is stopped, or a test ends it with `end`.

    Attributes:
        compiled, started, stopped: names of pipelines, in the order of events. One that runs several times,
            with other partitions, is there as often.
        refreshed: names of tables, in the order of events; changed: how many of their rows have changed then.
        followed: by pipeline, the partitions whose state is kept ready.
        opening: by pipeline, the tasks that do not run yet; with `progress` they do.
        compile_error, start_error: raised by the next call.
        catches_up: clear it to have what is followed stay behind.
        gate: `start` waits for it; clear it to delay Spark.
        stop_gate: `stop` of a pipeline waits for it, and so does `assign` if it takes partitions away; clear
            it to delay closing.
    """

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.opening: dict[str, OpeningTasks] = {}
        self.refreshed: list[str] = []
        self.changed: dict[str, int] = {}
        self.compile_error: BaseException | None = None
        self.start_error: BaseException | None = None
        self.closed = False
        self.dead = False
        self.warmed_up = False
        self.followed: dict[str, frozenset[int]] = {}
        self.catches_up = threading.Event()
        self.catches_up.set()
        self.gate = threading.Event()
        self.gate.set()
        self.stop_gate = threading.Event()
        self.stop_gate.set()
        self._running: list[FakePipeline] = []
        self._changed = threading.Condition()

    def warm_up(self, topic: str | None, tasks: int = 0) -> None:
        """Nothing is cold here."""
        assert not self.closed, "the engine is closed"
        self.warmed_up = True

    def prepare(self, compiled: CompiledPipeline) -> None:
        """A query starts at once."""
        assert not self.closed, "the engine is closed"

    def forget_prepared(self) -> None:
        """Nothing is."""

    def follow(self, compiled: CompiledPipeline, partitions: Collection[int]) -> frozenset[int]:
        """They catch up once `catches_up` is set."""
        assert not self.closed, "the engine is closed"
        self.followed[compiled.pipeline.name] = frozenset(partitions)
        return frozenset(partitions) if self.catches_up.is_set() else frozenset()

    @property
    def is_alive(self) -> bool:
        """Until `die` or `close`."""
        return not (self.closed or self.dead)

    def die(self) -> None:
        """The JVM is gone: running pipelines end with an error, and nothing can be started."""
        self.dead = True
        for running in tuple(self._running):
            gone = PipelineException("Spark's Java process is gone", pipeline=running.name)
            self._end(running, gone)

    @property
    def running(self) -> set[str]:
        """The running pipelines."""
        with self._changed:
            return {each.name for each in self._running}

    def partitions(self, name: str) -> list[frozenset[int]]:
        """The partitions of each run of a pipeline."""
        with self._changed:
            return [each.partitions for each in self._running if each.name == name]

    def compile(self, pipeline: Pipeline, partitions: Mapping[str, int]) -> CompiledPipeline:
        """Takes the serdes that the stores declare."""
        assert not self.closed, "the engine is closed"
        assert not self.started, "a pipeline was started before all were compiled"
        if self.compile_error is not None:
            raise self.compile_error
        self.compiled.append(pipeline.name)
        serdes: dict[str, Any] = {
            store.name: (store.key_serde, store.value_serde) for store in pipeline.stores
        }
        return CompiledPipeline(pipeline, serdes)

    def start(
        self,
        compiled: CompiledPipeline,
        partitions: Collection[int],
        on_end: Callable[[PipelineEnd], None],
        on_batch: Callable[[BatchReport], None] = lambda report: None,
    ) -> FakePipeline:
        """Run it until `stop` or `end`."""
        assert self.gate.wait(30), "nobody opened the gate"
        assert not self.closed, "the engine is closed"
        if self.start_error is not None:
            raise self.start_error
        name = compiled.pipeline.name
        running = FakePipeline(name, self, on_end, on_batch, frozenset(partitions))
        with self._changed:
            self._check(running, partitions)
            self._running.append(running)
            self.started.append(name)
            self._changed.notify_all()
        return running

    def _check(self, running: FakePipeline, partitions: Collection[int]) -> None:
        for each in self._running:
            if each is not running and each.name == running.name:
                twice = sorted(each.partitions.intersection(partitions))
                assert not twice, f"partitions {twice} of {running.name} run already"

    def refresh(self, table: FrameTable) -> int:
        """Records the call; returns the value in `changed` for the table."""
        assert not self.closed, "the engine is closed"
        self.refreshed.append(table.name)
        return self.changed.get(table.name, 0)

    def dataframe(self, topic: str, options: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """The topic and the options of the request."""
        return topic, dict(options)

    def progress(self, name: str, position: Mapping[TopicPartition, int], batch_id: int = 0) -> None:
        """Report that a running pipeline has finished a micro-batch that ends before these offsets."""
        with self._changed:
            running = self._one(name)
            running.position, running.batch_id = {**running.position, **position}, batch_id
            self.opening.pop(name, None)

    def report(self, report: BatchReport) -> None:
        """Let a running pipeline report."""
        with self._changed:
            running = self._one(report.pipeline)
        running.on_batch(report)

    def _one(self, name: str, partition: int | None = None) -> FakePipeline:
        """The first run of a pipeline, or the one with a partition."""
        return next(
            each
            for each in self._running
            if each.name == name and (partition is None or partition in each.partitions)
        )

    def end(
        self,
        name: str,
        error: BaseException | None = None,
        timeout_s: float = 10.0,
        partition: int | None = None,
    ) -> None:
        """End a pipeline as Spark would, with an error; waits until it has started. Of several runs, the
        first one ends, or the one with this partition."""

        def runs() -> bool:
            return any(
                each.name == name and (partition is None or partition in each.partitions)
                for each in self._running
            )

        with self._changed:
            assert self._changed.wait_for(runs, timeout_s), f"{name} does not run"
            running = self._one(name, partition)
        self._end(running, error or PipelineException(f"pipeline '{name}' failed", pipeline=name))

    def close(self) -> None:
        """Stop all running pipelines. Idempotent."""
        self.closed = True
        for running in tuple(self._running):
            self._end(running, None)

    def _end(self, running: FakePipeline, error: BaseException | None) -> None:
        with self._changed:
            if running not in self._running:
                return
            self._running.remove(running)
            self.stopped.append(running.name)
            self._changed.notify_all()
        running.on_end(PipelineEnd(running.name, error))

    def _assign(self, running: FakePipeline, partitions: Collection[int]) -> bool:
        with self._changed:
            self._check(running, partitions)
            running.partitions = frozenset(partitions)
            self._changed.notify_all()
        return True


class FakePipeline:
    """`ports.RunningPipeline` of a `FakeEngine`."""

    def __init__(
        self,
        name: str,
        engine: FakeEngine,
        on_end: Callable[[PipelineEnd], None],
        on_batch: Callable[[BatchReport], None],
        partitions: frozenset[int],
    ) -> None:
        self.name = name
        self.partitions = partitions
        self.on_end = on_end
        self.on_batch = on_batch
        self.position: dict[TopicPartition, int] = {}
        self.batch_id = -1
        self._engine = engine

    def stop(self) -> None:
        """`on_end` is called once, without an error."""
        assert self._engine.stop_gate.wait(30), "nobody opened the stop gate"
        self._engine._end(self, None)

    def assign(self, partitions: Collection[int]) -> bool:
        """At once, unless it has to release partitions."""
        if not self.partitions.issubset(partitions):
            assert self._engine.stop_gate.wait(30), "nobody opened the stop gate"
        return self._engine._assign(self, partitions)

    def finish(self) -> None:
        """Finish everything that it has read."""

    def metadata(self) -> PipelineMetadata:
        """Whether it is running, and the values from `progress`."""
        return PipelineMetadata(
            self.name,
            running=self in self._engine._running,
            batch_id=self.batch_id,
            position=dict(self.position),
            opening=self._engine.opening.get(self.name),
        )
