"""What the development registry lets in, and how much of it."""

from __future__ import annotations

import base64
import http.client
import json
import resource
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from waiting import wait_until

from millstream.registry.compatibility import incompatibility
from millstream.registry.door import MOST_BYTES, MOST_CONNECTIONS
from millstream.registry.http import RegistryServer

JSON = "application/vnd.schemaregistry.v1+json"
LOGIN = {"Authorization": f"Basic {base64.b64encode(b'me:secret').decode()}"}
ONE = json.dumps({"schema": '"int"'}).encode()


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    server = RegistryServer(users={"me": "secret"})
    yield server
    server.close()


def raw(server: RegistryServer, head: str, body: bytes = b"") -> tuple[int, str]:
    """Status and message of the answer to these bytes, as they are."""
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + body)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.read().decode()


def ask(server: RegistryServer, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, data, {"Content-Type": JSON, **LOGIN, **given})
    reply = connection.getresponse()
    said = reply.status, json.loads(reply.read())
    connection.close()
    return said


def test_a_length_that_is_none_lets_nothing_in(server: RegistryServer) -> None:
    """The head is refused before anything of the body is read: the login, too."""
    head = f"POST /subjects/s/versions HTTP/1.1\nHost: localhost\nContent-Type: {JSON}\n"
    login = f"Authorization: {LOGIN['Authorization']}\n"
    for length, status in (
        ("Content-Length: -1", 400),
        ("Content-Length: abc", 400),
        ("Content-Length: 1\nContent-Length: 2", 400),
        (f"Content-Length: {MOST_BYTES + 1}", 413),
        (f"Content-Length: {'9' * 5000}", 400),
        ("Transfer-Encoding: chunked", 411),
        ("Content-Length: 5\nTransfer-Encoding: chunked", 411),
    ):
        assert raw(server, f"{head}{login}{length}\n\n")[0] == status, length
    assert raw(server, f"{head}Content-Length: {MOST_BYTES}\n\n")[0] == 401, "before it is sent"
    assert server.requests == 0
    assert ask(server, "POST", "/subjects/s/versions", ONE) == (200, {"id": 1})


def test_no_web_page_writes_or_reads(server: RegistryServer) -> None:
    """A page sends what a browser sends without asking: forms, texts, its own name as that of the host."""
    path = "/subjects/s/versions"
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        assert ask(server, "POST", path, ONE, Content_Type=kind)[0] == 415, kind
    assert ask(server, "POST", path, ONE, Origin="http://evil.example")[0] == 403
    assert ask(server, "GET", "/subjects", Origin="null")[0] == 403
    for host in ("evil.example", "evil.example:8081", "localhost.evil.example", "127.0.0.1@evil.example", ""):
        for method in ("GET", "DELETE"):
            assert ask(server, method, "/subjects/s", Host=host)[0] == 403, host
    assert raw(server, "GET / HTTP/1.1\n\n")[0] == 403
    assert server.requests == 0
    assert ask(server, "GET", "/subjects", Host="LOCALHOST:1") == (200, [])
    assert ask(server, "POST", path, ONE, Content_Type="application/json; charset=utf-8")[0] == 200


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (DEEP.encode(), 400, 400),
        (b"\xff\xfe", 400, 400),
        (b"[]", 422, 42201),
        ({"schema": DEEP}, 422, 42201),
        ({"schema": '{"type":"array","items":' * 5000 + '"int"' + "}" * 5000}, 422, 42201),
        ({"schema": '{"type":"record","name":"R","fields":[{"name":["a"],"type":"int"}]}'}, 422, 42201),
        ({"schema": '{"type":{"type":["int"]}}'}, 200, None),
        ({"schema": '"int"', "references": "abc"}, 422, 42201),
        ({"schema": '"int"', "references": [1]}, 422, 42201),
        (
            {"schema": '"int"', "references": [{"name": "a", "subject": "s", "version": "1" * 5000}]},
            422,
            42201,
        ),
        ({"schema": '"int"', "references": [{"name": "a", "subject": "s", "version": 1}]}, 404, 40401),
        ({"schema": ["int"], "schemaType": ["AVRO"]}, 422, 42201),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_body_that_makes_no_sense_is_the_senders_fault(
    server: RegistryServer, body: Any, status: int, code: int | None
) -> None:
    """The message has nothing of Python in it."""
    answered, said = ask(server, "POST", "/subjects/t/versions", body)
    assert (answered, said.get("error_code")) == (status, code)
    assert "Error" not in said.get("message", "")


