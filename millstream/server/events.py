"""Server-sent events: the format of one, and a stream of them with heartbeats.

The content of an event is up to its producer. A client that reconnects gets the current state: sent events
are not kept, so `Last-Event-ID` is ignored.

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
"""The headers of an event stream. Without the last one, nginx would buffer it."""

_ALIVE = b":\n\n"
"""A comment, which listeners do not see."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        name: the event type for a browser's `addEventListener`; `data`: an object, sent as one line of JSON.
        retry_ms: how long a browser waits before it reconnects; None: its default.
    """

    name: str
    data: Any
    retry_ms: int | None = None

    def encoded(self) -> bytes:
        """The event as it is sent: in ASCII, with all else escaped, so that the data has no line break.

        Raises:
            ValueError: the name is not printable ASCII, or the data has NaN.
        """
        if not self.name or not self.name.isprintable() or not self.name.isascii():
            raise ValueError(f"an event's name must be printable ASCII; got {self.name!r}")
        retry = "" if self.retry_ms is None else f"retry: {self.retry_ms}\n"
        data = json.dumps(self.data, separators=(",", ":"), allow_nan=False)
        return f"{retry}event: {self.name}\ndata: {data}\n\n".encode("ascii")


async def kept_alive(events: AsyncGenerator[Event, None], heartbeat_s: float) -> AsyncGenerator[bytes, None]:
    """Events as they are sent; after `heartbeat_s` seconds without one, a comment.

    The comment shows listeners that the connection is alive, and detects a connection that is not. Closing
    this closes `events`.
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
