"""A client that has each metric of the table once, with any values."""

from __future__ import annotations

from fake_ports import ManualClock

from millstream.metrics.client_metrics import ClientMetrics, MetricsView, client_metrics
from millstream.metrics.meter import Meter, Reading
from millstream.metrics.metrics_table import SENSORS, VALUES

__all__ = ["everything"]


def everything() -> ClientMetrics:
    """All metrics; each tag has its own name as its value."""
    meter = Meter(ManualClock())
    for sensor, metrics in SENSORS.items():
        meter.record(sensor, metrics[0].tags, 1.0)
    view = MetricsView("client-id", "app", "process-id", "1", "RUNNING", {"thread-id": "RUNNING"})
    values = [Reading(each, each.tags, 1) for each in VALUES if each.unit != "text"]
    return client_metrics(view, (*meter.readings(), *values))
