"""The metrics of a client as a snapshot: one pure function of its state and its measurements.

Source: KIP-444, KIP-607, KIP-613, KIP-1091 and KIP-1221;
org.apache.kafka.streams.internals.metrics.ClientMetrics, and
org.apache.kafka.streams.processor.internals.metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from millstream.display import block, details, table, title
from millstream.metrics.meter import Reading
from millstream.metrics.metrics_table import CLIENT, CONSUMER, SCOPES, STATE, THREAD, definition
from millstream.metrics.rocksdb_properties import PROPERTIES
from millstream.model import StoreKind, TaskId

__all__ = [
    "ClientMetrics",
    "Metric",
    "MetricName",
    "MetricsView",
    "client_metrics",
    "rocksdb_readings",
]

_CLIENT_STATES = (
    "CREATED",
    "REBALANCING",
    "RUNNING",
    "PENDING_SHUTDOWN",
    "NOT_RUNNING",
    "PENDING_ERROR",
    "ERROR",
)
_THREAD_STATES = (
    "CREATED",
    "STARTING",
    "PARTITIONS_REVOKED",
    "PARTITIONS_ASSIGNED",
    "RUNNING",
    "PENDING_SHUTDOWN",
    "DEAD",
)
"""Their indexes are Kafka's ordinals, which dashboards compare with."""
_ALIVE = frozenset(("STARTING", "PARTITIONS_REVOKED", "PARTITIONS_ASSIGNED", "RUNNING"))
_CLOSED = frozenset(("NOT_RUNNING", "ERROR"))


@dataclass(frozen=True)
class MetricName:
    """The name of a metric.

    Source: org.apache.kafka.common.MetricName.
    """

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()
    description: str = field(default="", compare=False)


@dataclass(frozen=True)
class Metric:
    """A metric and its value at the time of the request."""

    name: MetricName
    value: int | float | str


@dataclass(frozen=True)
class MetricsView:
    """The sources of the client's metrics.

    Attributes:
        state: the client's, by name.
        threads: each stream thread's state, by the thread's name.
        failed: how many stream threads have failed since the start, replaced ones included.
    """

    client_id: str
    application_id: str
    process_id: str
    version: str
    state: str
    threads: Mapping[str, str] = field(default_factory=dict)
    failed: int = 0
    topology: str = ""


class ClientMetrics(Mapping[MetricName, Metric]):
    """A snapshot: metrics by their names, tags included."""

    def __init__(self, metrics: Mapping[MetricName, Metric], client_id: str = "") -> None:
        self._metrics = dict(metrics)
        self.client_id = client_id
        """The client's id."""

    def __getitem__(self, name: MetricName) -> Metric:
        return self._metrics[name]

    def __iter__(self) -> Iterator[MetricName]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)

    def value(self, name: str, *, group: str | None = None, **tags: str) -> int | float | str:
        """The value of the metric of that name, with these tags (`thread_id` for `thread-id`).

        Raises:
            KeyError: there is none, or more than one.
        """
        wanted = {(tag.replace("_", "-"), value) for tag, value in tags.items()}
        found = [
            each
            for key, each in self.items()
            if key.name == name and group in (None, key.group) and wanted <= set(key.tags)
        ]
        if len(found) != 1:
            raise KeyError(f"{len(found)} metrics have the name '{name}' and {tags or 'any tags'}")
        return found[0].value

    def __repr__(self) -> str:
        return f"<ClientMetrics of '{self.client_id}': {len(self)}>"

    def __str__(self) -> str:
        return "\n".join(
            f"{key.group}: {key.name} {{{', '.join(f'{tag}={value}' for tag, value in key.tags)}}} "
            f"{self[key].value}"
            for key in self._in_order()
        )

    def _repr_html_(self) -> str:
        """The notebook display: a table for each group, opened by a click. The client's id is shown once."""
        groups: dict[str, list[tuple[str, str, object]]] = {}
        for key in self._in_order():
            own = [
                f"{tag}={value.removeprefix(f'{self.client_id}-')}"
                for tag, value in key.tags
                if value != self.client_id
            ]
            value = self[key].value
            shown = float(f"{value:.6g}") if isinstance(value, float) else value
            groups.setdefault(key.group, []).append((key.name, ", ".join(own), shown))
        return block(
            title("metrics of client", self.client_id),
            *(
                details(f"{group}: {len(rows)}", table(("metric", "of", "value"), rows))
                for group, rows in groups.items()
            ),
        )

    def _in_order(self) -> list[MetricName]:
        return sorted(self, key=lambda key: (key.group, key.name, key.tags))


def client_metrics(view: MetricsView, readings: Iterable[Reading] = ()) -> ClientMetrics:
    """The metrics of a client: its state and its measurements. Empty once it has closed, as in Kafka
    Streams."""
    if view.state in _CLOSED:
        return ClientMetrics({}, view.client_id)
    measured = list(readings)
    named = {}
    for each in (*_of_the_client(view), *measured, *_largest_lags(measured)):
        metric = each.metric
        tags = tuple(zip(metric.tags, each.tags, strict=True))
        name = MetricName(metric.name, metric.group, tags, metric.description)
        named[name] = Metric(name, each.value)
    return ClientMetrics(named, view.client_id)


def _of_the_client(view: MetricsView) -> Iterator[Reading]:
    client = {"client-id": view.client_id}
    alive = sum(state in _ALIVE for state in view.threads.values())
    full = {**client, "process-id": view.process_id, "application-id": view.application_id}
    yield _reading(CLIENT, "version", client, view.version)
    yield _reading(CLIENT, "application-id", client, view.application_id)
    yield _reading(CLIENT, "topology-description", client, view.topology)
    yield _reading(CLIENT, "state", client, view.state)
    yield _reading(CLIENT, "client-state", full, _CLIENT_STATES.index(view.state))
    yield _reading(CLIENT, "alive-stream-threads", client, alive)
    yield _reading(CLIENT, "failed-stream-threads", client, view.failed)
    for name, state in view.threads.items():
        thread = {"thread-id": name}
        number = _THREAD_STATES.index(state)
        yield _reading(THREAD, "thread-state", {**thread, "process-id": view.process_id}, number)
        yield _reading(THREAD, "state", thread, state)


def _largest_lags(readings: Iterable[Reading]) -> Iterator[Reading]:
    largest: dict[str, int | float] = {}
    for each in readings:
        if each.metric.group == CONSUMER and each.metric.name == "records-lag":
            assert not isinstance(each.value, str)
            largest[each.tags[0]] = max(each.value, largest.get(each.tags[0], 0))
    for client, lag in largest.items():
        yield _reading(CONSUMER, "records-lag-max", {"client-id": client}, lag)


def rocksdb_readings(
    figures: Mapping[tuple[TaskId, str], Mapping[str, int]],
    places: Mapping[tuple[TaskId, str], tuple[str, StoreKind]],
) -> Iterator[Reading]:
    """RocksDB's figures for the open stores.

    Args:
        figures: by task and store, as last read.
        places: the thread and the kind of each open store.
    """
    for (task, store), values in figures.items():
        if (task, store) not in places:
            continue  # the store was closed after they were read
        thread, kind = places[task, store]
        tags = {"thread-id": thread, "task-id": str(task), f"{SCOPES[kind]}-state-id": store}
        for name, value in values.items():
            if name in PROPERTIES:
                yield _reading(STATE, name, tags, value)


def _reading(group: str, name: str, tags: Mapping[str, str], value: int | float | str) -> Reading:
    return Reading(definition(group, name, tuple(tags)), tuple(tags.values()), value)
