"""JSON in the kernel, which pipelines read and write, and in Python: the same documents, values and bytes."""

from __future__ import annotations

import base64
import json
import math
import random
import struct
import time
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from java_programs import KernelJava

from millstream import Serdes, SerializationException
from millstream.serdes.json_text import DEEPEST, double_text, single, single_text

pytestmark = pytest.mark.disk

# --- both halves ------------------------------------------------------------------------

PLAIN = {
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INT": "integer",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "STRING": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "DECIMAL(10,2)": "decimal(10,2)",
    "DECIMAL(38,0)": "decimal(38,0)",
    "DECIMAL(38,38)": "decimal(38,38)",
    "DECIMAL(38,18)": "decimal(38,18)",
    "DECIMAL(1,0)": "decimal(1,0)",
}
"""How a type is called in a schema, and in Spark's JSON."""


def _struct(**fields: Any) -> dict[str, Any]:
    each = [{"name": name, "type": of, "nullable": True, "metadata": {}} for name, of in fields.items()]
    return {"type": "struct", "fields": each}


def _types() -> dict[str, Any]:
    types: dict[str, Any] = dict(PLAIN)
    for name, described in PLAIN.items():
        types[f"a {name}, b STRUCT<a: {name}>"] = _struct(a=described, b=_struct(a=described))
        types[f"ARRAY<{name}>"] = {"type": "array", "elementType": described, "containsNull": True}
        types[f"MAP<STRING, {name}>"] = {
            "type": "map",
            "keyType": "string",
            "valueType": described,
            "valueContainsNull": True,
        }
    return types


TYPES = _types()
NAMES = list(TYPES)
SERDES = {name: Serdes.json(name) for name in NAMES}
READERS = {name: serde.decoder() for name, serde in SERDES.items()}

Read = tuple[bytes, str]
"""What is written of a document that was read, and the value."""


def in_kernel(kernel_java: KernelJava, documents: list[tuple[str, bytes]]) -> list[Read | str]:
    """What it reads; or why it does not."""
    lines = "".join(f"{NAMES.index(name)} {data.hex()}\n" for name, data in documents)
    said = kernel_java("io.millstream.kernel.serdes.JsonMain", lines, *map(json.dumps, TYPES.values()))
    answers = [line.partition(" ") for line in said.splitlines()]
    assert len(answers) == len(documents)
    return [rest if first == "!" else (bytes.fromhex(first), rest) for first, _, rest in answers]


def in_python(name: str, data: bytes) -> Read | str:
    """The same of Python's half, one by one and many at a time."""
    try:
        value = SERDES[name].deserialize(data)
    except SerializationException as error:
        with pytest.raises(SerializationException):
            READERS[name](data)
        return str(error)
    assert shown(READERS[name](data)) == shown(value)
    return SERDES[name].serialize(value) or b"", shown(value)


