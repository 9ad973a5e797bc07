"""How a client takes part in its application: it watches the topics, is in the group, and reports events.

A stream thread calls `take_part` before it does anything. The first one to do so checks the topics, creates
the internal ones and joins. So a missing source topic is a failure of that thread, and of every other one,
and a thread that replaces it checks again (KIP-662, KIP-671).

What all of this means for the client is decided elsewhere (coordination.py): everything that happens is an
event for the client's owner.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from millstream.errors import (
    LostTopicException,
    MissingSourceTopicException,
    StreamsException,
    TaskAssignmentException,
)
from millstream.foreign import ESCAPED, printable
from millstream.group.assignor import LeaderFacts, Memory, assign
from millstream.group.codes import AssignorError
from millstream.group.racks import TaskRacks
from millstream.group.userdata import MOST_USER_DATA_BYTES, Assignment, MemberInfo, Program, fitting
from millstream.model import TaskId, TopicPartition
from millstream.ports import Membership, TopicDescription
from millstream.query.metadata import Placement
from millstream.runtime.assembly import Assembly
from millstream.runtime.owner import Owner
from millstream.runtime.state.client_state import ClientState
from millstream.runtime.state.events import (
    AgreementAsked,
    Assigned,
    GroupFailed,
    GroupJoined,
    GroupLost,
    Planned,
    Reported,
    TopicsDropped,
    TopicsGrown,
    TopicsLost,
    TopicsMissing,
    Warmed,
)
from millstream.runtime.state.holdings import placement_of, task_offsets, up_to_date
from millstream.runtime.state.work_plan import WorkPlan, tasks_of
from millstream.runtime.threads.crew import Crew
from millstream.runtime.topics.preparation import source_topics
from millstream.runtime.topics.task_racks import RackLookup, rack_rules, topics_of_tasks
from millstream.runtime.topics.topic_news import source_patterns
from millstream.runtime.topics.topic_watch import TopicWatch
from millstream.runtime.view import ClientView
from millstream.topology.internal_topics import plan_internal_topics
from millstream.topology.nodes import Aggregate, Node, Repartition, Source, Store, Suppress
from millstream.topology.pipeline import Pipeline, input_label
from millstream.topology.topology import Topology

__all__ = ["Participation", "topology_fingerprint"]

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)

_LOOK_S = 2.0
"""How long a fresh check of the topics may take when a query has ended."""
_WARM_AGAIN_S = 30.0
"""After how long Spark is started again that did not start ahead."""
_RACKS_S = 2.0
"""How long the group waits for the racks of partitions, when this client leads it."""
_CLOSE_S = 2.0
"""How long closing an ended membership may take."""


def topology_fingerprint(topology: Topology) -> str:
    """Equal for two clients whose programs can share work: a hash of what they read, store and
    repartition. Stateless steps and output topics may differ."""
    parts = [_fingerprint(pipeline) for pipeline in topology.pipelines]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _fingerprint(pipeline: Pipeline) -> tuple[list[str], list[str], list[str]]:
    return (
        [input_label(node) for node in pipeline.inputs],
        [_fills(node, store) for node in pipeline.nodes for store in node.stores],
        [node.topic for node in pipeline.outputs if isinstance(node, Repartition)],
    )


def _fills(node: Node, store: Store) -> str:
    # Values of other windows, or held back for another time, would be mixed with those of this program.
    filled = f"{type(node).__name__} {store.name}"
    if isinstance(node, Aggregate) and node.windows is not None:
        filled += f" by {node.windows}" + (", when they close" if node.on_close else "")
    elif isinstance(node, Suppress):
        filled += f" {node.delay_ms} ms after " + ("windows end" if node.until_close else "updates")
    return filled


class Participation:
    """One client's participation: `thread.Application` for its threads, `ports.GroupMember` for its
    membership.

    Args:
        owner: holds the client's state, and gets the events.
    """

    def __init__(
        self,
        topology: Topology,
        assembly: Assembly,
        view: ClientView,
        crew: Crew,
        owner: Owner,
        *,
        client_id: str,
        process_id: uuid.UUID,
    ) -> None:
        self._topology = topology
        self._assembly = assembly
        self._view = view
        self._crew = crew
        self._owner = owner
        self._client_id = client_id
        self._process_id = process_id
        self._queries = frozenset(pipeline.name for pipeline in topology.queries)
        self._fingerprint = topology_fingerprint(topology)
        self._joining = threading.Lock()
        self._membership: Membership | None = None
        self._watch: TopicWatch | None = None
        self._memory = Memory()  # used while it is the leader
        self._rack_lookup = RackLookup(
            lambda names: self._assembly.topics.look(names),
            patience_s=_RACKS_S,
            keeps_s=assembly.config["metadata.max.age.ms"] / 1000,
            thread_name=f"{client_id}-RackLookup",
        )
        self._grown: dict[str, int] = {}
        """The numbers of partitions of topics that have grown."""
        self._was_warm = False
        """Whether Spark was kept warm, the last time."""
        self._warm_again_at = math.inf
        """When to try again to start Spark ahead."""
        self._left_out: tuple[str, ...] = ()

    # --- thread.Application --------------------------------------------------------------------------------

    def take_part(self) -> None:
        """Make sure that the topics are known and the client is in its group. Idempotent.

        Raises:
            MissingSourceTopicException: source topics are missing.
            LostTopicException: an internal topic of the application is gone.
            InternalTopicException, StreamsException: what else is in the way.
        """
        with self._joining:
            if not self._owner.state.is_wanted:
                return  # it is closing, and its threads are asked to end
            plan = self._owner.state.plan
            if plan is None:
                plan = self._assembly.plan()
                self._owner.post(Planned(plan))
                if not self._owner.state.is_wanted:
                    return  # it took long, and no one waited: anything opened now would stay open
            if self._watch is None:
                self._watch = self._watching(plan)
            elif (missing := self._watch.look_now()) is not None:
                raise missing
            self._join(plan)

    def _join(self, plan: WorkPlan) -> None:
        if self._owner.state.group.over and self._membership is not None:
            self._membership.close(_CLOSE_S)
            self._membership = None
        if self._membership is None:
            self._assembly.start_ahead()
            membership = self._membership = self._assembly.join(self, plan)
            self._owner.post(GroupJoined())
            membership.start()
        else:
            self._owner.post(AgreementAsked())

    def diagnosed(self, error: StreamsException) -> StreamsException:
        """The same error; for a source topic that is gone, what the cluster says about it."""
        if isinstance(error, MissingSourceTopicException | LostTopicException) and self._watch is not None:
            found = self._watch.look_now() or self._watch.lost_of(error.topics)
            if found is not None:
                found.__cause__ = error
                return found
        return error

    def dropped(self, *, fresh: bool) -> tuple[str, ...]:
        """The topics that patterns have lost so far."""
        return self._watch.dropped(_LOOK_S if fresh else 0.0) if self._watch is not None else ()

    def check_written(self, pipeline: str) -> None:
        """Check that everything the pipeline writes still exists, if it existed before.

        Raises:
            LostTopicException: a topic was deleted meanwhile.
        """
        lost = self._watch.lost(pipeline) if self._watch is not None else None
        if lost is not None:
            raise lost

    def standby_caught_up(self, task: TaskId) -> None:
        """A standby of one of the task's stores has reached the changelog's end at its start."""
        if task in self._up_to_date(self._owner.state):
            log.info("stream-client [%s] the standby of task %s is warm", self._client_id, task)
        self.report_warm()

    # --- for the client, and whoever carries out its instructions ------------------------------------------

    def report_warm(self) -> None:
        """Report which tasks are up to date here, because the group may wait for some of them."""
        agreed = self._owner.state.group.agreed
        if agreed is not None and agreed.warming:
            self._owner.post(Warmed(self._up_to_date(self._owner.state)))

    def rejoin(self, reason: str) -> None:
        """Rebalance, because something that the group should know has changed."""
        membership = self._membership
        if membership is not None:
            membership.rejoin(reason)

    def keep_warm(self) -> None:
        """Start Spark on a thread of its own, although there is no pipeline to run yet."""
        agreed = self._owner.state.group.agreed
        coming = () if agreed is None else agreed.warming

        def warm_up() -> None:
            try:
                self._assembly.warm_up(coming)
            except Exception as error:
                # Nothing depends on it: other clients go on with the tasks that were to come.
                self._warm_again_at = time.monotonic() + _WARM_AGAIN_S
                if self._owner.state.is_wanted:
                    log.warning(
                        "stream-client [%s] Spark could not be kept warm, so no task moves here: %s",
                        self._client_id,
                        error,
                        exc_info=None if isinstance(error, StreamsException) else error,
                    )
            else:
                self._was_warm = True
                log.info("stream-client [%s] keeps Spark warm", self._client_id)
                self.rejoin("Spark is warm")

        self._warm_again_at = math.inf
        self._was_warm = False
        threading.Thread(target=warm_up, name=f"{self._client_id}-WarmUp", daemon=True).start()

    def leave(self, timeout_s: float) -> None:
        """Leave the group; after a shutdown request, once the others have received it."""
        membership, watch = self._membership, self._watch
        if watch is not None:
            watch.close()
        if membership is not None:
            if self._owner.state.group.shutdown is not None and not membership.wait_for_assignment(timeout_s):
                log.warning(
                    "stream-client [%s] the group has not answered in %.1f s; the other clients may not know "
                    "about the shutdown",
                    self._client_id,
                    timeout_s,
                )
            membership.close(timeout_s)

    @property
    def placement(self) -> Placement | None:
        """Where everything is, by the last assignment; None: unknown, or this client is not in its group."""
        return self._owner.state.group.placement

    def missing_topics(self) -> tuple[str, ...]:
        """Source topics that are confirmed to be missing."""
        return self._watch.missing_topics() if self._watch is not None else ()

    # --- ports.GroupMember ---------------------------------------------------------------------------------

    def user_data(self) -> bytes:
        state = self._owner.state
        info = self._member_info(state)
        group = state.group
        # Changes with each join, because the broker ignores a follower that repeats its metadata.
        info = replace(info, unique_field=(group.reports + 1) % 128)
        if group.shutdown is not None:
            info = replace(info, error_code=AssignorError.SHUTDOWN_REQUESTED, reason=group.shutdown)
        self._owner.post(Reported(info.threads, info.running, info.up_to_date, info.serdes))
        data, left_out = fitting(info)
        if left_out and left_out != self._left_out:
            log.warning(
                "stream-client [%s] has more user data than the group protocol carries (%d bytes); left out: "
                "%s",
                self._client_id,
                MOST_USER_DATA_BYTES,
                ", ".join(left_out),
            )
        self._left_out = left_out
        self._memory.own = data if group.took_part else b""
        return data

    def lead(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return assign(self._facts(), members, self._client_id, self._memory, self._task_racks)

    def partitions(self, assignment: bytes) -> Iterable[TopicPartition]:
        try:
            return self._source_partitions(Assignment.decode(assignment).runs)
        except TaskAssignmentException:
            return ()  # `assigned` reports what is wrong with it

    def assigned(self, assignment: bytes, generation: int) -> None:
        try:
            decoded = Assignment.decode(assignment)
        except TaskAssignmentException as error:
            self._owner.post(Assigned(error, generation))
            return
        self._owner.post(Assigned(decoded, generation, self._placed(decoded)))
        if decoded.rebalance_wanted and self._membership is not None:
            self._membership.expect_rebalance(generation)

    def lost(self, reason: str) -> None:
        self._memory.forget()
        self._owner.post(GroupLost(reason))

    def failed(self, error: StreamsException) -> None:
        self._owner.post(GroupFailed(error))

    def tick(self) -> None:
        if self._owner.state.is_wanted:
            self.report_warm()  # one that has warmed up may have waited long enough for others
            is_gone = self._was_warm and not self._assembly.is_warm
            if time.monotonic() >= self._warm_again_at or is_gone:
                self.keep_warm()

    # --- inside ------------------------------------------------------------------------------------------

    def _member_info(self, state: ClientState) -> MemberInfo:
        held, facts = state.roster.held, self._facts()
        return MemberInfo(
            process_id=self._process_id,
            client_id=self._client_id,
            threads=len(state.live),
            running=frozenset(held.runs),
            stopping=frozenset(held.runs) - frozenset(state.roster.work.runs),
            tasks=task_offsets(
                held,
                self._crew.lags(),
                set(facts.stateful).intersection(self._assembly.stored_tasks()),
                lost=state.group.lost is not None,
            ),
            up_to_date=self._up_to_date(state),
            endpoint=self._assembly.config.application_server,
            topology=self._fingerprint,
            warm=self._assembly.is_warm,
            serdes=state.serdes,
            program=Program(facts.tasks, facts.stateful, facts.standby_replicas),
            tags=self._assembly.config.client_tags,
            rack=self._assembly.config.client_rack,
        )

    def _facts(self) -> LeaderFacts:
        """The facts it knows as the leader."""
        plan = self._owner.state.plan
        return LeaderFacts(
            tasks=plan.tasks if plan is not None else (),
            stateful=plan.stateful if plan is not None else (),
            standby_replicas=int(self._assembly.config["num.standby.replicas"]),
            max_warmups=int(self._assembly.config["max.warmup.replicas"]),
            missing_topics=self.missing_topics(),
            topology=self._fingerprint,
            tags=tuple(self._assembly.config["rack.aware.assignment.tags"]),
            racks=rack_rules(self._assembly.config),
        )

    def _task_racks(self) -> TaskRacks:
        """Where the partitions of all tasks are.

        Raises:
            StreamsException: that is not known.
        """
        plan = self._owner.state.plan
        if plan is None:
            return TaskRacks()
        topics = topics_of_tasks(self._topology, self._assembly.config.application_id, plan)
        return self._rack_lookup.racks(topics)

    def _source_partitions(self, tasks: Iterable[TaskId]) -> Iterable[TopicPartition]:
        """The partitions of the user's topics that tasks read."""
        plan = self._owner.state.plan
        if plan is None:
            return ()
        read = {pipeline.name: self._read_by(pipeline, plan) for pipeline in self._topology.queries}
        return sorted(
            TopicPartition(name, task.partition)
            for task in tasks
            for name in read.get(task.pipeline, ())
            if task.partition < plan.sources[name].partitions
        )

    def _read_by(self, pipeline: Pipeline, plan: WorkPlan) -> set[str]:
        """The user's topics that a pipeline reads."""
        topics = set(source_topics([pipeline]))
        for node in pipeline.inputs:
            if isinstance(node, Source) and node.pattern is not None:
                topics.update(name for name in plan.sources if node.pattern.fullmatch(name))
        return topics & plan.sources.keys()

    def _up_to_date(self, state: ClientState) -> frozenset[TaskId]:
        """The tasks that another client may hand over to this one. A client that was away cannot know
        them."""
        if state.group.lost is not None:
            return frozenset()
        acceptable = int(self._assembly.config["acceptable.recovery.lag"])
        held = state.roster.held
        found = up_to_date(held, self._crew.lags(), self._view.up_to_date(), acceptable)
        coming = frozenset(state.group.agreed.warming if state.group.agreed is not None else ())
        if self._assembly.is_warm:
            standbys = {task for task in held.standby_tasks if task.pipeline in self._queries}
            return found - (standbys - self._assembly.caught_up()) | coming - self._stateful(state)
        # What needs Spark could not run at once.
        return frozenset(
            task for task in found if task.pipeline not in self._queries or task not in {*held.runs, *coming}
        )

    def _stateful(self, state: ClientState) -> frozenset[TaskId]:
        return frozenset(state.plan.stateful if state.plan is not None else ())

    def _placed(self, assignment: Assignment) -> Placement:
        plan = self._owner.state.plan
        own = self._assembly.config.application_server
        placement, odd = placement_of(
            assignment, plan.parts if plan is not None else (), own, self._assembly.global_partitions
        )
        for endpoint in odd:
            log.warning(
                "stream-client [%s] ignores a client: its application.server is '%s', not host:port",
                self._client_id,
                printable(endpoint, 100),
            )
        return placement

    def _watching(self, plan: WorkPlan) -> TopicWatch:
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
            on_dropped=self._topics_dropped,
            on_grown=self._topics_grown,
        )
        watch.baseline({**plan.outputs, **plan.sources})
        watch.start()
        return watch

    def _topics_missing(self, error: MissingSourceTopicException) -> None:
        self._owner.post(TopicsMissing(error))

    def _topics_lost(self, pipeline: str, error: LostTopicException) -> None:
        self._owner.post(TopicsLost(pipeline, error))

    def _topics_dropped(self, topics: tuple[str, ...], number: int) -> None:
        self._owner.post(TopicsDropped(topics, number))

    def _topics_grown(self, grown: Mapping[str, tuple[int, TopicDescription]]) -> None:
        plan = self._owner.state.plan
        if plan is None:
            return
        self._grown |= {name: topic.partitions for name, (_, topic) in grown.items()}
        counts = {**{name: topic.partitions for name, topic in plan.sources.items()}, **self._grown}
        tasks: tuple[TaskId, ...] = ()
        try:
            internal = plan_internal_topics(self._topology, self._assembly.config.application_id, counts)
            tasks = tasks_of(self._topology, internal.tasks)
        except StreamsException as error:  # of topics that are joined, one has grown so far
            log.warning("source topics have more partitions, and there are no tasks for them yet: %s", error)
        self._owner.post(TopicsGrown(grown, tasks))
