"""KStream.peek and KStream.foreach: Python functions over the records of a micro-batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driving import STRINGS, pipe, read, rows
from pyspark.sql import functions as F

from millstream import Consumed, Materialized, PipelineException, Serdes, StreamsBuilder
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


def noting(path: Path) -> Callable[[Any, Any], None]:
    """A function that leaves a line for each record: it runs in another process, so in a file."""

    def note(key: Any, value: Any) -> None:
        with path.open("a") as file:
            file.write(f"{key!r} {value!r}\n")

    return note


def noted(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_peek_sees_each_record_once_and_passes_it_on(tmp_path: Path) -> None:
    """Whatever comes after it, a branch, an aggregation, both or nothing, it is called once per record."""
    forked, counted, alone, chained = (tmp_path / name for name in ("forked", "counted", "alone", "chained"))
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    fork = stream.peek(noting(forked))
    fork.to("out")
    fork.group_by_key().count(Materialized.as_("forked"))
    builder.stream("only-counted", STRINGS).peek(noting(counted)).group_by_key().count(
        Materialized.as_("only")
    )
    stream.peek(noting(alone))
    (
        stream.filter(lambda value: value == "v")
        .flat_map_values(lambda value: F.array(value, F.upper(value)))
        .peek(noting(chained))
    )
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "v"), (None, None))
        pipe(driver, "only-counted", ("a", "b"))
        assert read(driver, "out") == [("k", "v"), (None, None)]
        assert rows(driver, "forked") == {"k": 1}
        assert rows(driver, "only") == {"a": 1}
        assert noted(forked) == noted(alone) == ["'k' 'v'", "None None"]
        assert noted(counted) == ["'a' 'b'"]
        assert noted(chained) == ["'k' 'v'", "'k' 'V'"]


def test_peek_sees_each_record_once_where_a_later_operator_reads_the_stream_again(tmp_path: Path) -> None:
    """What was seen is joined with what was counted of it; and so is what came before it."""
    behind, beside = (tmp_path / name for name in ("behind", "beside"))
    builder = StreamsBuilder()
    one = builder.stream("one", STRINGS).peek(noting(behind))
    one.join(one.group_by_key().count(), lambda value, count: F.concat(value, count)).to("out-one")
    other = builder.stream("other", STRINGS)
    counts = other.peek(noting(beside)).group_by_key().count()
    other.join(counts, lambda value, count: F.concat(value, count)).to("out-other")
    with TopologyTestDriver(builder.build()) as driver:
        for name, noted_in in (("one", behind), ("other", beside)):
            pipe(driver, name, ("k", "v"))
            assert read(driver, f"out-{name}") == [("k", "v1")]
            assert noted(noted_in) == ["'k' 'v'"]


def test_foreach_ends_a_stream_and_gets_python_values(tmp_path: Path) -> None:
    """With two parameters it gets what a store would give; with one, the micro-batch as an Arrow table."""
    seen, tables = tmp_path / "seen", tmp_path / "tables"

    def table(batch: Any) -> None:
        with tables.open("a") as file:
            file.write(f"{batch.num_rows} {batch.schema.names} {batch.column('value').to_pylist()}\n")

    shape = Serdes.json("n INT, tags ARRAY<STRING>")
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(Serdes.uuid(), shape))
    stream.foreach(noting(seen))
    stream.map_values(lambda value: value.n).foreach(table)
    with TopologyTestDriver(builder.build()) as driver:
        key = "67c21fc8-5dd7-4b8c-8a5b-9e1e0d6ee2f4"
        pipe(driver, "in", (key, {"n": 1, "tags": ["a"]}), (None, None), key=Serdes.uuid(), value=shape)
        assert noted(seen) == [f"UUID('{key}') {{'n': 1, 'tags': ['a']}}", "None None"]
        assert noted(tables) == ["2 ['key', 'value', 'timestamp'] [1, None]"]
        assert driver.produced_topic_names == frozenset()


def test_a_failing_peek_ends_the_pipeline_with_its_own_error() -> None:
    """The exception's text and the line it came from are in the PipelineException."""

    def complain(key: Any, value: Any) -> None:
        raise ValueError(f"not {value}")

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).peek(complain).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        with pytest.raises(PipelineException, match="ValueError: not this") as caught:
            pipe(driver, "in", ("k", "this"))
        assert "test_peek.py" in str(caught.value)
