"""Reading the stores that are on this client, in bytes. It blocks, so the event loop never calls it.

The stores are read through the same handles as `KafkaStreams.store()` gives, so every exception of KIP-216
comes from the one place that decides about them; only that serdes are left out (`BytesView`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from millstream.dsl.serdes import Serdes
from millstream.errors import StreamsRebalancingException
from millstream.metrics.client import ClientMetrics
from millstream.model import StoreKind
from millstream.query.composite import open_store
from millstream.query.metadata import KeyQueryMetadata, StreamsMetadata
from millstream.query.parameters import QueryableStoreType, QueryableStoreTypes, StoreQueryParameters
from millstream.query.provider import (
    Presence,
    Serde,
    StoreDeclaration,
    StoreSnapshot,
    StoreView,
    parts_by_partition,
)
from millstream.server.answers import BEFORE_HISTORY, Refused
from millstream.server.pages import Page, Place, Row, page_of, place_of

__all__ = ["BytesView", "LocalStores", "QueriedStreams", "Scan", "remaining", "serde_names"]

Times = tuple[datetime | None, datetime | None]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


class QueriedStreams(Protocol):
    """What the query server sees of a `KafkaStreams`."""

    @property
    def client_id(self) -> str: ...

    @property
    def health(self) -> Any: ...

    @property
    def store_view(self) -> StoreView: ...

    def metrics(self) -> ClientMetrics: ...

    def query_metadata_for_key(
        self, store: str, key: Any, serializer_or_partitioner: Any = None
    ) -> KeyQueryMetadata: ...

    def streams_metadata_for_store(self, store: str) -> Sequence[StreamsMetadata]: ...

    def metadata_for_all_streams_clients(self) -> Sequence[StreamsMetadata]: ...


class BytesView:
    """The client's stores, as queries see them, with bytes as the serde of all."""

    def __init__(self, view: StoreView) -> None:
        self._view = view
        first = view.snapshot()
        self._last = (first, _in_bytes(first))

    def snapshot(self) -> StoreSnapshot:
        """As it is now; the same object while nothing has changed."""
        real = self._view.snapshot()
        known, made = self._last
        if real is not known:
            made = _in_bytes(real)
            self._last = (real, made)
        return made


def _in_bytes(snapshot: StoreSnapshot) -> StoreSnapshot:
    plain = Serdes.bytes()
    stores = {
        name: store
        if store.key_serde is None or store.value_serde is None
        else replace(store, key_serde=plain, value_serde=plain)
        for name, store in snapshot.stores.items()
    }
    return replace(snapshot, stores=stores)


@dataclass(frozen=True, slots=True)
class Scan:
    """A range of a store, all bounds included; None: open on that side.

    Attributes:
        earliest, latest: of windows, when they start; of sessions, the earliest end and the latest start.
        partition: the one that has the only key; None: every one that is here.
        as_of: of stores with history, the time (in ms) as of which it is read.
    """

    store: str
    kind: StoreKind
    from_key: bytes | None = None
    to_key: bytes | None = None
    prefix: bytes | None = None
    earliest: int | None = None
    latest: int | None = None
    reverse: bool = False
    stale: bool = False
    partition: int | None = None
    as_of: int | None = None


