"""KStream.to: where records go."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from driving import STRINGS, pipe, read, records
from pyspark.sql import functions as F

from millstream import (
    Consumed,
    KStream,
    PipelineException,
    Produced,
    Serdes,
    StreamsBuilder,
    TopologyException,
)
from millstream.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark


def test_to_writes_to_a_topic_or_to_the_one_that_a_column_names() -> None:
    """Null keys and values are written as such, with headers and times; a topic may be written and read."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.to("all")
    stream.to("all")
    stream.to(lambda key, value: F.concat(F.lit("to-"), F.coalesce(value, F.lit("nobody"))))
    stream.to(lambda key, value, record: F.concat(record.topic, F.lit("-copy")))
    stream.map_values(lambda value: F.length(value)).to(
        "sizes", Produced.with_(Serdes.string(), Serdes.long())
    )
    stream.to("again")
    builder.stream("again", STRINGS).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "ann", 7, (("h", None),)), (None, None, 8))
        once = [TestRecord("k", "ann", 7, (("h", None),)), TestRecord(None, None, 8)]
        assert records(driver, "all") == [once[0], once[0], once[1], once[1]]
        assert records(driver, "to-ann") == once[:1]
        assert records(driver, "to-nobody") == once[1:]
        assert records(driver, "in-copy") == records(driver, "out") == once
        assert read(driver, "sizes", value="long") == [("k", 3), (None, None)]


def test_a_record_without_a_topic_ends_the_pipeline() -> None:
    """A NULL name is nobody's topic: nothing is skipped, and the error names the node and the function."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to(lambda value: value)
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "somewhere"))
        assert read(driver, "somewhere") == [("k", "somewhere")]
        with pytest.raises(
            PipelineException,
            match=r"KSTREAM-SINK-0000000001 \(test_to.py:\d+ <lambda>\): "
            "the topic's name is NULL for a record",
        ):
            pipe(driver, "in", ("k", None))


def test_a_partitioner_chooses_the_partition() -> None:
    """Its Column is the partition; NULL leaves the choice to the producer."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to(
        "out", Produced.with_(partitioner=lambda key, value: F.when(key == "k", F.length(value)))
    )
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "vvv"), ("l", "v"))
        assert [record.partition for record in driver._output("out")] == [3, -1]


def test_a_sink_that_cannot_be_is_refused_before_the_first_record() -> None:
    """The error names the node, what is wrong and what would be right."""
    said = {}
    sinks: dict[str, Callable[[KStream], None]] = {
        "serde": lambda stream: stream.to("out", Produced.with_(Serdes.string(), Serdes.string())),
        "partition": lambda stream: stream.to("out", Produced.with_(partitioner=lambda key, value: key)),
        "topic": lambda stream: stream.to(lambda value: value),
    }
    for name, sink in sinks.items():
        builder = StreamsBuilder()
        sink(builder.stream("in", Consumed.with_(Serdes.string(), Serdes.long())))
        with pytest.raises(TopologyException) as caught:
            TopologyTestDriver(builder.build())
        said[name] = re.sub(r":\d+ ", ":N ", str(caught.value)).removeprefix("Invalid topology: ")
    assert said == {
        "serde": "KSTREAM-SINK-0000000001: the value has the serde 'string', but its column is "
        "bigint; use Serdes.long(), or cast the column to string",
        "partition": "KSTREAM-SINK-0000000001 (test_to.py:N <lambda>): a partition is an integer "
        "Column, this one is string",
        "topic": "KSTREAM-SINK-0000000001 (test_to.py:N <lambda>): a topic's name is a string "
        "Column, this one is bigint",
    }
