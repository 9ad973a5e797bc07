"""What this client has, and who has the rest.

Its stores are read in bytes, in the same way as by the handles of `KafkaStreams.store()`, but without
decoding. So every exception of KIP-216 comes from the one place that decides about them. Reading blocks, so
the event loop never does it. `Places` uses the client's snapshot and the group's last assignment, and does
not use the network.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any, Protocol

from millstream.errors import InvalidStateStoreTypeException, StreamsRebalancingException
from millstream.metrics.client_metrics import ClientMetrics
from millstream.model import LagInfo, StoreKind, ThreadMetadata
from millstream.query.local import LocalReader
from millstream.query.metadata import HostInfo, KeyQueryMetadata, StreamsMetadata
from millstream.query.provider import Presence, StoreDeclaration, StoreSnapshot, StoreView, parts_by_partition
from millstream.query.read import Read, remaining
from millstream.remote.answers import BEFORE_HISTORY, Refused
from millstream.remote.pages import Page, PageStart, Row, page_of, place_of
from millstream.remote.routes import about_store
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import Serdes
from millstream.stores.keys import MAX_TIME_MS
from millstream.stores.store_base import ClosedStoreError, timestamp_of, value_of
from millstream.topology.topology import Topology

__all__ = ["LocalStores", "Places", "QueriedStreams", "covers", "moved", "out_of_reach", "serde_names"]


class QueriedStreams(Protocol):
    """The query server's view of a `KafkaStreams`."""

    @property
    def client_id(self) -> str: ...

    @property
    def application_id(self) -> str: ...

    @property
    def health(self) -> Any: ...

    @property
    def store_view(self) -> StoreView: ...

    @property
    def state(self) -> Any: ...

    @property
    def topology(self) -> Topology: ...

    def metrics(self) -> ClientMetrics: ...

    def all_local_store_partition_lags(self) -> Mapping[str, Mapping[int, LagInfo]]: ...

    @property
    def failures(self) -> Sequence[Any]: ...

    @property
    def is_paused(self) -> bool: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self, timeout: timedelta | None = None) -> bool: ...

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
        self.view = self._view = view

    # --- what there is -----------------------------------------------------------------------------------

    def snapshot(self) -> StoreSnapshot:
        """The snapshot that queries use, with the stores' own serdes."""
        return self._view.snapshot()

    def declaration(self, store: str, kind: StoreKind | None) -> StoreDeclaration:
        """The declaration of a store, with known serdes.

        Raises:
            InvalidStateStoreException: one of its leaves. The store cannot be read at all now, or is of
                another kind.
        """
        snapshot = self.snapshot()
        found = snapshot.stores.get(store)
        wanted = kind or (found.kind if found is not None else StoreKind.KEY_VALUE)
        fits = found is not None and found.kind is wanted
        if not fits or found is None or found.key_serde is None or found.value_serde is None:
            raise self._reason(store, wanted)
        if not snapshot.client_state.is_running_or_rebalancing:
            raise self._reason(store, wanted)
        return found

    def _reason(self, store: str, kind: StoreKind) -> Exception:
        try:
            self._reader(Read(store, kind))
        except InvalidStateStoreTypeException as error:
            return _of_another_kind(self.snapshot().stores[store], error)
        except Exception as error:  # the matching leaf
            return error
        # It has become readable in the meantime.
        return StreamsRebalancingException(f"store '{store}' was not ready a moment ago; retry", store=store)

    def presences(self, store: str, *, stale: bool) -> dict[int, Presence]:
        """The reads that each local partition allows."""
        found = parts_by_partition(self.snapshot(), store, stale=stale)
        return {partition: presence for partition, (presence, _) in found.items()}

    def parts(self, store: str, *, stale: bool) -> dict[int, Any]:
        """The readable local parts, by partition. A part that has left and come back is another part."""
        found = parts_by_partition(self.snapshot(), store, stale=stale)
        return {
            number: part.store for number, (presence, part) in found.items() if presence is Presence.READABLE
        }

    def readable(self, store: str, *, stale: bool) -> frozenset[int]:
        """The partitions that can be read here."""
        return frozenset(self.parts(store, stale=stale))

    # --- reading -----------------------------------------------------------------------------------------

    def row(self, read: Read) -> Row | None:
        """The local entry of one key, or of one of its windows; None: there is none."""
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
        """The approximate number of local entries."""
        count: int = self._reader(read).answer(read)
        return count

    def page(self, read: Read, *, most_bytes: int, check: Callable[[], None]) -> tuple[Page, frozenset[int]]:
        """A page of the local entries, and its partitions.

        Raises:
            StreamsRebalancingException: a partition was added or removed during the read.
        """
        before = self.parts(read.store, stale=read.stale)
        with _history(read), closing(self._remaining(read)) as rows:
            page = page_of(
                rows,
                place_of(read.kind),
                None if read.after is None else PageStart(read.after),
                reverse=read.reverse,
                limit=read.limit or 1,
                most_bytes=most_bytes,
                check=check,
            )
        if self.parts(read.store, stale=read.stale) != before:
            raise StreamsRebalancingException(
                f"partitions of store '{read.store}' moved while it was read; retry", store=read.store
            )
        here = frozenset(before)
        return page, here if read.partition is None else here & {read.partition}

    def _reader(self, read: Read) -> LocalReader:
        of = Read(read.store, read.kind, partition=read.partition, stale=read.stale)
        reader = LocalReader(self._view, of)
        reader.check()
        return reader if read.as_of is None else reader.as_of(read.as_of)

    def _remaining(self, read: Read) -> Generator[Row]:
        """The rows from the start of the page, and perhaps some before it."""
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
        """The function that turns a store's entries into rows. It depends on whether the store's keys are
        bare, or have a start, or a start and an end."""
        if read.kind is StoreKind.SESSION:
            return lambda at, stored: Row(at[0], value_of(stored), None, at[1], at[2])
        if read.kind is StoreKind.KEY_VALUE:
            return lambda at, stored: Row(at[0], value_of(stored), timestamp_of(stored))
        size = self.snapshot().stores[read.store].window_size_ms

        def window(at: Sequence[Any], stored: bytes) -> Row:
            end = None if size is None else min(at[1] + size, MAX_TIME_MS)
            return Row(at[0], value_of(stored), timestamp_of(stored), at[1], end)

        return window


