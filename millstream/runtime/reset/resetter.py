"""Resets an application: sets its input topics to the given positions, and deletes everything that it had.

reset_plan.py decides what is done. An interrupted reset continues when it is run again, and no client
continues between the two: its tasks find the ids of deleted topics in their committed offsets, which are
changed last.

Source: org.apache.kafka.tools.StreamsResetter.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

from millstream.config import StreamsConfig
from millstream.errors import ConfigException, IllegalStateException, ProcessorStateException
from millstream.locations import scheme_of
from millstream.model import TopicPartition
from millstream.ports import Groups, Topics
from millstream.runtime.reset.reset_plan import (
    ResetPlan,
    To,
    internal_topics,
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


@dataclass(frozen=True)
class Reset:
    """What is asked for.

    Attributes:
        to: the new position of the input topics.
        shift: alternatively, how many records to move on from the group's position.
        inputs: the input topics; None: those of the program, or else those that the group has offsets of.
        internals: the internal topics; None: all whose names belong to the application.
        force: remove members from the group, as Kafka's tool does.
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
    dry_run: bool = False,
    report: Callable[[str], None] = log.info,
) -> ResetPlan:
    """Reset an application, or with `dry_run` only report what that would do.

    Args:
        topology: the program, if available.
        report: called for each step.

    Raises:
        IllegalStateException: a client of the application is running.
        LockException: a client is using the state directory.
        ConfigException: the request does not fit the application.
        StreamsException: Kafka cannot be reached.
    """
    with ExitStack() as held:
        directory = StateDirectory(
            config.state_dir, config.application_id, group_writes=config.lets_group_write
        )
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
        now = datetime.fromtimestamp(parts.clock.epoch_ms() / 1000, UTC)
        job = _Job(config, topics, groups, directory, topology, now, report)
        plan = job.plan(asked)
        if not dry_run:
            raise_if_alive(plan, asked.force)
            job.perform(plan)
        return plan


@dataclass(frozen=True)
class _Job:
    """One reset, with the resources it needs."""

    config: StreamsConfig
    topics: Topics
    groups: Groups
    directory: StateDirectory
    topology: Topology | None
    now: datetime
    report: Callable[[str], None]

    def plan(self, asked: Reset) -> ResetPlan:
        """Check everything, without changing anything."""
        application_id = self.config.application_id
        existing = self.topics.names()
        mine, foreign = internal_topics(application_id, existing, self.groups.names())
        wanted = list(dict.fromkeys(self._inputs(existing) if asked.inputs is None else asked.inputs))
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
            tuple(sorted(set(wanted) - found.keys())),
            internal,
            foreign if asked.internals is None else {},
            self.config.checkpoints,
            None if (path := _local_path(self.config.checkpoints)) is None else path.exists(),
            str(self.directory.path),
            len(self.directory.tasks()) + self.directory.global_path.exists(),
            self.groups.members(application_id),
        )

    def perform(self, plan: ResetPlan) -> None:
        """Carry out the plan."""
        if plan.members:
            self.report(f"removing {len(plan.members)} members from the group")
            self.groups.remove_members(plan.application_id, plan.members)
        if plan.internal:
            self.report(f"deleting {len(plan.internal)} internal topics")
            self.topics.delete(plan.internal)
        if plan.has_checkpoints:
            self.report(f"deleting the checkpoints of to_spark() in '{plan.checkpoints}'")
            _delete(_local_path(plan.checkpoints))
        self.report(f"deleting the local state in '{plan.state}'")
        self.directory.clean_all()
        self.report(f"setting the group's offsets of {len(plan.positions)} partitions")
        self.topics.delete_group(plan.application_id)
        self.groups.commit(plan.application_id, {each.at: each.offset for each in plan.positions})

    def _inputs(self, existing: Iterable[str]) -> Iterable[str]:
        """The input topics of the program, or else those that its group has committed offsets of."""
        application_id = self.config.application_id
        if self.topology is not None:
            patterns = source_patterns(self.topology.pipelines)
            own = set(self.topology.global_topics)
            named = [name for name in self.topology.source_topics if name not in own]
            return [*named, *matching_topics(patterns, existing, application_id)]
        others = [name for name in existing if not is_internal_topic(application_id, name)]
        partitions = [
            TopicPartition(name, each)
            for name, topic in self.topics.look(others, patient=True).items()
            for each in range(topic.partitions)
        ]
        return sorted({at.topic for at in self.topics.committed(application_id, partitions)})


def _local_path(location: str) -> Path | None:
    """The path of a location on this machine; None: it is elsewhere."""
    match scheme_of(location):
        case "":
            return Path(location).expanduser().absolute()
        case "file":
            return Path(unquote(urlsplit(location).path))
        case _:
            return None


def _delete(folder: Path | None) -> None:
    try:
        if folder is not None and folder.exists():
            shutil.rmtree(folder)
    except OSError as error:
        raise ProcessorStateException(
            f"the checkpoints in '{folder}' cannot be deleted: {error}; delete the folder, then reset again"
        ) from error


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
            f"begin with '{application_id}-' and end with -changelog or -repartition. Nothing was deleted"
        )
