"""Records on the command line: how they are shown, what is made of what somebody types, and lag."""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import threading
from dataclasses import replace

import pytest
import typer
from fake_ports import FakeLog, FakeTopics
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.cluster import lags
from millstream.cli.lag import lag_as_dict, lag_table
from millstream.cli.lines import pieces
from millstream.cli.output import as_json, table
from millstream.cli.record_forms import (
    RecordForm,
    parse_header,
    parse_time,
    reader_of,
    record_as_dict,
    record_line,
    shown_time,
    written,
)
from millstream.cli.topic_commands import Begin, begin_of, first_offsets, record_of_line
from millstream.foreign import printable
from millstream.kafka.records import is_read
from millstream.model import KafkaRecord, TopicPartition
from millstream.serdes.serdes import Serdes

RECORD = KafkaRecord(
    "orders", 3, 17, b"ann", b'{"amount": 2.5}', 1_782_900_000_123, (("from", b"\xff"), ("a", None))
)
AUTO = reader_of(RecordForm.AUTO, Serdes.of)


def test_a_record_is_a_line_with_its_place_and_time() -> None:
    """Headers only if they are asked for."""
    shown = record_as_dict(RECORD, AUTO, AUTO)
    line = 'orders-3@17  2026-07-01T10:00:00.123Z  ann  {"amount": 2.5}'
    assert record_line(shown, headers=False) == line
    assert record_line(shown, headers=True) == f"{line}  from=0xff a=null"


def test_as_json_a_record_has_what_its_serde_reads() -> None:
    """What cannot be read has its bytes, and why."""
    shown = record_as_dict(
        RECORD, reader_of(RecordForm.LONG, Serdes.of), reader_of(RecordForm.JSON, Serdes.of)
    )
    assert shown["value"] == {"amount": 2.5}
    assert shown["key"] == {"$bytes": "YW5u"}
    assert "'long' cannot read these 3 bytes" in shown["key_error"]
    assert record_line(shown, headers=False).count("<key: serde 'long' cannot read") == 1
    assert json.loads(json.dumps(shown))["headers"] == [["from", {"$bytes": "/w=="}], ["a", None]]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", ""),
        ("Zoë\n".encode(), "Zoë\n"),
        (b"\x00\x01", "0x0001"),
        (b"\x1b[31m", "0x1b5b33316d"),
        ("\u202eabc".encode(), "0xe280ae616263"),
        (b"\xff\xfe", "0xfffe"),
    ],
    ids=["empty", "text", "binary", "escape", "direction", "no-utf-8"],
)
def test_bytes_that_nobody_knows_are_text_if_they_are_some(data: bytes, shown: str) -> None:
    """What would command the terminal, or turn its direction, is digits."""
    record = record_as_dict(KafkaRecord("t", 0, 0, None, data, 0), AUTO, AUTO)
    assert record_line(record, headers=False).endswith(f"null  {printable(shown)}")


def round_trip(record: KafkaRecord, key: RecordForm, value: RecordForm) -> KafkaRecord:
    """What `tail --json | produce --records` makes of a record, with these forms on both sides."""
    shown = record_as_dict(record, reader_of(key, Serdes.of), reader_of(value, Serdes.of))
    return record_of_line(
        as_json(shown, one_line=True),
        KafkaRecord(record.topic, -1, -1, None, None, -1),
        lambda text: written(key, text, Serdes.of),
        lambda text: written(value, text, Serdes.of),
        is_json=True,
        key_form=key,
        value_form=value,
    )


PARTS = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
JSON_PARTS = (
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    )
    | st.just({"$bytes": "YQ=="})
    | st.just("\ud800")
)


