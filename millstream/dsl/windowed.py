"""Windowed groups: records grouped by key and window, ready to be aggregated.

The resulting tables have windowed keys. In functions of Columns such a key is a struct:
`key.key` is the key itself, `key.window.start` and `key.window.end` are timestamps, and `windowed_text(key)`
is its text. In Python it is a `Windowed`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, overload

from millstream.dsl.aggregations import Aggregating, Unmerged
from millstream.dsl.emission import EmitStrategy
from millstream.dsl.ktable import KTable
from millstream.dsl.options import Materialized, Named
from millstream.errors import TopologyException
from millstream.not_there import ExplainsMissingNames
from millstream.serdes.serde import Serde
from millstream.topology.columns import Expression, Folder
from millstream.topology.windows import UnlimitedWindows, Windows

if TYPE_CHECKING:
    from typing import Self

    from pyspark.sql import Column

__all__ = ["SessionWindowedKStream", "TimeWindowedKStream", "windowed_text"]


class _WindowedKStream(Aggregating, ExplainsMissingNames):
    """What both kinds have in common. `table_of` is the group's own way to make a table."""

    def __init__(self, table_of: Callable[..., KTable], windows: Windows, value_serde: Serde | None) -> None:
        super().__init__(value_serde, windows)
        self._table_of = table_of
        self._emit_strategy = EmitStrategy.on_window_update()

    def emit_strategy(self, emit_strategy: EmitStrategy) -> Self:
        """The same windows, emitting every value, or only the last one.

        `windowed.emit_strategy(EmitStrategy.on_window_close()).count()`

        `EmitStrategy.on_window_close()` emits a window's value once, when stream time has passed the window's
        end and its grace period. Sessions that were merged into others are never emitted. The store has every
        value in any case.

        Raises:
            TopologyException: `emit_strategy` is not one, or it waits for unlimited windows to close.

        Source: KIP-825.
        Differs: it returns a new object; Kafka Streams changes this one too. Results are emitted with the
            record that closes the window; in Kafka Streams, within a second.
        """
        if not isinstance(emit_strategy, EmitStrategy):
            raise TopologyException(
                "emit_strategy() takes EmitStrategy.on_window_close() or EmitStrategy.on_window_update(), "
                f"got {emit_strategy!r}"
            )
        if isinstance(self._windows, UnlimitedWindows) and emit_strategy == EmitStrategy.on_window_close():
            raise TopologyException("on_window_close() cannot be used for UnlimitedWindows: they never close")
        other = copy(self)
        other._emit_strategy = emit_strategy
        return other

    def _table(self, *arguments: Any, **options: Any) -> KTable:
        on_close = self._emit_strategy == EmitStrategy.on_window_close()
        return self._table_of(*arguments, **options, windows=self._windows, on_close=on_close)


class TimeWindowedKStream(_WindowedKStream, Unmerged):
    """Records grouped by key and window, in windows of one size.

    Source: org.apache.kafka.streams.kstream.TimeWindowedKStream.
    Differs: with a cache, a changed window's value is emitted once per commit.
    """


class SessionWindowedKStream(_WindowedKStream):
    """Records grouped by key and session.

    Source: org.apache.kafka.streams.kstream.SessionWindowedKStream.
    Differs: as with TimeWindowedKStream. A session merged into another is deleted from the table, as a null
        value in its stream, in the same transaction.
    """

    @overload
    def aggregate(
        self,
        expression: Expression,
        /,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable: ...

    @overload
    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Folder,
        merger: Folder,
        /,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable: ...

    def aggregate(
        self,
        first: Any,
        /,
        *rest: Any,
        materialized: Materialized | None = None,
        named: str | Named | None = None,
    ) -> KTable:
        """One value of any type.

        `aggregate(lambda key, value: F.sum(value.amount))` aggregates by Spark expressions whose partial
        results can be merged, because sessions merge (count, sum, min, max, avg, …).
        `aggregate(lambda: 0, lambda key, value, aggregate: …, lambda key, one, other: …)` folds in Python,
        record by record, and merges with the third function.
        """
        return self._aggregate(first, rest, materialized, named, merges=True)


def windowed_text(key: Column) -> Column:
    """The text of a windowed key as a Column, `[alice@0/60000]`: the key, and beginning and end of its window
    in milliseconds since the epoch.

        counts.to_stream(lambda key, count: windowed_text(key)).to("counts")

    In Python a `Windowed` has the same text, if its key is a string or a whole number.

    Source: org.apache.kafka.streams.kstream.Windowed.toString.
    """
    from pyspark.sql import functions as F

    start, end = (F.unix_millis(key["window"][side]) for side in ("start", "end"))
    return F.format_string("[%s@%d/%d]", key["key"].cast("string"), start, end)
