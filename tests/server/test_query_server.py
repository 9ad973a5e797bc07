"""The server on real sockets: what clients do to it, and how it starts and ends."""

from __future__ import annotations

import json
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from typing import Any

import pytest
from server_world import FakeStreams, application, with_slow_store
from waiting import wait_until

from millstream.errors import (
    ConfigException,
    IllegalStateException,
    StateStoreNotAvailableException,
    StreamsException,
)
from millstream.query.metadata import HostInfo
from millstream.server import Limits, QueryServer, RemoteStore
from millstream.server.entrance import is_loopback

LIMITS = Limits(transfer_s=0.2, deadline_s=5, idle_s=0.1)


def client_of(entries: int = 20, value_bytes: int = 8) -> FakeStreams:
    world = application()
    for number in range(entries):
        world.put_bytes(
            "counts", f"key-{number:06}".encode(), number.to_bytes(8, "big").rjust(value_bytes, b"\0")
        )
    return world.clients[0]


@pytest.fixture(scope="module")
def server() -> Iterator[QueryServer]:
    with QueryServer(client_of(), limits=LIMITS) as made:
        yield made


@pytest.fixture(scope="module")
def patient() -> Iterator[QueryServer]:
    """One with the usual limits, for what has to be right however slow this machine is."""
    with QueryServer(client_of()) as made:
        yield made


def is_well(server: QueryServer) -> bool:
    """Whether it answers another client, quickly."""
    connection = HTTPConnection(*server.address, timeout=5)
    connection.request("GET", "/v1/stores/counts/keys/key-000003")
    body = json.loads(connection.getresponse().read())
    connection.close()
    return bool(body["value"] == 3)


def sent(server: QueryServer, data: bytes, *, timeout_s: float = 10.0) -> bytes:
    """What comes back until the server closes the connection, or the time is over."""
    with socket.create_connection(server.address, timeout=timeout_s) as connection:
        received = b""
        try:
            connection.sendall(data)
            while chunk := connection.recv(65536):
                received += chunk
        except (ConnectionError, TimeoutError):
            pass  # it hung up in the middle of what was sent, which is one way to refuse it
        return received


def ends(connection: socket.socket, within_s: float) -> bool:
    """Whether the server closes a connection by itself."""
    connection.settimeout(within_s)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


# --- what clients do to it -------------------------------------------------------------------------------


def test_it_answers(patient: QueryServer) -> None:
    """Many requests over one connection, and no header that says what serves."""
    connection = HTTPConnection(*patient.address, timeout=5)
    for number in range(20):
        connection.request("GET", f"/v1/stores/counts/keys/key-{number:06}")
        response = connection.getresponse()
        assert json.loads(response.read())["value"] == number
        assert response.getheader("server") is None
    connection.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"\x00" * 1000,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx\r\n\r\n",
        b"GET http://evil.example/healthz HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n",
        b"POST /v1/stores/counts/keys HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n",
        b"POST /v1/stores/counts/keys HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n"
        b"content-length: 2\r\n\r\nab",
        b"POST /v1/stores/counts/keys HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nz\r\n",
        b"POST /v1/stores/counts/keys HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
        b"content-length: 3\r\nconnection: close\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
        b"POST /v1/stores/counts/keys HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999999999\r\n\r\n",
        b"GET /v1/stores/counts/keys/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999999999\r\n\r\n",
    ],
    ids=lambda data: repr(data[:30]),
)
def test_what_is_no_request_of_ours_is_refused_and_the_connection_ends(
    server: QueryServer, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    """4xx, or no word at all; within a second or two; and the server is well."""
    received = sent(server, data)
    assert received == b"" or received.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200"))
    assert is_well(server)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_random_bytes_leave_it_well(server: QueryServer, caplog: pytest.LogCaptureFixture) -> None:
    """Noise, and noise that begins as a request does; it does not fill the log either."""
    chance = random.Random(7)
    for _ in range(60):
        head = chance.choice(
            [b"", b"GET /", b"POST /v1/stores/counts/keys HTTP/1.1\r\n", b"GET / HTTP/1.1\r\n"]
        )
        received = sent(server, head + chance.randbytes(chance.randrange(300)) + b"\r\n\r\n")
        assert not received.startswith(b"HTTP/1.1 5")
    assert is_well(server)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_body_that_never_ends_is_cut_off(patient: QueryServer) -> None:
    """Its size is counted chunk by chunk, and the connection ends."""
    head = b"POST /v1/stores/counts/keys HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += b"transfer-encoding: chunked\r\n\r\n"
    received = sent(patient, head + (b"10000\r\n" + bytes(0x10000) + b"\r\n") * 40)
    assert received == b"" or received.startswith(b"HTTP/1.1 413")
    assert is_well(patient)


UNFINISHED = [
    b"",
    b"GET /healthz HT",
    b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n",
    b"POST /v1/stores/counts/keys HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 50\r\n\r\n{",
    b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET /hea",
    b"POST /nothing HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{",
]


def test_clients_that_do_not_finish_their_requests_lose_their_connections(server: QueryServer) -> None:
    """Soon, and nobody else notices; also in the middle of a second request."""
    with ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection(server.address)) for _ in UNFINISHED]
        for connection, beginning in zip(connections, UNFINISHED, strict=True):
            connection.sendall(beginning)
        assert is_well(server)
        for connection, beginning in zip(connections, UNFINISHED, strict=True):
            assert ends(connection, 10), beginning


