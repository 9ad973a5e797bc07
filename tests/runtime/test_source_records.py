"""What fills a table's store: records that its serdes cannot read are for the handler, and never stored."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from millstream import (
    Consumed,
    DeserializationExceptionHandler,
    ErrorHandlerResponse,
    Materialized,
    SchemaRegistryException,
    Serdes,
    SerializationException,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
    Topology,
)
from millstream.clock import SystemClock
from millstream.model import TaskId, TopicPartition
from millstream.ports import ChangelogBatch
from millstream.registry.http import RegistryServer
from millstream.registry.registry_settings import RegistrySettings
from millstream.runtime.threads.source_records import SourceRecords, source_serdes
from millstream.serdes.registered import bound, header_of
from millstream.testing import TopologyTestDriver

AT, TASK = TopicPartition("users", 3), TaskId(0, 3)
GOOD, SHORT = (7).to_bytes(8, "big"), b"abc"


def tables() -> Topology:
    """A table and a global table that only stores read, with numbers as values."""
    builder = StreamsBuilder()
    longs = Consumed.with_(Serdes.string(), Serdes.long())
    builder.table("users", longs, Materialized.as_("users"))
    builder.global_table("all", longs, Materialized.as_("all"))
    builder.table("texts", Consumed.with_(Serdes.string(), Serdes.string()), Materialized.as_("texts"))
    return builder.build()


def records(topology: Topology, registry: RegistrySettings | None = None, **config: Any) -> SourceRecords:
    given = {name.replace("_", "."): value for name, value in config.items()}
    made = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1", **given})
    serdes = source_serdes(topology, (None, None), lambda serde, **at: bound(serde, registry, **at))
    return SourceRecords(serdes, made, SystemClock())


def batch(*entries: tuple[bytes, bytes | None], offset: int = 40) -> ChangelogBatch:
    listed = [(key, value, 1_000 + at) for at, (key, value) in enumerate(entries)]
    offsets = [offset + 2 * at for at in range(len(listed))]  # with transaction markers between them
    return ChangelogBatch(AT, listed, offset + 100, offsets=offsets)


MIXED = batch((b"a", GOOD), (b"b", SHORT), (b"c", None), (b"d", GOOD))


def test_continue_drops_what_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    """A pipeline does the same. Tombstones and good records stay, and the log says where the record is."""
    caplog.set_level(logging.WARNING)
    kept = records(tables(), deserialization_exception_handler="continue")
    assert [key for key, *_ in kept.readable("users", TASK, MIXED)] == [b"a", b"c", b"d"]
    assert kept.readable("users", TASK, batch((b"a", GOOD))) == batch((b"a", GOOD)).entries
    assert kept.readable("texts", TASK, MIXED) is MIXED.entries, "any bytes are a text"
    assert "store 'users': dropped 1 records of 'users-3'" in caplog.text
    assert "offset 42" in caplog.text
    assert "abc" not in caplog.text


def test_fail_names_the_record() -> None:
    """Topic, partition and offset, in the message and as attributes."""
    with pytest.raises(SerializationException, match=r"users-3 offset 42, .*'users'.* 3 bytes") as caught:
        records(tables()).readable("users", TASK, MIXED)
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.task_id) == ("users", 3, 42, TASK)


class Decides(DeserializationExceptionHandler):
    """Drops short records, and fails at others; what it was asked is in `asked`."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def configure(self, configs: Any) -> None:
        self.asked.append(configs["application.id"])

    def handle_error(self, context: Any, record: Any, exception: Exception) -> ErrorHandlerResponse:
        self.asked.append((context.topic, context.offset, record.key, record.value, type(exception)))
        if record.value == b"none":
            return None  # type: ignore[return-value]
        short = len(record.value) < 8
        return ErrorHandlerResponse.resume() if short else ErrorHandlerResponse.fail()


def test_a_handler_of_ones_own_is_asked() -> None:
    """It may return nothing valid, or raise."""
    handler = Decides()
    kept = records(tables(), deserialization_exception_handler=handler)
    assert len(kept.readable("users", TASK, MIXED)) == 3
    assert handler.asked == ["app", ("users", 42, b"b", SHORT, SerializationException)]
    with pytest.raises(SerializationException, match="users-3 offset 40"):
        kept.readable("users", TASK, batch((b"x", GOOD + b"9")))
    with pytest.raises(StreamsException, match=r"the handler Decides .* returned NoneType"):
        kept.readable("users", TASK, batch((b"x", b"none")))
    handler.asked = None  # type: ignore[assignment]
    with pytest.raises(StreamsException, match=r"the handler Decides .* raised AttributeError at a record"):
        kept.readable("users", TASK, MIXED)


def test_a_registry_that_is_away_drops_nothing() -> None:
    """The record may be good; nobody can say."""
    server = RegistryServer()
    registry = RegistrySettings.of(
        {"schema.registry.url": server.url, "schema.registry.timeout.ms": 200}, "app"
    )
    builder = StreamsBuilder()
    builder.table("users", Consumed.with_(Serdes.string(), Serdes.avro("long")), Materialized.as_("users"))
    kept = records(builder.build(), registry, deserialization_exception_handler="continue")
    number, changes = server.state.register("s", {"schema": '"long"'})
    server.change(changes)
    good = (b"a", header_of(number) + b"\x02")
    assert kept.readable("users", TASK, batch(good, (b"b", header_of(99)))) == batch(good).entries
    server.close()
    with pytest.raises(SchemaRegistryException, match="cannot be queried"):
        kept.readable("users", TASK, batch(good, (b"b", header_of(98))))


def test_stores_of_a_test_driver_do_the_same() -> None:
    """The older value of the key stays, and scans continue."""
    for store in ("users", "all"):
        with TopologyTestDriver(tables(), {"deserialization.exception.handler": "continue"}) as driver:
            topic = driver.create_input_topic(store, Serdes.string(), Serdes.bytes())
            topic.pipe_key_value_list([("a", GOOD), ("b", GOOD), ("a", SHORT)])
            assert list(driver.get_key_value_store(store).all()) == [("a", 7), ("b", 7)]
        with TopologyTestDriver(tables()) as driver:
            topic = driver.create_input_topic(store, Serdes.string(), Serdes.bytes())
            with pytest.raises(SerializationException, match=f"{store}-0 offset 0"):
                topic.pipe_input("a", SHORT)
