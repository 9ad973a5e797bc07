"""The program while it is being written: drafts of nodes, which `build()` turns into a frozen topology.

Nodes are frozen; a program under construction is not: a split gets branches one by one, two sources of one
topic turn out to be one. What can still change lives here and nowhere else. Every rule that can be broken
while writing is checked here before anything is changed, so that a refused operation leaves no trace.

Source: InternalStreamsBuilder (addGraphNode, mergeDuplicateSourceNodes, buildAndOptimizeTopology) and
    the checks of InternalTopologyBuilder, which come when the topology is built; here they come at the line.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import count

from millstream.caller import caller
from millstream.errors import TopologyException
from millstream.topology.names import NameProvider
from millstream.topology.nodes import (
    Branch,
    Cogroup,
    ForeignKeyJoin,
    ForeignKeyLookup,
    GlobalTable,
    JoinType,
    Node,
    Process,
    Repartition,
    Source,
    Store,
    StreamGlobalTableJoin,
    StreamJoin,
    StreamTableJoin,
    Suppress,
    TableFilter,
    TableJoin,
    TableMapValues,
    TableSource,
    TableTransformValues,
    ToTable,
)

__all__ = ["Draft", "Drafts"]

Reader = Source | TableSource | GlobalTable
"""The nodes that read topics."""


@dataclass(eq=False)
class Draft:
    """A node to be. `node.parents` is empty until it is built.

    Attributes:
        priority: Kafka Streams' build priority: when it was last attached to a parent.
        where: the line of the program it came from.
        spare_store: the store that a table without one gets if a later operation needs it.
    """

    node: Node
    parents: list[Draft]
    where: str
    priority: int = 0
    children: list[Draft] = field(default_factory=list)
    spare_store: Store | None = None


def looked_up_in(table: Draft) -> list[Draft]:
    """The tables in whose stores its rows would be looked up; one without a store would get its spare."""
    if table.spare_store is not None or (
        table.node.store is not None and not isinstance(table.node, Suppress)
    ):
        return [table]
    return [draft for parent in table.parents for draft in looked_up_in(parent)]


class Drafts:
    """All drafts of one builder."""

    def __init__(self) -> None:
        self.names: NameProvider = NameProvider()
        self._sources: list[Draft] = []
        self._priorities = 0
        self._node_names: dict[str, str] = {}
        self._store_names: dict[str, str] = {}
        self.state_stores: dict[str, Store] = {}
        """Stores for processors, added to the builder."""

    # --- writing -----------------------------------------------------------------------------------------

    def check(self, *names: str | None, store: str | None = None, stores: Iterable[str] = ()) -> None:
        """Raise if a node or a store already has such a name; call it before names are counted.

        Raises:
            TopologyException: one does.
        """
        for name in names:
            if name is not None and name in self._node_names:
                raise TopologyException(
                    f"a node named '{name}' already exists ({self._node_names[name]}); "
                    f"give the one at {caller()} another name"
                )
        given = [name for name in names if name is not None]
        if len(set(given)) < len(given):
            raise TopologyException(
                f"one operation needs different names for its nodes, got {', '.join(given)}"
            )
        for each in (*stores, *(() if store is None else (store,))):
            if each in self._store_names:
                raise TopologyException(
                    f"a store named '{each}' already exists ({self._store_names[each]}); "
                    f"give the one at {caller()} another name"
                )

    def add(self, node: Node, *parents: Draft) -> Draft:
        """A draft of `node` behind `parents`."""
        names = _names(node)
        # The stores of a processor were added before, and several processors may have the same one.
        filled = (node.store,) if isinstance(node, Process) else node.stores
        stores = [store.name for store in filled if store is not None]
        self.check(*names, stores=stores)
        draft = Draft(node, [], caller())
        self._node_names.update((name, draft.where) for name in names)
        self._store_names.update((name, draft.where) for name in stores)
        for parent in parents:
            self.attach(draft, parent)
        return draft

    def add_state_store(self, store: Store) -> None:
        """A store for processors; the same one may be added again.

        Raises:
            TopologyException: there is another store of that name.

        Source: InternalTopologyBuilder.addStateStore.
        """
        if store.name in self.state_stores and self.state_stores[store.name] == store:
            return
        if store.name in self._store_names:
            raise TopologyException(
                f"A different StateStore has already been added with the name {store.name} "
                f"({self._store_names[store.name]}); give the one at {caller()} another name"
            )
        self.state_stores[store.name] = store
        self._store_names[store.name] = caller()

    def is_global_store(self, name: str) -> bool:
        """Whether there is a global table whose store has that name."""
        tables = (draft.node for draft in self._sources if isinstance(draft.node, GlobalTable))
        return any(table.stored.name == name for table in tables)

    def connected(self, operation: str, names: Iterable[str]) -> tuple[Store, ...]:
        """The stores that a processor requests by name.

        Raises:
            TopologyException: a store does not exist, or is not for processors.
        """
        found: dict[str, Store] = {}
        for name in names:
            if not isinstance(name, str):
                raise TopologyException(
                    f"{operation}() takes store names, or store builders, after the supplier; got {name!r}"
                )
            if name in self.state_stores:
                found[name] = self.state_stores[name]
                continue
            if self.is_global_store(name):
                raise TopologyException(
                    f"Global StateStore {name} can be used by a Processor without being specified; it should "
                    "not be explicitly passed."
                )
            if name in self._store_names:
                raise TopologyException(
                    f"{operation}() requests the store '{name}', which belongs to a table "
                    f"({self._store_names[name]}) and cannot be read by a processor: join the stream "
                    "with the "
                    "table, or fill a store in the processor"
                )
            near = get_close_matches(name, self.state_stores, n=1)
            meant = f" Did you mean '{near[0]}'?" if near else ""
            raise TopologyException(
                f"StateStore {name} is not added yet: {operation}() at {caller()} requests it; call "
                "builder.add_state_store(…) first, or let the supplier's stores() return its "
                f"builder.{meant}"
            )
        return tuple(found.values())

    def attach(self, draft: Draft, parent: Draft) -> None:
        """Put a draft behind one more parent; behind the same one again only renews its priority.

        A cogroup has a parent for each of its functions, also where two are the same.
        """
        if isinstance(draft.node, Cogroup) or parent not in draft.parents:
            draft.parents.append(parent)
        if draft not in parent.children:
            parent.children.append(draft)
        draft.priority = self._priority()

    def give_old_values(self, draft: Draft, *, needed: bool = True) -> bool:
        """Have a table's updates say what was there before; returns whether they do.

        Filters that know it then send nothing for a row that was and is absent.

        Args:
            needed: the table it is made from gets a store if it has none.

        Source: KTableImpl.enableSendingOldValues, and the methods of that name of KTableFilter,
            KTableMapValues, KTableTransformValues, KTableSuppressProcessorSupplier, KTableKTableAbstractJoin.
        """
        node = draft.node
        if isinstance(node, TableFilter | TableMapValues | TableTransformValues | Suppress):
            has_store = not isinstance(node, Suppress) and node.stored is not None
            knows = has_store or self.give_old_values(draft.parents[0], needed=needed)
            if isinstance(node, TableFilter) and knows:
                draft.node = replace(node, knows_old=True)
            return knows
        if isinstance(node, TableJoin):
            for parent in draft.parents:
                self.give_old_values(parent)
        elif needed:
            self._give_store(draft)
        return draft.node.store is not None or not isinstance(node, TableSource | ToTable | ForeignKeyJoin)

    def give_stores(self, table: Draft) -> None:
        """Make a table's rows available for lookup, in its store or its sources' stores.

        Source: KTableImpl.valueGetterSupplier, and the `view()` of each KTableProcessorSupplier.
        """
        for draft in looked_up_in(table):
            self._give_store(draft)

    def _give_store(self, draft: Draft) -> None:
        node, store = draft.node, draft.spare_store
        kinds = TableSource | ToTable | ForeignKeyJoin
        if isinstance(node, kinds) and node.stored is None and store is not None:
            draft.node = replace(node, stored=store)
            self._store_names[store.name] = draft.where

    def add_source(self, node: Reader) -> Draft:
        """A draft of a source, or of its twin: streams of the same topics read them once.

        Raises:
            TopologyException: a different source reads its topics.
        """
        twin = self.twin_of(node)
        # A twin's name is never used, so it takes none: Kafka Streams drops the second source when it builds.
        draft = self.add(node) if twin is None else Draft(node, [], caller())
        draft.priority = self._priority()
        self._sources.append(draft)
        return draft

    def twin_of(self, node: Reader) -> Draft | None:
        """The earlier source that reads what `node` reads, if there is one.

        Raises:
            TopologyException: a source reads some of its topics, or reads them differently.

        Source: InternalStreamsBuilder.mergeDuplicateSourceNodes, StreamSourceNode.merge;
            InternalTopologyBuilder.validateTopicNotAlreadyRegistered.
        Differs: serdes and timestamp extractors that contradict each other are refused; Kafka Streams takes
            the first ones. A pattern that matches the topic of an earlier global table is refused too; Kafka
            Streams does not notice it.
        """
        for draft in self._sources:
            other = draft.node
            assert isinstance(other, Reader)
            if isinstance(node, Source) and isinstance(other, Source) and _reads_the_same(node, other):
                _check_twins(node, other, draft.where)
                return draft
            _check_apart(node, other, draft.where)
        return None

    def check_internal_topic(self, topic: str) -> None:
        """Raise if a pattern would read `topic`, which is to be a repartition topic.

        Raises:
            TopologyException: it would.
        """
        for draft in self._sources:
            if isinstance(draft.node, Source) and draft.node.pattern is not None:
                _check_pattern(draft.node.pattern, (topic,), draft.where)

    def _priority(self) -> int:
        self._priorities += 1
        return self._priorities

    # --- building ----------------------------------------------------------------------------------------

    def build(self) -> tuple[Node, ...]:
        """The nodes, in the order in which Kafka Streams adds them to a topology: parents first.

        Raises:
            TopologyException: there is nothing to run, or a split has no branches.
        """
        if not self._sources:
            raise TopologyException(
                "the program reads no topic; start with builder.stream(), builder.table() or "
                "builder.global_table()"
            )
        owners = self._owners()
        built: dict[Draft, Node] = {}
        ordered = _in_order(self._sources, owners)
        with_null_keys = _with_null_keys(ordered)
        for draft in ordered:
            if isinstance(draft.node, Branch) and not draft.children:
                raise TopologyException(
                    f"{draft.node.name} ({draft.where}) is a split() without branches; "
                    "add branch(predicate), and end with default_branch() or no_default_branch()"
                )
            node = draft.node
            if isinstance(node, Source):
                for twin in (twin for twin, owner in owners.items() if owner is draft):
                    assert isinstance(twin.node, Source)
                    node = replace(
                        node,
                        key_serde=node.key_serde or twin.node.key_serde,
                        value_serde=node.value_serde or twin.node.value_serde,
                    )
            if isinstance(node, Repartition):
                node = replace(node, null_keys=draft in with_null_keys)
            built[draft] = replace(node, parents=tuple(built[parent] for parent in _parents(draft, owners)))
        return tuple(built.values())

    def _owners(self) -> dict[Draft, Draft]:
        """For each source that reads what an earlier one reads, that one: it stays, the others go."""
        owners: dict[Draft, Draft] = {}
        for draft in self._sources:
            for earlier in self._sources:
                if earlier is draft:
                    break
                one, other = earlier.node, draft.node
                if isinstance(one, Source) and isinstance(other, Source) and _reads_the_same(one, other):
                    owners[draft] = earlier
                    break
        return owners


def _in_order(sources: list[Draft], owners: dict[Draft, Draft]) -> list[Draft]:
    """Drafts by build priority, each when all its parents are there; what is owned is left out.

    Not simply by priority: a node that is attached anew (a repartition that two aggregations share) gets a
    higher one than its first child has.

    Source: InternalStreamsBuilder.buildAndOptimizeTopology.
    """
    children = {draft: list(draft.children) for draft in sources}
    for twin, owner in owners.items():
        children[owner] += twin.children
    written: dict[Draft, None] = {}
    heap: list[tuple[int, int, Draft]] = []
    pushed = count()  # only keeps the heap from comparing drafts

    def push(drafts: Iterable[Draft]) -> None:
        for draft in drafts:
            if draft not in written:
                heapq.heappush(heap, (draft.priority, next(pushed), draft))

    push(draft for draft in sources if draft not in owners)
    while heap:
        _, _, draft = heapq.heappop(heap)
        if all(owners.get(parent, parent) in written for parent in draft.parents):
            written[draft] = None
        push(children.get(draft, draft.children))
    return list(written)


def _with_null_keys(ordered: list[Draft]) -> set[Draft]:
    """Those from which records with a null key reach a left or an outer join of streams, which joins them.

    Source: NodesWithRelaxedNullKeyJoinDownstream (KIP-962).
    """
    found: set[Draft] = set()
    for draft in reversed(ordered):
        for child in draft.children:
            if (
                isinstance(child.node, StreamTableJoin | StreamGlobalTableJoin)
                and child.parents[0] is not draft
            ):
                continue  # it is the join's table
            if child in found or _joins_null_keys(child.node):
                found.add(draft)
    return found


def _joins_null_keys(node: Node) -> bool:
    joins = StreamTableJoin | StreamGlobalTableJoin | StreamJoin
    return isinstance(node, joins) and node.type is not JoinType.INNER


def _parents(draft: Draft, owners: dict[Draft, Draft]) -> list[Draft]:
    """What a draft is behind, once owners have taken over; they come last, as in Kafka Streams.

    Joins and cogroups have sides, so with them they come where those were whose place they take.
    """
    if isinstance(draft.node, Cogroup):
        return [owners.get(parent, parent) for parent in draft.parents]
    if isinstance(draft.node, StreamTableJoin | StreamGlobalTableJoin | StreamJoin):
        return list(dict.fromkeys(owners.get(parent, parent) for parent in draft.parents))
    parents = list(draft.parents)
    for twin, owner in owners.items():
        if twin in parents:
            parents.remove(twin)
            if owner not in parents:
                parents.append(owner)
    return parents


def _names(node: Node) -> list[str]:
    """Every name that `node` takes in Kafka Streams' text."""
    if isinstance(node, TableSource | GlobalTable):
        return [node.source_name, node.name]
    if isinstance(node, Repartition):
        return [name for name in (node.filter_name, node.sink_name, node.name) if name is not None]
    if isinstance(node, StreamJoin | TableJoin | Cogroup | ForeignKeyLookup | ForeignKeyJoin):
        return [*node.names, node.name]
    return [node.name]


