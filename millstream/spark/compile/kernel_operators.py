"""The kernel's operators: aggregations and joins that process records one by one, like Kafka Streams' tasks.

All that waits in a flow is one operator. Before it, Spark computes what each record contributes: the *parts*
of the aggregate functions (mergeable.py). In it, the kernel merges parts by key and window
(`io.millstream.kernel.task`). After it, Spark computes the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.kernel import constants
from millstream.physical.kernel_cores import limits_of
from millstream.physical.kernel_joins import ForeignKey, Join, Lookup, OfSides, Side
from millstream.serdes.serde import Serde
from millstream.spark.compile import serde_columns
from millstream.spark.compile.flow import TIMESTAMP, Flow, Lane, Names
from millstream.spark.compile.grouped_tables import change, retractable
from millstream.spark.compile.mergeable import Mergeable, NotMergeableError, Part, take_apart
from millstream.spark.compile.pending import (
    FlowLanes,
    Pending,
    column_of,
    fold_of,
    windowed_key,
)
from millstream.spark.compile.trace import translated
from millstream.spark.jvm.java_names import kernel_column
from millstream.spark.worker.folding import Folding, FoldSerdes
from millstream.spark.worker.programs import python_program
from millstream.topology.functions import describe_function
from millstream.topology.nodes import (
    Aggregate,
    Node,
    Suppress,
    TableSource,
    ToTable,
)

__all__ = [
    "Item",
    "JoinColumns",
    "LateRows",
    "Results",
    "described",
    "holding",
    "item_of",
    "join_columns",
    "key_bytes",
    "packed",
    "program_of",
    "put_lanes",
    "since_column",
    "unpacked",
    "with_own",
]


@dataclass(frozen=True)
class Item:
    """One aggregation, table or join of the operator.

    Attributes:
        key, value: the names of its columns, which are NULL in the rows of other items.
        old: for a grouped table, the name of the column with the value to subtract.
        key_serde: the serde of its keys, without their windows.
        parts: the parts that it merges.
        at_once: emit every change, not only the last one up to a commit.
        core: how the kernel processes the records.
        settings: its numeric settings.
        links: the items it refers to, by their roles: `left`, `right` or `table`.
        has_rows: whether it receives records itself; otherwise, only the items it refers to do.
        carried: the columns of a record that a lookup passes on.
        using: the serdes of a Python fold.
        window: for a suppress of windowed results, the names of the columns with a window's start and end.
        held_back: the suppress nodes that directly follow it, in the same operator.
    """

    pending: Pending
    key: str
    value: str
    key_serde: Serde
    parts: Mergeable
    at_once: bool
    core: str = "whole"
    settings: Mapping[str, int] = field(default_factory=dict)
    links: Mapping[str, Node] = field(default_factory=dict)
    has_rows: bool = True
    old: str | None = None
    carried: tuple[str, ...] = ()
    window: tuple[str, str] | None = None
    using: FoldSerdes | None = None
    held_back: tuple[Suppress, ...] = ()

    @property
    def has_state(self) -> bool:
        """Whether it has state (Plan.Item.isKept)."""
        return self.core not in ("lookup", "table_join", "changes")

    @property
    def is_windowed(self) -> bool:
        return self.window is not None or self.pending.windows is not None

    @property
    def emits_on_close(self) -> bool:
        """Whether only rows of the kinds KIND_CLOSED and KIND_CLOSED_GONE are emitted downstream."""
        node = self.pending.node
        return isinstance(node, Suppress) or (isinstance(node, Aggregate) and node.on_close)


@dataclass(frozen=True)
class LateRows:
    """Rows for records that came too late. They are counted and then dropped."""

    item: Item
    flag: str
    what: str
    """The column with the details to report: the fields of a dropped.LateRecord."""


@dataclass(frozen=True)
class JoinColumns:
    """The results of a join: the names of the columns with its keys and with both values.

    Attributes:
        key_serde: the serde by which keys were compared.
        flag: name of the column that is true for its rows.
        side: for tables, name of the column that is 0 if the left one changed, 1 if the right one did.
        old_left, old_right: for tables, the old values.
        since: for tables, name of the column with the time of the rows joined, in ms.
        table_serde: for foreign keys, the serde that the table's values came with.
    """

    key: str
    key_serde: Serde
    flag: str
    left: str
    right: str
    side: str = ""
    old_left: str | None = None
    old_right: str | None = None
    since: str | None = None
    table_serde: Serde | None = None


@dataclass(frozen=True)
class Results:
    """The output of an operator.

    Attributes:
        outputs: the output lanes.
        stored: the lanes that are written to stores, where they differ from the output lanes.
        late: the rows to drop.
        joined: the results of joins.
    """

    outputs: FlowLanes
    stored: dict[Node, Lane] = field(default_factory=dict)
    late: list[LateRows] = field(default_factory=list)
    joined: dict[Join, JoinColumns] = field(default_factory=dict)


def item_of(
    pending: Pending,
    df: DataFrame,
    names: Names,
    key_serde: Serde,
    *,
    at_once: bool,
    using: FoldSerdes | None = None,
    carried: Sequence[str] = (),
) -> Item:
    """The item for an aggregation, table or join.

    Args:
        df: the DataFrame of its flow.
        using: the serdes of a Python fold.

    Raises:
        NotMergeableError: it uses a function whose partial results cannot be merged.
    """
    key, value = names.new("k"), names.new("v")
    core, settings = pending.core
    item = Item(pending, key, value, key_serde, Mergeable(), at_once, core=core, settings=settings)
    node = pending.node
    if isinstance(node, OfSides):
        return replace(item, has_rows=False)
    if isinstance(node, TableSource | ToTable | Side | Lookup | ForeignKey):
        type_ = pending.flow.type_of(pending.lane.value)
        row = Part(names.new("l"), F.col(value), type_, "last")
        if isinstance(node, Side | Lookup) and isinstance(type_, T.StringType):
            # Nothing reads it on the way, so it need not become a Java string and then UTF-8 again.
            row = Part(row.name, row.column.cast("binary"), T.BinaryType(), "last")
        more = [Part(names.new("l"), F.col(name), pending.flow.type_of(name), "last") for name in carried]
        opaque = Mergeable([row, *more], F.col(row.name), type_)
        at_once |= pending.history_ms is not None or not isinstance(node, ToTable)
        return replace(item, parts=opaque, at_once=at_once, carried=tuple(carried))
    if isinstance(node, Suppress):
        last = names.new("l")
        held = [Part(last, F.col(value), pending.flow.type_of(pending.lane.value), "last")]
        window = None
        if pending.group_key_serde is not None:
            window = names.new("w"), names.new("w")
            held = [*(Part(name, F.col(name), T.LongType(), "last") for name in window), *held]
        merged = Mergeable(held, F.col(last))
        return replace(item, parts=merged, window=window, at_once=False)
    if pending.is_of_table:
        item = replace(item, old=names.new("v"))
    if using is not None:
        return replace(item, parts=_folded(item, using, names), using=using)
    column, function = column_of(pending, key, value)

    def cut() -> Mergeable | NotMergeableError:
        try:
            return take_apart(with_own(df, [item]), column, [key], names)
        except NotMergeableError as error:
            return error  # not a mistake in the user's function

    parts: Mergeable | NotMergeableError = translated(node, function, cut)
    if isinstance(parts, NotMergeableError):
        raise parts
    if item.old is not None:
        assert isinstance(node, Aggregate)
        retractable(node, parts.parts)
    return replace(item, parts=parts)


def _folded(item: Item, using: FoldSerdes, names: Names) -> Mergeable:
    """The part of a Python fold: its input is a record's value in bytes, its result an aggregate in bytes.

    Functions get the same values as interactive queries return: decoded by the serdes' Python codecs.
    """
    pending = item.pending
    name, node = names.new("p"), pending.node
    read = pending.flow.type_of(pending.lane.value)

    def written(column: str) -> Column:
        return serde_columns.to_bytes(using.value, F.col(column), read, f"{node.name}: the value")

    content = written(item.value)
    if item.old is not None:
        content = change(content, written(item.old))
    where = F.lit(f"{node.name}: result of {describe_function(fold_of(node).adder)}")
    return Mergeable(
        [Part(name, content, T.BinaryType(), "fold")],
        serde_columns.from_bytes(using.aggregate, F.col(name), where),
        T.BinaryType(),
    )


def put_lanes(
    item: Item,
    number: int,
    behind: Mapping[int, Suppress],
    results: Results,
    called: Mapping[str, str],
    *,
    has_kinds: bool,
) -> None:
    """Add the lanes of an aggregation, of the suppress nodes `behind` it, and of its store."""
    new, lanes = results.outputs
    tag, kind, start, end = (F.col(called[name]) for name in ("tag", "kind", "start", "end"))
    mine = tag.isin([number, *behind])
    plain_key = item.key
    if item.is_windowed:
        bounds = F.when(mine, start), F.when(mine, end)  # others may be no times
        plain_key = new.with_column("k", windowed_key(F.col(item.key), *bounds))
    if item.pending.windows is not None:
        flag = new.with_column("d", mine & (kind == constants.KIND_LATE))
        what = F.array(F.col(called["time"]), start, end, F.unix_millis(F.col(TIMESTAMP)))
        results.late.append(LateRows(item, flag, new.with_column("a", F.when(F.col(flag), what))))
    value = new.with_column(
        "v", F.when(mine & kind.isin(constants.KIND_UPDATE, constants.KIND_CLOSED), item.parts.result)
    )
    is_table = isinstance(item.pending.node, TableSource | ToTable | Suppress)
    value_serde = item.pending.lane.value_serde if is_table else None
    if item.using is not None:
        value_serde = item.using.aggregate
    key_serde = item.key_serde
    if item.pending.windows is not None:
        key_serde = item.pending.windowed_serde(key_serde)
    elif item.window is not None:
        assert item.pending.lane.key_serde is not None
        key_serde = item.pending.lane.key_serde
    # What a window had before it closed is not told.
    old = _old_value(item, new, mine & (kind <= constants.KIND_GONE)) if item.pending.remembers else None
    lane = Lane(plain_key, value, None, key_serde, value_serde, old)
    if item.core == "versions":
        lane = replace(lane, past=new.with_column("f", mine & F.col(called["time"]).isNotNull()))
    for own, node in ((number, item.pending.node), *behind.items()):
        # For a suppress node, the value that was emitted last is not known.
        updates = lane if own == number else replace(lane, old=None)
        if has_kinds:
            updates = replace(
                updates, keep=new.with_column("f", (tag == own) & (kind <= constants.KIND_GONE))
            )
        lanes[node] = updates
        if own != number or item.emits_on_close:
            results.stored[node] = updates
            closed = (tag == own) & kind.isin(constants.KIND_CLOSED, constants.KIND_CLOSED_GONE)
            if not isinstance(node, Suppress) or node.until_close:  # without a value, no such window exists
                closed &= F.col(value).isNotNull()
            lanes[node] = replace(lane, keep=new.with_column("f", closed))


def _old_value(item: Item, new: Flow, mine: Column) -> str:
    """The column with the value before an update: the result of the earlier parts."""
    now = {part.name: f"{part.name}_now" for part in item.parts.parts}
    then = {f"old_{name}": name for name in now}
    back = {name: old for old, name in then.items()}
    new.df = new.df.withColumnsRenamed(now).withColumnsRenamed(then)
    there = mine
    if item.core in ("latest", "versions", "sessions") or item.pending.is_of_table:
        there &= reduce(or_, (F.col(name).isNotNull() for name in now))
    # Otherwise a new key had the initial aggregate, as in Kafka Streams: 0 for a count.
    old = new.with_column("v", F.when(there, item.parts.result))
    new.df = new.df.withColumnsRenamed(back)
    new.df = new.df.withColumnsRenamed({renamed: name for name, renamed in now.items()})
    return old


def join_columns(
    item: Item, items: Sequence[Item], new: Flow, mine: Column, side: str, since: str
) -> JoinColumns:
    """The columns of a join's result, and the other columns of the record that triggered it."""
    others = {each.pending.node: each for each in items}
    if isinstance(item.pending.node, ForeignKey):
        return replace(_by_foreign_key(item, others[item.links["table"]], new, mine), side=side)
    if isinstance(item.pending.node, Lookup):
        sides = {"left": _row_of(item, new, mine), "right": _row_of(others[item.links["table"]], new, mine)}
        _give_back(item, new)
    else:
        sides = {name: _row_of(others[node], new, mine) for name, node in item.links.items()}
    old: dict[str, str] = {}
    if item.core == "table_join":
        old = {f"old_{name}": _row_of(others[node], new, mine, "old_") for name, node in item.links.items()}
        if item.links["left"] is item.links["right"]:  # only one side at a time has another value
            for number, name in enumerate(("left", "right")):
                changed = F.col(side) == number
                before = F.when(changed, F.col(old[f"old_{name}"])).otherwise(F.col(sides[name]))
                old[f"old_{name}"] = new.with_column("v", F.when(mine, before))
    flag = new.with_column("f", mine)
    joined = JoinColumns(item.key, item.key_serde, flag, sides["left"], sides["right"], side)
    return replace(joined, old_left=old.get("old_left"), old_right=old.get("old_right"), since=since)


