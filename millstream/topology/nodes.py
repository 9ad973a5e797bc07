"""What a program means: one frozen node for each operation the DSL was asked for.

A node knows its name, its parents, and what it was given (lambdas, serdes, stores), as opaque values.
It does not know how Kafka Streams would print it (describe.py), how it is cut (subtopology.py,
pipeline.py), or how Spark runs it (spark/compiler.py says which `visit_<node>` there is for each class here).

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
"""A user's function: it gets Columns and returns a Column (design: columns, not records)."""


class OffsetReset(Enum):
    """Where a source starts when the application has no checkpoint yet. NONE: only where a reset says."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class OffsetResetByDuration:
    """A source starts with the records that are no older than this; if none is, with the next one."""

    duration_ms: int


OffsetResetPolicy = OffsetReset | OffsetResetByDuration


@dataclass(frozen=True, slots=True)
class Store:
    """A state store, as the topology declares it.

    Attributes:
        name: given by the user, or by Kafka Streams' rule for unnamed stores.
        key_serde: the serde of its keys; None until the compiler knows the column's type.
        value_serde: the serde of its values; likewise.
        queryable: whether the user named it (`KTable.queryable_store_name`).
        persistent: RocksDB, else memory.
        type_is_default: whether the program left that open, so that the configuration may say otherwise.
        logged: whether it has a changelog. A store is a view of its changelog, so one without
            cannot be queried.
        source_topic: for a table, or a global table, read from a topic: that topic is the changelog, there
            is no copy.
        topic_config: configs of the changelog topic, on top of the defaults.
        kind: how its keys are made.
        window_size_ms: for a window store: how long each of its windows is.
        retention_ms: for window and session stores: how long a window is kept, counted from its start (a
            session: its end) to the newest start (end) in the same partition.
        cached: each key's last value of a micro-batch is told; else every one of its values.
        history_ms: for a key-value store that can be read as of an earlier time: how far back. None: it
            has last values only.
        duplicates: of a window store: whether a key has several values in a window, the records of a
            stream. Its changelog is then not compacted.
        timestamped: of a store of processors: whether its interface has the timestamps of values. Bytes and
            changelogs are the same.
    """

    name: str
    key_serde: Any = None
    value_serde: Any = None
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
        """Every store this node fills: that one, save for nodes which have several."""
        return () if self.store is None else (self.store,)


@dataclass(frozen=True, eq=False)
class Source(Node):
    """Records of topics, or of all topics that match a pattern. Exactly one of the two is set."""

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    key_serde: Any = None
    value_serde: Any = None
    offset_reset: OffsetResetPolicy | None = None
    timestamp_extractor: Any = None
    """What gives a record its time; None: what is configured."""


@dataclass(frozen=True, eq=False)
class TableSource(Node):
    """A topic read as a table: a record is an update of its key, a null value a deletion, a null key skipped.

    `source_name` names the source that Kafka Streams puts before it (`KSTREAM-SOURCE-…`).
    `stored` is set when the table is materialized (by the user, or by a later operation that needs it).
    """

    topic: str = ""
    source_name: str = ""
    key_serde: Any = None
    value_serde: Any = None
    offset_reset: OffsetResetPolicy | None = None
    stored: Store | None = None
    timestamp_extractor: Any = None
    """As that of a Source."""

    @property
    def store(self) -> Store | None:
        return self.stored

    @property
    def is_view(self) -> bool:
        """Whether its store, if any, is filled from the topic itself, so that Spark need not write it."""
        return self.stored is None or self.stored.source_topic is not None


@dataclass(frozen=True, eq=False)
class GlobalRead(TableSource):
    """The topic of a global table, `of`, as a pipeline reads it that joins a stream with the table.

    In no topology: Kafka Streams' tasks ask the client's store, which Spark's executors cannot. Processors
    that read the table's store have it so too.
    """

    of: GlobalTable | None = None


@dataclass(frozen=True, eq=False)
class GlobalTable(Node):
    """A topic that every client keeps whole, all its partitions, in a store; nothing comes after it.

    No task and no query runs it: a thread of the client reads the topic into the store as it is, so only
    who queries it needs the serdes. `source_name` as with a `TableSource`. With a `supplier`, a processor of
    the user's writes what is read into the store.
    """

    topic: str = ""
    source_name: str = ""
    key_serde: Any = None
    value_serde: Any = None
    stored: Store = field(default_factory=lambda: Store(""))
    supplier: Any = None

    @property
    def store(self) -> Store | None:
        return self.stored


@dataclass(frozen=True, eq=False)
class FrameTable(GlobalTable):
    """The rows of a DataFrame as a table that is whole wherever a stream is joined with it.

    Its rows are in the topic `<name>-changelog`, an internal one, which `topic` names without the application
    id. Nobody but a client writes there, when the table is read anew; no client keeps a store of it.

    Attributes:
        frame: a DataFrame, or a function that gets a SparkSession and returns one; an opaque value.
        key: the columns that are the table's key.
        reads_at_start: each start of a query that joins it reads the DataFrame; else the first one alone.
    """

    frame: Any = None
    key: tuple[str, ...] = ()
    reads_at_start: bool = True


@dataclass(frozen=True, eq=False)
class FrameRead(GlobalRead):
    """The topic of a DataFrame's table, as a pipeline reads it; internal, and without the application id."""

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
    """Call a Python function with the rows of each micro-batch; the records pass through.

    `terminal` for `foreach`: nothing comes after it.
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
    """Records by key. The name of the node is the source's (`KSTREAM-SOURCE-…`) that reads the topic.

    Attributes:
        topic: the topic's name without the application id: `counts-repartition`.
        sink_name, filter_name: the other names that Kafka Streams gives to this step; `filter_name`
            names the filter that drops null keys, which Kafka Streams 4.3 puts before every repartition of a
            stream, `repartition()` too; None where there is none (repartitions of tables).
        null_keys: that filter lets them pass, as a left join which comes later has results for them.
        partitions: as asked for, or None: as many as upstream has.
        implicit: made by an aggregation whose key may have changed. Spark can shuffle instead, so such a
            one needs no topic; one the user asked for has its topic.
        partitioner: chooses each record's partition; where it is NULL, and without one, the key does.
    """

    topic: str = ""
    sink_name: str = ""
    filter_name: str | None = None
    key_serde: Any = None
    value_serde: Any = None
    partitions: int | None = None
    implicit: bool = True
    null_keys: bool = False
    partitioner: Function | None = None


@dataclass(frozen=True, eq=False)
class SparkTopic(Repartition):
    """The topic between a stream and the query of the user's that writes it somewhere else.

    A record keeps its key, also a null one: nothing comes after it that needs equal keys together.
    """


@dataclass(frozen=True, eq=False)
class SparkSink(Node):
    """The records of a SparkTopic, as a streaming DataFrame, to where a function's writer writes them.

    Attributes:
        function: gets the DataFrame, and returns a DataStreamWriter that is not started.
        table: start it with `toTable` of this name; None: with `start`.
    """

    function: Function = field(default=lambda: None)
    table: str | None = None


@dataclass(frozen=True, eq=False)
class Sink(Node):
    """Write to a topic, or to the topic that a function's Column names for each record."""

    topic: str | None = None
    topic_function: Function | None = None
    key_serde: Any = None
    value_serde: Any = None
    partitioner: Function | None = None


