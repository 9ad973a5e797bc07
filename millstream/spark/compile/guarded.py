"""Columns that report common mistakes while a user's function is traced.

Some expressions are legal in Python but mean something else to Spark: a Column formatted as text, compared
with None, or one of its methods mistaken for a field. They are refused where they occur. For that, methods of
PySpark's own Column class are replaced, but only while functions are traced; other threads still get the
original ones.
"""

from __future__ import annotations

import datetime
import functools
import os
import random
import secrets
import sys
import sysconfig
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType
from typing import Any

import pyspark
import pyspark.errors.utils as origins
import pyspark.sql.functions.builtin as functions
from pyspark.sql.classic.column import Column

from millstream.topology.functions import name_called

__all__ = ["CLOCKS", "Seen", "SlipError", "guarded", "refuse_text", "slip_with_method"]


class SlipError(Exception):
    """What a function did to a Column by mistake, and the fix, as a sentence without its place."""


@dataclass
class Seen:
    """What was seen while a function was traced.

    Attributes:
        place: the node, for failures when the query runs.
        package: the package of the function.
        constants: the called functions whose one result would apply to all records, in the order of the
            calls.
    """

    place: str
    package: str
    constants: list[str] = field(default_factory=list)


@contextmanager
def guarded(place: str, function: Any) -> Iterator[Seen]:
    """Within this context, and in this thread, Columns raise a SlipError for common mistakes."""
    seen = Seen(place, str(getattr(function, "__module__", "")).partition(".")[0])
    outer = getattr(_here, "seen", None)
    _guards.enter()
    _here.seen = seen
    listens = sys.getprofile() is None  # otherwise a profiler is using it
    if listens:
        sys.setprofile(_profile)
    try:
        yield seen
    finally:
        if listens:
            sys.setprofile(None)
        _here.seen = outer
        _guards.leave()


_here = threading.local()


def _seen() -> Seen | None:
    return getattr(_here, "seen", None)


# --- whose code it is ------------------------------------------------------------------------------------

_LIBRARIES = tuple(
    f"{sysconfig.get_path(kind)}{os.sep}" for kind in ("stdlib", "platstdlib", "purelib", "platlib")
)


def _is_own(frame: FrameType | None, seen: Seen) -> bool:
    """Whether a frame belongs to the user's program, not to a library it uses."""
    if frame is None:
        return False
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if package in ("millstream", "pyspark", "py4j") or package in sys.stdlib_module_names - {"__main__"}:
        return False
    name = frame.f_code.co_filename
    return package == seen.package or not name.startswith((*_LIBRARIES, "<frozen"))


# --- what is refused -------------------------------------------------------------------------------------


def _text(column: Any) -> str:
    seen, frame = _seen(), sys._getframe(1)
    if frame.f_code is _format.__code__:
        frame = frame.f_back or frame
    if seen is not None and _is_own(frame, seen) and name_called(frame.f_code, frame.f_lasti) != "print":
        raise SlipError(_AS_TEXT)
    return repr(column)


def _format(column: Any, spec: str) -> str:
    if spec and _seen() is not None:
        raise SlipError(_AS_TEXT)
    return format(str(column), spec) if not spec else object.__format__(column, spec)


_AS_TEXT = (
    "a Column was written as Python text, by str(), an f-string, format() or %: the text would be the "
    "expression's name, the same for all records.\n"
    '  f"{value.user}: {value.amount}"                             # this\n'
    '  F.format_string("%s: %s", value.user, value.amount)         # should be this, or F.concat(...)\n'
    '`value.amount.cast("string")` for str(value.amount); `print(repr(value))` to look at an expression.'
)


_SLICE = (
    "a Column was cut by a slice, which Spark takes for a position, counted from 1, and a length: use "
    "F.substring(value.a, position, length) for text, F.slice(value.a, position, length) for an array"
)


