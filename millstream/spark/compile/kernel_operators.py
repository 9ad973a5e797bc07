"""The kernel's operators: aggregations and joins that process records one by one, like Kafka Streams' tasks.

All aggregations of one flow are one stateful operator of Spark. Before it, Spark computes what each record
contributes: the *parts* of the aggregate functions (mergeable.py). In it, the kernel merges parts by key and
window (`io.millstream.kernel.state.Operator`). After it, Spark computes the results.

A bucket is the partition that Kafka's default partitioner assigns to a key. The operator processes a bucket's
records in the order of their source partition. Records of several partitions are merged by time. So stream
time, lateness and the order of updates are those of Kafka Streams, whatever the micro-batches are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.kernel import constants
from millstream.serdes.serde import Serde
from millstream.spark.compile import serde_columns
from millstream.spark.compile.flow import HEADERS, TIMESTAMP, Flow, Lane, Names
from millstream.spark.compile.grouped_tables import change, of_both, retractable
from millstream.spark.compile.kernel_joins import (
    ForeignKey,
    Join,
    JoinColumns,
    Lookup,
    OfSides,
    Side,
    settings_of,
    takes_null_keys,
)
from millstream.spark.compile.mergeable import Mergeable, NotMergeableError, Part, take_apart
from millstream.spark.compile.sink import Output, written_fields, written_type
from millstream.spark.compile.spark_aggregates import (
    FlowLanes,
    Pending,
    column_of,
    fold_of,
    windowed_key,
    with_context,
)
from millstream.spark.compile.trace import translated
from millstream.spark.jvm.java_names import java_class
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
from millstream.topology.windows import (
    DailyTimeWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)

__all__ = [
    "Item",
    "LateRows",
    "Results",
    "aggregate",
    "bucket_names",
    "described",
    "holding",
    "item_of",
    "join_columns",
    "key_bytes",
    "layout",
    "packed",
    "program_of",
    "put_lanes",
    "since_column",
    "unpacked",
    "with_own",
]

PASSED = -1
"""The value of the column `tag` in rows that pass through the operator; other rows have an item's number."""


_OWN = ("tag", "kind", "key", "start", "end", "at", "time", "headers")
"""The columns of each output row of the operator, before the parts."""


