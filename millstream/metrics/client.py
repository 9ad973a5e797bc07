"""The metrics of a client and its threads, as a snapshot: made from a view, by one pure function.

Source: KIP-444, KIP-1091 and KIP-1221; org.apache.kafka.streams.internals.metrics.ClientMetrics, and
ThreadMetrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from millstream.display import block, table

__all__ = ["ClientMetrics", "Metric", "MetricName", "MetricsView", "client_metrics"]

CLIENT_GROUP = "stream-metrics"
THREAD_GROUP = "stream-thread-metrics"

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
"""Their places are Kafka's ordinals, which dashboards compare with."""
_ALIVE = frozenset(("STARTING", "PARTITIONS_REVOKED", "PARTITIONS_ASSIGNED", "RUNNING"))
_CLOSED = frozenset(("NOT_RUNNING", "ERROR"))


@dataclass(frozen=True)
class MetricName:
    """What a metric is called.

    Source: org.apache.kafka.common.MetricName.
    """

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()
    description: str = field(default="", compare=False)


@dataclass(frozen=True)
class Metric:
    """A metric and its value when it was asked for."""

    name: MetricName
    value: int | float | str


@dataclass(frozen=True)
class MetricsView:
    """What the client's metrics are made from.

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

    def __init__(self, metrics: Mapping[MetricName, Metric]) -> None:
        self._metrics = dict(metrics)

    def __getitem__(self, name: MetricName) -> Metric:
        return self._metrics[name]

    def __iter__(self) -> Iterator[MetricName]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)

    def value(self, name: str, **tags: str) -> int | float | str:
        """The value of the metric of that name, with these tags (`thread_id` for `thread-id`).

        Raises:
            KeyError: there is none, or more than one.
        """
        wanted = {(tag.replace("_", "-"), value) for tag, value in tags.items()}
        found = [each for key, each in self.items() if key.name == name and wanted <= set(key.tags)]
        if len(found) != 1:
            raise KeyError(f"{len(found)} metrics are called '{name}' with {tags or 'any tags'}")
        return found[0].value

    def __repr__(self) -> str:
        return f"<ClientMetrics: {len(self)}>"

    def __str__(self) -> str:
        return "\n".join(f"{name} {{{tags}}} {value}" for name, tags, value in self._rows())

    def _repr_html_(self) -> str:
        """What a notebook shows: a row for each."""
        return block(table(("metric", "of", "value"), self._rows()))

    def _rows(self) -> list[tuple[str, str, object]]:
        told = [
            (key.name, ", ".join(f"{tag}={value}" for tag, value in key.tags), each.value)
            for key, each in self.items()
        ]
        return sorted(told, key=lambda row: row[:2])


def client_metrics(view: MetricsView) -> ClientMetrics:
    """The metrics of a client: none once it has closed, as upstream."""
    if view.state in _CLOSED:
        return ClientMetrics({})
    client = (("client-id", view.client_id),)
    full = (*client, ("process-id", view.process_id), ("application-id", view.application_id))
    rows: list[tuple[str, str, tuple[tuple[str, str], ...], str, int | str]] = [
        ("version", CLIENT_GROUP, client, "The version of the Kafka Streams client", view.version),
        (
            "application-id",
            CLIENT_GROUP,
            client,
            "The application ID of the Kafka Streams client",
            view.application_id,
        ),
        (
            "topology-description",
            CLIENT_GROUP,
            client,
            "The description of the topology executed in the Kafka Streams client",
            view.topology,
        ),
        ("state", CLIENT_GROUP, client, "The state of the Kafka Streams client", view.state),
        (
            "client-state",
            CLIENT_GROUP,
            full,
            "The state of the Kafka Streams client",
            _CLIENT_STATES.index(view.state),
        ),
        (
            "alive-stream-threads",
            CLIENT_GROUP,
            client,
            "The current number of alive stream threads that are running or participating in rebalance",
            sum(state in _ALIVE for state in view.threads.values()),
        ),
        (
            "failed-stream-threads",
            CLIENT_GROUP,
            client,
            "The number of failed stream threads since the start of the Kafka Streams client",
            view.failed,
        ),
    ]
    for thread, state in view.threads.items():
        tags = (("thread-id", thread),)
        rows.append(
            (
                "thread-state",
                THREAD_GROUP,
                (*tags, ("process-id", view.process_id)),
                "The current state of the thread",
                _THREAD_STATES.index(state),
            )
        )
        rows.append(("state", THREAD_GROUP, tags, "The current state of the thread", state))
    names = [(MetricName(name, group, tags, told), value) for name, group, tags, told, value in rows]
    return ClientMetrics({name: Metric(name, value) for name, value in names})
