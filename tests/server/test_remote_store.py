"""RemoteStore: what it reads is what a local read gives, and what it raises is what that raises."""

from __future__ import annotations

import asyncio
import inspect
import math
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from server_world import PARTITIONS, Application, application, partition_of
from waiting import wait_until

from millstream.errors import (
    ConfigException,
    IllegalStateException,
    InvalidStateStoreTypeException,
    SerializationException,
    StateStoreNotAvailableException,
    StreamsException,
    StreamsNotStartedException,
    StreamsRebalancingException,
    TimeoutException,
    UnknownStateStoreException,
)
from millstream.metrics.client_metrics import ClientMetrics
from millstream.model import KeyValue, SessionWindow, TimeWindow, ValueAndTimestamp, Windowed
from millstream.query.composite import QueryableStoreTypes, ReadOnlyKeyValueStore, open_store
from millstream.query.metadata import KeyQueryMetadata, StreamsMetadata
from millstream.query.parameters import StoreQueryParameters
from millstream.query.provider import StoreSnapshot
from millstream.query.windowed_handles import ReadOnlySessionStore, ReadOnlyWindowStore
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import Serdes
from millstream.server import Limits, QueryServer, RemoteStore
from millstream.topology.topology import Topology

ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
SHOUT = Serdes.custom(
    "shout",
    serialize=lambda value: value.lower().encode(),
    deserialize=lambda data: data.decode().upper(),
    to_column=str,
    from_column=str,
)
VALUES: list[tuple[Serde, list[Any]]] = [
    (Serdes.string(), ["a", "größe/1 %?&#", "", "🙂", "."]),
    (Serdes.short(), [-7, 0, 7]),
    (Serdes.integer(), [-(2**31), 5]),
    (Serdes.long(), [-(2**63), 2**63 - 1, 2**53 + 1]),
    (Serdes.float(), [0.5, -math.inf]),
    (Serdes.double(), [1e300, math.inf, 0.1]),
    (Serdes.boolean(), [True, False]),
    (Serdes.uuid(), [ID]),
    (Serdes.bytes(), [b"", b"\x00\xff", bytes(range(256))]),
    (Serdes.json("a STRUCT<b: ARRAY<STRING>>"), [{"a": {"b": ["1", None, "ü"]}}]),
    (SHOUT, ["LOUD"]),
]


def long_bytes(value: int) -> bytes:
    return value.to_bytes(8, "big")


class Stage:
    """One server for all tests that only read: its client is that of the world which is on."""

    client_id = "staged"
    application_id = "staged-app"

    def __init__(self) -> None:
        self.client = filled().clients[0]
        self.server = QueryServer(self)

    @property
    def health(self) -> Any:
        return self.client.health

    @property
    def topology(self) -> Topology:
        return self.client.topology

    @property
    def store_view(self) -> Stage:
        return self

    def snapshot(self) -> StoreSnapshot:
        return self.client.snapshot()

    def metrics(self) -> ClientMetrics:
        return self.client.metrics()

    def query_metadata_for_key(self, *arguments: Any) -> KeyQueryMetadata:
        return self.client.query_metadata_for_key(*arguments)

    def streams_metadata_for_store(self, store: str) -> tuple[StreamsMetadata, ...]:
        return self.client.streams_metadata_for_store(store)

    def metadata_for_all_streams_clients(self) -> tuple[StreamsMetadata, ...]:
        return self.client.metadata_for_all_streams_clients()

    @contextmanager
    def read_both_ways(
        self, world: Application, store: str, kind: Any, **given: Any
    ) -> Iterator[tuple[Any, Any]]:
        """The store of the one client, read here, and read over HTTP."""
        self.client = world.clients[0]
        here = open_store(self.client, StoreQueryParameters.from_name_and_type(store, kind))
        with RemoteStore(self.server.url, store, page_size=3, **given) as there:
            yield here, there


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    made = Stage()
    with made.server:
        yield made


