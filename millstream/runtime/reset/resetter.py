"""Resets an application: sets its input topics to the given positions, and deletes everything that it had.

reset_plan.py decides what is done. The order is safe against interruption. First it is noted that a reset is
in progress, which keeps every client from starting (starts.py). Then clients that may still be running are
fenced out of the checkpoints. Then things are deleted. The note of where to begin is written last. An
interrupted reset continues when it is run again.

Source: org.apache.kafka.tools.StreamsResetter.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from millstream.checkpoints.checkpoints import Checkpoints, read_notes
from millstream.checkpoints.fencing import CheckpointClaims, LocalCheckpointFiles, places
from millstream.checkpoints.identity import TopicRole
from millstream.checkpoints.object_fencing import claims_of, live_of
from millstream.checkpoints.starts import STARTS, Starts, TopicStart
from millstream.config import StreamsConfig
from millstream.errors import ConfigException, IllegalStateException
from millstream.model import TopicPartition
from millstream.ports import CheckpointFiles, Groups, Topics
from millstream.runtime.reset.reset_plan import (
    ResetPlan,
    To,
    internal_topics,
    pipelines_in,
    point_in_time,
    positions,
)
from millstream.runtime.topics.topic_news import matching_topics, source_patterns
from millstream.runtime.wiring import Parts
from millstream.stores.directory import StateDirectory
from millstream.topology.names import is_internal_topic
from millstream.topology.topology import Topology

__all__ = ["Reset", "raise_if_alive", "reset_application"]

log = logging.getLogger(__name__)

_HOLDER = "reset"


@dataclass(frozen=True)
class Reset:
    """What is asked for.

    Attributes:
        to: the new position of the input topics.
        shift: alternatively, how many records to move on from the group's position.
        inputs: the input topics; None: those of the program, or else those that the checkpoints know.
        internals: the internal topics; None: all whose names belong to the application.
        force: remove members from the group after they have been fenced, as Kafka's tool does.
    """

    to: To = "earliest"
    shift: int | None = None
    inputs: Sequence[str] | None = None
    internals: Sequence[str] | None = None
    force: bool = False


def reset_application(
    config: StreamsConfig,
    parts: Parts,
    asked: Reset,
    *,
    topology: Topology | None = None,
    spark: Any = None,
    dry_run: bool = False,
    report: Callable[[str], None] = log.info,
) -> ResetPlan:
    """Reset an application, or with `dry_run` only report what that would do.

    Args:
        topology: the program, if available.
        spark: a session for checkpoints that are not on this machine; None: one is started for them.
        report: called for each step.

    Raises:
        IllegalStateException: a client of the application is running.
        LockException: a client is using the state directory.
        ConfigException: the request does not fit the application.
        StreamsException: Kafka or the checkpoints cannot be reached.
    """
    with ExitStack() as held:
        directory = StateDirectory(
            config.state_dir, config.application_id, group_writes=config.lets_group_write
        )
        checkpoints = Checkpoints(config, directory.path)
        if config.embedded or not dry_run:
            held.enter_context(directory)
        if config.embedded:
            broker = parts.broker(directory.path / "kafka")
            held.callback(broker.close)
            config = config.replace({"bootstrap.servers": broker.bootstrap_servers})
        topics = parts.topics(config)
        held.callback(topics.close)
        groups = parts.groups(config)
        held.callback(groups.close)
        files: CheckpointFiles
        if checkpoints.is_local:
            files = LocalCheckpointFiles(checkpoints.root)
        else:
            report(f"starting Spark for the checkpoints in '{checkpoints.root}'")
            engine = parts.engine(config, threading.Event(), spark)
            held.callback(engine.close)
            files = engine.checkpoint_files(checkpoints.root)
        now = datetime.fromtimestamp(parts.clock.epoch_ms() / 1000, UTC)
        job = _Job(config, checkpoints.root, topics, groups, files, directory, topology, now, report)
        plan = job.plan(asked)
        if not dry_run:
            raise_if_alive(plan, asked.force)
            job.perform(plan, claims_of(files, checkpoints.root, clock=parts.clock))
        return plan


@dataclass(frozen=True)
class _Job:
    """One reset, with the resources it needs."""

    config: StreamsConfig
    root: str
    topics: Topics
    groups: Groups
    files: CheckpointFiles
    directory: StateDirectory
    topology: Topology | None
    now: datetime
    report: Callable[[str], None]

    def plan(self, asked: Reset) -> ResetPlan:
        """Check everything, without changing anything."""
        application_id = self.config.application_id
        existing = self.topics.names()
        mine, foreign = internal_topics(application_id, existing, self.groups.names())
        pipelines = pipelines_in(self.files.list())
        wanted = list(
            dict.fromkeys(self._inputs(pipelines, existing) if asked.inputs is None else asked.inputs)
        )
        internal = mine if asked.internals is None else tuple(sorted(set(asked.internals) & set(existing)))
        _raise_if_mixed_up(application_id, wanted, asked.internals or ())
        found = self.topics.confirm(wanted)
        partitions = [
            TopicPartition(name, each) for name, topic in found.items() for each in range(topic.partitions)
        ]
        _raise_if_unknown(asked.to, partitions)
        at_time: Mapping[TopicPartition, int] = {}
        if isinstance(asked.to, datetime | timedelta):
            at_time = self.topics.offsets_at(partitions, point_in_time(asked.to, self.now))
        return ResetPlan(
            application_id,
            positions(
                asked.to,
                self.topics.beginning_offsets(partitions),
                self.topics.end_offsets(partitions),
                at_time=at_time,
                committed=self.topics.committed(application_id, partitions),
                shift=asked.shift,
            ),
            {name: topic.topic_id for name, topic in found.items()},
            tuple(sorted(set(wanted) - found.keys())),
            internal,
            foreign if asked.internals is None else {},
            self.root,
            tuple(name for name in pipelines if live_of(name, self.files) is not None),
            str(self.directory.path),
            len(self.directory.tasks()) + self.directory.global_path.exists(),
            self.groups.members(application_id),
        )

    def perform(self, plan: ResetPlan, claims: CheckpointClaims) -> None:
        """Carry out the plan."""
        self.files.write(STARTS, Starts(self._at, complete=False).to_bytes())
        for name in plan.pipelines:
            self.report(f"fencing any client that may still run pipeline {name}")
            claims.claim(name, 0, _HOLDER)
        if plan.members:
            self.report(f"removing {len(plan.members)} members from the group")
            self.groups.remove_members(plan.application_id, plan.members)
        if plan.internal:
            self.report(f"deleting {len(plan.internal)} internal topics")
            self.topics.delete(plan.internal)
        names = self.files.list()
        for name in pipelines_in(names):
            self.report(f"deleting the checkpoint of pipeline {name}")
            there = places(name, names)
            # The last owner file is kept, so that epochs continue to grow, and the fences against other
            # clients.
            for path in sorted(names):
                is_its = path == name or path.startswith(f"{name}.")
                if is_its and (names[path] or path.endswith(".json") or path in there.aside):
                    self.files.delete(path)
        self.report(f"deleting the local state in '{plan.state}'")
        self.directory.clean_all()
        self.report(f"setting the group's offsets of {len(plan.positions)} partitions")
        self.topics.delete_group(plan.application_id)
        self.groups.commit(plan.application_id, {each.at: each.offset for each in plan.positions})
        self.files.write(STARTS, self._starts(plan).to_bytes())

    @property
    def _at(self) -> str:
        return self.now.isoformat(timespec="milliseconds")

    def _starts(self, plan: ResetPlan) -> Starts:
        offsets: dict[str, dict[int, int]] = {}
        for each in plan.positions:
            offsets.setdefault(each.at.topic, {})[each.at.partition] = each.offset
        starts = {name: TopicStart(plan.topic_ids[name], each) for name, each in offsets.items()}
        return Starts(self._at, True, starts)

    def _inputs(self, pipelines: Iterable[str], existing: Iterable[str]) -> Iterable[str]:
        """The input topics of the program, or else those that the checkpoints know."""
        application_id = self.config.application_id
        if self.topology is not None:
            patterns = source_patterns(self.topology.pipelines)
            own = set(self.topology.global_topics)
            named = [name for name in self.topology.source_topics if name not in own]
            return [*named, *matching_topics(patterns, existing, application_id)]
        return [name for pipeline in pipelines for name in self._noted(pipeline)]

    def _noted(self, pipeline: str) -> Iterable[str]:
        notes = read_notes(pipeline, self.files)
        if notes is None:
            if self.files.exists(f"{pipeline}.topics.json"):
                log.warning("the inputs of pipeline %s are unknown: its record cannot be read", pipeline)
            return []
        return [
            name for name, each in notes.topics.items() if each.role in (TopicRole.SOURCE, TopicRole.TABLE)
        ]


def raise_if_alive(plan: ResetPlan, force: bool) -> None:
    """Check that no client of the application is running, unless `force` removes it from the group.

    Raises:
        IllegalStateException: a client is running.
    """
    if plan.members and not force:
        raise IllegalStateException(
            f"application '{plan.application_id}' is running: its group has "
            f"{', '.join(sorted(plan.members.values()))}. Close all of its clients first (a killed client is "
            f"removed after session.timeout.ms); or, if none of them is alive, remove them from the group "
            f"with --force, or force=True"
        )


def _raise_if_unknown(to: To, partitions: Iterable[TopicPartition]) -> None:
    """Check that all given offsets are of partitions that are read.

    Raises:
        ConfigException: one is not.
    """
    strange = sorted(to.keys() - set(partitions)) if isinstance(to, Mapping) else []
    if strange:
        raise ConfigException(
            f"offsets are given for {', '.join(map(str, strange))}, which are not partitions of the input "
            f"topics; name the topics as input topics, or leave these out. Nothing was changed"
        )


def _raise_if_mixed_up(application_id: str, inputs: Iterable[str], internals: Iterable[str]) -> None:
    """Check that no topic is named in the wrong place.

    Raises:
        ConfigException: an internal topic is named as an input, or another topic is to be deleted.
    """
    wrong = [name for name in inputs if is_internal_topic(application_id, name)]
    if wrong:
        raise ConfigException(
            f"input topics {', '.join(map(repr, wrong))}: these are internal topics of application "
            f"'{application_id}', which a reset deletes; leave them out of the input topics"
        )
    strange = [name for name in internals if not is_internal_topic(application_id, name)]
    if strange:
        raise ConfigException(
            f"internal topics {', '.join(map(repr, strange))}: those of application '{application_id}' "
            f"begin with '{application_id}-' and end with -changelog, -repartition or -millstream-markers. "
            "Nothing was deleted"
        )
