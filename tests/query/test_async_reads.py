"""Stores in coroutines: the same entries, the same exceptions, and what a cancelled read leaves behind."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from windowed_worlds import WindowedClient
from worlds import Client

from millstream.errors import IllegalStateException, StateStoreNotAvailableException
from millstream.model import StoreKind
from millstream.query.composite import ReadOnlyKeyValueStore
from millstream.query.iterators import AsyncKeyValueIterator, KeyValueIterator
from millstream.query.windowed_handles import ReadOnlySessionStore, ReadOnlyWindowStore

WORDS = ["a", "bb", "ccc", "dddd", "eeeee"]
SOON_S = 20.0

T = TypeVar("T")


def go(main: Coroutine[Any, Any, T]) -> T:
    """Run it, with a deadline."""

    async def within() -> T:
        async with asyncio.timeout(SOON_S):
            return await main

    return asyncio.run(within())


@pytest.fixture
def client() -> Client:
    """Three partitions with five words."""
    made = Client()
    made.put(*WORDS)
    return made


async def listed(entries: Any) -> list[Any]:
    return [entry async for entry in entries]


def test_each_read_of_keys_and_values_gives_the_same(client: Client) -> None:
    """Values are awaited, and entries come by `async for`, in the same order."""
    store = client.store()

    async def main() -> None:
        assert await store.get_async("bb") == 2
        assert await store.multi_get_async(["ccc", "x"]) == [3, None]
        assert await listed(store.range_async("bb", "dddd")) == list(store.range("bb", "dddd"))
        assert await listed(store.reverse_range_async("bb", None)) == list(store.reverse_range("bb", None))
        assert await listed(store.all_async()) == list(store.all())
        assert await listed(store.reverse_all_async()) == list(store.reverse_all())
        assert await listed(store.prefix_scan_async("d")) == [("dddd", 4)]
        assert (await store.to_arrow_async()) == store.to_arrow()
        assert (await store.to_pandas_async()).equals(store.to_pandas())

    go(main())


def test_windows_and_sessions_too() -> None:
    """The form of `fetch` that has one value is awaited; the others are for `async for`."""
    windows = WindowedClient(StoreKind.WINDOW).windowed()
    sessions = WindowedClient(StoreKind.SESSION).windowed()

    async def main() -> None:
        assert await windows.fetch_async("a", 0) is None
        for entries in (
            windows.fetch_async("a", None, None),
            windows.fetch_async(None, None, None, None),
            windows.backward_fetch_async("a", None, None),
            windows.fetch_all_async(None, None),
            windows.backward_fetch_all_async(None, None),
            windows.backward_all_async(),
            sessions.fetch_async("a"),
            sessions.backward_fetch_async(None, None),
            sessions.find_sessions_async("a", None, None),
            sessions.backward_find_sessions_async("a", None, None),
            sessions.all_async(),
        ):
            assert await listed(entries) == []
        assert await sessions.fetch_session_async("a", 0, 1) is None

    go(main())


def test_no_read_was_forgotten() -> None:
    """Every method of a store's handle has one for coroutines, but for views of others and quick ones."""
    others = {"keys", "values", "items", "to_arrow_batches", "to_spark", "as_of", "check"}
    others.add("approximate_num_entries")
    for kind in (ReadOnlyKeyValueStore, ReadOnlyWindowStore, ReadOnlySessionStore):
        names = {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}
        plain = {name for name in names if not name.endswith("_async")}
        assert {name for name in plain if f"{name}_async" not in names} <= others


def test_a_read_raises_what_it_raises_elsewhere(client: Client) -> None:
    """It raises at the first entry, or at the first one that cannot be read; nothing read ahead is returned
    then."""
    store = client.store()

    async def main() -> None:
        with pytest.raises(TypeError):
            await store.get_async(None)
        entries = store.all_async()
        assert await anext(entries) == ("a", 1)
        client.client_is("PENDING_SHUTDOWN")
        for part in client.stores.values():
            part.close()
        for _ in range(2):
            with pytest.raises(StateStoreNotAvailableException):
                await anext(entries)
        with pytest.raises(StateStoreNotAvailableException):
            await listed(store.all_async())

    go(main())


def test_leaving_the_block_closes_it(client: Client) -> None:
    """The store counts no open iterator afterwards, and a further entry is refused."""
    store = client.store()

    async def main() -> None:
        async with store.all_async() as entries:
            assert await anext(entries) == ("a", 1)
        with pytest.raises(IllegalStateException, match="already been closed"):
            await anext(entries)
        await entries.aclose()
        never_read = store.all_async()
        await never_read.aclose()
        with pytest.raises(IllegalStateException, match="closed before it was read"):
            await anext(never_read)

    go(main())
    assert [len(part._iterators) for part in client.stores.values()] == [0, 0, 0]


def test_a_read_that_is_cancelled_ends_before_its_iterator_is_closed(client: Client) -> None:
    """Closing waits, off the loop, for the call that goes on: no two threads are in a store's iterator."""
    store = client.store()
    begun, go_on = threading.Event(), threading.Event()
    opened: list[KeyValueIterator[str, int]] = []

    def open() -> KeyValueIterator[str, int]:
        begun.set()
        assert go_on.wait(SOON_S)
        opened.append(store.all())
        return opened[0]

    async def main() -> None:
        entries = AsyncKeyValueIterator(open)
        reading = asyncio.create_task(anext(entries))
        assert await asyncio.to_thread(begun.wait, SOON_S)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        closing = asyncio.create_task(entries.aclose())
        await asyncio.sleep(0)
        assert not closing.done()
        go_on.set()
        await closing

    go(main())
    assert repr(opened[0]) == "<KeyValueIterator of store 'counts', closed>"
    assert [len(part._iterators) for part in client.stores.values()] == [0, 0, 0]
