"""What a client does about an event. Pure: a value and an event in, the next value and instructions out.

`react` is the only function that makes a client's next state. This file has the threads, their failures,
start and close; coordination.py has what concerns the group and the topics.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from millstream.errors import LostTopicException, MissingSourceTopicException
from millstream.runtime.state import coordination
from millstream.runtime.state.client_state import ClientState, Moment, ThreadEntry
from millstream.runtime.state.events import (
    AddAsked,
    AgreementAsked,
    Answered,
    Assigned,
    BeginThread,
    Broken,
    CallHook,
    CloseAsked,
    ClosingDone,
    Created,
    Event,
    ForgetThread,
    GlobalMoved,
    GroupFailed,
    GroupJoined,
    GroupLost,
    Instruction,
    Open,
    Opening,
    OpeningBegins,
    OpeningEnded,
    PauseAsked,
    PauseThread,
    Phase,
    PipelineMigrated,
    Planned,
    RemoveAsked,
    Reported,
    SerdesKnown,
    Settled,
    StartAsked,
    StartFailed,
    StopGlobal,
    ThreadMoved,
    TimeUp,
    TopicsDropped,
    TopicsGrown,
    TopicsLost,
    TopicsMissing,
    Warmed,
)
from millstream.runtime.state.failure import Exhausted, Failure, Response, Retry
from millstream.runtime.state.history import FailureRecord, plan_retry
from millstream.runtime.state.supervision import (
    Action,
    CloseToError,
    EndThread,
    Hopeless,
    Log,
    LogFailure,
    ReplaceThread,
    ShutdownApplication,
    View,
    decide,
)
from millstream.runtime.state.turn import Turn
from millstream.states import Cause, GlobalThreadState, ThreadState

__all__ = ["react"]


def react(state: ClientState, event: Event, moment: Moment) -> tuple[ClientState, tuple[Instruction, ...]]:
    """The client after `event`, and the instructions, in order."""
    turn = Turn(state, moment)
    _happens(turn, event)
    if turn.state.closing is not None:
        _get_on_with_closing(turn)
    # What the user sees is derived here, in one place.
    turn.move(Cause.ALL_RUNS if turn.state.everything_runs else Cause.WORK_MOVES)
    return turn.state, tuple(turn.instructions)


def _happens(turn: Turn, event: Event) -> None:
    match event:
        case ThreadMoved(thread, state):
            _thread_moved(turn, thread, state)
        case Settled():
            _settled(turn, event)
        case Answered():
            _answered(turn, event)
        case AddAsked():
            _add(turn)
        case RemoveAsked(asker):
            _remove(turn, asker)
        case PauseAsked(paused):
            turn.set(paused=paused)
            turn.do(*(PauseThread(entry.name, paused) for entry in turn.state.threads))
        case Created(threads):
            for _ in range(threads):
                turn.add_thread()
            if turn.state.about.has_global:
                turn.set(global_thread=GlobalThreadState.CREATED)
        case StartAsked():
            turn.move(Cause.START)
        case OpeningBegins():
            # A listener that was notified of the start may have closed the client, and waited for that.
            if turn.state.is_wanted:
                turn.set(opening=Opening.AT_WORK)
                turn.do(Open())
        case OpeningEnded():
            _opened(turn)
        case StartFailed(failure):
            turn.set(opening=Opening.DONE)
            turn.close_to_error(failure)
        case CloseAsked(here):
            if turn.move(Cause.CLOSE):
                turn.begin_closing(here=here)
        case ClosingDone(phase) | TimeUp(phase):
            _phase_ends(turn, event, phase)
        case GlobalMoved(thread, state):
            _global_moved(turn, thread, state)
        case PipelineMigrated():
            _migrated(turn, event)
        case Broken(failure):
            turn.close_to_error(failure)
        case Planned(plan):
            turn.set(plan=plan)
        case TopicsMissing(error):
            # Each client checks for itself, so none has to wait for the leader's report.
            turn.fail_all(error)
        case TopicsLost(pipeline, gone):
            coordination.topics_lost(turn, pipeline, gone)
        case TopicsDropped():
            coordination.topics_dropped(turn, event)
        case TopicsGrown(grown, tasks):
            coordination.topics_grown(turn, grown, tasks)
        case GroupJoined():
            turn.set_group(joined=True, over=False, refused=False)
        case AgreementAsked():
            coordination.agreement_asked(turn)
        case Reported():
            coordination.reported(turn, event)
        case Assigned():
            coordination.assigned(turn, event)
        case GroupLost(reason):
            coordination.lost(turn, reason)
        case GroupFailed(error):
            coordination.failed(turn, error)
        case SerdesKnown(serdes):
            turn.set(serdes=serdes)
            coordination.report_serdes(turn)
        case Warmed(tasks):
            coordination.report_warm(turn, tasks)


# --- start -------------------------------------------------------------------------------------------------


def _opened(turn: Turn) -> None:
    turn.set(opening=Opening.DONE)
    for entry in turn.state.threads:
        if not (entry.begun or entry.ending):
            _begin(turn, entry)


def _begin(turn: Turn, entry: ThreadEntry) -> None:
    turn.set_thread(entry.name, begun=True)
    turn.do(BeginThread(entry.name))


# --- threads -----------------------------------------------------------------------------------------------


def _add(turn: Turn) -> None:
    """KIP-663. If start() is in progress, it starts the new thread together with the others."""
    if not turn.state.is_wanted:
        return _refuse(turn, "add")
    turn.move(Cause.WORK_MOVES)
    entry = turn.add_thread()
    if turn.state.opening is Opening.DONE:
        _begin(turn, entry)
    turn.hand_out()
    turn.say(
        logging.INFO,
        f"Adding {entry.name.removeprefix(f'{turn.state.about.client_id}-')}, there will now be "
        f"{len(turn.state.live)} live threads",
    )
    return turn.rejoin("a stream thread was added")


def _remove(turn: Turn, asker: str | None) -> None:
    """KIP-663. Removes another thread than the calling one, unless that is the last."""
    if not turn.state.is_wanted:
        return _refuse(turn, "remove")
    live = turn.state.live
    entry = next((each for each in live if each.name != asker), live[0] if live else None)
    if entry is None:
        return turn.say(logging.WARNING, "There are no threads eligible for removal")
    turn.say(logging.INFO, f"Removing {entry.name}")
    turn.move(Cause.WORK_MOVES)
    turn.end_thread(entry, now=True)
    turn.hand_out()
    return turn.rejoin("a stream thread was removed")


def _refuse(turn: Turn, what: str) -> None:
    turn.say(
        logging.WARNING,
        f"Cannot {what} a stream thread when Kafka Streams client is in state {turn.state.state}",
    )


def _thread_moved(turn: Turn, name: str, state: ThreadState) -> None:
    entry = turn.state.entry(name)
    if entry is None:
        return
    turn.set_thread(name, state=state)
    if state is not ThreadState.DEAD:
        return
    if not entry.ending:
        turn.end_thread(entry, now=False)
        turn.close_for_a_bug(name, f"stream thread '{name}' ended unexpectedly")
    turn.set(
        threads=tuple(each for each in turn.state.threads if each.name != name),
        roster=turn.state.roster.gone(name),
    )
    turn.do(ForgetThread(name))
    turn.hand_out()
    turn.report_released()


def _settled(turn: Turn, event: Settled) -> None:
    before = turn.state.roster
    turn.set(roster=before.settled(event.thread, event.share, event.ticket))
    if turn.state.roster.shares_held != before.shares_held:
        turn.hand_out()
        turn.report_released()


def _migrated(turn: Turn, event: PipelineMigrated) -> None:
    turn.set(roster=turn.state.roster.dropping(event.thread, event.pipeline))
    turn.rejoin(event.reason)


def _global_moved(turn: Turn, name: str, state: GlobalThreadState) -> None:
    turn.set(global_thread=state)
    if state is GlobalThreadState.RUNNING:
        turn.set(global_ran=True)
    elif state is GlobalThreadState.DEAD and turn.state.global_ran:
        # As with stream threads: never RUNNING without it. start() reports a failure of its start.
        message = (
            "Global thread has died. The streams application or client will now close to ERROR, although no "
            "handler decided that"
        )
        turn.close_for_a_bug(name, message, is_global=True)


# --- failures ----------------------------------------------------------------------------------------------


def _answered(turn: Turn, event: Answered) -> None:
    """Carry out the decision of supervision.py, and record the failure."""
    state, failure, answer = turn.state, event.failure, event.answer
    budget = answer.budget or state.about.budget
    plan: Retry | Exhausted | Hopeless = plan_retry(
        state.history.records(), failure, budget, turn.moment.at, lambda: turn.moment.draw
    )
    if (why := _hopeless(state, failure)) is not None:
        plan = Hopeless(why, budget.then)
    entry = state.entry(event.thread)
    view = View(
        state.state,
        len(state.live),
        state.group.is_member,
        removed=entry is not None and entry.ending,
    )
    actions = decide(answer, failure, view, plan)
    turn.set(history=state.history.adding(_record(failure, actions, answer.response, plan, turn.moment)))
    for action in actions:
        _act(turn, action, failure, entry)


def _hopeless(state: ClientState, failure: Failure) -> str | None:
    """Why no other thread of this client can succeed, if so."""
    error = failure.error
    if isinstance(error, MissingSourceTopicException):
        # Before the client knows its topics, the retry may be waiting for a topic to be created again.
        deleted = error.deleted if state.plan is not None else ()
        recreated = error.recreated
    elif isinstance(error, LostTopicException):
        # A recreated output is as good as the old one; a recreated internal topic is not.
        written = state.plan.written if state.plan is not None else ()
        own = {each.name for each in written if each.role.is_internal}
        deleted, recreated = (
            tuple(name for name in names if name in own) for names in (error.deleted, error.recreated)
        )
    else:
        return None
    what = [f"'{name}' was deleted" for name in deleted]
    what += [f"'{name}' was deleted and created again" for name in recreated]
    if not what:
        return None
    return (
        f"topic {', '.join(what)}, and no thread of this client can continue with another topic of that name"
    )


def _act(turn: Turn, action: Action, failure: Failure, entry: ThreadEntry | None) -> None:
    match action:
        case Log(level, message):
            turn.say(level, message)
        case LogFailure(message):
            turn.say(logging.ERROR, message, failure.error)
        case ReplaceThread(delay_s):
            assert entry is not None, "the global thread is never replaced"
            _replace(turn, entry, failure.pipeline, delay_s)
        case EndThread():
            assert entry is not None, "the global thread never ends on its own"
            turn.move(Cause.WORK_MOVES)
            turn.end_thread(entry, now=False)
            turn.hand_out()
            turn.rejoin("a stream thread ended")  # the client has less capacity
        case CallHook():
            turn.do(action)  # done by the supervisor, on the failing thread
        case ShutdownApplication(reason):
            turn.set_group(shutdown=turn.state.group.shutdown or reason)
            turn.rejoin("shutdown requested")
        case CloseToError():
            turn.close_to_error(failure)


def _replace(turn: Turn, entry: ThreadEntry, pipeline: str | None, delay_s: float) -> None:
    """Another thread takes over this one's work as soon as it is released, without a rebalance."""
    turn.move(Cause.WORK_MOVES)
    later = turn.moment.now + delay_s if delay_s > 0 else float("-inf")
    if pipeline is not None and delay_s > 0:
        # The pipeline waits; stores continue to follow their changelogs meanwhile.
        turn.set(roster=turn.state.roster.holding_back({pipeline: later}))
    heir = turn.add_thread(instead_of=entry, not_before=float("-inf") if pipeline is not None else later)
    turn.end_thread(entry, now=False)
    _begin(turn, heir)
    turn.hand_out()


