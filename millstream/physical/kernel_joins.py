"""Joins as items of an operator: what they keep of their parents, and which core of the kernel each one is.
Pure.

A join is several items of one operator (plan.py), next to those of its parents:

- of a stream with a table, the table's last rows, and a lookup for each record of the stream; for a global
  table, by the key that the record names, so afterwards the records are put back into their order;
- of two tables, the last rows of both, and the changes of one that are sent on to the other;
- of a versioned table, all its rows within the history instead of the last ones: a record finds
  the one of its time, after its grace period if it has one, and a late change emits nothing;
- of two streams, the records of both sides, and the pairs;
- of two tables by a foreign key, what spark/compile/foreign_key_nodes.py describes.

The kernel pairs values that are opaque to it; the joiner is a Column over its output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.topology.nodes import (
    ForeignKeyJoin,
    ForeignKeyLookup,
    ForeignKeySubscribe,
    GlobalRead,
    JoinType,
    Node,
    Repartition,
    StreamGlobalTableJoin,
    StreamJoin,
    StreamTableJoin,
    TableFilter,
    TableJoin,
    TableMapValues,
)

__all__ = [
    "ForeignKey",
    "Join",
    "Lookup",
    "OfSides",
    "Side",
    "history_of",
    "is_between_tables",
    "is_quiet",
    "links_of",
    "settings_of",
    "takes_null_keys",
]

Lookup = StreamTableJoin | StreamGlobalTableJoin
"""The joins that look up a row for each record of a stream."""
ForeignKey = ForeignKeySubscribe | ForeignKeyLookup | ForeignKeyJoin
"""The parts of a foreign-key join."""
Join = Lookup | StreamJoin | TableJoin | ForeignKey
OfSides = StreamJoin | TableJoin | ForeignKeySubscribe
"""The joins fed only by their sides; they get no records themselves."""


@dataclass(frozen=True, eq=False)
class Side(Node):
    """What joins keep of one of their parents. Internal: it occurs in no topology.

    Attributes:
        join: the first one that needs it.
        is_left: which side of that it is.
        remembers: a change carries the row's old value.
        number: how many earlier operators look up rows in the same table.
    """

    join: Join = field(default_factory=lambda: StreamTableJoin("", ()))
    is_left: bool = False
    remembers: bool = False
    number: int = 0

    @property
    def is_of_table(self) -> bool:
        return not isinstance(self.join, StreamJoin)

    @property
    def is_referring(self) -> bool:
        """Whether it is a table whose rows have foreign keys; each of its changes is emitted."""
        return isinstance(self.join, ForeignKeySubscribe | ForeignKeyJoin)

    @property
    def is_for(self) -> tuple[bool, bool]:
        """Which joins can share it: those that look up rows in a table, or those that join it by foreign
        keys."""
        return isinstance(self.join, Lookup), self.is_referring

    @property
    def is_global(self) -> bool:
        """Whether it belongs to a global table, whose rows come before the records of the same
        batch."""
        return isinstance(self.join, StreamGlobalTableJoin)

    @property
    def label(self) -> str:
        """The name of its state: that of a named store if there is one, else that of the join. The names of
        joins depend on the nodes before them, and on their kind."""
        if isinstance(self.join, StreamJoin):
            return (self.join.this_stored if self.is_left else self.join.other_stored).name
        store = self.parents[0].store
        if isinstance(self.join, StreamTableJoin) and store is not None:
            return f"{store.name}-looked-up{self.number or ''}"  # shared by such joins in this operator
        if self.is_referring and store is not None:
            return f"{store.name}-referring{self.number or ''}"
        if isinstance(self.join, ForeignKeyLookup):
            return f"{self.join.stored.name}-rows"
        if isinstance(self.parents[0], GlobalRead):
            return f"{self.parents[0].topic}-looked-up{self.number or ''}"
        name = self.join.name if self.join.store is None else self.join.store.name
        return f"{name}-{'left' if self.is_left else 'right'}"


def is_between_tables(node: Repartition) -> bool:
    """Whether it is a topic between the two tables of a foreign-key join."""
    return isinstance(node.parents[0], ForeignKeySubscribe | ForeignKeyLookup)


def takes_null_keys(node: Node) -> bool:
    """Whether a record without a key has a result: it does on an outer side, without a match (KIP-962)."""
    if isinstance(node, Lookup):
        return node.type is JoinType.LEFT
    if isinstance(node, ForeignKeyLookup):
        return True  # a lookup without a key is answered
    if isinstance(node, Side) and isinstance(node.join, StreamJoin):
        return node.join.type is JoinType.OUTER or (node.is_left and node.join.type is JoinType.LEFT)
    return False


def history_of(table: Node) -> int | None:
    """How far back a table's rows can be looked up, in ms; None: only the latest rows are kept.

    Source: GraphNode.isOutputVersioned.
    """
    if table.store is not None:
        return table.store.history_ms
    return history_of(table.parents[0]) if isinstance(table, TableFilter | TableMapValues) else None


def is_quiet(table: Node) -> bool:
    """Whether a filter emits nothing for a row that was and is absent. One of a table with a history does.

    Source: KTableFilter.
    """
    if isinstance(table, TableMapValues):
        return is_quiet(table.parents[0])
    return isinstance(table, TableFilter) and table.knows_old and history_of(table.parents[0]) is None


def settings_of(node: Join | Side) -> tuple[str, dict[str, int]]:
    """The kernel's core for it, and the core's settings."""
    if isinstance(node, Side) and node.is_of_table:
        silent = {} if node.is_referring else {"silent": 1}
        settings = {**silent, **({"old": 1} if node.remembers else {})}
        history_ms = None if node.is_global else history_of(node.parents[0])
        if history_ms is None:
            return "latest", settings
        return "versions", {**settings, "history": history_ms}
    if isinstance(node, Lookup):
        alone = {"alone": int(node.type is JoinType.LEFT)}
        if isinstance(node, StreamTableJoin) and node.grace_ms is not None:
            return "waiting", {"grace": node.grace_ms, **alone}
        return "lookup", alone
    if isinstance(node, ForeignKeyJoin):
        return "lookup", {"alone": 1}
    if isinstance(node, ForeignKeyLookup):
        return "references", {}
    if isinstance(node, ForeignKeySubscribe):
        return "changes", {}
    if isinstance(node, TableJoin):
        return "table_join", {}
    join = node.join if isinstance(node, Side) else node
    assert isinstance(join, StreamJoin)
    windows = join.windows
    settings = {
        "before": windows.before_ms,
        "after": windows.after_ms,
        "grace": windows.grace_ms,
        "left_outer": int(join.type is not JoinType.INNER),
        "right_outer": int(join.type is JoinType.OUTER),
    }
    return ("records" if isinstance(node, Side) else "pairs"), settings


def links_of(node: Node, sides: Mapping[Node, tuple[Side, ...]]) -> dict[str, Node]:
    """The items that a join refers to, by role."""
    if isinstance(node, Lookup | ForeignKey):
        return {"table": sides[node][0]}
    if isinstance(node, StreamJoin | TableJoin):
        left, right = sides[node]
        return {"left": left, "right": right}
    return {}