def _operand(name: str, other: Any) -> None:
    """Refuse an operand that a Column cannot be compared with, added to or sliced by."""
    if isinstance(other, _Method):
        other.refuse()
    if isinstance(other, slice):
        raise SlipError(_SLICE)
    if name in ("__eq__", "__ne__") and other is None:
        sign, use = ("==", "isNull") if name == "__eq__" else ("!=", "isNotNull")
        raise SlipError(
            f"a Column was compared with None by {sign}, which is NULL for every record and so never true: "
            f"use value.x.{use}()"
        )
    is_text = isinstance(other, str) and not any(each.isdigit() for each in other)
    if name in ("__add__", "__radd__") and is_text:
        pair = f'value.a, F.lit("{other}")' if name == "__add__" else f'F.lit("{other}"), value.a'
        raise SlipError(f"+ adds numbers, and {other!r} is text: text is joined with F.concat({pair})")


def refuse_text(result: Any) -> None:
    """Refuse a result that is a method of a Column, or contains the text of one, made by a library."""
    texts: list[str] = []
    for each in _leaves(result):
        if isinstance(each, _Method):
            each.refuse()
        if isinstance(each, Column):
            texts.append(each._jc.toString())
        elif isinstance(each, str):
            texts.append(each)
    if any("Column<'" in text for text in texts):
        raise SlipError(_AS_TEXT)


def _leaves(result: Any) -> Iterator[Any]:
    if isinstance(result, Mapping):
        for name, item in result.items():
            yield name
            yield from _leaves(item)
    elif isinstance(result, list | tuple):
        for item in result:
            yield from _leaves(item)
    else:
        yield result


class _Method(functools.partial[Any]):
    """A method of a Column that may have been meant as a field; it can only be called.

    It is a partial of the method itself, so that its signature can be inspected.
    """

    def refuse(self, *_: Any) -> Any:
        raise SlipError(_no_field(self))

    # Python's inspect compares what it inspects with classes.
    def __eq__(self, other: object) -> bool:
        return id(self) == id(other) if callable(other) else bool(self.refuse())

    def __ne__(self, other: object) -> bool:
        return id(self) != id(other) if callable(other) else bool(self.refuse())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.refuse()

    __hash__ = functools.partial.__hash__


def _no_field(method: _Method) -> str:
    name = getattr(method.func, "__name__", "name")
    return f'value.{name} is a method of Spark\'s Column and not a field; the field is value["{name}"]'


