"""Writes records from Python, for demonstrations and tools; the records of a topology are Spark's."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from millstream import program_end
from millstream.config import StreamsConfig
from millstream.errors import IllegalStateException, StreamsException
from millstream.kafka.clients import client_log, producer_config, unreachable

__all__ = ["RecordProducer"]

_WAIT_S = 0.05
_SERVE_EVERY = 1000


class RecordProducer:
    """Sends records; each is written once, whatever is tried again. Used by one thread, closed by any.

    It is not made anew when nobody answers, as other clients are (`kafka/patience.py: Silence`): librdkafka
    does not tell which records may have been written already, and a new producer could write them twice. So
    one that has lost an only broker says that it cannot reach it.
    """

    def __init__(self, config: StreamsConfig) -> None:
        """Connects when the first record is sent."""
        self._config = config
        self._timeout_s = config.request_timeout_s
        self._closed = threading.Event()
        self._failure: KafkaError | None = None
        self._sent = 0
        self._producer: Any = Producer(
            {"message.timeout.ms": round(self._timeout_s * 1000), **producer_config(config)},
            logger=client_log,
        )
        program_end.leave_to_parent(self)

    def send(self, topic: str, value: bytes | None, key: bytes | None = None) -> None:
        """Hand a record over; waits while too many are on their way.

        Raises:
            StreamsException: an earlier record could not be written.
            IllegalStateException: it was closed.
        """
        while True:
            self._check()
            try:
                self._producer.produce(topic, value=value, key=key, on_delivery=self._delivered)
                break
            except BufferError:
                self._producer.poll(_WAIT_S)
        self._sent += 1
        if self._sent % _SERVE_EVERY == 0:
            self._producer.poll(0)

    def flush(self) -> None:
        """Wait until every record is written.

        Raises:
            StreamsException: one could not be, or not in time (`request.timeout.ms` without an answer).
            IllegalStateException: it was closed meanwhile.
        """
        left = len(self._producer)
        deadline = time.monotonic() + self._timeout_s
        while left:
            self._check()
            now = self._producer.flush(_WAIT_S)
            if now < left:
                deadline = time.monotonic() + self._timeout_s
            elif time.monotonic() > deadline:
                raise unreachable(self._config, f"write {now} records", TimeoutError("no answer in time"))
            left = now
        self._check()

    def close(self) -> None:
        """Drop what is not written yet, and end. Idempotent."""
        if not self._closed.is_set():
            self._closed.set()
            self._producer.purge()

    def __enter__(self) -> RecordProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is not None and self._failure is None:
            self._failure = error

    def _check(self) -> None:
        if self._closed.is_set():
            raise IllegalStateException("the producer is closed")
        failure = self._failure
        if failure is None:
            return
        cause = KafkaException(failure)
        if failure.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            raise unreachable(self._config, "write a record", cause) from cause
        raise StreamsException(
            f"a record could not be written: {failure.name()}: {failure.str()}; see that the topic exists "
            "and takes records of this size"
        ) from cause
