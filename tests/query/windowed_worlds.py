"""A client with parts of a window or session store, for tests of their handles."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from worlds import PARTITIONS, Client, partition_of

from millstream.model import StoreKind, TaskId
from millstream.query.composite import QueryableStoreTypes, open_store
from millstream.query.parameters import StoreQueryParameters
from millstream.query.provider import LocalStore, StoreDeclaration
from millstream.serdes.serdes import Serdes
from millstream.stores import opening
from millstream.stores.keys import session_key, window_key
from millstream.topology.nodes import Store

__all__ = ["MINUTE", "WindowedClient", "at", "now"]

MINUTE = 60_000
now = 1_700_000_040_000
"""The newest window's start: 22:14:00 UTC, 14 November 2023."""


def at(ms: int) -> datetime:
    """The time so many milliseconds after 1970 began."""
    return datetime.fromtimestamp(ms / 1000, UTC)


class WindowedClient(Client):
    """A client whose store `counts` has windows of a minute, or sessions, in three partitions.

    They are kept for an hour. The value of each entry is its number, in the order in which they were put.
    """

    def __init__(
        self,
        kind: StoreKind,
        partitions: int | list[int] = PARTITIONS,
        *,
        routed: bool = True,
        path: Path | None = None,
    ) -> None:
        super().__init__(partitions, routed=routed)
        self.kind = kind
        declared = Store("counts", kind=kind, window_size_ms=MINUTE, retention_ms=60 * MINUTE)
        here: dict[int, Any] = {
            number: opening.open_store(declared, TaskId(1, number), path and path / str(number))
            for number in self.stores
        }
        self.stores = here
        self.count = 0
        self.change(
            stores={
                "counts": StoreDeclaration(
                    "counts",
                    Serdes.string(),
                    Serdes.long(),
                    partition_of if routed else None,
                    PARTITIONS,
                    kind,
                    MINUTE if kind is StoreKind.WINDOW else None,
                    60 * MINUTE,
                )
            },
            local={
                "counts": [LocalStore(store.task_id, store, f"t{number}") for number, store in here.items()]
            },
        )

    def add(self, key: str, *times: int, partition: int | None = None, timestamp: int = 5) -> int:
        """One window (its start) or session (start and end) into the key's partition; its value."""
        data = key.encode()
        where = partition_of(data) if partition is None else partition
        self.count += 1
        if where in self.stores:
            layout = window_key if self.kind is StoreKind.WINDOW else session_key
            value = self.count.to_bytes(8, "big")
            self.stores[where].apply([(layout(data, *times), value, timestamp)], self.count)
        return self.count

    def keep_time(self, newest: int = now) -> None:
        """Bring every partition to the same time, with a deletion of what is not there."""
        times = (newest,) if self.kind is StoreKind.WINDOW else (newest, newest)
        layout = window_key if self.kind is StoreKind.WINDOW else session_key
        for store in self.stores.values():
            store.apply([(layout(b"no such key", *times), None, 1)], (store.position or 0) + 1)

    def windowed(
        self, *, partition: int | None = None, stale: bool = False, timestamped: bool = False
    ) -> Any:
        """A handle on it."""
        if self.kind is StoreKind.SESSION:
            kind: Any = QueryableStoreTypes.session_store()
        elif timestamped:
            kind = QueryableStoreTypes.timestamped_window_store()
        else:
            kind = QueryableStoreTypes.window_store()
        parameters: StoreQueryParameters[Any] = StoreQueryParameters.from_name_and_type("counts", kind)
        if partition is not None:
            parameters = parameters.with_partition(partition)
        if stale:
            parameters = parameters.enable_stale_stores()
        return open_store(self, parameters)

    def close(self) -> None:
        """Close every part."""
        for store in self.stores.values():
            store.close()
