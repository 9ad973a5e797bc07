"""Serdes with a schema registry in Spark and in Python: the same bytes and values, and what goes wrong."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from driving import pipe, read
from pyspark.sql import functions as F

from millstream import (
    Consumed,
    PipelineException,
    Produced,
    SchemaRegistryException,
    Serde,
    Serdes,
    SerializationException,
    StreamsBuilder,
    Topology,
    TopologyException,
)
from millstream.dsl.registry_serdes import bound
from millstream.registry.http import RegistryServer
from millstream.registry.settings import RegistrySettings
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    server = RegistryServer()
    yield server
    server.close()


def config(registry: RegistryServer, **more: Any) -> dict[str, Any]:
    return {"schema.registry.url": registry.url, **{k.replace("_", "."): v for k, v in more.items()}}


def of(registry: RegistryServer, serde: Serde, topic: str) -> Serde:
    """What another program would read and write a topic with."""
    made: Serde = bound(serde, RegistrySettings.of(config(registry)), topic)
    return made


def copied(serde: Serde, out: Serde | None = None) -> Topology:
    """Values go through Spark's rows from one topic to another."""
    builder = StreamsBuilder()
    produced = Produced.with_(Serdes.string(), serde if out is None else out)
    stream = builder.stream("in", Consumed.with_(Serdes.string(), serde))
    # A struct of the same fields: what is written was in a row, and is not the bytes that came.
    stream.map_values(lambda value: F.when(F.lit(True), value)).to("out", produced)
    return builder.build()


def through(
    registry: RegistryServer, serde: Serde, data: list[bytes | None], out: Serde | None = None
) -> list[bytes | None]:
    """These bytes, as Spark has read and written them."""
    with TopologyTestDriver(copied(serde, out), config(registry)) as driver:
        pipe(driver, "in", *((str(i), each) for i, each in enumerate(data)), value="bytes")
        return [value for _, value in read(driver, "out", value="bytes")]


