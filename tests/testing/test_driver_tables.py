"""The test driver with tables that nothing comes after: no query, so no Spark."""

from __future__ import annotations

import pytest

from millstream import Consumed, Materialized, Serdes, StreamsBuilder
from millstream.testing import TopologyTestDriver

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())


def test_a_table_alone_is_read_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is piped into its topic is in its store, and a tombstone takes it away."""

    def refuse(*arguments: object) -> None:
        raise AssertionError("Spark is asked for")

    monkeypatch.setattr("millstream.testing.driver.MemoryEngine", refuse)
    builder = StreamsBuilder()
    builder.table("users", STRINGS, Materialized.as_("users"))
    builder.table("others", STRINGS)
    with TopologyTestDriver(builder.build()) as driver:
        users = driver.create_input_topic("users", Serdes.string(), Serdes.string())
        users.pipe_input("ann", "Ann")
        users.pipe_input("bob", "Bob")
        users.pipe_input("ann", None)
        driver.create_input_topic("others", Serdes.string(), Serdes.string()).pipe_input("x", "X")
        assert list(driver.get_key_value_store("users").all()) == [("bob", "Bob")]
    counted = StreamsBuilder()
    counted.stream("lines", STRINGS).group_by_key().count()
    with pytest.raises(AssertionError, match="Spark is asked for"):
        TopologyTestDriver(counted.build())
