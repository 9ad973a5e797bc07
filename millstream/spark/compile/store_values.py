"""What the stores of an operator have in bytes: how values are written, and what a value says of the parts
that the kernel goes on merging.

A changelog has Kafka Streams' keys and values, so that each of the two goes on where the other has stopped.
What Millstream needs besides is in a header. If Kafka Streams has written a record, there is none, and the
parts are what its value says (kernel: StoredValues). If it does not say them, the store is closed to a
takeover.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream.physical.kernel_joins import Side
from millstream.serdes.serde import Serde
from millstream.serdes.windowed_serdes import WindowedSerde
from millstream.spark.compile import serde_columns
from millstream.spark.compile.building import Building
from millstream.spark.compile.kernel_operators import Item
from millstream.topology.names import changelog_topic
from millstream.topology.nodes import Aggregate, Node, StreamJoin, StreamTableJoin, Suppress
from millstream.topology.windows import SessionWindows

__all__ = ["alone_of", "values_of"]

_VALUES, _HELD, _HELD_WINDOWS, _HELD_SESSIONS = "values", "held", "held windows", "held sessions"
"""Forms of changelogs that have nothing but Kafka Streams' own (kernel: TaskPlan.Store)."""


def alone_of(building: Building, item: Item) -> dict[str, int]:
    """A setting of a side of a join of streams: where those of its records are that wait for a match."""
    side = item.pending.node
    if not _is_of_stream(side) or not serde_columns.is_of_spark(_serde_of_side(building, item)):
        return {}
    assert isinstance(side, Side)
    assert isinstance(side.join, StreamJoin)
    if side.join.outer_stored is None or len(side.join.parents) == 1:
        return {}
    outer = building.stores.of_item(side.join)
    building.stores.set_form(outer, _VALUES)
    return {"outer": outer, "outer_left": int(side.is_left)}


def values_of(building: Building, items: Sequence[Item], called: Mapping[str, str]) -> list[Column]:
    """For each item of an operator, the bytes of a value of its store; and then for each, the parts that a
    value in `result_headers` says, in a struct. NULL where there is none."""
    written, said = [], []
    for item in items:
        values, parts = _of_item(building, item, called)
        written.append(F.lit(None).cast("binary") if values is None else values)
        said.append(
            F.lit(None) if parts is None else F.when(F.col(called["result_headers"]).isNotNull(), parts)
        )
        for suppress in item.held_back:
            _set_form_of_held(building, suppress, _kind_of(item), is_said=parts is not None)
    return [*written, *said]


def _of_item(
    building: Building, item: Item, called: Mapping[str, str]
) -> tuple[Column | None, Column | None]:
    waiting = item.pending.node
    node = building.stands_for.get(waiting, waiting)
    value = F.col(called["result_headers"])
    if _is_of_stream(waiting):
        return _of_side(building, item, value)
    if isinstance(node, StreamTableJoin) and node.stored is not None and node.stored.logged:
        building.closed[node.stored.name] = "a record that waits for its row is kept with where it came from"
    store = node.store
    if store is None or store.name not in building.store_serdes:
        return building.stored.get(waiting), None
    parts = _parts(building, item, building.store_serdes[store.name][1], value, called)
    if isinstance(node, Suppress):
        _set_form_of_held(building, node, _kind_of(item), is_said=not isinstance(parts, str))
    elif isinstance(parts, str):
        building.closed[store.name] = parts
    return building.stored.get(waiting), None if isinstance(parts, str) else parts


def _parts(
    building: Building, item: Item, serde: Serde, value: Column, called: Mapping[str, str]
) -> Column | str:
    """The parts that a value says, or why it does not say them."""
    *window, last = item.parts.parts
    if item.using is not None:
        return F.struct(value.alias(last.name))  # a fold's part is its result
    if not serde_columns.is_of_spark(serde):
        return _in_python(serde)
    read = serde_columns.from_bytes(serde, value, F.lit(f"{item.pending.node.name}: a value of its store"))
    if isinstance(item.pending.node, Aggregate):
        parts = item.parts.parts_of(read)
        if parts is None:
            return f"{', '.join(sorted(item.parts.hidden))} needs more than its result to go on"
        return parts
    bounds = (
        F.col(called[name]).alias(part.name) for name, part in zip(("start", "end"), window, strict=False)
    )
    return F.struct(*bounds, read.cast(last.type).alias(last.name))


def _in_python(serde: Serde) -> str:
    return f"its values are read and written in Python, by the serde '{serde.name}'"


# --- joins of streams --------------------------------------------------------------------------------------


def _is_of_stream(node: Node) -> bool:
    return isinstance(node, Side) and not node.is_of_table


def _serde_of_side(building: Building, item: Item) -> Serde:
    side = item.pending.node
    assert isinstance(side, Side)
    assert isinstance(side.join, StreamJoin)
    store = side.join.this_stored if side.is_left else side.join.other_stored
    default, inherited = building.context.default_value_serde, item.pending.lane.value_serde
    serde = building.settle(store.value_serde, inherited, default, item.parts.type)
    return building.bound(serde, changelog_topic(building.context.application_id, store.name))


def _of_side(building: Building, item: Item, value: Column) -> tuple[Column | None, Column | None]:
    (part,), side = item.parts.parts, item.pending.node
    assert isinstance(side, Side)
    serde = _serde_of_side(building, item)
    if not serde_columns.is_of_spark(serde):
        building.closed[side.label] = _in_python(serde)
        return None, None
    building.stores.set_form(building.stores.of_item(side), _VALUES)
    what = f"{side.name}: a value"
    content = serde_columns.to_bytes(serde, F.col(part.name).cast(item.parts.type), item.parts.type, what)
    read = serde_columns.from_bytes(serde, value, F.lit(what))
    return content, F.struct(read.cast(part.type).alias(part.name))


# --- what a suppress holds back ----------------------------------------------------------------------------


def _kind_of(item: Item) -> str:
    """How the keys of an item's updates say their windows."""
    windows = item.pending.windows
    if windows is not None:
        return _HELD_SESSIONS if isinstance(windows, SessionWindows) else _HELD_WINDOWS
    serde = item.pending.lane.key_serde
    if item.window is None or not isinstance(serde, WindowedSerde):
        return _HELD
    return _HELD_SESSIONS if serde.window_size_ms is None else _HELD_WINDOWS


def _set_form_of_held(building: Building, suppress: Suppress, kind: str, *, is_said: bool) -> None:
    store = suppress.stored
    if not is_said:
        building.closed[store.name] = "it holds back values that do not say enough to go on"
    elif kind == _HELD_WINDOWS and not suppress.until_close:
        building.closed[store.name] = (
            "it holds back windows for a time, and their keys do not say when they end"
        )
    else:
        building.stores.set_form(building.stores.of_topology(store), kind)
