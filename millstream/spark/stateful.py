"""Aggregations on the kernel: the records of a key's bucket, one after the other, as a task of Kafka Streams.

All aggregations of one flow are one stateful operator of Spark. What each record brings is computed by Spark
before it, as the *parts* that its aggregate functions are made of (mergeable.py); the kernel merges parts, by
key and window (`io.millstream.kernel.state.Aggregations`); and the results are computed by Spark after it.

A bucket is the partition that Kafka's default partitioner gives a key. The operator gets a bucket's records
in the order of their source partitions, and where those are mixed, in the order of time. So stream time, what
is late, and the order in which records count, are Kafka's, whatever the micro-batches are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.dsl.serdes import Serde
from millstream.spark import serdes
from millstream.spark.aggregate import Made, Pending, column_of, windowed_key, with_context
from millstream.spark.flow import TIMESTAMP, Flow, Lane, Names
from millstream.spark.mergeable import Mergeable, NotMergeableError, Part, take_apart
from millstream.spark.trace import translated
from millstream.topology.nodes import Node, ToTable
from millstream.topology.windows import SessionWindows, SlidingWindows, TimeWindows

__all__ = ["Item", "Late", "aggregate", "bucket_names", "item_of", "layout"]

UPDATE, GONE, CLOSED, LATE = range(4)
"""What a row of the operator is: the column `kind`."""


@dataclass(frozen=True)
class Item:
    """One aggregation of the operator.

    Attributes:
        key, value: the names of its columns, which are NULL in the rows of others.
        key_serde: of its keys, without their windows.
        partitions: how many buckets its keys are in.
        parts: what it merges.
        at_once: tell each change as it comes, not the last one of a micro-batch.
    """

    pending: Pending
    key: str
    value: str
    key_serde: Serde
    partitions: int
    parts: Mergeable
    at_once: bool


@dataclass(frozen=True)
class Late:
    """Rows for records that came too late: to be counted, and to go no further."""

    item: Item
    flag: str


def item_of(
    pending: Pending, df: DataFrame, names: Names, key_serde: Serde, partitions: int, *, at_once: bool
) -> Item:
    """Take an aggregation apart. `df` is its flow's.

    Raises:
        NotMergeableError: there is a function in it whose partial results cannot be merged.
    """
    key, value = names.new("k"), names.new("v")
    item = Item(pending, key, value, key_serde, partitions, Mergeable(), at_once)
    node = pending.node
    if isinstance(node, ToTable):  # the last one; wrapped, for a NULL is one too
        last = names.new("l")
        type_ = T.StructType([T.StructField("value", pending.flow.type_of(pending.lane.value))])
        part = Part(last, F.struct(F.col(value).alias("value")), type_, "last")
        return replace(item, parts=_last_value(part))
    column, function = column_of(pending, key, value)

    def cut() -> Mergeable | NotMergeableError:
        try:
            return take_apart(_with_own(df, [item]), column, [key], names)
        except NotMergeableError as error:
            return error  # no mistake of the function's

    parts: Mergeable | NotMergeableError = translated(node, function, cut)
    if isinstance(parts, NotMergeableError):
        raise parts
    return replace(item, parts=parts)


def _last_value(part: Part) -> Mergeable:
    type_: Any = part.type
    result = F.col(part.name)["value"]
    return Mergeable([part], result, type_["value"].dataType, lambda value: F.struct(value.alias("value")))


def aggregate(
    items: Sequence[Item],
    names: Names,
    kept: Callable[[str], DataFrame] | None = None,
    restored: Callable[[Item], DataFrame] | None = None,
) -> tuple[Made, list[Late], dict[Node, str]]:
    """These aggregations of one flow, as one operator; and the columns with the parts of those whose result
    does not tell them.

    With `kept`, its results are what it keeps in its state, as if all had been updated (rebuild.py). With
    `restored`, it begins with what changelogs have, where its checkpoint is new (restore.py).
    """
    flow = items[0].pending.flow
    if kept is None:
        rows = _ordered(_rows(_with_own(flow.df, items), items))
        description = json.dumps([_described(item) for item in items])
        before = None if restored is None else _restored(items, restored)._jdf
        operator = _state_package().Aggregations.of(rows._jdf, description, before)
        made = DataFrame(operator, flow.df.sparkSession)
    else:
        made = _kept(items, kept)
    tag, kind, key, start, end, stamp, time = (names.new(letter) for letter in "njkwwsw")
    fixed = dict(
        zip(
            ("tag", "kind", "key", "start", "end", "at", "time"),
            (tag, kind, key, start, end, stamp, time),
            strict=True,
        )
    )
    made = made.withColumnsRenamed(fixed).withColumn(stamp, F.timestamp_millis(stamp))
    new = Flow(with_context(made, stamp), names)
    lanes: dict[Any, Lane] = {}
    late = []
    parts: dict[Node, str] = {}
    for number, item in enumerate(items):
        mine = F.col(tag) == number
        told = mine & (F.col(kind) <= GONE)
        where = F.lit(f"{item.pending.node.name}: a key")
        # By the name that the expression knows it under.
        new.df = new.df.withColumn(
            item.key, serdes.from_bytes(item.key_serde, F.when(mine, F.col(key)), where)
        )
        plain_key = item.key
        if item.pending.windows is not None:
            plain_key = new.with_column("k", windowed_key(F.col(item.key), F.col(start), F.col(end)))
            late.append(Late(item, new.with_column("d", mine & (F.col(kind) == LATE))))
        value = new.with_column("v", F.when(mine & (F.col(kind) == UPDATE), item.parts.result))
        if item.parts.of_result is None:
            content = F.when(mine & (F.col(kind) == UPDATE), parts_as_bytes(item.parts.parts))
            parts[item.pending.node] = new.with_column("o", content)
        keep = None
        if len(items) > 1 or late:
            keep = new.with_column("f", told)
        value_serde = item.pending.lane.value_serde if isinstance(item.pending.node, ToTable) else None
        key_serde = (
            item.key_serde if item.pending.windows is None else item.pending.windowed_serde(item.key_serde)
        )
        lanes[item.pending.node] = Lane(plain_key, value, keep, key_serde, value_serde)
    return (new, lanes), late, parts


def _with_own(df: DataFrame, items: Sequence[Item]) -> DataFrame:
    """With the key and value columns of each. NULL in the rows of others, so that no expression sees them."""
    columns = {}
    for item in items:
        belongs = item.pending.belongs
        columns[item.key] = F.when(belongs, F.col(item.pending.lane.key))
        columns[item.value] = F.when(belongs, F.col(item.pending.lane.value))
    return df.withColumns(columns)


def _rows(df: DataFrame, items: Sequence[Item]) -> DataFrame:
    """One row for each aggregation that a record belongs to: `bucket`, `tag`, `key`, `at`, and the parts."""
    at = F.unix_millis(F.col(TIMESTAMP)).alias("at")
    if len(items) == 1:
        item = items[0]
        df = df.where(item.pending.belongs)
        key = _key(item, df)
        parts = [part.column.cast(part.type).alias(part.name) for part in item.parts.parts]
        df = df.select(key.alias("key"), at, *parts)
        return df.select(_bucket(F.col("key"), item.partitions).alias("bucket"), F.lit(0).alias("tag"), "*")
    every = [part for item in items for part in item.parts.parts]
    df = df.withColumn("at", at)
    elements = []
    for number, item in enumerate(items):
        own = {part.name: part.column.cast(part.type) for part in item.parts.parts}
        parts = [own.get(part.name, F.lit(None).cast(part.type)).alias(part.name) for part in every]
        element = F.struct(F.lit(number).alias("tag"), _key(item, df).alias("key"), *parts)
        elements.append(F.when(item.pending.belongs, element))
    df = df.select("at", F.explode(F.array(*elements)).alias("each")).where(F.col("each").isNotNull())
    df = df.select(
        F.col("each")["tag"].alias("tag"),
        F.col("each")["key"].alias("key"),
        "at",
        *(F.col("each")[part.name].alias(part.name) for part in every),
    )
    bucket = F.lit(None).cast("int")
    counts = {item.partitions for item in items}
    for count in counts:
        numbers = [number for number, item in enumerate(items) if item.partitions == count]
        mine = _bucket(F.col("key"), count)
        bucket = mine if len(counts) == 1 else F.when(F.col("tag").isin(numbers), mine).otherwise(bucket)
    return df.select(bucket.alias("bucket"), "*")


def _key(item: Item, df: DataFrame) -> Column:
    return serdes.to_bytes(
        item.key_serde, F.col(item.key), df.schema[item.key].dataType, f"{item.pending.node.name}: the key"
    )


def _ordered(rows: DataFrame) -> DataFrame:
    """Partitioned by bucket, and in a bucket in the order in which Kafka Streams would read them.

    That is the order of each task of the stage before, which has that of its source partition; several tasks
    are mixed as their stream times go.
    """
    columns = rows.columns
    so_far = Column(_order().largestSoFar(F.col("at")._jc))
    rows = rows.withColumns({"_so_far": so_far, "_place": F.monotonically_increasing_id()})
    return rows.repartition("bucket").sortWithinPartitions("bucket", "_so_far", "_place").select(*columns)


def _described(item: Item) -> dict[str, Any]:
    """The aggregation, for the kernel."""
    windows = item.pending.windows
    core, settings = "whole", {}
    if isinstance(windows, TimeWindows):
        core, settings = (
            "fixed",
            {"size": windows.size_ms, "advance": windows.advance_ms, "grace": windows.grace_ms},
        )
    elif isinstance(windows, SlidingWindows):
        core, settings = "sliding", {"difference": windows.time_difference_ms, "grace": windows.grace_ms}
    elif isinstance(windows, SessionWindows):
        core, settings = "sessions", {"gap": windows.gap_ms, "grace": windows.grace_ms}
    return {
        "core": core,
        "settings": settings,
        "at_once": item.at_once,
        "parts": [{"name": part.name, "rule": part.rule} for part in item.parts.parts],
    }


def layout(item: Item) -> str:
    """How its state is laid out, in words. Of parts what they are called does not count, but their order."""
    described = _described(item)
    settings = "".join(f" {name}={value}" for name, value in sorted(described["settings"].items()))
    parts = ", ".join(f"{part.rule} {part.type.simpleString()}" for part in item.parts.parts)
    return f"{described['core']}{settings} of {parts}; {item.partitions} buckets"


# --- what is kept ----------------------------------------------------------------------------------------


def _kept(items: Sequence[Item], kept: Callable[[str], DataFrame]) -> DataFrame:
    """What the state of these has, in the form of the operator's results. Its layout is Shelf.java's."""
    every = [part for item in items for part in item.parts.parts]
    rows = []
    for number, item in enumerate(items):
        state = kept(f"slices{number}")
        key, window = F.col("user_map_key")["value"], F.col("user_map_value")
        start = end = F.lit(0).cast("bigint")
        if item.pending.windows is not None:
            state = state.select("user_map_key", F.explode(window["windows"]).alias("window"))
            # Behind the key comes the number of its slice.
            key, window = F.substring(key, F.lit(1), F.octet_length(key) - 8), F.col("window")
            start, end = window["start"], window["end"]
        own = {part.name: window[f"part{place}"] for place, part in enumerate(item.parts.parts)}
        rows.append(
            state.select(
                F.lit(number).alias("tag"),
                F.lit(UPDATE).alias("kind"),
                key.alias("key"),
                start.alias("start"),
                end.alias("end"),
                window["at"].alias("at"),
                F.lit(None).cast("bigint").alias("time"),
                *(own.get(part.name, F.lit(None)).cast(part.type).alias(part.name) for part in every),
            )
        )
    return reduce(DataFrame.union, rows)


# --- what changelogs have --------------------------------------------------------------------------------

_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Exact: by default Spark writes milliseconds."""


