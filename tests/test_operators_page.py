"""docs/operators.md: its examples give what it says they give, and no operator is left out.

A section of the page is a program: what it reads and which records come, then examples, each with what
comes of these records. All examples of a section run side by side, and each record is processed alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from millstream import (
    BranchedKStream,
    CogroupedKStream,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    Serde,
    Serdes,
    SessionWindowedCogroupedKStream,
    SessionWindowedKStream,
    StreamsBuilder,
    TimeWindowedCogroupedKStream,
    TimeWindowedKStream,
    Topology,
    Windowed,
)
from millstream.testing import TopologyTestDriver
from millstream.topology.nodes import GlobalTable, Sink, Source, TableSource

PAGE = Path(__file__).resolve().parent.parent / "docs" / "operators.md"
DAY = datetime(2026, 1, 5, tzinfo=UTC)
PARTS = re.compile(r"^(###? [^\n]*)$|^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RECORD = re.compile(r"(?:(\d\d:\d\d) )?(?:(\S+) )?(\S+): (.+)")


@dataclass
class Example:
    """Code, and lines such as `orders ann: 120 → ann: 121`, without the blanks that put them in columns."""

    heading: str
    code: str
    results: list[str] = field(default_factory=list)

    def of(self, record: str) -> list[str]:
        """What comes of a record."""
        return [result for line in self.results for given, result in [_halves(line)] if given == record]


@dataclass
class Section:
    heading: str
    code: str
    records: list[str] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)


@cache
def page() -> tuple[str, list[Section]]:
    """The code that all sections begin with, and the sections."""
    text = PAGE.read_text(encoding="utf-8")
    begin, sections, heading, code = "", list[Section](), "", ""
    for part in PARTS.finditer(text):
        title, language, block = part.groups()
        if title is not None:
            heading = title.lstrip("# ")
            if title.startswith("## "):
                sections.append(Section(heading, ""))
            code = ""
        elif language == "python":  # with as many lines before it as on the page, for errors
            code += "\n" * (text.count("\n", 0, part.start()) + 1 - code.count("\n")) + block
            if len(sections) == 1:
                begin = code
        elif len(sections) > 1:
            lines = [" ".join(line.split()) for line in block.splitlines()]
            if heading == sections[-1].heading:
                sections[-1].code, sections[-1].records = code, lines
            else:
                sections[-1].examples.append(Example(heading, code, _unfolded(lines)))
            code = ""
    return begin, [section for section in sections if section.records]


def _unfolded(lines: list[str]) -> list[str]:
    """Each line with the record that it is about, which a record's further results leave out."""
    full = list[str]()
    for line in lines:
        full.append(_halves(full[-1])[0] + " " + line if line.startswith("→") else line)
    return full


def _halves(line: str) -> tuple[str, str]:
    given, _, result = line.partition("→")
    return given.strip(), result.strip()


def program(*code: str) -> StreamsBuilder:
    names: dict[str, Any] = {"__name__": "__main__"}
    for each in (page()[0], *code):
        exec(compile(each, "docs/operators.md", "exec"), names)
    builder = names["builder"]
    assert isinstance(builder, StreamsBuilder)
    return builder


def sinks(topology: Topology) -> dict[str, Sink]:
    return {node.topic: node for node in topology.nodes if isinstance(node, Sink) and node.topic}


EXAMPLES = [(section, example) for section in page()[1] for example in section.examples]


def test_each_example_is_explained() -> None:
    """Which queries run it, what they read and where they write."""
    for section, example in EXAMPLES:
        topology = program(section.code, example.code).build()
        told = topology.explain()
        assert re.search(r"^Pipelines:\n  Pipeline: p0 .*\n    reads: ", told), example.heading
        assert [topic for topic in sinks(topology) if f" {topic} (" not in told] == [], example.heading


def test_each_operator_is_on_the_page() -> None:
    """Each public method of what programs are made of has an example, or is told of."""
    kinds = (
        StreamsBuilder,
        KStream,
        BranchedKStream,
        KTable,
        KGroupedStream,
        KGroupedTable,
        TimeWindowedKStream,
        SessionWindowedKStream,
        CogroupedKStream,
        TimeWindowedCogroupedKStream,
        SessionWindowedCogroupedKStream,
    )
    text = PAGE.read_text(encoding="utf-8")
    names = [f"{kind.__name__}.{name}" for kind in kinds for name in dir(kind) if not name.startswith("_")]
    missing = [name for name in names if not re.search(rf"(### |`){re.escape(name)}\b", text)]
    assert missing == []
    shown = {example.heading for _, example in EXAMPLES if any("→ " in line for line in example.results)}
    assert [title for title in re.findall("^### (.*)$", text, re.MULTILINE) if title not in shown] == []


