"""Timestamp extractors as they are written: what is taken for one, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from millstream import (
    ConfigException,
    Consumed,
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    Serdes,
    StreamsBuilder,
    StreamsConfig,
    TimestampExtractor,
    TopologyException,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from millstream.dsl.timestamps import extractor
from millstream.runtime.wiring import default_extractor

KAFKAS = "org.apache.kafka.streams.processor."


@pytest.mark.parametrize(
    "kind",
    [
        FailOnInvalidTimestamp,
        LogAndSkipOnInvalidTimestamp,
        UsePartitionTimeOnInvalidTimestamp,
        WallclockTimestampExtractor,
    ],
)
def test_a_ready_made_one_is_itself_its_class_or_its_name(kind: type[TimestampExtractor]) -> None:
    """By Kafka's full class name too, as it stands in a Java application's configuration."""
    for given in (kind(), kind, kind.__name__, f"{KAFKAS}{kind.__name__}"):
        assert extractor(given, "x") == kind()
        config = StreamsConfig(
            {"application.id": "a", "bootstrap.servers": "h:1", "default.timestamp.extractor": given}
        )
        assert default_extractor(config) == kind()


@pytest.mark.parametrize("given", [7, "time", "TimestampExtractor", TimestampExtractor, StreamsConfig])
def test_anything_else_is_refused(given: Any) -> None:
    """Where it is written, and in the configuration."""
    with pytest.raises(
        TopologyException, match=r"timestamp_extractor of Consumed is FailOnInvalidTimestamp\(\), "
    ):
        Consumed().with_timestamp_extractor(given)
    config = StreamsConfig(
        {"application.id": "a", "bootstrap.servers": "h:1", "default.timestamp.extractor": given}
    )
    with pytest.raises(
        ConfigException, match=r"'default.timestamp.extractor' is FailOnInvalidTimestamp\(\), "
    ):
        default_extractor(config)


def test_a_function_takes_what_functions_of_a_stream_take() -> None:
    """One parameter to three."""
    for given in (lambda value: value, lambda key, value: key, lambda key, value, record: record.timestamp):
        assert Consumed.with_(timestamp_extractor=given).timestamp_extractor is given
    with pytest.raises(TopologyException, match="must take value, or key, value, or key, value, record"):
        Consumed().with_timestamp_extractor(lambda a, b, c, d: a)


def test_one_source_has_one_extractor() -> None:
    """Two streams of a topic share their source, and so must agree on it."""
    builder = StreamsBuilder()
    consumed = Consumed.with_(Serdes.string(), Serdes.string())
    builder.stream("in", consumed.with_timestamp_extractor(WallclockTimestampExtractor()))
    builder.stream("in", consumed.with_timestamp_extractor(WallclockTimestampExtractor()))
    with pytest.raises(TopologyException, match="with different timestamp extractors at "):
        builder.stream("in", consumed)


def test_a_global_table_has_the_times_of_its_topic() -> None:
    """Nothing of Spark's reads it."""
    with pytest.raises(TopologyException, match="a global table takes no timestamp extractor"):
        StreamsBuilder().global_table(
            "in", Consumed().with_timestamp_extractor(WallclockTimestampExtractor())
        )
