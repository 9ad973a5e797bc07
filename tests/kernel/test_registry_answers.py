"""The kernel's client of schema registries: what it does not take for an answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from java_programs import KernelJava


class _Long(BaseHTTPRequestHandler):
    """A schema behind as many megabytes as its id says."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            for _ in range(int(self.path.rpartition("/")[2]) << 4):
                self.wfile.write(b" " * 65536)
            self.wfile.write(json.dumps({"schema": "the schema"}).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Long)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="long answers", daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.mark.disk
@pytest.mark.parametrize("mebibytes", [7, 9])
def test_an_answer_that_is_too_long_does_not_fill_the_memory(
    kernel_java: KernelJava, address: str, mebibytes: int
) -> None:
    """Python's client has the same limit. An answer below the limit is read."""
    given = json.dumps({"urls": [address], "headers": {}, "patience_ms": 3000, "attempt_ms": 3000, "ssl": {}})
    said = kernel_java("io.millstream.kernel.serdes.RegistryMain", given, str(mebibytes))
    if mebibytes == 7:
        assert said == "[the schema]\n"
    else:
        assert f"the schema registry at {address} cannot be queried: IOException: " in said
        # The last attempt has what is left of the time, which may be too short for so long an answer.
        assert "its answer has more than 8 MiB; " in said or "no complete answer within " in said
        assert "tried for 3000 ms" in said
