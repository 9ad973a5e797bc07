"""StreamsBuilder.stream: one topic, several, a pattern; serdes given or by default."""

from __future__ import annotations

import re

import pytest
from driving import STRINGS, pipe, read
from pyspark.sql import functions as F

from millstream import Consumed, PipelineException, Serdes, StreamsBuilder, TopologyException
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


def test_a_stream_reads_one_topic_several_or_all_that_match_a_pattern() -> None:
    """A pattern has to match the whole name; a topic read twice is read once for both."""
    builder = StreamsBuilder()
    builder.stream("one", STRINGS).to("from-one")
    builder.stream("one", STRINGS).map_values(lambda value: F.upper(value)).to("from-one-too")
    builder.stream(["two", "three"], STRINGS).to("from-several")
    builder.stream(re.compile("log-[a-z]+"), STRINGS).map_values(
        lambda key, value, record: F.concat_ws("/", record.topic, value)
    ).to("from-pattern")
    with TopologyTestDriver(builder.build()) as driver:
        for topic in ("one", "two", "three", "log-a", "log-bc"):
            pipe(driver, topic, (topic[0], topic))
        assert read(driver, "from-one") == [("o", "one")]
        assert read(driver, "from-one-too") == [("o", "ONE")]
        assert read(driver, "from-several") == [("t", "two"), ("t", "three")]
        assert read(driver, "from-pattern") == [("l", "log-a/log-a"), ("l", "log-bc/log-bc")]
        with pytest.raises(ValueError, match="the topology does not read the topic 'log-1'; it reads 'one'"):
            pipe(driver, "log-1", ("k", "v"))


def test_serdes_come_from_consumed_or_from_the_configuration() -> None:
    """What has neither is refused, with both remedies in the error."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(key_serde=Serdes.integer())).to("out")
    topology = builder.build()
    with TopologyTestDriver(topology, {"default.value.serde": "long"}) as driver:
        pipe(driver, "in", (1, 2), key="integer", value="long")
        assert read(driver, "out", "integer", "long") == [(1, 2)]
    with pytest.raises(TopologyException) as caught:
        TopologyTestDriver(topology)
    assert str(caught.value) == (
        "Invalid topology: KSTREAM-SOURCE-0000000000: no value serde for topic 'in'; give it one, "
        "Consumed.with_(Serdes.string(), Serdes.string()), or set the configuration default.value.serde"
    )


def test_bytes_that_do_not_fit_the_serde_end_the_pipeline_and_name_the_record() -> None:
    """Nothing is skipped; the error tells topic, partition, offset and which side, and not the content."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(Serdes.string(), Serdes.long())).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", 1), value="long")
        assert read(driver, "out", value="long") == [("k", 1)]
        with pytest.raises(PipelineException) as caught:
            pipe(driver, "in", ("k", "no number"))
        said = "in-0 offset 1 value: serde 'long' cannot read these 9 bytes: it takes 8 bytes"
        assert said in str(caught.value)
        head = "pipeline p0: its query failed: the record at in-0 offset 1 cannot be read\n"
        assert head in str(caught.value)
        assert "set deserialization.exception.handler" in str(caught.value)
        assert "no number" not in str(caught.value)
        assert caught.value.pipeline == "p0"
        assert caught.value.error_class == "USER_RAISED_EXCEPTION"
