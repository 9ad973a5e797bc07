"""Consumer groups, by Kafka's admin API: who is in one, and what it has committed. For resets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as NativePartition
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient, MemberToRemove
from kafka.errors import KafkaError as PythonKafkaError

from millstream.config import StreamsConfig
from millstream.errors import StreamsException, TimeoutException
from millstream.kafka.clients import admin_config, build, membership_config, unreachable
from millstream.model import TopicPartition

__all__ = ["KafkaGroups"]

_LOOK_EVERY_S = 0.05
_ADMIN_SETTINGS = KafkaAdminClient.DEFAULT_CONFIG.keys()


class KafkaGroups:
    """`ports.Groups` on a real cluster. Every call ends within `request.timeout.ms`."""

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self._timeout_s = config.request_timeout_s
        self._admin = build(AdminClient, admin_config(config))

    def names(self) -> frozenset[str]:
        """The ids of all groups."""
        try:
            listed = self._admin.list_consumer_groups(request_timeout=self._timeout_s).result()
        except KafkaException as error:
            raise unreachable(self._config, "list groups", error) from error
        return frozenset(group.group_id for group in listed.valid)

    def members(self, group: str) -> Mapping[str, str]:
        """The members of a group: member id to client id and host; nothing: it is empty, or there is none."""
        asked = self._admin.describe_consumer_groups([group], request_timeout=self._timeout_s)
        try:
            found = asked[group].result(self._timeout_s + 1.0)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return {}
            raise unreachable(self._config, f"describe group '{group}'", error) from error
        except TimeoutError as error:
            raise unreachable(self._config, f"describe group '{group}'", error) from error
        return {each.member_id: f"'{each.client_id}' at {each.host}" for each in found.members}

    def remove_members(self, group: str, members: Iterable[str]) -> None:
        """Take members out of a group, and wait until they are. One that lives may join again.

        Raises:
            TimeoutException: some are still there.
        """
        options = {
            name: value for name, value in membership_config(self._config).items() if name in _ADMIN_SETTINGS
        }
        wanted = set(members)
        try:
            with _Closing(KafkaAdminClient(**options)) as admin:
                admin.remove_group_members(
                    group,
                    [MemberToRemove(member_id=each, reason="the application is reset") for each in wanted],
                )
        except (PythonKafkaError, OSError) as error:
            raise StreamsException(
                f"members of group '{group}' could not be removed: {type(error).__name__}: {error}; stop the "
                "clients instead, and try again when session.timeout.ms is over"
            ) from error
        deadline = time.monotonic() + self._timeout_s
        pause = threading.Event()
        while left := wanted & self.members(group).keys():
            if time.monotonic() >= deadline:
                raise TimeoutException(
                    f"members {', '.join(sorted(left))} of group '{group}' are still there; stop their "
                    "clients, and try again"
                )
            pause.wait(_LOOK_EVERY_S)

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set what a group without members has committed, of these partitions."""
        if not offsets:
            return
        partitions = [NativePartition(at.topic, at.partition, offset) for at, offset in offsets.items()]
        asked = self._admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, partitions)], request_timeout=self._timeout_s
        )
        try:
            answer = asked[group].result(self._timeout_s + 1.0)
        except (KafkaException, TimeoutError) as error:
            raise unreachable(self._config, f"set the offsets of group '{group}'", error) from error
        failed = [each for each in answer.topic_partitions if each.error is not None]
        if failed:
            raise StreamsException(
                f"the offsets of group '{group}' could not be set: "
                + ", ".join(f"{each.topic}-{each.partition}: {each.error.str()}" for each in failed[:5])
            )

    def close(self) -> None:
        """Idempotent; librdkafka ends its threads with the object."""


class _Closing:
    """Closes a client of kafka-python's."""

    def __init__(self, admin: Any) -> None:
        self._admin = admin

    def __enter__(self) -> Any:
        return self._admin

    def __exit__(self, *raised: object) -> None:
        self._admin.close()
