"""Makes text from others safe for a log line or a message. Pure.

Such text comes from other group members, records, topic names and HTTP requests. A newline in it would forge
a log line, an escape sequence would control the terminal that shows it, and a megabyte of it would bury what
matters.
"""

from __future__ import annotations

import logging
import traceback
import unicodedata
from collections.abc import Iterable

__all__ = ["ESCAPED", "MOST_CHARS", "has_controls", "listed", "printable", "printable_lines"]

MOST_CHARS = 500
"""How much of a text is shown by default."""


def printable(text: object, most: int = MOST_CHARS) -> str:
    r"""The text on one line: unprintable characters as `\n` or `\x1b`, and truncated if too long.

    Control and formatting characters (including those that change the direction of writing) and lone
    surrogates count as unprintable. `most` counts characters of `text`. A text that needs no change is
    returned unchanged, so this can be applied twice.
    """
    whole = text if isinstance(text, str) else str(text)
    shown = whole if len(whole) <= most else whole[:most]
    if not shown.isprintable():
        shown = "".join(each if each.isprintable() else _escaped(each) for each in shown)
    return shown if len(whole) <= most else f"{shown}... ({len(whole):,} characters)"


def printable_lines(text: str) -> str:
    """A text of several lines, such as a traceback, with its line breaks; everything else is escaped."""
    if text.isprintable():
        return text
    return "\n".join(
        line if line.isprintable() else "".join(map(_kept_or_escaped, line)) for line in text.split("\n")
    )


def has_controls(text: str) -> bool:
    """Whether a text has control characters, such as NUL, ESC and line breaks: no name or path needs one, and
    each log line, file and request that it gets into would mean something else.
    """
    return any(unicodedata.category(each) in ("Cc", "Zl", "Zp") for each in text)


def listed(names: Iterable[object], most: int = 10) -> str:
    """Quoted, printable names; if there are more than `most`, the first ones and how many more."""
    given = list(names)
    shown = ", ".join(f"'{printable(name, 200)}'" for name in given[:most])
    return f"{shown} and {len(given) - most:,} more" if len(given) > most else shown


class _Escaped(logging.Filter):
    """For loggers of failures, because exceptions may quote records.

    Control characters are escaped in the message. All lines of a traceback are indented, because an
    exception's text may contain lines that look like log lines.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if not message.isprintable():
            record.msg, record.args = printable_lines(message), ()
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            record.exc_text = "\n".join(f"  {line}" for line in printable_lines(text).split("\n"))
        return True


ESCAPED = _Escaped()
"""`log.addFilter(ESCAPED)`."""


def _kept_or_escaped(character: str) -> str:
    return character if character.isprintable() or character == "\t" else _escaped(character)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
