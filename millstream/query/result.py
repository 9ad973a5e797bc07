"""What `KafkaStreams.query` answers: one result per partition, each a value or a reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from typing import Any, Generic, TypeVar

from millstream.display import block, table
from millstream.query.position import Position

__all__ = ["FailureReason", "QueryResult", "StateQueryResult", "VersionedRecord"]

R = TypeVar("R")


class FailureReason(Enum):
    """Why a partition has no answer.

    Source: org.apache.kafka.streams.query.FailureReason.
    Differs: DOES_NOT_EXIST is given (Kafka declares it and says NOT_PRESENT). NOT_ACTIVE is also what a
        partition has that may be on its way to this client: there is nothing to read yet.
    """

    UNKNOWN_QUERY_TYPE = "the store does not know the query"
    NOT_ACTIVE = "not active here now; retry"
    NOT_UP_TO_BOUND = "not far enough yet; retry"
    NOT_PRESENT = "not on this client; ask another one"
    DOES_NOT_EXIST = "the store has no such partition"
    STORE_EXCEPTION = "the store failed"

    @property
    def retriable(self) -> bool:
        """Whether the same request can succeed later on this client."""
        return self in (FailureReason.NOT_ACTIVE, FailureReason.NOT_UP_TO_BOUND)


@dataclass(frozen=True, slots=True)
class VersionedRecord(Generic[R]):
    """A value that a key had, in milliseconds since the epoch: from `timestamp` on, up to and without
    `valid_to`; None: it has it still.

    Source: org.apache.kafka.streams.state.VersionedRecord.
    """

    value: R
    timestamp: int
    valid_to: int | None = None


@dataclass(frozen=True, slots=True)
class QueryResult(Generic[R]):
    """The answer of one partition.

    Attributes:
        position: how far the store was, at least, when it was read; None if it was not.
        execution_info: how the result came about, if the request asked for that.
        cause: what the store raised, for STORE_EXCEPTION.

    Source: org.apache.kafka.streams.query.QueryResult.
    """

    value: R | None = None
    failure: FailureReason | None = None
    message: str = ""
    position: Position | None = None
    execution_info: tuple[str, ...] = ()
    cause: Exception | None = field(default=None, compare=False)

    @property
    def is_success(self) -> bool:
        """Whether there is an answer; it may be None."""
        return self.failure is None

    @property
    def is_failure(self) -> bool:
        """Whether there is a reason instead."""
        return self.failure is not None

    @property
    def result(self) -> R | None:
        """The answer.

        Raises:
            ValueError: there is none; the message says why.
        """
        if self.failure is not None:
            raise ValueError(
                f"Cannot get result for failed query. Failure is {self.failure.name}: {self.message}"
            )
        return self.value

    @property
    def failure_reason(self) -> FailureReason:
        """Why there is no answer.

        Raises:
            ValueError: there is one.
        """
        if self.failure is None:
            raise ValueError("Cannot get failure reason because this query did not fail.")
        return self.failure

    @property
    def failure_message(self) -> str:
        """The same, in words.

        Raises:
            ValueError: there is an answer.
        """
        if self.failure is None:
            raise ValueError("Cannot get failure message because this query did not fail.")
        return self.message


@dataclass(frozen=True, slots=True)
class StateQueryResult(Generic[R]):
    """The answers of all partitions that were asked for.

    Attributes:
        partition_results: by partition. Never empty, unless there is a `global_result`.
        global_result: the answer of a global store, over all its partitions.

    Source: org.apache.kafka.streams.query.StateQueryResult.
    Differs: a client that has nothing yet says so for each partition (Kafka: an empty map). A global store
        answers.
    """

    partition_results: Mapping[int, QueryResult[R]] = field(default_factory=dict)
    global_result: QueryResult[R] | None = None

    @property
    def only_partition_result(self) -> QueryResult[R] | None:
        """The one result that has a value: where a key was found. None: no partition has it.

        Raises:
            ValueError: several have one.

        Differs: if none has a value and a partition has failed, the failed result, because the key may be
            there. (Kafka: null, which looks as if there were no such key.)
        """
        results = self.partition_results.values()
        # An empty tuple is what a partition has that knows no versions of a key.
        found = [each for each in results if each.is_success and each.value is not None and each.value != ()]
        if len(found) > 1:
            numbers = [at for at, each in self.partition_results.items() if each in found]
            raise ValueError(
                f"The query did not return exactly one partition result: partitions {numbers} have one each"
            )
        return next(iter(found or [each for each in results if each.is_failure]), None)

    @property
    def may_pass(self) -> bool:
        """Whether a part of the answer is missing for a reason that passes."""
        return any(each.failure is not None and each.failure.retriable for each in self._every)

    def close(self) -> None:
        """Close the iterators in it that are still open. Idempotent."""
        for each in self._every:
            value: Any = each.value
            if hasattr(value, "close"):
                value.close()

    @property
    def position(self) -> Position:
        """How far all that answered were, taken together: a later request can ask for at least that."""
        return reduce(Position.merge, (each.position for each in self._every if each.position), Position())

    def _repr_html_(self) -> str:
        """What a notebook shows: a row for each partition. Iterators in it are not read."""
        results: list[tuple[str, QueryResult[Any]]] = [
            (str(number), each) for number, each in sorted(self.partition_results.items())
        ]
        if self.global_result is not None:
            results.append(("all", self.global_result))
        rows = [(at, *_told(each)) for at, each in results]
        return block(table(("partition", "answer", "position"), rows))

    @property
    def _every(self) -> list[QueryResult[Any]]:
        every: list[QueryResult[Any]] = list(self.partition_results.values())
        return every if self.global_result is None else [*every, self.global_result]


def _told(result: QueryResult[Any]) -> tuple[str, str]:
    """An answer and its position, for people."""
    if result.failure is not None:
        answer = f"{result.failure.name}: {result.message or result.failure.value}"
    elif hasattr(result.value, "has_next"):
        answer = f"{result.value!r}: go through it, and close it"
    else:
        answer = repr(result.value)
    return answer, "" if result.position is None else str(result.position)
