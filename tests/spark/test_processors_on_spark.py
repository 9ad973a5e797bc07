"""Processors on Spark: their stores, what is before and behind them, time, and what becomes of failures."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import functions as F

from millstream import (
    Consumed,
    ErrorHandlerContext,
    ErrorHandlerResponse,
    Materialized,
    PipelineException,
    Produced,
    ProducerRecord,
    ProductionExceptionHandler,
    PunctuationType,
    PythonWorkerException,
    Repartitioned,
    Serdes,
    SerializationExceptionOrigin,
    StoreBuilder,
    Stores,
    StreamsBuilder,
    Topology,
    TopologyException,
)
from millstream.processors.api import Processor, ProcessorContext, Record
from millstream.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark

register_pickle_by_value(sys.modules[__name__])  # workers cannot import it

TEXT, LONG = Serdes.string(), Serdes.long()
TEXTS = Consumed.with_(TEXT, TEXT)


def counts(name: str = "counts") -> StoreBuilder:
    return Stores.key_value_store_builder(Stores.persistent_key_value_store(name), TEXT, LONG)


def processing(supplier: Any, *stores: StoreBuilder, **given: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", TEXTS).process(supplier, *stores, **given).to("out")
    return builder.build()


class Forwarding(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context


class Counted(Forwarding):
    """Forwards each record with its place among those of its key."""

    def process(self, record: Record) -> None:
        store = self.context.get_state_store("counts")
        count = (store.get(record.key) or 0) + 1
        store.put(record.key, count)
        self.context.forward(record.with_value(f"{record.value}{count}"))


class Loud(Forwarding):
    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(f"{record.value}!"))


def pairs(driver: TopologyTestDriver, topic: str, value: Any = TEXT) -> list[tuple[Any, Any]]:
    return [tuple(each) for each in driver.create_output_topic(topic, TEXT, value).read_key_values_to_list()]


# --- stores ---------------------------------------------------------------------------------------------


class Asked(Forwarding):
    """Does what the value says, such as `put 1` or `range b d`, and forwards what the store then shows."""

    def process(self, record: Record) -> None:
        store = self.context.get_state_store("counts")
        what, *rest = record.value.split()
        if what == "put":
            store.put(record.key, int(rest[0]))
        elif what == "delete":
            store.delete(record.key)
        else:
            with getattr(store, what)(*rest) as found:
                told = " ".join(f"{key}={value}" for key, value in found)
            self.context.forward(record.with_value(told))


def test_a_store_shows_its_entries_in_order_whatever_is_in_this_micro_batch_or_was_before() -> None:
    """As much as hundreds of keys on several pages, of which some come and some go: what is there is what a
    dictionary has, also for queries."""
    chosen = random.Random(3)
    there: dict[str, int] = {}
    expected: list[str] = []

    def asked(what: str, *rest: str) -> tuple[str, str]:
        found = sorted(there.items(), reverse=what.startswith("reverse"))
        if rest:
            found = [(key, value) for key, value in found if rest[0] <= key <= rest[1]]
        expected.append(" ".join(f"{key}={value}" for key, value in found))
        return "x", " ".join((what, *rest))

    def batch(size: int) -> Iterator[tuple[str, str]]:
        for number in range(size):
            key = f"k{chosen.randrange(600):03d}"
            if chosen.random() < 0.3:
                there.pop(key, None)
                yield key, "delete"
            else:
                there[key] = number
                yield key, f"put {number}"
            if number % 150 == 0:
                yield asked("all")
                yield asked("reverse_range", "k1", "k350")
                yield asked("range", "k595", "k9")

    with TopologyTestDriver(processing(Asked, counts())) as driver:
        records = driver.create_input_topic("in", TEXT, TEXT)
        for size in (900, 300, 1):
            records.pipe_key_value_list(list(batch(size)))
        assert [value for _, value in pairs(driver, "out")] == expected
        with driver.get_key_value_store("counts").all() as entries:
            assert dict(entries) == there


class Windowed(Forwarding):
    """Puts each record into a window store, and one with a history; forwards what they have."""

    def process(self, record: Record) -> None:
        windows, versions = map(self.context.get_state_store, ("windows", "versions"))
        windows.put(record.key, record.value, record.timestamp // 10 * 10)
        versions.put(record.key, record.value, record.timestamp)
        with windows.fetch(record.key, 0, record.timestamp) as found:
            told = [f"{start}={value}" for start, value in found]
        last = versions.get(record.key, record.timestamp - 10)
        told.append("-" if last is None else last.value)
        self.context.forward(record.with_value(" ".join(told)))


def test_windows_and_versions_are_laid_out_in_the_same_state() -> None:
    """And in changelogs, from which queries have them."""
    hour = timedelta(hours=1)
    stores = (
        Stores.window_store_builder(
            Stores.persistent_window_store("windows", hour, timedelta(milliseconds=10)), TEXT, TEXT
        ),
        Stores.versioned_key_value_store_builder(
            Stores.persistent_versioned_key_value_store("versions", hour), TEXT, TEXT
        ),
    )
    with TopologyTestDriver(processing(Windowed, *stores)) as driver:
        records = driver.create_input_topic("in", TEXT, TEXT)
        records.pipe_input("a", "one", timestamp=3)
        records.pipe_record_list([TestRecord("a", "two", 8), TestRecord("b", "other", 9)])
        records.pipe_input("a", "three", timestamp=25)
        assert pairs(driver, "out") == [
            ("a", "0=one -"),
            ("a", "0=two -"),
            ("b", "0=other -"),
            ("a", "0=two 20=three two"),
        ]
        with driver.get_window_store("windows").fetch(
            "a", datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(1, UTC)
        ) as found:
            assert [value for _, value in found] == ["two", "three"]
        assert driver.get_key_value_store("versions").get("a") == "three"


# --- what is before and behind --------------------------------------------------------------------------


class Sorted(Forwarding):
    """Forwards short values to one step, and long ones to another."""

    def process(self, record: Record) -> None:
        self.context.forward(record, "short" if len(record.value) < 4 else "long")


def everything() -> Topology:
    """Processors behind processors, a filter, a count and a merge; before a count, a join, maps and sinks."""
    builder = StreamsBuilder()
    source = builder.stream("in", TEXTS)
    loud = source.filter(lambda key, value: value != "drop").process(Loud)
    counted = loud.process(Counted, counts())
    counted.to("counted")
    updates = counted.group_by_key().count(Materialized.as_("behind")).to_stream()
    updates.process(lambda: Doubled()).to("doubled", Produced.with_(TEXT, LONG))
    table = builder.table("rows", TEXTS)
    counted.join(table, lambda value, row: F.concat(value, row)).to("joined")
    source.group_by_key().count(Materialized.as_("beside"))
    split = source.process(Sorted)
    split.map_values(lambda value: F.upper(value), named="short").to("short-out")
    split.map_values(lambda value: F.length(value).cast("string"), named="long").to("long-out")
    source.merge(counted).process(Loud).to("merged")
    return builder.build()


class Doubled(Forwarding):
    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(record.value * 2))


def test_steps_of_spark_are_before_and_behind_processors() -> None:
    """What is forwarded to them are Columns again, and what they give comes as Python values."""
    with TopologyTestDriver(everything()) as driver:
        driver.create_input_topic("rows", TEXT, TEXT).pipe_input("a", "+row")
        records = driver.create_input_topic("in", TEXT, TEXT)
        records.pipe_key_value_list([("a", "x"), ("b", "drop"), ("a", "longer"), ("c", "y")])
        assert pairs(driver, "counted") == [("a", "x!1"), ("a", "longer!2"), ("c", "y!1")]
        assert pairs(driver, "doubled", LONG) == [("a", 4), ("c", 2)]
        assert pairs(driver, "joined") == [("a", "x!1+row"), ("a", "longer!2+row")]
        assert pairs(driver, "short-out") == [("a", "X"), ("c", "Y")]
        assert pairs(driver, "long-out") == [("b", "4"), ("a", "6")]
        own = Counter({("a", "x!"): 1, ("b", "drop!"): 1, ("a", "longer!"): 1, ("c", "y!"): 1})
        assert Counter(pairs(driver, "merged")) == own + Counter(
            [("a", "x!1!"), ("a", "longer!2!"), ("c", "y!1!")]
        )
        for store, expected in (("counts", {"a": 2, "c": 1}), ("beside", {"a": 2, "b": 1, "c": 1})):
            with driver.get_key_value_store(store).all() as entries:
                assert dict(entries) == expected


def test_a_sink_writes_what_each_of_its_parents_forwards() -> None:
    """In a topology without the DSL it may have several."""
    topology = Topology().add_source("in", "in", key_serde=TEXT, value_serde=TEXT)
    topology.add_processor("loud", Loud, "in").add_processor("doubled", Doubled, "in")
    topology.add_sink("out", "out", "loud", "doubled")
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("a", "x")
        assert pairs(driver, "out") == [("a", "x!"), ("a", "xx")]


class Priced(Forwarding):
    def process(self, record: Record) -> None:
        prices = self.context.get_state_store("prices")
        self.context.forward(record.with_value(f"{record.value} {prices.get(record.value)}"))


class Keeping(Forwarding):
    """Fills a global store: the price without its currency."""

    def process(self, record: Record) -> None:
        price = record.value.split()[0] if record.value is not None else None
        self.context.get_state_store("prices").put(record.key, price)


def test_processors_on_both_sides_of_a_topic_may_share_a_store() -> None:
    """The counts of the first one are those of the second one."""
    builder = StreamsBuilder()
    builder.add_state_store(counts())
    first = builder.stream("in", TEXTS).process(Counted, "counts", named="first")
    between = first.repartition(Repartitioned.with_(TEXT, TEXT).with_name("between"))
    between.process(Counted, "counts", named="second").to("out", Produced.with_(TEXT, TEXT))
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", TEXT, TEXT)
        for value in ("x", "y"):
            source.pipe_input("a", value)
        assert pairs(driver, "out") == [("a", "x12"), ("a", "y34")]


def test_processors_read_global_stores() -> None:
    """Of which every task has all; without being connected with them, and filled by another processor."""
    builder = StreamsBuilder()
    kept = Stores.key_value_store_builder(Stores.persistent_key_value_store("prices"), TEXT, TEXT)
    builder.add_global_store(kept.with_logging_disabled(), "prices", TEXTS, Keeping)
    builder.stream("in", TEXTS).process(Priced).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        prices, records = (driver.create_input_topic(topic, TEXT, TEXT) for topic in ("prices", "in"))
        with driver.one_batch():
            records.pipe_input("a", "tea")
            prices.pipe_input("tea", "3 EUR")
        prices.pipe_input("tea", None)
        records.pipe_input("a", "tea")
        assert pairs(driver, "out") == [("a", "tea 3"), ("a", "tea None")]


# --- time -----------------------------------------------------------------------------------------------


class Punctuated(Forwarding):
    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        ten = timedelta(seconds=10)
        context.schedule(ten, PunctuationType.STREAM_TIME, lambda now: self.tell("stream", now))
        context.schedule(ten, PunctuationType.WALL_CLOCK_TIME, lambda now: self.tell("clock", now))

    def tell(self, what: str, now: int) -> None:
        self.context.forward(Record("now", f"{what} {now}", now))

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(f"{record.value} {self.context.current_system_time_ms()}"))


def test_punctuators_go_by_the_time_of_records_and_by_the_clock() -> None:
    """By stream time at once, and then when a record brings it; by the clock whatever comes, and what was
    missed is missed."""
    start = datetime.fromtimestamp(1000, UTC)
    with TopologyTestDriver(processing(Punctuated), initial_wall_clock_time=start) as driver:
        records = driver.create_input_topic("in", TEXT, TEXT)
        for at in (5_000, 9_000, 21_000):
            records.pipe_input("a", "x", timestamp=at)
        for seconds in (9, 26, 5, 4):
            driver.advance_wall_clock_time(timedelta(seconds=seconds))
        records.pipe_input("a", "y", timestamp=22_000)
        assert pairs(driver, "out") == [
            ("a", "x 1000000"),
            ("now", "stream 5000"),
            ("a", "x 1000000"),
            ("a", "x 1000000"),
            ("now", "stream 21000"),
            ("now", "clock 1035000"),
            ("now", "clock 1040000"),
            ("a", "y 1044000"),
        ]


# --- failures -------------------------------------------------------------------------------------------


class Failing(Counted):
    """Does what the value says, after it has forwarded and put."""

    def process(self, record: Record) -> None:
        super().process(record)
        match record.value:
            case "raise":
                raise LookupError("no such thing")
            case "end":
                raise SystemExit(4)
            case "die":
                os._exit(3)


def fails(value: str, config: dict[str, Any] | None = None) -> PipelineException:
    with TopologyTestDriver(processing(Failing, counts()), config) as driver:
        records = driver.create_input_topic("in", TEXT, TEXT)
        records.pipe_input("a", "fine")
        with pytest.raises(PipelineException) as raised:
            records.pipe_key_value_list([("a", "fine"), ("a", value)])
    return raised.value


def test_what_a_processor_raises_says_which_one_with_which_record() -> None:
    """And where in the user's file; the cause is what was raised."""
    error = fails("raise")
    assert "KSTREAM-PROCESSOR-0000000001 in task 0_0, at in-0 offset 2: LookupError: no such thing" in str(
        error
    )
    assert "test_processors_on_spark.py" in str(error)
    assert isinstance(error.__cause__, LookupError)
    assert "SystemExit: 4" in str(fails("end"))


