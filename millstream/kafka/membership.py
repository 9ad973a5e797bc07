"""This client's place in the group: when to join, when to consider itself lost.

There are two threads. kafka-python's input/output thread joins, leads and sends heartbeats
(`coordinator.py`); it is never blocked. `<client id>-GroupThread` reports events to the client, one at a
time, and checks the clock. `Standing` is the state that both share, and it decides; it has
no thread and no clock.

A member that gets no answers must not continue as a member: another may have taken over. The broker counts
the session timeout from the last heartbeat that it received; we count it from when the last answered
heartbeat was *sent*, which is earlier. So this client knows before the group does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka import errors as kafka_errors

from millstream.config import StreamsConfig
from millstream.errors import IllegalStateException, StreamsException, TaskAssignmentException
from millstream.foreign import ESCAPED, printable
from millstream.kafka.clients import membership_config
from millstream.kafka.coordinator import PROTOCOL, GroupClient, check_library, is_final
from millstream.model import TopicPartition
from millstream.ports import GroupMember

__all__ = ["KafkaMembership", "Standing"]

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)

_TICK_S = 0.05
_CLIENT_TICK_S = 1.0
_LEAST_PATIENCE_S = 2.0
"""The minimum wait for an answer before another connection is tried."""
_TELL_AGAIN_S = 60.0
"""How often a client that is still waiting to be admitted says so."""


@dataclass(slots=True)
class Standing:
    """What is known about this client's membership. Pure: times are passed in, effects are the caller's.

    Attributes:
        wanted: how many rebalances were requested.
        sent: the value of `wanted` when the join in progress took its user data.
        answered: the value of `sent` of the join that led to the latest assignment.
        inside: whether the group's last message was an assignment.
        answered_at: when the latest answered request was sent (monotonic seconds).
    """

    session_timeout_s: float
    wanted: int = 0
    sent: int = -1
    answered: int = -1
    inside: bool = False
    answered_at: float = float("-inf")

    @property
    def is_answered(self) -> bool:
        return self.answered >= self.wanted

    def want(self) -> None:
        """User data has changed."""
        self.wanted += 1

    def join(self) -> None:
        """User data is about to be read for a join."""
        self.sent = self.wanted

    def agree(self) -> bool:
        """An assignment came. Returns whether another rebalance is needed, because data has changed
        meanwhile."""
        self.answered, self.inside = self.sent, True
        return not self.is_answered

    def answer(self, asked_at: float, now: float) -> bool:
        """An answer came. Returns whether the silence before it was too long to still have been a member.

        So a process notices that it was suspended, even if it reads an answer before it checks the clock.
        """
        late = self.is_silent(now)
        self.answered_at = max(self.answered_at, asked_at)
        return late

    def is_silent(self, now: float) -> bool:
        """Whether the group may have continued without this member by now."""
        return self.inside and now - self.answered_at > self.session_timeout_s

    def leave(self) -> bool:
        """This client is not a member. Returns whether that is news."""
        was, self.inside = self.inside, False
        return was


@dataclass(frozen=True, slots=True)
class _Assigned:
    assignment: bytes
    generation: int


@dataclass(frozen=True, slots=True)
class _Lost:
    reason: str


@dataclass(frozen=True, slots=True)
class _Failed:
    error: StreamsException


class KafkaMembership:
    """`ports.Membership` on a real cluster.

    `partitions` is called on the group's leader, on the input/output thread, after its decision.

    Args:
        topics: the source topics; they travel in the subscription for others to see.
        client_id: this client's id, which Kafka's tools show.
        process_tag: a value that no other process can have at the same time, because it comes with the state
            directory's lock. With it, members left in the group by an earlier, killed process are removed at
            `start()`; without it, the group waits until their session ends.
        thread_name: by default `<client_id>-GroupThread`.

    Raises:
        ConfigException: a setting does not fit kafka-python.
        SetupException: the installed kafka-python is not supported.

    Source: org.apache.kafka.clients.consumer.internals.ConsumerCoordinator.
    Differs: from Kafka Streams' consumer: it learns from its own clock that it is lost, without the broker
    (an embedded consumer finds out when it reaches the broker again).
    """

    def __init__(
        self,
        config: StreamsConfig,
        member: GroupMember,
        topics: Sequence[str],
        *,
        client_id: str,
        process_tag: str = "",
        thread_name: str = "",
    ) -> None:
        check_library()
        self._group_id = config.application_id
        self._member = member
        self._topics = tuple(topics)
        self._wire_id = client_id if process_tag in client_id else f"{client_id}-{process_tag}"
        self._forget = self._wire_id if process_tag else None
        self._options = {**membership_config(config), "client_id": self._wire_id}
        self._thread_name = thread_name or f"{client_id}-GroupThread"
        self._busy_limit_s = self._options["max_poll_interval_ms"] / 1000
        # Everything below is guarded by this.
        self._changed = threading.Condition()
        self._standing = Standing(self._options["session_timeout_ms"] / 1000)
        self._news: deque[_Assigned | _Lost | _Failed] = deque()
        self._client: GroupClient | None = None
        self._thread: threading.Thread | None = None
        self._busy_since: float | None = None
        self._patience_from = 0.0
        self._tell_at = 0.0
        self._over = False  # failed, or closing: nothing more will come
        self._closing = False
        self._ended = threading.Event()

    # --- the port ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join; returns at once.

        Raises:
            IllegalStateException: it was started before, or is closed.
        """
        with self._changed:
            if self._client is not None or self._over:
                raise IllegalStateException(
                    f"the membership in group '{self._group_id}' has already been started; create a new one"
                )
            self._patience_from = time.monotonic()
            self._client = GroupClient(self._options, self._topics, _Bridge(self), self._forget)
            self._thread = threading.Thread(target=self._run, name=self._thread_name, daemon=True)
        self._thread.start()
        self._client.start()

    def rejoin(self, reason: str) -> None:
        """Have the group rebalance. Any thread; returns at once; never lost."""
        with self._changed:
            self._standing.want()
            client = None if self._over else self._client
        log.debug("group '%s': joining again: %s", self._group_id, reason)
        if client is not None:
            client.rejoin()

    def expect_rebalance(self, generation: int) -> None:
        """Send heartbeats often until the next assignment: their answers tell of a rebalance."""
        with self._changed:
            client = None if self._over else self._client
        if client is not None:
            client.expect_rebalance(generation)

    def wait_for_assignment(self, timeout_s: float) -> bool:
        """Wait until an assignment has come that was made with the user data of the last `rejoin`."""
        with self._changed:
            wanted = self._standing.wanted
            self._changed.wait_for(lambda: self._standing.answered >= wanted or self._over, timeout_s)
            return self._standing.answered >= wanted

    def close(self, timeout_s: float) -> None:
        """Leave the group, end the thread. Idempotent; any thread, including a callback's."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            first = not self._closing
            self._closing = True
            self._over = True
            self._changed.notify_all()
        if not first:
            self._ended.wait(timeout_s)
            return
        client, thread = self._client, self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s / 2)  # it may be in a slow callback
        if client is not None:
            left = max(0.1, deadline - time.monotonic())
            if not client.leave("the client closes", left):
                log.warning(
                    "group '%s': no answer to the leave request in %g s; the other members continue after "
                    "the session timeout",
                    self._group_id,
                    timeout_s,
                )
        self._ended.set()

    @property
    def session_timeout_s(self) -> float:
        """The time after which the group, and the member itself, consider a silent member lost."""
        return self._standing.session_timeout_s

    # --- its own thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        tick_at = time.monotonic() + _CLIENT_TICK_S
        while True:
            with self._changed:
                if not self._news and not self._over:
                    self._changed.wait(_TICK_S)
                now = time.monotonic()
                self._look(now)
                if self._over and not any(isinstance(news, _Failed) for news in self._news):
                    break
                news = self._news.popleft() if self._news else None
                self._busy_since = now
            if news is not None:
                self._notify(news)
                if isinstance(news, _Failed):
                    break
            elif now >= tick_at:
                tick_at = now + _CLIENT_TICK_S
                self._notify(None)
            with self._changed:
                self._busy_since = None

    def _look(self, now: float) -> None:
        """Check the clock. The lock is held."""
        standing, client = self._standing, self._client
        if self._over or client is None:
            return
        if standing.is_silent(now):
            self._lose(f"the group has not answered for {standing.session_timeout_s:g} s")
            self._patience_from = now
            client.reconnect()
            client.rejoin()
        patience = max(_LEAST_PATIENCE_S, standing.session_timeout_s)
        if now - max(standing.answered_at, self._patience_from) > patience:
            # An answer may take long (a join waits for the other members) or never come (a dead connection
            # that does not know it). A new request handles both.
            self._patience_from = now
            client.reconnect()
            if not standing.inside and now >= self._tell_at:
                self._tell_at = now + _TELL_AGAIN_S
                log.warning(
                    "not a member of group '%s': %s has not admitted it yet (%s); still trying",
                    self._group_id,
                    ",".join(self._options["bootstrap_servers"]),
                    client.trouble or "no error",
                )

    def _notify(self, news: _Assigned | _Lost | _Failed | None) -> None:
        try:
            if news is None:
                self._member.tick()
            elif isinstance(news, _Assigned):
                self._member.assigned(news.assignment, news.generation)
            elif isinstance(news, _Lost):
                log.warning("lost the membership in group '%s': %s", self._group_id, news.reason)
                self._member.lost(news.reason)
            else:
                self._member.failed(news.error)
        except Exception:
            # The next event must be delivered even if the client failed on this one.
            what = "a tick" if news is None else type(news).__name__.strip("_")
            log.exception("group '%s': the client failed to handle %s", self._group_id, what)

    # --- news; the lock is held --------------------------------------------------------------------------

    def _lose(self, reason: str) -> None:
        if self._standing.leave():
            # Undelivered assignments are void.
            self._news = deque(news for news in self._news if not isinstance(news, _Assigned))
            self._news.append(_Lost(reason))
            self._changed.notify_all()

    def _gain(self, assignment: bytes, generation: int) -> None:
        if self._news and isinstance(self._news[-1], _Assigned):
            self._news.pop()  # an outdated one
        self._news.append(_Assigned(assignment, generation))
        self._tell_at = 0.0
        if self._client is not None:
            self._client.trouble = ""
        self._changed.notify_all()


class _Bridge:
    """`coordinator.Listener`: the callbacks on the input/output thread. Nothing here waits."""

    def __init__(self, membership: KafkaMembership) -> None:
        self._of = membership

    def user_data(self) -> bytes:
        with self._of._changed:
            self._of._standing.join()
        return bytes(self._of._member.user_data())

    def lead(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return self._of._member.lead(members)

    def partitions(self, assignment: bytes) -> Iterable[TopicPartition]:
        return self._of._member.partitions(assignment)

    def answered(self, asked_at: float) -> None:
        of = self._of
        with of._changed:
            late = of._standing.answer(asked_at, time.monotonic())
            if late:
                of._lose(f"the group had not answered for {of._standing.session_timeout_s:g} s")
        if late and of._client is not None:
            of._client.rejoin()

    def agreed(self, assignment: bytes, generation: int, member_id: str) -> None:
        of = self._of
        with of._changed:
            again = of._standing.agree()
            of._gain(assignment, generation)
        log.info("group '%s': generation %d, as '%s'", of._group_id, generation, member_id)
        if again and of._client is not None:
            of._client.rejoin()

    def fenced(self, reason: str) -> None:
        with self._of._changed:
            self._of._lose(reason)

    def is_responsive(self) -> bool:
        of = self._of
        with of._changed:
            return of._busy_since is None or time.monotonic() - of._busy_since < of._busy_limit_s

    def refused(self, error: BaseException) -> None:
        of = self._of
        failure = _failure(error, of._group_id, of._options["session_timeout_ms"])
        with of._changed:
            of._standing.leave()
            of._news.clear()
            of._news.append(_Failed(failure))
            of._over = True
            of._changed.notify_all()


def _failure(error: BaseException, group: str, session_timeout_ms: int) -> StreamsException:
    """The user's error when there is no membership."""
    failure: StreamsException
    if isinstance(error, kafka_errors.InconsistentGroupProtocolError):
        failure = TaskAssignmentException(
            f"group '{group}' has members of another kind, so the broker rejects this client (protocol "
            f"'{PROTOCOL}', INCONSISTENT_GROUP_PROTOCOL): something else uses this application.id as its "
            "group id, a Java Kafka Streams application or a consumer. 'kafka-consumer-groups --describe "
            f"--members --group {group}' shows it; give one of the two another id, or stop the other one"
        )
    elif isinstance(error, kafka_errors.InvalidSessionTimeoutError):
        failure = StreamsException(
            f"the broker rejects session.timeout.ms {session_timeout_ms} for group '{group}'; set "
            f"'consumer.session.timeout.ms' to a value between the broker's group.min.session.timeout.ms "
            f"(6000 by default) and "
            "group.max.session.timeout.ms (1800000)"
        )
    elif isinstance(error, kafka_errors.AuthorizationError):
        failure = StreamsException(
            f"this client is not allowed to join group '{group}' ({type(error).__name__}); grant its user "
            f"READ on the group (kafka-acls --add --operation Read --group ...) and on the source topics"
        )
    elif isinstance(error, kafka_errors.InvalidGroupIdError):
        failure = StreamsException(f"the broker rejects '{group}' as a group id; change application.id")
    elif isinstance(error, kafka_errors.GroupMaxSizeReachedError):
        failure = StreamsException(
            f"group '{group}' is full; raise the broker's group.max.size, or run fewer clients"
        )
    elif is_final(error):
        failure = StreamsException(
            f"group '{group}' cannot be joined: {type(error).__name__}: {printable(error)}; check "
            f"security.protocol, sasl.* and the broker's version"
        )
    else:
        failure = StreamsException(f"group '{group}': the client failed during a rebalance: {error!r}")
    failure.__cause__ = error
    return failure
