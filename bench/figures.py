"""What the benchmarks compute and show: statistics, goals, tables. Pure.

A shared machine is noisy, so no figure is judged alone. What is compared is measured in turns, one pair per
round, and the ratio is taken within each round, where the noise is about the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = [
    "Goal",
    "Report",
    "Spread",
    "Table",
    "median",
    "number",
    "percentile",
    "ratios",
    "rounds",
    "slope",
    "spread",
]


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of the values do not exceed, interpolated between neighbours.

    Raises:
        ValueError: there are no values, or `percent` is not between 0 and 100.
    """
    if not values:
        raise ValueError("no values, so no percentile; the benchmark measured nothing")
    if not 0 <= percent <= 100:
        raise ValueError(f"percentile {percent} is not between 0 and 100")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    between = ordered[below] + (ordered[above] - ordered[below]) * (place - below)
    return min(max(between, ordered[below]), ordered[above])  # rounding must not leave the interval


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return percentile(values, 50)


def number(value: float) -> str:
    """A figure with no more digits than it deserves: 522,811, 96.4, 2.05, 0.047."""
    size = abs(value)
    digits = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2 if size >= 0.1 else 3
    return f"{value:,.{digits}f}"


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some values, and the smallest and largest of them."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def spread(values: Sequence[float]) -> Spread:
    """Median, smallest and largest."""
    return Spread(median(values), min(values), max(values))


def ratios(measured: Sequence[float], baseline: Sequence[float]) -> Spread:
    """Measured over baseline, round by round.

    Raises:
        ValueError: the rounds do not pair up.
    """
    if len(measured) != len(baseline):
        raise ValueError(f"{len(measured)} rounds against {len(baseline)}: they were not measured in turns")
    return spread([mine / other for mine, other in zip(measured, baseline, strict=True)])


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The rise of y per unit of x, by least squares; 0 where x does not change."""
    if len(points) < 2:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    square = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / square if square else 0.0


def rounds(names: Sequence[str], count: int) -> list[tuple[str, ...]]:
    """The order within each round: forwards and backwards in turn, so that drift hits all alike."""
    return [tuple(names) if number % 2 == 0 else tuple(reversed(names)) for number in range(count)]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure should be."""

    what: str
    measured: float
    limit: float
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def __str__(self) -> str:
        sign = "at least" if self.at_least else "at most"
        verdict = "met" if self.met else "MISSED"
        measured, limit = number(self.measured), number(self.limit)
        return f"{verdict}: {self.what} {measured} {self.unit} (goal: {sign} {limit})"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under columns; `notes` are printed below them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table '{self.title}': {len(row)} cells under {len(self.columns)} columns")


@dataclass(frozen=True)
class Report:
    """What one benchmark found: tables for people, goals, and the underlying figures for programs.

    Attributes:
        failed: why there are no results; empty if there are.
    """

    name: str
    tables: tuple[Table, ...] = ()
    goals: tuple[Goal, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
    failed: str = ""

    def as_json(self) -> dict[str, Any]:
        """Everything except the tables, which only format it."""
        goals = [{**asdict(goal), "met": goal.met} for goal in self.goals]
        return {"name": self.name, "goals": goals, "data": self.data, "failed": self.failed}


Progress = Callable[[str], None]
"""Called with what is being measured now."""
