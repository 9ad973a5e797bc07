"""Serdes write Kafka's bytes, read them back, and say clearly what they cannot do."""

import contextlib
import json
import math
import pickle
import re
import struct
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import examples

from millstream.errors import ConfigException, SerializationException, TopologyException
from millstream.serdes.formats import JsonSerde
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import Serdes

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
PRECISE = Serdes.json("amount DECIMAL(10,2)")
PLAIN_JSON = JsonSerde()
"""One without a schema."""
SERDES = [Serdes.bytes(), JSON, PRECISE, *(Serdes.of(name) for name in GOLDEN)]


# The machine decides how fast an example is; a test must not.
quick = settings(deadline=None, max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])


ODD_JSON = st.sampled_from(
    [
        text.encode(encoding)
        for text in (
            '{"user":"a","amount":1.5}',
            ' {"user":null} ',
            "{} 1",
            '{"amount":1}x',
            "[1]",
            "NaN",
            f'{{"amount":1e{20 * "9"}}}',
        )
        for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32-le")
    ]
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.text(alphabet=st.characters(codec=None)),
    st.binary(),
    st.uuids(),
    st.fixed_dictionaries({"user": st.text(), "amount": st.none() | st.floats(allow_nan=False)}),
)


def upper(value):
    return value.upper().encode()


def lower(data):
    return data.decode().lower()


def custom(serialize=upper, deserialize=lower):
    return Serdes.custom(
        "shout", serialize=serialize, deserialize=deserialize, to_column=lower, from_column=upper
    )


class Wide(Serde):
    """A user's class, with nothing but what it must have."""

    def _encode(self, value):
        return value.encode("utf-16-be")

    def _decode(self, data):
        return data.decode("utf-16-be")


WIDE = Wide("wide")
MANY = st.one_of(
    *(st.lists(st.binary(min_size=size, max_size=size), max_size=6) for size in (1, 2, 4, 8)),
    st.lists(st.binary(max_size=9) | ODD_JSON, max_size=6),
    st.lists(st.text().map(str.encode), max_size=6),
    st.lists(st.uuids().map(lambda each: str(each).encode()), max_size=6),
)
"""What belongs to one store: mostly all of the same format."""


@pytest.mark.parametrize("serde", [*SERDES, custom()], ids=lambda serde: serde.name)
@pytest.mark.parametrize("offset", [0, 8])
@quick
@given(data=st.binary(max_size=40) | ODD_JSON)
def test_the_quick_decoder_reads_what_deserialize_reads(serde, offset, data):
    """It can start at an offset, and raises for the same bytes."""
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


@pytest.mark.parametrize("serde", [*SERDES, custom(), WIDE], ids=lambda serde: serde.name)
@pytest.mark.parametrize("offset", [0, 3, 8])
@quick
@given(texts=MANY)
def test_many_are_read_at_once_as_one_by_one(serde, offset, texts):
    """Reading can start at an offset, and raises if one value cannot be read."""
    decode = serde.many_decoder(offset)
    try:
        expected = [serde.deserialize(text) for text in texts]
    except Exception:
        with pytest.raises(Exception):  # noqa: B017, PT011  # any at all
            decode([b"x" * offset + text for text in texts])
        return
    assert repr(decode([b"x" * offset + text for text in texts])) == repr(expected)


@pytest.mark.parametrize("name", ["short", "integer", "long", "float", "double"])
@pytest.mark.parametrize("offset", [0, 8])
def test_numbers_of_other_lengths_are_not_taken_for_others(name, offset):
    """The total number of bytes may be right. Empty bytes are no numbers."""
    serde = Serdes.of(name)
    one = serde.serialize(1)
    decode = serde.many_decoder(offset)
    assert decode([]) == []
    assert decode([bytes(offset) + one] * 3) == [1, 1, 1]
    for wrong in ([one + one, b""], [one + b"0", one[1:]], [b""]):
        with pytest.raises(ValueError, match="not all have"):
            decode([bytes(offset) + each for each in wrong])


@pytest.mark.parametrize("serde", [*SERDES, custom()], ids=lambda serde: serde.name)
@quick
@given(value=VALUES)
def test_the_quick_encoder_writes_what_serialize_writes(serde, value):
    """It raises for the same values."""
    encode = serde.encoder()
    try:
        expected = serde.serialize(value)
    except Exception as error:
        with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
            encode(value)
        return
    assert encode(value) == expected


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
    assert PLAIN_JSON.deserialize(PLAIN_JSON.serialize(value)) == value


