"""JSON as text: which documents are read, and the forms of strings and numbers that are written.

The rules are those of the kernel (`serdes/JsonCursor.java`, `JsonOut.java`, `JsonNumbers.java`), and a test
compares both. Python's `json` reads; here is what it would take besides JSON in UTF-8, and how to get at
numbers as they are written.
"""

from __future__ import annotations

import json
import re
import struct
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from itertools import accumulate
from json.encoder import encode_basestring
from math import inf
from typing import Any

__all__ = [
    "DEEPEST",
    "AsWrittenError",
    "Number",
    "as_written",
    "checked",
    "compact",
    "double_text",
    "is_plain",
    "quoted",
    "single",
    "single_text",
]

DEEPEST = 200
"""How deep objects and arrays may be nested."""


class AsWrittenError(Exception):
    """Text is wanted of a value that must be read as it is written."""


class Number(str):
    """A number as it is written."""

    __slots__ = ()


class _Object(dict[str, Any]):
    """An object as it is written: with all its fields, though some have the same name."""

    __slots__ = ("pairs",)
    pairs: list[tuple[str, Any]]


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object(pairs)
    found.pairs = pairs
    return found


_AS_WRITTEN = json.JSONDecoder(
    parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=_object
)


def is_plain(data: bytes) -> bool:
    """Whether `checked` would only decode it; True may be missed."""
    return not (b"\\ud" in data or b"\\uD" in data or data.count(b"{") + data.count(b"[") > DEEPEST)


def checked(data: bytes) -> str:
    """The text of a document, in which each string is one that UTF-8 can express.

    An escaped half of a surrogate pair becomes U+FFFD.

    Raises:
        ValueError: it is not UTF-8, or is nested too deeply.
    """
    text = data.decode()  # a byte order mark remains, which is not JSON
    if not is_plain(data):
        if _is_too_deep(data):
            raise ValueError(f"it is nested more than {DEEPEST} deep")
        text = _ESCAPE.sub(lambda found: r"\ufffd" if found[1] else found[0], text)
    return text


_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))


def _is_too_deep(data: bytes) -> bool:
    if data.count(b"{") + data.count(b"[") <= DEEPEST:
        return False
    brackets = _STRING.sub(b"", data).translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(_SHALLOW):
        brackets = brackets.replace(b"[]", b"")  # the innermost level, quickly
    depths = accumulate(1 if each == _OPENS else -1 for each in brackets)
    return _SHALLOW + max(depths, default=0) > DEEPEST


_SHALLOW = 10
_OPENS = ord("[")


def as_written(text: str) -> Any:
    """The value of a document, with each number as a `Number`; `compact` makes text of it.

    Raises:
        ValueError, RecursionError: it is not JSON.
    """
    return _AS_WRITTEN.decode(text)


def compact(value: Any) -> str:
    """JSON without spaces, and numbers as they are written.

    Raises:
        AsWrittenError: it was not read by `as_written`.
    """
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true" if value else "false"
    if isinstance(value, list):
        return f"[{','.join([compact(each) for each in value])}]"
    if isinstance(value, _Object):
        return f"{{{','.join([f'{quoted(name)}:{compact(each)}' for name, each in value.pairs])}}}"
    raise AsWrittenError


_CONTROL = re.compile(r"\\(?:u00([01][0-9a-f])|.)")


def quoted(text: str) -> str:
    """A string as Jackson writes it: `json` has other letters in \\u001F."""
    written = encode_basestring(text)
    if "\\u" in written:
        return _CONTROL.sub(lambda found: f"\\u00{found[1].upper()}" if found[1] else found[0], written)
    return written


# --- numbers ------------------------------------------------------------------------------------------------


def double_text(number: float) -> str:
    """A finite number as Java 19 writes it: `1.0E10` and not `10000000000.0`."""
    text = repr(number)
    if 1e-3 <= abs(number) < 1e7 or not number:
        return text
    # Java takes the nearest number of two digits if one were enough; that matters below 1e-322.
    exact = Decimal(text)
    return _in_javas_form(exact if len(exact.as_tuple().digits) > 1 else Decimal(f"{number:.1e}"))


def single_text(number: float) -> str:
    """The same for a number of 32 bits."""
    if not number:
        return repr(number)
    exact = Decimal(number)
    for digits in range(2, 9):
        nearest = _nearest(exact, digits, number)
        if nearest is not None:
            return _in_javas_form(nearest)
    return _in_javas_form(Context(prec=9, rounding=ROUND_HALF_EVEN).plus(exact))


def _nearest(exact: Decimal, digits: int, number: float) -> Decimal | None:
    nearest = Context(prec=digits, rounding=ROUND_HALF_EVEN).plus(exact)
    if single(float(nearest)) == number:
        return nearest
    # Below a power of two numbers are nearer to each other than above.
    other = ROUND_CEILING if nearest < exact else ROUND_FLOOR
    nearest = Context(prec=digits, rounding=other).plus(exact)
    return nearest if single(float(nearest)) == number else None


def _in_javas_form(number: Decimal) -> str:
    negative, digits, _ = number.as_tuple()
    shown = "".join(map(str, digits)).lstrip("0").rstrip("0")
    sign, exponent = "-" if negative else "", number.adjusted()
    if not -3 <= exponent < 7:
        return f"{sign}{shown[0]}.{shown[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{shown}"
    shown = shown.ljust(exponent + 1, "0")
    return f"{sign}{shown[: exponent + 1]}.{shown[exponent + 1 :] or '0'}"


def single(number: float) -> float:
    """The nearest number of 32 bits."""
    try:
        nearest: float = struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return inf if number > 0 else -inf
    return nearest
