"""A store's entries as an Arrow table. pyarrow is imported here only, when a table is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

__all__ = ["to_table"]

_TYPES: dict[str, pa.DataType] = {
    "bytes": pa.binary(),
    "string": pa.string(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "uuid": pa.string(),
}
"""By a serde's name; a serde that is not here leaves the type to pyarrow."""

_TIMESTAMP = pa.timestamp("ms", tz="UTC")


def to_table(
    entries: Iterable[tuple[Any, Any]], key_serde: str, value_serde: str, *, timestamped: bool
) -> pa.Table:
    """Columns `key` and `value`, and `timestamp` for values that are `ValueAndTimestamp`s.

    Dicts become structs. Values that pyarrow finds no common type for become their JSON text.
    """
    rows = list(entries)
    keys = [key for key, _ in rows]
    values = [value for _, value in rows]
    columns = {"key": _column(keys, key_serde)}
    if timestamped:
        columns["value"] = _column([value.value for value in values], value_serde)
        columns["timestamp"] = pa.array([value.timestamp for value in values], _TIMESTAMP)
    else:
        columns["value"] = _column(values, value_serde)
    return pa.table(columns)


def _column(values: list[Any], serde: str) -> pa.Array:
    declared = _TYPES.get(serde)
    if serde == "uuid":
        values = [str(value) for value in values]
    if declared is not None:
        return pa.array(values, declared)
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return pa.array([json.dumps(value, default=str, sort_keys=True) for value in values], pa.string())
