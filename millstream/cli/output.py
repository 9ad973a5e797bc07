"""How commands print their results: a table or text for people, or JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

import typer

from millstream.foreign import printable, printable_lines

__all__ = ["Json", "as_json", "counted", "print_as", "table", "yes"]

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def print_as(is_json: bool, data: Any, text: str) -> None:
    """Print one of them. Control characters from data in `text` cannot control the terminal."""
    typer.echo(as_json(data) if is_json else printable_lines(text.rstrip("\n")))


def as_json(data: Any, *, one_line: bool = False) -> str:
    """JSON on several lines or, for streams of objects, on one.

    Unprintable characters are escaped, because a terminal may show the text. NaN and infinities, which JSON
    lacks, become texts.
    """
    indent = None if one_line else 2
    try:
        text = json.dumps(data, ensure_ascii=False, indent=indent, default=str, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(data), ensure_ascii=False, indent=indent, default=str)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else str(data)
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    return [_finite(each) for each in data] if isinstance(data, list | tuple) else data


def counted(number: int, thing: str) -> str:
    """`1 partition`, `2 partitions`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def table(
    heads: Sequence[str], rows: Sequence[Sequence[object]], right: Collection[str] = (), *, most: int = 200
) -> str:
    """Columns as wide as their contents, two spaces apart; those in `right` are right-aligned.

    Args:
        most: how many characters of a cell are shown.
    """
    shown = [[printable("-" if cell is None else cell, most) for cell in row] for row in rows]
    lines = [[printable(head.upper(), 200) for head in heads], *shown]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if head in right else cell.ljust(width)
            for cell, width, head in zip(line, widths, heads, strict=True)
        ).rstrip()
        for line in lines
    )


def yes(value: object) -> str:
    """A boolean as a word."""
    return "yes" if value else "no"


def facts(values: Mapping[str, object]) -> str:
    """Names and values, one per line."""
    width = max(map(len, values), default=0)
    return "\n".join(f"{name:<{width}}  {printable(value, 2000)}" for name, value in values.items())