@pytest.mark.parametrize(("serde", "values"), VALUES, ids=lambda each: repr(each)[:20])
def test_keys_and_values_of_each_serde_come_as_they_are_read_locally(
    stage: Stage, serde: Serde, values: list[Any]
) -> None:
    """Types and all; a serde of one's own is given."""
    world = application(key_serde=serde, value_serde=serde)
    for value in values:
        data = serde.serialize(value)
        assert data is not None
        world.put_bytes("counts", data, data, 7)
    own = {"key_serde": serde, "value_serde": serde} if serde is SHOUT else {}
    kind = QueryableStoreTypes.timestamped_key_value_store()
    with stage.read_both_ways(world, "counts", kind, timestamped=True, **own) as (here, there):
        for value in values:
            assert there.get(value) == here.get(value) == ValueAndTimestamp(value, 7)
            assert type(there.get(value).value) is type(here.get(value).value)
        assert there.multi_get(values) == here.multi_get(values)
        assert list(there.all()) == list(here.all())


def test_nan_comes_as_nan(stage: Stage) -> None:
    """NaN equals nothing, so it has a test of its own."""
    world = application(value_serde=Serdes.double())
    world.put_bytes("counts", b"a", Serdes.double().serialize(math.nan) or b"")
    with stage.read_both_ways(world, "counts", QueryableStoreTypes.key_value_store()) as (_, there):
        assert math.isnan(there["a"])


def test_a_serde_of_ones_own_has_to_be_given() -> None:
    """Its name says nothing; the message says where."""
    world = application(key_serde=SHOUT)
    with (
        QueryServer(world.clients[0]) as server,
        pytest.raises(ConfigException, match=r"'shout': give it as key_serde="),
    ):
        RemoteStore(server.url, "counts").get("a")


def test_bytes_that_do_not_fit_are_read_as_a_local_read_reads_them(stage: Stage) -> None:
    """Strings that are not UTF-8 can be read; numbers of another length cannot, and say so."""
    world = application(key_serde=Serdes.string())
    world.put_bytes("counts", b"\xff\xfe", long_bytes(1))
    world.put_bytes("counts", b"short", b"123")
    with stage.read_both_ways(world, "counts", QueryableStoreTypes.key_value_store()) as (here, there):
        assert list(there.range("t", None)) == list(here.range("t", None))
        for store in (here, there):
            with pytest.raises(SerializationException):
                store.get("short")


def filled() -> Application:
    world = application()
    for number in range(12):
        world.put(f"key-{number:02}", number)
    for key in ("a", "b"):
        for number in range(5):
            world.put_window(key, number * 1000, number)
            world.put_session(key, number * 1000, number * 1000 + 500, number)
    return world


@pytest.mark.filterwarnings("ignore:.*milliseconds:DeprecationWarning")
@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("range", ("key-03", "key-07")),
        ("range", (None, "key-03")),
        ("range", ("key-08", None)),
        ("range", (None, None)),
        ("range", ("key-07", "key-03")),
        ("reverse_range", ("key-03", "key-07")),
        ("reverse_range", (None, None)),
        ("all", ()),
        ("reverse_all", ()),
        ("prefix_scan", ("key-1",)),
        ("prefix_scan", ("",)),
        ("prefix_scan", (b"key-0", Serdes.bytes())),
        ("items", ()),
        ("keys", ()),
        ("values", ()),
        ("__iter__", ()),
        ("multi_get", (["key-03", "nobody"],)),
        ("multi_get", ([],)),
        ("approximate_num_entries", ()),
        ("__contains__", ("key-03",)),
        ("__contains__", ("nobody",)),
        ("__getitem__", ("key-03",)),
    ],
)
def test_each_read_of_a_key_value_store_is_the_local_one(
    stage: Stage, method: str, arguments: tuple[Any, ...]
) -> None:
    """Pages have three entries."""
    with stage.read_both_ways(filled(), "counts", QueryableStoreTypes.key_value_store()) as (here, there):
        assert shown(there, method, arguments) == shown(here, method, arguments)


def shown(store: Any, method: str, arguments: tuple[Any, ...]) -> Any:
    result = getattr(store, method)(*arguments)
    return list(result) if isinstance(result, Iterator) else result


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)


