"""What the cases of the traces are made of: operations, whole programs, records (see `traces.py`)."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

Op = dict[str, Any]
Record = list[Any]
Case = tuple[str, list[Op], list[Record]]
"""Name, program and records of a trace."""

LONG = 10_000_000
"""A retention so long that no window is gone before it is closed."""


# --- programs --------------------------------------------------------------------------------------------


def source(values: str = "string", op: str = "stream", **arguments: Any) -> Op:
    return {"op": op, "values": values, **arguments}


def time(size: int, advance: int, grace: int) -> Op:
    return {"op": "windowed_by", "windows": "time", "size": size, "advance": advance, "grace": grace}


def sliding(difference: int, grace: int) -> Op:
    return {"op": "windowed_by", "windows": "sliding", "difference": difference, "grace": grace}


def session(gap: int, grace: int) -> Op:
    return {"op": "windowed_by", "windows": "session", "gap": gap, "grace": grace}


def limit(ms: int, **more: Any) -> Op:
    return {"op": "suppress", "until": "time limit", "ms": ms, **more}


UNTIL_CLOSED: Op = {"op": "suppress", "until": "window closes"}
BY_KEY: Op = {"op": "group_by_key"}
TO_STREAM: Op = {"op": "to_stream"}

COUNT: Op = {"op": "count", "store": "s"}
CONCAT: Op = {"op": "aggregate", "function": "concat", "store": "s"}
FORGET: Op = {"op": "aggregate", "function": "concat unless -", "store": "s"}
SUM, MIN, MAX = ({"op": "reduce", "function": name, "store": "s"} for name in ("sum", "min", "max"))
FIRST, LAST, JOINED = (
    {"op": "reduce", "function": name, "store": "s"} for name in ("first", "last", "concat")
)
FOLDS = (CONCAT, COUNT, SUM, FORGET, CONCAT, MIN, LAST, CONCAT, MAX, COUNT, FIRST, JOINED)
"""In turn; most of them show the order in which values were folded."""


def numbers(fold: Op) -> bool:
    """Whether a fold is over numbers."""
    return fold.get("function") in ("sum", "min", "max")


def folded(windows: Op | None, fold: Op, **more: Any) -> list[Op]:
    """A whole program with one aggregation."""
    kind = "long" if numbers(fold) else "string"
    return [source(kind), BY_KEY, *([windows] if windows else []), {**fold, **more}, TO_STREAM]


def length(windows: Op) -> int:
    return int(windows.get("size", 0) or windows.get("difference", 0) or windows.get("gap", 0))


def scaled(windows: Op, by: int) -> Op:
    return {name: value * by if isinstance(value, int) else value for name, value in windows.items()}


# --- records ---------------------------------------------------------------------------------------------


def random_records(
    seed: str,
    span: int,
    fold: Op,
    *,
    count: int = 20,
    late: int | None = None,
    scale: int = 1,
    keys: str = "aab",
) -> list[Record]:
    """Records whose time goes on, stands still, falls back by up to `late`, and sometimes jumps far ahead.

    Only `random()` is used of the random module: all versions of Python agree on it.
    """
    rng = random.Random(seed)

    def below(limit: int) -> int:
        return int(rng.random() * limit)

    late = 2 * span if late is None else late
    now = below(span + 1) if rng.random() < 0.7 else 0
    records: list[Record] = []
    for number in range(count):
        chance = rng.random()
        if chance < 0.55:
            now += below(max(2, span // 2 + 1))
        elif chance < 0.62:
            now += span + below(2 * span + 2)
        elif chance < 0.65:
            now += 6 * span + below(9 * span + 1)
        at = max(0, now - below(late + 1)) if rng.random() < 0.35 else now
        key = None if rng.random() < 0.03 else keys[below(len(keys))]
        value: Any = below(19) - 9 if numbers(fold) else "abcdefghijklmnopqrstuvwxyz"[number % 26]
        if rng.random() < 0.06:
            value = None
        elif fold is FORGET and rng.random() < 0.2:
            value = "-"
        records.append([key, value, at * scale])
    return records


def rows(text: str) -> list[Record]:
    """The records of `a=x@5 b=null@7 null=-3@8`: key, value and time."""
    records: list[Record] = []
    for each in text.split():
        key, value, at = re.fullmatch("(.+)=(.+)@([0-9]+)", each).groups()  # type: ignore[union-attr]
        number = re.fullmatch("-?[0-9]+", value)
        records.append(
            [
                None if key == "null" else key,
                None if value == "null" else int(value) if number else value,
                int(at),
            ]
        )
    return records


def key_a(*times: int) -> list[Record]:
    """Records of the key a at these times; their values are x1, x2, ..."""
    return [["a", f"x{number}", at] for number, at in enumerate(times, 1)]


def at_random(
    file: str, many: int, windows: Sequence[Op], folds: Sequence[Op] = FOLDS, **more: Any
) -> Iterator[Case]:
    """Random records for windows and folds in turn, with Kafka's own retention and with a long one."""
    for number in range(many):
        fold = folds[number % len(folds)]
        each = windows[number % len(windows)]
        # Segments of Kafka's stores are a minute or more, and short times never leave the first one.
        scale = 60_000 if number % 4 == 3 else 1
        retention = {"retention": LONG * scale} if number % 2 else {}
        records = random_records(
            f"{file} {number}", length(each), fold, late=2 * length(each) + each["grace"], scale=scale
        )
        yield f"random {number}", folded(scaled(each, scale), fold, **retention, **more), records
