"""Earlier failures, and what follows from them: whether there is a retry, and when.

Nothing here is mutable: a history is a value, and its counts and pauses are computed by functions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from millstream.model import TaskId, TopicPartition
from millstream.runtime.state.failure import (
    MOST_FAILURES,
    Budget,
    Exhausted,
    Failure,
    Retry,
    StreamThreadExceptionResponse,
    in_short,
)

__all__ = ["FailureHistory", "FailureRecord", "in_a_row", "plan_retry"]

_MOST_SUBJECTS = 1000
"""For how many pipelines, tasks and kinds of failure records are kept."""


@dataclass(frozen=True)
class FailureRecord:
    """One failure of a thread, and what was done about it.

    Attributes:
        at: when, in UTC.
        thread: the thread that ended.
        pipeline: the pipeline whose query failed; None if it was not a query.
        task_id: the task it happened in, if known.
        exception: the exception, as the handler got it.
        offsets: what the failing batch was to read: from the first offset (inclusive) to the second
            (exclusive).
        batch_id: the failing batch, if known.
        response: what was done: the handler's answer, or its replacement.
        attempt: the number of this failure in a row of failures; 1: the first.
        most: how many of them the budget answers with REPLACE_THREAD; None: there was no budget.
        next_try: when it is retried, in UTC; None: it is not.
        is_global: whether it was the global thread.
        line: the line of threads, each the replacement of the previous one, that it belongs to.
    """

    at: datetime
    thread: str
    pipeline: str | None
    task_id: TaskId | None
    exception: BaseException
    response: StreamThreadExceptionResponse
    attempt: int = 1
    next_try: datetime | None = None
    offsets: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    batch_id: int | None = None
    is_global: bool = False
    line: int = 0
    most: int | None = None

    @classmethod
    def of(
        cls,
        failure: Failure,
        at: datetime,
        response: StreamThreadExceptionResponse,
        *,
        attempt: int = 1,
        next_try: datetime | None = None,
        most: int | None = None,
    ) -> FailureRecord:
        """The record of `failure`."""
        return cls(
            at=at,
            thread=failure.thread,
            pipeline=failure.pipeline,
            task_id=failure.task_id,
            exception=failure.error,
            response=response,
            attempt=attempt,
            next_try=next_try,
            offsets=failure.offsets,
            batch_id=failure.batch_id,
            is_global=failure.is_global,
            line=failure.line,
            most=most,
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for `json.dumps`."""
        return {
            "at": self.at.isoformat(),
            "thread": self.thread,
            "pipeline": self.pipeline,
            "task_id": None if self.task_id is None else str(self.task_id),
            "exception": in_short(self.exception),
            "offsets": {str(partition): list(span) for partition, span in self.offsets.items()},
            "batch_id": self.batch_id,
            "response": self.response.name,
            "attempt": self.attempt,
            "most": self.most,
            "next_try": None if self.next_try is None else self.next_try.isoformat(),
            "is_global": self.is_global,
        }


@dataclass(frozen=True)
class FailureHistory:
    """The last failures of a client, as a value.

    Attributes:
        maxlen: how many are kept for each pipeline; for each task, for failures outside pipelines; and for
            each class of exception, for the rest. So a pipeline that fails often does not displace the
            others.
        count: how many failures there ever were, including those that are no longer kept.
        kept: the records with their numbers, by subject; the subject that failed last comes last.
    """

    maxlen: int = MOST_FAILURES
    count: int = 0
    kept: Mapping[Hashable, tuple[tuple[int, FailureRecord], ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.maxlen < 1:
            raise ValueError(f"maxlen must be 1 or more; got {self.maxlen}")

    def adding(self, record: FailureRecord) -> FailureHistory:
        """This history with one more record."""
        subject, number = _subject(record), self.count + 1
        kept = {each: records for each, records in self.kept.items() if each != subject}
        kept[subject] = (*self.kept.get(subject, ()), (number, record))[-self.maxlen :]
        if len(kept) > _MOST_SUBJECTS:
            del kept[next(iter(kept))]  # the subject that failed least recently
        return replace(self, count=number, kept=kept)

    def records(self) -> tuple[FailureRecord, ...]:
        """The kept records, oldest first."""
        numbered = [each for kept in self.kept.values() for each in kept]
        return tuple(record for _, record in sorted(numbered, key=lambda each: each[0]))

    def last(self) -> FailureRecord | None:
        """The newest record."""
        return self.kept[next(reversed(list(self.kept)))][-1][1] if self.kept else None


def plan_retry(
    previous: Sequence[FailureRecord],
    failure: Failure,
    budget: Budget,
    now: datetime,
    draw: Callable[[], float],
) -> Retry | Exhausted:
    """Whether there is a retry after `failure`, and when.

    Args:
        previous: the failures before this one, oldest first; those of other pipelines do not count.
        draw: a random number from 0 (inclusive) to 1 (exclusive), such as `random.random`.

    Differs: Kafka Streams replaces a thread without a limit and without a pause.
    """
    before = len(in_a_row(previous, failure, budget.window, now))
    if before >= budget.max_failures:
        return Exhausted(before + 1, budget.window, budget.then)
    attempt = before + 1
    return Retry(attempt, _delay_s(attempt, budget, draw), budget.max_failures)


def in_a_row(
    previous: Sequence[FailureRecord], failure: Failure, window: timedelta, now: datetime
) -> tuple[FailureRecord, ...]:
    """The previous failures that count together with this one, oldest first.

    They are those of the same pipeline within the window, back to its last progress: to a failure whose
    records a later one has got past. Starting a query, or running for a while, is not progress.
    """
    counted: list[FailureRecord] = []
    later: list[Mapping[TopicPartition, tuple[int, int]]] = [failure.offsets]
    for record in reversed(previous):
        if _subject(record) != _subject(failure):
            continue
        if now - record.at >= window or any(_got_past(record.offsets, offsets) for offsets in later):
            break
        counted.append(record)
        later.append(record.offsets)
    return tuple(reversed(counted))


def _got_past(
    failed: Mapping[TopicPartition, tuple[int, int]], now: Mapping[TopicPartition, tuple[int, int]]
) -> bool:
    """Whether a batch that begins at `now` comes after the batch that read `failed`.

    No if either is partly unknown, or if there was nothing to read: then both begin at the same offsets
    although nothing was done.
    """
    reads_something = any(begin < end for begin, end in failed.values())
    return reads_something and all(
        partition in now and now[partition][0] >= end for partition, (_, end) in failed.items()
    )


def _delay_s(attempt: int, budget: Budget, draw: Callable[[], float]) -> float:
    if attempt == 1:
        return budget.first_delay.total_seconds()
    # In floats: a timedelta of 100 doublings overflows.
    longest = min(budget.backoff_max.total_seconds(), budget.backoff.total_seconds() * 2.0 ** (attempt - 2))
    return draw() * longest


def _subject(failed: Failure | FailureRecord) -> Hashable:
    """The subject that a failure counts for: its pipeline; else its task; else its kind, within its line."""
    if failed.pipeline is not None:
        return "pipeline", failed.pipeline
    if failed.task_id is not None:
        return "task", failed.task_id
    error = failed.error if isinstance(failed, Failure) else failed.exception
    return "kind", type(error), failed.is_global, failed.line
