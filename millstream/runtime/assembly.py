"""The resources of a started client, opened in order and closed in the reverse order.

Nothing here depends on states: `client.py` decides when to open and close. What stream threads need of the
client's resources is here too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from millstream.config import StreamsConfig, as_text
from millstream.errors import MissingSourceTopicException, ProcessorStateException, StreamsException
from millstream.metrics.client_metrics import ClientMetrics, MetricsView, client_metrics, rocksdb_readings
from millstream.metrics.rocksdb_metrics import RocksDBMetricsRecorder
from millstream.model import TaskId, TopicPartition
from millstream.ports import (
    BytesStore,
    CompiledPipeline,
    GroupMember,
    Membership,
    PipelineEnd,
    RunningPipeline,
    TopicDescription,
    Topics,
)
from millstream.processors.filling import filled
from millstream.registry.registry_settings import RegistrySettings
from millstream.runtime.measuring import Measuring
from millstream.runtime.pipelines import Pipelines
from millstream.runtime.standby_tasks import StandbyTasks
from millstream.runtime.state.assignment import StorePart
from millstream.runtime.state.work_plan import WorkPlan, store_parts, tasks_of
from millstream.runtime.threads.cleaner import StateCleaner
from millstream.runtime.threads.global_tables import declared_serdes, find_global_parts
from millstream.runtime.threads.source_records import SourceRecords, source_serdes
from millstream.runtime.threads.store_thread import Updater
from millstream.runtime.topics.preparation import (
    check_dead_letters,
    ensure_internal,
    source_descriptions,
    with_existing_counts,
)
from millstream.runtime.topics.topic_news import source_patterns, written_topics
from millstream.runtime.topics.topic_uses import TopicRole, TopicUse, topics_of
from millstream.runtime.topics.topic_watch import TopicWatch
from millstream.runtime.view import ClientView
from millstream.runtime.wiring import Parts, serde_of
from millstream.serdes.registered import bound
from millstream.serdes.serde import SerdePair
from millstream.stores.directory import StateDirectory
from millstream.stores.updater import StateRestoreListener, StoreUpdater
from millstream.topology.internal_topics import InternalTopic, InternalTopics, plan_internal_topics
from millstream.topology.names import is_internal_topic
from millstream.topology.nodes import FrameTable
from millstream.topology.topology import Topology

__all__ = ["Assembly", "ClosedMeanwhile"]

log = logging.getLogger(__name__)

_ENGINE_CLOSE_S = 2.0
"""How long closing waits for a Spark that is just starting. It ends by itself later: see pipelines.py."""


class ClosedMeanwhile(Exception):
    """Not an error: how close() ends a start() in progress."""


class _OfActive:
    """Reports to a listener the stores that are restored to be read, but not standbys, which never finish. A
    standby that becomes active is restored for the remaining distance.

    Source: KIP-988; standbys have a listener of their own (standby_updates.py).
    """

    def __init__(self, listener: StateRestoreListener, is_standby: Callable[[TopicPartition], bool]) -> None:
        self._listener = listener
        self._is_standby = is_standby

    def on_restore_start(
        self, partition: TopicPartition, store: str, starting_offset: int, ending_offset: int
    ) -> None:
        if not self._is_standby(partition):
            self._listener.on_restore_start(partition, store, starting_offset, ending_offset)

    def on_batch_restored(
        self, partition: TopicPartition, store: str, batch_end_offset: int, num_restored: int
    ) -> None:
        if not self._is_standby(partition):
            self._listener.on_batch_restored(partition, store, batch_end_offset, num_restored)

    def on_restore_end(self, partition: TopicPartition, store: str, total_restored: int) -> None:
        if not self._is_standby(partition):
            self._listener.on_restore_end(partition, store, total_restored)


class Assembly:
    """The directory, the broker, the topics, the place in the group and the pipelines of one client."""

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        parts: Parts,
        spark: Any,
        directory: StateDirectory,
        view: ClientView,
        client_id: str,
        measuring: Measuring,
        *,
        on_compiled: Callable[[Mapping[str, tuple[str, str]]], object] = lambda serdes: None,
        on_standbys: Callable[[], object] = lambda: None,
    ) -> None:
        self._topology = topology
        self._config = config
        self._embedded = config.embedded
        self._parts = parts
        self._spark = spark
        self._directory = directory
        self._view = view
        self._client_id = client_id
        self._measuring = measuring
        self._held = ExitStack()
        self._cleaner: StateCleaner | None = None
        self._recorder: RocksDBMetricsRecorder | None = None
        self._pipelines: Pipelines | None = None
        self._standbys: StandbyTasks | None = None
        self._topics: Topics | None = None
        self._topic_ids: dict[str, str] = {}
        self._global_topics: Mapping[str, TopicDescription] = {}
        self.serdes: Mapping[str, tuple[str, str]] = {}
        self.global_partitions: Mapping[str, frozenset[TopicPartition]] = dict.fromkeys(
            topology.global_stores, frozenset()
        )
        """The parts that fill each global store; unknown until the global thread has checked."""
        self.listener: StateRestoreListener | None = None
        self._on_compiled = on_compiled
        self._on_standbys = on_standbys
        self._interrupted = False

    @property
    def config(self) -> StreamsConfig:
        """The configuration; with an embedded broker, its address once it runs."""
        return self._config

    @property
    def topics(self) -> Topics:
        """The cluster's topics, once `open` has connected."""
        if self._topics is None:
            raise StreamsException("the client has not reached Kafka yet; try again once it is RUNNING")
        return self._topics

    @property
    def is_warm(self) -> bool:
        """Whether a pipeline can start without waiting for Spark."""
        return self._pipelines is not None and self._pipelines.is_warm

    # --- opening and closing -----------------------------------------------------------------------------

    def open(self, wanted: Callable[[], bool]) -> None:
        """Open everything that does not depend on topics. `wanted` is called between the steps.

        Raises:
            ClosedMeanwhile: `wanted` said no.
            LockException, BrokerException, TopologyException, StreamsException: what prevents it.
        """

        def step() -> None:
            if not wanted():
                raise ClosedMeanwhile

        step()  # a close() before this has closed what was open then, and does not come back
        # 1. The state directory first: an embedded broker keeps its data in it.
        self._directory.lock()
        self.hold("state directory", self._directory.close)
        self._view.compiled(self._declared_serdes())
        step()
        # 2. The broker, if it is ours, and the way to it.
        if self._embedded:
            broker = self._parts.broker(self._directory.path / "kafka")
            self.hold("embedded broker", broker.close)
            self._config = self._config.replace({"bootstrap.servers": broker.bootstrap_servers})
            log.info("embedded broker listens at %s", broker.bootstrap_servers)
        step()
        self._topics = self._parts.topics(self._config)
        self.hold("admin client", self._topics.close)

    def plan(self) -> WorkPlan:
        """Check the topics: the program's must exist, and the internal ones are created.

        Raises:
            MissingSourceTopicException, InternalTopicException, StreamsException: what prevents it.

        An internal topic that is missing is created, even if the application had it before: then its tasks
        know the id that it had, from their committed offsets, and fail (LostTopicException).
        """
        topics, pipelines = self.topics, self._topology.pipelines
        servers = ",".join(self._config.bootstrap_servers)
        sources = source_descriptions(
            topics, pipelines, self._config.application_id, servers, create_missing=self._embedded
        )
        dead_letters = self._config.dead_letter_topic if self._drops_records else None
        check_dead_letters(
            topics,
            dead_letters,
            sources,
            source_patterns(pipelines),
            servers,
            create_missing=self._embedded,
        )
        counts = {name: topic.partitions for name, topic in sources.items()}
        plan = plan_internal_topics(
            self._topology,
            self._config.application_id,
            counts,
            additional_retention_ms=self._config["windowstore.changelog.additional.retention.ms"],
        )
        plan = with_existing_counts(
            plan,
            topics.look([topic.name for topic in plan.topics], patient=True),
            self._topology,
            self._config.application_id,
        )
        wanted = [self._configured(topic, plan) for topic in plan.topics]
        ensure_internal(topics, wanted, self._config.replication_factor)
        filling = {part.changelog.topic for part in store_parts(plan)}
        found = topics.look(filling, patient=True)
        self._topic_ids.update({name: topic.topic_id for name, topic in found.items()})
        self._view.partitions_known({name: place.partitions for name, place in plan.stores.items()})
        standbys = self._standbys = StandbyTasks(
            lambda tasks: running.follow(tasks), self._on_standbys, f"{self._client_id}-Standbys"
        )
        running = Pipelines(
            lambda closing: self._parts.engine(self._config, closing, self._spark),
            self._topology.queries,
            plan.partitions,
            self._compiled,
            f"{self._client_id}-SparkStart",
            on_ready=standbys.wake,
        )
        self._pipelines = running
        if self._interrupted:
            running.interrupt()
        self.hold("pipelines", lambda: running.close(0.0))  # after `close_pipelines`, which has waited
        self.hold("standby tasks", standbys.close)
        written = written_topics(
            pipelines, self._config.application_id, dead_letters=dead_letters, sources=sources
        )
        outputs = topics.confirm(each.name for each in written)
        tasks = tasks_of(self._topology, plan.tasks)
        return WorkPlan(sources, plan, tuple(store_parts(plan)), tasks, written, outputs)

    def join(self, member: GroupMember, plan: WorkPlan) -> Membership:
        """Join the group. The caller leaves it."""
        return self._parts.membership(
            self._config,
            member,
            tuple(plan.sources),
            self._client_id,
            # Ours alone while the state directory is locked.
            str(self._directory.process_id()),
            f"{self._client_id}-GroupThread",
        )

    def start_ahead(self) -> None:
        """Start Spark while the client joins, if it is alone and so gets all the work. Returns at once.

        The first member of a group waits for others for some seconds (group.initial.rebalance.delay.ms).
        """
        pipelines = self._pipelines
        if pipelines is None or self._spark is not None or not self._topology.queries:
            return

        own = {f"'{self._client_id}'", f"'{self._client_id}-{self._directory.process_id()}'"}

        def start() -> None:
            groups = self._parts.groups(self._config)
            try:
                members = groups.members(self._config.application_id).values()
                if all(who.partition(" at ")[0] in own for who in members):
                    pipelines.begin()
            except Exception:
                # Nothing depends on it. Problems with Kafka show when the client joins.
                log.debug("cannot determine whether there are other clients", exc_info=True)
            finally:
                groups.close()

        threading.Thread(target=start, name=f"{self._client_id}-StartAhead", daemon=True).start()

    def end_ahead(self) -> None:
        """The group has given this client no pipelines: end what `start_ahead` began. Returns at once."""
        if self._pipelines is not None and not self._config.keeps_spark_warm:
            self._pipelines.give_up()

    def interrupt(self) -> None:
        """The client closes, so no one waits for Spark any longer. Returns at once; thread-safe."""
        self._interrupted = True
        if self._pipelines is not None:
            self._pipelines.interrupt()

    def close_pipelines(self) -> None:
        """End Spark, if it is this client's. Failures are logged."""
        if self._pipelines is not None:
            try:
                self._pipelines.close(_ENGINE_CLOSE_S)
            except Exception:
                log.exception("pipelines did not close cleanly")  # as `hold` does

    def close(self) -> None:
        """Close everything, last opened first. Failures are logged, and closing continues."""
        self._held.close()

    def hold(self, what: str, close: Callable[[], None]) -> None:
        """Register another resource, to be closed before those opened so far."""

        def closing() -> None:
            try:
                close()
            except Exception:
                # The next resource must still be closed, and nothing can be done about this one.
                log.exception("%s did not close cleanly", what)

        self._held.callback(closing)

    def start_housekeeping(self, owned: Callable[[], frozenset[TaskId]]) -> None:
        """Periodically clean the state directory and record RocksDB's figures, each on its own thread."""
        delay_s = self._config["state.cleanup.delay.ms"] / 1000
        if delay_s > 0:
            self._cleaner = StateCleaner(
                self._client_id, self._directory, owned, delay_s=delay_s, clock=self._parts.clock
            )
            self._cleaner.start()
        self._recorder = RocksDBMetricsRecorder(self._client_id, self._view.open_stores)
        self._recorder.start()

    def stop_housekeeping(self) -> None:
        """End both. Idempotent."""
        if self._cleaner is not None:
            self._cleaner.stop()
        if self._recorder is not None:
            self._recorder.stop()

    def metrics(self, view: MetricsView) -> ClientMetrics:
        """The client's metrics: its state, its measurements, and the last figures of its stores."""
        figures = self._recorder.values() if self._recorder is not None else {}
        stores = rocksdb_readings(figures, self._view.places())
        return client_metrics(view, (*self._measuring.readings(), *stores))

    # --- what threads need (thread.Resources) ------------------------------------------------------------

    def stored_tasks(self) -> tuple[TaskId, ...]:
        """The tasks with state in the state directory. Never raises."""
        try:
            return self._directory.tasks()
        except ProcessorStateException as error:
            log.warning("cannot determine which tasks have state here: %s", error)
            return ()

    def global_parts(self) -> tuple[StorePart, ...]:
        """The parts of the global stores; their topics must exist."""
        servers = ",".join(self._config.bootstrap_servers)
        parts = find_global_parts(self.topics, self._topology, servers, create_missing=self._embedded)
        found = self.topics.confirm(self._topology.global_topics) if parts else {}
        self._global_topics = found
        self._topic_ids.update({name: topic.topic_id for name, topic in found.items()})
        counts: dict[str, int] = {}
        filling: dict[str, frozenset[TopicPartition]] = {}
        for part in parts:
            counts[part.store.name] = counts.get(part.store.name, 0) + 1
            filling[part.store.name] = filling.get(part.store.name, frozenset()) | {part.changelog}
        self.global_partitions = filling
        self._view.partitions_known(counts)
        return parts

    def watch_global_topics(self, on_missing: Callable[[MissingSourceTopicException], None]) -> TopicWatch:
        """Watch the topics of global tables from now on; after `global_parts`. The caller closes it."""
        watch = TopicWatch(
            self.topics,
            client_id=self._client_id,
            application_id=self._config.application_id,
            names=self._global_topics,
            servers=",".join(self._config.bootstrap_servers),
            on_missing=on_missing,
            of_global_tables=True,
        )
        watch.baseline(self._global_topics)
        watch.start()
        return watch

    def open_global_store(self, part: StorePart) -> BytesStore:
        path = self._directory.global_store_path(part.store.name, part.task_id.partition)
        return filled(
            self._opened(part, path),
            self._topology,
            part.changelog,
            application_id=self._config.application_id,
            config=self._config,
            default=(serde_of(self._config.default_key_serde), serde_of(self._config.default_value_serde)),
            bound=partial(bound, settings=self._registry, topic=part.changelog.topic),
        )

    def open_store(self, part: StorePart) -> BytesStore:
        if self._cleaner is not None:
            self._cleaner.wait_until_idle()  # it may be deleting what was unowned a moment ago
        path = self._directory.store_path(part.task_id, part.store.name)
        return self._opened(part, path)

    def _opened(self, part: StorePart, path: Path) -> BytesStore:
        topic_id = self._topic_ids.get(part.changelog.topic) or None
        return self._parts.store(part.store, part.task_id, path, self._config, topic_id)

    def make_updater(
        self,
        name: str,
        on_failure: Callable[[BaseException], None],
        on_restored: Callable[[TopicPartition], None],
        on_restoring: Callable[[TopicPartition], None],
    ) -> Updater:
        config = self._config
        records = SourceRecords(self._source_serdes, config, self._parts.clock)
        return StoreUpdater(
            name,
            self._parts.changelog(self._config),
            on_failure=on_failure,
            listener=None if self.listener is None else _OfActive(self.listener, self._view.is_standby),
            watch=self._measuring.watch(name.removesuffix("-StateUpdater"), name, self._view.standbys),
            on_restored=on_restored,
            on_restoring=on_restoring,
            clock=self._parts.clock,
            readable=lambda store, batch: (
                batch.entries
                if is_internal_topic(config.application_id, batch.partition.topic)
                else records.readable(store.name, store.task_id, batch)
            ),
        )

    def start_pipeline(
        self, name: str, partitions: Collection[int], on_end: Callable[[PipelineEnd], None]
    ) -> RunningPipeline:
        thread = threading.current_thread().name  # a stream thread, whose tasks these are
        return self._ready().start(name, partitions, on_end, partial(self._measuring.batch, thread))

    def read_by_pattern(self, pipeline: str, topics: Iterable[str]) -> frozenset[str]:
        return frozenset(use.topic for use in self._uses(pipeline, topics) if use.by_pattern)

    def reads(self, pipeline: str, topics: Iterable[str]) -> bool:
        read = {
            use.topic
            for use in self._uses(pipeline, topics)
            if use.role in (TopicRole.SOURCE, TopicRole.TABLE)
        }
        return not read.isdisjoint(topics)

    def _uses(self, pipeline: str, topics: Iterable[str]) -> tuple[TopicUse, ...]:
        found = next(each for each in self._topology.queries if each.name == pipeline)
        return topics_of(found, self._config.application_id, topics)

    def warm_up(self, coming: Collection[TaskId]) -> None:
        """Start Spark and compile, although there is no pipeline to run yet. Raises like starting one.

        Args:
            coming: the tasks that are to come; if there are none, any may.
        """
        topic = next(iter(self._topology.source_topics), None)
        self._ready().warm_up(topic, coming)

    def forget_prepared(self) -> None:
        if self._pipelines is not None:
            self._pipelines.forget_prepared()

    def follow(self, tasks: Collection[TaskId]) -> None:
        """Keep the state of these tasks, which other clients run, where it is needed once they run here.
        Returns at once."""
        if self._standbys is not None:
            queries = {pipeline.name for pipeline in self._topology.queries}
            self._standbys.follow([task for task in tasks if task.pipeline in queries])

    def caught_up(self) -> frozenset[TaskId]:
        """Those of them that could begin here without much to restore."""
        return frozenset() if self._standbys is None else self._standbys.caught_up()

    def refresh(self, table: FrameTable) -> int:
        """As `Engine.refresh`; waits for Spark. Raises like starting a pipeline."""
        return self._ready().refresh(table)

    def dataframe(self, topic: str, options: Mapping[str, str]) -> Any:
        """As `Engine.dataframe`; waits for Spark. Raises like starting a pipeline."""
        return self._ready().dataframe(topic, options)

    def _ready(self) -> Pipelines:
        if self._pipelines is None:
            raise StreamsException("the client is not prepared")
        return self._pipelines

    def _declared_serdes(self) -> dict[str, SerdePair]:
        return declared_serdes(
            self._topology,
            serde_of(self._config.default_key_serde),
            serde_of(self._config.default_value_serde),
            self._registry,
        )

    @property
    def _source_serdes(self) -> dict[str, tuple[str, SerdePair]]:
        default = serde_of(self._config.default_key_serde), serde_of(self._config.default_value_serde)
        return source_serdes(self._topology, default, partial(bound, settings=self._registry))

    @property
    def _registry(self) -> RegistrySettings | None:
        return RegistrySettings.of(self._config.given, self._config.application_id)

    @property
    def _drops_records(self) -> bool:
        return any(self._config.continues(kind) for kind in ("deserialization", "processing", "production"))

    def _configured(self, topic: InternalTopic, plan: InternalTopics) -> InternalTopic:
        """The topic with the configuration's `topic.*`; a store's own settings take precedence."""
        asked: dict[str, str] = {}
        for place in plan.stores.values():
            if place.topic == topic.name:
                asked.update(place.store.topic_config)
        given = {name: as_text(value) for name, value in self._config.with_prefix("topic.").items()}
        # A changelog that is not compacted would lose keys, whatever is configured for topics in general.
        given.pop("cleanup.policy", None)
        if "delete" in topic.configs.get("cleanup.policy", ""):
            given.pop("retention.ms", None)  # for windows their store decides, or they would be lost
        return InternalTopic(topic.name, topic.partitions, {**topic.configs, **given, **asked})

    def _compiled(self, compiled: Mapping[str, CompiledPipeline]) -> None:
        serdes: dict[str, SerdePair] = {}
        for each in compiled.values():
            serdes.update(each.store_serdes)
        self._view.compiled(serdes)
        self.serdes = {
            store: (key.name, value.name) for store, (key, value) in serdes.items() if key and value
        }
        self._on_compiled(self.serdes)
