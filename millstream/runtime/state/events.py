"""Events of a client, and the instructions that follow from them: all of them frozen values.

reactions.py turns events into instructions; performer.py carries them out. `owner.py: Owner` is the only
place where the two meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from millstream.errors import LostTopicException, MissingSourceTopicException, StreamsException
from millstream.model import TaskId
from millstream.ports import TopicDescription
from millstream.runtime.state.assignment import Share
from millstream.runtime.state.failure import Failure
from millstream.runtime.state.roster import Give, Lose
from millstream.runtime.state.supervision import CallHook
from millstream.states import GlobalThreadState, State, ThreadState

if TYPE_CHECKING:
    from millstream.group.userdata import Assignment
    from millstream.query.metadata import Placement
    from millstream.runtime.state.failure import HandlerAnswer
    from millstream.runtime.state.work_plan import WorkPlan

__all__ = [
    "AddAsked",
    "AgreementAsked",
    "Answered",
    "Assigned",
    "BeginClosing",
    "BeginThread",
    "Broken",
    "CallHook",
    "CloseAsked",
    "ClosingDone",
    "Created",
    "Event",
    "FailThread",
    "ForgetThread",
    "Give",
    "GlobalMoved",
    "GroupFailed",
    "GroupJoined",
    "GroupLost",
    "GrowTopics",
    "Instruction",
    "InterruptEngine",
    "KeepWarm",
    "Lose",
    "MakeThread",
    "Moved",
    "Open",
    "Opening",
    "OpeningBegins",
    "OpeningEnded",
    "PauseAsked",
    "PauseThread",
    "Phase",
    "PipelineMigrated",
    "Planned",
    "Rejoin",
    "RemoveAsked",
    "Reported",
    "Say",
    "SerdesKnown",
    "Settled",
    "StartAsked",
    "StartFailed",
    "StopGlobal",
    "StopThread",
    "TakeAgreement",
    "ThreadMoved",
    "TimeUp",
    "TopicsDropped",
    "TopicsGrown",
    "TopicsLost",
    "TopicsMissing",
    "Warmed",
]


class Opening(Enum):
    """How far start() is."""

    NOT_BEGUN = "nothing was opened"
    AT_WORK = "start() is opening what the client needs; its threads wait"
    DONE = "what could be opened is open"


class Phase(Enum):
    """The phases of closing. Some are work to do, others are something to wait for."""

    STARTED = "wait until a start() in progress has ended"
    FRONT = "close what answers queries and what maintains files"
    THREADS = "wait until every stream thread has released everything"
    GLOBAL = "wait for the global thread, which ends after those that may read its tables"
    GROUP = "leave the group, which gives this client's work to others; end Spark meanwhile"
    REST = "close the rest, last opened first"
    DONE = "everything is closed"

    @property
    def is_work(self) -> bool:
        """Whether it is work to do."""
        return self in (Phase.FRONT, Phase.GROUP, Phase.REST)


# --- events: what the user asks for ------------------------------------------------------------------------


@dataclass(frozen=True)
class Created:
    """The client was created, with this number of stream threads."""

    threads: int


@dataclass(frozen=True)
class StartAsked:
    """start() was called."""


@dataclass(frozen=True)
class OpeningBegins:
    """start() is about to open what the client needs."""


@dataclass(frozen=True)
class OpeningEnded:
    """start() has opened everything, or has noticed that the client is closing."""


@dataclass(frozen=True)
class StartFailed:
    """start() has failed, and raises this error."""

    failure: Failure


@dataclass(frozen=True)
class AddAsked:
    """add_stream_thread() was called."""


@dataclass(frozen=True)
class RemoveAsked:
    """remove_stream_thread() was called, perhaps on the stream thread `asker`."""

    asker: str | None = None


@dataclass(frozen=True)
class PauseAsked:
    """pause() or resume() was called."""

    paused: bool


@dataclass(frozen=True)
class CloseAsked:
    """close() was called. `here`: the calling thread itself closes the client."""

    here: bool = False


# --- events: what threads report ---------------------------------------------------------------------------


@dataclass(frozen=True)
class ThreadMoved:
    """A stream thread is in another state."""

    thread: str
    state: ThreadState


@dataclass(frozen=True)
class GlobalMoved:
    """The global thread is in another state."""

    thread: str
    state: GlobalThreadState


@dataclass(frozen=True)
class Settled:
    """A thread has exactly what it was given under this number."""

    thread: str
    share: Share
    ticket: int


@dataclass(frozen=True)
class Answered:
    """A thread has failed, and the handler has answered.

    Attributes:
        thread: the failing stream thread; None: the global one.
    """

    failure: Failure
    answer: HandlerAnswer
    thread: str | None = None


@dataclass(frozen=True)
class PipelineMigrated:
    """Another client runs the pipeline; its thread has dropped it."""

    thread: str
    pipeline: str
    reason: str


# --- events: what the group, the topics and the engine report ----------------------------------------------


@dataclass(frozen=True)
class Planned:
    """The topics are known, and so is the work of the whole application."""

    plan: WorkPlan


@dataclass(frozen=True)
class TopicsMissing:
    """Source topics are confirmed to be gone."""

    error: MissingSourceTopicException


@dataclass(frozen=True)
class TopicsLost:
    """A topic that a pipeline writes is confirmed to be gone."""

    pipeline: str
    error: LostTopicException


@dataclass(frozen=True)
class TopicsDropped:
    """Topics that only a pattern matched are gone; a topic of that name is now another one. `number`: how
    many were lost so far, including these.
    """

    topics: tuple[str, ...]
    number: int


@dataclass(frozen=True)
class TopicsGrown:
    """Source topics have more partitions than the given number, or are new (0); with their descriptions.

    Attributes:
        tasks: all tasks that there are now.
    """

    grown: Mapping[str, tuple[int, TopicDescription]]
    tasks: tuple[TaskId, ...] = ()


@dataclass(frozen=True)
class GroupJoined:
    """The client joins its group."""


@dataclass(frozen=True)
class AgreementAsked:
    """A thread starts, and the client is in its group."""


@dataclass(frozen=True)
class Reported:
    """The client has just reported this to the group."""

    threads: int
    running: frozenset[TaskId]
    up_to_date: frozenset[TaskId]
    serdes: Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Assigned:
    """The group has agreed.

    Attributes:
        assignment: the leader's assignment, or why it cannot be read.
        placement: where everything is according to it.
    """

    assignment: Assignment | StreamsException
    generation: int
    placement: Placement | None = None


@dataclass(frozen=True)
class GroupLost:
    """The group has continued without this client, which rejoins by itself."""

    reason: str


@dataclass(frozen=True)
class GroupFailed:
    """The membership has ended for good."""

    error: StreamsException


@dataclass(frozen=True)
class SerdesKnown:
    """The serdes of all stores are known."""

    serdes: Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Warmed:
    """These tasks are up to date here."""

    tasks: frozenset[TaskId]


# --- events: the results of instructions -------------------------------------------------------------------


@dataclass(frozen=True)
class ClosingDone:
    """This work of closing is done."""

    phase: Phase


@dataclass(frozen=True)
class TimeUp:
    """The condition of this phase of closing takes too long."""

    phase: Phase
    waited_s: float


@dataclass(frozen=True)
class Broken:
    """An instruction could not be carried out."""

    failure: Failure


Event = (
    Created
    | StartAsked
    | OpeningBegins
    | OpeningEnded
    | StartFailed
    | AddAsked
    | RemoveAsked
    | PauseAsked
    | CloseAsked
    | ThreadMoved
    | GlobalMoved
    | Settled
    | Answered
    | PipelineMigrated
    | Planned
    | TopicsMissing
    | TopicsDropped
    | TopicsGrown
    | TopicsLost
    | GroupJoined
    | AgreementAsked
    | Reported
    | Assigned
    | GroupLost
    | GroupFailed
    | SerdesKnown
    | Warmed
    | ClosingDone
    | TimeUp
    | Broken
)

# --- instructions ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moved:
    """The client is in another state: notify listeners and waiters."""

    new: State
    old: State


@dataclass(frozen=True)
class Say:
    """Log a message, with an error's traceback if there is one."""

    level: int
    message: str
    error: BaseException | None = None


