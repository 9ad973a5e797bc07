"""What tests of the real engine do: topics on the broker, a topology compiled for it, queries."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as NativePartition
from pyspark.sql import SparkSession
from waiting import wait_until

from millstream import Topology
from millstream.broker import EmbeddedKafka
from millstream.ports import CompiledPipeline, PipelineEnd, RunningPipeline
from millstream.spark.compile.record_handlers import FAIL, RecordHandlers
from millstream.spark.engine import SparkEngine, SparkSettings
from millstream.spark.run.task_run import TaskSettings
from millstream.topology.internal_topics import plan_internal_topics
from millstream.topology.pipeline import writers_first

_numbers = itertools.count(1)

SOON = {"default.api.timeout.ms": "5000", "request.timeout.ms": "5000"}
"""With these Kafka's admin client asks for a deleted topic for five seconds, instead of a minute."""


class EngineWorld:
    """An engine on a given session, and topics of this test's own."""

    def __init__(
        self,
        kafka: EmbeddedKafka,
        directory: Path,
        spark: SparkSession | None,
        *,
        handlers: RecordHandlers = FAIL,
        transaction_timeout_ms: int | None = None,
        consumer: Mapping[str, str] | None = None,
        producer: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.kafka = kafka
        self.directory = directory
        self.number = next(_numbers)
        self.application_id = f"engine-{self.number}"
        self.ends: queue.Queue[PipelineEnd] = queue.Queue()
        self.producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})
        self.engine = SparkEngine(
            SparkSettings(
                application_id=self.application_id,
                bootstrap_servers=kafka.bootstrap_servers,
                spark=settings,
                consumer=consumer or {},
                producer={} if transaction_timeout_ms else {"max.block.ms": "1000"},
                handlers=handlers,
                tasks=self._tasks(consumer or {}, producer or {}, transaction_timeout_ms),
                checkpoints=str(directory / "checkpoints"),
            ),
            spark,
        )

    def _tasks(
        self, consumer: Mapping[str, str], producer: Mapping[str, str], transaction_timeout_ms: int | None
    ) -> TaskSettings:
        servers = {"bootstrap.servers": self.kafka.bootstrap_servers}
        return TaskSettings(
            exactly_once=transaction_timeout_ms is not None,
            commit_ms=100,
            idle_ms=0,
            directory=str(self.directory / "tasks"),
            consumer={**consumer, **servers, "metadata.max.age.ms": "500"},
            producer={
                "transaction.timeout.ms": str(transaction_timeout_ms or 10_000),
                "max.block.ms": "5000",
                **producer,
                **servers,
            },
            global_consumer=servers,
        )

    def topic(self, base: str, partitions: int = 1) -> str:
        name = f"{base}-{self.application_id}"
        self.kafka.create_topic(name, partitions)
        return name

    def produce(self, topic: str, *values: str | bytes | None, key: str = "k") -> None:
        for value in values:
            self.producer.produce(topic, key=key, value=value, partition=0)
        assert self.producer.flush(20) == 0

    def compiled(self, topology: Topology, sources: Iterable[str] = ()) -> list[CompiledPipeline]:
        """Its pipelines, with their internal topics made: one partition each."""
        plan = plan_internal_topics(
            topology, self.application_id, dict.fromkeys([*topology.source_topics, *sources], 1)
        )
        for topic in plan.topics:
            if topic.name not in self.kafka.topics():
                self.kafka.create_topic(topic.name, 1)
        partitions = {name: count or 1 for name, count in plan.partitions.items()}
        return [self.engine.compile(pipeline, partitions) for pipeline in writers_first(topology.pipelines)]

    def start(self, compiled: CompiledPipeline) -> RunningPipeline:
        return self.engine.start(compiled, range(100), self.ends.put)

    def wait_for_end(self, timeout_s: float = 90.0) -> BaseException | None:
        """What ended the query. Kafka's admin client may ask for a deleted topic for a minute (`SOON`)."""
        return self.ends.get(timeout=timeout_s).error

    def wait_until_committed(self, topic: str, records: int) -> None:
        """Wait until so many records of partition 0 of a topic are committed."""
        at = NativePartition(topic, 0)
        consumer = Consumer(
            {"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": self.application_id}
        )
        try:
            wait_until(
                lambda: consumer.committed([at], timeout=10)[0].offset >= records,
                f"{records} records of {at.topic} are committed",
            )
        finally:
            consumer.close()

    def read(self, topic: str, count: int, timeout_s: float = 60.0) -> list[Message]:
        """The first records of partition 0 of a topic."""
        consumer = Consumer(
            {"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": "x", "enable.auto.commit": False}
        )
        try:
            consumer.assign([NativePartition(topic, 0, 0)])
            found: list[Message] = []

            def enough() -> bool:
                found.extend(message for message in consumer.consume(100, 0.05) if message.error() is None)
                return len(found) >= count

            wait_until(enough, f"{count} records in {topic}", timeout_s)
            return found
        finally:
            consumer.close()

    def end_of(self, topic: str) -> int:
        """How many records have been written to partition 0 of a topic."""
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": "x"})
        try:
            return int(consumer.get_watermark_offsets(NativePartition(topic, 0), timeout=20)[1])
        finally:
            consumer.close()

    def close(self) -> None:
        self.engine.close()
        del self.producer
