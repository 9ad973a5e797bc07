"""The kernel's half of the formats and Python's: they read the same of every record, whatever is in it."""

from __future__ import annotations

import io
import json
import math
import random
import struct
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from java_programs import KernelJava
from tiers import examples

from millstream import Serde, Serdes, SerializationException
from millstream.registry.http import RegistryServer
from millstream.registry.registry_settings import RegistrySettings
from millstream.serdes import protobuf_types
from millstream.serdes.formats import ListSerde
from millstream.serdes.registered import AvroSerde, ProtobufSerde, bound, header_of

pytestmark = pytest.mark.disk

MAIN = "io.millstream.kernel.serdes.FormatsMain"
HEAP = "96m"
"""What claims more than it has room for must not fit."""


def read_by_java(kernel_java: KernelJava, *of: tuple[Serde, list[bytes]]) -> list[list[str]]:
    """What the kernel reads of each serde's records."""
    lines: list[str] = []
    for serde, records in of:
        lines += [json.dumps(described(serde)), *(each.hex() for each in records)]
    answers = iter(kernel_java(MAIN, "".join(f"{line}\n" for line in lines), heap=HEAP).splitlines())
    return [[next(answers) for _ in records] for _, records in of]


def described(serde: Serde) -> dict[str, Any]:
    """As spark/compile/registry_serdes.py and spark/compile/serde_columns.py describe it."""
    common = {"called": serde.name, "format": serde.name, "does": "read", "type": type_of(serde)}
    if isinstance(serde, ListSerde):
        return {**common, "size": serde.size}
    if isinstance(serde, AvroSerde):
        return {**common, "schemas": [serde.schema], "registry": serde.registry.settings.for_kernel()}
    assert isinstance(serde, ProtobufSerde)
    fields, indexes = (of(serde.descriptor) for of in (protobuf_types.fields_of, protobuf_types.indexes_of))
    return {**common, "message": fields, "indexes": indexes}


def type_of(serde: Serde) -> Any:
    if isinstance(serde, ListSerde):
        return {"type": "array", "elementType": "binary", "containsNull": True}
    assert isinstance(serde, AvroSerde | ProtobufSerde)
    return serde.type_json


def read_by_python(serde: Serde, data: bytes) -> str:
    try:
        value = serde.deserialize(data)
    except SerializationException as error:
        return str(error)
    if isinstance(serde, ListSerde):
        value = [serde.inner.serialize(each) for each in value]  # Spark reads the elements themselves
    return shown(value, type_of(serde))


def shown(value: Any, kind: Any) -> str:
    """As FormatsMain.java shows it."""
    if value is None:
        return "null"
    if isinstance(kind, dict):
        if kind["type"] == "array":
            return f"[{''.join(shown(each, kind['elementType']) + ' ' for each in value)}]"
        if kind["type"] == "map":
            of = (kind["keyType"], kind["valueType"])
            entries = sorted((shown(key, of[0]), shown(each, of[1])) for key, each in value.items())
            return "{" + ", ".join(f"{key}={each}" for key, each in entries) + "}"
        fields = [(each["name"], each["type"]) for each in kind["fields"]]
        if fields[0][0] == "member0":  # a union of several types
            mine = next(name for name, type_ in fields if isinstance(value, MEMBERS[str(type_)[:8]]))
            value = {name: value if name == mine else None for name, _ in fields}
        return "{" + "".join(f"{shown(value[name], type_)} " for name, type_ in fields) + "}"
    if kind.startswith("decimal"):
        scale = int(kind[:-1].partition(",")[2])
        return f"{int(value.scaleb(scale, LARGE))}/{scale}"
    return SHOWN.get(kind, str)(value)


LARGE = Context(prec=60)
MEMBERS: dict[str, Any] = {"string": str, "integer": int, "boolean": bool, "{'type':": dict}


def _number(value: Any) -> str:
    if isinstance(value, time):
        micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        return str(micros)
    return str(value)


def _double(value: float) -> str:
    return "d7ff8000000000000" if math.isnan(value) else f"d{struct.pack('>d', value).hex()}"


