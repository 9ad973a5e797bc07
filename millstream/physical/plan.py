"""The steps in which a task's DataFrame is built, and what waits together: a value, from the topology alone.

A stateful step waits until everything before it is built. What waits by then becomes one operator: its
*items* are aggregations, tables and joins, in this order. What an item keeps of a parent is a `Side`; a step
of a table without a core of its own is followed by a `ToTable` that keeps its rows. Linked processors are an
operator of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from millstream.errors import TopologyException
from millstream.physical.kernel_joins import ForeignKey, Join, Side, history_of, is_between_tables, is_quiet
from millstream.physical.tables import Remembering, is_step, remembering_of, right_behind
from millstream.physical.task_stores import has_state
from millstream.topology.nodes import (
    Aggregate,
    Cogroup,
    ForeignKeyJoin,
    ForeignKeyLookup,
    ForeignKeySubscribe,
    Node,
    Process,
    Repartition,
    StreamGlobalTableJoin,
    StreamJoin,
    StreamTableJoin,
    Suppress,
    TableJoin,
    TableSource,
    ToTable,
)
from millstream.topology.pipeline import Pipeline, global_read, linked

__all__ = ["Linked", "Operator", "Step", "TaskPlan", "Visit", "WrittenBack", "needed_by", "plan_task"]


@dataclass(frozen=True, eq=False)
class WrittenBack(Node):
    """The writing half of a repartition topic that its own pipeline reads. Internal: it occurs in no
    topology."""

    repartition: Repartition = field(default_factory=lambda: Repartition("", ()))


@dataclass(frozen=True, slots=True)
class Visit:
    """A node is compiled: everything that it needs is built."""

    node: Node


@dataclass(frozen=True, slots=True)
class Operator:
    """What has waited becomes one operator of the kernel. Items that depend on others come after them."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Linked:
    """Linked processors become one operator of the kernel."""

    processors: tuple[Process, ...]


Step = Visit | Operator | Linked


@dataclass(frozen=True)
class TaskPlan:
    """How the DataFrame of a subtopology's tasks is built.

    Attributes:
        steps: in their order.
        sides: what the joins keep of their parents, left before right; shared ones occur more than once.
        kept: by nodes whose rows an item of its own keeps, that item.
        stands_for: those of these items behind which the node's other steps go on.
        remembering: which tables' updates carry the old value; by_time has such items as well.
        held_back: the suppressions that hold back an aggregation's updates in its own operator.
        written_back: the repartition topics that the pipeline both writes and reads.
        groups: the linked processors that each is one of.
    """

    pipeline: Pipeline
    steps: tuple[Step, ...]
    sides: Mapping[Node, tuple[Side, ...]]
    kept: Mapping[Node, ToTable]
    stands_for: Mapping[Node, Node]
    remembering: Remembering
    held_back: Mapping[Node, tuple[Suppress, ...]]
    written_back: tuple[WrittenBack, ...]
    groups: Mapping[Process, tuple[Process, ...]]

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """What is visited."""
        return (*self.pipeline.nodes, *self.written_back)


def plan_task(pipeline: Pipeline) -> TaskPlan:
    """Plan a pipeline.

    Raises:
        TopologyException: a foreign-key join has a table with a history.
    """
    return _Planning(pipeline).planned()


def needed_by(pipeline: Pipeline, node: Node) -> tuple[Node, ...]:
    """What must be built before a node, including the read of its global table."""
    if isinstance(node, StreamGlobalTableJoin):
        read = global_read(node, pipeline.inputs)
        assert read is not None
        return node.parents[0], read
    return node.parents


def _written_back(pipeline: Pipeline) -> tuple[WrittenBack, ...]:
    return tuple(
        WrittenBack(node.name, node.parents, repartition=node)
        for node in pipeline.inputs
        if isinstance(node, Repartition) and node in pipeline.outputs and not is_between_tables(node)
    )


