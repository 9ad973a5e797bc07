"""An application of several clients as its query servers see it: real stores, a group that is told.

Store `counts` is string to long, `prices` is the same with history, `windows` and `sessions` are their
windowed kin, `users` is global, `table` is a topic that others write. What is put goes to the client that has
the partition.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.dsl.builder import StreamsBuilder
from millstream.metrics.client_metrics import ClientMetrics
from millstream.model import StoreKind, TaskId, TopicPartition
from millstream.query.metadata import (
    HostInfo,
    KeyQueryMetadata,
    Placement,
    StorePartition,
    StreamsMetadata,
    all_clients,
    clients_of_store,
    default_partition,
    host_of_key,
)
from millstream.query.provider import LocalStore, PartRole, StoreDeclaration, StoreSnapshot
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import Serdes
from millstream.server.application import QueryApplication
from millstream.states import State, ThreadState
from millstream.stores.memory_store import MemoryStore
from millstream.stores.segments import SegmentedSessionStore, SegmentedWindowStore
from millstream.stores.versioned import VersionedStore
from millstream.topology.topology import Topology

PARTITIONS = 4
SIZE_MS = 1_000
HOUR_MS = 3_600_000

STORES = ("counts", "prices", "windows", "sessions", "table")
"""The stores that are shared out; `users` is everywhere."""


def partition_of(key: bytes) -> int:
    return default_partition(key, PARTITIONS)


def key_in(partition: int, number: int = 0) -> str:
    """A key of a partition of a store that is ours."""
    found = [key for key in (f"key-{i}" for i in range(200)) if partition_of(key.encode()) == partition]
    return found[number]


def declarations(
    key_serde: Serde | None = None, value_serde: Serde | None = None
) -> dict[str, StoreDeclaration]:
    key, value = key_serde or Serdes.string(), value_serde or Serdes.long()

    def declared(name: str, kind: StoreKind = StoreKind.KEY_VALUE, **more: Any) -> StoreDeclaration:
        return StoreDeclaration(name, key, value, partition_of, PARTITIONS, kind, **more)

    stores = [
        declared("counts"),
        declared("prices", history_ms=HOUR_MS),
        declared("windows", StoreKind.WINDOW, window_size_ms=SIZE_MS, retention_ms=HOUR_MS),
        declared("sessions", StoreKind.SESSION, retention_ms=HOUR_MS),
        replace(declared("table"), partition_of=None),
        replace(declared("users"), partition_of=None, is_global=True),
    ]
    return {store.name: store for store in stores}


def opened(store: StoreDeclaration, partition: int) -> Any:
    inner = MemoryStore(store.name, TaskId(1, partition))
    if store.kind is StoreKind.WINDOW:
        return SegmentedWindowStore(inner, HOUR_MS)
    if store.kind is StoreKind.SESSION:
        return SegmentedSessionStore(inner, HOUR_MS)
    if store.history_ms is not None:
        return VersionedStore(inner, store.history_ms)
    return inner


@dataclass
class FakeHealth:
    """As runtime/health.py: Health."""

    live: bool = True
    ready: bool = True
    status: str = "running"

    def as_dict(self) -> dict[str, Any]:
        return {"live": self.live, "ready": self.ready, "status": self.status, "reason": "all is well"}


APPLICATION = "orders"


class FakeStreams:
    """One client of the application; what the query server sees of a KafkaStreams."""

    def __init__(self, name: str, partitions: Iterable[int], stores: Mapping[str, StoreDeclaration]) -> None:
        self.client_id = name
        self.application_id = APPLICATION
        self.health = FakeHealth()
        self.placement: Placement | None = None
        self.active = tuple(partitions)
        self.stores: dict[tuple[str, int], Any] = {
            (store, partition): opened(stores[store], partition)
            for store in STORES
            for partition in self.active
        }
        self.stores["users", 0] = opened(stores["users"], 0)
        self.roles: dict[tuple[str, int], PartRole] = {}
        self._snapshot = StoreSnapshot(name, State.RUNNING, {"t": ThreadState.RUNNING}, stores, {})
        self.publish()

    @property
    def topology(self) -> Topology:
        builder = StreamsBuilder()
        builder.stream("lines").group_by_key().count().to_stream().to("out")
        return builder.build()

    @property
    def store_view(self) -> FakeStreams:
        return self

    def snapshot(self) -> StoreSnapshot:
        return self._snapshot

    def publish(self, **changes: Any) -> None:
        """Change the snapshot; states by their names."""
        if "client_state" in changes:
            changes["client_state"] = State[changes["client_state"]]
        if "threads" in changes:
            changes["threads"] = {name: ThreadState[state] for name, state in changes["threads"].items()}
        local: dict[str, list[LocalStore]] = {}
        for (name, partition), store in sorted(self.stores.items()):
            role = self.roles.get((name, partition), PartRole.ACTIVE)
            local.setdefault(name, []).append(LocalStore(TaskId(1, partition), store, "t", role))
        self._snapshot = replace(self._snapshot, local=local, **changes)

    def metrics(self) -> ClientMetrics:
        return ClientMetrics({}, self.client_id)

    def query_metadata_for_key(
        self, store: str, key: Any, serializer_or_partitioner: Any = None
    ) -> KeyQueryMetadata:
        return host_of_key(self._snapshot, self.placement, store, key, serializer_or_partitioner)

    def streams_metadata_for_store(self, store: str) -> tuple[StreamsMetadata, ...]:
        return clients_of_store(self._snapshot, self.placement, store)

    def metadata_for_all_streams_clients(self) -> tuple[StreamsMetadata, ...]:
        return all_clients(self._snapshot, self.placement)


@dataclass
class Application:
    """Clients, each with its partitions, and what has been put."""

    clients: list[FakeStreams]
    put_keys: dict[str, int] = field(default_factory=dict)

    def owner(self, partition: int) -> FakeStreams:
        return next(client for client in self.clients if partition in client.active)

    def put(self, key: str, value: int, *, timestamp: int = 5) -> None:
        """Into `counts`."""
        self.put_bytes("counts", key.encode(), value.to_bytes(8, "big"), timestamp)
        self.put_keys[key] = value

    def clear(self, key: str) -> None:
        """A tombstone, into `counts`."""
        data = key.encode()
        self._apply(self.owner(partition_of(data)).stores["counts", partition_of(data)], data, None, 5)

    def put_bytes(self, store: str, key: bytes, value: bytes, timestamp: int = 5) -> None:
        partition = partition_of(key)
        self._apply(self.owner(partition).stores[store, partition], key, value, timestamp)

    def put_window(self, key: str, start: int, value: int) -> None:
        data = key.encode()
        partition = partition_of(data)
        local = data + start.to_bytes(8, "big") + bytes(4)
        self._apply(
            self.owner(partition).stores["windows", partition], local, value.to_bytes(8, "big"), start
        )

    def put_session(self, key: str, start: int, end: int, value: int) -> None:
        data = key.encode()
        partition = partition_of(data)
        local = data + end.to_bytes(8, "big") + start.to_bytes(8, "big")
        self._apply(self.owner(partition).stores["sessions", partition], local, value.to_bytes(8, "big"), end)

    def put_at(self, client: int, store: str, partition: int, key: str, value: int) -> None:
        """Into a partition that says nothing about the key."""
        self._apply(self.clients[client].stores[store, partition], key.encode(), value.to_bytes(8, "big"), 5)

    def _apply(self, store: Any, key: bytes, value: bytes | None, timestamp: int) -> None:
        store.apply([(key, value, timestamp)], (store.position or 0) + 1)

    def agree(
        self, hosts: Mapping[int, HostInfo], standbys: Mapping[int, Iterable[int]] | None = None
    ) -> None:
        """The group tells every client who has what; `hosts` by the number of the client."""
        places = tuple(
            StorePartition(store, TaskId(1, partition), TopicPartition(f"{store}-changelog", partition))
            for store in STORES
            for partition in range(PARTITIONS)
        )
        tasks = {
            host: (
                frozenset(TaskId(1, partition) for partition in self.clients[number].active),
                frozenset(TaskId(1, partition) for partition in (standbys or {}).get(number, ())),
            )
            for number, host in hosts.items()
        }
        for number, client in enumerate(self.clients):
            local = hosts.get(number, HostInfo.unavailable())
            client.placement = Placement(places, tasks, local, {"users": frozenset()})


def application(*partitions: Iterable[int], **serdes: Serde) -> Application:
    """Clients with these partitions, `c0`, `c1`, …; one with all of them, if nothing is said."""
    stores = declarations(**serdes)
    shares = partitions or (range(PARTITIONS),)
    return Application([FakeStreams(f"c{number}", each, stores) for number, each in enumerate(shares)])


def filled() -> Application:
    """A client whose `counts` has 25 keys; `a` and `b` have five windows and five sessions each."""
    world = application()
    for number in range(25):
        world.put(f"key-{number}", number, timestamp=100 + number)
    for number in range(5):
        for key in ("a", "b"):
            world.put_window(key, number * 1000, number)
            world.put_session(key, number * 1000, number * 1000 + 500, number)
    return world


class SlowStore(MemoryStore):
    """Waits in each read until it is let go."""

    def __init__(self) -> None:
        super().__init__("counts", TaskId(1, 0))
        self.go = threading.Event()
        self.reads = 0

    def get(self, key: bytes) -> bytes | None:
        self.reads += 1
        self.go.wait(30)
        return super().get(key)


def with_slow_store() -> tuple[FakeStreams, SlowStore]:
    client, store = application().clients[0], SlowStore()
    client.stores.update({("counts", number): store for number in range(PARTITIONS)})
    client.publish()
    return client, store


# --- asking an application in this process -----------------------------------------------------------------


@dataclass
class Answered:
    """An answer that came."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


