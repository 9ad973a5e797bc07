"""What a client does about a failed thread. Pure: an answer and a view in, actions out, in their order.

This file is KIP-671. It does not depend on threads, Spark or Kafka: handler.py asks the user, history.py
counts earlier failures, and reactions.py turns the actions into the client's next state.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from millstream.runtime.state.failure import (
    Exhausted,
    Failure,
    HandlerAnswer,
    Response,
    Retry,
    StreamThreadExceptionResponse,
    in_short,
)
from millstream.states import State

__all__ = [
    "Action",
    "CallHook",
    "CloseToError",
    "EndThread",
    "Hopeless",
    "Log",
    "LogFailure",
    "ReplaceThread",
    "ShutdownApplication",
    "View",
    "decide",
]


@dataclass(frozen=True)
class View:
    """The client at the moment of the decision.

    Attributes:
        live_threads: how many stream threads live; a failing one still does, unless it is being removed.
        group: whether the client is a member of a group, so that it can notify others.
        removed: whether the failing thread is being removed at this moment.
    """

    state: State
    live_threads: int
    group: bool = False
    removed: bool = False


# --- whether there is another try: history.py says ---------------------------------------------------------


@dataclass(frozen=True)
class Hopeless:
    """No retry by this client can succeed, so there is none.

    Attributes:
        why: a clause, for the log.
    """

    why: str
    then: StreamThreadExceptionResponse = StreamThreadExceptionResponse.SHUTDOWN_CLIENT


# --- actions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Log:
    """Log `message` at `level`, without the exception."""

    level: int
    message: str


@dataclass(frozen=True)
class LogFailure:
    """Log the failure at ERROR, with its traceback, as `message`."""

    message: str


@dataclass(frozen=True)
class ReplaceThread:
    """The thread ends; a new one takes over its work in `delay_s` seconds."""

    delay_s: float
    attempt: int


@dataclass(frozen=True)
class CloseToError:
    """Close every resource: PENDING_ERROR, then ERROR."""


@dataclass(frozen=True)
class ShutdownApplication:
    """Request every client of the group to shut down, with the reason.

    `CloseToError` follows: this client begins to close at once, and leaves the group once the others know.
    """

    reason: str


@dataclass(frozen=True)
class EndThread:
    """The thread ends and is not replaced; its work goes to the remaining threads."""


@dataclass(frozen=True)
class CallHook:
    """Call the deprecated hook."""


Action = Log | LogFailure | ReplaceThread | CloseToError | ShutdownApplication | EndThread | CallHook

# --- the decision ------------------------------------------------------------------------------------------

_FIRST = Retry(1, 0.0)
_LESS_THAN_A_REMOVAL = (Response.REPLACE_THREAD, Response.SHUTDOWN_THREAD)


def decide(
    answer: HandlerAnswer, failure: Failure, view: View, plan: Retry | Exhausted | Hopeless = _FIRST
) -> tuple[Action, ...]:
    """What the client does about `failure`, in order.

    Args:
        plan: whether there is a retry, and when: the result of `history.plan_retry`. It matters only if the
            answer is REPLACE_THREAD.

    No answer is lost. Either it is carried out, or something stronger happens: for an answer about the
    thread, its removal; for one about this client, its closing; SHUTDOWN_APPLICATION takes precedence over
    both.

    Source: KIP-671 "Proposed Changes" and its earlier draft (SHUTDOWN_THREAD); KIP-696 (SHUTDOWN_CLIENT ends
        in ERROR); KafkaStreams.handleStreamsUncaughtException. Messages are those of Kafka Streams
        where it has one.
    Differs: a handler that fails means SHUTDOWN_CLIENT (in Kafka Streams the client stays RUNNING without
        threads); REPLACE_THREAD has a budget; on the global thread it reverts to SHUTDOWN_CLIENT, as the KIP
        says (Kafka Streams throws a ClassCastException); SHUTDOWN_APPLICATION needs no other live thread.
    """
    if not view.state.is_running_or_rebalancing:
        return _while_closing(answer, failure, view)
    if view.removed and answer.response in _LESS_THAN_A_REMOVAL and answer.problem is None:
        logged: tuple[Action, ...] = (
            LogFailure(
                f"thread '{failure.thread}' failed while it was being removed; it ends, which is all that "
                f"{answer.response} requires"
            ),
        )
        return (*logged, CallHook()) if answer.hook else logged
    if answer.hook:
        return _after_hook(failure, view)
    if answer.problem is not None:
        return _close(_opened(f"failed itself ({in_short(answer.problem)}), which means SHUTDOWN_CLIENT"))
    if answer.response is Response.REPLACE_THREAD:
        return _replace(failure, view, plan)
    return _end(answer.response, failure, view, _opened(f"opted to {answer.response}"))


def _while_closing(answer: HandlerAnswer, failure: Failure, view: View) -> tuple[Action, ...]:
    """Closing is stronger than any answer about this client alone. An answer about all clients is stronger
    than closing, if there is a way to notify them.
    """
    logged = LogFailure(_too_late(failure, view.state))
    asked = answer.response is Response.SHUTDOWN_APPLICATION and answer.problem is None
    if not (asked and view.state.is_shutting_down and view.group):
        return (logged,)
    return logged, ShutdownApplication(_reason(failure))


def _replace(failure: Failure, view: View, plan: Retry | Exhausted | Hopeless) -> tuple[Action, ...]:
    if failure.is_global:
        return (
            Log(
                logging.ERROR,
                "The global thread cannot be replaced. Reverting to shutting down the client.",
            ),
            *_close(_opened("opted to REPLACE_THREAD, which does not apply to the global thread")),
        )
    if isinstance(plan, Retry):
        when = "now" if plan.delay_s <= 0 else f"in {plan.delay_s:.3g} s"
        return (
            LogFailure(
                "Replacing thread in the streams uncaught exception handler: thread "
                f"'{failure.thread}', {when} ({plan})"
            ),
            ReplaceThread(plan.delay_s, plan.attempt),
        )
    if isinstance(plan, Hopeless):
        return (
            Log(
                logging.ERROR,
                f"Not replacing thread '{failure.thread}': {plan.why}. Falling back to {plan.then}",
            ),
            *_end(plan.then, failure, view, _opened(f"falls back to {plan.then}")),
        )
    return (
        Log(
            logging.ERROR,
            f"Not replacing thread '{failure.thread}': {failure.where} has failed {plan.failures} times "
            f"within {_span(plan.window)} without getting past the records it failed on, and the budget of "
            f"REPLACE_THREAD is {plan.failures - 1}. Falling back to {plan.then}; correct the cause below, "
            "or give the policy a larger budget",
        ),
        *_end(plan.then, failure, view, _opened(f"falls back to {plan.then}")),
    )


def _end(response: Response, failure: Failure, view: View, opening: str) -> tuple[Action, ...]:
    """Every response except REPLACE_THREAD."""
    match response:
        case Response.SHUTDOWN_APPLICATION:
            return _shutdown_application(failure, view, opening)
        case Response.SHUTDOWN_THREAD:
            return _end_thread(failure, view, opening)
        case _:
            return _close(opening)


def _shutdown_application(failure: Failure, view: View, opening: str) -> tuple[Action, ...]:
    if not view.group:
        return (
            Log(
                logging.ERROR,
                "SHUTDOWN_APPLICATION reaches this client only: it is not a member of a group, so it cannot "
                "notify others. If other clients of the application are running, close them too",
            ),
            *_close(opening),
        )
    return (
        LogFailure(
            "Encountered the following exception during processing and sent shutdown request for the entire "
            f"application. It began in {failure.where}."
        ),
        ShutdownApplication(_reason(failure)),
        CloseToError(),
    )


def _reason(failure: Failure) -> str:
    return f"thread '{failure.thread}', {failure.where}: {in_short(failure.error)}"


def _end_thread(failure: Failure, view: View, opening: str) -> tuple[Action, ...]:
    alone = _why_no_thread_can_end(failure, view)
    if alone is not None:
        return Log(logging.WARNING, f"SHUTDOWN_THREAD shuts down the client: {alone}"), *_close(opening)
    left = view.live_threads - 1
    return (
        LogFailure(
            f"{opening} Thread '{failure.thread}' ends and is not replaced; what it owned goes to the "
            f"{left} that {'is' if left == 1 else 'are'} left."
        ),
        EndThread(),
    )


def _after_hook(failure: Failure, view: View) -> tuple[Action, ...]:
    """The deprecated hook decides nothing: it is called, and the thread dies as it did before KIP-671."""
    alone = _why_no_thread_can_end(failure, view)
    opening = "Encountered the following exception during processing; the deprecated hook is called."
    if alone is None:
        end: Action = EndThread()
        message = f"{opening} Thread '{failure.thread}' ends and is not replaced."
    else:
        end = CloseToError()
        message = f"{opening} The streams client is going to shut down now: {alone}."
    return LogFailure(message), CallHook(), end


def _why_no_thread_can_end(failure: Failure, view: View) -> str | None:
    """Why the client cannot continue without the thread; None: it can."""
    if failure.is_global:
        return "a client cannot run without its global thread"
    if view.live_threads <= 1:
        return f"'{failure.thread}' was its last live thread"
    return None


def _close(opening: str) -> tuple[Action, ...]:
    return LogFailure(f"{opening} The streams client is going to shut down now."), CloseToError()


def _opened(what_it_did: str) -> str:
    return (
        "Encountered the following exception during processing and the registered exception handler "
        f"{what_it_did}."
    )


def _too_late(failure: Failure, state: State) -> str:
    after = "it has not started" if state is State.CREATED else "it is closing already"
    if state.has_completed_shutdown:
        after = "it is closed already"
    return f"thread '{failure.thread}' failed while the client is {state}; {after}"


# --- texts -------------------------------------------------------------------------------------------------


def _span(window: timedelta) -> str:
    seconds = window.total_seconds()
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
