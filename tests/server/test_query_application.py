"""The ASGI application in this process: what it answers, whom it lets in, and that nothing upsets it."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server_world import (
    PARTITIONS,
    Application,
    FakeStreams,
    application,
    ask,
    call,
    filled,
    key_in,
    with_slow_store,
)
from tiers import examples
from waiting import wait_until

from millstream.errors import ConfigException, StreamsNotStartedException
from millstream.query.provider import PartRole
from millstream.remote.json_codec import to_base64
from millstream.server.application import QueryApplication
from millstream.server.entrance import Limits


@pytest.fixture(scope="module")
def world() -> Application:
    return filled()


@pytest.fixture(scope="module")
def app(world: Application) -> Iterator[QueryApplication]:
    made = QueryApplication(world.clients[0])
    yield made
    made.close()


# --- reads -----------------------------------------------------------------------------------------------


def test_a_key_has_its_value_and_its_timestamp(app: QueryApplication) -> None:
    """They are JSON."""
    answer = ask(app, "/v1/stores/counts/keys/key-3")
    assert answer.status == 200
    assert answer.body == {"store": "counts", "key": "key-3", "value": 3, "timestamp": 103}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"


def test_a_key_without_a_value_is_no_error_of_a_store(app: QueryApplication) -> None:
    """404 with `error`: there is no such store; 404 without: no such key."""
    nothing = ask(app, "/v1/stores/counts/keys/nobody")
    assert (nothing.status, nothing.body) == (404, {"store": "counts", "key": "nobody", "value": None})
    unknown = ask(app, "/v1/stores/count/keys/nobody")
    assert (unknown.status, unknown.body["error"]) == (404, "UnknownStateStoreException")
    assert "Did you mean 'counts'?" in unknown.body["message"]


def test_a_key_and_its_value_as_bytes(app: QueryApplication) -> None:
    """The same with format=bytes, for clients that have the serdes."""
    answer = ask(app, f"/v1/stores/counts/keys/{to_base64(b'key-3')}?format=bytes")
    assert answer.body["value"] == to_base64((3).to_bytes(8, "big"))


def test_many_keys_come_in_their_order(app: QueryApplication) -> None:
    """Keys without a value have null."""
    answer = ask(app, "/v1/stores/counts/keys", body={"keys": ["key-9", "nobody", "key-1"]})
    assert [entry["value"] for entry in answer.body["entries"]] == [9, None, 1]
    assert [entry["key"] for entry in answer.body["entries"]] == ["key-9", "nobody", "key-1"]


def paged(app: QueryApplication, target: str) -> list[dict[str, Any]]:
    """All entries, page after page."""
    entries: list[dict[str, Any]] = []
    joint = "&" if "?" in target else "?"
    cursor = ""
    while True:
        body = ask(app, f"{target}{cursor}").body
        entries += body["entries"]
        if body["next"] is None:
            return entries
        cursor = f"{joint}cursor={body['next']}"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", sorted(f"key-{n}" for n in range(25))),
        ("?limit=3", sorted(f"key-{n}" for n in range(25))),
        ("?limit=3&reverse=true", sorted((f"key-{n}" for n in range(25)), reverse=True)),
        ("?from=key-5&to=key-7&limit=2", ["key-5", "key-6", "key-7"]),
        ("?from=key-5&to=key-7&limit=2&reverse=true", ["key-7", "key-6", "key-5"]),
        ("?prefix=key-2&limit=2", ["key-2", "key-20", "key-21", "key-22", "key-23", "key-24"]),
        ("?prefix=key-2&limit=4&reverse=true", ["key-24", "key-23", "key-22", "key-21", "key-20", "key-2"]),
        ("?from=key-7&to=key-5", []),
        ("?prefix=nobody", []),
    ],
)
def test_a_range_comes_in_pages(app: QueryApplication, query: str, expected: list[str]) -> None:
    """The order is that of the keys over all partitions, forwards and backwards."""
    assert [entry["key"] for entry in paged(app, f"/v1/stores/counts/entries{query}")] == expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("windows?limit=3", [(key, start) for key in "ab" for start in range(0, 5000, 1000)]),
        (
            "windows?limit=3&reverse=true",
            [(key, start) for key in "ba" for start in range(4000, -1, -1000)],
        ),
        ("windows?from_key=b&from=3000", [("b", 3000), ("b", 4000)]),
        ("windows?to_key=a&to=1970-01-01T00:00:01Z", [("a", 0), ("a", 1000)]),
        ("windows/a?from=1000&to=3000&limit=1", [("a", 1000), ("a", 2000), ("a", 3000)]),
        ("windows/a?from=3000&to=1000", []),
        (
            "windows/a?from=-5&to=9223372036854775807&limit=4",
            [("a", start) for start in range(0, 5000, 1000)],
        ),
        ("windows/a?to=-1", []),
        ("windows/a?from=9223372036854775807", []),
        ("windows/a?reverse=true&from=3000", [("a", 4000), ("a", 3000)]),
        ("windows/nobody", []),
    ],
)
def test_windows_come_in_pages(app: QueryApplication, target: str, expected: list[tuple[str, int]]) -> None:
    """A request is for one key or many; the order is by key and then by start."""
    entries = paged(app, f"/v1/stores/windows/{target}")
    assert [(entry["key"], entry["start"]) for entry in entries] == expected
    assert all(entry["end"] == entry["start"] + 1000 for entry in entries)


def test_one_window(app: QueryApplication) -> None:
    """Key and start select it; the status is 404 if there is none."""
    answer = ask(app, "/v1/stores/windows/windows/a?time=2000")
    assert answer.body["value"] == 2
    assert (answer.body["start"], answer.body["end"]) == (2000, 3000)
    assert ask(app, "/v1/stores/windows/windows/a?time=2001").status == 404


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("sessions?limit=3", [(key, start) for key in "ab" for start in range(0, 5000, 1000)]),
        ("sessions/a?limit=2", [("a", start) for start in range(0, 5000, 1000)]),
        ("sessions/a?earliest_end=1500&latest_start=2000", [("a", 1000), ("a", 2000)]),
        ("sessions?earliest_end=4500", [("a", 4000), ("b", 4000)]),
        ("sessions/b?reverse=true&latest_start=1000&limit=1", [("b", 1000), ("b", 0)]),
    ],
)
def test_sessions_come_in_pages(app: QueryApplication, target: str, expected: list[tuple[str, int]]) -> None:
    """A request is for one key or many."""
    entries = paged(app, f"/v1/stores/sessions/{target}")
    assert [(entry["key"], entry["start"]) for entry in entries] == expected


def test_one_session(app: QueryApplication) -> None:
    """Key, start and end select it; it has no timestamp."""
    answer = ask(app, "/v1/stores/sessions/sessions/a?start=1000&end=1500")
    assert answer.body == {"store": "sessions", "key": "a", "value": 1, "start": 1000, "end": 1500}
    assert ask(app, "/v1/stores/sessions/sessions/a?start=1000&end=1501").status == 404


def test_a_store_is_counted_and_described(app: QueryApplication) -> None:
    """Kind, serdes, partitions, and what is here."""
    assert ask(app, "/v1/stores/counts/count").body["count"] == 25
    store = ask(app, "/v1/stores/windows").body
    assert (store["kind"], store["key_serde"], store["value_serde"]) == ("window", "string", "long")
    assert store["here"] == {str(number): "readable" for number in range(PARTITIONS)}
    assert store["window_size_ms"] == 1000
    stores = ask(app, "/v1/stores").body["stores"]
    names = ["counts", "prices", "sessions", "table", "users", "windows"]
    assert [each["store"] for each in stores] == names


@pytest.mark.parametrize(
    "target",
    ["windows/keys/a", "windows/entries", "counts/windows", "counts/windows/a?time=1", "windows/sessions"],
)
def test_a_route_for_another_kind_of_store_names_those_that_read_it(
    app: QueryApplication, target: str
) -> None:
    """409."""
    answer = ask(app, f"/v1/stores/{target}")
    assert (answer.status, answer.body["error"]) == (409, "InvalidStateStoreTypeException")
    said = {
        "windows": "store 'windows' is a window store; read it at /v1/stores/windows/windows/{key} or "
        "/v1/stores/windows/windows",
        "counts": "store 'counts' is a key-value store; read it at /v1/stores/counts/keys/{key} or "
        "/v1/stores/counts/entries",
    }
    assert answer.body["message"] == said[target.partition("/")[0]]


# --- in each state ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "status", "error", "retry"),
    [
        ("CREATED", 503, "StreamsNotStartedException", True),
        ("REBALANCING", 503, "StreamsRebalancingException", True),
        ("PENDING_SHUTDOWN", 503, "StateStoreNotAvailableException", False),
        ("NOT_RUNNING", 503, "StateStoreNotAvailableException", False),
        ("ERROR", 503, "StateStoreNotAvailableException", False),
    ],
)
@pytest.mark.parametrize(
    "target",
    ["keys/a", "entries", "count", "keys"],
)
def test_what_cannot_be_read_now_is_the_leaf_of_kip_216(
    state: str, status: int, error: str, retry: bool, target: str
) -> None:
    """Of every read, with the facts, and Retry-After where that helps."""
    client = application().clients[0]
    client.publish(client_state=state, threads={"t": "STARTING" if state == "REBALANCING" else "RUNNING"})
    made = QueryApplication(client)
    body = {"keys": ["a"]} if target == "keys" else None
    answer = ask(made, f"/v1/stores/counts/{target}", body=body)
    made.close()
    assert (answer.status, answer.body["error"]) == (status, error)
    assert answer.body["retriable"] is retry
    assert ("retry-after" in answer.headers) is retry
    assert (answer.body["store"], answer.body["client_state"]) == ("counts", state)


def test_stores_are_described_in_any_state() -> None:
    """This holds before the client has started; serdes that are not known yet are null."""
    client = application().clients[0]
    client.publish(client_state="CREATED")
    made = QueryApplication(client)
    assert ask(made, "/v1/stores/counts").status == 200
    assert ask(made, "/v1/stores").body["client_state"] == "CREATED"
    made.close()


def test_what_is_being_restored_answers_to_stale_reads_only() -> None:
    """`enable_stale_stores()` does the same."""
    world = filled()
    client = world.clients[0]
    client.roles = {("counts", number): PartRole.RESTORING for number in range(PARTITIONS)}
    client.publish()
    made = QueryApplication(client)
    assert ask(made, "/v1/stores/counts/keys/key-3").body["error"] == "StreamsRebalancingException"
    assert ask(made, "/v1/stores/counts/keys/key-3?stale=true").body["value"] == 3
    assert len(ask(made, "/v1/stores/counts/entries?stale=true").body["entries"]) == 25
    assert ask(made, "/v1/stores/counts/keys?stale=true", body={"keys": ["key-3"]}).status == 200
    made.close()


def test_a_key_of_nobody_who_can_be_asked_is_misdirected() -> None:
    """Not "no value": another client may have it. A range is not the whole one either, unless asked for."""
    world = application([0], [1, 2, 3])
    made = QueryApplication(world.clients[0])
    for query in ("", "?local=true"):
        answer = ask(made, f"/v1/stores/counts/keys/{key_in(1)}{query}")
        assert (answer.status, answer.body["error"]) == (421, "InvalidStateStorePartitionException")
    assert ask(made, "/v1/stores/counts/keys", body={"keys": [key_in(1)]}).status == 421
    assert ask(made, "/v1/stores/counts/entries").body["error"] == "StreamsRebalancingException"
    assert ask(made, "/v1/stores/counts/count").status == 503
    local = ask(made, "/v1/stores/counts/entries?local=true")
    assert (local.status, local.body["partitions"]) == (200, [0])
    made.close()


def test_a_global_store_is_here_as_a_whole() -> None:
    """No other client is asked."""
    world = application([0], [1, 2, 3])
    world.put_at(0, "users", 0, "anna", 7)
    made = QueryApplication(world.clients[0])
    assert ask(made, "/v1/stores/users/keys/anna").body["value"] == 7
    assert ask(made, "/v1/stores/users/keys/nobody").status == 404
    assert len(ask(made, "/v1/stores/users/entries").body["entries"]) == 1
    assert ask(made, "/v1/stores/users/count").body["count"] == 1
    found = ask(made, "/v1/stores/users/keys", body={"keys": ["anna", "bob"]}).body["entries"]
    assert [entry["value"] for entry in found] == [7, None]
    made.close()


def test_a_store_that_is_closed_while_it_is_read_is_told() -> None:
    """The store goes away without the snapshot saying so yet."""
    world = filled()
    client = world.clients[0]
    made = QueryApplication(client)
    for store in client.stores.values():
        store.close()
    answer = ask(made, "/v1/stores/counts/keys/key-3")
    assert (answer.status, answer.body["error"]) == (421, "StateStoreMigratedException")
    made.close()


# --- health ----------------------------------------------------------------------------------------------


def test_health_is_told_to_orchestrators_without_a_token() -> None:
    """They learn one word; the facts are for those who have the token."""
    client = application().clients[0]
    made = QueryApplication(client, "secret")
    assert (ask(made, "/healthz").status, ask(made, "/readyz").status) == (200, 200)
    client.health.ready = False
    assert (ask(made, "/healthz").status, ask(made, "/readyz").status) == (200, 503)
    client.health.live = False
    assert ask(made, "/healthz").body == {"live": False, "status": "running"}
    assert ask(made, "/healthz").status == 503
    assert ask(made, "/v1/health").status == 401
    assert ask(made, "/v1/health", token="secret").body["reason"] == "all is well"
    made.close()


def test_head_is_get_without_a_body() -> None:
    """Probes send it."""
    made = QueryApplication(application().clients[0])
    answer = ask(made, "/healthz", method="HEAD")
    assert (answer.status, answer.raw) == (200, b"")
    assert int(answer.headers["content-length"]) > 0
    made.close()


# --- who is let in ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Bearer secre")],
        [(b"authorization", b"Bearer secrets")],
        [(b"authorization", b"bearer Secret")],
        [(b"authorization", b"Basic secret")],
        [(b"authorization", b"secret")],
        [(b"authorization", b"Bearer \xff\xfe")],
        [(b"authorization", b"Bearer secret"), (b"authorization", b"Bearer secret")],
    ],
    ids=str,
)
def test_without_the_token_nothing_is_told(headers: list[tuple[bytes, bytes]]) -> None:
    """401, before any store is looked at."""
    made = QueryApplication(application().clients[0], "secret")
    for target in ("/v1/stores", "/v1/stores/nosuch", "/v1/stores/counts/keys/a", "/v1/clients"):
        answer = ask(made, target, headers=headers)
        assert (answer.status, answer.body["error"]) == (401, "Unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
    made.close()


def test_with_the_token_one_is_let_in(caplog: pytest.LogCaptureFixture) -> None:
    """The scheme is written in any case; and nothing of it gets into a log."""
    caplog.set_level(logging.DEBUG)
    made = QueryApplication(application().clients[0], "s3cr3t-token")
    assert ask(made, "/v1/stores", token="s3cr3t-token").status == 200
    assert ask(made, "/v1/stores", headers=[(b"Authorization", b"BEARER s3cr3t-token")]).status == 200
    ask(made, "/v1/stores/counts/keys/4711", token="s3cr3t-wrong")
    made.close()
    assert "s3cr3t" not in caplog.text
    assert "4711" not in caplog.text
    assert "s3cr3t" not in repr(made)


@pytest.mark.parametrize("token", ["", "a b", "a\n", "ä", "\x00", 7])
def test_a_token_that_cannot_stand_in_a_header_is_refused(token: Any) -> None:
    """The error is raised when the application is created, not at the first request."""
    with pytest.raises(ConfigException, match="printable ASCII"):
        QueryApplication(application().clients[0], token)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"localhost:8080", 200),
        (b"LOCALHOST", 200),
        (b"127.0.0.1:1", 200),
        (b"[::1]:8080", 200),
        (b"evil.example", 403),
        (b"localhost.evil.example", 403),
        (b"", 403),
        (b"[::1]", 200),
        (b"[::1", 403),
        (b"[::1]evil.example", 403),
        (b"[::1]:8080.evil.example", 403),
        (b"localhost:evil", 403),
        (b"localhost:", 403),
        (b"localhost:8080:1", 403),
        (b"localhost:123456", 403),
        (b"localhost\n", 403),
        (b"\xff\xfe", 403),
    ],
)
def test_a_server_can_insist_on_its_name(host: bytes, status: int) -> None:
    """A web page whose name resolves to this machine reads nothing here."""
    made = QueryApplication(application().clients[0], allowed_hosts=["localhost", "127.0.0.1", "::1"])
    assert ask(made, "/healthz", headers=[(b"host", host)]).status == status
    assert ask(made, "/healthz", headers=[]).status == 403
    made.close()


# --- limits ----------------------------------------------------------------------------------------------


SMALL = Limits(
    target_bytes=200,
    body_bytes=100,
    keys=3,
    page=2,
    most_page=4,
    answer_bytes=20,
    concurrent=2,
    transfer_s=0.1,
)


@pytest.fixture(scope="module")
def small(world: Application) -> Iterator[QueryApplication]:
    made = QueryApplication(world.clients[0], limits=SMALL)
    yield made
    made.close()


def test_a_page_is_as_long_as_it_may_be(small: QueryApplication) -> None:
    """What is usual, what was asked for, and never more than the most."""
    lengths = [
        len(ask(small, f"/v1/stores/counts/entries{query}").body["entries"])
        for query in ("", "?limit=3", "?limit=1000000")
    ]
    assert lengths == [2, 3, 4]


def test_too_much_is_refused(small: QueryApplication) -> None:
    """Path and query, body by its length and by what comes, keys."""
    keys = "/v1/stores/counts/keys"
    assert ask(small, f"{keys}/{'a' * 300}").status == 414
    assert ask(small, keys, body=b"a" * 101).status == 413
    assert ask(small, keys, body={"keys": ["a"] * 4}).status == 413
    assert ask(small, keys, body={"keys": ["key-1"]}).status == 200
    answer = ask(small, keys, body={"keys": ["key-1", "key-2"]})
    assert (answer.status, answer.body["error"]) == (413, "TooLarge")
    for length in (b"101", b"9" * 30, b"-1", b"x", b""):
        answer = ask(small, keys, body=b"{}", headers=[(b"content-length", length)])
        assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert ask(small, f"{keys}/a", body=b"a", method="GET").status == 413


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"null",
        b"{}",
        b'{"keys":7}',
        b'{"keys":{}}',
        b'{"keys":[null]}',
        b'{"keys":[7]}',
        b'{"keys":[[]]}',
        b'{"keys":[],"more":1}',
        b"\xff\xfe\x00",
        b"[" * 90,
    ],
)
def test_a_body_that_is_no_list_of_keys_is_refused(small: QueryApplication, body: bytes) -> None:
    """400."""
    answer = ask(small, "/v1/stores/counts/keys", body=body)
    assert (answer.status, answer.body["error"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    "kind", [b"text/plain", b"application/x-www-form-urlencoded", b"", b"application/jsonl"]
)
def test_what_a_page_may_post_without_asking_is_refused(small: QueryApplication, kind: bytes) -> None:
    """A form, or a script of another origin, cannot have a browser send JSON without CORS."""
    headers = [(b"content-type", kind)]
    answer = ask(small, "/v1/stores/counts/keys", body={"keys": ["a"]}, headers=headers)
    assert (answer.status, answer.body["error"]) == (415, "UnsupportedMediaType")
    as_json = [(b"content-type", b"Application/JSON; charset=utf-8")]
    assert ask(small, "/v1/stores/counts/keys", body={"keys": ["a"]}, headers=as_json).status == 200


def test_a_body_that_does_not_come_is_not_waited_for(small: QueryApplication) -> None:
    """408 after the time for it; 400 when the client is gone."""

    async def never() -> Any:
        await asyncio.Event().wait()

    slow = asyncio.run(call(small, "POST", b"/v1/stores/counts/keys", receive=never))
    assert (slow.status, slow.headers["connection"]) == (408, "close")
    part = [{"type": "http.request", "body": b"{", "more_body": True}]
    gone = asyncio.run(call(small, "POST", b"/v1/stores/counts/keys", body=part))
    assert gone.status == 400


def test_a_read_that_takes_too_long_is_given_up() -> None:
    """504; the event loop is free all the while, and health is told."""
    client, store = with_slow_store()
    limits = Limits(deadline_s=0.05, transfer_s=0.05, readers=1)
    made = QueryApplication(client, limits=limits)
    try:
        answer = ask(made, "/v1/stores/counts/keys/a")
        assert (answer.status, answer.body["error"]) == (504, "TimeoutException")
        assert ask(made, "/healthz").status == 200
        # The only reader is still at it: what waited behind it is not even begun once its time is over.
        assert ask(made, "/v1/stores/counts/keys/b").status == 504
        store.go.set()
        wait_until(lambda: ask(made, "/v1/stores/counts/keys/c").status == 404, "the reader is free again")
        assert store.reads == 2
    finally:
        store.go.set()
        made.close()


def test_more_requests_than_can_be_answered_are_refused_at_once() -> None:
    """503 with Retry-After; those that are under way are answered, and health is told all the while."""
    client, store = with_slow_store()
    made = QueryApplication(client, limits=Limits(concurrent=2))

    async def three() -> tuple[int, list[int]]:
        target = b"/v1/stores/counts/keys/a"
        first = [asyncio.create_task(call(made, "GET", target)) for _ in range(2)]
        await asyncio.sleep(0)
        refused = await call(made, "GET", target)
        assert (await call(made, "GET", b"/healthz")).status == 200
        store.go.set()
        assert refused.headers["retry-after"] == "1"
        return refused.status, [(await each).status for each in first]

    assert asyncio.run(three()) == (503, [404, 404])
    made.close()


def test_a_client_that_does_not_take_its_answer_is_let_go(small: QueryApplication) -> None:
    """Its time runs out; the store was released before that."""

    async def stuck() -> None:
        async def receive() -> Any:
            return {"type": "http.request"}

        async def send(message: Any) -> None:
            await asyncio.Event().wait()

        scope = {"type": "http", "method": "GET", "path": "/healthz", "headers": [], "query_string": b""}
        await small(scope, receive, send)

    asyncio.run(asyncio.wait_for(stuck(), 10))


def test_after_close_nothing_is_read() -> None:
    """It is told as by a client that is gone; its threads have ended."""
    client = application().clients[0]
    client.client_id = "closing"
    made = QueryApplication(client)
    assert ask(made, "/v1/stores/counts/keys/a").status == 404
    assert ask(made, "/healthz").status == 200
    mine = [thread for thread in threading.enumerate() if thread.name.startswith("closing-Query")]
    assert sorted(thread.name for thread in mine) == ["closing-QueryHealth-1", "closing-QueryReader-1"]
    assert all(thread.daemon for thread in mine)
    made.close()
    made.close()
    assert not any(thread.is_alive() for thread in mine)
    answer = ask(made, "/v1/stores/counts/keys/a")
    assert (answer.status, answer.body["error"]) == (503, "StateStoreNotAvailableException")


# --- whatever goes wrong ---------------------------------------------------------------------------------


class BrokenStreams(FakeStreams):
    """A client in which something raises what nobody has thought of."""

    def query_metadata_for_key(self, *_: Any) -> Any:
        raise LookupError(f"customer {4710 + 1}")


def test_what_nobody_has_thought_of_is_an_answer_too(caplog: pytest.LogCaptureFixture) -> None:
    """500, a log that says where and not what, and the server goes on."""
    world = application()
    client = BrokenStreams("c0", [0], world.clients[0].snapshot().stores)
    made = QueryApplication(client)
    answer = ask(made, "/v1/stores/counts/owner/a")
    assert (answer.status, answer.body["error"]) == (500, "StreamsException")
    assert "4711" not in answer.raw.decode()
    assert "LookupError" in caplog.text
    assert "4711" not in caplog.text
    assert ask(made, "/healthz").status == 200
    made.close()


def test_other_exceptions_of_ours_are_told_as_they_are() -> None:
    """From wherever they come."""

    class NotStarted(FakeStreams):
        def metadata_for_all_streams_clients(self) -> Any:
            raise StreamsNotStartedException("call start() first")

    made = QueryApplication(NotStarted("c0", [0], application().clients[0].snapshot().stores))
    assert ask(made, "/v1/clients").body["error"] == "StreamsNotStartedException"
    made.close()


SEGMENTS = st.one_of(
    st.sampled_from(
        [
            "v1",
            "stores",
            "counts",
            "windows",
            "sessions",
            "users",
            "keys",
            "entries",
            "count",
            "owner",
            "a",
            "",
        ]
    ),
    st.sampled_from(["owner", "a", "", "healthz", "%00", "%2F", "%ff", "..", "🙂", "x"]),
    st.sampled_from(["v1", "stores", "counts", "keys"]),
)
PARAMETERS = st.one_of(
    st.sampled_from(["from", "to", "prefix", "limit", "cursor", "reverse", "format"]),
    st.sampled_from(["stale", "local", "time", "start", "end", "from_key", "earliest_end", "x"]),
)
VALUES = st.one_of(
    st.sampled_from(["", "true", "false", "json", "bytes", "0", "-1", "5", "99999999", "a"]),
    st.sampled_from(["AQ==", "%00", "%ff", "AQAAAAAAAAAAAAAAAAAAAAAA", "9223372036854775807"]),
)
BODIES = st.binary(max_size=80) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["keys", "$bytes"]), inner),
    max_leaves=8,
).map(lambda value: json.dumps(value).encode())


@settings(
    deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from(["GET", "GET", "GET", "POST", "HEAD", "PUT", "🙂"]),
    st.lists(SEGMENTS, max_size=6).filter(any),  # what stands at "/" is a page
    st.lists(st.tuples(PARAMETERS, VALUES), max_size=4),
    BODIES,
    st.lists(st.tuples(st.binary(max_size=10), st.binary(max_size=10)), max_size=3),
)
def test_no_request_is_an_error_of_the_server(
    app: QueryApplication,
    caplog: pytest.LogCaptureFixture,
    method: str,
    segments: list[str],
    parameters: list[tuple[str, str]],
    body: bytes,
    headers: list[tuple[bytes, bytes]],
) -> None:
    """Near to real requests or not: an answer in JSON, below 500, and nothing in the log."""
    query = "&".join(f"{name}={value}" for name, value in parameters)
    target = "/".join(["", *segments]) + (f"?{query}" if query else "")
    sent = [{"type": "http.request", "body": body if method == "POST" else b"", "more_body": False}]
    answer = asyncio.run(call(app, method, target.encode(), headers, sent))
    assert answer.status in (200, 400, 401, 404, 405, 409, 413, 414), (target, answer.raw)
    assert method == "HEAD" or isinstance(answer.body, dict)
    assert caplog.records == []


@settings(deadline=None, max_examples=examples(100))
@given(st.binary(max_size=300).filter(lambda path: path.strip(b"/?")), st.binary(max_size=100))
def test_no_bytes_are_an_error_of_the_server(path: bytes, query: bytes) -> None:
    """Path and query may have any bytes."""
    made = QueryApplication(FILLED.clients[0])
    answer = asyncio.run(call(made, "GET", path.replace(b"?", b"") + b"?" + query))
    made.close()
    assert answer.status in (400, 404, 405)


FILLED = filled()


# --- as a part of another application --------------------------------------------------------------------


def test_it_can_be_mounted() -> None:
    """It works under a path, in servers that decode the path; websockets are refused."""
    made = QueryApplication(FILLED.clients[0])

    async def ask_mounted(scope: dict[str, Any]) -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []

        async def receive() -> Any:
            return {"type": "http.request"}

        async def send(message: Any) -> None:
            sent.append(message)

        await made({"method": "GET", "headers": [], "query_string": b"", **scope}, receive, send)
        return sent

    http = {"type": "http", "root_path": "/in ner"}
    raw = asyncio.run(ask_mounted(http | {"path": "/in ner/healthz", "raw_path": b"/in%20ner/healthz?x"}))
    decoded = asyncio.run(ask_mounted(http | {"path": "/in ner/v1/stores/counts/keys/key-3"}))
    assert [raw[0]["status"], decoded[0]["status"]] == [200, 200]
    closed = asyncio.run(ask_mounted({"type": "websocket"}))
    assert closed == [{"type": "websocket.close", "code": 1003}]
    made.close()


def test_a_server_that_sends_lifespan_events_closes_it() -> None:
    """Startup and shutdown are answered."""
    made = QueryApplication(FILLED.clients[0])
    events = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[str] = []

    async def receive() -> Any:
        return next(events)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    asyncio.run(made({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert ask(made, "/v1/stores").status == 503
