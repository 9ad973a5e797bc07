"""Marble diagrams of docs/dsl/: the records of an example on a timeline, and its results below them.

They are made from the records and results on the page, which tests/test_dsl_pages.py runs. There are three
kinds: by order of arrival, and by the records' own time for windows and for joins of streams.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

__all__ = ["Result", "Told", "arrivals", "pairs", "spans", "told"]

_LINE = re.compile(r"(?:(\d\d:\d\d) )?(?:(\S*[^\s:]) )?(\S+?): (.+)")
_WINDOW = re.compile(r"(.+)@(\d\d:\d\d[\d:.]*)\N{EN DASH}(\d\d:\d\d[\d:.]*)")

CHARACTER = 6.7
"""The width of a character, in pixels; the font is monospaced."""
_LINE_HEIGHT = 14.0
_RADIUS = 17.0
_SMALL = 11.0
"""The radius of a marble that contains only its number."""
_BAR = 20.0
_COLOURS = 5

_STYLE = """
  svg { background: #ffffff; color: #1c2733; }
  text { font: 11px ui-monospace, Menlo, Consolas, monospace; fill: currentColor; }
  .faint { fill: #5b7088; }
  .time { stroke: #5b7088; stroke-width: 1.3; }
  .guide { stroke: #b9c6d3; stroke-dasharray: 2 3; }
  .step { fill: #f4f7fa; stroke: #b9c6d3; }
  .key0 { fill: #e5f0ff; stroke: #2f6fc4; }
  .key1 { fill: #fff4dc; stroke: #b98613; }
  .key2 { fill: #e6f6ea; stroke: #2f8a4b; }
  .key3 { fill: #f3e8fb; stroke: #8444b4; }
  .key4 { fill: #ffffff; stroke: #5b7088; }
  .gone { fill: #ffffff; stroke-dasharray: 3 3; }
  .reach { fill-opacity: 0.8; }
  .head { fill: #5b7088; }
  @media (prefers-color-scheme: dark) {
    svg { background: #14191f; color: #dbe4ec; }
    .faint { fill: #8aa0b6; }
    .time { stroke: #8aa0b6; }
    .guide { stroke: #3b4a59; }
    .step { fill: #1b222a; stroke: #3b4a59; }
    .key0 { fill: #17304f; stroke: #6ea8f0; }
    .key1 { fill: #3a2f12; stroke: #d9ab45; }
    .key2 { fill: #16351f; stroke: #63bd80; }
    .key3 { fill: #33204a; stroke: #c08ae8; }
    .key4 { fill: #232c36; stroke: #8aa0b6; }
    .gone { fill: #14191f; }
    .head { fill: #8aa0b6; }
  }
"""


@dataclass(frozen=True)
class Result:
    """A record that arrives or a record that is written.

    Attributes:
        at: its time in minutes since midnight; None if the page gives none.
        window: the start and end of a windowed key, in minutes.
    """

    topic: str
    key: str
    value: str
    at: float | None
    window: tuple[float, float] | None
    text: str

    @property
    def gone(self) -> bool:
        """Whether it is a deletion."""
        return self.value == "null"

    @property
    def lines(self) -> list[str]:
        """The lines below its marble."""
        span = [] if self.window is None else ["\N{EN DASH}".join(map(_clock, self.window))]
        return [*span, self.value]


@dataclass(frozen=True)
class Told:
    """A record and its results."""

    record: Result
    results: tuple[Result, ...]


def told(lines: Iterable[tuple[str, str]]) -> list[Told]:
    """The records of an example, from pairs such as ("09:01 clicks ann: /a", "ann: 1"); "" for no result."""
    by_record: dict[str, list[Result]] = {}
    for given, result in lines:
        by_record.setdefault(given, []).extend([_result(result)] if result else [])
    return [Told(_result(given), tuple(results)) for given, results in by_record.items()]


def _result(text: str) -> Result:
    match = _LINE.fullmatch(text)
    assert match is not None, text
    clock, topic, key, value = match.groups()
    window = _WINDOW.fullmatch(key)
    if value.startswith("{"):
        value = ", ".join(map(str, json.loads(value).values()))
    return Result(
        topic or "",
        window[1] if window else key,
        value,
        None if clock is None else _minutes(clock),
        (_minutes(window[2]), _minutes(window[3])) if window else None,
        text,
    )


def _minutes(clock: str) -> float:
    hours, minutes, *seconds = clock.split(":")
    return int(hours) * 60 + int(minutes) + (float(seconds[0]) / 60 if seconds else 0)


def _clock(minutes: float) -> str:
    return f"{int(minutes) // 60:02}:{int(minutes) % 60:02}"


@dataclass
class Sheet:
    """The parts of a picture, and how much space they take."""

    parts: list[str] = field(default_factory=list)
    under: int = 0
    """How many parts are below the others; these come first."""
    right: float = 0
    bottom: float = 0

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{_class(kind)}>{escape(text)}</text>'
        )
        width = len(text) * CHARACTER
        self._room(x + {"start": width, "middle": width / 2, "end": 0}[anchor], y + 4)

    def line(self, x: float, y: float, right: float, bottom: float, kind: str) -> None:
        """A line below everything else."""
        self.parts.insert(self.under, f'<path d="M{x:.1f},{y:.1f} L{right:.1f},{bottom:.1f}"{_class(kind)}/>')
        self.under += 1
        self._room(right, bottom)

    def lane(self, left: float, y: float, right: float, name: str) -> None:
        """A timeline, below the marbles on it."""
        self.parts.insert(
            self.under, f'<path d="M{left:.1f},{y:.1f} H{right:.1f}" class="time" marker-end="url(#head)"/>'
        )
        self.under += 1
        self.text(left - 12, y + 4, name, anchor="end")
        self._room(right, y)

    def box(self, x: float, y: float, width: float, height: float, kind: str, title: str = "") -> None:
        shape = (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'rx="{min(6.0, width / 2):.1f}"{_class(kind)}/>'
        )
        self.parts.append(f"<g><title>{escape(title)}</title>{shape}</g>" if title else shape)
        self._room(x + width, y + height)

    def circle(self, x: float, y: float, radius: float, kind: str, title: str) -> None:
        self.parts.append(
            f"<g><title>{escape(title)}</title>"
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"{_class(kind)}/></g>'
        )
        self._room(x + radius, y + radius)

    def _room(self, right: float, bottom: float) -> None:
        self.right, self.bottom = max(self.right, right), max(self.bottom, bottom)

    def svg(self, title: str) -> str:
        """The file. The title is for screen readers."""
        width, height = self.right + 16, self.bottom + 12
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="marbles" role="img" '
            f'aria-label="{escape(title)}" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}">\n'
            f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n"
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _colours(examples: Sequence[Told]) -> Callable[[Result], str]:
    """A class for each key; the keys that occur first get the first colours."""
    keys = dict.fromkeys(
        each.key for one in examples for each in (one.record, *one.results) if each.key != "null"
    )
    numbers = {key: min(number, _COLOURS - 1) for number, key in enumerate(keys)}
    return lambda each: f"key{numbers.get(each.key, _COLOURS - 1)}" + (" gone" if each.gone else "")


def _width(each: Result) -> float:
    return max(2 * _RADIUS, max(map(len, each.lines)) * CHARACTER) + 12


def _marble(sheet: Sheet, x: float, y: float, each: Result, kind: str, *below: str) -> float:
    """Draw a circle with its key, and its value below it. Returns where that ends."""
    sheet.circle(x, y, _RADIUS, kind, each.text)
    sheet.text(x, y + 4, each.key)
    lines = [(line, "" if line == each.value else "faint") for line in (*each.lines, *below)]
    for number, (line, kind) in enumerate(lines, 1):
        sheet.text(x, y + _RADIUS + _LINE_HEIGHT * number, line, kind)
    return y + _RADIUS + _LINE_HEIGHT * len(lines) + 5


def _rows(places: Iterable[tuple[float, float]]) -> list[int]:
    """For each span, from left to right, the first row in which it overlaps no other."""
    ends, rows = list[float](), list[int]()
    for left, right in places:
        row = next((row for row, end in enumerate(ends) if end <= left), len(ends))
        ends[row : row + 1] = [right]
        rows.append(row)
    return rows


def arrivals(
    title: str, examples: Sequence[Told], output: str, through: tuple[str, Sequence[Told]] | None = None
) -> str:
    """Records in the order in which they arrive, each above its results.

    Args:
        title: the operator.
        output: the name of the topic of the results.
        through: the operator whose table this one reads, and the same records with the changes of that table.
    """
    steps = [(title, output, examples)]
    if through is not None:
        steps.insert(0, (through[0], "table", through[1]))
    sheet, colour = Sheet(), _colours([each for *_, shown in steps for each in shown])
    topics = list(dict.fromkeys(each.record.topic for each in examples))
    left = 24 + CHARACTER * max(map(len, (*topics, *(name for _, name, _ in steps))))
    columns = [
        [(each.record,), *(shown[i].results for *_, shown in steps)] for i, each in enumerate(examples)
    ]
    widths = [max(68.0, *(sum(map(_width, cell)) for cell in column)) for column in columns]
    middles = [left + 12 + sum(widths[:i]) + width / 2 for i, width in enumerate(widths)]
    right = left + 24 + sum(widths)
    y = 20.0
    if examples[0].record.at is not None:
        for middle, each in zip(middles, examples, strict=True):
            sheet.text(middle, y, _clock(each.record.at or 0), "faint")
        y += 10
    ends = dict[int, float]()  # where a column's guide to the next step starts
    for topic in topics:
        y += _RADIUS
        sheet.lane(left, y, right, topic)
        for column, each in enumerate(examples):
            if each.record.topic == topic:
                ends[column] = _marble(sheet, middles[column], y, each.record, colour(each.record))
        y += _RADIUS + _LINE_HEIGHT + 14
    for step, name, shown in steps:
        for column, end in ends.items():
            sheet.line(middles[column], end, middles[column], y, "guide")
        ends = {}
        sheet.box(left, y, right - left, 26, "step")
        sheet.text((left + right) / 2, y + 17, step)
        y += 26
        middle_y = y + 18 + _RADIUS
        sheet.lane(left, middle_y, right, name)
        for column, each in enumerate(shown):
            x = middles[column] - sum(map(_width, each.results)) / 2
            for result in each.results:
                x += _width(result) / 2
                sheet.line(x, y, x, y + 16, "guide")
                moved = [] if result.at is None else [f"at {_clock(result.at)}"]
                ends[column] = _marble(sheet, x, middle_y, result, colour(result), *moved)
                x += _width(result) / 2
        y = max(middle_y + _RADIUS, *ends.values()) + 10
    return sheet.svg(f"Marble diagram: {title}")


def spans(title: str, examples: Sequence[Told]) -> str:
    """Records at their own times, key by key, and the windows that they are in, with their last values.

    The value of a deleted window is dashed, and so is a record without a result.
    """
    sheet, colour = Sheet(), _colours(examples)
    windows: dict[str, dict[tuple[float, float], tuple[Result, Result]]] = {}
    for each in examples:
        for result in each.results:
            assert result.window is not None
            before = windows.setdefault(result.key, {}).get(result.window)
            windows[result.key][result.window] = (result, before[0] if before and result.gone else result)
    reached = [time for by_window in windows.values() for window in by_window for time in window]
    reached += [each.record.at or 0 for each in examples]
    x_of = _time_line(sheet, reached, 14 + CHARACTER * max(len(f"windows of {key}") for key in windows))
    y = 36.0
    for key, by_window in windows.items():
        mine = [(number, each) for number, each in enumerate(examples, 1) if each.record.key == key]
        mine.sort(key=lambda pair: pair[1].record.at or 0)
        y += _SMALL
        sheet.lane(x_of.left, y, x_of.right, f"{mine[0][1].record.topic} of {key}")
        places = [x_of(each.record) for _, each in mine]
        halves = [len(each.record.value) * CHARACTER / 2 + 4 for _, each in mine]
        rows = _rows((x - half, x + half) for x, half in zip(places, halves, strict=True))
        for x, row, (number, each) in zip(places, rows, mine, strict=True):
            sheet.line(x, y, x, y + _SMALL + 4 + _LINE_HEIGHT * row, "guide")
            kind = colour(each.record) + ("" if each.results else " gone")
            sheet.circle(x, y, _SMALL, kind, each.record.text)
            sheet.text(x, y + 4, str(number))
            sheet.text(x, y + _SMALL + _LINE_HEIGHT * (row + 1), each.record.value)
        y += _SMALL + _LINE_HEIGHT * (max(rows) + 1) + 12
        sheet.text(x_of.left - 12, y + 14, f"windows of {key}", anchor="end")
        bars = sorted(by_window.items())
        drawn = [(x_of.at(start), max(x_of.at(start) + 6, x_of.at(end))) for (start, end), _ in bars]
        labels = [f"{shown.value}, deleted" if last.gone else shown.value for _, (last, shown) in bars]
        texts = [len(label) * CHARACTER + 10 for label in labels]
        fit = [width <= right - left for (left, right), width in zip(drawn, texts, strict=True)]
        rows = _rows(
            (left, right + (4 if inside else 8 + width))
            for (left, right), width, inside in zip(drawn, texts, fit, strict=True)
        )
        for (left, right), row, label, inside, (_, (last, _)) in zip(
            drawn, rows, labels, fit, bars, strict=True
        ):
            top = y + row * (_BAR + 6)
            sheet.box(left, top, right - left, _BAR, colour(last), last.text)
            if inside:
                sheet.text((left + right) / 2, top + 14, label)
            else:
                sheet.text(right + 6, top + 14, label, anchor="start")
        y += (max(rows) + 1) * (_BAR + 6) + 16
    return sheet.svg(f"Windows: {title}")


def pairs(
    title: str, examples: Sequence[Told], output: str, left_topic: str, reach: tuple[float, float]
) -> str:
    """Two streams at their records' own times, and the results of joining them.

    Args:
        left_topic: the topic of the left stream.
        reach: how many minutes before and after a left record a right one can match.
    """
    sheet, colour = Sheet(), _colours(examples)
    before, after = reach
    times = [each.record.at or 0 for each in examples]
    topics = sorted({each.record.topic for each in examples}, key=lambda topic: topic != left_topic)
    x_of = _time_line(
        sheet,
        [*times, *(t - before for t in times), *(t + after for t in times)],
        14 + CHARACTER * max(map(len, (*topics, output))),
    )
    y = 44.0
    numbered = list(enumerate(examples, 1))
    for topic in topics:
        y += _RADIUS
        mine = [(number, each.record) for number, each in numbered if each.record.topic == topic]
        for _, record in mine if topic == left_topic else []:
            x = x_of(record)
            width = (before + after) * x_of.scale
            sheet.box(x - before * x_of.scale, y - 8, width, 16, f"{colour(record)} reach")
        sheet.lane(x_of.left, y, x_of.right, topic)
        for number, record in mine:
            _marble(sheet, x_of(record), y, record, colour(record))
            sheet.text(x_of(record) + _RADIUS + 6, y - _RADIUS + 4, str(number), "faint")
        y += _RADIUS + _LINE_HEIGHT + 18
    sheet.box(x_of.left, y, x_of.right - x_of.left, 26, "step")
    sheet.text((x_of.left + x_of.right) / 2, y + 17, title)
    y += 26 + 22 + _RADIUS
    sheet.lane(x_of.left, y, x_of.right, output)
    found = [(number, each.record, result) for number, each in numbered for result in each.results]
    places = [x_of(result if result.at is not None else record) for _, record, result in found]
    order = sorted(range(len(found)), key=places.__getitem__)
    widths = [max(_width(result), 2 * _RADIUS + 30) / 2 for *_, result in found]
    rows = dict(zip(order, _rows((places[i] - widths[i], places[i] + widths[i]) for i in order), strict=True))
    for i, (number, _, result) in enumerate(found):
        middle = y + rows[i] * (2 * _RADIUS + _LINE_HEIGHT + 16)
        if rows[i]:
            sheet.line(places[i], y, places[i], middle, "guide")
        _marble(sheet, places[i], middle, result, colour(result))
        sheet.text(places[i] + _RADIUS + 6, middle - _RADIUS + 4, str(number), "faint")
    return sheet.svg(f"Marble diagram: {title}")


@dataclass(frozen=True)
class _Times:
    """Where a time is on a line from `left` to `right`."""

    left: float
    right: float
    begin: float
    scale: float

    def at(self, minutes: float) -> float:
        return self.left + 10 + (minutes - self.begin) * self.scale

    def __call__(self, each: Result) -> float:
        assert each.at is not None, each.text
        return self.at(each.at)


def _time_line(sheet: Sheet, times: Sequence[float], left: float) -> _Times:
    """A scale for these times, labelled every five minutes on the sheet."""
    begin, end = (round(side) // 5 * 5 for side in (min(times), max(times) + 4.5))
    scale = min(32.0, 900 / (end - begin))
    times_on = _Times(left + 12, left + 52 + (end - begin) * scale, begin, scale)
    for minute in range(begin, end + 1, 5):
        sheet.text(times_on.at(minute), 18, _clock(minute), "faint")
    return times_on
