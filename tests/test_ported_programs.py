"""The well-known programs of examples/ported write what the originals write on Kafka Streams 4.3.1."""

from __future__ import annotations

import re
import runpy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from snapshots.ported_programs import FOLDER, PROGRAMS, answers, steps

from millstream import Serde, Serdes
from millstream.errors import StreamsException
from millstream.model import Windowed
from millstream.testing import TestRecord, TopologyTestDriver

NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py"))
BEGINNING = datetime.fromtimestamp(0, UTC)
# What is said of the record that ends a program.
ENDS = {
    "gdpr_tombstones": "the encryption key does not match",
    "global_stores": "EnrichedOrder says in the field 'customer'",
}
CONFIG = {"statestore.cache.max.bytes": 0, "schema.registry.url": "mock://ported"}


def test_each_program_has_an_original_and_records() -> None:
    """Each program has all three, so none goes untested."""
    java = {path.stem for path in (FOLDER / "java").glob("*.java")} - {"Ported"}
    assert sorted(path.stem for path in FOLDER.glob("*.jsonl")) == NAMES
    assert java == {name.title().replace("_", "") for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_each_program_names_its_source_and_what_it_cost(name: str) -> None:
    """Its first lines do, and its records have results."""
    text = (PROGRAMS / f"{name}.py").read_text("utf-8")
    assert re.search(r"^Ported from: \w+\.(java|clj)\s+of\s+[\w.-]+/[\w.-]+\s+\(", text, re.MULTILINE), name
    assert re.search(r"^What it cost: ", text, re.MULTILINE), name
    assert sum(len(step["out"]) for step in steps(name)) > 2


def test_the_page_about_porting_has_each_program() -> None:
    """The page quotes its docstring: `make docs` writes it, and tests/test_docs.py checks it."""
    page = (PROGRAMS.parent.parent / "docs" / "porting.md").read_text("utf-8")
    assert re.findall(r"\(\.\./examples/ported/(\w+)\.py\)", page) == NAMES


@pytest.mark.spark
@pytest.mark.parametrize("name", NAMES)
def test_each_program_gives_what_the_original_gives(name: str) -> None:
    """Record by record: topics, keys, values and times."""
    example = runpy.run_path(str(PROGRAMS / f"{name}.py"))
    values = {"dead_letters": Serdes.string(), "dynamic_topics": example.get("completed_order_serde")}
    serdes = (Serdes.string(), values[name]) if name in values else ()  # for topics that it does not name
    with TopologyTestDriver(
        example["topology"],
        {**CONFIG, **example.get("config", {})},
        initial_wall_clock_time=BEGINNING,
        record_by_record=True,
    ) as driver:
        for step in steps(name):
            if step["in"][0] == "store":
                assert kept(driver, step["in"][1]) == plain(step["out"])
                continue
            if step["in"][0] == "advance":
                driver.advance_wall_clock_time(timedelta(milliseconds=step["in"][1]))
            elif step["out"] == ["error"]:
                with pytest.raises(StreamsException, match=ENDS[name]):
                    pipe(driver, *step["in"])
                continue
            else:
                pipe(driver, *step["in"])
            assert written(driver, serdes) == plain(step["out"]), step["in"]


def pipe(driver: TopologyTestDriver, topic: str, key: Any, value: Any, at: int) -> None:
    """Give the program a record."""
    driver.create_input_topic(topic).pipe_input(TestRecord(key, value, at))


def written(driver: TopologyTestDriver, serdes: tuple[Serde, ...]) -> list[Any]:
    """What came out since the last time."""
    rows = []
    for topic in sorted(driver.produced_topic_names):
        if not topic.startswith("test-"):
            output = driver.create_output_topic(topic, *serdes)
            rows += [
                [topic, plain(each.key), plain(each.value), each.timestamp]
                for each in output.read_records_to_list()
            ]
    return rows


def kept(driver: TopologyTestDriver, store: str) -> list[Any]:
    """What is in a store of keys and values."""
    return [[store, plain(key), plain(value)] for key, value in driver.get_key_value_store(store).all()]


def plain(value: Any) -> Any:
    """As JSON has it, without fields that are null: JSON of Java's leaves them out, or does not."""
    if isinstance(value, Windowed):
        return [plain(value.key), value.window.start_ms, value.window.end_ms]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


@pytest.mark.spark  # it needs none, but computes for as long as such tests do
def test_kafka_streams_gives_what_is_written(tmp_path: Path) -> None:
    """Real Kafka Streams, on the same records."""
    for name, found in zip(NAMES, answers(NAMES, tmp_path), strict=True):
        assert found == steps(name), name
