"""The composition root: the only file of the runtime that names Spark, Kafka and RocksDB.

Each is imported when it is needed, so that a client that runs no pipeline does not load pyspark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from millstream.client_keys import COMMON_KEYS, MEMBER_KEYS
from millstream.clock import Clock, SystemClock
from millstream.config import StreamsConfig, as_text, reset_of
from millstream.errors import ConfigException, TopologyException
from millstream.permissions import umask_of_children
from millstream.ports import BytesStore, ChangelogConsumer, Engine, GroupMember, Groups, Membership, Topics
from millstream.registry.registry_settings import RegistrySettings
from millstream.topology.nodes import OffsetReset, OffsetResetByDuration, OffsetResetPolicy, Store

__all__ = ["Broker", "Parts", "QueryServing", "default_extractor", "offset_reset", "real_parts", "serde_of"]

_EXTRACTOR = "default.timestamp.extractor"


class Broker(Protocol):
    """The client's own broker."""

    @property
    def bootstrap_servers(self) -> str: ...

    def close(self) -> None: ...


class QueryServing(Protocol):
    """The client's query server."""

    @property
    def url(self) -> str: ...

    @property
    def failure(self) -> BaseException | None:
        """Why it no longer answers although it was not closed."""

    def close(self) -> bool: ...


@dataclass(frozen=True)
class Parts:
    """The parts of a client. Each field creates one of them when it is needed.

    Attributes:
        topics: the cluster's topics.
        engine: takes the configuration, an event that makes it give up starting, and the user's Spark
            session or None.
        changelog: a consumer for one thread's updater.
        store: takes the topology's store, the task, the path for a persistent one, the configuration, and the
            id of the topic that fills it (None: unknown).
        broker: takes a data directory; starts an embedded broker.
        membership: takes the configuration, the client's side, the source topics, the client id, the process
            id of the state directory (which is locked), and the name of its thread; it has not joined yet.
        groups: consumer groups, as an administrator sees them.
        query_server: takes the client and the configuration; returns a running server, or None.
    """

    topics: Callable[[StreamsConfig], Topics]
    engine: Callable[[StreamsConfig, threading.Event, Any], Engine]
    changelog: Callable[[StreamsConfig], ChangelogConsumer]
    store: Callable[..., BytesStore]
    broker: Callable[[Path], Broker]
    membership: Callable[[StreamsConfig, GroupMember, Sequence[str], str, str, str], Membership]
    groups: Callable[[StreamsConfig], Groups]
    query_server: Callable[[Any, StreamsConfig], QueryServing | None] = field(default=lambda *_: None)
    clock: Clock = field(default_factory=SystemClock)


def real_parts() -> Parts:
    """Kafka, Spark and RocksDB."""
    return Parts(
        topics=_topics,
        engine=_engine,
        changelog=_changelog,
        store=_store,
        broker=_broker,
        membership=_membership,
        groups=_groups,
        query_server=_query_server,
    )


def _topics(config: StreamsConfig) -> Topics:
    from millstream.kafka.topics import KafkaTopics

    return KafkaTopics(config)


def _changelog(config: StreamsConfig) -> ChangelogConsumer:
    from millstream.kafka.consumer import KafkaChangelogConsumer

    return KafkaChangelogConsumer(config)


def _engine(config: StreamsConfig, closing: threading.Event, spark: Any) -> Engine:
    from millstream.spark.compile.record_handlers import RecordHandlers
    from millstream.spark.engine import SparkEngine, SparkSettings

    return SparkEngine(
        SparkSettings(
            application_id=config.application_id,
            bootstrap_servers=",".join(config.bootstrap_servers),
            spark=_spark_settings(config),
            consumer=_spark_consumer(config),
            producer=_spark_client(config, "producer."),
            default_key_serde=serde_of(config.default_key_serde),
            default_value_serde=serde_of(config.default_value_serde),
            cached=config.has_cache,
            offset_reset=offset_reset(config),
            handlers=RecordHandlers.of(config),
            timestamp_extractor=default_extractor(config),
            registry=RegistrySettings.of(config.given, config.application_id),
            checkpoints=config.checkpoints,
            tasks=_tasks(config),
        ),
        spark,
        closing=closing,
    )


