"""A store with history as it was at an earlier time: the same handle, over a view that shows it so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from millstream.model import TaskId
from millstream.query.provider import StoreSnapshot, StoreView
from millstream.stores.versioned import VersionedStore

__all__ = ["AsOfStore", "AsOfView"]


class AsOfStore:
    """One part of a store with history, as it was at a time. Reads alone.

    Raises, from every read:
        ValueError: the time is before the history by now.
    """

    def __init__(self, store: VersionedStore, at_ms: int) -> None:
        self._store = store
        self._at = at_ms

    @property
    def name(self) -> str:
        return self._store.name

    @property
    def task_id(self) -> TaskId:
        return self._store.task_id

    @property
    def is_open(self) -> bool:
        return self._store.is_open

    @property
    def position(self) -> int | None:
        """Of the store as it is now: late records may still change what was then."""
        return self._store.position

    def get(self, key: bytes) -> bytes | None:
        """Timestamp and value that a key had then."""
        return self._store.get_as_of(key, self._at)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The same for many keys, in their order."""
        return [self._store.get_as_of(key, self._at) for key in keys]

    def range(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False, end_inclusive: bool = True
    ) -> Iterator[tuple[bytes, bytes]]:
        """The keys from `start` to `end` that had a value then; None: unbounded."""
        return self._store.range_as_of(start, end, self._at, reverse=reverse, end_inclusive=end_inclusive)

    def approximate_num_entries(self) -> int:
        """About as many as there are now."""
        return self._store.approximate_num_entries()


class AsOfView:
    """What the runtime shows, with one store as it was at a time."""

    def __init__(self, view: StoreView, store: str, at_ms: int) -> None:
        self._view = view
        self._store = store
        self._at = at_ms
        self._last: tuple[StoreSnapshot, StoreSnapshot] | None = None

    def snapshot(self) -> StoreSnapshot:
        """The same object as long as what it is made of is the same."""
        now, last = self._view.snapshot(), self._last
        if last is not None and last[0] is now:
            return last[1]
        parts: list[Any] = [
            replace(part, store=AsOfStore(part.store, self._at)) for part in now.local.get(self._store, ())
        ]
        made = replace(now, local={**now.local, self._store: parts})
        self._last = (now, made)
        return made
