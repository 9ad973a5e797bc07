"""Fixtures of the tests that start client processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_world import Cluster
from pool import Pool
from spark_start import ArchiveMaking

from millstream.broker import EmbeddedKafka


@pytest.fixture(scope="session", autouse=True)
def archive_making(request: pytest.FixtureRequest) -> Iterator[None]:
    """What lets Spark start in half the time is made where it is not there yet."""
    making = ArchiveMaking(lambda: request.getfixturevalue("kafka").bootstrap_servers)
    yield
    making.close()


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Processes that have run a client, for the next test's."""
    pool = Pool()
    yield pool
    pool.close()


@pytest.fixture
def engine() -> str:
    """What the clients of a test run; see `cluster_world.WITHOUT_SPARK`."""
    return "spark"


@pytest.fixture
def cluster(kafka: EmbeddedKafka, tmp_path: Path, pool: Pool, engine: str) -> Iterator[Cluster]:
    """Topics and clients of this test's own, on the shared broker; no client outlives the test."""
    cluster = Cluster(kafka, tmp_path, pool=pool, engine=engine)
    yield cluster
    cluster.close()