def test_a_client_that_trickles_loses_its_connection(server: QueryServer) -> None:
    """A byte now and then is no progress: the time counts from the beginning of the head."""
    with socket.create_connection(server.address) as connection:
        connection.settimeout(0.05)
        began = time.monotonic()

        def is_closed() -> bool:
            try:
                connection.sendall(b"x")
                return connection.recv(100) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        connection.sendall(b"GET /healthz HTTP/1.1\r\nx: ")
        wait_until(is_closed, "the connection ends", 20)
        assert time.monotonic() - began < 10


def test_a_client_that_does_not_read_its_answer_loses_its_connection() -> None:
    """It holds no iterator of a store meanwhile, and no thread."""
    client = client_of(3_000, 1_000)
    with QueryServer(client, limits=LIMITS) as server:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(server.address)
        connection.sendall(
            b"GET /v1/stores/counts/entries?limit=3000&format=bytes HTTP/1.1\r\nhost: localhost\r\n\r\n"
        )
        assert connection.recv(10) == b"HTTP/1.1 2"
        opened = [store for (name, _), store in client.stores.items() if name == "counts"]
        assert [len(store._iterators) for store in opened] == [0, 0, 0, 0]
        made: Any = server._server
        wait_until(lambda: not made.server_state.connections, "the connection is gone", 20)
        connection.close()
        assert server.close()


def test_many_connections_that_do_nothing_shut_nobody_out(server: QueryServer) -> None:
    """They end by themselves, and make room."""
    idle = [socket.create_connection(server.address) for _ in range(300)]
    try:

        def answered() -> bool:
            try:
                return is_well(server)
            except (OSError, ValueError, KeyError):
                return False

        wait_until(answered, "there is room again", 20)
        assert all(ends(connection, 10) for connection in idle)
    finally:
        for connection in idle:
            connection.close()


def test_neither_keys_nor_tokens_reach_a_log(caplog: pytest.LogCaptureFixture) -> None:
    """This holds at any level for this server, uvicorn and asyncio."""
    caplog.set_level(logging.DEBUG)
    with (
        QueryServer(client_of(), token="s3cr3t-token") as server,
        RemoteStore(server.url, "counts", token="s3cr3t-token") as store,
    ):
        assert store.get("customer-4711") is None
        sent(
            server,
            b"GET /v1/stores/counts/keys/customer-4712 HTTP/1.1\r\nconnection: close\r\nhost: a\r\n\r\n",
        )
        sent(server, b"GET /customer-4713\r\n\r\n")
        with pytest.raises(StreamsException, match="401"):
            RemoteStore(server.url, "counts", token="s3cr3t-wrong").get("customer-4714")
    assert "customer" not in caplog.text
    assert "s3cr3t" not in caplog.text
    assert "s3cr3t" not in repr(server) + repr(store)


# --- how it starts and ends ------------------------------------------------------------------------------


def test_its_threads_have_names_and_end() -> None:
    """All of them daemons."""
    client = client_of()
    client.client_id = "naming"
    server = QueryServer(client)
    with server, RemoteStore(server.url, "counts") as store:
        assert store.get("key-000001") == 1
        mine = [thread for thread in threading.enumerate() if thread.name.startswith("naming-")]
        assert {each.name.rstrip("-1234") for each in mine} == {"naming-QueryReader", "naming-QueryServer"}
        assert all(each.daemon for each in mine)
    assert not any(each.is_alive() for each in mine)


