"""Asks the user what to do about a failure, and turns any result into an answer.

This is the only place that calls a handler or the deprecated hook. Whatever they do, every failure gets a
decision: an error in them is logged here, and means SHUTDOWN_CLIENT.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from millstream.foreign import ESCAPED
from millstream.model import TaskId, TopicPartition
from millstream.runtime.policies import UncaughtExceptionPolicy
from millstream.runtime.state.failure import (
    Budget,
    Failure,
    HandlerAnswer,
    Response,
    StreamThreadExceptionResponse,
)
from millstream.runtime.state.history import FailureRecord
from millstream.states import State

__all__ = [
    "FailureContext",
    "Handler",
    "Hook",
    "Resolved",
    "ask",
    "call_hook",
    "check_handler",
    "check_hook",
    "hook_arguments",
    "resolve",
]

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)

Hook = Callable[[threading.ExceptHookArgs], object]
"""The deprecated hook, called like `threading.excepthook`."""

_EXAMPLE = "lambda exception: StreamThreadExceptionResponse.SHUTDOWN_CLIENT"


@dataclass(frozen=True)
class FailureContext:
    """Where and when a failure happened: the second argument of a handler that takes two.

    Attributes:
        thread: the name of the failing thread, on which the handler runs.
        task_id: the task it happened in, if known.
        pipeline: the pipeline whose query failed; None if it was not a query.
        offsets: what the failing batch was to read of each source partition: from the first offset
            (inclusive) to the second (exclusive). Empty if unknown.
        batch_id: the failing batch, if known.
        attempt: 1 for the first failure, 2 if the retry failed too, and so on; it restarts at 1 once the
            pipeline gets past the records it failed on.
        client_id: the client.
        client_state: its state.
        is_global: whether it is the global thread.
        previous: the failures before this one, oldest first; a bounded number.

    Differs: the handler of Kafka Streams gets only the exception.
    """

    thread: str
    client_id: str
    client_state: State
    attempt: int = 1
    pipeline: str | None = None
    task_id: TaskId | None = None
    offsets: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    batch_id: int | None = None
    is_global: bool = False
    previous: tuple[FailureRecord, ...] = ()

    @classmethod
    def of(
        cls,
        failure: Failure,
        *,
        client_id: str,
        client_state: State,
        attempt: int = 1,
        previous: tuple[FailureRecord, ...] = (),
    ) -> FailureContext:
        """The context of `failure`."""
        return cls(
            thread=failure.thread,
            client_id=client_id,
            client_state=client_state,
            attempt=attempt,
            pipeline=failure.pipeline,
            task_id=failure.task_id,
            offsets=failure.offsets,
            batch_id=failure.batch_id,
            is_global=failure.is_global,
            previous=previous,
        )


Decided: TypeAlias = StreamThreadExceptionResponse | UncaughtExceptionPolicy
# The exception is Any: users say which they expect, mostly StreamsException.
Handler: TypeAlias = Callable[[Any], Decided] | Callable[[Any, FailureContext], Decided]
"""`handler(exception)` or `handler(exception, context)`, which returns a response or a policy."""


# --- checks, when it is set --------------------------------------------------------------------------------


def check_handler(handler: object) -> None:
    """Check that `handler` can be called with an exception, or with an exception and a context.

    Raises:
        TypeError: it cannot; the message shows what was given and what fits.
    """
    if isinstance(handler, StreamThreadExceptionResponse):
        raise TypeError(
            f"an uncaught exception handler must be a function that takes the exception and returns a "
            f"response; got the response {handler} itself. Write "
            f"UncaughtExceptionPolicy.always({type(handler).__name__}."
            f"{handler})"
        )
    if isinstance(handler, type) or not callable(handler):
        raise TypeError(_unfit(handler, "is a class" if isinstance(handler, type) else "cannot be called"))
    if _is_async(handler):
        raise TypeError(_unfit(handler, "is asynchronous or a generator, so calling it would not run it"))
    _arity(handler)


def check_hook(hook: object) -> None:
    """Check that `hook` can be called like `threading.excepthook`.

    Raises:
        TypeError: it cannot.
    """
    if isinstance(hook, type) or not callable(hook) or not _takes(hook, 1):
        raise TypeError(
            f"a thread exception hook must take one argument, like threading.excepthook; got {hook!r}. "
            "It is deprecated: set_uncaught_exception_handler() takes a handler that decides what happens"
        )


def _arity(handler: Callable[..., Any]) -> int:
    """How many arguments it is called with: 2 if it needs two, or has a second one called `context`.

    A second parameter with a default and another name is the user's own: `lambda exception, name=name: ...`.

    Raises:
        TypeError: it can be called with neither one nor two.
    """
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):
        return 1  # a builtin has no signature
    positional = [
        each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if not _takes(handler, 1):
        if _takes(handler, 2):
            return 2
        needed = ", ".join(str(each) for each in parameters) or "nothing"
        raise TypeError(_unfit(handler, f"takes {needed}"))
    second = positional[1] if len(positional) > 1 else None
    return 2 if second is not None and second.name == "context" else 1


def _takes(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return count == 1
    return True


def _is_async(handler: Callable[..., Any]) -> bool:
    called = handler if inspect.isroutine(handler) else type(handler).__call__
    tests = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
    return any(test(function) for test in tests for function in (handler, called))


def _unfit(handler: object, what: str) -> str:
    return (
        "an uncaught exception handler is called with the exception, or with the exception and a "
        f"FailureContext, and returns a StreamThreadExceptionResponse; {handler!r} {what}. Example: "
        f"{_EXAMPLE}"
    )


# --- asking ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Resolved:
    """Who is called for a failure: the handler, the hook, or neither; and a warning about that."""

    handler: Handler | None
    hook: Hook | None
    warning: str | None = None


def resolve(handler: Handler | None, hook: Hook | None) -> Resolved:
    """The handler goes before the deprecated hook.

    Source: KIP-671 "Compatibility"; the warning is that of Kafka Streams.
    """
    if handler is not None and hook is not None:
        return Resolved(
            handler,
            None,
            "Stream's new uncaught exception handler is set as well as the deprecated old handler. The old "
            "handler will be ignored as long as a new handler is set.",
        )
    return Resolved(handler, hook)


def ask(
    handler: Handler | None, failure: Failure, context: FailureContext, hook: Hook | None = None
) -> HandlerAnswer:
    """What to do about `failure`. Runs the handler, on this very thread; never raises.

    Source: KIP-671; KafkaStreams.defaultStreamsUncaughtExceptionHandler.
    Differs: a handler that raises, or returns anything but a response (such as None), means
        SHUTDOWN_CLIENT; in Kafka Streams the thread dies, and the client stays RUNNING without it. A
        handler may also return a policy.
    """
    resolved = resolve(handler, hook)
    if resolved.warning is not None:
        log.warning(resolved.warning)
    if resolved.handler is None:
        if resolved.hook is not None:
            return HandlerAnswer(Response.SHUTDOWN_THREAD, hook=True)
        return HandlerAnswer(Response.SHUTDOWN_CLIENT)
    try:
        response, budget = _called(resolved.handler, failure, context)
    except BaseException as problem:
        # SystemExit and KeyboardInterrupt, too: on this thread they would only end the decision.
        _chain(problem, failure.error)
        log.error(
            "The uncaught exception handler failed on thread '%s', so the answer is SHUTDOWN_CLIENT; correct "
            "the handler. It was called for %s",
            failure.thread,
            type(failure.error).__name__,
            exc_info=problem,
        )
        return HandlerAnswer(Response.SHUTDOWN_CLIENT, problem=problem)
    return HandlerAnswer(response, budget)


def _called(
    handler: Handler, failure: Failure, context: FailureContext
) -> tuple[StreamThreadExceptionResponse, Budget | None]:
    call: Callable[..., Any] = handler  # _arity has checked the arguments, which type checkers cannot see
    if isinstance(handler, UncaughtExceptionPolicy):
        returned: object = handler
    elif _arity(handler) == 2:
        returned = call(failure.error, context)
    else:
        returned = call(failure.error)
    if isinstance(returned, UncaughtExceptionPolicy):
        return returned.choose(failure.error)
    if isinstance(returned, StreamThreadExceptionResponse):
        return returned, None
    raise TypeError(_wrong(handler, returned))


def _wrong(handler: Handler, returned: object) -> str:
    if returned is None:
        what = "None (is a `return` missing?)"
    elif isinstance(returned, str) and returned.upper() in StreamThreadExceptionResponse.__members__:
        what = (
            f"the string {returned!r}; write StreamThreadExceptionResponse.{returned.upper()}, not its name"
        )
    else:
        what = f"a {type(returned).__name__}"  # not its text, which is the user's and may contain anything
    choices = ", ".join(StreamThreadExceptionResponse.__members__)
    return (
        f"the uncaught exception handler {handler!r} returned {what}. It must return a "
        f"StreamThreadExceptionResponse: {choices}"
    )


def _chain(problem: BaseException, original: BaseException) -> None:
    """Put the original at the end of the problem's chain, so that a traceback shows both."""
    seen: set[int] = set()
    link = problem
    while id(link) not in seen:
        seen.add(id(link))
        following = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
        if following is None:
            break
        link = following
    else:
        return  # the chain leads back to itself
    if any(id(each) in seen for each in _links(original)):
        return  # the original is in it already, or leads to it: the handler raised one of its causes
    if link.__suppress_context__:
        link.__cause__ = original  # `raise ... from None` would hide a context
    else:
        link.__context__ = original


def _links(error: BaseException) -> list[BaseException]:
    """An exception and all others that its traceback would show."""
    found: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and all(link is not each for each in found):
        found.append(link)
        link = link.__cause__ or link.__context__
    return found


# --- the deprecated hook -----------------------------------------------------------------------------------


def hook_arguments(error: BaseException, thread: threading.Thread | None) -> threading.ExceptHookArgs:
    """The arguments of `threading.excepthook` for an exception that ended `thread`."""
    return threading.ExceptHookArgs((type(error), error, error.__traceback__, thread))


def call_hook(hook: Hook, error: BaseException, thread: threading.Thread | None) -> None:
    """Call the hook. What it raises is logged and changes nothing."""
    try:
        hook(hook_arguments(error, thread))
    except BaseException as problem:
        _chain(problem, error)
        log.error("The deprecated thread exception hook failed", exc_info=problem)
