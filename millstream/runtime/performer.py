"""Carries out the instructions of reactions.py: the only place where they have effects.

Nothing here decides or waits: `owner.py: Owner` calls `perform` for one instruction after another. Work that
takes time is started on a thread of its own.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable

from millstream.clock import Clock
from millstream.errors import StreamsException
from millstream.machine import Announcer
from millstream.runtime.assembly import Assembly
from millstream.runtime.owner import Owner
from millstream.runtime.participation import Participation
from millstream.runtime.state.events import (
    BeginClosing,
    BeginThread,
    CallHook,
    DropTopics,
    FailThread,
    ForgetThread,
    Give,
    GrowTopics,
    Instruction,
    InterruptEngine,
    KeepWarm,
    Lose,
    MakeThread,
    Moved,
    Open,
    PauseThread,
    Rejoin,
    Say,
    StopGlobal,
    StopThread,
    TakeAgreement,
)
from millstream.runtime.threads.crew import Crew
from millstream.runtime.threads.global_thread import GlobalStreamThread
from millstream.runtime.threads.thread import StreamThread
from millstream.runtime.view import ClientView
from millstream.serdes.serdes import serde_named
from millstream.states import State

__all__ = ["Performer"]


class Performer:
    """The performer of one client.

    Args:
        on_failure: decides about a failed thread; called on it.
        begin_closing: carries out the phases of closing, on a thread of its own.
    """

    def __init__(
        self,
        owner: Owner,
        crew: Crew,
        participation: Participation,
        assembly: Assembly,
        view: ClientView,
        global_thread: GlobalStreamThread | None,
        *,
        clock: Clock,
        announcer: Announcer[State],
        log: logging.Logger,
        on_failure: Callable[[StreamThread, StreamsException], None],
        begin_closing: Callable[[], None],
    ) -> None:
        self._owner = owner
        self._crew = crew
        self._participation = participation
        self._assembly = assembly
        self._view = view
        self._global = global_thread
        self._clock = clock
        self._announcer = announcer
        self._log = log
        self._on_failure = on_failure
        self._begin_closing = begin_closing

    def perform(self, instruction: Instruction) -> None:
        """Carry out an instruction."""
        match instruction:
            case Give(name, share, ticket, not_before):
                self._crew[name].give(share, not_before, ticket)
            case Lose(name, ticket):
                self._crew[name].lose(ticket)
            case MakeThread():
                self._make(instruction)
            case BeginThread(name):
                self._crew[name].start()
            case StopThread(name, _, now):
                thread = self._crew[name]
                if now:
                    thread.stop()
                thread.ending()
            case ForgetThread(name):
                self._crew.forget(name)
            case FailThread(name, error):
                self._crew[name].fail(copy.copy(error))
            case PauseThread(name, paused):
                self._crew[name].pause(paused)
            case DropTopics(name, gone, number):
                self._crew[name].drop(gone, number)
            case GrowTopics(name, topics):
                self._crew[name].grow(topics)
            case StopGlobal():
                if self._global is not None:
                    self._global.stop()
            case Rejoin(reason):
                self._participation.rejoin(reason)
            case TakeAgreement(assignment):
                if not (assignment.runs or assignment.warming):
                    self._assembly.end_ahead()
                self._view.serdes_known(
                    {
                        store: (serde_named(key), serde_named(value))
                        for store, (key, value) in assignment.serdes.items()
                    }
                )
                self._assembly.follow((*assignment.standby, *assignment.withheld))
                self._participation.report_warm()
            case KeepWarm():
                self._participation.keep_warm()
            case InterruptEngine():
                self._assembly.interrupt()
            case BeginClosing(here):
                if not here:
                    self._begin_closing()
            case Say(level, message, error):
                self._log.log(level, "%s %s", self._announcer.owner, message, exc_info=error)
            case Moved(new, old):
                self._announcer.log_transition(new, old)
            case Open() | CallHook():
                pass  # done by the caller of start(), or by the failing thread

    def _make(self, asked: MakeThread) -> None:
        self._crew.add(
            StreamThread(
                asked.name,
                self._assembly,
                self._view,
                self._participation,
                clock=self._clock,
                post=self._owner.post,
                on_failure=self._on_failure,
                at_change=lambda new, old: self._view.refresh(),
                not_before=asked.not_before,
                paused=asked.paused,
                line=asked.line,
            )
        )
