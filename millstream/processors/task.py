"""One task: runs the processors of a graph for the records of one partition, one by one.

Kafka Streams' rules: `forward` is depth first, and returns when all downstream steps are done. Stream time is
the newest timestamp so far, and punctuators that are due are called after the record that advanced it.

It accesses bytes only through a `Home`, which is the kernel's operator or, in tests, a few dictionaries.

Source: org.apache.kafka.streams.processor.internals.StreamTask, ProcessorContextImpl, PunctuationQueue,
    PunctuationSchedule.
Differs: stream time is the newest timestamp of the records that this graph's processors received.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol

from millstream.clock import milliseconds
from millstream.errors import IllegalStateException, SerializationException, StreamsException
from millstream.model import TaskId
from millstream.processors.api import (
    Cancellable,
    FixedKeyRecord,
    Headers,
    PunctuationType,
    Record,
    RecordMetadata,
)
from millstream.processors.changes import reading, unwrapping, writing
from millstream.processors.graph import Graph, Input, Outside, ProcessorSpec
from millstream.processors.stores import ByteStore, store_of
from millstream.query.times import Time, to_ms
from millstream.topology.suppliers import new_processor

__all__ = ["ByteStore", "Home", "ProcessorTask", "RawRecord"]


class RawRecord(NamedTuple):
    """An incoming record of a task."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()
    topic: str | None = None
    partition: int = -1
    offset: int = -1


class Home(Protocol):
    """The environment of a task."""

    def store(self, number: int, /) -> ByteStore:
        """The contents of the graph's store with this number, in this task."""

    def changed(self, store: int, key: bytes, value: bytes | None, timestamp: int, /) -> None:
        """Receives a record for the store's changelog, in Kafka's layout. Not called for stores without a
        changelog."""

    def out(
        self,
        outside: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
        of: RawRecord | None,
        /,
    ) -> None:
        """Receives a record for a step outside, by its number in the graph, and the record that caused it, if
        any."""

    def now_ms(self) -> int:
        """The wall-clock time for processors, in milliseconds since the epoch."""

    def failed(self, processor: int, record: Record | None, error: Exception, /) -> None:
        """The processor with this number has raised, for a record or, in a punctuator, without one.

        Returns if the record should be dropped: completed effects stay, and `forward` returns to the upstream
        processor. Otherwise it raises, the same exception or another, and the task ends.
        """

    def unwritten(self, outside: int, part: str, error: Exception, /) -> None:
        """A sink, by its number, cannot serialize the "key" or the "value" forwarded to it.

        As above, it returns if the record should be dropped, and so does `forward`; otherwise it raises. No
        processor has failed.
        """


