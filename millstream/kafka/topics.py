"""The cluster's topics, through Kafka's admin API. No query here creates a topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as NativePartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __init__ re-exports implicitly
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from millstream import program_end
from millstream.config import StreamsConfig
from millstream.errors import IllegalStateException, InternalTopicException, StreamsException
from millstream.kafka.clients import admin_config, build, restore_consumer_config, unreachable
from millstream.kafka.patience import AWAY, RETRIABLE, Silence, Wait, patiently
from millstream.model import TopicPartition
from millstream.polling import looks
from millstream.ports import TopicDescription
from millstream.topology.internal_topics import InternalTopic

__all__ = ["KafkaTopics", "electing"]

T = TypeVar("T")
_VISIBLE_EVERY_S = 0.02
"""How often a topic that was just created is looked for, until the broker shows it."""
_SINCE_3_6 = "message.timestamp.after.max.ms"
"""Brokers before Kafka 3.6 do not know it, and take any time."""
_STALE = (KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH)
"""A broker has restarted, and the client asks it as the leader that it was before, for minutes."""
_SETTLE_S = 1.0
"""How long brokers are asked again for a topic that the controller does not report."""
_CANNOT_BE = (
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
)
"""How the controller refuses to create a topic that does not exist."""
_GRACE_S = 1.0
"""How much longer than its own deadline a request may take to end."""
_READY_EVERY_S = 0.1
"""How often a broker is asked again that is getting ready."""
_LOOK_S = 5.0
"""How long a question of a `look` may take at most: it is repeated, so a late answer is worth less than the
next one."""
_SHOWN = 10
"""How many names a message has at most."""
_AT_ONCE = 1_000
"""How many topics one question is about: more would take a broker longer than a short deadline."""


class _AskAgain(Exception):
    """This answer will not come; its cause is what the question met."""


class KafkaTopics:
    """`ports.Topics` on a real cluster. Any thread may use it.

    Every call ends within `request.timeout.ms`, with a `StreamsException` that names `bootstrap.servers` if
    the cluster did not answer.
    """

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self._timeout_s = config.request_timeout_s
        self._lock = threading.Lock()
        self._silence = Silence()
        self._closed = False
        self._client: AdminClient | None = build(AdminClient, admin_config(config))
        program_end.leave_to_parent(self)

    def describe(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """The topics that exist, by name; a missing one is left out."""
        found = self._described(names, self._timeout_s)
        if not found:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in found]
        configs = {
            resource.name: entries
            for resource, entries in self._ask(
                "read the configuration of topics",
                lambda admin, seconds: admin.describe_configs(resources, request_timeout=seconds),
                none_for=(KafkaError.UNKNOWN_TOPIC_OR_PART,),  # deleted between the two questions
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
                replicas=_replicas(topic),
                racks=_racks(topic),
            )
            for name, topic in found.items()
            if name in configs
        }

    def look(self, names: Iterable[str], *, patient: bool = False) -> dict[str, TopicDescription]:
        """As `describe`, without the configs: one quick question, which can be asked several times a second.

        Ends within 5 s, or `request.timeout.ms` if that is shorter or the caller is patient; with very many
        topics, within that for each thousand.
        """
        timeout_s = self._timeout_s if patient else min(self._timeout_s, _LOOK_S)
        return {
            name: TopicDescription(
                name,
                len(topic.partitions),
                str(topic.topic_id),
                replicas=_replicas(topic),
                racks=_racks(topic),
            )
            for name, topic in self._described(names, timeout_s, warns=patient).items()
        }

    def confirm(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """As `look`, and certain: a topic that is left out does not exist.

        A broker learns of a new topic some milliseconds after the controller, or seconds where the cluster is
        busy. So the controller is asked to validate, not perform, the creation of the missing topics, and
        names those that exist. Where it does not say, for want of rights, the brokers are asked again for a
        while.

        Raises:
            StreamsException: the cluster did not answer, or brokers do not show what exists.
        """
        wanted = set(names)
        found: dict[str, TopicDescription] = {}
        began = time.monotonic()
        exist: set[str] = set()
        for _ in looks(self._timeout_s, every_s=_VISIBLE_EVERY_S):
            found |= self.look(wanted - found.keys(), patient=True)
            missing = wanted - found.keys()
            if not missing:
                return found
            exist, unknown = self._ask_controller(missing)
            if not exist and (not unknown or time.monotonic() - began >= _SETTLE_S):
                return found
        raise StreamsException(
            f"topics {_few(exist)} exist according to the controller, but no broker at "
            f"'{','.join(self._config.bootstrap_servers)}' shows them after {self._timeout_s:.0f} s; check "
            f"the brokers"
        )

    def names(self, complete: Callable[[set[str]], bool] = lambda names: True) -> set[str]:
        """All topics' names. While they are not `complete`, brokers are asked again, for a second at most."""
        found: set[str] = set()
        for _ in looks(_SETTLE_S, every_s=_VISIBLE_EVERY_S):
            try:
                listed = patiently(self._config, "list topics", self._listed, self._timeout_s)
            except KafkaException as error:
                raise unreachable(self._config, "list topics", error) from error
            found = set(listed.topics)
            if complete(found):
                break
        return found

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
                self._unanswered(self._timeout_s)
                raise unreachable(self._config, f"create topic '{name}'", error) from error
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                if code in AWAY:
                    self._unanswered(self._timeout_s)
                    raise unreachable(self._config, f"create topic '{name}'", error) from error
                topic = next(topic for topic in topics if topic.name == name)
                if _SINCE_3_6 in topic.configs and _SINCE_3_6 in error.args[0].str():
                    configs = {key: value for key, value in topic.configs.items() if key != _SINCE_3_6}
                    self.create([replace(topic, configs=configs)], replication_factor)
                    continue
                raise InternalTopicException(
                    f"topic '{name}' could not be created: {error.args[0].str()}; create it yourself, or fix "
                    f"the cause (replication.factor, topic.*, or this client's permissions)"
                ) from error
        names = {topic.name for topic in topics}
        self._wait_until(lambda: names <= self.describe(names).keys(), deadline, names, "created")

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition."""
        return self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record that is still there."""
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def offsets_at(self, partitions: Iterable[TopicPartition], epoch_ms: int) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition from that time on; without one it is left out."""
        found = self._offsets(partitions, OffsetSpec.for_timestamp(epoch_ms))
        return {at: offset for at, offset in found.items() if offset >= 0}

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What a group has committed of these partitions; nothing: there is no such group."""
        asked = [NativePartition(topic, number) for topic, number in sorted(set(partitions))]
        if not asked:
            return {}
        # By a consumer that never joins: librdkafka's admin client crashes the process (a null pointer) when
        # the group's coordinator answers with an error, as one does that is only starting.
        consumer = build(Consumer, {**restore_consumer_config(self._config), "group.id": group})
        refused: KafkaException | None = None
        try:
            for _ in looks(self._timeout_s, every_s=_READY_EVERY_S):
                try:
                    found = consumer.committed(asked, timeout=self._timeout_s)
                    return {
                        TopicPartition(at.topic, at.partition): at.offset for at in found if at.offset >= 0
                    }
                except KafkaException as error:
                    refused = error
                    if error.args[0].code() not in RETRIABLE:
                        break
        finally:
            consumer.close()
        assert refused is not None, "at least one request was sent"
        raise unreachable(self._config, f"read the offsets of group '{group}'", refused) from refused

    def delete(self, names: Iterable[str]) -> None:
        """Delete topics, and return when the cluster does not show them any more."""
        gone = sorted(set(names) & self.names())
        if not gone:
            return
        deadline = time.monotonic() + self._timeout_s
        self._ask(
            f"delete topics {', '.join(gone)}",
            lambda admin, seconds: admin.delete_topics(
                gone, operation_timeout=seconds, request_timeout=seconds
            ),
            none_for=(KafkaError.UNKNOWN_TOPIC_OR_PART,),
        )
        self._wait_until(lambda: not self._described(gone, self._timeout_s), deadline, gone, "deleted")

    def delete_group(self, group: str) -> None:
        """Delete a group and what it has committed; nothing happens if there is none.

        Raises:
            IllegalStateException: it has members.
        """
        try:
            self._ask(
                f"delete group '{group}'",
                lambda admin, seconds: admin.delete_consumer_groups([group], request_timeout=seconds),
                none_for=(KafkaError.GROUP_ID_NOT_FOUND,),
            )
        except StreamsException as error:
            cause = error.__cause__
            if not isinstance(cause, KafkaException) or cause.args[0].code() != KafkaError.NON_EMPTY_GROUP:
                raise
            raise IllegalStateException(
                f"group '{group}' has members, so clients of the application are running; close them all "
                f"first (a killed client is removed after session.timeout.ms)"
            ) from cause

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._closed, self._client = True, None  # librdkafka ends its threads with the object

    def _described(self, names: Iterable[str], timeout_s: float, *, warns: bool = True) -> dict[str, Any]:
        """What the cluster says of each topic that exists."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        described: dict[str, Any] = {}
        for at in range(0, len(wanted), _AT_ONCE):
            some = TopicCollection(wanted[at : at + _AT_ONCE])
            described |= self._ask(
                "describe topics",
                lambda admin, seconds, some=some: admin.describe_topics(  # type: ignore[misc]
                    some, request_timeout=seconds
                ),
                none_for=(KafkaError.UNKNOWN_TOPIC_OR_PART,),
                timeout_s=timeout_s,
                warns=warns,
            )
        return {name: topic for name, topic in described.items() if topic is not None}

    def _ask_controller(self, names: Iterable[str]) -> tuple[set[str], set[str]]:
        """Which of these topics exist, and of which the controller does not say."""
        admin = self._admin()
        limit_s = min(self._timeout_s, _LOOK_S)
        asked = admin.create_topics(
            [NewTopic(name, num_partitions=1, replication_factor=1) for name in names],
            validate_only=True,
            request_timeout=limit_s,
        )
        exist, unknown = set(), set()
        for name, future in asked.items():
            try:
                future.result(limit_s + 1.0)
            except TimeoutError:
                unknown.add(name)
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.TOPIC_ALREADY_EXISTS:
                    exist.add(name)
                elif code not in _CANNOT_BE:
                    unknown.add(name)
        return exist, unknown

    def _offsets(self, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        wanted = {NativePartition(part.topic, part.partition): spec for part in set(partitions)}
        if not wanted:
            return {}
        answer = self._ask(
            "list offsets",
            lambda admin, seconds: admin.list_offsets(wanted, request_timeout=seconds),
            partitions=wanted,
        )
        return {TopicPartition(part.topic, part.partition): info.offset for part, info in answer.items()}

    def _wait_until(
        self, shown: Callable[[], bool], deadline: float, names: Iterable[str], what: str
    ) -> None:
        for _ in looks(deadline - time.monotonic(), every_s=_VISIBLE_EVERY_S):
            if shown():
                return
        raise StreamsException(
            f"topics {', '.join(sorted(names))} were {what} but the cluster does not show it after "
            f"{self._timeout_s:.0f} s; raise request.timeout.ms if the cluster is slow"
        )

    def _ask(
        self,
        what: str,
        question: Callable[[AdminClient, float], dict[Any, Any]],
        *,
        none_for: tuple[int, ...] = (),
        partitions: Collection[NativePartition] = (),
        timeout_s: float | None = None,
        warns: bool = True,
    ) -> dict[Any, Any]:
        """The answers to a question that gives a future for each of its subjects.

        Asked again while a broker says that it is only getting ready, or goes away before it answers; and
        while one of these `partitions` has no leader.
        """
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        wait = Wait(self._config, what, wait_s, warns=warns)
        refused: BaseException | None = None
        heard_at: float | None = None
        for _ in looks(wait_s, every_s=_READY_EVERY_S):
            admin, left_s = self._admin(), max(wait.left_s, _READY_EVERY_S)
            answers: dict[Any, Any] = {}
            try:
                for subject, future in question(admin, left_s).items():
                    try:
                        answers[subject] = wait.result(self._awaited(admin, future), _GRACE_S)
                    except KafkaException as error:
                        if error.args[0].code() not in none_for:
                            raise
                        answers[subject] = None
                self._answered()
                return answers
            except KafkaException as error:
                refused, code = error, error.args[0].code()
                if code == KafkaError._NOENT:  # a partition without a leader, or one that is not there
                    heard_at = heard_at or self._heard(partitions)
                    if heard_at is not None and time.monotonic() - heard_at > _SETTLE_S:
                        break
                elif code in _STALE:
                    self._heard(partitions)  # which makes the client look at the leaders again
                elif code not in RETRIABLE:
                    break
            except _AskAgain as error:
                refused = error.__cause__
            except TimeoutError as error:
                refused = error
                break
        assert refused is not None, "at least one request was sent"
        raise unreachable(self._config, what, refused) from refused

    def _awaited(self, admin: AdminClient, future: Future[T]) -> Callable[[float], T]:
        """A function that waits the given seconds for an answer, unless the client was replaced."""

        def attempt(seconds: float) -> T:
            began = time.monotonic()
            try:
                return future.result(seconds)
            except KafkaException as error:
                if error.args[0].code() not in AWAY:
                    raise
                self._unanswered(time.monotonic() - began)
                raise _AskAgain from error
            except TimeoutError as error:
                self._unanswered(time.monotonic() - began)
                with self._lock:
                    is_old = self._client is not admin and not self._closed
                if is_old:
                    raise _AskAgain from error
                raise

        return attempt

    def _heard(self, partitions: Iterable[NativePartition]) -> float | None:
        """When the cluster has answered, just now; None: it has not, or is still electing their leaders."""
        try:
            listed = self._listed(_SETTLE_S)
        except KafkaException:
            return None
        return None if electing(listed, partitions) else time.monotonic()

    def _listed(self, seconds: float) -> ClusterMetadata:
        began = time.monotonic()
        try:
            listed = self._admin().list_topics(timeout=seconds)
        except KafkaException as error:
            if error.args[0].code() in AWAY:
                self._unanswered(time.monotonic() - began)
            raise
        self._answered()
        return listed

    def _admin(self) -> AdminClient:
        with self._lock:
            if self._closed:
                raise IllegalStateException("the admin client is closed")
            if self._client is None:
                self._client = build(AdminClient, admin_config(self._config))
            return self._client

    def _unanswered(self, waited_s: float) -> None:
        """Handle a time without answers. The client may have lost all broker addresses."""
        with self._lock:
            if self._silence.unanswered(waited_s):
                self._client = None  # a thread that still waits for it keeps its own reference

    def _answered(self) -> None:
        with self._lock:
            self._silence.answered()


def electing(listed: ClusterMetadata, partitions: Iterable[NativePartition]) -> bool:
    """Whether one of these partitions is there and has no leader yet, as after the start of a broker."""
    for wanted in partitions:
        topic = listed.topics.get(wanted.topic)
        found = topic.partitions.get(wanted.partition) if topic is not None else None
        if found is not None and found.leader < 0:
            return True
    return False


def _replicas(topic: Any) -> int:
    """Of each partition; of the one that has the fewest, where they differ."""
    return min((len(partition.replicas) for partition in topic.partitions), default=0)


def _racks(topic: Any) -> tuple[frozenset[str], ...]:
    """Of each partition, in order."""
    partitions = sorted(topic.partitions, key=lambda partition: partition.id)
    return tuple(frozenset(node.rack or "" for node in partition.replicas) for partition in partitions)


def _few(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    found = sorted(names)
    return ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
