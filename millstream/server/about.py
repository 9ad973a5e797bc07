"""What there is: the client's health, its stores, the application's clients, and who has a key."""

from __future__ import annotations

from typing import Any

from millstream.errors import SetupException
from millstream.metrics import prometheus
from millstream.query.provider import StoreDeclaration
from millstream.server.answers import Answer, Refused
from millstream.server.asked import key_of
from millstream.server.reach import Reach
from millstream.server.reads import QueriedStreams, serde_names
from millstream.server.routes import Request

__all__ = ["About"]


class About:
    """Tells of this client and its application, and of no entry of a store. It blocks."""

    def __init__(self, streams: QueriedStreams, reach: Reach) -> None:
        self._streams = streams
        self._reach = reach

    def health(self, asked: str) -> Answer:
        """`live`, `ready`, or all that is known of the client's health."""
        health = self._streams.health
        good = health.live if asked == "live" else health.ready
        body = health.as_dict() if asked == "health" else {asked: good, "status": health.status}
        return Answer(200 if good else 503, body)

    def metrics(self) -> Answer:
        """All metrics, as Prometheus reads them."""
        try:
            written = prometheus.text(self._streams.metrics())
        except SetupException as error:
            raise Refused(501, "NotImplemented", str(error)) from None
        return Answer(200, headers={"content-type": prometheus.CONTENT_TYPE}, raw=written.encode())

    def all_stores(self) -> Answer:
        """Every store of the program."""
        snapshot = self._reach.stores.snapshot()
        stores = [self._described(store) for _, store in sorted(snapshot.stores.items())]
        return Answer(
            200, {"client": snapshot.client_id, "client_state": snapshot.client_state, "stores": stores}
        )

    def one_store(self, name: str) -> Answer:
        """One store, whatever can be read of it now."""
        stores = self._reach.stores
        # declaration() says what is wrong with a name that is no store's.
        store = stores.snapshot().stores.get(name) or stores.declaration(name, None)
        return Answer(200, self._described(store))

    def _described(self, store: StoreDeclaration) -> dict[str, Any]:
        key_serde, value_serde = serde_names(store)
        presences = self._reach.stores.presences(store.name, stale=False)
        return {
            "store": store.name,
            "kind": store.kind.value,
            "key_serde": key_serde,
            "value_serde": value_serde,
            "partitions": store.partitions,
            "here": {str(number): presence.name.lower() for number, presence in presences.items()},
            "window_size_ms": store.window_size_ms,
            "retention_ms": store.retention_ms,
            "history_ms": store.history_ms,
        }

    def clients(self) -> Answer:
        """Every client of the application, and what it has."""
        clients = [
            {
                "host": str(client.host_info),
                "stores": sorted(client.state_store_names),
                "partitions": sorted(map(str, client.topic_partitions)),
                "standby_stores": sorted(client.standby_state_store_names),
                "standby_partitions": sorted(map(str, client.standby_topic_partitions)),
            }
            for client in self._streams.metadata_for_all_streams_clients()
        ]
        return Answer(200, {"clients": clients})

    def owner(self, request: Request) -> Answer:
        """Who has a key."""
        store = self._reach.stores.declaration(request.store, None)
        key = key_of(store, request)
        found = self._reach.places.metadata(request.store, key)
        partition = found.partition
        if partition < 0 and store.partition_of is not None:
            partition = store.partition_of(key)  # nothing is agreed, which does not change where it belongs
        return Answer(
            200,
            {
                "store": request.store,
                "partition": None if partition < 0 else partition,
                "active": str(found.active_host) if found.active_host.is_available else None,
                "standbys": sorted(map(str, found.standby_hosts)),
            },
        )
