"""KStream.repartition: rows in, through a topic, rows out."""

from __future__ import annotations

import sys
from datetime import timedelta

import pytest
from driving import STRINGS, pipe, read, records
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import functions as F

from millstream import JoinWindows, Repartitioned, Serdes, StreamJoined, StreamsBuilder
from millstream.processors.api import Processor, ProcessorContext, Record
from millstream.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark

register_pickle_by_value(sys.modules[__name__])  # workers cannot import it


def test_repartition_joins_two_pipelines_by_a_topic() -> None:
    """Key, value, headers and timestamp come through; a null key is dropped, a null value passes."""
    builder = StreamsBuilder()
    (
        builder.stream("in", STRINGS)
        .map(lambda key, value: (F.length(key), {"text": value, "none": F.lit(None).cast("int")}))
        .repartition(Repartitioned.as_("again"))
        .map_values(lambda key, value, record: F.concat_ws(" ", value.text, F.unix_millis(record.timestamp)))
        .to("out")
    )
    topology = builder.build()
    assert [pipeline.name for pipeline in topology.pipelines] == ["p0", "p1"]
    with TopologyTestDriver(topology, {"application.id": "app"}) as driver:
        pipe(driver, "in", ("k", "v", 42, (("h", b"x"),)), (None, "w", 43), ("kk", None, 44))
        assert records(driver, "app-again-repartition", "integer", "string") == [
            TestRecord(1, '{"text":"v"}', 42, (("h", b"x"),)),
            TestRecord(2, "{}", 44),
        ]
        assert records(driver, "out", "integer") == [
            TestRecord(1, "v 42", 42, (("h", b"x"),)),
            TestRecord(2, "44", 44),
        ]


def test_a_topic_may_be_read_by_a_pipeline_with_a_lower_number_than_its_writer() -> None:
    """Serdes of the topic are found whichever pipeline comes first in the topology."""
    builder = StreamsBuilder()
    first = builder.stream("first", STRINGS)
    second = builder.stream("second", STRINGS).map_values(lambda value: F.length(value)).repartition()
    first.map_values(lambda value: F.length(value)).merge(second).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "first", ("a", "x"))
        pipe(driver, "second", ("b", "yy"))
        assert read(driver, "out", value=Serdes.integer()) == [("a", 1), ("b", 2)]


def test_a_partitioner_chooses_the_partition_of_the_topic() -> None:
    """As a sink's; NULL leaves it to the key, and what counts keys behind it counts each as one."""
    builder = StreamsBuilder()
    chosen = Repartitioned.as_("again").with_stream_partitioner(
        lambda key, value: F.when(key == "k", F.length(value))
    )
    counted = builder.stream("in", STRINGS).repartition(chosen).group_by_key().count()
    counted.to_stream().to("out")
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        pipe(driver, "in", ("k", "vvv"), ("k", "vv"), ("l", "v"))
        again = driver._output("app-again-repartition")
        assert [record.partition for record in again] == [3, 2, -1]
        assert read(driver, "out", value=Serdes.long()) == [("k", 2), ("l", 1)]


class Thrice(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(3 * record.value))


def test_a_pipeline_reads_the_repartition_topics_that_it_writes() -> None:
    """A join with a stream brings what is behind the topic into the pipeline of what is in front of it."""
    builder = StreamsBuilder()
    left, right = builder.stream("left", STRINGS), builder.stream("in", STRINGS)
    near = JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=5))
    strings = StreamJoined.with_(Serdes.string(), Serdes.string(), Serdes.string())
    left.join(right, lambda one, other: F.concat(one, other), near, strings).to("joined")
    again = left.map(lambda key, value: (key, F.upper(value))).repartition(
        Repartitioned.with_(Serdes.string(), Serdes.string())
    )
    again.join(right, lambda one, other: F.concat(one, other), near, strings).to("joined-again")
    thrice = left.process(Thrice).repartition(Repartitioned.with_(Serdes.string(), Serdes.string()))
    thrice.join(right, lambda one, other: F.concat(one, other), near, strings).to("joined-thrice")
    topology = builder.build()
    assert [pipeline.name for pipeline in topology.pipelines] == ["p0"]
    with TopologyTestDriver(topology) as driver:
        pipe(driver, "in", ("k", "b", 1))
        pipe(driver, "left", ("k", "a", 2))
        assert read(driver, "joined") == [("k", "ab")]
        assert read(driver, "joined-again") == [("k", "Ab")]
        assert read(driver, "joined-thrice") == [("k", "aaab")]
