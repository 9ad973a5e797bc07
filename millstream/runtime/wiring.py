"""The composition root: the only file of the runtime that names Spark, Kafka and RocksDB.

Each is imported when it is needed, so that a client that runs no pipeline does not load pyspark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from millstream.clock import Clock, SystemClock
from millstream.config import StreamsConfig, as_text
from millstream.ports import ChangelogConsumer, Engine, KeyValueBytesStore, Topics
from millstream.topology.nodes import OffsetReset, Store

__all__ = ["Broker", "Parts", "real_parts"]


class Broker(Protocol):
    """A broker of the client's own."""

    @property
    def bootstrap_servers(self) -> str: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Parts:
    """What a client is made of. Each field makes one thing, when it is needed.

    Attributes:
        topics: the cluster's topics.
        engine: takes the configuration, the root of the checkpoints, and the user's Spark session or None.
        changelog: a consumer for one thread's updater.
        store: takes what the topology says, the path for a persistent one, and the task.
        broker: takes a data directory; starts an embedded broker.
    """

    topics: Callable[[StreamsConfig], Topics]
    engine: Callable[[StreamsConfig, str, Any], Engine]
    changelog: Callable[[StreamsConfig], ChangelogConsumer]
    store: Callable[..., KeyValueBytesStore]
    broker: Callable[[Path], Broker]
    clock: Clock = field(default_factory=SystemClock)


def real_parts() -> Parts:
    """Kafka, Spark and RocksDB."""
    return Parts(topics=_topics, engine=_engine, changelog=_changelog, store=_store, broker=_broker)


def _topics(config: StreamsConfig) -> Topics:
    from millstream.kafka.topics import KafkaTopics

    return KafkaTopics(config)


def _changelog(config: StreamsConfig) -> ChangelogConsumer:
    from millstream.kafka.consumer import KafkaChangelogConsumer

    return KafkaChangelogConsumer(config)


def _engine(config: StreamsConfig, checkpoint_root: str, spark: Any) -> Engine:
    from millstream.spark.engine import SparkEngine, SparkSettings

    return SparkEngine(
        SparkSettings(
            application_id=config.application_id,
            bootstrap_servers=",".join(config.bootstrap_servers),
            checkpoint_root=checkpoint_root,
            spark=config.spark,
            consumer=_spark_client(config, "consumer.", "main.consumer."),
            producer=_spark_client(config, "producer."),
            default_key_serde=_serde(config.default_key_serde),
            default_value_serde=_serde(config.default_value_serde),
            offset_reset=_offset_reset(config),
            max_records_per_batch=config.get("max.batch.records"),
            batch_interval=config.commit_interval,
        ),
        spark,
    )


def _store(store: Store, task_id: Any, path: Path, config: StreamsConfig) -> KeyValueBytesStore:
    if not store.persistent or config.in_memory_stores:
        from millstream.stores.memory import MemoryStore

        return MemoryStore(store.name, task_id)
    from millstream.stores.rocksdb import RocksDBStore

    return RocksDBStore(store.name, task_id, path)


def _broker(data_dir: Path) -> Broker:
    from millstream.broker import EmbeddedKafka

    return EmbeddedKafka(data_dir).start()


_COMMON = (
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
)

_SPARKS_OWN = frozenset(
    (
        "auto.offset.reset",  # becomes startingOffsets
        "bootstrap.servers",
        "enable.auto.commit",
        "group.id",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "value.deserializer",
        "value.serializer",
    )
)
"""Client settings that Spark makes itself and refuses to be given."""


def _spark_client(config: StreamsConfig, *prefixes: str) -> dict[str, str]:
    """Client options for Spark's source or sink, in Kafka's names; a later prefix wins."""
    given = config.given
    options = {name: as_text(given[name]) for name in _COMMON if name in given}
    options.update(config.security)
    for prefix in prefixes:
        options.update({name: as_text(value) for name, value in config.with_prefix(prefix).items()})
    return {name: value for name, value in options.items() if name not in _SPARKS_OWN}


def _offset_reset(config: StreamsConfig) -> OffsetReset:
    name = "auto.offset.reset"
    value = {**config.with_prefix("consumer."), **config.with_prefix("main.consumer.")}.get(name, "earliest")
    return OffsetReset(str(value).lower())


def _serde(value: Any) -> Any:
    """The serde that a configuration names, or gives."""
    if not isinstance(value, str):
        return value
    from millstream.dsl.serdes import Serdes

    return getattr(Serdes, value)()
