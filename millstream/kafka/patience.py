"""Waiting for a cluster that does not answer: logging it, and when to create a client again."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from millstream.config import StreamsConfig
from millstream.polling import pause

__all__ = ["AWAY", "RETRIABLE", "Silence", "Wait", "patiently", "reachability"]

log = logging.getLogger(__name__)

T = TypeVar("T")
_REPORT_AFTER_S = 4.0
_REPORT_AGAIN = 3
"""A warning comes when the wait is this many times as long as at the last one: after 4, 12 and 36 s."""
_ATTEMPT_S = 4.0
_AGAIN_AFTER_S = 0.1
_CONNECT_S = 1.0
_MOST_SERVERS = 3
AWAY = frozenset(
    (
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
    )
)
"""librdkafka's errors for a cluster that has not answered."""
RETRIABLE = AWAY | {
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_CONTROLLER,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
"""All errors that end by themselves, as brokers start, stop and elect leaders: what met one is repeated.

Source: those that Java's client repeats: OffsetFetcherUtils.handleListOffsetResponse,
    FetchCollector.handleInitializeErrors, and the subclasses of RetriableException of coordinators and
    controllers. Two of its own are not here: an unknown topic, which may be gone, and a corrupt record.
"""
_RENEW_AFTER_S = 5.0
_RENEW_AFTER_AT_MOST_S = 60.0


class Silence:
    """Decides when an unanswered librdkafka client must be created again: after 5 s, then 10, up to 60.

    librdkafka drops each broker that is missing in the last metadata response, and an only broker that is
    shutting down, starting, or so busy that it misses its heartbeats responds that there are none. When the
    last broker is dropped, a timer is set to return to `bootstrap.servers`; the handler of the same response,
    in another thread, cancels that timer if it runs later. From then on no broker is queried, and no setting
    helps: `metadata.recovery.rebootstrap.trigger.ms` counts from a request that was sent. To users of the
    client this looks like an unavailable broker. Java's client and kafka-python ignore such a response.

    Source: librdkafka's issue 5301; seen with 2.16.0.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self._patience_s = _RENEW_AFTER_S

    def answered(self) -> None:
        """The cluster has answered."""
        self._since, self._patience_s = None, _RENEW_AFTER_S

    def unanswered(self, waited_s: float) -> bool:
        """A request was not answered for this time. Returns whether to create the client again now."""
        now = self._clock()
        if self._since is None:
            self._since = now - waited_s
        if now - self._since < self._patience_s:
            return False
        self._since, self._patience_s = now, min(2 * self._patience_s, _RENEW_AFTER_AT_MOST_S)
        return True


class Wait:
    """One wait for the cluster, however often the question is asked anew: warnings count from its start.

    `warns`: whether there are any. A question that is repeated for hours leaves that to who asks it.
    """

    def __init__(self, config: StreamsConfig, what: str, timeout_s: float, *, warns: bool = True) -> None:
        self._warns = warns
        self._config = config
        self._what = what
        self._timeout_s = timeout_s
        self._began = time.monotonic()
        self._next_s = _REPORT_AFTER_S

    @property
    def left_s(self) -> float:
        """The seconds until the timeout; negative after it."""
        return self._began + self._timeout_s - time.monotonic()

    def result(self, attempt: Callable[[float], T], grace_s: float = 0.0) -> T:
        """The result of `attempt`, which gets a number of seconds, and is called again while time is left.

        A warning that is due names the servers and what is known about them. `grace_s`: how much longer than
        the timeout to wait, for an attempt that ends by itself.

        Raises:
            KafkaException, TimeoutError: the error of the last attempt.
        """
        while True:
            until_next_s = self._began + self._next_s - time.monotonic()
            try:
                return attempt(max(0.0, min(self.left_s + grace_s, until_next_s, _ATTEMPT_S)))
            except TimeoutError:
                if self.left_s + grace_s <= 0:
                    raise
            except KafkaException as error:
                if self.left_s + grace_s <= 0 or error.args[0].code() not in AWAY:
                    raise
                pause(_AGAIN_AFTER_S)  # the broker may have answered at once
            self._report_if_due()

    def _report_if_due(self) -> None:
        waited_s = time.monotonic() - self._began
        if waited_s < self._next_s:
            return
        self._next_s *= _REPORT_AGAIN
        if not self._warns:
            return
        log.warning(
            "no answer from Kafka for %.0f s (to %s): %s; giving up after %.0f s (request.timeout.ms)",
            waited_s,
            self._what,
            "; ".join(reachability(self._config.bootstrap_servers)),
            self._timeout_s,
        )


def patiently(config: StreamsConfig, what: str, attempt: Callable[[float], T], timeout_s: float) -> T:
    """What `Wait.result` returns for a question that is asked once."""
    return Wait(config, what, timeout_s).result(attempt)


def reachability(servers: Iterable[str]) -> list[str]:
    """The outcome of a connection to each of the first servers, in words."""
    return [f"{server} {_met(server)}" for server in list(servers)[:_MOST_SERVERS]]


def _met(server: str) -> str:
    host, _, port = server.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S):
            return (
                "accepts connections, but does not answer as expected (is it Kafka, and is security.protocol "
                "right?)"
            )
    except TimeoutError:
        return "does not answer at all"
    except (OSError, ValueError) as error:
        return f"cannot be reached ({getattr(error, 'strerror', None) or error})"
