"""Threads for what blocks, so that the event loop never does; and a deadline for each request.

Threads start when there is work for them and are daemons: a program that ends does not wait for a read.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from millstream.errors import StateStoreNotAvailableException, TimeoutException

__all__ = ["Deadline", "Workers", "server_closed"]

T = TypeVar("T")


def server_closed() -> StateStoreNotAvailableException:
    """What is answered once the server is being closed."""
    return StateStoreNotAvailableException("this query server is closed; ask the one of another client")


class Deadline:
    """When a request has to be done. Any thread may ask."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    @property
    def remaining_s(self) -> float:
        """How long there still is; negative when it is over."""
        return self._at - time.monotonic()

    def check(self) -> None:
        """Raise when it is over.

        Raises:
            TimeoutException: it is.
        """
        if self.remaining_s <= 0:
            raise TimeoutException(
                f"no answer within {self.seconds:g} s; ask for less at once (limit=), or try again"
            )


class Workers:
    """A few threads that do one job after the other; `<name>-<n>` each."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._outstanding = 0
        """Jobs that wait or are being done."""
        self._closed = False

    async def run(self, job: Callable[[], T]) -> T:
        """What `job` gives, from a thread of these. If the caller stops waiting, the job goes on.

        Raises:
            Exception: what the job raised.
            StateStoreNotAvailableException: the workers were closed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = job()
            except BaseException as error:
                outcome: tuple[Callable[[Any], None], Any] = (future.set_exception, error)
            else:
                outcome = (future.set_result, result)

            def settle() -> None:
                if not future.done():
                    settled, value = outcome
                    settled(value)

            try:
                loop.call_soon_threadsafe(settle)
            except RuntimeError:
                return  # the loop has ended, and nobody waits any more

        self._add(work)
        return await future

    def _add(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                raise server_closed()
            self._outstanding += 1
            if self._outstanding > len(self._threads) and len(self._threads) < self._count:
                number = len(self._threads) + 1
                name = f"{self._name}-{number}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
            self._jobs.put(work)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            finally:
                with self._lock:
                    self._outstanding -= 1

    def close(self, timeout_s: float = 5.0) -> bool:
        """End the threads, each after the job it is at; whether all have ended in time. Idempotent."""
        with self._lock:
            first = not self._closed
            self._closed = True
            threads = list(self._threads)
            for _ in threads if first else ():
                self._jobs.put(None)
        deadline = Deadline(timeout_s)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline.remaining_s))
        return not any(thread.is_alive() for thread in threads)
