"""A failed thread, and the possible answers: values that the deciding modules pass to each other. Pure.

handler.py asks the user, supervision.py decides, history.py keeps earlier failures; policies.py has
ready-made answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any

from millstream.clock import in_words
from millstream.errors import StreamsException
from millstream.model import TaskId, TopicPartition

__all__ = [
    "BACKOFF",
    "BACKOFF_MAX",
    "MOST_FAILURES",
    "NO_PAUSE",
    "WINDOW",
    "Budget",
    "Exhausted",
    "Failure",
    "HandlerAnswer",
    "Response",
    "Retry",
    "StreamThreadExceptionResponse",
    "StreamsUncaughtExceptionResponse",
    "in_short",
    "not_a_response",
]

_SHORT = 200
"""How much of a message is shown in one-line summaries."""


class StreamThreadExceptionResponse(Enum):
    """What to do about an exception that ended a thread; returned by a handler.

    Source: KIP-671; StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.
    Differs: has SHUTDOWN_THREAD, of the KIP's earlier draft.
    """

    REPLACE_THREAD = "REPLACE_THREAD"
    """Another thread takes over the failed one's work and resumes from the last commit, so the failed work is
    retried: at once the first time, then after a growing pause, until the budget is used up. For the global
    thread, which cannot be replaced: SHUTDOWN_CLIENT."""

    SHUTDOWN_CLIENT = "SHUTDOWN_CLIENT"
    """This client closes and ends in ERROR; other clients of the application take over its work. The default
    without a handler."""

    SHUTDOWN_APPLICATION = "SHUTDOWN_APPLICATION"
    """Every client of the application closes and ends in ERROR; the group carries the request and its
    reason."""

    SHUTDOWN_THREAD = "SHUTDOWN_THREAD"
    """The thread ends and is not replaced; its work moves to the client's other threads. For the last one,
    and for the global thread: SHUTDOWN_CLIENT."""

    def __str__(self) -> str:
        return self.name


StreamsUncaughtExceptionResponse = StreamThreadExceptionResponse
"""The KIP's own name for it."""


Response = StreamThreadExceptionResponse
"""The short name, inside the runtime."""


@dataclass(frozen=True)
class Failure:
    """A thread ended with an exception.

    Attributes:
        thread: its name.
        error: a `StreamsException`, with the original exception as its `__cause__`.
        is_global: whether it was the global thread.
        pipeline: the pipeline whose query failed; None if it was not a query.
        task_id: the task it happened in, if known.
        offsets: what the failing batch was to read: from the first offset (inclusive) to the second
            (exclusive).
        batch_id: the failing batch, if known.
        line: which line of threads it belongs to: a replacement goes on with the line of the one before it.
        What
            fails all threads at once (a missing topic) so counts once for each of them, not once for all.
    """

    thread: str
    error: BaseException
    is_global: bool = False
    pipeline: str | None = None
    task_id: TaskId | None = None
    offsets: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    batch_id: int | None = None
    line: int = 0

    @classmethod
    def of(cls, thread: str, error: BaseException, is_global: bool = False, line: int = 0) -> Failure:
        """The failure described by `error`, whose attributes say where it happened."""

        def fact(name: str) -> Any:
            return getattr(error, name, None)

        return cls(
            thread=thread,
            error=error,
            is_global=is_global,
            pipeline=fact("pipeline") or None,
            task_id=fact("task_id"),
            offsets=dict(fact("offsets") or {}),
            batch_id=fact("batch_id"),
            line=line,
        )

    @property
    def where(self) -> str:
        """What failed, for a sentence: `pipeline p0`, `task 1_3`, `the global thread`, else the thread."""
        if self.pipeline is not None:
            return f"pipeline {self.pipeline}"
        if self.task_id is not None:
            return f"task {self.task_id}"
        return "the global thread" if self.is_global else f"thread {self.thread}"


@dataclass(frozen=True)
class Retry:
    """The budget has room: replace the thread, `delay_s` seconds from now.

    Attributes:
        attempt: 1 for the first failure in a row, which is answered without a pause.
        most: how many the budget allows.
    """

    attempt: int
    delay_s: float
    most: int | None = None

    def __str__(self) -> str:
        return f"attempt {self.attempt}" + ("" if self.most is None else f" of {self.most}")


@dataclass(frozen=True)
class Exhausted:
    """The budget is used up: this was failure number `failures` in a row within `window`."""

    failures: int
    window: timedelta
    then: StreamThreadExceptionResponse = StreamThreadExceptionResponse.SHUTDOWN_CLIENT


