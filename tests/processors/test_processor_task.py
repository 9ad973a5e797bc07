"""A task and its processors: what is not compared with Kafka Streams, and mistakes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from processors.homes import MemoryHome, fed, plan_of, raw, task_of

from millstream import (
    Consumed,
    FixedKeyProcessor,
    FixedKeyRecord,
    KStream,
    Materialized,
    Processor,
    PunctuationType,
    Record,
    RecordMetadata,
    Serdes,
    StoreBuilder,
    Stores,
    StreamsBuilder,
    Topology,
    ValueAndTimestamp,
)
from millstream.errors import IllegalStateException, SerializationException, StreamsException
from millstream.model import StoreKind, TaskId
from millstream.processors.graph import Child, Graph, filling_graph
from millstream.processors.task import ProcessorTask
from millstream.topology.nodes import GlobalTable

DAY = timedelta(days=1)


def counts(name: str = "counts") -> StoreBuilder:
    supplier = Stores.persistent_key_value_store(name)
    return Stores.key_value_store_builder(supplier, Serdes.string(), Serdes.long())


class Doing(Processor):
    """A processor that does one thing with its context and each record."""

    def __init__(self, does: Callable[[Any, Record], Any], at_first: Any = None) -> None:
        self.does = does
        self.at_first = at_first

    def init(self, context: Any) -> None:
        self.context = context
        if self.at_first is not None:
            self.at_first(context)

    def process(self, record: Record) -> None:
        self.does(self.context, record)


def doing(
    does: Callable[[Any, Record], Any],
    *,
    at_first: Callable[[Any], Any] | None = None,
    home: MemoryHome | None = None,
    then: Callable[[KStream], object] | None = None,
    config: dict[str, Any] | None = None,
) -> tuple[ProcessorTask, MemoryHome]:
    """A task with that processor, which has the store `counts`, and a sink `out` behind it."""
    builder = StreamsBuilder()
    stream = builder.stream("in").process(
        lambda: Doing(does, at_first), counts(), named="it", value_serde=Serdes.long()
    )
    stream.to("out", named="sink")
    if then is not None:
        then(stream)
    home = home or MemoryHome()
    return task_of(plan_of(builder.build(), config), home), home


def count(context: Any, record: Record) -> None:
    store = context.get_state_store("counts")
    total = (store.get(record.key) or 0) + 1
    store.put(record.key, total)
    context.forward(record.with_value(total))


def test_records_are_counted_and_forwarded() -> None:
    """What leaves says of which record it came; each put is a record of the changelog."""
    task, home = doing(count)
    fed(task, [("a", "x", 5), ("b", "x", 3), ("a", None, 9)])
    one, two = (1).to_bytes(8, "big"), (2).to_bytes(8, "big")
    assert [(number, *record[:3], record.offset) for number, record in home.left] == [
        (0, b"a", one, 5, 0),
        (0, b"b", one, 3, 1),
        (0, b"a", two, 9, 2),
    ]
    assert home.left[0][1].topic == "in"
    assert home.changes == [(0, b"a", one, 5), (0, b"b", one, 3), (0, b"a", two, 9)]
    assert home.stores[0].content[b"a"] == (9).to_bytes(8, "big") + two
    assert task.stream_time_ms == 9


def test_the_context_knows_where_it_is() -> None:
    """Application, task, configuration, record and times."""
    seen: list[Any] = []

    def look(context: Any, record: Record) -> None:
        seen.append(context.record_metadata)
        seen.append((context.application_id, str(context.task_id), context.current_stream_time_ms()))
        seen.append((context.current_system_time_ms(), context.app_configs()["a.b"]))
        seen.append((dict(context.app_configs_with_prefix("a.")), context.key_serde))
        context.commit()

    task, home = doing(look, config={"a.b": 1, "c": 2})
    home.now = 77
    fed(task, [("a", "x", 5)])
    assert seen == [
        RecordMetadata("in", 0, 0),
        ("calls", "0_0", 5),
        (77, 1),
        ({"b": 1}, Serdes.string()),
    ]
    assert task.wants_commit


@pytest.mark.parametrize("timestamp", [5.0, None, "5", 2**63])
def test_a_timestamp_that_is_none_is_told_where_it_is_forwarded(timestamp: Any) -> None:
    """The error is not delayed until a chunk of records is written."""
    task, _ = doing(lambda context, record: context.forward(record.with_timestamp(timestamp)))
    with pytest.raises(TypeError, match=f"processor it forwards a record with the timestamp {timestamp!r}; "):
        fed(task, [("a", "x", 5)])


@pytest.mark.parametrize("headers", [("h", b""), ([1],), (("h", "text"),), ((b"h", b""),)])
def test_headers_that_are_none_are_told_where_they_leave(headers: Any) -> None:
    """The value of a header may be None."""
    task, home = doing(lambda context, record: context.forward(Record("a", 1, 5, (("h", None),))))
    fed(task, [("a", "x", 5)])
    assert [record.headers for _, record in home.left] == [(("h", None),)]
    task, _ = doing(lambda context, record: context.forward(Record("a", 1, 5, headers)))
    with pytest.raises(TypeError, match=r"processor it forwards a record to sink with the headers \("):
        fed(task, [("a", "x", 5)])


def test_a_task_that_goes_on_has_its_stream_time() -> None:
    """The stream time is that of the earlier task."""
    plan_task, home = doing(count)
    task = ProcessorTask(plan_task._graph, plan_task._task_id, home, stream_time_ms=100)
    fed(task, [("a", "x", 5)])
    assert task.stream_time_ms == 100


def test_what_is_scheduled_says_when_it_is_due() -> None:
    """It does so for each kind of time, and not after it is cancelled."""
    made: list[Any] = []

    def schedule(context: Any) -> None:
        for type in PunctuationType:
            made.append(context.schedule(timedelta(milliseconds=10), type, lambda now: None))

    task, home = doing(lambda context, record: None, at_first=schedule)
    home.now = 1000
    assert task.next_due(PunctuationType.STREAM_TIME) is None
    task.init()
    assert task.next_due(PunctuationType.STREAM_TIME) == 0
    assert task.next_due(PunctuationType.WALL_CLOCK_TIME) == 1010
    fed(task, [("a", "x", 25)])
    assert task.next_due(PunctuationType.STREAM_TIME) == 30
    for each in made:
        each.cancel()
    assert {task.next_due(type) for type in PunctuationType} == {None}


def test_all_processors_are_closed_whatever_one_of_them_raises() -> None:
    """The error is raised afterwards."""
    closed = []

    class Closing(Processor):
        def __init__(self, name: str, error: Exception | None = None) -> None:
            self.name, self.error = name, error

        def process(self, record: Record) -> None: ...

        def close(self) -> None:
            closed.append(self.name)
            if self.error is not None:
                raise self.error

    builder = StreamsBuilder()
    stream = builder.stream("in").process(lambda: Closing("one", ValueError("no")))
    stream.process(lambda: Closing("two"))
    task = task_of(plan_of(builder.build()), MemoryHome())
    task.init()
    with pytest.raises(ValueError, match="no"):
        task.close()
    assert closed == ["one", "two"]


def test_a_graph_has_children_in_the_order_of_the_topology_and_can_be_pickled() -> None:
    """A source with two processors is one input."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    first = stream.process(Values, counts(), named="first")
    first.filter(lambda value: value, named="filter")
    first.process(Values, named="inner").to("b", named="b")
    first.group_by_key().count(named="count")
    stream.process(Values, "counts", named="second")
    graph = plan_of(builder.build()).graph
    assert [given.processors for given in graph.inputs] == [(0, 2)]
    assert [spec.name for spec in graph.processors] == ["first", "inner", "second"]
    assert graph.processors[0].children == (Child(0, True), Child(1), Child(1, True))
    assert [outside.name for outside in graph.outside] == [
        "filter",
        "KSTREAM-FILTER-0000000006",
        "b",
    ]
    assert [(store.name, store.kind) for store in graph.stores] == [("counts", StoreKind.KEY_VALUE)]
    assert pickle.loads(pickle.dumps(graph)) == graph  # our own


