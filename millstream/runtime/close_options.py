"""Options for closing a client. Values only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum

__all__ = ["CloseOptions", "GroupMembershipOperation"]


class GroupMembershipOperation(Enum):
    """What becomes of the client's membership in its group when it closes.

    Source: org.apache.kafka.streams.CloseOptions.GroupMembershipOperation.
    """

    LEAVE_GROUP = "leave group"
    REMAIN_IN_GROUP = "remain in group"


@dataclass(frozen=True)
class CloseOptions:
    """How long `KafkaStreams.close` waits, and whether the client leaves its group.

        client.close(CloseOptions(timedelta(seconds=10)))

    Attributes:
        timeout: None: wait until it is done. Zero: do not wait.

    Source: org.apache.kafka.streams.CloseOptions.
    Differs: a client always leaves its group, so that others take over its work at once; Kafka Streams by
        default remains in it until its session times out. Remaining is refused.

    Raises:
        ValueError: the client is to remain in its group, or an argument is of another type.
    """

    timeout: timedelta | None = None
    group_membership_operation: GroupMembershipOperation = GroupMembershipOperation.LEAVE_GROUP

    def __post_init__(self) -> None:
        if self.timeout is not None and not isinstance(self.timeout, timedelta):
            raise ValueError(f"the timeout of CloseOptions must be a timedelta or None; got {self.timeout!r}")
        if self.group_membership_operation is GroupMembershipOperation.REMAIN_IN_GROUP:
            raise ValueError(
                "a client leaves its group when it closes: if it stayed in the group, no client would "
                "continue its work until session.timeout.ms has passed"
            )
        if self.group_membership_operation is not GroupMembershipOperation.LEAVE_GROUP:
            raise ValueError(
                "the group membership operation of CloseOptions must be "
                "GroupMembershipOperation.LEAVE_GROUP; got "
                f"{self.group_membership_operation!r}"
            )

    def with_timeout(self, timeout: timedelta | None) -> CloseOptions:
        """The same with another timeout."""
        return replace(self, timeout=timeout)

    def with_group_membership_operation(self, operation: GroupMembershipOperation) -> CloseOptions:
        """The same, having said that it leaves the group."""
        return replace(self, group_membership_operation=operation)
