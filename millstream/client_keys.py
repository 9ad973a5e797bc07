"""Settings of Kafka's clients that are accepted without a prefix, as in Kafka Streams. No behaviour.

`auto.offset.reset` applies to all clients that have it, `consumer.auto.offset.reset` to the consumers, and
`main.consumer.auto.offset.reset` to the one that reads sources; the longer prefix wins.

Source: StreamsConfig.getClientPropsWithPrefix; the names are those of ConsumerConfig, ProducerConfig and
AdminClientConfig that are not keys of Kafka Streams itself.
"""

from __future__ import annotations

__all__ = ["CLIENT_KEYS", "COMMON_KEYS", "KINDS", "MEMBER_KEYS", "NO_EFFECT", "TOPIC_KEYS"]

KINDS = ("consumer.", "producer.", "admin.")

_EACH = (
    "client.dns.lookup",
    "retry.backoff.max.ms",
    "security.providers",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)
_CONSUMER = (
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "check.crcs",
    "client.rack",
    "default.api.timeout.ms",
    "enable.auto.commit",
    "exclude.internal.topics",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.id",
    "group.instance.id",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "interceptor.classes",
    "isolation.level",
    "key.deserializer",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "max.poll.records",
    "partition.assignment.strategy",
    "session.timeout.ms",
    "value.deserializer",
)
_PRODUCER = (
    "acks",
    "batch.size",
    "buffer.memory",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delivery.timeout.ms",
    "enable.idempotence",
    "interceptor.classes",
    "key.serializer",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "metadata.max.idle.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "partitioner.class",
    "partitioner.ignore.keys",
    "retries",
    "transaction.timeout.ms",
    "transactional.id",
    "value.serializer",
)
_ADMIN = ("bootstrap.controllers", "default.api.timeout.ms", "retries")

_BY_KIND = dict(zip(KINDS, ((*_EACH, *_CONSUMER), (*_EACH, *_PRODUCER), (*_EACH, *_ADMIN)), strict=True))

CLIENT_KEYS: dict[str, tuple[str, ...]] = {
    name: tuple(kind for kind in KINDS if name in _BY_KIND[kind])
    for name in sorted({*_EACH, *_CONSUMER, *_PRODUCER, *_ADMIN})
}
"""Each name, and the prefixes of the clients that have it."""

_OFFSETS = "each task commits its offsets together with its results"
_GROUP = "the group is the application's, and the leader's assignor shares out its work"
_BYTES = "records are read and written as bytes; serdes are the topology's"

NO_EFFECT: dict[str, str] = {
    "allow.auto.create.topics": "querying a topic never creates it",
    "auto.commit.interval.ms": _OFFSETS,
    "bootstrap.controllers": "every client talks to brokers",
    "enable.auto.commit": _OFFSETS,
    "exclude.internal.topics": "a pattern matches no internal topics",
    "group.id": "the group is named by application.id",
    "group.instance.id": _GROUP,
    "group.remote.assignor": _GROUP,
    "interceptor.classes": "it names a Java class",
    "key.deserializer": _BYTES,
    "key.serializer": _BYTES,
    "partition.assignment.strategy": _GROUP,
    "transactional.id": "it is derived from application.id and the task",
    "value.deserializer": _BYTES,
    "value.serializer": _BYTES,
}
"""Names that are accepted and change nothing, with the reason."""

COMMON_KEYS = (
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
)
"""Keys of Kafka Streams itself that every client of Kafka's gets."""

MEMBER_KEYS = (
    "group.instance.id",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
    "session.timeout.ms",
)
"""Settings of the group's member, which no other client gets."""

TOPIC_KEYS = ("cleanup.policy", "min.insync.replicas", "retention.ms", "segment.bytes")
"""Settings of topics that users may write without 'topic.', which Kafka Streams does not accept."""
