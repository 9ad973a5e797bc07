"""An S3 server for tests: moto, on a port of this machine, with a bucket; or one that ignores conditions.

`MILLSTREAM_TEST_S3=http://127.0.0.1:9000` has the tests use another server in moto's place, through the same
port, so that they see its requests. It has to take `KEY` and `SECRET`, and keeps nothing of the tests.
"""

from __future__ import annotations

import http.client
import os
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

__all__ = ["KEY", "SECRET", "TESTED", "S3Server"]

TESTED = os.environ.get("MILLSTREAM_TEST_S3")
"""Where the server is that takes moto's place, if any."""

KEY, SECRET = "AKIATESTTESTTESTTEST", "a-secret-that-no-log-may-have"
_CONDITIONS = ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH")


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Nothing."""


class _PassedOn:
    """What another server answers. It sees the same headers, also the address, which is signed."""

    _OF_ONE_CONNECTION = frozenset(("connection", "expect", "keep-alive", "transfer-encoding"))

    def __init__(self, url: str) -> None:
        self._at = urlsplit(url).netloc

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        sent = {
            name[5:].replace("_", "-"): text for name, text in environ.items() if name.startswith("HTTP_")
        }
        length = environ.get("CONTENT_LENGTH")
        body = environ["wsgi.input"].read(int(length)) if length else b""
        for name in ("CONTENT_LENGTH", "CONTENT_TYPE"):
            if environ.get(name):
                sent[name.replace("_", "-")] = environ[name]
        connection = http.client.HTTPConnection(self._at, timeout=60)
        try:
            connection.putrequest(
                environ["REQUEST_METHOD"], environ["REQUEST_URI"], skip_host=True, skip_accept_encoding=True
            )
            for name, text in self._ends(sent.items()):
                connection.putheader(name, text)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            found = answer.read()
            start(f"{answer.status} {answer.reason}", self._ends(answer.getheaders()))
            return [found]
        finally:
            connection.close()

    def _ends(self, headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        return [(name, text) for name, text in headers if name.lower() not in self._OF_ONE_CONNECTION]


class S3Server:
    """Serves one bucket until `close`.

    Args:
        bucket: its name; by default one that no other has had.
        another: the server that takes moto's place.

    Attributes:
        conditional: False: conditions of writes are ignored, as by stores that do not know them.
        requests: (user agent, method, path, status) of each, in order.
    """

    def __init__(self, bucket: str | None = None, another: str | None = None) -> None:
        self.bucket = bucket or f"bucket-{uuid.uuid4().hex}"
        self.conditional = True
        self.requests: list[tuple[str, str, str, str]] = []
        self._lock = threading.Lock()
        self._is_moto = another is None
        self._behind: Callable[..., Iterable[bytes]] = (
            DomainDispatcherApplication(create_backend_app) if another is None else _PassedOn(another)
        )
        self._server: BaseWSGIServer = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet
        )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="s3-server")
        self._thread.start()
        self.request("PUT", f"/{self.bucket}")

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        def started(status: str, *rest: Any) -> Any:
            agent = environ.get("HTTP_USER_AGENT", "")
            self.requests.append((agent, environ["REQUEST_METHOD"], environ["PATH_INFO"], status[:3]))
            return start(status, *rest)

        if not self.conditional:
            for name in _CONDITIONS:
                environ.pop(name, None)
        if not self._is_moto:
            return self._behind(environ, started)
        with self._lock:  # moto looks whether an object is there, and then writes it
            return [b"".join(self._behind(environ, started))]

    @property
    def config(self) -> dict[str, str]:
        """How a client reaches it."""
        settings = {
            "endpoint": f"http://127.0.0.1:{self._server.server_port}",
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "access.key": KEY,
            "secret.key": SECRET,
        }
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}

    def request(self, method: str, path: str) -> bytes:
        """What it answers to somebody who may read all of it."""
        port = self._server.server_port
        asked = AWSRequest(method, f"http://127.0.0.1:{port}{path}")
        S3SigV4Auth(Credentials(KEY, SECRET), "s3", "us-east-1").add_auth(asked)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            connection.request(method, path, headers=dict(asked.headers))
            return connection.getresponse().read()
        finally:
            connection.close()

    def close(self) -> None:
        try:
            if self._is_moto:
                self.request("POST", "/moto-api/reset")  # it keeps what there is for the whole process
            else:
                self._remove_bucket()
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def _remove_bucket(self) -> None:
        bucket, page = f"/{self.bucket}", "?list-type=2"
        while page:
            listed = ElementTree.fromstring(self.request("GET", bucket + page))
            for key in listed.iterfind("{*}Contents/{*}Key"):
                self.request("DELETE", f"{bucket}/{quote(key.text or '')}")
            following = listed.findtext("{*}NextContinuationToken")
            page = f"?list-type=2&continuation-token={quote(following, safe='')}" if following else ""
        refused = self.request("DELETE", bucket)
        assert not refused, refused.decode()