def test_it_starts_once() -> None:
    """It can be closed any number of times, started or not."""
    server = QueryServer(client_of())
    server.start()
    with pytest.raises(IllegalStateException):
        server.start()
    assert server.close()
    assert server.close()
    with pytest.raises(IllegalStateException):
        server.start()
    never = QueryServer(client_of())
    assert never.close()
    with pytest.raises(IllegalStateException):
        never.start()


def test_who_waits_for_a_slow_answer_is_told_that_the_server_closes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After the closing time, the client gets the error for a client that is gone; no traceback is logged."""
    monkeypatch.setattr("millstream.server.serving._GRACE_S", 0.1)
    client, store = with_slow_store()
    server = QueryServer(client).start()
    told: list[str] = []

    def read() -> None:
        try:
            RemoteStore(server.url, "counts").get("a")
        except Exception as error:
            told.append(type(error).__name__)
        store.go.set()

    reading = threading.Thread(target=read, name="reads", daemon=True)
    reading.start()
    wait_until(lambda: store.reads > 0, "the store is being read", 20)
    assert server.close()
    reading.join(20)
    assert told == ["StateStoreNotAvailableException"]
    assert [record for record in caplog.records if record.exc_info] == []


def test_closing_wakes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends when it is told to, and not when it looks at the clock next."""
    monkeypatch.setattr("millstream.server.serving._TICK_S", 3600.0)
    with QueryServer(client_of()) as server:
        assert is_well(server)
        assert server.close()


def test_its_port_is_free_after_it() -> None:
    """Another one can listen there at once; two at a time cannot, which start() tells."""
    first = QueryServer(client_of()).start()
    address = first.address
    with pytest.raises(StreamsException, match=r"cannot listen on .*'query\.server\.listen'"):
        QueryServer(client_of(), address).start()
    assert is_well(first)
    first.close()
    with QueryServer(client_of(), address) as second:
        assert second.address == address
        assert is_well(second)


def test_closing_while_it_answers_ends_in_answers_or_in_closed_connections() -> None:
    """Readers get values, or an exception that says the server is gone; and close() does not hang."""
    server = QueryServer(client_of()).start()
    outcomes: list[str] = []
    running = threading.Event()

    def read() -> None:
        with RemoteStore(server.url, "counts") as store:
            while True:
                try:
                    assert store.get("key-000003") == 3
                    running.set()
                except StateStoreNotAvailableException as error:
                    outcomes.append(type(error).__name__)
                    return
                except BaseException as error:
                    outcomes.append(repr(error))
                    return

    threads = [threading.Thread(target=read, name=f"reads-{n}", daemon=True) for n in range(4)]
    for thread in threads:
        thread.start()
    assert running.wait(20)
    began = time.monotonic()
    assert server.close()
    assert time.monotonic() - began < 5
    for thread in threads:
        thread.join(20)
    assert outcomes == ["StateStoreNotAvailableException"] * 4


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("LOCALHOST", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.1.2.3", False),
        ("orders-1", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_who_reaches_an_address_decides_whether_it_needs_a_token(host: str, loopback: bool) -> None:
    """Refused when it is made, not when somebody has read the stores; unless it is allowed by name."""
    assert is_loopback(host) is loopback
    listen = HostInfo(host, 0)
    if loopback:
        QueryServer(client_of(), listen)
        return
    with pytest.raises(ConfigException, match=r"query\.server\.token"):
        QueryServer(client_of(), listen)
    QueryServer(client_of(), listen, token="secret")
    QueryServer(client_of(), listen, allow_anonymous=True)


def test_without_a_token_it_goes_by_its_own_names_only(patient: QueryServer) -> None:
    """A page in a browser that has its name lead here reads nothing."""
    connection = HTTPConnection(*patient.address, timeout=5)
    for host, status in (("localhost", 200), ("evil.example", 403), ("127.0.0.1:99", 200)):
        connection.request("GET", "/healthz", headers={"host": host})
        response = connection.getresponse()
        response.read()
        assert response.status == status
    connection.close()


def test_nothing_of_it_stays_open() -> None:
    """After four servers there are as many file descriptors as before."""
    with QueryServer(client_of()) as warm:
        assert is_well(warm)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(4):
        with QueryServer(client_of()) as made:
            assert is_well(made)
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert after <= before + 2
