"""Waiting for a cluster that does not answer: logging it, and when to create a client again."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from millstream.config import StreamsConfig

__all__ = ["AWAY", "Silence", "patiently", "reachability"]

log = logging.getLogger(__name__)

T = TypeVar("T")
_TELL_EVERY_S = 4.0
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
"""What librdkafka says of a cluster that has not answered."""
_RENEW_AFTER_S = 5.0
_RENEW_AFTER_AT_MOST_S = 60.0


class Silence:
    """Says when a client of librdkafka that nobody answers has to be made anew: after 5 s, then 10, up to 60.

    librdkafka drops each broker that is not in the last answer to a question for metadata, and an only
    broker that is shutting down, starting, or so busy that it misses its heartbeats answers that there are
    none. When the last broker is dropped, a timer is set to turn to `bootstrap.servers` again; the handler of
    the same answer, in another thread, takes that timer away if it comes later. Nobody is asked from then on,
    and no setting helps: `metadata.recovery.rebootstrap.trigger.ms` counts from a question that was sent. To
    whoever uses the client that looks like a broker that is away. Java's client and kafka-python take no
    notice of such an answer.

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
        """A question was not answered, for so long; whether the client is to be made anew now."""
        now = self._clock()
        if self._since is None:
            self._since = now - waited_s
        if now - self._since < self._patience_s:
            return False
        self._since, self._patience_s = now, min(2 * self._patience_s, _RENEW_AFTER_AT_MOST_S)
        return True


def patiently(config: StreamsConfig, what: str, attempt: Callable[[float], T], timeout_s: float) -> T:
    """What `attempt` returns, which gets a number of seconds, and is called again as long as time is left.

    Each time that it has waited for nothing, a warning says for whom, and what is known of them.

    Raises:
        KafkaException, TimeoutError: what the last attempt raised.
    """
    began = time.monotonic()
    while True:
        left = began + timeout_s - time.monotonic()
        try:
            return attempt(max(0.0, min(left, _TELL_EVERY_S)))
        except TimeoutError:
            if left <= _TELL_EVERY_S:
                raise
        except KafkaException as error:
            if left <= _TELL_EVERY_S or error.args[0].code() not in AWAY:
                raise
        log.warning(
            "no answer from Kafka for %.0f s (to %s): %s; giving up after %.0f s (request.timeout.ms)",
            time.monotonic() - began,
            what,
            "; ".join(reachability(config.bootstrap_servers)),
            timeout_s,
        )


def reachability(servers: Iterable[str]) -> list[str]:
    """What a connection to each of the first servers meets, in words."""
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
