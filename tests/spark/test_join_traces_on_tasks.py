"""Joins and grouped tables as tasks, held against what Kafka Streams' own driver has written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from snapshots.traces import Record, Trace, traces, without_false_results
from test_joins_on_spark import Program, can_be_said, is_asked_for_late, spread
from trace_driving import TOGETHER, came, logged, logged_there, stamped, topology_of

from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

OTHERWISE = {
    "grouped_table/how many keys have a count": "a group may be told to subtract what it never had",
    "grouped_table/sessions by key": "parts have one rule for records and for sessions, without a mark",
    "stream_stream/outer_join, windows, count": "what finds no match comes before its window is closed",
}
"""What differs, and why."""
FILES = (
    "foreign_key",
    "grouped_table",
    "joined_tables",
    "stream_stream",
    "stream_table",
    "table_filter",
    "table_table",
)
MOST = 16
"""So many of a file's traces."""


@pytest.mark.parametrize("file", FILES)
@pytest.mark.timeout(600)
def test_each_record_leads_to_what_kafka_streams_makes_of_it(file: str) -> None:
    """All results and deletions, in the same order, with the same times; and what is dropped."""
    every = [trace for trace in traces(file) if can_be_said(trace) and trace.name not in OTHERWISE]
    chosen = spread(every, MOST)
    wrong = []
    for first in range(0, len(chosen), TOGETHER):
        programs = [Program(number, trace) for number, trace in enumerate(chosen[first : first + TOGETHER])]
        config = {"application.id": "app", "statestore.cache.max.bytes": 0}
        with TopologyTestDriver(topology_of(programs), config) as driver:
            topic = driver.create_input_topic("in-0", "string", "string")
            for program in programs:
                trace = program.trace
                stores = [place for place, op in enumerate(trace.program) if is_logged(op)]
                forgotten = Forgotten(trace)
                for record, step in zip(trace.records, trace.steps, strict=True):
                    before = driver.dropped_records
                    topic.pipe_input(stamped(program, record))
                    dropped = driver.dropped_records - before + forgotten.count(record)
                    if dropped != step.dropped and forgotten.is_known:
                        wrong.append(f"{trace.name}, {record}: {dropped} dropped for {step.dropped}")
                    for place in () if is_asked_for_late(trace) else stores:
                        log, theirs = (
                            logged(driver, f"store-{program.number}-{place}"),
                            logged_there(trace, step, place),
                        )
                        if log != theirs:
                            wrong.append(f"{trace.name}, {record}: {place} {log} for {theirs}")
                found, wanted = came(driver, program), expected(trace)
                if is_asked_for_late(program.trace):
                    found, wanted = sorted(found, key=str), sorted(wanted, key=str)
                if found != wanted:
                    wrong.append(f"{program.trace.name}: {found} for {wanted}")
    assert not wrong, "\n".join(wrong)


class Forgotten:
    """What is older than the history of a table: only Kafka Streams counts it as dropped.

    Attributes:
        is_known: whether all tables with a history are those of topics.
    """

    def __init__(self, trace: Trace) -> None:
        histories = [op for op in trace.program if "history" in op]
        self.is_known = all(op["op"] == "table" for op in histories)
        self._history = {op.get("topic", "in"): op["history"] for op in histories}
        self._newest: dict[str, int] = {}

    def count(self, record: Record) -> int:
        topic = record.topic
        if topic not in self._history or record.key is None:
            return 0
        newest = self._newest[topic] = max(self._newest.get(topic, 0), record.timestamp)
        return int(record.timestamp < newest - self._history[topic])


def is_logged(op: Mapping[str, Any]) -> bool:
    """Whether it has a store, the changelog of which is the same as in Kafka Streams."""
    return "store" in op


def expected(trace: Trace) -> list[object]:
    if "before" in trace.program[-1]:
        return list(without_false_results(trace))
    return [each for step in trace.steps for each in step.out]
