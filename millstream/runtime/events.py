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
from millstream.runtime.assignment import Share
from millstream.runtime.failure import Failure
from millstream.runtime.roster import Give, Lose
from millstream.runtime.supervision import CallHook
from millstream.states import GlobalThreadState, State, ThreadState

if TYPE_CHECKING:
    from millstream.group.userdata import Assignment
    from millstream.query.metadata import Placement
    from millstream.runtime.failure import Answer
    from millstream.runtime.plan import Plan

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
    "Compiled",
    "Event",
    "FailThread",
    "ForgetClaims",
    "ForgetThread",
    "Give",
    "GlobalMoved",
    "GroupFailed",
    "GroupLost",
    "Instruction",
    "InterruptEngine",
    "Joined",
    "KeepWarm",
    "Lose",
    "Made",
    "MakeThread",
    "Moved",
    "Open",
    "Opening",
    "OpeningBegins",
    "OpeningEnded",
    "Passed",
    "PauseAsked",
    "PauseThread",
    "Phase",
    "PipelineMigrated",
    "Planned",
    "Rejoin",
    "RemoveAsked",
    "Said",
    "Say",
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
    AT_WORK = "start() opens what the client needs; its threads wait"
    DONE = "what could be opened is open"


class Phase(Enum):
    """How far closing is. Some phases are something to do, in others there is something to wait for."""

    STARTED = "wait until a start() that is going on has ended"
    FRONT = "close what answers queries, and what looks after files"
    THREADS = "wait until every stream thread has let go of everything"
    GLOBAL = "wait until the global thread has; it ends after those that may read its tables"
    GROUP = "leave the group, which gives what this client did to others; end Spark meanwhile"
    REST = "close the rest, last opened first"
    DONE = "everything is closed"

    @property
    def is_work(self) -> bool:
        """Whether it is something to do."""
        return self in (Phase.FRONT, Phase.GROUP, Phase.REST)


# --- events: what the user asks for ------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """The client was made, and is to have so many stream threads."""

    threads: int


@dataclass(frozen=True)
class StartAsked:
    """start() was called."""


@dataclass(frozen=True)
class OpeningBegins:
    """start() is about to open what the client needs."""


@dataclass(frozen=True)
class OpeningEnded:
    """start() has opened everything, or has seen that the client closes."""


@dataclass(frozen=True)
class StartFailed:
    """start() has failed, and raises this."""

    failure: Failure


@dataclass(frozen=True)
class AddAsked:
    """add_stream_thread() was called."""


@dataclass(frozen=True)
class RemoveAsked:
    """remove_stream_thread() was called; on the stream thread `asker`, if it was on one."""

    asker: str | None = None


@dataclass(frozen=True)
class PauseAsked:
    """pause() or resume() was called."""

    paused: bool


@dataclass(frozen=True)
class CloseAsked:
    """close() was called. `here`: the caller closes the client on its own thread, which asks for it."""

    here: bool = False


# --- events: what threads tell -----------------------------------------------------------------------------


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
    """A thread has what it was given under this number, and nothing else any more."""

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
    answer: Answer
    thread: str | None = None


@dataclass(frozen=True)
class PipelineMigrated:
    """Another client has claimed the pipeline's checkpoint; its thread has dropped it."""

    thread: str
    pipeline: str
    reason: str


# --- events: what the group, the topics and the engine tell ------------------------------------------------


@dataclass(frozen=True)
class Planned:
    """The topics are known, and so is what there is to do in the whole application."""

    plan: Plan


@dataclass(frozen=True)
class TopicsMissing:
    """Source topics are gone, which is confirmed."""

    error: MissingSourceTopicException


@dataclass(frozen=True)
class TopicsLost:
    """Something that a pipeline writes is gone, which is confirmed."""

    pipeline: str
    error: LostTopicException


@dataclass(frozen=True)
class TopicsDropped:
    """Topics are gone that only a pattern matched; what there is of these names now is another topic.
    `number`: how many were lost so far, with these.
    """

    topics: tuple[str, ...]
    number: int


@dataclass(frozen=True)
class TopicsGrown:
    """Source topics have more partitions than so many, or are new (0), and are this now."""

    grown: Mapping[str, tuple[int, TopicDescription]]


@dataclass(frozen=True)
class Joined:
    """The client joins its group."""


@dataclass(frozen=True)
class AgreementAsked:
    """A thread begins, and the client is in its group."""


