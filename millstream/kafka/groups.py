"""Consumer groups, as an administrator sees and changes them. For resets.

This uses kafka-python and not librdkafka's admin client, which cannot remove members from a group. Some of
its calls also end the process when a coordinator answers that it is still starting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from kafka import TopicPartition as PythonPartition
from kafka.admin import KafkaAdminClient, MemberToRemove
from kafka.errors import (
    GroupIdNotFoundError,
    NoError,
    UnknownMemberIdError,
)
from kafka.errors import KafkaError as PythonKafkaError
from kafka.structs import OffsetAndMetadata

from millstream.config import StreamsConfig
from millstream.errors import StreamsException, TimeoutException
from millstream.foreign import listed, printable
from millstream.kafka.clients import membership_config, unreachable
from millstream.model import TopicPartition
from millstream.polling import looks

__all__ = ["KafkaGroups"]

T = TypeVar("T")
_LOOK_EVERY_S = 0.05
_WHY = "the application is reset"


class KafkaGroups:
    """`ports.Groups` on a real cluster. Every call ends within about `request.timeout.ms`."""

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self._timeout_s = config.request_timeout_s
        options = {
            name: value
            for name, value in membership_config(config).items()
            if name in KafkaAdminClient.DEFAULT_CONFIG
        }
        options["bootstrap_timeout_ms"] = options["request_timeout_ms"] = int(self._timeout_s * 1000)
        self._options = options
        self._client: Any = None

    def names(self) -> frozenset[str]:
        """The ids of all groups."""
        listed = self._ask("list groups", lambda admin: admin.list_groups())
        return frozenset(str(group["group_id"]) for group in listed)

    def members(self, group: str) -> Mapping[str, str]:
        """The members of a group: member id to client id and host; empty if there are none."""
        try:
            found = self._ask(
                f"describe group '{group}'", lambda admin: admin.describe_groups([group])[group]
            )
        except StreamsException as error:
            if isinstance(error.__cause__, GroupIdNotFoundError):
                return {}
            raise
        return {
            str(each["member_id"]): f"'{printable(each['client_id'])}' at {printable(each['client_host'])}"
            for each in found["members"]
        }

    def remove_members(self, group: str, members: Iterable[str]) -> None:
        """Remove members from a group, and wait until they are gone. A live one may join again.

        Raises:
            TimeoutException: some are still there.
        """
        wanted = sorted(set(members))
        self._ask(
            f"remove members from group '{group}'",
            lambda admin: _checked(
                admin.remove_group_members(
                    group, [MemberToRemove(member_id=each, reason=_WHY) for each in wanted]
                ),
                but=(UnknownMemberIdError,),  # it has already left
            ),
        )
        left: set[str] = set()
        for _ in looks(self._timeout_s, every_s=_LOOK_EVERY_S):
            left = set(wanted) & self.members(group).keys()
            if not left:
                return
        raise TimeoutException(
            f"members {listed(sorted(left))} of group '{group}' are still in it; stop their clients, then "
            f"try again"
        )

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the committed offsets of a group without members, for these partitions."""
        if not offsets:
            return
        wanted = {
            PythonPartition(at.topic, at.partition): OffsetAndMetadata(offset, "", -1)
            for at, offset in offsets.items()
        }
        self._ask(
            f"set the offsets of group '{group}'",
            lambda admin: _checked(admin.alter_group_offsets(group, wanted)),
        )

    def close(self) -> None:
        """Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _ask(self, what: str, question: Callable[[Any], T]) -> T:
        """The answer; the request is repeated while a coordinator reports that it is still starting."""
        refused: Exception | None = None
        for _ in looks(self._timeout_s, every_s=_LOOK_EVERY_S):
            try:
                if self._client is None:
                    self._client = KafkaAdminClient(**self._options)
                return question(self._client)
            except (PythonKafkaError, OSError) as error:
                refused = error
                if not getattr(error, "retriable", False):
                    break
        assert refused is not None, "at least one request was sent"
        raise unreachable(self._config, what, refused) from refused


def _checked(answers: Mapping[Any, type[Any]], but: tuple[type[Any], ...] = ()) -> None:
    """Raise the error of one of several results."""
    for subject, kind in answers.items():
        if kind is not NoError and kind not in but:
            raise kind(f"{subject}")
