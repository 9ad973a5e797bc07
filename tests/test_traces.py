"""The traces of Kafka Streams (tests/snapshots/traces) are what their programs give, and can be read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from snapshots.kafka_streams import KafkaStreams
from snapshots.trace_cases import FILES, lines
from snapshots.traces import FOLDER, Record, Row, Step, difference, traces
from tiers import examples

BYTES_MAX = 2_000_000
"""All traces together: they are read in many tests, and their changes in reviews."""


def written(file: str) -> list[str]:
    return (FOLDER / f"{file}.jsonl").read_text("utf-8").splitlines()


def case_of(trace: str) -> str:
    """What was asked for a trace."""
    all = json.loads(trace)
    return json.dumps({name: all[name] for name in ("name", "program", "records")}, separators=(",", ":"))


def test_the_files_have_the_programs_and_records_that_are_written_here() -> None:
    """Whoever changes a case writes the traces anew."""
    assert sorted(path.stem for path in FOLDER.glob("*.jsonl")) == sorted(FILES)
    for file in FILES:
        assert [case_of(trace) for trace in written(file)] == lines(file), file


def test_each_trace_is_small_and_has_a_name_of_its_own() -> None:
    """They are read in many tests, and one that fails is found by its name."""
    assert sum(path.stat().st_size for path in FOLDER.glob("*.jsonl")) < BYTES_MAX
    names = [trace.name for trace in traces()]
    assert len(names) == len(set(names))


def test_a_trace_is_read_as_it_is_written() -> None:
    """Steps, rows with windows and without, changelogs, stores and the metric."""
    trace = next(
        trace for trace in traces("session") if trace.name == "session/dropped by the store's retention"
    )
    assert trace.operations == ("stream", "group_by_key", "windowed_by", "aggregate", "to_stream")
    assert trace.operation("windowed_by") == {
        "op": "windowed_by",
        "windows": "session",
        "gap": 10,
        "grace": 3,
    }
    assert trace.operation("suppress") == {}
    assert [(record.key, record.value, record.timestamp) for record in trace.records] == [
        ("a", "x1", 0),
        ("a", "x2", 15),
        ("a", "x3", 7),
    ]
    assert trace.steps[2] == Step(
        out=(Row("a", None, 15, 15, 15), Row("a", "+x2x3", 15, 7, 15)),
        log={"s": (Row("a", None, 7, 15, 15), Row("a", "+x2x3", 7, 7, 15))},
    )
    assert trace.stores == {"s": (Row("a", "+x2x3", None, 7, 15),)}
    assert trace.dropped == 0
    assert json.loads(trace.line)["name"] == trace.name


def test_a_program_of_several_sources_is_read_as_it_is_written() -> None:
    """It says which result each operation works on, and of which topic each record is."""
    trace = next(
        trace
        for trace in traces("stream_table")
        if trace.name == "stream_table/join with one, join with another"
    )
    assert trace.operations == ("table", "table", "stream", "join", "join")
    assert trace.inputs == ((), (), (), (2, 0), (3, 1))
    assert trace.records[:2] == (Record("a", "a", 1), Record("a", "A", 2, topic="t"))
    assert [str(record) for record in trace.records[-3:]] == ["null=h@10", "a=null@11", "u:null=W@12"]
    own = next(
        trace for trace in traces("stream_table") if trace.name.endswith("join, the count of the same stream")
    )
    assert own.inputs == ((), (0,), (1,), (0, 2))
    headers = traces("headers")[0]
    assert (headers.records[0].headers, headers.records[0].topic) == ((("h", "h1"),), "in")


def test_steps_and_the_metric_agree() -> None:
    """One step for each record, unless the program failed; and the drops add up."""
    for trace in traces():
        failed = any(step.error for step in trace.steps)
        assert len(trace.steps) == len(trace.records) or failed, trace.name
        assert sum(step.dropped for step in trace.steps) == trace.dropped, trace.name


def test_a_difference_is_shown_with_the_records_up_to_it() -> None:
    """A trace does not differ from its own steps."""
    trace = traces("time")[0]
    steps = list(trace.steps)
    assert difference(trace, steps) is None
    other = [*steps[:2], replace(steps[2], out=()), *steps[3:]]
    text = difference(trace, other)
    assert text is not None
    assert "  a=x1@0\n  a=x2@9\n  a=x3@10\nout is\n  ()\nexpected\n  (Row(key='a', value='x3'" in text
    assert difference(trace, other, ignore=["out"]) is None
    assert difference(trace, steps[:-1]) == f"{trace.name}: 4 steps, expected 5"
    assert difference(trace, [*steps, Step()]) == f"{trace.name}: 6 steps, expected 5"


@pytest.mark.spark  # not that it needs Spark: it computes for as long as such tests do
@pytest.mark.timeout(300)  # all traces are one call
def test_kafka_streams_gives_these_traces(tmp_path: Path) -> None:
    """Real Kafka Streams, on the same programs and records: a quarter of the traces; all by night."""
    expected: list[str] = []
    for file in FILES:
        every = written(file)
        expected += every[:: len(every) // examples(len(every))]
    found = KafkaStreams(tmp_path).ask(map(case_of, expected))
    assert len(found) == len(expected)
    wrong = [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]]
    assert not wrong, "\n".join(f"{given}\nis not what is written:\n{trace}" for given, trace in wrong[:3])
