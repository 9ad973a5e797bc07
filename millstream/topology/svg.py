"""A drawing as SVG: one file that any browser shows, light or dark, without scripts or fonts of its own.

Each subtopology is laid out by itself, and then the subtopologies and the topics among each other. Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from html import escape

from millstream.topology.drawing import Arrow, Box, BoxKind, Drawing
from millstream.topology.layout import Place, Placed, layered

__all__ = ["svg"]

_CHARACTER = 7.3
_HEIGHT = 34.0
_PADDING = 18.0
_TITLE = 26.0
_MARGIN = 20.0
_LANE = 14.0
"""Arrows that lead back go up at the right, this far from each other."""
_MOST = 60
"""How many characters of a label are shown."""

_STYLE = """
  svg { background: #ffffff; color: #1c2733; }
  text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: currentColor; }
  .title { font-weight: 600; paint-order: stroke; stroke: #f4f7fa; stroke-width: 5px; }
  .group { fill: #f4f7fa; stroke: #b9c6d3; }
  .box { fill: #ffffff; stroke: #5b7088; stroke-width: 1.2; }
  .topic { fill: #e5f0ff; stroke: #2f6fc4; }
  .shuffle { fill: #fff4dc; stroke: #b98613; stroke-dasharray: 5 3; }
  .store { fill: #e6f6ea; stroke: #2f8a4b; }
  .arrow { fill: none; stroke: #5b7088; stroke-width: 1.3; }
  .state { stroke: #2f8a4b; stroke-dasharray: 4 3; }
  .head { fill: #5b7088; }
  @media (prefers-color-scheme: dark) {
    svg { background: #14191f; color: #dbe4ec; }
    .group { fill: #1b222a; stroke: #3b4a59; }
    .title { stroke: #1b222a; }
    .box { fill: #232c36; stroke: #8aa0b6; }
    .topic { fill: #17304f; stroke: #6ea8f0; }
    .shuffle { fill: #3a2f12; stroke: #d9ab45; }
    .store { fill: #16351f; stroke: #63bd80; }
    .arrow { stroke: #8aa0b6; }
    .state { stroke: #63bd80; }
    .head { fill: #8aa0b6; }
  }
"""


def svg(drawing: Drawing, title: str = "Topology") -> str:
    """The picture. The title is what a screen reader says."""
    inner = {group.id: _inner(drawing, group.id) for group in drawing.groups}
    sizes: dict[str, tuple[float, float]] = {}
    for box in drawing.boxes:
        if box.group is None:
            sizes[box.id] = _size(box)
    for group in drawing.groups:
        placed = inner[group.id]
        width = max(placed.width, len(group.title) * _CHARACTER)
        sizes[_outer(group.id)] = (width + 2 * _PADDING, placed.height + 2 * _PADDING + _TITLE)
    home = {box.id: box.id if box.group is None else _outer(box.group) for box in drawing.boxes}
    between = [(home[each.start], home[each.end]) for each in drawing.arrows]
    whole = layered(sizes, [pair for pair in between if pair[0] != pair[1]], layer_gap=54.0)
    places = _places(drawing, inner, whole)
    parts = []
    for group in drawing.groups:
        parts.append(_frame(whole.places[_outer(group.id)]))
    back = 0
    for arrow in drawing.arrows:
        start, end = home[arrow.start], home[arrow.end]
        if places[arrow.end].y < places[arrow.start].y:
            back += 1
            parts.append(_arrow_back(places[arrow.start], places[arrow.end], whole.width, back))
            continue
        if start == end and start != arrow.start:
            number = next(box.group for box in drawing.boxes if box.id == arrow.start)
            assert number is not None
            bends = _moved(inner[number].bends[arrow.start, arrow.end], _corner(whole, number, inner[number]))
        else:
            bends = whole.bends.get((start, end), ())
        parts.append(_arrow(arrow, places[arrow.start], places[arrow.end], bends))
    for box in drawing.boxes:
        parts.append(_box(box, places[box.id]))
    for group in drawing.groups:  # above the arrows
        parts.append(_title(whole.places[_outer(group.id)], group.title))
    width, height = whole.width + back * _LANE + 2 * _MARGIN, whole.height + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" '
        f'width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-_MARGIN:.0f} {-_MARGIN:.0f} {width:.0f} {height:.0f}">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _outer(group: int) -> str:
    return f"group {group}"


def _inner(drawing: Drawing, group: int) -> Placed[str]:
    boxes = {box.id: box for box in drawing.boxes if box.group == group}
    arrows = [(each.start, each.end) for each in drawing.arrows if each.start in boxes and each.end in boxes]
    sinks = [box.id for box in boxes.values() if box.kind is BoxKind.SINK]
    return layered({each: _size(box) for each, box in boxes.items()}, arrows, layer_gap=34.0, last=sinks)


def _corner(whole: Placed[str], group: int, inside: Placed[str]) -> tuple[float, float]:
    """Where the inside of a group begins: its boxes are in the middle, below the title."""
    outer = whole.places[_outer(group)]
    return outer.x + (outer.width - inside.width) / 2, outer.y + _PADDING + _TITLE


def _places(drawing: Drawing, inner: dict[int, Placed[str]], whole: Placed[str]) -> dict[str, Place]:
    places = {}
    for box in drawing.boxes:
        if box.group is None:
            places[box.id] = whole.places[box.id]
        else:
            left, top = _corner(whole, box.group, inner[box.group])
            at = inner[box.group].places[box.id]
            places[box.id] = Place(at.x + left, at.y + top, at.width, at.height)
    return places


def _moved(
    points: Sequence[tuple[float, float]], corner: tuple[float, float]
) -> tuple[tuple[float, float], ...]:
    return tuple((x + corner[0], y + corner[1]) for x, y in points)


def _label(box: Box) -> str:
    text = f"shuffle: {box.label}" if box.kind is BoxKind.SHUFFLE else box.label
    return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"


def _size(box: Box) -> tuple[float, float]:
    return len(_label(box)) * _CHARACTER + 2 * 14.0, _HEIGHT


def _frame(place: Place) -> str:
    return (
        f'<rect class="group" x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
        f'height="{place.height:.1f}" rx="10"/>'
    )


def _title(place: Place, title: str) -> str:
    return f'<text class="title" x="{place.x + _PADDING:.1f}" y="{place.y + 24:.1f}">{escape(title)}</text>'


_ROUND = {BoxKind.TOPIC: 17, BoxKind.SHUFFLE: 17}


def _box(box: Box, place: Place) -> str:
    kind = {BoxKind.TOPIC: " topic", BoxKind.SHUFFLE: " shuffle", BoxKind.STORE: " store"}.get(box.kind, "")
    if box.kind is BoxKind.STORE:
        shape = _cylinder(place, f"box{kind}")
    else:
        shape = (
            f'<rect class="box{kind}" x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
            f'height="{place.height:.1f}" rx="{_ROUND.get(box.kind, 4)}"/>'
        )
    told = f"{box.kind.value} {box.label}"
    text = (
        f'<text text-anchor="middle" x="{place.middle:.1f}" y="{place.y + place.height / 2 + 4:.1f}">'
        f"{escape(_label(box))}</text>"
    )
    return f"<g><title>{escape(told)}</title>{shape}{text}</g>"


def _cylinder(place: Place, kind: str) -> str:
    """A drum, as databases are drawn."""
    x, y, right, bottom, bow = place.x, place.y + 4, place.x + place.width, place.bottom - 4, 5.0
    middle = place.width / 2
    return (
        f'<path class="{kind}" d="M{x:.1f},{y:.1f} a{middle:.1f},{bow} 0 0 1 {place.width:.1f},0 '
        f"V{bottom:.1f} a{middle:.1f},{bow} 0 0 1 {-place.width:.1f},0 z M{x:.1f},{y:.1f} "
        f'a{middle:.1f},{bow} 0 0 0 {right - x:.1f},0"/>'
    )


def _arrow(arrow: Arrow, start: Place, end: Place, bends: Sequence[tuple[float, float]]) -> str:
    """A curve from one box down to the other, through the points on the way."""
    begin, finish = (start.middle, start.bottom), (end.middle, end.y)
    points = [begin, *bends, finish]
    path = f"M{begin[0]:.1f},{begin[1]:.1f}"
    for (x, y), (to_x, to_y) in itertools.pairwise(points):
        half = (y + to_y) / 2
        path += f" C{x:.1f},{half:.1f} {to_x:.1f},{half:.1f} {to_x:.1f},{to_y:.1f}"
    kind, head = ("arrow state", "") if arrow.state else ("arrow", ' marker-end="url(#head)"')
    return f'<path class="{kind}" d="{path}"{head}/>'


def _arrow_back(start: Place, end: Place, right: float, number: int) -> str:
    """From below a box to the right, up beside everything, and down into the other box."""
    lane, shift, bow = right + number * _LANE, 3.5 * (number % 3), 8.0
    low, high = start.bottom + 9 + shift, end.y - 12 - shift
    path = (
        f"M{start.middle:.1f},{start.bottom:.1f} V{low:.1f} H{lane - bow:.1f} "
        f"Q{lane:.1f},{low:.1f} {lane:.1f},{low - bow:.1f} V{high + bow:.1f} "
        f"Q{lane:.1f},{high:.1f} {lane - bow:.1f},{high:.1f} H{end.middle:.1f} V{end.y:.1f}"
    )
    return f'<path class="arrow" d="{path}" marker-end="url(#head)"/>'
