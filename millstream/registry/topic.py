"""The log of `millstream registry` in a compacted topic of one partition, in the form of Confluent's
`_schemas`.

For one registry at a time: there is no leader election.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millstream.errors import SchemaRegistryException
from millstream.registry.state import Change

__all__ = ["RegistryTopic"]

_TIMEOUT_S = 30.0


class RegistryTopic:
    """Reads and writes the topic, which is created if missing.

    Args:
        options: options for librdkafka's clients, such as `bootstrap.servers`.

    Raises, from all methods:
        SchemaRegistryException: Kafka does not respond.
    """

    def __init__(self, options: Mapping[str, Any], topic: str = "_schemas") -> None:
        self._options = dict(options)
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {**self._options, "acks": "all", "enable.idempotence": True, "linger.ms": 0}
        )
        self._create()

    def _create(self) -> None:
        admin = AdminClient(self._options)
        try:
            if self._topic in admin.list_topics(timeout=_TIMEOUT_S).topics:
                return
            wanted = NewTopic(self._topic, 1, -1, config={"cleanup.policy": "compact"})
            admin.create_topics([wanted])[self._topic].result(_TIMEOUT_S)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._failed("created", error) from error

    def load(self) -> list[Change]:
        """All records of the topic, in order."""
        consumer = confluent_kafka.Consumer(
            {
                **self._options,
                "group.id": "millstream-registry",
                "enable.auto.commit": False,
                "enable.partition.eof": True,  # offsets are no proof: the last records may be compacted away
            }
        )
        changes: list[Change] = []
        try:
            consumer.assign([confluent_kafka.TopicPartition(self._topic, 0, 0)])
            deadline = time.monotonic() + _TIMEOUT_S
            while True:
                record = consumer.poll(1.0)
                error = None if record is None else record.error()
                if record is not None and error is None:
                    if (change := _change(record.key(), record.value())) is not None:
                        changes.append(change)
                elif error is not None and error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    break
                elif time.monotonic() > deadline:
                    raise SchemaRegistryException(
                        f"the topic '{self._topic}' cannot be read to its end: {error or 'no answer'}"
                    )
        except confluent_kafka.KafkaException as error:
            raise self._failed("read", error) from error
        finally:
            consumer.close()
        return changes

    def append(self, changes: Sequence[Change]) -> None:
        """Write the records; return when the topic has them."""
        failed: list[Any] = []
        for key, value in changes:
            self._producer.produce(
                self._topic,
                key=json.dumps(key, separators=(",", ":")),
                value=None if value is None else json.dumps(value, separators=(",", ":")),
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        if self._producer.flush(_TIMEOUT_S) or failed:
            raise SchemaRegistryException(
                f"a schema could not be written to the topic '{self._topic}': {failed or 'no answer'}"
            )

    def _failed(self, what: str, error: Exception) -> SchemaRegistryException:
        return SchemaRegistryException(f"the topic '{self._topic}' cannot be {what}: {error}")


def _change(key: bytes | None, value: bytes | None) -> Change | None:
    try:
        named = json.loads(key or b"null")
        said = None if value is None else json.loads(value)
    except ValueError:
        return None
    return (named, said) if isinstance(named, dict) else None
