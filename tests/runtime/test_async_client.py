"""A client in coroutines: nothing blocks the event loop, it raises what it raises elsewhere, and a coroutine
that is cancelled leaves it as it should be."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from fake_world import FakeWorld
from scenes import SOON, SOON_S, Make, ended, put_into, word_count

from millstream.errors import IllegalStateException, PipelineException, TopologyException
from millstream.query.composite import QueryableStoreTypes
from millstream.query.parameters import StoreQueryParameters
from millstream.query.request import RangeQuery, StateQueryRequest
from millstream.states import State

LITTLE = timedelta(milliseconds=5)
COUNTS = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())

T = TypeVar("T")


def go(main: Coroutine[Any, Any, T]) -> T:
    """Run it, with a deadline."""

    async def within() -> T:
        async with asyncio.timeout(SOON_S):
            return await main

    return asyncio.run(within())


class Heart:
    """Beats in the event loop every millisecond, as long as nothing blocks that."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._beats = 0
        self._loop = asyncio.get_running_loop()
        self._beat()

    def _beat(self) -> None:
        with self._changed:
            self._beats += 1
            self._changed.notify_all()
        self._loop.call_later(0.001, self._beat)

    def goes_on(self, beats: int = 5) -> bool:
        """Whether it beats some more times; waits for that, on another thread."""
        with self._changed:
            wanted = self._beats + beats
            return self._changed.wait_for(lambda: self._beats >= wanted, SOON_S / 4)


def test_nothing_in_a_clients_life_blocks_the_loop(make: Make, world: FakeWorld) -> None:
    """Whoever changes its state is held until the loop has gone on for a while: it does, each time."""
    client = make(word_count())
    held: list[tuple[State, bool]] = []

    async def main() -> None:
        heart = Heart()
        client.set_state_listener(lambda new, old: held.append((new, heart.goes_on())))
        async with client as streams:
            assert streams is client
            await client.wait_until_running_async(SOON)
            await client.wait_until_queryable_async("counts", SOON)
            store = client.store(COUNTS)
            assert await store.get_async("a") is None
            assert [entry async for entry in store.all_async()] == []
            result = await client.query_async(
                StateQueryRequest.in_store("counts").with_query(RangeQuery.with_no_bounds()), wait=SOON
            )
            assert len(result.partition_results) == 3
            assert (await client.position_bound_now_async("counts")) is not None
            assert await client.wait_async(LITTLE) is State.RUNNING
        assert await client.wait_async() is State.NOT_RUNNING

    go(main())
    changes = [State.REBALANCING, State.RUNNING, State.PENDING_SHUTDOWN, State.NOT_RUNNING]
    assert held == [(state, True) for state in changes]
    assert world.everything_closed


@pytest.mark.parametrize("state", list(State))
def test_waits_end_as_they_do_on_a_thread(state: State, make: Make, world: FakeWorld) -> None:
    """They return the same value or raise the same exception with the same text, in every state of the
    client."""
    client = make(word_count())
    put_into(state, client, world)

    def outcome(wait: Any) -> object:
        try:
            return wait()
        except Exception as error:
            return type(error), re.sub(r"\d+ ms|\d\.\d+ s", "a while", str(error))

    for blocking, in_coroutine in [
        (client.wait, client.wait_async),
        (client.wait_until_running, client.wait_until_running_async),
        (
            lambda timeout: client.wait_until_queryable("counts", timeout),
            lambda timeout: client.wait_until_queryable_async("counts", timeout),
        ),
    ]:
        expected = outcome(lambda wait=blocking: wait(LITTLE))
        assert outcome(lambda wait=in_coroutine: go(wait(LITTLE))) == expected
    for negative in (client.wait_until_running_async, client.wait_async, client.close_async):
        if state is not State.CREATED or negative == client.close_async:
            with pytest.raises(ValueError, match="negative"):
                go(negative(timedelta(seconds=-1)))


def test_a_coroutine_that_waits_for_a_store_is_woken_by_it(make: Make, world: FakeWorld) -> None:
    """It came before the store did, and the loop has gone on meanwhile."""
    client = make(word_count())
    put_into(State.REBALANCING, client, world)

    async def main() -> None:
        waiting = asyncio.create_task(client.wait_until_queryable_async("counts", SOON))
        await asyncio.sleep(0)
        assert not waiting.done()
        world.gate.set()
        await waiting
        assert await client.store(COUNTS).get_async("a") is None

    go(main())


def test_a_client_starts_once(make: Make) -> None:
    """A second start raises what it raises elsewhere, and does not close what the first one started."""
    client = make(word_count())

    async def main() -> None:
        await client.start_async()
        await client.wait_until_running_async(SOON)
        with pytest.raises(IllegalStateException, match="start\\(\\) works once"):
            await client.start_async()
        assert client.state is State.RUNNING
        assert await client.close_async(SOON) is True
        assert await client.close_async() is True

    go(main())


def test_a_failure_is_raised_and_everything_is_closed_when_the_block_is_left(
    make: Make, world: FakeWorld
) -> None:
    """`wait_async` raises what ended the client, as `wait` does; `async with` waits until it has ended."""
    client = make(word_count())

    async def main() -> None:
        async with client:
            await client.wait_until_running_async(SOON)
            waiting = asyncio.create_task(client.wait_async())
            world.engine.end("p0")
            await waiting

    with pytest.raises(PipelineException):
        go(main())
    assert client.state is State.ERROR
    assert world.everything_closed


