"""KStream.print, and what functions of peek and foreach print: it appears in the program's own output.

A program of its own, with a client, prints in tests/spark/test_jvm_killed.py.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from driving import STRINGS, pipe, read

from millstream import (
    Consumed,
    PipelineException,
    Printed,
    Serdes,
    StreamsBuilder,
    TimeWindows,
    TopologyException,
)
from millstream.testing import TopologyTestDriver


@pytest.mark.spark
def test_a_line_for_each_record_as_kafka_streams_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    """`[label]: key, value`; without a label, the name of the operation before, whatever its own is."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.print(Printed.to_sys_out())
    stream.map_values(lambda value: value, named="mapped").print(Printed.to_sys_out().with_name("printer"))
    stream.print(
        Printed.to_sys_out().with_label("ä").with_key_value_mapper(lambda key, value: f"{value}={key}")
    )
    stream.to("out")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "v"), (None, None), ("k", "w"))
        assert read(driver, "out") == [("k", "v"), (None, None), ("k", "w")]
        lines = capsys.readouterr().out.splitlines()
        for label in ("KSTREAM-SOURCE-0000000000", "mapped"):
            assert [line for line in lines if label in line] == [
                f"[{label}]: k, v",
                f"[{label}]: null, null",
                f"[{label}]: k, w",
            ]
        assert [line for line in lines if "ä" in line] == ["[ä]: v=k", "[ä]: None=None", "[ä]: w=k"]
        assert len(lines) == 9
        pipe(driver, "in", ("k", "later"))
        assert "[mapped]: k, later" in capsys.readouterr().out.splitlines()


@pytest.mark.spark
def test_values_are_printed_as_python_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Windowed keys as Kafka's; into a file, which is emptied first."""
    path = tmp_path / "printed.txt"
    path.write_text("of an earlier run\n")
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(Serdes.string(), Serdes.boolean()))
    windows = TimeWindows.of_size_with_no_grace(timedelta(milliseconds=10))
    counted = stream.group_by_key().windowed_by(windows).count().to_stream()
    counted.print(Printed.to_file(path).with_label("counts"))
    stream.print(Printed.to_sys_out().with_label("in"))
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", True, 12), ("k", False, 13), value=Serdes.boolean())
        assert path.read_text() == "[counts]: [k@10/20], 2\n"
        pipe(driver, "in", ("k", True, 14), value=Serdes.boolean())
        assert path.read_text().splitlines() == ["[counts]: [k@10/20], 2", "[counts]: [k@10/20], 3"]
    assert capsys.readouterr().out.splitlines() == ["[in]: k, true", "[in]: k, false", "[in]: k, true"]


@pytest.mark.spark
def test_what_peek_and_foreach_print_is_the_programs_output(capsys: pytest.CaptureFixture[str]) -> None:
    """Also bytes that are written to stdout, and what is printed of a whole table."""

    def raw(key: Any, value: Any) -> None:
        sys.stdout.buffer.write(f"raw {value}\n".encode())

    def table(batch: Any) -> None:
        print("rows:", batch.num_rows)

    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS).peek(print)
    stream.peek(raw).to("out")
    stream.foreach(table)
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "v"), ("k", "w"))
        assert sorted(capsys.readouterr().out.splitlines()) == ["k v", "k w", "raw v", "raw w", "rows: 2"]


@pytest.mark.spark
def test_a_stdout_that_cannot_be_written_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged; records go on."""
    path = tmp_path / "there" / "printed"
    path.parent.mkdir()
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.print(Printed.to_file(path))
    stream.to("out")
    path.unlink()
    path.parent.rmdir()
    with TopologyTestDriver(builder.build()) as driver:
        for value in "vw":
            pipe(driver, "in", ("k", value))
        assert read(driver, "out") == [("k", "v"), ("k", "w")]
    said = [record.getMessage() for record in caplog.records if "cannot be written" in record.getMessage()]
    assert said == ["the output of a function cannot be written"] * 2


@pytest.mark.spark
def test_a_mapper_that_fails_ends_the_pipeline() -> None:
    """As any Python function does."""
    builder = StreamsBuilder()
    printed = Printed.to_sys_out().with_key_value_mapper(lambda key, value: value.no_such_thing)
    builder.stream("in", STRINGS).print(printed)
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(PipelineException, match="no attribute 'no_such_thing'"),
    ):
        pipe(driver, "in", ("k", "v"))


def test_what_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    """In Kafka's words, where it has some; and a name that is taken."""
    with pytest.raises(TopologyException, match="filePath can't be an empty string"):
        Printed.to_file(" ")
    with pytest.raises(TopologyException, match="Unable to write stream to file at "):
        Printed.to_file(tmp_path / "not there" / "file")
    with pytest.raises(TopologyException, match="function of key and value"):
        Printed.to_sys_out().with_key_value_mapper(lambda value: value)  # type: ignore[misc, arg-type]
    stream = StreamsBuilder().stream("in")
    with pytest.raises(
        TopologyException, match=r"takes a Printed, such as Printed.to_sys_out\(\); got 'label'"
    ):
        stream.print("label")  # type: ignore[arg-type]
    stream.print(Printed.to_sys_out().with_name("mine"))
    with pytest.raises(TopologyException, match="a node named 'mine' already exists"):
        stream.print(Printed.to_sys_out().with_name("mine"))
