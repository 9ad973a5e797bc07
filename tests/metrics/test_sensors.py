"""Windowed figures, held to Kafka's own sensors."""

from __future__ import annotations

import math

from snapshots.metric_names import measured

from millstream.metrics.sensors import Sensor


def test_a_sensor_measures_what_kafkas_own_measures() -> None:
    """Rates, averages, maxima and minima, over bursts, pauses and silence, to the last digit."""
    sensor, compared = Sensor(), 0
    for line in measured():
        word, at, *values = line.split()
        if word == "record":
            sensor.record(float(values[0]), int(at))
            continue
        now = int(at)
        ours = (
            sensor.rate(now),
            sensor.count_rate(now),
            sensor.average(now),
            sensor.maximum(now),
            sensor.minimum(now),
        )
        theirs = [float(value) for value in values]
        assert all(
            math.isclose(mine, kafkas, rel_tol=1e-12) or (math.isnan(mine) and math.isnan(kafkas))
            for mine, kafkas in zip(ours, theirs, strict=True)
        ), f"{line}: {ours}"
        compared += 1
    assert compared > 50


def test_the_totals_are_of_all_time_and_the_last_value_stays() -> None:
    """A window forgets; a counter does not."""
    sensor = Sensor()
    sensor.record(3.0, 0)
    sensor.record(4.0, 10_000_000)
    assert (sensor.count, sensor.total, sensor.last) == (2, 7.0, 4.0)
    assert sensor.average(20_000_000) != sensor.average(20_000_000)  # NaN: the window is empty
    assert sensor.rate(20_000_000) == 0.0
