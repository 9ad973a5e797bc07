"""Reads changelogs, from given offsets, as fast as Python can.

Shape: `poll` returns, per partition, a list of (key, value, timestamp in ms).

A value that is empty may stand for null, if a header says so (model.PARTS_OF_NULL). Headers are read only in
topics that belong to the application alone: a table's own topic is its changelog too, and its headers may be
the user's data.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from operator import methodcaller
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as NativePartition
from confluent_kafka.admin import ClusterMetadata  # type: ignore[attr-defined]  # re-exported implicitly

from millstream import program_end
from millstream.config import StreamsConfig
from millstream.errors import IllegalStateException, StreamsException
from millstream.kafka.clients import build, client_log, restore_consumer_config, unreachable
from millstream.kafka.patience import AWAY, RETRIABLE, Silence
from millstream.model import TopicPartition, is_of_null
from millstream.polling import looks
from millstream.ports import ChangelogBatch, OffsetOutOfRange
from millstream.topology.names import is_internal_topic

__all__ = ["KafkaChangelogConsumer"]

_headers_of = methodcaller("headers")
"""Not `message.headers()`: for a name that is not UTF-8 it returns headers *and* leaves an exception behind,
which the interpreter may then raise anywhere. Called so, it is raised by the call."""
_LOOK_EVERY_S = 0.5
_LOOK_TIMEOUT_S = 1.0
_FIRST_WAIT_S = 5.0
"""How long to wait for offsets before requesting them again, if necessary with a new client."""

_MISSING = frozenset((KafkaError._UNKNOWN_PARTITION, KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART))
"""Errors for a partition that does not exist, or that its broker does not know yet."""
_SETTLE_S = 1.0
"""How long a responding cluster may report these for a partition."""
_SETTLE_EVERY_S = 0.1

_OUT_OF_RANGE = frozenset((KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE))


class KafkaChangelogConsumer:
    """`ports.ChangelogConsumer` on a real cluster. Used by one thread at a time; commits nothing."""

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self._timeout_s = config.request_timeout_s
        self._consumer: Consumer | None = build(Consumer, restore_consumer_config(config))
        program_end.leave_to_parent(self)
        self._silence = Silence()
        self._assigned: tuple[TopicPartition, ...] = ()
        self._next: dict[TopicPartition, int] = {}
        self._topics: frozenset[str] = frozenset()
        self._owned: frozenset[str] = frozenset()
        self._suspects: frozenset[str] = frozenset()
        self._look_at = 0.0

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Read exactly these partitions, each from its offset; None: from the beginning."""
        self._open()
        self._next = {partition: offset for partition, offset in positions.items() if offset is not None}
        self._assigned = tuple(positions)
        self._topics, self._suspects = frozenset(topic for topic, _ in positions), frozenset()
        application_id = self._config.application_id
        self._owned = frozenset(topic for topic in self._topics if is_internal_topic(application_id, topic))
        self._look_at = time.monotonic() + _LOOK_EVERY_S
        self._assign()

    def poll(self, timeout_s: float, max_records: int = 500) -> list[ChangelogBatch]:
        """The records that have arrived; waits up to `timeout_s` for the first one.

        A batch without entries means that the end is at its `next_offset`, after offsets without records.

        Raises:
            OffsetOutOfRange: a position is no longer in the log.
            StreamsException: the cluster refuses.
        """
        consumer = self._open()
        # consume(n, t) would wait for all n; we wait for the first and take the others that have arrived.
        first = consumer.poll(timeout_s)
        if first is None:
            self._look_for_topics()
            return []
        if first.error() is None:
            self._silence.answered()
        messages = [first, *consumer.consume(max_records - 1, 0)] if max_records > 1 else [first]
        return self._batches(messages)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record that is still there."""
        return self._offsets(partitions, OFFSET_BEGINNING)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record."""
        return self._offsets(partitions, OFFSET_END, timeout_s)

    def close(self) -> None:
        """Idempotent."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _batches(self, messages: list[Any]) -> list[ChangelogBatch]:
        # The one loop in Python that every restored record passes; names are bound locally for speed.
        entries: dict[tuple[str, int], list[tuple[bytes, bytes | None, int]]] = {}
        ends: dict[tuple[str, int], int] = {}
        offsets: dict[tuple[str, int], list[int]] = {}
        current: tuple[str, int] | None = None
        append: Any = None
        note: Any = None
        offset = 0
        owned = False
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    ends[message.topic(), message.partition()] = message.offset()
                    continue
                self._raise_if_serious(message, error)
                continue
            where = (message.topic(), message.partition())
            if where != current:
                if current is not None:
                    # The end of a partition may have come before a record of another one, and comes once.
                    ends[current] = max(offset + 1, ends.get(current, 0))
                current = where
                owned = where[0] in self._owned
                append = entries.setdefault(where, []).append
                note = None if owned else offsets.setdefault(where, []).append
            offset = message.offset()
            key = message.key()
            if key is None:
                continue  # tables have no null keys, but a source topic that serves as a changelog may
            content = message.value()
            if content == b"" and owned and _is_of_null(message):
                content = None
            append((key, content, message.timestamp()[1]))
            if note is not None:
                note(offset)
        if current is not None:
            ends[current] = max(offset + 1, ends.get(current, 0))
        return [
            batch
            for where, end in ends.items()
            if (batch := self._batch(where, entries.get(where, []), end, offsets.get(where, [])))
        ]

    def _assign(self) -> None:
        """Assign the native consumer to this one's positions."""
        try:
            self._open().assign(
                [NativePartition(*at, self._next.get(at, OFFSET_BEGINNING)) for at in self._assigned]
            )
        except KafkaException as error:
            raise unreachable(self._config, "read changelogs", error) from error

    def _unanswered(self, waited_s: float) -> None:
        """Handle a time without answers. The native consumer may have lost all broker addresses."""
        if not self._silence.unanswered(waited_s):
            return
        client_log.info("changelog consumer: no broker answers; reconnecting")
        self._open().close()
        self._consumer = build(Consumer, restore_consumer_config(self._config))
        if self._assigned:
            self._assign()

    def _look_for_topics(self) -> None:
        """While nothing arrives, check from time to time that the topics still exist.

        librdkafka does not report to an assigned consumer that a topic is gone.
        """
        if time.monotonic() < self._look_at:
            return
        missing = []
        for topic in self._topics:
            try:
                found = self._listed(topic).topics[topic]
            except KafkaException as error:
                client_log.debug("changelog consumer: %s", error)
                break  # the broker is unavailable, which says nothing about topics
            if found.error is not None and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                missing.append(topic)
        # Seen twice: a topic that was just created may not have reached every broker.
        confirmed = sorted(self._suspects.intersection(missing))
        self._suspects = frozenset(missing)
        self._look_at = time.monotonic() + _LOOK_EVERY_S
        if confirmed:
            raise StreamsException(
                f"changelog '{confirmed[0]}' no longer exists, so its store cannot be kept up to date. "
                f"Start afresh with `millstream reset`"
            )

    def _batch(
        self,
        where: tuple[str, int],
        entries: list[tuple[bytes, bytes | None, int]],
        end: int,
        offsets: list[int],
    ) -> ChangelogBatch | None:
        partition = TopicPartition(*where)
        if not entries and self._next.get(partition) == end:
            return None  # the end again, with nothing new before it
        self._next[partition] = end
        return ChangelogBatch(partition, entries, end, offsets)

    def _raise_if_serious(self, message: Message, error: KafkaError) -> None:
        code = error.code()
        if code in _OUT_OF_RANGE:
            partition = TopicPartition(message.topic() or "", message.partition() or 0)
            raise OffsetOutOfRange(
                f"position {self._next.get(partition)} of changelog partition '{partition}' is not in the "
                f"log: {error.str()}; the topic was truncated, or deleted and created again",
                partition=partition,
            )
        if code in RETRIABLE or code == KafkaError._MAX_POLL_EXCEEDED or error.retriable():
            client_log.debug("changelog consumer: %s", error)
            return
        if error.fatal() or message.topic() is not None:
            raise StreamsException(
                f"changelog '{message.topic() or '?'}' cannot be read: {error.name()}: {error.str()}; "
                "check that the topic exists and that this client is allowed to read it"
            )
        client_log.warning("changelog consumer: %s", error)

    def _offsets(
        self, partitions: Iterable[TopicPartition], which: int, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first or the last offset of all partitions, with one request to each broker.

        A broker answers it after the pending fetch, which may take `fetch.wait.max.ms`; requests for one
        partition at a time (get_watermark_offsets) would wait for that each time.
        """
        asked = [NativePartition(topic, number, which) for topic, number in partitions]
        if not asked:
            return {}
        answers = self._answers(asked, self._timeout_s if timeout_s is None else timeout_s)
        found = {}
        for answer in answers:
            partition = TopicPartition(answer.topic, answer.partition)
            if answer.offset < 0:
                raise unreachable(self._config, f"look up the offsets of '{partition}'", TimeoutError())
            found[partition] = answer.offset
        return found

    def _answers(self, asked: list[NativePartition], timeout_s: float) -> list[NativePartition]:
        """Request until there is an answer for each partition, or no time is left."""
        began, wait_s = time.monotonic(), _FIRST_WAIT_S
        refused: KafkaException | None = None
        heard_at: float | None = None
        without = asked
        for _ in looks(timeout_s, every_s=_SETTLE_EVERY_S):
            asked_at = time.monotonic()
            left_s = max(0.0, began + timeout_s - asked_at)
            try:
                answers = self._open().offsets_for_times(asked, timeout=min(left_s, wait_s))
            except KafkaException as error:
                refused, without = error, asked
            else:
                without = [answer for answer in answers if answer.error is not None]
                if not without:
                    self._silence.answered()
                    return answers
                refused = KafkaException(without[0].error)
            code = refused.args[0].code()
            if code in AWAY:
                self._unanswered(time.monotonic() - asked_at)
                wait_s *= 2
            elif code in _MISSING:
                heard_at = heard_at or self._heard(str(without[0].topic))
                if heard_at is not None and time.monotonic() - heard_at > _SETTLE_S:
                    break
            elif code not in RETRIABLE:
                break
        assert refused is not None, "at least one request was sent"
        names = ", ".join(f"'{each.topic}-{each.partition}'" for each in without[:5])
        raise unreachable(self._config, f"look up the offsets of {names}", refused) from refused

    def _heard(self, topic: str) -> float | None:
        """The time of an answer that the cluster has just given; None: it gave none."""
        try:
            self._listed(topic)
        except KafkaException:
            return None
        return time.monotonic()

    def _listed(self, topic: str) -> ClusterMetadata:
        began = time.monotonic()
        try:
            listed: ClusterMetadata = self._open().list_topics(topic, timeout=_LOOK_TIMEOUT_S)
        except KafkaException:
            self._unanswered(time.monotonic() - began)
            raise
        self._silence.answered()
        return listed

    def _open(self) -> Consumer:
        if self._consumer is None:
            raise IllegalStateException("the changelog consumer is closed")
        return self._consumer


def _is_of_null(message: Message) -> bool:
    try:
        headers = _headers_of(message)
    except (SystemError, UnicodeDecodeError):  # confluent-kafka: a name that is not UTF-8
        client_log.debug("a record of '%s' has headers that Millstream did not write", message.topic())
        return False
    return bool(headers) and is_of_null(headers)