class Aggregation:
    """What an `Aggregate` computes: one of the three classes below."""


@dataclass(frozen=True, slots=True)
class Count(Aggregation):
    """How many records with a key and a value."""


@dataclass(frozen=True, slots=True)
class ColumnAggregation(Aggregation):
    """Spark aggregate expressions: `lambda key, value: F.sum(value.amount)`, or a dict of several."""

    expression: Function


@dataclass(frozen=True, slots=True)
class Fold(Aggregation):
    """Python functions, called record by record in the order in which a task of Kafka Streams has them.

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

    Of an update the subtractor is called for the old value, then the adder for the new one.
    """

    adder: Function
    subtractor: Function
    initializer: Function | None = None


@dataclass(frozen=True, eq=False)
class Aggregate(Node):
    """One value per key, or per key and window. Records with a null key or a null value are skipped.

    With `on_close`, what comes after it gets the last value of each window, when that has closed. The store
    gets every value. With `of_table` it is of a grouped table: a row that goes away or changes is taken back
    before the new one counts.
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

    Each parent has its adder, in the same order; a parent that is in it twice is there twice. They are Python
    functions, as those of a Fold, which share the aggregate. Its name is that of the step which merges the
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
    """A stream read as a table: the last record of a key is its value, a null value a deletion."""

    stored: Store | None = None

    @property
    def store(self) -> Store | None:
        return self.stored


@dataclass(frozen=True, eq=False)
class TableFilter(Node):
    """Keep the rows whose predicate is true; the others become deletions."""

    predicate: Function = field(default=lambda: None)
    negate: bool = False
    stored: Store | None = None

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
    """Hold a table's updates back, and let the last one of each key go on when its time has come.

    Attributes:
        stored: what is held back.
        until_close: the time is that of a window's end, else that of the first update which is held back;
            with it, deletions do not go on.
        delay_ms: how far stream time has to be beyond it.
        record_limit, byte_limit: of what one task may hold back; None: there is no limit.
        stops_when_full: whether beyond a limit the query ends; else the oldest update goes on.
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
    """Which records a join has results for: those with a match, all of the left side, all of both sides."""

    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"


