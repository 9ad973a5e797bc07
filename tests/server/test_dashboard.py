"""The dashboard: its page, what it shows of a client, and who is told.

The client and its server are real; Kafka and Spark are fakes.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from fake_world import FakeWorld
from server_world import ask
from waiting import wait_until

import millstream.server
from millstream import Consumed, KafkaStreams, Materialized, Serdes, StreamsBuilder, StreamsException
from millstream.cli.main import app as commands
from millstream.config import StreamsConfig
from millstream.model import BatchReport, TopicPartition
from millstream.query.metadata import HostInfo
from millstream.remote.answers import Refused
from millstream.remote.http_wire import Reply
from millstream.runtime.policies import UncaughtExceptionPolicy
from millstream.runtime.wiring import real_parts
from millstream.server.application import QueryApplication
from millstream.server.dashboard import Live, answer_of, machine_of
from millstream.states import CLIENT, State

UI = Path(millstream.server.__file__).parent / "ui"
TOKEN = "a-token-for-tests"


@pytest.fixture
def world() -> Iterator[FakeWorld]:
    """Surroundings with one input topic."""
    world = FakeWorld({"lines": 2, "totals": 2})
    yield world
    world.close()


def started(world: FakeWorld, folder: Path, **more: object) -> KafkaStreams:
    builder = StreamsBuilder()
    lines = builder.stream("lines", Consumed.with_(Serdes.string(), Serdes.string()))
    lines.group_by_key().count(Materialized.as_("totals-store")).to_stream().to("totals")
    config = {
        "application.id": "app",
        "bootstrap.servers": "fake:9092",
        "state.dir": str(folder),
        "default.dsl.store": "in_memory",
        "client.id": "c",
        "ui.enabled": True,
        **more,
    }
    parts = replace(world.parts(), query_server=real_parts().query_server)
    streams = KafkaStreams(builder.build(), config, parts=parts)
    streams.set_uncaught_exception_handler(UncaughtExceptionPolicy.replace())
    streams.start()
    wait_until(lambda: streams.state is State.RUNNING, "it runs", 10)
    return streams


@pytest.fixture
def streams(world: FakeWorld, tmp_path: Path) -> Iterator[KafkaStreams]:
    """A client with a dashboard, whose server wants a token."""
    streams = started(world, tmp_path, **{"query.server.token": TOKEN})
    yield streams
    streams.close()


# --- the page --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page() -> QueryApplication:
    """The application of a client that nobody asks anything else of."""
    from server_world import application

    return QueryApplication(application().clients[0], TOKEN, ui=True)


def test_the_page_and_its_files_are_shown_without_the_token(page: QueryApplication) -> None:
    """Each with its type, and with what a browser may do: nothing but ask this server."""
    for name, kind in (
        ("", "text/html"),
        ("style.css", "text/css"),
        ("main.js", "text/javascript"),
        ("icon.svg", "image/svg+xml"),
    ):
        answer = ask(page, f"/ui/{name}")
        assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, kind)
        assert answer.raw == (UI / (name or "index.html")).read_bytes()
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert (ask(page, "/ui").status, ask(page, "/ui").headers["location"]) == (308, "ui/")
    for other in ("/ui/other.js", "/ui/..%2Fservice.py", "/ui/__init__.py"):
        assert ask(page, other).status == 404


def test_what_the_page_shows_needs_the_token(page: QueryApplication) -> None:
    """The page has no data in it."""
    for path in ("/v1/dashboard", "/v1/dashboard/events"):
        assert ask(page, path).status == 401
        assert ask(page, path, token="another").status == 401


def test_without_ui_enabled_there_is_no_dashboard() -> None:
    """The answer names the setting."""
    from server_world import application

    for path in ("/ui", "/ui/", "/ui/main.js", "/v1/dashboard", "/v1/dashboard/events"):
        answer = ask(QueryApplication(application().clients[0]), path)
        assert (answer.status, answer.body["error"]) == (404, "NotFound")
        assert "ui.enabled" in answer.body["message"]
    assert not StreamsConfig({"application.id": "a", "bootstrap.servers": "b:1"})["ui.enabled"]


def test_the_files_of_the_page_load_each_other_and_nothing_else() -> None:
    """No address of another server, no script in the page, nothing that makes markup or code of data."""
    texts = {file.name: file.read_text(encoding="utf-8") for file in UI.iterdir()}
    for name, text in texts.items():
        assert re.findall(r"(?:https?:)?//[a-z0-9]+\.[a-z]", text.replace("//www.w3.org", "")) == [], name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(", text
        )
    html = texts["index.html"]
    assert not re.search(r"<script(?![^>]* src=)|<style|\son[a-z]+=|\sstyle=", html)
    assert set(re.findall(r'(?:src|href)="([^"#]+)"', html)) <= set(texts)
    exported = {
        name: set(re.findall(r"^export (?:async )?(?:const|function|class) (\w+)", text, re.MULTILINE))
        for name, text in texts.items()
    }
    imported = {("index.html", "main.js")}
    for name, text in texts.items():
        for names, source in re.findall(r'^import \{ ([\w, ]+) \} from "\./([\w.]+)";$', text, re.MULTILINE):
            assert set(names.split(", ")) <= exported[source], (name, source)
            assert all(len(re.findall(rf"\b{each}\b", text)) > 1 for each in names.split(", ")), name
            imported.add((name, source))
    assert {source for _, source in imported} == {name for name in texts if name.endswith(".js")}


# --- what it shows ---------------------------------------------------------------------------------------


def test_the_state_machine_is_the_table_that_decides() -> None:
    """Each state, and each transition that is allowed between two of them."""
    drawn = machine_of(State).as_dict()
    boxes, lines = drawn["boxes"], drawn["lines"]
    assert isinstance(boxes, list)
    assert isinstance(lines, list)
    assert {box["name"] for box in boxes} == {state.name for state in State}
    allowed = {
        (old.name, new.name) for old, found in CLIENT.allowed.items() for new in found if new is not old
    }
    assert {(line["from"], line["to"]) for line in lines} == allowed


class Watcher:
    """Reads the events of a query server, as the page does."""

    def __init__(self, streams: KafkaStreams, token: str | None = TOKEN) -> None:
        place = urlsplit(str(streams.query_server_url))
        self._connection = http.client.HTTPConnection(str(place.hostname), int(place.port or 0), timeout=10)
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._connection.request("GET", "/v1/dashboard/events", headers=headers)
        self.answer = self._connection.getresponse()
        self.seen: dict[str, Any] = {}

    def until(self, *sections: str) -> dict[str, Any]:
        """All that is known, once there is something new of each of these."""
        missing = set(sections)
        while missing:
            line = self.answer.readline()
            assert line, "the events have ended"
            if line.startswith(b"data: "):
                told = json.loads(line[6:])
                self.seen.update(told)
                missing -= told.keys()
        return self.seen

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


def test_events_tell_all_and_then_what_has_changed(streams: KafkaStreams, world: FakeWorld) -> None:
    """State, health, threads, stores, failures, batches, rates and lag; and they end with the client."""
    at = TopicPartition("lines", 0)
    world.engine.report(
        BatchReport(
            "p0",
            batch_id=7,
            read={at: 60},
            lag={at: 9},
            parts={"triggerExecution": 120, "addBatch": 100},
            dropped={("late", "COUNT"): 2},
        )
    )
    watcher = Watcher(streams)
    assert watcher.answer.getheader("content-type") == "text/event-stream"
    seen = watcher.until("client", "failures")
    assert seen["client"] == {"id": "c", "state": "RUNNING", "paused": False, "commands": True}
    assert (seen["health"]["status"], seen["trouble"]) == ("running", None)
    assert [thread["state"] for thread in seen["threads"]] == ["RUNNING"]
    assert [store["store"] for store in seen["stores"]] == ["totals-store"]
    assert (seen["failures"], seen["group"]["members"]) == ([], 1)
    (batch,) = seen["batches"]
    assert (batch["pipeline"], batch["batch-id"], batch["batch-duration-last"]) == ("p0", 7, 120)
    assert batch["parts"] == {"addBatch": 100}
    assert seen["flow"]["topics"] == {"lines": {"lag": 9, "rate": pytest.approx(2.0, rel=0.2)}}
    assert seen["flow"]["nodes"] == {"KSTREAM-SOURCE-0000000000": pytest.approx(2.0, rel=0.2)}
    assert seen["flow"]["dropped"] == {"COUNT": 2}
    world.engine.end("p0", StreamsException("full"))
    (failure,) = watcher.until("failures")["failures"]
    assert (failure["thread"], failure["response"]) == ("c-StreamThread-1", "REPLACE_THREAD")
    began = time.monotonic()
    streams.close()
    while watcher.answer.readline():
        pass
    assert time.monotonic() - began < 1.8, "who watches holds up the client"
    watcher.close()


def test_what_stays_is_the_topology_and_the_state_machine(streams: KafkaStreams) -> None:
    """They are pictures with places, and text."""
    application = QueryApplication(streams, TOKEN, ui=True)
    try:
        still = ask(application, "/v1/dashboard", token=TOKEN).body
    finally:
        application.close()
    boxes = {box["id"]: box for box in still["topology"]["boxes"]}
    assert {"topic lines", "topic totals", "store totals-store"} <= boxes.keys()
    assert still["topology"]["frames"][0]["pipeline"] == "p0"
    assert still["described"] == str(streams.topology.describe())
    assert len(still["machine"]["boxes"]) == 7


def test_a_server_without_a_token_says_that_it_takes_no_commands(world: FakeWorld, tmp_path: Path) -> None:
    """The page then has no buttons."""
    streams = started(world, tmp_path)
    try:
        watcher = Watcher(streams, None)
        assert watcher.until("client")["client"]["commands"] is False
        watcher.close()
    finally:
        streams.close()


def test_ui_on_the_command_line_says_where_it_is(streams: KafkaStreams) -> None:
    """The token is no part of the address."""
    from typer.testing import CliRunner

    url = str(streams.query_server_url)
    told = CliRunner().invoke(commands, ["ui", "--url", url, "--token", TOKEN, "--no-open"])
    assert (told.exit_code, told.output) == (0, f"the dashboard is at {url}/ui/; open it there\n")


# --- events ----------------------------------------------------------------------------------------------


async def taken(live: Live, count: int) -> list[Mapping[str, Any]]:
    """The first events that tell something."""
    found = []
    async with aclosing(live.watch()) as pieces:
        async for piece in pieces:
            if piece.startswith(b"event: change"):
                found.append(json.loads(piece.partition(b"data: ")[2]))
                if len(found) == count:
                    break
    return found


def test_nobody_looks_at_the_client_while_nobody_watches() -> None:
    """Watchers are told what has changed, and the next first one all of it again."""
    looks = []

    async def take() -> Mapping[str, Any]:
        looks.append(1)
        return {"same": 1, "other": len(looks) // 2}

    async def scene() -> None:
        live = Live(take, 2, every_s=0)
        assert not looks
        first, second = await taken(live, 2)
        assert (first["same"], first["other"], "same" in second, second["other"]) == (1, 0, False, 1)
        await asyncio.sleep(0)
        count = len(looks)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(looks) == count
        assert (await taken(live, 1))[0]["same"] == 1
        live.close()

    asyncio.run(scene())


def test_only_so_many_may_watch_and_all_end_at_the_close() -> None:
    """Who is one too many is told to come back."""

    async def take() -> Mapping[str, Any]:
        return {}

    async def scene() -> None:
        live = Live(take, 2, every_s=60)
        watching = [asyncio.create_task(taken(live, 99)) for _ in range(2)]
        while live._watchers != 2:
            await asyncio.sleep(0)
        with pytest.raises(Refused, match="2 already watch this client"):
            live.watch()
        live.close()
        async with asyncio.timeout(5):
            await asyncio.gather(*watching)
        with pytest.raises(Refused):
            live.watch()

    asyncio.run(scene())


def test_a_client_that_cannot_be_looked_at_is_told_by_the_class_of_the_error() -> None:
    """What the error says may be what a record says."""

    async def take() -> Mapping[str, Any]:
        raise ValueError("a secret")

    async def scene() -> None:
        live = Live(take, 1, every_s=0)
        (told,) = await taken(live, 1)
        assert told["trouble"] == "ValueError"
        assert "secret" not in str(told)
        live.close()

    asyncio.run(scene())


def test_what_other_clients_say_is_cut_and_made_fit_to_show() -> None:
    """They are clients that have proved it, and yet only text is taken, and not too much."""
    host = HostInfo("a", 1)
    body = {"status": "running\x1b[2J", "ready": "yes", "reason": "x" * 1_000}
    told = answer_of(host, Reply(200, body, b""))
    assert (told["status"], told["ready"]) == ("running\\x1b[2J", False)
    assert len(told["reason"]) <= 330
    assert answer_of(host, None)["status"] == "no answer"
    assert answer_of(host, Refused(502, "BadGateway", "why"))["reason"] == "why"