_READ_AT = {
    StoreKind.KEY_VALUE: ("keys/{key}", "entries"),
    StoreKind.WINDOW: ("windows/{key}", "windows"),
    StoreKind.SESSION: ("sessions/{key}", "sessions"),
}


def _of_another_kind(
    store: StoreDeclaration, error: InvalidStateStoreTypeException
) -> InvalidStateStoreTypeException:
    """The same exception for HTTP: it names the paths that read the store."""
    path = about_store(store.name)
    return InvalidStateStoreTypeException(
        f"store '{store.name}' is a {store.kind.value} store",
        store=store.name,
        client_state=error.client_state,
        next_step="read it at " + " or ".join(f"{path}/{end}" for end in _READ_AT[store.kind]),
    )


@contextmanager
def _history(read: Read) -> Iterator[None]:
    """Turns the error for a time before a store's history into a refused request."""
    try:
        yield
    except ValueError as error:
        if read.as_of is None:
            raise
        raise Refused(400, BEFORE_HISTORY, str(error)) from error


def serde_names(store: StoreDeclaration) -> tuple[str | None, str | None]:
    """The names of a store's serdes; None: not known yet."""

    def name(serde: Serde | None) -> str | None:
        return None if serde is None else serde.name

    return name(store.key_serde), name(store.value_serde)


class Places:
    """Where the parts of stores are.

    Args:
        own: this client's `application.server`, so that it does not query itself.
    """

    def __init__(self, streams: QueriedStreams, stores: LocalStores, own: HostInfo | None) -> None:
        self._streams = streams
        self._stores = stores
        self._own = own

    def is_here(self, store: str, partition: int, *, stale: bool) -> bool:
        """Whether a partition is here, even if it is still being restored."""
        presence = self._stores.presences(store, stale=stale).get(partition, Presence.ABSENT)
        return presence not in (Presence.ABSENT, Presence.STANDBY)

    def is_whole(self, store: StoreDeclaration, *, stale: bool) -> bool:
        """Whether the whole store is here, so that no other client has to be queried."""
        return covers(self._stores.readable(store.name, stale=stale), store)

    def check_whole(self, store: StoreDeclaration, covered: AbstractSet[int]) -> None:
        """Check that an answer covers the whole store.

        Raises:
            StreamsRebalancingException: it does not.
        """
        if store.partitions is None or covered >= set(range(store.partitions)):
            return
        missing = ", ".join(str(each) for each in sorted(set(range(store.partitions)) - covered))
        raise StreamsRebalancingException(
            f"partitions {missing} of store '{store.name}' cannot be read now: no client that can be queried "
            "has them; retry. If clients have no application.server, local=true reads what is here",
            store=store.name,
        )

    def metadata(self, store: str, key: bytes) -> KeyQueryMetadata:
        """The owner of a key, by the group's assignment."""
        return self._streams.query_metadata_for_key(store, key, Serdes.bytes())

    def hosts(self, store: str, key: bytes, *, stale: bool) -> tuple[HostInfo, ...]:
        """Other clients that have a key; the one with the active task is first."""
        found = self.metadata(store, key)
        hosts = [found.active_host, *(sorted(found.standby_hosts) if stale else ())]
        return tuple(host for host in hosts if host.is_available and host != self._own)

    def all_hosts(self, store: str, *, stale: bool = False) -> tuple[HostInfo, ...]:
        """Other clients that have a part of a store."""
        return tuple(
            client.host_info
            for client in self._streams.streams_metadata_for_store(store)
            if client.host_info.is_available
            and client.host_info != self._own
            and (store in client.state_store_names or (stale and store in client.standby_state_store_names))
        )


def covers(partitions: frozenset[int], store: StoreDeclaration) -> bool:
    """Whether these partitions include everything that other clients could have of a store."""
    return store.is_global or (store.partitions is not None and partitions >= set(range(store.partitions)))


def moved(store: str) -> StreamsRebalancingException:
    """Partitions were added, removed or moved, so the parts of an answer do not fit together."""
    return StreamsRebalancingException(
        f"store '{store}': partitions moved while the clients were queried; retry", store=store
    )


def out_of_reach(store: str) -> StreamsRebalancingException:
    """The client that should have the data cannot be queried, and no other client is known to have it."""
    return StreamsRebalancingException(
        f"the client that has this part of store '{store}' does not answer, or has just given it up; "
        "retry: if the client is gone, another one takes over its part",
        store=store,
    )
