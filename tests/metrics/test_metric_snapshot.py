"""The list of Kafka Streams' metrics is what Kafka Streams gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from snapshots.metric_names import FILE, written

pytestmark = pytest.mark.disk


def test_kafka_streams_still_has_these_metrics_and_its_sensors_measure_so(tmp_path: Path) -> None:
    """The snapshot is as Kafka Streams 4.3.1 writes it: names, tags and words, and the values of a sensor."""
    assert written(tmp_path) == FILE.read_text("utf-8").splitlines()
