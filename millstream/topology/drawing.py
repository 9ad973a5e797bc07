"""A topology as boxes and arrows: the basis of `millstream graph` and other pictures. Pure.

Topics are outside and shared: a topic that one subtopology writes and another reads is one box. Inside a
subtopology are Kafka Streams' processors, by name, and their stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from millstream.topology.describe import GlobalStoreDescription, NodeDescription, SubtopologyDescription
from millstream.topology.subtopology import ProcessorKind
from millstream.topology.topology import Topology

__all__ = ["Arrow", "Box", "BoxKind", "Drawing", "DrawnGroup", "drawing_of", "mermaid"]


class BoxKind(Enum):
    """What a box represents."""

    TOPIC = "topic"
    """A repartition that Spark runs without a topic."""
    SOURCE = "source"
    PROCESSOR = "processor"
    SINK = "sink"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Box:
    """One thing in the picture.

    Attributes:
        id: unique, because a topic, a processor and a store can have the same name.
        label: its name.
        group: its subtopology; None for a topic, which is in none.
    """

    id: str
    kind: BoxKind
    label: str
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Arrow:
    """The path of records or, with `state`, the link from a processor to its store."""

    start: str
    end: str
    state: bool = False


@dataclass(frozen=True, slots=True)
class DrawnGroup:
    """A subtopology. `pipeline` is the Spark query that runs it; None if there is none."""

    id: int
    title: str
    pipeline: str | None = None


@dataclass(frozen=True, slots=True)
class Drawing:
    """The whole picture, without positions."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    groups: tuple[DrawnGroup, ...]

    def as_dict(self) -> dict[str, object]:
        """Everything, ready for `json.dumps`."""
        return {
            "groups": [
                {"id": each.id, "title": each.title, "pipeline": each.pipeline} for each in self.groups
            ],
            "boxes": [
                {"id": each.id, "kind": each.kind.value, "label": each.label, "group": each.group}
                for each in self.boxes
            ],
            "arrows": [
                {"from": each.start, "to": each.end, "kind": "state" if each.state else "records"}
                for each in self.arrows
            ],
        }


def drawing_of(topology: Topology) -> Drawing:
    """The boxes and arrows of a topology."""
    described = topology.describe()
    runs = {pipeline.subtopology: pipeline for pipeline in topology.pipelines}
    boxes: dict[str, Box] = {}
    arrows: dict[Arrow, None] = {}
    groups = []
    parts: list[SubtopologyDescription | GlobalStoreDescription] = [
        *described.subtopologies,
        *described.global_stores,
    ]
    for part in sorted(parts, key=lambda each: each.id):
        if isinstance(part, GlobalStoreDescription):
            groups.append(DrawnGroup(part.id, f"Global table {part.id}: each client has all of it"))
            nodes: Iterable[NodeDescription] = (part.source, part.processor)
        else:
            pipeline = runs.get(part.id)
            name = pipeline.name if pipeline is not None and pipeline.has_query else None
            by = f"pipeline {name}" if name is not None else "read by the stores themselves"
            groups.append(DrawnGroup(part.id, f"Subtopology {part.id} · {by}", name))
            nodes = part.nodes
        for node in nodes:
            _add(node, part.id, boxes, arrows)
    return Drawing(tuple(boxes.values()), tuple(arrows), tuple(groups))


_KINDS = {
    ProcessorKind.SOURCE: BoxKind.SOURCE,
    ProcessorKind.PROCESSOR: BoxKind.PROCESSOR,
    ProcessorKind.SINK: BoxKind.SINK,
}


def _add(node: NodeDescription, group: int, boxes: dict[str, Box], arrows: dict[Arrow, None]) -> None:
    own = f"node {node.name}"
    boxes[own] = Box(own, _KINDS[node.kind], node.name, group)

    def topic(name: str) -> str:
        return boxes.setdefault(f"topic {name}", Box(f"topic {name}", BoxKind.TOPIC, name)).id

    read = [node.pattern.pattern] if node.pattern is not None else node.topics
    for name in read:
        arrows[Arrow(topic(name), own)] = None
    for successor in node.successors:
        arrows[Arrow(own, f"node {successor}")] = None
    for name in node.stores:
        store = f"store {name}"
        boxes.setdefault(store, Box(store, BoxKind.STORE, name, group))
        arrows[Arrow(own, store, state=True)] = None
    if node.topic is not None:
        arrows[Arrow(own, topic(node.topic))] = None
    elif node.topic_function is not None:
        arrows[Arrow(own, topic(f"topics that {node.topic_function} names"))] = None


# --- Mermaid ---------------------------------------------------------------------------------------------

_SHAPES = {
    BoxKind.TOPIC: ("([", "])"),
    BoxKind.SOURCE: ("[", "]"),
    BoxKind.PROCESSOR: ("[", "]"),
    BoxKind.SINK: ("[", "]"),
    BoxKind.STORE: ("[(", ")]"),
}


def mermaid(drawing: Drawing) -> str:
    """The picture in Mermaid's language, which GitHub and many editors render."""
    ids = {box.id: f"n{number}" for number, box in enumerate(drawing.boxes)}
    lines = ["flowchart TD"]

    def draw(box: Box, indent: str) -> str:
        opening, closing = _SHAPES[box.kind]
        return f'{indent}{ids[box.id]}{opening}"{_mermaid_text(box.label)}"{closing}'

    lines += [draw(box, "    ") for box in drawing.boxes if box.group is None]
    for group in drawing.groups:
        lines.append(f'    subgraph g{group.id}["{_mermaid_text(group.title)}"]')
        lines += [draw(box, "        ") for box in drawing.boxes if box.group == group.id]
        lines.append("    end")
    for arrow in drawing.arrows:
        lines.append(f"    {ids[arrow.start]} {'-.-' if arrow.state else '-->'} {ids[arrow.end]}")
    return "\n".join(lines) + "\n"


def _mermaid_text(text: str) -> str:
    """A label, with Mermaid's special characters as entities."""
    return "".join(each if each.isalnum() or each in " -_.,:·()/*" else f"#{ord(each)};" for each in text)
