"""What end-to-end tests do with a real broker: make topics, write and read records, start clients."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from waiting import wait_until

from millstream import (
    KafkaStreams,
    QueryableStoreTypes,
    ReadOnlyKeyValueStore,
    StoreQueryParameters,
    Topology,
)
from millstream.broker import EmbeddedKafka
from millstream.model import KafkaRecord

_numbers = itertools.count(1)


class World:
    """Names made with `name()` are this test's own, so that tests can share a broker."""

    def __init__(
        self, kafka: EmbeddedKafka, directory: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        """`settings` are what each client has besides those of the Spark that all tests share."""
        self.kafka = kafka
        self._settings = settings or {}
        self.directory = directory
        self._number = next(_numbers)
        self._clients: list[KafkaStreams] = []
        # As Kafka's own clients choose partitions: whoever looks for a key looks there.
        partitioner = {"partitioner": "murmur2_random"}
        self._producer = Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 1, **partitioner}
        )

    def name(self, base: str) -> str:
        return f"{base}-{self._number}"

    def topic(self, base: str, partitions: int = 2) -> str:
        """Create a topic; returns its name."""
        name = self.name(base)
        self.kafka.create_topic(name, partitions)
        return name

    def produce(self, topic: str, records: Iterable[tuple[Any, Any]], **more: Any) -> None:
        """Write (key, value) records and wait until the broker has them.

        A producer that has not heard that a topic is another one, with fewer partitions, gives up those that
        it meant for the others: they are written again.
        """
        left, deadline = list(records), time.monotonic() + 30
        while left:
            assert time.monotonic() < deadline, f"{len(left)} records cannot be written to {topic}"
            refused: list[tuple[Any, Any]] = []

            def told(error: Any, _: Any, record: tuple[Any, Any], refused: list[Any] = refused) -> None:
                if error is not None:
                    refused.append(record)

            for key, value in left:
                on_delivery = partial(told, record=(key, value))
                self._producer.produce(topic, value=value, key=key, on_delivery=on_delivery, **more)
                self._producer.poll(0)
            assert self._producer.flush(30) == 0
            left = refused

    def consume(self, topic: str, count: int, timeout_s: float = 60.0) -> list[KafkaRecord]:
        """The first `count` records of a topic, in the order of (partition, offset)."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "group.id": "none",
                "enable.auto.commit": False,
            }
        )
        try:
            partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            records: list[KafkaRecord] = []

            def enough() -> bool:
                for message in consumer.consume(1000, 0.05):
                    assert message.error() is None, message.error()
                    records.append(_record(message))
                return len(records) >= count

            wait_until(enough, f"{count} records in {topic}, there are {records}", timeout_s)
            return sorted(records, key=lambda record: (record.partition, record.offset))
        finally:
            consumer.close()

    def client(self, topology: Topology, application_id: str | None = None, **config: Any) -> KafkaStreams:
        """A client that is RUNNING. Keys of `config` are written with underscores for dots."""
        client = self.created(topology, application_id, **config)
        client.start()
        client.wait_until_running(timedelta(seconds=90))
        return client

    def created(self, topology: Topology, application_id: str | None = None, **config: Any) -> KafkaStreams:
        """A client that is CREATED."""
        settings = {
            "application.id": application_id or self.name("app"),
            "bootstrap.servers": self.kafka.bootstrap_servers,
            "state.dir": str(self.directory / "state"),
            **self._settings,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        client = KafkaStreams(topology, settings)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close(timedelta(seconds=30))
        self._clients.clear()
        del self._producer  # else it goes on looking for the broker, and says so, after the broker is gone


def key_value_store(client: KafkaStreams, name: str) -> ReadOnlyKeyValueStore[Any, Any]:
    return client.store(StoreQueryParameters.from_name_and_type(name, QueryableStoreTypes.key_value_store()))


def content(store: ReadOnlyKeyValueStore[Any, Any]) -> dict[Any, Any]:
    with store.all() as entries:
        return dict(entries)


def values(records: Sequence[KafkaRecord]) -> list[bytes | None]:
    return [record.value for record in records]


def _record(message: Any) -> KafkaRecord:
    return KafkaRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.timestamp()[1],
        tuple(message.headers() or ()),
    )
