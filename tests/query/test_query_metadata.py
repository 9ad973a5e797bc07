"""Where is my key: by values alone, whatever the group has agreed."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.config import StreamsConfig
from millstream.errors import (
    SerializationException,
    StateStoreNotAvailableException,
    StreamsNotStartedException,
    UnknownStateStoreException,
)
from millstream.model import StoreKind, TaskId, TimeWindow, TopicPartition, Windowed
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
from millstream.query.provider import StoreDeclaration, StoreSnapshot
from millstream.serdes.serdes import Serdes
from millstream.states import State

A, B, C = HostInfo("a", 1), HostInfo("b", 2), HostInfo("c", 3)
NOWHERE = HostInfo.unavailable()


def by_crc(key: bytes) -> int:
    return zlib.crc32(key) % 4


COUNTS = StoreDeclaration("counts", Serdes.string(), Serdes.long(), by_crc, 4)
SNAPSHOT = StoreSnapshot(
    "app-1",
    State.RUNNING,
    stores={
        "counts": COUNTS,
        "per-hour": replace(COUNTS, name="per-hour", kind=StoreKind.WINDOW, window_size_ms=3_600_000),
        "users": replace(COUNTS, name="users", partition_of=None),
        "rates": replace(COUNTS, name="rates", partition_of=None),
    },
)
PLACEMENT = Placement(
    places=tuple(
        StorePartition(store, TaskId(subtopology, number), TopicPartition(f"{store}-log", number))
        for subtopology, store in enumerate(("counts", "per-hour", "users"))
        for number in range(4)
    ),
    hosts={
        A: (frozenset({TaskId(0, 0), TaskId(0, 1), TaskId(2, 0)}), frozenset({TaskId(0, 2)})),
        B: (frozenset({TaskId(0, 2), TaskId(1, 0), TaskId(1, 1)}), frozenset({TaskId(0, 0), TaskId(0, 1)})),
        C: (frozenset(), frozenset({TaskId(0, 0)})),
    },
    local=B,
    global_stores={"rates": frozenset({TopicPartition("rates", 0)})},
)


def key_in(partition: int) -> str:
    return next(key for key in map(str, range(1000)) if by_crc(key.encode()) == partition)


# --- hosts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("localhost:8080", HostInfo("localhost", 8080)),
        ("10.1.2.3:1", HostInfo("10.1.2.3", 1)),
        ("[::1]:65535", HostInfo("::1", 65535)),
        (" a-b.c:80 ", HostInfo("a-b.c", 80)),
    ],
)
def test_an_address_is_read_and_printed(text: str, host: HostInfo) -> None:
    """There and back; HostInfoTest."""
    assert HostInfo.parse(text) == host
    assert str(host) == text.strip()
    assert host.is_available


@pytest.mark.parametrize(
    "text", ["", "localhost", ":80", "a:", "a:0", "a:65536", "a:8x", "a b:1", "::1:80", "http://a:1", "a:-1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    """The message has the text."""
    with pytest.raises(ValueError, match="is not a client address"):
        HostInfo.parse(text)


@given(st.text(max_size=12))
def test_what_the_configuration_takes_as_an_address_is_one(text: str) -> None:
    """The two checks agree, so that no client is left out for an address that its own start accepted."""
    try:
        config = StreamsConfig(
            {"application.id": "a", "bootstrap.servers": "b:1", "application.server": f"{text}:80"}
        )
    except Exception:
        return
    assert HostInfo.parse(config.application_server).port == 80


def test_no_address_is_none() -> None:
    """Kafka's words for it."""
    assert str(NOWHERE) == "unavailable:-1"
    assert not NOWHERE.is_available
    assert KeyQueryMetadata(NOWHERE, frozenset(), -1) == KeyQueryMetadata.NOT_AVAILABLE


# --- clients -----------------------------------------------------------------------------------------------