def parts_as_bytes(parts: Sequence[Part]) -> Column:
    """Parts for the header PARTS_HEADER. Those that are NULL are left out."""
    named = (F.col(part.name).alias(f"part{place}") for place, part in enumerate(parts))
    return F.to_json(F.struct(*named), _JSON).cast("binary")


def parts_from_bytes(content: Column, parts: Sequence[Part]) -> Column:
    """A struct of parts, from such a header."""
    fields = [T.StructField(f"part{place}", part.type) for place, part in enumerate(parts)]
    return F.from_json(content.cast("string"), T.StructType(fields), _JSON)


_CHUNK = 10_000
"""How many aggregates the kernel gets at a time."""


def _restored(items: Sequence[Item], restored: Callable[[Item], DataFrame]) -> DataFrame:
    """What the operator begins with: `key`, `start`, `end`, `at` and a struct `parts` of each aggregate."""
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
    return _state_package().Order


def _state_package() -> Any:
    jvm: Any = SparkSession.active()._jvm
    return jvm.io.millstream.kernel.state


def _bucket(key: Column, partitions: int) -> Column:
    jvm: Any = SparkSession.active()._jvm
    names = jvm.java.util.ArrayList()
    for name in bucket_names(partitions):
        names.add(name)
    return Column(_order().bucket(key._jc, names))


@cache
def bucket_names(partitions: int) -> tuple[int, ...]:
    """What the bucket of each partition is called: the n-th goes to the n-th of 2, 4, … or 64 tasks of Spark.

    Spark spreads groups by a hash. By their own numbers four buckets would often all meet in one task.
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
    """The hash of an int by which Spark spreads groups. Source: org.apache.spark.sql.functions.hash."""
    mask = 0xFFFFFFFF

    def rotated(value: int, by: int) -> int:
        return ((value << by) | (value >> (32 - by))) & mask

    mixed = rotated((number & mask) * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    hashed = (rotated(seed ^ mixed, 13) * 5 + 0xE6546B64) & mask
    hashed ^= 4  # how many bytes
    hashed = (hashed ^ (hashed >> 16)) * 0x85EBCA6B & mask
    hashed = (hashed ^ (hashed >> 13)) * 0xC2B2AE35 & mask
    return hashed ^ (hashed >> 16)
