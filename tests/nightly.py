"""Which tests run by night, and only if need be with a change: the rule, for the table in nightly.toml.

`make test ALL=1` runs every test, with all the examples of random tests. `make test` leaves out the tests of
the table, because each of them costs more than it finds from day to day; but what a test is about decides:
where a file among its subjects, or the test itself, is not what it was when everything last passed, the test
runs. `tests/nightly.json` has what was there then; a run of everything that passes writes it anew.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

__all__ = ["NIGHTLY", "as_it_is", "due", "mark_nightly", "passed"]

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "nightly.toml"
RECORD = ROOT / "tests" / "nightly.json"


def _table() -> dict[str, tuple[str, ...]]:
    with TABLE.open("rb") as file:
        return {test: tuple(row["subjects"]) for row in tomllib.load(file)["about"] for test in row["tests"]}


NIGHTLY: Mapping[str, tuple[str, ...]] = _table()
"""A file of tests, one test in it, or one variant of that; and its subjects: files, or folders with all that
is in them."""


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
            raise FileNotFoundError(f"tests/nightly.toml names {name}, which is not there")
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
        if not waiting.isdisjoint((file, f"{file}::{test.partition('[')[0]}", item.nodeid)):
            item.add_marker("nightly")


if __name__ == "__main__":
    passed()
