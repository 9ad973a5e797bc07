"""A client's environment, made of fakes: for tests of the client that take milliseconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fake_group import FakeGroup, FakeMembership
from fake_ports import (
    FakeChangelogConsumer,
    FakeEngine,
    FakeGroups,
    FakeLog,
    FakePipeline,
    FakeTopics,
)

from millstream.clock import Clock, SystemClock
from millstream.config import StreamsConfig
from millstream.model import BatchReport, OpeningTasks, TaskId
from millstream.ports import (
    BytesStore,
    ChangelogBatch,
    CompiledPipeline,
    GroupMember,
    PipelineEnd,
    Topics,
)
from millstream.runtime.wiring import Parts
from millstream.stores.opening import open_store
from millstream.topology.nodes import Store

__all__ = ["FakeBroker", "FakeConnection", "FakeWorld", "Overlap"]


class FakeBroker:
    """A broker that is only an address."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.closed = False

    @property
    def bootstrap_servers(self) -> str:
        return "127.0.0.1:19092"

    def close(self) -> None:
        self.closed = True


class _QuickConsumer(FakeChangelogConsumer):
    """Waits at most a few milliseconds, so closing it does not take long either."""

    def poll(self, timeout_s: float, max_records: int = 500) -> list[ChangelogBatch]:
        return super().poll(min(timeout_s, 0.005), max_records)


class FakeConnection:
    """`ports.Topics` of one client: its own connection to the cluster, which all clients share."""

    def __init__(self, cluster: FakeTopics, world: FakeWorld) -> None:
        self.closed = False
        self._cluster = cluster
        self._world = world

    def __getattr__(self, name: str) -> Any:
        assert not self.closed, "the topics port is closed"
        return getattr(self._cluster, name)

    def close(self) -> None:
        """Idempotent."""
        assert self._world.stop_gate.wait(30), "nobody opened the stop gate"
        self.closed = True
        if self._world.disconnect_error is not None:
            raise self._world.disconnect_error


@dataclass(frozen=True)
class Overlap:
    """A client started a pipeline while another client still ran it. That may be correct: the other one may
    be a zombie, whose producers the broker has fenced.
    """

    pipeline: str
    runner: str
    newcomer: str


class _WorldsEngine(FakeEngine):
    """One of a world's engines, which share the gates and know each other."""

    def __init__(self, world: FakeWorld) -> None:
        super().__init__()
        self.gate, self.stop_gate = world.gate, world.stop_gate
        self.catches_up = world.catches_up
        self.opening = world.opening
        self.client_id = ""
        self._world = world

    def start(
        self,
        compiled: CompiledPipeline,
        partitions: Collection[int],
        on_end: Callable[[PipelineEnd], None],
        on_batch: Callable[[BatchReport], None] = lambda report: None,
    ) -> FakePipeline:
        running = super().start(compiled, partitions, on_end, on_batch)
        self._world.started(compiled.pipeline.name, partitions, self)
        return running

    def _assign(self, running: FakePipeline, partitions: Collection[int]) -> bool:
        done = super()._assign(running, partitions)
        self._world.started(running.name, partitions, self)
        return done


