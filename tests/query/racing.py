"""Readers that go on while everything under them changes; for tests of the handles."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

from worlds import PARTITIONS, Client

from millstream.errors import (
    StateStoreMigratedException,
    StateStoreNotAvailableException,
    StreamsRebalancingException,
)
from millstream.query.provider import LocalStore

__all__ = ["race"]


def race(
    client: Client,
    open_handle: Callable[[], Any],
    check: Callable[[Any], None],
    reopened: Callable[[int, Any, Callable[[], None]], Any],
    *,
    turns: int,
) -> None:
    """Four readers, while threads change state, partitions go and come back, and at last the client closes.

    Args:
        check: reads through a handle; whatever it raises but the leaves of KIP-216 that pass fails the test.
        reopened: takes a partition, its store and what closes that; gives another one with the same in it.
        turns: how often each reader checks, at least.
    """
    stop = threading.Event()
    wrong: list[BaseException] = []
    done = [0] * 4

    def read(index: int) -> None:
        held = open_handle()
        while not stop.is_set():
            done[index] += 1
            try:
                check(held)
            except StateStoreMigratedException:
                try:
                    fresh = open_handle()
                    if len(fresh._reader.plan().parts) == PARTITIONS:
                        held = fresh
                except (StateStoreMigratedException, StreamsRebalancingException):
                    pass
            except (StreamsRebalancingException, StateStoreNotAvailableException):
                pass  # retry, or the client is closing
            except BaseException as error:
                wrong.append(error)
                return

    readers = [threading.Thread(target=read, args=(index,), daemon=True) for index in range(4)]
    for reader in readers:
        reader.start()
    try:
        cycle = itertools.cycle(range(PARTITIONS))
        deadline = time.monotonic() + 60
        while min(done) < turns and not wrong:
            assert time.monotonic() < deadline, done
            _swap(client, next(cycle), reopened)
        client.client_is("PENDING_SHUTDOWN")
        for store in client.stores.values():
            store.close()
        client.client_is("NOT_RUNNING")
    finally:
        stop.set()
    for reader in readers:
        reader.join(30)
        assert not reader.is_alive()
    assert wrong == []


def _swap(client: Client, partition: int, reopened: Callable[[int, Any, Callable[[], None]], Any]) -> None:
    """A partition is revoked, closed and gone, and comes back."""
    client.client_is("REBALANCING")
    client.thread_is(partition, "PARTITIONS_REVOKED")
    fresh = reopened(partition, client.stores[partition], lambda: client.move_away(partition))
    client.stores[partition] = fresh
    part = LocalStore(fresh.task_id, fresh, f"t{partition}")
    client.change(local={"counts": [*client.snapshot().local["counts"], part]})
    client.thread_is(partition, "RUNNING")
    client.client_is("RUNNING")