@dataclass(frozen=True)
class Item:
    """One aggregation, table or join of the operator.

    Attributes:
        key, value: the names of its columns, which are NULL in the rows of other items.
        old: for a grouped table, the name of the column with the value to subtract.
        key_serde: the serde of its keys, without their windows.
        partitions: the number of buckets of its keys.
        parts: the parts that it merges.
        at_once: emit every change, not only the last of a micro-batch.
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
    partitions: int
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
class Results:
    """The output of an operator.

    Attributes:
        outputs: the output lanes.
        stored: the lanes that are written to stores, where they differ from the output lanes.
        late: the rows to drop.
        passed: the names of the column with the rows that only passed through, and of their flag.
        parts: the columns with the parts that cannot be derived from the result.
        joined: the results of joins.
    """

    outputs: FlowLanes
    stored: dict[Node, Lane] = field(default_factory=dict)
    late: list[LateRows] = field(default_factory=list)
    passed: tuple[str, str] | None = None
    parts: dict[Node, str] = field(default_factory=dict)
    joined: dict[Join, JoinColumns] = field(default_factory=dict)


def item_of(
    pending: Pending,
    df: DataFrame,
    names: Names,
    key_serde: Serde,
    partitions: int,
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
    core, settings = _core(pending)
    item = Item(
        pending, key, value, key_serde, partitions, Mergeable(), at_once, core=core, settings=settings
    )
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
        opaque = Mergeable([row, *more], F.col(row.name), type_, lambda value, at: value)
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
        lambda value, at: value,
    )


def aggregate(
    items: Sequence[Item],
    names: Names,
    passing: Sequence[tuple[Lane, Output]] = (),
    *,
    letters: bool = False,
    patience_ms: int = 0,
    as_they_come: bool = False,
    state_of: Callable[[str], DataFrame] | None = None,
    restored: Callable[[Item], DataFrame] | None = None,
) -> Results:
    """Compile aggregations and joins to one operator.

    Args:
        passing: the flow's other outputs, if all items are of one flow. Their rows pass through the operator
            unchanged, so that the steps before it are computed once.
        letters: with the fields of dead letters.
        patience_ms: how long a Python function may take for one record.
        as_they_come: do not sort the rows: in Real-Time Mode they are processed as they arrive.
        state_of: reads the operator's state; the result is then that state, as if all of it had been updated
            (rebuild.py).
        restored: reads changelogs; the operator starts with their contents if its checkpoint is new
            (restore.py).
    """
    spark = items[0].pending.flow.df.sparkSession
    held_back = [(number, node) for number, item in enumerate(items) for node in item.held_back]
    if state_of is None:
        rows = _rows(items, passing, letters)
        any_order = not (passing or held_back or as_they_come) and all(map(_is_of_any_order, items))
        description = json.dumps(
            [
                *(described(item, items) for item in items),
                *(holding(node, number) for number, node in held_back),
            ]
        )
        if any_order:
            rows = DataFrame(_of_kernel("Combined").of(rows._jdf, description), spark)
        rows = _in_buckets(rows, items)
        before = None if restored is None else _restored(items, restored)._jdf
        operator = _of_kernel("Operator").of(
            (rows if as_they_come else _ordered(rows, any_order=any_order))._jdf,
            description,
            before,
            program_of(items, spark, patience_ms),
        )
        df = DataFrame(operator, spark)
    else:
        df = _from_state(items, state_of)
    called = {name: names.new(name[0]) for name in _OWN}
    df = df.withColumnsRenamed(called)
    df = df.withColumn(called["at"], F.timestamp_millis(called["at"]))
    df = df.withColumn(HEADERS, unpacked(F.col(called["headers"]))).drop(called["headers"])
    new = Flow(with_context(df, called["at"]), names)
    results = Results((new, {}))
    has_kinds = (
        len(items) > 1
        or held_back
        or passing
        or any(item.is_windowed or item.emits_on_close for item in items)
    )
    for number, item in enumerate(items):
        behind = {len(items) + i: node for i, (of, node) in enumerate(held_back) if of == number}
        tags = [number, *behind]
        if item.core == "changes":
            tags = [other for other, each in enumerate(items) if each.pending.node is item.links["table"]]
        mine = F.col(called["tag"]).isin(tags)
        where = F.lit(f"{item.pending.node.name}: a key")
        if isinstance(item.pending.node, Side):
            continue
        # Under the name that the expression refers to.
        new.df = new.df.withColumn(
            item.key, serde_columns.from_bytes(item.key_serde, F.when(mine, F.col(called["key"])), where)
        )
        if isinstance(item.pending.node, Join):
            results.joined[item.pending.node] = join_columns(
                item, items, new, mine, called["time"], called["start"]
            )
        else:
            put_lanes(item, number, behind, results, called, has_kinds=bool(has_kinds))
    if passing:
        passed = names.new("o"), new.with_column("f", F.col(called["tag"]) == PASSED)
        new.df = new.df.withColumnRenamed("passed", passed[0])
        return replace(results, passed=passed)
    return results


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
    if item.parts.of_result is None and not isinstance(item.pending.node, Suppress):
        content = F.when(mine & (kind == constants.KIND_UPDATE), parts_as_bytes(item.parts.parts))
        results.parts[item.pending.node] = new.with_column("o", content)
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


def _rows(items: Sequence[Item], passing: Sequence[tuple[Lane, Output]], letters: bool) -> DataFrame:
    """One row for each item that a record belongs to: `tag`, `key`, `at`, `headers`, and the parts.

    A record that also passes through has one more row for each of those outputs. The column `passed` is the
    record to write.
    """
    numbered: dict[int, list[tuple[int, Item]]] = {}
    flows = {}
    for number, item in enumerate(items):
        if item.has_rows:
            flows[id(item.pending.flow)] = item.pending.flow
            numbered.setdefault(id(item.pending.flow), []).append((number, item))
    parts = [part for item in items for part in item.parts.parts]
    # At equal times, table rows come before the records that look them up.
    in_order = sorted(numbered.items(), key=lambda each: not any(_is_of_table(item) for _, item in each[1]))
    parts_of_rows = [_rows_of(flows[flow], mine, parts, passing, letters) for flow, mine in in_order]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts_of_rows)


def _is_looked_up(item: Item) -> bool:
    """Whether its rows are only looked up, so that their changes are not emitted."""
    return isinstance(item.pending.node, Side) and isinstance(item.pending.node.join, Lookup)


def _is_of_table(item: Item) -> bool:
    return isinstance(item.pending.node, Side) and item.pending.node.is_of_table


def _rows_of(
    flow: Flow,
    items: Sequence[tuple[int, Item]],
    every: Sequence[Part],
    passing: Sequence[tuple[Lane, Output]],
    letters: bool,
) -> DataFrame:
    """The rows of one flow. They have a column for `every` part, of all items."""
    df = with_own(flow.df, [item for _, item in items])
    for place, (number, item) in enumerate(items):
        if item.old is not None and item.using is None:
            df, taken = of_both(df, item.value, item.old, item.parts.parts)
            items = [
                *items[:place],
                (number, replace(item, parts=replace(item.parts, parts=taken))),
                *items[place + 1 :],
            ]
    at = F.unix_millis(F.col(TIMESTAMP)).alias("at")
    if all(isinstance(item.pending.node, Side) and item.pending.node.is_global for _, item in items):
        at = F.lit(_BEFORE_ALL).cast("bigint").alias("at")
    has_since = any(_is_of_table(item) and item.pending.lane.since is not None for _, item in items)
    is_emitted = any(not _is_looked_up(item) for _, item in items)
    headers = (packed(F.col(HEADERS)) if is_emitted else F.lit(None).cast("binary")).alias("headers")
    if len(items) == 1 and not passing:
        ((number, item),) = items
        df = df.where(item.pending.belongs)
        row = [
            F.lit(number).alias("tag"),
            key_bytes(item, df).alias("key"),
            at,
            headers,
            *_parts_of(item, every),
        ]
        return df.select(*row, since_column(item)) if has_since else df.select(*row)
    df = df.withColumns({"at": at, "headers": headers})
    type_ = written_type(letters)  # one type for all: a column may be NULL in one output only
    elements = []
    for number, item in items:
        fields = [F.lit(number).alias("tag"), key_bytes(item, df).alias("key"), *_parts_of(item, every)]
        if has_since:
            fields.append(since_column(item))
        if passing:
            fields.append(F.lit(None).cast(type_).alias("passed"))
        elements.append(F.when(item.pending.belongs, F.struct(*fields)))
    for lane, output in passing:
        # Records of one partition keep their order, so the key is what the partition is chosen by.
        key = output.key if output.route is None else output.route
        nulls = [F.lit(None).cast(part.type).alias(part.name) for part in every]
        key = F.coalesce(key, F.lit(bytearray()))
        written = F.struct(*written_fields(flow, output, letters)).cast(type_).alias("passed")
        if has_since:
            nulls.append(F.lit(None).cast("bigint").alias("since"))
        element = F.struct(F.lit(PASSED).alias("tag"), key.alias("key"), *nulls, written)
        elements.append(F.when(flow.belongs_to(lane), element))
    df = df.select("at", "headers", F.explode(F.array(*elements)).alias("each"))
    df = df.where(F.col("each").isNotNull())
    # A row that passes through has its headers in the record to write.
    headers = F.when(F.col("each")["tag"] != PASSED, F.col("headers")) if passing else F.col("headers")
    return df.select(
        F.col("each")["tag"].alias("tag"),
        F.col("each")["key"].alias("key"),
        "at",
        headers.alias("headers"),
        *(F.col("each")[part.name].alias(part.name) for part in every),
        *([F.col("each")["passed"].alias("passed")] if passing else []),
        *([F.col("each")["since"].alias("since")] if has_since else []),
    )


def since_column(item: Item) -> Column:
    """The time of a table's row, if it differs from the time of the update; otherwise NULL."""
    name = item.pending.lane.since if _is_of_table(item) else None
    return (F.lit(None).cast("bigint") if name is None else F.col(name)).alias("since")


