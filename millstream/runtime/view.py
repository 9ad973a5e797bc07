"""What queries see of a client: one immutable snapshot, replaced whenever anything in it changes.

A reader takes the attribute and decides by it; it never waits. Every change (a state, a store that opens,
restores or closes) is published as a new snapshot before any thread that waits for it wakes up. So a query
never sees anything older than a state that its caller has seen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from millstream.coroutines import Changes, Until
from millstream.model import StoreKind, TaskId, TopicPartition
from millstream.ports import BytesStore
from millstream.query.metadata import default_partitioner
from millstream.query.provider import LocalStore, PartRole, StoreDeclaration, StoreSnapshot
from millstream.registry.registry_settings import RegistrySettings
from millstream.runtime.state.assignment import StorePart
from millstream.runtime.threads.standby_updates import StandbyUpdates
from millstream.serdes.registered import bound
from millstream.serdes.serde import Serde, SerdePair
from millstream.states import GlobalThreadState, State, ThreadState
from millstream.topology.names import changelog_topic
from millstream.topology.nodes import Store

__all__ = ["ClientView"]


class ClientView:
    """The client's stores, as a `query.provider.StoreView`.

    Args:
        states: returns the client's state, and its threads' states by name.
        global_stores: the names of the stores that every client has completely.
        registry: the schema registry of the configuration, or None.
    """

    def __init__(
        self,
        client_id: str,
        stores: Sequence[Store],
        states: Callable[[], tuple[State, Mapping[str, ThreadState | GlobalThreadState]]],
        global_stores: Collection[str] = (),
        registry: RegistrySettings | None = None,
    ) -> None:
        self._client_id = client_id
        self._global = frozenset(global_stores)
        self._states = states
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._changes = Changes()
        self._declared = {store.name: store for store in stores}
        self._registry = registry
        self._serdes: dict[str, SerdePair] = {
            store.name: self._bound(store.name, store.key_serde, store.value_serde) for store in stores
        }
        self._partitions: dict[str, int] = {}
        self._open: dict[TopicPartition, tuple[str, StorePart, BytesStore]] = {}
        self._restored: set[TopicPartition] = set()
        self._warm: set[TopicPartition] = set()
        self._snapshot = self._built()
        self.standbys: StandbyUpdates | None = None
        """Calls the listener of standbys, if there is one. Set before the first store is opened."""

    def snapshot(self) -> StoreSnapshot:
        """The current snapshot: the same object until something changes."""
        return self._snapshot

    def wait_until(self, fits: Callable[[StoreSnapshot], bool], timeout_s: float) -> bool:
        """Wait until a snapshot fits; False at the deadline. `fits` is called with the lock held."""
        with self._lock:
            return self._changed.wait_for(lambda: fits(self._snapshot), timeout_s)

    def until(self, fits: Callable[[StoreSnapshot], bool], timeout_s: float) -> Until:
        """For waiting until a snapshot fits, on a thread or in a coroutine."""
        return Until(
            lambda: fits(self._snapshot), timeout_s, lambda: self.wait_until(fits, timeout_s), self._changes
        )

    def refresh(self) -> None:
        """Publish again, because a state has changed."""
        with self._lock:
            self._publish()

    def partitions_known(self, partitions: Mapping[str, int]) -> None:
        """Set the number of partitions of each store."""
        with self._lock:
            self._partitions.update(partitions)
            self._publish()

    def compiled(self, serdes: Mapping[str, SerdePair]) -> None:
        """Set the serdes of stores, once the pipelines are compiled."""
        with self._lock:
            self._serdes.update(serdes)
            self._publish()

    def serdes_known(self, serdes: Mapping[str, SerdePair]) -> None:
        """Set serdes determined by another client's pipelines, for stores whose serdes are unknown here."""
        with self._lock:
            for store, given in serdes.items():
                key, value = self._bound(store, *given)
                known_key, known_value = self._serdes.get(store, (None, None))
                self._serdes[store] = (known_key or key, known_value or value)
            self._publish()

    def _bound(self, store: str, key: Serde | None, value: Serde | None) -> SerdePair:
        """The bound serdes of a store that this client has not compiled."""
        topic = changelog_topic(self._registry.application, store) if self._registry is not None else None
        return bound(key, self._registry, topic, is_key=True), bound(value, self._registry, topic)

    def opened(self, thread: str, part: StorePart, store: BytesStore) -> None:
        """A store was opened: as a standby, or as active and restoring."""
        with self._lock:
            self._open[part.changelog] = (thread, part, store)
            self._restored.discard(part.changelog)
            self._warm.discard(part.changelog)
            self._publish()

    def role_changed(self, part: StorePart) -> None:
        """A standby is now active, and restoring until `restored`; or an active store is now a standby."""
        with self._lock:
            thread, _, store = self._open[part.changelog]
            self._open[part.changelog] = (thread, part, store)
            self._restored.discard(part.changelog)
            self._warm.discard(part.changelog)
            self._publish()
        if self.standbys is not None:
            self.standbys.role_changed(part)

    def restored(self, changelog: TopicPartition) -> None:
        """A store is up to date."""
        with self._lock:
            self._restored.add(changelog)
            self._publish()

    def caught_up(self, changelog: TopicPartition) -> None:
        """A standby is up to date, which does not affect queries."""
        with self._lock:
            self._warm.add(changelog)

    def restoring(self, changelog: TopicPartition) -> None:
        """A store that was up to date is being restored again."""
        with self._lock:
            self._restored.discard(changelog)
            self._warm.discard(changelog)
            self._publish()

    def closing(self, changelog: TopicPartition) -> None:
        """A store is about to be closed."""
        with self._lock:
            self._open.pop(changelog, None)
            self._restored.discard(changelog)
            self._warm.discard(changelog)
            self._publish()
        if self.standbys is not None:  # it no longer counts as a standby, so it cannot start again
            self.standbys.closing(changelog)

    def is_standby(self, changelog: TopicPartition) -> bool:
        """Whether a changelog's store is open here as a standby."""
        with self._lock:
            opened = self._open.get(changelog)
            return opened is not None and opened[1].standby

    def up_to_date(self) -> frozenset[TopicPartition]:
        """The changelogs whose stores here have been up to date at some time in their current role."""
        with self._lock:
            return frozenset(self._restored | self._warm)

    def open_stores(self) -> tuple[BytesStore, ...]:
        """The stores that are open here."""
        with self._lock:
            return tuple(store for _, _, store in self._open.values())

    def places(self) -> dict[tuple[TaskId, str], tuple[str, StoreKind]]:
        """The thread and the kind of each store that is open here, by its task and name."""
        with self._lock:
            return {
                (part.task_id, part.store.name): (thread, part.store.kind)
                for thread, part, _ in self._open.values()
            }

    def parts(self) -> tuple[StorePart, ...]:
        """The parts of stores that are open here."""
        with self._lock:
            return tuple(part for _, part, _ in self._open.values())

    def _publish(self) -> None:
        self._snapshot = self._built()
        self._changed.notify_all()
        self._changes.notify()

    def _built(self) -> StoreSnapshot:
        state, threads = self._states()
        local: dict[str, list[LocalStore]] = {}
        for changelog, (thread, part, store) in sorted(self._open.items(), key=lambda item: item[0]):
            role = PartRole.ACTIVE if changelog in self._restored else PartRole.RESTORING
            if part.standby:
                role = PartRole.STANDBY
            here = LocalStore(part.task_id, store, thread, role, changelog)
            local.setdefault(part.store.name, []).append(here)
        return StoreSnapshot(
            client_id=self._client_id,
            client_state=state,
            threads=threads,
            stores={name: self._declaration(store) for name, store in self._declared.items()},
            local=local,
        )

    def _declaration(self, store: Store) -> StoreDeclaration:
        key_serde, value_serde = self._serdes[store.name]
        count = self._partitions.get(store.name)
        # Our own changelogs are partitioned by Kafka's rule; a table's source topic by its writers.
        own = store.source_topic is None
        return StoreDeclaration(
            name=store.name,
            key_serde=key_serde,
            value_serde=value_serde,
            partition_of=default_partitioner(count) if own and count is not None else None,
            partitions=count,
            kind=store.kind,
            window_size_ms=store.window_size_ms,
            retention_ms=store.retention_ms,
            history_ms=store.history_ms,
            is_global=store.name in self._global,
        )
