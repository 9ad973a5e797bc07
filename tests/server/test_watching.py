"""Changes of keys and ranges as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from server_world import application, ask, key_in

from millstream.query.metadata import HostInfo
from millstream.server import QueryServer
from millstream.server.application import QueryApplication
from millstream.server.entrance import Limits
from millstream.server.streaming import differences

Told = tuple[str, Any]


class Listener:
    """Somebody who listens: the events as they come."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._events: asyncio.Queue[Told] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._asked = False

    async def receive(self) -> Any:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif message["body"].startswith((b"event", b"retry")):
            lines = dict(line.split(": ", 1) for line in message["body"].decode().strip().split("\n"))
            self._events.put_nowait((lines["event"], json.loads(lines["data"])))
        elif message["body"].startswith(b":"):
            self._events.put_nowait(("alive", None))

    async def next(self) -> Told:
        return await asyncio.wait_for(self._events.get(), 10)

    def leave(self) -> None:
        self._gone.set()


def listening(app: QueryApplication, target: str, story: Callable[[Listener], Awaitable[None]]) -> Listener:
    """Listen, have the story happen, and leave."""

    async def run() -> Listener:
        listener = Listener()
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [(b"accept", b"text/event-stream")],
        }
        asking = asyncio.create_task(app(scope, listener.receive, listener.send))
        await story(listener)
        listener.leave()
        await asyncio.wait_for(asking, 10)
        return listener

    try:
        return asyncio.run(run())
    finally:
        app.close()


def test_a_key_is_told_as_it_is_and_as_it_becomes() -> None:
    """First what it is now, then each change, and that it has gone."""
    world = application()
    world.put("a", 1, timestamp=7)

    async def story(listener: Listener) -> None:
        name, data = await listener.next()
        assert (name, data) == (
            "now",
            {"store": "counts", "entries": [{"key": "a", "value": 1, "timestamp": 7}]},
        )
        world.put("b", 9)  # of somebody else
        world.put("a", 2, timestamp=8)
        name, data = await listener.next()
        assert (name, data["entries"]) == ("changed", [{"key": "a", "value": 2, "timestamp": 8}])
        world.clear("a")
        name, data = await listener.next()
        assert (name, data["entries"], data["removed"]) == ("changed", [], [{"key": "a"}])

    heard = listening(QueryApplication(world.clients[0]), "/v1/stores/counts/keys/a", story)
    assert (heard.status, heard.headers["content-type"]) == (200, "text/event-stream")


def test_a_key_that_is_not_there_yet_can_be_listened_to() -> None:
    """It comes when it comes."""
    world = application()

    async def story(listener: Listener) -> None:
        assert await listener.next() == ("now", {"store": "counts", "entries": []})
        world.put("a", 1)
        _, data = await listener.next()
        assert [entry["key"] for entry in data["entries"]] == ["a"]

    listening(QueryApplication(world.clients[0]), "/v1/stores/counts/keys/a", story)


def test_a_range_tells_what_is_different() -> None:
    """Unchanged entries and those outside are not sent."""
    world = application()
    for key in ("a", "b", "c"):
        world.put(key, 1)

    async def story(listener: Listener) -> None:
        _, data = await listener.next()
        assert [entry["key"] for entry in data["entries"]] == ["a", "b"]
        world.put("c", 2)
        world.put("aa", 3)
        _, data = await listener.next()
        assert ([entry["key"] for entry in data["entries"]], data["removed"]) == (["aa"], [])

    listening(QueryApplication(world.clients[0]), "/v1/stores/counts/entries?to=b", story)


