"""Streams: independent records. An operation checks its arguments, adds one node and returns a stream.

Functions get Columns and return Columns; they are traced once, when a client compiles the topology. They may
take `value`, `key, value`, or `key, value, record` (`record`: topic, partition, offset, timestamp, headers).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millstream.dsl.drafts import Draft, Drafts
from millstream.dsl.frames import SparkOutputs
from millstream.dsl.grouped import KGroupedStream
from millstream.dsl.joins import StreamJoins
from millstream.dsl.ktable import KTable, check_function, connected_stores, declare_store
from millstream.dsl.options import (
    Branched,
    Grouped,
    Materialized,
    Named,
    Produced,
    Repartitioned,
    name_of,
    option,
)
from millstream.dsl.printed import Printed
from millstream.dsl.repartition import add_repartition, check_repartition
from millstream.dsl.store_builders import StoreBuilder
from millstream.errors import TopologyException
from millstream.not_there import ExplainsMissingNames
from millstream.processors.api import FixedKeyProcessor, Processor
from millstream.serdes.serde import Serde
from millstream.topology import nodes
from millstream.topology.columns import (
    Action,
    ArrayMapper,
    Mapper,
    PairMapper,
    PairsMapper,
    Predicate,
    Supplier,
    TopicName,
)
from millstream.topology.functions import describe_function
from millstream.topology.names import validate_name, validate_topic
from millstream.topology.suppliers import check_supplier

__all__ = ["BranchedKStream", "KStream"]


class KStream(StreamJoins, SparkOutputs, ExplainsMissingNames):
    """A stream of records.

    After an operation that can change keys (map, flat_map, select_key, group_by), steps that need equal keys
    together repartition first: aggregations, joins, to_table().

    Source: org.apache.kafka.streams.kstream.KStream.
    """

    def __init__(
        self,
        drafts: Drafts,
        draft: Draft,
        key_serde: Serde | None,
        value_serde: Serde | None,
        *,
        repartition_required: bool = False,
    ) -> None:
        self._drafts = drafts
        self._draft = draft
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._repartition_required = repartition_required
        self._repartitioned_for_joins: Draft | None = None

    # --- one record in, records out ----------------------------------------------------------------------

    def filter(self, predicate: Predicate, *, named: str | Named | None = None) -> KStream:
        """Keep the records for which `predicate` is true."""
        check_function("filter", predicate)
        return self._then(nodes.Filter("", (), predicate), "KSTREAM-FILTER-", named)

    def filter_not(self, predicate: Predicate, *, named: str | Named | None = None) -> KStream:
        """Drop the records for which `predicate` is true."""
        check_function("filter_not", predicate)
        return self._then(nodes.Filter("", (), predicate, negate=True), "KSTREAM-FILTER-", named)

    def map(self, mapper: PairMapper, *, named: str | Named | None = None) -> KStream:
        """Replace each record: `mapper` returns a pair of Columns, key and value."""
        check_function("map", mapper)
        return self._then(
            nodes.Map("", (), mapper), "KSTREAM-MAP-", named, keeps_key=False, keeps_value=False
        )

    def map_values(self, mapper: Mapper, *, named: str | Named | None = None) -> KStream:
        """Replace each value; the key stays."""
        check_function("map_values", mapper)
        return self._then(nodes.MapValues("", (), mapper), "KSTREAM-MAPVALUES-", named, keeps_value=False)

    def flat_map(self, mapper: PairsMapper, *, named: str | Named | None = None) -> KStream:
        """Turn each record into any number of records: `mapper` returns an array of structs of key and
        value."""
        check_function("flat_map", mapper)
        return self._then(
            nodes.FlatMap("", (), mapper), "KSTREAM-FLATMAP-", named, keeps_key=False, keeps_value=False
        )

    def flat_map_values(self, mapper: ArrayMapper, *, named: str | Named | None = None) -> KStream:
        """Turn each value into any number of values: `mapper` returns an array; the key stays."""
        check_function("flat_map_values", mapper)
        return self._then(
            nodes.FlatMapValues("", (), mapper), "KSTREAM-FLATMAPVALUES-", named, keeps_value=False
        )

    def select_key(self, mapper: Mapper, *, named: str | Named | None = None) -> KStream:
        """Give each record another key; the value stays."""
        check_function("select_key", mapper)
        return self._then(nodes.SelectKey("", (), mapper), "KSTREAM-KEY-SELECT-", named, keeps_key=False)

    def peek(self, action: Action, *, named: str | Named | None = None) -> KStream:
        """Call a Python function with the records; they pass through unchanged.

        With two parameters it is called for each record, with key and value as Python values. With one, it is
        called for hundreds or thousands of records at once, with a pyarrow Table of key, value and
        timestamp. If a batch is repeated after a failure, the function is called again.

        Runs on: Spark's Python workers, which are other processes; in a cluster, on other machines. So the
        function has a copy of what it refers to, cannot change variables of the program, and holds up the
        pipeline while it runs. What it prints appears in the program's stdout when the worker has finished
        its part of a batch. An exception ends the pipeline.
        """
        check_function("peek", action)
        return self._then(nodes.Peek("", (), action), "KSTREAM-PEEK-", named)

    def foreach(self, action: Action, *, named: str | Named | None = None) -> None:
        """Call a Python function with the records, and end the stream there.

        Runs on: as with `peek`.
        """
        check_function("foreach", action)
        self._then(nodes.Peek("", (), action, terminal=True), "KSTREAM-FOREACH-", named)

    def print(self, printed: Printed) -> None:
        """Print a line for each record, `[label]: key, value`, and end the stream there.

        The default label is the name of the operation that the stream comes from.

            stream.print(Printed.to_sys_out().with_label("orders"))

        Lines of one partition are in its order. A batch that is repeated after a failure is printed again.

        Runs on: as with `peek`; file and stdout are those of the client that runs the pipeline.
        Differs: None is printed as "null", other values as Python's str() shows them.
        """
        if not isinstance(printed, Printed):
            raise TopologyException(f"print() takes a Printed, such as Printed.to_sys_out(); got {printed!r}")
        self._drafts.check(printed.name)
        name = self._drafts.names.processor("KSTREAM-PRINTER-", printed.name)
        label = self._draft.node.name if printed.label is None else printed.label
        self._drafts.add(nodes.Print(name, (), label, printed.mapper, printed.path), self._draft)

    # --- processors --------------------------------------------------------------------------------------

    def process(
        self,
        supplier: Supplier[Processor],
        *stores: str | StoreBuilder,
        named: str | Named | None = None,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
    ) -> KStream:
        """Pass each record to a processor: Python code that handles one record at a time and has its own
        stores.

            class Count(Processor):
                def init(self, context):
                    self.context = context
                    self.counts = context.get_state_store("counts")

                def process(self, record):
                    count = (self.counts.get(record.key) or 0) + 1
                    self.counts.put(record.key, count)
                    self.context.forward(record.with_value(count))

            stream.process(Count, "counts", value_serde=Serdes.long())

        Args:
            supplier: makes processors: a class that inherits Processor, a function without parameters, or a
                function decorated with `@processor`. It is also called once here, to check what it makes.
            stores: names of stores that were added to the builder, or store builders, which this adds. The
                stores that `supplier.stores()` returns are added too.
            key_serde, value_serde: of the records that it forwards to other steps than processors. None:
                those of its input. An output topic may have serdes of its own: `Produced.with_`.

        Raises:
            TopologyException: the supplier makes no processors, or a store is unknown.

        Runs on: Spark's Python workers, beside the state of the partition. A processor's own fields are
            lost whenever a task restarts; its stores are not.
        Source: org.apache.kafka.streams.kstream.KStream.process.
        """
        return self._process("process", supplier, stores, named, key_serde, value_serde)

    def process_values(
        self,
        supplier: Supplier[FixedKeyProcessor],
        *stores: str | StoreBuilder,
        named: str | Named | None = None,
        value_serde: Serde | None = None,
    ) -> KStream:
        """The same with a FixedKeyProcessor: what it forwards has the key of its input.

        So no later step needs to repartition because of it.

        Raises:
            TopologyException: as of `process`.

        Runs on: as with `process`.
        Source: org.apache.kafka.streams.kstream.KStream.processValues.
        """
        return self._process("process_values", supplier, stores, named, None, value_serde)

    def _process(
        self,
        operation: str,
        supplier: Any,
        stores: tuple[str | StoreBuilder, ...],
        named: str | Named | None,
        key_serde: Serde | None,
        value_serde: Serde | None,
    ) -> KStream:
        fixed_key = operation == "process_values"
        check_supplier(operation, supplier, fixed_key=fixed_key)
        name = name_of(named)
        self._drafts.check(name)
        connected = connected_stores(self._drafts, operation, supplier, stores)
        prefix = "KSTREAM-PROCESSVALUES-" if fixed_key else "KSTREAM-PROCESSOR-"
        node = nodes.Process(
            # Unlike almost everywhere else, a given name uses up no count here.
            name or self._drafts.names.processor(prefix),
            (),
            supplier,
            fixed_key,
            connected,
            self._key_serde if fixed_key else key_serde,
            value_serde,
        )
        return KStream(
            self._drafts,
            self._drafts.add(node, self._draft),
            key_serde or self._key_serde,
            value_serde or self._value_serde,
            repartition_required=self._repartition_required or not fixed_key,
        )

    # --- apart and together ------------------------------------------------------------------------------

    def merge(self, other: KStream, *, named: str | Named | None = None) -> KStream:
        """The records of both streams, without any order between the two."""
        if not isinstance(other, KStream):
            raise TopologyException(f"merge() takes a KStream, got {other!r}")
        if other._drafts is not self._drafts:
            raise TopologyException(
                "merge() got a stream of another StreamsBuilder; build both with one builder"
            )
        name = name_of(named)
        self._drafts.check(name)
        node = nodes.Merge(self._drafts.names.processor("KSTREAM-MERGE-", name), ())
        # Neither stream's serdes can speak for both.
        return KStream(
            self._drafts,
            self._drafts.add(node, self._draft, other._draft),
            None,
            None,
            repartition_required=self._repartition_required or other._repartition_required,
        )

    def split(self, *, named: str | Named | None = None) -> BranchedKStream:
        """Begin to route each record to the first branch whose predicate is true."""
        name = name_of(named)
        self._drafts.check(name)
        node = nodes.Branch(self._drafts.names.processor("KSTREAM-BRANCH-", name), ())
        return BranchedKStream(self, self._drafts.add(node, self._draft))

    def repartition(
        self, repartitioned: Repartitioned | None = None, *, named: str | Named | None = None
    ) -> KStream:
        """Write the stream to an internal topic, by key, and continue from there. Null keys are dropped.

        Runs on: always a topic of its own; the steps after it are another Spark query.
        """
        repartitioned = option(repartitioned, Repartitioned, "repartition")
        name = name_of(named) or repartitioned.name
        check_repartition(self._drafts, name)
        value_serde = repartitioned.value_serde or self._value_serde
        key_serde = repartitioned.key_serde or self._key_serde
        # Unlike everywhere else, a given name uses up no count here.
        prefix = name or self._drafts.names.processor("KSTREAM-REPARTITION-")
        draft = add_repartition(
            self._drafts,
            self._draft,
            prefix,
            key_serde,
            value_serde,
            partitions=repartitioned.number_of_partitions,
            implicit=False,
            partitioner=repartitioned.partitioner,
        )
        return KStream(self._drafts, draft, key_serde, value_serde)

    # --- groups and tables -------------------------------------------------------------------------------

    def group_by(
        self, selector: Mapper, grouped: Grouped | None = None, *, named: str | Named | None = None
    ) -> KGroupedStream:
        """Group records by a new key."""
        check_function("group_by", selector)
        grouped = option(grouped, Grouped, "group_by")
        name = name_of(named) or grouped.name
        self._drafts.check(name)
        node = nodes.SelectKey(self._drafts.names.processor("KSTREAM-KEY-SELECT-", name), (), selector)
        return KGroupedStream(
            self._drafts,
            self._drafts.add(node, self._draft),
            grouped.key_serde,
            grouped.value_serde or self._value_serde,
            name=name,
            repartition_required=True,
        )

    def group_by_key(
        self, grouped: Grouped | None = None, *, named: str | Named | None = None
    ) -> KGroupedStream:
        """Group records by the key they have."""
        grouped = option(grouped, Grouped, "group_by_key")
        return KGroupedStream(
            self._drafts,
            self._draft,
            grouped.key_serde or self._key_serde,
            grouped.value_serde or self._value_serde,
            name=name_of(named) or grouped.name,
            repartition_required=self._repartition_required,
        )

    def to_table(
        self, materialized: Materialized | None = None, *, named: str | Named | None = None
    ) -> KTable:
        """Read the stream as a table: a record updates its key, a null value deletes it."""
        materialized = option(materialized, Materialized, "to_table")
        given = name_of(named)
        self._drafts.check(given, store=materialized.store_name)
        if self._repartition_required:
            check_repartition(self._drafts, given)
        name = self._drafts.names.processor("KSTREAM-TOTABLE-", given)
        key_serde = materialized.key_serde or self._key_serde
        value_serde = materialized.value_serde or self._value_serde
        store = declare_store(materialized, self._drafts.names, "KSTREAM-TOTABLE-", key_serde, value_serde)
        parent = self._draft
        if self._repartition_required:
            parent = add_repartition(self._drafts, parent, name, key_serde, value_serde)
        draft = self._drafts.add(nodes.ToTable(name, (), store if store.queryable else None), parent)
        draft.spare_store = store
        return KTable(self._drafts, draft, key_serde, value_serde, materialized.store_name)

    # --- out ---------------------------------------------------------------------------------------------

    def to(
        self,
        topic: str | TopicName,
        produced: Produced | None = None,
        *,
        named: str | Named | None = None,
    ) -> None:
        """Write to a topic, or to the topic that a function's Column names for each record."""
        produced = option(produced, Produced, "to")
        name = name_of(named) or produced.name
        if callable(topic):
            check_function("to", topic)
        else:
            validate_topic(topic)
        self._drafts.check(name)
        node = nodes.Sink(
            self._drafts.names.processor("KSTREAM-SINK-", name),
            (),
            topic=None if callable(topic) else topic,
            topic_function=topic if callable(topic) else None,
            key_serde=produced.key_serde or self._key_serde,
            value_serde=produced.value_serde or self._value_serde,
            partitioner=produced.partitioner,
        )
        self._drafts.add(node, self._draft)

    def _then(
        self,
        node: nodes.Node,
        prefix: str,
        named: str | Named | None,
        *,
        keeps_key: bool = True,
        keeps_value: bool = True,
    ) -> KStream:
        """The stream after `node`. A serde is dropped with the key or value that it was for."""
        name = name_of(named)
        self._drafts.check(name)
        node = replace(node, name=self._drafts.names.processor(prefix, name))
        return KStream(
            self._drafts,
            self._drafts.add(node, self._draft),
            self._key_serde if keeps_key else None,
            self._value_serde if keeps_value else None,
            repartition_required=self._repartition_required or not keeps_key,
        )


