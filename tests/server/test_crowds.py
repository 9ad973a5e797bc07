"""Crowds that connect and say nothing: the process keeps its files, and whoever says something is heard."""

from __future__ import annotations

import json
import logging
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest
from server_world import application, with_slow_store
from waiting import wait_until

from millstream.server import Limits, QueryServer, RemoteStore

CROWD = Path(__file__).parent / "crowd.py"
FILES = 1024


@pytest.fixture(autouse=True)
def few_files() -> Iterator[None]:
    """What a process may usually open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def crowd(server: QueryServer, number: int) -> Iterator[subprocess.Popen[str]]:
    """Another process that has tried to open so many connections, and goes on."""
    command = [sys.executable, str(CROWD), server.address.host, str(server.address.port)]
    command += [str(number)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        while int(child.stdout.readline()) < number:
            pass
        yield child
    finally:
        child.kill()
        child.wait(10)
        child.stdin.close()
        child.stdout.close()


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


def answer(server: QueryServer, target: str, **headers: str) -> tuple[int, object]:
    connection = HTTPConnection(*server.address, timeout=10)
    try:
        connection.request("GET", target, headers=headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.cluster  # the crowd is another process
def test_idle_connections_use_up_neither_the_files_nor_the_places(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Health is told, who has the token is answered, the program opens its files, the log stays short."""
    world = application()
    world.put("anna", 3)
    caplog.set_level(logging.INFO)
    before = open_files()
    with QueryServer(world.clients[0], token="s3cret") as server, crowd(server, 2_000):
        for _ in range(20):
            assert open_files() <= before + 256 + 64
            (tmp_path / "mine").write_text("my own file")
            assert len(os.listdir("/")) > 0
            assert answer(server, "/healthz") == (200, {"live": True, "status": "running"})
            assert answer(server, "/readyz")[0] == 200
            assert answer(server, "/v1/stores/counts/keys/anna", authorization="Bearer s3cret")[0] == 200
        with RemoteStore(server.url, "counts", token="s3cret") as counts:
            assert [counts.get("anna") for _ in range(50)] == [3] * 50
    assert len(caplog.records) < 20, [record.getMessage() for record in caplog.records][:30]
    wait_until(lambda: open_files() <= before + 5, "all of it is closed", 20)


def test_who_does_not_take_an_answer_makes_room() -> None:
    """However many hold out their hands and do not close them, health is told."""
    world = application()
    for number in range(3_000):
        world.put_bytes("counts", f"key-{number:06}".encode(), bytes(1_000))
    question = b"GET /v1/stores/counts/entries?limit=3000&format=bytes HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with QueryServer(world.clients[0], limits=Limits(connections=8, deadline_s=30)) as server:
        held = []
        for _ in range(8):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(server.address)
            connection.sendall(question)
            assert connection.recv(10) == b"HTTP/1.1 2"
            held.append(connection)
        for _ in range(3):
            assert answer(server, "/healthz")[0] == 200
        for connection in held:
            connection.close()


def test_whose_question_is_being_answered_stays_and_health_is_told() -> None:
    """There are twice as many places as questions at a time, whatever else is connected."""
    client, store = with_slow_store()
    limits = Limits(connections=8, readers=8, deadline_s=30)
    question = b"GET /v1/stores/counts/keys/a HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with QueryServer(client, limits=limits) as server, ExitStack() as stack:
        asking = [stack.enter_context(socket.create_connection(server.address, 20)) for _ in range(4)]
        for connection in asking:
            connection.sendall(question)
        wait_until(lambda: store.reads == 4, "all four are being answered", 20)
        for _ in range(20):
            stack.enter_context(socket.create_connection(server.address, 20))
        assert answer(server, "/healthz")[0] == 200
        assert answer(server, "/v1/stores/counts/keys/a")[0] == 503, "busy, and told at once"
        store.go.set()
        for connection in asking:
            assert connection.recv(12) == b"HTTP/1.1 404"


def test_where_something_is_being_answered_on_each_the_others_wait() -> None:
    """Nobody is sent away in the middle of an answer; who comes then is accepted when there is room."""

    class SlowHealth:
        """Not known before it may be."""

        status = "running"
        known = threading.Event()

        @property
        def live(self) -> bool:
            return self.known.wait(20)

    client = application().clients[0]
    client.health = SlowHealth()  # type: ignore[assignment]
    question = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with QueryServer(client, limits=Limits(connections=8)) as server, ExitStack() as stack:
        asking = [stack.enter_context(socket.create_connection(server.address, 20)) for _ in range(8)]
        for connection in asking:
            connection.sendall(question)
        doorway = server._server._doorway
        wait_until(lambda: sum(not seat.idle for seat in list(doorway._seats)) == 8, "all are answered", 20)
        asking.append(stack.enter_context(socket.create_connection(server.address, 20)))
        asking[-1].sendall(question)
        wait_until(lambda: not doorway._accepting, "nobody is accepted", 20)
        SlowHealth.known.set()
        for connection in asking:
            assert connection.recv(12) == b"HTTP/1.1 200"


def test_a_process_without_a_file_left_says_so_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """The program itself has used them all up: when it has closed some, the server answers again."""
    world = application()
    world.put("anna", 3)
    with QueryServer(world.clients[0]) as server:
        waiting = HTTPConnection(*server.address, timeout=20)
        waiting.connect()
        assert answer(server, "/healthz")[0] == 200
        held = []
        try:
            spare = HTTPConnection(*server.address, timeout=20)
            while True:
                try:
                    held.append(os.open("/dev/null", os.O_RDONLY))
                except OSError:
                    break
            os.close(held.pop())
            spare.connect()  # with the last one; the server has none to accept it with
            wait_until(lambda: "cannot accept" in caplog.text, "it says so", 20)
        finally:
            for each in held:
                os.close(each)
        spare.request("GET", "/healthz")
        assert spare.getresponse().status == 200
        spare.close()
        waiting.close()
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 1, [record.getMessage() for record in told]
    assert "no file descriptor is left" in told[0].getMessage()


def test_a_head_that_comes_in_one_piece_has_its_limits_too() -> None:
    """Bytes and number of headers, however they come."""
    with QueryServer(application().clients[0]) as server:
        for name, size, status in (("x", 60_000, 431), ("x", 17_000, 431), ("x", 8_000, 200)):
            assert answer(server, "/healthz", **{name: "a" * size})[0] == status
        many = {f"x-{number}": "y" for number in range(3_000)}
        assert answer(server, "/healthz", **many)[0] == 431
        few = {f"x-{number}": "y" for number in range(50)}
        assert answer(server, "/healthz", **few)[0] == 200
        assert answer(server, "/healthz", host="localhost:evil")[0] == 403
