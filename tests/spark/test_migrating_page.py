"""docs/migrating.md: its programs in Python do what those in Java beside them do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from millstream import Serde, Serdes, Topology
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migrating.md"
TEXT = Serdes.string()


def program(heading: str) -> Topology:
    """The one in Python under a heading."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition(f"\n### {heading}\n")
    (code, *_) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    made: dict[str, Any] = {"__name__": "a_document"}
    exec(compile(code, heading, "exec"), made)
    topology = made["topology"]
    assert isinstance(topology, Topology)
    return topology


def written(
    heading: str,
    records: list[tuple[str, str | None, Any, int]],
    serdes: dict[str, Serde],
    output: str,
    written_by: Serde,
) -> list[tuple[Any, Any]]:
    """What comes of records in their order; each has a topic, a key, a value and a time."""
    with TopologyTestDriver(program(heading), record_by_record=True) as driver:
        for topic, key, value, time in records:
            driver.create_input_topic(topic, TEXT, serdes[topic]).pipe_input(key, value, timestamp=time)
        told = driver.create_output_topic(output, TEXT, written_by).read_records_to_list()
        return [(record.key, record.value) for record in told]


def test_the_programs_beside_those_in_java_run() -> None:
    """Words are counted; a window tells its maximum when it closes; orders find customers; repeats go."""
    words = written(
        "A word count",
        [("lines", None, "Hello world", 0), ("lines", None, "hello!", 1)],
        {"lines": TEXT},
        "word-counts",
        Serdes.long(),
    )
    assert sorted(words) == [("hello", 1), ("hello", 2), ("world", 1)]
    highest = written(
        "Windows",
        [("readings", "a", 1.0, 0), ("readings", "a", 3.0, 1), ("readings", "a", 2.0, 360_000)],
        {"readings": Serdes.double()},
        "highest-readings",
        Serdes.double(),
    )
    assert highest == [("[a@0/300000]", 3.0)]
    lines = written(
        "Joins",
        [
            ("customers", "c1", {"name": "Ann", "city": "Bonn"}, 0),
            ("orders", "o1", {"customer": "c1", "amount": 2.5}, 1),
            ("orders", "o2", {"customer": "c2", "amount": 1.0}, 2),
        ],
        {
            "customers": Serdes.json("name STRING, city STRING"),
            "orders": Serdes.json("customer STRING, amount DOUBLE"),
        },
        "lines",
        Serdes.json("amount DOUBLE, name STRING"),
    )
    assert lines == [("c1", {"amount": 2.5, "name": "Ann"}), ("c2", {"amount": 1.0, "name": "unknown"})]
    events = written(
        "Processors",
        [("events", "x", "1", 0), ("events", "x", "2", 1), ("events", "y", "3", 2)],
        {"events": TEXT},
        "unique-events",
        TEXT,
    )
    assert events == [("x", "1"), ("y", "3")]
