"""The kernel's cores, without Spark: what they tell of each record is what Kafka Streams sends.

Expected values are the traces of Kafka Streams (tests/snapshots/traces).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from java_programs import KernelJava
from snapshots.traces import Row, Step, Trace, difference, step, traces

MAIN = "io.millstream.kernel.core.TracesMain"
FOLDS = ("count", "reduce", "aggregate")
DIFFERS = {
    "time/random 2": "a window of nulls has a time, in Kafka Streams it is as if there were none",
}
"""Where a core does not what Kafka Streams does."""


def fold_of(trace: Trace) -> Mapping[str, Any]:
    return next(op for op in trace.program if op["op"] in FOLDS)


def can_be_taken_apart(trace: Trace) -> bool:
    """Whether parts and rules can say what the program's function does; and Kafka Streams can run it."""
    if any(each.error for each in trace.steps):  # sliding windows of no length
        return False
    function = fold_of(trace).get("function", "count")
    if function == "concat unless -":  # forgets what it had
        return False
    # For these, what comes after a null begins anew, or a null is a value; parts pass over nulls.
    keeps_nulls = function in ("first", "last") or (fold_of(trace)["op"] == "reduce" and function == "concat")
    return not (keeps_nulls and any(record.value is None for record in trace.records))


def ask(kernel_java: KernelJava, cases: Iterable[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """The steps of each case."""
    said = kernel_java(MAIN, "".join(f"{json.dumps(case)}\n" for case in cases))
    return [json.loads(line) for line in said.splitlines()]


def case_of(trace: Trace, **more: Any) -> dict[str, Any]:
    records = [[record.key, record.value, record.timestamp] for record in trace.records]
    return {"program": trace.program, "records": records, **more}


def plain(steps: Iterable[Step]) -> list[Step]:
    """Texts without the marks of merged sessions: parts have one rule for records and for sessions."""
    return [Step(out=tuple(map(_plain, each.out)), dropped=each.dropped) for each in steps]


def _plain(row: Row) -> Row:
    value = row.value.replace("+", "") if isinstance(row.value, str) else row.value
    return Row(row.key, value, row.timestamp, row.start, row.end)


@pytest.mark.disk
@pytest.mark.parametrize("file", ["time", "session", "sliding"])
def test_each_record_leads_to_what_kafka_streams_sends(file: str, kernel_java: KernelJava) -> None:
    """Each record a micro-batch of its own: what is kept in between is all that there is."""
    chosen = [trace for trace in traces(file) if can_be_taken_apart(trace) and trace.name not in DIFFERS]
    assert len(chosen) >= 40
    bad = []
    for trace, steps in zip(chosen, ask(kernel_java, map(case_of, chosen)), strict=True):
        ours = plain(map(step, steps))
        theirs = Trace(
            trace.name, trace.program, trace.records, tuple(plain(trace.steps)), {}, trace.dropped, ""
        )
        said = difference(theirs, ours, ignore=["log"])
        if said:
            bad.append(said)
    assert not bad, f"{len(bad)} of {len(chosen)}\n" + "\n".join(bad[:6])
