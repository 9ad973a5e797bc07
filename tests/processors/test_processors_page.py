"""docs/processors.md: what it shows runs, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from processors.homes import MemoryHome, fed, plan_of, task_of

import millstream
from millstream import Stores

PAGE = (Path(__file__).parents[2] / "docs" / "processors.md").read_text(encoding="utf-8")


def shown() -> list[dict[str, Any]]:
    """What is defined after each of the page's programs; each goes on with the one before."""
    found: dict[str, Any] = {}
    after = []
    for snippet in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(snippet, "processors.md", "exec"), found)  # our own page
        after.append(dict(found))
    return after


def test_the_class_and_the_topology_without_the_dsl_count_words() -> None:
    """They are told every ten seconds of stream time."""
    first, _, last = (each["topology"] for each in shown())
    for topology in (first, last):
        home = MemoryHome()
        fed(task_of(plan_of(topology), home), [(None, "a b", 0), (None, "B", 9_000), (None, "b", 11_000)])
        counts = [(record.key, int.from_bytes(record.value or b"", "big")) for _, record in home.left]
        assert counts == [(b"a", 1), (b"b", 1), (b"a", 1), (b"b", 3)]


def test_the_function_lets_the_first_one_of_an_hour_pass() -> None:
    """The next one passes when an hour is over."""
    home = MemoryHome()
    orders = [("a", "1", 0), ("a", "2", 5), ("b", "3", 6), ("a", "4", 3_600_006)]
    fed(task_of(plan_of(shown()[1]["topology"]), home), orders)
    assert [record.value for _, record in home.left] == [b"1", b"3", b"4"]


@pytest.mark.parametrize("builder", re.findall(r"`(\w+_builder)`", PAGE))
def test_the_builders_and_methods_that_the_table_names_are_there(builder: str) -> None:
    """Each method in a row is one of the interface."""
    assert hasattr(Stores, builder)
    row = next(line for line in PAGE.splitlines() if f"`{builder}`" in line and line.startswith("|"))
    interface = next((name for name in re.findall(r"`(\w+Store)`", row)), "KeyValueStore")
    methods = re.findall(r"`(\w+)[`(]", row.replace(interface, ""))
    for method in methods:
        if not method.endswith("_builder") and method != "ValueAndTimestamp":
            assert hasattr(getattr(millstream, interface), method), method
