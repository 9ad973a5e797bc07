"""What becomes of a key's windows when records come: for Python folds, which are called record by record.

Here, once for each key of a micro-batch, is decided which windows there are, which have changed and which are
gone. Pure: what was kept, and records, in; what to keep, and changes, out.

What is kept is made of lists, text and numbers, so that it can be written as JSON.

Source: KStreamSessionWindowAggregate, KStreamSlidingWindowAggregate, KStreamWindowAggregate.
Differs: what is late is decided by the stream time before the micro-batch, and a window's value goes out
    once for a micro-batch. A session is never dropped by the retention of a store.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from millstream.topology.windows import SessionWindows, SlidingWindows, TimeWindows, Windows

__all__ = ["Algebra", "Change", "Outcome", "update"]

Aggregate = Any


class Algebra(Protocol):
    """How values are aggregated. An aggregate, and a record's payload, is something that JSON can express."""

    def initial(self) -> Aggregate:
        """The aggregate of no records."""

    def add(self, aggregate: Aggregate, payload: Any) -> Aggregate:
        """With one more record."""

    def merge(self, one: Aggregate, other: Aggregate) -> Aggregate:
        """Of the records of both."""


class Change(NamedTuple):
    """A window's new value; None: there is no such window any more. `timestamp`: of its last record."""

    start_ms: int
    end_ms: int
    aggregate: Aggregate
    timestamp: int


class Outcome(NamedTuple):
    """What follows from records.

    Attributes:
        kept: to be handed in when more records come; empty: nothing.
        changes: deletions first.
        expires_ms: when stream time is past this, nothing of what is kept is needed any more.
    """

    kept: list[Any]
    changes: list[Change]
    expires_ms: int


def update(
    windows: Windows,
    algebra: Algebra,
    kept: Sequence[Any],
    records: Sequence[tuple[int, Any]],
    stream_time_ms: int,
) -> Outcome:
    """Take in `records`, pairs of timestamp and payload, in their order."""
    if isinstance(windows, SessionWindows):
        return _sessions(windows, algebra, kept, records, stream_time_ms)
    if isinstance(windows, SlidingWindows):
        return _sliding(windows, algebra, kept, records, stream_time_ms)
    return _fixed(windows, algebra, kept, records, stream_time_ms)


def _sessions(
    windows: SessionWindows,
    algebra: Algebra,
    kept: Sequence[Any],
    records: Sequence[tuple[int, Any]],
    stream_time_ms: int,
) -> Outcome:
    """Kept: [start, end, aggregate] of each session, in order."""
    gap = windows.gap_ms
    closes = stream_time_ms - windows.grace_ms - gap
    sessions = [tuple(session) for session in kept]
    before = {(start, end) for start, end, _ in sessions}
    touched: set[tuple[int, int]] = set()
    for timestamp, payload in records:
        # Those that the record touches stand next to each other: gaps between sessions are longer.
        first = bisect_left(sessions, timestamp - gap, key=_end)
        last = bisect_right(sessions, timestamp + gap, key=_start)
        found = sessions[first:last]
        start = min([timestamp, *(session[0] for session in found)])
        end = max([timestamp, *(session[1] for session in found)])
        if end < closes:
            continue
        aggregate = algebra.initial()
        for session in found:
            aggregate = algebra.merge(aggregate, session[2])
        sessions[first:last] = [(start, end, algebra.add(aggregate, payload))]
        touched.add((start, end))
    now = {(start, end): aggregate for start, end, aggregate in sessions}
    deleted = [Change(*key, None, _covering(sessions, key[0])) for key in sorted(before - set(now))]
    changed = [Change(*key, now[key], key[1]) for key in sorted(touched & set(now))]
    sessions = _reachable(sessions, gap, closes)
    expires = max((end for _, end, _ in sessions), default=0) + 2 * gap + windows.grace_ms
    return Outcome([list(session) for session in sessions], deleted + changed, expires)


def _start(session: tuple[Any, ...]) -> int:
    start: int = session[0]
    return start


def _end(session: tuple[Any, ...]) -> int:
    end: int = session[1]
    return end


def _covering(sessions: list[tuple[Any, ...]], time: int) -> int:
    """The end of the session that a time is in."""
    return _end(sessions[bisect_right(sessions, time, key=_start) - 1])