class ProcessorTask:
    """The processors of one task; the first call creates and initializes them.

    Attributes:
        stream_time_ms: the newest timestamp so far; None if there was none.
        wants_commit: whether a processor has requested a commit since this was last set to False.

    Args:
        stream_time_ms: the stream time of the earlier task that this one continues.
    """

    def __init__(
        self, graph: Graph, task_id: TaskId, home: Home, *, stream_time_ms: int | None = None
    ) -> None:
        self.stream_time_ms = stream_time_ms
        self.wants_commit = False
        self._graph = graph
        self._task_id = task_id
        self._home = home
        self._scope = _Scope()
        self._nodes: list[_Node] = []
        self._inputs: list[_Input] = []
        self._by_stream_time, self._by_clock = _Queue(), _Queue()
        self._raised: BaseException | None = None
        self._rows: Iterator[tuple[_Node, Record]] | None = None

    def init(self) -> None:
        """Create the processors and call their `init`. Idempotent; the other methods call it."""
        if self._nodes:
            return
        graph, home, scope = self._graph, self._home, self._scope
        stores = []
        for number, store in enumerate(graph.stores):
            changed = partial(home.changed, number) if store.logged and not store.read_only else None
            stores.append(store_of(store, home.store(number), scope, changed))
        everywhere = {each.name: stores[n] for n, each in enumerate(graph.stores) if each.read_only}
        nodes = []
        for number, spec in enumerate(graph.processors):
            mine = {graph.stores[n].name: stores[n] for n in spec.stores}
            nodes.append(_Node(self, number, spec, {**everywhere, **mine}))
        for node, spec in zip(nodes, graph.processors, strict=True):
            for child in spec.children:
                if child.outside:
                    outside = graph.outside[child.number]
                    node.children[outside.name] = self._exit(spec, child.number, outside)
                    continue
                target = nodes[child.number]
                process: Callable[[Record], None] = target.process
                if spec.is_of_table and not target.spec.is_of_table:
                    process = unwrapping(process)
                node.children[target.spec.name] = process
            node.targets = tuple(node.children.values())
            node.of_tables = tuple(
                node.children[graph.outside[child.number].name]
                if child.outside
                else nodes[child.number].restore
                for child in spec.children
                if child.outside or graph.processors[child.number].is_of_table
            )
        self._inputs = [
            _Input(
                tuple(nodes[number].process for number in given.processors),
                _of_null(given.key_serde.decoder()),
                reading(_of_null(given.value_serde.decoder()), graph.has_old, given.is_of_table),
                given,
            )
            for given in graph.inputs
        ]
        self._nodes = nodes
        with self._at_work():
            scope.timestamp = home.now_ms()
            for node in nodes:
                init = getattr(node.processor, "init", None)
                if init is not None:
                    init(node.context)

    def process(self, input: int, record: RawRecord) -> None:
        """Give a record to the processors of an input, by its number in the graph; then call the punctuators
        that are due by stream time.

        Raises: as `_read`.
        """
        given, made = self._read(input, record)
        newest = self.stream_time_ms
        if (newest is None or record.timestamp > newest) and not given.of.is_global:
            self.stream_time_ms = newest = record.timestamp
        self._give(given.processors, made, record)
        if self._by_stream_time and newest is not None and not given.of.is_global:
            self._punctuate(self._by_stream_time, newest)

    def restore(self, input: int, record: RawRecord) -> None:
        """Give a row of a table that was processed earlier to its transformers without a store, for what
        follows from the table.

        Raises: as `_read`.
        """
        given, made = self._read(input, record)
        with self._restoring():
            self._give([self._nodes[number].restore for number in given.of.processors], made, record)

    def tell(self, most: int) -> None:
        """Pass on the next rows in stores of transformers, at most so many, for what follows from them."""
        self.init()
        if self._rows is None:
            self._rows = ((node, row) for node in self._nodes for row in node.rows())
        with self._at_work(), self._restoring():
            for node, row in islice(self._rows, most):
                node.context.forward(row)

    def _read(self, input: int, record: RawRecord) -> tuple[_Input, Record]:
        """A record for an input.

        Raises:
            SerializationException: the record cannot be deserialized; includes its `topic`. No processor has
                seen it.
        """
        if not self._nodes:
            self.init()
        given = self._inputs[input]
        try:
            key, value = given.read_key(record.key), given.read_value(record.value)
        except Exception as error:
            raise self._unreadable(given, record, error) from error
        return given, Record(key, value, record.timestamp, record.headers)

    def _give(self, processors: Iterable[Callable[[Record], None]], made: Record, record: RawRecord) -> None:
        scope = self._scope
        scope.live, scope.timestamp, scope.of = True, record.timestamp, record
        try:
            for process in processors:
                process(made)
        finally:
            scope.live, scope.of = False, None

    @contextmanager
    def _restoring(self) -> Iterator[None]:
        self._scope.restoring = True
        try:
            yield
        finally:
            self._scope.restoring = False

    def advance_wall_clock(self, now_ms: int) -> None:
        """Call the punctuators that are due by wall-clock time."""
        self.init()
        self._punctuate(self._by_clock, now_ms)

    def next_due(self, type: PunctuationType) -> int | None:
        """When the next punctuation is due, in milliseconds of that time; None if nothing is scheduled."""
        return self._queue(type).next_due()

    @property
    def has_record(self) -> bool:
        """Whether a record is being processed; false in a punctuator."""
        return self._scope.of is not None

    def close(self) -> None:
        """Call `close` of all processors. If one raises, its exception is raised at the end.

        Differs: their stores can no longer be used, because the puts of the batch are already saved.
        """
        failed: Exception | None = None
        for node in self._nodes:
            close = getattr(node.processor, "close", None)
            try:
                if close is not None:
                    close()
            except Exception as error:
                failed = failed or error
        self._nodes = []
        if failed is not None:
            raise failed

    # --- for the contexts --------------------------------------------------------------------------------

    def schedule(self, node: _Node, plan: _Schedule, type: PunctuationType) -> Cancellable:
        """Schedule a punctuator of a processor."""
        plan.node = node
        self._queue(type).add(plan)
        return plan

    def _queue(self, type: PunctuationType) -> _Queue:
        return self._by_stream_time if type is PunctuationType.STREAM_TIME else self._by_clock

    @contextmanager
    def _at_work(self) -> Any:
        scope = self._scope
        scope.live = True
        try:
            yield
        finally:
            scope.live = False

    def _unreadable(self, given: _Input, record: RawRecord, error: Exception) -> Exception:
        """The error of a record whose quick decoder failed, from the serde itself."""
        what, read = "key", given.of.key_serde.deserialize
        try:
            read(record.key)
            what = "value"
            reading(given.of.value_serde.deserialize, self._graph.has_old, given.of.is_of_table)(record.value)
        except SerializationException as said:
            error = said
        if not isinstance(error, SerializationException):
            return error
        return SerializationException(
            f"task {self._task_id} cannot read the {what} of a record of {given.of.name}: {error}",
            topic=record.topic or given.of.name,
            partition=record.partition,
            offset=record.offset,
        )

    def _exit(self, of: ProcessorSpec, number: int, outside: Outside) -> Callable[[Record], None]:
        out, scope = self._home.out, self._scope
        write_key, write_value = outside.key_serde.encoder(), outside.value_serde.encoder()
        serdes = "process(…, key_serde=…, value_serde=…), or of the sink"
        if of.is_of_table:
            write_value = writing(write_value, outside.has_old)
            serdes = "transform_values(…, value_serde=…), or of materialized="

        def leave(record: Record) -> None:
            if record.headers and not all(_is_header(each) for each in record.headers):
                raise TypeError(
                    f"processor {of.name} forwards a record to {outside.name} with the headers "
                    f"{record.headers!r}; they must be pairs of a name (str) and bytes or None"
                )
            try:
                what = "key"
                key = write_key(record.key)
                what = "value"
                value = write_value(record.value)
            except SerializationException as error:
                said = SerializationException(
                    f"processor {of.name} forwards a {what} to {outside.name} that cannot be written: "
                    f"{error}. Forwarded records use the serdes of {serdes}"
                ).with_traceback(error.__traceback__)
                said.__cause__ = error
                if not outside.is_sink:
                    raise said from error
                self._unwritten(number, what, said)
                return
            out(number, key, value, record.timestamp, record.headers, scope.of)

        return leave

    def _punctuate(self, queue: _Queue, now: int) -> None:
        while (plan := queue.due(now)) is not None:
            node = plan.node
            assert node is not None
            with self._at_work():
                self._scope.timestamp = now
                try:
                    plan.punctuator(now)
                except Exception as error:
                    self._failed(node, None, error)
            if not plan.cancelled:
                plan.advance(now)
                queue.add(plan)

    def _failed(self, node: _Node, record: Record | None, error: Exception) -> None:
        """An exception passes through every upstream processor; only the first failure is reported."""
        if error is self._raised:
            raise error
        with self._raising():
            self._home.failed(node.number, record, error)

    def _unwritten(self, outside: int, part: str, error: Exception) -> None:
        """A sink's serde has rejected a record, which is not the fault of the processors before it."""
        with self._raising():
            self._home.unwritten(outside, part, error)

    @contextmanager
    def _raising(self) -> Iterator[None]:
        try:
            yield
        except BaseException as raised:
            self._raised = raised
            raise