_BEFORE_ALL = -(2**62)
"""The time of rows of global tables, for sorting: Kafka Streams loads them before it starts."""


def _parts_of(item: Item, every: Sequence[Part]) -> list[Column]:
    """The columns of `every` part: NULL, except those of the item."""
    own = {part.name: part.column.cast(part.type) for part in item.parts.parts}
    return [own.get(part.name, F.lit(None).cast(part.type)).alias(part.name) for part in every]


def _in_buckets(rows: DataFrame, items: Sequence[Item]) -> DataFrame:
    """Add the bucket of each row. Rows without a key belong to the bucket of an empty key."""
    counts = sorted({item.partitions for item in items})
    key = F.col("key")
    if any(takes_null_keys(item.pending.node) for item in items):
        key = F.coalesce(key, F.lit(bytearray()))
    bucket = _bucket(key, counts[0])
    for count in counts[1:]:
        numbers = [number for number, item in enumerate(items) if item.partitions == count]
        bucket = F.when(F.col("tag").isin(numbers), _bucket(key, count)).otherwise(bucket)
    return rows.select(bucket.alias("bucket"), "*")


def key_bytes(item: Item, df: DataFrame) -> Column:
    return serde_columns.to_bytes(
        item.key_serde, F.col(item.key), df.schema[item.key].dataType, f"{item.pending.node.name}: the key"
    )


