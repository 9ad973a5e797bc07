"""Lanes: how the branches of a topology share one DataFrame, so that its source is read once.

A *flow* is one DataFrame under construction. A *lane* is one stream of the topology in it: the names of its
key and value columns, and of a flag for the rows that belong to it. A filter only narrows the lane's flag
while other lanes share the rows, a map adds columns, and a branch is another lane over the same rows. In the
end, each lane that is written to a topic becomes one element of an array per row, and the array is exploded
(sink.py). So a topology with ten branches still reads its source once.

A flow also has columns with the origin of each row, under the fixed names below.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.serdes.serde import Serde
from millstream.spark.run.dropped import METRICS, metric
from millstream.topology.columns import RecordContext
from millstream.topology.nodes import Node
from millstream.topology.pipeline import Scan

__all__ = ["CONTEXT", "HEADERS_TYPE", "RAW_KEY", "RAW_VALUE", "DroppedRows", "Flow", "Lane", "Names"]

TOPIC, PARTITION, OFFSET, TIMESTAMP, HEADERS = "_topic", "_partition", "_offset", "_timestamp", "_headers"
HEADERS_TYPE = T.ArrayType(
    T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])
)
CONTEXT: dict[str, T.DataType] = {
    TOPIC: T.StringType(),
    PARTITION: T.IntegerType(),
    OFFSET: T.LongType(),
    TIMESTAMP: T.TimestampType(),
    HEADERS: HEADERS_TYPE,
}
"""The columns of every flow, in addition to those of its lanes."""
RAW_KEY, RAW_VALUE = "_key", "_value"
"""Key and value as they were read; only present if a dead letter may need them."""


class Names:
    """Column names that are unique across flows, so that flows can be united without renaming."""

    def __init__(self) -> None:
        self._next = count()

    def new(self, kind: str) -> str:
        return f"{kind}{next(self._next)}"


@dataclass(frozen=True, slots=True)
class Lane:
    """One stream in a flow.

    Attributes:
        key, value: the names of its columns.
        keep: the name of the boolean column that is true for its rows; None means that every row belongs to
            the lane.
        key_serde, value_serde: the serdes that the columns were read or declared with; None if they have
            changed since.
        old: for a table, the name of the column with the value before an update; None if it is unknown.
        since: for a table without a store, the name of the column with the time of the rows that it is
            computed from, in ms; None: it is the time of the update.
        past: for a table with a history, the name of a boolean column: true if the row has a later version.
        routes: the branches that lead to it. Two lanes of different branches share no row.
        written: the names of the columns with key and value in bytes, as the next sink writes them.
    """

    key: str
    value: str
    keep: str | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    old: str | None = None
    since: str | None = None
    past: str | None = None
    routes: tuple[tuple[Node, int], ...] = ()
    written: tuple[str, str] | None = None

    def disjoint(self, other: Lane) -> bool:
        """Whether no row can belong to both."""
        mine = dict(self.routes)
        return any(mine.get(node, index) != index for node, index in other.routes)


@dataclass(frozen=True, slots=True)
class DroppedRows:
    """Dropped rows that have not been counted yet: a handler skipped them, or they were late.

    Attributes:
        flag: the name of the boolean column that is true for them.
        number, kind, node: what they are counted as (dropped.metric).
        late: for late rows, the name of a column with the fields of a dropped.LateRecord, as an array.
    """

    flag: str
    number: int
    kind: str
    node: str
    late: str | None = None


@dataclass
class Flow:
    """One DataFrame while it is being built, and the lanes in it."""

    df: DataFrame
    names: Names
    lanes: dict[Node, Lane] = field(default_factory=dict)
    pinned: set[Node] = field(default_factory=set)
    """Lanes that the sink still needs after everything else is built."""
    uncounted: list[DroppedRows] = field(default_factory=list)
    """Dropped rows to count. `count_dropped` counts them before rows are removed or repeated."""
    scans: tuple[Scan, ...] = ()
    """The sources of its rows, in the order in which Spark finds them."""

    # --- reading ---------------------------------------------------------------------------------------

    def belongs_to(self, lane: Lane) -> Column:
        """Whether a row belongs to the lane."""
        return F.lit(True) if lane.keep is None else F.col(lane.keep)

    def type_of(self, column: str) -> T.DataType:
        return self.df.schema[column].dataType

    @property
    def record(self) -> RecordContext:
        return RecordContext(F.col(TOPIC), F.col(PARTITION), F.col(OFFSET), F.col(TIMESTAMP), F.col(HEADERS))

    def own(self, lane: Lane, column: Column) -> Column:
        """`column`, computed only for the lane's rows, because it could raise on a row of another lane."""
        return column if lane.keep is None else F.when(F.col(lane.keep), column)

    # --- building --------------------------------------------------------------------------------------

    def with_column(self, kind: str, column: Column) -> str:
        """Add a column, and return its new name."""
        name = self.names.new(kind)
        self.df = self.df.withColumn(name, column)
        return name

    def count_dropped(self) -> None:
        """Make Spark count the rows dropped so far; its progress reports have the counts per micro-batch."""
        if not self.uncounted:
            return
        counts = []
        for failure in self.uncounted:
            flag = F.col(failure.flag)
            place = F.when(flag, F.concat(F.col(TOPIC), F.lit("-"), F.col(PARTITION).cast("string")))
            name = (failure.number, failure.kind, failure.node)
            counts += [F.count_if(flag).alias(metric(*name))]
            if failure.late is None:
                counts += [F.collect_set(place).alias(metric(*name, where=True))]
            else:
                counts += [F.max(failure.late).alias(metric(*name, latest=True))]
        self.uncounted.clear()
        self.df = self.df.observe(self.names.new(METRICS), *counts)

    def narrow(self, lane: Lane, condition: Column, *, alone: bool) -> Lane:
        """The lane's rows for which `condition` is true. NULL is not true.

        `alone`: no other lane needs the dropped rows, so they are removed now. The lane has a flag even so:
        Spark moves later filters in front of this one if it can, but not an expression that depends on the
        flag (`own`).
        """
        # Not `keep & condition`: Spark evaluates the cheaper side of a conjunction first, and moves it down.
        keep = self.with_column("f", F.coalesce(self.own(lane, condition), F.lit(False)))
        if alone:
            self.count_dropped()
            self.df = self.df.where(F.col(keep))
        return replace(lane, keep=keep)

    def explode(self, lane: Lane, array: Column, *, alone: bool) -> tuple[Lane, str]:
        """Make one row of each element of `array`; returns the lane and the name of the element's column.

        Rows of other lanes must not be repeated: they get the row of an extra first element, which does not
        belong to this lane.
        """
        self.count_dropped()
        element = self.names.new("e")
        if alone:
            df = self.df if lane.keep is None else self.df.where(F.col(lane.keep))
            self.df = df.select("*", F.explode(self.own(lane, array)).alias(element))
            return lane, element
        position = self.names.new("n")
        items = self.with_column("a", self.own(lane, array))
        type_ = self.type_of(items)
        mine = F.coalesce(F.col(items), F.array().cast(type_))
        first = F.array(F.lit(None).cast(type_.elementType))  # type: ignore[attr-defined]
        self.df = self.df.select("*", F.posexplode(F.concat(first, mine)).alias(position, element)).drop(
            items
        )
        self._on_first_only(position)
        return replace(lane, keep=self.with_column("f", F.col(position) > 0)), element

    def fan_out(self, lanes: list[Lane]) -> str:
        """Repeat each row for each of these lanes; returns the name of the column with the lane's index.

        Other lanes have only the row of index 0.
        """
        self.count_dropped()
        index = self.names.new("n")
        self.df = self.df.select("*", F.explode(self._copies(len(lanes))).alias(index))
        self._on_first_only(index)
        return index

    def _copies(self, count: int) -> Column:
        """The numbers of the copies that there will be of a row."""
        return F.array(*(F.lit(i) for i in range(count)))

    def _on_first_only(self, position: str) -> None:
        for node, lane in list(self.lanes.items()):
            self.lanes[node] = replace(
                lane, keep=self.with_column("f", self.belongs_to(lane) & (F.col(position) == 0))
            )

    def united(self, other: Flow) -> Flow:
        """The rows of both flows, with the lanes of both."""
        for flow in (self, other):
            flow.count_dropped()
            for node, lane in list(flow.lanes.items()):
                if lane.keep is None:  # so far all rows are its own; those of the other flow are not
                    flow.lanes[node] = replace(lane, keep=flow.with_column("f", F.lit(True)))
        df = self.df.unionByName(other.df, allowMissingColumns=True)
        flow = Flow(df, self.names, {**self.lanes, **other.lanes}, self.pinned | other.pinned)
        flow.scans = self.scans + other.scans
        for node, lane in list(flow.lanes.items()):
            assert lane.keep is not None
            flow.lanes[node] = replace(
                lane, keep=flow.with_column("f", F.coalesce(F.col(lane.keep), F.lit(False)))
            )
        return flow
