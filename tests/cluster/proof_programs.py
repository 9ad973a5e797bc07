"""The programs that show that each record counts once; proof.py says what they have to have written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pyspark.sql.functions import concat_ws, substring_index, upper

from millstream import (
    BufferConfig,
    Consumed,
    Grouped,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    Windowed,
)
from millstream.processors.api import Processor, ProcessorContext, Record

__all__ = ["build_proof"]

_TEXTS = Consumed.with_(Serdes.string(), Serdes.string())
_NUMBER = Produced.with_(Serdes.string(), Serdes.long())


def build_proof(spec: dict[str, Any], check: Callable[[Any], Any] | None) -> Topology:
    """What shows that each record counts once: each of proof.py's programs that `proof` has an output for.
    The key of a record is its number and its value, `17-w3`. `rows` and `everywhere` are the topics of the
    tables that are joined, which have a row for each value. `check` is called with each value.
    """
    outputs: dict[str, str] = spec["proof"]
    builder = StreamsBuilder()
    stream = builder.stream(spec["source"], _TEXTS)
    if check is not None:
        stream = stream.map_values(lambda value: check(value))
    _count_each_way(stream, outputs)
    if "rows" in spec:
        _join_each_way(builder, stream, spec["rows"], spec["everywhere"], outputs)
    if "processed" in outputs:
        _process(stream, outputs["processed"])
    return builder.build()


def _count_each_way(stream: KStream[str, str], outputs: dict[str, str]) -> None:
    """`map` has each record; `count` the updates of a count by value (store `counts`); `windows` and
    `sessions` those of one by value and window; `final` the counts of windows that have closed; `chain`
    those of a count by value of the updates of a count by key, which is another pipeline, behind a topic.
    """
    if "map" in outputs:
        stream.map_values(lambda value: upper(value)).to(outputs["map"])
    by_value = stream.group_by(lambda key, value: value)
    if "count" in outputs:
        by_value.count(Materialized.as_("counts")).to_stream().to(outputs["count"], _NUMBER)
    windows: dict[str, Callable[[], KTable[Windowed[str], int]]] = {
        "windows": lambda: by_value.windowed_by(
            TimeWindows.of_size_and_grace(timedelta(seconds=5), timedelta(hours=1))
        ).count(Materialized.as_("windows")),
        "sessions": lambda: by_value.windowed_by(
            SessionWindows.of_inactivity_gap_and_grace(timedelta(milliseconds=200), timedelta(hours=1))
        ).count(Materialized.as_("sessions")),
        "final": lambda: (
            by_value.windowed_by(TimeWindows.of_size_and_grace(timedelta(seconds=5), timedelta(seconds=2)))
            .count()
            .suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
        ),
    }
    for name, counted in windows.items():
        if name in outputs:
            text = (
                counted()
                .to_stream()
                .select_key(lambda key, value: concat_ws("@", key.key, key.window.start.cast("string")))
            )
            text.to(outputs[name], _NUMBER)
    if "chain" in outputs:
        each = stream.group_by_key().count(Materialized.as_("each")).to_stream()
        again = each.group_by(
            lambda key, value: substring_index(key, "-", -1), Grouped.with_(Serdes.string(), Serdes.long())
        )
        again.count(Materialized.as_("chained")).to_stream().to(outputs["chain"], _NUMBER)


def _join_each_way(
    builder: StreamsBuilder, stream: KStream[str, str], rows: str, everywhere: str, outputs: dict[str, str]
) -> None:
    """`table`: by its value with the row that a table has for that, and a count behind it (store `matched`);
    `global`: likewise, with a global table; `stream`: with itself, by its key; `tables`: the table of records
    with a count by key; `foreign`: that table by a foreign key, its value; `grouped`: the updates of how many
    rows of the table have a value.
    """
    table = builder.table(rows, _TEXTS, Materialized.as_("rows"))
    if "table" in outputs:
        by_value = stream.map(lambda key, value: (value, key))
        joined = by_value.join(table, lambda key, row: concat_ws(" ", key, row))
        joined.to(outputs["table"])
        joined.group_by_key().count(Materialized.as_("matched"))
    if "global" in outputs:
        global_table = builder.global_table(everywhere, _TEXTS)
        found = stream.join(
            global_table, lambda key, value: value, lambda value, row: concat_ws(" ", value, row)
        )
        found.to(outputs["global"])
    if "stream" in outputs:
        within = JoinWindows.of_time_difference_and_grace(timedelta(hours=1), timedelta(hours=1))
        stream.join(stream, lambda one, other: concat_ws(" ", one, other), within).to(outputs["stream"])
    if not outputs.keys() & {"tables", "foreign", "grouped"}:
        return
    records = stream.to_table()
    if "tables" in outputs:
        counted = records.join(
            stream.group_by_key().count(), lambda value, count: concat_ws(" ", value, count)
        )
        counted.to_stream().to(outputs["tables"])
    if "foreign" in outputs:
        named = records.join(table, lambda value: value, lambda value, row: concat_ws(" ", value, row))
        named.to_stream().to(outputs["foreign"])
    if "grouped" in outputs:
        grouped = records.group_by(lambda key, value: (value, key)).count()
        grouped.to_stream().to(outputs["grouped"], _NUMBER)


class Count(Processor):
    """Forwards each record with its place among those of its value in its partition."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.counts = context.get_state_store("places")

    def process(self, record: Record) -> None:
        count = (self.counts.get(record.value) or 0) + 1
        self.counts.put(record.value, count)
        self.context.forward(record.with_value(f"{record.value} {count}"))


class Recent(Processor):
    """Forwards each record with how many there are of its value in all windows."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.recent = context.get_state_store("recent")

    def process(self, record: Record) -> None:
        word, place = record.value.split()
        self.recent.put(word, record.key, int(place))  # each in a window of its own
        with self.recent.fetch(word, 0, 3_600_000) as found:
            count = sum(1 for _ in found)
        self.context.forward(record.with_value(f"{record.value} {count}"))


def _process(stream: KStream[str, str], output: str) -> None:
    """Each record, with what two processors make of it, one behind the other, each with a store."""
    text = Serdes.string()
    places = Stores.key_value_store_builder(Stores.persistent_key_value_store("places"), text, Serdes.long())
    hours = timedelta(hours=2)
    recent = Stores.window_store_builder(
        Stores.persistent_window_store("recent", hours, timedelta(milliseconds=1)), text, text
    )
    stream.process(Count, places).process(Recent, recent).to(output)
