"""Windowed Python folds: one operator of a flow.

A Python function decides, for each key of a micro-batch, which windows there are (window_state.py), and calls
the user's fold.

A call of Python costs Spark and pandas more than a millisecond, and a key a few microseconds. So keys are put
into buckets by a hash, and Python is called once for each bucket of a micro-batch, with what is kept of all
its keys.

State that is no longer needed goes when stream time has passed it: that of a key when its bucket is next
called, that of a whole bucket in any case.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.dsl.serdes import Serde
from millstream.errors import TopologyException
from millstream.spark import serdes
from millstream.spark.aggregate import (
    EVENT_TIME,
    Made,
    Pending,
    fold_of,
    windowed_key,
    with_context,
    with_stream_time,
)
from millstream.spark.flow import OFFSET, PARTITION, TIMESTAMP, TOPIC, Flow, Lane, Names
from millstream.spark.folding import FoldSerdes
from millstream.spark.window_state import Change, update
from millstream.topology.functions import describe_function
from millstream.topology.nodes import Fold
from millstream.topology.windows import Windows

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

__all__ = ["merge_windows"]

_STATE = "kept string"
_RESULT = "group binary, change string"
_CHANGE = T.StructType(
    [
        T.StructField("start", T.LongType()),
        T.StructField("end", T.LongType()),
        T.StructField("value", T.StringType()),
    ]
)
_NEVER = 2**62
_BUCKETS = 256
"""What is kept of a bucket is read and written as a whole: with more buckets that is less, with fewer there
are fewer calls. It is in the state's keys, so it stays as it is."""
_TAG = 2
"""How many bytes of a group are the number of its aggregation; the others are its key."""


@dataclass(frozen=True)
class _Item:
    """One aggregation of the operator, for the compiler."""

    pending: Pending
    key: str
    key_serde: Serde
    fold: FoldSerdes


def merge_windows(pending: list[tuple[Pending, FoldSerdes]], names: Names) -> Made:
    """These aggregations of one flow, each with its serdes."""
    _need_pandas(pending[0][0].node.name)
    flow = pending[0][0].flow
    df = with_stream_time(flow.df, [item for item, _ in pending], names)
    items = []
    for item, using in pending:
        assert item.group_key_serde is not None
        items.append(_Item(item, names.new("k"), item.group_key_serde, using))

    # Few columns: what costs is a column of a call, not its length.
    record = names.new("r")
    records = F.array(*(F.when(item.pending.belongs, _record(i, item)) for i, item in enumerate(items)))
    rows = df.select(F.explode(records).alias(record)).where(F.col(record).isNotNull()).select(f"{record}.*")
    # Python decides what is late, so for Spark nothing must be: this time never comes, and Spark cannot know
    # that it is the same for all rows. A number, because it is handed to Python too, which takes longer for a
    # timestamp.
    never = (F.length("record") * 0 + F.lit(_NEVER)).cast("bigint")
    bucket = F.pmod(F.crc32("group"), F.lit(_BUCKETS)).cast("int")
    rows = rows.select("*", bucket.alias("bucket"), never.alias("never", metadata=EVENT_TIME))
    step = _stepping([_work(item) for item in items])
    made = rows.groupBy("bucket").applyInPandasWithState(step, _RESULT, _STATE, "update", "EventTimeTimeout")
    group, change, number, stamp = (names.new(kind) for kind in "bjns")
    made = made.withColumnsRenamed({"group": group, "change": change})
    made = made.withColumn(number, F.conv(F.hex(F.substring(group, 1, _TAG)), 16, 10).cast("int"))
    latest = F.get_json_object(change, "$.at").cast("bigint")
    made = made.withColumn(stamp, F.timestamp_millis(latest))
    new = Flow(with_context(made, stamp), names)
    several = len(items) > 1
    return new, {
        item.pending.node: _lane(i, item, new, F.col(number) == i, group, change, several=several)
        for i, item in enumerate(items)
    }


def _need_pandas(name: str) -> None:
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise TopologyException(
            f"{name}: windowed aggregations in Python need pandas; install millstream[pandas], or take "
            "Spark's aggregate functions: aggregate(lambda key, value: F.sum(value))"
        ) from None


def _record(number: int, item: _Item) -> Column:
    """What goes to Python of one record: its aggregation and key, and all else as JSON."""
    pending = item.pending
    flow, lane, name = pending.flow, pending.lane, pending.node.name
    value = serdes.to_bytes(
        item.fold.value, F.col(lane.value), flow.type_of(lane.value), f"{name}: the value"
    )
    key = serdes.to_bytes(item.key_serde, F.col(lane.key), flow.type_of(lane.key), f"{name}: the key")
    record = F.struct(
        F.unix_millis(F.col(TIMESTAMP)).alias("at"),
        F.col(TOPIC).alias("topic"),
        F.col(PARTITION).alias("partition"),
        F.col(OFFSET).alias("offset"),
        F.base64(value).alias("value"),
    )
    tag = F.lit(bytearray(number.to_bytes(_TAG, "big")))
    return F.struct(F.concat(tag, key).alias("group"), F.to_json(record).alias("record"))