def shown(value: Any) -> str:
    """As `JsonMain` shows a value."""
    if isinstance(value, dict):
        return f"{{{''.join(f'{shown(key)}:{shown(each)},' for key, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{''.join(f'{shown(each)},' for each in value)}]"
    if isinstance(value, datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
        return str((zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))
    if isinstance(value, date):
        return str((value - date(1970, 1, 1)).days)
    if isinstance(value, float):
        return f"d{struct.pack('>d', math.nan if math.isnan(value) else value).hex()}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Decimal):
        return format(value, "f")
    return (
        f"s{value.encode().hex()}"
        if isinstance(value, str)
        else (f"b{value.hex()}" if isinstance(value, bytes) else str(value))
    )


def differences(kernel_java: KernelJava, documents: list[tuple[str, bytes]]) -> list[Any]:
    """Of which the halves do not read the same value and write the same bytes; or one refuses them."""
    read = in_kernel(kernel_java, documents)
    found = []
    for (name, data), java in zip(documents, read, strict=True):
        python = in_python(name, data)
        if java != python and not (isinstance(java, str) and isinstance(python, str)):
            found.append((name, data[:300], java, python))
    return found


# --- odd documents -----------------------------------------------------------------------------------------

INTEGERS = [0, 1, 9, 127, 128, 255, 256, 32767, 32768, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 10**18, 10**19]
INTEGERS += [
    1691241070123,
    1691241070,
    253402300799,
    253402300800,
    62135596800,
    62135596801,
    10**38 - 1,
    10**38,
]
ODD_NUMBERS = ["NaN", "-NaN", "Infinity", "-Infinity", "+Infinity", "INF", "-INF", "+INF", ".5", "5.", "0x1"]
ODD_NUMBERS += ["1_000", "\uff11", "+1", "01", "1e", "1e+", "-"]
FLOATS = [
    "0.1",
    "3.4028235e38",
    "3.4028236e38",
    "1.17549435e-38",
    "1e-45",
    "1e-46",
    "1e400",
    "1e-400",
    "1e23",
]
FLOATS += ["4.9e-324", "1e16", "1e-5", "2e23"]
FLOATS += [
    "9007199254740993",
    "-0.0",
    "0.30000000000000004",
    "123456789.125",
    "16777217",
    "5e-324",
    "9.5e-323",
]
ESCAPES = [r"\ud800", r"\uDC00", r"\ud83c\udf89", r"\ud800\ud800\udc00", r"\ud83d\n", r"\u00FC", r"\u001f"]
ESCAPES += [
    r"\\ud800",
    r"\ud8",
    r"\x",
    r"\/",
    r"\b",
    "\x1f",
    "\\",
    r"\ud83c\u0041",
    r"\u0000",
    r"\uD83D",
    r"\"",
]
WORDS = [
    "12,50",
    "1.234,56",
    "true",
    "null",
    "eA==",
    "eA",
    "eB==",
    "====",
    "=",
    "eA=A",
    "eA==eA==",
    "eA= =",
    "-_==",
]
WORDS += [
    "",
    "ß",
    "🎉",
    "\u2028",
    "\x7f",
    "\x00",
    "a\tb",
    "1e5",
    " 1",
    "1 ",
    "+1.5",
    ".5",
    "5.",
    "007",
    "1e-3",
]
WRONG = [
    b"",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xef\xbb\xbf",
    b"\xf4\x90\x80\x80",
    b'"',
    b"\0",
    b"\\",
    b"'",
]
SPACES = ["", "", "", "", "", "", " ", "\n\t\r ", "\x0b", "\xa0", "/**/"]


class Odd:
    """Makes documents, of which about half fit a type."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def one(self, *of: str) -> str:
        return self._random.choice(of)

    def happens(self, one_in: int) -> bool:
        return self._random.randrange(one_in) == 0

    def digits(self) -> str:
        length = self._random.choice((1, 1, 2, 3, 8, 17, 28, 29, 38, 39, 400))
        digits = "".join(self._random.choices("0123456789", k=length))
        return self.one(digits, digits, "9" * length, "1" + "0" * length + self.one("", "5"), "0" * length)

    def number(self) -> str:
        if self.happens(3):
            return self.one("", "-") + self.one(*map(str, INTEGERS))
        if self.happens(4):
            return self.one(*FLOATS)
        if self.happens(12):
            return self.one(*ODD_NUMBERS)
        whole = self.digits().lstrip("0") or "0"
        fraction = self.one("", f".{self.digits()}", f".{self.digits()}")
        exponent = self.one("", "", "", "e", "E", "e-", "e+")
        power = self.one("1", "2", "10", "37", "38", "39", "400", "00005", "10000000", "9" * 19, "0" * 30)
        return self.one("", "-") + whole + fraction + (exponent + power if exponent else "")

    def time(self) -> str:
        year = self.one("2024", "2023", "0001", "9999", "1969", "1582")
        month, day = self.one("02", "2", "12", "10"), self.one("28", "1", "05", "4", "29")
        clock = self.one("", f"{self.one('T', ' ')}{self.one('00', '3', '23')}:{self.one('04', '59', '7')}")
        second = self.one("", ":05", ":5", ":05.", ":05.6", ":59.9999999", ":05.678", ":05.678901")
        zone = self.one(
            "", "", "Z", "Z", " Z", "+02:00", "-11:30", "+0530", "+5", " UTC", "GMT", "UT-1:30:59"
        )
        if self.happens(3):
            year = self.one(year, "0000", "12024", "+2024", "+12024", "24", "1691241070123")
            month = self.one(month, "13", "00", "-1", "")
            day = self.one(day, "30", "31", "00", "32", "")
            clock = self.one(
                clock, "T", " ", "T12", "t12:30", "T24:00", "T +1:00", "T12:60", "T123:00", "T1:1 "
            )
            second = self.one(second, ":60", ".5", ":", ":05,6", ":5:5")
            zone = self.one(
                zone, "z", "+530", "+23:59", "+18:00", "-18:00:01", "+1:60", "[Europe/Paris]", "PST"
            )
        text = f"{year}-{month}-{day}{clock}{second if clock else ''}{zone if clock else ''}"
        return self.one(text[:4], text[:7], f" {text}", f"{text} ", f"{text}\n") if self.happens(15) else text

    def string(self) -> str:
        if self.happens(5):
            return f'"{self.one("", "a")}{self.one(*ESCAPES)}{self.one("", "b", *ESCAPES)}"'
        if self.happens(12):
            return self.one("'a'", '"a', "a", '"\n"', '"a\\"')
        text = self.one(*WORDS, self.number(), self.time())
        return json.dumps(text, ensure_ascii=self.happens(2))

    def fitting(self, type_: str) -> str:
        if type_ == "BOOLEAN":
            return self.one("true", "false")
        if type_ == "BINARY":
            return json.dumps(base64.b64encode(self._random.randbytes(self._random.randrange(5))).decode())
        if type_ == "STRING":
            return self.string()
        if type_.startswith(("DATE", "TIME")):
            return f'"{self.time()}"' if not self.happens(6) else self.number()
        if type_.endswith("INT"):
            return self.one("", "-") + str(self._random.choice(INTEGERS[: self._random.randrange(1, 14)]))
        if type_ in ("FLOAT", "DOUBLE") and self.happens(2):
            return (
                repr(struct.unpack(">d", self._random.randbytes(8))[0])
                .replace("nan", '"NaN"')
                .replace("inf", "1")
            )
        return f'"{self.number()}"' if self.happens(6) else self.number()

    def value(self, depth: int = 0) -> str:
        """Any."""
        kind = self._random.randrange(8 if depth < 3 else 6)
        if kind < 2:
            return self.number()
        if kind < 4:
            return self.string()
        if kind < 6:
            return self.one("null", "true", "false", "null", "true", "false", "Null", "", "undefined", "nul")
        space, inner = self.one(*SPACES), [self.value(depth + 1) for _ in range(self._random.randrange(4))]
        if kind == 6:
            return f"[{f',{space}'.join(inner)}{',' if self.happens(15) else space}]"
        return f"{{{space}{f',{space}'.join(f'{self.name()}:{each}' for each in inner)}}}"

    def name(self) -> str:
        odd = (
            ('"A"', '""', '"ü"', '"\\ud800"', '"c"', '"\\u0061"')
            if not self.happens(25)
            else ("a", "'a'", "1")
        )
        return self.one('"a"', '"a"', '"b"', '"b"', *odd)

    def of(self, type_: str, depth: int = 0) -> str:
        """Mostly of that type."""
        if self.happens(12 if depth else 25):
            return self.value(2)
        if depth and self.happens(10):
            return "null"
        head, _, rest = type_.partition("<")
        space, count = self.one(*SPACES), self._random.randrange(4)
        if head == "ARRAY":
            return f"[{space}{f',{space}'.join(self.of(rest[:-1], depth + 1) for _ in range(count))}]"
        if head.startswith("MAP"):
            inner = rest.removeprefix("STRING, ")[:-1]
            pairs = (f"{self.name()}{space}:{self.of(inner, depth + 1)}" for _ in range(count))
            return f"{{{f',{space}'.join(pairs)}}}"
        if head.startswith("a "):
            inner = head.split(", b ")[0][2:]
            pairs = []
            for _ in range(count):
                name = self.name()
                within = f"{{{space}{self.name()}:{self.of(inner, depth + 2)}}}"
                pairs.append(name + ":" + (within if name == '"b"' else self.of(inner, depth + 1)))
            return f"{{{','.join(pairs)}}}"
        return self.fitting(type_)

    def document(self) -> tuple[str, bytes]:
        name = self.one(*NAMES)
        text = self.of(name)
        if self.happens(8):
            text = self.one(*SPACES) + text + self.one(*SPACES, "x", "{}", ",1")
        data = text.encode()
        if self.happens(12):
            at = self._random.randrange(len(data) + 1)
            data = data[:at] + self._random.choice(WRONG) + data[at + self._random.randrange(2) :]
        return name, data


def test_both_halves_read_each_document_alike(kernel_java: KernelJava) -> None:
    """Of any type: the same value, from which they write the same bytes; or both refuse it. What they write
    they read again, as that value."""
    odd = Odd(1)
    documents = [odd.document() for _ in range(12_000)]
    assert differences(kernel_java, documents) == []
    answers = [(name, in_python(name, data)) for name, data in documents]
    read = [(name, each) for name, each in answers if not isinstance(each, str)]
    fewest = min(Counter(name for name, _ in read).values())
    assert fewest > 20, "hardly any of the documents of a type are read"
    written = [(name, data) for name, (data, _) in read]
    assert differences(kernel_java, written) == []
    for name, before in read:
        again = in_python(name, before[0])
        assert again[0] == before[0]
        assert "TIMESTAMP" in name or again == before  # these are written in milliseconds


ONE_ANSWER: list[tuple[str, bytes, str | None]] = [
    # A name, a document, and what both write of it; None: both refuse it.
    ("a STRING, b STRUCT<a: STRING>", rb'{"a":12345678901234567890.123}', '{"a":"12345678901234567890.123"}'),
    ("a STRING, b STRUCT<a: STRING>", rb'{"a":1.50}', '{"a":"1.50"}'),
    (
        "a STRING, b STRUCT<a: STRING>",
        rb'{"a":{"x": [1.50, "\u00fc", null],"x":1E3}}',
        r'{"a":"{\"x\":[1.50,\"ü\",null],\"x\":1E3}"}',
    ),
    ("STRING", b"null", None),
    ("STRING", b"'a'", None),
    ("STRING", b'\xef\xbb\xbf"a"', None),
    ("STRING", b'"\xed\xa0\x80"', None),
    ("STRING", b'"a"'.decode().encode("utf-16"), None),
    ("STRING", rb'"\ud83d"', '"�"'),
    ("STRING", rb'"\ud83c\udf89\\ud800\u001F"', r'"🎉\\ud800\u001F"'),
    ("MAP<STRING, BIGINT>", b'{"a":"x","b":2,"a":3}', '{"a":3,"b":2}'),
    ("a BIGINT, b STRUCT<a: BIGINT>", b'{"a":"x","a":1}', '{"a":1}'),
    ("FLOAT", b"0.1", "0.1"),
    ("FLOAT", b"16777217", "1.6777216E7"),
    ("DOUBLE", b"1e16", "1.0E16"),
    ("DOUBLE", b"-0", "0.0"),
    ("DOUBLE", b"5e-324", "4.9E-324"),
    ("DOUBLE", b"NaN", '"NaN"'),
    ("BIGINT", b"NaN", None),
    ("TINYINT", b"200", None),
    ("DECIMAL(38,0)", b"9" * 38, "9" * 38),
    ("DECIMAL(38,0)", b"-" + b"9" * 38 + b".4", "-" + "9" * 38),
    ("DECIMAL(10,2)", b'"12,50"', None),
    ("DECIMAL(10,2)", b'"1.234,56"', None),
    ("DECIMAL(10,2)", b'"12.50"', "12.50"),
    ("DECIMAL(10,2)", '"\uff11"'.encode(), None),
    ("DECIMAL(10,2)", b"0e99999999999999999999", "0.00"),
    ("DECIMAL(10,2)", b"1e-99999999999999999999", "0.00"),
    ("DECIMAL(10,2)", b"99999999.995", None),
    ("TIMESTAMP", b"1691241070123", None),
    ("TIMESTAMP", b"1691241070", '"2023-08-05T13:11:10.000Z"'),
    ("TIMESTAMP", b'"23456"', None),
    ("TIMESTAMP", b'"12:30"', None),
    ("TIMESTAMP", b'"2024-01-02 03:04:05 +0100"', '"2024-01-02T02:04:05.000Z"'),
    ("TIMESTAMP", b'"2024-01-02T03:04:05 Europe/Paris"', None),
    ("TIMESTAMP", b'"9999-12-31T23:59:59-01:00"', None),
    ("TIMESTAMP", b'"10000-01-01"', None),
    ("DATE", b'"+55563-04-19"', None),
    ("DATE", b'"2024-02-29T23:59:59-11:00"', '"2024-02-29"'),
    ("DATE", b'"2024-02-29 or so"', None),
    ("TIMESTAMP_NTZ", b'"2024-02-29T00:00:00Z"', None),
]


def test_both_halves_have_the_same_answer_to_what_json_leaves_open(kernel_java: KernelJava) -> None:
    """Both are also as strict; a document that could be two values is refused."""
    documents = [(name, data) for name, data, _ in ONE_ANSWER]
    assert differences(kernel_java, documents) == []
    answers = [in_python(name, data) for name, data in documents]
    written = [None if isinstance(each, str) else each[0].decode() for each in answers]
    assert written == [answer for _, _, answer in ONE_ANSWER]


REFUSED = [
    (
        "a TIMESTAMP, b STRUCT<a: TIMESTAMP>",
        b'{"b":{"a":1691241070123}}',
        "TIMESTAMP in the field 'b.a', and this number of seconds is beyond the years 1 to 9999; "
        "milliseconds? read BIGINT, then F.timestamp_millis",
    ),
    (
        "MAP<STRING, DECIMAL(10,2)>",
        b'{"secret":"12,50"}',
        "DECIMAL(10,2) in the field '[]', and this is text with a comma: read STRING, then replace it and "
        "cast",
    ),
    ("ARRAY<BIGINT>", b'["secret"]', "BIGINT in the field '[]', and this is other JSON"),
    ("a BIGINT, b STRUCT<a: BIGINT>", b'["secret"]', "a JSON object, and this is other JSON"),
    ("BIGINT", b'"secret"', "JSON of the type BIGINT, and this is other JSON"),
    (
        "a TIMESTAMP_NTZ, b STRUCT<a: TIMESTAMP_NTZ>",
        b'{"a":"2024-02-29T00:00:00Z"}',
        "TIMESTAMP_NTZ in the field 'a', and this time has a zone",
    ),
]


def test_a_refusal_names_the_field_and_the_way_out_and_no_data(kernel_java: KernelJava) -> None:
    """Both halves use the same words."""
    documents = [(name, data) for name, data, _ in REFUSED]
    expected = [told for _, _, told in REFUSED]
    assert in_kernel(kernel_java, documents) == expected
    for (name, data), told in zip(documents, expected, strict=True):
        said = in_python(name, data)
        assert isinstance(said, str)
        assert said.startswith(f"serde 'json' cannot read these {len(data)} bytes: it takes {told};")


def test_what_a_document_costs_depends_on_its_length(kernel_java: KernelJava) -> None:
    """An exponent is as many digits, if somebody writes them out; brackets are as many calls; and a decimal
    number may cost the square of its digits."""
    exponents = [
        sign + power for sign in ("", "-") for power in ("10000000", "100000000", "999999999", "9" * 300)
    ]
    numbers = [f"1e{each}" for each in exponents]
    numbers += [f"0.{'0' * 100_000}1", "9" * 100_000, f"1.{'9' * 100_000}"]
    values = [*numbers, *(f'"{each}"' for each in numbers), "[" * 100_000, '{"a":' * 100_000]
    values += ["[" * 50_000 + "]" * 50_000, f'["{"[" * 300}"]']
    names = ("DECIMAL(10,2)", "DECIMAL(38,18)", "BIGINT", "DOUBLE", "TIMESTAMP", "STRING", "BINARY")
    struct_name = "a STRING, b STRUCT<a: STRING>"
    documents = [(name, each.encode()) for name in names for each in values]
    documents += [(struct_name, f'{{"c":{each}}}'.encode()) for each in values]
    deep = "[" * (DEEPEST - 1) + "]" * (DEEPEST - 1)
    for field in "ac":  # one that the schema has, and one that it has not
        documents += [(struct_name, f'{{"{field}":{each}}}'.encode()) for each in (deep, f"[{deep}]")]
    begun = time.process_time()
    python = [in_python(name, data) for name, data in documents]
    assert time.process_time() - begun < 20
    java = in_kernel(kernel_java, documents)
    answers = zip(documents, java, python, strict=True)
    assert [
        (name, data[:40])
        for (name, data), one, other in answers
        if one != other and not (isinstance(one, str) and isinstance(other, str))
    ] == []
    assert [isinstance(each, str) for each in java[-4:]] == [False, True, False, True], "the depth"
    assert max(len(each) for each in [*java, *python] if isinstance(each, str)) < 300


def test_numbers_are_written_as_java_19_writes_them(kernel_java: KernelJava) -> None:
    """Whatever Java is there, and in Python: keys are looked up by their bytes. That is the shortest text
    which is read as this number; Java 17 does not always find it."""
    chance = random.Random(3)
    doubles = [2.0**power * sign for power in range(-1074, 1024, 7) for sign in (1, -1)]
    doubles += [struct.unpack(">d", chance.randbytes(8))[0] for _ in range(3000)]
    doubles += [10.0**power for power in range(-323, 309)] + [n * 4.9e-324 for n in range(1, 120)]
    doubles += [chance.randrange(10**6) / 100 for _ in range(500)] + [
        2e23,
        1.1e-3,
        9999999.999999998,
        1e7,
        1e-3,
    ]
    doubles = [each for each in doubles if math.isfinite(each)]
    singles = [single(each) for each in doubles if math.isfinite(single(each))]
    singles += [struct.unpack(">f", chance.randbytes(4))[0] for _ in range(3000)]
    singles = [each for each in singles if math.isfinite(each)]
    lines = [f"double {struct.pack('>d', each).hex()}" for each in doubles]
    lines += [f"float {struct.pack('>f', each).hex()}" for each in singles]
    said = kernel_java("io.millstream.kernel.serdes.JsonMain", "\n".join(lines)).splitlines()
    assert [double_text(each) for each in doubles] == said[: len(doubles)]
    assert [single_text(each) for each in singles] == said[len(doubles) :]
    assert [float(text) for text in said[: len(doubles)]] == doubles
    assert [single(float(text)) for text in said[len(doubles) :]] == singles
    known = {
        2e23: "2.0E23",
        2.0**-44: "5.684341886080802E-14",
        4.9e-324: "4.9E-324",
        1e7: "1.0E7",
        0.001: "0.001",
    }
    assert {each: double_text(each) for each in known} == known
