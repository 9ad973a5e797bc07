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
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import functions as F

from millstream import (
    Consumed,
    Materialized,
    PipelineException,
    Produced,
    Record,
    SchemaRegistryException,
    Serde,
    Serdes,
    SerializationException,
    Stores,
    StreamsBuilder,
    Topology,
    TopologyException,
    processor,
)
from millstream.registry.http import RegistryServer
from millstream.registry.registry_settings import RegistrySettings
from millstream.serdes.registered import bound
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
            {"name": "other", "type": ["null", "long", "int"]},
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
    "other": 2**40,
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
    "other": None,
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
    huge = good[:5] + bytes.fromhex("80ccfd930e")  # a text that claims to have 1.9 billion bytes
    chain = avro(("next", ["null", "Order"]), ("id", "string"), ("amount", "double"))
    number, changes = registry.state.register("chain", {"schema": chain})
    registry.change(changes)
    deep = struct.pack(">bI", 0, number) + b"\x02" * 100_000
    bad = [b"{}", struct.pack(">bI", 0, 99) + good[5:], good[:-1], good + b"x", odd, huge, deep]
    said = [
        "a 0 and the id",
        "it does not know 99",
        "Avro that its schema",
        "ends where",
        "Avro that its schema",
        "Avro that its schema",
        "Avro nested less deeply",
    ]
    for data, reason in zip(bad, [*said[:-1], "Avro that its schema"], strict=True):
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
        with pytest.raises(PipelineException, match=r"cannot be queried: .*tried for 300 ms") as caught:
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
    with pytest.raises(SchemaRegistryException, match=r"does not have this schema in subject 'out-value'"):
        compiled(Serdes.avro(OLD), auto_register_schemas=False)
    of(registry, Serdes.avro(OLD), "out").serialize({"id": "", "amount": 1})
    with pytest.raises(
        SchemaRegistryException, match=r"incompatible with earlier ones .*'id': string cannot be read as long"
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


# --- JSON Schema and Protobuf -------------------------------------------------------------------------------


def test_json_schema_in_spark_is_json_schema_in_python(registry: RegistryServer) -> None:
    """The same bytes; a schema that follows from a type; and one that the registry has already."""
    schema = {
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "amount": {"type": ["number", "null"]},
            "tags": {"type": "array", "items": {"$ref": "#/definitions/tag"}},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "at": {"type": "string", "format": "date-time"},
        },
        "definitions": {"tag": {"type": "string"}},
    }
    outside = of(registry, Serdes.json_schema(schema), "in")
    value = {
        "id": "a",
        "amount": 1.5,
        "tags": ["x"],
        "counts": {"n": 2},
        "at": datetime(2024, 2, 29, tzinfo=UTC),
    }
    data = [outside.serialize(value), None]
    assert data[0] is not None
    assert data[0].startswith(b'\x00\x00\x00\x00\x01{"id":"a","amount":1.5')
    assert through(registry, Serdes.json_schema(), data, Serdes.json_schema(schema)) == data
    assert outside.deserialize(data[0]) == value
    derived = through(registry, Serdes.json_schema(schema), data, Serdes.json_schema(title="Made"))
    assert of(registry, Serdes.json_schema(), "out").deserialize(derived[0]) == value
    with pytest.raises(SerializationException, match=r"a 0 and the id"):
        outside.deserialize(b"{}")
    with (
        TopologyTestDriver(copied(Serdes.json_schema(schema)), config(registry)) as driver,
        pytest.raises(PipelineException, match=r"in-0 offset 0 value: serde '\w+' cannot read these 2 bytes"),
    ):
        pipe(driver, "in", ("a", b"{}"), value="bytes")


