"""How coroutines call what blocks: threads with an end, exceptions as they are, and no failure unheard."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from waiting import wait_until

from millstream.coroutines import Changes, Threads, Until, awaitable, awaited, block, run
from millstream.query.iterators import EntryViews
from millstream.remote.store import RemoteStore

SOON_S = 20.0


def test_threads_are_few_and_end_when_there_is_nothing_to_do() -> None:
    """Ten calls at once take two threads, and a while later there is none."""
    threads = Threads("few", 2, idle_s=0.01)
    names: set[str] = set()
    done = threading.Semaphore(0)

    def job() -> None:
        names.add(threading.current_thread().name)
        done.release()

    for _ in range(10):
        threads.add(job)
    for _ in range(10):
        assert done.acquire(timeout=SOON_S)
    assert 1 <= len(names) <= 2
    wait_until(
        lambda: not names & {thread.name for thread in threading.enumerate()}, "all have ended", SOON_S
    )
    threads.add(job)
    assert done.acquire(timeout=SOON_S), "another one begins when there is work again"


def test_threads_end_with_close_and_take_nothing_more() -> None:
    """What has been asked of them before is done; whoever asks later is refused, as the owner says."""
    threads = Threads("ended", 1, closed=lambda: KeyError("closed"))
    held = threading.Event()
    done: list[int] = []

    async def main() -> None:
        asked = [asyncio.create_task(threads.run(partial(one, number))) for number in range(3)]
        await asyncio.sleep(0)
        assert not threads.close(0.01), "one is still at work"
        held.set()
        await asyncio.gather(*asked)
        with pytest.raises(KeyError, match="closed"):
            await threads.run(lambda: 1)

    def one(number: int) -> None:
        assert held.wait(SOON_S)
        done.append(number)

    asyncio.run(main())
    assert done == [0, 1, 2]
    assert threads.close(SOON_S)


def test_threads_may_drop_what_nobody_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    """A call that has not begun is not made, and the failure of one that has is not logged."""
    threads = Threads("dropping", 1, drops=True)
    held, begun = threading.Event(), threading.Event()
    made: list[int] = []

    def fail() -> None:
        begun.set()
        assert held.wait(SOON_S)
        raise KeyError("too late")

    async def main() -> None:
        tasks = [asyncio.create_task(threads.run(fail))]
        tasks += [asyncio.create_task(threads.run(lambda: made.append(1))) for _ in range(2)]
        await run(lambda: begun.wait(SOON_S))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        held.set()
        await threads.run(lambda: made.append(2))

    with caplog.at_level(logging.DEBUG, "millstream.coroutines"):
        asyncio.run(main())
        assert threads.close(SOON_S)
    assert made == [2]
    assert not caplog.records


def test_short_calls_do_not_wait_for_long_ones() -> None:
    """A call on a thread of its own, however long, takes none from those that the short ones share."""
    held = threading.Event()

    async def main() -> list[str]:
        async with asyncio.timeout(SOON_S):
            long = [asyncio.create_task(run(lambda: held.wait(SOON_S), thread="long-one")) for _ in range(10)]
            short = [await run(lambda: threading.current_thread().name) for _ in range(3)]
            held.set()
            assert await asyncio.gather(*long) == [True] * 10
            return short

    assert all(name.startswith("millstream-async-") for name in asyncio.run(main()))


def test_tables_and_other_machines_do_not_hold_up_reads() -> None:
    """Each of them has a thread of its own, however many there are."""
    released = threading.Event()
    names: list[str] = []

    def slow() -> None:
        names.append(threading.current_thread().name)
        assert released.wait(10)

    async def main() -> int:
        waiting = [asyncio.create_task(awaitable(slow, "own")()) for _ in range(8)]
        quick = await asyncio.wait_for(run(lambda: 7), 5)
        released.set()
        await asyncio.gather(*waiting)
        return quick

    assert asyncio.run(main()) == 7
    assert names == ["own"] * 8


@pytest.mark.parametrize(
    "method",
    [
        EntryViews.to_arrow_async,
        EntryViews.to_pandas_async,
        RemoteStore.get_async,
        RemoteStore.multi_get_async,
        RemoteStore.fetch_session_async,
        RemoteStore.range_async,
        RemoteStore.fetch_all_async,
    ],
)
def test_what_may_take_long_has_a_thread_of_its_own(method: Callable[..., Any]) -> None:
    """The thread has its name."""
    assert inspect.getclosurevars(method).nonlocals["thread"] in (
        "millstream-async-table",
        "millstream-async-remote",
    )


def test_what_a_call_raises_is_raised_where_it_is_awaited() -> None:
    """It is unchanged, except that a StopIteration, which no coroutine can raise, becomes a RuntimeError."""

    def fail() -> None:
        raise KeyError("k")

    async def main() -> None:
        with pytest.raises(KeyError, match="k"):
            await awaitable(fail)()
        with pytest.raises(RuntimeError) as caught:
            await run(lambda: next(iter(())))
        assert isinstance(caught.value.__cause__, StopIteration)

    asyncio.run(main())


@pytest.mark.parametrize("loop_goes_on", [True, False])
def test_a_failure_that_nobody_waits_for_is_logged(
    loop_goes_on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The coroutine was cancelled, and perhaps its loop has ended, before the call failed."""
    held = threading.Event()

    def fail() -> None:
        assert held.wait(SOON_S)
        raise KeyError("too late")

    async def main() -> None:
        task = asyncio.create_task(run(fail))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if loop_goes_on:
            held.set()
            await run(lambda: wait_until(lambda: caplog.records, "it is logged", SOON_S))

    with caplog.at_level(logging.WARNING, "millstream.coroutines"):
        asyncio.run(main())
        held.set()
        wait_until(lambda: caplog.records, "it is logged", SOON_S)
    assert "had been cancelled" in caplog.text
    assert "too late" in caplog.text


def test_a_wait_is_the_same_on_a_thread_and_in_a_coroutine() -> None:
    """It is told whether what it waits for came in time, and what it returns or raises is passed on."""
    changes = Changes()
    numbers: list[int] = []

    def until(count: int, timeout_s: float) -> Until:
        def fits() -> bool:
            return len(numbers) >= count

        return Until(fits, timeout_s, fits, changes)

    def wait():  # type: ignore[no-untyped-def]
        first = yield until(1, 0.0)
        second = yield until(2, 0.01)
        if len(numbers) > 1:
            raise KeyError("enough")
        return first, second

    for numbers_there in ([], [1]):
        numbers[:] = numbers_there
        expected = (bool(numbers_there), False)
        assert block(wait()) == expected
        assert asyncio.run(awaited(wait())) == expected
    numbers.append(2)
    for go_through in (block, lambda wait: asyncio.run(awaited(wait))):
        with pytest.raises(KeyError, match="enough"):
            go_through(wait())


def test_a_waiting_coroutine_is_woken_from_any_thread_and_then_listens_no_more() -> None:
    """Whoever makes the change tells of it; cancelled or not, nobody is told afterwards."""
    changes, there = Changes(), threading.Event()

    def wait():  # type: ignore[no-untyped-def]
        return (yield Until(there.is_set, None, there.is_set, changes))

    def happen() -> None:
        there.set()
        changes.notify()

    async def main() -> None:
        async with asyncio.timeout(SOON_S):
            cancelled = asyncio.create_task(awaited(wait()))
            waiting = asyncio.create_task(awaited(wait()))
            await asyncio.sleep(0)
            assert len(changes._listeners) == 2
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            await run(happen)
            assert await waiting is True

    asyncio.run(main())
    assert changes._listeners == ()
