"""The tier of a test, and what no test of the pure tier may touch.

A test's tier is that of the heaviest thing it needs, and it says so with a marker. A variant whose parameter
is "rocksdb" needs a disk, whoever else it runs with; and what opens a database without saying so fails,
because the pure tier is quick only as long as everybody keeps to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

__all__ = ["MARKERS", "DiskGuard", "examples", "mark_variants"]

MARKERS = ("disk", "spark", "kafka", "cluster")
"""From the lightest to the heaviest; a test without any of them is pure."""

EVERYTHING = bool(os.environ.get("ALL"))
"""Whether random tests try all their examples, or a quarter of them: `make test ALL=1`."""

# How long one example takes depends on what else the machine does; whole tests have a time limit.
# In continuous integration Hypothesis would try the same examples each time.
settings.register_profile("all examples", deadline=None, derandomize=False)
settings.register_profile("a few examples", deadline=None, derandomize=False, max_examples=25)
settings.load_profile("all examples" if EVERYTHING else "a few examples")


def examples(number: int) -> int:
    """How many of `number` examples a random test tries here: all of them by night (`make test ALL=1`)."""
    return number if EVERYTHING else max(5, number // 4)


def mark_variants(items: Iterable[pytest.Item]) -> None:
    """Give the marker `disk` to each variant of a test that has "rocksdb" among its parameters."""
    for item in items:
        variant = getattr(item, "callspec", None)
        if variant is not None and any(_names_rocksdb(value) for value in variant.params.values()):
            item.add_marker("disk")


def _names_rocksdb(value: object) -> bool:
    return isinstance(value, str) and value.startswith("rocksdb")


def _is_pure(test: pytest.Item) -> bool:
    return not any(map(test.get_closest_marker, MARKERS))


_sync = os.fsync


class DiskGuard:
    """Stands in for the class that opens a RocksDB database, and refuses to for a test of the pure tier.

    Nor does such a test wait for the disk: what it writes need not survive a crash of the machine.
    """

    def __init__(self) -> None:
        from millstream.stores import rocksdb_store

        self._open = rocksdb_store.Rdict
        self._test: pytest.Item | None = None
        rocksdb_store.Rdict = self  # type: ignore[misc, assignment]

    def begin(self, test: pytest.Item) -> None:
        self._test = test
        os.fsync = (lambda descriptor: None) if _is_pure(test) else _sync

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        test = self._test
        if test is not None and _is_pure(test):
            raise AssertionError(f"{test.nodeid} opens a RocksDB database; mark it with @pytest.mark.disk")
        return self._open(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._open, name)
