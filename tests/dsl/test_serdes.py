"""Serdes write Kafka's bytes, read them back, and say clearly what they cannot do."""

import contextlib
import json
import math
import pickle
import struct
import uuid
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import examples

from millstream.dsl.serdes import Serde, Serdes
from millstream.errors import ConfigException, SerializationException, TopologyException

GOLDEN = json.loads((Path(__file__).parent.parent / "snapshots" / "serdes.json").read_text())
PARSE = {
    "boolean": lambda text: text == "true",
    "double": float,
    "float": lambda text: struct.unpack(">f", struct.pack(">f", float(text)))[0],
    "integer": int,
    "long": int,
    "short": int,
    "string": str,
    "uuid": uuid.UUID,
}
JSON = Serdes.json("user STRING, amount DOUBLE")
SERDES = [Serdes.bytes(), JSON, *(Serdes.of(name) for name in GOLDEN)]


# The machine decides how fast an example is; a test must not.
quick = settings(deadline=None, max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])


def upper(value):
    return value.upper().encode()


def lower(data):
    return data.decode().lower()


def custom(serialize=upper, deserialize=lower):
    return Serdes.custom(
        "shout", serialize=serialize, deserialize=deserialize, to_column=lower, from_column=upper
    )


@pytest.mark.parametrize("serde", [*SERDES, custom()], ids=lambda serde: serde.name)
@pytest.mark.parametrize("offset", [0, 8])
@quick
@given(data=st.binary(max_size=40))
def test_the_quick_decoder_reads_what_deserialize_reads(serde, offset, data):
    """From an offset on, and raises where that raises."""
    decode = serde.decoder(offset)
    try:
        expected = serde.deserialize(data)
    except Exception:
        with pytest.raises(Exception):  # noqa: B017, PT011  # any at all
            decode(b"x" * offset + data)
        return
    found = decode(b"x" * offset + data)
    assert type(found) is type(expected)
    assert found == expected or (math.isnan(found) and math.isnan(expected))


@pytest.mark.parametrize(
    ("name", "text", "data"), [(name, *row) for name, rows in GOLDEN.items() for row in rows]
)
def test_bytes_are_those_of_kafkas_own_serializers(name, text, data):
    """What Java wrote is what is written here, and reads back as the same value."""
    serde, value = Serdes.of(name), PARSE[name](text)
    assert serde.serialize(value) == bytes.fromhex(data)
    back = serde.deserialize(bytes.fromhex(data))
    assert type(back) is type(value)
    assert back == value or (math.isnan(back) and math.isnan(value))


@pytest.mark.parametrize("serde", [*SERDES, custom()], ids=repr)
def test_none_is_none_both_ways(serde):
    """A null key stays null, a tombstone a tombstone."""
    assert serde.serialize(None) is None
    assert serde.deserialize(None) is None


@quick
@given(st.integers(-(2**63), 2**63 - 1))
def test_longs_come_back(value):
    """Every long comes back."""
    assert Serdes.long().deserialize(Serdes.long().serialize(value)) == value


@quick
@given(st.floats())
def test_doubles_come_back(value):
    """Every double comes back, NaN as NaN."""
    back = Serdes.double().deserialize(Serdes.double().serialize(value))
    assert back == value or (math.isnan(back) and math.isnan(value))


@quick
@given(st.floats(width=32))
def test_floats_come_back(value):
    """Every float that 32 bits hold comes back."""
    back = Serdes.float().deserialize(Serdes.float().serialize(value))
    assert back == value or (math.isnan(back) and math.isnan(value))


@quick
@given(st.text())
def test_strings_come_back(value):
    """Every text comes back."""
    assert Serdes.string().deserialize(Serdes.string().serialize(value)) == value


@quick
@given(st.uuids())
def test_uuids_come_back(value):
    """Every UUID comes back, and its text is written the same."""
    data = Serdes.uuid().serialize(value)
    assert len(data) == 36
    assert Serdes.uuid().deserialize(data) == value
    assert Serdes.uuid().serialize(str(value).upper()) == data