WINDOW_READS = [
    ("fetch", ("a", 2000)),
    ("fetch", ("a", at(2000))),
    ("fetch", ("a", 2001)),
    ("fetch", ("a", 1000, 3000)),
    ("fetch", ("a", at(1000), at(3000))),
    ("fetch", ("a", None, at(3000))),
    ("fetch", ("a", at(3000), at(1000))),
    ("fetch", ("a", "b", at(1000), at(2000))),
    ("fetch", (None, "a", None, None)),
    ("fetch", ("b", None, at(4000), None)),
    ("backward_fetch", ("a", at(1000), at(3000))),
    ("backward_fetch", ("a", "b", at(1000), at(2000))),
    ("all", ()),
    ("backward_all", ()),
    ("fetch_all", (at(1000), at(2000))),
    ("backward_fetch_all", (at(1000), at(2000))),
    ("keys", ()),
    ("values", ()),
    ("approximate_num_entries", ()),
    ("__contains__", (Windowed("a", TimeWindow(1000, 2000)),)),
    ("__contains__", (Windowed("a", TimeWindow(1001, 2001)),)),
    ("__getitem__", (Windowed("a", TimeWindow(1000, 2000)),)),
]


@pytest.mark.filterwarnings("ignore:.*milliseconds:DeprecationWarning")
def test_each_read_of_a_window_store_is_the_local_one(stage: Stage) -> None:
    """Values, starts, windowed keys; with times in both forms."""
    with stage.read_both_ways(filled(), "windows", QueryableStoreTypes.window_store()) as (here, there):
        for method, arguments in WINDOW_READS:
            assert shown(there, method, arguments) == shown(here, method, arguments), (method, arguments)
        assert list(there.fetch("a", 0, 1000)) == [KeyValue(0, 0), KeyValue(1000, 1)]
    timestamped = QueryableStoreTypes.timestamped_window_store()
    with stage.read_both_ways(filled(), "windows", timestamped, timestamped=True) as (here, there):
        assert there.fetch("a", 2000) == here.fetch("a", 2000) == ValueAndTimestamp(2, 2000)
        assert list(there.all()) == list(here.all())


SESSION_READS = [
    ("fetch", ("a",)),
    ("fetch", ("nobody",)),
    ("fetch", ("a", "b")),
    ("fetch", (None, "a")),
    ("backward_fetch", ("a",)),
    ("backward_fetch", ("a", "b")),
    ("find_sessions", ("a", at(1000), at(2000))),
    ("find_sessions", ("a", 1000, 2000)),
    ("find_sessions", ("a", "b", at(1000), at(2000))),
    ("find_sessions", ("a", None, at(1000))),
    ("backward_find_sessions", ("a", at(1000), at(2000))),
    ("backward_find_sessions", (None, None, at(4200), None)),
    ("fetch_session", ("a", at(1000), at(1500))),
    ("fetch_session", ("a", 1000, 1501)),
    ("all", ()),
    ("backward_all", ()),
    ("__getitem__", (Windowed("a", SessionWindow(1000, 1500)),)),
]


def test_each_read_of_a_session_store_is_the_local_one(stage: Stage) -> None:
    """The order is the store's, and times have both forms."""
    with stage.read_both_ways(filled(), "sessions", QueryableStoreTypes.session_store()) as (here, there):
        for method, arguments in SESSION_READS:
            assert shown(there, method, arguments) == shown(here, method, arguments), (method, arguments)


@pytest.mark.parametrize(
    ("store", "kind"),
    [
        ("counts", QueryableStoreTypes.key_value_store()),
        ("counts", QueryableStoreTypes.timestamped_key_value_store()),
        ("windows", QueryableStoreTypes.window_store()),
        ("windows", QueryableStoreTypes.timestamped_window_store()),
        ("sessions", QueryableStoreTypes.session_store()),
    ],
    ids=str,
)
def test_tables_are_those_of_a_local_store(stage: Stage, store: str, kind: Any) -> None:
    """Arrow, in one and in batches, and pandas: columns, types, rows."""
    with stage.read_both_ways(filled(), store, kind, timestamped=kind.timestamped) as (here, there):
        table = there.to_arrow()
        assert table.equals(here.to_arrow())
        assert table.num_rows >= 10
        assert there.to_arrow_batches(4).read_all().equals(table)
        assert there.to_pandas().equals(here.to_pandas())
        with pytest.raises(TypeError):
            there.to_spark(None)
        with pytest.raises(ValueError, match="rows must be at least 1"):
            there.to_arrow_batches(0)


NOT_OVER_HTTP = {"check"}
"""What local stores have for those who hold one; every other method is there remotely as well."""


