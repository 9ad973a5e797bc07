"""`Topology.explain()`: the pipelines as text, to show which topics there are and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from millstream.model import StoreKind
from millstream.topology.functions import describe_frame, describe_function
from millstream.topology.nodes import (
    Aggregate,
    Cogroup,
    ForeignKeyJoin,
    ForeignKeyLookup,
    FrameRead,
    FrameTable,
    GlobalRead,
    GlobalTable,
    JoinType,
    Node,
    Repartition,
    Sink,
    Source,
    SparkSink,
    Store,
    StreamGlobalTableJoin,
    StreamJoin,
    StreamTableJoin,
    Suppress,
    TableJoin,
    TableSource,
)
from millstream.topology.pipeline import Pipeline, linked
from millstream.topology.pipeline_forms import needing_batches

__all__ = ["explain"]

_APPLICATION = "<application.id>"


def explain(pipelines: Sequence[Pipeline], global_tables: Sequence[GlobalTable] = ()) -> str:
    """One paragraph per pipeline and per global table.

    Internal topics are shown with the placeholder `<application.id>`.
    """
    text = ""
    frames = [table for table in global_tables if isinstance(table, FrameTable)]
    kept = [table for table in global_tables if not isinstance(table, FrameTable)]
    if pipelines or not global_tables:
        text += "Pipelines:\n" + "".join(_paragraph(pipeline) for pipeline in pipelines)
    if kept:
        text += "Global tables:\n" + "".join(_global_table(table) for table in kept)
    if frames:
        text += "Tables of DataFrames:\n" + "".join(_frame_table(table) for table in frames)
    return text


def _paragraph(pipeline: Pipeline) -> str:
    without = "" if pipeline.has_query else "; each client reads its part of the topic, without Spark"
    lines = [f"  Pipeline: {pipeline.name} (subtopology {pipeline.subtopology}{without})"]
    lines += _section("reads", (_input(node, pipeline) for node in pipeline.inputs))
    lines += _section("windows", _windows(pipeline))
    lines += _section("joins", _joins(pipeline))
    lines += _section("Python", _processors(pipeline))
    lines += _section("holds", _held_back(pipeline))
    lines += _section("keeps", _kept(pipeline))
    lines += _section("writes", (*(_output(node) for node in pipeline.outputs), *_by_spark(pipeline)))
    lines += _section("batches", needing_batches(pipeline))
    return "\n".join(lines) + "\n\n"


def _global_table(table: GlobalTable) -> str:
    lines = [f"  Global table: {table.name} (each client reads all of it into its store, without Spark)"]
    lines += _section("reads", [f"{table.topic} ({table.source_name})"])
    lines += _section("keeps", [_store(table.stored)])
    return "\n".join(lines) + "\n\n"


def _frame_table(table: FrameTable) -> str:
    again = "at each start of a query that joins it" if table.reads_at_start else "at its first start"
    columns = ", ".join(table.key)
    lines = [f"  Table: {table.name} (rows of a DataFrame by {columns})"]
    lines += _section(
        "reads", [f"{describe_frame(table.frame)}, {again} and when asked ({table.source_name})"]
    )
    lines += _section("writes", [f"what has changed to {_internal(table.topic)}, in one transaction"])
    return "\n".join(lines) + "\n\n"


def _by_spark(pipeline: Pipeline) -> Iterable[str]:
    for node in pipeline.nodes:
        if isinstance(node, SparkSink):
            table = "" if node.table is None else f", to the table {node.table}"
            yield f"what {describe_function(node.function)} says, by a query of its own{table} ({node.name})"


def _section(title: str, entries: Iterable[str]) -> list[str]:
    return [f"    {f'{title}:' if number == 0 else '':<10}{entry}" for number, entry in enumerate(entries)]


def _input(node: Source | TableSource | Repartition, pipeline: Pipeline) -> str:
    if isinstance(node, Repartition):
        return f"{_internal(node.topic)} ({node.name})"
    if isinstance(node, FrameRead):
        return f"{_internal(node.topic)}, whole, for joins with the DataFrame's rows ({node.name})"
    if isinstance(node, GlobalRead):
        joined = any(
            isinstance(each, StreamGlobalTableJoin) and each.parents[1] is node.of for each in pipeline.nodes
        )
        whom = "joins with the global table" if joined else "processors that read the global store"
        return f"{node.topic}, whole, for {whom} ({node.name})"
    if isinstance(node, TableSource):
        return f"{node.topic} as a table ({node.name})"
    what = f"topics matching {node.pattern.pattern}" if node.pattern is not None else ", ".join(node.topics)
    return f"{what} ({node.name})"


def _output(node: Sink | Repartition) -> str:
    if isinstance(node, Repartition):
        return f"{_internal(node.topic)} ({node.sink_name})"
    if node.topic_function is not None:
        return f"topics that {describe_function(node.topic_function)} names ({node.name})"
    return f"{node.topic} ({node.name})"


def _store(store: Store) -> str:
    kind = "RocksDB" if store.persistent else "memory"
    if store.source_topic is not None:
        log = f"its changelog is the topic {store.source_topic} itself"
    elif store.logged:
        log = f"changelog {_internal(f'{store.name}-changelog')}"
    else:
        log = "no changelog, so it cannot be queried"
    if store.kind is not StoreKind.KEY_VALUE:
        kind += f" for {timedelta(milliseconds=store.retention_ms or 0)}"
    if store.history_ms is not None:
        kind += f" with a history of {timedelta(milliseconds=store.history_ms)}"
    word = {StoreKind.WINDOW: "window store", StoreKind.SESSION: "session store"}.get(store.kind, "store")
    return f"{word} {store.name} in {kind}, {log}"


def _windows(pipeline: Pipeline) -> Iterable[str]:
    for node in pipeline.nodes:
        if isinstance(node, Aggregate | Cogroup) and node.windows is not None:
            on_close = isinstance(node, Aggregate) and node.on_close
            once = ", emitted once, when they close" if on_close else ""
            yield f"{node.windows}{once} ({node.name})"


_SIDES = {
    JoinType.INNER: "what both sides have",
    JoinType.LEFT: "all of the left side",
    JoinType.OUTER: "all of both sides",
}


def _joins(pipeline: Pipeline) -> Iterable[str]:
    for node in pipeline.nodes:
        if isinstance(node, ForeignKeyJoin):
            answers, left = node.parents
            right = answers.parents[0].parents[1]
            yield f"{_side(left)} with {_side(right)} by a foreign key: {_SIDES[node.type]} ({node.name})"
        if not isinstance(node, StreamTableJoin | StreamGlobalTableJoin | StreamJoin | TableJoin):
            continue
        left, right = node.parents[0], node.parents[-1]
        if isinstance(node, StreamJoin):
            how = f"; {node.windows}"
        elif isinstance(node, StreamTableJoin) and node.grace_ms is not None:
            how = f"; as the table was at the record's time, {timedelta(milliseconds=node.grace_ms)} later"
        else:
            how = ""
        yield f"{_side(left)} with {_side(right)}: {_SIDES[node.type]}{how} ({node.name})"


def _side(node: Node) -> str:
    """One side of a join, by its topic if it comes unchanged from one."""
    match node:
        case FrameTable():
            return f"the rows of the DataFrame {node.name}"
        case GlobalTable():
            return f"global table {node.topic}"
        case TableSource():
            return f"table {node.topic}"
        case Repartition():
            return f"{_side(node.parents[0])} by its new key"
        case Source(pattern=None):
            return ", ".join(node.topics)
        case _:
            return node.name


def _processors(pipeline: Pipeline) -> Iterable[str]:
    """The processors, grouped if they are one program."""
    for group in linked(pipeline.nodes):
        yield f"{', '.join(node.name for node in group)}, record by record"


def _kept(pipeline: Pipeline) -> Iterable[str]:
    seen: set[str] = set()
    for node in pipeline.nodes:
        for store in node.stores:
            if store.name in seen:  # processors can share one
                continue
            seen.add(store.name)
            is_waiting = isinstance(node, StreamJoin | StreamTableJoin | ForeignKeyLookup)
            yield _waiting(store) if is_waiting else _store(store)


def _waiting(store: Store) -> str:
    """A store of records waiting for a join, or of references to rows."""
    time = "" if store.retention_ms is None else f" for {timedelta(milliseconds=store.retention_ms)}"
    log = f", changelog {_internal(f'{store.name}-changelog')}" if store.logged else ""
    return f"store {store.name}{time}, which cannot be queried{log}"


def _held_back(pipeline: Pipeline) -> Iterable[str]:
    for node in pipeline.nodes:
        if isinstance(node, Suppress):
            wait = f"for {timedelta(milliseconds=node.delay_ms)}"
            yield f"updates {'until their windows close' if node.until_close else wait} ({node.name})"


def _internal(name: str) -> str:
    return f"{_APPLICATION}-{name}"
