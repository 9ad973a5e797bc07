"""Which core of the kernel an item of an operator runs in, and with which settings. Pure."""

from __future__ import annotations

from millstream.physical.kernel_joins import Join, Side, settings_of
from millstream.topology.nodes import Aggregate, Node, Suppress, TableSource, ToTable
from millstream.topology.windows import (
    DailyTimeWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)

__all__ = ["core_of", "limits_of"]


def core_of(
    node: Node, *, remembers: bool, history_ms: int | None, is_windowed: bool
) -> tuple[str, dict[str, int]]:
    """The kernel's core for an item, and its settings.

    Args:
        remembers: its updates carry the old value.
        history_ms: for a table whose updates say whether they are late: how long its versions are kept.
        is_windowed: for a suppress: whether its keys have windows.
    """
    if isinstance(node, Join | Side):
        return settings_of(node)
    old = {"old": 1} if remembers else {}
    if isinstance(node, TableSource | ToTable):
        if history_ms is not None:
            return "versions", {**old, "history": history_ms}
        return "latest", old
    if isinstance(node, Suppress):
        return "suppress", {**limits_of(node), "windowed": int(is_windowed)}
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


def limits_of(node: Suppress) -> dict[str, int]:
    """How much a suppress holds back, and for how long, as settings of its core."""
    limits = {"records": node.record_limit, "bytes": node.byte_limit}
    return {
        "until_close": int(node.until_close),
        "delay": node.delay_ms,
        "stops": int(node.stops_when_full),
        "logged": int(node.stored.logged),
        **{name: limit for name, limit in limits.items() if limit is not None},
    }
