"""Keys and values in requests and answers."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SerializationException
from millstream.remote.answers import Refused
from millstream.remote.json_codec import (
    from_base64,
    key_from_json,
    key_from_text,
    parse_json,
    shown,
    to_base64,
)
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import Serdes

ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
PLAIN = Serdes.custom(
    "plain", serialize=str.encode, deserialize=lambda data: {data}, to_column=str, from_column=str
)
CASES: list[tuple[Serde, str, Any, Any]] = [
    (Serdes.string(), "größe/1 %", "größe/1 %", "größe/1 %"),
    (Serdes.string(), "", "", ""),
    (Serdes.short(), "-7", -7, -7),
    (Serdes.integer(), "2147483647", 2**31 - 1, 2**31 - 1),
    (Serdes.long(), "-9223372036854775808", -(2**63), -(2**63)),
    (Serdes.float(), "0.5", 0.5, 0.5),
    (Serdes.double(), "1e300", 1e300, 1e300),
    (Serdes.double(), "Infinity", {"$double": "Infinity"}, math.inf),
    (Serdes.double(), "-inf", {"$double": "-Infinity"}, -math.inf),
    (Serdes.boolean(), "true", True, True),
    (Serdes.uuid(), str(ID), str(ID), ID),
    (Serdes.bytes(), "AP8=", {"$bytes": "AP8="}, b"\x00\xff"),
    (Serdes.json("a INT"), '{"a":1}', {"a": 1}, {"a": 1}),
    (
        Serdes.json("at TIMESTAMP, day DATE, n DECIMAL(5, 2), raw BINARY, none INT"),
        '{"raw":"AP8=","at":"2026-01-02T03:04:05.678Z","day":"2026-01-02","n":1.5}',
        {"at": "2026-01-02T03:04:05.678Z", "day": "2026-01-02", "n": 1.5, "raw": "AP8="},
        {
            "at": datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC),
            "day": date(2026, 1, 2),
            "n": Decimal("1.50"),
            "raw": b"\x00\xff",
            "none": None,
        },
    ),
]


@pytest.mark.parametrize(("serde", "text", "shape", "value"), CASES, ids=lambda each: str(each)[:20])
def test_a_key_of_each_serde_as_text_as_json_and_as_bytes(
    serde: Serde, text: str, shape: Any, value: Any
) -> None:
    """All three are the bytes that the serde writes, and what is shown of them is the JSON form again."""
    data = serde.serialize(value)
    assert data is not None
    assert key_from_text(serde, text, "json") == data
    assert key_from_json(serde, shape, "json") == data
    assert key_from_json(serde, {"$bytes": to_base64(data)}, "json") == data
    assert key_from_text(serde, to_base64(data), "bytes") == data
    assert key_from_json(serde, to_base64(data), "bytes") == data
    assert shown(serde, data, "json") == shape
    assert shown(serde, data, "bytes") == to_base64(data)
    json.dumps(shown(serde, data, "json"), allow_nan=False)


@pytest.mark.parametrize(
    ("serde", "text"),
    [
        (Serdes.long(), "seven"),
        (Serdes.long(), "1.0"),
        (Serdes.long(), "9223372036854775808"),
        (Serdes.long(), "9" * 5000),
        (Serdes.long(), "\u0661"),
        (Serdes.long(), ""),
        (Serdes.short(), "40000"),
        (Serdes.double(), "1,5"),
        (Serdes.float(), "1e300"),
        (Serdes.boolean(), "TRUE"),
        (Serdes.uuid(), "00112233"),
        (Serdes.bytes(), "###"),
        (Serdes.bytes(), "A"),
        (Serdes.json("a INT"), "[1]"),
        (Serdes.json("a INT"), "{"),
        (Serdes.json("a INT"), "[" * 100_000),
        (Serdes.json("a INT"), '{"a":NaN}'),
        (Serdes.json("a INT"), "null"),
        (PLAIN, "a"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_a_text_that_is_no_such_key_is_the_requests_mistake(serde: Serde, text: str) -> None:
    """400, and never an exception of a serde or of Python."""
    with pytest.raises(Refused) as refused:
        key_from_text(serde, text, "json")
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (Serdes.string(), 7),
        (Serdes.string(), None),
        (Serdes.string(), "\ud800"),
        (Serdes.long(), "7"),
        (Serdes.long(), 1.5),
        (Serdes.long(), True),
        (Serdes.double(), {"$double": "huge"}),
        (Serdes.boolean(), 1),
        (Serdes.uuid(), 5),
        (Serdes.bytes(), "AP8="),
        (Serdes.bytes(), {"$bytes": 5}),
        (Serdes.json("a INT"), [1]),
        (Serdes.json("a INT"), "{}"),
    ],
    ids=lambda each: repr(each)[:20],
)
def test_a_value_that_is_no_such_key_is_the_requests_mistake(serde: Serde, value: Any) -> None:
    """400, also for texts that UTF-8 cannot express."""
    with pytest.raises(Refused) as refused:
        key_from_json(serde, value, "json")
    assert refused.value.status == 400


def result_of(call: Callable[[], Any]) -> Any:
    """What it gives, or why the request was refused."""
    try:
        return call()
    except Refused as refused:
        return refused


@given(st.binary())
def test_base64_goes_both_ways(data: bytes) -> None:
    """Either alphabet works, padded or not."""
    text = to_base64(data)
    for same in (text, text.rstrip("="), text.replace("-", "+").replace("_", "/")):
        assert from_base64(same) == data


@given(st.text() | st.integers() | st.none() | st.lists(st.text()))
def test_what_is_no_base64_is_refused(text: Any) -> None:
    """Any text is bytes or is refused."""
    assert isinstance(result_of(lambda: from_base64(text)), bytes | Refused)


@given(st.binary())
def test_a_body_is_json_or_refused(data: bytes) -> None:
    """Any bytes."""
    assert not isinstance(result_of(lambda: parse_json(data)), bytes)


@pytest.mark.parametrize("data", [b"[" * 200_000, b"9" * 10_000, b"NaN", b"\xff\xfe", b'{"a":Infinity}'])
def test_a_body_that_would_hurt_is_refused(data: bytes) -> None:
    """Nested beyond measure, numbers of ten thousand digits, constants that JSON has not, other encodings."""
    with pytest.raises(Refused):
        parse_json(data)


def test_a_value_that_json_has_not_is_shown_as_its_bytes() -> None:
    """A set, here; a dict with keys that are no texts as well."""
    assert shown(PLAIN, b"ab", "json") == {"$bytes": "YWI="}


def test_numbers_that_json_has_not_are_marked_inside_objects_too() -> None:
    """Stored JSON may have them: Python reads NaN."""
    assert shown(Serdes.json("a DOUBLE"), b'{"a":[NaN,1.5]}', "json") == {"a": [{"$double": "NaN"}, 1.5]}


def test_stored_bytes_that_do_not_fit_are_one_exception() -> None:
    """A local read raises the same."""
    with pytest.raises(SerializationException, match="serde 'long'"):
        shown(Serdes.long(), b"123", "json")
