"""What reports of micro-batches are in the metrics."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fake_ports import ManualClock

from millstream.metrics.batches import forget_pipeline, record_batch
from millstream.metrics.client_metrics import ClientMetrics, MetricsView, client_metrics
from millstream.metrics.meter import Meter
from millstream.model import BatchReport, TopicPartition, WrittenReport

THREAD = "app-1-StreamThread-1"
PARTS = {
    "triggerExecution": 100,
    "latestOffset": 3,
    "getBatch": 1,
    "addBatch": 80,
    "walCommit": 6,
    "commitOffsets": 4,
}
READERS = {"in": ((0, "KSTREAM-SOURCE-0000000000"), (1, "KSTREAM-SOURCE-0000000007"))}


class Scene:
    """A meter, and a clock that stands still until it is told."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.meter = Meter(self.clock)

    def report(self, **given: Any) -> None:
        """One report of pipeline p0 comes in."""
        record_batch(
            self.meter,
            BatchReport("p0", **{"parts": PARTS, **given}),
            client_id="app-1",
            thread=THREAD,
            readers=lambda topic: READERS.get(topic, ()),
            writers={"out": "KSTREAM-SINK-0000000003"}.get,
            at_ms=1_700_000_000_000,
        )

    @property
    def metrics(self) -> ClientMetrics:
        view = MetricsView("app-1", "app", "uuid", "1", "RUNNING")
        return client_metrics(view, self.meter.readings())


@pytest.fixture
def scene() -> Scene:
    return Scene()


def read(*counts: int) -> dict[TopicPartition, int]:
    """Records of each partition of the topic `in`."""
    return {TopicPartition("in", partition): count for partition, count in enumerate(counts)}


def test_records_are_counted_for_the_thread_each_task_each_source_and_the_topic(scene: Scene) -> None:
    """Offsets give the count. A topic that two subtopologies read counts for tasks of both."""
    scene.report(read=read(10, 30))
    scene.report(read=read(0, 20))
    metrics = scene.metrics
    assert metrics.value("process-total", thread_id=THREAD, group="stream-thread-metrics") == 60
    tasks = {"0_0": 10, "0_1": 50, "1_0": 10, "1_1": 50}
    for task, count in tasks.items():
        assert metrics.value("process-total", task_id=task, group="stream-task-metrics") == count
        assert metrics.value("process-total", task_id=task, group="stream-processor-node-metrics") == count
        assert metrics.value("records-consumed-total", task_id=task, topic="in") == count
    client = f"{THREAD}-consumer"
    group = "consumer-fetch-manager-metrics"
    assert metrics.value("records-consumed-total", client_id=client, topic="in", group=group) == 60
    assert metrics.value("process-records-max", thread_id=THREAD) == 40
    assert metrics.value("process-records-avg", thread_id=THREAD) == 30


def test_bytes_are_counted_for_each_source_too(scene: Scene) -> None:
    """This includes a query's first batch, for which there are no offsets (KIP-846)."""
    scene.report(read_bytes=read(100, 300))
    scene.report(read=read(1), read_bytes=read(7))
    consumed = {
        task: scene.metrics.value("bytes-consumed-total", task_id=task, topic="in", thread_id=THREAD)
        for task in ("0_0", "0_1", "1_0", "1_1")
    }
    assert consumed == {"0_0": 107, "0_1": 300, "1_0": 107, "1_1": 300}


def test_rates_are_of_the_window(scene: Scene) -> None:
    """The window is at least 30 s. A minute after the last record, the rate is zero."""
    scene.report(read=read(600), times={"process": (1, 6.0, 6.0, 6.0)})
    rate = {"group": "stream-thread-metrics"}
    assert scene.metrics.value("process-rate", **rate) == 20
    scene.clock.advance(30)
    assert scene.metrics.value("process-rate", **rate) == 20
    scene.clock.advance(31)
    assert scene.metrics.value("process-rate", **rate) == 0
    assert scene.metrics.value("process-total", **rate) == 600
    assert math.isnan(float(scene.metrics.value("process-latency-avg", **rate)))