class LocalStores:
    """The stores of one client. Any number of threads may read."""

    def __init__(self, view: StoreView) -> None:
        self._real = view
        self._bytes = BytesView(view)

    # --- what there is -----------------------------------------------------------------------------------

    def snapshot(self) -> StoreSnapshot:
        """What queries decide by, with the stores' own serdes."""
        return self._real.snapshot()

    def declaration(self, store: str, kind: StoreKind | None) -> StoreDeclaration:
        """What is said of a store; its serdes are known.

        Raises:
            InvalidStateStoreException: one of its leaves: the store cannot be read at all now, or is of
                another kind.
        """
        snapshot = self.snapshot()
        found = snapshot.stores.get(store)
        wanted = kind or (found.kind if found is not None else StoreKind.KEY_VALUE)
        fits = found is not None and found.kind is wanted
        if not fits or found is None or found.key_serde is None or found.value_serde is None:
            raise self._reason(store, wanted)
        if snapshot.client_state not in ("RUNNING", "REBALANCING"):
            raise self._reason(store, wanted)
        return found

    def _reason(self, store: str, kind: StoreKind) -> Exception:
        try:
            self._open(store, kind)
        except Exception as error:  # the leaf that says it
            return error
        # Readable after all: it has become so since.
        return StreamsRebalancingException(f"store '{store}' was not ready a moment ago; retry", store=store)

    def presences(self, store: str, *, stale: bool) -> dict[int, Presence]:
        """What each partition that is here is good for."""
        found = parts_by_partition(self.snapshot(), store, stale=stale)
        return {partition: presence for partition, (presence, _) in found.items()}

    def parts(self, store: str, *, stale: bool) -> dict[int, Any]:
        """What can be read here: the part of each partition. One that has gone and come back is another."""
        found = parts_by_partition(self.snapshot(), store, stale=stale)
        return {
            number: part.store for number, (presence, part) in found.items() if presence is Presence.READABLE
        }

    def readable(self, store: str, *, stale: bool) -> frozenset[int]:
        """The partitions that can be read here."""
        return frozenset(self.parts(store, stale=stale))

    # --- reading -----------------------------------------------------------------------------------------

    def get(
        self, store: str, key: bytes, *, partition: int | None, stale: bool, as_of: int | None = None
    ) -> Row | None:
        """A key's value; None: it has none here. `as_of`: the one that it had then."""
        with _history(as_of):
            found = self._open(store, StoreKind.KEY_VALUE, partition, stale, as_of).get(key)
        return None if found is None else Row(key, found.value, found.timestamp)

    def multi_get(
        self, store: str, keys: Sequence[bytes], *, stale: bool, as_of: int | None = None
    ) -> list[Row | None]:
        """The same for many keys, in their order."""
        with _history(as_of):
            found = self._open(store, StoreKind.KEY_VALUE, None, stale, as_of).multi_get(keys)
        return [
            None if each is None else Row(key, each.value, each.timestamp)
            for key, each in zip(keys, found, strict=True)
        ]

    def window(self, store: str, key: bytes, start: int, *, partition: int | None, stale: bool) -> Row | None:
        """The value of a key's window that starts then."""
        found = self._open(store, StoreKind.WINDOW, partition, stale).fetch(key, start)
        if found is None:
            return None
        size = self.snapshot().stores[store].window_size_ms
        return Row(key, found.value, found.timestamp, start, None if size is None else start + size)

    def session(
        self, store: str, key: bytes, start: int, end: int, *, partition: int | None, stale: bool
    ) -> Row | None:
        """The value of a key's session from `start` to `end`."""
        found = self._open(store, StoreKind.SESSION, partition, stale).fetch_session(key, start, end)
        return None if found is None else Row(key, found, None, start, end)

    def count(self, store: str, *, stale: bool) -> int:
        """About how many entries there are here, of whatever kind."""
        kind = self.declaration(store, None).kind
        count: int = self._open(store, kind, None, stale).approximate_num_entries()
        return count

    def page(
        self, scan: Scan, after: Place | None, *, limit: int, most_bytes: int, check: Callable[[], None]
    ) -> tuple[Page, frozenset[int]]:
        """A page of what is here, and the partitions that it is of.

        Raises:
            StreamsRebalancingException: a partition came or went while it was read.
        """
        before = self.parts(scan.store, stale=scan.stale)
        with _history(scan.as_of), closing(self._rows(scan, after)) as rows:
            page = page_of(
                rows,
                place_of(scan.kind),
                after,
                reverse=scan.reverse,
                limit=limit,
                most_bytes=most_bytes,
                check=check,
            )
        if self.parts(scan.store, stale=scan.stale) != before:
            raise StreamsRebalancingException(
                f"partitions of store '{scan.store}' came or went while it was read; retry", store=scan.store
            )
        here = frozenset(before)
        return page, here if scan.partition is None else here & {scan.partition}

    def _open(
        self,
        store: str,
        kind: StoreKind,
        partition: int | None = None,
        stale: bool = False,
        as_of: int | None = None,
    ) -> Any:
        parameters = StoreQueryParameters.from_name_and_type(store, _type_of(kind))
        if partition is not None:
            parameters = parameters.with_partition(partition)
        if stale:
            parameters = parameters.enable_stale_stores()
        handle = open_store(self._bytes, parameters)
        return handle if as_of is None else handle.as_of(as_of)

    def _rows(self, scan: Scan, after: Place | None) -> Generator[Row]:
        """The rows from that place on, and perhaps some before it."""
        handle = self._open(scan.store, scan.kind, scan.partition, scan.stale, scan.as_of)
        for part in remaining(scan, after):
            times = _times(part)
            low, high = part.from_key, part.to_key
            if times is None or (low is not None and high is not None and low > high):
                continue
            if part.kind is StoreKind.KEY_VALUE:
                yield from _entries(handle, part, low, high)
            elif part.kind is StoreKind.WINDOW:
                yield from _windows(handle, part, low, high, times)
            else:
                yield from _sessions(handle, part, low, high, times)


