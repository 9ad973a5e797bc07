"""The test driver's record-by-record mode, held against what Kafka Streams' own driver has written."""

from __future__ import annotations

import pytest
from snapshots.traces import traces
from test_traces_on_spark import UNCACHED, Program, can_be_said, theirs
from trace_driving import came, stamped, topology_of

from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("file", ["chains", "suppress"])
def test_each_record_leads_to_what_kafka_streams_makes_of_it(file: str) -> None:
    """Step by step, against Kafka Streams' own traces."""
    chosen = [trace for trace in traces(file) if can_be_said(trace, in_python=False)][:3]
    programs = [Program(number, trace) for number, trace in enumerate(chosen)]
    with TopologyTestDriver(topology_of(programs), UNCACHED, record_by_record=True) as driver:
        topic = driver.create_input_topic("in-0", "string", "string")
        for program in programs:
            wanted = theirs(program)
            for record, step in list(zip(program.trace.records, program.trace.steps, strict=True))[:12]:
                topic.pipe_input(stamped(program, record))
                expected, wanted = wanted[: len(step.out)], wanted[len(step.out) :]
                assert came(driver, program) == expected, (program.trace.line, record)