SHOWN: dict[str, Callable[[Any], str]] = {
    "string": lambda value: f"'{str(value).encode().hex()}",
    "binary": lambda value: f"x{value.hex()}",
    "float": _double,
    "double": _double,
    "boolean": lambda value: "true" if value else "false",
    "date": lambda value: str((value - date(1970, 1, 1)).days),
    "timestamp": lambda value: str((value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)),
    "timestamp_ntz": lambda value: str((value - datetime(1970, 1, 1)) // timedelta(microseconds=1)),
    "long": _number,
    "integer": lambda value: str(int(_number(value)) // 1000) if isinstance(value, time) else str(value),
}


def mangled(records: list[bytes], number: int, chance: random.Random) -> list[bytes]:
    """These records, and others that are made from them: cut, with bytes flipped, put in or taken out."""
    odd = [
        b"\xff",
        b"\x7f",
        b"\x80",
        b"\x00",
        b"\x01",
        b"\xff\xff\xff\xff\x0f",
        b"\x7f\xff\xff\xff",
        b"\x80" * 11,
    ]
    made = list(records)
    while len(made) < number:
        data = bytearray(chance.choice(made[: len(records)] if chance.random() < 0.7 else made))
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            at = chance.randrange(len(data) + 1)
            match chance.randrange(7):
                case 0:
                    del data[at:]
                case 1:
                    data[at : at + 1] = chance.randbytes(1)
                case 2:
                    data[at:at] = chance.choice(odd)
                case 3:
                    del data[at : at + chance.randrange(1, 4)]
                case 4:
                    data += data[at : at + 8]
                case 5:
                    data[at : at + 4] = chance.choice(odd)
                case _:
                    if at < len(data):
                        data[at] ^= 1 << chance.randrange(8)
        made.append(bytes(data[:4096]))
    return made


def differences(of: list[tuple[Serde, list[bytes]]], answers: list[list[str]]) -> list[str]:
    """Where Python reads something else than the kernel."""
    wrong = []
    for (serde, records), answered in zip(of, answers, strict=True):
        for data, java in zip(records, answered, strict=True):
            python = read_by_python(serde, data)
            refused = "cannot read" in python
            if java.startswith("refused ") != refused or (not refused and java != python):
                wrong.append(f"{serde!r} {data.hex()}: Java {java}, Python {python}")
    return wrong


def refused(answers: list[str]) -> int:
    return sum(each.startswith("refused ") for each in answers)


# --- lists --------------------------------------------------------------------------------------------------

BOMB = bytes.fromhex("00 00000001 00000000 7fffffff")


def test_a_list_that_claims_to_be_long_takes_no_memory(kernel_java: KernelJava) -> None:
    """One record must not end the process; nor does any other that is made from a good one."""
    chance = random.Random(28)
    of: list[tuple[Serde, list[bytes]]] = []
    for serde, values in (
        (Serdes.list(Serdes.long()), [[], [1, None, -1], [None] * 5, list(range(20))]),
        (Serdes.list(Serdes.double()), [[], [1.5, None], [math.nan, -0.0, None]]),
        (Serdes.list(Serdes.bytes()), [[], [b"", None, b"abc"], [b"x" * 50]]),
    ):
        written = [serde.serialize(each) or b"" for each in values]
        of.append((serde, [BOMB, b"\1" + BOMB[1:], *mangled(written, examples(8000), chance)]))
    assert differences(of, read_by_java(kernel_java, *of)) == []


# --- Avro ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    server = RegistryServer()
    yield server
    server.close()


def of_registry(registry: RegistryServer, serde: Serde) -> Any:
    return bound(serde, RegistrySettings.of({"schema.registry.url": registry.url}), "t")


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def record(name: str, *fields: tuple[Any, ...]) -> dict[str, Any]:
    made = [{"name": n, "type": t, **({"default": d[0]} if d else {})} for n, t, *d in fields]
    return {"type": "record", "name": name, "fields": made}


INNER = record("Inner", ("x", "int"), ("y", ["null", "string"], None))
SUIT = {"type": "enum", "name": "Suit", "symbols": ["HEARTS", "SPADES", "CLUBS"]}
TIMES = (
    ("day", logical("int", "date")),
    ("millis", logical("long", "timestamp-millis")),
    ("micros", logical("long", "timestamp-micros")),
    ("local", logical("long", "local-timestamp-millis")),
    ("localus", logical("long", "local-timestamp-micros")),
    ("clock", logical("int", "time-millis")),
    ("clockus", logical("long", "time-micros")),
)
PRICE = logical("bytes", "decimal", precision=6, scale=2)
HASH = {"type": "fixed", "name": "Hash", "size": 2}
EVERYTHING = record(
    "Everything",
    ("flag", "boolean"),
    ("small", "int"),
    ("large", "long"),
    ("single", "float"),
    ("double", "double"),
    ("data", "bytes"),
    ("text", "string"),
    ("late", ["long", "null"]),
    ("suit", SUIT),
    ("hash", HASH),
    ("texts", {"type": "array", "items": ["null", "string"]}),
    ("counts", {"type": "map", "values": "long"}),
    ("inner", INNER),
    ("more", {"type": "array", "items": "Inner"}),
    *TIMES,
    ("price", PRICE),
    ("cost", {**logical("fixed", "decimal", precision=9, scale=3), "name": "Cost", "size": 12}),
    ("one", logical("string", "uuid")),
    ("number", ["null", "int", "long"]),
    ("either", ["null", "string", "Inner", "boolean"]),
    ("nothing", {"type": "array", "items": "null"}),
)
VALUE = {
    "flag": True,
    "small": -(2**31),
    "large": 2**63 - 1,
    "single": 1.5,
    "double": 0.1,
    "data": b"\x00\xff",
    "text": "ü 🎉",
    "late": 7,
    "suit": "SPADES",
    "hash": b"ab",
    "texts": ["a", None, ""],
    "counts": {"a": 1, "b": -1},
    "inner": {"x": 1, "y": "z"},
    "more": [{"x": 2, "y": None}, {"x": 3, "y": "q"}],
    "day": date(9999, 12, 31),
    "millis": datetime(1, 1, 1, tzinfo=UTC),
    "micros": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "local": datetime(2024, 2, 29, 12, 0),
    "localus": datetime(1969, 12, 31, 23, 59, 59, 999999),
    "clock": time(23, 59, 59, 999000),
    "clockus": time(23, 59, 59, 999999),
    "price": Decimal("-9999.99"),
    "cost": Decimal("1.234"),
    "one": uuid.UUID(int=7),
    "number": 2**40,
    "either": {"x": 4, "y": None},
    "nothing": [None] * 3,
}
OLD = record(
    "Old",
    ("same", "int"),
    ("gone", {"type": "array", "items": {"type": "map", "values": ["null", INNER]}}),
    ("gone2", {"type": "map", "values": {"type": "fixed", "name": "Four", "size": 4}}),
    ("wider", "int"),
    ("single", "long"),
    ("double", "float"),
    ("text", "bytes"),
    ("data", "string"),
    ("maybe", "string"),
    ("never", ["null", "int"]),
    ("suit", SUIT),
    ("renamed", "string"),
    ("day", "int"),
)
NEW_FIELDS = (
    ("since", logical("int", "date"), 19782),
    ("fee", PRICE, "\u0001\u0005"),
    ("at", logical("long", "timestamp-millis"), 0),
    ("clock", logical("int", "time-millis"), 1),
    ("raw", "bytes", "\u00ff\u0000"),
    ("pair", {"type": "fixed", "name": "Pair", "size": 2}, "\u0001\u00fe"),
    ("part", record("Part", ("when", logical("int", "date"), 1), ("n", "double", 1)), {"n": 2}),
    ("days", {"type": "array", "items": logical("int", "date")}, [1, 2]),
    ("prices", {"type": "map", "values": PRICE}, {"a": "\u0001"}),
    ("ratio", "float", 0.1),
    ("some", [logical("int", "date"), "null"], 5),
    ("color", {"type": "enum", "name": "Color", "symbols": ["RED"]}, "RED"),
    ("not", ["null", "string"], None),
    ("id", logical("string", "uuid"), "00000000-0000-0000-0000-00000000000A"),
)
NEW = record(
    "New",
    ("wider", "long"),
    ("same", "int"),
    ("single", "float"),
    ("double", "double"),
    ("text", "string"),
    ("data", "bytes"),
    ("maybe", ["null", "int", "string"]),
    ("never", "int"),
    ("suit", {**SUIT, "symbols": ["HEARTS", "OTHER"], "default": "OTHER"}),
    ("named", "string"),
    ("day", logical("int", "date")),
    *NEW_FIELDS,
)
NEW["aliases"] = ["Old"]
next(each for each in NEW["fields"] if each["name"] == "named")["aliases"] = ["renamed"]
OLD_VALUE = {
    "same": 1,
    "gone": [{"a": {"x": 1, "y": None}, "b": None}],
    "gone2": {"k": b"1234"},
    "wider": -1,
    "single": 2**62 + 2**38 + 1,
    "double": 0.1,
    "text": "ü".encode(),
    "data": "ü",
    "maybe": "m",
    "never": 3,
    "suit": "CLUBS",
    "renamed": "r",
    "day": 19782,
}


def written(registry: RegistryServer, schema: Any, *values: Any) -> list[bytes]:
    """Records of a schema, which is registered; and, before them, what stands before each."""
    number, changes = registry.state.register(schema["name"], {"schema": json.dumps(schema)})
    registry.change(changes)
    made = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
        made.append(out.getvalue())
    return [header_of(number), *made]


def test_avro_is_read_alike(kernel_java: KernelJava, registry: RegistryServer) -> None:
    """Good records, and such that are mangled; with a schema of their own, and with a newer one."""
    chance = random.Random(78)
    empty = {**VALUE, "late": None, "texts": [], "more": [], "number": None, "either": "e", "nothing": []}
    head, *records = written(registry, EVERYTHING, VALUE, empty, {**VALUE, "either": True, "number": 5})
    claims = [b"\xfe\xff\xff\xff\x1f", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xfe\xff\xff\xff\x0f"]
    more = [each[:at] + claim + each[at:] for each in records for at in range(len(each)) for claim in claims]
    bodies = [*more, *mangled(records, examples(12_000), chance)]
    own = of_registry(registry, Serdes.avro(EVERYTHING))
    old_head, *old = written(
        registry, OLD, OLD_VALUE, {**OLD_VALUE, "never": None}, {**OLD_VALUE, "suit": "HEARTS"}
    )
    newer = of_registry(registry, Serdes.avro(NEW))
    old_bodies = mangled(old, examples(8_000), chance)
    heads = [b"", head[:3], b"\1" + head[1:], b"\0\xff" + head[2:], b"\0\0\0\1\7" + records[0]]
    of = [
        (own, [*(head + each for each in bodies), *heads]),
        (newer, [old_head + each for each in old_bodies]),
    ]
    answers = read_by_java(kernel_java, *of)
    assert differences(of, answers) == []
    assert all(100 < refused(each) < len(each) - 100 for each in answers)


def test_a_new_avro_field_has_the_value_of_its_default(registry: RegistryServer) -> None:
    """The value is as if it had been written, and each record has its own list or map."""
    head, old, *_ = written(registry, OLD, OLD_VALUE)
    serde = of_registry(registry, Serdes.avro(NEW))
    read = serde.deserialize(head + old)
    fresh = {name: read[name] for name, *_ in NEW_FIELDS}
    assert fresh == {
        "since": date(2024, 2, 29),
        "fee": Decimal("2.61"),
        "at": datetime(1970, 1, 1, tzinfo=UTC),
        "clock": time(0, 0, 0, 1000),
        "raw": b"\xff\x00",
        "pair": b"\x01\xfe",
        "part": {"when": date(1970, 1, 2), "n": 2.0},
        "days": [date(1970, 1, 2), date(1970, 1, 3)],
        "prices": {"a": Decimal("0.01")},
        "ratio": struct.unpack("f", struct.pack("f", 0.1))[0],
        "some": date(1970, 1, 6),
        "color": "RED",
        "not": None,
        "id": uuid.UUID(int=10),
    }
    only = of_registry(registry, Serdes.avro(record("New", *NEW_FIELDS), subject="fresh"))
    assert only.deserialize(only.serialize(fresh)) == fresh, "what was read can be written"
    fresh["days"].append(None)
    assert serde.deserialize(head + old)["days"] == [date(1970, 1, 2), date(1970, 1, 3)]


def test_a_refused_record_is_refused_at_once_and_not_quoted(
    kernel_java: KernelJava, registry: RegistryServer
) -> None:
    """A decimal of 100 KB in hundreds of records, texts of which only the class of the error is named."""
    head, *_ = written(registry, record("Price", ("price", PRICE)))
    serde = of_registry(registry, Serdes.avro(record("Price", ("price", PRICE))))
    large = head + _long_of(100_000) + b"\x55" * 100_000
    text = head + _long_of(300_000) + b"secret"
    of = [(serde, [large] * 20 + [text])]
    (answers,) = read_by_java(kernel_java, *of)
    assert differences(of, [answers]) == []
    assert set(answers[:-1]) == {"refused Avro whose decimals have the digits that its schema says"}
    assert answers[-1] == "refused Avro that its schema can read (EOFException)"


def _long_of(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    return out.getvalue()


# --- Protobuf -----------------------------------------------------------------------------------------------

KINDS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 18]


def protobuf_class(syntax: str) -> Any:
    """A message of every kind of field, single, repeated and in a oneof, with maps, enums and messages."""
    file = descriptor_pb2.FileDescriptorProto(name=f"all_{syntax}.proto", package="test", syntax=syntax)
    message = file.message_type.add(name="All")
    enum = file.enum_type.add(name="Suit")
    for name, number in (("HEARTS", 0), ("SPADES", 7)):
        enum.value.add(name=name, number=number)
    inner = message.nested_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=5, label=1)
    inner.field.add(name="tags", number=2, type=9, label=3)
    for name, of, kind in (("NumbersEntry", 9, 3), ("InnersEntry", 5, 11), ("SuitsEntry", 9, 14)):
        entry = message.nested_type.add(name=name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=of, label=1)
        types = {11: ".test.All.Inner", 14: ".test.Suit"}
        entry.field.add(name="value", number=2, type=kind, label=1, type_name=types.get(kind))
        field = name.removesuffix("Entry").lower()
        message.field.add(name=field, number=100 + kind, type=11, label=3, type_name=f".test.All.{name}")
    message.oneof_decl.add(name="choice")
    for kind in KINDS:
        message.field.add(name=f"f{kind}", number=kind, type=kind, label=1)
        message.field.add(name=f"r{kind}", number=20 + kind, type=kind, label=3)
        message.field.add(name=f"o{kind}", number=40 + kind, type=kind, label=1, oneof_index=0)
    for number, label in ((60, 1), (61, 3)):
        message.field.add(name=f"suit{label}", number=number, type=14, label=label, type_name=".test.Suit")
        message.field.add(
            name=f"inner{label}", number=number + 2, type=11, label=label, type_name=".test.All.Inner"
        )
    message.field.add(name="chosen", number=70, type=11, label=1, type_name=".test.All.Inner", oneof_index=0)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.All"))


def test_protobuf_is_read_alike(kernel_java: KernelJava, registry: RegistryServer) -> None:
    """Protobuf's own library reads the same: merged messages, oneofs, closed enums, unknown fields."""
    chance = random.Random(78)
    numbers = {1: 0.1, 2: 1.5, 8: True, 9: "ü", 12: b"\x00\xff"}
    of = []
    for syntax in ("proto3", "proto2"):
        serde = of_registry(registry, Serdes.protobuf(protobuf_class(syntax), subject=syntax))
        full = {
            **{f"f{kind}": numbers.get(kind, 2**31 - 1) for kind in KINDS},
            **{f"r{kind}": [numbers.get(kind, 1)] * 2 for kind in KINDS},
            "f4": -1,
            "f6": -(2**63),
            "o9": "chosen",
            "suit1": "SPADES",
            "suit3": ["SPADES", "HEARTS"],
            "inner1": {"x": -1, "tags": ["a"]},
            "inner3": [{}, {"x": 1}],
            "numbers": {"a": 1, "b": 0},
            "inners": {1: {"x": 1}, 2: {}},
            "suits": {"a": "SPADES"},
        }
        one = serde.serialize(full) or b""
        assert serde.serialize(serde.deserialize(one)) == one, "numbers without a sign, too"
        parts = [serde.serialize({name: value}) or b"" for name, value in full.items()]
        parts.append(serde.serialize({"chosen": {"x": 5}}) or b"")
        head, records = one[:6], [one, *parts]
        bodies = [each[6:] for each in records]
        twice = [chance.choice(bodies) + chance.choice(bodies) + chance.choice(bodies) for _ in range(200)]
        odd = [
            bytes.fromhex(each)
            for each in (
                "e00305 e00307",
                "e0030d",
                "ea03020507",
                "f2070408051801",
                "9a06040801 1007",
                "0b0c",
                "0b0b0c0c",
                "0b8c00",
                "00",
                "f8ffffff0f01",
                "f8ffffffff0f01",
                "080a",
                "8001",
                "4a02c328",
                "7a020000",
            )
        ]
        of.append(
            (serde, [head + each for each in mangled([*bodies, *twice, *odd], examples(10_000), chance)])
        )
        of[-1][1].extend([b"", head[:5], head[:5] + b"\2\0", head[:5] + b"\2\2", head[:5] + b"\x80\0"])
    answers = read_by_java(kernel_java, *of)
    assert differences(of, answers) == []
    assert all(100 < refused(each) < len(each) - 100 for each in answers)
