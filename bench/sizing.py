"""docs/sizing.md: what a load would need, computed from measured costs, with the formulas. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from bench.figures import Table, median
from bench.page import markdown
from bench.workloads import WORKLOADS

__all__ = ["Costs", "Need", "costs", "need", "page"]

_SPARE = 0.6
"""The fraction of the cores that should be busy. The rest is for peaks, hand-overs and restores."""
_CORES_OF_MEMORY = 4
"""The measured amount of memory is needed once for this many cores."""
_CACHED = 0.1
"""The fraction of the state that should fit in memory."""
_OVERHEAD = 100
"""The most bytes that Kafka's format, a key and headers add to a record."""


_HONEST = """\
`make bench ARGS=--publish` wrote this page from costs that it measured on one machine ({machine}).
Everything beyond that machine is computed, **not measured**. The formulas assume that work spreads over cores
and machines without loss, which no system achieves. Start from the order of magnitude, then measure your own
job."""
_COSTS = """\
CPU seconds are those of the client, its JVM and Python's workers while they process in bulk. They include the
start of the client, but not the broker. Each micro-batch has a fixed cost, so a record costs more when there
are few; at full load that difference disappears."""
_FORMULAS = f"""\
- **Cores** = records per second / 1,000,000 * CPU seconds per million / {_SPARE}. The other cores are for
  peaks, hand-overs and restores.
- **Slots and partitions**: Spark runs a task for each source partition and for each shuffle partition, each
  on a slot (a core, in `local[*]` and on a cluster). Two partitions per core keep all cores busy even if keys
  are uneven. `spark.sql.shuffle.partitions` should equal the number of cores; the first start of a query
  fixes it. Real-time mode needs a slot for every task of all stages at once: source partitions plus shuffle
  partitions.
- **Memory** = the measured memory for every {_CORES_OF_MEMORY} cores, plus {_CACHED:.0%} of the state, twice:
  Spark keeps the state, and the store that queries read has a copy. The percentage is a rule of thumb for
  RocksDB's caches, indexes and filters, not a measurement.
- **Disk** = three times the state on both sides, since compaction writes before it deletes. This is a rule
  of thumb too.
- **Network in** = records * (size + {_OVERHEAD} bytes); **out** = results * the same, twice for jobs with
  state (the changelog). Replication multiplies what brokers send each other. {_OVERHEAD} bytes is an upper
  bound for Kafka's format, the key and headers."""
_NEEDS = """\
The memory above does not include state. Results per record were measured in large micro-batches, which merge
the updates of a key. With small ones there are more, up to one for each record and window."""
_GROWTH = """\
`make bench ARGS=scale` varies one thing at a time, with 50 records a second through a count. It measures how
long a micro-batch takes, and how many cores are busy. Where these figures are flat, the formulas hold; where
they rise, the formulas are too optimistic."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The measured costs of a workload.

    Attributes:
        cpu_s: CPU seconds per million records.
        memory_mb: memory of the client and its JVM, at the end.
        written: results per record, in one topic; a stateful job writes as many to its changelog.
    """

    cpu_s: float
    memory_mb: float
    written: float
    stateful: bool


@dataclass(frozen=True, slots=True)
class Need:
    """What a load needs."""

    cores: float
    partitions: int
    memory_gb: float
    in_mbit: float
    out_mbit: float


def costs(throughput: Mapping[str, Any]) -> dict[str, Costs]:
    """The costs of each workload that was measured."""
    found = {}
    for name, by_name in throughput.items():
        runs = by_name.get("millstream", {}).get("runs", ())
        if runs:
            found[name] = Costs(
                median([run["cpu_s"] / run["records"] * 1e6 for run in runs]),
                median([run["memory_mb"] for run in runs]),
                median([run["written"] / run["records"] for run in runs]),
                name not in ("map", "udf"),
            )
    return found


def need(cost: Costs, rate: float, *, record_bytes: int = 100, state_gb: float = 0.0) -> Need:
    """What this many records a second need.

    Args:
        state_gb: the state of all keys together. It is kept twice, by Spark and by the store that queries
            read.
    """
    cores = rate / 1e6 * cost.cpu_s / _SPARE
    size = record_bytes + _OVERHEAD
    topics = 2 if cost.stateful else 1
    return Need(
        cores=cores,
        partitions=2 * max(1, ceil(cores)),
        memory_gb=cost.memory_mb / 1000 * max(1.0, cores / _CORES_OF_MEMORY) + 2 * _CACHED * state_gb,
        in_mbit=rate * size * 8 / 1e6,
        out_mbit=rate * size * cost.written * topics * 8 / 1e6,
    )


def page(facts: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole page."""
    measured = costs(parts.get("throughput", {}).get("data", {}))
    machine = f"{facts.get('cores')} cores, {facts.get('memory_gb')} GB"
    cost_rows = tuple(
        (
            WORKLOADS[name].title,
            f"{cost.cpu_s:.1f}",
            f"{cost.memory_mb:,.0f}",
            f"{cost.written:.2f}",
        )
        for name, cost in measured.items()
    )
    need_rows = []
    for name, cost in measured.items():
        wanted = need(cost, 1e6)
        need_rows.append(
            (
                WORKLOADS[name].title,
                f"{wanted.cores:.0f}",
                f"{wanted.partitions}",
                f"{wanted.memory_gb:.0f}",
                f"{wanted.in_mbit:,.0f}",
                f"{wanted.out_mbit:,.0f}",
            )
        )
    tables = (
        Table(
            "costs",
            ("job", "CPU seconds per million records", "MB", "results per record"),
            cost_rows,
        ),
        Table(
            "needs",
            ("job", "cores", "partitions", "memory, GB", "in, Mbit/s", "out, Mbit/s"),
            tuple(need_rows),
        ),
    )
    whole = [
        "# What a load needs",
        _HONEST.format(machine=machine),
        "## Measured costs",
        markdown(tables[0]),
        _COSTS,
        "## Formulas",
        _FORMULAS,
        "## One million records a second, of 100 bytes each",
        markdown(tables[1]),
        _NEEDS,
        *_scaled(parts.get("scale", {}).get("data", {})),
    ]
    return "\n\n".join(whole).rstrip() + "\n"


def _scaled(scale: Mapping[str, Any]) -> list[str]:
    if not scale:
        return []
    made = ["## How costs grow", _GROWTH]
    for kind, points in scale.items():
        columns = (kind, "ms per micro-batch", "cores busy", "MB", "")
        rows = tuple(
            (
                str(point["what"]),
                f"{point['batch_ms']:.0f}" if point["batch_ms"] else "",
                f"{point['cores']:.2f}",
                f"{point['memory_mb']:,.0f}",
                point.get("note", ""),
            )
            for point in points
        )
        made.append(markdown(Table(kind, columns, rows)))
    return made