def _record(
    failure: Failure,
    actions: tuple[Action, ...],
    asked: Response,
    plan: Retry | Exhausted | Hopeless,
    moment: Moment,
) -> FailureRecord:
    """The failure's record, with what was done, which may differ from what was asked for."""
    attempt, most = 1, None
    if isinstance(plan, Retry):
        attempt, most = plan.attempt, plan.most
    elif isinstance(plan, Exhausted):
        attempt = plan.failures
    for action in actions:
        match action:
            case ReplaceThread(delay_s):
                later = moment.at + timedelta(seconds=delay_s)
                return FailureRecord.of(
                    failure, moment.at, Response.REPLACE_THREAD, attempt=attempt, next_try=later, most=most
                )
            case EndThread():
                return FailureRecord.of(failure, moment.at, Response.SHUTDOWN_THREAD, attempt=attempt)
            case ShutdownApplication():
                return FailureRecord.of(failure, moment.at, Response.SHUTDOWN_APPLICATION, attempt=attempt)
            case CloseToError():
                return FailureRecord.of(failure, moment.at, Response.SHUTDOWN_CLIENT, attempt=attempt)
            case _:
                pass
    return FailureRecord.of(failure, moment.at, asked, attempt=attempt)


# --- close -------------------------------------------------------------------------------------------------