def protobuf_class(*names: str) -> Any:
    """A message of every kind of field, as protoc would generate it; the last name is its own."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{'_'.join(names)}.proto", package="test", syntax="proto3"
    )
    for name in names:
        message = file.message_type.add(name=name)
        inner = message.nested_type.add(name="Inner")
        inner.field.add(name="x", number=1, type=5, label=1)
        entry = message.nested_type.add(name="CountsEntry")
        entry.field.add(name="key", number=1, type=9, label=1)
        entry.field.add(name="value", number=2, type=3, label=1)
        entry.options.map_entry = True
        enum = message.enum_type.add(name="Suit")
        enum.value.add(name="HEARTS", number=0)
        enum.value.add(name="SPADES", number=7)
        plain = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 18]
        for number, kind in enumerate(plain, 1):
            message.field.add(name=f"f{kind}", number=number, type=kind, label=1)
        message.field.add(name="suit", number=20, type=14, label=1, type_name=f".test.{name}.Suit")
        message.field.add(name="inner", number=21, type=11, label=1, type_name=f".test.{name}.Inner")
        message.field.add(name="numbers", number=22, type=17, label=3)
        message.field.add(name="texts", number=2000, type=9, label=3)
        message.field.add(name="more", number=23, type=11, label=3, type_name=f".test.{name}.Inner")
        message.field.add(name="counts", number=24, type=11, label=3, type_name=f".test.{name}.CountsEntry")
        message.oneof_decl.add(name="_maybe")
        message.field.add(name="maybe", number=25, type=5, label=1, proto3_optional=True, oneof_index=0)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"test.{names[-1]}"))


def test_protobuf_in_spark_is_protobuf_in_python(registry: RegistryServer) -> None:
    """Every kind of field, present or not; a message that is not the file's first; and fields of a newer
    one."""
    for kind, topic in ((protobuf_class("Order"), "in"), (protobuf_class("Other", "Order"), "second")):
        outside = of(registry, Serdes.protobuf(kind), topic)
        full = {
            **{f"f{number}": value for number, value in {1: 0.1, 2: 1.5, 3: -(2**63), 4: 2**40}.items()},
            **{f"f{number}": 2**31 - 1 for number in (5, 6, 7, 13, 15, 16)},
            **{f"f{number}": -(2**31) for number in (17, 18)},
            "f8": True,
            "f9": "ü",
            "f12": b"\x00\xff",
            "suit": "SPADES",
            "inner": {"x": -1},
            "numbers": [1, -1, 300],
            "texts": ["a", ""],
            "more": [{"x": 1}, {"x": 0}],
            "counts": {"a": 1, "b": 0},
            "maybe": 0,
        }
        empty = outside.deserialize(outside.serialize({}))
        data = [
            outside.serialize(value) for value in (full, {}, {"f9": "x", "inner": {}}, kind(f9="y"), None)
        ]
        assert outside.deserialize(data[0]) == full
        assert (empty["f9"], empty["inner"], empty["maybe"], empty["suit"]) == ("", None, None, "HEARTS")
        back = [outside.deserialize(each) for each in through(registry, Serdes.protobuf(kind), data)]
        assert back == [outside.deserialize(each) for each in data]
    first = of(registry, Serdes.protobuf(protobuf_class("Order")), "in").serialize({"f9": "x"})
    with pytest.raises(SerializationException, match="another of the file's"):
        outside.deserialize(first)
    with TopologyTestDriver(
        copied(Serdes.protobuf(protobuf_class("Other", "Order"))),
        config(registry, deserialization_exception_handler="continue"),
    ) as driver:
        pipe(driver, "in", ("a", first), ("b", b"\0\0\0\0\1"), ("c", data[0]), value="bytes")
        assert [key for key, _ in read(driver, "out", value="bytes")] == ["c"]


def test_a_serde_of_two_python_functions_asks_the_handler_about_what_it_cannot_read() -> None:
    """Spark's workers run them; what they raise is about one record."""
    serde = Serdes.custom(
        "number",
        serialize=lambda value: str(value).encode(),
        deserialize=lambda data: int(data),
        type="BIGINT",
    )
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(Serdes.string(), serde)).map_values(lambda value: value * 2).to(
        "out", Produced.with_(Serdes.string(), serde)
    )
    with TopologyTestDriver(builder.build(), {"deserialization.exception.handler": "continue"}) as driver:
        pipe(driver, "in", ("a", b"21"), ("b", b"many"), ("c", None), value="bytes")
        assert read(driver, "out", value="bytes") == [("a", b"42"), ("c", None)]
        assert driver.dropped_records == 1


