"""What can be told of a user's function without calling it: where it stands, and what it takes."""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path
from typing import Any

__all__ = ["accepts", "arity", "caller", "describe_function"]


def describe_function(function: Any) -> str:
    """Where a function stands in the program: `app.py:41 <lambda>`. Never an object's address.

    A callable object that has a `__str__` or `__repr__` of its own is shown as that says.
    """
    plain = inspect.unwrap(function) if callable(function) else function
    while hasattr(plain, "func") and not hasattr(plain, "__code__"):  # functools.partial, pyspark's udf
        plain = plain.func
    plain = getattr(plain, "__func__", plain)
    code = getattr(plain, "__code__", None)
    name = getattr(plain, "__name__", None)
    if code is not None:
        return f"{Path(code.co_filename).name}:{code.co_firstlineno} {name}"
    if name is not None:
        return f"{getattr(plain, '__module__', None) or 'builtins'}.{name}"
    kind = type(plain)
    if any("__str__" in vars(base) or "__repr__" in vars(base) for base in kind.__mro__[:-1]):
        return str(plain)
    return f"{kind.__module__}.{kind.__qualname__} object"


def arity(function: Any, *, most: int = 3) -> int | None:
    """How many arguments to call `function` with, up to `most`; None when it cannot be called with so few.

    A parameter with a default is left alone, so that `lambda value, i=i: …` in a loop means one parameter.
    A function that says nothing about its parameters (some built-ins) is taken to want two, and so is
    `lambda *args: …`.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return min(2, most)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in positional)
    if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        return None
    if required:
        return required if required <= most else None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return min(2, most)
    return min(1, len(positional))


def accepts(function: Any, count: int) -> bool:
    """Whether `function` can be called with `count` arguments; True where it says nothing about them."""
    try:
        inspect.signature(function).bind(*range(count))
    except ValueError:
        return True
    except TypeError:
        return False
    return True


def caller() -> str:
    """The line of the program that called into Millstream: `app.py:41`."""
    package = f"{Path(__file__).parent.parent}{os.sep}"
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
