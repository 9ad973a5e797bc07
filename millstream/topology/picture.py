"""A drawing with positions: the place of each box, and the curve of each arrow. Pure.

Each subtopology is laid out separately; then the subtopologies and topics are arranged together. svg.py
writes the result as a file; the dashboard draws it in a browser.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.topology.drawing import Arrow, Box, BoxKind, Drawing, DrawnGroup
from millstream.topology.drawing_layout import BoxPlace, Placed, layered

__all__ = ["PADDING", "Line", "Picture", "label_of", "picture_of"]

PADDING = 18.0
"""The distance between a subtopology's frame and its contents."""
_CHARACTER = 7.3
_HEIGHT = 34.0
_TITLE = 26.0
_LANE = 14.0
"""The distance between the arrows that lead back, which go up on the right."""
_MOST = 60
"""The number of characters shown of a label."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """An arrow as a curve: `path` is in SVG's language; `label` is the place for text beside it."""

    arrow: Arrow
    path: str
    label: Point


@dataclass(frozen=True, slots=True)
class Picture:
    """The whole picture, from (0, 0) to (width, height)."""

    frames: tuple[tuple[DrawnGroup, BoxPlace], ...]
    boxes: tuple[tuple[Box, BoxPlace], ...]
    lines: tuple[Line, ...]
    width: float
    height: float

    def as_dict(self) -> dict[str, object]:
        """Everything, ready for `json.dumps`."""
        return {
            "width": round(self.width, 1),
            "height": round(self.height, 1),
            "frames": [
                {"title": group.title, "pipeline": group.pipeline, **_rectangle(place)}
                for group, place in self.frames
            ],
            "boxes": [
                {
                    "id": box.id,
                    "kind": box.kind.value,
                    "name": box.label,
                    "label": label_of(box),
                    **_rectangle(place),
                }
                for box, place in self.boxes
            ],
            "lines": [
                {
                    "from": line.arrow.start,
                    "to": line.arrow.end,
                    "kind": "state" if line.arrow.state else "records",
                    "path": line.path,
                    "x": round(line.label[0], 1),
                    "y": round(line.label[1], 1),
                }
                for line in self.lines
            ],
        }


def _rectangle(place: BoxPlace) -> dict[str, float]:
    values = {"x": place.x, "y": place.y, "width": place.width, "height": place.height}
    return {name: round(value, 1) for name, value in values.items()}


def picture_of(drawing: Drawing) -> Picture:
    """Places and curves for a drawing."""
    inner = {group.id: _inner(drawing, group.id) for group in drawing.groups}
    sizes: dict[str, tuple[float, float]] = {}
    for box in drawing.boxes:
        if box.group is None:
            sizes[box.id] = _size(box)
    for group in drawing.groups:
        placed = inner[group.id]
        width = max(placed.width, len(group.title) * _CHARACTER)
        sizes[_outer(group.id)] = (width + 2 * PADDING, placed.height + 2 * PADDING + _TITLE)
    home = {box.id: box.id if box.group is None else _outer(box.group) for box in drawing.boxes}
    between = [(home[each.start], home[each.end]) for each in drawing.arrows]
    whole = layered(sizes, [pair for pair in between if pair[0] != pair[1]], layer_gap=54.0)
    places = _places(drawing, inner, whole)
    lines: list[Line] = []
    back = 0
    for arrow in drawing.arrows:
        start, end = home[arrow.start], home[arrow.end]
        if places[arrow.end].y < places[arrow.start].y:
            back += 1
            lines.append(_line_back(arrow, places, whole.width, back))
            continue
        if start == end and start != arrow.start:
            number = next(box.group for box in drawing.boxes if box.id == arrow.start)
            assert number is not None
            bends = _moved(inner[number].bends[arrow.start, arrow.end], _corner(whole, number, inner[number]))
        else:
            bends = whole.bends.get((start, end), ())
        lines.append(_line(arrow, places, bends))
    return Picture(
        tuple((group, whole.places[_outer(group.id)]) for group in drawing.groups),
        tuple((box, places[box.id]) for box in drawing.boxes),
        tuple(lines),
        whole.width + back * _LANE,
        whole.height,
    )


def label_of(box: Box) -> str:
    """The text in a box."""
    text = box.label
    return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"


def _outer(group: int) -> str:
    return f"group {group}"


def _inner(drawing: Drawing, group: int) -> Placed[str]:
    boxes = {box.id: box for box in drawing.boxes if box.group == group}
    arrows = [(each.start, each.end) for each in drawing.arrows if each.start in boxes and each.end in boxes]
    sinks = [box.id for box in boxes.values() if box.kind is BoxKind.SINK]
    return layered({each: _size(box) for each, box in boxes.items()}, arrows, layer_gap=34.0, last=sinks)


def _corner(whole: Placed[str], group: int, inside: Placed[str]) -> Point:
    """The upper left corner of a group's contents: its boxes are centered, below the title."""
    outer = whole.places[_outer(group)]
    return outer.x + (outer.width - inside.width) / 2, outer.y + PADDING + _TITLE


def _places(drawing: Drawing, inner: dict[int, Placed[str]], whole: Placed[str]) -> dict[str, BoxPlace]:
    places = {}
    for box in drawing.boxes:
        if box.group is None:
            places[box.id] = whole.places[box.id]
        else:
            left, top = _corner(whole, box.group, inner[box.group])
            at = inner[box.group].places[box.id]
            places[box.id] = BoxPlace(at.x + left, at.y + top, at.width, at.height)
    return places


def _moved(points: Sequence[Point], corner: Point) -> tuple[Point, ...]:
    return tuple((x + corner[0], y + corner[1]) for x, y in points)


def _size(box: Box) -> tuple[float, float]:
    return len(label_of(box)) * _CHARACTER + 2 * 14.0, _HEIGHT


def _line(arrow: Arrow, places: dict[str, BoxPlace], bends: Sequence[Point]) -> Line:
    """A curve from one box down to the other, through the points on the way."""
    start, end = places[arrow.start], places[arrow.end]
    begin, finish = (start.middle, start.bottom), (end.middle, end.y)
    points = [begin, *bends, finish]
    path = f"M{begin[0]:.1f},{begin[1]:.1f}"
    middle = begin
    for (x, y), (to_x, to_y) in itertools.pairwise(points):
        half = (y + to_y) / 2
        path += f" C{x:.1f},{half:.1f} {to_x:.1f},{half:.1f} {to_x:.1f},{to_y:.1f}"
        middle = ((x + to_x) / 2, half)
    return Line(arrow, path, middle)


def _line_back(arrow: Arrow, places: dict[str, BoxPlace], right: float, number: int) -> Line:
    """From below a box to the right, up beside everything, and down into the other box."""
    start, end = places[arrow.start], places[arrow.end]
    lane, shift, bow = right + number * _LANE, 3.5 * (number % 3), 8.0
    low, high = start.bottom + 9 + shift, end.y - 12 - shift
    path = (
        f"M{start.middle:.1f},{start.bottom:.1f} V{low:.1f} H{lane - bow:.1f} "
        f"Q{lane:.1f},{low:.1f} {lane:.1f},{low - bow:.1f} V{high + bow:.1f} "
        f"Q{lane:.1f},{high:.1f} {lane - bow:.1f},{high:.1f} H{end.middle:.1f} V{end.y:.1f}"
    )
    return Line(arrow, path, (lane, (low + high) / 2))
