"""The client's side of the group: what it says of itself, and what an agreement means for it.

The membership (kafka/membership.py) carries bytes; `group/` knows what is in them and how the leader decides;
this file puts the two together for one client. `react` is the table of Kafka's assignment error codes.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from millstream.errors import (
    ApplicationShutdownException,
    MissingSourceTopicException,
    StreamsException,
    TaskAssignmentException,
)
from millstream.foreign import listed, printable
from millstream.group.assignor import Facts, Memory, assign
from millstream.group.codes import AssignorError
from millstream.group.trust import unknown_work
from millstream.group.userdata import (
    MOST_REASON_CHARS,
    MOST_USER_DATA_BYTES,
    Assignment,
    MemberInfo,
    fitting,
)
from millstream.model import TopicPartition

__all__ = ["Coordination", "FailThreads", "Host", "Reaction", "ShutDown", "TakeWork", "react"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TakeWork:
    """The assignment is this client's work."""

    assignment: Assignment


@dataclass(frozen=True)
class ShutDown:
    """Another client has asked all of them to shut down: to ERROR, without asking the handler."""

    error: ApplicationShutdownException


@dataclass(frozen=True)
class FailThreads:
    """Every stream thread fails with this."""

    error: StreamsException


Reaction = TakeWork | ShutDown | FailThreads


def react(assignment: Assignment, client_id: str) -> Reaction:
    """What an assignment means for this client.

    Source: org.apache.kafka.streams.processor.internals.StreamsRebalanceListener.onPartitionsAssigned.
    """
    leader = printable(assignment.leader)
    reason = printable(assignment.reason, MOST_REASON_CHARS)
    match assignment.error_code:
        case AssignorError.NONE | AssignorError.VERSION_PROBING:
            return TakeWork(assignment)
        case AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA:
            names = tuple(sorted(assignment.missing_topics))
            missing = listed(names) or "(not named)"
            return FailThreads(
                MissingSourceTopicException(
                    f"One or more source topics were missing during rebalance: {missing}, as "
                    f"'{leader}' sees it, which leads the group. Create them, or change the "
                    "topology",
                    names,
                )
            )
        case AssignorError.SHUTDOWN_REQUESTED:
            who = printable(assignment.asked_by) or "(unknown)"
            asked = f"client '{who}'" if who != client_id else "this client"
            return ShutDown(
                ApplicationShutdownException(
                    "A Kafka Streams client in this Kafka Streams application is requesting to shutdown the "
                    f"application: {asked}, because of: {reason or '(no reason given)'}",
                    client=who,
                )
            )
        case AssignorError.ASSIGNMENT_ERROR:
            return FailThreads(
                TaskAssignmentException(
                    "Hit an unexpected exception during task assignment phase of rebalance: "
                    + (reason or f"see the log of '{leader}', which leads the group")
                )
            )
        case code:
            return FailThreads(
                TaskAssignmentException(
                    f"Hit an unrecognized exception during rebalance: error code {int(code)} from "
                    f"'{leader}'; run the same version of Millstream on all clients"
                )
            )


class Host(Protocol):
    """What a coordination needs of its client."""

    def member_info(self) -> MemberInfo:
        """What it is and holds now. Quick; never raises."""

    def facts(self) -> Facts:
        """What it knows as a leader. Quick; never raises."""

    def source_partitions(self, pipelines: Iterable[str]) -> Iterable[TopicPartition]:
        """The partitions that pipelines read from topics of the user's."""

    def group_agreed(self, reaction: Reaction, generation: int) -> None: ...

    def group_lost(self, reason: str) -> None: ...

    def group_failed(self, error: StreamsException) -> None: ...

    def finished_offsets(self) -> Mapping[TopicPartition, int]:
        """The next offset to read of each source partition."""


class Coordination:
    """`ports.GroupMember` for one client."""

    def __init__(self, client_id: str, host: Host) -> None:
        self._client_id = client_id
        self._host = host
        self._nonce = itertools.count(1)
        self._lock = threading.Lock()
        self._shutdown: str | None = None
        self._told_pipelines: frozenset[str] = frozenset()
        self._agreed: Assignment | None = None
        self._took_part = False
        self._memory = Memory()
        self._left_out: tuple[str, ...] = ()

    def request_shutdown(self, reason: str) -> None:
        """From now on this client asks all of them to shut down (KIP-671); the caller has the group
        rejoin.
        """
        with self._lock:
            self._shutdown = self._shutdown or reason

    @property
    def shutdown_requested(self) -> bool:
        """Whether this client has asked the application to shut down."""
        return self._shutdown is not None

    @property
    def agreed(self) -> Assignment | None:
        """The last assignment that was no error."""
        return self._agreed

    def must_rejoin(self, pipelines: Iterable[str]) -> bool:
        """Whether the group still believes that this client holds a pipeline that it has let go of."""
        with self._lock:
            return not self._told_pipelines <= frozenset(pipelines)

    # --- ports.GroupMember -------------------------------------------------------------------------------

    def user_data(self) -> bytes:
        info = self._host.member_info()
        with self._lock:
            # Changes with each join: a follower that says the same as before is not listened to.
            info = replace(info, unique_field=next(self._nonce) % 128)
            if self._shutdown is not None:
                info = replace(info, error_code=AssignorError.SHUTDOWN_REQUESTED, reason=self._shutdown)
            self._told_pipelines = frozenset(info.pipelines)
        data, left_out = fitting(info)
        if left_out and left_out != self._left_out:
            log.warning(
                "stream-client [%s] says more of itself than the group carries (%d bytes); left out: %s",
                self._client_id,
                MOST_USER_DATA_BYTES,
                ", ".join(left_out),
            )
        self._left_out = left_out
        self._memory.own = data if self._took_part else b""
        return data

    def lead(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return assign(self._host.facts(), members, self._client_id, self._memory)

    def partitions(self, assignment: bytes) -> Iterable[TopicPartition]:
        try:
            return self._host.source_partitions(Assignment.decode(assignment).pipelines)
        except TaskAssignmentException:
            return ()  # `assigned` says what is wrong with it

    def assigned(self, assignment: bytes, generation: int) -> None:
        try:
            decoded = Assignment.decode(assignment)
        except TaskAssignmentException as error:
            self._host.group_agreed(FailThreads(error), generation)
            return
        reaction = react(decoded, self._client_id)
        if isinstance(reaction, TakeWork):
            facts = self._host.facts()
            strange = unknown_work(decoded, facts.pipelines, facts.tasks)
            if strange is not None:
                reaction = FailThreads(strange)
        self._took_part = isinstance(reaction, TakeWork)
        if isinstance(reaction, TakeWork):
            self._agreed = decoded
        self._host.group_agreed(reaction, generation)

    def lost(self, reason: str) -> None:
        self._took_part = False
        self._memory.forget()
        self._host.group_lost(reason)

    def failed(self, error: StreamsException) -> None:
        self._host.group_failed(error)

    def offsets(self) -> Mapping[TopicPartition, int]:
        return self._host.finished_offsets()
