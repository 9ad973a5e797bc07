"""Places for boxes and arrows, in layers from the top down. Pure.

Sugiyama's method: arrows that close a cycle are reversed. Each box is placed below all boxes that lead to it.
Long arrows get a point in each layer that they cross. The layers are ordered for few crossings, by the median
of the neighbours. Then boxes move towards the middle of their neighbours, as far as there is room.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["BoxPlace", "Placed", "layered"]

Id = TypeVar("Id", bound=Hashable)

_SWEEPS = 8
_THIN = 12.0
"""The width of a long arrow's point in a layer."""


@dataclass(frozen=True, slots=True)
class BoxPlace:
    """The position of a box: its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """Its horizontal middle."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height


@dataclass(frozen=True, slots=True)
class Placed(Generic[Id]):
    """The layout: the positions of boxes, and each arrow's points between its start and its end."""

    places: Mapping[Id, BoxPlace]
    bends: Mapping[tuple[Id, Id], tuple[tuple[float, float], ...]]
    width: float
    height: float


def layered(
    sizes: Mapping[Id, tuple[float, float]],
    arrows: Iterable[tuple[Id, Id]],
    *,
    gap: float = 28.0,
    layer_gap: float = 44.0,
    last: Iterable[Id] = (),
) -> Placed[Id]:
    """Positions for boxes of these sizes. Ties are broken by the order in `sizes`.

    Args:
        last: the boxes for the lowest layer.
    """
    if not sizes:
        return Placed({}, {}, 0.0, 0.0)
    given = list(dict.fromkeys((start, end) for start, end in arrows if start != end))
    down = _without_circles(list(sizes), given)
    layer_of = _layers(list(sizes), down, set(last))
    vertices: dict[Hashable, tuple[float, float]] = {}
    vertices.update(sizes.items())
    chains: dict[tuple[Id, Id], list[Hashable]] = {}
    links: list[tuple[Hashable, Hashable]] = []
    at: dict[Hashable, int] = {}
    at.update(layer_of.items())
    for start, end in down:
        chain: list[Hashable] = [start]
        for layer in range(layer_of[start] + 1, layer_of[end]):
            point = ("bend", start, end, layer)
            vertices[point], at[point] = (_THIN, 0.0), layer
            chain.append(point)
        chain.append(end)
        chains[start, end] = chain
        links += itertools.pairwise(chain)
    layers = _ordered(vertices, at, links)
    x = _horizontal(layers, vertices, links, gap)
    y, height = _vertical(layers, vertices, layer_gap)
    left = min(x.values())
    places = {
        each: BoxPlace(x[each] - left, y[at[each]] + (_tall(layers[at[each]], vertices) - size[1]) / 2, *size)
        for each, size in sizes.items()
    }
    bends = {}
    for start, end in given:
        chain = chains[start, end] if (start, end) in chains else chains[end, start][::-1]
        points = ((x[each] - left + _THIN / 2, at[each]) for each in chain[1:-1])
        bends[start, end] = tuple(
            (across, y[row] + _tall(layers[row], vertices) / 2) for across, row in points
        )
    width = max(x[each] - left + vertices[each][0] for each in vertices)
    return Placed(places, bends, width, height)


def _without_circles(ids: Sequence[Id], arrows: Sequence[tuple[Id, Id]]) -> list[tuple[Id, Id]]:
    """The arrows, with those that lead back to an earlier box reversed.

    The order of boxes: sources first, sinks last, and the rest by outgoing minus incoming arrows, largest
    first. Ties are broken by the given order.
    Source: Eades, Lin, Smyth, "A fast and effective heuristic for the feedback arc set problem", 1993.
    """
    left = list(ids)
    first: list[Id] = []
    last: list[Id] = []
    while left:
        among = [(start, end) for start, end in arrows if start in left and end in left]
        leads, led_to = {start for start, _ in among}, {end for _, end in among}
        ends = [each for each in left if each not in leads]
        begins = [each for each in left if each not in led_to]
        if ends:
            last = ends + last
        elif begins:
            first += begins
        else:
            most = max(left, key=lambda each: sum((start == each) - (end == each) for start, end in among))
            begins = [most]
            first += begins
        gone = {*ends} or {*begins}
        left = [each for each in left if each not in gone]
    place = {each: number for number, each in enumerate(first + last)}
    turned = (arrow if place[arrow[0]] < place[arrow[1]] else (arrow[1], arrow[0]) for arrow in arrows)
    return list(dict.fromkeys(turned))


def _layers(ids: Sequence[Id], arrows: Sequence[tuple[Id, Id]], last: set[Id]) -> dict[Id, int]:
    """Places each box one layer below the lowest box that leads to it."""
    before: dict[Id, list[Id]] = {each: [] for each in ids}
    after: dict[Id, list[Id]] = {each: [] for each in ids}
    for start, end in arrows:
        before[end].append(start)
        after[start].append(end)
    layer: dict[Id, int] = {}
    waiting = {each: len(before[each]) for each in ids}
    ready = [each for each in ids if not waiting[each]]
    while ready:
        each = ready.pop(0)
        layer[each] = max((layer[one] + 1 for one in before[each]), default=0)
        for one in after[each]:
            waiting[one] -= 1
            if not waiting[one]:
                ready.append(one)
    # A box without incoming arrows is placed near its successors.
    for each in sorted(ids, key=lambda one: layer[one], reverse=True):
        if not before[each] and after[each]:
            layer[each] = min(layer[one] for one in after[each]) - 1
    lowest = max(layer.values())
    return {each: lowest if each in last and not after[each] else layer[each] for each in ids}


