"""The cheapest flow through a network, of all that can flow. Pure; it knows nothing of tasks.

Primal-dual: the shortest paths are filled (Dinic), and then the next longer ones are found (Dijkstra, with
potentials). How often depends on how many different lengths there are, not on how much flows.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

__all__ = ["CheapestFlow"]


class CheapestFlow:
    """A network, and what flows through it."""

    def __init__(self) -> None:
        self._edges: list[list[int]] = []
        """Of each node, the numbers of its edges; an edge and its reverse have numbers that differ by one."""
        self._to: list[int] = []
        self._left: list[int] = []
        self._cost: list[int] = []

    def node(self) -> int:
        """A new node."""
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, from_: int, to: int, most: int, cost: int) -> int:
        """A new edge."""
        number = len(self._to)
        for start, end, left, price in ((from_, to, most, cost), (to, from_, 0, -cost)):
            self._edges[start].append(len(self._to))
            self._to.append(end)
            self._left.append(left)
            self._cost.append(price)
        return number

    def amount(self, edge: int) -> int:
        """How much flows through an edge."""
        return self._left[edge + 1]

    def run(self, source: int, sink: int) -> tuple[int, int]:
        """How much flows, and what it costs. Costs are not negative."""
        height = [0] * len(self._edges)
        total = cost = 0
        while True:
            far = self._distances(source, sink, height)
            if far is None:
                return total, cost
            reach = far[sink]
            assert reach is not None
            for node, distance in enumerate(far):
                height[node] += reach if distance is None else min(distance, reach)
            while amount := self._block(source, sink, height):
                total += amount
                cost += amount * (height[sink] - height[source])

    def _distances(self, source: int, sink: int, height: Sequence[int]) -> list[int | None] | None:
        """How far each node is from the source; None: farther than the sink. None: it cannot be reached."""
        to, left, cost = self._to, self._left, self._cost
        far: list[int | None] = [None] * len(self._edges)
        heap = [(0, source)]
        known: dict[int, int] = {source: 0}
        while heap:
            distance, node = heappop(heap)
            if far[node] is not None:
                continue
            far[node] = distance
            if node == sink:
                return far
            above = distance + height[node]
            for edge in self._edges[node]:
                if left[edge]:
                    end = to[edge]
                    if far[end] is None:
                        further = above + cost[edge] - height[end]
                        if end not in known or further < known[end]:
                            known[end] = further
                            heappush(heap, (further, end))
        return None

    def _block(self, source: int, sink: int, height: Sequence[int]) -> int:
        """Fill the shortest paths, of those that have the fewest edges."""
        to, left, cost, edges = self._to, self._left, self._cost, self._edges
        level = {source: 0}
        row = [source]
        while row and sink not in level:
            following = []
            for node in row:
                for edge in edges[node]:
                    end = to[edge]
                    if left[edge] and end not in level and height[node] + cost[edge] == height[end]:
                        level[end] = level[node] + 1
                        following.append(end)
            row = following
        if sink not in level:
            return 0
        next_edge = [0] * len(edges)
        path: list[int] = []
        node, filled = source, 0
        while True:
            if node == sink:
                amount = min(left[edge] for edge in path)
                filled += amount
                for edge in path:
                    left[edge] -= amount
                    left[edge ^ 1] += amount
                first = next(number for number, edge in enumerate(path) if not left[edge])
                node = to[path[first] ^ 1]
                del path[first:]
            while next_edge[node] < len(edges[node]):
                edge = edges[node][next_edge[node]]
                end = to[edge]
                if (
                    left[edge]
                    and level.get(end) == level[node] + 1
                    and height[node] + cost[edge] == height[end]
                ):
                    path.append(edge)
                    node = end
                    break
                next_edge[node] += 1
            else:
                if node == source:
                    return filled
                edge = path.pop()
                node = to[edge ^ 1]
                next_edge[node] += 1
