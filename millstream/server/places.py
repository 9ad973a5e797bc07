"""Who has what: the partitions that are on this client, and the other clients that have the rest.

It asks the client's snapshot and the group's last agreement, and nobody over the network.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from millstream.dsl.serdes import Serdes
from millstream.errors import StreamsRebalancingException
from millstream.query.metadata import HostInfo, KeyQueryMetadata
from millstream.query.provider import Presence, StoreDeclaration
from millstream.server.reads import LocalStores, QueriedStreams

__all__ = ["Places", "covers", "moved", "out_of_reach"]


class Places:
    """Where the parts of stores are.

    Args:
        own: this client's `application.server`, so that it does not ask itself.
    """

    def __init__(self, streams: QueriedStreams, stores: LocalStores, own: HostInfo | None) -> None:
        self._streams = streams
        self._stores = stores
        self._own = own

    def is_here(self, store: str, partition: int, *, stale: bool) -> bool:
        """Whether a partition is here, if only as one that is still being restored."""
        presence = self._stores.presences(store, stale=stale).get(partition, Presence.ABSENT)
        return presence not in (Presence.ABSENT, Presence.STANDBY)

    def is_whole(self, store: StoreDeclaration, *, stale: bool) -> bool:
        """Whether all of a store is here, so that nobody else has to be asked."""
        return covers(self._stores.readable(store.name, stale=stale), store)

    def check_whole(self, store: StoreDeclaration, covered: AbstractSet[int]) -> None:
        """Hold that an answer is of all of a store.

        Raises:
            StreamsRebalancingException: it is not.
        """
        if store.partitions is None or covered >= set(range(store.partitions)):
            return
        missing = ", ".join(str(each) for each in sorted(set(range(store.partitions)) - covered))
        raise StreamsRebalancingException(
            f"partitions {missing} of store '{store.name}' cannot be read now: no client that can be asked "
            "has them; retry. Where clients have no application.server, local=true reads what is here",
            store=store.name,
        )

    def metadata(self, store: str, key: bytes) -> KeyQueryMetadata:
        """Who has a key, as the group has agreed."""
        return self._streams.query_metadata_for_key(store, key, Serdes.bytes())

    def hosts(self, store: str, key: bytes, *, stale: bool) -> tuple[HostInfo, ...]:
        """Other clients that have a key, the active one first."""
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
    """Whether these are all partitions that other clients could have."""
    return store.is_global or (store.partitions is not None and partitions >= set(range(store.partitions)))


def moved(store: str) -> StreamsRebalancingException:
    """Partitions came, went or changed hands, so the parts of an answer do not fit together."""
    return StreamsRebalancingException(
        f"store '{store}': partitions moved while the clients were asked; retry", store=store
    )


def out_of_reach(store: str) -> StreamsRebalancingException:
    """The client that should have it cannot be asked, and no other is known to have it."""
    return StreamsRebalancingException(
        f"the client that has this part of store '{store}' does not answer, or has just let go of it; "
        "retry: if it is gone, another client takes its part over",
        store=store,
    )
