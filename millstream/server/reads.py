"""Reading the stores that are on this client, in bytes. It blocks, so the event loop never calls it.

The stores are read as the handles of `KafkaStreams.store()` read them, so every exception of KIP-216 comes
from the one place that decides about them; only that nothing is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any, Protocol

from millstream.errors import StreamsRebalancingException
from millstream.model import StoreKind, ThreadMetadata
from millstream.query.local import LocalReader
from millstream.query.metadata import KeyQueryMetadata, StreamsMetadata
from millstream.query.parameters import QueryableStoreTypes
from millstream.query.provider import (
    Presence,
    Serde,
    StoreDeclaration,
    StoreSnapshot,
    StoreView,
    parts_by_partition,
)
from millstream.query.read import Read, remaining
from millstream.server.answers import BEFORE_HISTORY, Refused
from millstream.server.pages import Page, Place, Row, page_of, place_of
from millstream.stores.api import ClosedStoreError, timestamp_of, value_of
from millstream.stores.keys import MAX_TIME_MS

__all__ = ["LocalStores", "QueriedStreams", "serde_names"]


class QueriedStreams(Protocol):
    """What the query server sees of a `KafkaStreams`."""

    @property
    def client_id(self) -> str: ...

    @property
    def health(self) -> Any: ...

    @property
    def store_view(self) -> StoreView: ...

    @property
    def failures(self) -> Sequence[Any]: ...

    @property
    def is_paused(self) -> bool: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def add_stream_thread(self) -> str | None: ...

    def remove_stream_thread(self, timeout: timedelta | None = None) -> str | None: ...

    def metadata_for_local_threads(self) -> Sequence[ThreadMetadata]: ...

    def query_metadata_for_key(
        self, store: str, key: Any, serializer_or_partitioner: Any = None
    ) -> KeyQueryMetadata: ...

    def streams_metadata_for_store(self, store: str) -> Sequence[StreamsMetadata]: ...

    def metadata_for_all_streams_clients(self) -> Sequence[StreamsMetadata]: ...


class LocalStores:
    """The stores of one client. Any number of threads may read."""

    def __init__(self, view: StoreView) -> None:
        self._view = view

    # --- what there is -----------------------------------------------------------------------------------

    def snapshot(self) -> StoreSnapshot:
        """What queries decide by, with the stores' own serdes."""
        return self._view.snapshot()

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
            self._reader(Read(store, kind))
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

    def row(self, read: Read) -> Row | None:
        """The entry of one key, or of one of its windows; None: there is none here."""
        with _history(read):
            stored = self._reader(read).answer(read)
        return None if stored is None else self._rows_of(read)((read.key, read.start, read.end), stored)

    def rows(self, read: Read) -> list[Row | None]:
        """The same for many keys, in their order."""
        with _history(read):
            found = self._reader(read).answer(read)
        row = self._rows_of(read)
        return [
            None if stored is None else row((key,), stored)
            for key, stored in zip(read.keys, found, strict=True)
        ]

    def count(self, read: Read) -> int:
        """About how many entries there are here."""
        count: int = self._reader(read).answer(read)
        return count

    def page(self, read: Read, *, most_bytes: int, check: Callable[[], None]) -> tuple[Page, frozenset[int]]:
        """A page of what is here, and the partitions that it is of.

        Raises:
            StreamsRebalancingException: a partition came or went while it was read.
        """
        before = self.parts(read.store, stale=read.stale)
        with _history(read), closing(self._remaining(read)) as rows:
            page = page_of(
                rows,
                place_of(read.kind),
                None if read.after is None else Place(read.after),
                reverse=read.reverse,
                limit=read.limit or 1,
                most_bytes=most_bytes,
                check=check,
            )
        if self.parts(read.store, stale=read.stale) != before:
            raise StreamsRebalancingException(
                f"partitions of store '{read.store}' came or went while it was read; retry", store=read.store
            )
        here = frozenset(before)
        return page, here if read.partition is None else here & {read.partition}

    def _reader(self, read: Read) -> LocalReader:
        of = Read(read.store, read.kind, partition=read.partition, stale=read.stale)
        reader = LocalReader(self._view, of, asked_as=_ASKED_AS[read.kind])
        reader.check()
        return reader if read.as_of is None else reader.as_of(read.as_of)

    def _remaining(self, read: Read) -> Generator[Row]:
        """The rows from the place on where the page begins, and perhaps some before it."""
        reader, row = self._reader(read), self._rows_of(read)
        for part in remaining(read):
            entries = reader.answer(part)
            try:
                for local, stored in entries:
                    yield row(local if isinstance(local, tuple) else (local,), stored)
            except ClosedStoreError as error:
                raise reader.lost(error) from error
            finally:
                entries.close()

    def _rows_of(self, read: Read) -> Callable[[Sequence[Any], bytes], Row]:
        """What makes rows of what a store has, by its keys: alone, with a start, with start and end."""
        if read.kind is StoreKind.SESSION:
            return lambda at, stored: Row(at[0], value_of(stored), None, at[1], at[2])
        if read.kind is StoreKind.KEY_VALUE:
            return lambda at, stored: Row(at[0], value_of(stored), timestamp_of(stored))
        size = self.snapshot().stores[read.store].window_size_ms

        def window(at: Sequence[Any], stored: bytes) -> Row:
            end = None if size is None else min(at[1] + size, MAX_TIME_MS)
            return Row(at[0], value_of(stored), timestamp_of(stored), at[1], end)

        return window


_ASKED_AS = {
    StoreKind.KEY_VALUE: repr(QueryableStoreTypes.timestamped_key_value_store()),
    StoreKind.WINDOW: repr(QueryableStoreTypes.timestamped_window_store()),
    StoreKind.SESSION: repr(QueryableStoreTypes.session_store()),
}


@contextmanager
def _history(read: Read) -> Iterator[None]:
    """Has a time that is before a store's history be the request's mistake."""
    try:
        yield
    except ValueError as error:
        if read.as_of is None:
            raise
        raise Refused(400, BEFORE_HISTORY, str(error)) from error


def serde_names(store: StoreDeclaration) -> tuple[str | None, str | None]:
    """How the serdes of a store are called; None: it is not known yet."""

    def name(serde: Serde | None) -> str | None:
        return None if serde is None else serde.name

    return name(store.key_serde), name(store.value_serde)
