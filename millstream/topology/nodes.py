"""The logical plan of a program: one frozen node for each DSL operation.

A node knows its name, its parents and its arguments (lambdas, serdes, stores), as opaque values. It does not
know how Kafka Streams would print it (describe.py), how the topology is divided (subtopology.py,
pipeline.py), or how Spark runs it (spark/compile/task_compiler.py has a `visit_<node>` for each class here).

Nodes are compared by identity: two filters with the same lambda are two nodes.
Names are given by the DSL, in Kafka Streams' order (names.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from millstream.model import StoreKind
from millstream.serdes.serde import Serde
from millstream.topology.windows import JoinWindows, Windows

__all__ = [
    "Aggregate",
    "Aggregation",
    "Branch",
    "Cogroup",
    "ColumnAggregation",
    "Count",
    "Filter",
    "FlatMap",
    "FlatMapValues",
    "Fold",
    "ForeignKeyChanges",
    "ForeignKeyJoin",
    "ForeignKeyLookup",
    "ForeignKeySubscribe",
    "FrameRead",
    "FrameTable",
    "Function",
    "GlobalRead",
    "GlobalTable",
    "JoinType",
    "Map",
    "MapValues",
    "Merge",
    "Node",
    "OffsetReset",
    "OffsetResetByDuration",
    "OffsetResetPolicy",
    "PassThrough",
    "Peek",
    "Print",
    "Process",
    "Repartition",
    "SelectKey",
    "Sink",
    "Source",
    "SparkSink",
    "SparkTopic",
    "Store",
    "StreamGlobalTableJoin",
    "StreamJoin",
    "StreamTableJoin",
    "Suppress",
    "TableFilter",
    "TableFold",
    "TableGroupBy",
    "TableJoin",
    "TableMapValues",
    "TableSource",
    "TableTransformValues",
    "ToStream",
    "ToTable",
]

Function = Callable[..., Any]
"""A user's function: takes Columns and returns a Column (by design, columns instead of records)."""


