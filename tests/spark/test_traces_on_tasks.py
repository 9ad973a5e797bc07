"""Subtopologies as tasks, held against what Kafka Streams' own driver has written, record by record."""

from __future__ import annotations

import pytest
from snapshots.traces import Step, traces
from test_traces_on_spark import FOLDS, UNCACHED, Program, can_be_said, theirs
from trace_driving import TOGETHER, Logged, came, logged, logged_there, stamped, topology_of

from millstream.testing import TopologyTestDriver

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("on_tasks")]

FILES = ("chains", "emit_on_close", "own_windows", "session", "sliding", "suppress", "time", "unwindowed")
MOST = 8
"""So many programs share a topology."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("in_python", [False, True], ids=["columns", "python"])
def test_each_record_leads_to_what_kafka_streams_makes_of_it(file: str, in_python: bool) -> None:
    """Step by step, against Kafka Streams' own traces: what comes out, what stores log, and how many records
    are dropped."""
    chosen = [trace for trace in traces(file) if can_be_said(trace, in_python=in_python)]
    wrong = []
    for first in range(0, len(chosen), MOST):
        programs = [
            Program(number, trace, in_python) for number, trace in enumerate(chosen[first : first + MOST])
        ]
        topology = topology_of(programs)
        with TopologyTestDriver(topology, UNCACHED) as driver:
            for program in programs:
                topic = driver.create_input_topic(f"in-{program.number // TOGETHER}", "string", "string")
                wanted = theirs(program)
                for record, step in zip(program.trace.records, program.trace.steps, strict=True):
                    before = driver.dropped_records
                    topic.pipe_input(stamped(program, record))
                    expected, wanted = wanted[: len(step.out)], wanted[len(step.out) :]
                    found = [came(driver, program), logs(driver, program), driver.dropped_records - before]
                    if found != [expected, theirs_logged(program, step), step.dropped]:
                        wrong.append((program.trace.line[:300], record, found, expected, step))
                        break
    assert not wrong, "\n".join(str(each) for each in wrong) + f" of {len(chosen)}"


def places_of_stores(program: Program) -> list[int]:
    return [place for place, op in enumerate(program.trace.program) if op["op"] in FOLDS and "store" in op]


def logs(driver: TopologyTestDriver, program: Program) -> list[Logged]:
    return [logged(driver, f"store-{program.number}-{place - 1}") for place in places_of_stores(program)]


def theirs_logged(program: Program, step: Step) -> list[Logged]:
    """Without the marks of merged sessions, as `theirs`."""
    every = [logged_there(program.trace, step, place) for place in places_of_stores(program)]
    if program.in_python:
        return every
    return [
        {key: (value and value.replace(b"+", b""), time) for key, (value, time) in each.items()}
        for each in every
    ]
