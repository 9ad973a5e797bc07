"""Logs in one call: `millstream.logging()`. Readable lines, or a JSON object a line.

The file is not called `logging`: a module of that name inside the package would be taken for Python's own by
whoever looks at `millstream.logging`, which is this function.
"""

from __future__ import annotations

import json as json_module
import logging as std
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from millstream.foreign import printable, printable_lines

__all__ = ["JsonFormatter", "ReadableFormatter", "logging", "without_secrets"]

_OWN = "millstream"
_HIDDEN = "[hidden]"
# What stands before the telling word has no place in these patterns: with it, a long word would be read anew
# from each of its characters.
_SECRET = re.compile(
    r"""(?ix)
    ( (?: password | passwd | secret (?!ary) | credential | api[._-]?key | token (?!s\b|iz) | user[._]info
        | jaas | private[._-]?key | key[._]pem | keystore[._]key ) [\w.-]{0,80}
      \\{0,8} ["']? \s{0,8} [:=] \s{0,8} )
    ( "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | \\*["'][^\n]* | [^\s,;"'}\])]+ )
    """
)
_AUTHORIZATION = re.compile(
    r"""(?i)\b(authorization["']?\s{0,8}:\s{0,8}["']?(?:basic|bearer)|bearer)\s{1,8}[\w.~+/=-]{8,}"""
)
_IN_URL = re.compile(r"(://[^\s/:@]*):[^\s/@]+@")
_MOST_CHARS = 20_000
"""How much is written of a message, and of a traceback: both may quote a record."""


def without_secrets(text: str) -> str:
    """The text with what stands behind `password=`, `"ssl.key.password":` and the like taken out.

    What Millstream logs has no secrets in it; what it quotes, such as an error of a library, may.
    """
    text = _SECRET.sub(rf"\1{_HIDDEN}", text)
    text = _AUTHORIZATION.sub(rf"\1 {_HIDDEN}", text)
    return _IN_URL.sub(rf"\1:{_HIDDEN}@", text)


class ReadableFormatter(std.Formatter):
    """`12:30:01.250 INFO  millstream.runtime.client: stream-client [orders-1] State transition …`"""

    def format(self, record: std.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created)
        head = f"{at:%H:%M:%S}.{at.microsecond // 1000:03d} {record.levelname:<7} {record.name}"
        lines = [f"{head}: {_message(record)}", *_traceback(self, record)]
        return "\n".join(lines)


class JsonFormatter(std.Formatter):
    """One JSON object: `timestamp`, `level`, `logger`, `thread`, `message`, and `exception` where there is
    one."""

    def format(self, record: std.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        told: dict[str, Any] = {
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": _message(record),
        }
        if traceback := _traceback(self, record):
            told["exception"] = "\n".join(traceback)
        return json_module.dumps(told, ensure_ascii=False)


class _Handler(std.StreamHandler[TextIO]):
    """Ours: the one that the next call replaces."""


def logging(
    level: int | str = "INFO", *, json: bool = False, stream: TextIO | None = None, root: bool = False
) -> std.Handler:
    """Have logs written, as lines to read or as JSON. Called again, it takes the place of the call before.

    Only Millstream's own loggers are set up: those of the program and of other libraries stay as they are,
    and so does what the program has set up for itself. A message is then written once, here, and not by the
    root logger's handlers as well. Secrets that a message quotes are hidden.

    Args:
        level: of Millstream's messages, such as `"DEBUG"`; with `root`, of all.
        json: an object a line, with UTC time, for whoever collects logs.
        stream: where to; by default the program's standard error.
        root: set up the root logger instead, and with it all that is logged in the program. Handlers that it
            has already stay.

    Returns:
        The handler, for whoever wants to change it.

    Raises:
        ValueError: there is no such level.
    """
    number = _level(level)
    handler = _Handler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter() if json else ReadableFormatter())
    own, top = std.getLogger(_OWN), std.getLogger()
    for logger in (own, top):
        for old in [each for each in logger.handlers if isinstance(each, _Handler)]:
            logger.removeHandler(old)
    target = top if root else own
    target.addHandler(handler)
    target.setLevel(number)
    own.propagate = root
    if root:
        own.setLevel(std.NOTSET)
    return handler


def _level(level: int | str) -> int:
    if isinstance(level, int) and not isinstance(level, bool):
        return level
    known = std.getLevelNamesMapping()
    if not isinstance(level, str) or level.upper() not in known:
        names = ", ".join(name for name in known if name not in ("NOTSET", "WARN", "FATAL"))
        raise ValueError(f"level must be one of {names}, or a number; got {level!r}")
    return known[level.upper()]


def _message(record: std.LogRecord) -> str:
    return printable(_shown(record.getMessage()), 2 * _MOST_CHARS)


def _shown(text: str) -> str:
    """The text, cut before anything looks for secrets in it: a handler holds a lock meanwhile."""
    if len(text) <= _MOST_CHARS:
        return without_secrets(text)
    return f"{without_secrets(text[:_MOST_CHARS])}... ({len(text):,} characters)"


def _traceback(formatter: std.Formatter, record: std.LogRecord) -> list[str]:
    """Each line begins with a space, so that none looks like the beginning of a message."""
    if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
        record.exc_text = formatter.formatException(record.exc_info)
    parts = [record.exc_text] if record.exc_text else []
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    lines = printable_lines("\n".join(map(_shown, parts))).split("\n") if parts else []
    return [line if line.startswith(" ") else f"  {line}" for line in lines]