def test_each_client_tells_what_it_has() -> None:
    """It lists its active and standby stores with the partitions that fill them. Global stores are
    everywhere."""
    rates = TopicPartition("rates", 0)
    assert all_clients(SNAPSHOT, PLACEMENT) == (
        StreamsMetadata(
            A,
            frozenset({"counts", "users", "rates"}),
            frozenset(
                {
                    TopicPartition("counts-log", 0),
                    TopicPartition("counts-log", 1),
                    TopicPartition("users-log", 0),
                }
            )
            | {rates},
            frozenset({"counts"}),
            frozenset({TopicPartition("counts-log", 2)}),
        ),
        StreamsMetadata(
            B,
            frozenset({"counts", "per-hour", "rates"}),
            frozenset(
                {
                    TopicPartition("counts-log", 2),
                    TopicPartition("per-hour-log", 0),
                    TopicPartition("per-hour-log", 1),
                    rates,
                }
            ),
            frozenset({"counts"}),
            frozenset({TopicPartition("counts-log", 0), TopicPartition("counts-log", 1)}),
        ),
        StreamsMetadata(
            C,
            frozenset({"rates"}),
            frozenset({rates}),
            frozenset({"counts"}),
            frozenset({TopicPartition("counts-log", 0)}),
        ),
    )
    assert (all_clients(SNAPSHOT, PLACEMENT)[0].host, all_clients(SNAPSHOT, PLACEMENT)[0].port) == ("a", 1)


@pytest.mark.parametrize(
    ("store", "hosts"), [("counts", [A, B, C]), ("per-hour", [B]), ("users", [A]), ("rates", [A, B, C])]
)
def test_the_clients_of_a_store(store: str, hosts: list[HostInfo]) -> None:
    """Those with a part of it, if only a standby."""
    assert [each.host_info for each in clients_of_store(SNAPSHOT, PLACEMENT, store)] == hosts


# --- keys --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partition", "active", "standbys"),
    [(0, A, {B, C}), (1, A, {B}), (2, B, {A}), (3, NOWHERE, set())],
)
def test_the_clients_of_a_key(partition: int, active: HostInfo, standbys: set[HostInfo]) -> None:
    """By our changelogs' partitioning; a partition that nobody with an address has is told all the same."""
    found = host_of_key(SNAPSHOT, PLACEMENT, "counts", key_in(partition))
    assert found == KeyQueryMetadata(active, frozenset(standbys), partition)


def test_a_windowed_store_is_partitioned_by_the_plain_key() -> None:
    """All windows of a key are on one client, and a windowed key stands for its key."""
    plain = host_of_key(SNAPSHOT, PLACEMENT, "per-hour", key_in(1))
    assert plain == KeyQueryMetadata(B, frozenset(), 1)
    windowed = Windowed(key_in(1), TimeWindow(0, 3_600_000))
    assert host_of_key(SNAPSHOT, PLACEMENT, "per-hour", windowed) == plain


def test_a_table_without_a_copy_is_partitioned_as_kafkas_producers_do() -> None:
    """The caller can name another partitioner. UtilsTest.testMurmur2 has these values."""
    hashes = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"abc": 479470107,
        b"a-little-bit-long-string": -985981536,
    }
    for data, value in hashes.items():
        assert default_partition(data, 2**31 - 1) == (value & 0x7FFFFFFF) % (2**31 - 1)
        partition = (value & 0x7FFFFFFF) % 4
        assert host_of_key(SNAPSHOT, PLACEMENT, "users", data.decode()).partition == partition
    asked: list[tuple[Any, int]] = []

    def mine(key: Any, partitions: int) -> int:
        asked.append((key, partitions))
        return 0

    assert host_of_key(SNAPSHOT, PLACEMENT, "users", "x", mine) == KeyQueryMetadata(A, frozenset(), 0)
    assert asked == [("x", 4)]


def test_a_serializer_may_be_given() -> None:
    """Instead of the store's."""
    key = next(number for number in range(100) if by_crc(number.to_bytes(8, "big")) == 2)
    assert host_of_key(SNAPSHOT, PLACEMENT, "counts", key, Serdes.long()).active_host == B


