"""What strangers put in the place of a query server: traps that remember what they hear, and forge."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from millstream.query.metadata import HostInfo


@dataclass
class Trap:
    """One that is listening at `address`; `heard` has each request, head and body, as text."""

    address: HostInfo
    heard: list[str] = field(default_factory=list)

    @property
    def all_heard(self) -> str:
        return "\n".join(self.heard)


@dataclass
class Passing:
    """What is sent back: made of the answer of whoever was really asked."""

    status: int
    headers: dict[str, str]
    body: bytes


FORGED = json.dumps(
    {
        "store": "counts",
        "key": "x",
        "value": 666,
        "timestamp": 1,
        "count": 666,
        "entries": [{"key": "eA==", "value": "AAAAAAAAAAI=", "timestamp": 1}],
        "partitions": [0, 1, 2, 3],
        "life": "ab" * 32,
        "time": 1,
        "proof": "cd" * 32,
    }
).encode()


@contextmanager
def trap(
    passes_on: Callable[[str], HostInfo | None] = lambda _: None,
    changes: Callable[[str, Passing], Passing] = lambda _, answer: answer,
    *,
    forged: bytes = FORGED,
) -> Iterator[Trap]:
    """A server that answers everything with `forged`, or passes it on and may change the answer."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            made.heard.append(f"{self.requestline}\n{self.headers}\n{body.decode('latin-1')}")
            answer = self._answer(body)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_POST = do_GET

        def _answer(self, body: bytes) -> Passing:
            real = passes_on(self.path)
            if real is None:
                return Passing(200, {"millstream-proof": "ef" * 32}, forged)
            connection = http.client.HTTPConnection(*real, timeout=10)
            given = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            connection.request(self.command, self.path, body or None, given)
            response = connection.getresponse()
            kept = {
                name: value
                for name, value in response.getheaders()
                if name.lower() not in ("content-length", "date", "connection")
            }
            passing = Passing(response.status, kept, response.read())
            connection.close()
            return changes(self.path, passing)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made = Trap(HostInfo("127.0.0.1", server.server_address[1]))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="trap", daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
