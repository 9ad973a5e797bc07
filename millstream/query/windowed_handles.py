"""The handles on window stores and session stores.

A read over several keys is ordered across all partitions: by the key's bytes, then by time. Times are
datetimes with a time zone, or milliseconds since the epoch; None leaves that side open.
"""

from __future__ import annotations

import logging
import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar, overload

from millstream.coroutines import awaitable, run
from millstream.model import Window, Windowed
from millstream.query.handle import StoreHandle
from millstream.query.iterators import (
    AsyncKeyValueIterator,
    KeyValueIterator,
    WindowStoreIterator,
    iterable_async,
)
from millstream.query.read import Read
from millstream.query.times import Time, to_ms

__all__ = ["ReadOnlySessionStore", "ReadOnlyWindowStore"]

K = TypeVar("K")
V = TypeVar("V")

_Iterable: TypeAlias = Callable[..., AsyncKeyValueIterator[Windowed[K], V]]
"""The form for coroutines of a method with several signatures, of which mypy would take the first."""

_log = logging.getLogger(__name__)


class _WindowedHandle(StoreHandle[Windowed[K], V]):
    """The common part of the handles on windows and sessions."""

    def __contains__(self, key: Any) -> bool:
        return self._value_at(key, "__contains__")[0]

    def __getitem__(self, key: Windowed[K]) -> V:
        there, value = self._value_at(key, "__getitem__")
        if not there:
            raise KeyError(key)
        return value  # type: ignore[return-value]  # a serde may read None

    def all(self) -> KeyValueIterator[Windowed[K], V]:
        """Every window (or session) of every key."""
        return self._scan(None, None, None, None, "all", reverse=False)

    def backward_all(self) -> KeyValueIterator[Windowed[K], V]:
        """The same windows as `all()`, last first."""
        return self._scan(None, None, None, None, "backward_all", reverse=True)

    all_async = iterable_async(all)
    backward_all_async = iterable_async(backward_all)

    def _value_at(self, key: Any, method: str) -> tuple[bool, V | None]:
        if not isinstance(key, Windowed):
            raise TypeError(
                f"{method} of {self._of.kind.value} store '{self._name}' takes a Windowed; got {key!r}"
            )
        return self._value(self._of_window(self._of_key(key.key, method), key.window))

    @abstractmethod
    def _of_window(self, read: Read, window: Window) -> Read:
        """The same read for exactly this window."""

    @abstractmethod
    def _between_times(self, read: Read, one_time: Any, other_time: Any, method: str) -> Read:
        """The same read between times, as the kind of store defines them."""

    def _scan(
        self, key_from: Any, key_to: Any, one_time: Any, other_time: Any, method: str, *, reverse: bool
    ) -> KeyValueIterator[Windowed[K], V]:
        """A range of keys and of times; `method` is the calling method."""
        read = self._of_range(key_from, key_to, method, reverse=reverse)
        entries: KeyValueIterator[Windowed[K], V] = self._entries(
            self._between_times(read, one_time, other_time, method)
        )
        return entries

    def _of_one(self, key: Any, one_time: Any, other_time: Any, method: str, *, reverse: bool) -> Read:
        """The windows of one key, between times."""
        read = replace(self._of_key(key, method), reverse=reverse)
        return self._between_times(read, one_time, other_time, method)

    def _wrong_arguments(self, method: str, forms: str, given: int) -> TypeError:
        return TypeError(f"{method}() of store '{self._name}' takes {forms}; got {given} arguments")

    def _deprecate_milliseconds(self, method: str, *times: Any, depth: int = 3) -> None:
        if self._reader.deprecates_milliseconds and any(isinstance(time, int) for time in times):
            warnings.warn(
                f"{method}() with times in milliseconds is deprecated, as in Kafka Streams; pass datetimes "
                f"with a time zone",
                DeprecationWarning,
                stacklevel=depth,
            )


