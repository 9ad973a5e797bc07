"""Nothing in a record ends a client: whatever its key, value, headers and timestamp, in every source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from fuzzing import Fuzzed, clamped, counted, fuzzed, is_good, is_timed, program, sessions, windows
from waiting import wait_until
from world import World, content, key_value_store

from millstream import KafkaStreams
from millstream.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
ALL_TIMES = (0, 1, -1, NOW_MS, NOW_MS + 1, NOW_MS + DAY_MS, 10**15, -(10**15), 2**62, 2**63 - 1, -(2**63))

SKIPPING = {"default.timestamp.extractor": "LogAndSkipOnInvalidTimestamp"}


def test_through_the_test_driver() -> None:
    """With every timestamp that 64 bits can be: bad records are dropped, the others all counted, in windows
    of the years that there are."""
    records = fuzzed(ALL_TIMES, 300)
    good = [record for record in records if is_good(record) and is_timed(record)]
    config = {"deserialization.exception.handler": "continue", **SKIPPING}
    with TopologyTestDriver(program(), config) as driver:
        for topic in ("in", "table", "global"):
            driver.create_input_topic(topic, "bytes", "bytes").pipe_record_list(
                TestRecord(r.key, r.value, r.timestamp, r.headers) for r in records
            )
        copies = driver.create_output_topic("copy", "bytes", "bytes").read_records_to_list()
        assert [(r.key, r.value, r.headers) for r in copies] == [(r.key, r.value, r.headers) for r in good]
        assert [r.timestamp for r in copies] == [clamped(r) for r in good]
        with driver.get_key_value_store("counts").all() as entries:
            assert dict(entries) == counted(records)
        found = driver.create_output_topic("windows", "bytes", "long").read_key_values_to_map()
        starts = {(key[:-8], int.from_bytes(key[-8:], "big")): count for key, count in found.items()}
        assert starts == windows(records)
        found = driver.create_output_topic("sessions", "bytes", "long").read_key_values_to_map()
        assert sum(count or 0 for count in found.values()) == sessions(records)


def send(world: World, topic: str, records: Iterable[Fuzzed]) -> None:
    """Write records just as they are."""
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap_servers})
    refused: list[Any] = []
    for r in records:
        producer.produce(
            topic,
            r.value,
            r.key,
            partition=0,
            timestamp=r.timestamp,
            headers=list(r.headers),
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert refused == []


def dropped(client: KafkaStreams) -> int:
    """How many records the client's pipelines have dropped because of their bytes, or their times."""
    return sum(
        int(metric.value)
        for name, metric in client.metrics().items()
        if name.name == "dropped-records-total"
        and dict(name.tags).get("kind") in ("deserialization", "timestamp")
        and "pipeline" in dict(name.tags)
    )


@pytest.mark.kafka
@pytest.mark.timeout(240)
def test_through_every_kind_of_source_on_a_broker(world: World) -> None:
    """A stream, a repartition topic, windows and sessions behind them, a table that Spark reads, and a view
    of one, a global table, a changelog: what cannot be read is dropped and counted, all else is there, and
    the client has not had a failure."""
    prefix, application_id = world.name("fuzz-"), world.name("app")
    anything = {"message.timestamp.after.max.ms": str(2**63 - 1), "cleanup.policy": "delete"}
    for name in ("in", "copy", "windows", "sessions", "table", "global"):
        world.kafka.create_topic(f"{prefix}{name}", 1, anything)
    client = world.client(
        program(prefix=prefix),
        application_id,
        deserialization_exception_handler="continue",
        default_timestamp_extractor=SKIPPING["default.timestamp.extractor"],
    )
    records = fuzzed((1, -1, NOW_MS, NOW_MS + DAY_MS, 10**15, 2**53, -(10**15)), 600)
    for name in ("in", "table", "global"):
        send(world, f"{prefix}{name}", records)
    inside = [replace(r, key=b"inside", timestamp=NOW_MS) for r in records[:100]]
    send(world, f"{application_id}-again-repartition", inside)
    last = [Fuzzed(b"last", (7).to_bytes(8, "big"), 10**15, ())]
    for name in ("in", "table", "global"):
        send(world, f"{prefix}{name}", last)

    good = [record for record in (*records, *last) if is_good(record) and is_timed(record)]
    copies = world.consume(f"{prefix}copy", len(good), 120)
    assert [(r.key, r.value, r.headers) for r in copies] == [(r.key, r.value, r.headers) for r in good]
    assert [r.timestamp for r in copies] == [clamped(r) for r in good]
    wanted = counted([*records, *inside, *last])
    wait_until(lambda: content(key_value_store(client, "counts")) == wanted, "all is counted", 60)
    wait_until(lambda: key_value_store(client, "table").get("last") == 7, "the table is filled")
    wait_until(lambda: key_value_store(client, "everywhere").get("last") == 7, "the global table is filled")
    stamps = [r for r in records if r.headers and r.key and r.value and len(r.value) == 8][:20]
    send(world, f"{application_id}-zeros-changelog", [replace(r, key=b"forged", timestamp=1) for r in stamps])
    wait_until(lambda: key_value_store(client, "zeros").get("forged") is not None, "the changelog is read")
    bad = sum(not (is_good(record) and is_timed(record)) for record in (*records, *records, *inside))
    wait_until(lambda: dropped(client) == bad, f"{bad} are counted")
    assert client.failures == ()
    assert client.state is KafkaStreams.State.RUNNING
