"""Handles on windows and sessions while tasks come and go: right answers, or the documented exceptions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from racing import race
from windowed_worlds import MINUTE, WindowedClient, now
from worlds import PARTITIONS

from millstream.model import StoreKind
from millstream.stores.keys import session_key, window_key
from millstream.stores.opening import open_store
from millstream.topology.nodes import Store

WORDS = ["a", "aa", "ab", "b", "bbb", "c", "d"]
TIMES = [now - 40 * MINUTE, now - MINUTE, now]


def check(held: Any, kind: StoreKind, values: dict[Any, int]) -> None:
    """Every form of read, against what there is."""
    if kind is StoreKind.WINDOW:
        assert held.fetch("a", now) == values["a", now]
        with held.fetch("bbb", None, None) as found:
            assert list(found) == [(each, values["bbb", each]) for each in TIMES]
        with held.backward_fetch("d", None, None) as found:
            assert [start for start, _ in found] == TIMES[::-1]
    else:
        assert held.fetch_session("a", now, now) == values["a", now]
        with held.fetch("bbb") as found:
            assert [value for _, value in found] == [values["bbb", each] for each in TIMES]
        with held.backward_find_sessions("d", now, now) as found:
            assert [key.window.end_ms for key, _ in found] == [now]
    with held.all() as found:
        entries = [(key.key, key.window.start_ms, value) for key, value in found]
    assert entries == [(word, each, values[word, each]) for word in WORDS for each in TIMES]
    with held.backward_all() as found:
        assert next(found).key.key == "d"


@pytest.mark.disk
@pytest.mark.parametrize("place", ["memory", "rocksdb"])
@pytest.mark.parametrize("kind", [StoreKind.WINDOW, StoreKind.SESSION])
def test_readers_while_partitions_are_closed_and_opened(kind: StoreKind, place: str, tmp_path: Path) -> None:
    """Four readers; each partition in turn is closed, gone, opened again; and then the client closes."""
    path = tmp_path if place == "rocksdb" else None
    client = WindowedClient(kind, path=path)
    client.keep_time()
    values = {
        (word, each): client.add(word, *([each] if kind is StoreKind.WINDOW else [each, each]))
        for word in WORDS
        for each in TIMES
    }
    declared = Store("counts", kind=kind, window_size_ms=MINUTE, retention_ms=60 * MINUTE)

    def reopened(partition: int, old: Any, close: Callable[[], None]) -> Any:
        content = list(old.fetch(*[None] * 4) if kind is StoreKind.WINDOW else old.find(*[None] * 4))
        close()
        fresh: Any = open_store(declared, old.task_id, path and path / str(partition))
        layout: Any = window_key if kind is StoreKind.WINDOW else session_key
        fresh.apply([(layout(*key), stored[8:], 5) for key, stored in content], len(content))
        return fresh

    race(client, client.windowed, lambda held: check(held, kind, values), reopened, turns=30)
    for partition in range(PARTITIONS):
        open_store(declared, client.stores[partition].task_id, path and path / str(partition)).close()