class ReadOnlyWindowStore(_WindowedHandle[K, V]):
    """A read-only window store over its partitions on this client. Thread-safe.

    Times refer to a window's start; both ends are inclusive. Windows older than the store's retention are
    gone. In addition to Kafka Streams' methods: `windowed in store`, `store[windowed]`, iteration over the
    windowed keys, `keys()`, `values()`, `items()`, `to_arrow()`, `to_pandas()`.

    Raises, from every read:
        StreamsRebalancingException: a partition that it needs cannot be read now; retry with the same handle.
        StateStoreMigratedException: a partition that it read before has left this client; get a new handle.
        StateStoreNotAvailableException: the client is stopping or has stopped.
        InvalidStateStorePartitionException: the requested partition is not on this client.
        SerializationException: a key or value does not fit the store's serde.
        ProcessorStateException: the files on disk are damaged or cannot be read.
        TypeError: a required key is None, or a time is neither a datetime nor an int.
        ValueError: a datetime has no time zone.

    Source: org.apache.kafka.streams.state.ReadOnlyWindowStore; KIP-216, KIP-358, KIP-617.
    Differs: reads over several partitions are merged, ordered by the keys' bytes and then by window (Kafka: a
        key's windows from the first partition that has any; ranges by partition and segment). A time may be
        None, which leaves that side open. A first time after the last one is logged.
    """

    # --- reads of Kafka Streams --------------------------------------------------------------------------

    @overload
    def fetch(self, key: K, time: Time, /) -> V | None: ...
    @overload
    def fetch(self, key: K, time_from: Time | None, time_to: Time | None, /) -> WindowStoreIterator[V]: ...
    @overload
    def fetch(
        self, key_from: K | None, key_to: K | None, time_from: Time | None, time_to: Time | None, /
    ) -> KeyValueIterator[Windowed[K], V]: ...
    def fetch(self, *arguments: Any) -> Any:
        """`fetch(key, time)`: the value of the key's window that starts at `time`; None if there is none
        here.
        `fetch(key, time_from, time_to)`: the key's windows, as (start in ms, value).
        `fetch(key_from, key_to, time_from, time_to)`: the windows of a range of keys.

        Times in milliseconds in the second and third form are deprecated, as in Kafka Streams.
        """
        if len(arguments) == 2:
            return self._fetch_one(*arguments)
        return self._fetch("fetch", arguments, reverse=False)

    @overload
    def backward_fetch(
        self, key: K, time_from: Time | None, time_to: Time | None, /
    ) -> WindowStoreIterator[V]: ...
    @overload
    def backward_fetch(
        self, key_from: K | None, key_to: K | None, time_from: Time | None, time_to: Time | None, /
    ) -> KeyValueIterator[Windowed[K], V]: ...
    def backward_fetch(self, *arguments: Any) -> Any:
        """The same windows as `fetch` with the same arguments, last first."""
        return self._fetch("backward_fetch", arguments, reverse=True)

    def fetch_all(self, time_from: Time | None, time_to: Time | None) -> KeyValueIterator[Windowed[K], V]:
        """The windows of every key that start from `time_from` to `time_to`, both inclusive.

        Times in milliseconds are deprecated, as in Kafka Streams.
        """
        self._deprecate_milliseconds("fetch_all", time_from, time_to)
        return self._scan(None, None, time_from, time_to, "fetch_all", reverse=False)

    def backward_fetch_all(
        self, time_from: Time | None, time_to: Time | None
    ) -> KeyValueIterator[Windowed[K], V]:
        """The same windows as `fetch_all(time_from, time_to)`, last first."""
        self._deprecate_milliseconds("backward_fetch_all", time_from, time_to)
        return self._scan(None, None, time_from, time_to, "backward_fetch_all", reverse=True)

    # --- the same for coroutines -------------------------------------------------------------------------

    def fetch_async(self, *arguments: Any) -> Any:
        """`fetch` for coroutines: `await` the form with one value; iterate over the others with `async
        for`."""
        if len(arguments) == 2:
            return run(partial(self._fetch_one, *arguments))
        return AsyncKeyValueIterator[Any, V](partial(self._fetch, "fetch", arguments, reverse=False))

    backward_fetch_async: Callable[..., AsyncKeyValueIterator[Any, V]] = iterable_async(backward_fetch)
    fetch_all_async = iterable_async(fetch_all)
    backward_fetch_all_async = iterable_async(backward_fetch_all)

    # --- creating reads ----------------------------------------------------------------------------------

    def _of_window(self, read: Read, window: Window) -> Read:
        return replace(read, start=window.start_ms)

    def _fetch_one(self, key: Any, time: Any) -> V | None:
        read = self._of_key(key, "fetch")
        start = to_ms(time, f"fetch() of store '{self._name}': the time")
        return self._value(replace(read, start=start))[1]

    def _fetch(self, method: str, arguments: tuple[Any, ...], *, reverse: bool) -> Any:
        if len(arguments) == 3:
            key, time_from, time_to = arguments
            self._deprecate_milliseconds(method, time_from, time_to, depth=4)
            read = self._of_one(key, time_from, time_to, method, reverse=reverse)
            return self._entries(read, WindowStoreIterator, starts=True)
        if len(arguments) == 4:
            key_from, key_to, time_from, time_to = arguments
            self._deprecate_milliseconds(method, time_from, time_to, depth=4)
            return self._scan(key_from, key_to, time_from, time_to, method, reverse=reverse)
        one = "(key, time), " if method == "fetch" else ""
        forms = f"{one}(key, time_from, time_to) or (key_from, key_to, time_from, time_to)"
        raise self._wrong_arguments(method, forms, len(arguments))

    def _between_times(self, read: Read, time_from: Any, time_to: Any, method: str) -> Read:
        what = f"{method}() of store '{self._name}': the "
        earliest = None if time_from is None else to_ms(time_from, what + "first time")
        latest = None if time_to is None else to_ms(time_to, what + "last time")
        if earliest is not None and latest is not None and earliest > latest:
            _log.warning(
                "store '%s': the range of %s() is empty, because it starts after its end", self._name, method
            )
        return replace(read, earliest=earliest, latest=latest)


