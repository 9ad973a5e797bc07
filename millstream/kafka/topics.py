"""The cluster's topics, by Kafka's admin API. Nothing here creates a topic by asking for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as NativePartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __init__ re-exports implicitly
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from millstream.config import StreamsConfig
from millstream.errors import IllegalStateException, InternalTopicException, StreamsException
from millstream.kafka.clients import admin_config, build, unreachable
from millstream.kafka.patience import patiently
from millstream.model import TopicPartition
from millstream.ports import InternalTopic, TopicDescription

__all__ = ["KafkaTopics"]

T = TypeVar("T")
_VISIBLE_EVERY_S = 0.02
"""How often a topic that was just created is looked for, until the broker shows it."""
_LOOK_S = 5.0
"""How long a `look` may take at most: it is repeated, so a late answer is worth less than the next one."""


class KafkaTopics:
    """`ports.Topics` on a real cluster. Any thread may use it.

    Every call ends within `request.timeout.ms`, with a `StreamsException` that names `bootstrap.servers` if
    the cluster did not answer.
    """

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self._timeout_s = config.request_timeout_s
        self._lock = threading.Lock()
        self._client: AdminClient | None = build(AdminClient, admin_config(config))

    def describe(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """The topics that exist, by name; a missing one is left out."""
        found = self._described(names, self._timeout_s)
        if not found:
            return {}
        admin = self._admin()
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in found]
        configs = {
            resource.name: entries
            for resource, entries in self._ask(
                "read the configuration of topics",
                lambda: admin.describe_configs(resources, request_timeout=self._timeout_s),
                missing_is_none=True,  # deleted between the two questions
            ).items()
            if entries is not None
        }
        return {
            name: TopicDescription(
                name=name,
                partitions=len(topic.partitions),
                topic_id=str(topic.topic_id),
                configs={
                    entry.name: entry.value for entry in configs[name].values() if entry.value is not None
                },
            )
            for name, topic in found.items()
            if name in configs
        }

    def look(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """As `describe`, without the configs: one quick question, which can be asked several times a second.

        Ends within 5 s, or `request.timeout.ms` if that is shorter.
        """
        return {
            name: TopicDescription(name, len(topic.partitions), str(topic.topic_id))
            for name, topic in self._described(names, min(self._timeout_s, _LOOK_S)).items()
        }

    def names(self) -> set[str]:
        """All topics' names."""
        admin = self._admin()
        try:
            listed = patiently(
                self._config, "list topics", lambda s: admin.list_topics(timeout=s), self._timeout_s
            )
            return set(listed.topics)
        except KafkaException as error:
            raise unreachable(self._config, "list topics", error) from error

    def create(self, topics: Sequence[InternalTopic], replication_factor: int) -> None:
        """Create topics; one that exists already stays as it is. Returns when the cluster shows them."""
        if not topics:
            return
        admin = self._admin()
        deadline = time.monotonic() + self._timeout_s
        new = [
            NewTopic(
                topic.name,
                num_partitions=topic.partitions,
                replication_factor=replication_factor,
                config=dict(topic.configs),
            )
            for topic in topics
        ]
        futures = admin.create_topics(new, operation_timeout=self._timeout_s, request_timeout=self._timeout_s)
        for name, future in futures.items():
            try:
                future.result(self._timeout_s + 1.0)
            except TimeoutError as error:
                raise unreachable(self._config, f"create topic '{name}'", error) from error
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                if _is_unreachable(code):
                    raise unreachable(self._config, f"create topic '{name}'", error) from error
                raise InternalTopicException(
                    f"topic '{name}' could not be created: {error.args[0].str()}; create it yourself, or "
                    f"correct "
                    "what the message names (replication.factor, topic.*, or the rights of this client)"
                ) from error
        self._wait_until_visible({topic.name for topic in topics}, deadline)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition."""
        return self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record that is still there."""
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._client = None  # librdkafka ends its threads with the object

    def _described(self, names: Iterable[str], timeout_s: float) -> dict[str, Any]:
        """What the cluster says of each topic that exists."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        admin = self._admin()
        described = self._ask(
            "describe topics",
            lambda: admin.describe_topics(TopicCollection(wanted), request_timeout=timeout_s),
            missing_is_none=True,
            timeout_s=timeout_s,
        )
        return {name: topic for name, topic in described.items() if topic is not None}

    def _offsets(self, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        wanted = {NativePartition(part.topic, part.partition): spec for part in set(partitions)}
        if not wanted:
            return {}
        admin = self._admin()
        answer = self._ask(
            "list offsets", lambda: admin.list_offsets(wanted, request_timeout=self._timeout_s)
        )
        return {TopicPartition(part.topic, part.partition): info.offset for part, info in answer.items()}

    def _wait_until_visible(self, names: set[str], deadline: float) -> None:
        pause = threading.Event()
        while True:
            missing = names - set(self.describe(names))
            if not missing:
                return
            if time.monotonic() >= deadline:
                raise StreamsException(
                    f"topics {', '.join(sorted(missing))} were created and are not shown by the cluster "
                    f"after {self._timeout_s:.0f} s; raise request.timeout.ms if it is slow"
                )
            pause.wait(_VISIBLE_EVERY_S)

    def _ask(
        self,
        what: str,
        question: Callable[[], dict[Any, Any]],
        *,
        missing_is_none: bool = False,
        timeout_s: float | None = None,
    ) -> dict[Any, Any]:
        """The answers to a question that gives a future for each of its subjects."""
        answers: dict[Any, Any] = {}
        wait_s = (self._timeout_s if timeout_s is None else timeout_s) + 1.0
        for subject, future in question().items():
            try:
                answers[subject] = patiently(self._config, what, future.result, wait_s)
            except KafkaException as error:
                if missing_is_none and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    answers[subject] = None
                    continue
                raise unreachable(self._config, what, error) from error
            except TimeoutError as error:
                raise unreachable(self._config, what, error) from error
        return answers

    def _admin(self) -> AdminClient:
        with self._lock:
            if self._client is None:
                raise IllegalStateException("the admin client is closed")
            return self._client


def _is_unreachable(code: int) -> bool:
    return code in (
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
    )
