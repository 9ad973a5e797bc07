"""The metrics of clients as text for Prometheus, under the names that jmx_exporter gives Kafka Streams' own.

    print(text(streams.metrics()))

Names follow Confluent's rules for jmx_exporter (`shared-assets/jmx-exporter/kafka_streams.yml` in
jmx-monitoring-stacks), which also match jmx_exporter's defaults: `kafka_streams_<group>_<name>`, or
`kafka_consumer_…` for a consumer's, in lower case, with `_` for `-`. Tags become labels, by the same rules.
States and names of a client are labels of `kafka_streams_stream_metrics`.

Differs: each metric has a label `client_id`, even if Kafka's tags have none; metrics of Millstream's own
groups begin with `millstream_`. In Prometheus' own text format, each of Kafka's counters appears twice: as
`…_total`, as jmx_exporter wrote it before version 1.0, and without `_total`, as it has since. OpenMetrics
forbids two families of the same name, which these would be, so a registry collects only `…_total`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from millstream.errors import SetupException
from millstream.metrics.client_metrics import ClientMetrics, Metric
from millstream.metrics.metrics_table import CLIENT, CONSUMER, COORDINATOR, OWN_GROUPS, is_counter

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

__all__ = [
    "CONTENT_TYPE",
    "ClientCollector",
    "HasMetrics",
    "families",
    "labels_of",
    "prometheus_name",
    "text",
]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of the result of `text`."""

_CONSUMER = (CONSUMER, COORDINATOR)
_LABELS = ("state", "version", "application-id")
_NUMBERS = ("alive-stream-threads", "failed-stream-threads")
_WHOLE = "kafka_streams_stream_metrics"


def text(*clients: ClientMetrics) -> str:
    """The metrics in Prometheus' text format; its content type is `CONTENT_TYPE`.

    Args:
        clients: the results of `KafkaStreams.metrics()`, for one client or several.

    Raises:
        SetupException: prometheus-client is not installed.
    """
    _check()
    from prometheus_client.exposition import generate_latest

    return generate_latest(_Snapshot(families(clients, twins=True))).decode()


def families(clients: Iterable[ClientMetrics], *, twins: bool = False) -> Iterator[Family]:
    """The metrics as prometheus-client's own objects, ordered by name.

    Args:
        twins: whether to include Kafka's counters without `_total`, too.
    """
    _check()
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, UnknownMetricFamily

    found: dict[tuple[str, bool], Family] = {}
    for client in clients:
        for metric in client.values():
            name = prometheus_name(metric.name.group, metric.name.name)
            description = metric.name.description
            labels = labels_of(metric, client.client_id)
            value = metric.value
            if metric.name.group == CLIENT and metric.name.name in (*_LABELS, *_NUMBERS):
                whole = found.setdefault((_WHOLE, False), UnknownMetricFamily(_WHOLE, "Of a client"))
                place = {**labels, _word(metric.name.name): str(value)}
                whole.add_sample(_WHOLE, place, 1 if isinstance(value, str) else value)
            if isinstance(value, str):
                continue
            if is_counter(metric.name.name):
                counter = found.setdefault(
                    (name, True), CounterMetricFamily(name.removesuffix("_total"), description)
                )
                counter.add_sample(name, labels, value)
                if not twins or metric.name.group in OWN_GROUPS:
                    continue
                name = name.removesuffix("_total")
            gauge = found.setdefault((name, False), GaugeMetricFamily(name, description))
            gauge.add_sample(name, labels, value)
    return (found[key] for key in sorted(found))


class HasMetrics(Protocol):
    """A `KafkaStreams`."""

    def metrics(self) -> ClientMetrics: ...


class ClientCollector:
    """A client's metrics for a registry of prometheus-client, however it is served.

    prometheus_client.REGISTRY.register(ClientCollector(streams))
    """

    def __init__(self, streams: HasMetrics) -> None:
        _check()
        self._streams = streams

    def collect(self) -> Iterator[Family]:
        """The current metrics."""
        return families([self._streams.metrics()])

    def describe(self) -> Iterator[Family]:
        """Empty, because the existing metrics depend on what the client does."""
        return iter(())


def prometheus_name(group: str, name: str) -> str:
    """The name of a metric in Prometheus."""
    domain = (
        "millstream" if group in OWN_GROUPS else "kafka_consumer" if group in _CONSUMER else "kafka_streams"
    )
    return f"{domain}_{_word(group)}_{_word(name)}"


def labels_of(metric: Metric, client_id: str) -> dict[str, str]:
    """Its tags, and the id of its client."""
    labels = {_word(tag): value for tag, value in metric.name.tags}
    return {"client_id": client_id, **labels}


def _word(text: str) -> str:
    return text.lower().replace("-", "_")


def _check() -> None:
    if find_spec("prometheus_client") is None:
        raise SetupException(
            "metrics for Prometheus need the package prometheus-client: pip install 'millstream[metrics]'"
        )


class _Snapshot:
    """Families in the form that prometheus-client can write: an object with `collect`."""

    def __init__(self, families: Iterator[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        return self._families
