"""RemoteStore: a store of an application that runs somewhere else, read as if it were here.

It speaks with any one of the application's query servers, which asks the others. Keys and values travel as
the bytes that the store has, so that reading them here gives what reading them there would give.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from millstream.dsl.serdes import Serde, serde_named
from millstream.errors import (
    ConfigException,
    InvalidStateStoreTypeException,
    SerializationException,
    SetupException,
    StateStoreNotAvailableException,
    StreamsException,
    StreamsRebalancingException,
    TimeoutException,
)
from millstream.model import SessionWindow, StoreKind, TimeWindow, ValueAndTimestamp, Windowed
from millstream.query.codec import unfit_key
from millstream.query.iterators import EntryViews, KeyValueIterator, WindowStoreIterator
from millstream.query.metadata import HostInfo
from millstream.query.provider import StoreDeclaration
from millstream.query.times import Time, to_ms
from millstream.server.answers import Refused, exception_from, is_misdirected
from millstream.server.codec import from_base64, to_base64
from millstream.server.entrance import checked_token
from millstream.server.proof import secret_of
from millstream.server.wire import Reply, Unproven, Wire, WireError, base_of
from millstream.server.workers import Deadline
from millstream.stores.api import ClosedStoreError, pack_timestamp, timestamp_of

if TYPE_CHECKING:
    import pyarrow

__all__ = ["RemoteStore"]

T = TypeVar("T")
_MULTI_GET = 1_000
"""How many keys one question asks for."""


@dataclass(frozen=True, slots=True)
class _Described:
    kind: StoreKind
    key_serde: Serde
    value_serde: Serde
    window_size_ms: int | None = None


class _TooLarge(StreamsException):
    """The answer to all that was asked for at once would be too large."""


class RemoteStore(EntryViews[Any, Any]):
    """A store of a running application, over HTTP. Any number of threads may use it.

        with RemoteStore("http://orders-1:8080", "counts", token="...") as counts:
            counts["anna"]

    It has the methods of ReadOnlyKeyValueStore, ReadOnlyWindowStore and ReadOnlySessionStore; which of them
    answer depends on the store's kind.

    Args:
        url: any query server of the application, such as `http://localhost:8080`; https too.
        store: the store's name.
        token: what that server wants to be shown (`query.server.token`). Another client that it names is
            asked only if it proves that it knows the token, which it is not shown.
        timeout: how long one question may take; a range asks one for each page.
        stale: whether standbys, and what is still being restored, will do (`enable_stale_stores()`).
        timestamped: whether values come as `ValueAndTimestamp`, as from a store of a timestamped type; those
            of session stores have none.
        key_serde, value_serde: only for serdes of your own; the server tells of the others which they are.
        page_size: how many entries of a range are fetched at once.

    Raises, from every read, what reading the store there would raise: the leaves of KIP-216 above all. And:
        StateStoreNotAvailableException: the server cannot be reached; another one of the application may be.
        TimeoutException: no answer in time.
        StreamsException: the server does not let this client in, is too busy, or is no query server.

    Differs: Kafka Streams has none. A range reads one page after the other, each as the store is at that
    moment; it is in order, has no entry twice, and all that was there the whole time.
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
    ) -> None:
        if not isinstance(store, str) or not store:
            raise TypeError(f"a store name is a str that is not empty, not {store!r}")
        if not isinstance(timeout, timedelta) or timeout <= timedelta(0):
            raise TypeError(f"a timeout is a timedelta longer than nothing; got {timeout!r}")
        if page_size < 1:
            raise ValueError(f"a page has one entry or more, not {page_size}")
        self._base = base_of(url)
        self._name = store
        self._path = f"/v1/stores/{quote(store, safe='')}"
        self._token = checked_token(token)
        self._timeout_s = timeout.total_seconds()
        self._stale = stale
        self._timestamped = timestamped
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._page_size = page_size
        self._wire = Wire(self._base, self._token)
        self._others: dict[HostInfo, Wire] = {}
        self._known: _Described | None = None
        self._fixed: Mapping[str, str] = {}
        """What each read is asked with, beside its own parameters."""

    # --- key-value stores ----------------------------------------------------------------------------------

    def get(self, key: Any) -> Any:
        """The value of a key; None if it has none.

        Raises:
            TypeError: the key is None.
        """
        return self._one("keys", self._key_bytes(key, "get"), {})

    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        """The values of many keys, in their order; None for each that has none."""
        data = [self._key_bytes(key, "multi_get") for key in keys]
        found: list[Any] = []
        for start in range(0, len(data), _MULTI_GET):
            found += self._many(data[start : start + _MULTI_GET])
        return found

    def _many(self, keys: Sequence[bytes]) -> list[Any]:
        try:
            reply = self._ask("POST", "/keys", {}, {"keys": [to_base64(key) for key in keys]})
        except _TooLarge:
            if len(keys) == 1:
                raise
            middle = len(keys) // 2
            return self._many(keys[:middle]) + self._many(keys[middle:])
        entries = reply.body.get("entries")
        if not isinstance(entries, list) or len(entries) != len(keys):
            raise self._garbled()
        return [self._value_of(entry) for entry in entries]

    def range(self, from_: Any, to: Any) -> KeyValueIterator[Any, Any]:
        """The entries from `from_` to `to`, both included; None: open on that side."""
        return self._entries(self._bounds(from_, to, "range", "from", "to"))

    def reverse_range(self, from_: Any, to: Any) -> KeyValueIterator[Any, Any]:
        """The same entries as `range(from_, to)`, last key first."""
        return self._entries(self._bounds(from_, to, "reverse_range", "from", "to"), reverse=True)

    def all(self) -> KeyValueIterator[Any, Any]:
        """Every entry."""
        return self._every(reverse=False)

    def reverse_all(self) -> KeyValueIterator[Any, Any]:
        """Every entry, last key first."""
        return self._entries({}, reverse=True)

    def prefix_scan(self, prefix: Any, prefix_serializer: Any = None) -> KeyValueIterator[Any, Any]:
        """The entries whose key's bytes begin with those of `prefix`.

        `prefix_serializer` writes the prefix; the key's serde does if it is left out.

        Raises:
            TypeError: the prefix is None.
        """
        return self._entries({"prefix": to_base64(self._key_bytes(prefix, "prefix_scan", prefix_serializer))})

    def as_of(self, timestamp: Time) -> RemoteStore:
        """The same store as it was at a time, for stores that are declared with history.

        Raises, from its reads:
            InvalidStateStoreTypeException: the store keeps no history.
            ValueError: the time is before the history.
        """
        at = to_ms(timestamp, f"as_of() of store '{self._name}': the time")
        store = copy.copy(self)
        store._fixed = {"as_of": str(at)}
        return store

    def approximate_num_entries(self) -> int:
        """About how many entries there are, on all clients."""
        count = self._ask("GET", "/count", {}, plain=True).body.get("count")
        if not isinstance(count, int):
            raise self._garbled()
        return count

    def __contains__(self, key: Any) -> bool:
        return self._named(key, "__contains__") is not None

    def __getitem__(self, key: Any) -> Any:
        found = self._named(key, "__getitem__")
        if found is None:
            raise KeyError(key)
        return self._value_of(found)

    # --- tables --------------------------------------------------------------------------------------------

    def to_arrow(self) -> pyarrow.Table:
        """Every entry as an Arrow table, with the columns and types of a local store's."""
        from millstream.query.tables import to_table

        table, columns = self._table()
        return to_table(table, columns)

    def to_pandas(self) -> Any:
        """Every entry as a pandas DataFrame, with the columns of `to_arrow()`.

        Raises:
            SetupException: pandas is not installed.
        """
        if find_spec("pandas") is None:
            raise SetupException(
                "to_pandas() needs pandas: pip install 'millstream[pandas]'; to_arrow() does not"
            )
        return self.to_arrow().to_pandas()

    def to_arrow_batches(self, rows: int = 65_536) -> pyarrow.RecordBatchReader:
        """The columns of `to_arrow()` in batches of up to so many rows, in memory one at a time.

        Raises:
            ValueError: `rows` is not 1 or more.
        """
        from millstream.query.tables import record_batches

        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise ValueError(f"a batch has 1 row or more, not {rows!r}")
        table, columns = self._table()
        return record_batches(table, columns, rows, _never_closed)

    def to_spark(self, session: Any) -> Any:
        """Every entry as a Spark DataFrame, with the columns of `to_arrow()`.

        Raises:
            TypeError: it is no SparkSession.
        """
        create = getattr(session, "createDataFrame", None)
        if create is None:
            raise TypeError(f"to_spark() takes a SparkSession, not {session!r}")
        return create(self.to_arrow())

    def _table(self) -> tuple[Any, list[str]]:
        """All entries, one page after the other, and the columns that they have."""
        from millstream.query.position import Position
        from millstream.query.tables import OpenTable, columns_of

        known = self._described()
        declaration = StoreDeclaration(
            self._name,
            known.key_serde,
            known.value_serde,
            kind=known.kind,
            window_size_ms=known.window_size_ms,
        )
        path = {StoreKind.KEY_VALUE: "/entries", StoreKind.WINDOW: "/windows", StoreKind.SESSION: "/sessions"}
        first, asked = self._first(path[known.kind], {}, reverse=False)
        # As the stores there have their keys: alone, with the start, with start and end.
        parts = {StoreKind.KEY_VALUE: 0, StoreKind.WINDOW: 2, StoreKind.SESSION: 3}[known.kind]
        rows = self._rows(first, path[known.kind], asked)
        entries = ((place[:parts] if parts else place[0], stored) for place, stored in rows)
        timestamped = self._timestamped and known.kind is not StoreKind.SESSION
        columns = [name for name in columns_of(known.kind) if name != "timestamp" or timestamped]
        return OpenTable(declaration, [entries], Position()), columns

    # --- window and session stores -------------------------------------------------------------------------

    def fetch(self, *arguments: Any) -> Any:
        """Of a window store: `fetch(key, time)` gives the value of one window, `fetch(key, from, to)` a key's
        windows, `fetch(from_key, to_key, from, to)` those of many keys. Of a session store: `fetch(key)` and
        `fetch(from_key, to_key)` give sessions.
        """
        return self._fetch(arguments, "fetch", reverse=False)

    def backward_fetch(self, *arguments: Any) -> Any:
        """The same as `fetch`, the last one first."""
        return self._fetch(arguments, "backward_fetch", reverse=True)

    def fetch_all(self, time_from: Time | None, time_to: Time | None) -> KeyValueIterator[Windowed[Any], Any]:
        """The windows of all keys that start from `time_from` to `time_to`, both included."""
        given = self._times("fetch_all", from_=time_from, to=time_to)
        return self._windows("/windows", given, reverse=False)

    def backward_fetch_all(
        self, time_from: Time | None, time_to: Time | None
    ) -> KeyValueIterator[Windowed[Any], Any]:
        """The same as `fetch_all`, the last one first."""
        given = self._times("backward_fetch_all", from_=time_from, to=time_to)
        return self._windows("/windows", given, reverse=True)

    def backward_all(self) -> KeyValueIterator[Any, Any]:
        """Every entry of a window store, the last one first."""
        return self._every(reverse=True)

    def find_sessions(self, *arguments: Any) -> KeyValueIterator[Any, Any]:
        """`find_sessions(key, earliest_end, latest_start)`, or with `from_key, to_key` for the key: sessions
        that end then or later, and start then or earlier.
        """
        return self._find(arguments, "find_sessions", reverse=False)

    def backward_find_sessions(self, *arguments: Any) -> KeyValueIterator[Any, Any]:
        """The same as `find_sessions`, the last one first."""
        return self._find(arguments, "backward_find_sessions", reverse=True)

    def fetch_session(self, key: Any, session_start_time: Time, session_end_time: Time) -> Any:
        """The value of one session; None if there is none."""
        given = self._times("fetch_session", start=session_start_time, end=session_end_time)
        return self._one("sessions", self._key_bytes(key, "fetch_session"), given)

    def _fetch(self, arguments: tuple[Any, ...], method: str, *, reverse: bool) -> Any:
        match self._described().kind, len(arguments):
            case (StoreKind.WINDOW, 2) if not reverse:
                key, time = arguments
                return self._one("windows", self._key_bytes(key, method), self._moment(time, method))
            case (StoreKind.WINDOW, 3):
                key, from_, to = arguments
                given = self._times(method, from_=from_, to=to)
                path = f"/windows/{to_base64(self._key_bytes(key, method))}"
                return WindowStoreIterator(*self._reading(path, given, lambda row: row[1], reverse=reverse))
            case (StoreKind.WINDOW, 4):
                from_key, to_key, from_, to = arguments
                given = self._bounds(from_key, to_key, method) | self._times(method, from_=from_, to=to)
                return self._windows("/windows", given, reverse=reverse)
            case (StoreKind.SESSION, 1):
                path = f"/sessions/{to_base64(self._key_bytes(arguments[0], method))}"
                return self._windows(path, {}, reverse=reverse)
            case (StoreKind.SESSION, 2):
                return self._windows(
                    "/sessions", self._bounds(arguments[0], arguments[1], method), reverse=reverse
                )
            case (StoreKind.KEY_VALUE, _):
                raise self._wrong_kind(method)
            case (kind, count):
                raise TypeError(f"{method}() of a {kind.value} store does not take {count} arguments")

    def _find(self, arguments: tuple[Any, ...], method: str, *, reverse: bool) -> KeyValueIterator[Any, Any]:
        if len(arguments) not in (3, 4):
            raise TypeError(f"{method}() takes a key, or two, and two times; got {len(arguments)} arguments")
        *keys, earliest, latest = arguments
        given = self._times(method, earliest_end=earliest, latest_start=latest)
        if len(keys) == 1:
            path = f"/sessions/{to_base64(self._key_bytes(keys[0], method))}"
            return self._windows(path, given, reverse=reverse)
        return self._windows("/sessions", self._bounds(keys[0], keys[1], method) | given, reverse=reverse)

    # --- itself --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close its connections. It can be used again all the same. Idempotent."""
        for wire in (self._wire, *self._others.values()):
            wire.close()

    def __enter__(self) -> RemoteStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteStore '{self._name}' at {self._base}>"

    # --- reading -------------------------------------------------------------------------------------------

    def _one(self, part: str, key: bytes, given: Mapping[str, str]) -> Any:
        found = self._row(part, key, given)
        return None if found is None else self._value_of(found)

    def _named(self, key: Any, method: str) -> Mapping[str, Any] | None:
        """The answer about what `key in store` and `store[key]` mean: of windowed stores, a Windowed."""
        kind = self._described().kind
        if kind is StoreKind.KEY_VALUE:
            return self._row("keys", self._key_bytes(key, method), {})
        if not isinstance(key, Windowed):
            raise TypeError(f"{method} of {kind.value} store '{self._name}' takes a Windowed, not {key!r}")
        data = self._key_bytes(key.key, method)
        if kind is StoreKind.WINDOW:
            return self._row("windows", data, self._moment(key.window.start_ms, method))
        times = self._times(method, start=key.window.start_ms, end=key.window.end_ms)
        return self._row("sessions", data, times)

    def _row(self, part: str, key: bytes, given: Mapping[str, str]) -> Mapping[str, Any] | None:
        reply = self._ask("GET", f"/{part}/{to_base64(key)}", given)
        return None if reply.status == 404 else reply.body

    def _every(self, *, reverse: bool) -> KeyValueIterator[Any, Any]:
        match self._described().kind:
            case StoreKind.KEY_VALUE:
                return self._entries({}, reverse=reverse)
            case StoreKind.WINDOW:
                return self._windows("/windows", {}, reverse=reverse)
            case _:
                return self._windows("/sessions", {}, reverse=reverse)

    def _entries(self, given: Mapping[str, str], *, reverse: bool = False) -> KeyValueIterator[Any, Any]:
        serde = self._described().key_serde
        return KeyValueIterator(
            *self._reading("/entries", given, lambda row: self._read(serde, row[0]), reverse=reverse)
        )

    def _windows(
        self, path: str, given: Mapping[str, str], *, reverse: bool
    ) -> KeyValueIterator[Windowed[Any], Any]:
        known = self._described()
        window = SessionWindow if known.kind is StoreKind.SESSION else TimeWindow

        def windowed(row: tuple[bytes, int, int]) -> Windowed[Any]:
            return Windowed(self._read(known.key_serde, row[0]), window(row[1], row[2]))

        return KeyValueIterator(*self._reading(path, given, windowed, reverse=reverse))

    def _reading(
        self,
        path: str,
        given: Mapping[str, str],
        decode_key: Callable[[tuple[bytes, int, int]], T],
        *,
        reverse: bool,
    ) -> tuple[Any, ...]:
        """What an iterator is made of. The first page is read here, so that what is wrong is told at once."""
        first, asked = self._first(path, given, reverse=reverse)
        entries = self._rows(first, path, asked)
        return self._name, entries, [entries], decode_key, self._decode, _never_closed

    def _first(self, path: str, given: Mapping[str, str], *, reverse: bool) -> tuple[Reply, dict[str, str]]:
        """The first page, and what the others are asked with."""
        asked = {**given, "limit": str(self._page_size), **({"reverse": "true"} if reverse else {})}
        return self._ask("GET", path, asked), asked

    def _rows(
        self, reply: Reply, path: str, asked: Mapping[str, str]
    ) -> Generator[tuple[tuple[bytes, int, int], bytes]]:
        while True:
            rows, token = reply.body.get("entries"), reply.body.get("next")
            if not isinstance(rows, list) or not (token is None or isinstance(token, str)):
                raise self._garbled()
            for row in rows:
                yield self._place_of(row), self._stored(row)
            if token is None:
                return
            reply = self._ask("GET", path, {**asked, "cursor": token})

    def _place_of(self, row: Any) -> tuple[bytes, int, int]:
        start, end = (row.get("start", 0), row.get("end", 0)) if isinstance(row, dict) else (None, None)
        if not isinstance(start, int) or not isinstance(end, int):
            raise self._garbled()
        return self._bytes(row.get("key")), start, end

    def _stored(self, row: Any) -> bytes:
        """As stores have it: a timestamp, and the value's bytes."""
        timestamp = row.get("timestamp", 0) if isinstance(row, dict) else None
        if not isinstance(timestamp, int) or not -(2**63) <= timestamp < 2**63:
            raise self._garbled()
        return pack_timestamp(timestamp) + self._bytes(row.get("value"))

    def _bytes(self, text: Any) -> bytes:
        try:
            return from_base64(text)
        except Refused:
            raise self._garbled() from None

    def _value_of(self, row: Any) -> Any:
        if isinstance(row, dict) and row.get("value", ...) is None:
            return None
        return self._decode(self._stored(row))

    def _decode(self, stored: bytes) -> Any:
        known = self._described()
        value = self._read(known.value_serde, stored[8:])
        timestamped = self._timestamped and known.kind is not StoreKind.SESSION
        return ValueAndTimestamp(value, timestamp_of(stored)) if timestamped else value

    def _read(self, serde: Serde, data: bytes) -> Any:
        try:
            return serde.deserialize(data)
        except Exception as error:  # whatever a serde raises, users look for one exception
            raise SerializationException(f"store '{self._name}' cannot be read: {error}") from error

    # --- asking --------------------------------------------------------------------------------------------

    def _bounds(
        self, from_: Any, to: Any, method: str, low: str = "from_key", high: str = "to_key"
    ) -> dict[str, str]:
        bounds = ((low, from_), (high, to))
        return {name: to_base64(self._key_bytes(key, method)) for name, key in bounds if key is not None}

    def _moment(self, time: Time, method: str) -> dict[str, str]:
        return {"time": str(to_ms(time, f"{method}() of store '{self._name}': the time"))}

    def _times(self, method: str, **times: Time | None) -> dict[str, str]:
        """Parameters that are times; one that is None is left open. A name may end in `_`: `from_`."""
        return {
            name.rstrip("_"): str(to_ms(time, f"{method}() of store '{self._name}': '{name.rstrip('_')}'"))
            for name, time in times.items()
            if time is not None
        }

    def _key_bytes(self, key: Any, method: str, serializer: Any = None) -> bytes:
        if key is None:
            raise TypeError(f"{method}() of store '{self._name}': the key must not be None")
        serde = self._described().key_serde
        try:
            data: bytes | None = (serde if serializer is None else serializer).serialize(key)
        except Exception as error:  # whatever a serde raises, users look for one exception
            raise unfit_key(self._name, serde, f"{method}()", error) from error
        if data is None:
            raise unfit_key(self._name, serde, f"{method}()")
        return data

    def _described(self) -> _Described:
        """What the server says of the store; asked once."""
        if self._known is None:
            self._known = self._describe()
        return self._known

    def _describe(self) -> _Described:
        body = self._ask("GET", "", {}, plain=True).body
        try:
            kind = StoreKind(body.get("kind"))
        except ValueError:
            raise self._garbled() from None
        names = body.get("key_serde"), body.get("value_serde")
        if None in names:
            # They are known once the topology is compiled. This raises what says why it is not.
            self._ask("GET", "/count", {"local": "true"}, plain=True)
            raise StreamsRebalancingException(
                f"store '{self._name}': its serdes are not known yet; retry", store=self._name
            )
        key_serde = self._key_serde or self._serde(names[0], "key_serde")
        value_serde = self._value_serde or self._serde(names[1], "value_serde")
        size = body.get("window_size_ms")
        return _Described(kind, key_serde, value_serde, size if isinstance(size, int) else None)

    def _serde(self, name: Any, argument: str) -> Serde:
        serde = serde_named(name) if isinstance(name, str) else None
        if serde is None:
            raise ConfigException(
                f"store '{self._name}' has a serde of its own, '{name}': give it as {argument}="
            )
        return serde

    def _ask(
        self,
        method: str,
        path: str,
        given: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        *,
        plain: bool = False,
    ) -> Reply:
        """The server's answer, or that of the client it names; 404 without an error is one too."""
        parameters = dict(given)
        if not plain:
            parameters |= {"format": "bytes", **({"stale": "true"} if self._stale else {}), **self._fixed}
        target = f"{self._path}{path}" + (f"?{urlencode(parameters)}" if parameters else "")
        deadline = Deadline(self._timeout_s)
        content = None if body is None else json.dumps(body).encode("ascii")
        reply = self._asked(self._wire, method, target, content, deadline)
        if is_misdirected(reply.status, reply.body) and (other := self._other(reply.body.get("host"))):
            reply = self._asked(other, method, target, content, deadline)
        if reply.status == 413:
            raise _TooLarge(str(reply.body.get("message")))
        if "error" in reply.body:
            raise exception_from(reply.status, reply.body, str(self._base))
        if reply.status not in (200, 404):
            raise self._garbled()
        return reply

    def _asked(self, wire: Wire, method: str, target: str, body: bytes | None, deadline: Deadline) -> Reply:
        try:
            return wire.ask(method, target, deadline=deadline, body=body)
        except Unproven as error:
            raise StreamsException(
                f"store '{self._name}': the query server at {self._base} names a client that has it; but "
                f"{error}, so it was asked nothing"
            ) from error
        except WireError as error:
            if error.timed_out:
                raise TimeoutException(f"store '{self._name}': {error}; retry, or give it longer") from error
            raise StateStoreNotAvailableException(
                f"store '{self._name}': {error}; ask the query server of another client", store=self._name
            ) from error

    def _other(self, host: Any) -> Wire | None:
        """The client that an answer names. It is not shown the token: both sides prove that they know it."""
        try:
            named = HostInfo.parse(host) if isinstance(host, str) else None
        except ValueError:
            return None
        if named is None:
            return None
        base = self._base._replace(host=named.host, port=named.port)
        secret = None if self._token is None else secret_of(self._token)
        return self._others.setdefault(named, Wire(base, secret=secret, name=str(named)))

    def _garbled(self) -> StreamsException:
        return StreamsException(
            f"what answers at {self._base} does not speak as this version's query server does; is it one?"
        )

    def _wrong_kind(self, method: str) -> InvalidStateStoreTypeException:
        kind = self._described().kind.value
        return InvalidStateStoreTypeException(
            f"store '{self._name}' is a {kind} store, which has no {method}()", store=self._name
        )


def _never_closed(error: ClosedStoreError) -> Exception:
    return error  # a store that is closed there is told by the server, as an exception
