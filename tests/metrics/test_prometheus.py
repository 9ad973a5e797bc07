"""The text that Prometheus reads: names and labels as jmx_exporter writes those of Kafka Streams."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from metrics_of_everything import everything
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from millstream.metrics.client_metrics import ClientMetrics, MetricsView, client_metrics
from millstream.metrics.prometheus import ClientCollector, text

BOARD = [
    "processor_node_metrics_process_rate",
    "task_metrics_dropped_records_total",
    "task_metrics_dropped_records_rate",
    "thread_metrics_poll_latency_avg",
    "thread_metrics_poll_latency_max",
    "thread_metrics_poll_records_avg",
    "thread_metrics_poll_records_max",
    "thread_metrics_process_latency_avg",
    "thread_metrics_process_latency_max",
    "thread_metrics_task_closed_total",
    "thread_metrics_task_closed_rate",
    "thread_metrics_task_created_rate",
    "thread_metrics_task_created_total",
    "thread_metrics_process_rate",
    "thread_metrics_process_total",
    "thread_metrics_commit_latency_avg",
    "thread_metrics_commit_rate",
    "processor_node_metrics_process",
    "task_metrics_dropped_records",
    "thread_metrics_task_closed",
    "thread_metrics_process",
    "state_metrics_background_errors",
    "state_metrics_block_cache_capacity",
    "state_metrics_block_cache_pinned_usage",
    "state_metrics_block_cache_usage",
    "state_metrics_compaction_pending",
    "state_metrics_cur_size_active_mem_table",
    "state_metrics_estimate_num_keys",
    "state_metrics_live_sst_files_size",
    "state_metrics_estimate_pending_compaction_bytes",
    "state_metrics_estimate_table_readers_mem",
    "state_metrics_mem_table_flush_pending",
    "state_metrics_num_deletes_active_mem_table",
    "state_metrics_num_deletes_imm_mem_tables",
    "state_metrics_num_entries_active_mem_table",
    "state_metrics_num_entries_imm_mem_tables",
    "state_metrics_num_immutable_mem_table",
    "state_metrics_num_live_versions",
    "state_metrics_size_all_mem_tables",
    "state_metrics_total_sst_files_size",
]
"""What boards for Kafka Streams ask for, behind `kafka_streams_stream_`, that Millstream has at all."""


def samples(written: str) -> list[tuple[str, Mapping[str, str], float]]:
    """What Prometheus would read."""
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(written)
        for sample in family.samples
    ]


def small(client: str = "app-1") -> ClientMetrics:
    """The metrics of a client with a thread, and nothing measured."""
    return client_metrics(MetricsView(client, "app", "uuid", "1.2", "RUNNING", {"t-1": "RUNNING"}, 3))


def test_names_and_labels_are_those_of_jmx_exporter() -> None:
    """`kafka_streams_<group>_<name>`, tags as labels; a text is a label of the client's own metric."""
    found = samples(text(small()))
    client = {"client_id": "app-1"}
    assert ("kafka_streams_stream_metrics", {**client, "state": "RUNNING"}, 1.0) in found
    assert ("kafka_streams_stream_metrics", {**client, "version": "1.2"}, 1.0) in found
    assert ("kafka_streams_stream_metrics", {**client, "failed_stream_threads": "3"}, 3.0) in found
    assert ("kafka_streams_stream_metrics_failed_stream_threads", client, 3.0) in found
    process = {**client, "process_id": "uuid"}
    state = "kafka_streams_stream_thread_metrics_thread_state"
    assert (state, {**process, "thread_id": "t-1"}, 4.0) in found


def test_boards_of_kafka_streams_find_what_they_ask_for() -> None:
    """Counters by both names: with `_total`, and without."""
    names = {name for name, _, _ in samples(text(everything()))}
    assert [each for each in BOARD if f"kafka_streams_stream_{each}" not in names] == []


def test_a_counter_is_a_counter_and_our_own_metrics_have_our_name() -> None:
    """What may go down is a gauge, whatever it is called."""
    written = text(everything())
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", written, re.MULTILINE))
    assert kinds["kafka_streams_stream_thread_metrics_process_total"] == "counter"
    assert kinds["kafka_streams_stream_thread_metrics_process_rate"] == "gauge"
    assert kinds["kafka_streams_stream_task_metrics_restore_remaining_records_total"] == "gauge"
    assert kinds["kafka_consumer_consumer_fetch_manager_metrics_records_lag"] == "gauge"
    assert kinds["millstream_spark_batch_metrics_batches_total"] == "counter"
    assert kinds["kafka_streams_stream_metrics"] == "untyped"
    assert all(name.startswith(("kafka_streams_", "kafka_consumer_", "millstream_")) for name in kinds)


def test_several_clients_are_one_text_and_each_sample_is_there_once() -> None:
    """Told apart by `client_id`."""
    found = samples(text(small("a"), small("b")))
    places = [(name, tuple(sorted(labels.items()))) for name, labels, _ in found]
    assert len(set(places)) == len(places)
    assert {labels["client_id"] for _, labels, _ in found} == {"a", "b"}
    assert text() == ""


def test_a_registry_collects_a_client() -> None:
    """Asked anew each time."""

    class Streams:
        asked = 0

        def metrics(self) -> ClientMetrics:
            self.asked += 1
            return small()

    streams, registry = Streams(), CollectorRegistry()
    registry.register(ClientCollector(streams))
    value = "kafka_streams_stream_metrics_failed_stream_threads"
    assert registry.get_sample_value(value, {"client_id": "app-1"}) == 3.0
    assert registry.get_sample_value(value, {"client_id": "app-1"}) == 3.0
    assert streams.asked == 2


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb"])
def test_odd_names_are_escaped(name: str) -> None:
    """A client may be called as it likes."""
    assert {labels["client_id"] for _, labels, _ in samples(text(small(name)))} == {name}


def test_a_registry_can_write_open_metrics() -> None:
    """Each family has a name of its own, which its strict parser holds; counters end in `_total`."""

    class Streams:
        def metrics(self) -> ClientMetrics:
            return everything()

    registry = CollectorRegistry()
    registry.register(ClientCollector(Streams()))
    found = list(open_metrics(generate_latest(registry).decode()))
    counters = {family.name for family in found if family.type == "counter"}
    assert {
        "kafka_streams_stream_thread_metrics_process",
        "millstream_spark_batch_metrics_batches",
    } <= counters
    assert len({family.name for family in found}) == len(found)
