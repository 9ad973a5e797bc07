"""The statistics that benchmarks report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.figures import Goal, Spread, Table, median, number, percentile, ratios, rounds, slope, spread

numbers = st.floats(min_value=-1e6, max_value=1e6, allow_nan=False)


@given(st.lists(numbers, min_size=1), st.floats(0, 100))
def test_a_percentile_lies_within_the_values(values: list[float], percent: float) -> None:
    """No percentile is outside the measured values."""
    assert min(values) <= percentile(values, percent) <= max(values)


def test_percentiles_interpolate_between_neighbours() -> None:
    """0 and 100 are the ends; in between, values are interpolated."""
    values = [40.0, 10.0, 30.0, 20.0]
    assert (percentile(values, 0), percentile(values, 50), percentile(values, 100)) == (10.0, 25.0, 40.0)
    assert median([3.0, 1.0, 2.0]) == 2.0


def test_nothing_measured_is_an_error() -> None:
    """A benchmark without values must not print a number."""
    with pytest.raises(ValueError, match="measured nothing"):
        percentile([], 50)
    with pytest.raises(ValueError, match="between 0 and 100"):
        percentile([1.0], 101)


def test_a_ratio_is_taken_inside_each_round() -> None:
    """When both are twice as slow in one round, the ratio is the same."""
    assert ratios([1.1, 2.2, 1.1], [1.0, 2.0, 1.0]) == Spread(1.1, 1.1, 1.1)
    with pytest.raises(ValueError, match="not measured in turns"):
        ratios([1.0], [1.0, 2.0])


def test_a_spread_has_the_extremes() -> None:
    """Median, smallest and largest, shown in that order."""
    assert spread([5.0, 1.0, 3.0]) == Spread(3.0, 1.0, 5.0)
    assert str(Spread(3.0, 1.0, 5.127)) == "3.00 (1.00 to 5.13)"


@given(numbers, numbers, st.lists(st.integers(-1000, 1000), min_size=2, max_size=20, unique=True))
def test_the_slope_of_a_line_is_its_slope(rise: float, start: float, places: list[int]) -> None:
    """Least squares finds the line that the points lie on."""
    assert slope([(x, start + rise * x) for x in places]) == pytest.approx(rise, abs=1e-3, rel=1e-6)


def test_the_slope_of_one_place_is_zero() -> None:
    """If no records flowed, there is no growth per record."""
    assert slope([(1.0, 5.0)]) == 0.0
    assert slope([(1.0, 5.0), (1.0, 9.0)]) == 0.0


def test_rounds_alternate_their_order() -> None:
    """No variant always comes first."""
    assert rounds(["a", "b"], 3) == [("a", "b"), ("b", "a"), ("a", "b")]


def test_a_goal_says_whether_it_is_met() -> None:
    """A goal can be a minimum or a maximum."""
    assert str(Goal("latency", 70.0, 60.0, "ms")) == "MISSED: latency 70 ms (goal: at most 60)"
    assert Goal("rate", 70.0, 60.0, "records/s", at_least=True).met


def test_a_number_has_no_more_digits_than_it_deserves() -> None:
    """Three or so that mean something, but whole thousands."""
    given = [522810.767, 192.66, 96.41, 2.0473, 0.04679, 0.5, 200_000, 0.0, -12.34]
    said = ["522,811", "193", "96.4", "2.05", "0.047", "0.50", "200,000", "0", "-12.3"]
    assert [number(each) for each in given] == said


def test_a_table_refuses_a_row_that_does_not_fit() -> None:
    """A cell that is missing would shift the others under wrong headings."""
    with pytest.raises(ValueError, match="1 cells under 2 columns"):
        Table("t", ("a", "b"), (("1",),))
