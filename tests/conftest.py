"""Fixtures that tests of several folders share: one broker and one Spark session for the whole run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from millstream.broker import EmbeddedKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What starts the tests in the background (a shell, nohup) has them ignore Ctrl-C or hang-ups, and every child
# would inherit that; some tests are about just these signals.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# How long one example takes depends on what else the machine does; whole tests have a time limit.
settings.register_profile("millstream", deadline=None)
settings.load_profile("millstream")


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """One real broker for all tests of the run: each test uses topics and groups of its own names."""
    with EmbeddedKafka() as broker:
        yield broker


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """A session on the Spark that every TopologyTestDriver of the run shares; it ends with the process."""
    from millstream.spark.memory import MemoryEngine  # starts a JVM, which pure tests do without

    return MemoryEngine().spark