def _row_of(side: Item, new: Flow, mine: Column, prefix: str = "") -> str:
    """The column with the value of one side of a join; with the prefix `old_`, its previous value."""
    column = F.col(f"{prefix}{side.parts.parts[0].name}").cast(side.parts.type)
    return new.with_column("v", F.when(mine, column))


def _by_foreign_key(item: Item, table: Item, new: Flow, mine: Column) -> JoinColumns:
    """The columns for a part of a join by a foreign key. For table changes, these are the left side."""
    old = _row_of(table, new, mine, "old_") if table.pending.remembers else None
    now = _row_of(table, new, mine)
    joined = JoinColumns(
        item.key,
        item.key_serde,
        new.with_column("f", mine),
        now,
        now,
        table_serde=table.pending.lane.value_serde,
    )
    if item.core == "changes":
        return replace(joined, old_left=old)
    _give_back(item, new)
    return replace(joined, left=item.parts.parts[0].name, old_right=old)


def _give_back(item: Item, new: Flow) -> None:
    """Restore the columns that the operator passed on, under their original names."""
    _, *carried = (part.name for part in item.parts.parts)
    new.df = new.df.withColumns(
        {
            name: F.coalesce(F.col(name), F.col(column)) if name in new.df.columns else F.col(column)
            for name, column in zip(item.carried, carried, strict=True)
        }
    )


