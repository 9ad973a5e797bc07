"""Records that fail: they are counted, dropped, sent to the dead letter queue, or given to a handler.

If a step can fail for a record (`computable`, `writable`), the lane continues without the records for which
it does. With the handler `fail`, nothing is caught, and the query ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.dsl.error_handlers import SerializationExceptionOrigin
from millstream.errors import TopologyException
from millstream.serdes.serdes import Serdes
from millstream.spark.compile import serde_columns
from millstream.spark.compile.applying import add_result
from millstream.spark.compile.building import Building
from millstream.spark.compile.flow import (
    CONTROL,
    HEADERS,
    HEADERS_TYPE,
    RAW_KEY,
    RAW_VALUE,
    DroppedRows,
    Flow,
    Lane,
)
from millstream.spark.compile.record_handlers import (
    PROCESSING_FAILED,
    RECORD_TOO_LARGE,
    SERIALIZATION_FAILED,
    RecordHandlers,
    attempt,
    error_headers,
    record_size,
)
from millstream.spark.compile.sink import Output, QuestionColumns
from millstream.spark.compile.trace import as_column, translated
from millstream.spark.run.dropped import SKIPPED
from millstream.spark.worker.handler_calls import Asking, FailurePlace, FieldReader
from millstream.topology.functions import describe_function
from millstream.topology.nodes import Function, Node

__all__ = [
    "DeadLetters",
    "ask",
    "asking",
    "computable",
    "computed",
    "count_failures",
    "drop",
    "kept",
    "needs_letters",
    "writable",
]


@dataclass(frozen=True, eq=False)
class DeadLetters(Node):
    """The records that a node drops, on their way to the dead letter queue. Internal: it occurs in no
    topology."""


# --- what fails --------------------------------------------------------------------------------------------


def computable(
    building: Building, node: Node, function: Function, flow: Flow, lane: Lane, *results: Any
) -> tuple[Lane, tuple[Any, ...]]:
    """A function's result, and the lane without the records for which it cannot be computed.

    With processing.exception.handler=fail, both unchanged.
    """
    if not building.context.handlers.processing:
        return lane, results
    tried: str = translated(
        node,
        function,
        lambda: flow.with_column("t", attempt(flow.belongs_to(lane), *(as_column(item) for item in results))),
    )
    failed = flow.with_column("d", flow.belongs_to(lane) & F.col(tried).isNull())
    message = (
        f"{node.name} ({describe_function(function)}): the function's result cannot be computed for "
        "this record (a cast, an overflow, a division by zero, an index, raise_error; Spark does not say "
        "which)"
    )
    if "processing" in building.context.handlers.own:
        readers, shown = _shown(building, flow, lane)
        place = FailurePlace("processing", node.name, *readers)
        ask(building, node, flow, failed, place, F.lit(PROCESSING_FAILED), F.lit(message), shown)
    else:
        drop(building, node, flow, failed, "processing", F.lit(PROCESSING_FAILED), F.lit(message), function)
    lane = replace(lane, keep=flow.with_column("f", F.col(tried).isNotNull()))
    return lane, tuple(F.col(tried)[f"r{i}"] for i in range(len(results)))


def computed(
    building: Building, node: Node, function: Function, flow: Flow, lane: Lane, kind: str, result: Any
) -> tuple[Lane, str]:
    """The same, with the result in a column of its own: the lane, and the column's name."""
    lane, (result,) = computable(building, node, function, flow, lane, result)
    return lane, add_result(node, function, flow, lane, kind, result)


def of_before(building: Building, flow: Flow, lane: Lane, *results: Column) -> tuple[Column, ...]:
    """A function's results for a row's old value; NULL where they could not be computed.

    In that case nothing was emitted for it, so nothing has to be subtracted.
    """
    if not building.context.handlers.processing:
        return results
    tried = flow.with_column("t", attempt(flow.belongs_to(lane), *results))
    return tuple(F.col(tried)[f"r{i}"] for i in range(len(results)))


