"""Tables of tasks after a restart without the state directory: rows come from Kafka, and nothing twice."""

from __future__ import annotations

import shutil
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import Column
from pyspark.sql import functions as F
from snapshots.traces import Trace, traces
from waiting import wait_until

from millstream import (
    BufferConfig,
    Consumed,
    Joined,
    KafkaStreams,
    KStream,
    KTable,
    Materialized,
    Produced,
    Serdes,
    StreamsBuilder,
    Suppressed,
    Topology,
    ValueTransformerWithKey,
)
from millstream.broker import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.usefixtures("on_tasks")]

register_pickle_by_value(sys.modules[__name__])  # workers cannot import it

TEXT = Serdes.string()
READ, WRITE = Consumed.with_(TEXT, TEXT), Produced.with_(TEXT, TEXT)
SOON = timedelta(seconds=60)
Result = tuple[str, str, str | None, int]
"""The name of a table; the key, the value, and the timestamp since the start, in ms."""


class World:
    """The topics of a program, and clients that run it one after another in a state directory."""

    def __init__(self, kafka: EmbeddedKafka, directory: Path, topics: Iterable[str]) -> None:
        self.name = f"tables-{uuid.uuid4().hex[:8]}"
        self._kafka = kafka
        self.directory = directory
        for topic in (*topics, "out"):
            kafka.create_topic(self.topic(topic), 1)
        self._producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
        self._consumer = KafkaConsumer(
            self.topic("out"),
            bootstrap_servers=kafka.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        self._written: Counter[Result] = Counter()
        # Kafka would soon forget older records. Windows begin at full seconds.
        self._start_ms = int(time.time()) * 1000

    def topic(self, topic: str) -> str:
        return f"{self.name}-{topic}"

    def send(self, topic: str, *records: tuple[str | None, str | None, int]) -> None:
        """Records with a key, a value, and a timestamp since the start."""
        for key, value, timestamp in records:
            written, at = None if value is None else value.encode(), self._start_ms + timestamp
            named = None if key is None else key.encode()
            self._producer.send(self.topic(topic), key=named, value=written, timestamp_ms=at)
        self._producer.flush()

    @contextmanager
    def running(self, topology: Topology, **config: Any) -> Iterator[None]:
        given = {
            "application.id": self.name,
            "bootstrap.servers": self._kafka.bootstrap_servers,
            "state.dir": str(self.directory),
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": 50,
            "statestore.cache.max.bytes": 0,
            **config,
        }
        with KafkaStreams(topology, given) as client:
            client.wait_until_running(SOON)
            yield

    def lose_state(self) -> None:
        shutil.rmtree(self.directory)

    def wait_for(self, results: Iterable[Result]) -> None:
        """That these are written next, and nothing else."""
        expected = self._written + Counter(results)

        def came() -> bool:
            for records in self._consumer.poll(200).values():
                for each in records:
                    table, _, value = each.value.decode().partition(": ")
                    made = None if value == "null" else value
                    self._written[table, each.key.decode(), made, each.timestamp - self._start_ms] += 1
            unexpected = self._written - expected
            assert not unexpected, (unexpected, expected - self._written)
            return self._written == expected

        try:
            wait_until(came, "what is expected is written", 60)
        except AssertionError as error:
            raise AssertionError(f"{expected - self._written} is missing") from error

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()


@contextmanager
def world(kafka: EmbeddedKafka, tmp_path: Path, *topics: str) -> Iterator[World]:
    made = World(kafka, tmp_path / "state", topics)
    try:
        yield made
    finally:
        made.close()


def both(left: Column, right: Column) -> Column:
    return F.concat(F.coalesce(left, F.lit("_")), F.lit("+"), F.coalesce(right, F.lit("_")))


def tables(builder: StreamsBuilder, at: World) -> dict[str, KTable]:
    """Each has its rows from another place, and none has a store of its own for a join."""
    rows = builder.table(at.topic("rows"), READ, Materialized.as_("rows"))
    others = builder.table(at.topic("others"), READ)
    stream = builder.stream(at.topic("stream"), READ)
    last = stream.group_by_key().aggregate(F.last, Materialized.as_("last"))
    versions = Materialized.as_("versions").with_history(timedelta(days=1))
    return {
        "source": rows,
        "steps": rows.filter(lambda key, value: value != "x").map_values(lambda value: F.upper(value)),
        "joined": rows.left_join(others, both),
        "joined in a store": rows.outer_join(others, both, Materialized.as_("joined")),
        "aggregate": last.map_values(lambda value: F.concat(value, F.lit("!"))),
        "of a stream": stream.filter(lambda key, value: value != "x").to_table(),
        "versions": stream.to_table(versions),
    }


def program(at: World) -> Topology:
    """All changes of the tables, and what a stream finds in them."""
    builder = StreamsBuilder()
    asks = builder.stream(at.topic("asks"), READ)
    for name, table in tables(builder, at).items():

        def named(value: Column, name: str = name) -> Column:
            return F.concat(F.lit(f"{name}: "), F.coalesce(value, F.lit("null")))

        asks.left_join(table, both).map_values(named).to(at.topic("out"), WRITE)
        table.to_stream().map_values(named).to(at.topic("out"), WRITE)
    return builder.build()


def found(at: int, ask: str, key: str, **rows: str) -> list[Result]:
    return [(name.replace("_", " "), key, f"{ask}+{row}", at) for name, row in rows.items()]


def test_tables_are_there_without_the_directory(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Whatever a table is made of; and no change of it is written again."""
    with world(kafka, tmp_path, "rows", "others", "stream", "asks") as at:
        with at.running(program(at)):
            at.send("rows", ("a", "old", 1))
            at.wait_for(
                [
                    ("source", "a", "old", 1),
                    ("steps", "a", "OLD", 1),
                    ("joined", "a", "old+_", 1),
                    ("joined in a store", "a", "old+_", 1),
                ]
            )
            at.send("rows", ("a", "b", 2), ("d", "gone", 3), ("d", None, 4))
            at.wait_for(
                [
                    ("source", "a", "b", 2),
                    ("steps", "a", "B", 2),
                    ("joined", "a", "b+_", 2),
                    ("joined in a store", "a", "b+_", 2),
                    ("source", "d", "gone", 3),
                    ("steps", "d", "GONE", 3),
                    ("joined", "d", "gone+_", 3),
                    ("joined in a store", "d", "gone+_", 3),
                    ("source", "d", None, 4),
                    ("steps", "d", None, 4),
                    ("joined", "d", None, 4),
                    ("joined in a store", "d", None, 4),
                ]
            )
            at.send("others", ("a", "c", 5))
            at.wait_for([("joined", "a", "b+c", 5), ("joined in a store", "a", "b+c", 5)])
            at.send("stream", ("a", "e", 6), ("a", "f", 8))
            at.wait_for(
                [
                    *(("aggregate", "a", f"{value}!", time) for value, time in (("e", 6), ("f", 8))),
                    *(("of a stream", "a", value, time) for value, time in (("e", 6), ("f", 8))),
                    *(("versions", "a", value, time) for value, time in (("e", 6), ("f", 8))),
                ]
            )
            first = {
                "source": "b",
                "steps": "B",
                "joined": "b+c",
                "joined_in_a_store": "b+c",
                "aggregate": "f!",
                "of_a_stream": "f",
            }
            at.send("asks", ("a", "1", 10))
            at.wait_for(found(10, "1", "a", **first, versions="f"))
        at.lose_state()
        with at.running(program(at)):
            at.send("asks", ("a", "2", 11))
            at.wait_for(found(11, "2", "a", **first, versions="f"))
            at.send("asks", ("a", "3", 7), ("d", "4", 12))
            nothing = found(12, "4", "d", **dict.fromkeys(first, "_"), versions="_")
            at.wait_for([*found(7, "3", "a", **first, versions="e"), *nothing])
            at.send("others", ("a", None, 13))
            at.wait_for([("joined", "a", "b+_", 13), ("joined in a store", "a", "b+_", 13)])
        with at.running(program(at)):
            at.send("rows", ("a", "g", 9))
            at.wait_for(
                [
                    ("source", "a", "g", 9),
                    ("steps", "a", "G", 9),
                    ("joined", "a", "g+_", 9),
                    ("joined in a store", "a", "g+_", 9),
                ]
            )


class Shouting(ValueTransformerWithKey):
    """In capitals, and louder than before."""

    def transform(self, key: str, value: str | None) -> str | None:
        return None if value is None else f"{value.upper()}!"


def behind_transformers_and_suppress(at: World) -> Topology:
    """What streams and tables find in tables that hold back updates, or have their rows from Python."""
    builder = StreamsBuilder()
    rows = builder.table(at.topic("rows"), READ)
    last = builder.stream(at.topic("stream"), READ).group_by_key().aggregate(F.last, Materialized.as_("last"))
    kept = rows.transform_values(Shouting, materialized=Materialized.as_("kept"))
    late = Suppressed.until_time_limit(timedelta(milliseconds=50), BufferConfig.unbounded())
    tables = {
        "transformed": rows.transform_values(Shouting),
        "of an aggregate": last.transform_values(Shouting),
        "kept": kept,
        "twice": kept.transform_values(Shouting),
        "late": rows.suppress(late),
        "late aggregate": last.suppress(late),
    }
    asks = builder.stream(at.topic("asks"), READ)

    def told(found: KStream, name: str) -> None:
        text = F.lit(f"{name}: ")
        named = found.map_values(lambda value: F.concat(text, F.coalesce(value, F.lit("null"))))
        named.to(at.topic("out"), WRITE)

    for name, table in tables.items():
        told(asks.left_join(table, both), name)
    told(tables["late aggregate"].to_stream(), "seen")
    told(kept.to_stream(), "seen")
    return builder.build()


@pytest.mark.timeout(300)
def test_tables_behind_transformers_and_suppress_are_there_without_the_directory(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """As Kafka Streams has them, which asks the tables before them: also what is held back still is."""
    with world(kafka, tmp_path, "rows", "stream", "asks") as at:
        topology = behind_transformers_and_suppress(at)
        a = {"transformed": "B!", "kept": "B!", "twice": "B!!", "late": "b"}
        a |= {"of_an_aggregate": "E!", "late_aggregate": "e"}
        z = {**a, "transformed": "Z!", "kept": "Z!", "twice": "Z!!", "of_an_aggregate": "Z!"}
        z |= {"late": "_", "late_aggregate": "_"}
        gone = dict.fromkeys(a, "_")
        with at.running(topology):
            at.send("rows", ("a", "old", 1), ("a", "b", 2), ("d", "x", 3), ("d", None, 4), ("z", "z", 60))
            made = (("a", "OLD!", 1), ("a", "B!", 2), ("d", "X!", 3), ("d", None, 4), ("z", "Z!", 60))
            at.wait_for([("seen", *each) for each in made])
            at.send("stream", ("a", "e", 5), ("z", "z", 60))
            at.wait_for([("seen", "a", "e", 5)])
            at.send("asks", ("a", "1", 61), ("d", "1", 61), ("z", "1", 61))
            first = [*found(61, "1", "a", **a), *found(61, "1", "d", **gone), *found(61, "1", "z", **z)]
            at.wait_for(first)
        at.lose_state()
        with at.running(topology):
            at.send("asks", ("a", "2", 62), ("d", "2", 62), ("z", "2", 62))
            second = [*found(62, "2", "a", **a), *found(62, "2", "d", **gone), *found(62, "2", "z", **z)]
            at.wait_for(second)


def test_what_waits_for_its_row_is_there_without_the_directory(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """A record within the grace period is joined with the row of its time."""
    with world(kafka, tmp_path, "rows", "stream") as at:
        builder = StreamsBuilder()
        rows = builder.table(at.topic("rows"), READ, Materialized.as_("rows").with_history(timedelta(days=1)))
        stream = builder.stream(at.topic("stream"), READ)
        late = Joined().with_grace_period(timedelta(milliseconds=30))
        for name, found in (("seen", stream), ("joined", stream.join(rows, both, late))):
            named = found.map_values(lambda value, name=name: F.concat(F.lit(f"{name}: "), value))
            named.to(at.topic("out"), WRITE)
        topology = builder.build()
        with at.running(topology):
            at.send("rows", ("a", "old", 1))
            at.send("stream", ("a", "x", 10))
            at.wait_for([("seen", "a", "x", 10)])
        at.lose_state()
        with at.running(topology):
            at.send("rows", ("a", "new", 20))
            at.send("stream", ("b", "y", 100))
            at.wait_for([("seen", "b", "y", 100), ("joined", "a", "x+old", 10)])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["join", "left_join", "random 0, join"])
def test_foreign_keys_over_topics_are_those_of_kafka_streams(
    kafka: EmbeddedKafka, tmp_path: Path, name: str
) -> None:
    """Rows and deletions of both sides, record by record, as Kafka Streams' own driver has written them. On
    half the way the directory is lost."""
    trace = next(each for each in traces("foreign_key") if each.name == f"foreign_key/{name}")
    steps = list(zip(trace.records, trace.steps, strict=True))
    half = len(steps) // 2
    with world(kafka, tmp_path, "in", "r") as at:
        for end, part in (("e", steps[:half]), ("f", steps[half:])):
            with at.running(joined_by_letter(at, trace)):
                for record, step in part:
                    value = None if record.value is None else str(record.value)
                    at.send(record.topic, (record.key, value, record.timestamp))
                    at.wait_for([("row", str(row.key), row.value, row.timestamp or 0) for row in step.out])
                at.send("r", (end, "end", 1_000))
                at.send("in", (end, end, 1_001))  # so that what should not be written would be by now
                at.wait_for([("row", end, f"{end}+end", 1_001)])
            at.lose_state()


def joined_by_letter(at: World, trace: Trace) -> Topology:
    builder = StreamsBuilder()
    right = builder.table(at.topic("r"), READ)
    left = builder.table(at.topic("in"), READ)
    join = left.join if trace.operations[-2] == "join" else left.left_join
    rows = join(right, lambda value: F.when(value.substr(1, 1) != "-", value.substr(1, 1)), both)
    rows = rows.to_stream().map_values(
        lambda value: F.concat(F.lit("row: "), F.coalesce(value, F.lit("null")))
    )
    rows.to(at.topic("out"), WRITE)
    return builder.build()