class Values(Processor):
    def process(self, record: Record) -> None: ...


class Table(Processor):
    """Fills a global store its own way."""

    def init(self, context: Any) -> None:
        self.store = context.get_state_store("global")

    def process(self, record: Record) -> None:
        self.store.put(record.key, record.value * 2)


class Reads(Processor):
    """Reads a global store; its name is in the code."""

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(str(self.context.get_state_store("global").get(record.value))))


class Scheduled(Table):
    """Would like to be punctuated."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(timedelta(seconds=1), PunctuationType.STREAM_TIME, print)


def global_store(supplier: Any) -> Topology:
    builder = StreamsBuilder()
    kept = Stores.in_memory_key_value_store("global")
    store = Stores.key_value_store_builder(kept, Serdes.string(), Serdes.long())
    builder.add_global_store(store, "g", Consumed.with_(Serdes.string(), Serdes.long()), supplier)
    builder.stream("in").process(Reads).to("out")
    return builder.build()


def filling(topology: Topology) -> Graph:
    (table,) = [node for node in topology.nodes if isinstance(node, GlobalTable)]
    return filling_graph(table, application_id="a", config={}, default=(None, None))


def test_what_fills_a_global_store_is_not_punctuated() -> None:
    """Its context refuses that, as in Kafka Streams."""
    task = ProcessorTask(filling(global_store(Scheduled)), TaskId(0, 0), MemoryHome())
    with pytest.raises(
        IllegalStateException, match=r"fills a global store, where schedule\(\) is not available"
    ):
        task.init()


def test_a_global_store_is_filled_by_its_processor_and_read_by_those_that_name_it() -> None:
    """Its records have no part in stream time; who reads it cannot write it."""
    topology = global_store(Table)
    home = MemoryHome()
    fills = ProcessorTask(filling(topology), TaskId(0, 0), home)
    fills.process(0, raw("k", None, 99)._replace(value=(4).to_bytes(8, "big")))
    assert fills.stream_time_ms is None
    plan = plan_of(topology)
    assert [given.is_global for given in plan.graph.inputs] == [False]
    assert [(store.name, store.read_only) for store in plan.graph.stores] == [("global", True)]
    reads = task_of(plan, home)
    reads.process(0, raw("a", "k", 5))
    reads.process(0, raw("a", "l", 6))
    assert [record.value for _, record in home.left] == [b"8", b"None"]


def test_a_global_table_is_read_with_its_timestamps_and_never_written() -> None:
    """Its store is a timestamped one."""
    seen = []

    class Looks(Processor):
        def init(self, context: Any) -> None:
            self.users = context.get_state_store("users")

        def process(self, record: Record) -> None:
            seen.append(self.users.get(record.key))
            self.users.put(record.key, None)

    builder = StreamsBuilder()
    builder.global_table("u", Materialized.as_("users"))
    builder.stream("in").process(Looks)
    home = MemoryHome()
    home.store(0).put(b"a", (3).to_bytes(8, "big") + b"Ann")
    task = task_of(plan_of(builder.build()), home)
    for key in "ab":
        with pytest.raises(
            IllegalStateException, match="'users' is a global store, which processors can only read"
        ):
            task.process(0, raw(key, "x", 5))
    assert seen == [ValueAndTimestamp("Ann", 3), None]


# --- mistakes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "told", "does"),
    [
        (
            StreamsException,
            "Processor it has no access to StateStore count .* It is connected to 'counts'",
            lambda context, record: context.get_state_store("count"),
        ),
        (
            StreamsException,
            "Unknown downstream node: nowhere either .* it, which forwards to sink",
            lambda context, record: context.forward(record, "nowhere"),
        ),
        (
            TypeError,
            "processor it forwards 5; forward.. takes a Record",
            lambda context, record: context.forward(5),
        ),
        (
            TypeError,
            "forward.. takes a Record",
            lambda context, record: context.forward(FixedKeyRecord("a", 1, 2)),
        ),
        (
            ValueError,
            "store 'counts': a key cannot be None",
            lambda context, record: context.get_state_store("counts").put(None, 1),
        ),
        (
            SerializationException,
            "serde 'long' cannot write this str",
            lambda context, record: context.get_state_store("counts").put("a", "x"),
        ),
        (
            ValueError,
            "The minimum supported scheduling interval is 1 millisecond",
            lambda context, record: context.schedule(timedelta(0), PunctuationType.STREAM_TIME, print),
        ),
        (
            TypeError,
            "schedule.. takes PunctuationType.STREAM_TIME or",
            lambda context, record: context.schedule(DAY, "stream-time", print),
        ),
        (
            TypeError,
            "schedule.. takes a function of the time",
            lambda context, record: context.schedule(DAY, PunctuationType.STREAM_TIME, None),
        ),
    ],
)
def test_a_mistake_gets_a_sentence(
    error: type[Exception], told: str, does: Callable[[Any, Record], Any]
) -> None:
    """The caller of the task learns which processor made it, at which record."""
    task, home = doing(does)
    with pytest.raises(error, match=told):
        fed(task, [("a", "x", 5)])
    ((number, record, _),) = home.failures
    assert (number, record.key) == (0, "a")


def test_a_store_and_a_context_are_for_their_task_alone() -> None:
    """Whoever keeps them, and uses them when the task is not at work, is told."""
    kept: list[Any] = []

    def keep(context: Any, record: Record) -> None:
        store = context.get_state_store("counts")
        store.put("a", 1)
        kept.extend((store, store.all(), context))

    task, _ = doing(keep)
    fed(task, [("a", "x", 5)])
    store, entries, context = kept
    for use in (lambda: store.get("a"), lambda: store.put("a", 1), store.all, lambda: next(entries)):
        with pytest.raises(IllegalStateException, match="'counts' was used while its task was not running"):
            use()
    assert not store.is_open()
    with pytest.raises(IllegalStateException, match="it forwards a record while its task is not running"):
        context.forward(Record("a", 1, 5))
    assert context.record_metadata is None


def test_a_record_that_cannot_be_read_says_where_it_was() -> None:
    """No processor has seen it, so none has failed."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(Serdes.string(), Serdes.long())).process(Values)
    home = MemoryHome()
    task = task_of(plan_of(builder.build()), home)
    with pytest.raises(SerializationException, match="task 0_0 cannot read the value of a record") as raised:
        task.process(0, raw("a", "x", 5, offset=7))
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("in", 0, 7)
    assert home.failures == []


