"""Crowds that connect and say nothing: the process keeps its files, and whoever says something is heard."""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
    return len(os.listdir("/proc/self/fd"))


def answer(server: QueryServer, target: str, **headers: str) -> tuple[int, object]:
    connection = HTTPConnection(*server.address, timeout=10)
    try:
        connection.request("GET", target, headers=headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


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


def test_where_all_are_being_answered_the_others_wait() -> None:
    """Nobody is sent away in the middle of an answer; who comes then is accepted when there is room."""
    client, store = with_slow_store()
    limits = Limits(connections=4, readers=8, deadline_s=30)
    question = b"GET /v1/stores/counts/keys/a HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with QueryServer(client, limits=limits) as server:
        asking = [HTTPConnection(*server.address, timeout=20) for _ in range(4)]
        for connection in asking:
            connection.connect()
            connection.sock.sendall(question)
        wait_until(lambda: store.reads == 4, "all four are being answered", 20)
        waiting = HTTPConnection(*server.address, timeout=20)
        waiting.request("GET", "/healthz")
        assert store.reads == 4
        store.go.set()
        assert waiting.getresponse().status == 200
        for connection in asking:
            assert connection.sock.recv(12) == b"HTTP/1.1 404"
        for connection in (*asking, waiting):
            connection.close()


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