def test_what_another_client_has_can_be_listened_to() -> None:
    """Any client tells of any key, and of a range of which it has a part."""
    world = application([0, 1], [2, 3])
    key = key_in(2)
    world.put(key, 1)
    with QueryServer(world.clients[1]) as other:
        world.agree({0: HostInfo("localhost", 1), 1: other.address})
        for target in (f"/v1/stores/counts/keys/{key}", "/v1/stores/counts/entries"):
            before = world.put_keys[key]

            async def story(listener: Listener, before: int = before) -> None:
                _, data = await listener.next()
                assert [entry["value"] for entry in data["entries"]] == [before]
                world.put(key, before + 1)
                _, data = await listener.next()
                assert [entry["value"] for entry in data["entries"]] == [before + 1]

            app = QueryApplication(world.clients[0], host=HostInfo("localhost", 1))
            listening(app, target, story)


def test_what_cannot_be_read_for_a_while_is_told() -> None:
    """Once; and when it can be read again, what has become different meanwhile."""
    world = application()
    world.put("a", 1)
    client = world.clients[0]

    async def story(listener: Listener) -> None:
        await listener.next()
        client.publish(threads={"t": "PARTITIONS_ASSIGNED"})
        world.put("a", 2)
        name, data = await listener.next()
        assert (name, data["error"]) == ("waiting", "StreamsRebalancingException")
        client.publish(threads={"t": "RUNNING"})
        name, data = await listener.next()
        assert (name, [entry["value"] for entry in data["entries"]]) == ("changed", [2])

    listening(QueryApplication(client), "/v1/stores/counts/keys/a", story)


def test_a_client_that_ends_says_so_last() -> None:
    """Listening ends with it."""
    world = application()
    client = world.clients[0]

    async def story(listener: Listener) -> None:
        await listener.next()
        client.publish(client_state="PENDING_SHUTDOWN")
        world.put("a", 1)
        name, data = await listener.next()
        assert (name, data["error"]) == ("failed", "StateStoreNotAvailableException")

    listening(QueryApplication(client), "/v1/stores/counts/entries", story)


def test_silence_is_broken_now_and_then() -> None:
    """Both ends notice when the other is gone."""

    async def story(listener: Listener) -> None:
        await listener.next()
        assert await listener.next() == ("alive", None)

    app = QueryApplication(application().clients[0], limits=Limits(heartbeat_s=0.01))
    listening(app, "/v1/stores/counts/entries", story)


def test_a_range_that_is_too_large_is_refused_or_ends() -> None:
    """What is listened to is kept and compared, so it has a bound."""
    world = application()
    world.put("a", 1)
    world.put("b", 1)
    app = QueryApplication(world.clients[0])
    accept = [(b"accept", b"text/event-stream")]
    refused = ask(app, "/v1/stores/counts/entries?limit=1", headers=accept)
    assert (refused.status, refused.body["error"]) == (413, "TooLarge")

    async def story(listener: Listener) -> None:
        await listener.next()
        world.put("c", 1)
        name, data = await listener.next()
        assert (name, data["error"]) == ("failed", "TooLarge")

    listening(app, "/v1/stores/counts/entries?limit=2", story)


def test_what_is_wrong_from_the_start_is_an_answer() -> None:
    """It is not an event."""
    app = QueryApplication(application().clients[0])
    accept = [(b"accept", b"text/event-stream")]
    assert ask(app, "/v1/stores/nosuch/keys/a", headers=accept).status == 404
    assert ask(app, "/v1/stores/counts/windows", headers=accept).status == 409
    assert ask(app, "/v1/clients", headers=accept).status == 200  # there it is JSON
    app.close()


ENTRIES = st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), st.integers(0, 2)).map(
    lambda found: [{"key": key, "start": start, "value": value} for (key, start), value in found.items()]
)


@given(ENTRIES, ENTRIES)
def test_differences_make_of_one_the_other(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> None:
    """What a listener has, after what it is told, is what there is; and it is told nothing twice."""
    changed, removed = differences(before, now)
    has = {(entry["key"], entry["start"]): entry for entry in before}
    for entry in removed:
        del has[entry["key"], entry["start"]]
    for entry in changed:
        assert has.get((entry["key"], entry["start"])) != entry
        has[entry["key"], entry["start"]] = dict(entry)
    assert has == {(entry["key"], entry["start"]): entry for entry in now}
