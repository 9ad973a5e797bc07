"""Figures for the dashboard, out of a client's metrics: batches, rates and lag by topic and node. Pure.

Each figure that is not there, or not a number, is None: JSON has no NaN, and nothing is better than a guess.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from millstream.metrics.client import ClientMetrics
from millstream.metrics.table import (
    CONSUMER,
    COORDINATOR,
    DROPPED,
    GROUP,
    NODE,
    SPARK,
    SPARK_STATE,
    STATE,
    STORES,
)

__all__ = ["batches_of", "figures_of", "flow_of", "group_of", "sizes_of"]

Number = int | float

_BATCH = (
    "batch-id",
    "batches-total",
    "batch-rate",
    "batch-duration-last",
    "batch-duration-avg",
    "batch-duration-max",
    "batch-interval",
    "input-rows-total",
    "input-rows-rate",
    "input-rows-per-second",
    "processed-rows-per-second",
    "last-batch-timestamp",
)


def batches_of(metrics: ClientMetrics) -> list[dict[str, Any]]:
    """Spark's micro-batches: one entry for each pipeline, by name."""
    found: dict[str, dict[str, Any]] = {}

    def of(pipeline: str) -> dict[str, Any]:
        return found.setdefault(
            pipeline, {"pipeline": pipeline, **dict.fromkeys(_BATCH), "parts": {}, "operators": {}}
        )

    for name, tags, value in _numbers(metrics, SPARK):
        if name in _BATCH:
            of(tags["pipeline"])[name] = value
        elif name == "part-duration-avg":
            of(tags["pipeline"])["parts"][tags["part"]] = value
    for name, tags, value in _numbers(metrics, SPARK_STATE):
        of(tags["pipeline"])["operators"].setdefault(tags["operator"], {})[name] = value
    return [found[pipeline] for pipeline in sorted(found)]


def figures_of(metrics: ClientMetrics) -> list[dict[str, Any]]:
    """Every metric, by group, name and tags."""
    return [
        {
            "group": name.group,
            "name": name.name,
            "tags": dict(name.tags),
            "value": metric.value if isinstance(metric.value, str) or math.isfinite(metric.value) else None,
            "description": name.description,
        }
        for name, metric in sorted(
            metrics.items(), key=lambda each: (each[0].group, each[0].name, each[0].tags)
        )
    ]


def flow_of(metrics: ClientMetrics) -> dict[str, Any]:
    """What flows where: for topics the lag and the rate at which they are read, for nodes the rate, and what
    they have dropped."""
    lag: defaultdict[str, Number] = defaultdict(int)
    rate: defaultdict[str, Number] = defaultdict(float)
    nodes: defaultdict[str, Number] = defaultdict(float)
    dropped: defaultdict[str, Number] = defaultdict(int)
    for name, tags, value in _numbers(metrics, CONSUMER):
        if value is not None and name == "records-lag":
            lag[tags["topic"]] += value
        elif value is not None and name == "records-consumed-rate" and "topic" in tags:
            rate[tags["topic"]] += value
    for name, tags, value in _numbers(metrics, NODE):
        if value is not None and name == "process-rate":
            nodes[tags["processor-node-id"]] += value
    for name, tags, value in _numbers(metrics, DROPPED):
        if value is not None and name == "dropped-records-total":
            dropped[tags["processor-node-id"]] += value
    return {
        "topics": {
            topic: {"lag": lag.get(topic), "rate": rate.get(topic)} for topic in sorted({*lag, *rate})
        },
        "nodes": dict(sorted(nodes.items())),
        "dropped": dict(sorted(dropped.items())),
    }


def sizes_of(metrics: ClientMetrics) -> dict[str, dict[str, Number]]:
    """Of each store, as far as this client has it: about how many keys, bytes on disk, and its lag."""
    kinds = {"estimate-num-keys": "keys", "total-sst-files-size": "bytes", "lag": "lag"}
    found: dict[str, dict[str, Number]] = {}
    for group in (STATE, STORES):
        for name, tags, value in _numbers(metrics, group):
            store = tags.get("store") or next((tags[tag] for tag in tags if tag.endswith("state-id")), "")
            if value is not None and name in kinds and store:
                figures = found.setdefault(store, {})
                figures[kinds[name]] = figures.get(kinds[name], 0) + value
    return found


def group_of(metrics: ClientMetrics) -> dict[str, Number | None]:
    """The group, as this client sees it: members, rebalances, and how long it took to recover."""
    wanted = {
        (GROUP, "members"),
        (GROUP, "recovery-total"),
        (GROUP, "recovery-time-last"),
        (GROUP, "recovery-time-max"),
        (COORDINATOR, "rebalance-total"),
        (COORDINATOR, "failed-rebalance-total"),
        (COORDINATOR, "last-rebalance-seconds-ago"),
    }
    found: dict[str, Number | None] = dict.fromkeys(sorted(name for _, name in wanted))
    for group in (GROUP, COORDINATOR):
        found.update({name: value for name, _, value in _numbers(metrics, group) if (group, name) in wanted})
    return found


def _numbers(metrics: ClientMetrics, group: str) -> Iterator[tuple[str, Mapping[str, str], Number | None]]:
    """The metrics of a group that are numbers: their name, tags and value."""
    for name, metric in metrics.items():
        if name.group == group and not isinstance(metric.value, str):
            yield name.name, dict(name.tags), metric.value if math.isfinite(metric.value) else None