def test_a_worker_that_dies_says_at_which_record() -> None:
    """Whatever has ended it."""
    error = fails("die")
    assert isinstance(error, PythonWorkerException)
    assert "exit status 3; it was in the task of partition 0, at in-0 offset 2" in str(error)


def test_a_record_is_given_up_where_the_handler_says_so() -> None:
    """What was put and forwarded before stays, as in Kafka Streams; the record is counted, and in the dead
    letter queue with all that it had."""
    config = {
        "processing.exception.handler": "continue",
        "errors.dead.letter.queue.topic.name": "dead",
    }
    with TopologyTestDriver(processing(Failing, counts()), config) as driver:
        records = driver.create_input_topic("in", TEXT, TEXT)
        records.pipe_record_list(
            [TestRecord("a", "raise", 7, (("h", b"1"),)), TestRecord("a", "fine", 8, (("h", b"2"),))]
        )
        assert pairs(driver, "out") == [("a", "raise1"), ("a", "fine2")]
        assert driver.dropped_records == 1
        (dead,) = driver.create_output_topic("dead", TEXT, TEXT).read_records_to_list()
        told = dict(dead.headers)
        assert (dead.key, dead.value, dead.timestamp, told["h"]) == ("a", "raise", 7, b"1")
        assert told["__streams.errors.exception"] == b"LookupError"
        assert told["__streams.errors.offset"] == b"0"