EVERYTHING = json.dumps(
    {
        "type": "record",
        "name": "Everything",
        "namespace": "test",
        "fields": [
            {"name": "flag", "type": "boolean"},
            {"name": "small", "type": "int"},
            {"name": "large", "type": "long"},
            {"name": "single", "type": "float"},
            {"name": "double", "type": "double"},
            {"name": "data", "type": "bytes"},
            {"name": "text", "type": "string"},
            {"name": "maybe", "type": ["null", "string"], "default": None},
            {"name": "late", "type": ["long", "null"]},
            {"name": "suit", "type": {"type": "enum", "name": "Suit", "symbols": ["HEARTS", "SPADES"]}},
            {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
            {"name": "texts", "type": {"type": "array", "items": ["null", "string"]}},
            {"name": "counts", "type": {"type": "map", "values": "long"}},
            {
                "name": "inner",
                "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]},
            },
            {"name": "more", "type": {"type": "array", "items": "Inner"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "micros", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            },
            {"name": "one", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "number", "type": ["null", "int", "long"]},
            {"name": "either", "type": ["null", "string", "Inner", "boolean"]},
        ],
    }
)
FULL = {
    "flag": True,
    "small": -(2**31),
    "large": 2**63 - 1,
    "single": 1.5,
    "double": 0.1,
    "data": b"\x00\xff",
    "text": "ü 🎉",
    "maybe": "y",
    "late": 7,
    "suit": "SPADES",
    "hash": b"abcd",
    "texts": ["a", None, ""],
    "counts": {"a": 1, "b": -1},
    "inner": {"x": 1},
    "more": [{"x": 2}, {"x": 3}],
    "day": date(2024, 2, 29),
    "millis": datetime(2024, 2, 29, 12, 0, 0, 123000, tzinfo=UTC),
    "micros": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "local": datetime(2024, 2, 29, 12, 0),
    "price": Decimal("-12345678.90"),
    "one": uuid.UUID(int=7),
    "number": 2**40,
    "either": {"x": 4},
}
EMPTY = {
    **FULL,
    "maybe": None,
    "late": None,
    "texts": [],
    "counts": {},
    "more": [],
    "number": None,
    "either": None,
}


def test_avro_in_spark_is_avro_in_python(registry: RegistryServer) -> None:
    """Every type, through rows: the bytes that fastavro writes come out as they went in; so do tombstones."""
    serde = Serdes.avro(EVERYTHING)
    values = [FULL, EMPTY, {**FULL, "either": "text"}, {**FULL, "either": False}, None]
    outside = of(registry, serde, "in")
    data = [outside.serialize(value) for value in values]
    # The one schema has one id, and Spark has written an int that is not small as a long; see "number".
    assert through(registry, serde, data) == data
    assert outside.deserialize(data[0]) == FULL


def avro(*fields: tuple[str, Any], name: str = "Order") -> str:
    listed = [{"name": n, "type": t, **({"default": d[0]} if d else {})} for n, t, *d in fields]
    return json.dumps({"type": "record", "name": name, "fields": listed})


OLD = avro(("id", "string"), ("amount", "int"))
NEW = avro(("id", "string"), ("amount", "double"), ("note", "string", "none"))


def test_records_of_older_and_newer_schemas_are_read_by_resolution(registry: RegistryServer) -> None:
    """A program that knows the new one reads what the old one wrote, and the other way round."""
    old, new = of(registry, Serdes.avro(OLD), "in"), of(registry, Serdes.avro(NEW), "in")
    data = [old.serialize({"id": "a", "amount": 1}), new.serialize({"id": "b", "amount": 2.5, "note": "x"})]
    out = of(registry, Serdes.avro(), "out")
    read_by_new = [out.deserialize(each) for each in through(registry, Serdes.avro(), data, Serdes.avro(NEW))]
    assert read_by_new == [
        {"id": "a", "amount": 1.0, "note": "none"},
        {"id": "b", "amount": 2.5, "note": "x"},
    ]
    only = Serdes.avro(avro(("id", "string")))
    registry.change(registry.state.set_level("out-value", "NONE"))
    assert [out.deserialize(each) for each in through(registry, only, data)] == [{"id": "a"}, {"id": "b"}]


def test_what_cannot_be_read_is_for_the_handler_with_the_reason(registry: RegistryServer) -> None:
    """Other bytes, an id that nobody knows, a record that is cut off, one that the schema cannot resolve."""
    serde, other = Serdes.avro(OLD), Serdes.avro(avro(("id", "string"), ("amount", "string")))
    good = of(registry, serde, "in").serialize({"id": "a", "amount": 1})
    assert good is not None
    odd = of(registry, other, "elsewhere").serialize({"id": "a", "amount": "much"})
    bad = [b"{}", struct.pack(">bI", 0, 99) + good[5:], good[:-1], good + b"x", odd]
    said = [
        "a 0 and the id",
        "it does not know 99",
        "Avro that its schema",
        "ends where",
        "Avro that its schema",
    ]
    for data, reason in zip(bad, said, strict=True):
        with pytest.raises(SerializationException, match=reason):
            of(registry, serde, "in").deserialize(data)
    handling = {"deserialization_exception_handler": "continue", "errors_dead_letter_queue_topic_name": "dlq"}
    with TopologyTestDriver(copied(serde), config(registry, **handling)) as driver:
        pipe(driver, "in", *((str(i), each) for i, each in enumerate([*bad, good])), value="bytes")
        assert [key for key, _ in read(driver, "out", value="bytes")] == [str(len(bad))]
        letters = driver.create_output_topic("dlq", "string", "bytes").read_records_to_list()
    messages = [dict(each.headers)["__streams.errors.message"] or b"" for each in letters]
    for message, reason in zip(messages, said, strict=True):
        assert reason in message.decode()
    with TopologyTestDriver(copied(serde), config(registry)) as driver:
        with pytest.raises(
            PipelineException, match=r"in-0 offset 0 value: serde 'avro' cannot read"
        ) as caught:
            pipe(driver, "in", ("a", bad[1]), value="bytes")
        assert isinstance(caught.value.__cause__, SerializationException)


def test_a_registry_that_is_away_ends_the_pipeline_and_drops_nothing(registry: RegistryServer) -> None:
    """Though the handler drops what cannot be read: the record is good, and the registry will be back."""
    serde = of(registry, Serdes.avro(OLD), "in")
    late = RegistryServer()
    known = of(late, Serdes.avro(NEW), "other")
    registry.change(registry.state.register("filler", {"schema": '"string"'})[1])
    data = known.serialize({"id": "a", "amount": 1.0, "note": ""})
    late.close()
    handling = {
        "deserialization_exception_handler": "continue",
        "schema_registry_timeout_ms": 300,
    }
    with TopologyTestDriver(copied(Serdes.avro(OLD)), config(registry, **handling)) as driver:
        serde.serialize({"id": "a", "amount": 1})
        registry.close()
        assert data is not None
        with pytest.raises(PipelineException, match=r"cannot be asked: .*tried for 300 ms") as caught:
            pipe(driver, "in", ("a", struct.pack(">bI", 0, 77) + data[5:]), value="bytes")
        assert isinstance(caught.value.__cause__, SchemaRegistryException)
        assert driver.dropped_records == 0


def test_mistakes_get_a_sentence(registry: RegistryServer) -> None:
    """Before the first record, where that is possible."""

    def compiled(serde: Serde, out: Serde | None = None, **more: Any) -> None:
        with TopologyTestDriver(copied(serde, out), config(registry, **more)):
            pass

    with pytest.raises(
        TopologyException, match=r"has no subject 'in-value'; give one, Serdes\.avro\(schema\)"
    ):
        compiled(Serdes.avro())
    with pytest.raises(TopologyException, match=r"'note' is not in the schema: a reader would lose it"):
        compiled(Serdes.avro(NEW), Serdes.avro(OLD))
    with pytest.raises(TopologyException, match=r"the field 'amount' is double and not int"):
        compiled(Serdes.avro(NEW), Serdes.avro(avro(("id", "string"), ("amount", "int"), ("note", "string"))))
    with pytest.raises(SchemaRegistryException, match=r"no subject 'out-value' with this schema"):
        compiled(Serdes.avro(OLD), auto_register_schemas=False)
    of(registry, Serdes.avro(OLD), "out").serialize({"id": "", "amount": 1})
    with pytest.raises(
        SchemaRegistryException, match=r"does not go together .*'id': string is not read as long"
    ):
        compiled(Serdes.avro(avro(("id", "long"))))
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(Serdes.string(), Serdes.avro(OLD))).map_values(
        lambda value: F.struct(F.lit(None).cast("string").alias("id"), value["amount"].alias("amount"))
    ).to("out", Produced.with_(Serdes.string(), Serdes.avro(OLD)))
    with TopologyTestDriver(builder.build(), config(registry)) as driver:
        data = of(registry, Serdes.avro(OLD), "in").serialize({"id": "a", "amount": 1})
        with pytest.raises(PipelineException, match=r"the field 'id' is null"):
            pipe(driver, "in", ("a", data), value="bytes")