class OffsetReset(Enum):
    """Where a source starts that has no committed offsets yet. NONE: only where a reset says."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class OffsetResetByDuration:
    """A source starts with the first record that is not older than this, or else with the next new record."""

    duration_ms: int


OffsetResetPolicy = OffsetReset | OffsetResetByDuration


@dataclass(frozen=True, slots=True)
class Store:
    """A state store, as declared in the topology.

    Attributes:
        name: given by the user, or by Kafka Streams' rule for unnamed stores.
        key_serde: the serde of its keys; None until the compiler knows the column's type.
        value_serde: the serde of its values; likewise.
        queryable: whether the user named it (`KTable.queryable_store_name`).
        persistent: whether it is in RocksDB; otherwise it is in memory.
        type_is_default: whether the program left `persistent` open, so the configuration decides.
        logged: whether it has a changelog. A store is a view of its changelog, so one without
            cannot be queried.
        source_topic: for a table or global table read from a topic: that topic is the changelog; there is no
            copy.
        topic_config: configs of the changelog topic, on top of the defaults.
        kind: how its keys are made.
        window_size_ms: for a window store: the length of its windows.
        retention_ms: for window and session stores: how long a window is kept, counted from its start (a
            session: its end) to the newest start (end) in the same partition.
        cached: whether only each key's last value is emitted, at a commit; otherwise every value is.
        history_ms: for a key-value store with history: how far back it can be read. None: it has only the
            latest values.
        duplicates: for a window store: whether a key can have several values in a window, such as the records
            of a stream. Its changelog is then not compacted.
        timestamped: for a processor's store: whether its interface includes the timestamps of values. Bytes
            and changelogs are the same either way.
    """

    name: str
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    queryable: bool = True
    persistent: bool = True
    logged: bool = True
    source_topic: str | None = None
    topic_config: Mapping[str, str] = field(default_factory=dict)
    kind: StoreKind = StoreKind.KEY_VALUE
    window_size_ms: int | None = None
    retention_ms: int | None = None
    history_ms: int | None = None
    cached: bool = True
    duplicates: bool = False
    type_is_default: bool = True
    timestamped: bool = True


@dataclass(frozen=True, eq=False)
class Node:
    """One operation. `parents` come in the order of the DSL call."""

    name: str
    parents: tuple[Node, ...]

    @property
    def store(self) -> Store | None:
        """The store this node fills, if it has one."""
        return None

    @property
    def stores(self) -> tuple[Store, ...]:
        """Every store this node fills: `store`, except for nodes that have several."""
        return () if self.store is None else (self.store,)


@dataclass(frozen=True, eq=False)
class Source(Node):
    """Records of topics, or of all topics that match a pattern. Exactly one of the two is set."""

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    offset_reset: OffsetResetPolicy | None = None
    timestamp_extractor: Any = None
    """The timestamp extractor; None: the configured one."""


@dataclass(frozen=True, eq=False)
class TableSource(Node):
    """A topic read as a table: a record updates its key, a null value deletes it, and a null key is skipped.

    `source_name` names the source that Kafka Streams puts before it (`KSTREAM-SOURCE-…`). `stored` is set if
    the table is materialized (by the user, or by a later operation that needs it).
    """

    topic: str = ""
    source_name: str = ""
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    offset_reset: OffsetResetPolicy | None = None
    stored: Store | None = None
    timestamp_extractor: Any = None
    """The same as for a Source."""

    @property
    def store(self) -> Store | None:
        return self.stored

    @property
    def is_view(self) -> bool:
        """Whether its store, if any, is filled from the topic itself, so Spark does not write it."""
        return self.stored is None or self.stored.source_topic is not None

    @property
    def is_own_changelog(self) -> bool:
        """Whether the table is restored from the topic itself."""
        return self.is_view and (self.stored is None or self.stored.logged)


@dataclass(frozen=True, eq=False)
class GlobalRead(TableSource):
    """The topic of the global table `of`, as read by a pipeline that joins a stream with the table.

    Not part of a topology: Kafka Streams' tasks read the client's store, which Spark's executors cannot. Also
    used for processors that read the table's store.
    """

    of: GlobalTable | None = None

    @property
    def is_own_changelog(self) -> bool:
        return False  # no task restores it


@dataclass(frozen=True, eq=False)
class GlobalTable(Node):
    """A topic of which every client keeps all partitions in a store; it has no children.

    No task and no query runs it: a thread of the client copies the topic into the store as it is, so only
    queries need the serdes. `source_name` is as for a `TableSource`. With a `supplier`, a user's processor
    fills the store from the topic's records.
    """

    topic: str = ""
    source_name: str = ""
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    stored: Store = field(default_factory=lambda: Store(""))
    supplier: Any = None

    @property
    def store(self) -> Store | None:
        return self.stored


@dataclass(frozen=True, eq=False)
class FrameTable(GlobalTable):
    """The rows of a DataFrame as a table, which is complete wherever a stream is joined with it.

    Its rows are in the internal topic `<name>-changelog`, which `topic` names without the application id.
    Only a client writes to it, when the table is reread; no client keeps a store of it.

    Attributes:
        frame: a DataFrame, or a function that takes a SparkSession and returns one; an opaque value.
        key: the key columns of the table.
        reads_at_start: whether every start of a query that joins it reads the DataFrame; otherwise only the
            first.
    """

    frame: Any = None
    key: tuple[str, ...] = ()
    reads_at_start: bool = True


@dataclass(frozen=True, eq=False)
class FrameRead(GlobalRead):
    """The internal topic of a DataFrame's table, as read by a pipeline; without the application id."""

    table: FrameTable = field(default_factory=lambda: FrameTable("", ()))


@dataclass(frozen=True, eq=False)
class Filter(Node):
    """Keep the records whose predicate is true (`negate`: is not true). NULL counts as not true."""

    predicate: Function = field(default=lambda: None)
    negate: bool = False


@dataclass(frozen=True, eq=False)
class Map(Node):
    """(key, value) to (key, value). The key may change."""

    mapper: Function = field(default=lambda: None)


@dataclass(frozen=True, eq=False)
class MapValues(Node):
    """Value to value; the key stays."""

    mapper: Function = field(default=lambda: None)


@dataclass(frozen=True, eq=False)
class FlatMap(Node):
    """(key, value) to any number of (key, value)."""

    mapper: Function = field(default=lambda: None)


@dataclass(frozen=True, eq=False)
class FlatMapValues(Node):
    """Value to any number of values; the key stays."""

    mapper: Function = field(default=lambda: None)


@dataclass(frozen=True, eq=False)
class SelectKey(Node):
    """(key, value) to a new key; the value stays. `group_by` makes one of these too."""

    mapper: Function = field(default=lambda: None)