def remaining(scan: Scan, after: Place | None) -> Sequence[Scan]:
    """What is left to scan after a place. Pure.

    Not from outside the range, whatever the place says. A key may have very many windows, and those of the
    pages before are not read again; but where many keys are read backwards, those of one key are.
    """
    if scan.prefix is not None:
        scan = replace(scan, from_key=scan.prefix, to_key=_after_prefix(scan.prefix))
    if after is None:
        return (scan,)
    low, high = scan.from_key, scan.to_key
    key, time, _ = after.order
    if scan.kind is not StoreKind.KEY_VALUE and low is not None and low == high == key:
        return (_within_key(scan, time),)
    if scan.reverse:
        return (replace(scan, to_key=key if high is None else min(high, key)),)
    if scan.kind is StoreKind.KEY_VALUE:
        return (replace(scan, from_key=key if low is None else max(low, key)),)
    following = key + b"\0"
    beyond = replace(scan, from_key=following if low is None else max(low, following))
    if (low is not None and key < low) or (high is not None and key > high):
        return (beyond,)
    return (_within_key(replace(scan, from_key=key, to_key=key), time), beyond)


def _within_key(scan: Scan, time: int) -> Scan:
    """From a time on: of windows their start, of sessions their end; which is the first of their order."""
    if scan.reverse:  # a session that ends then or earlier has started then or earlier
        return replace(scan, latest=time if scan.latest is None else min(scan.latest, time))
    return replace(scan, earliest=time if scan.earliest is None else max(scan.earliest, time))


@contextmanager
def _history(as_of: int | None) -> Iterator[None]:
    """Has a time that is before a store's history be the request's mistake."""
    try:
        yield
    except ValueError as error:
        if as_of is None:
            raise
        raise Refused(400, BEFORE_HISTORY, str(error)) from error


def _entries(handle: Any, scan: Scan, low: bytes | None, high: bytes | None) -> Iterator[Row]:
    read = handle.reverse_range if scan.reverse else handle.range
    with read(low, high) as entries:
        for key, found in entries:
            if scan.prefix is None or key.startswith(scan.prefix):
                yield Row(key, found.value, found.timestamp)


def _windows(handle: Any, scan: Scan, low: bytes | None, high: bytes | None, times: Times) -> Iterator[Row]:
    read = handle.backward_fetch if scan.reverse else handle.fetch
    with read(low, high, *times) as entries:
        for windowed, found in entries:
            window = windowed.window
            yield Row(windowed.key, found.value, found.timestamp, window.start_ms, window.end_ms)


def _sessions(handle: Any, scan: Scan, low: bytes | None, high: bytes | None, times: Times) -> Iterator[Row]:
    read = handle.backward_find_sessions if scan.reverse else handle.find_sessions
    with read(low, high, *times) as entries:
        for windowed, value in entries:
            window = windowed.window
            yield Row(windowed.key, value, None, window.start_ms, window.end_ms)


def _times(scan: Scan) -> Times | None:
    """The bounds as the handles take them; None: there is nothing between them.

    No window starts before the epoch, and a datetime goes to the year 9999: what is beyond is no bound, or
    leaves nothing.
    """
    earliest, latest = scan.earliest, scan.latest
    if (earliest is not None and earliest > _LAST_MS) or (latest is not None and latest < 0):
        return None
    if scan.kind is StoreKind.WINDOW and earliest is not None and latest is not None and earliest > latest:
        return None
    return (
        None if earliest is None or earliest <= 0 else _EPOCH + timedelta(milliseconds=earliest),
        None if latest is None or latest > _LAST_MS else _EPOCH + timedelta(milliseconds=latest),
    )


def _type_of(kind: StoreKind) -> QueryableStoreType[Any]:
    if kind is StoreKind.WINDOW:
        return QueryableStoreTypes.timestamped_window_store()
    if kind is StoreKind.SESSION:
        return QueryableStoreTypes.session_store()
    return QueryableStoreTypes.timestamped_key_value_store()


def _after_prefix(prefix: bytes) -> bytes | None:
    """The least key that is greater than every key with this prefix; None: there is none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None


def serde_names(store: StoreDeclaration) -> tuple[str | None, str | None]:
    """How the serdes of a store are called; None: it is not known yet."""

    def name(serde: Serde | None) -> str | None:
        return None if serde is None else serde.name

    return name(store.key_serde), name(store.value_serde)
