"""The metrics of a client for OpenTelemetry: for each, an observable instrument, read at export.

    from millstream.metrics.otel import observe

    observe(streams)                                     # with the program's meter provider

Instruments are named as in Prometheus, with dots between domain, group and name, and counters without
`_total`: `kafka.streams.stream_thread_metrics.process_rate`. A Prometheus exporter turns them into the same
names as `prometheus.py`. Tags become attributes, such as `thread_id`; `client_id` is always present.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from millstream.errors import SetupException
from millstream.metrics.client_metrics import ClientMetrics
from millstream.metrics.metrics_table import DEFINITIONS, Definition, is_counter
from millstream.metrics.prometheus import HasMetrics, labels_of, prometheus_name

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

__all__ = ["instrument_name", "observe"]

_ONE_EXPORT_S = 0.2
"""How long a snapshot is used: instruments are read one after the other, and must be consistent."""
_UNITS = {"bytes": "By", "number": "1", "1/s": "1/s", "1/h": "1/h", "ms": "ms", "s": "s", "1": "1"}


def observe(streams: HasMetrics, provider: MeterProvider | None = None) -> None:
    """Create the instruments of a client. Once it has closed, they report nothing.

    Args:
        streams: a `KafkaStreams`.
        provider: the meter provider; by default, the program's own.

    Raises:
        SetupException: OpenTelemetry is not installed.
    """
    if find_spec("opentelemetry") is None:
        raise SetupException(
            "OpenTelemetry's API is missing: pip install 'millstream[otel]', and an SDK of your choice"
        )
    from opentelemetry import metrics

    meter = (provider or metrics.get_meter_provider()).get_meter("millstream")
    last = _Snapshot(streams)
    for name, each in {instrument_name(each): each for each in DEFINITIONS if each.unit != "text"}.items():
        create = meter.create_observable_counter if is_counter(each.name) else meter.create_observable_gauge
        unit = _UNITS.get(each.unit, f"{{{each.unit}}}")
        create(name, callbacks=[_reader(last, each)], unit=unit, description=each.description)


def instrument_name(metric: Definition) -> str:
    """The name of a metric."""
    name = prometheus_name(metric.group, metric.name)
    group = metric.group.replace("-", "_")
    domain, _, rest = name.partition(f"_{group}_")
    rest = rest.removesuffix("_total") if is_counter(metric.name) else rest
    return f"{domain.replace('_', '.')}.{group}.{rest}"


class _Snapshot:
    """A client's metrics by group and name, from a recent snapshot."""

    def __init__(self, streams: HasMetrics) -> None:
        self._streams = streams
        self._lock = threading.Lock()
        self._at = float("-inf")
        self._metrics: dict[tuple[str, str], list[tuple[dict[str, str], Any]]] = {}

    def of(self, group: str, name: str) -> list[tuple[dict[str, str], Any]]:
        """Attributes and value of each metric of that name."""
        with self._lock:
            if time.monotonic() - self._at > _ONE_EXPORT_S:
                self._take(self._streams.metrics())
                self._at = time.monotonic()
            return self._metrics.get((group, name), [])

    def _take(self, metrics: ClientMetrics) -> None:
        found: dict[tuple[str, str], list[tuple[dict[str, str], Any]]] = {}
        for key, metric in metrics.items():
            place = labels_of(metric, metrics.client_id)
            found.setdefault((key.group, key.name), []).append((place, metric.value))
        self._metrics = found


def _reader(last: _Snapshot, metric: Definition) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(_: CallbackOptions) -> Iterable[Observation]:
        from opentelemetry.metrics import Observation

        found = last.of(metric.group, metric.name)
        # NaN: an average of nothing so far. The SDK logs a warning for each.
        return [Observation(value, place) for place, value in found if not math.isnan(value)]

    return read