@dataclass(frozen=True, eq=False)
class Peek(Node):
    """Call a Python function with the rows; the records pass through.

    `terminal` for `foreach`: it has no children.
    """

    action: Function = field(default=lambda: None)
    terminal: bool = False


@dataclass(frozen=True, eq=False)
class Merge(Node):
    """The records of both parents."""


@dataclass(frozen=True, eq=False)
class Branch(Node):
    """Route each record to the first predicate that is true. Its children are `PassThrough` nodes."""

    predicates: tuple[Function, ...] = ()


@dataclass(frozen=True, eq=False)
class PassThrough(Node):
    """One branch of its parent `Branch`: the one with this index; `len(predicates)` is the default branch."""

    index: int = 0


@dataclass(frozen=True, eq=False)
class Repartition(Node):
    """Repartitions records by key. The node has the name of the source (`KSTREAM-SOURCE-…`) that reads the
    topic.

    Attributes:
        topic: the topic's name without the application id: `counts-repartition`.
        sink_name, filter_name: the other names that Kafka Streams gives to this step. `filter_name` names the
            filter that drops null keys, which Kafka Streams 4.3 puts before every repartition of a stream,
            including `repartition()`; None if there is none (repartitions of tables).
        null_keys: whether that filter lets null keys pass, because a later left join has results for them.
        partitions: the requested number, or None for as many as the topics before it.
        implicit: whether it was added by an aggregation whose key may have changed. Spark can shuffle
            instead, so it needs no topic; a repartition that the user asked for has a topic.
        partitioner: chooses each record's partition. If it returns NULL, or there is none, the key does.
    """

    topic: str = ""
    sink_name: str = ""
    filter_name: str | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    partitions: int | None = None
    implicit: bool = True
    null_keys: bool = False
    partitioner: Function | None = None


@dataclass(frozen=True, eq=False)
class SparkTopic(Repartition):
    """The topic between a stream and the user's query that writes it elsewhere.

    Records keep their keys, including null: no later step needs equal keys together.
    """


@dataclass(frozen=True, eq=False)
class SparkSink(Node):
    """Writes the records of a SparkTopic, as a streaming DataFrame, with the writer from a function.

    Attributes:
        function: takes the DataFrame, and returns a DataStreamWriter that is not started.
        table: the name to start it with by `toTable`; None: use `start`.
    """

    function: Function = field(default=lambda: None)
    table: str | None = None


@dataclass(frozen=True, eq=False)
class Sink(Node):
    """Write to a topic, or to the topic that a function's Column names for each record."""

    topic: str | None = None
    topic_function: Function | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    partitioner: Function | None = None


class Aggregation:
    """What an `Aggregate` computes: one of the three classes below."""


@dataclass(frozen=True, slots=True)
class Count(Aggregation):
    """The number of records with a key and a value."""


@dataclass(frozen=True, slots=True)
class ColumnAggregation(Aggregation):
    """Spark aggregate expressions: `lambda key, value: F.sum(value.amount)`, or a dict of several."""

    expression: Function


@dataclass(frozen=True, slots=True)
class Fold(Aggregation):
    """Python functions, called for each record in the order of a Kafka Streams task.

    `adder(key, value, aggregate) -> aggregate`; with `initializer` None (a reduce) the first value
    of a key is its first aggregate and `adder` is called as `adder(aggregate, value)`.
    `merger(key, one, other) -> aggregate` is for sessions; a reduce merges with `adder`.
    """

    adder: Function
    initializer: Function | None = None
    merger: Function | None = None


@dataclass(frozen=True, slots=True)
class TableFold(Aggregation):
    """Python functions for the rows of a grouped table; both have the signature of a Fold's adder.

    For an update, the subtractor is called with the old value, then the adder with the new one.
    """

    adder: Function
    subtractor: Function
    initializer: Function | None = None


@dataclass(frozen=True, eq=False)
class Aggregate(Node):
    """One value per key, or per key and window. Records with a null key or a null value are skipped.

    With `on_close`, downstream steps get the last value of each window, when the window has closed. The store
    gets every value. With `of_table` it aggregates a grouped table: a deleted or changed row is subtracted
    before the new one is added.
    """

    aggregation: Aggregation = field(default_factory=Count)
    stored: Store = field(default_factory=lambda: Store(""))
    windows: Windows | None = None
    on_close: bool = False
    of_table: bool = False

    @property
    def store(self) -> Store | None:
        return self.stored


