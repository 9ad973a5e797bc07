"""Drives Spark with the records of Kafka Streams' traces (tests/snapshots/traces).

Many programs run side by side in one topology. The records of all topics of a program come in one topic, so
that their order is that of the trace; a header says whose a record is, and of which topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from driving import STRINGS, records
from pyspark.sql import functions as F
from snapshots.traces import Headers, Record, Row, Step, Trace

from millstream import KStream, Serde, Serdes, StreamsBuilder, Topology, Windowed
from millstream.testing import TestRecord, TopologyTestDriver

__all__ = [
    "TOGETHER",
    "Driven",
    "came",
    "in_bytes",
    "logged",
    "logged_there",
    "ms",
    "own",
    "pipe_in_order",
    "pipe_in_turns",
    "pipe_part",
    "row_of",
    "stamped",
    "topology_of",
]

TOGETHER = 8
"""How many programs read one source: all of these are one operator. Fewer are more queries, which take long
to start; with more, each of their plans takes longer."""


class Driven(Protocol):
    """A trace's program, under a number; what it gives goes to the topic `out-` and that number."""

    number: int
    trace: Trace

    def build(self, source: KStream) -> None: ...

    @property
    def key_serde(self) -> Serde: ...

    @property
    def value_serde(self) -> Serde: ...


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def topology_of(programs: Sequence[Driven]) -> Topology:
    """All of them in one topology. What reads one source is one query, with one operator."""
    builder = StreamsBuilder()
    for first in range(0, len(programs), TOGETHER):
        source = builder.stream(f"in-{first // TOGETHER}", STRINGS)
        for program in programs[first : first + TOGETHER]:
            program.build(source)
    return builder.build()


def own(source: Any, program: Driven, topic: str = "in") -> Any:
    """The program's records of one of its topics."""
    mine = f"{program.number} {topic}"
    return source.filter(
        lambda key, value, record: F.element_at(record.headers, 1)["value"].cast("string") == mine
    )


def stamped(program: Driven, record: Record) -> TestRecord:
    """A record of a trace, which says whose it is."""
    value = None if record.value is None else str(record.value)
    header = ("number", f"{program.number} {record.topic}".encode())
    return TestRecord(record.key, value, record.timestamp, (header, *in_bytes(record.headers)))


def in_bytes(headers: Headers) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, None if value is None else value.encode()) for name, value in headers)


def pipe_part(driver: TopologyTestDriver, programs: Sequence[Driven], part: int, parts: int) -> None:
    """A part of all records, as one batch of each source; the programs' records in turns."""
    these = {}
    for program in programs:
        mine = program.trace.records
        first, end = (-(-place * len(mine) // parts) for place in (part, part + 1))
        these[program.number] = mine[first:end]
    pipe_in_turns(driver, programs, these)


def pipe_in_order(
    driver: TopologyTestDriver, programs: Sequence[Driven], *, singly: Collection[str] = ()
) -> None:
    """All records, in few batches: one ends where the next record of a program is not later.

    Behind a shuffle a batch's records are in the order of their times, and so in that of the trace.

    Args:
        singly: the names of traces of which each record is a batch.
    """
    parts = {
        program.number: [[record] for record in program.trace.records]
        if program.trace.name in singly
        else _rising(program.trace.records)
        for program in programs
    }
    for place in range(max(map(len, parts.values()))):
        now = {number: mine[place] for number, mine in parts.items() if place < len(mine)}
        pipe_in_turns(driver, programs, now)


def _rising(every: Sequence[Record]) -> list[list[Record]]:
    """The records, cut wherever one is not later than the one before it."""
    parts: list[list[Record]] = []
    for record in every:
        if not parts or record.timestamp <= parts[-1][-1].timestamp:
            parts.append([])
        parts[-1].append(record)
    return parts


def pipe_in_turns(
    driver: TopologyTestDriver, programs: Sequence[Driven], by_number: Mapping[int, Sequence[Record]]
) -> None:
    """A batch of each source: a record of each program, then the next one of each."""
    batches: dict[str, list[TestRecord]] = defaultdict(list)
    for step in range(max(map(len, by_number.values()))):
        for program in programs:
            for record in by_number.get(program.number, ())[step : step + 1]:
                batches[f"in-{program.number // TOGETHER}"].append(stamped(program, record))
    for topic, batch in batches.items():
        driver.create_input_topic(topic, Serdes.string(), Serdes.string()).pipe_record_list(batch)


def came(driver: TopologyTestDriver, program: Driven) -> list[Row]:
    """What the program has written since it was asked last."""
    found = records(driver, f"out-{program.number}", program.key_serde, program.value_serde)
    return [row_of(each) for each in found]


Logged = dict[bytes | None, tuple[bytes | None, int]]
"""What a changelog has of each key, in bytes: the value, and the timestamp."""


def logged(driver: TopologyTestDriver, store: str) -> Logged:
    """What a store has written to its changelog since it was asked last."""
    written = records(driver, f"app-{store}-changelog", "bytes", "bytes")
    return {each.key: (each.value, each.timestamp) for each in written}


def logged_there(trace: Trace, step: Step, place: int) -> Logged:
    """What Kafka Streams has written of the store of an operation. Sources: WindowKeySchema,
    SessionKeySchema."""
    windows = [op["windows"] for op in trace.program[:place] if op["op"] == "windowed_by"]
    before = [trace.program[each] for each in trace.inputs[place]]
    sequence = bytes(4) if any("windows" in op for op in before) else b""  # not of keys that have windows
    found: Logged = {}
    for row in step.log.get(trace.program[place]["store"], ()):
        assert row.key is not None and row.timestamp is not None  # noqa: PT018
        key, value = row.key.encode(), row.value
        if row.start is not None and row.end is not None:
            start, end = (time.to_bytes(8, "big", signed=True) for time in (row.start, row.end))
            key += end + start if windows[-1] == "session" else start + sequence
        if isinstance(value, int):
            found[key] = value.to_bytes(8, "big", signed=True), row.timestamp
        else:
            found[key] = None if value is None else value.encode(), row.timestamp
    return found


def row_of(record: TestRecord) -> Row:
    """What came out, as a row of a trace."""
    key = record.key
    if isinstance(key, Windowed):
        return Row(key.key, record.value, record.timestamp, key.window.start_ms, key.window.end_ms)
    return Row(key, record.value, record.timestamp)
