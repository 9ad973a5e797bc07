"""Stores of processors, restored by the kernel from their changelogs."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from java_programs import KernelJava
from processors.test_processor_stores import MINUTE, Held, sessions, versions, windows

from millstream import SessionWindow, Windowed
from millstream.model import StoreKind

pytestmark = pytest.mark.disk


def put_some(held: Held, dice: random.Random, time: int) -> None:
    """A put, or a deletion, at about this time."""
    key = dice.choice(("", "a", "a\0", "b", "\0"))
    value = dice.choice((None, "x", "y", "long"))
    at = max(0, time + dice.randint(-3 * MINUTE, 0))
    held.scope.timestamp = dice.randint(0, time)
    if held.spec.kind is StoreKind.WINDOW or held.spec.kind is StoreKind.KEY_VALUE:
        held.store.put(key, value, at)
    elif value is None:
        held.store.remove(Windowed(key, SessionWindow(at, at)))
    else:
        held.store.put(Windowed(key, SessionWindow(max(0, at - dice.choice((0, 5))), at)), value)


@pytest.mark.parametrize(
    ("layout", "make"),
    [
        (f"window {2 * MINUTE}", windows),
        (f"duplicates {2 * MINUTE}", partial(windows, duplicates=True)),
        (f"session {2 * MINUTE}", sessions),
        (f"versioned {2 * MINUTE}", partial(versions, 2 * MINUTE)),
    ],
)
def test_a_task_restores_a_store_as_its_processors_filled_it(
    layout: str, make: Callable[[], Held], kernel_java: KernelJava
) -> None:
    """Entry by entry, from the records of its changelog."""
    dice, held = random.Random(7), make()
    for number in range(2000):
        put_some(held, dice, number * 1000)
    lines = (f"{k.hex()} {'-' if v is None else '=' + v.hex()} {t}\n" for k, v, t in held.records)
    found = kernel_java("io.millstream.kernel.task.LaidOutMain", "".join(lines), layout).splitlines()
    assert len(found) > 20
    assert found == [f"={key.hex()} {value.hex()}" for key, value in held.bytes.range(None, None)]
