"""The three lifecycles, each as one table. All possible changes of a state are in this file.

Source: KIP-696 (the client's ERROR and PENDING_ERROR); KafkaStreams.State, StreamThread.State and
GlobalStreamThread.State of Kafka Streams 4.3.1.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from millstream.machine import Rules

__all__ = [
    "CLIENT",
    "GLOBAL_THREAD",
    "STREAM_THREAD",
    "Cause",
    "GlobalThreadState",
    "State",
    "ThreadCause",
    "ThreadState",
    "all_running",
]


class _Lifecycle(Enum):
    """States that show as their names."""

    def __str__(self) -> str:
        return self.name


class _OfThread(_Lifecycle):
    """The states of a thread, of either kind; both have RUNNING and DEAD."""

    @property
    def is_running(self) -> bool:
        """RUNNING."""
        return self.name == "RUNNING"

    @property
    def is_dead(self) -> bool:
        """DEAD."""
        return self.name == "DEAD"


class State(_Lifecycle):
    """The state of a client, `KafkaStreams.State`.

    Source: KIP-696; org.apache.kafka.streams.KafkaStreams.State.
    """

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"

    @property
    def has_not_started(self) -> bool:
        """CREATED."""
        return self is State.CREATED

    @property
    def is_running_or_rebalancing(self) -> bool:
        """RUNNING or REBALANCING."""
        return self in (State.RUNNING, State.REBALANCING)

    @property
    def is_shutting_down(self) -> bool:
        """PENDING_SHUTDOWN or PENDING_ERROR."""
        return self in (State.PENDING_SHUTDOWN, State.PENDING_ERROR)

    @property
    def has_completed_shutdown(self) -> bool:
        """NOT_RUNNING or ERROR: everything is closed, and nothing follows."""
        return self in (State.NOT_RUNNING, State.ERROR)

    @property
    def has_started_or_finished_shutting_down(self) -> bool:
        """One of the last four."""
        return self.is_shutting_down or self.has_completed_shutdown

    def is_valid_transition(self, new: State) -> bool:
        """Whether `new` may follow this state."""
        return CLIENT.allows(self, new)


class ThreadState(_OfThread):
    """The state of a stream thread.

    Source: org.apache.kafka.streams.processor.internals.StreamThread.State.
    """

    CREATED = "CREATED"
    STARTING = "STARTING"
    PARTITIONS_REVOKED = "PARTITIONS_REVOKED"
    PARTITIONS_ASSIGNED = "PARTITIONS_ASSIGNED"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    DEAD = "DEAD"

    @property
    def is_alive(self) -> bool:
        """Whether it works, or is preparing to."""
        return self in (
            ThreadState.STARTING,
            ThreadState.PARTITIONS_REVOKED,
            ThreadState.PARTITIONS_ASSIGNED,
            ThreadState.RUNNING,
        )


class GlobalThreadState(_OfThread):
    """The state of the global thread.

    Source: org.apache.kafka.streams.processor.internals.GlobalStreamThread.State.
    """

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    DEAD = "DEAD"

    @property
    def is_alive(self) -> bool:
        """Whether it works."""
        return self.is_running


class Cause(Enum):
    """What moves a client."""

    START = "start() was called"
    WORK_MOVES = "not everything that should run here is running"
    ALL_RUNS = "everything that should run here is running"
    CLOSE = "close() was called"
    FAIL = "it was decided that the client ends, after a failure"
    CLOSED = "everything is closed"


class ThreadCause(Enum):
    """What moves a thread from some of its states only."""

    READY = "its pipelines have started, and its stores are up to date"
    NEVER_BEGAN = "it was stopped before it started"


_C = State
CLIENT: Rules[State] = Rules(
    allowed={
        _C.CREATED: (_C.REBALANCING, _C.PENDING_SHUTDOWN),
        _C.REBALANCING: (_C.RUNNING, _C.PENDING_SHUTDOWN, _C.PENDING_ERROR),
        # Kafka Streams reports RUNNING -> RUNNING to its listener too; we never request that change.
        _C.RUNNING: (_C.REBALANCING, _C.RUNNING, _C.PENDING_SHUTDOWN, _C.PENDING_ERROR),
        _C.PENDING_SHUTDOWN: (_C.NOT_RUNNING,),
        _C.NOT_RUNNING: (),
        _C.PENDING_ERROR: (_C.ERROR,),
        _C.ERROR: (),
    },
    ignored={
        (_C.REBALANCING, _C.REBALANCING): "it is rebalancing already",
        **{
            (_C.PENDING_SHUTDOWN, new): "it is closing already, and ends in NOT_RUNNING"
            for new in _C
            if new is not _C.NOT_RUNNING
        },
        **{(_C.NOT_RUNNING, new): "it is closed" for new in (_C.PENDING_SHUTDOWN, _C.NOT_RUNNING)},
        **{
            (_C.PENDING_ERROR, new): "it is closing after a failure, and ends in ERROR (KIP-696)"
            for new in _C
            if new is not _C.ERROR
        },
        **{
            (_C.ERROR, new): "ERROR is terminal; close() does nothing there (KIP-696)"
            for new in (_C.PENDING_ERROR, _C.ERROR, _C.PENDING_SHUTDOWN)
        },
    },
    causes={
        Cause.START: {_C.CREATED: _C.REBALANCING},
        Cause.WORK_MOVES: {_C.RUNNING: _C.REBALANCING},
        Cause.ALL_RUNS: {_C.REBALANCING: _C.RUNNING},
        Cause.CLOSE: dict.fromkeys((_C.CREATED, _C.REBALANCING, _C.RUNNING), _C.PENDING_SHUTDOWN),
        Cause.FAIL: dict.fromkeys((_C.REBALANCING, _C.RUNNING), _C.PENDING_ERROR),
        Cause.CLOSED: {_C.PENDING_SHUTDOWN: _C.NOT_RUNNING, _C.PENDING_ERROR: _C.ERROR},
    },
)

_T = ThreadState
STREAM_THREAD: Rules[ThreadState] = Rules(
    allowed={
        _T.CREATED: (_T.STARTING, _T.PENDING_SHUTDOWN),
        _T.STARTING: (_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.PENDING_SHUTDOWN),
        _T.PARTITIONS_REVOKED: (_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.PENDING_SHUTDOWN),
        _T.PARTITIONS_ASSIGNED: (
            _T.PARTITIONS_REVOKED,
            _T.PARTITIONS_ASSIGNED,
            _T.RUNNING,
            _T.PENDING_SHUTDOWN,
        ),
        _T.RUNNING: (_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.RUNNING, _T.PENDING_SHUTDOWN),
        _T.PENDING_SHUTDOWN: (_T.DEAD,),
        _T.DEAD: (),
    },
    ignored={
        **{
            (_T.PENDING_SHUTDOWN, new): "the thread is stopping, and ends in DEAD"
            for new in _T
            if new is not _T.DEAD
        },
        **{(_T.DEAD, new): "the thread has ended" for new in _T},
    },
    causes={
        ThreadCause.READY: {_T.PARTITIONS_ASSIGNED: _T.RUNNING},
        ThreadCause.NEVER_BEGAN: {_T.CREATED: _T.PENDING_SHUTDOWN},
    },
)

_G = GlobalThreadState
GLOBAL_THREAD: Rules[GlobalThreadState] = Rules(
    allowed={
        _G.CREATED: (_G.RUNNING, _G.PENDING_SHUTDOWN),
        _G.RUNNING: (_G.PENDING_SHUTDOWN,),
        _G.PENDING_SHUTDOWN: (_G.DEAD,),
        _G.DEAD: (),
    },
    ignored={
        (_G.PENDING_SHUTDOWN, _G.PENDING_SHUTDOWN): "the thread is stopping already",
        **{(_G.DEAD, new): "the thread has ended" for new in _G},
    },
    causes={
        ThreadCause.READY: {_G.CREATED: _G.RUNNING},
        ThreadCause.NEVER_BEGAN: {_G.CREATED: _G.PENDING_SHUTDOWN},
    },
)


def all_running(threads: Collection[ThreadState]) -> bool:
    """Whether the client is RUNNING, given the states of all its threads.

    Dead threads do not count. A stopping thread does not delay the others, nor does it alone make the client
    RUNNING.

    Source: KafkaStreams.StreamStateListener.maybeSetRunning.
    """
    waiting = [state for state in threads if state not in (_T.RUNNING, _T.DEAD, _T.PENDING_SHUTDOWN)]
    stopping = _T.PENDING_SHUTDOWN in threads
    return not waiting and (_T.RUNNING in threads or not stopping)