@given(PARTS, PARTS, st.lists(st.tuples(st.text(max_size=5), PARTS), max_size=3))
def test_what_tail_prints_as_json_produce_writes_again(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    """The same bytes, whatever they are: text that looks like digits of others stays text."""
    record = KafkaRecord("t", 1, 7, key, value, 1_782_900_000_123, tuple(headers))
    again = round_trip(record, RecordForm.AUTO, RecordForm.AUTO)
    assert round_trip(record, RecordForm.STRING, RecordForm.BYTES) == again
    assert again == replace(record, offset=-1)


@given(JSON_PARTS)
def test_json_that_is_written_again_is_the_same_json(value: object) -> None:
    """Strings stay strings, also those that look like numbers, and null is no tombstone."""
    data = json.dumps(value).encode()
    again = round_trip(KafkaRecord("t", 0, 0, b"7", data, 0), RecordForm.STRING, RecordForm.JSON)
    assert again.value is not None
    assert json.loads(again.value) == value


@pytest.mark.parametrize("number", [math.nan, math.inf, -0.0, 0.1])
def test_numbers_that_json_does_not_have_are_written_again(number: float) -> None:
    """They are shown as bytes, which can be written again."""
    data = struct.pack(">d", number)
    assert (
        round_trip(KafkaRecord("t", 0, 0, data, data, 0), RecordForm.DOUBLE, RecordForm.DOUBLE).value == data
    )


def test_bytes_that_are_none_are_an_error_of_usage() -> None:
    """They are not taken for text."""
    with pytest.raises(typer.BadParameter, match="not base64"):
        line_of('{"value": {"$bytes": "?"}}', is_json=True)


@pytest.mark.parametrize("text", ["\x7f", "\x9b31m", "\u202eabc", "\ud800", "\U000e0001", "\x1b[0m"])
@pytest.mark.parametrize("one_line", [True, False])
def test_json_does_not_command_the_terminal(text: str, one_line: bool) -> None:
    """What cannot be printed is escaped, in names and in values, and reads as what it was."""
    shown = as_json({"name": [text], text: "ü"}, one_line=one_line)
    assert shown.replace("\n", "").isprintable()
    assert "ü" in shown
    assert json.loads(shown) == {"name": [text], text: "ü"}


def test_json_has_texts_for_numbers_that_it_does_not_have() -> None:
    """Other programs refuse NaN."""
    assert json.loads(as_json({"a": [math.nan, 1.5], "b": -math.inf})) == {"a": ["nan", 1.5], "b": "-inf"}
    assert table(["a\x1b"], [["b\x1b"]]).replace("\n", "").isprintable()


def test_a_bounded_read_ends_with_the_partition() -> None:
    """Behind an open transaction nothing can be read, for as long as it is open."""
    assert not is_read(7, 10, at_end=False)
    assert is_read(9, 10, at_end=False)
    assert is_read(7, 10, at_end=True)


def test_lines_of_a_pipe_are_handed_on_while_it_is_open() -> None:
    """Lines that were read before Ctrl-C are written, too."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as source, os.fdopen(writing, "w") as sink:
        found = pieces(source, 3, 0.05)
        sink.write("a\nb\n")
        sink.flush()
        assert next(found) == ["a", "b"]
        sink.write("1\n2\n3\n4\n")
        sink.close()
        assert list(found) == [["1", "2", "3"], ["4"]]


def test_ctrl_c_comes_after_the_lines_that_were_read() -> None:
    """A line that was taken from a pipe is in nobody's hands but ours."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as source, os.fdopen(writing, "w") as sink:
        sink.write("a\n")
        sink.flush()
        found = pieces(source, 100, 60.0)
        main = threading.main_thread().ident
        assert main is not None
        threading.Timer(0.3, signal.pthread_kill, [main, signal.SIGINT]).start()
        assert next(found) == ["a"]
        with pytest.raises(KeyboardInterrupt):
            next(found)


def test_no_record_commands_the_terminal() -> None:
    """Neither strings, whose serde returns any character, nor names of topics can control it."""
    text = reader_of(RecordForm.STRING, Serdes.of)
    shown = record_as_dict(KafkaRecord("t\x07", 0, 0, b"\x1b]0;x\x07", b"a\nb\x9b", 0), text, text)
    line = record_line(shown, headers=True)
    assert line.isprintable()
    assert "\\x1b]0;x\\x07" in line


@pytest.mark.parametrize(
    ("form", "text", "data"),
    [
        (RecordForm.STRING, "ann", b"ann"),
        (RecordForm.AUTO, "7", b"7"),
        (RecordForm.LONG, "-7", struct.pack(">q", -7)),
        (RecordForm.DOUBLE, "2.5", struct.pack(">d", 2.5)),
        (RecordForm.BOOLEAN, "True", b"\x01"),
        (RecordForm.JSON, '{"a": [1, "ü"]}', '{"a":[1,"ü"]}'.encode()),
        (RecordForm.BYTES, "/wA=", b"\xff\x00"),
        (RecordForm.UUID, "00000000-0000-0000-0000-000000000001", b"00000000-0000-0000-0000-000000000001"),
        (RecordForm.LONG, None, None),
    ],
)
def test_what_is_typed_becomes_the_bytes_of_its_serde(
    form: RecordForm, text: str | None, data: bytes | None
) -> None:
    """Reading the bytes returns what was typed."""
    assert written(form, text, Serdes.of) == data


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (RecordForm.LONG, "x"),
        (RecordForm.SHORT, "70000"),
        (RecordForm.JSON, "{"),
        (RecordForm.BYTES, "?"),
        (RecordForm.BOOLEAN, "1"),
    ],
)
def test_what_does_not_fit_its_serde_is_refused(form: RecordForm, text: str) -> None:
    """The error says what is expected."""
    with pytest.raises(typer.BadParameter, match=f"is not valid as {form.value}"):
        written(form, text, Serdes.of)