def _tasks(config: StreamsConfig) -> Any:
    from millstream.spark.run.task_run import TaskSettings
    from millstream.stores.directory import TASKS

    servers = {"bootstrap.servers": ",".join(config.bootstrap_servers)}
    reading = {
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "max.poll.records": "5000",
        "fetch.max.wait.ms": "500",
    }
    isolation = {"isolation.level": config.isolation_level}
    writing = {"linger.ms": "0", "batch.size": "262144", "max.block.ms": "60000"}
    timeout = {"transaction.timeout.ms": str(config.transaction_timeout_ms)}
    return TaskSettings(
        exactly_once=config.exactly_once,
        commit_ms=config["commit.interval.ms"],
        idle_ms=config["max.task.idle.ms"],
        purge_ms=config["repartition.purge.interval.ms"],
        buffered=config["buffered.records.per.partition"],
        timeout_ms=config["task.timeout.ms"],
        offset_reset=offset_reset(config),
        reads_lost_anew=config["source.lost.policy"] == "from-beginning",
        directory=str(Path(config.state_dir, config.application_id, TASKS)),
        consumer={**reading, **_spark_consumer(config), **servers},
        producer={**writing, **timeout, **_spark_client(config, "producer."), **servers},
        global_consumer={
            **reading,
            **_spark_client(config, "consumer.", "global.consumer."),
            **isolation,
            **servers,
        },
    )


def _spark_settings(config: StreamsConfig) -> dict[str, str]:
    """Settings of the Spark session: configured ones, and those that follow from the rest of the
    configuration."""
    settings = config.spark
    if config.lets_group_write:
        settings.setdefault(
            "spark.hadoop.fs.permissions.umask-mode", f"{umask_of_children(group_writes=True):03o}"
        )
    return settings


def _store(store: Store, task_id: Any, path: Path, config: StreamsConfig, topic_id: str | None) -> BytesStore:
    from millstream.stores.opening import open_store

    return open_store(store, task_id, path, in_memory=config.in_memory_stores, topic_id=topic_id)


def _membership(
    config: StreamsConfig,
    member: GroupMember,
    topics: Sequence[str],
    client_id: str,
    process_id: str,
    thread_name: str,
) -> Membership:
    from millstream.kafka.membership import KafkaMembership

    return KafkaMembership(
        config, member, topics, client_id=client_id, process_tag=process_id, thread_name=thread_name
    )


def _broker(data_dir: Path) -> Broker:
    from millstream.broker import EmbeddedKafka

    return EmbeddedKafka(data_dir).start()


def _groups(config: StreamsConfig) -> Groups:
    from millstream.kafka.groups import KafkaGroups

    return KafkaGroups(config)


def _query_server(streams: Any, config: StreamsConfig) -> QueryServing | None:
    if not (config["query.server.enabled"] or config["ui.enabled"]):
        return None
    from millstream.server.serving import query_server

    return query_server(streams, config)


_SPARKS_OWN = frozenset(
    (
        "auto.offset.reset",  # becomes startingOffsets
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "bootstrap.servers",
        "enable.auto.commit",
        "exclude.internal.topics",
        "group.id",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "value.deserializer",
        "value.serializer",
        "transactional.id",
        # Java's consumer would compare one of these with its own defaults of the others, and refuse it.
        *MEMBER_KEYS,
    )
)
"""Client settings that Spark sets itself and refuses, or does not use."""


def _spark_consumer(config: StreamsConfig) -> dict[str, str]:
    """Client options of Spark's sources. Of a topic that is also a table, the store has the same records."""
    return {
        **_spark_client(config, "consumer.", "main.consumer."),
        "isolation.level": config.isolation_level,
    }


def _spark_client(config: StreamsConfig, *prefixes: str) -> dict[str, str]:
    """Client options for Spark's source or sink, in Kafka's names; a later prefix wins."""
    from millstream.kafka.login import for_java

    given = config.given
    options = {name: as_text(given[name]) for name in COMMON_KEYS if name in given}
    options.update({name: as_text(value) for name, value in config.client_options(*prefixes).items()})
    options.update(for_java(config.security(*prefixes)))
    return {name: value for name, value in options.items() if name not in _SPARKS_OWN}


def offset_reset(config: StreamsConfig) -> OffsetResetPolicy:
    name = "auto.offset.reset"
    reset = reset_of(config.client_options("consumer.", "main.consumer.").get(name, "earliest"))
    return OffsetReset(reset) if isinstance(reset, str) else OffsetResetByDuration(reset)


def default_extractor(config: StreamsConfig) -> Any:
    """The timestamp extractor for sources without one of their own; None: Kafka's default.

    Raises:
        ConfigException: the configured value is not an extractor.
    """
    from millstream.dsl.timestamps import extractor

    try:
        return extractor(config.get(_EXTRACTOR), f"'{_EXTRACTOR}'")
    except TopologyException as error:
        raise ConfigException(str(error)) from None


def serde_of(value: Any) -> Any:
    """The serde that a configuration names or contains."""
    if not isinstance(value, str):
        return value
    from millstream.serdes.serdes import Serdes

    return getattr(Serdes, value)()
