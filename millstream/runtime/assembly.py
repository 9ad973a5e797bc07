"""What a started client holds, opened in one order and closed in the reverse one.

Neither knows states: `client.py` decides when. What stream threads need of the client's resources they get
here (`thread.Supplies`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from millstream.config import StreamsConfig, as_text
from millstream.errors import StreamsException
from millstream.model import TaskId, TopicPartition
from millstream.ports import CompiledPipeline, InternalTopic, KeyValueBytesStore, PipelineEnd, RunningPipeline
from millstream.runtime.assignment import Share, StorePart, distribute
from millstream.runtime.checkpoints import Checkpoints
from millstream.runtime.pipelines import Pipelines
from millstream.runtime.preparation import ensure_internal, source_partitions
from millstream.runtime.thread import Updater
from millstream.runtime.view import ClientView
from millstream.runtime.wiring import Parts
from millstream.stores.directory import StateDirectory
from millstream.stores.updater import StateRestoreListener, StoreUpdater
from millstream.topology.internal_topics import InternalTopics, plan_internal_topics
from millstream.topology.topology import Topology

__all__ = ["Assembly", "ClosedMeanwhile", "store_parts"]

log = logging.getLogger(__name__)

_ENGINE_CLOSE_S = 30.0


class ClosedMeanwhile(Exception):
    """No error: how close() ends a start() that is still going on."""


def store_parts(plan: InternalTopics) -> list[StorePart]:
    """Every part of every store that a topic fills."""
    return [
        StorePart(TaskId(place.subtopology, partition), place.store, TopicPartition(place.topic, partition))
        for place in plan.stores.values()
        if place.topic is not None
        for partition in range(place.partitions)
    ]


class Assembly:
    """The directory, the broker, the topics and the pipelines of one client."""

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        parts: Parts,
        spark: Any,
        directory: StateDirectory,
        view: ClientView,
    ) -> None:
        self._topology = topology
        self._config = config
        self._parts = parts
        self._spark = spark
        self._directory = directory
        self._view = view
        self._held = ExitStack()
        self._pipelines: Pipelines | None = None
        self.listener: StateRestoreListener | None = None

    @property
    def config(self) -> StreamsConfig:
        """The configuration; with an embedded broker, its address once it runs."""
        return self._config

    def prepare(self, threads: Sequence[str], wanted: Callable[[], bool]) -> Mapping[str, Share]:
        """Everything up to the threads: each one's share of the work, by its name.

        `wanted` is asked between the steps.

        Raises:
            ClosedMeanwhile: `wanted` said no.
            LockException, BrokerException, MissingSourceTopicException, InternalTopicException,
            TopologyException, StreamsException: what is in the way.
        """

        def step() -> None:
            if not wanted():
                raise ClosedMeanwhile

        pipelines = self._topology.pipelines
        # 1. The state directory first: an embedded broker keeps its data in it.
        self._directory.lock()
        self._hold("state directory", self._directory.close)
        # 2. Whether the checkpoints are this program's, before anything is created.
        checkpoints = Checkpoints(self._config, self._directory.path)
        checkpoints.check(pipelines)
        step()
        # 3. The broker, if it is ours, and the way to it.
        embedded = self._config.embedded
        if embedded:
            broker = self._parts.broker(self._directory.path / "kafka")
            self._hold("embedded broker", broker.close)
            self._config = self._config.replace({"bootstrap.servers": broker.bootstrap_servers})
            log.info("embedded broker is at %s", broker.bootstrap_servers)
        step()
        topics = self._parts.topics(self._config)
        self._hold("admin client", topics.close)
        # 4. Topics: those of the program have to be there, ours are made.
        servers = ",".join(self._config.bootstrap_servers)
        counts = source_partitions(topics, pipelines, servers, create_missing=embedded)
        step()
        plan = plan_internal_topics(self._topology, self._config.application_id, counts)
        wanted_topics = [self._configured(topic, plan) for topic in plan.topics]
        ensure_internal(topics, wanted_topics, self._config.replication_factor)
        step()
        # 5. Who does what. The engine starts when the first thread asks for it.
        self._view.partitions_known({name: place.partitions for name, place in plan.stores.items()})
        running = Pipelines(
            lambda: self._parts.engine(self._config, checkpoints.root, self._spark),
            pipelines,
            plan.partitions,
            self._compiled,
        )
        self._pipelines = running
        self._hold("pipelines", lambda: running.close(_ENGINE_CLOSE_S))
        return distribute([pipeline.name for pipeline in pipelines], store_parts(plan), threads)

    def close(self) -> None:
        """Close everything, last opened first. What does not close is logged, and the rest closed."""
        self._held.close()

    # --- what threads need (thread.Supplies) -------------------------------------------------------------

    def open_store(self, part: StorePart) -> KeyValueBytesStore:
        path = self._directory.store_path(part.task_id, part.store.name)
        return self._parts.store(part.store, part.task_id, path, self._config)

    def make_updater(
        self,
        name: str,
        on_failure: Callable[[BaseException], None],
        on_restored: Callable[[TopicPartition], None],
        on_restoring: Callable[[TopicPartition], None],
    ) -> Updater:
        return StoreUpdater(
            name,
            self._parts.changelog(self._config),
            on_failure=on_failure,
            listener=self.listener,
            on_restored=on_restored,
            on_restoring=on_restoring,
            clock=self._parts.clock,
        )

    def start_pipeline(self, name: str, on_end: Callable[[PipelineEnd], None]) -> RunningPipeline:
        if self._pipelines is None:
            raise StreamsException("the client is not prepared")
        return self._pipelines.start(name, on_end)

    def store_opened(self, thread: str, part: StorePart, store: KeyValueBytesStore) -> None:
        self._view.opened(thread, part, store)

    def store_restored(self, partition: TopicPartition) -> None:
        self._view.restored(partition)

    def store_restoring(self, partition: TopicPartition) -> None:
        self._view.restoring(partition)

    def stores_closing(self, thread: str) -> None:
        self._view.closing(thread)

    def _configured(self, topic: InternalTopic, plan: InternalTopics) -> InternalTopic:
        """The topic with the configuration's `topic.*`; what a store asks for itself goes before it."""
        asked: dict[str, str] = {}
        for place in plan.stores.values():
            if place.topic == topic.name:
                asked.update(place.store.topic_config)
        given = {name: as_text(value) for name, value in self._config.with_prefix("topic.").items()}
        # A changelog that is not compacted would lose keys, whatever is configured for topics in general.
        given.pop("cleanup.policy", None)
        return InternalTopic(topic.name, topic.partitions, {**topic.configs, **given, **asked})

    def _compiled(self, compiled: Mapping[str, CompiledPipeline]) -> None:
        for each in compiled.values():
            self._view.compiled(each.store_serdes)

    def _hold(self, what: str, close: Callable[[], None]) -> None:
        def closing() -> None:
            try:
                close()
            except Exception:
                # The next thing must be closed all the same, and nobody can do anything about this one.
                log.exception("%s did not close cleanly", what)

        self._held.callback(closing)