class BranchedKStream(ExplainsMissingNames):
    """A stream being split. Predicates are tried in order; a record goes to the first branch that matches.

    Source: org.apache.kafka.streams.kstream.BranchedKStream.
    """

    def __init__(self, stream: KStream, splitter: Draft) -> None:
        self._stream = stream
        self._splitter = splitter
        self._branches: dict[str, KStream] = {}
        self._ended = False

    def branch(self, predicate: Predicate, branched: Branched | None = None) -> BranchedKStream:
        """One more branch, for records that no earlier branch took and for which `predicate` is true."""
        check_function("branch", predicate)
        branched = option(branched, Branched, "branch")
        splitter = self._node
        number = len(splitter.predicates) + 1
        name = self._check(branched, number)
        self._splitter.node = replace(splitter, predicates=(*splitter.predicates, predicate))
        self._add(branched, name, index=number - 1)
        return self

    def default_branch(self, branched: Branched | None = None) -> dict[str, KStream]:
        """A branch for all other records; ends the split. Returns the branches by name."""
        branched = option(branched, Branched, "default_branch")
        name = self._check(branched, 0)
        self._ended = True
        self._add(branched, name, index=len(self._node.predicates))
        return dict(self._branches)

    def no_default_branch(self) -> dict[str, KStream]:
        """Drop all other records; ends the split. Returns the branches by name.

        Raises:
            TopologyException: there is no branch.
        """
        if not self._node.predicates:
            raise TopologyException(
                f"{self._splitter.node.name} ({self._splitter.where}) is a split() without branches; "
                "add branch(predicate) before no_default_branch()"
            )
        self._ended = True
        return dict(self._branches)

    @property
    def _node(self) -> nodes.Branch:
        node = self._splitter.node
        assert isinstance(node, nodes.Branch)
        return node

    def _check(self, branched: Branched, number: int) -> str:
        if self._ended:
            raise TopologyException(
                f"{self._node.name} ({self._splitter.where}): the split has ended with its default branch; "
                "add branches before it"
            )
        suffix = str(number) if branched.name is None else branched.name
        name = validate_name(f"{self._node.name}{suffix}", "name of a branch")
        self._stream._drafts.check(name)
        return name

    def _add(self, branched: Branched, name: str, *, index: int) -> None:
        stream = self._stream
        stream._drafts.names.processor("")  # the name is never generated, but a count is used up
        draft = stream._drafts.add(nodes.PassThrough(name, (), index), self._splitter)
        branch: KStream | None = KStream(
            stream._drafts,
            draft,
            stream._key_serde,
            stream._value_serde,
            repartition_required=stream._repartition_required,
        )
        assert branch is not None
        if branched.chain_consumer is not None:
            branched.chain_consumer(branch)
            return
        if branched.chain_function is not None:
            branch = branched.chain_function(branch)
        if branch is not None:
            if not isinstance(branch, KStream):
                raise TopologyException(
                    f"the function of branch '{name}' ({describe_function(branched.chain_function)}) "
                    f"returned a {type(branch).__name__}; it must return a KStream or None"
                )
            self._branches[name] = branch
