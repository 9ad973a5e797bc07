"""Serves a registry's state over HTTP: the part of Confluent's REST interface that clients and tools use.

Requests change the state one at a time, and the response to a change is sent when the log has it.
"""

from __future__ import annotations

import base64
import hmac
import json
import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from millstream.errors import StreamsException
from millstream.foreign import ESCAPED
from millstream.registry.door import ThreadedDoor, check_head, linger
from millstream.registry.state import KINDS, Change, RefusedError, RegistryState

__all__ = ["RegistryServer"]

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)

_NAME = r"([^/]+)"

Answer = Callable[..., Any]


class RegistryServer:
    """A registry on a port of this machine.

    Args:
        port: 0 takes a free port.
        known: the state from the log so far.
        append: saves changes before they take effect; without it, they are only in memory.
        users: passwords by user; without them, no login is required.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        known: Sequence[Change] = (),
        append: Callable[[Sequence[Change]], None] = lambda changes: None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self.state = RegistryState()
        for change in known:
            self.state.apply(change)
        self.requests = 0
        """The number of requests so far."""
        self._lock = threading.Lock()
        self._append = append
        self._users = [_basic(user, password) for user, password in (users or {}).items()]
        handler = type("Handler", (_Handler,), {"registry": self})
        self._server = ThreadedDoor(port, handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="millstream-registry", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_until_closed(self) -> None:
        """Wait until it is closed, for a program that does nothing else."""
        while self._thread.is_alive():
            self._thread.join(1.0)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def lets_in(self, authorization: str) -> bool:
        given = authorization.encode()
        return not self._users or any(hmac.compare_digest(given, each) for each in self._users)

    def answer(self, method: str, target: str, body: Any) -> Any:
        """The response to a request.

        Raises:
            RefusedError: the response is an error.
        """
        try:
            split = urlsplit(target)
        except ValueError:
            raise RefusedError(400, "the address is not valid") from None
        query = {name: values[-1] for name, values in parse_qs(split.query).items()}
        with self._lock:
            self.requests += 1
            for wanted, pattern, function in _ROUTES:
                found = re.fullmatch(pattern, split.path.rstrip("/") or "/")
                if wanted == method and found is not None:
                    return function(self, *(unquote(part) for part in found.groups()), query=query, body=body)
        raise RefusedError(404, "HTTP 404 Not Found")

    def change(self, changes: Sequence[Change]) -> None:
        """Save and apply these records. Called with the lock."""
        if changes:
            self._append(changes)
        for change in changes:
            self.state.apply(change)


def _subjects(it: RegistryServer, **_: Any) -> Any:
    return it.state.subjects()


def _versions(it: RegistryServer, subject: str, **_: Any) -> Any:
    return [each.version for each in it.state.known(subject)]


def _register(it: RegistryServer, subject: str, *, body: Any, **_: Any) -> Any:
    id, changes = it.state.register(subject, _object(body))
    it.change(changes)
    return {"id": id}


def _lookup(it: RegistryServer, subject: str, *, body: Any, **_: Any) -> Any:
    return it.state.lookup(subject, _object(body)).shown()


def _version(it: RegistryServer, subject: str, version: str, *, query: Mapping[str, str], **_: Any) -> Any:
    found = it.state.version(subject, version)
    return {**found.shown(), "schema": _formatted(found.kind, found.text, query)}


def _text(it: RegistryServer, subject: str, version: str, **_: Any) -> Any:
    found = it.state.version(subject, version)
    return found.text if found.kind == "PROTOBUF" else json.loads(found.text)


def _by_id(it: RegistryServer, id: str, *, query: Mapping[str, str], **_: Any) -> Any:
    found = it.state.by_id(int(id))
    said = {name: value for name, value in found.shown().items() if name in ("schemaType", "references")}
    return {**said, "schema": _formatted(found.kind, found.text, query)}


def _used_by(it: RegistryServer, id: str, **_: Any) -> Any:
    return [{"subject": each.subject, "version": each.version} for each in it.state.subjects_of(int(id))]


def _delete(
    it: RegistryServer, subject: str, version: str | None = None, *, query: Mapping[str, str], **_: Any
) -> Any:
    permanently = query.get("permanent") == "true"
    gone, changes = it.state.delete(subject, version, permanently=permanently)
    it.change(changes)
    return gone if version is None else gone[0]


def _level(it: RegistryServer, subject: str = "", **_: Any) -> Any:
    return {"compatibilityLevel": it.state.level(subject)}


def _set_level(it: RegistryServer, subject: str = "", *, body: Any, **_: Any) -> Any:
    it.change(it.state.set_level(subject, _object(body).get("compatibility")))
    return {"compatibility": it.state.level(subject)}


def _fits(it: RegistryServer, subject: str, version: str, *, body: Any, **_: Any) -> Any:
    why = it.state.misfit(subject, _object(body), it.state.version(subject, version))
    return {"is_compatible": why is None, **({} if why is None else {"messages": [why]})}


def _formatted(kind: str, text: str, query: Mapping[str, str]) -> str:
    if query.get("format") != "serialized" or kind != "PROTOBUF":
        return text
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        raise RefusedError(
            42201,
            "this registry is for development and cannot read .proto text: register the file's descriptor",
        ) from None
    return text


def _object(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise RefusedError(42201, "the body must be a JSON object")
    return body


_ROUTES: tuple[tuple[str, str, Answer], ...] = (
    ("GET", "/", lambda it, **_: {}),
    ("GET", "/subjects", _subjects),
    ("GET", f"/subjects/{_NAME}/versions", _versions),
    ("POST", f"/subjects/{_NAME}/versions", _register),
    ("POST", f"/subjects/{_NAME}", _lookup),
    ("DELETE", f"/subjects/{_NAME}", _delete),
    ("GET", f"/subjects/{_NAME}/versions/{_NAME}", _version),
    ("DELETE", f"/subjects/{_NAME}/versions/{_NAME}", _delete),
    ("GET", f"/subjects/{_NAME}/versions/{_NAME}/schema", _text),
    ("GET", r"/schemas/ids/(-?[0-9]{1,10})", _by_id),
    ("GET", r"/schemas/ids/([0-9]{1,10})/versions", _used_by),
    ("GET", "/schemas/types", lambda it, **_: list(KINDS)),
    ("GET", "/config", _level),
    ("PUT", "/config", _set_level),
    ("GET", f"/config/{_NAME}", _level),
    ("PUT", f"/config/{_NAME}", _set_level),
    ("POST", f"/compatibility/subjects/{_NAME}/versions/{_NAME}", _fits),
    ("GET", "/mode", lambda it, **_: {"mode": "READWRITE"}),
)
"""The method, the path and the function that answers it."""


class _Handler(BaseHTTPRequestHandler):
    registry: RegistryServer
    server: ThreadedDoor
    protocol_version = "HTTP/1.1"
    timeout = 60
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        try:
            status, said = 200, self._answer()
        except RefusedError as error:
            status, said = error.status, {"error_code": error.code, "message": str(error)}
        except StreamsException as error:  # the log cannot be written; the client retries
            status, said = 500, {"error_code": 50001, "message": str(error)}
        except Exception:
            log.exception("the schema registry failed at %s %s", self.command, self.path.partition("?")[0])
            status, said = 500, {"error_code": 50001, "message": "the registry failed; its log says why"}
        finally:
            self.server.is_busy(self.connection, False)
        reply = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(reply)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(reply)
        if self.close_connection:
            linger(self.connection)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def _answer(self) -> Any:
        """What is said to a request that is let in."""
        try:
            size = check_head(self.command, self.headers)
            if not self.registry.lets_in(self.headers.get("Authorization") or ""):
                raise RefusedError(401, "Unauthorized")
        except RefusedError:
            self.close_connection = True  # what follows is a body, or what pretends to be one
            raise
        try:
            data = self.rfile.read(size)
        except OSError:  # it is late, or the client has gone; what still comes is no request
            self.close_connection = True
            raise RefusedError(408, "the body did not come in time") from None
        self.server.is_busy(self.connection, True)
        try:
            body = json.loads(data) if data else None
        except (ValueError, RecursionError):
            raise RefusedError(400, "the body is not JSON") from None
        return self.registry.answer(self.command, self.path, body)

    def log_message(self, format: str, *args: Any) -> None:
        """Has no effect: requests are not logged."""


def _basic(user: str, password: str) -> bytes:
    return b"Basic " + base64.b64encode(f"{user}:{password}".encode())