@dataclass(frozen=True)
class Said:
    """What the client has just told the group of itself."""

    threads: int
    pipelines: frozenset[str]
    up_to_date: frozenset[TaskId]
    serdes: Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Assigned:
    """The group has agreed.

    Attributes:
        assignment: what the leader says; or why that cannot be read.
        placement: where everything is by it.
    """

    assignment: Assignment | StreamsException
    generation: int
    placement: Placement | None = None


@dataclass(frozen=True)
class GroupLost:
    """The group has gone on without this client, which joins again by itself."""

    reason: str


@dataclass(frozen=True)
class GroupFailed:
    """The place in the group has ended for good."""

    error: StreamsException


@dataclass(frozen=True)
class Compiled:
    """The serdes of all stores are known."""

    serdes: Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Warmed:
    """These tasks are up to date here."""

    tasks: frozenset[TaskId]


# --- events: what whoever carries instructions out tells ---------------------------------------------------


@dataclass(frozen=True)
class Passed:
    """This work of closing is done."""

    phase: Phase


@dataclass(frozen=True)
class TimeUp:
    """What this phase of closing waits for takes too long."""

    phase: Phase
    waited_s: float


@dataclass(frozen=True)
class Broken:
    """An instruction could not be carried out."""

    failure: Failure


Event = (
    Made
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
    | Joined
    | AgreementAsked
    | Said
    | Assigned
    | GroupLost
    | GroupFailed
    | Compiled
    | Warmed
    | Passed
    | TimeUp
    | Broken
)

# --- instructions ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moved:
    """The client is in another state: tell those who listen or wait."""

    new: State
    old: State


@dataclass(frozen=True)
class Say:
    """Log it, with the story of an error where there is one."""

    level: int
    message: str
    error: BaseException | None = None


@dataclass(frozen=True)
class Open:
    """Open what the client needs; for who called start()."""


@dataclass(frozen=True)
class MakeThread:
    """A stream thread, CREATED.

    Attributes:
        not_before: when it begins to work, by the client's clock.
    """

    name: str
    line: int
    not_before: float
    paused: bool


@dataclass(frozen=True)
class BeginThread:
    """Let it begin to work."""

    name: str


@dataclass(frozen=True)
class StopThread:
    """It is decided that the thread ends. `now`: tell it; else it ends by itself, after a failure."""

    name: str
    number: int
    now: bool = True


@dataclass(frozen=True)
class ForgetThread:
    """It is DEAD; another may have its name."""

    name: str


@dataclass(frozen=True)
class FailThread:
    """Have it fail with (a copy of) this."""

    name: str
    error: StreamsException


@dataclass(frozen=True)
class PauseThread:
    """Have it stop its queries, or run them again."""

    name: str
    paused: bool


@dataclass(frozen=True)
class DropTopics:
    """Have the thread run those of its pipelines anew that read these topics by a pattern, if they were
    started when fewer than `number` were lost.
    """

    name: str
    topics: tuple[str, ...]
    number: int


@dataclass(frozen=True)
class NoteTopics:
    """Have the thread note these at its pipelines' checkpoints: queries may read them from now on."""

    name: str
    topics: Mapping[str, TopicDescription]


@dataclass(frozen=True)
class StopGlobal:
    """Have the global thread end."""


@dataclass(frozen=True)
class Rejoin:
    """Have the group agree anew."""

    reason: str


@dataclass(frozen=True)
class TakeAgreement:
    """What the group's agreement says besides the work: its generation, and serdes of stores."""

    assignment: Assignment
    generation: int


@dataclass(frozen=True)
class ForgetClaims:
    """These checkpoints (None: all) may be another client's by now."""

    pipelines: tuple[str, ...] | None = None


@dataclass(frozen=True)
class KeepWarm:
    """Start Spark, though there is nothing to run yet."""


@dataclass(frozen=True)
class InterruptEngine:
    """Spark is not wanted any more: nobody waits for it from here on."""


@dataclass(frozen=True)
class BeginClosing:
    """Carry out the phases of closing, on a thread of its own; `here`: on the one that asked."""

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
    | NoteTopics
    | Give
    | Lose
    | StopGlobal
    | Rejoin
    | TakeAgreement
    | ForgetClaims
    | KeepWarm
    | InterruptEngine
    | BeginClosing
    | CallHook
)
