"""Joins and grouped tables as tasks, held against what Kafka Streams' own driver has written."""

from __future__ import annotations

import pytest
from snapshots.traces import Trace, traces
from test_joins_on_spark import Program, can_be_said, is_asked_for_late, spread, without_false_results
from trace_driving import TOGETHER, came, stamped, topology_of

from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

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
OTHERWISE = {
    "grouped_table/aggregate concat unless -, a fold that gives null",
    "grouped_table/all that a fold has, which gives null",
    "joined_tables/left_join with a store, filter, outer_join",
    "joined_tables/outer_join with a store, filter, outer_join",
    "table_filter/random 1, last, filter",
    "table_filter/random 7, last, filter_not with a store",
    "table_filter/random 19, last, map_values with a store, filter",
    "table_table/join, a count with a fold",
    "table_table/outer_join, a count with a fold",
}
"""What differs, and is not understood yet."""


@pytest.fixture(autouse=True)
def _tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_ENGINE", "tasks")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.timeout(600)
def test_each_record_leads_to_what_kafka_streams_makes_of_it(file: str) -> None:
    """All results and deletions, in the same order, with the same times."""
    every = [trace for trace in traces(file) if can_be_said(trace)]
    chosen = [trace for trace in spread(every, MOST) if trace.name not in OTHERWISE]
    wrong = []
    for first in range(0, len(chosen), TOGETHER):
        programs = [Program(number, trace) for number, trace in enumerate(chosen[first : first + TOGETHER])]
        config = {"application.id": "app", "statestore.cache.max.bytes": 0}
        with TopologyTestDriver(topology_of(programs), config) as driver:
            topic = driver.create_input_topic("in-0", "string", "string")
            for program in programs:
                for record in program.trace.records:
                    topic.pipe_input(stamped(program, record))
                found, wanted = came(driver, program), expected(program.trace)
                if is_asked_for_late(program.trace):
                    found, wanted = sorted(found, key=str), sorted(wanted, key=str)
                if found != wanted:
                    wrong.append(f"{program.trace.name}: {found} for {wanted}")
    assert not wrong, "\n".join(wrong)


def expected(trace: Trace) -> list[object]:
    if "before" in trace.program[-1]:
        return list(without_false_results(trace))
    return [each for step in trace.steps for each in step.out]