def test_a_global_store_is_here() -> None:
    """This client if it has an address, else the first that has one, else nobody; never a partition."""
    assert host_of_key(SNAPSHOT, PLACEMENT, "rates", "x") == KeyQueryMetadata(B)
    elsewhere = replace(PLACEMENT, local=NOWHERE)
    assert host_of_key(SNAPSHOT, elsewhere, "rates", "x") == KeyQueryMetadata(A)
    nowhere = replace(elsewhere, hosts={})
    assert host_of_key(SNAPSHOT, nowhere, "rates", "x") == KeyQueryMetadata.NOT_AVAILABLE


def test_while_nothing_is_agreed_nothing_is_available() -> None:
    """The same holds while a store's serde or its number of partitions is unknown."""
    assert host_of_key(SNAPSHOT, None, "counts", "x") is KeyQueryMetadata.NOT_AVAILABLE
    assert all_clients(SNAPSHOT, None) == clients_of_store(SNAPSHOT, None, "counts") == ()
    assert host_of_key(SNAPSHOT, Placement(), "counts", "x") is KeyQueryMetadata.NOT_AVAILABLE
    unknown = replace(SNAPSHOT, stores={"counts": replace(COUNTS, key_serde=None)})
    assert host_of_key(unknown, PLACEMENT, "counts", "x") is KeyQueryMetadata.NOT_AVAILABLE


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("CREATED", StreamsNotStartedException),
        ("RUNNING", None),
        ("REBALANCING", None),
        ("PENDING_SHUTDOWN", StateStoreNotAvailableException),
        ("NOT_RUNNING", StateStoreNotAvailableException),
        ("PENDING_ERROR", StateStoreNotAvailableException),
        ("ERROR", StateStoreNotAvailableException),
    ],
)
def test_the_state_of_the_client(state: str, error: type[Exception] | None) -> None:
    """The states are those of `store()`; reference 1.5."""
    snapshot = replace(SNAPSHOT, client_state=State[state])
    for ask in (
        lambda: all_clients(snapshot, PLACEMENT),
        lambda: clients_of_store(snapshot, PLACEMENT, "counts"),
        lambda: host_of_key(snapshot, PLACEMENT, "counts", "x"),
    ):
        if error is None:
            assert ask()
        else:
            with pytest.raises(error, match=rf"client 'app-1' is {state}"):
                ask()


def test_a_store_that_there_is_not() -> None:
    """Unknown, whether anything is agreed or not."""
    for placement in (None, PLACEMENT):
        with pytest.raises(UnknownStateStoreException, match="Did you mean 'counts'"):
            host_of_key(SNAPSHOT, placement, "count", "x")
        with pytest.raises(UnknownStateStoreException):
            clients_of_store(SNAPSHOT, placement, "nothing")


def test_a_store_without_a_name() -> None:
    """A mistake in the program, as for `store()`, and not a store that nobody has."""
    for ask in (
        lambda: clients_of_store(SNAPSHOT, PLACEMENT, ""),
        lambda: host_of_key(SNAPSHOT, PLACEMENT, "", "x"),
    ):
        with pytest.raises(TypeError, match="a store name must be a non-empty str"):
            ask()


@pytest.mark.parametrize(
    ("key", "how", "error"),
    [
        (None, None, TypeError),
        ("x", 17, TypeError),
        (17, None, SerializationException),
        ("x", lambda key, partitions: 4, ValueError),
        ("x", lambda key, partitions: -1, ValueError),
        ("x", lambda key, partitions: True, ValueError),
        ("x", lambda key, partitions: None, ValueError),
    ],
)
def test_what_does_not_fit_is_refused(key: Any, how: Any, error: type[Exception]) -> None:
    """Upstream: "should be a singleton set"."""
    with pytest.raises(error) as raised:
        host_of_key(SNAPSHOT, PLACEMENT, "counts", key, how)
    assert "counts" in str(raised.value) or "query_metadata_for_key" in str(raised.value)


class _NoBytes:
    def serialize(self, value: Any) -> bytes | None:
        return None


def test_a_serializer_without_bytes_is_refused() -> None:
    """A key has some."""
    with pytest.raises(SerializationException, match="returned no bytes"):
        host_of_key(SNAPSHOT, PLACEMENT, "counts", "x", _NoBytes())
