"""What is known of tables: whose updates carry old values, which changes are emitted, what a restart brings
back. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.physical.kernel_joins import ForeignKey, history_of, is_quiet
from millstream.topology.nodes import (
    Aggregate,
    Cogroup,
    ForeignKeyChanges,
    ForeignKeyJoin,
    Node,
    Process,
    StreamTableJoin,
    Suppress,
    TableFilter,
    TableGroupBy,
    TableJoin,
    TableMapValues,
    TableSource,
    TableTransformValues,
    ToStream,
    ToTable,
)
from millstream.topology.pipeline import Pipeline

__all__ = [
    "Remembering",
    "is_cached",
    "is_joined",
    "is_restored",
    "is_step",
    "remembering_of",
    "right_behind",
]


@dataclass(frozen=True, slots=True)
class Remembering:
    """The tables whose updates carry the old value.

    Attributes:
        tables: all of them.
        by_time: those that are grouped and have a history: their updates also say whether they are late.
    """

    tables: frozenset[Node]
    by_time: frozenset[Node]


def remembering_of(pipeline: Pipeline) -> Remembering:
    """The tables of a pipeline whose updates have to say what was there before.

    Source: KTableImpl.enableSendingOldValues, and the methods of that name of the processors.
    """
    tables: set[Node] = set()
    by_time: set[Node] = set()

    def remember(node: Node, *, is_by_time: bool = False) -> None:
        if isinstance(node, TableTransformValues):
            tables.add(node)  # from its store, or by asking what the old value gives
            if node.stored is None:
                remember(node.parents[0], is_by_time=is_by_time)
        elif isinstance(node, TableFilter | TableMapValues):
            remember(node.parents[0], is_by_time=is_by_time)
        elif isinstance(node, Aggregate | Cogroup | TableSource | ToTable | ForeignKeyJoin):
            tables.add(node)
            if is_by_time and isinstance(node, TableSource | ToTable):
                by_time.add(node)

    for node in pipeline.nodes:
        if isinstance(node, TableGroupBy):
            remember(node.parents[0], is_by_time=history_of(node.parents[0]) is not None)
        elif isinstance(node, TableFilter) and is_quiet(node) and _is_emitted(pipeline, node):
            remember(node.parents[0])
    return Remembering(frozenset(tables), frozenset(by_time))


def _is_emitted(pipeline: Pipeline, node: Node) -> bool:
    """Whether each change of a table is emitted to a node or a store. It is not if its rows are only joined,
    because joins keep the rows of their sides, so they know what has not changed (kernel_joins.py)."""
    if node.store is not None:
        return True
    for child in pipeline.nodes:
        kinds = StreamTableJoin | TableJoin | ForeignKey | ForeignKeyChanges
        if node not in child.parents or isinstance(child, kinds):
            continue
        if not isinstance(child, TableFilter | TableMapValues) or _is_emitted(pipeline, child):
            return True
    return False


def is_joined(pipeline: Pipeline, node: Node) -> bool:
    """Whether a join uses the table that a node makes: it needs each change at its time."""
    for child in pipeline.nodes:
        if node in child.parents:
            if isinstance(child, TableJoin) or (
                isinstance(child, StreamTableJoin) and child.parents[1] is node
            ):
                return True
            derived = TableFilter | TableMapValues | TableTransformValues
            if isinstance(child, derived) and is_joined(pipeline, child):
                return True
    return False


def is_cached(table: Node, *, by_default: bool) -> bool:
    """Whether only the last of a key's changes up to a commit is emitted.

    Args:
        by_default: whether the configuration has a cache.
    """
    if history_of(table) is not None:
        return False  # Kafka Streams has no cache over such stores
    while table.store is None and table.parents:
        table = table.parents[-1]
    return by_default and (table.store is None or table.store.cached)


def is_step(pipeline: Pipeline, node: Node) -> bool:
    """Whether what is behind a table gets the rows of its store, not those that the store is given.

    None come again from before it; or only the store knows what is a change.
    """
    if isinstance(node, TableFilter) and is_quiet(node):
        return True  # its store says what is no change
    children = [each for each in pipeline.nodes if node in each.parents]
    return isinstance(node, TableJoin | ForeignKeyJoin | ToTable) and not all(
        isinstance(each, ToStream) for each in children
    )


def is_restored(table: Node) -> bool:
    """Whether the rows of a table, which has no store, or an own one in its item, come again after a restart.

    It has none of Kafka Streams' if that of a table before it is not logged.

    Differs: the rows that a join has of what transformers have made of a table, and put into a store with
    versions, are only on its disk, and lost with that. Of a table behind a suppress with a time limit, a row
    is then missing while an update of it is held back; and of windows, those that are closed.
    """
    if isinstance(table, TableSource):
        return table.is_own_changelog
    if isinstance(table, Process) and table.store is not None and table.store.history_ms is not None:
        return False
    passes_on = isinstance(table, TableMapValues | Suppress) or (
        isinstance(table, TableFilter) and not is_quiet(table)
    )
    if table.store is not None and not passes_on:
        return table.store.logged
    is_logged = table.store is None or table.store.logged or isinstance(table, Suppress)
    return is_logged and all(is_restored(parent) for parent in table.parents)


def right_behind(pipeline: Pipeline, node: Node) -> tuple[Suppress, ...]:
    """The suppressions directly behind an aggregation, which hold back its updates as they are."""
    if not isinstance(node, Aggregate | Cogroup) or (isinstance(node, Aggregate) and node.on_close):
        return ()
    return tuple(each for each in pipeline.nodes if isinstance(each, Suppress) and each.parents == (node,))
