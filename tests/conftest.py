"""Fixtures that tests of several folders share: one broker and one Spark session for the whole run."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import re
import signal
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from nightly import mark_nightly
from tiers import MARKERS, DiskGuard, mark_variants

from millstream.broker import EmbeddedKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What starts the tests in the background (a shell, nohup) has them ignore Ctrl-C or hang-ups, and every child
# would inherit that; some tests are about just these signals.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

DISK = DiskGuard()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the files without tests of the tier that runs (scripts/run_tests.py): imports take long."""
    words = os.environ.get("MILLSTREAM_TEST_MARKERS", "").split()
    if not words or not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    return True if any(f"mark.{word}" not in text for word in words) else None


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_variants(items)
    mark_nightly(items)
    addresses = [item.nodeid for item in items if re.search("0x[0-9a-f]{6}", item.nodeid)]
    if addresses:  # each process that runs a part of the tests would have other names for them
        raise pytest.UsageError(f"the name of a test has an address in it; give `ids=`: {addresses[0]}")


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end; the garbage collector need not go through it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    DISK.begin(item)
    if any(map(item.get_closest_marker, MARKERS)) and kernel_problem():
        pytest.fail(kernel_problem(), pytrace=False)
    if item.get_closest_marker("spark") and not item.get_closest_marker("cluster"):
        start_spark()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that is interrupted within a call into Spark's JVM leaves an answer there that the next call
    takes for its own: nothing on that Spark can be believed any more."""
    report = yield
    interrupted = call.excinfo is not None and "from pytest-timeout" in str(call.excinfo.value)
    if interrupted and item.get_closest_marker("spark") and not item.get_closest_marker("cluster"):
        item.session.shouldfail = f"{item.nodeid} was interrupted, maybe within a call into Spark's JVM"
    return report


@pytest.fixture
def loggers_as_before() -> Iterator[None]:
    """Loggers are the whole process's: what a test sets up of them does not last."""
    loggers = (logging.getLogger("millstream"), logging.getLogger())
    before = [(each, list(each.handlers), each.level, each.propagate) for each in loggers]
    yield
    for logger, handlers, level, propagate in before:
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """One real broker for all tests of the run: each test uses topics and groups of its own names."""
    with EmbeddedKafka() as broker:
        yield broker


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """A session on the Spark that every TopologyTestDriver of the run shares; it ends with the process.

    It has generated code (see `start_spark`).
    """
    from spark_start import SLOTS

    from millstream.spark.memory_engine import MemoryEngine  # starts a JVM, which pure tests do without

    return MemoryEngine(settings={"spark.sql.codegen.factoryMode": "FALLBACK", **SLOTS}).spark


@cache
def start_spark() -> None:
    """The Spark that tests share: who comes first says how it starts, and the others join it."""
    from spark_start import SLOTS, WITHOUT_CODE, java_options, place_only_what_programs_say

    from millstream.spark.memory_engine import MemoryEngine

    # All the code that these tests have compiled is more than the 48 MB that there are for it by default.
    # Plans are garbage soon: with more room for young objects, fewer of them are copied, which took 6 %.
    options = f"{java_options()} -XX:ReservedCodeCacheSize=240m -Xmn512m"
    MemoryEngine(settings={"spark.driver.extraJavaOptions": options, **WITHOUT_CODE, **SLOTS})
    place_only_what_programs_say()


@cache
def load_builder() -> ModuleType:
    program = Path(__file__).resolve().parent.parent / "kernel" / "build.py"
    spec = importlib.util.spec_from_file_location("kernel_build", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def kernel_problem() -> str:
    """What is wrong with the kernel's jar: a test on Spark would say something about other sources."""
    builder = load_builder()
    fresh = builder.identity_of(builder.JAR) == builder.identity()
    return "" if fresh else "the kernel's jar is not what its sources are now: make setup"


@pytest.fixture(scope="session")
def builder() -> ModuleType:
    """`kernel/build.py`, which builds the kernel."""
    return load_builder()