def test_a_fixed_key_is_fixed() -> None:
    """A record made by hand with another key is refused; in a punctuator there is no key to keep."""

    class Changes(FixedKeyProcessor):
        def init(self, context: Any) -> None:
            self.context = context
            context.schedule(DAY, PunctuationType.STREAM_TIME, self.punctuate)

        def punctuate(self, now: int) -> None:
            self.context.forward(FixedKeyRecord("any", "x", now))

        def process(self, record: FixedKeyRecord) -> None:
            self.context.forward(FixedKeyRecord("b", record.value, record.timestamp))

    builder = StreamsBuilder()
    builder.stream("in").process_values(Changes, named="it").to("out")
    home = MemoryHome(goes_on=True)
    fed(task_of(plan_of(builder.build()), home), [("a", "x", 5), ("b", "y", 6)])
    assert [(record.key, record.value) for _, record in home.left] == [(b"any", b"x"), (b"b", b"y")]
    ((_, _, error),) = home.failures
    assert "processor it forwards a record with another key: process_values() keeps it" in str(error)


@pytest.mark.parametrize("writes_on", [False, True])
def test_what_a_sink_cannot_write_is_no_failure_of_a_processor(writes_on: bool) -> None:
    """Whoever runs the task is asked about the record, and not whether a processor's may be given up.

    Source: RecordCollectorImpl.handleException.
    """

    def forwards(context: Any, record: Record) -> None:
        context.forward(record)
        context.forward(record.with_value(7))

    task, home = doing(forwards, home=MemoryHome(goes_on=True, writes_on=writes_on))
    if writes_on:
        fed(task, [("a", "x", 5)])
    else:
        with pytest.raises(SerializationException, match="forwards a value to sink that cannot be written"):
            fed(task, [("a", "x", 5)])
    ((outside, part, error),) = home.unwritable
    assert (outside, part) == (0, "value")
    assert "serde 'long' cannot write this str" in str(error)
    assert home.failures == []
    assert [record.value for _, record in home.left] == ([(7).to_bytes(8, "big")] if writes_on else [])


def test_a_timestamped_store_says_what_it_takes() -> None:
    """A value alone has no timestamp."""

    class Puts(Processor):
        def init(self, context: Any) -> None:
            self.store = context.get_state_store("s")

        def process(self, record: Record) -> None:
            self.store.put("a", "x")

    supplier = Stores.persistent_timestamped_key_value_store("s")
    store = Stores.timestamped_key_value_store_builder(supplier, Serdes.string(), Serdes.string())
    builder = StreamsBuilder()
    builder.stream("in").process(Puts, store)
    with pytest.raises(TypeError, match=r"put a ValueAndTimestamp\(value, timestamp\), or None, not 'x'"):
        fed(task_of(plan_of(builder.build()), MemoryHome()), [("a", "x", 5)])
