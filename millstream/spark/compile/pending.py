"""What waits for its operator: an aggregation, a table or a part of a join, with its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millstream.errors import TopologyException
from millstream.physical.kernel_cores import core_of
from millstream.physical.kernel_joins import Lookup, Side, takes_null_keys
from millstream.serdes.serde import Serde
from millstream.spark.compile.flow import TIMESTAMP, Flow, Lane
from millstream.spark.compile.trace import as_column, trace
from millstream.topology.functions import describe_function
from millstream.topology.nodes import (
    Aggregate,
    ColumnAggregation,
    Count,
    Fold,
    Function,
    Node,
    StreamTableJoin,
    Suppress,
    TableFold,
    TableSource,
    ToTable,
)
from millstream.topology.windows import SlidingWindows, Windows, windowed_serde

__all__ = [
    "FlowLanes",
    "Pending",
    "column_of",
    "fold_of",
    "windowed_key",
]

FlowLanes = tuple[Flow, dict[Node, Lane]]


@dataclass(frozen=True)
class Pending:
    """An item of an operator whose input is built."""

    node: Node
    flow: Flow
    lane: Lane
    group_key_serde: Serde | None = None
    """For a windowed aggregation, the serde of the keys without their windows."""
    remembers: bool = False
    """Whether its updates carry the old value."""
    history_ms: int | None = None
    """For a table whose updates say whether they are late: how long its versions are kept."""

    @property
    def is_fold(self) -> bool:
        return isinstance(self.node, Aggregate) and isinstance(self.node.aggregation, Fold | TableFold)

    @property
    def is_of_table(self) -> bool:
        return isinstance(self.node, Aggregate) and self.node.of_table

    @property
    def belongs(self) -> Column:
        """Which rows count. A null key counts only on the outer side of a join. A null value counts in a
        table, as a deletion, and in time windows and sessions, as in Kafka Streams."""
        here = self.flow.belongs_to(self.lane)
        if not takes_null_keys(self.node):
            here &= F.col(self.lane.key).isNotNull()
        is_side = isinstance(self.node, Side) and self.node.is_of_table
        if isinstance(self.node, TableSource | ToTable | Suppress) or is_side:
            return here
        if isinstance(self.node, Side | Lookup):
            return here & F.col(self.lane.value).isNotNull()
        if self.is_of_table:
            assert self.lane.old is not None
            return here & (F.col(self.lane.value).isNotNull() | F.col(self.lane.old).isNotNull())
        if self.windows is None or isinstance(self.windows, SlidingWindows):
            here &= F.col(self.lane.value).isNotNull()
        return here if self.windows is None else here & (F.unix_millis(F.col(TIMESTAMP)) >= 0)

    @property
    def core(self) -> tuple[str, dict[str, int]]:
        """The kernel's core for it, and its settings."""
        return core_of(
            self.node,
            remembers=self.remembers,
            history_ms=self.history_ms,
            is_windowed=self.group_key_serde is not None,
        )

    @property
    def counts_skipped(self) -> bool:
        """Whether the rows of its lane that do not belong to it are counted as dropped.

        Source: the processors of Kafka Streams that use droppedRecordsSensor.
        """
        if isinstance(self.node, Side):
            return not self.node.is_of_table
        return isinstance(self.node, TableSource | ToTable | Aggregate | StreamTableJoin) and (
            not self.is_of_table
        )

    @property
    def windows(self) -> Windows | None:
        """Its windows, if it has any."""
        return self.node.windows if isinstance(self.node, Aggregate) else None

    @property
    def key_serde(self) -> Serde | None:
        """The serde of its results' keys, if it is known."""
        return (
            self.lane.key_serde if self.group_key_serde is None else self.windowed_serde(self.group_key_serde)
        )

    def windowed_serde(self, key_serde: Serde) -> Serde:
        """The serde of its results' keys, derived from the serde of the group's keys."""
        return windowed_serde(self.windows, key_serde)


def windowed_key(key: Column, start_ms: Column, end_ms: Column) -> Column:
    """A windowed key, as the user's functions see it."""
    window = F.struct(F.timestamp_millis(start_ms).alias("start"), F.timestamp_millis(end_ms).alias("end"))
    return F.struct(key.alias("key"), window.alias("window"))


def column_of(item: Pending, key: str, value: str) -> tuple[Column, Function | None]:
    """The aggregate expression of one aggregation over its own key and value columns, and its function.

    Raises:
        TopologyException: it does not aggregate.
    """
    node = item.node
    assert isinstance(node, Aggregate)
    if isinstance(node.aggregation, Count):
        return F.count(F.lit(1)), None
    assert isinstance(node.aggregation, ColumnAggregation)
    function = node.aggregation.expression
    result = as_column(trace(node, function, F.col(key), F.col(value), item.flow.record))
    if not _aggregates(
        item.flow.df.withColumns({key: F.col(item.lane.key), value: F.col(item.lane.value)}), key, result
    ):
        raise TopologyException(
            f"{node.name} ({describe_function(function)}): an aggregation has to use Spark's "
            "aggregate functions,\n"
            "  lambda key, value: value.amount           # one record's amount: not an aggregate\n"
            "  lambda key, value: F.sum(value.amount)    # should be this\n"
            "A Python fold takes two functions: aggregate(lambda: 0, lambda key, value, total: ...)."
        )
    return result, function


def _aggregates(df: DataFrame, key: str, result: Column) -> bool:
    """Whether a Column is allowed in an aggregation by a key: the key is, another plain column is not."""
    named = result.alias("x")
    if _groups(lambda: df.agg(named)):
        return True
    # Spark allows no aggregate function in a condition, so an expression that works as one contains none.
    return _groups(lambda: df.groupBy(key).agg(named)) and not _analyses(lambda: df.where(named.isNotNull()))


def _groups(make: Callable[[], DataFrame]) -> bool:
    from pyspark.errors import AnalysisException

    try:
        make().schema  # noqa: B018  (analysis is the point)
    except AnalysisException as error:
        if error.getCondition() in ("MISSING_GROUP_BY", "MISSING_AGGREGATION"):
            return False
        raise
    return True


def _analyses(make: Callable[[], DataFrame]) -> bool:
    from pyspark.errors import AnalysisException

    try:
        make().schema  # noqa: B018  (analysis is the point)
    except AnalysisException:
        return False
    return True


def fold_of(node: Node) -> Fold | TableFold:
    assert isinstance(node, Aggregate)
    assert isinstance(node.aggregation, Fold | TableFold)
    return node.aggregation
