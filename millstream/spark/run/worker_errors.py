"""Rebuilds an exception that a Python function raised in a worker, from the text in Spark's error.

The exception has the same class if this process has already loaded that class (it is looked up; nothing is
imported, unpickled or evaluated), else it is a RemoteException. The exception that it was raised from, or
while handling, is its `__cause__`, and so on. The worker's traceback, with the user's own file and line, is
added as a note.
"""

from __future__ import annotations

import builtins
import logging
import re
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from millstream.errors import SerializationException, StreamsException

__all__ = ["Remote", "RemoteException", "rebuilt"]

log = logging.getLogger(__name__)

_MAX_TRACEBACK = 20_000
_MAX_CHAIN = 12
_TRACEBACK = "Traceback (most recent call last):\n"
_BEGINNING = re.compile(r"thrown from the Python worker: |(?=Traceback \(most recent call last\):\n)")
_SQLSTATE = re.compile(r"\n? SQLSTATE: \w+(?: SQLSTATE: \w+)?\s*\Z")
_CHAINED = re.compile(
    r"\n\n(?:During handling of the above exception, another exception occurred|"
    r"The above exception was the direct cause of the following exception):\n\n"
)
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$')
_OF_SPARK = re.compile(r'^  File ".*[/\\]pyspark(?:\.zip)?[/\\]')
_RAISED = re.compile(r"(?:^|\n)([A-Za-z_](?:[\w.]|<locals>)*)(?:: ((?s:.*)))?\Z")
_LIBRARIES = tuple(filter(None, map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))))


class RemoteException(Exception):
    """What a Python function raised in a worker, if this process does not know the class.

    Attributes:
        class_name: the class, as the worker wrote it.
    """

    def __init__(self, class_name: str, message: str) -> None:
        super().__init__(f"{class_name}: {message}" if message else class_name)
        self.class_name = class_name


@dataclass(frozen=True, slots=True)
class Remote:
    """`line`: class and message as Python prints them; `place`: where in the user's program."""

    error: Exception
    line: str
    place: str


@dataclass(frozen=True, slots=True)
class _Link:
    """One exception of a chain: the lines of its traceback, class and message."""

    frames: list[str]
    name: str
    message: str


def rebuilt(said: str) -> Remote | None:
    """The exception in Spark's text of it; None: there is none."""
    begin = _BEGINNING.search(said)
    if begin is None:
        return None
    whole = _SQLSTATE.sub("", said[begin.end() :]).rstrip("\n")
    links = [_link(part) for part in _CHAINED.split(whole)[-_MAX_CHAIN:]]
    last = links[-1]
    if last is None:
        return None
    error: Exception | None = None
    for link in links:
        if link is not None:
            # The exception that was being handled also serves as a cause.
            error, before = _exception(link.name, link.message), error
            error.__cause__ = before
    assert error is not None
    error.add_note(f"In the Python worker:\n{_without_spark(whole)[-_MAX_TRACEBACK:]}")
    line = f"{last.name}: {last.message}" if last.message else last.name
    return Remote(error, line, _place(last.frames))


def _link(part: str) -> _Link | None:
    frames: list[str] = []
    if part.startswith(_TRACEBACK):
        # Frames are indented; the exception begins at the first line that is not.
        lines = part.split("\n")[1:]
        count = next((index for index, line in enumerate(lines) if line[:1] not in ("", " ")), len(lines))
        frames, part = lines[:count], "\n".join(lines[count:])
    raised = _RAISED.match(part)
    return None if raised is None else _Link(frames, raised[1], raised[2] or "")


def _without_spark(text: str) -> str:
    """A traceback without the frames of Spark's worker at its beginning."""
    return "\n".join(_kept(text.split("\n")))


def _kept(lines: list[str]) -> Iterator[str]:
    inside = False
    for line in lines:
        if _OF_SPARK.match(line):
            inside = True
        elif not (inside and line.startswith("    ")):
            inside = False
            yield line


def _place(lines: list[str]) -> str:
    """The innermost frame of the user's program."""
    frames = [(line.strip(), match[1]) for line in lines if (match := _FRAME.match(line))]
    own = [text for text, path in frames if not path.startswith(_LIBRARIES) and not path.startswith("<")]
    return own[-1] if own else frames[-1][0] if frames else ""


def _exception(name: str, message: str) -> Exception:
    """An exception of that class and with that message; no code of its constructor runs."""
    kind = _known_class(name)
    if kind is None:
        return RemoteException(name, message)
    if kind is SerializationException:
        return SerializationException(message)
    if issubclass(kind, KeyError) and re.fullmatch(r"'[^'\\]*'|\"[^\"\\]*\"", message):
        message = message[1:-1]  # a KeyError prints the representation of its key
    try:
        # As Python itself restores one: created by the built-in class it derives from.
        maker: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
        error: Exception = maker.__new__(kind, *((message,) if message else ()))
        error.args = (message,) if message else ()
        if message in str(error):
            return error
    except Exception:  # a class whose own __str__ needs what its constructor sets
        log.debug("an exception of class %s cannot be rebuilt", name, exc_info=True)
    return RemoteException(name, message)


def _known_class(name: str) -> type[Exception] | None:
    """An exception class that this process has loaded, looked up in dictionaries without running code."""
    parts = name.split(".")
    places: list[tuple[dict[str, Any], list[str]]]
    if len(parts) == 1:
        main = sys.modules.get("__main__")
        places = [(vars(builtins), parts), (vars(main) if main is not None else {}, parts)]
    else:
        places = [
            (vars(module), parts[end:])
            for end in range(len(parts) - 1, 0, -1)
            if (module := sys.modules.get(".".join(parts[:end]))) is not None
        ]
    for names, path in places:
        found: Any = None
        for part in path:
            found = names.get(part)
            if not isinstance(found, type):
                break
            names = dict(vars(found))
        if isinstance(found, type) and issubclass(found, Exception):
            # One of ours without the attributes set by its constructor would mislead its readers.
            ours = issubclass(found, StreamsException) and found is not SerializationException
            return None if ours else found
    return None
