"""The program of takeover/TakeoverAll.java in Python."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream import (
    BufferConfig,
    Consumed,
    Grouped,
    JoinWindows,
    KeyValueStore,
    Materialized,
    Processor,
    Produced,
    Record,
    Serdes,
    SessionWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)

__all__ = ["INPUTS", "OUTPUTS", "SETTINGS", "made"]

INPUTS = ("words", "clicks", "views", "users", "orders")
OUTPUTS = (
    *("counts", "lengths", "texts", "windows", "sessions", "inner", "left", "outer", "tables", "foreign"),
    *("same", "numbered", "slow", "closed", "ended", "tens"),
)
SETTINGS = {
    "processing.guarantee": "exactly_once_v2",
    "statestore.cache.max.bytes": "0",
    "topology.optimization": "reuse.ktable.source.topics",
    "commit.interval.ms": "100",
}
TEXT, NUMBER = Serdes.string(), Serdes.long()


def text(key: Any, value: Column) -> Column:
    """A windowed key and its window."""
    window = key.window
    return F.format_string("%s@%d-%d", key.key, F.unix_millis(window.start), F.unix_millis(window.end))


def both(left: Column, right: Column) -> Column:
    return F.concat_ws("+", F.coalesce(left, F.lit("null")), F.coalesce(right, F.lit("null")))


class Numbered(Processor):
    """Numbers the records of each key."""

    def init(self, context: Any) -> None:
        self.context = context
        self.seen: KeyValueStore[str, int] = context.get_state_store("seen")

    def process(self, record: Record) -> None:
        number = (self.seen.get(record.key) or 0) + 1
        self.seen.put(record.key, number)
        self.context.forward(record.with_value(f"{record.value}#{number}"))


def made(prefix: str) -> Topology:
    """The topology over topics with this prefix."""
    builder = StreamsBuilder()
    texts, numbers = Produced.with_(TEXT, TEXT), Produced.with_(TEXT, NUMBER)
    words, clicks, views = (
        builder.stream(f"{prefix}{name}", Consumed.with_(TEXT, TEXT)) for name in INPUTS[:3]
    )
    users, orders = (
        builder.table(f"{prefix}{name}", Consumed.with_(TEXT, TEXT), Materialized.as_(name))
        for name in INPUTS[3:]
    )
    counts = words.group_by_key(Grouped.with_(TEXT, TEXT)).count(Materialized.as_("counts"))
    counts.to_stream().to(f"{prefix}counts", numbers)
    slow = Suppressed.until_time_limit(timedelta(seconds=2), BufferConfig.unbounded())
    counts.suppress(slow).to_stream().to(f"{prefix}slow", numbers)
    lengths = Materialized.as_("lengths").with_value_serde(NUMBER)
    summed = words.group_by_key(Grouped.with_(TEXT, TEXT)).aggregate(
        lambda key, value: F.sum(F.length(value)), lengths
    )
    summed.to_stream().to(f"{prefix}lengths", numbers)
    joined = words.group_by_key(Grouped.with_(TEXT, TEXT)).reduce(
        lambda one, other: f"{one},{other}", Materialized.as_("texts")
    )
    joined.to_stream().to(f"{prefix}texts", texts)
    size = TimeWindows.of_size_and_grace(timedelta(seconds=10), timedelta(seconds=5))
    closed = Suppressed.until_window_closes(BufferConfig.unbounded())
    by_value = words.group_by(lambda key, value: value, Grouped.with_(TEXT, TEXT).with_name("by-value"))
    windows = by_value.windowed_by(size).count(Materialized.as_("windows"))
    windows.to_stream(text).to(f"{prefix}windows", numbers)
    windows.suppress(closed).to_stream(text).to(f"{prefix}closed", numbers)
    tens = windows.map_values(lambda number: number * 10, Materialized.with_(None, NUMBER))
    tens.suppress(closed).to_stream(text).to(f"{prefix}tens", numbers)
    gap = SessionWindows.of_inactivity_gap_and_grace(timedelta(seconds=3), timedelta(seconds=5))
    visits = words.group_by_key(Grouped.with_(TEXT, TEXT)).windowed_by(gap)
    sessions = visits.count(Materialized.as_("sessions"))
    sessions.to_stream(text).to(f"{prefix}sessions", numbers)
    sessions.suppress(closed).to_stream(text).to(f"{prefix}ended", numbers)

    near = JoinWindows.of_time_difference_and_grace(timedelta(seconds=5), timedelta(seconds=2))
    for name, join in (("inner", clicks.join), ("left", clicks.left_join), ("outer", clicks.outer_join)):
        options = StreamJoined.with_(TEXT, TEXT, TEXT).with_store_name(name).with_name(name)
        join(views, both, near, options).to(f"{prefix}{name}", texts)

    users.outer_join(orders, both).to_stream().to(f"{prefix}tables", texts)
    orders.left_join(users, lambda order: F.substring(order, 1, 1), both).to_stream().to(
        f"{prefix}foreign", texts
    )
    grouped = users.group_by(
        lambda key, value: (value, value), Grouped.with_(TEXT, TEXT).with_name("users-by-value")
    )
    grouped.count(Materialized.as_("same")).to_stream().to(f"{prefix}same", numbers)

    builder.add_state_store(
        Stores.key_value_store_builder(Stores.persistent_key_value_store("seen"), TEXT, NUMBER)
    )
    words.process(Numbered, "seen").to(f"{prefix}numbered", texts)
    return builder.build(SETTINGS)
