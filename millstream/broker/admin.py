"""Topics of the embedded broker: create, delete, list.

`millstream.kafka.topics` is the runtime's view of any cluster; this is for the code that started the broker:
here an existing topic is an error, topics can be deleted, and no configuration is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from millstream import program_end
from millstream.errors import BrokerException
from millstream.kafka.patience import AWAY
from millstream.polling import looks

__all__ = ["Admin"]

_SECONDS = 30.0
_ATTEMPTS_S = (5.0, 10.0, 15.0)
"""How long clients may take to list topics, one after the other; see `kafka/patience.py: Silence`."""
_VISIBLE_EVERY_SECONDS = 0.005

client_log = logging.getLogger(__name__)
"""The logger of librdkafka's own messages, in place of standard error."""


class Admin:
    """A client of one broker. Any thread may use it."""

    def __init__(
        self,
        bootstrap_servers: str,
        more: Mapping[str, str] | None = None,
        attempts_s: Sequence[float] = _ATTEMPTS_S,
    ) -> None:
        """`more` are settings of librdkafka."""
        self._attempts_s = attempts_s
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap_servers,
            "client.id": "millstream-broker-admin",
            "allow.auto.create.topics": False,
            "log.connection.close": False,
            **(more or {}),
        }
        self._client = self._connect()
        program_end.leave_to_parent(self)

    def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(configs))
        self._metadata()  # a client that has lost its broker would query none
        futures = self._client.create_topics([topic], operation_timeout=_SECONDS, request_timeout=_SECONDS)
        _result(futures[name], f"topic {name!r} could not be created")
        self._wait_until(lambda: self._partitions(name) == partitions, f"topic {name!r} did not appear")

    def delete(self, name: str) -> None:
        self._metadata()
        futures = self._client.delete_topics([name], operation_timeout=_SECONDS, request_timeout=_SECONDS)
        _result(futures[name], f"topic {name!r} could not be deleted")
        self._wait_until(lambda: name not in self.names(), f"topic {name!r} was not deleted")

    def names(self) -> set[str]:
        return set(self._metadata())

    def _partitions(self, name: str) -> int:
        """How many partitions of a topic have a leader and so accept records."""
        topic = self._metadata().get(name)
        return 0 if topic is None else sum(part.leader >= 0 for part in topic.partitions.values())

    def _metadata(self) -> dict[str, Any]:
        """All topics; an unanswered client is replaced by a new one."""
        refused: KafkaException | None = None
        for seconds in self._attempts_s:
            client = self._client
            try:
                return dict(client.list_topics(timeout=seconds).topics)
            except KafkaException as error:
                refused = error
                if error.args[0].code() not in AWAY:
                    break
                if self._client is client:
                    self._client = self._connect()
        assert refused is not None, "at least one request was sent"
        raise BrokerException(f"the broker's topics could not be listed: {_text(refused)}") from refused

    def _connect(self) -> AdminClient:
        return AdminClient(self._settings, logger=client_log)

    @staticmethod
    def _wait_until(condition: Callable[[], bool], otherwise: str) -> None:
        """Wait for the broker, which learns of a change some milliseconds after the controller."""
        for _ in looks(_SECONDS, every_s=_VISIBLE_EVERY_SECONDS):
            if condition():
                return
        raise BrokerException(
            f"{otherwise} within {_SECONDS:.0f} s after the controller accepted the request"
        )


def _result(future: Future[Any], otherwise: str) -> None:
    try:
        future.result(timeout=_SECONDS)
    except KafkaException as error:
        raise BrokerException(f"{otherwise}: {_text(error)}") from error
    except FutureTimeoutError as error:
        raise BrokerException(f"{otherwise}: no answer within {_SECONDS:.0f} s") from error


def _text(error: KafkaException) -> str:
    """Such as `TOPIC_ALREADY_EXISTS: Topic 'x' already exists.`"""
    cause: Any = error.args[0] if error.args else error
    return f"{cause.name()}: {cause.str()}" if hasattr(cause, "name") else str(cause)