Messages = list[dict[str, Any]]


async def call(
    app: QueryApplication,
    method: str,
    target: bytes,
    headers: Iterable[tuple[bytes, bytes]] = (),
    body: Messages | None = None,
    receive: Callable[[], Any] | None = None,
    root_path: str = "",
) -> Answered:
    """One request, as an ASGI server would hand it over. What is posted is JSON, unless headers say else."""
    given = list(headers)
    if method == "POST" and b"content-type" not in dict(given):
        given.append((b"content-type", b"application/json"))
    path, _, query = target.partition(b"?")
    messages = iter(body or [{"type": "http.request", "body": b"", "more_body": False}])

    async def next_message() -> Any:
        return next(messages, {"type": "http.disconnect"})

    sent: Messages = []

    async def send(message: Any) -> None:
        sent.append(dict(message))

    scope = {
        "type": "http",
        "method": method,
        "path": "unused",
        "raw_path": path,
        "query_string": query,
        "root_path": root_path,
        "headers": given,
    }
    await app(scope, receive or next_message, send)
    start, *rest = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answered(start["status"], found, b"".join(part.get("body", b"") for part in rest))


def ask(app: QueryApplication, target: str, *, token: str | None = None, **given: Any) -> Answered:
    """GET, or with `body=` POST, in an event loop of its own."""
    headers = list(given.get("headers", []))
    if token is not None:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    body = given.get("body")
    messages = None
    if body is not None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        messages = [{"type": "http.request", "body": data, "more_body": False}]
    method = given.get("method", "GET" if body is None else "POST")
    return asyncio.run(call(app, method, target.encode(), headers, messages))
