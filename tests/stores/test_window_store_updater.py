"""The store updater fills window and session stores as it fills any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from segmented import MINUTE, open_segmented, record
from test_store_updater import P0, SOON, World

from millstream.model import StoreKind

WINDOW, SESSION = StoreKind.WINDOW, StoreKind.SESSION


def changes(kind: StoreKind, first: int, end: int) -> list[Any]:
    """One record a minute, each of a key of its own."""
    times = [(n * MINUTE,) if kind is WINDOW else (n * MINUTE - 1, n * MINUTE) for n in range(first, end)]
    return [record(b"%03d" % (first + n), *each) for n, each in enumerate(times)]


def numbers(store: Any, kind: StoreKind) -> list[int]:
    """What is there."""
    found = store.fetch(*[None] * 4) if kind is WINDOW else store.find(*[None] * 4)
    return [int(key[0]) for key, _ in found]


@pytest.mark.parametrize("place", ["memory", "rocksdb"])
@pytest.mark.parametrize("kind", [WINDOW, SESSION])
def test_it_is_restored_followed_and_goes_on_after_a_restart(
    kind: StoreKind, place: str, tmp_path: Path
) -> None:
    """The retention is ten minutes. A store on disk is not restored again, one in memory is."""
    path = tmp_path if place == "rocksdb" else None
    world = World()
    world.log.append(P0, *changes(kind, 1, 31))
    store = open_segmented(kind, path)
    world.updater.add(store, P0)
    world.updater.start()
    assert world.updater.wait_until_restored(SOON)
    assert numbers(store, kind) == list(range(21, 31))
    world.log.append(P0, *changes(kind, 31, 36))
    world.wait_for_position(store, 35)
    assert numbers(store, kind) == list(range(26, 36))
    world.updater.close()
    store.close()

    again = World()
    again.log.append(P0, *changes(kind, 1, 40))
    store = open_segmented(kind, path)
    again.updater.add(store, P0)
    again.updater.start()
    assert again.updater.wait_until_restored(SOON)
    assert again.heard.told[0] == ("start", 0, "windows", 0 if path is None else 35, 39)
    assert numbers(store, kind) == list(range(30, 40))
    again.updater.close()
    store.close()


def test_a_changelog_that_was_made_anew_is_restored_with_its_older_times() -> None:
    """The store forgets its time with its content, or it would take all of the new ones for too old."""
    world = World()
    world.log.append(P0, *changes(WINDOW, 100, 110))
    store = open_segmented(WINDOW, None)
    world.updater.add(store, P0)
    world.updater.start()
    assert world.updater.wait_until_restored(SOON)
    world.log.recreate(P0)
    world.log.append(P0, *changes(WINDOW, 1, 5))
    world.wait_for_position(store, 4)
    assert numbers(store, WINDOW) == [1, 2, 3, 4]
    world.updater.close()
    store.close()
