"""A client as queries see it: stores in memory, and a snapshot that tests change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millstream.model import StoreKind, TaskId
from millstream.query.composite import QueryableStoreTypes, ReadOnlyKeyValueStore, open_store
from millstream.query.metadata import default_partition
from millstream.query.parameters import StoreQueryParameters
from millstream.query.provider import LocalStore, PartRole, StoreDeclaration, StoreSnapshot
from millstream.serdes.serdes import Serdes
from millstream.states import State, ThreadState
from millstream.stores.memory_store import MemoryStore

PARTITIONS = 3
CLIENT_STATES = tuple(state.name for state in State)


def partition_of(key: bytes) -> int:
    return default_partition(key, PARTITIONS)


class Client:
    """A view over stores of task 1_0, 1_1, …: store `counts` is string to long, in three partitions.

    Partition p belongs to thread `tp`; every change makes a new snapshot, as the contract asks.
    """

    def __init__(self, partitions: int | list[int] = PARTITIONS, *, routed: bool = True) -> None:
        here = list(range(partitions)) if isinstance(partitions, int) else partitions
        self.stores = {number: MemoryStore("counts", TaskId(1, number)) for number in here}
        self._snapshot = StoreSnapshot(
            "orders-1",
            State.RUNNING,
            {f"t{number}": ThreadState.RUNNING for number in here},
            {
                "counts": StoreDeclaration(
                    "counts",
                    Serdes.string(),
                    Serdes.long(),
                    partition_of if routed else None,
                    PARTITIONS,
                ),
                "totals": StoreDeclaration(
                    "totals", Serdes.string(), Serdes.long(), partition_of, PARTITIONS
                ),
                "windows": StoreDeclaration("windows", Serdes.string(), Serdes.long(), kind=StoreKind.WINDOW),
            },
            {
                "counts": [
                    LocalStore(store.task_id, store, f"t{number}") for number, store in self.stores.items()
                ]
            },
        )

    def snapshot(self) -> StoreSnapshot:
        return self._snapshot

    def change(self, **changes: Any) -> None:
        """Change the snapshot; states by their names, or as they are."""
        if "client_state" in changes:
            changes["client_state"] = State[str(changes["client_state"])]
        if "threads" in changes:
            changes["threads"] = {name: ThreadState[str(state)] for name, state in changes["threads"].items()}
        self._snapshot = replace(self._snapshot, **changes)

    def client_is(self, state: str) -> None:
        self.change(client_state=state)

    def thread_is(self, partition: int, state: str) -> None:
        self.change(threads={**self._snapshot.threads, f"t{partition}": state})

    def role_is(self, partition: int, role: PartRole) -> None:
        self.change(
            local={
                "counts": [
                    replace(part, role=role) if part.task_id.partition == partition else part
                    for part in self._snapshot.local["counts"]
                ]
            }
        )

    def move_away(self, partition: int, *, close: bool = True) -> None:
        """The partition goes to another client."""
        self.change(
            local={"counts": [p for p in self._snapshot.local["counts"] if p.task_id.partition != partition]}
        )
        if close:
            self.stores[partition].close()

    def put(self, *keys: str, timestamp: int = 5) -> None:
        """Each key into its partition, if that is here; the value is the key's length."""
        for key in keys:
            data = key.encode()
            if partition_of(data) in self.stores:
                self.put_into(partition_of(data), key, timestamp=timestamp)

    def put_into(self, partition: int, *keys: str, timestamp: int = 5) -> None:
        store = self.stores[partition]
        entries = [(key.encode(), len(key).to_bytes(8, "big"), timestamp) for key in keys]
        store.apply(entries, (store.position or 0) + len(keys))

    def store(
        self,
        *,
        partition: int | None = None,
        stale: bool = False,
        timestamped: bool = False,
        name: str = "counts",
    ) -> ReadOnlyKeyValueStore[str, Any]:
        kind = (
            QueryableStoreTypes.timestamped_key_value_store()
            if timestamped
            else QueryableStoreTypes.key_value_store()
        )
        parameters = StoreQueryParameters.from_name_and_type(name, kind)
        if partition is not None:
            parameters = parameters.with_partition(partition)
        if stale:
            parameters = parameters.enable_stale_stores()
        return open_store(self, parameters)


def key_in(partition: int) -> str:
    """A key of a partition."""
    return next(f"key-{i}" for i in range(100) if partition_of(f"key-{i}".encode()) == partition)
