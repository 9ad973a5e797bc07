"""An S3 server for tests: moto, on a port of this machine, with a bucket; or one that ignores conditions."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

__all__ = ["KEY", "SECRET", "S3Server"]

KEY, SECRET = "AKIATESTTESTTESTTEST", "a-secret-that-no-log-may-have"
_CONDITIONS = ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH")


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Nothing."""


class S3Server:
    """Serves one bucket until `close`.

    Attributes:
        conditional: False: conditions of writes are ignored, as by stores that do not know them.
        requests: (user agent, method, path, status) of each, in order.
    """

    def __init__(self, bucket: str = "bucket") -> None:
        self.bucket = bucket
        self.conditional = True
        self.requests: list[tuple[str, str, str, str]] = []
        self._lock = threading.Lock()
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server: BaseWSGIServer = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet
        )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="s3-server")
        self._thread.start()
        self.request("PUT", f"/{bucket}")

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        def started(status: str, *rest: Any) -> Any:
            agent = environ.get("HTTP_USER_AGENT", "")
            self.requests.append((agent, environ["REQUEST_METHOD"], environ["PATH_INFO"], status[:3]))
            return start(status, *rest)

        if not self.conditional:
            for name in _CONDITIONS:
                environ.pop(name, None)
        with self._lock:  # moto looks whether an object is there, and then writes it
            return [b"".join(self._moto(environ, started))]

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
        """What it answers to somebody who may read all of it; moto checks no signature."""
        connection = http.client.HTTPConnection("127.0.0.1", self._server.server_port, timeout=20)
        try:
            connection.request(method, path, headers={"Authorization": f"AWS {KEY}:unsigned"})
            return connection.getresponse().read()
        finally:
            connection.close()

    def close(self) -> None:
        self.request("POST", "/moto-api/reset")  # moto keeps what there is for the whole process
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