def _reads_the_same(one: Source, other: Source) -> bool:
    if one.pattern is not None and other.pattern is not None:
        return (one.pattern.pattern, one.pattern.flags) == (other.pattern.pattern, other.pattern.flags)
    return bool(one.topics) and set(one.topics) == set(other.topics)


def _check_twins(node: Source, other: Source, where: str) -> None:
    what = f"pattern {other.pattern.pattern}" if other.pattern is not None else ", ".join(other.topics)
    if node.offset_reset != other.offset_reset:
        raise TopologyException(
            f"can't configure different offset reset policies on the same input: {what} is read at {where} "
            f"and at {caller()}; use the same Consumed in both places"
        )
    if node.timestamp_extractor != other.timestamp_extractor:
        raise TopologyException(
            f"{what} is read once for both, but with different timestamp extractors at {where} and at "
            f"{caller()}; use the same Consumed in both places, or one stream"
        )
    for word, mine, theirs in (
        ("key", node.key_serde, other.key_serde),
        ("value", node.value_serde, other.value_serde),
    ):
        if mine is not None and theirs is not None and mine != theirs:
            raise TopologyException(
                f"{what} is read once for both, but with {word} serde {theirs!r} at {where} and {mine!r} at "
                f"{caller()}; use the same Consumed in both places, or one stream"
            )


