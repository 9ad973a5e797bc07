"""What the composition root makes of a configuration for Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.config import StreamsConfig
from millstream.kafka.clients import restore_consumer_config
from millstream.model import TaskId
from millstream.runtime import wiring
from millstream.serdes.serdes import Serdes
from millstream.stores.memory_store import MemoryStore
from millstream.stores.rocksdb_store import RocksDBStore
from millstream.topology.nodes import OffsetReset, OffsetResetByDuration, Store

BASE = {"application.id": "app", "bootstrap.servers": "a:1"}


def test_sparks_consumers_get_what_is_for_them() -> None:
    """Security, the common keys, `consumer.` and then `main.consumer.`; not what Spark sets itself."""
    config = StreamsConfig(
        {
            **BASE,
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "request.timeout.ms": 1000,
            "consumer.max.poll.records": 1,
            "consumer.fetch.min.bytes": 2,
            "main.consumer.max.poll.records": 3,
            "consumer.group.id": "mine",
            "consumer.auto.offset.reset": "latest",
            "producer.linger.ms": 4,
        }
    )
    common = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "request.timeout.ms": "1000"}
    assert wiring._spark_client(config, "consumer.", "main.consumer.") == {
        **common,
        "max.poll.records": "3",
        "fetch.min.bytes": "2",
    }
    assert wiring._spark_client(config, "producer.") == {**common, "linger.ms": "4"}


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({}, "read_committed"),
        ({"processing.guarantee": "exactly_once_v2"}, "read_committed"),
        *(
            ({f"{prefix}isolation.level": "read_uncommitted"}, "read_uncommitted")
            for prefix in ("", "consumer.", "main.consumer.", "restore.consumer.", "global.consumer.")
        ),
        (
            {"isolation.level": "read_committed", "consumer.isolation.level": "read_uncommitted"},
            "read_uncommitted",
        ),
    ],
)
def test_spark_and_stores_read_the_same_records_of_transactions(options: dict[str, str], level: str) -> None:
    """A join with a table and its store have the same rows, whichever consumer the level is given for."""
    config = StreamsConfig({**BASE, **options})
    assert wiring._spark_consumer(config)["isolation.level"] == level
    assert restore_consumer_config(config)["isolation.level"] == level


def test_what_is_about_the_group_is_not_for_sparks_consumers() -> None:
    """Java's refuses a session timeout that is not above its own default of the heartbeat (3 s)."""
    group = {"session.timeout.ms": 3000, "heartbeat.interval.ms": 200, "max.poll.interval.ms": 4000}
    config = StreamsConfig({**BASE, **{f"consumer.{name}": value for name, value in group.items()}})
    assert wiring._spark_client(config, "consumer.", "main.consumer.") == {}


def test_sources_start_at_the_beginning_unless_told_otherwise() -> None:
    """Kafka Streams' default differs from the consumer's."""
    assert wiring.offset_reset(StreamsConfig(BASE)) is OffsetReset.EARLIEST
    latest = StreamsConfig({**BASE, "consumer.auto.offset.reset": "Latest"})
    assert wiring.offset_reset(latest) is OffsetReset.LATEST
    none = StreamsConfig({**BASE, "auto.offset.reset": "none"})
    assert wiring.offset_reset(none) is OffsetReset.NONE


def test_sources_can_start_so_far_back() -> None:
    """A duration as Java's Duration.parse reads it; what is below a millisecond is cut off."""
    for text, expected in (
        ("PT1H", 3_600_000),
        ("P1D", 86_400_000),
        ("p2dt3h4m5.0067s", 183_845_006),
        ("PT-1M90S", 30_000),
        ("-PT-2S", 2_000),
        ("PT0S", 0),
        ("PT2,5S", 2_500),
    ):
        config = StreamsConfig({**BASE, "consumer.auto.offset.reset": f"by_duration:{text}"})
        assert wiring.offset_reset(config) == OffsetResetByDuration(expected)


def test_a_serde_of_the_configuration_is_made_of_its_name() -> None:
    """A serde object can be given as well."""
    assert wiring.serde_of("long").name == "long"
    assert wiring.serde_of(None) is None
    serde = Serdes.string()
    assert wiring.serde_of(serde) is serde


@pytest.mark.disk
def test_stores_are_in_rocksdb_or_in_memory(tmp_path: Path) -> None:
    """The topology decides; `default.dsl.store` puts them all in memory."""
    task, config = TaskId(0, 0), StreamsConfig(BASE)
    in_memory = StreamsConfig({**BASE, "default.dsl.store": "in_memory"})
    made = wiring._store(Store("s"), task, tmp_path / "s", config, "id")
    assert isinstance(made, RocksDBStore)
    made.close()
    assert isinstance(wiring._store(Store("s", persistent=False), task, tmp_path, config, "id"), MemoryStore)
    assert isinstance(wiring._store(Store("s"), task, tmp_path, in_memory, "id"), MemoryStore)