_ARITHMETIC = ("add", "sub", "mul", "truediv", "mod", "pow", "and", "or")
_BINARY = (
    *(f"__{way}{name}__" for name in _ARITHMETIC for way in ("", "r")),
    *(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge")),
)

for _name in (
    *(name for name in _BINARY if name not in ("__eq__", "__ne__")),
    "__getitem__",
    "__len__",
    "__iter__",
    "__bool__",
    "__neg__",
    "__invert__",
    "__str__",
    "__format__",
):
    setattr(_Method, _name, _Method.refuse)


def slip_with_method(error: BaseException) -> str | None:
    """The mistake, if a Spark function got a method of a Column and could not accept it."""
    trace = error.__traceback__
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            for each in value if isinstance(value, list | tuple) else (value,):
                if isinstance(each, _Method):
                    return _no_field(each)
        trace = trace.tb_next
    return None


# --- what answers once for all records -------------------------------------------------------------------

CLOCKS = (
    "time.time()",
    "time.time_ns()",
    "datetime.now()",
    "datetime.utcnow()",
    "datetime.today()",
    "date.today()",
)


def _codes(owner: Any, shown: str, but: tuple[str, ...] = ()) -> dict[CodeType, str]:
    return {
        each.__code__: f"{shown}.{name}()"
        for name, each in vars(owner).items()
        if isinstance(each, FunctionType) and not name.startswith("_") and name not in but
    }


_BY_CODE = {
    **_codes(random.Random, "random", ("seed", "getstate", "setstate")),
    **_codes(secrets, "secrets", ("compare_digest",)),
    uuid.uuid1.__code__: "uuid.uuid1()",
    uuid.uuid4.__code__: "uuid.uuid4()",
}


def _constant(function: Any) -> str | None:
    """The name of a C function that returns something different each time, or None."""
    name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
    if isinstance(owner, random.Random):
        return f"random.{name}()" if name in ("random", "getrandbits") else None
    if owner is time:
        return f"time.{name}()" if name in ("time", "time_ns") else None
    if owner is os or getattr(owner, "__name__", "") == "posix":
        return "os.urandom()" if name == "urandom" else None
    if isinstance(owner, type) and issubclass(owner, datetime.date) and name in ("now", "utcnow", "today"):
        return f"{'datetime' if issubclass(owner, datetime.datetime) else 'date'}.{name}()"
    if type(owner).__module__.startswith("numpy.random"):
        return f"numpy.random.{name}()"
    return None


def _profile(frame: FrameType, event: str, argument: Any) -> None:
    """Python's hook for each call: notes the program's own calls whose one result would apply to all
    records."""
    if event == "c_call":
        called, caller = _constant(argument), frame
    elif event == "call" and frame.f_code in _BY_CODE and frame.f_back is not None:
        called, caller = _BY_CODE[frame.f_code], frame.f_back
    else:
        return
    seen = _seen()
    if called is not None and seen is not None and _is_own(caller, seen):
        seen.constants.append(called)


# --- how Columns get to refuse it ------------------------------------------------------------------------


class _Attribute:
    """Replaces a method of Column: what it returns can only be called."""

    def __init__(self, method: FunctionType) -> None:
        self._method = method

    def __get__(self, column: Any, owner: type | None = None) -> Any:
        bound = self._method.__get__(column, owner)
        return bound if column is None or _seen() is None else _Method(bound)


def _checked(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """An operator that checks its operand first."""

    @functools.wraps(method)
    def operator(column: Any, other: Any) -> Any:
        if _seen() is not None:
            _operand(name, other)
        return method(column, other)

    return operator


_PYSPARK = f"{os.path.dirname(pyspark.__file__)}{os.sep}"


def _placed(plain: Callable[[int], str]) -> Callable[[int], str]:
    """The place in the program, with the node, for Spark's message when an expression fails."""

    def call_site(depth: int) -> str:
        seen = _seen()
        if seen is None:
            return plain(depth)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith((_PYSPARK, __file__)):
            frame = frame.f_back
        return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno} ({seen.place})"

    return call_site


def _with_place(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A call of a Spark function that records its place, as PySpark does only for a Column's methods."""

    def invoke(name: str, *arguments: Any) -> Any:
        if _seen() is None:
            return plain(name, *arguments)

        def call() -> Any:
            return plain(name, *arguments)

        call.__name__ = name
        return origins._with_origin(call)()

    return invoke


def _exchanged() -> Iterator[tuple[Any, str, Any]]:
    """The objects, the names of their attributes, and the replacements."""
    yield Column, "__str__", _text
    yield Column, "__format__", _format
    for name, method in vars(Column).copy().items():
        if name in (*_BINARY, "__getitem__"):
            yield Column, name, _checked(name, method)
        elif isinstance(method, FunctionType) and not name.startswith("_"):
            yield Column, name, _Attribute(method)
    yield origins, "_capture_call_site", _placed(origins._capture_call_site)
    yield functions, "_invoke_function", _with_place(functions._invoke_function)


class _Guards:
    """The replacement: made by the first thread that traces, and undone by the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._kept: list[tuple[Any, str, Any]] = []

    def enter(self) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            for owner, name, value in list(_exchanged()):
                self._kept.append((owner, name, vars(owner).get(name, self)))
                setattr(owner, name, value)

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            while self._kept and not self._users:
                owner, name, value = self._kept.pop()
                if value is self:
                    delattr(owner, name)
                else:
                    setattr(owner, name, value)


_guards = _Guards()