def test_void_keys_are_nulls() -> None:
    """In Spark a column of nothing; bytes where there have to be none are for the handler."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(Serdes.void(), Serdes.string())).to("out")
    with TopologyTestDriver(builder.build(), {"deserialization.exception.handler": "continue"}) as driver:
        pipe(driver, "in", (None, "a"), (b"", "b"), key="bytes")
        assert read(driver, "out", key="void") == [(None, "a")]


def test_a_python_fold_keeps_avro_and_queries_read_it(registry: RegistryServer) -> None:
    """Its function gets dicts and gives dicts; keys are Avro, too; the changelog's subject is Kafka
    Streams'."""
    key = Serdes.avro(avro(("user", "string"), name="Key"))
    total = Serdes.avro(avro(("sum", "long"), name="Total"))

    def add(user: Any, order: Any, so_far: Any) -> Any:
        return {"sum": so_far["sum"] + order["amount"]}

    builder = StreamsBuilder()
    orders = builder.stream("in", Consumed.with_(key, Serdes.avro(OLD)))
    orders.group_by_key().aggregate(
        lambda: {"sum": 0}, add, Materialized.as_("totals").with_value_serde(total)
    )
    orders.group_by_key().count(Materialized.as_("counts"))
    with TopologyTestDriver(builder.build(), config(registry)) as driver:
        source = driver.create_input_topic("in", key, Serdes.avro(OLD))
        user = {"user": "u"}
        source.pipe_key_value_list([(user, {"id": "a", "amount": 1}), (user, {"id": "b", "amount": 2})])
        assert driver.get_key_value_store("totals").get(user) == {"sum": 3}
        assert driver.get_key_value_store("counts").get(user) == 2
    assert {"test-totals-changelog-key", "test-totals-changelog-value"} <= {*registry.state.subjects()}


def test_a_processor_keeps_and_forwards_avro(registry: RegistryServer) -> None:
    """It gets dicts and gives dicts; its store's changelog and its output have subjects of their own."""
    order, total = Serdes.avro(OLD), Serdes.avro(avro(("sum", "long"), name="Total"))

    @processor(store="totals")
    def added(record: Record, totals: Any) -> Iterator[Record]:
        so_far = totals.get(record.key) or {"sum": 0}
        totals.put(record.key, {"sum": so_far["sum"] + record.value["amount"]})
        yield record.with_value(totals.get(record.key))

    builder = StreamsBuilder()
    store = Stores.persistent_key_value_store("totals")
    builder.add_state_store(Stores.key_value_store_builder(store, Serdes.string(), total))
    stream = builder.stream("in", Consumed.with_(Serdes.string(), order))
    stream.process(added, "totals", value_serde=total).to("out", Produced.with_(Serdes.string(), total))
    with TopologyTestDriver(builder.build(), config(registry)) as driver:
        source = driver.create_input_topic("in", Serdes.string(), order)
        source.pipe_key_value_list([("u", {"id": "a", "amount": 1}), ("u", {"id": "b", "amount": 2})])
        assert driver.get_key_value_store("totals").get("u") == {"sum": 3}
        out = driver.create_output_topic("out", Serdes.string(), total)
        assert out.read_key_values_to_list() == [("u", {"sum": 1}), ("u", {"sum": 3})]
    assert {"test-totals-changelog-value", "out-value"} <= {*registry.state.subjects()}