def largest_so_far(bucket: Column, at: Column) -> Column:
    """A bucket's largest time so far, among the rows of one Spark task."""
    return Column(_order().largestSoFar(bucket._jc, at._jc))


def _ordered(rows: DataFrame, *, any_order: bool) -> DataFrame:
    """Partition rows by bucket, and sort each bucket as Kafka Streams would read its records.

    The rows of one task of the previous stage keep their order, which is the order of a source partition. The
    rows of several tasks are merged by stream time. With `any_order`, rows are only grouped by bucket.
    """
    if any_order:
        # The order in which rows arrive from other machines varies; a repeated batch has to have the same
        # result, in the same order. By the number that the kernel's Combined prepends to headers, the last
        # row of a key has the headers of its last record.
        rows = rows.repartition("bucket").sortWithinPartitions("bucket", "tag", "key", "headers")
        return rows.withColumn("headers", F.expr("substring(headers, 9)"))
    columns = rows.columns
    so_far = largest_so_far(F.col("bucket"), F.col("at"))
    rows = rows.withColumns({"_so_far": so_far, "_place": F.monotonically_increasing_id()})
    return rows.repartition("bucket").sortWithinPartitions("bucket", "_so_far", "_place").select(*columns)


_OF_ANY_ORDER = frozenset(("min", "max", "and", "or", "bit_and", "bit_or", "bit_xor"))


def _is_of_any_order(item: Item) -> bool:
    """Whether the result does not depend on the order of records. Sorting costs as much as a count."""
    return (
        item.core == "whole"
        and not item.at_once
        and all(
            not isinstance(part.type, T.StructType | T.ArrayType)
            if part.rule in _OF_ANY_ORDER
            else part.rule == "sum" and not isinstance(part.type, T.DoubleType)
            for part in item.parts.parts
        )
    )


def packed(headers: Column) -> Column:
    return Column(_of_kernel("Headers").packed(headers._jc))


def unpacked(content: Column) -> Column:
    return Column(_of_kernel("Headers").unpacked(content._jc))


def _core(pending: Pending) -> tuple[str, dict[str, int]]:
    """The kernel's core for a node, and its settings."""
    node = pending.node
    if isinstance(node, Join | Side):
        return settings_of(node)
    old = {"old": 1} if pending.remembers else {}
    if isinstance(node, TableSource | ToTable):
        if pending.history_ms is not None:
            return "versions", {**old, "history": pending.history_ms}
        return "latest", old
    if isinstance(node, Suppress):
        return "suppress", {**_limits(node), "windowed": int(pending.group_key_serde is not None)}
    assert isinstance(node, Aggregate)
    windows = node.windows
    if node.on_close:
        old["on_close"] = 1
    if node.stored.retention_ms is not None:
        old["retention"] = node.stored.retention_ms
    if isinstance(windows, TimeWindows):
        span = {"size": windows.size_ms, "advance": windows.advance_ms, "grace": windows.grace_ms}
        if isinstance(windows, DailyTimeWindows):
            return f"daily {windows.zone.key}", {**old, **span, "hour": windows.start_hour}
        if isinstance(windows, UnlimitedWindows) and windows.start_ms:
            span["origin"] = windows.start_ms
        return "fixed", {**old, **span}
    if isinstance(windows, SlidingWindows):
        return "sliding", {**old, "difference": windows.time_difference_ms, "grace": windows.grace_ms}
    if isinstance(windows, SessionWindows):
        return "sessions", {**old, "gap": windows.gap_ms, "grace": windows.grace_ms}
    return "whole", old


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
    return {"core": "suppress", "name": node.name, "of": of, "settings": _limits(node)}


