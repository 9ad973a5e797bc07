"""Drawings of topologies: what is in them, that no box covers another, and that they are SVG and Mermaid."""

from __future__ import annotations

import importlib
import itertools
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from millstream import Materialized, StreamsBuilder, Topology
from millstream.topology.drawing import Arrow, BoxKind, drawing_of, mermaid
from millstream.topology.drawing_layout import BoxPlace, layered
from millstream.topology.svg import svg

PORTED = Path(__file__).resolve().parents[2] / "examples" / "ported"


def counting() -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream("lines").group_by(lambda key, value: value).count(Materialized.as_("counts"))
    counts.to_stream().to("out")
    return builder.build()


def test_a_drawing_has_topics_processors_and_stores() -> None:
    """A topic that one subtopology writes and another reads is one box."""
    drawing = drawing_of(counting())
    labels = {(box.kind, box.label, box.group) for box in drawing.boxes}
    assert (BoxKind.TOPIC, "lines", None) in labels
    assert (BoxKind.TOPIC, "counts-repartition", None) in labels
    assert (BoxKind.STORE, "counts", 1) in labels
    assert (BoxKind.SINK, "counts-repartition-sink", 0) in labels
    assert [(group.id, group.pipeline) for group in drawing.groups] == [(0, "p0"), (1, "p1")]
    assert Arrow("topic lines", "node KSTREAM-SOURCE-0000000000") in drawing.arrows
    assert Arrow("node counts-repartition-sink", "topic counts-repartition") in drawing.arrows
    assert [arrow.end for arrow in drawing.arrows if arrow.state] == ["store counts"]


def test_a_global_table_is_a_group_without_a_pipeline() -> None:
    """A table that stores read themselves is one as well."""
    builder = StreamsBuilder()
    builder.global_table("users", materialized=Materialized.as_("users"))
    builder.table("items", materialized=Materialized.as_("items"))
    groups = drawing_of(builder.build()).groups
    assert {group.pipeline for group in groups} == {None}
    assert {group.title.split(":")[0] for group in groups} == {
        "Global table 0",
        "Subtopology 1 · read by the stores themselves",
    }


def test_mermaid_takes_any_name() -> None:
    """What means something there is written as an entity, and ids are numbers of ours."""
    builder = StreamsBuilder()
    builder.stream(re.compile('or"d[<&>]#')).to("out")
    assert '(["or#34;d#91;#60;#38;#62;#93;#35;"])' in mermaid(drawing_of(builder.build()))
    text = mermaid(drawing_of(counting()))
    assert text.startswith("flowchart TD\n")
    assert text.count("subgraph") == 2
    assert "-.-" in text


def overlapping(places: list[BoxPlace]) -> list[tuple[BoxPlace, BoxPlace]]:
    return [
        (one, other)
        for one, other in itertools.combinations(places, 2)
        if one.x < other.x + other.width - 0.01
        and other.x < one.x + one.width - 0.01
        and one.y < other.bottom - 0.01
        and other.y < one.bottom - 0.01
    ]


@pytest.mark.parametrize(
    "arrows",
    [
        ["ab", "bc", "ac"],
        ["ab", "ba"],
        ["ab", "bc", "ca", "cd"],
        ["aa", "ab"],
        ["ac", "bc", "cd", "ce", "ae", "fd", "ga", "gf", "be"],
        [],
    ],
)
def test_no_box_covers_another_and_arrows_go_down(arrows: list[str]) -> None:
    """This holds for any graph; in a circle one arrow goes up."""
    sizes = {each: (40.0 + 10 * number, 20.0) for number, each in enumerate("abcdefg")}
    placed = layered(sizes, [(each[0], each[1]) for each in arrows])
    assert overlapping(list(placed.places.values())) == []
    up = [each for each in arrows if placed.places[each[1]].y <= placed.places[each[0]].y]
    circles = {"ab,ba": 1, "ab,bc,ca,cd": 1, "aa,ab": 1}
    assert len(up) == circles.get(",".join(arrows), 0)
    assert all(each.x >= 0 and each.x + each.width <= placed.width + 0.01 for each in placed.places.values())


def ported() -> list[str]:
    return sorted(path.stem for path in PORTED.glob("*.py"))


def test_each_ported_program_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SVG is well-formed and has all boxes, each inside the picture, and none over another."""
    monkeypatch.setattr(sys, "path", [str(PORTED), *sys.path])
    wrong = []
    for name in ported():
        drawing = drawing_of(importlib.import_module(name).topology)
        root = ElementTree.fromstring(svg(drawing, name))  # our own
        left, top, width, height = map(float, root.attrib["viewBox"].split())
        space = "{http://www.w3.org/2000/svg}"
        boxes = list(root.iter(f"{space}g"))
        frames = [
            BoxPlace(*(float(box[1].attrib[each]) for each in ("x", "y", "width", "height")))
            for box in boxes
            if box[1].tag == f"{space}rect"
        ]
        inside = all(
            left <= each.x
            and top <= each.y
            and each.x + each.width <= left + width
            and each.bottom <= top + height
            for each in frames
        )
        if len(boxes) != len(drawing.boxes) or overlapping(frames) or not inside:
            wrong.append(name)
    assert wrong == []
    assert len(ported()) > 20
