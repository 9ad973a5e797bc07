"""Server-sent events, and answers that are sent while they are made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import pytest
from server_world import application, call

from millstream.remote.answers import Answer
from millstream.server.application import QueryApplication
from millstream.server.entrance import Limits
from millstream.server.forms import EVENT_HEADERS, Event, kept_alive

Pieces = Callable[[], AsyncGenerator[bytes, None]]


def test_an_event_is_lines_of_ascii() -> None:
    """Line breaks and other characters are escaped, so that nothing in it can look like another event."""
    event = Event("changed", {"key": "ä\n\ndata: x", "value": 1}, retry_ms=2000)
    assert event.encoded() == (
        b'retry: 2000\nevent: changed\ndata: {"key":"\\u00e4\\n\\ndata: x","value":1}\n\n'
    )


@pytest.mark.parametrize("name", ["", "a\nb", "a\rb", "ä"])
def test_a_name_that_would_break_the_lines_is_refused(name: str) -> None:
    """The error is raised before anything is sent."""
    with pytest.raises(ValueError, match="an event's name must be printable ASCII"):
        Event(name, {}).encoded()


def test_what_is_silent_shows_that_it_lives() -> None:
    """Comments come until there is an event; closing the stream closes what makes the events."""
    closed = []

    async def run() -> list[bytes]:
        go = asyncio.Event()

        async def source() -> AsyncGenerator[Event, None]:
            try:
                yield Event("first", 1)
                await go.wait()
                yield Event("second", 2)
                await asyncio.Event().wait()
            finally:
                closed.append(True)

        got: list[bytes] = []
        async with aclosing(kept_alive(source(), 0.01)) as stream:
            async for piece in stream:
                got.append(piece)
                if len(got) == 3:
                    go.set()
                if b"second" in piece:
                    break
        return got

    got = asyncio.run(asyncio.wait_for(run(), 10))
    assert got[0] == b"event: first\ndata: 1\n\n"
    assert got[1:3] == [b":\n\n", b":\n\n"]
    assert got[-1] == b"event: second\ndata: 2\n\n"
    assert closed == [True]


def test_a_stream_ends_where_its_source_ends() -> None:
    """It does not wait for anything."""

    async def run() -> list[bytes]:
        async def source() -> AsyncGenerator[Event, None]:
            yield Event("only", None)

        return [piece async for piece in kept_alive(source(), 60)]

    assert asyncio.run(asyncio.wait_for(run(), 10)) == [b"event: only\ndata: null\n\n"]


# --- sent by the application -----------------------------------------------------------------------------


class Streaming:
    """As service.py: QueryService, which answers everything with the same pieces."""

    def __init__(self, pieces: Pieces, content_type: str) -> None:
        self.given = Answer(200, headers={"content-type": content_type}, pieces=pieces)

    async def answer(self, *_: Any, **__: Any) -> Answer:
        return self.given

    def error(self, error: Exception) -> Answer:
        return Answer(503, {"error": str(error)})

    def close(self) -> None:
        pass


def app_with(pieces: Pieces, limits: Limits | None = None, content_type: str = "text/csv") -> Any:
    app: Any = QueryApplication(application().clients[0], limits=limits)
    app._service.close()
    app._service = Streaming(pieces, content_type)
    return app


async def asked(app: Any, method: str = "GET", gone: asyncio.Event | None = None) -> list[dict[str, Any]]:
    """All messages of an answer; the client stays until it is `gone`."""
    gone = gone or asyncio.Event()
    first = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        message = next(first, None)
        if message is None:
            await gone.wait()
            return {"type": "http.disconnect"}
        return message

    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(dict(message))

    scope = {"type": "http", "method": method, "path": "/v1/stores", "query_string": b"", "headers": []}
    await asyncio.wait_for(app(scope, receive, send), 10)
    return sent


def test_pieces_are_sent_as_they_come() -> None:
    """The answer has no length, but an end; HEAD has only the head."""

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"a\n"
        yield b"b\n"

    start, *rest = asyncio.run(asked(app_with(pieces)))
    assert (b"content-type", b"text/csv") in start["headers"]
    assert b"content-length" not in dict(start["headers"])
    assert [(part["body"], part.get("more_body", False)) for part in rest] == [
        (b"a\n", True),
        (b"b\n", True),
        (b"", False),
    ]
    _, *rest = asyncio.run(asked(app_with(pieces), "HEAD"))
    assert [part["body"] for part in rest] == [b""]


def test_what_fails_on_the_way_is_cut() -> None:
    """No end is sent, so that nobody takes a part for the whole."""

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"a\n"
        raise OSError("lost")

    _, *rest = asyncio.run(asked(app_with(pieces)))
    assert [part.get("more_body", False) for part in rest] == [True]


def endless(closed: list[bool], begun: asyncio.Event) -> Pieces:
    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            yield b":\n\n"
            begun.set()
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    return pieces


def test_it_ends_with_its_client() -> None:
    """What makes the pieces is closed when the client has gone."""

    async def run() -> list[bool]:
        closed: list[bool] = []
        begun, gone = asyncio.Event(), asyncio.Event()
        asking = asyncio.create_task(asked(app_with(endless(closed, begun)), gone=gone))
        await begun.wait()
        gone.set()
        await asking
        return closed

    assert asyncio.run(asyncio.wait_for(run(), 10)) == [True]


@pytest.mark.parametrize(
    ("content_type", "has_end"), [("text/csv", False), (EVENT_HEADERS["content-type"], True)]
)
def test_it_ends_with_the_server(content_type: str, has_end: bool) -> None:
    """Events come to an end then; anything else is cut."""

    async def run() -> tuple[list[bool], list[dict[str, Any]]]:
        closed: list[bool] = []
        begun = asyncio.Event()
        app = app_with(endless(closed, begun), content_type=content_type)
        asking = asyncio.create_task(asked(app))
        await begun.wait()
        app.end_streams()
        return closed, await asking

    closed, sent = asyncio.run(asyncio.wait_for(run(), 10))
    assert closed == [True]
    assert sent[-1].get("more_body", False) is not has_end


def test_it_lasts_no_longer_than_the_limit() -> None:
    """Whoever wants more connects anew."""

    async def run() -> list[bool]:
        closed: list[bool] = []
        limits = Limits(stream_s=0.02)
        await asked(app_with(endless(closed, asyncio.Event()), limits))
        return closed

    assert asyncio.run(run()) == [True]


def test_there_are_so_many_at_a_time() -> None:
    """One more is refused at once, and told to try again."""

    async def run() -> int:
        begun, gone = asyncio.Event(), asyncio.Event()
        app = app_with(endless([], begun), Limits(streams=1))
        asking = asyncio.create_task(asked(app, gone=gone))
        await begun.wait()
        refused = await call(app, "GET", b"/v1/stores")
        gone.set()
        await asking
        return refused.status

    assert asyncio.run(asyncio.wait_for(run(), 10)) == 503
