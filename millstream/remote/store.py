"""RemoteStore: a store of an application that runs somewhere else, read as if it were local.

It talks to any one of the application's query servers, which queries the others. Keys and values travel as
the stored bytes, so a remote read returns the same as a local one.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from millstream.coroutines import awaitable, run
from millstream.errors import (
    ConfigException,
    InvalidStateStoreTypeException,
    StateStoreNotAvailableException,
    StreamsException,
    StreamsRebalancingException,
    TimeoutException,
)
from millstream.model import StoreKind, Windowed
from millstream.query.composite import handle_on
from millstream.query.iterators import AsyncKeyValueIterator, EntryViews, KeyValueIterator, iterable_async
from millstream.query.metadata import HostInfo
from millstream.query.read import Read, ResultForm, checked_name
from millstream.query.store_codecs import Codecs
from millstream.query.times import Time, to_ms
from millstream.remote.answers import Refused, exception_from, is_misdirected
from millstream.remote.http_wire import Deadline, Reply, Unproven, Wire, WireError, base_of, trusted_at
from millstream.remote.json_codec import from_base64
from millstream.remote.pages import PageStart
from millstream.remote.proof import checked_token, secret_of
from millstream.remote.routes import RemoteRequest, about_store, question_of
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import serde_named
from millstream.stores.store_base import ClosedStoreError, Held, pack_timestamp

if TYPE_CHECKING:
    from millstream.query.store_tables import OpenTable

__all__ = ["RemoteStore"]

_MULTI_GET = 1_000
"""The number of keys in one request."""
_THREAD = "millstream-async-remote"
"""The threads for reads in coroutines, so that reads of local stores do not wait for another machine."""

F = TypeVar("F", bound=Callable[..., Any])


def _of_handle(method: F) -> F:
    """A method that the handle for the store's kind answers: it has no body here."""
    name = method.__name__

    @wraps(method)
    def forward(store: RemoteStore, *arguments: Any, **named: Any) -> Any:
        return getattr(store._store(name), name)(*arguments, **named)

    return cast(F, forward)


class _TooLarge(StreamsException):
    """The answer to a request for many keys would be too large."""


