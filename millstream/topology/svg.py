"""A drawing as SVG: one file for any browser, light or dark, without scripts or embedded fonts.

Positions and curves come from picture.py. Pure.
"""

from __future__ import annotations

from html import escape

from millstream.topology.drawing import Box, BoxKind, Drawing
from millstream.topology.drawing_layout import BoxPlace
from millstream.topology.picture import PADDING, Line, label_of, picture_of

__all__ = ["svg"]

_MARGIN = 20.0

_STYLE = """
  svg { background: #ffffff; color: #1c2733; }
  text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: currentColor; }
  .title { font-weight: 600; paint-order: stroke; stroke: #f4f7fa; stroke-width: 5px; }
  .group { fill: #f4f7fa; stroke: #b9c6d3; }
  .box { fill: #ffffff; stroke: #5b7088; stroke-width: 1.2; }
  .topic { fill: #e5f0ff; stroke: #2f6fc4; }
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
    .store { fill: #16351f; stroke: #63bd80; }
    .arrow { stroke: #8aa0b6; }
    .state { stroke: #63bd80; }
    .head { fill: #8aa0b6; }
  }
"""


def svg(drawing: Drawing, title: str = "Topology") -> str:
    """The picture. The title is for screen readers."""
    picture = picture_of(drawing)
    parts = [_frame(place) for _, place in picture.frames]
    parts += [_arrow(line) for line in picture.lines]
    parts += [_box(box, place) for box, place in picture.boxes]
    parts += [_title(place, group.title) for group, place in picture.frames]  # above the arrows
    width, height = picture.width + 2 * _MARGIN, picture.height + 2 * _MARGIN
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


def _frame(place: BoxPlace) -> str:
    return (
        f'<rect class="group" x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
        f'height="{place.height:.1f}" rx="10"/>'
    )


def _title(place: BoxPlace, title: str) -> str:
    return f'<text class="title" x="{place.x + PADDING:.1f}" y="{place.y + 24:.1f}">{escape(title)}</text>'


_ROUND = {BoxKind.TOPIC: 17}


def _box(box: Box, place: BoxPlace) -> str:
    kind = {BoxKind.TOPIC: " topic", BoxKind.STORE: " store"}.get(box.kind, "")
    if box.kind is BoxKind.STORE:
        shape = _cylinder(place, f"box{kind}")
    else:
        shape = (
            f'<rect class="box{kind}" x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
            f'height="{place.height:.1f}" rx="{_ROUND.get(box.kind, 4)}"/>'
        )
    label = f"{box.kind.value} {box.label}"
    text = (
        f'<text text-anchor="middle" x="{place.middle:.1f}" y="{place.y + place.height / 2 + 4:.1f}">'
        f"{escape(label_of(box))}</text>"
    )
    return f"<g><title>{escape(label)}</title>{shape}{text}</g>"


def _cylinder(place: BoxPlace, kind: str) -> str:
    """A cylinder, the symbol for a database."""
    x, y, right, bottom, bow = place.x, place.y + 4, place.x + place.width, place.bottom - 4, 5.0
    middle = place.width / 2
    return (
        f'<path class="{kind}" d="M{x:.1f},{y:.1f} a{middle:.1f},{bow} 0 0 1 {place.width:.1f},0 '
        f"V{bottom:.1f} a{middle:.1f},{bow} 0 0 1 {-place.width:.1f},0 z M{x:.1f},{y:.1f} "
        f'a{middle:.1f},{bow} 0 0 0 {right - x:.1f},0"/>'
    )


def _arrow(line: Line) -> str:
    state = line.arrow.state
    kind, head = ("arrow state", "") if state else ("arrow", ' marker-end="url(#head)"')
    return f'<path class="{kind}" d="{line.path}"{head}/>'