def _limits(node: Suppress) -> dict[str, int]:
    limits = {"records": node.record_limit, "bytes": node.byte_limit}
    return {
        "until_close": int(node.until_close),
        "delay": node.delay_ms,
        "stops": int(node.stops_when_full),
        "logged": int(node.stored.logged),
        **{name: limit for name, limit in limits.items() if limit is not None},
    }


_MAY_CHANGE = frozenset(
    ("retention", "records", "bytes", "stops", "logged", "silent", "old", "alone", "bare")
)
"""Settings that the layout of the state does not depend on."""


def layout(item: Item) -> str:
    """The layout of an item's state, as text. The order of parts matters, their names do not."""
    settings = "".join(
        f" {name}={value}" for name, value in sorted(item.settings.items()) if name not in _MAY_CHANGE
    )
    parts = ", ".join(f"{part.rule} {part.type.simpleString()}" for part in item.parts.parts)
    held = "".join(
        f"; held back with headers, until_close={int(node.until_close)} delay={node.delay_ms}"
        for node in item.held_back
    )
    headers = " and headers" if item.core == "suppress" else ""
    return f"{item.core}{settings} of {parts}{headers}; {item.partitions} buckets{held}"


# --- reading state --------------------------------------------------------------------------------------


def _from_state(items: Sequence[Item], state_of: Callable[[str], DataFrame]) -> DataFrame:
    """The contents of the operator's state, in the form of its results. Shelf.java defines the layout."""
    every = [part for item in items for part in item.parts.parts]
    rows = []
    for number, item in enumerate(items):
        if isinstance(item.pending.node, Join | Side):
            continue  # no store has the same contents
        state = state_of(f"slices{number}")
        key, window = F.col("user_map_key")["value"], F.col("user_map_value")
        start = end = F.lit(0).cast("bigint")
        if item.pending.windows is not None or item.core == "versions":
            state = state.select("user_map_key", F.explode(window["windows"]).alias("window"))
            # The key is followed by the number of its slice.
            key, window = F.substring(key, F.lit(1), F.octet_length(key) - 8), F.col("window")
            start, end = window["start"], window["end"]
        own = {part.name: window[f"part{place}"] for place, part in enumerate(item.parts.parts)}
        rows.append(
            state.select(
                F.lit(number).alias("tag"),
                F.lit(constants.KIND_UPDATE).alias("kind"),
                key.alias("key"),
                start.alias("start"),
                end.alias("end"),
                window["at"].alias("at"),
                F.lit(None).cast("bigint").alias("time"),
                F.lit(None).cast("binary").alias("headers"),
                *(own.get(part.name, F.lit(None)).cast(part.type).alias(part.name) for part in every),
            )
        )
    nothing = {
        f"old_{part.name}": F.lit(None).cast(part.type)
        for item in items
        if item.pending.remembers
        for part in item.parts.parts
    }
    return reduce(DataFrame.union, rows).withColumns(nothing)


# --- restoring from changelogs ---------------------------------------------------------------------------

