"""Windows and sessions through the whole client: changelog records in, `KafkaStreams.store` out."""

from __future__ import annotations

from datetime import timedelta

import pytest
from fake_world import FakeWorld
from scenes import SOON, Make
from waiting import wait_until

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Consumed, Materialized
from millstream.errors import InvalidStateStoreTypeException
from millstream.model import SessionWindow, TimeWindow, TopicPartition, Windowed
from millstream.query.composite import QueryableStoreTypes
from millstream.query.metadata import default_partition
from millstream.query.parameters import StoreQueryParameters
from millstream.serdes.serdes import Serdes
from millstream.stores.keys import session_key, window_key
from millstream.topology.topology import Topology
from millstream.topology.windows import SessionWindows, TimeWindows

MINUTE = 60_000
now = 1_700_000_040_000
WINDOWS = StoreQueryParameters.from_name_and_type("per-minute", QueryableStoreTypes.window_store())
SESSIONS = StoreQueryParameters.from_name_and_type("visits", QueryableStoreTypes.session_store())


def windowed_counts() -> Topology:
    """Counts per minute, and per session."""
    builder = StreamsBuilder()
    words = builder.stream("lines", Consumed.with_(Serdes.string(), Serdes.string())).group_by_key()
    minutes = TimeWindows.of_size_and_grace(timedelta(minutes=1), timedelta(minutes=9))
    words.windowed_by(minutes).count(Materialized.as_("per-minute"))
    gap = SessionWindows.of_inactivity_gap_with_no_grace(timedelta(minutes=5))
    words.windowed_by(gap).count(Materialized.as_("visits"))
    return builder.build()


def partition_of(word: str) -> int:
    """Of the plain key, whatever its window."""
    return default_partition(word.encode(), 3)


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def test_windows_and_sessions_are_restored_and_read(make: Make, world: FakeWorld) -> None:
    """Changelogs have Kafka's keys, in all partitions. store() already refuses the wrong type."""
    for count, word in enumerate(["a", "b", "c", "d"], 1):
        minutes = TopicPartition("app-per-minute-changelog", partition_of(word))
        visits = TopicPartition("app-visits-changelog", partition_of(word))
        for start in (now - 2 * MINUTE, now):
            world.log.append(minutes, (window_key(word.encode(), start), number(count), start))
        world.log.append(visits, (session_key(word.encode(), now - MINUTE, now), number(count), now))
    client = make(windowed_counts())
    client.start()
    client.wait_until_queryable("per-minute", SOON)
    client.wait_until_queryable("visits", SOON)
    windows, sessions = client.store(WINDOWS), client.store(SESSIONS)
    assert windows.fetch("b", now) == 2
    assert list(windows.fetch("c", None, None)) == [(now - 2 * MINUTE, 3), (now, 3)]
    assert [key for key, _ in windows.fetch_all(None, None)] == [
        Windowed(word, TimeWindow(start, start + MINUTE))
        for word in ("a", "b", "c", "d")
        for start in (now - 2 * MINUTE, now)
    ]
    session = Windowed("d", SessionWindow(now - MINUTE, now))
    assert list(sessions.fetch("d")) == [(session, 4)]
    assert sessions[session] == 4

    world.log.append(
        TopicPartition("app-per-minute-changelog", partition_of("c")),
        (window_key(b"c", now), number(7), now),
        (window_key(b"c", now + 9 * MINUTE), number(1), now),
    )
    wait_until(lambda: windows.fetch("c", now) == 7, "the update is there")
    assert [start for start, _ in windows.fetch("c", None, None)] == [now, now + 9 * MINUTE]

    with pytest.raises(InvalidStateStoreTypeException, match="'visits' is a session store"):
        client.store(StoreQueryParameters.from_name_and_type("visits", QueryableStoreTypes.window_store()))
    client.close(SOON)
    assert not any(store.is_open for store in world.stores)