def _ordered(
    vertices: Mapping[Hashable, tuple[float, float]],
    at: Mapping[Hashable, int],
    links: Sequence[tuple[Hashable, Hashable]],
) -> list[list[Hashable]]:
    above: dict[Hashable, list[Hashable]] = {each: [] for each in vertices}
    below: dict[Hashable, list[Hashable]] = {each: [] for each in vertices}
    for start, end in links:
        below[start].append(end)
        above[end].append(start)
    layers: list[list[Hashable]] = [[] for _ in range(max(at.values()) + 1)]
    for each in vertices:
        layers[at[each]].append(each)
    best, fewest = [list(layer) for layer in layers], _crossings(layers, below)
    for sweep in range(_SWEEPS):
        neighbours, order = (above, layers) if sweep % 2 == 0 else (below, layers[::-1])
        previous: dict[Hashable, int] = {}
        for layer in order:
            own = {each: place for place, each in enumerate(layer)}
            layer.sort(key=lambda each: _median(neighbours[each], previous, own[each]))
            previous = {each: place for place, each in enumerate(layer)}
        crossings = _crossings(layers, below)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    return best


def _median(neighbours: Sequence[Hashable], places: Mapping[Hashable, int], own: int) -> float:
    known = sorted(places[each] for each in neighbours if each in places)
    if not known:
        return float(own)
    middle = len(known) // 2
    return float(known[middle]) if len(known) % 2 else (known[middle - 1] + known[middle]) / 2


def _crossings(layers: Sequence[Sequence[Hashable]], below: Mapping[Hashable, Sequence[Hashable]]) -> int:
    count = 0
    for upper, lower in itertools.pairwise(layers):
        place = {each: number for number, each in enumerate(lower)}
        ends = [sorted(place[end] for end in below[each] if end in place) for each in upper]
        for number, one in enumerate(ends):
            for other in ends[number + 1 :]:
                count += sum(mine > its for mine in one for its in other)
    return count


def _horizontal(
    layers: Sequence[Sequence[Hashable]],
    vertices: Mapping[Hashable, tuple[float, float]],
    links: Sequence[tuple[Hashable, Hashable]],
    gap: float,
) -> dict[Hashable, float]:
    neighbours: dict[Hashable, list[Hashable]] = {each: [] for each in vertices}
    for start, end in links:
        neighbours[start].append(end)
        neighbours[end].append(start)
    x: dict[Hashable, float] = {}
    for layer in layers:
        right = 0.0
        for each in layer:
            x[each] = right
            right += vertices[each][0] + gap

    def middle(each: Hashable) -> float:
        return x[each] + vertices[each][0] / 2

    for sweep in range(_SWEEPS * 2):
        for layer in layers if sweep % 2 == 0 else layers[::-1]:
            wanted = [
                (sum(map(middle, near)) / len(near) if (near := neighbours[each]) else middle(each))
                - vertices[each][0] / 2
                for each in layer
            ]
            for each, place in zip(layer, _apart(layer, wanted, vertices, gap), strict=True):
                x[each] = place
    return x


def _apart(
    layer: Sequence[Hashable],
    wanted: Sequence[float],
    vertices: Mapping[Hashable, tuple[float, float]],
    gap: float,
) -> list[float]:
    """Positions in this order, separated by the gap, as close as possible to the wanted ones.

    Boxes that would touch become a block, placed at the average of the positions that its boxes want.
    """
    blocks: list[tuple[float, float, list[float]]] = []  # its start, its width, its boxes' positions
    for each, place in zip(layer, wanted, strict=True):
        start, width, inside = place, vertices[each][0] + gap, [0.0]
        while blocks and blocks[-1][0] + blocks[-1][1] > start:
            before, its_width, its_inside = blocks.pop()
            count, own = len(its_inside), len(inside)
            start = (before * count + (start - its_width) * own) / (count + own)
            inside = its_inside + [its_width + offset for offset in inside]
            width += its_width
        blocks.append((start, width, inside))
    return [start + offset for start, _, inside in blocks for offset in inside]


def _vertical(
    layers: Sequence[Sequence[Hashable]], vertices: Mapping[Hashable, tuple[float, float]], gap: float
) -> tuple[list[float], float]:
    tops, top = [], 0.0
    for layer in layers:
        tops.append(top)
        top += _tall(layer, vertices) + gap
    return tops, top - gap


def _tall(layer: Sequence[Hashable], vertices: Mapping[Hashable, tuple[float, float]]) -> float:
    return max(vertices[each][1] for each in layer)