TEXT = st.text('aß"\\\n 日')
PLAIN = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = PLAIN | st.lists(PLAIN | st.none(), max_size=3) | st.dictionaries(TEXT, PLAIN, max_size=3)


@quick
@given(st.dictionaries(TEXT, VALUES, max_size=3))
def test_json_comes_back(value):
    """Every object without null fields comes back."""
    assert JSON.deserialize(JSON.serialize(value)) == value


def test_json_is_written_as_spark_writes_it():
    """No spaces, text as it is, no null fields at any depth, nulls in lists kept."""
    value = {"user": "Jürgen", "amount": None, "tags": ["a", None], "at": {"x": 1.5, "y": None}}
    assert JSON.serialize(value) == '{"user":"Jürgen","tags":["a",null],"at":{"x":1.5}}'.encode()


AT = datetime(2026, 1, 2, 3, 4, 5, 678_999, timezone(timedelta(hours=1)))
SPARKS_TYPES = {
    "at": AT,
    "ntz": AT.replace(tzinfo=None),
    "day": date(2026, 1, 2),
    "price": Decimal("12.30"),
    "small": Decimal("1E-10"),
    "raw": b"\x01\xff",
    "list": [{"raw": bytearray(b""), "none": None, "text": "ß"}, None],
}


def test_json_has_a_form_for_what_spark_writes_of_its_types():
    """Times in milliseconds and UTC, binaries in base64, decimals as numbers, at every depth."""
    assert json.loads(JSON.serialize({"n": Decimal("1.50"), "raw": b"x"})) == {"n": 1.5, "raw": "eA=="}
    assert (
        JSON.serialize(SPARKS_TYPES)
        == (
            '{"at":"2026-01-02T02:04:05.678Z","ntz":"2026-01-02T03:04:05.678","day":"2026-01-02","price":12.30,'
            '"small":1E-10,"raw":"Af8=","list":[{"raw":"","text":"ß"},null]}'
        ).encode()
    )
    for wrong in (
        object(),
        Decimal("NaN"),
        {1, 2},
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
    ):
        with pytest.raises(SerializationException, match="a dict that JSON can express"):
            JSON.serialize({"day": date(2026, 1, 2), "wrong": wrong})


@quick
@given(st.binary())
def test_reading_gives_a_value_or_a_serialization_exception(data):
    """No bytes whatever make a serde fail in another way."""
    for serde in SERDES:
        with contextlib.suppress(SerializationException):
            serde.deserialize(data)


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (Serdes.bytes(), "text"),
        (Serdes.string(), b"bytes"),
        (Serdes.string(), 1),
        (Serdes.string(), "\ud800"),
        (Serdes.short(), 32768),
        (Serdes.short(), -32769),
        (Serdes.integer(), 2**31),
        (Serdes.long(), 2**63),
        (Serdes.long(), 1.0),
        (Serdes.long(), True),
        (Serdes.long(), "1"),
        (Serdes.float(), 1e39),
        (Serdes.double(), "1.5"),
        (Serdes.double(), True),
        (Serdes.boolean(), 1),
        (Serdes.uuid(), "not-a-uuid"),
        (Serdes.uuid(), 7),
        (JSON, ["a"]),
        (JSON, {"amount": float("nan")}),
        (JSON, {"amount": object}),
        (custom(), 7),
    ],
    ids=repr,
)
def test_a_value_that_does_not_fit_is_refused_with_its_type_and_the_serde(serde, value):
    """The message names the serde and the value's type, and says what to do."""
    with pytest.raises(SerializationException) as caught:
        serde.serialize(value)
    message = str(caught.value)
    assert f"'{serde.name}'" in message
    assert type(value).__name__ in message
    assert "another serde" in message


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (Serdes.short(), b"\0"),
        (Serdes.integer(), b"\0" * 8),
        (Serdes.long(), b"\0" * 4),
        (Serdes.float(), b""),
        (Serdes.double(), b"\0" * 4),
        (Serdes.boolean(), b"\2"),
        (Serdes.boolean(), b""),
        (Serdes.uuid(), b"123"),
        (JSON, b"{"),
        (JSON, b"[1]"),
        (JSON, b"\xff"),
        (custom(), b"\xff"),
    ],
    ids=repr,
)
def test_bytes_of_another_serde_are_refused_without_showing_them(serde, data):
    """The message names the serde and how many bytes there were, never which."""
    with pytest.raises(SerializationException, match=f"'{serde.name}' cannot read these {len(data)} bytes"):
        serde.deserialize(data)


