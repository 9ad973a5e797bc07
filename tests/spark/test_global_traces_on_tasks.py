"""Joins with global tables as tasks, held against what Kafka Streams' own driver has written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from driving import STRINGS
from snapshots.traces import Record, traces
from test_joins_on_spark import KEYS, Made, Program, joiner
from trace_driving import TOGETHER, came, stamped

from millstream import Consumed, Serdes, StreamsBuilder, Topology
from millstream.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark


@dataclass
class Joining(Program):
    """A program with global tables, each of which has a topic of its own."""

    builder: StreamsBuilder = field(default_factory=StreamsBuilder)
    of_long: set[str] = field(default_factory=set)

    def topic(self, record: Record) -> str:
        tables = {op["topic"] for op in self.trace.program if op["op"] == "global_table"}
        return f"{record.topic}-{self.number}" if record.topic in tables else "in"

    def piped(self, record: Record) -> TestRecord:
        if self.topic(record) == "in":
            return stamped(self, record)
        return TestRecord(record.key, record.value, record.timestamp)

    def _step(
        self, source: Any, before: Made | None, other: Made | None, op: Mapping[str, Any], place: int
    ) -> Made:
        if op["op"] == "global_table":
            topic = f"{op['topic']}-{self.number}"
            if op["values"] == "long":
                self.of_long.add(topic)
            consumed = Consumed.with_(Serdes.string(), Serdes.of(op["values"]))
            return Made(self.builder.global_table(topic, consumed))
        if "key" in op and "join" in op["op"]:
            assert before is not None
            assert other is not None
            selector = (lambda key, value: key) if op["key"] == "key" else KEYS[op["key"]]
            return Made(getattr(before.it, op["op"])(other.it, selector, joiner))
        return super()._step(source, before, other, op, place)


def topology_of(programs: Sequence[Joining]) -> Topology:
    builder = StreamsBuilder()
    source = builder.stream("in", STRINGS)
    for program in programs:
        program.builder = builder
        program.build(source)
    return builder.build()


def without_keys(program: Joining) -> int:
    """How many records of global topics have none: only Kafka Streams counts them."""
    return sum(each.key is None and program.topic(each) != "in" for each in program.trace.records)


@pytest.mark.timeout(600)
def test_each_record_finds_the_row_that_kafka_streams_finds() -> None:
    """All results, in the same order, with the same times; and how many records are dropped."""
    every = list(traces("global_table"))
    wrong = []
    for first in range(0, len(every), TOGETHER):
        programs = [Joining(number, trace) for number, trace in enumerate(every[first : first + TOGETHER])]
        config = {"application.id": "app", "statestore.cache.max.bytes": 0}
        with TopologyTestDriver(topology_of(programs), config) as driver:
            for program in programs:
                before = driver.dropped_records
                for record in program.trace.records:
                    topic = program.topic(record)
                    values = "long" if topic in program.of_long else "string"
                    driver.create_input_topic(topic, "string", values).pipe_input(program.piped(record))
                found = came(driver, program)
                wanted = [each for step in program.trace.steps for each in step.out]
                dropped = driver.dropped_records - before
                theirs = wanted, program.trace.dropped - without_keys(program)
                if (found, dropped) != theirs:
                    wrong.append(f"{program.trace.name}: {found}, {dropped} dropped, for {theirs}")
    assert not wrong, "\n".join(wrong)
