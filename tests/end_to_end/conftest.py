"""A real broker, real Spark and clients over both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from world import World

from millstream.broker import EmbeddedKafka


@pytest.fixture
def world(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[World]:
    """Topics and clients of this test's own, on the shared broker; clients are closed after the test."""
    world = World(kafka, tmp_path)
    yield world
    world.close()
