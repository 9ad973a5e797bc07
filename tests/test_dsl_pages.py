"""docs/dsl/: its examples give what it says they give, and no operator is left out.

A section of a page is a program: what it reads and which records come, then examples, each with what
comes of these records. All examples of a section run side by side, and each record is processed alone. The
marble diagrams are made of the same records and results.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import marbles
import pytest
from dsl_pages import MARBLES, Example, Section, anchor, drawings, halves, pages, program, sections

from millstream import (
    BranchedKStream,
    CogroupedKStream,
    GlobalKTable,
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

DAY = datetime(2026, 1, 5, tzinfo=UTC)
RECORD = re.compile(r"(?:(\d\d:\d\d) )?(?:(\S+) )?(\S+): (.+)")


def sinks(topology: Topology) -> dict[str, Sink]:
    return {node.topic: node for node in topology.nodes if isinstance(node, Sink) and node.topic}


EXAMPLES = [(section, example) for section in sections() for example in section.examples]
HEADINGS = {
    page: re.findall(r"^### (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE) for page in pages()
}


def test_each_example_is_explained() -> None:
    """The page says which queries run it, what they read and where they write."""
    for section, example in EXAMPLES:
        topology = program(section, example.code).build()
        told = topology.explain()
        assert re.search(r"^Pipelines:\n  Pipeline: p\d+ .*\n    reads: ", told), example.heading
        assert [topic for topic in sinks(topology) if f" {topic} (" not in told] == [], example.heading


def test_each_operator_has_a_section() -> None:
    """Each public method of the DSL's classes has an example, or is named in the section of one."""
    kinds = (
        StreamsBuilder,
        KStream,
        BranchedKStream,
        KTable,
        GlobalKTable,
        KGroupedStream,
        KGroupedTable,
        TimeWindowedKStream,
        SessionWindowedKStream,
        CogroupedKStream,
        TimeWindowedCogroupedKStream,
        SessionWindowedCogroupedKStream,
    )
    elsewhere = {
        "StreamsBuilder.build",
        "StreamsBuilder.from_dataframe",
        "KStream.to_spark",
        "KStream.to_dataframe",
    }
    index, *others = (page.read_text(encoding="utf-8") for page in pages())
    bodies = "\n".join(text[text.index("\n### ") :] for text in others)
    names = {f"{kind.__name__}.{name}" for kind in kinds for name in dir(kind) if not name.startswith("_")}
    missing = [
        name
        for name in sorted(names)
        if not re.search(rf"(### |`){re.escape(name)}\b", index if name in elsewhere else bodies)
    ]
    assert missing == []
    shown = {example.heading for _, example in EXAMPLES if any("→ " in line for line in example.results)}
    assert [title for titles in HEADINGS.values() for title in titles if title not in shown] == []


def test_each_operator_has_its_drawing() -> None:
    """It is below its example, after the marble diagram if there is one. test_docs.py checks that they are
    current."""
    for page, headings in HEADINGS.items():
        images = re.findall(r"^!\[.+\]\(images/(.+)\)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        expected = [
            name
            for title in headings
            for name in (f"marbles-{anchor(title)}.svg", f"{anchor(title)}.svg")
            if title in MARBLES or not name.startswith("marbles-")
        ]
        assert images == expected, page.name
    assert MARBLES.keys() <= {title for titles in HEADINGS.values() for title in titles}


def test_a_marble_diagram_has_the_records_and_the_results_of_its_example() -> None:
    """All of them; of a window its last value, and of one that is deleted, the last value before."""
    for _, example in first_examples():
        picture = ElementTree.fromstring(drawings()[f"marbles-{anchor(example.heading)}.svg"])
        shown = {title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")}
        windows: dict[str, str] = {}
        for given, result in map(halves, example.results):
            assert given in shown, (example.heading, given)
            if MARBLES[example.heading] != "spans":
                assert not result or result in shown, (example.heading, result)
            elif result:
                key = RECORD.fullmatch(result)
                assert key is not None
                windows[key[3]] = result
        assert set(windows.values()) <= shown, example.heading


def test_no_text_of_a_marble_diagram_covers_another() -> None:
    """The width of all characters is the same."""
    for _, example in first_examples():
        picture = ElementTree.fromstring(drawings()[f"marbles-{anchor(example.heading)}.svg"])
        places = list[tuple[float, float, float, str]]()
        for text in picture.iter("{http://www.w3.org/2000/svg}text"):
            words = text.text or ""
            width = len(words) * marbles.CHARACTER
            left = (
                float(text.attrib["x"])
                - {"start": 0, "middle": width / 2, "end": width}[text.attrib["text-anchor"]]
            )
            places.append((left, left + width, float(text.attrib["y"]), words))
        for one, other in itertools.combinations(places, 2):
            apart = one[1] <= other[0] or other[1] <= one[0] or abs(one[2] - other[2]) >= 11
            assert apart, (example.heading, one, other)


def first_examples() -> Iterator[tuple[Section, Example]]:
    """The examples that have a marble diagram."""
    for title in MARBLES:
        yield next((section, example) for section, example in EXAMPLES if example.heading == title)


def test_the_contents_are_the_headings() -> None:
    """The first page links to every operator, page by page and in their order."""
    text = pages()[0].read_text(encoding="utf-8")
    links = re.findall(r"^- \[(.+)\]\((\w+\.md)#([\w-]+)\)$", text, re.MULTILINE)
    told: dict[str, list[str]] = {}
    for title, page, link in links:
        told.setdefault(page, []).append(title)
        assert link == anchor(title)
    assert told == {page.name: titles for page, titles in HEADINGS.items() if titles}
    assert len({anchor(title) for titles in HEADINGS.values() for title in titles}) == len(links)


@pytest.mark.spark
@pytest.mark.parametrize("section", [pytest.param(each, id=each.heading) for each in sections()])
def test_each_example_gives_what_it_says(section: Section, capfd: pytest.CaptureFixture[str]) -> None:
    """Record by record: keys, values and times of what is written, and what is printed."""
    assert len(set(section.records)) == len(section.records)
    for example in section.examples:
        rest = iter(section.records)  # each record that it tells of comes, in this order
        for given in dict.fromkeys(halves(line)[0] for line in example.results):
            assert given in rest, (example.heading, given)
    topology = program(section, *(example.code for example in section.examples)).build()
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
        assert results == [line for line in example.results if halves(line)[1]], example.heading


def _topics(section: Section, example: Example) -> dict[str, Sink | None]:
    """The topics that an example writes; of those that a function names, the ones that the page tells of."""
    topology = program(section, example.code).build()
    topics: dict[str, Sink | None] = dict(sinks(topology))
    if any(isinstance(node, Sink) and node.topic_function for node in topology.nodes):
        named = (RECORD.fullmatch(halves(line)[1]) for line in example.results)
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
