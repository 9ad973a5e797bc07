"""Rows that the kernel has in memory in few large arrays."""

from __future__ import annotations

import random

import pytest
from java_programs import KernelJava

pytestmark = pytest.mark.disk


@pytest.mark.parametrize("room", [1 << 28, 3 << 20], ids=["plenty", "little"])
def test_packed_rows_are_a_map(kernel_java: KernelJava, room: int) -> None:
    """Whatever is put, replaced by something shorter or longer, and removed: what is found is the last row.
    Where there is no room rows are left out, and it says so; none is found as it was before.
    """
    chosen = random.Random(17)
    rows: dict[str, tuple[int, str, int]] = {}
    lines = [str(room)]
    expected: list[str] = []
    for number in range(40_000):
        key = f"k{chosen.randrange(6_000)}"
        if chosen.random() < 0.7:
            rows[key] = (number, chosen.choice(("abc", "xyz")), chosen.choice((1, 2, 40, 400)))
            lines.append("+{} {} {} {}".format(key, *rows[key]))
        elif chosen.random() < 0.5:
            rows.pop(key, None)
            lines.append(f"-{key}")
        else:
            at, text, times = rows.get(key, (0, "", 0))
            expected.append(f"{at} {3 * times} {text}" if times else "")
            lines.append(f"={key}")
    *found, end = kernel_java("io.millstream.kernel.core.PackedRowsMain", "\n".join(lines)).splitlines()
    is_whole = room == 1 << 28
    assert end == f"{str(is_whole).lower()} false"
    assert len(found) == len(expected)
    wrong = [(one, other) for one, other in zip(found, expected, strict=True) if one != other]
    assert is_whole <= (not wrong), wrong[:3]
    assert all(not one for one, _ in wrong), "a row was found as it was before"
    assert sum(map(bool, found)) > len(found) / 4, "there is room for some"


def test_packed_results_come_as_they_were_made(kernel_java: KernelJava) -> None:
    """They keep their order, including bytes longer than an array and values that cannot be packed."""
    assert kernel_java("io.millstream.kernel.state.PackedResultsMain", "", "3000") == "3000\n"


@pytest.mark.parametrize("where", ["here", "anywhere"])
def test_rows_in_memory_are_those_of_the_state(kernel_java: KernelJava, where: str) -> None:
    """Whatever becomes of tasks and micro-batches: one that fails, is run again, or is slower than the next
    one leaves no rows of a state that there never was, nor of one that has not come or is gone.
    """
    told = kernel_java("io.millstream.kernel.state.RetainedMain", "", str(where == "here").lower(), "20000")
    found, nowhere, wrong = map(int, told.split())
    assert wrong == 0
    assert found > 20_000, "rows stay in memory"
    assert nowhere > 0, "at first all of them are there"
