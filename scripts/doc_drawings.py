"""The drawings in docs/images: states from their tables, programs from examples/, and those of the concepts.

Millstream itself draws them, in the way `millstream graph` draws a program. `make docs` writes them.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from millstream.machine import Rules
from millstream.states import CLIENT, GLOBAL_THREAD, STREAM_THREAD
from millstream.topology.drawing import Arrow, Box, BoxKind, Drawing, DrawnGroup, drawing_of
from millstream.topology.svg import svg

__all__ = ["drawings"]

ROOT = Path(__file__).resolve().parent.parent

S = TypeVar("S", bound=Enum)
TOPIC, STORE, STEP = BoxKind.TOPIC, BoxKind.STORE, BoxKind.PROCESSOR


def drawings() -> Iterator[tuple[str, str]]:
    """Each drawn file in docs/images, and its text."""
    for name, make in DRAWN.items():
        drawing, title = make()
        yield f"{name}.svg", svg(drawing, title)


def states(rules: Rules[S], title: str) -> tuple[Drawing, str]:
    """A state machine, without the transitions of a state to itself.

    Terminal states are round. A request that the table merely ignores has no arrow.
    """
    boxes = [
        Box(state.name, TOPIC if state in rules.terminal else STEP, state.name) for state in rules.allowed
    ]
    arrows = [
        Arrow(old.name, new.name)
        for old, following in rules.allowed.items()
        for new in following
        if new is not old
    ]
    return Drawing(tuple(boxes), tuple(arrows), ()), title


def drawn(
    title: str,
    kinds: Mapping[str, BoxKind],
    arrows: str,
    groups: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Drawing, str]:
    """A drawing of boxes, which are identified by their labels.

    Args:
        kinds: the label of each box, and its kind.
        arrows: `from > to`, one per line; `from . to` for something that is held, not sent.
        groups: the title of each frame, and the labels in it, separated by |.
    """
    home = {
        label.strip(): number for number, labels in enumerate(groups.values()) for label in labels.split("|")
    }
    boxes = tuple(Box(label, kind, label, home.get(label)) for label, kind in kinds.items())
    lines = [line.strip() for line in arrows.strip().splitlines()]
    pairs = [(line.split(" > " if " > " in line else " . "), " . " in line) for line in lines]
    return (
        Drawing(
            boxes,
            tuple(Arrow(start, end, state) for (start, end), state in pairs),
            tuple(DrawnGroup(number, title) for number, title in enumerate(groups)),
        ),
        title,
    )


def orders() -> tuple[Drawing, str]:
    """The program of README.md."""
    topology = runpy.run_path(str(ROOT / "examples" / "orders.py"))["topology"]
    return drawing_of(topology), "The orders program: one subtopology with one store"


def words() -> tuple[Drawing, str]:
    """A word count: two subtopologies, and one pipeline."""
    topology = runpy.run_path(str(ROOT / "examples" / "ported" / "word_count.py"))["topology"]
    return drawing_of(topology), "A word count: two subtopologies, joined by a shuffle"


DRAWN: dict[str, Callable[[], tuple[Drawing, str]]] = {
    "states-client": lambda: states(CLIENT, "The states of a client"),
    "states-stream-thread": lambda: states(STREAM_THREAD, "The states of a stream thread"),
    "states-global-thread": lambda: states(GLOBAL_THREAD, "The states of the global thread"),
    "orders": orders,
    "word-count": words,
    "way": lambda: drawn(
        "The path of a record",
        {
            "source topics": TOPIC,
            "pipeline: a Spark query": STEP,
            "output topics": TOPIC,
            "changelog topics": TOPIC,
            "store updater": STEP,
            "local store (RocksDB)": STORE,
            "your program's queries": STEP,
        },
        """
        source topics > pipeline: a Spark query
        pipeline: a Spark query > output topics
        pipeline: a Spark query > changelog topics
        changelog topics > store updater
        store updater > local store (RocksDB)
        local store (RocksDB) > your program's queries
        """,
    ),
    "clients": lambda: drawn(
        "Two clients of one application",
        {
            "orders": TOPIC,
            "totals changelog": TOPIC,
            "stream thread, pipeline p0": STEP,
            "totals 0, 1": STORE,
            "standby of 2, 3": STORE,
            "totals 2, 3": STORE,
            "standby of 0, 1": STORE,
        },
        """
        orders > stream thread, pipeline p0
        stream thread, pipeline p0 > totals changelog
        totals changelog > totals 0, 1
        totals changelog > standby of 2, 3
        totals changelog > totals 2, 3
        totals changelog > standby of 0, 1
        """,
        {
            "pipeline, on client A": "stream thread, pipeline p0",
            "stores of client A": "totals 0, 1 | standby of 2, 3",
            "stores of client B": "totals 2, 3 | standby of 0, 1",
        },
    ),
}
"""For each file, what draws it."""
