"""Which tests run by night, and only if need be with a change: the one place that says so.

`make test ALL=1` runs every test, with all the examples of random tests. `make test` leaves out the tests of
this table, because each of them costs more than it finds from day to day; but what a test is about decides:
where a file among its subjects, or the test itself, is not what it was when everything last passed, the test
runs. `tests/nightly.json` has what was there then; a run of everything that passes writes it anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

__all__ = ["NIGHTLY", "as_it_is", "due", "mark_nightly", "passed"]

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests" / "nightly.json"

_CLUSTER = ("millstream/group/", "millstream/kafka/", "millstream/checkpoints/fencing.py")
_JVM = ("millstream/spark/jvm/", "millstream/spark/run/ending.py")
_JOINS = (
    "kernel/src/io/millstream/kernel/core/",
    "millstream/spark/compile/foreign_key_nodes.py",
    "millstream/spark/compile/join_nodes.py",
    "millstream/spark/compile/kernel_joins.py",
)
_COMPILER = ("millstream/spark/compile/", "millstream/topology/", "examples/ported/", "examples/tutorials/")
_OBJECTS = ("kernel/src/io/millstream/kernel/files/", "millstream/checkpoints/object_fencing.py")

NIGHTLY: Mapping[str, tuple[str, ...]] = {
    "tests/cluster/test_chaos.py::test_counts_are_exact_after_one_fault_of_each_kind": _CLUSTER,
    "tests/cluster/test_chaos.py::test_each_record_is_there_once_after_faults": _CLUSTER,
    "tests/cluster/test_frames_killed.py": (
        "millstream/dsl/frames.py",
        "millstream/spark/compile/frame_columns.py",
        "millstream/spark/run/streaming_query.py",
    ),
    "tests/cluster/test_joins_killed.py": _JOINS,
    "tests/cluster/test_object_store.py::test_a_checkpoint_in_an_object_store_changes_hands_and_nothing_is_"
    "counted_twice": _OBJECTS,
    "tests/cluster/test_object_store.py::test_exactly_once_in_an_object_store_whoever_is_cut_off": _OBJECTS,
    "tests/cluster/test_standalone.py": (
        "millstream/spark/jvm/executors.py",
        "millstream/spark/jvm/package.py",
    ),
    "tests/kafka/test_embedded_kafka.py::test_an_archive_is_made_once_used_and_never_in_the_way": (
        "millstream/broker/",
        "millstream/class_data.py",
    ),
    "tests/kernel/test_tasks_killed.py": (
        "kernel/src/io/millstream/kernel/task/",
        "tests/kernel/task_world.py",
    ),
    "tests/spark/test_executors.py::test_an_executor_that_is_killed_is_told_of_and_the_query_goes_on": (
        "millstream/spark/jvm/executors.py",
        "millstream/spark/jvm/package.py",
    ),
    "tests/spark/test_frames_on_spark.py::test_a_session_of_the_users_own": (
        "millstream/spark/jvm/session.py",
        "millstream/spark/compile/frame_columns.py",
    ),
    "tests/spark/test_jvm_killed.py": _JVM,
    "tests/spark/test_session_close.py": _JVM,
    "tests/spark/test_settings_compile.py::test_all_examples_compile_under_all_settings": _COMPILER,
    "tests/spark/test_settings_compile.py::test_programs_of_the_traces_compile_under_all_settings": _COMPILER,
    "tests/spark/test_settings_compile.py::test_programs_with_joins_compile_under_all_settings": _COMPILER,
    "tests/spark/test_spark_submit.py": _JVM,
    "tests/test_ported_programs.py::test_kafka_streams_gives_what_is_written": ("tests/snapshots/ported/",),
    "tests/test_traces.py::test_kafka_streams_gives_these_traces": ("tests/snapshots/",),
}
"""A file of tests, or one test in it, and what it is about: files, or folders with all that is in them."""


@cache
def as_it_is(row: str) -> str:
    """A digest of the test's file and of its subjects.

    Raises:
        FileNotFoundError: a path of the table leads nowhere.
    """
    digest = hashlib.sha256()
    for name in (row.partition("::")[0], *NIGHTLY[row]):
        place = ROOT / name
        if not place.exists():
            raise FileNotFoundError(f"tests/nightly.py names {name}, which is not there")
        files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
        for file in files:
            if file.suffix == ".pyc":
                continue
            digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def due(row: str) -> bool:
    """Whether the tests of a row have to run although it is day."""
    return _recorded().get(row) != as_it_is(row)


@cache
def _recorded() -> Mapping[str, str]:
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}


def passed() -> None:
    """Everything has passed: write down with what."""
    text = json.dumps({row: as_it_is(row) for row in sorted(NIGHTLY)}, indent=2)
    RECORD.write_text(f"{text}\n", encoding="utf-8")


def mark_nightly(items: Iterable[pytest.Item]) -> None:
    """Give the marker `nightly` to the tests that can wait for the night."""
    waiting = {row for row in NIGHTLY if not due(row)}
    for item in items:
        file, _, test = item.nodeid.partition("::")
        if not waiting.isdisjoint((file, f"{file}::{test.partition('[')[0]}")):
            item.add_marker("nightly")


if __name__ == "__main__":
    passed()
