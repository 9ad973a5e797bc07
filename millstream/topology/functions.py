"""Facts about a user's function, without calling it: its location, its parameters, some likely mistakes."""

from __future__ import annotations

import dis
import inspect
from pathlib import Path
from types import CodeType
from typing import Any

__all__ = [
    "accepts",
    "arity",
    "compared_with_none",
    "describe_argument",
    "describe_frame",
    "describe_function",
    "name_called",
    "swapped",
]


def describe_function(function: Any) -> str:
    """A function's location in the program: `app.py:41 <lambda>`. Never an object's address.

    A callable object with its own `__str__` or `__repr__` is shown by that.
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


def describe_argument(given: Any) -> str:
    """What was given where a function is expected: the function's location, or else the value."""
    return describe_function(given) if callable(given) else repr(given)


def describe_frame(frame: Any) -> str:
    """The source of a table's rows: `the DataFrame of app.py:12 <lambda>`, or a given DataFrame."""
    return f"the DataFrame of {describe_function(frame)}" if callable(frame) else "a DataFrame that was given"


def arity(function: Any, *, most: int = 3) -> int | None:
    """The number of arguments to call `function` with, up to `most`; None if it requires more.

    A parameter with a default is ignored, so `lambda value, i=i: …` in a loop has one parameter. A function
    without a signature (some built-ins) is assumed to take two, and so is `lambda *args: …`.
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
    """Whether `function` can be called with `count` arguments; True if it has no signature."""
    try:
        inspect.signature(function).bind(*range(count))
    except ValueError:
        return True
    except TypeError:
        return False
    return True


# --- likely mistakes ----------------------------------------------------------------------------------------


def swapped(function: Any) -> bool:
    """Whether a function names its first parameter as the value and its second as the key."""
    names = [name.lower().lstrip("_") for name in _wanted(function)]
    return len(names) in (2, 3) and names[0] in ("value", "val", "v") and names[1] in ("key", "k")


def compared_with_none(function: Any) -> str | None:
    """The part of its parameters that a function compares with None by `is`: `value.amount`; None if none was
    found.

    Detects only expressions that consist of a parameter, attributes and constant indices. Functions that
    check types are ignored: they may know their arguments.
    """
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if not isinstance(code, CodeType) or "isinstance" in code.co_names or "type" in code.co_names:
        return None
    steps = _Steps(code, _wanted(function))
    return next(filter(None, map(steps.tested, range(len(steps.all)))), None)


def name_called(code: CodeType, offset: int) -> str | None:
    """The name called at this offset of the bytecode: `upper` of `value.name.upper()`."""
    every = list(dis.get_instructions(code))
    at = next((place for place, each in enumerate(every) if each.offset == offset), None)
    if at is None or not every[at].opname.startswith("CALL"):
        return None
    begins = _place(every[at])
    names = [
        each.argval
        for each in every[:at]
        if each.opname.startswith("LOAD_") and _place(each) == begins and isinstance(each.argval, str)
    ]
    return names[-1] if names and None not in begins else None


def _place(step: dis.Instruction) -> tuple[int | None, int | None]:
    """The line and column at which the expression of an instruction starts."""
    at = step.positions
    return (None, None) if at is None else (at.lineno, at.col_offset)


def _wanted(function: Any) -> list[str]:
    """The names of a function's required parameters."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each.name for each in parameters if each.kind in positional and each.default is each.empty]


class _Steps:
    """A function's bytecode, and which of its variables hold values reached from its parameters.

    Unknown instructions, such as those of a later Python, end the tracking.
    """

    def __init__(self, code: CodeType, parameters: list[str]) -> None:
        self.all = [each for each in dis.get_instructions(code) if each.opname not in _NOTHING]
        self.reached = set(parameters)
        while (reached := self._after_stores(set(parameters))) != self.reached:
            self.reached = reached

    def _after_stores(self, parameters: set[str]) -> set[str]:
        kept: set[str] = set(parameters)
        lost: set[str] = set()
        for at, step in enumerate(self.all):
            if not step.opname.startswith(("STORE_FAST", "STORE_DEREF")):
                continue
            names = (step.argval,) if isinstance(step.argval, str) else tuple(step.argval)
            if step.opname.endswith("LOAD_FAST"):
                names = names[:1]
            if len(names) == 1 and not step.is_jump_target and self._operand(at - 1) is not None:
                kept.add(names[0])
            else:
                lost.update(names)
        return kept - lost

    def tested(self, at: int) -> str | None:
        """The expression that this instruction compares with None."""
        step = self.all[at]
        if step.opname.startswith("POP_JUMP") and step.opname.endswith(("IF_NONE", "IF_NOT_NONE")):
            return None if step.is_jump_target else self._operand(at - 1)
        if step.opname != "IS_OP" or step.is_jump_target:
            return None
        before = self.all[at - 1]
        if not _is_none(before):
            return None
        return None if before.is_jump_target else self._operand(at - 2)

    def _operand(self, at: int) -> str | None:
        """The source text of the value on top of the stack after this instruction."""
        if at < 0:
            return None
        step = self.all[at]
        if step.opname == "LOAD_ATTR":
            base = self._operand(at - 1)
            return base and f"{base}.{step.argval}"
        if step.opname == "BINARY_SUBSCR" or (step.opname == "BINARY_OP" and step.argrepr == "[]"):
            if not self.all[at - 1].opname.startswith(("LOAD_CONST", "LOAD_SMALL_INT")):
                return None
            base = self._operand(at - 2)
            return base and f"{base}[{self.all[at - 1].argval!r}]"
        if step.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "STORE_FAST_LOAD_FAST")):
            name = step.argval if isinstance(step.argval, str) else step.argval[-1]
            return name if name in self.reached else None
        return None


_NOTHING = ("CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "PUSH_NULL", "RESUME", "TO_BOOL")


def _is_none(step: dis.Instruction) -> bool:
    return step.opname.startswith("LOAD_CONST") and step.argval is None
