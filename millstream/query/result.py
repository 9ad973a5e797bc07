"""The result of `KafkaStreams.query`: one result per partition, each a value or a failure reason."""

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
    """Why a partition has no result.

    Source: org.apache.kafka.streams.query.FailureReason.
    Differs: DOES_NOT_EXIST is used (Kafka declares it but returns NOT_PRESENT). A partition that may be
        moving to this client is NOT_ACTIVE too: there is nothing to read yet.
    """

    UNKNOWN_QUERY_TYPE = "the store does not support the query"
    NOT_ACTIVE = "not active here now; retry"
    NOT_UP_TO_BOUND = "not up to the bound yet; retry"
    NOT_PRESENT = "not on this client; query another one"
    DOES_NOT_EXIST = "the store has no such partition"
    STORE_EXCEPTION = "the store failed"

    @property
    def retriable(self) -> bool:
        """Whether the same request can succeed later on this client."""
        return self in (FailureReason.NOT_ACTIVE, FailureReason.NOT_UP_TO_BOUND)


@dataclass(frozen=True, slots=True)
class VersionedRecord(Generic[R]):
    """A past value of a key, valid from `timestamp` (inclusive) to `valid_to` (exclusive), in milliseconds
    since the epoch. If `valid_to` is None, it is still valid.

    Source: org.apache.kafka.streams.state.VersionedRecord.
    """

    value: R
    timestamp: int
    valid_to: int | None = None


@dataclass(frozen=True, slots=True)
class QueryResult(Generic[R]):
    """The result of one partition.

    Attributes:
        position: the store's minimum position at the read; None if it was not read.
        execution_info: how the result was obtained, if the request asked for it.
        cause: the store's exception, for STORE_EXCEPTION.

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
        """Whether the query succeeded; the result may be None."""
        return self.failure is None

    @property
    def is_failure(self) -> bool:
        """Whether the query failed."""
        return self.failure is not None

    @property
    def result(self) -> R | None:
        """The result.

        Raises:
            ValueError: the query failed; the message says why.
        """
        if self.failure is not None:
            raise ValueError(
                f"Cannot get result for failed query. Failure is {self.failure.name}: {self.message}"
            )
        return self.value

    @property
    def failure_reason(self) -> FailureReason:
        """Why the query failed.

        Raises:
            ValueError: the query succeeded.
        """
        if self.failure is None:
            raise ValueError("Cannot get failure reason because this query did not fail.")
        return self.failure

    @property
    def failure_message(self) -> str:
        """The reason in words.

        Raises:
            ValueError: the query succeeded.
        """
        if self.failure is None:
            raise ValueError("Cannot get failure message because this query did not fail.")
        return self.message


@dataclass(frozen=True, slots=True)
class StateQueryResult(Generic[R]):
    """The results of all requested partitions.

    Attributes:
        partition_results: the results by partition. Never empty, unless there is a `global_result`.
        global_result: the result of a global store, over all its partitions.

    Source: org.apache.kafka.streams.query.StateQueryResult.
    Differs: a client that has nothing yet returns a failure for each partition (Kafka: an empty map). Global
        stores can be queried.
    """

    partition_results: Mapping[int, QueryResult[R]] = field(default_factory=dict)
    global_result: QueryResult[R] | None = None

    @property
    def only_partition_result(self) -> QueryResult[R] | None:
        """The only result with a value, from the partition that has the key. None if no partition has it.

        Raises:
            ValueError: several partitions have a value.

        Differs: if no partition has a value and one has failed, this is the failed result, because the key
            may be there. (Kafka: null, which looks as if the key did not exist.)
        """
        results = self.partition_results.values()
        # A partition without any version of a key returns an empty tuple.
        found = [each for each in results if each.is_success and each.value is not None and each.value != ()]
        if len(found) > 1:
            numbers = [at for at, each in self.partition_results.items() if each in found]
            raise ValueError(
                f"The query did not return exactly one partition result: partitions {numbers} have one each"
            )
        return next(iter(found or [each for each in results if each.is_failure]), None)

    @property
    def may_pass(self) -> bool:
        """Whether a part of the result is missing for a temporary reason."""
        return any(each.failure is not None and each.failure.retriable for each in self._every)

    def close(self) -> None:
        """Close the iterators in the result that are still open. Idempotent."""
        for each in self._every:
            value: Any = each.value
            if hasattr(value, "close"):
                value.close()

    @property
    def position(self) -> Position:
        """The merged position of all partitions that succeeded. A later request can require at least this
        position."""
        return reduce(Position.merge, (each.position for each in self._every if each.position), Position())

    def _repr_html_(self) -> str:
        """The notebook display: a row for each partition. Iterators are not read."""
        results: list[tuple[str, QueryResult[Any]]] = [
            (str(number), each) for number, each in sorted(self.partition_results.items())
        ]
        if self.global_result is not None:
            results.append(("all", self.global_result))
        rows = [(at, *_as_text(each)) for at, each in results]
        return block(table(("partition", "answer", "position"), rows))

    @property
    def _every(self) -> list[QueryResult[Any]]:
        every: list[QueryResult[Any]] = list(self.partition_results.values())
        return every if self.global_result is None else [*every, self.global_result]


def _as_text(result: QueryResult[Any]) -> tuple[str, str]:
    """A result and its position, as text."""
    if result.failure is not None:
        answer = f"{result.failure.name}: {result.message or result.failure.value}"
    elif hasattr(result.value, "has_next"):
        answer = f"{result.value!r}: read it to the end, or close it"
    else:
        answer = repr(result.value)
    return answer, "" if result.position is None else str(result.position)
