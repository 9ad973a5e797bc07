"""Logging in one call: `millstream.logging()`. Readable lines, or one JSON object per line.

The file is not called `logging`, because `millstream.logging` is this function, and a module of that name
would hide it.
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
# These patterns do not match the text before the key word, because a long word would then be scanned again
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
"""The maximum length of a message and of a traceback, both of which may quote a record."""


def without_secrets(text: str) -> str:
    """The text without the values after `password=`, `"ssl.key.password":` and the like.

    Millstream's own messages contain no secrets, but quoted texts, such as a library's errors, may.
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
    """One JSON object: `timestamp`, `level`, `logger`, `thread`, `message`, and `exception` if there is
    one."""

    def format(self, record: std.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, Any] = {
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": _message(record),
        }
        if traceback := _traceback(self, record):
            fields["exception"] = "\n".join(traceback)
        return json_module.dumps(fields, ensure_ascii=False)


class _Handler(std.StreamHandler[TextIO]):
    """Our handler, which the next call replaces."""


def logging(
    level: int | str = "INFO", *, json: bool = False, stream: TextIO | None = None, root: bool = False
) -> std.Handler:
    """Write logs as readable lines or as JSON. A further call replaces the previous one.

    Only Millstream's own loggers are configured: those of the program and of other libraries stay unchanged,
    and so does the program's own logging setup. Each message is written once, here, and not by the root
    logger's handlers as well. Quoted secrets are hidden.

    Args:
        level: the level of Millstream's messages, such as `"DEBUG"`; with `root`, of all messages.
        json: write one object per line, with UTC times, for log collectors.
        stream: where to write; by default the program's standard error.
        root: configure the root logger instead, and with it all logging of the program. Its existing handlers
            stay.

    Returns:
        The handler, for further changes.

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
    """The text, truncated before the search for secrets, because a handler holds a lock meanwhile."""
    if len(text) <= _MOST_CHARS:
        return without_secrets(text)
    return f"{without_secrets(text[:_MOST_CHARS])}... ({len(text):,} characters)"


def _traceback(formatter: std.Formatter, record: std.LogRecord) -> list[str]:
    """The traceback's lines, indented so that none looks like the beginning of a message."""
    if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
        record.exc_text = formatter.formatException(record.exc_info)
    parts = [record.exc_text] if record.exc_text else []
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    lines = printable_lines("\n".join(map(_shown, parts))).split("\n") if parts else []
    return [line if line.startswith(" ") else f"  {line}" for line in lines]
