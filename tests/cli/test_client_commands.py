"""`status`, `stores`, `query`, `failures`, `pause`, `resume`, `threads`: a client and its query server.

Both are real; Spark and Kafka are fakes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from certificates import made_in
from cli_running import run
from fake_world import FakeWorld
from waiting import wait_until

from millstream import (
    Consumed,
    KafkaStreams,
    Materialized,
    Serdes,
    StreamsBuilder,
    StreamsException,
    UncaughtExceptionPolicy,
)
from millstream.cli.client_commands import status_text, stores_text
from millstream.cli.query import entries_text, sql_text
from millstream.model import TopicPartition
from millstream.runtime.wiring import real_parts

TOKEN = "a-token-for-tests"


def started(world: FakeWorld, folder: Path, *, replaces: bool = False, **more: object) -> KafkaStreams:
    builder = StreamsBuilder()
    builder.table("prices", Consumed.with_(Serdes.string(), Serdes.long()), Materialized.as_("prices"))
    builder.stream("in").to("out")
    config = {
        "application.id": "app",
        "bootstrap.servers": "fake:9092",
        "state.dir": str(folder),
        "default.dsl.store": "in_memory",
        "client.id": "c",
        "query.server.enabled": True,
        **more,
    }
    parts = replace(world.parts(), query_server=real_parts().query_server)
    streams = KafkaStreams(builder.build(), config, parts=parts)
    if replaces:
        streams.set_uncaught_exception_handler(UncaughtExceptionPolicy.replace())
    streams.start()
    wait_until(lambda: streams.state is KafkaStreams.State.RUNNING, "it runs", 10)
    return streams


@pytest.fixture
def world() -> Iterator[FakeWorld]:
    """Surroundings with a table of two prices."""
    world = FakeWorld({"in": 1, "out": 1, "prices": 1})
    entries = [(key, struct.pack(">q", number), 1_000) for key, number in ((b"apple", 3), (b"pear", 5))]
    world.log.append(TopicPartition("prices", 0), *entries)
    yield world
    world.close()


@pytest.fixture
def streams(world: FakeWorld, tmp_path: Path) -> Iterator[KafkaStreams]:
    """A client whose query server wants a token."""
    streams = started(world, tmp_path, **{"query.server.token": TOKEN})
    yield streams
    streams.close()


def asked(streams: KafkaStreams, *arguments: str, token: str = TOKEN) -> tuple[int, str]:
    return run(*arguments, MILLSTREAM_URL=str(streams.query_server_url), MILLSTREAM_TOKEN=token)


def test_a_running_client_can_be_seen_asked_and_told(streams: KafkaStreams) -> None:
    """Each command once, as text or as JSON, and its exit code."""
    code, text = asked(streams, "status")
    assert code == 0, text
    assert "status     running (ready)" in text
    assert json.loads(asked(streams, "status", "--json")[1])["health"]["ready"]
    code, text = asked(streams, "stores", "--count")
    assert (code, text.splitlines()[1].split()) == (
        0,
        ["prices", "key-value", "string", "long", "1", "0", "2"],
    )
    assert asked(streams, "query", "get", "prices", "pear") == (0, "5\n")
    assert asked(streams, "query", "get", "prices", "fig") == (1, "store 'prices' has no key 'fig'\n")
    code, text = asked(streams, "query", "windows", "prices")
    assert (code, text) == (
        1,
        "error: 'prices' is a key-value store: read it with `millstream query get` or `millstream query "
        "range`\n",
    )
    assert asked(streams, "query", "range", "prices", "--from", "b") == (0, "KEY   VALUE\npear  5\n")
    code, text = asked(streams, "query", "range", "prices", "--reverse", "--json")
    assert [json.loads(line)["key"] for line in text.splitlines()] == ["pear", "apple"]
    code, text = asked(streams, "threads")
    assert (code, text.splitlines()[1].split()[:2]) == (0, ["c-StreamThread-1", "RUNNING"])
    assert asked(streams, "failures") == (0, "nothing has failed\n")


@pytest.mark.disk
def test_sql_is_answered_by_the_client(world: FakeWorld, tmp_path: Path) -> None:
    """The answer is a table or lines of JSON. An error names the tables that exist."""
    more = {"query.server.token": TOKEN, "query.server.sql.enabled": True}
    streams = started(world, tmp_path, **more)
    try:
        query = "select key, value * 2 as twice from prices order by 1"
        assert asked(streams, "query", "sql", query) == (0, "KEY    TWICE\napple      6\npear      10\n")
        code, text = asked(streams, "query", "sql", query, "--local", "--json")
        assert json.loads(text.partition("\n")[0]) == {"key": "apple", "twice": 6}
        code, text = asked(streams, "query", "sql", "select * from price")
        assert (code, "Did you mean 'prices'?" in text) == (1, True)
        assert "syntax error" in asked(streams, "query", "sql", "selec")[1]
        assert "the query is not a SELECT" in asked(streams, "query", "sql", "drop table prices")[1]
    finally:
        streams.close()


def test_a_client_is_paused_and_its_threads_change(streams: KafkaStreams) -> None:
    """What the commands do is what the methods of the client do."""
    code, text = asked(streams, "pause")
    assert (code, text) == (0, "c: paused; `millstream resume` resumes it\n")
    assert streams.is_paused
    assert asked(streams, "status")[0] == 1
    assert asked(streams, "resume")[0] == 0
    assert not streams.is_paused
    assert asked(streams, "threads", "add")[0] == 0
    wait_until(lambda: len(streams.metadata_for_local_threads()) == 2, "it has two threads", 10)
    code, text = asked(streams, "threads", "remove", "--json")
    assert (code, json.loads(text)["change"]) == (0, "remove")
    wait_until(lambda: len(streams.metadata_for_local_threads()) == 1, "it has one thread", 10)


def test_without_the_token_nothing_is_told_and_nothing_done(streams: KafkaStreams) -> None:
    """The sentence says where the token goes."""
    for command in (("status",), ("pause",), ("query", "get", "prices", "pear")):
        code, text = asked(streams, *command, token="another-token")
        assert code == 1
        assert "does not accept this token; set --token or MILLSTREAM_TOKEN" in text
    assert not streams.is_paused


def test_a_server_without_a_token_takes_no_commands(world: FakeWorld, tmp_path: Path) -> None:
    """This holds for this machine too, but the server still reports what it has."""
    streams = started(world, tmp_path)
    try:
        for command in (("pause",), ("resume",), ("threads", "add"), ("threads", "remove")):
            code, text = run(*command, MILLSTREAM_URL=str(streams.query_server_url))
            assert code == 1
            assert "set 'query.server.token'" in text
        assert (streams.is_paused, len(streams.metadata_for_local_threads())) == (False, 1)
        assert run("threads", MILLSTREAM_URL=str(streams.query_server_url))[0] == 0
    finally:
        streams.close()


def test_failures_are_listed(world: FakeWorld, tmp_path: Path) -> None:
    """The list shows the decision: here the thread is replaced, and its client continues."""
    streams = started(world, tmp_path, replaces=True)
    try:
        world.engine.end("p1", StreamsException("full"))
        wait_until(lambda: streams.failures, "it has failed", 10)
        code, text = run("failures", MILLSTREAM_URL=str(streams.query_server_url))
        assert code == 0
        assert text.splitlines()[1].split()[2:6] == ["REPLACE_THREAD", "1", "of", "5"]
    finally:
        streams.close()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("status", "--url", "http://127.0.0.1:1"), 1, "millstream run --serve 7070"),
        (("status", "--url", "nowhere"), 2, "is not a query server's address"),
        (("query", "get", "prices", "x", "--token", "a b"), 2, "a token must consist of"),
        (("threads", "double"), 2, "double"),
    ],
)
def test_who_cannot_be_asked_is_told_with_what_to_do(
    arguments: tuple[str, ...], code: int, said: str
) -> None:
    """Exit code 1 where nobody answers, 2 where what was given is wrong."""
    found, text = run(*arguments)
    assert (found, said in text) == (code, True), text


OVER_TLS = [
    ("status",),
    ("stores",),
    ("failures",),
    ("threads",),
    ("top", "--once"),
    ("query", "get", "prices", "apple"),
    ("query", "range", "prices"),
    ("pause",),
    ("resume",),
]


@pytest.mark.disk
def test_the_authority_of_an_encrypted_server_is_named_by_an_option_or_the_environment(
    world: FakeWorld, tmp_path: Path
) -> None:
    """Without it, or with another one, no command shows the token or gets an answer."""
    files = made_in(tmp_path, "IP:127.0.0.1")
    more = {**files.config, "query.server.token": TOKEN}
    streams = started(world, tmp_path, **more)
    try:
        assert str(streams.query_server_url).startswith("https://127.0.0.1:")
        trusted = ("--ca-file", files.certificate)
        filled = ("query", "get", "prices", "apple", *trusted)
        wait_until(lambda: asked(streams, *filled)[0] == 0, "it is filled", 10)
        for command in OVER_TLS:
            for trusts in (("--ca-file", files.other), ()):
                code, text = asked(streams, *command, *trusts)
                assert code == 1, f"{command}: {text}"
                assert "CERTIFICATE_VERIFY_FAILED" in text
            code, text = asked(streams, *command, *trusted)
            assert code == 0, f"{command}: {text}"
        where = {"MILLSTREAM_URL": str(streams.query_server_url), "MILLSTREAM_TOKEN": TOKEN}
        code, text = run("query", "get", "prices", "pear", **where, MILLSTREAM_CA_FILE=files.certificate)
        assert (code, text) == (0, "5\n")
    finally:
        streams.close()


def test_a_file_without_authorities_is_refused(tmp_path: Path) -> None:
    """The error names the option, and nothing is sent."""
    (tmp_path / "empty.pem").write_text("")
    for file in ("empty.pem", "nowhere.pem"):
        code, text = run("status", "-u", "https://localhost:1", "--ca-file", str(tmp_path / file))
        assert code == 2, text
        assert "--ca-file" in text
        assert "cannot be read as CA certificates" in text


@pytest.mark.parametrize("by", ["option", "environment"])
def test_authorities_for_an_address_that_is_not_encrypted_are_refused(by: str) -> None:
    """Nobody takes such a connection for one with a trusted server; nothing is sent, and nothing read."""
    given = {"option": ("--ca-file", "ca.pem"), "environment": ()}[by]
    environ = {"MILLSTREAM_CA_FILE": "ca.pem"} if by == "environment" else {}
    code, text = run("status", "-u", "http://localhost:1", *given, **environ)
    assert code == 2, text
    assert (
        "Invalid value for --ca-file: the address http://localhost:1 is not encrypted, so no certificate is "
        "checked against 'ca.pem'; give an address that begins with https:, or no file of authorities" in text
    )


def test_unknown_stores_and_wrong_queries_are_told(streams: KafkaStreams) -> None:
    """The error lists what exists."""
    assert "'prices'" in asked(streams, "query", "get", "price", "x")[1]
    assert "query.server.sql.enabled" in asked(streams, "query", "sql", "select 1")[1], "it is off"


def test_a_status_that_is_not_well_says_why() -> None:
    """What is restored, what failed last, when it is tried again, and where the application's clients are."""
    health = {
        "ready": False,
        "status": "waiting",
        "reason": "thread t waits",
        "next_try": "2026-07-01T10:00:00+00:00",
        "details": {
            "client_state": "REBALANCING",
            "threads": {"t\x1b[2J": "RUNNING"},
            "pipelines": {"total": 2, "owned": 1, "running": 0},
            "restoring": {"totals": 1200, "other": None},
            "last_failure": {"at": "…", "pipeline": "p0", "thread": "t", "exception": "full"},
        },
    }
    clients = [{"host": "a:1", "stores": ["totals"], "partitions": ["x-0"], "standby_partitions": []}]
    text = status_text(health, clients)
    for said in ("0 of 1 run here; the application has 2", "p0: full", "1,200", "a:1", "waiting (not ready)"):
        assert said in text
    assert "\x1b" not in text


def test_tables_of_stores_and_entries() -> None:
    """Parts that cannot be read say why; windows have their times; a store may have no name for its serde."""
    store = {"store": "s", "kind": "window", "key_serde": None, "value_serde": "long", "partitions": 2}
    assert stores_text([{**store, "here": {"1": "restoring", "0": "readable"}}]).splitlines()[1].split() == (
        ["s", "window", "-", "long", "2", "0,", "1", "(restoring)"]
    )
    assert stores_text([]) == "the program has no stores"
    window = {"key": "k", "value": {"a": 1}, "start": 0, "end": 1_000}
    assert entries_text([window]).splitlines()[1] == (
        'k    1970-01-01T00:00:00.000Z  1970-01-01T00:00:01.000Z  {"a": 1}'
    )
    assert sql_text(["a", "b"], [[1, {"x": "\x1b"}]]).splitlines() == ["A  B", '1  {"x": "\\u001b"}']