def test_it_has_the_interface_of_each_kind_of_store() -> None:
    """Names and parameters are compared, so a method that is added to a local store fails here."""
    for kind in (ReadOnlyKeyValueStore, ReadOnlyWindowStore, ReadOnlySessionStore):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if name.startswith("_") or name in NOT_OVER_HTTP:
                continue
            assert hasattr(RemoteStore, name), f"{kind.__name__}.{name}"
            there = inspect.signature(getattr(RemoteStore, name))
            assert [*there.parameters] == [*inspect.signature(method).parameters], f"{kind.__name__}.{name}"


def test_mistakes_are_told_as_a_local_store_tells_them(stage: Stage) -> None:
    """Invalid keys and times raise the same exceptions."""
    with stage.read_both_ways(filled(), "counts", QueryableStoreTypes.key_value_store()) as (here, there):
        for store in (here, there):
            for call in (
                lambda s=store: s.get(None),
                lambda s=store: s.multi_get([None]),
                lambda s=store: s.prefix_scan(None),
                lambda s=store: None in s,
            ):
                with pytest.raises(TypeError, match="must not be None"):
                    call()
            with pytest.raises(SerializationException):
                store.get(7)
            with pytest.raises(KeyError):
                store["nobody"]
        for method in ("fetch", "backward_fetch"):
            with pytest.raises(InvalidStateStoreTypeException):
                getattr(there, method)("a")
        with pytest.raises(InvalidStateStoreTypeException):
            there.fetch_all(at(0), at(1))
    with stage.read_both_ways(filled(), "windows", QueryableStoreTypes.window_store()) as (here, there):
        for store in (here, there):
            with pytest.raises(TypeError):
                store.fetch("a")
            with pytest.raises(TypeError):
                store.fetch("a", "then", "now")
            with pytest.raises(ValueError, match="no time zone"):
                store.fetch("a", datetime(2026, 1, 1))
            with pytest.raises(TypeError, match="takes a Windowed"):
                store["a"]
        with pytest.raises(InvalidStateStoreTypeException):
            there.get("a")
        with pytest.raises(InvalidStateStoreTypeException):
            there.find_sessions("a", 1, 2)


def test_coroutines_close_it_as_with_does(stage: Stage) -> None:
    """Its connections are closed on another thread than the loop's."""

    async def main(there: RemoteStore) -> tuple[Any, list[Any]]:
        async with there as store:
            return await store.get_async("key-03"), [entry async for entry in store.all_async()]

    with stage.read_both_ways(filled(), "counts", QueryableStoreTypes.key_value_store()) as (here, there):
        assert asyncio.run(main(there)) == (here.get("key-03"), list(here.all()))


def test_iterators_look_ahead_and_close(stage: Stage) -> None:
    """They behave as local ones; nothing is open at the server between two pages."""
    world = filled()
    with stage.read_both_ways(world, "counts", QueryableStoreTypes.key_value_store()) as (_, there):
        with there.all() as entries:
            assert entries.has_next()
            assert entries.peek_next_key() == "key-00"
            assert next(entries) == KeyValue("key-00", 0)
            opened = [world.clients[0].stores["counts", number] for number in range(PARTITIONS)]
            assert [len(store._iterators) for store in opened] == [0] * PARTITIONS
            assert len(list(entries)) == 11
            assert not entries.has_next()
        with pytest.raises(IllegalStateException, match="already been closed"):
            next(entries)
        entries.close()


def test_a_range_goes_on_while_entries_come_and_go(stage: Stage) -> None:
    """Between two pages: in order, nothing twice, and what was there all the time."""
    world = filled()
    with stage.read_both_ways(world, "counts", QueryableStoreTypes.key_value_store()) as (_, there):
        entries = there.all()
        seen = [next(entries).key for _ in range(3)]
        world.put("key-00a", 1)
        world.put("key-04", 99)
        world.put("key-99", 1)
        key = b"key-03"
        store = world.clients[0].stores["counts", partition_of(key)]
        store.apply([(key, None, 5)], store.position + 1)
        rest = dict(entries)
        assert seen == ["key-00", "key-01", "key-02"]
        assert list(rest) == [f"key-{n:02}" for n in range(4, 12)] + ["key-99"]
        assert rest["key-04"] == 99


