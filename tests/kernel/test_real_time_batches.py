"""The batches of a query in Real-Time Mode: when one waits, and whose run is forgotten; without Spark."""

from __future__ import annotations

import pytest
from java_programs import KernelJava


@pytest.mark.disk
def test_a_query_without_partitions_pauses_and_a_late_end_leaves_the_new_run_alone(
    kernel_java: KernelJava,
) -> None:
    """A pattern may match no topic yet, and batches would end at once. Who wants the end is heard. The first
    batches of a run are short."""
    assert kernel_java("io.millstream.kernel.realtime.BatchesMain").splitlines() == [
        "first waits: false",
        "without partitions waits: true",
        "with one waits: false",
        "settled: true",
        "the query is being stopped",
        "the new one is there: true",
        "forgotten: true",
        *(f"{seconds} s: true" for seconds in range(1, 6)),
        "the next one is over: false",
    ]
