"""Keys and values as JSON and as text in a URL, by their serdes, or as the base64 of their bytes. Pure.

There are two formats, which a request selects with `format=`:

- `json`, for people and other programs: numbers, strings, booleans and objects are their JSON equivalents; a
  UUID is its 36 characters; bytes are `{"$bytes": "<base64>"}`; numbers that JSON cannot represent are
  written like `{"$double": "NaN"}`.
- `bytes`, for clients that have the serdes: each key and value is the base64 text of its bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import uuid
from collections.abc import Mapping
from typing import Any

from millstream.errors import SerializationException
from millstream.query.store_codecs import plain
from millstream.remote.answers import Refused
from millstream.serdes.serde import Serde

__all__ = [
    "BYTES",
    "DOUBLE",
    "FORMATS",
    "bad",
    "expressed",
    "from_base64",
    "key_from_json",
    "key_from_text",
    "parse_json",
    "shown",
    "to_base64",
]

FORMATS = ("json", "bytes")
BYTES = "$bytes"
DOUBLE = "$double"

_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_SCALARS = (str, bool, int, type(None))


def bad(message: str) -> Refused:
    """A request that cannot be understood."""
    return Refused(400, "BadRequest", message)


# --- base64 ----------------------------------------------------------------------------------------------


def to_base64(data: bytes) -> str:
    """URL-safe base64, which can be part of a path."""
    return base64.urlsafe_b64encode(data).decode("ascii")


def from_base64(text: Any) -> bytes:
    """The bytes of base64 text, in either alphabet, padded or not.

    Raises:
        Refused: it is not base64 text.
    """
    if isinstance(text, str) and _BASE64.fullmatch(text):
        plain = text.rstrip("=").replace("+", "-").replace("/", "_")
        try:
            return base64.urlsafe_b64decode(plain + "=" * (-len(plain) % 4))
        except (binascii.Error, ValueError):
            pass  # the length is wrong: reported below
    raise bad("bytes must be base64 text")


# --- JSON ------------------------------------------------------------------------------------------------


def parse_json(data: bytes) -> Any:
    """The value of a JSON text; NaN and Infinity are invalid.

    Raises:
        Refused: it is not JSON in UTF-8, or nests too deeply.
    """
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise bad("the body is not JSON in UTF-8") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def shown(serde: Serde | None, data: bytes | None, format_: str) -> Any:
    """A key or a value in an answer; None: there is none.

    Raises:
        SerializationException: the bytes do not fit the serde.
    """
    if data is None:
        return None
    if format_ == "bytes" or serde is None:
        return to_base64(data)
    try:
        value = plain(serde, data)
    except Exception as error:  # whatever a serde raises, users expect one exception
        raise SerializationException(f"serde '{serde.name}' cannot read the stored bytes: {error}") from error
    try:
        return expressed(value)
    except (TypeError, RecursionError):
        return {BYTES: to_base64(data)}  # from a custom serde, or nested too deeply


def expressed(value: Any) -> Any:
    """The JSON form of a value.

    Raises:
        TypeError: JSON cannot represent it.
    """
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {DOUBLE: _named(value)}
    if isinstance(value, bytes | bytearray):
        return {BYTES: to_base64(bytes(value))}
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: expressed(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [expressed(inner) for inner in value]
    raise TypeError(f"JSON cannot represent {type(value).__name__}")


def _named(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


# --- keys of a request -----------------------------------------------------------------------------------


def key_from_text(serde: Serde, text: str, format_: str) -> bytes:
    """The bytes of a key in a path or a query.

    Raises:
        Refused: the text is not a valid key.
    """
    if format_ == "bytes":
        return from_base64(text)
    name = serde.name
    value: Any
    if name in ("string", "uuid"):
        value = text
    elif name in ("short", "integer", "long"):
        if not _WHOLE.fullmatch(text):
            raise bad(f"the key's serde is '{name}', so the key must be a whole number")
        value = int(text)
    elif name in ("float", "double"):
        try:
            value = float(text)
        except ValueError:
            raise bad(f"the key's serde is '{name}', so the key must be a number") from None
    elif name == "boolean":
        if text not in ("true", "false"):
            raise bad("the key's serde is 'boolean', so the key must be true or false")
        value = text == "true"
    elif name == "bytes":
        value = from_base64(text)
    elif name == "json":
        value = parse_json(text.encode("utf-8", "replace"))
    else:
        raise bad(f"keys of serde '{name}' have no text form; give their bytes as base64, with format=bytes")
    return _written(serde, value)


def key_from_json(serde: Serde, value: Any, format_: str) -> bytes:
    """The bytes of a key in a body. `{"$bytes": "<base64>"}` is valid with any serde.

    Raises:
        Refused: the value is not a valid key.
    """
    if format_ == "bytes":
        return from_base64(value)
    if isinstance(value, dict) and set(value) == {BYTES}:
        return from_base64(value[BYTES])
    if isinstance(value, dict) and set(value) == {DOUBLE} and serde.name in ("float", "double"):
        text = value[DOUBLE]
        if text not in ("NaN", "Infinity", "-Infinity"):
            raise bad(f'"{DOUBLE}" must be NaN, Infinity or -Infinity')
        value = float(text)
    return _written(serde, value)


def _written(serde: Serde, value: Any) -> bytes:
    if value is None:
        raise bad("a key cannot be null")
    try:
        data = serde.serialize(value)
    except Exception as error:  # whatever a serde raises, the request's key is at fault
        raise bad(f"a key does not fit serde '{serde.name}': {error}") from None
    if data is None:
        raise bad(f"serde '{serde.name}' returned no bytes for this key")
    return data