def test_json_is_written_as_spark_writes_it():
    """No spaces, text as it is, no null fields at any depth, nulls in lists kept."""
    value = {"user": "Jürgen", "amount": None, "tags": ["a", None], "at": {"x": 1.5, "y": None}}
    assert PLAIN_JSON.serialize(value) == '{"user":"Jürgen","tags":["a",null],"at":{"x":1.5}}'.encode()


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
    assert json.loads(PLAIN_JSON.serialize({"n": Decimal("1.50"), "raw": b"x"})) == {"n": 1.5, "raw": "eA=="}
    assert (
        PLAIN_JSON.serialize(SPARKS_TYPES)
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
            PLAIN_JSON.serialize({"day": date(2026, 1, 2), "wrong": wrong})


@quick
@given(st.binary())
def test_reading_gives_a_value_or_a_serialization_exception(data):
    """No bytes whatever make a serde fail in another way."""
    for serde in SERDES:
        with contextlib.suppress(SerializationException):
            serde.deserialize(data)


def texts_in(value):
    """Each text in a value."""
    if isinstance(value, dict):
        return [text for pair in value.items() for text in map(texts_in, pair)]
    return [*map(texts_in, value)] if isinstance(value, list) else value if isinstance(value, str) else ""


@quick
@given(
    st.binary()
    | st.from_regex(rb'(\{"a":|\[)?"(\\u[dD][89a-fA-F]00|a|\\\\|\xed\xa0\x80)*"[\]}]?', fullmatch=True)
)
def test_each_text_that_is_read_can_be_written(data):
    """JSON can express texts that UTF-8 cannot, and tables of a store are in UTF-8."""
    for serde in [
        *SERDES,
        Serdes.json("a STRING"),
        Serdes.json("MAP<STRING, STRING>"),
        Serdes.json("STRING"),
    ]:
        with contextlib.suppress(SerializationException):
            json.dumps(texts_in(serde.deserialize(data)), ensure_ascii=False).encode()


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
        (PLAIN_JSON, {"amount": float("nan")}),
        (PLAIN_JSON, {"amount": object}),
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
    """Schemas are text or a StructType."""
    with pytest.raises(TopologyException, match="DDL string"):
        Serdes.json(schema)


def test_a_custom_serde_goes_through_the_users_functions():
    """Both functions are called, and its Column functions can be read."""
    serde = custom()
    assert serde.serialize("hey") == b"HEY"
    assert serde.deserialize(b"HEY") == "hey"
    assert (serde.to_column, serde.from_column) == (lower, upper)


def test_a_custom_serializer_must_return_bytes():
    """If it returned text, the stored bytes would depend on the writer."""
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


# --- JSON by its schema ------------------------------------------------------------------------------------

TYPED = Serdes.json(
    "n INT NOT NULL, day DATE, at TIMESTAMP, price DECIMAL(5, 2), raw BINARY, clock TIMESTAMP_NTZ, "
    "inner STRUCT<list: ARRAY<BIGINT>>, of MAP<STRING, DOUBLE>"
)


def test_json_is_read_by_its_schema():
    """Missing fields are null, and unknown fields are left out. test_spark_serdes.py has more."""
    read = TYPED.deserialize(
        b'{"n":1,"day":"1969-12-31","at":"2026-01-02T03:04:05.678901+01:00","price":-1.5,"raw":"Af8=","x":{}}'
    )
    assert read == {
        "n": 1,
        "day": date(1969, 12, 31),
        "at": datetime(2026, 1, 2, 2, 4, 5, 678901, UTC),
        "price": Decimal("-1.50"),
        "raw": b"\x01\xff",
        "clock": None,
        "inner": None,
        "of": None,
    }
    assert TYPED.serialize(read) == (
        b'{"n":1,"day":"1969-12-31","at":"2026-01-02T02:04:05.678Z","price":-1.50,"raw":"Af8="}'
    )
    assert pickle.loads(pickle.dumps(TYPED)).deserialize(b'{"n":2}')["n"] == 2


def test_json_as_it_is_remains_for_who_passes_it_on():
    """The value is the JSON itself, whatever the schema."""
    assert TYPED.plain(b'{"day":"1969-12-31","price":1.50}') == {"day": "1969-12-31", "price": 1.5}
    assert TYPED.serialize({"n": 1, "day": "1969-12-31", "price": 1.5, "raw": "Af8="}) == (
        b'{"n":1,"day":"1969-12-31","price":1.50,"raw":"Af8="}'
    )


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"n": "x"}, "the field 'n', which is INT: the value is a str; convert it"),
        ({"n": True}, "the field 'n', which is INT: the value is a bool"),
        ({"n": 1.0}, "the field 'n', which is INT: the value is a float"),
        ({"n": 2**31}, "the field 'n', which is INT: the value is a int"),
        ({}, "the field 'n', which is INT NOT NULL in Serdes.json('n INT NOT NULL"),
        ({"n": None}, "it is missing, or None; give it a value, or leave out NOT NULL"),
        ({"n": 1, "m": 2}, "the schema has no field 'm', and a reader with the schema would lose it"),
        ({"n": 1, "day": datetime(2026, 1, 2)}, "the field 'day', which is DATE: the value is a datetime"),
        ({"n": 1, "day": "soon"}, "the field 'day', which is DATE: the value is a str"),
        ({"n": 1, "at": date(2026, 1, 2)}, "the field 'at', which is TIMESTAMP: the value is a date"),
        ({"n": 1, "price": Decimal(1000)}, "'price', which is DECIMAL(5,2): the value is a Decimal"),
        ({"n": 1, "price": float("nan")}, "'price', which is DECIMAL(5,2): the value is a float"),
        ({"n": 1, "raw": "?"}, "the field 'raw', which is BINARY: the value is a str"),
        ({"n": 1, "clock": datetime.now(UTC)}, "(it has a zone)"),
        (
            {"n": 1, "inner": {"list": [1, "2"]}},
            "the field 'inner.list[]', which is BIGINT: the value is a str",
        ),
        ({"n": 1, "inner": {"list": "12"}}, "the field 'inner.list', which is ARRAY<BIGINT>: the value is"),
        ({"n": 1, "of": {"a": "1"}}, "the field 'of.a', which is DOUBLE: the value is a str"),
        ({"n": 1, "of": {1: 1.0}}, "the field 'of', which is MAP<STRING, DOUBLE>: the value is a dict"),
    ],
)
def test_what_does_not_fit_its_field_is_told_with_the_field_and_the_types(value, told):
    """At the place where Python writes it: a reader would not tell where it came from."""
    with pytest.raises(SerializationException) as caught:
        TYPED.serialize(value)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b'{"n":"secret"}', "it takes INT in the field 'n', and this is other JSON"),
        (b'{"inner":{"list":["secret"]}}', "it takes BIGINT in the field 'inner.list[]'"),
        (b'["secret"]', "a JSON object"),
        (b'{"n":1},"c":2', "a JSON object in UTF-8"),
    ],
)
def test_what_is_read_and_does_not_fit_its_field_is_told_without_its_content(data, told):
    """What a record says has no place in a log."""
    with pytest.raises(SerializationException) as caught:
        TYPED.deserialize(data)
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_schema_with_a_type_that_json_has_no_form_for_is_not_looked_into():
    """Values are what JSON has."""
    odd = Serdes.json("a INT, v VARIANT")
    assert odd.deserialize(odd.serialize({"a": "x", "v": [1.5]})) == {"a": "x", "v": [1.5]}


