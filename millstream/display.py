"""The display in notebooks: small pieces of HTML. Pure.

All text is escaped, and there are no scripts. Colours are the page's own, with translucent lines, so that it
is readable in light and dark notebooks; elements with their own background also have their own text colour.
Styles are inline, because a style sheet would affect the rest of the page.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape

__all__ = ["badge", "block", "details", "facts", "image", "note", "preformatted", "table", "title"]

_LINE = "1px solid rgba(128,128,128,.35)"
_CELL = f"text-align:left;vertical-align:top;padding:3px 10px;border:0;border-bottom:{_LINE}"
_COLOURS = {"good": "#1a7f4b", "waiting": "#8a5a00", "bad": "#b3261e", "neutral": "#566573"}
_MOST = 80
"""The maximum number of characters shown in a cell."""


def block(*parts: str) -> str:
    """Pieces below each other; what `_repr_html_` returns."""
    return f'<div style="margin:4px 0;line-height:1.45">{"".join(part for part in parts if part)}</div>'


def title(kind: str, name: str, *after: str) -> str:
    """A kind and a name; `after` are further pieces, such as badges."""
    more = "".join(f" {piece}" for piece in after)
    return f"<div>{escape(kind)} <strong>{escape(name)}</strong>{more}</div>"


def badge(word: str, kind: str) -> str:
    """A word on a coloured background: good, waiting, bad or neutral."""
    return (
        f'<span style="background:{_COLOURS[kind]};color:#ffffff;border-radius:9px;padding:1px 9px;'
        f'font-size:85%;font-weight:600">{escape(word)}</span>'
    )


def note(text: str) -> str:
    """A sentence."""
    return f'<div style="margin:3px 0">{escape(text)}</div>'


def facts(pairs: Mapping[str, object]) -> str:
    """Names and values, one pair per line; pairs without a value are left out."""
    rows = "".join(
        f'<tr style="background:transparent"><th scope="row" style="{_CELL};font-weight:400;opacity:.75">'
        f'{escape(name)}</th><td style="{_CELL}">{_cell(value)}</td></tr>'
        for name, value in pairs.items()
        if value not in (None, "")
    )
    return f'<table style="border-collapse:collapse;margin:4px 0"><tbody>{rows}</tbody></table>'


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], more: str = "") -> str:
    """Rows below their columns' names; `more` is a line below them."""
    under = "white-space:nowrap;border-bottom:2px solid rgba(128,128,128,.6)"
    head = "".join(f'<th scope="col" style="{_CELL};{under}">{escape(name)}</th>' for name in columns)
    body = "".join(
        '<tr style="background:transparent">'
        + "".join(f'<td style="{_CELL}{_aligned(value)}">{_cell(value)}</td>' for value in row)
        + "</tr>"
        for row in rows
    )
    below = f'<div style="opacity:.75;font-size:90%">{escape(more)}</div>' if more else ""
    return (
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;margin:4px 0">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{below}"
    )


def preformatted(text: str) -> str:
    """Preformatted text."""
    return (
        f'<pre style="margin:4px 0;overflow-x:auto;background:transparent;color:inherit">{escape(text)}</pre>'
    )


def details(summary: str, inner: str) -> str:
    """A piece that a click shows, without a script."""
    return f"<details><summary>{escape(summary)}</summary>{inner}</details>"


def image(svg: str, alt: str) -> str:
    """A drawing, as an image: its styles and ids stay within it. `alt` is the text for screen readers."""
    data = b64encode(svg.encode()).decode("ascii")
    return (
        f'<img alt="{escape(alt)}" src="data:image/svg+xml;base64,{data}" '
        'style="max-width:100%;height:auto;border-radius:6px">'
    )


def _aligned(value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return ";text-align:right;font-variant-numeric:tabular-nums" if is_number else ""


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    shown = text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"
    return escape(shown)