@dataclass(frozen=True, eq=False)
class Cogroup(Node):
    """One value per key, or per key and window, of several streams. Null keys and null values are skipped.

    Each parent has its adder, in the same order; a stream added twice is listed twice. Adders are Python
    functions, as in a Fold, and share the aggregate. The node has the name of the step that merges the
    results; `names` are those of Kafka Streams' steps before it, one for each parent.
    """

    adders: tuple[Function, ...] = ()
    initializer: Function = field(default=lambda: None)
    merger: Function | None = None
    names: tuple[str, ...] = ()
    stored: Store = field(default_factory=lambda: Store(""))
    windows: Windows | None = None

    @property
    def store(self) -> Store | None:
        return self.stored


@dataclass(frozen=True, eq=False)
class ToTable(Node):
    """A stream read as a table: the last record of a key is its value, and a null value is a deletion."""

    stored: Store | None = None

    @property
    def store(self) -> Store | None:
        return self.stored


@dataclass(frozen=True, eq=False)
class TableFilter(Node):
    """Keep the rows whose predicate is true; the others become deletions.

    With `knows_old` nothing is sent for a row that does not pass and did not before.
    """

    predicate: Function = field(default=lambda: None)
    negate: bool = False
    stored: Store | None = None
    knows_old: bool = False

    @property
    def store(self) -> Store | None:
        return self.stored


@dataclass(frozen=True, eq=False)
class TableMapValues(Node):
    """Value to value; a deletion stays a deletion."""

    mapper: Function = field(default=lambda: None)
    stored: Store | None = None

    @property
    def store(self) -> Store | None:
        return self.stored


@dataclass(frozen=True, eq=False)
class Suppress(Node):
    """Hold back a table's updates, and emit the last one of each key when it is due.

    Attributes:
        stored: the store of held-back updates.
        until_close: whether the delay counts from a window's end, and not from the first held-back update;
            deletions are then not emitted.
        delay_ms: how far stream time must be past that time.
        record_limit, byte_limit: limits for what one task holds back; None for no limit.
        stops_when_full: whether the query stops at a limit; otherwise the oldest update is emitted.
    """

    stored: Store = field(default_factory=lambda: Store(""))
    until_close: bool = False
    delay_ms: int = 0
    record_limit: int | None = None
    byte_limit: int | None = None
    stops_when_full: bool = False

    @property
    def store(self) -> Store | None:
        return self.stored


class JoinType(Enum):
    """Which records have results: those with a match, all of the left side, or all of both sides."""

    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"


@dataclass(frozen=True, eq=False)
class StreamTableJoin(Node):
    """Joins each record of a stream with the table's current row for its key.

    The parents are the stream and the table. `joiner` takes the left and the right value, optionally preceded
    by the key. With `grace_ms`, records wait in `stored` until stream time is that far past them, and join
    with the versioned table as of their own time.
    """

    joiner: Function = field(default=lambda: None)
    type: JoinType = JoinType.INNER
    grace_ms: int | None = None
    stored: Store | None = None

    @property
    def stores(self) -> tuple[Store, ...]:
        return () if self.stored is None else (self.stored,)


@dataclass(frozen=True, eq=False)
class StreamGlobalTableJoin(Node):
    """Joins each record of a stream with the row of a global table that it refers to.

    The parents are the stream and the global table. `selector` maps a record's key and value to the global
    table's key; `joiner` takes the left and the right value, optionally preceded by the record's key.
    """

    selector: Function = field(default=lambda: None)
    joiner: Function = field(default=lambda: None)
    type: JoinType = JoinType.INNER


@dataclass(frozen=True, eq=False)
class StreamJoin(Node):
    """Joins records of two streams that have the same key and are close in time.

    The parents are the left and the right stream, or a single one joined with itself. The node has the name
    of the step that merges the results. `names` are those of Kafka Streams' other steps: the left and the
    right window, the left and the right join. `this_stored` and `other_stored` hold the records of the left
    and the right side. For a left or outer join, `outer_stored` holds those waiting for a match.
    """

    joiner: Function = field(default=lambda: None)
    type: JoinType = JoinType.INNER
    windows: JoinWindows = field(default_factory=lambda: JoinWindows(0, 0, 0))
    names: tuple[str, ...] = ()
    this_stored: Store = field(default_factory=lambda: Store(""))
    other_stored: Store = field(default_factory=lambda: Store(""))
    outer_stored: Store | None = None

    @property
    def stores(self) -> tuple[Store, ...]:
        both = (self.this_stored, self.other_stored)
        return both if self.outer_stored is None else (*both, self.outer_stored)


