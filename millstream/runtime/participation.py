"""How a client takes part in its application: it knows the topics, is in the group, and does what is agreed
there.

A stream thread calls `take_part` before it does anything. The first one to do so looks at the topics, makes
the internal ones and joins; so a source topic that is missing is a failure of that thread, and of every
other one, and a thread that replaces it looks again (KIP-662, KIP-671).
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace

from millstream.dsl.serdes import serde_named
from millstream.errors import (
    LostTopicException,
    MissingSourceTopicException,
    StreamsException,
    TaskMigratedException,
)
from millstream.group.assignor import Facts
from millstream.group.userdata import Assignment, MemberInfo, Program
from millstream.model import TaskId, TopicPartition
from millstream.ports import Membership, TopicDescription
from millstream.query.metadata import Placement
from millstream.runtime.assembly import Assembly, Plan
from millstream.runtime.checkpoints import fingerprint
from millstream.runtime.coordination import Coordination, FailThreads, Reaction, ShutDown, TakeWork
from millstream.runtime.crew import Crew
from millstream.runtime.holdings import missing_standbys, placement_of, task_offsets, up_to_date
from millstream.runtime.preparation import source_topics
from millstream.runtime.roster import Roster
from millstream.runtime.topic_news import source_patterns
from millstream.runtime.topic_watch import TopicWatch
from millstream.runtime.view import ClientView
from millstream.topology.nodes import Source
from millstream.topology.topology import Topology

__all__ = ["Participation", "topology_fingerprint"]

log = logging.getLogger(__name__)

_CLOSE_S = 2.0
"""How long a membership that has ended anyway may take to close."""


def topology_fingerprint(topology: Topology) -> str:
    """The same for two clients whose programs can share the work: what they read, keep and repartition."""
    parts = [asdict(fingerprint(pipeline)) for pipeline in topology.pipelines]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


class Participation:
    """One client's part; `coordination.Host`.

    Args:
        wanted: whether the client is still starting or running.
        on_shutdown: another client has asked all of them to shut down.
    """

    def __init__(
        self,
        topology: Topology,
        assembly: Assembly,
        view: ClientView,
        roster: Roster,
        *,
        client_id: str,
        process_id: uuid.UUID,
        wanted: Callable[[], bool],
        on_shutdown: Callable[[StreamsException], None],
    ) -> None:
        self._topology = topology
        self._assembly = assembly
        self._view = view
        self._roster = roster
        self._client_id = client_id
        self._process_id = process_id
        self._wanted = wanted
        self._on_shutdown = on_shutdown
        self._fingerprint = topology_fingerprint(topology)
        self._joining = threading.Lock()
        self._coordination = Coordination(client_id, self)
        self._plan: Plan | None = None
        self._membership: Membership | None = None
        self._watch: TopicWatch | None = None
        self._warming: threading.Thread | None = None
        self._lost: str | None = None
        self._refused = False
        self._ended = False
        self._told_serdes: Mapping[str, tuple[str, str]] = {}
        self._told_too_few = False
        self._told_up_to_date: frozenset[TaskId] = frozenset()
        self._placement: Placement | None = None
        assembly.on_compiled = self._tell_serdes
        self.crew: Crew | None = None

    # --- for the client and its threads ------------------------------------------------------------------

    def take_part(self) -> None:
        """Make sure that the topics are known and the client is in its group. Idempotent.

        Raises:
            MissingSourceTopicException: source topics are missing.
            LostTopicException: what the application keeps in Kafka is gone.
            InternalTopicException, StreamsException: what else is in the way.
        """
        with self._joining:
            if not self._wanted():
                return  # it is closing, and its threads are told so
            if self._plan is None:
                self._plan = self._assembly.plan()
            if self._watch is None:
                self._watch = self._watching(self._plan)
            elif (missing := self._watch.look_now()) is not None:
                raise missing
            self._join(self._plan)

    def _join(self, plan: Plan) -> None:
        refused, self._refused = self._refused, False
        if self._ended and self._membership is not None:
            self._membership.close(_CLOSE_S)
            self._membership, self._ended = None, False
        if self._membership is None:
            membership = self._assembly.join(self._coordination, plan)
            self._membership = membership
            membership.start()
        elif refused:
            self._membership.rejoin("a stream thread begins again after the group could not agree")

    def rejoin(self, reason: str) -> None:
        """Something that the group should know has changed."""
        membership = self._membership
        if membership is not None:
            membership.rejoin(reason)

    def request_shutdown(self, reason: str) -> None:
        """Ask all clients of the application to shut down (KIP-671)."""
        self._coordination.request_shutdown(reason)
        self.rejoin("shutdown requested")

    @property
    def is_member(self) -> bool:
        """Whether it has joined the group, so that others can be told something."""
        return self._membership is not None and not self._ended

    @property
    def lost_reason(self) -> str | None:
        """Why the client is out of its group at the moment, if it is."""
        return self._lost

    @property
    def agreed(self) -> Assignment | None:
        """The last agreement of the group."""
        return self._coordination.agreed

    @property
    def placement(self) -> Placement | None:
        """Where everything is, as last agreed; None: nothing is, or this client is not in its group."""
        return self._placement

    @property
    def plan(self) -> Plan | None:
        """What there is to do in the whole application, once the topics were there."""
        return self._plan

    def missing_topics(self) -> tuple[str, ...]:
        """Source topics that are confirmed to be missing."""
        return self._watch.missing_topics() if self._watch is not None else ()

    def diagnosed(self, error: StreamsException) -> StreamsException:
        """The same error; for a source topic that is gone, what the cluster says about it."""
        if isinstance(error, MissingSourceTopicException | LostTopicException) and self._watch is not None:
            found = self._watch.look_now() or self._watch.lost_of(error.topics)
            if found is not None:
                found.__cause__ = error
                return found
        return error

    def check_written(self, pipeline: str) -> None:
        """Whether everything is there that the pipeline writes, as far as it was there before.

        Raises:
            LostTopicException: a topic was deleted meanwhile.
        """
        lost = self._watch.lost(pipeline) if self._watch is not None else None
        if lost is not None:
            raise lost

    def pipeline_migrated(self, thread: str, pipeline: str, error: TaskMigratedException) -> None:
        """Somebody else has claimed the pipeline's checkpoint."""
        self._assembly.let_go_of_claims([pipeline])
        self._roster.drop(thread, pipeline)
        self.rejoin(str(error))

    def standby_caught_up(self, task: TaskId) -> None:
        """A standby of one of its stores is as far as the changelog was when it began."""
        if task in self._up_to_date():
            log.info("stream-client [%s] the standby of task %s is warm", self._client_id, task)
        self._tell_warm()

    def _tell_warm(self) -> None:
        """What the group waits for to become active here is up to date, and the group does not know it."""
        agreed = self.agreed
        if agreed is None or not agreed.warming:
            return
        warm = (self._up_to_date() - self._told_up_to_date).intersection(agreed.warming)
        if warm:
            self.rejoin(f"warmed up here: task(s) {', '.join(map(str, sorted(warm)))}")

    def let_go(self) -> None:
        """The client holds less than before; the group is told if it waits for that."""
        if self._coordination.must_rejoin(self._roster.held.pipelines):
            self.rejoin("let go of a pipeline")

    def leave(self, timeout_s: float) -> None:
        """Leave the group; after a request to shut down, when the others have been told of it."""
        membership, watch = self._membership, self._watch
        if watch is not None:
            watch.close()
        if membership is not None:
            if self._coordination.shutdown_requested and not membership.wait_until_told(timeout_s):
                log.warning(
                    "stream-client [%s] the group has not answered in %.1f s; whether the other clients "
                    "know of the shutdown is not certain",
                    self._client_id,
                    timeout_s,
                )
            membership.close(timeout_s)

    # --- coordination.Host -------------------------------------------------------------------------------

    def member_info(self) -> MemberInfo:
        crew, held, work = self.crew, self._roster.held, self._roster.work
        facts, serdes = self.facts(), self._assembly.serdes
        self._told_serdes = serdes
        self._told_up_to_date = self._up_to_date()
        known = set(self._plan.tasks) if self._plan is not None else set()
        return MemberInfo(
            process_id=self._process_id,
            client_id=self._client_id,
            threads=len(crew.live) if crew is not None else 0,
            pipelines=frozenset(held.pipelines),
            stopping=frozenset(held.pipelines) - frozenset(work.pipelines),
            claims=self._assembly.proofs(self._process_id),
            tasks=task_offsets(
                held,
                crew.lags() if crew is not None else {},
                known.intersection(self._assembly.stored_tasks()),
                lost=self._lost is not None,
            ),
            up_to_date=self._told_up_to_date,
            endpoint=self._assembly.config.application_server,
            topology=self._fingerprint,
            checkpoint=self._assembly.checkpoint_identity,
            warm=self._assembly.is_warm,
            serdes=serdes,
            program=Program(facts.pipelines, facts.tasks, facts.standby_replicas),
        )

    def facts(self) -> Facts:
        plan = self._plan
        return Facts(
            pipelines=tuple(pipeline.name for pipeline in self._topology.queries),
            tasks=plan.tasks if plan is not None else (),
            standby_replicas=int(self._assembly.config["num.standby.replicas"]),
            max_warmups=int(self._assembly.config["max.warmup.replicas"]),
            missing_topics=self.missing_topics(),
            topology=self._fingerprint,
            owner_of=self._assembly.owner_of,
        )

    def source_partitions(self, pipelines: Iterable[str]) -> Iterable[TopicPartition]:
        plan, names = self._plan, set(pipelines)
        if plan is None:
            return ()
        mine = [pipeline for pipeline in self._topology.pipelines if pipeline.name in names]
        topics = set(source_topics(mine))
        for pipeline in mine:
            for node in pipeline.inputs:
                if isinstance(node, Source) and node.pattern is not None:
                    topics.update(name for name in plan.sources if node.pattern.fullmatch(name))
        return [
            TopicPartition(name, partition)
            for name in sorted(topics & plan.sources.keys())
            for partition in range(plan.sources[name].partitions)
        ]

    def group_agreed(self, reaction: Reaction, generation: int) -> None:
        self._lost = None
        match reaction:
            case TakeWork(assignment):
                self._take_work(assignment, generation)
            case ShutDown(error):
                self._placement = None
                self._on_shutdown(error)
            case FailThreads(error):
                self._placement = None
                log.error("stream-client [%s] %s", self._client_id, error)
                # The group has given what this client had to others. A thread that begins after this one has
                # the group agree again.
                self._refused = True
                self._let_all_go()
                if self.crew is not None:
                    self.crew.fail(error)

    def group_lost(self, reason: str) -> None:
        self._lost = reason
        self._placement = None
        log.warning(
            "stream-client [%s] is not in its group any more: %s; it stops its pipelines and joins again",
            self._client_id,
            reason,
        )
        self._let_all_go()

    def group_failed(self, error: StreamsException) -> None:
        self._lost = str(error)
        self._ended = True
        self._placement = None
        self._let_all_go()
        if self.crew is not None:
            self.crew.fail(error)

    def finished_offsets(self) -> Mapping[TopicPartition, int]:
        crew, plan = self.crew, self._plan
        if crew is None or plan is None:
            return {}
        return {
            partition: offset
            for thread in crew.metadata()
            for pipeline in thread.pipelines
            for partition, offset in pipeline.position.items()
            if partition.topic in plan.sources
        }

    # --- inside ------------------------------------------------------------------------------------------

    def _let_all_go(self) -> None:
        self._assembly.let_go_of_claims()
        if self.crew is not None:
            self.crew.lose()

    def _take_work(self, assignment: Assignment, generation: int) -> None:
        plan = self._plan
        assert plan is not None, "assigned before the plan was made"
        self._assembly.generation = generation
        self._view.serdes_known(
            {
                store: (serde_named(key), serde_named(value))
                for store, (key, value) in assignment.serdes.items()
            }
        )
        log.info(
            "stream-client [%s] generation %d: pipelines %s, tasks %s",
            self._client_id,
            generation,
            ", ".join(assignment.pipelines) or "none",
            f"{', '.join(map(str, assignment.active)) or 'none'}, "
            f"standbys {', '.join(map(str, assignment.standby)) or 'none'}",
        )
        self._place(assignment)
        self._tell_too_few(assignment)
        self._roster.assign(assignment.pipelines, plan.parts_of(assignment.active, assignment.standby))
        self.let_go()
        self._tell_serdes()
        self._tell_warm()
        if not assignment.pipelines and self._topology.queries and self._assembly.config.keeps_spark_warm:
            self._keep_warm()

    def _up_to_date(self) -> frozenset[TaskId]:
        """The tasks that another client may leave to this one. A client that was away cannot tell."""
        if self._lost is not None:
            return frozenset()
        lags = self.crew.lags() if self.crew is not None else {}
        acceptable = int(self._assembly.config["acceptable.recovery.lag"])
        return up_to_date(self._roster.held, lags, self._view.up_to_date(), acceptable)

    def _place(self, assignment: Assignment) -> None:
        parts = self._plan.parts if self._plan is not None else ()
        own = self._assembly.config.application_server
        self._placement, odd = placement_of(assignment, parts, own, self._assembly.global_partitions)
        for endpoint in odd:
            log.warning(
                "stream-client [%s] leaves out a client: its application.server is '%.100s', not host:port",
                self._client_id,
                endpoint,
            )

    def _tell_too_few(self, assignment: Assignment) -> None:
        """The leader says once that the group is too small for its standbys."""
        wanted, there = int(self._assembly.config["num.standby.replicas"]), len(assignment.members)
        missing = missing_standbys(wanted, there) if assignment.leader == self._client_id else 0
        if missing and not self._told_too_few:
            log.warning(
                "stream-client [%s] num.standby.replicas is %d and the application has %d client(s), so each "
                "task has %d standby(s); start %d more client(s), or ask for fewer standbys",
                self._client_id,
                wanted,
                there,
                wanted - missing,
                missing,
            )
        self._told_too_few = bool(missing)

    def _tell_serdes(self) -> None:
        """The pipelines are compiled. Clients that run none learn from the group which serdes came of it.

        Also looked at after each agreement: one may have been under way, without them, when they were found.
        """
        agreed = self.agreed
        if agreed is not None and len(agreed.members) > 1 and self._assembly.serdes != self._told_serdes:
            self.rejoin("the serdes of stores are known")

    def _keep_warm(self) -> None:
        if self._warming is not None:
            return

        def warm_up() -> None:
            try:
                self._assembly.warm_up()
            except Exception:
                # Nothing depends on it; what is wrong shows again, as a failure, when a pipeline comes.
                if not self._wanted():
                    return
                log.warning("stream-client [%s] Spark could not be kept warm", self._client_id, exc_info=True)
            else:
                log.info("stream-client [%s] keeps Spark warm", self._client_id)
                self.rejoin("Spark is warm")

        self._warming = threading.Thread(target=warm_up, name=f"{self._client_id}-WarmUp", daemon=True)
        self._warming.start()

    def _watching(self, plan: Plan) -> TopicWatch:
        pipelines = self._topology.pipelines
        config = self._assembly.config
        watch = TopicWatch(
            self._assembly.topics,
            client_id=self._client_id,
            application_id=config.application_id,
            names=source_topics(pipelines),
            patterns=source_patterns(pipelines),
            written=plan.written,
            servers=",".join(config.bootstrap_servers),
            on_missing=self._topics_missing,
            on_lost=self._topics_lost,
            on_grown=self._topics_grown,
        )
        watch.baseline({**plan.outputs, **plan.sources})
        watch.start()
        return watch

    def _topics_missing(self, error: MissingSourceTopicException) -> None:
        # Each client looks for itself, so none has to wait until the leader has told it.
        if self.crew is not None:
            self.crew.fail(error)

    def _topics_lost(self, pipeline: str, error: LostTopicException) -> None:
        # Whoever runs the pipeline, and whoever keeps stores that are filled from what is gone.
        if self.crew is not None:
            self.crew.fail(
                error,
                lambda share: (
                    pipeline in share.pipelines
                    or any(part.changelog.topic in error.topics for part in share.parts)
                ),
            )

    def _topics_grown(self, grown: Mapping[str, tuple[int, int]]) -> None:
        plan = self._plan
        if plan is None:
            return
        log.info(
            "stream-client [%s] source topics have more partitions, which Spark reads from now on: %s",
            self._client_id,
            ", ".join(f"{name} {old} to {new}" for name, (old, new) in sorted(grown.items())),
        )
        sources = dict(plan.sources)
        for name, (_, count) in grown.items():
            there = sources.get(name)
            sources[name] = TopicDescription(name, count, there.topic_id if there is not None else "")
        self._plan = replace(plan, sources=sources)
        if self._roster.held.pipelines:
            self.rejoin("source topics have more partitions")  # so that Kafka's tools show who reads them
