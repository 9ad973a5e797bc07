"""docs/dsl/: the programs on its pages, and their drawings.

A section of a page (`##`) is a program: what it reads and which records arrive, followed by examples (`###`),
each with the results of these records. Every example has a drawing, which this file makes from its topology.
Some also have a marble diagram, which it makes from the records and results on the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import marbles

from millstream import StreamsBuilder, Topology
from millstream.topology.drawing import BoxKind, Drawing, drawing_of
from millstream.topology.nodes import Sink, StreamJoin
from millstream.topology.svg import svg

PAGES = Path(__file__).resolve().parent.parent / "docs" / "dsl"
IMAGES = PAGES / "images"
MARBLES = {
    "KStream.join with a table": "arrivals",
    "KStream.left_join with a table": "arrivals",
    "Materialized.with_history": "arrivals",
    "Joined.with_grace_period": "arrivals",
    "KStream.join with a global table": "arrivals",
    "KStream.join with a stream": "pairs",
    "KStream.left_join with a stream": "pairs",
    "KTable.join": "arrivals",
    "KTable.left_join": "arrivals",
    "KTable.outer_join": "arrivals",
    "KTable.join with a foreign key": "arrivals",
    "KGroupedStream.windowed_by": "spans",
    "TimeWindows.advance_by": "spans",
    "SlidingWindows": "spans",
    "SessionWindows": "spans",
    "KTable.suppress": "arrivals",
    "KTable.filter": "arrivals",
    "KTable.group_by": "arrivals",
}
"""The examples with a marble diagram, and its kind, as in marbles.py."""
THROUGH = {"KTable.suppress": "KGroupedStream.windowed_by"}
"""An operator on the table of another example, whose changes are shown too."""
_PARTS = re.compile(r"^(###? [^\n]*)$|^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Example:
    """Code, and lines such as `orders ann: 120 → ann: 121`, without the blanks that align them in columns."""

    heading: str
    code: str
    results: list[str] = field(default_factory=list)

    def of(self, record: str) -> list[str]:
        """The results of a record."""
        return [result for line in self.results for given, result in [halves(line)] if given == record]


@dataclass
class Section:
    page: Path
    heading: str
    code: str
    records: list[str] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)


def pages() -> list[Path]:
    """All pages. README.md, which comes first, has no examples."""
    return [PAGES / "README.md", *sorted(set(PAGES.glob("*.md")) - {PAGES / "README.md"})]


@cache
def beginning() -> str:
    """The code that all programs begin with."""
    found = re.search(r"^```python\n(.*?)^```$", pages()[0].read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@cache
def sections() -> list[Section]:
    """The programs of all pages."""
    return [section for page in pages()[1:] for section in _sections(page)]


def _sections(page: Path) -> list[Section]:
    text = page.read_text(encoding="utf-8")
    found, heading, code = list[Section](), "", ""
    for part in _PARTS.finditer(text):
        title, language, block = part.groups()
        if title is not None:
            heading = title.lstrip("# ")
            if title.startswith("## "):
                found.append(Section(page, heading, ""))
            code = ""
        elif language == "python":  # with as many lines before it as on the page, for errors
            code += "\n" * (text.count("\n", 0, part.start()) + 1 - code.count("\n")) + block
        else:
            lines = [" ".join(line.split()) for line in block.splitlines()]
            if heading == found[-1].heading:
                found[-1].code, found[-1].records = code, lines
            else:
                found[-1].examples.append(Example(heading, code, _unfolded(lines)))
            code = ""
    return found


def _unfolded(lines: list[str]) -> list[str]:
    """Each line with its record, which the page shows only for the first of several results."""
    full = list[str]()
    for line in lines:
        full.append(halves(full[-1])[0] + " " + line if line.startswith("→") else line)
    return full


def halves(line: str) -> tuple[str, str]:
    """The record, and its result."""
    given, _, result = line.partition("→")
    return given.strip(), result.strip()


def program(section: Section, *code: str) -> StreamsBuilder:
    """The builder of a section's program with these examples."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for each in (beginning(), section.code, *code):
        exec(compile(each, str(section.page), "exec"), names)
    builder = names["builder"]
    assert isinstance(builder, StreamsBuilder)
    return builder


def anchor(heading: str) -> str:
    """The link to a heading, as GitHub and MkDocs make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@cache
def drawings() -> Mapping[str, str]:
    """The SVGs of every example, by file name. Of several examples under one heading, the first one's."""
    made: dict[str, str] = {}
    for section in sections():
        for example in section.examples:
            name = f"{anchor(example.heading)}.svg"
            if name not in made:
                topology = program(section, example.code).build()
                made[name] = svg(_used(drawing_of(topology)), f"Topology: {example.heading}")
                if example.heading in MARBLES:
                    made[f"marbles-{name}"] = _marbles(section, example, topology)
    return made


def _marbles(section: Section, example: Example, topology: Topology) -> str:
    """The marble diagram of an example."""
    title, kind, told = example.heading, MARBLES[example.heading], marbles.told(map(halves, example.results))
    (output,) = (node.topic for node in topology.nodes if isinstance(node, Sink) and node.topic)
    if kind == "spans":
        return marbles.spans(title, told)
    if kind == "pairs":
        (join,) = (node for node in topology.nodes if isinstance(node, StreamJoin))
        reach = (join.windows.before_ms / 60_000, join.windows.after_ms / 60_000)
        return marbles.pairs(title, told, output, section.records[0].split()[1], reach)
    below = THROUGH.get(title)
    tables = [one for one in section.examples if one.heading == below]
    through = (below, marbles.told(map(halves, tables[0].results))) if below else None
    return marbles.arrivals(title, told, output, through)


def _used(whole: Drawing) -> Drawing:
    """The drawing without the topics that the section reads for other examples; nothing follows those."""
    kinds = {box.id: box.kind for box in whole.boxes}
    sources = [arrow for arrow in whole.arrows if kinds[arrow.end] is BoxKind.SOURCE]
    starts = {arrow.start for arrow in whole.arrows}
    idle = {arrow.end for arrow in sources} - starts
    idle |= {arrow.start for arrow in sources} - {a.start for a in sources if a.end not in idle}
    boxes = tuple(box for box in whole.boxes if box.id not in idle)
    groups = {box.group for box in boxes}
    return Drawing(
        boxes,
        tuple(arrow for arrow in whole.arrows if arrow.start not in idle and arrow.end not in idle),
        tuple(group for group in whole.groups if group.id in groups),
    )


def write_drawings(*, check: bool) -> list[str]:
    """Write the files that are not current, or with `check` only find them. Returns their names."""
    made = drawings()
    there = {path.name: path.read_text(encoding="utf-8") for path in IMAGES.glob("*.svg")}
    stale = sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
    for name in [] if check else stale:
        if name in made:
            IMAGES.mkdir(exist_ok=True)
            (IMAGES / name).write_text(made[name], encoding="utf-8")
        else:
            (IMAGES / name).unlink()
    return stale
