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
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

__all__ = [
    "Changes",
    "Do",
    "Threads",
    "Until",
    "Wait",
    "awaitable",
    "awaited",
    "block",
    "for_coroutines",
    "run",
]

T = TypeVar("T")
P = ParamSpec("P")

log = logging.getLogger(__name__)

_MOST = 4
"""How many short calls run at once: stores are read in microseconds, and Python runs one thread at a time."""
_IDLE_S = 5.0
"""How long a shared thread waits for another call before it ends."""


# --- calls -----------------------------------------------------------------------------------------------


class Threads:
    """A few threads that run calls, named `<name>-<n>`. They begin when there is work, and end when there has
    been none for a while, or with `close`.

    Args:
        most: how many calls run at once.
        idle_s: how long one waits for another call before it ends; None: until `close`.
        closed: the exception of a call after `close`.
        drops: whether a call whose coroutine was cancelled is dropped, if it has not begun, and its failure
            with it; else it goes on to its end, and a failure is logged.
    """

    def __init__(
        self,
        name: str,
        most: int,
        *,
        idle_s: float | None = None,
        closed: Callable[[], Exception] = lambda: RuntimeError("these threads have ended"),
        drops: bool = False,
    ) -> None:
        self._name, self._most, self._idle_s = name, most, idle_s
        self._refusal, self._drops = closed, drops
        self._numbers = itertools.count(1)
        self.forget()

    def forget(self) -> None:
        """In a forked child: the threads are the parent's."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._jobs: deque[Callable[[], None]] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._closed = False

    async def run(self, call: Callable[[], T]) -> T:
        """What a blocking call returns or raises, run on one of these threads.

        Raises:
            Exception: that of `closed`.
        """
        return await _outcome(call, self.add, drops=self._drops)

    def add(self, job: Callable[[], None]) -> None:
        """Run a job that raises nothing."""
        with self._lock:
            if self._closed:
                raise self._refusal()
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._changed.notify()
            elif len(self._threads) < self._most:
                name = f"{self._name}-{next(self._numbers)}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no more threads can be started
                    if not self._threads:
                        self._jobs.pop()
                        raise
                else:
                    self._threads.add(thread)

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
                self._changed.wait_for(lambda: self._jobs or self._closed, self._idle_s)
                self._idle -= 1
                if not self._jobs:
                    self._threads.discard(threading.current_thread())
                    return
                job = self._jobs.popleft()
            try:
                job()
            except BaseException:
                log.exception("a call for %s raised", self._name)  # the thread is still needed
            del job  # an idle thread keeps nothing alive

    def close(self, timeout_s: float) -> bool:
        """End the threads, once all calls are done; returns whether they ended in time. Idempotent."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
            threads = self._threads - {threading.current_thread()}
        until = time.monotonic() + timeout_s
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)


_threads = Threads("millstream-async", _MOST, idle_s=_IDLE_S)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.forget)


async def run(call: Callable[[], T], *, thread: str | None = None) -> T:
    """Await the result or exception of a blocking call.

    Args:
        thread: the name of a thread of its own, for a call that can take long; None: a short call.
    """
    if thread is None:
        return await _threads.run(call)

    def begin(job: Callable[[], None]) -> None:
        threading.Thread(target=job, name=thread, daemon=True).start()

    return await _outcome(call, begin, drops=False)


async def _outcome(call: Callable[[], T], begin: Callable[[Callable[[], None]], None], *, drops: bool) -> T:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    in_context = contextvars.copy_context()

    def work() -> None:
        if drops and future.cancelled():
            return
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
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:  # the loop is closed
            unheard(error)

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            unheard(error)
        elif error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def unheard(error: BaseException | None) -> None:
        if error is not None and not drops:
            log.warning("a call failed after the coroutine that made it had been cancelled", exc_info=error)

    begin(work)
    return await future


def awaitable(method: Callable[P, T], thread: str | None = None) -> Callable[P, Coroutine[Any, Any, T]]:
    """The method for coroutines: a short call, or one on a thread of its own, as with `run`."""

    @wraps(method)
    async def method_async(*arguments: P.args, **named: P.kwargs) -> T:
        return await run(partial(method, *arguments, **named), thread=thread)

    return for_coroutines(method, method_async, "`await` it")


F = TypeVar("F", bound=Callable[..., Any])


def for_coroutines(method: Callable[..., Any], method_async: F, use: str) -> F:
    """Name and describe the form of a method that is for coroutines."""
    method_async.__name__ = f"{method.__name__}_async"
    method_async.__qualname__ = f"{method.__qualname__}_async"
    method_async.__doc__ = f"`{method.__name__}` for coroutines: {use}."
    return method_async


# --- waits -----------------------------------------------------------------------------------------------


class Changes:
    """Notifies waiting coroutines of changes. Any thread may notify, even with locks held."""

    def __init__(self) -> None:
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._lock = threading.Lock()

    def notify(self) -> None:
        """Report a change."""
        for listener in self._listeners:
            listener()

    @contextmanager
    def notifying(self, listener: Callable[[], None]) -> Iterator[None]:
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

    with until.changes.notifying(listener):
        try:
            async with asyncio.timeout(until.timeout_s):
                while not until.fits():
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            return until.fits()
    return True