def test_a_cancelled_wait_leaves_the_client_and_no_thread(make: Make, world: FakeWorld) -> None:
    """A hundred waits that are given up cost nothing: the client runs, and nothing listens for them."""
    client = make(word_count())

    async def main() -> None:
        async with client:
            await client.wait_until_running_async(SOON)
            threads = {thread.name for thread in threading.enumerate()}
            tasks = [asyncio.create_task(client.wait_async()) for _ in range(100)]
            await asyncio.sleep(0)
            assert {thread.name for thread in threading.enumerate()} <= threads
            assert len(client._ends._listeners) == 100
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(each) for each in outcomes} == {asyncio.CancelledError}
            assert client._ends._listeners == ()
            assert client.state is State.RUNNING
            client.check()

    go(main())


def test_a_start_that_is_cancelled_closes_the_client(make: Make, world: FakeWorld) -> None:
    """Whoever was to leave the block never gets into it, so nothing may be left running."""
    client = make(word_count())
    begun, go_on = threading.Event(), threading.Event()

    def hold(new: State, old: State) -> None:
        if new is State.REBALANCING:
            begun.set()
            assert go_on.wait(SOON_S)

    client.set_state_listener(hold)

    async def enter() -> None:
        async with client:
            raise AssertionError("the block was entered")

    async def main() -> None:
        task = asyncio.create_task(enter())
        assert await asyncio.to_thread(begun.wait, SOON_S)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client.state is State.NOT_RUNNING

    go(main())
    client.check()
    assert world.everything_closed


def test_a_block_that_is_cancelled_closes_the_client(make: Make, world: FakeWorld) -> None:
    """What Ctrl-C does in `asyncio.run`: the main task is cancelled while it waits."""
    client = make(word_count())

    async def main() -> None:
        async def block() -> None:
            async with client:
                await client.wait_async()

        task = asyncio.create_task(block())
        await client_is(State.RUNNING)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client.state is State.NOT_RUNNING

    async def client_is(state: State) -> None:
        assert await asyncio.to_thread(client._owner.wait_until, [state], SOON_S)

    go(main())
    assert world.everything_closed


def test_a_close_that_is_cancelled_goes_on(make: Make, world: FakeWorld) -> None:
    """It continues in the background, as after a timeout; another close() waits for the same end."""
    client = make(word_count())

    async def main() -> None:
        await client.start_async()
        await client.wait_until_running_async(SOON)
        world.stop_gate.clear()
        assert await client.close_async(timedelta(0)) is False
        assert await client.close_async(LITTLE) is False
        task = asyncio.create_task(client.close_async())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client.state is State.PENDING_SHUTDOWN
        world.stop_gate.set()
        assert await client.close_async() is True

    go(main())
    assert ended(client) is State.NOT_RUNNING
    assert world.everything_closed


def test_no_thread_of_a_coroutine_outlives_its_call(make: Make, world: FakeWorld) -> None:
    """What starts, closes and asks a client in the background has the client's name, and has ended."""
    client = make(word_count())

    async def main() -> None:
        async with client:
            await client.wait_until_running_async(SOON)
            assert await client.store(COUNTS).multi_get_async(["a", "b"]) == [None, None]

    go(main())
    left = [thread for thread in threading.enumerate() if f"{client.client_id}-Async" in thread.name]
    for thread in left:
        thread.join(SOON_S)
        assert not thread.is_alive()


def test_what_changes_a_client_does_not_block_the_loop_either(
    make: Make, world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing a thread and cleaning up run on threads of their own, and raise what they raise."""
    client = make(word_count(), num__stream__threads=2)
    on: list[str] = []

    async def main() -> None:
        async with client:
            await client.wait_until_running_async(SOON)
            removed = await client.remove_stream_thread_async(SOON)
            assert removed == f"{client.client_id}-StreamThread-1"
            with pytest.raises(ValueError, match="negative"):
                await client.remove_stream_thread_async(timedelta(seconds=-1))
            with pytest.raises(IllegalStateException, match="Cannot clean up while running"):
                await client.clean_up_async()
            with pytest.raises(IllegalStateException, match="Cannot reset while running"):
                await client.reset_async(dry_run=True)
            with pytest.raises(TopologyException, match="nothing"):
                await client.refresh_table_async("nothing")
        monkeypatch.setattr(client, "clean_up", lambda **_: on.append(threading.current_thread().name))
        await client.clean_up_async()

    go(main())
    assert on == [f"{client.client_id}-AsyncCleanUp"]


@pytest.mark.parametrize("how", ["close", "wait"])
def test_a_coroutine_that_has_to_close_the_client_does_it_on_a_thread(
    how: str, make: Make, world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no thread could be started to close it, who waits for it does: and the loop goes on meanwhile."""
    client = make(word_count())
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.endswith("-CloseThread"):
            raise RuntimeError("can't start new thread")
        start(thread)

    async def main() -> None:
        heart, held = Heart(), list[bool]()
        await client.start_async()
        await client.wait_until_running_async(SOON)
        close = client._close_all
        monkeypatch.setattr(threading.Thread, "start", refuse)
        monkeypatch.setattr(client, "_close_all", lambda: (held.append(heart.goes_on()), close()))
        assert await client.close_async(timedelta(0)) is False
        if how == "close":
            assert await client.close_async(SOON)
        else:
            assert await client.wait_async(SOON) is State.NOT_RUNNING
        assert held == [True]

    go(main())
    assert world.everything_closed
