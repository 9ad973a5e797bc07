"""Spark's progress reports, as it writes them, become values."""

from __future__ import annotations

import json
from typing import Any

from millstream.model import BatchReport, TopicPartition, WrittenReport
from millstream.spark.run.dropped import DropWatch, read_drops
from millstream.spark.run.progress import read_report

IN = {"startOffset": {"in": {"0": 5, "1": 7}}, "endOffset": {"in": {"0": 9, "1": 7}}}
REPORT: dict[str, Any] = {
    "batchId": 3,
    "timestamp": "2026-01-01T00:00:00.000Z",
    "numInputRows": 8,
    "inputRowsPerSecond": 40.0,
    "processedRowsPerSecond": 80.5,
    "durationMs": {
        "addBatch": 80,
        "commitOffsets": 4,
        "getBatch": 0,
        "triggerExecution": 100,
        "walCommit": 6,
    },
    "sources": [
        {**IN, "latestOffset": {"in": {"0": 19, "1": 7}}, "numInputRows": 4},
        {**IN, "latestOffset": {"in": {"0": 19, "1": 7}}, "numInputRows": 4},
    ],
    "sink": {"description": "records", "numOutputRows": -1},
}


def test_a_report_tells_what_was_read_and_what_is_left() -> None:
    """Offsets give the counts. A topic that is read for two outputs counts once."""
    report = read_report("p0", REPORT, {("late", "COUNT"): 2})
    assert report.read == {TopicPartition("in", 0): 4, TopicPartition("in", 1): 0}
    assert report.records == 4
    assert report.lag == {TopicPartition("in", 0): 10, TopicPartition("in", 1): 0}
    assert (report.batch_id, report.executed, report.parts["walCommit"]) == (3, True, 6)
    assert (report.input_rate, report.processed_rate) == (40.0, 80.5)
    assert report.dropped == {("late", "COUNT"): 2}


def test_a_report_tells_what_its_batch_has_written() -> None:
    """The counts are per topic. What the sink reported for the previous batch is not counted again."""
    told = {"batch": "3", "written:out": "7 350 6 -2 40 90", "written:app-s-changelog": "7 80"}
    of_batch = {**REPORT, "sink": {"metrics": told}}
    assert read_report("p0", of_batch, {}).written == {
        "out": WrittenReport(7, 350, timed=6, least_ms=-2, most_ms=40, sum_ms=90),
        "app-s-changelog": WrittenReport(7, 80),
    }
    assert read_report("p0", {**of_batch, "batchId": 4}, {}).written == {}


def test_a_report_tells_how_many_bytes_were_read() -> None:
    """The kernel's source counts them, once for a topic that is read for two outputs."""
    source = {**IN, "metrics": {"maxOffsetsBehindLatest": "10", "bytes": '{"in":{"0":120}}'}}
    report = read_report("p0", {**REPORT, "sources": [source, source]}, {})
    assert report.read_bytes == {TopicPartition("in", 0): 120}
    assert read_report("p0", REPORT, {}).read_bytes == {}


def test_offsets_may_be_text_and_the_first_batch_has_no_start() -> None:
    """Nothing is counted, because nobody knows where it began."""
    source = {"startOffset": None, "endOffset": json.dumps({"in": {"0": 9, "1": 3}}), "latestOffset": None}
    first = {**REPORT, "sources": [source]}
    report = read_report("p0", first, {})
    assert (report.records, report.lag) == (0, None)


def test_a_partition_that_is_new_is_read_from_its_beginning() -> None:
    """Spark reads one that a topic got since the last batch from offset 0; the counts agree about it."""
    source = {"startOffset": {"in": {"0": 5}}, "endOffset": {"in": {"0": 9, "1": 3}}, "latestOffset": None}
    progress = {**REPORT, "sources": [source]}
    report = read_report("p0", progress, {})
    assert report.read == {TopicPartition("in", 0): 4, TopicPartition("in", 1): 3}
    assert read_drops(progress).records == report.records == 7


def test_a_report_of_tasks_says_how_long_they_did_what() -> None:
    """The watch of a query hands it on."""
    told: list[BatchReport] = []
    DropWatch("p0", report=told.append).look([{**REPORT, "tasks": {"commit": [2, 3.5, 1.0, 2.5]}}])
    assert [each.times for each in told] == [{"commit": (2, 3.5, 1.0, 2.5)}]


def test_a_report_while_nothing_is_to_be_done_is_no_batch() -> None:
    """It has no `addBatch`."""
    idle = {**REPORT, "durationMs": {"latestOffset": 1, "triggerExecution": 1}}
    report = read_report("p0", idle, {})
    assert not report.executed


def test_sources_that_are_not_kafkas_count_nothing() -> None:
    """What a writer of the user's reads besides has offsets of its own kind."""
    for offset in (None, 17, "17", {"version": 1}):
        source = {"startOffset": offset, "endOffset": offset, "latestOffset": offset}
        assert read_report("p0", {**REPORT, "sources": [source]}, {}).read == {}
