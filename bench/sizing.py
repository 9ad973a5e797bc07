"""docs/sizing.md: what a load would need, computed from measured costs, with the formulas. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from bench.figures import Table, median
from bench.page import markdown
from bench.workloads import WORKLOADS

__all__ = ["Costs", "Need", "costs", "need", "page", "pod"]

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
Everything beyond that machine is computed, **not measured**. The computation assumes that work spreads over
cores and machines without loss, which no system achieves. Start from the order of magnitude, and measure your
own job. [Sizing](deploy/sizing.md) says what takes memory, cores and disk."""
_COSTS = """\
CPU time and memory are those of the client, its JVM and its Python workers under full load. They include the
client's start, and exclude the broker. Memory that processes share counts once. A commit has a fixed cost as
well, so a record costs more where there are few of them."""
_FORMULAS = f"""\
- **Cores** = records a second / 1,000,000 * seconds for a million / {_SPARE}. The rest is spare, for
  peaks, handovers and restores.
- **Partitions**: two for each core keep all cores busy when keys are unevenly distributed. On a cluster,
  every task also holds a [slot](cluster.md#slots) all the time.
- **Memory** = the measured memory for each {_CORES_OF_MEMORY} cores, plus twice {_CACHED:.0%} of the state:
  tasks keep the state, and the store that queries read has a copy. The {_CACHED:.0%}, for RocksDB's caches,
  indexes and filters, are a rule of thumb and not a measurement.
- **Disk** = three times the state for each of the two copies, because compaction writes before it deletes:
  also a rule of thumb.
- **Network in** = records * (size + {_OVERHEAD} bytes); **out** = results * the same, and twice
  that for jobs with state, because of the changelog. Replication adds traffic between brokers.
  {_OVERHEAD} bytes for Kafka's format, the key and headers are an upper bound."""
_NEEDS = """\
The memory in this table is without state. The number of results for each record was measured at full load,
where caches merge the many updates of a key between two commits. With less traffic there are more results, up
to one for each record and window."""
_POD_CORES, _POD_GB = 2, 2.0
_POD = f"""\
The state is what is left of the memory, by the formulas above. The pod has two cores at {_SPARE:.0%} for the
client and its Java process; brokers run elsewhere."""
_GROWTH = """\
`make bench ARGS=scale` sends 50 records a second through a count and varies one thing at a time. It measures
how old a result is when it can be read, and how many cores are busy. Where these figures are flat, the
formulas hold. Where they rise, the formulas are too optimistic. All run in one JVM, in this order, so it gets
faster with time, and keeps the heap that it has grown to."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The measured costs of a workload.

    Attributes:
        cpu_s: CPU seconds for a million records.
        memory_mb: of the client and its JVM, at the end.
        written: results for each record, in one topic; a stateful job writes as many to its changelog.
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
        state_gb: the state of all keys together. It is kept twice, by tasks and by the store that queries
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


def pod(cost: Costs) -> tuple[float, int, float]:
    """What a pod of 2 cores and 2 GB carries: records a second; how many pods a million of them need; and the
    state in GB that fits into its memory."""
    rate = _POD_CORES * _SPARE / cost.cpu_s * 1e6
    state_gb = max(0.0, _POD_GB - cost.memory_mb / 1000) / (2 * _CACHED)
    return rate, ceil(round(1e6 / rate, 6)), state_gb if cost.stateful else 0.0


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
            ("job", "CPU seconds for a million records", "MB", "results for a record"),
            cost_rows,
        ),
        Table(
            "needs",
            ("job", "cores", "partitions", "memory, GB", "in, Mbit/s", "out, Mbit/s"),
            tuple(need_rows),
        ),
        Table(
            "pods",
            ("job", "records a second", "state, GB", "pods for a million records a second"),
            tuple(
                (WORKLOADS[name].title, f"{rate:,.0f}", f"{state_gb:.0f}" if state_gb else "-", f"{pods}")
                for name, (rate, pods, state_gb) in ((each, pod(cost)) for each, cost in measured.items())
            ),
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
        f"## What a pod of {_POD_CORES} cores and {_POD_GB:.0f} GB carries",
        markdown(tables[2]),
        _POD,
        *_scaled(parts.get("scale", {}).get("data", {})),
    ]
    return "\n\n".join(whole).rstrip() + "\n"


def _scaled(scale: Mapping[str, Any]) -> list[str]:
    if not scale:
        return []
    made = ["## How costs grow", _GROWTH]
    for kind, points in scale.items():
        if kind == "why":
            continue
        columns = (kind, "median age of a result, ms", "cores busy", "MB", "")
        rows = tuple(
            (
                str(point["what"]),
                f"{point['age_ms']:.0f}" if point["age_ms"] else "",
                f"{point['cores']:.2f}",
                f"{point['memory_mb']:,.0f}",
                point.get("note", ""),
            )
            for point in points
        )
        made.append(markdown(Table(kind, columns, rows)))
    return made