def writable(
    building: Building, node: Node, flow: Flow, lane: Lane, key: Column, value: Column, topic: Column
) -> tuple[Lane, Column, Column]:
    """Key and value to write, and the lane without the records that cannot be written.

    With production.exception.handler=fail, all unchanged.
    """
    handlers = building.context.handlers
    if not handlers.production:
        return lane, key, value
    if "production" in handlers.own:
        return _asked_whether_writable(building, node, flow, lane, key, value, topic)
    tried = flow.with_column("t", attempt(flow.belongs_to(lane), key, value))
    key, value = F.col(tried)["r0"], F.col(tried)["r1"]
    size = flow.with_column("z", record_size(key, value))
    fits = F.col(tried).isNotNull() & (F.col(size) <= handlers.max_request_size)
    keep = flow.with_column("f", fits)
    failed = flow.with_column("d", flow.belongs_to(lane) & ~F.col(keep))
    unwritten = F.col(tried).isNull()
    message = F.when(unwritten, F.lit(f"{node.name}: the serde cannot write the key or the value")).otherwise(
        F.concat(
            F.lit(f"{node.name}: the record has "),
            F.col(size).cast("string"),
            F.lit(f" bytes, and max.request.size of the producer is {handlers.max_request_size}"),
        )
    )
    exception = F.when(unwritten, F.lit(SERIALIZATION_FAILED)).otherwise(F.lit(RECORD_TOO_LARGE))
    drop(building, node, flow, failed, "production", exception, message)
    return replace(lane, keep=keep), key, value


def _asked_whether_writable(
    building: Building, node: Node, flow: Flow, lane: Lane, key: Column, value: Column, topic: Column
) -> tuple[Lane, Column, Column]:
    """As `writable`, for the user's own handler, which learns which part failed."""
    written = []
    for origin, column in (
        (SerializationExceptionOrigin.KEY, key),
        (SerializationExceptionOrigin.VALUE, value),
    ):
        tried = flow.with_column("t", attempt(flow.belongs_to(lane), column))
        failed = flow.with_column("d", flow.belongs_to(lane) & F.col(tried).isNull())
        readers, shown = _shown(building, flow, lane, as_written=True)
        place = FailurePlace("production", node.name, *readers, origin)
        message = F.lit(f"{node.name}: the serde cannot write the {origin.value}")
        ask(building, node, flow, failed, place, F.lit(SERIALIZATION_FAILED), message, shown, topic)
        lane = replace(lane, keep=flow.with_column("f", F.col(tried).isNotNull()))
        written.append(F.col(tried)["r0"])
    key, value = written
    size = flow.with_column("z", flow.own(lane, record_size(key, value)))
    limit = building.context.handlers.max_request_size
    failed = flow.with_column("d", flow.belongs_to(lane) & (F.col(size) > limit))
    place = FailurePlace("production", node.name)
    message = F.concat(
        F.lit(f"{node.name}: the record has "),
        F.col(size).cast("string"),
        F.lit(f" bytes, and max.request.size of the producer is {limit}"),
    )
    ask(building, node, flow, failed, place, F.lit(RECORD_TOO_LARGE), message, (key, value), topic)
    return replace(lane, keep=flow.with_column("f", flow.belongs_to(lane) & ~F.col(failed))), key, value


# --- what happens to it -------------------------------------------------------------------------------------


def drop(
    building: Building,
    node: Node,
    flow: Flow,
    failed: str,
    kind: str,
    exception: Column,
    message: Column,
    function: Function | None = None,
) -> None:
    """Count the rows of this flag and send them to the dead letter queue, if there is one.

    The caller narrows the lane, so that they go no further.
    """
    count_failures(building, node, flow, failed, kind)
    handlers = building.context.handlers
    if handlers.dead_letter_topic is None:
        return
    place = node.name if function is None else f"{node.name} ({describe_function(function)})"
    errors = error_headers(exception, message, place)
    # The results of an aggregation were not read from a topic.
    raw = flow.has(RAW_KEY)
    key = F.col(RAW_KEY) if raw else F.lit(None).cast("binary")
    value = F.col(RAW_VALUE) if raw else F.lit(None).cast("binary")
    # A dead letter that is too large would end the pipeline each time.
    headers = F.concat(F.coalesce(F.col(HEADERS), F.array().cast(HEADERS_TYPE)), errors)
    whole = record_size(key, value, headers)
    value = F.when(whole <= handlers.max_request_size, value)
    letters = DeadLetters(f"{node.name}-dead-letters", (node,))
    output = Output(F.lit(handlers.dead_letter_topic), key, value, headers=True, errors=errors)
    building.pin(letters, flow, Lane(RAW_KEY, RAW_VALUE, failed), output)