def test_the_contents_are_the_headings() -> None:
    """In their order, with the anchors that GitHub makes; operators are called without their class."""
    text = PAGE.read_text(encoding="utf-8")
    headings = re.findall(r"^##+ (.*)$", text, re.MULTILINE)
    links = re.findall(r"\[([^]]+)\]\(#([^)]+)\)", text.partition("\n## ")[0])
    assert links == [
        (re.sub(r"^\w+\.| with an? .*$", "", title), re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-"))
        for title in headings
    ]


@pytest.mark.spark
@pytest.mark.parametrize("section", [pytest.param(each, id=each.heading) for each in page()[1]])
def test_each_example_gives_what_it_says(section: Section, capfd: pytest.CaptureFixture[str]) -> None:
    """Record by record: keys, values and times of what is written, and what is printed."""
    assert len(set(section.records)) == len(section.records)
    for example in section.examples:
        rest = iter(section.records)  # each record that it tells of comes, in this order
        for given in dict.fromkeys(_halves(line)[0] for line in example.results):
            assert given in rest, (example.heading, given)
    topology = program(section.code, *(example.code for example in section.examples)).build()
    topics = [_topics(section, example) for example in section.examples]
    told = {topic for each in topics for topic in each}
    assert len(told) == sum(map(len, topics))
    came: list[list[str]] = [[] for _ in section.examples]
    config = {
        "statestore.cache.max.bytes": 0,
        "spark.sql.codegen.factoryMode": "FALLBACK",
    }  # as users have it
    with TopologyTestDriver(topology, config, record_by_record=True) as driver:
        capfd.readouterr()
        time = DAY + timedelta(hours=9)
        for record in section.records:
            time = _pipe(driver, topology, record, time)
            printed = [f"prints {line}" for line in capfd.readouterr().out.splitlines()]
            for example, own, results in zip(section.examples, topics, came, strict=True):
                results += [f"{record} → {result}" for result in _written(driver, own, time)]
                mine = [line for line in example.of(record) if line in printed]
                results += [f"{record} → {line}" for line in mine]
                printed = [line for line in printed if line not in mine]
            assert printed == [], record
        written = {topic for topic in driver.produced_topic_names if not topic.startswith("test-")}
    assert written <= told
    for example, results in zip(section.examples, came, strict=True):
        assert results == [line for line in example.results if _halves(line)[1]], example.heading


def _topics(section: Section, example: Example) -> dict[str, Sink | None]:
    """The topics that an example writes; of those that a function names, the ones that the page tells of."""
    topology = program(section.code, example.code).build()
    topics: dict[str, Sink | None] = dict(sinks(topology))
    if any(isinstance(node, Sink) and node.topic_function for node in topology.nodes):
        named = (RECORD.fullmatch(_halves(line)[1]) for line in example.results)
        topics |= {match[2]: None for match in named if match is not None}
    return topics


def _pipe(driver: TopologyTestDriver, topology: Topology, record: str, before: datetime) -> datetime:
    """One record; without a time of its own it comes a minute after the one before."""
    match = RECORD.fullmatch(record)
    assert match is not None, record
    clock, topic, key, value = match.groups()
    time = before + timedelta(minutes=1)
    if clock is not None:
        hours, minutes = map(int, clock.split(":"))
        time = DAY + timedelta(hours=hours, minutes=minutes)
    (node,) = (node for node in topology.nodes if _reads(node, topic))
    assert isinstance(node, Source | TableSource | GlobalTable)
    given = [
        None if said == "null" else said if serde == Serdes.string() else json.loads(said)
        for said, serde in ((key, node.key_serde), (value, node.value_serde))
    ]
    driver.create_input_topic(topic, node.key_serde, node.value_serde).pipe_input(*given, timestamp=time)
    return time


def _reads(node: Any, topic: str) -> bool:
    if isinstance(node, Source):
        return topic in node.topics
    return isinstance(node, TableSource | GlobalTable) and node.topic == topic


def _written(driver: TopologyTestDriver, topics: dict[str, Sink | None], time: datetime) -> Iterator[str]:
    """What was written to an example's topics, as the page shows it."""
    for topic, sink in topics.items():
        output = driver.create_output_topic(topic, Serdes.bytes(), Serdes.bytes())
        for record in output.read_records_to_list():
            assert record.timestamp is not None
            at = datetime.fromtimestamp(record.timestamp / 1000, UTC)
            clock = "" if at == time else f"{_clock(at)} "
            name = f"{topic} " if len(topics) > 1 else ""
            key = _shown(record.key, sink.key_serde if sink else None)
            yield f"{clock}{name}{key}: {_shown(record.value, sink.value_serde if sink else None)}"


def _shown(data: bytes | None, serde: Serde | None) -> str:
    """A key or a value; where the serde is only known to Spark, its bytes tell what it is."""
    if data is None:
        return "null"
    if serde is None:
        numbers = {4: Serdes.integer(), 8: Serdes.double() if data[0] else Serdes.long()}
        serde = numbers[len(data)] if 0 in data else Serdes.string()  # text has no zeros
    value = serde.deserialize(data)
    if isinstance(value, Windowed):
        return f"{value.key}@{_clock(value.window.start)}\N{EN DASH}{_clock(value.window.end)}"
    if isinstance(value, str) and value.startswith("{"):
        value = json.loads(value)
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _clock(at: datetime) -> str:
    date = "" if at.date() == DAY.date() else f"{at:%Y-%m-%d}"
    time = (
        f"{at:%H:%M}" if at.time() == at.time().replace(second=0, microsecond=0) else f"{at:%H:%M:%S.%f}"[:-3]
    )
    return date if date and time == "00:00" else "T".join(filter(None, (date, time)))
