"""Server-sent events: how one is written, and a stream of them with heartbeats.

The content of an event is up to its producer. A client that reconnects gets the current state: no sent events
are kept, so `Last-Event-ID` is ignored.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

__all__ = ["HEADERS", "MEDIA_TYPE", "Event", "kept_alive"]

MEDIA_TYPE = "text/event-stream"

HEADERS: Mapping[str, str] = {"content-type": MEDIA_TYPE, "x-accel-buffering": "no"}
"""The headers of such an answer; nginx would else wait for more before it passes anything on."""

_ALIVE = b":\n\n"
"""A comment, which no listener hears of."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        name: what a browser's `addEventListener` is given; `data`: an object, sent as one line of JSON.
        retry_ms: how long a browser waits before it connects anew; None: as it likes.
    """

    name: str
    data: Any
    retry_ms: int | None = None

    def encoded(self) -> bytes:
        """As it goes over the wire: ASCII, in which all else is escaped, so that no line breaks in it.

        Raises:
            ValueError: the name has a line break, or the data has NaN.
        """
        if not self.name or not self.name.isprintable() or not self.name.isascii():
            raise ValueError(f"{self.name!r} cannot be the name of an event")
        retry = "" if self.retry_ms is None else f"retry: {self.retry_ms}\n"
        data = json.dumps(self.data, separators=(",", ":"), allow_nan=False)
        return f"{retry}event: {self.name}\ndata: {data}\n\n".encode("ascii")


async def kept_alive(events: AsyncGenerator[Event, None], heartbeat_s: float) -> AsyncGenerator[bytes, None]:
    """Events as they go over the wire; after so many seconds without one, a comment.

    So whoever listens knows that the connection lives, and a connection that does not is noticed. Closing it
    closes `events`.
    """
    coming: asyncio.Task[Event] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait({coming}, timeout=heartbeat_s)
            if not done:
                yield _ALIVE
                continue
            try:
                event = coming.result()
            except StopAsyncIteration:
                return
            coming = None
            yield event.encoded()
    finally:
        if coming is not None:
            coming.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await coming
        await events.aclose()
