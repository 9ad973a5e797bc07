"""Records of topics, for people: reads a range, or writes; commits nothing.

Pipelines read and write through Spark, and changelogs have consumer.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as NativePartition

from millstream.config import StreamsConfig
from millstream.errors import StreamsException
from millstream.kafka.clients import build, producer_config, restore_consumer_config, unreachable
from millstream.kafka.patience import AWAY, RETRIABLE
from millstream.model import KafkaRecord, TopicPartition

__all__ = ["is_read", "read_records", "write_records"]

_POLL_S = 0.2
_MANY = 500


def read_records(
    config: StreamsConfig,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int] | None = None,
    *,
    timeout_s: float | None = None,
    uncommitted: bool = False,
) -> Iterator[KafkaRecord]:
    """The records from these offsets on, in each partition in its order, as they come.

    Args:
        ends: where to stop, before this offset; None: it goes on until the time is over.
        timeout_s: how long all of it may take; None: as long as it takes.
        uncommitted: also records of transactions that are open or were aborted.

    Raises:
        StreamsException: a partition cannot be read.
    """
    left = {at: end for at, end in (ends or {}).items() if starts.get(at, end) < end}
    if not starts or (ends is not None and not left):
        return
    wanted = starts if ends is None else {at: starts[at] for at in left}
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    consumer = build(
        Consumer,
        {
            **restore_consumer_config(config),
            "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
        },
    )
    try:
        consumer.assign([NativePartition(*at, offset) for at, offset in wanted.items()])
        while deadline is None or time.monotonic() < deadline:
            for message in consumer.consume(_MANY, _POLL_S):
                at = TopicPartition(str(message.topic()), int(message.partition() or 0))
                error = message.error()
                if error is not None and error.code() in RETRIABLE - AWAY:
                    continue
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise StreamsException(
                        f"{at} cannot be read: {error.name()}: {error.str()}; check that the topic exists "
                        f"and that this user is allowed to read it"
                    )
                offset = int(message.offset() or 0)
                if error is None and (ends is None or (at in left and offset < left[at])):
                    yield _record(message)
                if at in left and is_read(offset, left[at], at_end=error is not None):
                    del left[at]
            if ends is not None and not left:
                return
    finally:
        consumer.close()


def is_read(offset: int, end: int, *, at_end: bool) -> bool:
    """Whether nothing more comes before `end`, after the record at this offset, or the end of the partition.

    Behind a transaction that is open the partition ends before its last offset: what follows is not waited
    for, as nobody knows for how long.
    """
    return at_end or offset + 1 >= end


def _record(message: Any) -> KafkaRecord:
    try:
        headers = message.headers() or ()
    except (SystemError, UnicodeDecodeError):  # confluent-kafka: a name that is not UTF-8
        headers = (("(names that are not UTF-8)", None),)
    return KafkaRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.timestamp()[1],
        tuple(headers),
    )


def write_records(config: StreamsConfig, records: Sequence[KafkaRecord]) -> list[KafkaRecord]:
    """Write records, and say where each is.

    A `partition` of -1 lets Kafka's partitioner choose; a `timestamp` of -1 is now.

    Raises:
        StreamsException: one could not be written, or not in time. Those before it may have been.
    """
    timeout_s = config.request_timeout_s
    options = {
        "message.timeout.ms": round(timeout_s * 1000),
        "partitioner": "murmur2_random",  # as Java's clients do it
        **producer_config(config),
        "delivery.report.only.error": False,
    }
    producer = build(Producer, options)
    written: dict[int, KafkaRecord] = {}
    failed: list[KafkaError] = []

    def teller(number: int) -> Callable[[KafkaError | None, Any], None]:
        def on_delivery(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                failed.append(error)
            else:
                written[number] = _record(message)

        return on_delivery

    try:
        for number, record in enumerate(records):
            given: dict[str, Any] = {
                "value": record.value,
                "key": record.key,
                "headers": list(record.headers),
            }
            if record.partition >= 0:
                given["partition"] = record.partition
            if record.timestamp >= 0:
                given["timestamp"] = record.timestamp
            while True:
                try:
                    producer.produce(record.topic, **given, on_delivery=teller(number))
                    break
                except BufferError:
                    producer.poll(_POLL_S)
            producer.poll(0)
        left = producer.flush(timeout_s)
    except KafkaException as error:
        raise _refused(config, error) from error
    if failed:
        raise _refused(config, KafkaException(failed[0]))
    if left:
        raise unreachable(config, f"write {left} records", TimeoutError("no answer in time"))
    return [written[number] for number in range(len(records))]


def _refused(config: StreamsConfig, error: KafkaException) -> StreamsException:
    cause = error.args[0]
    if cause.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
        return unreachable(config, "write a record", error)
    return StreamsException(
        f"a record could not be written: {cause.name()}: {cause.str()}; check that the partition exists, and "
        f"that this user is allowed to write to the topic"
    )
