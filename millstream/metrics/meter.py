"""The measurements of a client so far: sensors and values of the table, by their tags.

Everything has an owner (a pipeline, a thread, a store) and is removed with it, as Kafka Streams removes the
metrics of a task that it closes. Any thread may record, and any thread may read.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

from millstream.clock import Clock
from millstream.metrics.metrics_table import SENSORS, Definition, definition
from millstream.metrics.sensors import Sensor

__all__ = ["Meter", "Reading", "Tags"]

Tags = tuple[str, ...]
"""The values of tags, in the order of the table."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A metric, the values of its tags, and its own value."""

    metric: Definition
    tags: Tags
    value: int | float | str


class Meter:
    """The measurements of one client.

    Args:
        clock: the windows are measured by its `now`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sensors: dict[tuple[str, Tags], tuple[Sensor, Hashable]] = {}
        self._values: dict[tuple[Definition, Tags], tuple[int | float | str, Hashable]] = {}

    def record(self, sensor: str, tags: Tags, value: float = 1.0, *, owner: Hashable = None) -> None:
        """Record one value of a sensor of the table."""
        now = self._now()
        with self._lock:
            self._sensor(sensor, tags, owner).record(value, now)

    def record_all(
        self,
        sensor: str,
        tags: Tags,
        count: int,
        total: float,
        least: float,
        most: float,
        *,
        owner: Hashable = None,
    ) -> None:
        """Record several values of a sensor of the table, of which only these totals are known."""
        now = self._now()
        with self._lock:
            self._sensor(sensor, tags, owner).record_all(count, total, least, most, now)

    def make(self, sensor: str, tags: Tags, *, owner: Hashable = None) -> None:
        """Create a sensor before it has a value: a counter that has counted nothing is 0, not missing."""
        with self._lock:
            self._sensor(sensor, tags, owner)

    def _sensor(self, sensor: str, tags: Tags, owner: Hashable) -> Sensor:
        known = self._sensors.get((sensor, tags))
        if known is None:
            metric = SENSORS[sensor][0]
            assert len(tags) == len(metric.tags), f"{sensor} has the tags {metric.tags}; got {tags}"
            known = self._sensors[sensor, tags] = (Sensor(), owner)
        return known[0]

    def put(
        self,
        group: str,
        name: str,
        tags: Mapping[str, str],
        value: int | float | str,
        *,
        owner: Hashable = None,
    ) -> None:
        """Set a value of the table without a sensor."""
        metric = definition(group, name, tuple(tags))
        with self._lock:
            self._values[metric, tuple(tags.values())] = (value, owner)

    def forget(self, owner: Hashable) -> None:
        """Remove everything that belongs to an owner."""
        with self._lock:
            self._sensors = {key: each for key, each in self._sensors.items() if each[1] != owner}
            self._values = {key: each for key, each in self._values.items() if each[1] != owner}

    def readings(self) -> Iterator[Reading]:
        """All current values."""
        now = self._now()
        found = []
        with self._lock:
            for (kind, tags), (sensor, _) in self._sensors.items():
                for metric in SENSORS[kind]:
                    assert metric.measure is not None
                    found.append(Reading(metric, tags, metric.measure(sensor, now)))
            found += [Reading(metric, tags, value) for (metric, tags), (value, _) in self._values.items()]
        return iter(found)

    def _now(self) -> int:
        return int(self._clock.now() * 1000)