def _check_apart(node: Reader, other: Reader, where: str) -> None:
    topics, others = _topics(node), _topics(other)
    pattern = node.pattern if isinstance(node, Source) else None
    other_pattern = other.pattern if isinstance(other, Source) else None
    shared = [topic for topic in topics if topic in others]
    if shared and isinstance(node, Source) and isinstance(other, Source):
        raise TopologyException(
            "two source nodes are subscribed to overlapping but not equal input topics: "
            f"{', '.join(shared)} at {where} and at {caller()}; read the shared topics in a stream of "
            "their own, and merge()"
        )
    if shared and isinstance(node, GlobalTable) and isinstance(other, GlobalTable):
        raise TopologyException(
            f"topic {shared[0]} has already been registered by another source, a global table at {where}; "
            "use that one: any number of threads can query its store"
        )
    if shared and isinstance(node, GlobalTable) != isinstance(other, GlobalTable):
        raise TopologyException(
            f"topic {shared[0]} has already been registered by another source, at {where}; a topic is either "
            "a global table or the source of streams and tables: read it with builder.table() alone, or copy "
            "it to another topic for the global table"
        )
    if shared:
        raise TopologyException(
            f"topic {shared[0]} has already been registered by another source, at {where}; "
            "read it once, as a table, and use to_stream() for its updates"
        )
    if pattern is not None:
        _check_pattern(pattern, others, caller())
    if other_pattern is not None:
        _check_pattern(other_pattern, topics, where)


def _check_pattern(pattern: re.Pattern[str], topics: Iterable[str], where: str) -> None:
    for topic in topics:
        if pattern.fullmatch(topic):
            raise TopologyException(
                f"pattern {pattern.pattern} (at {where}) matches topic {topic}, which the program has "
                "already; narrow the pattern: a topic can have only one source"
            )


def _topics(node: Reader) -> tuple[str, ...]:
    return node.topics if isinstance(node, Source) else (node.topic,)
