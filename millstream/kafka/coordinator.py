"""Kafka's classic group protocol, through kafka-python: the only file that uses that library's internals.

`BaseCoordinator` is what kafka-python builds its consumer's group membership on: join, sync, heartbeats,
finding the coordinator. It is meant to be extended ("implementations must define"). Here it becomes a member
that has user data in both directions and no consumer: nothing is subscribed in the library's sense, so
nothing is fetched, no offsets are looked up, and no topic is ever requested by name (which would create a
deleted topic again). The topics' names are in the subscription only for others to see.

All of it runs on the library's input/output thread. `GroupClient` has the few methods that other threads may
call; events go to the `Listener`.

Differs: from `KafkaConsumer`, which this replaces: that one does its work when it is polled; here a coroutine
on the input/output thread does what poll() did, so a slow callback of ours delays no rebalance.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

from kafka import __version__ as library_version
from kafka import errors as kafka_errors
from kafka.coordinator.base import BaseCoordinator
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaTCPTransport
from kafka.net.wakeup_notifier import WakeupNotifier
from kafka.protocol.admin.groups import DescribeGroupsRequest
from kafka.protocol.consumer import LeaveGroupRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from millstream.errors import SetupException
from millstream.foreign import ESCAPED, printable
from millstream.model import TopicPartition

__all__ = ["PROTOCOL", "GroupClient", "Listener", "check_library", "is_final", "library_log"]

PROTOCOL = "millstream"
"""The name of our assignor: a member with another one in the same group is refused by the broker."""

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)

library_log = logging.getLogger("millstream.kafka.membership.client")
"""The logger of kafka-python's own messages about our connections, at DEBUG."""

_PROTOCOL_TYPE = "consumer"  # what makes kafka-consumer-groups show the members and their partitions
_NO_MEMBER = ""
_SPOKEN_VERSION = (3, 9)
"""The broker version for BaseCoordinator, which only checks that it is newer than 2.3. Requests negotiate."""

_TICK_S = 1.0
"""How often to check without being woken, so that the library knows we are alive (max.poll.interval.ms)."""

_TRY_MS = 5_000
_LOOK_MS = 100
_PREDECESSORS_MS = 2_000
_AGAIN_S = 0.1
_OFTEN_MS = 30
"""How often heartbeats are sent while a rebalance is expected, which waits for all members to hear of it."""

_FINAL = (
    kafka_errors.InconsistentGroupProtocolError,
    kafka_errors.AuthorizationError,
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
    kafka_errors.InvalidGroupIdError,
    kafka_errors.InvalidSessionTimeoutError,
    kafka_errors.GroupMaxSizeReachedError,
    kafka_errors.FencedInstanceIdError,
    kafka_errors.UnsupportedVersionError,
)
"""Errors that a retry does not fix."""

_NEEDED: dict[str, tuple[str, ...]] = {
    "_on_join_complete_async": ("generation", "member_id", "protocol", "member_assignment_bytes"),
    "_perform_assignment": ("leader_id", "protocol", "members"),
    "_process_sync_group_response": ("response", "send_time"),
    "_handle_heartbeat_response": ("response", "send_time"),
    "ensure_active_group_async": ("timeout_ms",),
    "ensure_coordinator_ready_async": ("timeout_ms",),
    "maybe_leave_group_async": ("reason", "timeout_ms"),
    "reset_generation": ("member_id",),
    "coordinator": (),
    "coordinator_dead": ("error",),
    "generation_if_stable": (),
    "group_protocols": (),
    "need_rejoin": (),
    "poll_heartbeat": (),
    "protocol_type": (),
    "request_rejoin": (),
    "stable": (),
    "_close_heartbeat": (),
}
"""The methods of BaseCoordinator that are overridden or called here, and their parameters."""

_NEEDED_OF_OTHERS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (
        KafkaConnectionManager,
        (
            "_build_transport",
            "bootstrap_async",
            "bootstrapped",
            "call_soon",
            "get_connection",
            "send",
            "wait_for",
        ),
    ),
    (KafkaTCPTransport, ("_sock_recv",)),
)


