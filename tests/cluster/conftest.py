"""Fixtures of the tests that start client processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_world import Cluster

from millstream.broker import EmbeddedKafka


@pytest.fixture
def cluster(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[Cluster]:
    """Topics and client processes of this test's own, on the shared broker; none outlives the test."""
    cluster = Cluster(kafka, tmp_path)
    yield cluster
    cluster.close()