def _reachable(sessions: list[tuple[Any, ...]], gap: int, closes: int) -> list[tuple[Any, ...]]:
    """The sessions that a record which is not late can still touch: by itself, or along with a later one."""
    first = len(sessions)
    for index in reversed(range(len(sessions))):
        alone = _end(sessions[index]) + gap >= closes
        along = first == index + 1 < len(sessions) and (
            _start(sessions[index + 1]) - _end(sessions[index]) <= 2 * gap
        )
        if not alone and not along:
            break
        first = index
    return sessions[first:]


def _sliding(
    windows: SlidingWindows,
    algebra: Algebra,
    kept: Sequence[Any],
    records: Sequence[tuple[int, Any]],
    stream_time_ms: int,
) -> Outcome:
    """Kept: [timestamp, [payload, …]] of each timestamp that a record has, in order.

    A window is aggregated anew from what is in it.

    Differs: a record counts in each window that is open and that it is in; in Kafka Streams, one that comes
        too late for the window that ends at it counts in those that are there already, and is then forgotten.
        Records of one window come in the order of their timestamps here, there in that of their arrival.
    """
    length, closes = windows.time_difference_ms, stream_time_ms - windows.grace_ms
    pieces: dict[int, list[Any]] = {timestamp: list(payloads) for timestamp, payloads in kept}
    known = set(pieces)
    taken: set[int] = set()
    for timestamp, payload in records:
        if timestamp + 1 + length <= closes:
            continue
        pieces.setdefault(timestamp, []).append(payload)
        taken.add(timestamp)
    times = sorted(pieces)
    starts = _sliding_starts(times, length)
    there_before = set(_sliding_starts(sorted(known), length))
    new = sorted(taken)

    def has_changed(start: int) -> bool:
        first = bisect_left(new, start)
        return start not in there_before or (first < len(new) and new[first] <= start + length)

    open_ = [start for start in starts if start + length >= closes and has_changed(start)]
    changes = [
        Change(start, start + length, aggregate, times[bisect_right(times, start + length) - 1])
        for start, aggregate in zip(open_, _folded(algebra, times, pieces, open_, length), strict=True)
    ]
    still = [[time, pieces[time]] for time in times if time + 1 + length >= closes]
    expires = (times[-1] if times else 0) + 1 + length + windows.grace_ms
    return Outcome(still, changes, expires)


def _sliding_starts(times: list[int], length: int) -> list[int]:
    """The starts of the windows that there are, in order, if there are records at these times."""
    # Those that end at a record; where they would begin before the epoch they are moved there.
    starts = {max(0, time - length) for time in times}
    # Those that begin just after a record, if there is one in them.
    starts.update(one + 1 for one, other in pairwise(times) if other <= one + 1 + length)
    return sorted(starts)


def _folded(
    algebra: Algebra, times: list[int], pieces: dict[int, list[Any]], starts: list[int], length: int
) -> list[Aggregate]:
    """The aggregates of the windows that begin at `starts`, each folded from its beginning."""
    values = []
    for start in starts:
        aggregate = algebra.initial()
        for time in times[bisect_left(times, start) : bisect_right(times, start + length)]:
            for payload in pieces[time]:
                aggregate = algebra.add(aggregate, payload)
        values.append(aggregate)
    return values


def _fixed(
    windows: TimeWindows,
    algebra: Algebra,
    kept: Sequence[Any],
    records: Sequence[tuple[int, Any]],
    stream_time_ms: int,
) -> Outcome:
    """Kept: [start, aggregate, timestamp] of each window."""
    size, advance, grace = windows.size_ms, windows.advance_ms, windows.grace_ms
    values = {start: (aggregate, timestamp) for start, aggregate, timestamp in kept}
    changed: set[int] = set()
    for timestamp, payload in records:
        first = max(0, timestamp - size + advance) // advance * advance
        for start in range(first, timestamp + 1, advance):
            if start + size + grace > stream_time_ms:
                aggregate, latest = values.get(start, (None, timestamp))
                if start not in values:
                    aggregate = algebra.initial()
                values[start] = (algebra.add(aggregate, payload), max(latest, timestamp))
                changed.add(start)
    changes = [Change(start, start + size, *values[start]) for start in sorted(changed)]
    still = [[start, *values[start]] for start in sorted(values) if start + size + grace > stream_time_ms]
    return Outcome(still, changes, max(values, default=0) + size + grace)