def program_of(items: Sequence[Item], spark: SparkSession, patience_ms: int) -> Any:
    """The program of the Python worker that computes the folds; None if there are none."""
    folds = {
        number: (fold_of(item.pending.node), item.using)
        for number, item in enumerate(items)
        if item.using is not None
    }
    return python_program(spark, Folding(folds), patience_ms) if folds else None


def with_own(df: DataFrame, items: Sequence[Item]) -> DataFrame:
    """Add each item's key and value columns, NULL in the rows of other items: its expressions must not see
    their values."""
    columns = {}
    for item in items:
        belongs = item.pending.belongs
        own_key = F.col(item.pending.lane.key)
        if item.window is not None:
            for name, side in zip(item.window, ("start", "end"), strict=True):
                columns[name] = F.when(belongs, F.unix_millis(own_key["window"][side]))
            own_key = own_key["key"]
        columns[item.key] = F.when(belongs, own_key)
        columns[item.value] = F.when(belongs, F.col(item.pending.lane.value))
        if item.old is not None:
            assert item.pending.lane.old is not None
            columns[item.old] = F.when(belongs, F.col(item.pending.lane.old))
    return df.withColumns(columns)


def _is_of_table(item: Item) -> bool:
    return isinstance(item.pending.node, Side) and item.pending.node.is_of_table


