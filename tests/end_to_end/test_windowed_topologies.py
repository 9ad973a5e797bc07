"""Windows on real Kafka and real Spark: from topic to changelog to window and session store, and a fetch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from waiting import wait_until
from world import World, key_value_store

from millstream import (
    BufferConfig,
    Consumed,
    Materialized,
    QueryableStoreTypes,
    Serdes,
    SessionWindow,
    SessionWindows,
    StoreQueryParameters,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindow,
    TimeWindows,
    Windowed,
    WindowedSerdes,
)
from millstream.kafka.topics import KafkaTopics
from millstream.query.metadata import default_partition

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

BASE = 1_700_000_040_000
"""A multiple of a minute."""
MINUTE = timedelta(minutes=1)


def test_windows_and_sessions_go_from_topic_to_stores_and_output_and_resume_after_a_restart(
    world: World,
) -> None:
    """Page views over three partitions, counted by minute and by visit: stores, changelogs' layout,
    partitions and configs, and output are those of Kafka Streams; a new client goes on from there."""
    views, out = world.topic("views", 3), world.topic("by-minute", 1)
    builder = StreamsBuilder()
    stream = builder.stream(views, Consumed.with_(Serdes.string(), Serdes.string())).group_by_key()
    by_minute = stream.windowed_by(TimeWindows.of_size_and_grace(MINUTE, 10 * MINUTE)).count(
        Materialized.as_("minutes").with_retention(timedelta(days=1))
    )
    by_minute.to_stream().to(out)
    visits = SessionWindows.of_inactivity_gap_and_grace(timedelta(seconds=30), 10 * MINUTE)
    stream.windowed_by(visits).count(Materialized.as_("visits").with_retention(timedelta(days=1)))
    topology = builder.build()

    client = world.client(topology)
    for key, seconds in (("ann", 0), ("bob", 5), ("ann", 20), ("ann", 70), ("bob", 80)):
        world.produce(views, [(key, b"page")], timestamp=BASE + 1000 * seconds)
    minutes = client.store(
        StoreQueryParameters.from_name_and_type("minutes", QueryableStoreTypes.window_store())
    )
    sessions = client.store(
        StoreQueryParameters.from_name_and_type("visits", QueryableStoreTypes.session_store())
    )
    start = datetime.fromtimestamp(BASE / 1000, UTC)

    def of(key: str) -> list[tuple[int, int]]:
        with minutes.fetch(key, start, start + MINUTE) as found:
            return [(at - BASE, count) for at, count in found]

    def visits_of(key: str) -> list[tuple[int, int, int]]:
        with sessions.fetch(key) as found:
            return [(k.window.start_ms - BASE, k.window.end_ms - BASE, count) for k, count in found]

    wait_until(lambda: of("ann") == [(0, 2), (60_000, 1)], "ann's minutes are counted")
    wait_until(lambda: of("bob") == [(0, 1), (60_000, 1)], "bob's minutes are counted")
    wait_until(lambda: visits_of("ann") == [(0, 20_000, 2), (70_000, 70_000, 1)], "ann's visits are there")
    assert minutes.fetch("ann", start) == 2
    assert Windowed("bob", TimeWindow(BASE, BASE + 60_000)) in minutes

    changelog = world.consume(f"{world.name('app')}-minutes-changelog", 4)
    layout = b"ann" + BASE.to_bytes(8, "big") + bytes(4)
    assert {r.partition for r in changelog if r.key == layout} == {default_partition(b"ann", 3)}
    topics = KafkaTopics(
        StreamsConfig({"application.id": "x", "bootstrap.servers": world.kafka.bootstrap_servers})
    )
    name = f"{world.name('app')}-minutes-changelog"
    configs = topics.describe([name])[name].configs
    topics.close()
    assert configs["cleanup.policy"] == "compact,delete"
    assert configs["retention.ms"] == str(2 * 86_400_000)
    serde = WindowedSerdes.time_windowed_serde_from(Serdes.string(), MINUTE)
    written = {str(serde.deserialize(record.key)) for record in world.consume(out, 4)}
    assert f"[ann@{BASE}/{BASE + 60_000}]" in written

    assert client.close(timedelta(seconds=20))
    # Out of order: the pause between ann's visits is filled, and they are one.
    world.produce(views, [("ann", b"page")], timestamp=BASE + 45_000)
    again = world.client(topology)
    minutes = again.store(
        StoreQueryParameters.from_name_and_type("minutes", QueryableStoreTypes.window_store())
    )
    sessions = again.store(
        StoreQueryParameters.from_name_and_type("visits", QueryableStoreTypes.session_store())
    )
    wait_until(lambda: visits_of("ann") == [(0, 70_000, 4)], "ann's visits are merged")
    wait_until(lambda: of("ann") == [(0, 3), (60_000, 1)], "the count of her first minute went on")
    assert sessions.fetch_session("bob", BASE + 5_000, BASE + 5_000) == 1
    assert Windowed("ann", SessionWindow(BASE, BASE + 20_000)) not in sessions


def test_what_is_held_back_and_aggregations_in_a_row_go_on_after_a_restart(world: World) -> None:
    """A suppress, and a count of counts, in one query: nothing is told twice or lost by a new client."""
    views, out = world.topic("views", 2), world.topic("closed", 1)
    builder = StreamsBuilder()
    stream = builder.stream(views, Consumed.with_(Serdes.string(), Serdes.string())).group_by_key()
    by_minute = stream.windowed_by(TimeWindows.of_size_with_no_grace(MINUTE)).count(
        Materialized.as_("minutes")
    )
    closed = Suppressed.until_window_closes(BufferConfig.unbounded()).with_name("final")
    by_minute.suppress(closed).to_stream().to(out)
    updates = stream.count(Materialized.as_("counts")).to_stream().group_by_key()
    updates.count(Materialized.as_("updates"))
    topology = builder.build()
    assert len(topology.pipelines) == 1

    client = world.client(topology)
    counts, numbers = key_value_store(client, "counts"), key_value_store(client, "updates")
    for seconds in (0, 20, 50):
        world.produce(views, [("ann", b"page")], timestamp=BASE + 1000 * seconds)
        seen = seconds // 20 + 1
        wait_until(lambda seen=seen: counts.get("ann") == numbers.get("ann") == seen, "it is counted")
    assert client.close(timedelta(seconds=20))

    again = world.client(topology)
    counts, numbers = key_value_store(again, "counts"), key_value_store(again, "updates")
    wait_until(lambda: counts.get("ann") == numbers.get("ann") == 3, "what was counted is there again")
    world.produce(views, [("ann", b"page")], timestamp=BASE + 61_000)
    wait_until(lambda: counts.get("ann") == numbers.get("ann") == 4, "the counts go on")
    (record,) = world.consume(out, 1)
    serde = WindowedSerdes.time_windowed_serde_from(Serdes.string(), MINUTE)
    assert serde.deserialize(record.key) == Windowed("ann", TimeWindow(BASE, BASE + 60_000))
    assert record.value == (3).to_bytes(8, "big")
    changelog = world.consume(f"{world.name('app')}-final-store-changelog", 5)
    held = {int.from_bytes((record.key or b"")[-8:]): record.value is not None for record in changelog}
    assert held == {BASE: False, BASE + 60_000: True}