class FakeWorld:
    """Makes `Parts` of fakes, and records what clients take from them. Several clients can share a world:
    they are then in one group and one cluster.

    Attributes:
        topics: the cluster; connections: its clients' connections, in the order of opening.
        log: the changelogs, in memory.
        engine: the fake of Spark, for the last client that requested one; engines counts the requests.
        gate, stop_gate, catches_up, opening: for all engines, see FakeEngine. Closing a connection also
            waits for stop_gate, so a client in which nothing is running can be delayed while it closes.
        spark_gate: a request for an engine waits for it; clear it to make Spark start slowly. spark_asked:
            set when an engine was requested.
        engine_made: set when a client has got an engine.
        overlaps: pipelines of which a partition ran in two engines at once.
        engine_error, broker_error: raised instead of creating one.
        disconnect_error: raised by closing a connection.
        stores: every opened store.
        tells_members: whether a client's request for the group's members is answered.
        group: the group that its clients join; memberships: their memberships, in the order of joining.
    """

    def __init__(self, topics: Mapping[str, int] | None = None, clock: Clock | None = None) -> None:
        self.log = FakeLog()
        self.topics = FakeTopics(topics, self.log)
        self.gate, self.stop_gate = threading.Event(), threading.Event()
        self.gate.set()
        self.stop_gate.set()
        self.catches_up = threading.Event()
        self.catches_up.set()
        self.spark_gate = threading.Event()
        self.spark_gate.set()
        self.spark_asked = threading.Event()
        self.engine_made = threading.Event()
        self.opening: dict[str, OpeningTasks] = {}
        self.engine = _WorldsEngine(self)
        self.engines = 0
        self.overlaps: list[Overlap] = []
        self._making = threading.Lock()
        self._made: list[_WorldsEngine] = []
        self.connections: list[FakeConnection] = []
        self.engine_error: BaseException | None = None
        self.broker: FakeBroker | None = None
        self.broker_error: BaseException | None = None
        self.disconnect_error: BaseException | None = None
        self.consumers: list[FakeChangelogConsumer] = []
        self.stores: list[BytesStore] = []
        self.configs: list[StreamsConfig] = []
        self.tells_members = True
        self.group = FakeGroup()
        self.memberships: list[FakeMembership] = []
        self._places: dict[str, FakeMembership] = {}
        self._clock = clock or SystemClock()

    def close(self) -> None:
        """Stop the group's thread, after all clients have closed."""
        self.group.close()

    # --- several clients -----------------------------------------------------------------------------------

    def membership_of(self, client_id: str) -> FakeMembership:
        """A client's latest membership.

        Raises:
            KeyError: it has not joined.
        """
        return self._places[client_id]

    def engine_of(self, client_id: str) -> FakeEngine | None:
        """The latest engine of a client with a `client.id`; None if it has not requested one."""
        return next((each for each in reversed(self._made) if each.client_id == client_id), None)

    def runners(self, pipeline: str) -> list[str]:
        """The `client.id`s of the clients whose engines run a pipeline."""
        return [each.client_id for each in list(self._made) if pipeline in each.running]

    def shares(self, pipeline: str) -> dict[str, set[int]]:
        """The partitions of a pipeline that run, by the `client.id`s of their clients."""
        ran = {each.client_id: set().union(*each.partitions(pipeline)) for each in list(self._made)}
        return {client: partitions for client, partitions in ran.items() if partitions}

    def started(self, pipeline: str, partitions: Collection[int], engine: FakeEngine) -> None:
        """Called by an engine that has started partitions of a pipeline."""
        for other in list(self._made):
            twice = frozenset().union(*other.partitions(pipeline)).intersection(partitions)
            if other is not engine and twice:
                newcomer = getattr(engine, "client_id", "")
                self.overlaps.append(Overlap(pipeline, other.client_id, newcomer))

    # --- requests ------------------------------------------------------------------------------------------

    def parts(self) -> Parts:
        """For `KafkaStreams(topology, config, parts=world.parts())`."""
        return Parts(
            topics=self._make_topics,
            engine=self._make_engine,
            changelog=self._make_consumer,
            store=self._make_store,
            broker=self._make_broker,
            membership=self._make_membership,
            groups=lambda config: FakeGroups(self.topics, self._clients),
            clock=self._clock,
        )

    @property
    def everything_closed(self) -> bool:
        """Whether every part that a client took is closed."""
        return (
            all(consumer.closed for consumer in self.consumers)
            and not any(store.is_open for store in self.stores)
            and all(connection.closed for connection in self.connections)
            and all(engine.closed for engine in self._made)
            and (self.broker is None or self.broker.closed)
        )

    def _clients(self) -> list[str]:
        """The ids of the clients in the group."""
        members = set(self.group.members if self.tells_members else ())
        return [name for name, place in list(self._places.items()) if place.member_id in members]

    def _make_topics(self, config: StreamsConfig) -> Topics:
        self.configs.append(config)
        connection = FakeConnection(self.topics, self)
        self.connections.append(connection)
        return cast(Topics, connection)

    def _make_engine(self, config: StreamsConfig, closing: threading.Event, spark: Any) -> FakeEngine:
        self.engines += 1
        self.spark_asked.set()
        assert self.spark_gate.wait(30), "nobody opened Spark's gate"
        if self.engine_error is not None:
            raise self.engine_error
        with self._making:
            engine = self.engine
            if engine in self._made:
                engine = self.engine = _WorldsEngine(self)
            engine.client_id = config.client_id or ""
            self._made.append(engine)
        self.engine_made.set()
        return engine

    def _make_consumer(self, config: StreamsConfig) -> FakeChangelogConsumer:
        consumer = _QuickConsumer(self.log)
        self.consumers.append(consumer)
        return consumer

    def _make_store(
        self, store: Store, task_id: TaskId, path: Path, config: StreamsConfig, topic_id: str | None
    ) -> BytesStore:
        made = open_store(store, task_id, None, in_memory=True)
        self.stores.append(made)
        return made

    def _make_broker(self, data_dir: Path) -> FakeBroker:
        if self.broker_error is not None:
            raise self.broker_error
        self.broker = FakeBroker(data_dir)
        return self.broker

    def _make_membership(
        self,
        config: StreamsConfig,
        member: GroupMember,
        topics: Sequence[str],
        client_id: str,
        process_id: str,
        thread_name: str,
    ) -> FakeMembership:
        membership = self.group.join(member)
        self.memberships.append(membership)
        self._places[client_id] = membership
        return membership