class RemoteStore(EntryViews[Any, Any]):
    """A store of a running application, over HTTP. Any number of threads may use it.

        with RemoteStore("http://orders-1:8080", "counts", token="...") as counts:
            counts["anna"]

    Coroutines use `async with`, and the methods that end in `_async`.

    It has the methods of ReadOnlyKeyValueStore, ReadOnlyWindowStore and ReadOnlySessionStore; which of them
    can be used depends on the store's kind.

    Args:
        url: any query server of the application, such as `http://localhost:8080`; https too.
        store: the store's name.
        token: the token of that server (`query.server.token`). Another client that it names is
            queried only if it proves that it knows the token, which is not sent to it.
        timeout: how long one request may take; a range sends one for each page.
        stale: whether to accept standbys, and stores that are still being restored (`enable_stale_stores()`).
        timestamped: whether values come as `ValueAndTimestamp`, as from a store of a timestamped type;
            values of session stores have no timestamp.
        key_serde, value_serde: only for custom serdes; the server reports which of the others to use.
        page_size: how many entries of a range are fetched at once.
        ca_file: over https, the authorities whose certificates are trusted, in PEM; None: those that the
            machine trusts.

    Raises, from every read, what a local read of the store would raise: mainly the leaves of KIP-216. And:
        StateStoreNotAvailableException: the server cannot be reached; try another one of the application.
        TimeoutException: no answer in time.
        StreamsException: the server does not admit this client, is too busy, or is not a query server.

    Differs: Kafka Streams has no such class. A range is read page by page, each as the store is at that
    moment. The entries are in order, none appears twice, and none that was there all the time is missing.
    """

    def __init__(
        self,
        url: str,
        store: str,
        *,
        token: str | None = None,
        timeout: timedelta = timedelta(seconds=10),
        stale: bool = False,
        timestamped: bool = False,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        page_size: int = 1_000,
        ca_file: str | None = None,
    ) -> None:
        if not isinstance(timeout, timedelta) or timeout <= timedelta(0):
            raise TypeError(f"timeout must be a positive timedelta; got {timeout!r}")
        if page_size < 1:
            raise ValueError(f"page_size must be at least 1; got {page_size}")
        self._name = checked_name(store)
        self._stale = stale
        self._timestamped = timestamped
        self._page_size = page_size
        self._server = _Server(url, store, token, timeout.total_seconds(), key_serde, value_serde, ca_file)
        self._as_of: int | None = None
        self._handle: Any = None

    def _store(self, method: str) -> Any:
        """The handle for a store of this kind, over HTTP; the kind is requested from the server once.

        Raises:
            InvalidStateStoreTypeException: stores of this kind have no such method.
        """
        if self._handle is None:
            codecs = self._server.codecs(timestamped=self._timestamped)
            of = Read(self._name, codecs.kind, stale=self._stale, as_of=self._as_of)
            self._handle = handle_on(_RemoteReader(self._server, of, codecs, self._page_size))
        if not hasattr(self._handle, method):
            kind = self._server.codecs(timestamped=self._timestamped).kind.value
            raise InvalidStateStoreTypeException(
                f"store '{self._name}' is a {kind} store, which has no {method}()", store=self._name
            )
        return self._handle

    # --- stores of every kind ------------------------------------------------------------------------------

    @_of_handle
    def all(self) -> KeyValueIterator[Any, Any]:
        """Every entry."""

    def approximate_num_entries(self) -> int:
        """The approximate number of entries, on all clients."""
        return self._server.count()

    @_of_handle
    def __contains__(self, key: Any) -> bool: ...

    @_of_handle
    def __getitem__(self, key: Any) -> Any: ...

    @_of_handle
    def _table(self) -> tuple[OpenTable, list[str]]: ...

    def _table_lost(self, error: ClosedStoreError) -> Exception:
        return error  # if the store is closed there, the server sends an exception

    # --- key-value stores ----------------------------------------------------------------------------------

    @_of_handle
    def get(self, key: Any) -> Any:
        """The value of a key; None if it has none.

        Raises:
            TypeError: the key is None.
        """

    @_of_handle
    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        """The values of many keys, in their order; None for each key without a value."""

    @_of_handle
    def range(self, from_: Any, to: Any) -> KeyValueIterator[Any, Any]:
        """The entries from `from_` to `to`, both included; None: open on that side."""

    @_of_handle
    def reverse_range(self, from_: Any, to: Any) -> KeyValueIterator[Any, Any]:
        """The same entries as `range(from_, to)`, last key first."""

    @_of_handle
    def reverse_all(self) -> KeyValueIterator[Any, Any]:
        """Every entry, last key first."""

    @_of_handle
    def prefix_scan(self, prefix: Any, prefix_serializer: Any = None) -> KeyValueIterator[Any, Any]:
        """The entries whose key's bytes begin with those of `prefix`.

        `prefix_serializer` serializes the prefix; by default, the key's serde does.

        Raises:
            TypeError: the prefix is None.
        """

    def as_of(self, timestamp: Time) -> RemoteStore:
        """The same store as it was at a given time, for stores that are declared with history.

        Raises, from its reads:
            InvalidStateStoreTypeException: the store keeps no history.
            ValueError: the time is before the history.
        """
        at = to_ms(timestamp, f"as_of() of store '{self._name}': the time")
        store = copy.copy(self)
        store._as_of, store._handle = at, None
        return store

    # --- window and session stores -------------------------------------------------------------------------

    @_of_handle
    def fetch(self, *arguments: Any) -> Any:
        """For a window store, `fetch(key, time)` returns the value of one window, `fetch(key, from, to)` the
        windows of a key, and `fetch(from_key, to_key, from, to)` those of many keys. For a session store,
        `fetch(key)` and `fetch(from_key, to_key)` return sessions.
        """

    @_of_handle
    def backward_fetch(self, *arguments: Any) -> Any:
        """The same as `fetch`, in reverse order."""

    @_of_handle
    def fetch_all(self, time_from: Time | None, time_to: Time | None) -> KeyValueIterator[Windowed[Any], Any]:
        """The windows of all keys that start from `time_from` to `time_to`, both included."""

    @_of_handle
    def backward_fetch_all(
        self, time_from: Time | None, time_to: Time | None
    ) -> KeyValueIterator[Windowed[Any], Any]:
        """The same as `fetch_all`, in reverse order."""

    @_of_handle
    def backward_all(self) -> KeyValueIterator[Any, Any]:
        """Every entry of a window or session store, in reverse order."""

    @_of_handle
    def find_sessions(self, *arguments: Any) -> KeyValueIterator[Any, Any]:
        """The sessions that end at `earliest_end` or later, and start at `latest_start` or earlier:
        `find_sessions(key, earliest_end, latest_start)`, or with `from_key, to_key` instead of the key.
        """

    @_of_handle
    def backward_find_sessions(self, *arguments: Any) -> KeyValueIterator[Any, Any]:
        """The same as `find_sessions`, in reverse order."""

    @_of_handle
    def fetch_session(self, key: Any, session_start_time: Time, session_end_time: Time) -> Any:
        """The value of one session; None if there is none."""

    # --- the same for coroutines ---------------------------------------------------------------------------

    get_async = awaitable(get, _THREAD)
    multi_get_async = awaitable(multi_get, _THREAD)
    fetch_session_async = awaitable(fetch_session, _THREAD)
    range_async = iterable_async(range, _THREAD)
    reverse_range_async = iterable_async(reverse_range, _THREAD)
    all_async = iterable_async(all, _THREAD)
    reverse_all_async = iterable_async(reverse_all, _THREAD)
    prefix_scan_async = iterable_async(prefix_scan, _THREAD)
    backward_all_async = iterable_async(backward_all, _THREAD)
    fetch_all_async = iterable_async(fetch_all, _THREAD)
    backward_fetch_all_async = iterable_async(backward_fetch_all, _THREAD)
    backward_fetch_async = iterable_async(backward_fetch, _THREAD)
    find_sessions_async = iterable_async(find_sessions, _THREAD)
    backward_find_sessions_async = iterable_async(backward_find_sessions, _THREAD)

    def fetch_async(self, *arguments: Any) -> _Fetched:
        """`fetch` for coroutines: `await` the form with one value; for the others, use `async for`."""
        return _Fetched(partial(self.fetch, *arguments), _THREAD)

    # --- itself --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connections. The store can still be used afterwards. Idempotent."""
        self._server.close()

    def __enter__(self) -> RemoteStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> RemoteStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await run(self.close, thread=_THREAD)

    def __repr__(self) -> str:
        return f"<RemoteStore '{self._name}' at {self._server}>"