@dataclass(frozen=True)
class Open:
    """Open what the client needs; done by the caller of start()."""


@dataclass(frozen=True)
class MakeThread:
    """Create a stream thread, in state CREATED.

    Attributes:
        not_before: when it starts to work, by the client's clock.
    """

    name: str
    line: int
    not_before: float
    paused: bool


@dataclass(frozen=True)
class BeginThread:
    """Let the thread start to work."""

    name: str


@dataclass(frozen=True)
class StopThread:
    """The thread's end is decided. `now`: it has to end; otherwise it ends by itself, after a failure."""

    name: str
    number: int
    now: bool = True


@dataclass(frozen=True)
class ForgetThread:
    """The thread is DEAD; another may use its name."""

    name: str


@dataclass(frozen=True)
class FailThread:
    """Have the thread fail with (a copy of) this error."""

    name: str
    error: StreamsException


@dataclass(frozen=True)
class PauseThread:
    """Have the thread stop its queries, or run them again."""

    name: str
    paused: bool


@dataclass(frozen=True)
class DropTopics:
    """Have the thread restart its pipelines that read these topics by a pattern, if they were started when
    fewer than `number` were lost.
    """

    name: str
    topics: tuple[str, ...]
    number: int


@dataclass(frozen=True)
class GrowTopics:
    """Have the thread restart its pipelines that read these topics: they have more partitions, or are new."""

    name: str
    topics: frozenset[str]


@dataclass(frozen=True)
class StopGlobal:
    """Have the global thread end."""


@dataclass(frozen=True)
class Rejoin:
    """Have the group rebalance."""

    reason: str


@dataclass(frozen=True)
class TakeAgreement:
    """Take from the assignment what is not work: the serdes of stores."""

    assignment: Assignment


@dataclass(frozen=True)
class KeepWarm:
    """Start Spark, although there is nothing to run yet."""


@dataclass(frozen=True)
class InterruptEngine:
    """Spark is no longer wanted: no one waits for it from now on."""


@dataclass(frozen=True)
class BeginClosing:
    """Carry out the phases of closing, on a thread of its own; `here`: on the calling one."""

    here: bool = False


Instruction = (
    Moved
    | Say
    | Open
    | MakeThread
    | BeginThread
    | StopThread
    | ForgetThread
    | FailThread
    | PauseThread
    | DropTopics
    | GrowTopics
    | Give
    | Lose
    | StopGlobal
    | Rejoin
    | TakeAgreement
    | KeepWarm
    | InterruptEngine
    | BeginClosing
    | CallHook
)
