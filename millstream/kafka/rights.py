"""The user's permissions on a cluster, and the times of the newest records: queried, never tried out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as NativePartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from millstream.config import StreamsConfig
from millstream.kafka.clients import admin_config, build, unreachable
from millstream.model import TopicPartition

__all__ = ["ClusterRights"]


class ClusterRights:
    """Asks the cluster; each question ends within `request.timeout.ms`."""

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self._timeout_s = config.request_timeout_s
        self._admin: Any = build(AdminClient, admin_config(config))

    def of_cluster(self) -> frozenset[str]:
        """What may be done with the cluster itself, such as CREATE."""
        asked = self._admin.describe_cluster(
            include_authorized_operations=True, request_timeout=self._timeout_s
        )
        return _names(self._answer("describe the cluster", asked).authorized_operations)

    def of_topics(self, names: Iterable[str]) -> Mapping[str, frozenset[str]]:
        """What may be done with each of these topics; one that cannot even be described has nothing."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        asked = self._admin.describe_topics(
            TopicCollection(wanted), include_authorized_operations=True, request_timeout=self._timeout_s
        )
        found = {}
        for name, future in asked.items():
            try:
                found[name] = _names(future.result(self._timeout_s + 1.0).authorized_operations)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise unreachable(self._config, f"describe topic '{name}'", error) from error
                found[name] = frozenset()
        return found

    def partitions(self, names: Iterable[str]) -> Mapping[str, int]:
        """How many partitions each of these topics has; one that cannot be described is left out."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        asked = self._admin.describe_topics(TopicCollection(wanted), request_timeout=self._timeout_s)
        found = {}
        for name, future in asked.items():
            with suppress(KafkaException):
                found[name] = len(future.result(self._timeout_s + 1.0).partitions)
        return found

    def newest(self, partitions: Iterable[TopicPartition]) -> int | None:
        """The time of the newest record of these partitions, in milliseconds; None: there is none."""
        wanted = {NativePartition(*at): OffsetSpec.max_timestamp() for at in partitions}  # type: ignore[no-untyped-call]
        if not wanted:
            return None
        asked = self._admin.list_offsets(wanted, request_timeout=self._timeout_s)
        times = [self._answer("list offsets", future).timestamp for future in asked.values()]
        return max((time for time in times if time is not None and time >= 0), default=None)

    def _answer(self, what: str, future: Any) -> Any:
        try:
            return future.result(self._timeout_s + 1.0)
        except (KafkaException, TimeoutError) as error:
            raise unreachable(self._config, what, error) from error


def _names(operations: Iterable[Any] | None) -> frozenset[str]:
    return frozenset(str(each.name) for each in operations or ())