class ReadOnlySessionStore(_WindowedHandle[K, V]):
    """A read-only session store over its partitions on this client. Thread-safe.

    Sessions older than the store's retention are gone. In addition to Kafka Streams' methods: `all()` and
    `backward_all()`, `windowed in store`, `store[windowed]`, iteration over the windowed keys, `keys()`,
    `values()`, `items()`, `to_arrow()`, `to_pandas()`.

    Raises, from every read:
        StreamsRebalancingException: a partition that it needs cannot be read now; retry with the same handle.
        StateStoreMigratedException: a partition that it read before has left this client; get a new handle.
        StateStoreNotAvailableException: the client is stopping or has stopped.
        InvalidStateStorePartitionException: the requested partition is not on this client.
        SerializationException: a key or value does not fit the store's serde.
        ProcessorStateException: the files on disk are damaged or cannot be read.
        TypeError: a required key is None, or a time is neither a datetime nor an int.
        ValueError: a datetime has no time zone.

    Source: org.apache.kafka.streams.state.ReadOnlySessionStore; KIP-216, KIP-617, KIP-666.
    Differs: reads over several partitions are merged, ordered by the keys' bytes, then by end, then by start
        (Kafka: a key's sessions from the first partition that has any; ranges by partition). `fetch_session`
        finds the session in any partition. A time may be None, which leaves that side open.
    """

    # --- reads of Kafka Streams --------------------------------------------------------------------------

    @overload
    def fetch(self, key: K, /) -> KeyValueIterator[Windowed[K], V]: ...
    @overload
    def fetch(self, key_from: K | None, key_to: K | None, /) -> KeyValueIterator[Windowed[K], V]: ...
    def fetch(self, *arguments: Any) -> KeyValueIterator[Windowed[K], V]:
        """`fetch(key)`: the key's sessions. `fetch(key_from, key_to)`: the sessions of a range of keys."""
        return self._fetch("fetch", arguments, reverse=False)

    @overload
    def backward_fetch(self, key: K, /) -> KeyValueIterator[Windowed[K], V]: ...
    @overload
    def backward_fetch(self, key_from: K | None, key_to: K | None, /) -> KeyValueIterator[Windowed[K], V]: ...
    def backward_fetch(self, *arguments: Any) -> KeyValueIterator[Windowed[K], V]:
        """The same sessions as `fetch` with the same arguments, last first."""
        return self._fetch("backward_fetch", arguments, reverse=True)

    @overload
    def find_sessions(
        self, key: K, earliest_session_end_time: Time | None, latest_session_start_time: Time | None, /
    ) -> KeyValueIterator[Windowed[K], V]: ...
    @overload
    def find_sessions(
        self,
        key_from: K | None,
        key_to: K | None,
        earliest_session_end_time: Time | None,
        latest_session_start_time: Time | None,
        /,
    ) -> KeyValueIterator[Windowed[K], V]: ...
    def find_sessions(self, *arguments: Any) -> KeyValueIterator[Windowed[K], V]:
        """`find_sessions(key, earliest_session_end_time, latest_session_start_time)`: the key's sessions that
        end at the first time or later, and start at the second or earlier; that is, those that overlap that
        span.
        `find_sessions(key_from, key_to, earliest_session_end_time, latest_session_start_time)`: the sessions
        of a range of keys.
        """
        return self._find("find_sessions", arguments, reverse=False)

    @overload
    def backward_find_sessions(
        self, key: K, earliest_session_end_time: Time | None, latest_session_start_time: Time | None, /
    ) -> KeyValueIterator[Windowed[K], V]: ...
    @overload
    def backward_find_sessions(
        self,
        key_from: K | None,
        key_to: K | None,
        earliest_session_end_time: Time | None,
        latest_session_start_time: Time | None,
        /,
    ) -> KeyValueIterator[Windowed[K], V]: ...
    def backward_find_sessions(self, *arguments: Any) -> KeyValueIterator[Windowed[K], V]:
        """The same sessions as `find_sessions` with the same arguments, last first."""
        return self._find("backward_find_sessions", arguments, reverse=True)

    def fetch_session(self, key: K, session_start_time: Time, session_end_time: Time) -> V | None:
        """The value of the key's session with exactly this start and end; None if there is none here."""
        read = self._of_key(key, "fetch_session")
        start = to_ms(session_start_time, f"fetch_session() of store '{self._name}': the start")
        end = to_ms(session_end_time, f"fetch_session() of store '{self._name}': the end")
        return self._value(replace(read, start=start, end=end))[1]

    # --- the same for coroutines -------------------------------------------------------------------------

    fetch_async: _Iterable[K, V] = iterable_async(fetch)
    backward_fetch_async: _Iterable[K, V] = iterable_async(backward_fetch)
    find_sessions_async: _Iterable[K, V] = iterable_async(find_sessions)
    backward_find_sessions_async: _Iterable[K, V] = iterable_async(backward_find_sessions)
    fetch_session_async = awaitable(fetch_session)

    # --- creating reads ----------------------------------------------------------------------------------

    def _of_window(self, read: Read, window: Window) -> Read:
        return replace(read, start=window.start_ms, end=window.end_ms)

    def _fetch(
        self, method: str, arguments: tuple[Any, ...], *, reverse: bool
    ) -> KeyValueIterator[Windowed[K], V]:
        if len(arguments) == 1:
            return self._of_key_alone(arguments[0], None, None, method, reverse=reverse)
        if len(arguments) == 2:
            return self._scan(*arguments, None, None, method, reverse=reverse)
        raise self._wrong_arguments(method, "(key) or (key_from, key_to)", len(arguments))

    def _find(
        self, method: str, arguments: tuple[Any, ...], *, reverse: bool
    ) -> KeyValueIterator[Windowed[K], V]:
        if len(arguments) == 3:
            return self._of_key_alone(*arguments, method, reverse=reverse)
        if len(arguments) == 4:
            return self._scan(*arguments, method, reverse=reverse)
        times = "earliest_session_end_time, latest_session_start_time"
        raise self._wrong_arguments(method, f"(key, {times}) or (key_from, key_to, {times})", len(arguments))

    def _of_key_alone(
        self, key: Any, earliest_end: Any, latest_start: Any, method: str, *, reverse: bool
    ) -> KeyValueIterator[Windowed[K], V]:
        read = self._of_one(key, earliest_end, latest_start, method, reverse=reverse)
        entries: KeyValueIterator[Windowed[K], V] = self._entries(read)
        return entries

    def _between_times(self, read: Read, earliest_end: Any, latest_start: Any, method: str) -> Read:
        what = f"{method}() of store '{self._name}': the "
        return replace(
            read,
            earliest=None if earliest_end is None else to_ms(earliest_end, what + "earliest end"),
            latest=None if latest_start is None else to_ms(latest_start, what + "latest start"),
        )
