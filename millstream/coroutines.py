"""How coroutines make blocking calls and wait for changes: the one place for both.

*Calls* run on threads: short ones (reads of stores) on a few shared threads, long ones each on a thread of
its own, so that none has to wait for another. Threads are daemons and end by themselves. A cancelled
coroutine stops waiting at once; its call still runs to its end, and a failure that no one sees is logged.

*Waits* need no thread. A wait is written once, as a generator of what it waits for (`Until`); `block` runs it
on a thread, `awaited` in a coroutine. Cancelling it leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

__all__ = ["Changes", "Do", "Until", "Wait", "awaitable", "awaited", "block", "run"]

T = TypeVar("T")
P = ParamSpec("P")

log = logging.getLogger(__name__)

_MOST = 4
"""How many short calls run at once: stores are read in microseconds, and Python runs one thread at a time."""
_IDLE_S = 5.0
"""How long a shared thread waits for another call before it ends."""


# --- calls -----------------------------------------------------------------------------------------------


class _Threads:
    """A few threads that start when there is work, and end when there has been none for a while."""

    def __init__(self, most: int, idle_s: float) -> None:
        self._most, self._idle_s = most, idle_s
        self._numbers = itertools.count(1)
        self.forget()

    def forget(self) -> None:
        """In a forked child: the threads are the parent's."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._jobs: deque[Callable[[], None]] = deque()
        self._idle = self._count = 0

    def add(self, job: Callable[[], None]) -> None:
        with self._lock:
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._changed.notify()
            elif self._count < self._most:
                number = next(self._numbers)
                thread = threading.Thread(target=self._work, name=f"millstream-async-{number}", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no more threads can be started
                    if not self._count:
                        self._jobs.pop()
                        raise
                else:
                    self._count += 1

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
                self._changed.wait_for(lambda: self._jobs, self._idle_s)
                self._idle -= 1
                if not self._jobs:
                    self._count -= 1
                    return
                job = self._jobs.popleft()
            job()
            del job  # an idle thread keeps nothing alive


_threads = _Threads(_MOST, _IDLE_S)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.forget)


async def run(call: Callable[[], T], *, thread: str | None = None) -> T:
    """Await the result or exception of a blocking call.

    Args:
        thread: the name of a thread of its own, for a call that can take long; None: a short call.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    in_context = contextvars.copy_context()

    def work() -> None:
        error: BaseException | None = None
        result: Any = None
        try:
            result = in_context.run(call)
        except StopIteration as problem:  # a future cannot hold it; converted as in a generator (PEP 479)
            error = RuntimeError("a call raised StopIteration")
            error.__cause__ = problem
        except BaseException as problem:
            error = problem
        try:
            loop.call_soon_threadsafe(_settle, future, result, error)
        except RuntimeError:  # the loop is closed
            _log_unheard(error)

    if thread is None:
        _threads.add(work)
    else:
        threading.Thread(target=work, name=thread, daemon=True).start()
    return await future


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        _log_unheard(error)
    elif error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _log_unheard(error: BaseException | None) -> None:
    if error is not None:
        log.warning("a call failed after the coroutine that made it had been cancelled", exc_info=error)


def awaitable(method: Callable[P, T], thread: str | None = None) -> Callable[P, Coroutine[Any, Any, T]]:
    """The method for coroutines: a short call, or one on a thread of its own, as with `run`."""

    @wraps(method)
    async def method_async(*arguments: P.args, **named: P.kwargs) -> T:
        return await run(partial(method, *arguments, **named), thread=thread)

    method_async.__name__ = f"{method.__name__}_async"
    method_async.__qualname__ = f"{method.__qualname__}_async"
    method_async.__doc__ = f"`{method.__name__}` for coroutines: `await` it."
    return method_async


# --- waits -----------------------------------------------------------------------------------------------


class Changes:
    """Notifies waiting coroutines of changes. Any thread may notify, even with locks held."""

    def __init__(self) -> None:
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._lock = threading.Lock()

    def tell(self) -> None:
        """Report a change."""
        for listener in self._listeners:
            listener()

    @contextmanager
    def told_to(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener` at each change from now on; it must be quick."""
        with self._lock:
            self._listeners = (*self._listeners, listener)
        try:
            yield
        finally:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not listener)


@dataclass(frozen=True)
class Until:
    """Something to wait for.

    Attributes:
        fits: whether the condition holds; quick, and callable on any thread.
        timeout_s: how long to wait; None: without limit.
        block: waits on a thread, and returns whether the condition holds.
        changes: reports everything that can change the condition.
    """

    fits: Callable[[], bool]
    timeout_s: float | None
    block: Callable[[], bool]
    changes: Changes


@dataclass(frozen=True)
class Do:
    """A call within a wait that can take long; in a coroutine it runs on a thread of this name."""

    call: Callable[[], bool]
    thread: str


Wait: TypeAlias = Generator[Until | Do, bool, T]
"""Yields conditions to wait for and calls to make; is sent whether the condition held in time, or the call's
result; and returns or raises the outcome."""


def block(wait: Wait[T]) -> T:
    """Run a wait on this thread."""
    try:
        step = next(wait)
        while True:
            step = wait.send(step.call() if isinstance(step, Do) else step.block())
    except StopIteration as end:
        result: T = end.value
        return result


async def awaited(wait: Wait[T]) -> T:
    """Run a wait in this coroutine."""
    try:
        step = next(wait)
        while True:
            done = await (run(step.call, thread=step.thread) if isinstance(step, Do) else _until(step))
            step = wait.send(done)
    except StopIteration as end:
        result: T = end.value
        return result


async def _until(until: Until) -> bool:
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def wake() -> None:
        changed.set()

    def listener() -> None:
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:
            log.debug("the event loop of a waiting coroutine is closed")

    with until.changes.told_to(listener):
        try:
            async with asyncio.timeout(until.timeout_s):
                while not until.fits():
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            return until.fits()
    return True