@quick
@given(st.binary() | st.from_regex(rb'\{"(n|day|at|price|raw|of)":("[-0-9T:.Z ]{0,12}"|-?[0-9.eE+]{1,9})\}'))
def test_whatever_is_read_by_a_schema_is_written_and_read_again(data):
    """Nothing else than a SerializationException comes; and what was read fits its schema."""
    schema = Serdes.json("n INT, day DATE, at TIMESTAMP, price DECIMAL(5, 2), raw BINARY, of DOUBLE")
    with contextlib.suppress(SerializationException):
        read = schema.deserialize(data)
        again = schema.deserialize(schema.serialize(read))
        if read["at"] is not None:
            read["at"] = read["at"].replace(microsecond=read["at"].microsecond // 1000 * 1000)
        assert repr(again) == repr(read)


@pytest.mark.parametrize(
    "serde",
    [
        Serdes.long(),
        Serdes.integer(),
        Serdes.double(),
        Serdes.boolean(),
        Serdes.uuid(),
        Serdes.bytes(),
        Serdes.list(Serdes.long()),
        Serdes.json("n INT"),
        Serdes.json("STRUCT<s: STRUCT<n: INT>>"),
        Serdes.custom("own", serialize=lambda value: bytes(int(value)), deserialize=int, type="BIGINT"),
    ],
    ids=repr,
)
def test_no_message_has_the_value_or_the_bytes(serde: Serde) -> None:
    """They go to logs and dead letters: the type and the size are enough to find the record."""
    for value in ("secret", ["secret"], {"n": "secret"}, {"s": {"n": "secret"}}):
        with pytest.raises(SerializationException) as caught:
            serde.serialize(value)
        assert "secret" not in str(caught.value)
    if serde != Serdes.bytes():
        with pytest.raises(SerializationException) as caught:
            serde.deserialize(b"secret")
        assert "secret" not in str(caught.value)


def test_text_that_is_not_utf_8_is_read_as_java_reads_it() -> None:
    """Half a pair is one character there, though it has three bytes; so is what is cut off."""
    read = Serdes.string().deserialize
    assert [read(each) for each in (b"\xed\xa0\x80z", b"\xe2\x82", b"\xff\xfe", b"\xc0\x80")] == [
        "\ufffdz",
        "\ufffd",
        "\ufffd\ufffd",
        "\ufffd\ufffd",
    ]