class Wrong(Forwarding):
    """Forwards what is no text, and then what is."""

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(1))
        self.context.forward(record)


class Telling(ProductionExceptionHandler):
    """Goes on, and writes what it is asked about to a topic."""

    def handle_error(self, *_: Any) -> ErrorHandlerResponse:
        return ErrorHandlerResponse.fail()

    def handle_serialization_error(
        self,
        context: ErrorHandlerContext,
        record: ProducerRecord,
        exception: Exception,
        origin: SerializationExceptionOrigin,
    ) -> ErrorHandlerResponse:
        told = f"{origin.name} for {record.topic} at {context.processor_node_id}".encode()
        return ErrorHandlerResponse.resume([ProducerRecord("asked", record.key, told)])


def test_what_a_sink_cannot_write_is_for_the_production_handler() -> None:
    """Whatever the processing handler says, for no processor has failed."""
    goes_on = {"processing.exception.handler": "continue"}
    with TopologyTestDriver(processing(Wrong), goes_on) as driver:
        records = driver.create_input_topic("in", TEXT, TEXT)
        with pytest.raises(PipelineException, match="a value to KSTREAM-SINK-0000000002 that cannot be"):
            records.pipe_input("a", "x")
    dead = {
        "production.exception.handler": "continue",
        "errors.dead.letter.queue.topic.name": "dead",
    }
    with TopologyTestDriver(processing(Wrong), dead) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("a", "x")
        assert pairs(driver, "out") == [("a", "x")]
        assert pairs(driver, "dead") == [("a", "x")]
        assert driver.dropped_records == 1
    with TopologyTestDriver(processing(Wrong), {"production.exception.handler": Telling}) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("a", "x")
        assert pairs(driver, "out") == [("a", "x")]
        assert pairs(driver, "asked") == [(None, "VALUE for out at KSTREAM-SINK-0000000002")]


def test_a_processor_without_serdes_for_what_it_forwards_says_so() -> None:
    """Here a number, to be written as text."""
    with TopologyTestDriver(processing(lambda: Numbers())) as driver:
        records = driver.create_input_topic("in", TEXT, TEXT)
        with pytest.raises(PipelineException, match=r"key_serde=…, value_serde=…"):
            records.pipe_input("a", "x")


class Numbers(Forwarding):
    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(1))


def unpicklable() -> Callable[[], Processor]:
    lock = threading.Lock()

    def supply() -> Processor:
        assert lock is not None
        return Loud()

    return supply


def test_a_supplier_that_cannot_be_brought_to_workers_says_so() -> None:
    """It is pickled for that."""
    with pytest.raises(TopologyException, match=r"KSTREAM-PROCESSOR-0000000001.*pickl"):
        TopologyTestDriver(processing(unpicklable()))