_NEXT = dict(zip(Phase, list(Phase)[1:], strict=False))


def _phase_ends(turn: Turn, event: ClosingDone | TimeUp, phase: Phase) -> None:
    closing = turn.state.closing
    if closing is None or closing.phase is not phase:
        return  # it has ended meanwhile
    if isinstance(event, TimeUp):
        _complain(turn, event)
    _enter(turn, _NEXT[phase])


def _complain(turn: Turn, event: TimeUp) -> None:
    late = [f"thread '{entry.name}'" for entry in turn.state.threads]
    if event.phase is Phase.STARTED:
        late = ["start()"]
    elif event.phase is Phase.GLOBAL:
        late = ["the global thread"]
    for what in late:
        turn.say(logging.WARNING, f"{what} has not ended in {event.waited_s:.0f} s; its resources are closed")


def _enter(turn: Turn, phase: Phase) -> None:
    closing = turn.state.closing
    assert closing is not None
    turn.set(closing=type(closing)(closing.to, phase))
    if phase is Phase.GLOBAL and turn.state.global_thread is not None:
        turn.do(StopGlobal())
    elif phase is Phase.DONE:
        # Only now, with everything closed, the terminal state (KIP-696).
        turn.move(Cause.CLOSED)


def _get_on_with_closing(turn: Turn) -> None:
    """Leave the phases whose condition already holds."""
    while turn.state.closing is not None:
        state, phase = turn.state, turn.state.closing.phase
        over = {
            Phase.STARTED: state.opening is not Opening.AT_WORK,
            Phase.THREADS: not state.threads,
            Phase.GLOBAL: state.global_thread in (None, GlobalThreadState.DEAD),
        }
        if not over.get(phase, False):
            return
        _enter(turn, _NEXT[phase])