MOST_FAILURES = 100
"""The largest budget: as many failures of one pipeline as the history keeps."""


WINDOW = timedelta(minutes=10)
BACKOFF = timedelta(milliseconds=100)
BACKOFF_MAX = timedelta(seconds=60)
NO_PAUSE = timedelta(0)


@dataclass(frozen=True)
class Budget:
    """How often in a row REPLACE_THREAD may be tried, and with which pauses.

    Attributes:
        max_failures: how many failures within `window` are answered with a new thread; the next one is
            answered with `then`. Failures count for one pipeline each, and only until it gets past the
            records it failed on.
        first_delay: the pause before the first replacement.
        backoff: the longest pause before the second one. It doubles each time, up to `backoff_max`; the pause
            taken is a random part of it (full jitter), so that clients do not all retry at once.

    Raises:
        ValueError: a number does not fit, or `then` is REPLACE_THREAD.
    """

    max_failures: int = 5
    window: timedelta = WINDOW
    then: StreamThreadExceptionResponse = StreamThreadExceptionResponse.SHUTDOWN_CLIENT
    first_delay: timedelta = NO_PAUSE
    backoff: timedelta = BACKOFF
    backoff_max: timedelta = BACKOFF_MAX

    def __post_init__(self) -> None:
        if isinstance(self.max_failures, bool) or not isinstance(self.max_failures, int):
            raise TypeError(f"max_failures must be a whole number; got {self.max_failures!r}")
        if not 1 <= self.max_failures <= MOST_FAILURES:
            raise ValueError(
                f"max_failures is from 1 to {MOST_FAILURES}, which is how many failures of each pipeline the "
                f"history keeps; got {self.max_failures}"
            )
        for name in ("window", "first_delay", "backoff", "backoff_max"):
            value = getattr(self, name)
            if not isinstance(value, timedelta):
                raise TypeError(f"{name} must be a timedelta, such as timedelta(minutes=10); got {value!r}")
            if value < NO_PAUSE or (name == "window" and value == NO_PAUSE):
                raise ValueError(
                    f"{name} can't be {'zero or ' if name == 'window' else ''}negative; got {in_words(value)}"
                )
        if self.backoff_max < self.backoff:
            raise ValueError(
                "backoff_max is the longest pause, so it can't be shorter than backoff; got "
                f"{in_words(self.backoff_max)} and {in_words(self.backoff)}"
            )
        if not isinstance(self.then, StreamThreadExceptionResponse):
            raise TypeError(not_a_response("then", self.then))
        if self.then is Response.REPLACE_THREAD:
            raise ValueError(
                "then is what happens when replacing has not helped, so it can't be REPLACE_THREAD; use "
                "SHUTDOWN_CLIENT, SHUTDOWN_APPLICATION or SHUTDOWN_THREAD"
            )


@dataclass(frozen=True)
class HandlerAnswer:
    """The handler's answer.

    Attributes:
        budget: for REPLACE_THREAD: what the policy allows; None: what the configuration does.
        problem: what is wrong with the handler, chained to the failure; None: nothing is.
        hook: whether no handler decided, so the deprecated hook is called.
    """

    response: StreamThreadExceptionResponse
    budget: Budget | None = None
    problem: BaseException | None = None
    hook: bool = False


def not_a_response(what: str, value: object) -> str:
    hint = ""
    if isinstance(value, str) and value in StreamThreadExceptionResponse.__members__:
        hint = f"; write StreamThreadExceptionResponse.{value}, not its name as a string"
    return f"{what} must be a StreamThreadExceptionResponse, such as .SHUTDOWN_CLIENT; got {value!r}{hint}"


def in_short(error: BaseException) -> str:
    """An exception in one line that may go to other clients and health checks.

    It always has the classes. It has the first line of a message only if Millstream worded it, because
    others' messages may quote records.
    """
    kind = type(error).__name__
    if isinstance(error, StreamsException) and type(error) is not StreamsException:
        first = next(iter(str(error).splitlines()), "").strip()
        text = "".join(letter for letter in first if letter.isprintable())
        if len(text) > _SHORT:
            text = text[: _SHORT - 1] + "…"
        return f"{kind}: {text}" if text else kind
    cause = error.__cause__
    return kind if cause is None else f"{kind} caused by {type(cause).__name__}"
