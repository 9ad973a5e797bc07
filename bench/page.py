"""docs/performance.md: the tables, the plots and the machine, from the figures of one run. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from bench.contest import LABELS
from bench.figures import Table, median
from bench.summary import table as summary
from bench.workloads import WORKLOADS

__all__ = ["bars", "machine", "markdown", "page", "plots"]

_COLOURS = {
    "millstream": "#1f6f8b",
    "java": "#c8553d",
    "spark": "#e0a030",
    "quix": "#7a6f9b",
}
_SOURCE = """\
`make bench ARGS=--publish` wrote this page, its plots and [performance.json](performance.json) in one run
on one machine:"""
_METHOD = """\
Millstream, Kafka Streams in Java, Structured Streaming written by hand and Quix Streams did the same jobs
with the same records on one broker, each in its own process, in alternating rounds. Figures are medians of
the rounds. Throughput is measured from the first record read to the last result written, so startup is not
included. For throughput, Kafka Streams has caches of 256 MB, large batches, a commit every half second and a
thread for each core; for latency, it has no cache and no linger, and Millstream no cache. Spark by hand has
the settings that Millstream gives its own Spark. It writes a count to two topics, as Millstream does with its
changelog. Quix Streams gets fewer records, because it takes longer for each. Latency is measured after some
traffic: 20 s of it for a job on Spark, because Java has all of Spark to compile, and 6 s for the others.

The goals compare the four on this machine and say nothing about another one. [What a load
needs](sizing.md) estimates larger ones."""
_PLOTS = {
    "performance-throughput.svg": "Throughput of the four in each job",
    "performance-latency.svg": "Median latency of the four in each job",
}
_WIDTH, _LEFT, _ROW, _GAP = 760, 230, 16, 12


_FACTS = {
    "cores": "{} cores",
    "memory_gb": "{} GB of memory",
    "load_average": "load average {}",
    "python": "Python {}",
    "java": "Java {}",
    "spark": "Spark {}",
    "kafka": "Kafka {}",
    "at": "measured at {}",
}


def machine(facts: Mapping[str, Any]) -> str:
    """The facts about a machine in one line, with units."""
    said = []
    for name, value in facts.items():
        text = " / ".join(f"{each:.1f}" for each in value) if isinstance(value, list) else str(value)
        said.append(_FACTS.get(name, name.replace("_", " ") + " {}").format(text))
    return ", ".join(said)


def markdown(table: Table) -> str:
    """A table in Markdown."""
    lines = [_line(table.columns), _line(["---"] + ["---:"] * (len(table.columns) - 1))]
    lines += [_line(row) for row in table.rows]
    if table.notes:
        lines += ["", *(f"- {_cell(note)}" for note in table.notes)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def bars(title: str, groups: Sequence[tuple[str, Sequence[tuple[str, float]]]], unit: str) -> str:
    """A plot: groups of bars. A bar's length is relative to the longest one of its group.

    Groups have different units of work, so lengths can be compared only within a group.

    Args:
        groups: a label, and a value for each contestant.
    """
    parts, y = [], 40
    for label, values in groups:
        most = max((value for _, value in values), default=0.0) or 1.0
        parts.append(f'<text x="{_LEFT - 10}" y="{y + 12}" text-anchor="end">{escape(label)}</text>')
        for name, value in values:
            length = max(1.0, (_WIDTH - _LEFT - 190) * value / most)
            text = f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
            parts.append(
                f'<rect x="{_LEFT}" y="{y}" width="{length:.1f}" height="{_ROW - 3}" '
                f'fill="{_COLOURS[name]}"/>'
                f'<text x="{_LEFT + length + 6:.1f}" y="{y + 11}">{text} {escape(LABELS[name])}</text>'
            )
            y += _ROW
        y += _GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}" '
        f'viewBox="0 0 {_WIDTH} {y}" font-family="sans-serif" font-size="12" fill="#222">\n'
        f'<rect width="{_WIDTH}" height="{y}" fill="#fff" class="paper"/>\n'
        f'<text x="10" y="22" font-size="15">{escape(title)}, {escape(unit)}</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def plots(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The plots, by file name."""
    made = {}
    rates = []
    for workload, by_name in parts.get("throughput", {}).get("data", {}).items():
        values = [
            (name, median([run["records"] / run["seconds"] for run in by_name[name]["runs"]]))
            for name in _COLOURS
            if by_name.get(name, {}).get("runs")
        ]
        rates.append((WORKLOADS[workload].title, values))
    if rates:
        made["performance-throughput.svg"] = bars("Throughput", rates, "records a second; longer is better")
    waits = []
    data = parts.get("latency", {}).get("data", {})
    for job in ("map", "count"):
        for mode, said in (("single", "one at a time"), ("50", "50/s"), ("1000", "1,000/s")):
            by_name = data.get(job, {})
            values = [
                (name, by_name[name][mode]["p50"]) for name in _COLOURS if mode in by_name.get(name, {})
            ]
            if values:
                waits.append((f"{job}, {said}", values))
    if waits:
        made["performance-latency.svg"] = bars("Latency, p50", waits, "ms; shorter is better")
    return made


def page(
    facts: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]], tables: Mapping[str, Sequence[Table]]
) -> str:
    """The whole page.

    Args:
        facts: about the machine.
        parts: the figures of each part, as `Report.as_json` has them.
        tables: the tables of each part.
    """
    drawn = [f"![{title}]({name})" for name, title in _PLOTS.items() if name in plots(parts)]
    sections = []
    for name, of in tables.items():
        sections.append(f"## {name.capitalize()}")
        sections += [f"**{one.title}**\n\n{markdown(one)}" for one in of]
    found = summary(parts)
    whole = [
        "# Performance",
        _SOURCE,
        f"> {machine(facts)}",
        _METHOD,
        f"## {found.title}",
        markdown(found),
        *drawn,
        *sections,
    ]
    return "\n\n".join(whole).rstrip() + "\n"
