"""Joins and grouped tables as tasks, held against what Kafka Streams' own driver has written, record by record."""

from __future__ import annotations

from itertools import takewhile

import pytest
from snapshots.traces import traces
from test_joins_on_spark import Program, can_be_said, is_asked_for_late
from test_joins_on_spark import without_false_results
from trace_driving import TOGETHER, came, stamped, topology_of

from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

FILES = ("grouped_table", "joined_tables", "stream_stream", "stream_table", "table_filter", "table_table", "foreign_key")


@pytest.fixture(autouse=True)
def _tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_ENGINE", "tasks")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.timeout(600)
def test_each_record_leads_to_what_kafka_streams_makes_of_it(file: str) -> None:
    """All results and deletions, in the same order, with the same times."""
    import os
    most = int(os.environ.get("MOST", "16"))
    every = [trace for trace in traces(file) if can_be_said(trace)]
    every = every[:: max(1, len(every) // most)]
    wrong = []
    for first in range(0, len(every), 8):
        programs = [Program(number, trace) for number, trace in enumerate(every[first : first + 8])]
        try:
          with TopologyTestDriver(topology_of(programs), {"application.id": "app", "statestore.cache.max.bytes": 0}) as driver:
            for program in programs:
                topic = driver.create_input_topic(f"in-{program.number // TOGETHER}", "string", "string")
                for record in program.trace.records:
                    topic.pipe_input(stamped(program, record))
                sent = [each for step in program.trace.steps for each in step.out]
                if "before" in program.trace.program[-1]:
                    sent = without_false_results(program.trace)
                found = came(driver, program)
                if is_asked_for_late(program.trace):
                    found, sent = sorted(found, key=str), sorted(sent, key=str)
                if found != sent:
                    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(found, sent, strict=False))))
                    wrong.append(f"{program.trace.name}, row {same}: {found[same:same+3]} for {sent[same:same+3]}")
        except Exception as e:
            wrong.append(f"{[p.trace.name for p in programs]}: {type(e).__name__} {str(e)[:300]}")
    assert not wrong, f"{len(wrong)} of {len(every)}\n" + "\n".join(wrong)