def test_strings_that_are_not_utf8_read_as_java_reads_them():
    """Kafka's StringDeserializer replaces what it cannot read; so do we."""
    assert Serdes.string().deserialize(b"a\xffb") == "a\ufffdb"


@pytest.mark.parametrize("serde", [*SERDES, custom()], ids=repr)
def test_serdes_are_values(serde):
    """Equal to one made alike and to none else, hashable, picklable, frozen."""
    assert pickle.loads(pickle.dumps(serde)) == serde
    assert hash(pickle.loads(pickle.dumps(serde))) == hash(serde)
    assert [other for other in [*SERDES, custom()] if other == serde] == [serde]
    with pytest.raises(AttributeError):
        serde.name = "other"


def test_json_serdes_differ_by_schema():
    """Two schemas are two serdes; the schema can be read."""
    assert Serdes.json("a INT") == Serdes.json("a INT")
    assert Serdes.json("a INT") != Serdes.json("b INT")
    assert Serdes.json("a INT").schema == "a INT"
    assert repr(Serdes.json("a INT")) == "Serdes.json('a INT')"


@pytest.mark.parametrize("schema", ["", "  ", None, 7, dict], ids=repr)
def test_json_refuses_what_is_no_schema(schema):
    """Neither text nor a StructType."""
    with pytest.raises(TopologyException, match="DDL string"):
        Serdes.json(schema)


def test_a_custom_serde_goes_through_the_users_functions():
    """Both ways, and its Column functions can be read."""
    serde = custom()
    assert serde.serialize("hey") == b"HEY"
    assert serde.deserialize(b"HEY") == "hey"
    assert (serde.to_column, serde.from_column) == (lower, upper)


def test_a_custom_serializer_must_return_bytes():
    """Not text: what is stored would depend on who wrote it."""
    with pytest.raises(SerializationException, match="returned a str"):
        custom(serialize=str).serialize(7)


def test_custom_refuses_a_name_that_is_taken_and_what_is_no_function():
    """`long` means one thing only."""
    with pytest.raises(TopologyException, match="'long'"):
        Serdes.custom("long", serialize=upper, deserialize=lower, to_column=lower, from_column=upper)
    with pytest.raises(TopologyException, match="deserialize="):
        custom(deserialize="lower")


@pytest.mark.parametrize(
    ("name", "serde"),
    [
        ("string", Serdes.string()),
        ("LONG", Serdes.long()),
        ("org.apache.kafka.common.serialization.Serdes$LongSerde", Serdes.long()),
        ("org.apache.kafka.common.serialization.Serdes$ByteArraySerde", Serdes.bytes()),
        ("org.apache.kafka.common.serialization.Serdes$UUIDSerde", Serdes.uuid()),
        (JSON, JSON),
    ],
    ids=repr,
)
def test_of_finds_a_serde_by_our_name_and_by_kafkas(name, serde):
    """A config can name a serde, or be one."""
    assert Serdes.of(name) == serde


@pytest.mark.parametrize(("name", "word"), [("strng", "string"), ("json", "schema"), ("", "string")])
def test_of_says_which_serdes_there_are(name, word):
    """An unknown name is a config error that lists the known ones."""
    with pytest.raises(ConfigException, match=word):
        Serdes.of(name)


def test_all_serdes_are_serdes():
    """The base class is what options check for."""
    assert all(isinstance(serde, Serde) for serde in SERDES)