@dataclass(frozen=True, eq=False)
class TableJoin(Node):
    """Joins the rows of two tables with the same key.

    The parents are the left and the right table, or a single one joined with itself. The node has the name of
    the step that merges the results. `names` are those of Kafka Streams' two steps before it, left and right.
    """

    joiner: Function = field(default=lambda: None)
    type: JoinType = JoinType.INNER
    names: tuple[str, ...] = ()
    stored: Store | None = None

    @property
    def store(self) -> Store | None:
        return self.stored


@dataclass(frozen=True, eq=False)
class ForeignKeySubscribe(Node):
    """Sends the left table's rows of a foreign-key join to the partitions of the rows that they refer to.

    The first of the four nodes of such a join, followed by the Repartition by the foreign key, which
    `extractor` computes from a row's key and value.
    """

    extractor: Function = field(default=lambda: None)
    type: JoinType = JoinType.INNER


@dataclass(frozen=True, eq=False)
class ForeignKeyLookup(Node):
    """Joins each subscription, which is kept in `stored`, with the right table's row for that key.

    The parents are the Repartition and the right table. `names` has the name of Kafka Streams' step before
    it.
    """

    names: tuple[str, ...] = ()
    stored: Store = field(default_factory=lambda: Store(""))

    @property
    def stores(self) -> tuple[Store, ...]:
        return (self.stored,)


@dataclass(frozen=True, eq=False)
class ForeignKeyChanges(Node):
    """The right table's changes, one for each row that refers to it, found in the lookup's store.

    It and the lookup are followed by the Repartition back to the left table's keys.
    """

    subscriptions: Store = field(default_factory=lambda: Store(""))


@dataclass(frozen=True, eq=False)
class ForeignKeyJoin(Node):
    """Joins the left table's rows with the right table's rows that they refer to.

    The parents are the Repartition back and the left table, whose row must still be the one that subscribed.
    `names` has the name of Kafka Streams' step before it.
    """

    joiner: Function = field(default=lambda: None)
    type: JoinType = JoinType.INNER
    names: tuple[str, ...] = ()
    stored: Store | None = None

    @property
    def store(self) -> Store | None:
        return self.stored


@dataclass(frozen=True, eq=False)
class TableGroupBy(Node):
    """A table's rows under new keys, for an aggregation: `mapper` gives a row's new key and value.

    Each update becomes one or two: the result of the old value is removed, and that of the new one is added.
    """

    mapper: Function = field(default=lambda: None)


@dataclass(frozen=True, eq=False)
class ToStream(Node):
    """A table's updates as a stream."""


@dataclass(frozen=True, eq=False)
class Print(Node):
    """Print the records of a stream, one per line, with a label; it has no children.

    `mapper` is a Python function from key and value to text, or None; `path` is a file, or None for stdout.
    """

    label: str = ""
    mapper: Function | None = None
    path: str | None = None


@dataclass(frozen=True, eq=False)
class Process(Node):
    """Records processed one by one by a user's Python processor, which may have stores.

    Attributes:
        supplier: creates a processor (millstream/processors/api.py).
        fixed_key: whether it forwards values under the input keys only.
        connected: its stores. Another node may share a store: an equal one with the same name.
        key_serde, value_serde: for records that it forwards to steps other than processors; None for the
            serdes of its input. A sink with serdes of its own uses those.
    """

    supplier: Any = None
    fixed_key: bool = False
    connected: tuple[Store, ...] = ()
    key_serde: Serde | None = None
    value_serde: Serde | None = None

    @property
    def stores(self) -> tuple[Store, ...]:
        return self.connected


@dataclass(frozen=True, eq=False)
class TableTransformValues(Process):
    """A table's rows with new values from a user's Python transformer, which may have stores.

    `supplier` creates transformers (`ValueTransformerWithKey`). They are also called for deletions. `stored`
    has the table's rows, if it is given a name.
    """

    stored: Store | None = None

    @property
    def store(self) -> Store | None:
        return self.stored

    @property
    def stores(self) -> tuple[Store, ...]:
        return self.connected if self.stored is None else (*self.connected, self.stored)