_NOWHERE = RecordMetadata(None, -1, -1)
_FIRST_TIME, _LAST_TIME = -(2**63), 2**63 - 1


def _is_header(header: Any) -> bool:
    return (
        isinstance(header, tuple)
        and len(header) == 2
        and isinstance(header[0], str)
        and isinstance(header[1], bytes | None)
    )


@dataclass(slots=True)
class _Scope:
    """The current state of a task, for its stores and contexts."""

    live: bool = False
    timestamp: int = 0
    of: RawRecord | None = None
    """The current record; None in a punctuator or between records."""
    restoring: bool = False
    """Whether it was processed earlier: what is forwarded is for what follows from tables only."""


class _Input(NamedTuple):
    processors: tuple[Callable[[Record], None], ...]
    read_key: Callable[[bytes | None], Any]
    read_value: Callable[[bytes | None], Any]
    of: Input


def _of_null(read: Callable[[bytes], Any]) -> Callable[[bytes | None], Any]:
    return lambda data: None if data is None else read(data)


class _Node:
    """A processor in its task."""

    def __init__(
        self, task: ProcessorTask, number: int, spec: ProcessorSpec, stores: Mapping[str, Any]
    ) -> None:
        self.task = task
        self.number = number
        self.spec = spec
        self.children: dict[str, Callable[[Record], None]] = {}
        self.targets: tuple[Callable[[Record], None], ...] = ()
        self.of_tables: tuple[Callable[[Record], None], ...] = ()
        """Those that get rows that were processed earlier: transformers, and steps outside."""
        self.stores = stores
        self.processor = new_processor(spec.supplier)
        self.context = _FixedKeyContext(self) if spec.fixed_key else _Context(self)
        self.key: Any = None
        self._process = self._keep_key if spec.fixed_key else self.processor.process
        self._scope = task._scope

    def _keep_key(self, record: Record) -> None:
        self.key = record.key
        self.processor.process(FixedKeyRecord(record.key, record.value, record.timestamp, record.headers))

    def process(self, record: Record) -> None:
        """Process a record. Its timestamp is also that of puts into stores in the meantime."""
        self._call(self._process, record)

    def restore(self, record: Record) -> None:
        """The same, if it is a transformer, with a row that was processed earlier."""
        if self.spec.is_of_table:
            self._call(self.processor.restore, record)

    def rows(self) -> Iterator[Record]:
        """The rows in the store of a transformer."""
        return self.processor.rows() if self.spec.is_of_table else iter(())

    def _call(self, what: Callable[[Record], None], record: Record) -> None:
        scope = self._scope
        before, scope.timestamp = scope.timestamp, record.timestamp
        try:
            what(record)
        except Exception as error:
            self.task._failed(self, record, error)
        finally:
            scope.timestamp = before