def test_what_tasks_did_is_polling_processing_and_committing(scene: Scene) -> None:
    """Kafka Streams' latencies. A record's is the work divided by the number of records."""
    scene.report(
        read=read(40),
        times={"process": (5, 80.0, 1.0, 30.0), "poll": (2, 8.0, 3.0, 5.0), "commit": (1, 10.0, 10.0, 10.0)},
    )
    metrics = scene.metrics
    assert (metrics.value("poll-latency-avg"), metrics.value("poll-latency-max")) == (4, 5)
    assert (metrics.value("commit-latency-max"), metrics.value("commit-total")) == (10, 1)
    assert metrics.value("process-latency-avg") == 2.0
    assert metrics.value("process-ratio") == pytest.approx(80 / 30_000)


def test_the_parts_of_a_micro_batch_are_told(scene: Scene) -> None:
    """Of a query of to_spark(), by Spark's names."""
    scene.report(read=read(40), batch_id=7)
    metrics = scene.metrics
    assert metrics.value("batch-duration-last", pipeline="p0") == 100
    assert metrics.value("part-duration-avg", part="walCommit") == 6
    assert metrics.value("batch-id") == 7


def test_a_report_while_there_is_nothing_to_do_is_no_batch(scene: Scene) -> None:
    """The lag is known from it; nothing is counted."""
    scene.report(read=read(5), lag={TopicPartition("in", 0): 9, TopicPartition("in", 1): 4})
    scene.report(executed=False, parts={"latestOffset": 1, "triggerExecution": 1}, lag=read(0, 3))
    metrics = scene.metrics
    assert metrics.value("batches-total") == 1
    assert metrics.value("records-lag", partition="0") == 0
    assert metrics.value("records-lag", partition="1") == 3
    assert metrics.value("records-lag-max") == 3


def test_dropped_records_are_told_by_node(scene: Scene) -> None:
    """Why, and where; the thread has their sum."""
    dropped = {("deserialization", "SOURCE"): 2, ("late", "COUNT"): 1}
    scene.report(dropped=dropped)
    scene.report()
    metrics = scene.metrics
    assert metrics.value("dropped-records-total", group="stream-task-metrics", thread_id=THREAD) == 3
    assert metrics.value("dropped-records-total", kind="late", processor_node_id="COUNT") == 1


def test_what_is_the_pipelines_goes_with_it_and_what_is_the_threads_stays(scene: Scene) -> None:
    """Kafka Streams removes the metrics of closed tasks in the same way."""
    scene.report(read=read(10), lag=read(1))
    forget_pipeline(scene.meter, THREAD, "p0")
    names = {name.group for name in scene.metrics}
    assert "spark-batch-metrics" not in names
    assert "stream-processor-node-metrics" not in names
    assert scene.metrics.value("process-total", group="stream-thread-metrics") == 10
    with pytest.raises(KeyError):
        scene.metrics.value("records-lag-max")


def test_what_is_written_counts_for_the_sink_of_the_topic(scene: Scene) -> None:
    """Records, bytes, and how old they were (KIP-613, KIP-846); changelogs are no sink's."""
    for least, most in ((2, 40), (1, 9)):
        written = {
            "out": WrittenReport(10, 500, timed=4, least_ms=least, most_ms=most, sum_ms=60),
            "app-s-changelog": WrittenReport(10, 200, timed=10, most_ms=9_999),
        }
        scene.report(read=read(10), written=written)
    metrics, sink = scene.metrics, "KSTREAM-SINK-0000000003"
    assert metrics.value("records-produced-total", processor_node_id=sink, topic="out") == 20
    assert metrics.value("bytes-produced-total", processor_node_id=sink, topic="out") == 1_000
    ages = {
        what: metrics.value(f"record-e2e-latency-{what}", thread_id=THREAD) for what in ("min", "avg", "max")
    }
    assert ages == {"min": 1, "avg": 15, "max": 40}
    assert {dict(name.tags)["topic"] for name in metrics if name.name == "records-produced-total"} == {"out"}
    scene.report(read=read(1), written={"out": WrittenReport(1, 50)})
    assert scene.metrics.value("record-e2e-latency-max", thread_id=THREAD) == 40, (
        "nobody knows how old it was"
    )
