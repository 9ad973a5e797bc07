"""Subtopologies as tasks, held against what Kafka Streams' own driver has written, record by record."""

from __future__ import annotations

import pytest
from snapshots.traces import traces
from test_traces_on_spark import UNCACHED, Program, can_be_said, tells_what_is_late, theirs, too_late
from trace_driving import TOGETHER, came, stamped, topology_of

from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

FILES = ("chains", "emit_on_close", "own_windows", "session", "sliding", "suppress", "time", "unwindowed")
MOST = 8
"""So many programs share a topology."""


@pytest.fixture(autouse=True)
def _tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_ENGINE", "tasks")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("in_python", [False, True], ids=["columns", "python"])
def test_each_record_leads_to_what_kafka_streams_makes_of_it(file: str, in_python: bool) -> None:
    """Step by step, against Kafka Streams' own traces; and how many records were late."""
    chosen = [trace for trace in traces(file) if can_be_said(trace, in_python=in_python)]
    wrong = []
    for first in range(0, len(chosen), MOST):
        programs = [Program(number, trace) for number, trace in enumerate(chosen[first : first + MOST])]
        topology = topology_of(programs)
        nodes = {node.store.name: node.name for node in topology.nodes if node.store is not None}
        with TopologyTestDriver(topology, UNCACHED) as driver:
            for program in programs:
                topic = driver.create_input_topic(f"in-{program.number // TOGETHER}", "string", "string")
                wanted = theirs(program)
                for record, step in zip(program.trace.records, program.trace.steps, strict=True):
                    topic.pipe_input(stamped(program, record))
                    expected, wanted = wanted[: len(step.out)], wanted[len(step.out) :]
                    if (found := came(driver, program)) != expected:
                        wrong.append((program.trace.line[:300], record, found, expected))
                        break
                if tells_what_is_late(program.trace):
                    late = sum(each.drops.by_node[nodes[program.first_store]] for each in driver._pipelines)
                    if late != too_late(program.trace):
                        wrong.append((program.trace.line[:300], "late", late, too_late(program.trace)))
    assert wrong == [], (len(wrong), len(chosen))
