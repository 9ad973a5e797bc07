"""A real broker, real Spark and clients over both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from spark_start import WITH_CODE
from world import World

from millstream.broker import EmbeddedKafka

AS_USERS = ("test_topologies", "test_windowed_topologies")
"""The modules whose clients run generated code, as users' do. In the others it would only take time."""


@pytest.fixture
def world(kafka: EmbeddedKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """Topics and clients of this test's own, on the shared broker; clients are closed after the test."""
    world = World(kafka, tmp_path, WITH_CODE if request.module.__name__ in AS_USERS else None)
    yield world
    world.close()