@dataclass(frozen=True, eq=False)
class StreamTableJoin(Node):
    """Each record of a stream, with the row that the table has for its key at that moment.

    The parents are the stream and the table. `joiner` takes the left value and the right one, or before them
    the key. With `grace_ms` records wait in `stored` until stream time is so far beyond them, and find the
    table, which is versioned, as it was at their time.
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
    """Each record of a stream, with the row of a global table that it names.

    The parents are the stream and the global table. `selector` gives the global table's key, of the record's
    key and value; `joiner` takes the left value and the right one, or before them the record's key.
    """

    selector: Function = field(default=lambda: None)
    joiner: Function = field(default=lambda: None)
    type: JoinType = JoinType.INNER


@dataclass(frozen=True, eq=False)
class StreamJoin(Node):
    """Pairs of records of two streams with one key, whose times are near each other.

    The parents are the left and the right stream; one, if a stream is joined with itself. Its name is that of
    the step which merges the results. `names` are those of Kafka Streams' other steps: the left and the right
    window, the left and the right join. `this_stored` and `other_stored` have the records of the left and the
    right side, and `outer_stored`, of a left or an outer join, those that wait for a match.
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
    """The rows of two tables with one key.

    The parents are the left and the right table; one, if a table is joined with itself. Its name is that of
    the step which merges the results. `names` are those of Kafka Streams' two steps before it, the left one
    and the right one.
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
    """The rows of the left table of a join by a foreign key, told to where the rows are that they refer to.

    The first of the four nodes of such a join. Behind it is the Repartition by the foreign key, which
    `extractor` gives of a row's key and value.
    """

    extractor: Function = field(default=lambda: None)
    type: JoinType = JoinType.INNER


@dataclass(frozen=True, eq=False)
class ForeignKeyLookup(Node):
    """What was told, and is kept in `stored`, each time with the right table's row of that key.

    The parents are the Repartition and the right table. `names` is that of Kafka Streams' step before it.
    """

    names: tuple[str, ...] = ()
    stored: Store = field(default_factory=lambda: Store(""))

    @property
    def stores(self) -> tuple[Store, ...]:
        return (self.stored,)


@dataclass(frozen=True, eq=False)
class ForeignKeyChanges(Node):
    """The right table's changes, one for each row that refers to it: it finds those in the lookup's store.

    Behind it and the lookup is the Repartition back to the left table's keys.
    """

    subscriptions: Store = field(default_factory=lambda: Store(""))


@dataclass(frozen=True, eq=False)
class ForeignKeyJoin(Node):
    """The rows of the left table with those of the right one that they refer to.

    The parents are the Repartition back and the left table, whose row has to be the one that asked. `names`
    is that of Kafka Streams' step before it.
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
    """A table's rows under other keys, for an aggregation: `mapper` gives a new key and a new value of a row.

    Each update becomes one or two: what the old value gave goes away, and what the new one gives comes.
    """

    mapper: Function = field(default=lambda: None)


@dataclass(frozen=True, eq=False)
class ToStream(Node):
    """A table's updates as a stream."""


@dataclass(frozen=True, eq=False)
class Print(Node):
    """Print the records of a stream, a line each, with a label; nothing comes after it.

    `mapper` is a Python function of key and value to text, or None; `path` a file, or None for stdout.
    """

    label: str = ""
    mapper: Function | None = None
    path: str | None = None


@dataclass(frozen=True, eq=False)
class Process(Node):
    """Records one by one through a processor of the user's, in Python, which may keep stores.

    Attributes:
        supplier: makes a processor (millstream/processors/api.py).
        fixed_key: it forwards values under the keys that came in.
        connected: its stores. Another node may have the same one, equal and under the same name.
        key_serde, value_serde: of what it forwards to steps that are no processors; None: those of what comes
            in. A sink with serdes of its own uses its own.
    """

    supplier: Any = None
    fixed_key: bool = False
    connected: tuple[Store, ...] = ()
    key_serde: Any = None
    value_serde: Any = None

    @property
    def stores(self) -> tuple[Store, ...]:
        return self.connected


@dataclass(frozen=True, eq=False)
class TableTransformValues(Process):
    """A table's rows with the values that a transformer of the user's gives, in Python; it may keep stores.

    `supplier` makes transformers (`ValueTransformerWithKey`). They are asked for deletions as well. `stored`
    has the table's rows, if it is given a name.
    """

    stored: Store | None = None

    @property
    def store(self) -> Store | None:
        return self.stored

    @property
    def stores(self) -> tuple[Store, ...]:
        return self.connected if self.stored is None else (*self.connected, self.stored)
