"""Lanes: how the branches of a subtopology share one DataFrame, with the records of all its topics.

The *flow* is one DataFrame under construction. A *lane* is one stream of the topology in it: the names of its
key and value columns, and of a flag for the rows that belong to it. A filter only narrows the lane's flag
while other lanes share the rows, a map adds columns, and a branch is another lane over the same rows. In the
end, each lane that is written to a topic becomes one column. So a topology with ten branches still reads its
source once.

A flow also has columns with the origin of each row, under the fixed names below.

Spark analyzes a plan from its root with each column that is added, so columns are gathered first: those that
need no other new one are added together, then those that need only these.

Some of its rows are no records but controls, with which a task commits: they pass every step, and belong to
no lane. So each lane has a flag, and no step removes a row without looking at `control`. Rows of records that
were dropped stay as well, up to the sink, which counts them. Other rows were processed earlier, and come
again to fill the stores that follow from tables: they belong to lanes of tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from itertools import count

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.serdes.serde import Serde
from millstream.spark.compile import outlines
from millstream.topology.columns import RecordContext
from millstream.topology.nodes import Node

__all__ = [
    "CONTEXT",
    "CONTROL",
    "HEADERS_TYPE",
    "RAW_KEY",
    "RAW_VALUE",
    "DroppedRows",
    "Flow",
    "Lane",
    "Names",
]

CONTROL = "control"
"""The column that is 0 in rows that are new records."""
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
"""Key and value as they were read; behind an operator only present if something there needs them."""


class Names:
    """Column names that are unique."""

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
        routes: the branches that lead to it, by their `split`; and by None, the inputs. Two lanes of
            different branches, or inputs, share no row.
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
    routes: tuple[tuple[Node | None, frozenset[int]], ...] = ()
    written: tuple[str, str] | None = None

    def disjoint(self, other: Lane) -> bool:
        """Whether no row can belong to both."""
        mine = dict(self.routes)
        return any(mine.get(node, taken).isdisjoint(taken) for node, taken in other.routes)


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


class Flow:
    """One DataFrame while it is being built, and the lanes in it.

    Attributes:
        names: of its columns.
        lanes: by the nodes whose rows they are.
        pinned: lanes that the sink still needs after everything else is built.
        uncounted: dropped rows, which the sink counts.
        unopened: how many inputs have no lane yet: their rows stay, too.
        outline: a frame with its columns and no plan, to ask what they are.
    """

    _df: DataFrame
    _gathered: list[dict[str, Column]]
    """The columns that are not in the frame yet; each of them needs only those of the dicts before it."""
    _guards: list[Column]
    _depths: dict[str, int]
    """Where the gathered columns are."""

    def __init__(self, df: DataFrame, names: Names, unopened: int = 0) -> None:
        self.df = df
        self.names = names
        self.lanes: dict[Node, Lane] = {}
        self.pinned: set[Node] = set()
        self.uncounted: list[DroppedRows] = []
        self.unopened = unopened

    @property
    def df(self) -> DataFrame:
        """The rows with all columns so far."""
        for columns in self._gathered:
            self._df = self._df.withColumns(columns)
        if self._guards:
            self._df = self._df.where(reduce(Column.__and__, self._guards))
        self._gathered, self._guards, self._depths = [], [], {}
        return self._df

    @df.setter
    def df(self, df: DataFrame) -> None:
        self._df, self.outline = df, outlines.outlined(df)
        self._gathered, self._guards, self._depths = [], [], {}

    @property
    def needs_records(self) -> bool:
        """Whether the rows of records are needed behind an operator; otherwise only controls are."""
        return bool(self.lanes or self.unopened or self.uncounted)

    # --- reading ---------------------------------------------------------------------------------------

    def belongs_to(self, lane: Lane) -> Column:
        """Whether a row belongs to the lane."""
        return F.lit(True) if lane.keep is None else F.col(lane.keep)

    def type_of(self, column: str) -> T.DataType:
        return outlines.type_of(self.outline, column)

    def type_for(self, column: Column) -> T.DataType:
        """The type that a column would have."""
        return self.outline.select(column.alias("c")).schema[0].dataType

    def has(self, name: str) -> bool:
        return name in self.outline.columns

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
        self.outline, column, needed = outlines.add(self.outline, name, column, CONTROL)
        depth = max((self._depths[each] + 1 for each in needed if each in self._depths), default=0)
        if depth == len(self._gathered):
            self._gathered.append({})
        self._gathered[depth][name] = column
        self._depths[name] = depth
        return name

    def guard(self, condition: Column) -> None:
        """Evaluate a condition that is true for each row, or raises."""
        self._guards.append(condition)

    def narrow(self, lane: Lane, condition: Column, *, alone: bool) -> Lane:
        """The lane's rows for which `condition` is true. NULL is not true.

        `alone`: no other lane needs the dropped rows, so they are removed now, unless an input is unopened.
        The lane has a flag even so: Spark moves later filters in front of this one if it can, but not an
        expression that depends on the flag (`own`).
        """
        # Not `keep & condition`: Spark evaluates the cheaper side of a conjunction first, and moves it down.
        keep = self.with_column("f", F.coalesce(self.own(lane, condition), F.lit(False)))
        if alone and not self.unopened:
            self._keep(F.col(keep))
        return replace(lane, keep=keep)

    def _keep(self, condition: Column) -> None:
        for each in self.uncounted:
            condition |= F.col(each.flag)
        self.df = self.df.where(condition | (F.col(CONTROL) != 0))

    def explode(self, lane: Lane, array: Column) -> tuple[Lane, str]:
        """Make one row of each element of `array`; returns the lane and the name of the element's column.

        Controls and rows of other lanes must not be repeated: they get the row of an extra first element,
        which does not belong to this lane.
        """
        element, position = self.names.new("e"), self.names.new("n")
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
        index = self.names.new("n")
        copies = F.array(*(F.lit(i) for i in range(len(lanes))))
        copies = F.when(F.col(CONTROL) != 0, F.array(F.lit(0))).otherwise(copies)
        self.df = self.df.select("*", F.explode(copies).alias(index))
        self._on_first_only(index)
        return index

    def _on_first_only(self, position: str) -> None:
        first = F.col(position) == 0
        for node, lane in list(self.lanes.items()):
            self.lanes[node] = replace(lane, keep=self.with_column("f", self.belongs_to(lane) & first))
        self.uncounted[:] = [
            replace(each, flag=self.with_column("d", F.col(each.flag) & first)) for each in self.uncounted
        ]