class _Fetched(AsyncKeyValueIterator[Any, Any]):
    """What `fetch` returns: a value, or entries. The server knows which; it is not queried on the loop."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, Any]:
        return run(self._open, thread=_THREAD).__await__()


class _RemoteReader:
    """Answers reads by querying a server (query.handle.Reader)."""

    deprecates_milliseconds = False

    def __init__(self, server: _Server, of: Read, codecs: Codecs, page_size: int) -> None:
        self.of = of
        self.codecs = codecs
        self._server = server
        self._page_size = page_size

    def get(self, key: Any) -> Any:
        stored = self._value(replace(self.of, form=ResultForm.VALUE, key=self.codecs.key_bytes(key, "get()")))
        return None if stored is None else self.codecs.decode(stored)

    def answer(self, read: Read) -> Any:
        match read.form:
            case ResultForm.VALUE:
                return self._value(read)
            case ResultForm.VALUES:
                keys = read.keys
                parts = [keys[start : start + _MULTI_GET] for start in range(0, len(keys), _MULTI_GET)]
                return [stored for part in parts for stored in self._values(replace(read, keys=part))]
            case ResultForm.COUNT:
                return self._server.count()
        return _Pages(self._server, replace(read, limit=self._page_size))

    def _value(self, read: Read) -> bytes | None:
        reply = self._server.ask(question_of(read))
        return None if reply.status == 404 else self._server.stored(reply.body)

    def _values(self, read: Read) -> list[bytes | None]:
        try:
            reply = self._server.ask(question_of(read))
        except _TooLarge:
            if len(read.keys) == 1:
                raise
            middle = len(read.keys) // 2
            first, second = read.keys[:middle], read.keys[middle:]
            return self._values(replace(read, keys=first)) + self._values(replace(read, keys=second))
        entries = reply.body.get("entries")
        if not isinstance(entries, list) or len(entries) != len(read.keys):
            raise self._server.garbled()
        return [self._stored_if_any(entry) for entry in entries]

    def _stored_if_any(self, entry: Any) -> bytes | None:
        if isinstance(entry, dict) and entry.get("value", ...) is None:
            return None
        return self._server.stored(entry)

    def as_of(self, at_ms: int) -> _RemoteReader:
        return _RemoteReader(self._server, replace(self.of, as_of=at_ms), self.codecs, self._page_size)

    def table(self) -> OpenTable:
        from millstream.query.position import Position
        from millstream.query.store_tables import OpenTable

        return OpenTable(self.codecs, [self.answer(self.of)], Position())

    def lost(self, error: ClosedStoreError) -> Exception:
        return error  # the server sends an exception

    def check(self) -> None:
        """Does nothing: each read reports errors itself."""

    def described(self) -> str:
        return f"at {self._server}"


class _Pages:
    """The entries of a range, page by page (query.merged.Source). The first page is read immediately, so that
    errors are raised immediately.
    """

    def __init__(self, server: _Server, read: Read) -> None:
        self._ahead: deque[Any] = deque()
        self._server = server
        self._next: Read | None = None
        self._page: list[Any] | None = self._asked(read)

    def report_close(self, closed: list[str], held: Held) -> None:
        """Has no effect: what was read ahead is given, even if the store is closed."""

    def block(self) -> list[Any]:
        page, self._page = self._page, None
        while not page and self._next is not None:
            page = self._asked(self._next)
        return page or []

    def _asked(self, read: Read) -> list[Any]:
        reply = self._server.ask(question_of(read))
        rows, token = reply.body.get("entries"), reply.body.get("next")
        if not isinstance(rows, list) or not (token is None or isinstance(token, str)):
            raise self._server.garbled()
        try:
            self._next = None if token is None else replace(read, after=PageStart.parse(token).order)
        except Refused:
            raise self._server.garbled() from None
        return [(self._server.place(row, read.kind), self._server.stored(row)) for row in rows]

    def close(self) -> None:
        self._page = self._next = None
        self._ahead.clear()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self._ahead:
            self._ahead.extend(self.block())
        if not self._ahead:
            raise StopIteration
        return self._ahead.popleft()


class _Server:
    """Requests about one store to a query server, and to a client that it names. Any thread may use it."""

    def __init__(
        self,
        url: str,
        store: str,
        token: str | None,
        timeout_s: float,
        key_serde: Serde | None,
        value_serde: Serde | None,
        ca_file: str | None,
    ) -> None:
        self._base = base_of(url)
        self._tls = trusted_at(self._base, ca_file)
        self._name = store
        self._token = checked_token(token)
        self._timeout_s = timeout_s
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._wire = Wire(self._base, self._token, tls=self._tls)
        self._others: dict[HostInfo, Wire] = {}
        self._known: Codecs | None = None

    def close(self) -> None:
        for wire in (self._wire, *self._others.values()):
            wire.close()

    def __str__(self) -> str:
        return str(self._base)

    # --- what the store is ---------------------------------------------------------------------------------

    def codecs(self, *, timestamped: bool) -> Codecs:
        """The server's description of the store; requested once."""
        if self._known is None:
            self._known = self._described(timestamped=timestamped)
        return self._known

    def _described(self, *, timestamped: bool) -> Codecs:
        body = self.ask(RemoteRequest("GET", about_store(self._name))).body
        try:
            kind = StoreKind(body.get("kind"))
        except ValueError:
            raise self.garbled() from None
        names = body.get("key_serde"), body.get("value_serde")
        if None in names:
            # They are known once the topology is compiled. The count raises the reason if it is not.
            self.ask(RemoteRequest("GET", about_store(self._name, "count", {"local": "true"})))
            raise StreamsRebalancingException(
                f"store '{self._name}': its serdes are not known yet; retry", store=self._name
            )
        size = body.get("window_size_ms")
        return Codecs(
            self._name,
            kind,
            self._key_serde or self._serde(names[0], "key_serde"),
            self._value_serde or self._serde(names[1], "value_serde"),
            window_size_ms=size if isinstance(size, int) else None,
            timestamped=timestamped and kind is not StoreKind.SESSION,
        )

    def _serde(self, name: Any, argument: str) -> Serde:
        serde = serde_named(name) if isinstance(name, str) else None
        if serde is None:
            raise ConfigException(
                f"store '{self._name}' has the custom serde '{name}': give it as {argument}="
            )
        return serde

    def count(self) -> int:
        """The approximate number of entries, on all clients."""
        count = self.ask(question_of(Read(self._name, form=ResultForm.COUNT))).body.get("count")
        if not isinstance(count, int):
            raise self.garbled()
        return count

    # --- requests ------------------------------------------------------------------------------------------

    def ask(self, question: RemoteRequest) -> Reply:
        """The server's answer, or that of the client it names; a 404 without an error is an answer too."""
        deadline = Deadline(self._timeout_s)
        reply = self._asked(self._wire, question, deadline)
        if is_misdirected(reply.status, reply.body) and (other := self._other(reply.body)):
            reply = self._asked(other, question, deadline)
        if reply.status == 413:
            raise _TooLarge(str(reply.body.get("message")))
        if "error" in reply.body:
            raise exception_from(reply.status, reply.body, str(self._base))
        if reply.status not in (200, 404):
            raise self.garbled()
        return reply

    def _asked(self, wire: Wire, question: RemoteRequest, deadline: Deadline) -> Reply:
        try:
            return wire.ask(question.method, question.target, deadline=deadline, body=question.body)
        except Unproven as error:
            raise StreamsException(
                f"store '{self._name}': the query server at {self._base} names a client that has it, but "
                f"{error}, so it was not queried"
            ) from error
        except WireError as error:
            if error.timed_out:
                raise TimeoutException(f"store '{self._name}': {error}; retry, or allow more time") from error
            raise StateStoreNotAvailableException(
                f"store '{self._name}': {error}; use the query server of another client", store=self._name
            ) from error

    def _other(self, body: Mapping[str, Any]) -> Wire | None:
        """The client that an answer names. It is not sent the token: both sides prove that they know it."""
        host, application_id = body.get("host"), body.get("application_id")
        try:
            named = HostInfo.parse(host) if isinstance(host, str) else None
        except ValueError:
            return None
        if named is None or not isinstance(application_id, str):
            return None
        base = self._base._replace(host=named.host, port=named.port)
        secret = None if self._token is None else secret_of(self._token, application_id)
        return self._others.setdefault(named, Wire(base, secret=secret, name=str(named), tls=self._tls))

    def garbled(self) -> StreamsException:
        return StreamsException(
            f"the answer from {self._base} is not that of a query server of this version; is it one?"
        )

    # --- answers -------------------------------------------------------------------------------------------

    def place(self, row: Any, kind: StoreKind) -> Any:
        """The key of an entry as stores of a kind have it: alone, with a start, or with start and end."""
        start, end = (row.get("start", 0), row.get("end", 0)) if isinstance(row, dict) else (None, None)
        if not isinstance(start, int) or not isinstance(end, int):
            raise self.garbled()
        key = self._bytes(row.get("key"))
        match kind:
            case StoreKind.KEY_VALUE:
                return key
            case StoreKind.WINDOW:
                return key, start
        return key, start, end

    def stored(self, row: Any) -> bytes:
        """The value as stores keep it: a timestamp, and the value's bytes."""
        timestamp = row.get("timestamp", 0) if isinstance(row, dict) else None
        if not isinstance(timestamp, int) or not -(2**63) <= timestamp < 2**63:
            raise self.garbled()
        return pack_timestamp(timestamp) + self._bytes(row.get("value"))

    def _bytes(self, text: Any) -> bytes:
        try:
            return from_base64(text)
        except Refused:
            raise self.garbled() from None
