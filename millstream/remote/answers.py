"""Errors of the query server: a status code and a body for each exception, and the reverse.

Both sides use one table. The server turns an exception into a status and a JSON object with its class, its
facts, and whether a retry can help. `RemoteStore` turns such an object back into the same exception. Pure.

    {"error": "StreamsRebalancingException", "retriable": true, "message": "...", "store": "counts", ...}

Only errors have the field `error`. So a 404 with it means "there is no such store", and one without it "this
key has no value".
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.errors import (
    IllegalStateException,
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    InvalidStateStoreTypeException,
    ProcessorStateException,
    SerializationException,
    StateStoreMigratedException,
    StateStoreNotAvailableException,
    StreamsException,
    StreamsNotStartedException,
    StreamsRebalancingException,
    TimeoutException,
    UnknownStateStoreException,
)
from millstream.foreign import printable

__all__ = ["BEFORE_HISTORY", "ERRORS", "Answer", "Refused", "answer_to", "exception_from", "is_misdirected"]

RETRY_AFTER_S = 1
"""The value of `Retry-After`, if a retry can help."""

MISDIRECTED = 421

BEFORE_HISTORY = "BeforeHistory"
"""The error of an `as_of` read before the start of a store's history; a ValueError if the read is local."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: a status, an object to be written as JSON, and headers in addition to the usual ones.

    `raw` is a body that is already bytes, such as another client's answer. `pieces` produces a body
    that is sent piece by piece; it is closed when nobody reads it any more.
    """

    status: int
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    pieces: Callable[[], AsyncGenerator[bytes, None]] | None = None

    def encoded(self) -> Answer:
        """The same answer with its body as JSON: one line of ASCII, with all other characters escaped."""
        if self.raw is not None or self.pieces is not None:
            return self
        raw = json.dumps(self.body, separators=(",", ":"), allow_nan=False).encode("ascii")
        return Answer(self.status, self.body, self.headers, raw)


class Refused(Exception):
    """The request itself is refused: it is invalid, too large, not allowed, or one too many.

    Internal to the server. `error` is an HTTP reason, such as `BadRequest`; `close`: the connection ends.
    """

    def __init__(
        self,
        status: int,
        error: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        retriable: bool = False,
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = error
        self.headers = dict(headers or {})
        self.retriable = retriable
        self.close = close


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """The answer for one class of exceptions. `retriable`: the same request to the same server may succeed
    later."""

    status: int
    retriable: bool = False


ERRORS: dict[type[Exception], ErrorRow] = {
    # the leaves of KIP-216
    StreamsNotStartedException: ErrorRow(503, retriable=True),
    StreamsRebalancingException: ErrorRow(503, retriable=True),
    StateStoreNotAvailableException: ErrorRow(503),  # this client will not come back; another may answer
    StateStoreMigratedException: ErrorRow(MISDIRECTED),
    InvalidStateStorePartitionException: ErrorRow(MISDIRECTED),
    UnknownStateStoreException: ErrorRow(404),
    InvalidStateStoreTypeException: ErrorRow(409),
    # other errors of a read
    TimeoutException: ErrorRow(504, retriable=True),
    IllegalStateException: ErrorRow(503, retriable=True),  # too many iterators are open
    SerializationException: ErrorRow(500),  # of stored data; a key that does not fit is the request's mistake
    ProcessorStateException: ErrorRow(500),
}
"""Every exception with a row of its own; any other is a StreamsException, and 500."""

_MOST_MESSAGE = 4_000
"""The maximum number of characters of another server's message in an exception."""

_BY_NAME = {kind.__name__: kind for kind in ERRORS}
_OTHER = ErrorRow(500)


def answer_to(
    error: Exception,
    *,
    client_id: str = "",
    client_state: str = "",
    host: str | None = None,
    application_id: str = "",
) -> Answer:
    """The answer for an exception. `host` is the client to query instead, as host:port, if known; who does so
    needs the application id to check its proof.
    """
    if isinstance(error, Refused):
        facts = {"error": error.error, "retriable": error.retriable, "message": str(error)}
        headers = dict(error.headers)
        if error.retriable:
            headers.setdefault("retry-after", str(RETRY_AFTER_S))
        if error.close:
            headers["connection"] = "close"
        return Answer(error.status, facts, headers)
    kind, row = _row_of(error)
    # The text of an exception that is not ours could contain anything.
    known = isinstance(error, StreamsException | IllegalStateException)
    message = str(error) if known else f"{type(error).__name__} while answering; the client's log has more"
    body: dict[str, Any] = {"error": kind, "retriable": row.retriable, "message": message}
    facts = {
        "store": getattr(error, "store", None) or None,
        "partition": getattr(error, "partition", None),
        "next_step": getattr(error, "next_step", None) or None,
        "client": client_id or None,
        "client_state": getattr(error, "client_state", None) or client_state or None,
        "host": host,
        "application_id": application_id if host is not None else None,
    }
    body.update({name: fact for name, fact in facts.items() if fact is not None})
    return Answer(row.status, body, {"retry-after": str(RETRY_AFTER_S)} if row.retriable else {})


def _row_of(error: Exception) -> tuple[str, ErrorRow]:
    for kind in type(error).__mro__:
        if kind in ERRORS:
            return kind.__name__, ERRORS[kind]
    return "StreamsException", _OTHER


def is_misdirected(status: int, body: Mapping[str, Any]) -> bool:
    """Whether an answer says that another client has the requested data."""
    return status == MISDIRECTED and "error" in body


def exception_from(status: int, body: Mapping[str, Any], server: str) -> Exception:
    """The exception that an error answer represents; a StreamsException if it is not one of ours.

    The body comes over the network: only its texts, numbers and booleans are used, and a class only
    if it is in the table.
    """
    name = body.get("error")
    said = body.get("message") or f"the query server at {server} answered with status {status}"
    message = printable(said, _MOST_MESSAGE)
    kind = _BY_NAME.get(name) if isinstance(name, str) else None
    if name == BEFORE_HISTORY:
        return ValueError(message)
    if kind is None:
        return StreamsException(f"{message} (status {status} of the query server at {server})")
    if issubclass(kind, InvalidStateStoreException):
        store = body.get("store")
        error: Exception = kind(message, store=store if isinstance(store, str) else "")
    else:
        error = kind(message)
    for fact, of_type in (("partition", int), ("client_state", str), ("next_step", str)):
        value = body.get(fact)
        # Only if the class has such a fact.
        if isinstance(value, of_type) and hasattr(error, fact):
            setattr(error, fact, value)
    return error