class _Planning:
    """One planning. Used once."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._steps: list[Step] = []
        self._sides: dict[Node, tuple[Side, ...]] = {}
        self._kept: dict[Node, ToTable] = {}
        self._stands_for: dict[Node, Node] = {}
        self._remembering = remembering_of(pipeline)
        self._by_time = set(self._remembering.by_time)
        self._held_back: dict[Node, tuple[Suppress, ...]] = {}
        self._written_back = _written_back(pipeline)
        # Who reads a topic takes the serdes that it is written with, if that is possible.
        self._written_first: dict[Node, Node] = {each.repartition: each for each in self._written_back}
        self._groups = {node: group for group in linked(pipeline.nodes) for node in group}
        self._unvisited: list[Node] = [*pipeline.nodes, *self._written_back]
        self._pending: list[Node] = []
        self._looked_up: dict[tuple[Node, bool], int] = {}
        self._done: set[Node] = set()

    def planned(self) -> TaskPlan:
        while self._unvisited or self._pending or self._unbuilt():
            ready = self._ready()
            for node in ready:
                self._unvisited.remove(node)
                self._steps.append(Visit(node))
                self._visit(node)
            if not ready:
                self._build()
        return TaskPlan(
            self._pipeline,
            tuple(self._steps),
            self._sides,
            self._kept,
            self._stands_for,
            replace(self._remembering, by_time=frozenset(self._by_time)),
            self._held_back,
            self._written_back,
            self._groups,
        )

    def _ready(self) -> list[Node]:
        """What can be visited; processors last."""
        ready = [node for node in self._unvisited if not isinstance(node, Process) and self._is_ready(node)]
        return ready + [
            node for node in self._unvisited if isinstance(node, Process) and self._has_inputs(node)
        ]

    def _is_ready(self, node: Node) -> bool:
        if node in self._written_first:
            return self._written_first[node] in self._done
        if isinstance(node, ForeignKeySubscribe | ForeignKeyJoin) and not self._is_right_side_visited(node):
            return False
        return node in self._pipeline.inputs or self._done.issuperset(needed_by(self._pipeline, node))

    def _is_right_side_visited(self, node: ForeignKeySubscribe | ForeignKeyJoin) -> bool:
        """The left side of a join writes and reads what fits the right side, so the right side comes first if
        it is in the same pipeline."""
        lookups = (each for each in self._unvisited if isinstance(each, ForeignKeyLookup))
        if isinstance(node, ForeignKeySubscribe):
            return not any(node in each.parents[0].parents for each in lookups)
        return not any(each in node.parents[0].parents for each in lookups)

    def _has_inputs(self, node: Process) -> bool:
        """Whether all inputs of a processor and of those linked with it are built."""
        group = self._groups[node]
        return all(parent in self._done or parent in group for parent in node.parents)

    # --- visits ----------------------------------------------------------------------------------------

    def _visit(self, node: Node) -> None:
        match node:
            case Process():
                return  # until all of its group are visited
            case StreamTableJoin():
                self._sides[node] = (self._side(node, node.parents[1], is_left=False, is_shared=True),)
                self._pending.append(node)
            case ForeignKeyLookup():
                self._sides[node] = (self._side(node, node.parents[1], is_left=False),)
                self._pending.append(node)
            case ForeignKeySubscribe() | ForeignKeyJoin():
                self._sides[node] = (self._side(node, node.parents[-1], is_left=True, is_shared=True),)
                self._pending.append(node)
            case TableJoin() if len(node.parents) == 1:  # both sides of it change at once, so they are one
                self._sides[node] = (self._side(node, node.parents[0], is_left=True),) * 2
                self._pending.append(node)
            case StreamJoin() | TableJoin():
                left = self._side(node, node.parents[0], is_left=True)
                self._sides[node] = (left, self._side(node, node.parents[-1], is_left=False))
                self._pending.append(node)
            case Aggregate() | Cogroup() | Suppress():
                self._held_back[node] = right_behind(self._pipeline, node)
                self._pending.append(node)
            case TableSource() | ToTable() if node in self._remembering.tables:
                self._pending.append(node)
            case TableSource() if node.is_view and not self._is_used(node):
                self._done.add(node)  # its store is a view of the topic
            case _:
                self._put(node)

    def _is_used(self, node: Node) -> bool:
        return any(node in needed_by(self._pipeline, each) for each in self._pipeline.nodes)

    def _side(self, join: Join, parent: Node, *, is_left: bool, is_shared: bool = False) -> Side:
        """What a join keeps of a parent; shared by all joins that look up rows in one table."""
        if isinstance(join, ForeignKey) and history_of(parent) is not None:
            raise TopologyException(
                f"{join.name}: one of its tables has a history, which foreign-key joins do not use; leave "
                "out with_history() to join with its latest rows"
            )
        side = Side(join.name, (parent,), join=join, is_left=is_left)
        if is_shared:
            for other in self._pending:
                if isinstance(other, Side) and other.parents == (parent,) and other.is_for == side.is_for:
                    return other
        remembers = isinstance(join, TableJoin) or side.is_referring
        if isinstance(join, ForeignKeyLookup):
            remembers = is_quiet(parent)
        number = self._looked_up.get((parent, side.is_referring), 0)
        if is_shared:
            self._looked_up[parent, side.is_referring] = number + 1
        side = replace(side, remembers=remembers, number=number)
        self._pending.append(side)
        return side

    def _put(self, node: Node) -> None:
        """A node's rows are there. If it has a store of its own without a core, an item keeps them."""
        store = node.store
        if store is None or store.source_topic is not None:
            self._done.add(node)
            return
        kept = ToTable(node.name, (node,), store)
        self._keep(node, kept, is_step=is_step(self._pipeline, node))
        if store.history_ms is not None:
            self._by_time.add(kept)

    def _keep(self, node: Node, kept: ToTable, *, is_step: bool) -> None:
        self._kept[node] = kept
        self._pending.append(kept)
        if is_step:
            self._stands_for[kept] = node
        else:
            self._done.add(node)

    # --- operators -------------------------------------------------------------------------------------

    def _build(self) -> None:
        """All that can be visited is: what waits is built."""
        groups = self._unbuilt()
        if not self._pending and not groups and self._written_first:
            # Processors before such a topic share a store with some behind it, so it is read first.
            self._written_first.clear()
        elif not self._pending and not groups:
            left = ", ".join(node.name for node in self._unvisited)
            raise AssertionError(f"nothing comes before {left}; this is a bug, please report it")
        if self._pending:
            self._build_operator()
        for group in groups:
            self._steps.append(Linked(group))
            self._done.update(group)

    def _unbuilt(self) -> list[tuple[Process, ...]]:
        """The groups of processors that are visited and not yet built."""
        return [
            group
            for group in dict.fromkeys(self._groups.values())
            if not any(node in self._done or node in self._unvisited for node in group)
        ]

    def _build_operator(self) -> None:
        items = sorted(self._pending, key=self._place)
        items.sort(key=lambda item: not has_state(item))
        self._pending.clear()
        self._steps.append(Operator(tuple(items)))
        for item in items:
            if isinstance(item, ForeignKeyJoin) and item in self._remembering.tables:
                # Its rows are kept, so that updates carry the old value.
                self._keep(item, ToTable(item.name, (item,), item.stored), is_step=True)
            elif isinstance(item, Join):
                self._put(item)
            elif not isinstance(item, Side):
                self._done.add(self._stands_for.get(item, item))
                self._done.update(self._held_back.get(item, ()))
                self._unvisited = [node for node in self._unvisited if node not in self._done]

    def _place(self, item: Node) -> tuple[int, int]:
        nodes = self._pipeline.nodes
        if isinstance(item, Side):
            return nodes.index(item.join), 0 if item.is_left else 1
        at = self._stands_for.get(item, item)
        return nodes.index(at if at in nodes else at.parents[0]), 2
