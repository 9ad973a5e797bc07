"""Metrics for OpenTelemetry, read with its own SDK."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from metrics_of_everything import everything
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from millstream.metrics.client_metrics import ClientMetrics
from millstream.metrics.metrics_table import DEFINITIONS, is_counter
from millstream.metrics.otel import instrument_name, observe
from millstream.metrics.prometheus import prometheus_name


class Streams:
    """A client that counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.made: ClientMetrics = everything()

    def metrics(self) -> ClientMetrics:
        self.asked += 1
        return self.made


def exported(reader: InMemoryMetricReader) -> dict[str, Any]:
    """Instruments by name, as an exporter gets them."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        metric.name: metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_each_metric_that_is_a_number_is_an_instrument() -> None:
    """It has the tags as attributes, unit and description. A total is a counter. One snapshot serves them
    all."""
    reader, streams = InMemoryMetricReader(), Streams()
    observe(streams, MeterProvider(metric_readers=[reader]))
    assert streams.asked == 0
    found = exported(reader)
    assert streams.asked == 1
    assert set(found) == {instrument_name(each) for each in DEFINITIONS if each.unit != "text"}
    commits = found["kafka.streams.stream_thread_metrics.commit"]
    (point,) = commits.data.data_points
    assert (point.value, dict(point.attributes)) == (1, {"client_id": "client-id", "thread_id": "thread-id"})
    assert commits.data.is_monotonic
    rate = found["kafka.streams.stream_thread_metrics.commit_rate"]
    assert (rate.unit, rate.description) == ("1/s", "The average per-second number of calls to commit")
    lag = found["kafka.consumer.consumer_fetch_manager_metrics.records_lag"]
    assert dict(lag.data.data_points[0].attributes)["topic"] == "topic"
    assert "millstream.spark_batch_metrics.batch_duration_avg" in found


def test_an_average_of_nothing_is_no_point(caplog: pytest.LogCaptureFixture) -> None:
    """The SDK would log that NaN is not finite, for each metric at each export."""
    reader, streams = InMemoryMetricReader(), Streams()
    streams.made = ClientMetrics(
        {name: replace(metric, value=math.nan) for name, metric in streams.made.items()}, "app-1"
    )
    observe(streams, MeterProvider(metric_readers=[reader]))
    assert all(not metric.data.data_points for metric in exported(reader).values())
    assert caplog.messages == []


def test_a_client_that_has_closed_says_nothing() -> None:
    """Its instruments stay, without values."""
    reader, streams = InMemoryMetricReader(), Streams()
    streams.made = ClientMetrics({}, "app-1")
    observe(streams, MeterProvider(metric_readers=[reader]))
    assert all(not metric.data.data_points for metric in exported(reader).values())


def test_dots_become_what_prometheus_is_told_directly() -> None:
    """An exporter of OpenTelemetry puts `_` for each dot, and `_total` behind a counter."""
    for each in DEFINITIONS:
        name = instrument_name(each).replace(".", "_") + ("_total" if is_counter(each.name) else "")
        assert name == prometheus_name(each.group, each.name)