_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Exact: by default Spark writes milliseconds."""


def parts_as_bytes(parts: Sequence[Part]) -> Column:
    """The content of the header PARTS_HEADER, without parts that are NULL. NULL if it would be too large.

    Parts can be too large for a Kafka record although the result is not: a count of distinct values keeps all
    of them.
    """
    named = (F.col(part.name).alias(f"part{place}") for place, part in enumerate(parts))
    content = F.to_json(F.struct(*named), _JSON).cast("binary")
    return F.when(F.octet_length(content) <= MOST_OF_PARTS, content)


def parts_from_bytes(content: Column, parts: Sequence[Part]) -> Column:
    """The parts, as a struct, from the content of that header."""
    fields = [T.StructField(f"part{place}", part.type) for place, part in enumerate(parts)]
    return F.from_json(content.cast("string"), T.StructType(fields), _JSON)


MOST_OF_PARTS = 65_536
"""The maximum size of the header PARTS_HEADER in bytes. Without the header, state cannot be restored."""

_CHUNK = 10_000
"""How many aggregates the kernel receives at a time."""


def _restored(items: Sequence[Item], restored: Callable[[Item], DataFrame]) -> DataFrame:
    """The operator's initial state: rows of `bucket`, `tag` and `entries`, each entry one aggregate.

    `restored` returns `key`, `start`, `end`, `at` and a struct `parts` for each aggregate of an item.
    """
    every = [part for item in items for part in item.parts.parts]
    rows = []
    for number, item in enumerate(items):
        own = {part.name: F.col("parts")[f"part{place}"] for place, part in enumerate(item.parts.parts)}
        parts = (own.get(part.name, F.lit(None)).cast(part.type).alias(part.name) for part in every)
        entry = F.struct("key", "start", "end", "at", *parts)
        rows.append(
            restored(item).select(
                _bucket(F.col("key"), item.partitions).alias("bucket"),
                F.lit(number).alias("tag"),
                entry.alias("entry"),
                F.floor(F.monotonically_increasing_id() / _CHUNK).alias("chunk"),
            )
        )
    together = reduce(DataFrame.union, rows).groupBy("bucket", "tag", "chunk")
    return together.agg(F.collect_list("entry").alias("entries")).select("bucket", "tag", "entries")


# --- buckets ---------------------------------------------------------------------------------------------


def _order() -> Any:
    return _of_kernel("Order")


def _of_kernel(name: str) -> Any:
    return java_class(SparkSession.active()._jvm, f"io.millstream.kernel.state.{name}")


def _bucket(key: Column, partitions: int) -> Column:
    return _named(key, bucket_names(partitions))


def _named(key: Column, partitions: Iterable[int]) -> Column:
    """The name of a key's partition: one of these, by its number."""
    jvm: Any = SparkSession.active()._jvm
    names = java_class(jvm, "java.util.ArrayList")()
    for name in partitions:
        names.add(name)
    return Column(_order().bucket(key._jc, names))


def partition_of(key: Column, partitions: int) -> Column:
    """The partition that Kafka's default partitioner assigns to a key in bytes; NULL for NULL."""
    return _named(key, range(partitions))


@cache
def bucket_names(partitions: int) -> tuple[int, ...]:
    """The name of each partition's bucket: the n-th bucket goes to the n-th of 2, 4, … or 64 Spark tasks.

    Spark distributes groups by a hash. By partition number, four buckets would often go to the same task.
    """
    names: list[list[int]] = [[] for _ in range(min(partitions, _SPREAD))]
    missing = partitions
    number = 0
    while missing:
        place = murmur3(number) % _SPREAD
        if place < len(names) and len(names[place]) * _SPREAD + place < partitions:
            names[place].append(number)
            missing -= 1
        number += 1
    return tuple(names[n % _SPREAD][n // _SPREAD] for n in range(partitions))


_SPREAD = 64


def murmur3(number: int, seed: int = 42) -> int:
    """The hash by which Spark distributes groups, of an int. Source: org.apache.spark.sql.functions.hash."""
    mask = 0xFFFFFFFF

    def rotated(value: int, by: int) -> int:
        return ((value << by) | (value >> (32 - by))) & mask

    mixed = rotated((number & mask) * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    hashed = (rotated(seed ^ mixed, 13) * 5 + 0xE6546B64) & mask
    hashed ^= 4  # how many bytes
    hashed = (hashed ^ (hashed >> 16)) * 0x85EBCA6B & mask
    hashed = (hashed ^ (hashed >> 13)) * 0xC2B2AE35 & mask
    return hashed ^ (hashed >> 16)