def since_column(item: Item) -> Column:
    """The time of a table's row, if it differs from the time of the update; otherwise NULL."""
    name = item.pending.lane.since if _is_of_table(item) else None
    return (F.lit(None).cast("bigint") if name is None else F.col(name)).alias("since")


def key_bytes(item: Item, df: DataFrame) -> Column:
    return serde_columns.to_bytes(
        item.key_serde, F.col(item.key), df.schema[item.key].dataType, f"{item.pending.node.name}: the key"
    )


def packed(headers: Column) -> Column:
    return kernel_column("Headers", "packed", headers)


def unpacked(content: Column) -> Column:
    return kernel_column("Headers", "unpacked", content)


def described(item: Item, items: Sequence[Item]) -> dict[str, Any]:
    """The description of an item for the kernel."""
    places = {each.pending.node: number for number, each in enumerate(items)}
    links = {name: places[node] for name, node in item.links.items()}
    return {
        "core": item.core,
        "name": item.pending.node.name,
        "settings": {**item.settings, **links},
        "at_once": item.at_once,
        "parts": [{"name": part.name, "rule": part.rule} for part in item.parts.parts],
    }


def holding(node: Suppress, of: int) -> dict[str, Any]:
    """The description, for the kernel, of a suppress node that holds back the updates of item `of`."""
    return {"core": "suppress", "name": node.name, "of": of, "settings": limits_of(node)}
