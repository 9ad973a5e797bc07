"""The formats of answers: which one a request wants, by its Accept header, and how entries are written in it.

A format other than JSON contains the whole range instead of one page. Server-sent events carry what their
producer gives them, with heartbeats; sent events are not kept, so `Last-Event-ID` is ignored.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from millstream.model import StoreKind
from millstream.query.provider import StoreDeclaration
from millstream.query.store_codecs import Codecs
from millstream.remote.answers import Refused
from millstream.remote.json_codec import BYTES, from_base64
from millstream.remote.routes import Route
from millstream.stores.store_base import to_stored

__all__ = [
    "EVENT_HEADERS",
    "MEDIA_TYPE",
    "EntryWriter",
    "Event",
    "MediaType",
    "as_csv",
    "form_of",
    "forms_of",
    "kept_alive",
    "writer_of",
]

# --- server-sent events ---------------------------------------------------------------------------------


MEDIA_TYPE = "text/event-stream"

EVENT_HEADERS: Mapping[str, str] = {"content-type": MEDIA_TYPE, "x-accel-buffering": "no"}
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


# --- formats by the Accept header -----------------------------------------------------------------------


class MediaType(Enum):
    """The media type of an answer."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    CSV = "text/csv"
    ARROW = "application/vnd.apache.arrow.stream"
    EVENTS = MEDIA_TYPE


_ALSO = {"application/ndjson": MediaType.NDJSON, "*/*": MediaType.JSON, "application/*": MediaType.JSON}
_BY_NAME = {form.value: form for form in MediaType} | _ALSO
_MOST_WANTED = 32


def forms_of(route: Route) -> tuple[MediaType, ...]:
    """The possible forms of a route's answers. If there is only one, the header Accept is ignored."""
    if route.paged:
        return tuple(MediaType)
    if route.name == "sql":
        return (MediaType.JSON, MediaType.NDJSON, MediaType.CSV, MediaType.ARROW)
    return (MediaType.JSON, MediaType.EVENTS) if route.name == "get" else (MediaType.JSON,)


def form_of(route: Route, accept: str) -> MediaType:
    """The available form that the header Accept prefers; without a header, JSON.

    Raises:
        Refused: the header accepts none of the available forms.
    """
    offered = forms_of(route)
    if len(offered) == 1 or not accept.strip():
        return offered[0]
    best: tuple[float, MediaType] | None = None
    for wanted in accept.split(",")[:_MOST_WANTED]:
        name, *parameters = (part.strip().lower() for part in wanted.split(";"))
        form, quality = _BY_NAME.get(name), _quality(parameters)
        if form in offered and form is not None and quality > 0 and (best is None or quality > best[0]):
            best = quality, form
    if best is None:
        has = ", ".join(form.value for form in offered)
        raise Refused(406, "NotAcceptable", f"'Accept' names no available format; this path offers {has}")
    return best[1]


def _quality(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


# --- writing entries -------------------------------------------------------------------------------------


class EntryWriter(Protocol):
    """Writes the entries of a range, page by page, in a format. It gets them as in JSON."""

    content_type: str
    in_bytes: bool
    """Whether it needs keys and values as the base64 of their bytes instead of as JSON."""

    def page(self, entries: Sequence[Mapping[str, Any]]) -> bytes: ...

    def end(self) -> bytes: ...


def writer_of(form: MediaType, store: StoreDeclaration) -> EntryWriter:
    """The writer of a form."""
    match form:
        case MediaType.NDJSON:
            return _Lines()
        case MediaType.CSV:
            return _Csv(store.kind)
        case MediaType.ARROW:
            return _Arrow(store)
    raise ValueError(f"{form} is not a format for a sequence of entries")


class _Lines:
    content_type = MediaType.NDJSON.value
    in_bytes = False

    def page(self, entries: Sequence[Mapping[str, Any]]) -> bytes:
        lines = [json.dumps(entry, separators=(",", ":"), allow_nan=False) + "\n" for entry in entries]
        return "".join(lines).encode("ascii")

    def end(self) -> bytes:
        return b""


_CSV_COLUMNS = {
    StoreKind.KEY_VALUE: ("key", "value", "timestamp"),
    StoreKind.WINDOW: ("key", "start", "end", "value", "timestamp"),
    StoreKind.SESSION: ("key", "start", "end", "value"),
}


class _Csv:
    content_type = f"{MediaType.CSV.value}; charset=utf-8; header=present"
    in_bytes = False

    def __init__(self, kind: StoreKind) -> None:
        self._columns = _CSV_COLUMNS[kind]
        self._begun = False

    def page(self, entries: Sequence[Mapping[str, Any]]) -> bytes:
        rows = [[entry.get(name) for name in self._columns] for entry in entries]
        head = () if self._begun else self._columns
        self._begun = True
        return as_csv(head, rows)

    def end(self) -> bytes:
        return b""


def as_csv(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """Rows as in RFC 4180: text unchanged, bytes as base64, lists and objects as JSON.

    A missing value is an empty field, as empty text is.
    """
    written = io.StringIO()
    writer = csv.writer(written)
    if head:
        writer.writerow(head)
    writer.writerows([[_cell(value) for value in row] for row in rows])
    return written.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping) and set(value) == {BYTES}:
        return value[BYTES]
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return value


class _Arrow:
    content_type = MediaType.ARROW.value
    in_bytes = True

    def __init__(self, store: StoreDeclaration) -> None:
        assert store.key_serde is not None  # LocalStores.declaration ensures that
        assert store.value_serde is not None
        from millstream.query.arrow_stream import ArrowStream  # Arrow is imported only when it is needed

        self._kind = store.kind
        self._stream = ArrowStream(
            Codecs(
                store.name,
                store.kind,
                store.key_serde,
                store.value_serde,
                window_size_ms=store.window_size_ms,
            )
        )

    def page(self, entries: Sequence[Mapping[str, Any]]) -> bytes:
        return self._stream.batch([self._entry(entry) for entry in entries])

    def _entry(self, entry: Mapping[str, Any]) -> tuple[Any, bytes]:
        key, value = from_base64(entry["key"]), from_base64(entry["value"])
        stored = to_stored(value, entry.get("timestamp") or 0)
        match self._kind:
            case StoreKind.KEY_VALUE:
                return key, stored
            case StoreKind.WINDOW:
                return (key, entry["start"]), stored
            case _:
                return (key, entry["start"], entry["end"]), stored

    def end(self) -> bytes:
        return self._stream.end()
