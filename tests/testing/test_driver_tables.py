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


def test_a_topic_has_the_programs_own_serdes_unless_others_are_given() -> None:
    """What no source or sink of the program says has to be told."""
    builder = StreamsBuilder()
    builder.table("totals", Consumed.with_(Serdes.string(), Serdes.long()), Materialized.as_("totals"))
    builder.global_table("names", Consumed.with_(Serdes.long(), None), Materialized.as_("names"))
    with TopologyTestDriver(builder.build(), {"default.value.serde": Serdes.string()}) as driver:
        driver.create_input_topic("totals").pipe_input("ann", 7)
        driver.create_input_topic("names").pipe_input(1, "Ann")
        assert list(driver.get_key_value_store("totals").all()) == [("ann", 7)]
        assert list(driver.get_key_value_store("names").all()) == [(1, "Ann")]
        driver.create_input_topic("totals", value_serde=Serdes.string()).pipe_input("bob", "8 bytes.")
        assert driver.get_key_value_store("totals").get("bob") == int.from_bytes(b"8 bytes.", "big")
        with pytest.raises(ValueError, match="the key serde of the topic 'other'; pass both"):
            driver.create_output_topic("other")