def test_what_the_client_cannot_answer_is_the_same_exception() -> None:
    """Through each of the client's states, on one RemoteStore."""
    world = filled()
    client = world.clients[0]
    client.publish(client_state="CREATED")
    with QueryServer(client) as server, RemoteStore(server.url, "counts") as there:
        with pytest.raises(StreamsNotStartedException) as not_started:
            there.get("key-03")
        assert (not_started.value.store, not_started.value.retriable) == ("counts", True)
        client.publish(client_state="REBALANCING", threads={"t": "PARTITIONS_ASSIGNED"})
        with pytest.raises(StreamsRebalancingException):
            there.get("key-03")
        client.publish(client_state="RUNNING", threads={"t": "RUNNING"})
        assert there.get("key-03") == 3
        client.publish(client_state="NOT_RUNNING")
        for read in (lambda: there.get("key-03"), there.all, there.approximate_num_entries):
            with pytest.raises(StateStoreNotAvailableException):
                read()
        client.publish(client_state="RUNNING")
        with pytest.raises(UnknownStateStoreException, match="Did you mean 'counts'"):
            RemoteStore(server.url, "count").get("a")


def test_serdes_that_are_not_known_yet_are_waited_for() -> None:
    """They come with the compiled topology; until then it is a rebalance that can be tried again."""
    from dataclasses import replace

    client = filled().clients[0]
    known = client.snapshot().stores
    unknown = {name: replace(store, key_serde=None, value_serde=None) for name, store in known.items()}
    client.publish(stores=unknown)
    with QueryServer(client) as server, RemoteStore(server.url, "counts") as there:
        with pytest.raises(StreamsRebalancingException):
            there.get("key-03")
        client.publish(stores=known)
        assert there.get("key-03") == 3


def test_many_large_values_are_asked_for_in_smaller_numbers() -> None:
    """By itself, when the server says that the answer would be too large; one value always comes."""
    world = application(value_serde=Serdes.bytes())
    keys = [f"key-{number}" for number in range(20)]
    for key in keys:
        world.put_bytes("counts", key.encode(), key.encode() * 500)
    limits = Limits(answer_bytes=10_000)
    with QueryServer(world.clients[0], limits=limits) as server, RemoteStore(server.url, "counts") as there:
        assert there.multi_get(keys) == [key.encode() * 500 for key in keys]
    limits = Limits(answer_bytes=10)
    with QueryServer(world.clients[0], limits=limits) as server, RemoteStore(server.url, "counts") as there:
        assert there.multi_get(keys) == [key.encode() * 500 for key in keys]


# --- the network -----------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


def test_a_server_that_cannot_be_reached_is_not_available() -> None:
    """Another one may be."""
    store = RemoteStore(f"http://127.0.0.1:{free_port()}", "counts", token="s3cr3t")
    with pytest.raises(StateStoreNotAvailableException, match="cannot be reached") as raised:
        store.get("a")
    assert raised.value.store == "counts"
    assert raised.value.__cause__ is not None
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize("host", ["a" * 70, "..", ".a"])
def test_a_name_that_no_host_can_have_is_not_available(host: str) -> None:
    """It is told as any other host that is not there, and not as an error of Python's."""
    with pytest.raises(StateStoreNotAvailableException, match="cannot be reached"):
        RemoteStore(f"http://{host}:80", "counts").get("a")