def line_of(text: str | None, **given: object) -> KafkaRecord:
    usual = KafkaRecord("t", -1, -1, None, None, -1, (("h", b"1"),))

    def data(part: str | None) -> bytes | None:
        return None if part is None else part.encode()

    return record_of_line(text, usual, data, data, **given)  # type: ignore[arg-type]


def test_a_line_is_a_value_or_a_key_and_a_value_or_json() -> None:
    """The output of `tail --json` can be written again."""
    assert line_of("v", key_text="k") == KafkaRecord("t", -1, -1, b"k", b"v", -1, (("h", b"1"),))
    split = line_of("k:v:w", separator=":")
    assert (split.key, split.value) == (b"k", b"v:w")
    assert line_of(None, key_text="k").value is None
    whole = line_of(
        '{"key": "k", "value": {"a": 1}, "headers": [["x", "y"], ["z", null]], "partition": 2}', is_json=True
    )
    assert (whole.key, whole.value, whole.partition) == (b"k", b'{"a": 1}', 2)
    assert whole.headers == (("h", b"1"), ("x", b"y"), ("z", None))
    assert line_of('{"value": null}', is_json=True).value is None


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("kv", {"separator": ":"}),
        ("{", {"is_json": True}),
        ("[1]", {"is_json": True}),
        ('{"value": 1, "partition": "x"}', {"is_json": True}),
    ],
)
def test_a_line_that_does_not_fit_is_an_error_of_usage(text: str, given: dict[str, object]) -> None:
    """Nothing of it is written."""
    with pytest.raises(typer.BadParameter):
        line_of(text, **given)


def test_reading_begins_at_the_last_records_an_offset_or_a_time() -> None:
    """The start is never before the first record or after the end."""
    log = FakeLog()
    topics = FakeTopics({"t": 2}, log)
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    for number in range(20):
        log.append(one, (b"k", b"v", number))
    log.truncate(one, 5)
    parts, ends = [one, two], {one: 20, two: 0}
    assert first_offsets(topics, Begin(), 10, parts, ends) == {one: 10, two: 0}  # type: ignore[arg-type]
    assert first_offsets(topics, Begin(), 50, parts, ends) == {one: 5, two: 0}  # type: ignore[arg-type]
    assert first_offsets(topics, Begin(), None, parts, ends) == {one: 5, two: 0}  # type: ignore[arg-type]
    assert first_offsets(topics, Begin(offset=7), None, parts, ends) == {one: 7, two: 0}  # type: ignore[arg-type]
    assert first_offsets(topics, Begin(time_ms=12), None, parts, ends) == {one: 12, two: 0}  # type: ignore[arg-type]
    assert first_offsets(topics, Begin(offset=99), None, parts, ends) == {one: 20, two: 0}  # type: ignore[arg-type]


def test_times_and_headers_are_parsed() -> None:
    """A time without a zone is UTC; what is neither is told with an example."""
    assert begin_of(None) == begin_of("earliest") == Begin()
    assert begin_of("120") == Begin(offset=120)
    assert begin_of("2026-07-01T12:00:00.123") == Begin(time_ms=1_782_907_200_123)
    assert parse_time("1782907200123", "x") == parse_time("2026-07-01T14:00:00.123+02:00", "x")
    assert shown_time(-(10**18)) == "-1000000000000000000"
    assert parse_header("a=b=c") == ("a", b"b=c")
    for wrong in (lambda: begin_of("soon"), lambda: parse_header("a")):
        with pytest.raises(typer.BadParameter):
            wrong()


def test_lag_is_what_is_left_to_read() -> None:
    """What was deleted unread is none; a topic that is gone is left out."""
    at, gone = TopicPartition("t", 0), TopicPartition("u", 0)
    rows = lags({at: 3, gone: 1}, {at: 5}, {at: 12})
    assert rows == [(at, 3, 12, 7)]
    assert lag_as_dict("app", rows)["lag"] == 7
    assert lag_table(rows).splitlines() == [
        "TOPIC  PARTITION  OFFSET  END  LAG",
        "t              0       3   12    7",
        "all                              7",
    ]
