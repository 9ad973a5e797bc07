"""The dashboard's events: each second, what has changed, as server-sent events.

All watchers share one look at the client. Each gets the sections that have changed since its last event, so a
slow watcher misses intermediate states but never the latest one. When the last watcher has left, the looks
stop. Used on one event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from millstream.server.answers import Refused

__all__ = ["Live"]

log = logging.getLogger(__name__)

_EVERY_S = 1.0


class Live:
    """Reports changes to a limited number of watchers.

    Args:
        take: looks at the client, and returns all sections.
        most: the maximum number of watchers at a time.
        every_s: the time between two looks.
    """

    def __init__(
        self, take: Callable[[], Awaitable[Mapping[str, Any]]], most: int, every_s: float = _EVERY_S
    ) -> None:
        self._take = take
        self._most = most
        self._every_s = every_s
        self._watchers = 0
        self._looking: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looked = asyncio.Event()
        self._ended = asyncio.Event()
        self._number = 0
        self._sections: dict[str, tuple[int, str]] = {}
        """Each section as last seen, as JSON, and the number of the look at which it last changed."""
        self._closed = False

    def watch(self) -> AsyncGenerator[bytes]:
        """Events for one watcher; they end when this is closed.

        Raises:
            Refused: there is already the maximum number of watchers.
        """
        if self._watchers >= self._most or self._closed:
            busy = f"{self._watchers} already watch this client; close a page, or try again"
            raise Refused(503, "Busy", busy, retriable=True)
        return self._events()

    def close(self) -> None:
        """End the events of all watchers. Any thread may call it. Idempotent."""
        self._closed = True
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._end)

    async def _events(self) -> AsyncGenerator[bytes]:
        if self._watchers >= self._most:
            return  # others were quicker
        self._watchers += 1
        try:
            self._begin()
            yield b"retry: 2000\n\n"
            seen = 0
            while not self._closed:
                looked, number = self._looked, self._number
                changed = {name: data for name, (at, data) in self._sections.items() if at > seen}
                if number > seen:
                    seen = number
                    yield _event(changed) if changed else b": nothing has changed\n\n"
                await looked.wait()
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._stop()

    def _begin(self) -> None:
        if self._looking is None:
            self._loop = asyncio.get_running_loop()
            self._looked, self._ended = asyncio.Event(), asyncio.Event()
            self._looking = asyncio.create_task(self._look())

    def _stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        self._sections.clear()

    async def _look(self) -> None:
        while not self._closed:
            try:
                sections = dict(await self._take())
                sections["trouble"] = None
            except Exception as error:
                # Its message may contain record data, so only the class is logged.
                log.debug("the dashboard could not look at the client: %s", type(error).__name__)
                sections = {"trouble": type(error).__name__}
            self._number += 1
            for name, value in sections.items():
                data = json.dumps(value, separators=(",", ":"), allow_nan=False)
                if self._sections.get(name, (0, None))[1] != data:
                    self._sections[name] = self._number, data
            self._wake()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._ended.wait()

    def _end(self) -> None:
        self._ended.set()
        self._wake()

    def _wake(self) -> None:
        looked, self._looked = self._looked, asyncio.Event()
        looked.set()


def _event(sections: Mapping[str, str]) -> bytes:
    """The event for sections that are already JSON; its time is the server's."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    parts = [f'"at":"{at}"', *(f"{json.dumps(name)}:{data}" for name, data in sections.items())]
    return f"event: change\ndata: {{{','.join(parts)}}}\n\n".encode("ascii")