def test_paths_that_make_no_sense_are_not_found(server: RegistryServer) -> None:
    """Numbers of thousands of digits, texts that are no addresses."""
    assert ask(server, "POST", "/subjects/s/versions", ONE)[0] == 200
    long = "9" * 5000
    assert ask(server, "GET", f"/schemas/ids/{long}")[0] == 404
    assert ask(server, "GET", f"/schemas/ids/{long}/versions")[0] == 404
    assert ask(server, "GET", f"/subjects/s/versions/{long}") == (
        422,
        {"error_code": 42202, "message": f"The specified version '{long}' is not a valid version id."},
    )
    assert (
        raw(server, f"GET http://[x HTTP/1.1\nHost: localhost\nAuthorization: {LOGIN['Authorization']}\n\n")[
            0
        ]
        == 400
    )
    assert ask(server, "PUT", "/config", {"compatibility": ["NONE"]})[0] == 422
    proto = {"schema": "c3ludGF4", "schemaType": "PROTOBUF"}
    assert ask(server, "POST", "/subjects/p/versions", proto)[0] == 200
    assert ask(server, "GET", "/subjects/p/versions/1/schema") == (200, "c3ludGF4")


def test_references_are_followed_once_each(server: RegistryServer) -> None:
    """Twenty-five schemas that each refer twice to the one before: not 2^25 texts, under the only lock."""

    def record(number: int) -> dict[str, Any]:
        before = [{"name": n, "type": f"D{number - 1}"} for n in ("a", "b")] if number else []
        schema = {"type": "record", "name": f"D{number}", "fields": before}
        refers = [{"name": f"D{number - 1}", "subject": f"d{number - 1}", "version": 1}] * 2 if number else []
        return {"schema": json.dumps(schema), "references": refers}

    for number in range(25):
        assert ask(server, "POST", f"/subjects/d{number}/versions", record(number))[0] == 200
    changed = record(24)
    changed["schema"] = changed["schema"].replace('"name": "a"', '"name": "c"')
    status, said = ask(server, "POST", "/subjects/d24/versions", changed)
    assert (status, "'c' is new and has no default" in said["message"]) == (409, True)
    assert len(server.state._whole("x", tuple(record(25)["references"]))) == 26


def test_schemas_that_are_large_together_are_not_compared_for_ever() -> None:
    """Each type of a union is compared with each of another; and a record that does not fit only once."""
    many = [{"type": "fixed", "name": f"F{n}", "size": 1} for n in range(1000)]
    why = incompatibility(reader=[json.dumps([*many, "int"])], writer=[json.dumps(["int"] * 1000)])
    assert why == "it is too large to be compared"

    def nested(number: int, last: str) -> Any:
        if number == 0:
            return {"type": "record", "name": "R0", "fields": [{"name": "x", "type": last}]}
        below = nested(number - 1, last)
        listed = {"type": "array", "items": f"R{number - 1}"}
        fields = [{"name": "a", "type": ["null", below]}, {"name": "b", "type": ["null", listed]}]
        return {"type": "record", "name": f"R{number}", "fields": fields}

    why = incompatibility(reader=[json.dumps(nested(40, "int"))], writer=[json.dumps(nested(40, "string"))])
    assert why is not None


def test_a_body_that_does_not_come_is_the_senders_fault(
    server: RegistryServer, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no failure of the registry, which would be logged with a traceback."""
    server._server.RequestHandlerClass.timeout = 0.1  # type: ignore[attr-defined]
    head = f"POST /subjects/s/versions HTTP/1.1\nHost: localhost\nContent-Type: {JSON}\n"
    status, said = raw(
        server, f"{head}Authorization: {LOGIN['Authorization']}\nContent-Length: 20\n\n", b'{"schema"'
    )
    assert (status, json.loads(said)["message"]) == (408, "the body did not come in time")
    assert not caplog.records


@pytest.mark.disk
def test_connections_that_say_nothing_make_room(server: RegistryServer) -> None:
    """Hundreds of them are some dozen threads, and others are answered meanwhile."""
    before = threading.active_count()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    idle: list[socket.socket] = []
    try:
        for number in range(min(300, soft // 4)):
            idle.append(socket.create_connection(("127.0.0.1", server.port), 10))
            if number % 2:
                idle[-1].sendall(b"GET / HTTP/1.1\r\nHost:")  # and never ends
        assert ask(server, "GET", "/subjects") == (200, [])
        assert threading.active_count() - before <= MOST_CONNECTIONS + 1
        idle[0].settimeout(10)
        assert idle[0].recv(1) == b"", "the first ones had to go"
    finally:
        for each in idle:
            each.close()
    wait_until(lambda: threading.active_count() <= before, 10)
