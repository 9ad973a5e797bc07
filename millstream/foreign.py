"""Text that somebody else wrote, made fit for a log line or a message. Pure.

Other members of the group, records, topics' names and HTTP requests are not ours. A newline in one of them
would forge a line of the log, an escape sequence would command the terminal that shows it, and a megabyte
would bury what matters.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable

__all__ = ["ESCAPED", "MOST_CHARS", "listed", "printable", "printable_lines"]

MOST_CHARS = 500
"""How much of a text is shown, unless the caller says otherwise."""


def printable(text: object, most: int = MOST_CHARS) -> str:
    r"""The text on one line: what cannot be printed as `\n` or `\x1b`, and what is too long cut.

    Control and formatting characters (those that turn the direction of writing are among them) and lone
    surrogates cannot be printed. `most` counts characters of `text`; it is the answer, too, where nothing
    needs to be changed, so a text may go through this twice.
    """
    whole = text if isinstance(text, str) else str(text)
    shown = whole if len(whole) <= most else whole[:most]
    if not shown.isprintable():
        shown = "".join(each if each.isprintable() else _escaped(each) for each in shown)
    return shown if len(whole) <= most else f"{shown}... ({len(whole):,} characters)"


def printable_lines(text: str) -> str:
    """A text of several lines, such as a traceback, on as many lines; everything else is escaped."""
    if text.isprintable():
        return text
    return "\n".join(
        line if line.isprintable() else "".join(map(_kept_or_escaped, line)) for line in text.split("\n")
    )


def listed(names: Iterable[object], most: int = 10) -> str:
    """Names in quotes, each made printable; of more than `most`, the first ones and how many more."""
    given = list(names)
    shown = ", ".join(f"'{printable(name, 200)}'" for name in given[:most])
    return f"{shown} and {len(given) - most:,} more" if len(given) > most else shown


class _Escaped(logging.Filter):
    """For loggers of what fails: exceptions may quote records.

    Control characters leave the message. A traceback gets no line that begins where a log line would: the
    text of an exception may have lines of its own.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if not message.isprintable():
            record.msg, record.args = printable_lines(message), ()
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            told = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            record.exc_text = "\n".join(f"  {line}" for line in printable_lines(told).split("\n"))
        return True


ESCAPED = _Escaped()
"""`log.addFilter(ESCAPED)`."""


def _kept_or_escaped(character: str) -> str:
    return character if character.isprintable() or character == "\t" else _escaped(character)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