class Listener(Protocol):
    """The callbacks of a `GroupClient`, always on the input/output thread, so each returns at once."""

    def user_data(self) -> bytes:
        """The user data for a join that begins."""

    def lead(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """User data by member id in, each one's assignment out."""

    def partitions(self, assignment: bytes) -> Iterable[TopicPartition]:
        """The partitions that an assignment means, for Kafka's tools."""

    def answered(self, asked_at: float) -> None:
        """The group knew this member when it answered a request that was sent at this time (monotonic)."""

    def agreed(self, assignment: bytes, generation: int, member_id: str) -> None:
        """A rebalance is complete."""

    def fenced(self, reason: str) -> None:
        """The group no longer knows this member."""

    def is_responsive(self) -> bool:
        """Whether the thread that acts on assignments is alive; if not for max.poll.interval.ms, the member
        leaves."""

    def refused(self, error: BaseException) -> None:
        """There is no membership, and a retry would not help."""


def check_library() -> None:
    """Check that this file supports the installed kafka-python.

    Raises:
        SetupException: a method that is extended or called here is gone or has other parameters.
    """
    for of, names in _NEEDED_OF_OTHERS:
        gone = [name for name in names if not hasattr(of, name)]
        if gone:
            raise SetupException(
                f"kafka-python {library_version} is installed, whose {of.__name__} has no {gone[0]}; install "
                "version 3.0.12 (pip install 'kafka-python==3.0.12')"
            )
    for name, parameters in _NEEDED.items():
        method = getattr(BaseCoordinator, name, None)
        found = () if method is None else tuple(inspect.signature(method).parameters)[1:]
        if method is None or found != parameters:
            raise SetupException(
                f"kafka-python {library_version} is installed, whose {BaseCoordinator.__name__}.{name} takes "
                f"{found if method else 'nothing: it was removed'}, not {parameters}; group membership was "
                "written for 3.0.12: install that version (pip install 'kafka-python==3.0.12')"
            )


def is_final(error: BaseException) -> bool:
    """Whether a retry is useless."""
    return isinstance(error, _FINAL)


class GroupClient:
    """One member of a group, on a connection and an input/output thread of its own.

    Attributes:
        trouble: why the last attempt to connect, or to be served by the group's coordinator, failed.

    Args:
        options: kafka-python's settings, from `clients.membership_config`.
        topics: the topics in the subscription, for others to see.
        forget: ids of clients that cannot be alive; their members are removed before joining.
    """

    def __init__(
        self, options: Mapping[str, Any], topics: Sequence[str], listener: Listener, forget: str | None = None
    ) -> None:
        check_library()
        settings = dict(options)
        self._group_id: str = settings["group_id"]
        self._forget = forget
        self._listener = listener
        self._leaving = False
        self._thread_name = f"kafka-io-{settings['client_id']}"
        _quiet.add(self._thread_name)
        self._client = KafkaNetClient(**settings)
        self._manager = self._client._manager
        self._net = self._manager._net
        # Nothing here queries a topic; should that change, it must not create one. The library's own option
        # of this name has no effect.
        self._manager.cluster.config["allow_auto_create_topics"] = False
        self._wakeup = WakeupNotifier(self._net)
        self.trouble = ""
        self._connect = self._manager.get_connection
        self._manager.get_connection = self._connected
        self._build_transport = self._manager._build_transport
        self._manager._build_transport = self._built_transport
        self._coordinator = _Coordinator(
            self._client,
            listener,
            tuple(topics),
            self._wakeup.notify,
            self._note_trouble,
            {**settings, "api_version": _SPOKEN_VERSION},
        )

    # --- from other threads ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start joining, on the input/output thread."""
        self._net.start()
        self._soon(self._take_part)

    def rejoin(self) -> None:
        """Join again, whatever the group's state."""
        self._soon(self._ask_to_rejoin)

    def expect_rebalance(self, generation: int) -> None:
        """Send heartbeats often until the assignment after this one."""
        self._soon(self._ask_often, generation)

    def reconnect(self) -> None:
        """Drop the connection to the coordinator, with its pending requests."""
        self._soon(self._drop_connection)

    def leave(self, reason: str, timeout_s: float) -> bool:
        """Leave the group, close the connections, end the thread. Returns whether that was done in
        time."""
        deadline = time.monotonic() + timeout_s
        done = threading.Event()
        ended = False
        if self._soon(self._leave, reason, max(0.0, timeout_s - 0.2), done):
            ended = done.wait(timeout_s)
        left = max(0.05, deadline - time.monotonic())
        thread = self._net._io_thread
        self._net.stop(timeout_ms=left * 1000)
        if thread is None or not thread.is_alive():
            self._net.close()
        _quiet.discard(self._thread_name)
        return ended

    def _soon(self, function: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> bool:
        """Run a coroutine on the input/output thread; False if that has ended."""

        async def guarded() -> None:
            try:
                await function(*arguments)
            except Exception:
                log.exception("group '%s': %s failed", self._group_id, function.__name__)

        try:
            self._net.call_soon_threadsafe(guarded)
        except Exception:
            # The loop is closed, or has crashed: its own exception is what call_soon_threadsafe raises.
            return False
        return True

    # --- on the input/output thread ----------------------------------------------------------------------

    async def _take_part(self) -> None:
        """Be a member until asked to leave. Every error is either final or retried."""
        first = True
        while not self._leaving:
            pause = _TICK_S
            try:
                if self._coordinator.refusal is not None:
                    raise self._coordinator.refusal
                if await self._reach():
                    if first:
                        first = False
                        await self._remove_predecessors()
                    await self._coordinator.ensure_active_group_async(timeout_ms=_TRY_MS)
                    if self._listener.is_responsive():
                        self._coordinator.poll_heartbeat()
            except kafka_errors.KafkaError as error:
                if is_final(error):
                    await self._give_up(error)
                    return
                library_log.debug("group '%s': %s; retrying", self._group_id, error)
                pause = _AGAIN_S
            except Exception as error:
                # A mistake in the listener's answer, which another join would only repeat.
                log.exception("group '%s': the membership has ended", self._group_id)
                await self._give_up(error)
                return
            if not self._leaving:
                await self._wakeup(pause)

    async def _reach(self) -> bool:
        """Find the group's coordinator; start from bootstrap.servers again if no known broker answers."""
        if not self._manager.bootstrapped:
            await self._bootstrap()
        if await self._coordinator.ensure_coordinator_ready_async(timeout_ms=_TRY_MS):
            return True
        await self._bootstrap()
        return False

    async def _bootstrap(self) -> None:
        starting = self._manager.bootstrap_async(timeout_ms=_TRY_MS, refresh=True)
        while not (starting.is_done or self._leaving or self._coordinator.refusal):
            try:
                await self._manager.wait_for(starting, _LOOK_MS)
            except kafka_errors.KafkaTimeoutError:
                continue
        if self._coordinator.refusal is not None:
            raise self._coordinator.refusal
        if starting.failed():
            raise starting.exception

    def _connected(self, *arguments: Any, **more: Any) -> Any:
        """`get_connection`, which also notes failures: the library retries a wrong password forever."""
        connection = self._connect(*arguments, **more)
        connection.init_future.add_errback(self._note_trouble)
        return connection

    async def _built_transport(self, *arguments: Any, **more: Any) -> Any:
        """`_build_transport` with transports that lose no data at their end."""
        transport = await self._build_transport(*arguments, **more)
        transport._sock_recv = data_before_the_end(transport._sock_recv)
        return transport

    def _note_trouble(self, error: BaseException) -> None:
        self.trouble = printable(f"{type(error).__name__}: {error}")
        if is_final(error):
            self._coordinator.refusal = error
            self._wakeup.notify()

    async def _remove_predecessors(self) -> None:
        """Best effort: remove members left by a killed process, which would delay the group until their
        session ends."""
        if not self._forget:
            return
        try:
            node = self._coordinator.coordinator()
            answer = await self._ask(DescribeGroupsRequest(groups=[self._group_id]), node, _PREDECESSORS_MS)
            left_behind = [
                member.member_id
                for group in answer.groups
                for member in group.members
                if member.client_id == self._forget
            ]
            if not left_behind:
                return
            identities = [
                LeaveGroupRequest.MemberIdentity(
                    member_id=member, group_instance_id=None, reason="its process died"
                )
                for member in left_behind
            ]
            await self._ask(
                LeaveGroupRequest(group_id=self._group_id, member_id=left_behind[0], members=identities),
                node,
                _PREDECESSORS_MS,
            )
            log.info(
                "removed %d member(s) of a dead process from group '%s'",
                len(left_behind),
                self._group_id,
            )
        except kafka_errors.KafkaError as error:
            log.debug("group '%s': cannot look for members of a dead process: %s", self._group_id, error)

    async def _ask(self, request: Any, node: Any, timeout_ms: float) -> Any:
        return await self._manager.wait_for(self._manager.send(request, node_id=node), timeout_ms)

    async def _ask_to_rejoin(self) -> None:
        self._coordinator.request_rejoin()

    async def _ask_often(self, generation: int) -> None:
        now = self._coordinator.generation_if_stable()
        if now is not None and now.generation_id == generation:
            self._coordinator.beat_every(_OFTEN_MS)

    async def _drop_connection(self) -> None:
        node = self._coordinator.coordinator_id
        if node is not None:
            self._manager.close(node)
            self._coordinator.coordinator_dead("no answer")
        self._wakeup.notify()

    async def _give_up(self, error: BaseException) -> None:
        self._leaving = self._coordinator.leaving = True
        await self._coordinator.maybe_leave_group_async(timeout_ms=_PREDECESSORS_MS)
        self._coordinator._close_heartbeat()
        self._listener.refused(error)

    async def _leave(self, reason: str, timeout_s: float, done: threading.Event) -> None:
        try:
            deadline = time.monotonic() + timeout_s
            self._leaving = self._coordinator.leaving = True
            self._wakeup.notify()
            if not self._coordinator.stable() and self._coordinator.coordinator_id is not None:
                # The broker answers a connection's requests in order, so our request to leave would wait
                # behind a join that waits for other members. Closed at once, because a join that is being
                # written would keep a connection that accepts no more requests, and the others would only
                # notice at the session timeout.
                connection = self._manager._conns.get(self._coordinator.coordinator_id)
                if connection is not None:
                    connection.close(kafka_errors.Cancelled())
            left_ms = max(1.0, (deadline - time.monotonic()) * 1000)
            await self._coordinator.maybe_leave_group_async(reason, left_ms)
        finally:
            self._coordinator._close_heartbeat()
            self._manager.close()
            done.set()


class _Coordinator(BaseCoordinator):  # type: ignore[misc]  # the library has no types
    """kafka-python's group membership, extended where it is meant to be extended, and observed."""

    def __init__(
        self,
        client: Any,
        listener: Listener,
        topics: tuple[str, ...],
        wake: Callable[[], None],
        note_trouble: Callable[[BaseException], None],
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(client, **options)
        self.leaving = False
        self.refusal: BaseException | None = None
        self._listener = listener
        self._topics = topics
        self._wake = wake
        self._note_trouble = note_trouble

    @property
    def member_id(self) -> str:
        return str(self._generation.member_id)

    # The methods that the class requires.

    def protocol_type(self) -> str:
        return _PROTOCOL_TYPE

    def group_protocols(self) -> list[tuple[str, Any]]:
        return [(PROTOCOL, ConsumerProtocolSubscription(0, list(self._topics), self._listener.user_data()))]

    def _perform_assignment(self, leader_id: str, protocol: str, members: Iterable[Any]) -> dict[str, Any]:
        given = {member.member_id: _user_data_of(member.member_id, member.metadata) for member in members}
        plan = self._listener.lead(given)
        return {
            member: ConsumerProtocolAssignment(0, self._shown(plan[member]), plan[member])
            for member in given
            if member in plan
        }

    async def _on_join_complete_async(
        self, generation: int, member_id: str, protocol: str, member_assignment_bytes: bytes
    ) -> None:
        self.beat_every(self.config["heartbeat_interval_ms"])
        self._listener.agreed(_decided_in(member_assignment_bytes), generation, member_id)

    def beat_every(self, interval_ms: int) -> None:
        """How often heartbeats are sent from now on; at most as often as configured."""
        self.heartbeat.config["heartbeat_interval_ms"] = min(
            interval_ms, self.config["heartbeat_interval_ms"]
        )
        self._heartbeat_wakeup.notify()

    # The events in between.

    def coordinator_dead(self, error: BaseException | str) -> None:
        """After a failure of the connection, or if the broker says that it cannot serve the group."""
        if isinstance(error, kafka_errors.BrokerResponseError):  # others may follow from what we do ourselves
            self._note_trouble(error)
        super().coordinator_dead(error)

    def need_rejoin(self) -> bool:
        return not self.leaving and bool(super().need_rejoin())

    def request_rejoin(self) -> None:
        super().request_rejoin()
        self._wake()

    def reset_generation(self, member_id: str = _NO_MEMBER) -> None:
        super().reset_generation(member_id)
        if not self.leaving:
            self._listener.fenced("the group no longer knows this member or its generation")
        self._wake()

    def _process_sync_group_response(self, response: Any, send_time: float) -> Any:
        assignment = super()._process_sync_group_response(response, send_time)
        self._listener.answered(send_time)
        return assignment

    def _handle_heartbeat_response(self, response: Any, send_time: float) -> None:
        try:
            super()._handle_heartbeat_response(response, send_time)
        except kafka_errors.RebalanceInProgressError:
            self._listener.answered(send_time)
            raise
        except kafka_errors.AuthorizationError as error:
            # The library would send refused heartbeats forever.
            self.refusal = error
            self._wake()
            raise
        self._listener.answered(send_time)

    def _shown(self, assignment: bytes) -> list[tuple[str, list[int]]]:
        topics: dict[str, list[int]] = {}
        try:
            for topic, number in self._listener.partitions(assignment):
                topics.setdefault(topic, []).append(number)
        except Exception:
            # Only for display; the assignment itself counts.
            log.exception("the partitions of an assignment cannot be published for Kafka's tools")
            return []
        return [(topic, sorted(numbers)) for topic, numbers in sorted(topics.items())]


def data_before_the_end(
    receive: Callable[[], tuple[bytes, BaseException | None]],
) -> Callable[[], tuple[bytes, BaseException | None]]:
    """A transport's `_sock_recv` that returns the data before the connection's end first, then the end.

    The library's own returns both at once, and the data is dropped. A broker that refuses a password reports
    that and closes at once, so a client that reads a millisecond late would never know why.
    """

    def received() -> tuple[bytes, BaseException | None]:
        data, error = receive()
        return data, None if data else error  # the next call sees the end again

    return received


def _user_data_of(member: str, metadata: bytes) -> bytes:
    """The user data in a subscription; empty if the bytes are invalid."""
    try:
        return bytes(ConsumerProtocolSubscription.decode(metadata).user_data or b"")
    except Exception as error:
        log.warning(
            "member '%s' sent a subscription that cannot be read (%s)",
            printable(member),
            type(error).__name__,
        )
        return b""


def _decided_in(assignment: bytes) -> bytes:
    """The user data in an assignment; empty if the leader left this member out or the bytes are invalid."""
    if not assignment:
        return b""
    try:
        return bytes(ConsumerProtocolAssignment.decode(assignment).user_data or b"")
    except Exception as error:
        log.warning("the leader sent an assignment that cannot be read (%s)", type(error).__name__)
        return b""


class _OurThreads(logging.Filter):
    """Moves kafka-python's messages about our connections from its loggers to `library_log`.

    It reports an unavailable broker several times a second, at WARNING and ERROR; the membership logs that
    itself. Messages of other users of the library pass. Its DEBUG messages are dropped, because they contain
    whole requests, including passwords.
    """

    def __init__(self) -> None:
        super().__init__()
        self._threads: set[str] = set()

    def add(self, thread: str) -> None:
        self._threads = {*self._threads, thread}
        for name in list(logging.root.manager.loggerDict):
            if name.startswith("kafka."):
                logging.getLogger(name).addFilter(self)

    def discard(self, thread: str) -> None:
        self._threads = self._threads - {thread}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.threadName not in self._threads:
            return True
        if record.levelno >= logging.INFO and library_log.isEnabledFor(logging.DEBUG):
            library_log.debug("%s: %s", record.name, printable(record.getMessage(), 2_000))
        return False


_quiet = _OurThreads()
