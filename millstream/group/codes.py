"""The error codes that subscriptions and assignments carry: how one client's failure reaches all others."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["AssignorError"]


class AssignorError(IntEnum):
    """Why an assignment is not an ordinary one; a subscription has only NONE or SHUTDOWN_REQUESTED.

    Source: org.apache.kafka.streams.processor.internals.assignment.AssignorError; KIP-671 for the last one.
    """

    NONE = 0
    INCOMPLETE_SOURCE_TOPIC_METADATA = 1
    VERSION_PROBING = 2
    ASSIGNMENT_ERROR = 3
    SHUTDOWN_REQUESTED = 4

    @property
    def description(self) -> str:
        """Kafka's own sentence for it."""
        return _DESCRIPTIONS[self]


_DESCRIPTIONS = {
    AssignorError.NONE: "NONE",
    AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA: (
        "Missing metadata for source topics. Check the group leader logs for details."
    ),
    AssignorError.VERSION_PROBING: (
        "Could not read internal rebalance metadata due to unknown encoding version."
    ),
    AssignorError.ASSIGNMENT_ERROR: (
        "Internal task assignment error. Check the group leader logs for details."
    ),
    AssignorError.SHUTDOWN_REQUESTED: (
        "A KafkaStreams instance encountered a fatal error and requested a shutdown for the entire "
        "application."
    ),
}
