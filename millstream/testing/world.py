"""A client's surroundings, all of them fake: for tests of the client, in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.clock import Clock, SystemClock
from millstream.config import StreamsConfig
from millstream.model import TaskId
from millstream.ports import ChangelogBatch, KeyValueBytesStore
from millstream.runtime.wiring import Parts
from millstream.stores.memory import MemoryStore
from millstream.testing.fakes import FakeChangelogConsumer, FakeEngine, FakeLog, FakeTopics
from millstream.topology.nodes import Store

__all__ = ["FakeBroker", "FakeWorld"]


class FakeBroker:
    """A broker that is an address."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.closed = False

    @property
    def bootstrap_servers(self) -> str:
        return "127.0.0.1:19092"

    def close(self) -> None:
        self.closed = True


class _QuickConsumer(FakeChangelogConsumer):
    """Waits a few milliseconds at most, so that who closes it does not wait long either."""

    def poll(self, timeout_s: float, max_records: int = 10_000) -> list[ChangelogBatch]:
        return super().poll(min(timeout_s, 0.005), max_records)


class FakeWorld:
    """Makes `Parts` of fakes, and remembers what a client took of them.

    Attributes:
        topics: the cluster; a client's `close()` closes it.
        log: the changelogs, in memory.
        engine: what Spark is here, the present client's; engines counts how often one was asked for.
        engine_error, broker_error: raised instead of making one.
        stores: every store that was opened.
    """

    def __init__(self, topics: Mapping[str, int] | None = None, clock: Clock | None = None) -> None:
        self.topics = FakeTopics(topics)
        self.log = FakeLog()
        self.engine = FakeEngine()
        self.engines = 0
        self.engine_error: BaseException | None = None
        self.broker: FakeBroker | None = None
        self.broker_error: BaseException | None = None
        self.consumers: list[FakeChangelogConsumer] = []
        self.stores: list[MemoryStore] = []
        self.configs: list[StreamsConfig] = []
        self._clock = clock or SystemClock()

    def parts(self) -> Parts:
        """For `KafkaStreams(topology, config, parts=world.parts())`."""
        return Parts(
            topics=self._make_topics,
            engine=self._make_engine,
            changelog=self._make_consumer,
            store=self._make_store,
            broker=self._make_broker,
            clock=self._clock,
        )

    @property
    def everything_closed(self) -> bool:
        """Whether a client that took things has closed them all."""
        return (
            all(consumer.closed for consumer in self.consumers)
            and not any(store.is_open for store in self.stores)
            and (self.topics.closed or not self.configs)
            and (self.engine.closed or not self.engines)
            and (self.broker is None or self.broker.closed)
        )

    def _make_topics(self, config: StreamsConfig) -> FakeTopics:
        self.configs.append(config)
        self.topics.closed = False  # another connection to the same cluster
        return self.topics

    def _make_engine(self, config: StreamsConfig, checkpoint_root: str, spark: Any) -> FakeEngine:
        self.engines += 1
        if self.engine_error is not None:
            raise self.engine_error
        if self.engine.closed:
            self.engine = FakeEngine()
        return self.engine

    def _make_consumer(self, config: StreamsConfig) -> FakeChangelogConsumer:
        consumer = _QuickConsumer(self.log)
        self.consumers.append(consumer)
        return consumer

    def _make_store(
        self, store: Store, task_id: TaskId, path: Path, config: StreamsConfig
    ) -> KeyValueBytesStore:
        made = MemoryStore(store.name, task_id)
        self.stores.append(made)
        return made

    def _make_broker(self, data_dir: Path) -> FakeBroker:
        if self.broker_error is not None:
            raise self.broker_error
        self.broker = FakeBroker(data_dir)
        return self.broker
