"""The stores of a task: what each is logged to, what it follows from, and where it lies. Pure.

Items of operators keep their rows in stores of the topology, or in ones of their own, such as the sides of
joins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.physical.kernel_joins import Join, Side, settings_of
from millstream.physical.tables import is_restored
from millstream.topology.names import changelog_topic
from millstream.topology.nodes import (
    Aggregate,
    Cogroup,
    ForeignKeyLookup,
    Node,
    Store,
    StreamJoin,
    StreamTableJoin,
)

__all__ = ["TaskStore", "TaskStores", "has_state"]


@dataclass(frozen=True)
class TaskStore:
    """Part of a task's state.

    Attributes:
        changelog: the topic that it is logged to; "": to none.
        in_memory: whether it is in memory only.
        layout: for a processor's store, how its entries lie (kernel: task/LaidOut.java); "" if they are those
            of its changelog.
        source: the topic that fills a processor's store, if others write that; "" for none.
        derived: whether what it has follows from other stores, from topics that are read as tables, or from
            all records of its changelog.
        versioned: whether each put is logged.
        form: how its changelog is that of Kafka Streams and no more (kernel: TaskPlan.Store); "" if a header
            has the parts of values.
    """

    name: str
    changelog: str
    in_memory: bool
    layout: str = ""
    source: str = ""
    derived: bool = False
    versioned: bool = False
    form: str = ""


class TaskStores:
    """The stores of a task so far. The place of each is its number."""

    def __init__(self, application_id: str) -> None:
        self._application_id = application_id
        self._all: list[TaskStore] = []

    def all(self) -> tuple[TaskStore, ...]:
        return tuple(self._all)

    def __getitem__(self, number: int) -> TaskStore:
        return self._all[number]

    def of_item(self, node: Node) -> int:
        """The number of the store of an operator's item; -1 for one without state."""
        if not has_state(node):
            return -1
        store, is_derived = None, False
        if isinstance(node, Side):
            name = node.label
            if isinstance(node.join, StreamJoin):
                store = node.join.this_stored if node.is_left else node.join.other_stored
            is_derived = store is None and is_restored(node.parents[0])
        elif isinstance(node, StreamTableJoin | ForeignKeyLookup | StreamJoin):
            store = node.outer_stored if isinstance(node, StreamJoin) else node.stored
            name = f"{node.name}-waiting" if store is None else store.name
        elif node.store is None:
            name = node.name
        else:
            is_whole = isinstance(node, Aggregate | Cogroup) and node.windows is None
            return self.of_topology(node.store, is_whole=is_whole)
        is_logged = store is not None and store.logged
        changelog = changelog_topic(self._application_id, name) if is_logged else ""
        form = "values" if isinstance(node, ForeignKeyLookup) else ""
        return self._add(TaskStore(name, changelog, False, derived=is_derived, form=form))

    def of_topology(self, store: Store, *, is_whole: bool = False) -> int:
        """The number of a store of the topology.

        Args:
            is_whole: it has aggregates over all time, which have more than a record says.
        """
        is_logged = store.logged and store.source_topic is None
        changelog = changelog_topic(self._application_id, store.name) if is_logged else ""
        versioned = is_logged and store.history_ms is not None
        derived = (versioned and not is_whole) or (store.logged and store.source_topic is not None)
        in_memory = not store.persistent
        return self._add(TaskStore(store.name, changelog, in_memory, derived=derived, versioned=versioned))

    def of_processors(self, store: Store, layout: str) -> int:
        """The number of a store of processors, whose entries lie in this way, all from its changelog."""
        number = self.of_topology(store)
        self._all[number] = replace(
            self._all[number],
            layout=layout,
            source=store.source_topic or "",
            derived=False,
            versioned=False,
        )
        return number

    def set_form(self, number: int, form: str) -> None:
        """Have the changelog of a store be Kafka Streams' own."""
        self._all[number] = replace(self._all[number], form=form)

    def local(self) -> int:
        """The number of the store for what follows from the others, which is not logged."""
        return self._add(TaskStore("derived", "", False))

    def _add(self, store: TaskStore) -> int:
        names = [each.name for each in self._all]
        if store.name not in names:
            self._all.append(store)
            return len(names)
        return names.index(store.name)


def has_state(item: Node) -> bool:
    """Whether an item of an operator keeps anything itself (kernel: OperatorPlan.Item.isKept)."""
    return not isinstance(item, Join) or settings_of(item)[0] not in ("lookup", "table_join", "changes")