@contextmanager
def socket_that(says: bytes, *, then_waits: bool = False) -> Iterator[str]:
    """Takes connections, and says that to each."""
    listening = socket.create_server(("127.0.0.1", 0))
    open_ones: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            open_ones.append(connection)
            with suppress(OSError):  # it may be gone before it has heard everything
                connection.recv(65536)
                connection.sendall(says)
            if not then_waits:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()

    thread = threading.Thread(target=serve, name="says", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for each in open_ones:
            each.close()
        thread.join(10)


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"])
def test_a_server_that_does_not_answer_in_time_is_a_timeout(says: bytes) -> None:
    """One deadline for all of an answer."""
    with socket_that(says, then_waits=True) as url:
        store = RemoteStore(url, "counts", timeout=timedelta(milliseconds=100))
        with pytest.raises(TimeoutException, match=r"did not answer within 0\.1 s"):
            store.get("a")


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n\r\n[]",
        b"HTTP/1.1 503 S\r\n\r\nService Unavailable",
        b"HTTP/1.1 404 N\r\n\r\n<html>",
        b"HTTP/1.1 413 N\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\n\r\n{}",
        b"HTTP/1.1 302 Found\r\nlocation: http://evil.example\r\n\r\n{}",
        b'HTTP/1.1 200 OK\r\n\r\n{"kind":"key-value","key_serde":7,"value_serde":{}}',
        b'HTTP/1.1 200 OK\r\n\r\n{"kind":"key-value","key_serde":"string","value_serde":"long"}',
        b'HTTP/1.1 421 M\r\n\r\n{"error":"StateStoreMigratedException","host":"evil:0"}',
        b'HTTP/1.1 421 M\r\n\r\n{"error":"StateStoreMigratedException","host":["a"]}',
        b'HTTP/1.1 500 E\r\n\r\n{"error":"SystemExit","message":"now"}',
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000 + b"\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
    ],
    ids=lambda says: repr(says[:40]),
)
def test_what_is_no_query_server_is_told(says: bytes) -> None:
    """Always an exception of ours, for each kind of read."""
    with socket_that(says) as url:
        store = RemoteStore(url, "counts", timeout=timedelta(seconds=10))
        for read in (
            lambda: store.get("a"),
            lambda: store.multi_get(["a"]),
            lambda: list(store.all()),
            store.approximate_num_entries,
        ):
            with pytest.raises(StreamsException):
                read()


def test_a_connection_that_the_server_has_closed_is_replaced() -> None:
    """A server that was started anew at the same place is found again."""
    world = filled()
    server = QueryServer(world.clients[0]).start()
    with RemoteStore(server.url, "counts") as there:
        assert there.get("key-03") == 3
        server.close()
        with pytest.raises(StateStoreNotAvailableException):
            there.get("key-03")
        with QueryServer(world.clients[0], server.address):
            assert there.get("key-03") == 3


def test_connections_are_kept() -> None:
    """A hundred reads take one; and after close() it can be used all the same."""
    world = filled()
    with QueryServer(world.clients[0]) as server:
        made: Any = server._server
        with RemoteStore(server.url, "counts") as there:
            for _ in range(100):
                there.get("key-03")
            assert len(made.server_state.connections) == 1
            state = made.server_state  # it counts a request after the answer has been sent
            wait_until(lambda: state.total_requests >= 101, "all are counted", 10)
            assert state.total_requests == 101, "one for what the store is, and none twice"
        assert there.get("key-03") == 3


def test_threads_may_share_one() -> None:
    """Each gets its own answers."""
    world = filled()
    wrong: list[Any] = []
    with QueryServer(world.clients[0]) as server, RemoteStore(server.url, "counts") as there:

        def read(number: int) -> None:
            for _ in range(30):
                found = there.get(f"key-{number:02}")
                if found != number:
                    wrong.append((number, found))

        threads = [threading.Thread(target=read, args=(n,), name=f"reads-{n}", daemon=True) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert wrong == []


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8080",
        "ftp://localhost",
        "http://",
        "http://localhost:99999",
        "http://localhost:x",
        "http://user:pw@localhost",
        "http://localhost/?a=b",
        "http://localhost/#a",
        "http://[::1",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """The error is raised when it is created, and does not repeat a password."""
    with pytest.raises(ConfigException) as raised:
        RemoteStore(url, "counts")
    assert "pw" not in str(raised.value)


def test_arguments_that_are_wrong_are_refused() -> None:
    """The error is raised when it is created."""
    for arguments in ({"timeout": 5}, {"timeout": timedelta(0)}):
        with pytest.raises(TypeError):
            RemoteStore("http://localhost", "counts", **arguments)
    with pytest.raises(TypeError):
        RemoteStore("http://localhost", "")
    with pytest.raises(ValueError, match="page"):
        RemoteStore("http://localhost", "counts", page_size=0)
    with pytest.raises(ConfigException):
        RemoteStore("http://localhost", "counts", token="a\r\nb: c")
    assert (
        repr(RemoteStore("http://[::1]:80/in", "c", token="s3")) == "<RemoteStore 'c' at http://[::1]:80/in>"
    )