def ask(
    building: Building,
    node: Node,
    flow: Flow,
    failed: str,
    place: FailurePlace,
    exception: Column,
    message: Column,
    shown: tuple[Column, Column],
    topic: Column | None = None,
) -> None:
    """Count the rows of this flag, and have the user's own handler called for each.

    Args:
        shown: key and value of the record, in bytes.
        topic: where it was to be written; None: the failure was in reading.
    """
    number = len(building.places)
    building.places.append(place)
    count_failures(building, node, flow, failed, place.kind)
    question = QuestionColumns(F.lit(number), exception, message, *shown)
    nothing = F.lit(None).cast("binary")
    output = Output(
        F.lit(None).cast("string") if topic is None else topic,
        nothing,
        nothing,
        headers=True,
        letter=node.name,
        question=question,
    )
    asked = DeadLetters(f"{node.name}-asked", (node,))
    building.pin(asked, flow, Lane(RAW_KEY, RAW_VALUE, failed), output)


def count_failures(
    building: Building, node: Node, flow: Flow, failed: str, kind: str, late: str | None = None
) -> None:
    """Have the rows of this flag counted. `late` is as in flow.Failure."""
    flow.uncounted.append(DroppedRows(failed, building.failures, kind, node.name, late))
    building.failures += 1


def _shown(
    building: Building, flow: Flow, lane: Lane, *, as_written: bool = False
) -> tuple[tuple[FieldReader, FieldReader], tuple[Column, Column]]:
    """Key and value of a lane for a handler: how they are read in Python, and their bytes, NULL if
    unavailable.

    `as_written`: their own serdes failed, so others are used.
    """
    readers, columns = [], []
    for name, serde in ((lane.key, lane.key_serde), (lane.value, lane.value_serde)):
        type_, column = flow.type_of(name), F.col(name)
        try:
            settled = building.settle(None, None if as_written else serde, None, type_)
            reader, data = FieldReader(settled), serde_columns.to_bytes(settled, column, type_, name)
        except TopologyException:  # no serde writes this type, but one writes a struct of it
            wrapped = T.StructType().add("value", type_)
            of_struct = Serdes.json(wrapped)
            struct = F.struct(column.alias("value"))
            reader, data = (
                FieldReader(of_struct, "value"),
                serde_columns.to_bytes(of_struct, struct, wrapped, name),
            )
        readers.append(reader)
        columns.append(attempt(flow.belongs_to(lane), data)["r0"])
    return (readers[0], readers[1]), (columns[0], columns[1])


def asking(building: Building) -> Asking | None:
    """Calls the user's own handlers, for all places where records can fail."""
    handlers = building.context.handlers
    if not handlers.own:
        return None
    return Asking(handlers.own, handlers.configs, building.places, building.pipeline.subtopology)


def kept(
    building: Building,
    node: Node,
    flow: Flow,
    lane: Lane,
    keep: Column,
    *,
    alone: bool,
    dropped: str = SKIPPED,
) -> Lane:
    """The lane with the records that a node does not pass over.

    Args:
        dropped: as what the others are counted (dropped.py).
    """
    is_new = F.col(CONTROL) == 0
    passed_over = flow.with_column("d", flow.belongs_to(lane) & is_new & ~keep)
    count_failures(building, node, flow, passed_over, dropped)
    return flow.narrow(lane, keep, alone=alone)


def needs_letters(handlers: RecordHandlers) -> bool:
    """Whether rows carry what a dead letter, or the user's own handler, needs."""
    return bool(handlers.own) or (handlers.production and handlers.dead_letters)