def _lane(
    index: int, item: _Item, new: Flow, mine: Column, group: str, change: str, *, several: bool
) -> Lane:
    """The results of one aggregation, with its own key and value columns."""
    name = item.pending.node.name
    data = F.when(mine, F.substring(F.col(group), F.lit(_TAG + 1), F.octet_length(group)))
    read = serdes.from_bytes(item.key_serde, data, F.lit(f"{name}: a key"))
    new.df = new.df.withColumn(item.key, read)
    told = new.with_column("m", F.from_json(F.when(mine, F.col(change)), _CHANGE))
    key = new.with_column("k", windowed_key(F.col(item.key), F.col(told)["start"], F.col(told)["end"]))
    where = F.lit(f"{name}: result of {describe_function(fold_of(item.pending.node).adder)}")
    found = F.unbase64(F.col(told)["value"])
    value = new.with_column("v", serdes.from_bytes(item.fold.aggregate, found, where))
    keep = new.with_column("f", mine) if several else None
    return Lane(key, value, keep, item.pending.windowed_serde(item.key_serde), item.fold.aggregate)


# --- on the worker ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FoldAlgebra:
    """The user's functions, for one key. An aggregate is kept as the text of what its serde writes."""

    fold: Fold
    using: FoldSerdes
    key: Any

    def initial(self) -> str | None:
        """None where the first value is the first aggregate."""
        return None if self.fold.initializer is None else self._text(self.fold.initializer())

    def add(self, aggregate: str | None, payload: str | None) -> str | None:
        """One call of the adder."""
        value = None if payload is None else self.using.value.deserialize(b64decode(payload))
        if self.fold.initializer is None:
            return self._text(value if aggregate is None else self.fold.adder(self._value(aggregate), value))
        return self._text(self.fold.adder(self.key, value, self._value(aggregate)))

    def merge(self, one: str | None, other: str | None) -> str | None:
        """One call of the merger, or of a reduce's function."""
        if self.fold.initializer is None:
            if one is None or other is None:
                return other if one is None else one
            return self._text(self.fold.adder(self._value(one), self._value(other)))
        assert self.fold.merger is not None
        return self._text(self.fold.merger(self.key, self._value(one), self._value(other)))

    def payload(self, record: dict[str, Any]) -> str | None:
        """A record's value, as JSON can express it: sliding windows keep values."""
        return record.get("value")

    def result(self, aggregate: str | None) -> dict[str, Any]:
        """What the serde has written."""
        return {"value": aggregate}

    def _text(self, aggregate: Any) -> str | None:
        data = self.using.aggregate.serialize(aggregate)
        return None if data is None else b64encode(data).decode()

    def _value(self, text: str | None) -> Any:
        return None if text is None else self.using.aggregate.deserialize(b64decode(text))


@dataclass(frozen=True)
class _Work:
    """One aggregation, as the worker knows it."""

    windows: Windows
    algebra: Callable[[bytes], _FoldAlgebra]


def _work(item: _Item) -> _Work:
    windows = item.pending.windows
    assert windows is not None
    return _Work(windows, partial(_folding, fold_of(item.pending.node), item.fold))


def _folding(fold: Fold, using: FoldSerdes, key: bytes) -> _FoldAlgebra:
    return _FoldAlgebra(fold, using, using.key.deserialize(key))


def _stepping(
    work: list[_Work],
) -> Callable[[tuple[Any, ...], Iterable[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    """The function that Spark calls on a worker, once for each bucket of a micro-batch.

    It keeps, for each key, until when that is needed and what `update` wants to have kept.
    """

    def step(
        _: tuple[Any, ...], batches: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        import pandas as pd

        if state.hasTimedOut:
            state.remove()
            return
        stream_time = state.getCurrentWatermarkMs()
        kept: dict[str, list[Any]] = json.loads(state.get[0]) if state.exists else {}
        kept = {name: one for name, one in kept.items() if one[0] >= stream_time}
        groups, changes = [], []
        for group, texts in _by_group(batches):
            mine = work[int.from_bytes(group[:_TAG], "big")]
            algebra = mine.algebra(group[_TAG:])
            name = b64encode(group).decode()
            before = kept[name][1] if name in kept else []
            outcome = update(mine.windows, algebra, before, _records(texts, algebra), stream_time)
            if outcome.kept and outcome.expires_ms >= stream_time:
                kept[name] = [outcome.expires_ms, outcome.kept]
            else:
                kept.pop(name, None)
            groups += [group] * len(outcome.changes)
            changes += [_told(change, algebra) for change in outcome.changes]
        if kept:
            state.update((json.dumps(kept, separators=(",", ":")),))
            state.setTimeoutTimestamp(max(until for until, _ in kept.values()) + 1)
        elif state.exists:
            state.remove()
        if changes:
            yield pd.DataFrame({"group": groups, "change": changes})

    return step


def _by_group(batches: Iterable[pd.DataFrame]) -> Iterable[tuple[bytes, list[str]]]:
    """The records of each aggregation and key."""
    found: dict[bytes, list[str]] = {}
    for batch in batches:
        for group, text in zip(batch["group"].tolist(), batch["record"].tolist(), strict=True):
            found.setdefault(bytes(group), []).append(text)
    return found.items()


def _records(texts: list[str], algebra: _FoldAlgebra) -> list[tuple[int, Any]]:
    """Timestamps and payloads, in the order that Kafka keeps and a shuffle does not: that in a partition."""
    # Parsed at once: that is half of the work for a record.
    rows: list[dict[str, Any]] = json.loads(f"[{','.join(texts)}]")
    if len(rows) > 1:
        rows.sort(key=lambda row: (row["topic"], int(row["partition"]), int(row["offset"])))
    return [(int(row["at"]), algebra.payload(row)) for row in rows]


def _told(change: Change, algebra: _FoldAlgebra) -> str:
    """A change as JSON; it has no value where the window is gone."""
    fields = {"start": change.start_ms, "end": change.end_ms, "at": change.timestamp}
    if change.aggregate is not None:
        fields |= algebra.result(change.aggregate)
    return json.dumps(fields, allow_nan=False, separators=(",", ":"))