class _Context:
    """The context of a Processor: `api.ProcessorContext`."""

    def __init__(self, node: _Node) -> None:
        self._node = node
        self._task = node.task
        self._scope = node.task._scope

    @property
    def application_id(self) -> str:
        return self._task._graph.application_id

    @property
    def task_id(self) -> TaskId:
        return self._task._task_id

    @property
    def record_metadata(self) -> RecordMetadata | None:
        scope = self._scope
        if scope.of is not None:
            return RecordMetadata(scope.of.topic, scope.of.partition, scope.of.offset)
        return _NOWHERE if scope.live else None

    @property
    def key_serde(self) -> Any:
        return self._task._graph.key_serde

    @property
    def value_serde(self) -> Any:
        return self._task._graph.value_serde

    def get_state_store(self, name: str) -> Any:
        try:
            return self._node.stores[name]
        except KeyError:
            pass
        known = ", ".join(f"'{each}'" for each in self._node.stores) or "none"
        raise StreamsException(
            f"Processor {self._node.spec.name} has no access to StateStore {name} as the store is not "
            "connected to "
            f"the processor. It is connected to {known}. Name the store: stream.process(supplier, '{name}'), "
            "topology.add_state_store(builder, processor), or let the supplier's stores() return its builder",
            task_id=self._task._task_id,
        )

    def forward(self, record: Any, child: str | None = None) -> None:
        if type(record) is not Record:
            raise TypeError(
                f"processor {self._node.spec.name} forwards {record!r}; forward() takes a Record, such as "
                "record.with_value(…) or Record(key, value, timestamp)"
            )
        self._forward(record, child)

    def schedule(
        self,
        interval: timedelta,
        type: PunctuationType,
        punctuator: Callable[[int], Any],
        *,
        start_time: Time | None = None,
    ) -> Cancellable:
        interval_ms = milliseconds(interval, "the interval of schedule()")
        if interval_ms < 1:
            raise ValueError("The minimum supported scheduling interval is 1 millisecond.")
        if not isinstance(type, PunctuationType):
            raise TypeError(
                "schedule() takes PunctuationType.STREAM_TIME or PunctuationType.WALL_CLOCK_TIME, got "
                f"{type!r}"
            )
        if any(
            given.is_global and self._node.number in given.processors for given in self._task._graph.inputs
        ):
            raise IllegalStateException(
                f"processor {self._node.spec.name} fills a global store, where schedule() is not available, "
                "as in Kafka Streams: the store's contents follow only from the records of its topic"
            )
        if not callable(punctuator):
            raise TypeError(f"schedule() takes a function of the time in milliseconds, got {punctuator!r}")
        is_stream_time = type is PunctuationType.STREAM_TIME
        now = self.current_stream_time_ms() if is_stream_time else self._task._home.now_ms()
        if start_time is not None:
            first = to_ms(start_time, "start_time of schedule()")
            if first < now:
                first += ((now - first) // interval_ms + 1) * interval_ms
        elif is_stream_time:
            first = 0  # aligned to the epoch, so it is called with the first record
        else:
            first = now + interval_ms
        return self._task.schedule(self._node, _Schedule(first, interval_ms, punctuator), type)

    def commit(self) -> None:
        self._task.wants_commit = True

    def app_configs(self) -> Mapping[str, Any]:
        return self._task._graph.config

    def app_configs_with_prefix(self, prefix: str) -> Mapping[str, Any]:
        config = self._task._graph.config
        return {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}

    def current_system_time_ms(self) -> int:
        return self._task._home.now_ms()

    def current_stream_time_ms(self) -> int:
        newest = self._task.stream_time_ms
        return -1 if newest is None else newest

    def _forward(self, record: Record, child: str | None) -> None:
        node, scope = self._node, self._scope
        if not scope.live:
            raise IllegalStateException(
                f"processor {node.spec.name} forwards a record while its task is not running: call forward() "
                "inside process() and punctuators, not from a thread of your own"
            )
        if type(record.timestamp) is not int or not _FIRST_TIME <= record.timestamp <= _LAST_TIME:
            raise TypeError(
                f"processor {node.spec.name} forwards a record with the timestamp {record.timestamp!r}; it "
                "must be an int, in milliseconds since the epoch"
            )
        before, scope.timestamp = scope.timestamp, record.timestamp
        try:
            if child is None:
                for target in node.of_tables if scope.restoring else node.targets:
                    target(record)
                return
            if child not in node.children:
                known = ", ".join(node.children) or "none"
                raise StreamsException(
                    f"Unknown downstream node: {child} either does not exist or is not connected to this "
                    f"processor, {node.spec.name}, which forwards to {known}",
                    task_id=self._task._task_id,
                )
            node.children[child](record)
        finally:
            scope.timestamp = before


class _FixedKeyContext(_Context):
    """The context of a FixedKeyProcessor: `api.FixedKeyProcessorContext`."""

    def forward(self, record: Any, child: str | None = None) -> None:
        name = self._node.spec.name
        if type(record) is not FixedKeyRecord:
            raise TypeError(
                f"processor {name} forwards {record!r}; forward() of a FixedKeyProcessor takes a "
                "FixedKeyRecord, "
                "such as record.with_value(…)"
            )
        if self._scope.of is not None and record.key != self._node.key:
            raise StreamsException(
                f"processor {name} forwards a record with another key: process_values() keeps it; use "
                "process()",
                task_id=self._task._task_id,
            )
        self._forward(Record(record.key, record.value, record.timestamp, record.headers), child)


@dataclass
class _Schedule:
    """A punctuator and the time of its next call."""

    at: int
    interval: int
    punctuator: Callable[[int], Any]
    node: _Node | None = None
    cancelled: bool = False

    def cancel(self) -> None:
        """Stop calling it."""
        self.cancelled = True

    def advance(self, now: int) -> None:
        """Advance to the next time; missed calls are not made up.

        Source: PunctuationSchedule.next.
        """
        following = self.at + self.interval
        if now >= following:
            following = self.at + ((now - self.at) // self.interval + 1) * self.interval
        self.at = following


class _Queue:
    """The schedules of one kind of time, in a heap like Java's, so those due at the same time run in its
    order.

    Source: PunctuationQueue.maybePunctuate; java.util.PriorityQueue (siftUp, siftDown).
    """

    def __init__(self) -> None:
        self._heap: list[_Schedule] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, plan: _Schedule) -> None:
        heap = self._heap
        at = len(heap)
        heap.append(plan)
        while at and plan.at < heap[parent := (at - 1) // 2].at:
            heap[at], at = heap[parent], parent
            heap[at] = plan

    def due(self, now: int) -> _Schedule | None:
        """Remove and return the next one that is due; None if there is none."""
        while self._heap and self._heap[0].at <= now:
            plan = self._taken()
            if not plan.cancelled:
                return plan
        return None

    def next_due(self) -> int | None:
        while self._heap and self._heap[0].cancelled:
            self._taken()
        return self._heap[0].at if self._heap else None

    def _taken(self) -> _Schedule:
        heap = self._heap
        first, last = heap[0], heap.pop()
        if heap:
            at = 0
            while (child := 2 * at + 1) < len(heap):
                if child + 1 < len(heap) and heap[child].at > heap[child + 1].at:
                    child += 1
                if last.at <= heap[child].at:
                    break
                heap[at] = heap[child]
                at = child
            heap[at] = last
        return first
