"""Tables: a key's last value. Every change of a table is a record of its stream."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, overload

from millstream.clock import milliseconds
from millstream.dsl.drafts import Draft, Drafts
from millstream.dsl.emission import Suppressed
from millstream.dsl.options import Grouped, Materialized, Named, StoreType, name_of, option
from millstream.dsl.store_builders import StoreBuilder
from millstream.errors import TopologyException
from millstream.model import StoreKind
from millstream.not_there import ExplainsMissingNames
from millstream.processors.api import ValueTransformerWithKey
from millstream.processors.function_processors import FunctionTransformers, is_function_of_rows
from millstream.serdes.serde import Serde
from millstream.topology import nodes
from millstream.topology.columns import (
    ForeignKey,
    Joiner,
    Mapper,
    PairMapper,
    Predicate,
    RowFunction,
    Supplier,
)
from millstream.topology.functions import arity, describe_function
from millstream.topology.names import NameProvider
from millstream.topology.suppliers import check_transformers, declared_store, stores_of
from millstream.topology.windows import SessionWindows, Windows

if TYPE_CHECKING:
    from millstream.dsl.grouped_table import KGroupedTable
    from millstream.dsl.join_options import TableJoined
    from millstream.dsl.kstream import KStream

__all__ = ["KTable", "check_function", "check_joiner", "check_sides", "connected_stores", "declare_store"]


class KTable(ExplainsMissingNames):
    """A table: the last value of each key.

    Only a table whose store was given a name (`Materialized.as_`) can be queried.

    Source: org.apache.kafka.streams.kstream.KTable.
    """

    def __init__(
        self,
        drafts: Drafts,
        draft: Draft,
        key_serde: Serde | None,
        value_serde: Serde | None,
        queryable_store_name: str | None,
    ) -> None:
        self._drafts = drafts
        self._draft = draft
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._queryable_store_name = queryable_store_name

    @property
    def queryable_store_name(self) -> str | None:
        """The name to query the table's store by; None when it was given none."""
        return self._queryable_store_name

    def filter(
        self,
        predicate: Predicate,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable:
        """The rows for which `predicate` is true; a row that no longer matches becomes a deletion.

        A row that never matched produces no output if the old value is known (a table with a store by then,
        an aggregation, or a later step that needs it), otherwise a deletion.
        """
        check_function("filter", predicate)
        return self._then(
            nodes.TableFilter("", (), predicate), "filter", "KTABLE-FILTER-", materialized, named
        )

    def filter_not(
        self,
        predicate: Predicate,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable:
        """The rows for which `predicate` is not true."""
        check_function("filter_not", predicate)
        return self._then(
            nodes.TableFilter("", (), predicate, negate=True),
            "filter_not",
            "KTABLE-FILTER-",
            materialized,
            named,
        )

    def map_values(
        self,
        mapper: Mapper,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable:
        """The rows with other values; a deletion stays a deletion."""
        check_function("map_values", mapper)
        return self._then(
            nodes.TableMapValues("", (), mapper),
            "map_values",
            "KTABLE-MAPVALUES-",
            materialized,
            named,
            keeps_value=False,
        )

    def transform_values(
        self,
        supplier: RowFunction | Supplier[ValueTransformerWithKey],
        *stores: str | StoreBuilder,
        materialized: Materialized | None = None,
        named: str | Named | None = None,
        value_serde: Serde | None = None,
    ) -> KTable:
        """The rows with values computed by Python code, which may keep stores.

        `table.transform_values(lambda key, value: …)` calls a function of key and value, and of stores if it
        has more parameters: `def risen(key, price, before)` gets the store `before`. Or it takes a supplier
            of
        transformers: a class that inherits ValueTransformerWithKey, a function without parameters, or an
        object with `get()` and, if it has stores, `stores()`.

        Unlike `map_values` it is also called for deletions, with None, and its result is passed on: None is a
        deletion. If a later step needs the old value (filter, group_by), it comes from the result's store if
        that has a name; otherwise the transformer is also called for the old value.

            builder.add_state_store(Stores.key_value_store_builder(
                Stores.persistent_key_value_store("highest"), Serdes.string(), Serdes.long()))

            def high(key, price, highest):
                if price is not None:
                    highest.put(key, max(price, highest.get(key) or price))
                return highest.get(key)

            prices.transform_values(high, "highest", value_serde=Serdes.long())

        Args:
            supplier: see above. It is also called once here, to check what it makes.
            stores: names of stores that were added to the builder, or store builders, which this adds. The
                stores that `supplier.stores()` returns are added too.
            materialized: the result has a store if this has a name.
            value_serde: of the new values, like that of `materialized`. None: that of the output topics, if
                the values go nowhere else; otherwise `default.value.serde`, or that of the input.

        Raises:
            TopologyException: the supplier makes no transformers, or a store is unknown.

        Runs on: as `KStream.process`.
        Source: org.apache.kafka.streams.kstream.KTable.transformValues, KTableTransformValues.
        Differs: a join finds the row as the transformer computed it at the change. If the result has no
            store, Kafka Streams calls another transformer at each lookup, even for keys that the table never
            had.
        """
        if is_function_of_rows(supplier):
            names = (each if isinstance(each, str) else declared_store("", each).name for each in stores)
            supplier = FunctionTransformers(supplier, tuple(names))
        check_transformers(supplier)
        name = name_of(named)
        given = option(materialized, Materialized, "transform_values")
        self._drafts.check(name, store=given.store_name)
        connected = connected_stores(self._drafts, "transform_values", supplier, stores)
        key_serde = given.key_serde or self._key_serde
        value_serde = given.value_serde or value_serde
        prefix = "KTABLE-TRANSFORMVALUES-"
        stored = None
        if given.store_name is not None:
            stored = declare_store(given, self._drafts.names, prefix, key_serde, value_serde)
        node = nodes.TableTransformValues(
            self._drafts.names.processor(prefix, name),
            (),
            supplier,
            connected=connected,
            key_serde=given.key_serde,
            value_serde=value_serde,
            stored=stored,
        )
        draft = self._drafts.add(node, self._draft)
        return KTable(self._drafts, draft, key_serde, value_serde, given.store_name)

    def select(
        self,
        *fields: str,
        materialized: Materialized | None = None,
        named: str | Named | None = None,
    ) -> KTable:
        """The rows with only these fields of their struct values: `table.select("name", "city")`.

        Differs: Kafka Streams has no such step; it is a `map_values` and named like one.
        """
        if not fields or not all(isinstance(field, str) and field for field in fields):
            raise TopologyException(
                f"select() takes names of fields, such as select('name', 'city'), got {fields!r}; "
                "for expressions use map_values(lambda value: {'total': value.net + value.tax})"
            )
        return self.map_values(
            lambda value: {field: value[field] for field in fields}, materialized, named=named
        )

    def __getitem__(self, field: str) -> KTable:
        """The rows with one field of their struct values as the value: `table["city"]`."""
        if not isinstance(field, str) or not field:
            raise TopologyException(
                f"table[…] takes the name of a field, such as table['city'], got {field!r}"
            )
        return self.map_values(lambda value: value[field])

    # A table is not a sequence; without this, `for row in table` would ask for field 0, 1, 2, …
    __iter__ = None

    def to_stream(self, mapper: Mapper | None = None, *, named: str | Named | None = None) -> KStream:
        """The table's changes as records; a deletion has a null value. With `mapper`, under new keys."""
        from millstream.dsl.kstream import KStream  # a stream can become a table, and a table a stream

        if mapper is not None:
            check_function("to_stream", mapper)
        name = name_of(named)
        self._drafts.check(name)
        node = nodes.ToStream(self._drafts.names.processor("KTABLE-TOSTREAM-", name), ())
        stream = KStream(
            self._drafts, self._drafts.add(node, self._draft), self._key_serde, self._value_serde
        )
        return stream if mapper is None else stream.select_key(mapper)

    def suppress(self, suppressed: Suppressed) -> KTable:
        """The table's updates, later: `suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))`.

        Only the last update of a key is emitted, when the time has come. The result has no store of its own
        to query; the store of the table before it has every update.

        Raises:
            TopologyException: `suppressed` is not a Suppressed; its buffer has the name of another store; or
                it waits for windows to close, and this is not a table of windows.

        Source: KTableImpl.suppress, KTableSuppressProcessorSupplier (KIP-328).
        Differs: the buffer is in the query's state, so a large one needs no memory; bytes are estimated from
            the table's values, without Kafka Streams' own overhead.
        """
        if not isinstance(suppressed, Suppressed):
            raise TopologyException(
                "suppress() takes a Suppressed, such as "
                f"Suppressed.until_window_closes(BufferConfig.unbounded()); got {suppressed!r}"
            )
        drafts, name, buffer = self._drafts, suppressed.name, suppressed.buffer
        store_name = None if name is None else f"{name}-store"
        drafts.check(name, store=store_name)
        # Unlike everywhere else, Kafka Streams counts no node here if there is a name.
        given = name or drafts.names.processor("KTABLE-SUPPRESS-")
        delay_ms = (
            _close_delay_ms(self._draft) if suppressed.wait is None else milliseconds(suppressed.wait, "")
        )
        store = nodes.Store(
            store_name or drafts.names.store("KTABLE-SUPPRESS-"),
            key_serde=self._key_serde,
            value_serde=self._value_serde,
            queryable=False,
            persistent=False,
            logged=buffer.logging_enabled,
            topic_config=dict(buffer.topic_config),
        )
        drafts.give_old_values(self._draft)
        node = nodes.Suppress(
            given,
            (),
            store,
            suppressed.wait is None,
            delay_ms,
            buffer.record_limit,
            buffer.byte_limit,
            buffer.stops_when_full,
        )
        return KTable(drafts, drafts.add(node, self._draft), self._key_serde, self._value_serde, None)

    # --- joins and groups --------------------------------------------------------------------------------

    @overload
    def join(
        self,
        other: KTable,
        /,
        joiner: Joiner,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable: ...

    @overload
    def join(
        self,
        other: KTable,
        /,
        foreign_key_extractor: ForeignKey,
        joiner: Joiner,
        table_joined: TableJoined | None = None,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable: ...

    def join(self, other: KTable, /, *arguments: Any, **options: Any) -> KTable:
        """The rows of both tables, as one row for each key that both have.

        `users.join(accounts, lambda user, account: …)`. The joiner gets Columns: the two values, or the key
        and the two values. A row changes when either side's row does, and is deleted with either.

        `orders.join(users, lambda order: order.user, lambda order, user: …)` joins by a foreign key: the
        first function, of a row's value or of its key and value, returns the key of a row of the other table,
        and the result has this table's keys. If it is NULL, there is no row. `TableJoined.as_("priced")`
        names the topics between the tables, which need not have the same number of partitions.

        Raises:
            TopologyException: `other` is not a table of the same builder; the joiner does not take two or
                three arguments, or the foreign key's function one or two; the keys have different serdes on
                both sides; a name is taken. On compilation: a foreign key has another type than the other
                table's keys.

        Source: org.apache.kafka.streams.kstream.KTable.join. KIP-213 (foreign keys), KIP-775.
        """
        return self._join_either_way("join", nodes.JoinType.INNER, other, arguments, options)

    @overload
    def left_join(
        self,
        other: KTable,
        /,
        joiner: Joiner,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable: ...

    @overload
    def left_join(
        self,
        other: KTable,
        /,
        foreign_key_extractor: ForeignKey,
        joiner: Joiner,
        table_joined: TableJoined | None = None,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable: ...

    def left_join(self, other: KTable, /, *arguments: Any, **options: Any) -> KTable:
        """The same with a row for each key of this table; without a match, its right value is null.

        `users.left_join(accounts, lambda user, account: …)`, or by a foreign key
        `orders.left_join(users, lambda order: order.user, lambda order, user: …)`

        Raises:
            TopologyException: as `join`.

        Source: org.apache.kafka.streams.kstream.KTable.leftJoin.
        """
        return self._join_either_way("left_join", nodes.JoinType.LEFT, other, arguments, options)

    def outer_join(
        self,
        other: KTable,
        joiner: Joiner,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable:
        """The same with a row for each key of either table; a missing value is null.

        `users.outer_join(accounts, lambda user, account: …)`

        Raises:
            TopologyException: as `join`.

        Source: org.apache.kafka.streams.kstream.KTable.outerJoin.
        """
        return self._join("outer_join", nodes.JoinType.OUTER, other, joiner, materialized, named)

    def _join_either_way(
        self,
        operation: str,
        type: nodes.JoinType,
        other: KTable,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> KTable:
        from millstream.dsl.foreign_keys import join_tables  # it makes tables

        return join_tables(operation, type, self, other, arguments, options)

    def _join(
        self,
        operation: str,
        type: nodes.JoinType,
        other: KTable,
        joiner: Joiner,
        materialized: Materialized | None,
        named: str | Named | None,
    ) -> KTable:
        """Source: KTableImpl.doJoin."""
        if not isinstance(other, KTable):
            raise TopologyException(
                f"{operation}() of a table takes a KTable, got {other!r}; a stream looks up rows of tables "
                f"with stream.{'join' if operation == 'outer_join' else operation}(table, joiner)"
            )
        if callable(materialized):
            raise TopologyException(
                f"{operation}() of tables by a foreign key is impossible: a row that nothing refers to would "
                "have no key in the result; use join() or left_join()"
            )
        check_joiner(operation, joiner)
        name = name_of(named)
        given = option(materialized, Materialized, operation)
        check_sides(operation, self, other, self._key_serde)
        drafts = self._drafts
        steps = () if name is None else (f"{name}-join-this", f"{name}-join-other")
        drafts.check(name, *steps, store=given.store_name)
        key_serde = given.key_serde or self._key_serde
        store = None
        if materialized is not None:
            store = declare_store(given, drafts.names, "KTABLE-MERGE-", key_serde, given.value_serde)
        merge = drafts.names.processor("KTABLE-MERGE-", name)
        generated = tuple(
            drafts.names.processor(prefix) for prefix in ("KTABLE-JOINTHIS-", "KTABLE-JOINOTHER-")
        )
        if type is not nodes.JoinType.INNER:
            drafts.give_old_values(self._draft)
        if type is nodes.JoinType.OUTER:
            drafts.give_old_values(other._draft)
        drafts.give_stores(self._draft)
        drafts.give_stores(other._draft)
        node = nodes.TableJoin(merge, (), joiner, type, steps or generated, store)
        draft = drafts.add(node, self._draft, other._draft)
        return KTable(drafts, draft, key_serde, given.value_serde, given.store_name)

    def group_by(
        self, mapper: PairMapper, grouped: Grouped | None = None, *, named: str | Named | None = None
    ) -> KGroupedTable:
        """Group the rows by another key: `mapper` returns a pair of Columns, the new key and the new value.

        `users.group_by(lambda key, user: (user.city, user)).count()` is the number of users per city. When a
        user moves, one city's count goes up and the other's goes down.

        Source: org.apache.kafka.streams.kstream.KTable.groupBy.
        """
        from millstream.dsl.grouped_table import KGroupedTable  # its results are tables again

        check_function("group_by", mapper)
        grouped = option(grouped, Grouped, "group_by")
        name = name_of(named) or grouped.name
        self._drafts.check(name)
        node = nodes.TableGroupBy(self._drafts.names.processor("KTABLE-SELECT-", name), (), mapper)
        draft = self._drafts.add(node, self._draft)
        self._drafts.give_old_values(self._draft)
        return KGroupedTable(self._drafts, draft, grouped.key_serde, grouped.value_serde, name=name)

    def _then(
        self,
        node: nodes.TableFilter | nodes.TableMapValues,
        operation: str,
        prefix: str,
        materialized: Materialized | None,
        named: str | Named | None,
        *,
        keeps_value: bool = True,
    ) -> KTable:
        """The table after `node`; it has a store only if that was given a name."""
        name = name_of(named)
        given = option(materialized, Materialized, operation)
        self._drafts.check(name, store=given.store_name)
        key_serde = given.key_serde or self._key_serde
        value_serde = given.value_serde or (self._value_serde if keeps_value else None)
        store = None
        if materialized is not None:
            # Without a name there will be no store, but its count is used up.
            declared = declare_store(given, self._drafts.names, prefix, key_serde, value_serde)
            store = declared if declared.queryable else None
        node = replace(node, name=self._drafts.names.processor(prefix, name), stored=store)
        if isinstance(node, nodes.TableFilter):
            node = replace(node, knows_old=self._drafts.give_old_values(self._draft, needed=False))
        draft = self._drafts.add(node, self._draft)
        return KTable(self._drafts, draft, key_serde, value_serde, given.store_name)


def _close_delay_ms(draft: Draft, chain: str = "") -> int:
    """How far stream time must pass the ends of a table's windows before they close.

    Raises:
        TopologyException: it has no windows.

    Source: GraphGraceSearchUtil.findAndVerifyWindowGrace.
    """
    node = draft.node
    if isinstance(node, nodes.Aggregate | nodes.Cogroup) and node.windows is not None:
        return node.windows.closes_after_ms
    chain = f"{node.name}->{chain}" if chain else node.name
    if not draft.parents:
        raise TopologyException(
            f"Window close time is only defined for windowed computations. Got [root->{chain}]. Use "
            "until_window_closes() after windowed_by(), and until_time_limit() for other tables"
        )
    return max(_close_delay_ms(parent, chain) for parent in draft.parents)


def connected_stores(
    drafts: Drafts, operation: str, supplier: Any, stores: tuple[str | StoreBuilder, ...]
) -> tuple[nodes.Store, ...]:
    """The stores of what a supplier makes: its own, those given here, and those that a function's parameters
    name. Missing ones are added.

    Raises:
        TopologyException: one is unknown, or another one has its name.
    """
    brought = [declared_store("stores", each) for each in stores_of(supplier)]
    given = [each if isinstance(each, str) else declared_store(operation, each) for each in stores]
    for store in (*brought, *(each for each in given if not isinstance(each, str))):
        drafts.add_state_store(store)
    names = [each if isinstance(each, str) else each.name for each in (*brought, *given)]
    by_function = getattr(supplier, "store_names", ())
    names += [name for name in by_function if not drafts.is_global_store(name)]
    return drafts.connected(operation, names)


def declare_store(
    materialized: Materialized,
    names: NameProvider,
    prefix: str,
    key_serde: Serde | None,
    value_serde: Serde | None,
    *,
    source_topic: str | None = None,
    windows: Windows | None = None,
) -> nodes.Store:
    """The store that `materialized` describes. Without a name it gets one, and cannot be queried.

    Raises:
        TopologyException: such a store has no retention or history, or windows need a longer retention.

    Source: MaterializedInternal.
    """
    _check_supplier(materialized, windows)
    kind, retention_ms, history_ms = StoreKind.KEY_VALUE, None, None
    if materialized.history is not None:
        if windows is not None:
            raise TopologyException(
                "with_history() is for the stores of tables; a windowed aggregation keeps its old windows "
                "instead, and with_retention() says for how long"
            )
        history_ms = milliseconds(materialized.history, "the history")
    if windows is not None:
        kind = StoreKind.SESSION if isinstance(windows, SessionWindows) else StoreKind.WINDOW
        retention_ms = _retention(materialized, windows)
    elif materialized.retention is not None:
        raise TopologyException(
            "with_retention() is for the stores of windowed aggregations, and this table has none; a "
            "key-value store keeps the last value of each key until it is deleted"
        )
    return nodes.Store(
        materialized.store_name or names.store(prefix),
        key_serde=key_serde,
        value_serde=value_serde,
        queryable=materialized.store_name is not None,
        persistent=materialized.store_type is not StoreType.IN_MEMORY,
        type_is_default=materialized.store_type is None,
        logged=materialized.logging_enabled,
        source_topic=source_topic,
        topic_config=dict(materialized.topic_config),
        kind=kind,
        window_size_ms=None if windows is None or isinstance(windows, SessionWindows) else windows.size_ms,
        retention_ms=retention_ms,
        history_ms=history_ms,
        cached=materialized.caching_enabled,
    )


def _check_supplier(materialized: Materialized, windows: Windows | None) -> None:
    """Raise if this table cannot have the store that `Stores` described."""
    supplier = materialized.supplier
    if supplier is None:
        return
    kind, fitting = StoreKind.KEY_VALUE, "persistent_key_value_store(name)"
    if isinstance(windows, SessionWindows):
        kind, fitting = StoreKind.SESSION, "persistent_session_store(name, retention)"
    elif windows is not None:
        kind, fitting = StoreKind.WINDOW, "persistent_window_store(name, retention, window_size)"
    if supplier.kind is not kind:
        raise TopologyException(
            f"{supplier} is a {supplier.kind.value} store, and this table has a {kind.value} store: use "
            f"Stores.{fitting}, or give the name alone"
        )
    if supplier.duplicates:
        raise TopologyException(
            f"the window store {supplier.name} cannot retain duplicates: a table has one value for each "
            "key and window, and the records of a stream join are kept in its query's state"
        )
    if supplier.window_size is None or windows is None or isinstance(windows, SessionWindows):
        return
    if milliseconds(supplier.window_size, "the window size") != windows.size_ms:
        raise TopologyException(
            f"{supplier} has windows of another size than windowed_by(): {supplier.window_size}, not "
            f"{timedelta(milliseconds=windows.size_ms)}; its readers would see wrong window ends"
        )


def _retention(materialized: Materialized, windows: Windows) -> int:
    """How long a window is kept, in milliseconds: as configured, else no longer than the windows need.

    Raises:
        TopologyException: the windows need a longer retention than configured.
    """
    retention_ms = windows.least_retention_ms
    if materialized.retention is not None:
        retention_ms = milliseconds(materialized.retention, "the retention")
        windows.check_retention(materialized.store_name or "(unnamed)", retention_ms)
    return max(1, retention_ms)  # a gap can be 0, a store's retention cannot


def check_function(operation: str, function: Any) -> None:
    """Raise if an operation on records cannot take `function`.

    Raises:
        TopologyException: it is not callable, or does not take one, two or three arguments.
    """
    if not callable(function):
        raise TopologyException(
            f"{operation}() takes a function such as `lambda key, value: …`, got {function!r}; "
            "create Columns inside the function, from the key and value that it gets"
        )
    if not arity(function):
        raise TopologyException(
            f"{operation}() got {describe_function(function)}, which cannot be called with one, two or three "
            "arguments; write `lambda value: …`, `lambda key, value: …` or `lambda key, value, record: …`"
        )


def check_joiner(operation: str, joiner: Any) -> None:
    """Raise if a join cannot take `joiner`.

    Raises:
        TopologyException: it is not callable, or does not take two or three arguments.
    """
    shape = "`lambda left, right: …`, or `lambda key, left, right: …`"
    if not callable(joiner):
        raise TopologyException(f"{operation}() takes a joiner, {shape}; got {joiner!r}")
    if arity(joiner) not in (2, 3):
        raise TopologyException(
            f"the joiner of {operation}() is a function of the two values, or of the key and the two values: "
            f"{shape}; got {describe_function(joiner)}"
        )


def check_sides(operation: str, left: Any, right: Any, key_serde: Serde | None) -> None:
    """Raise if two streams or tables cannot be joined; `key_serde` is what is known of the left one's keys.

    Raises:
        TopologyException: they belong to different builders, or their keys have different serdes.
    """
    if left._drafts is not right._drafts:
        kind = type(right).__name__
        raise TopologyException(
            f"{operation}() got a {kind} of another StreamsBuilder; build both with one builder"
        )
    other = right._key_serde
    if key_serde is not None and other is not None and key_serde != other:
        raise TopologyException(
            f"{operation}() needs equal keys on both sides, but they have serde {key_serde!r} on the left "
            f"side and {other!r} on the right; a join needs keys of one type: read both sides with one key "
            "serde, or give one of them another key with select_key() and a serde with repartition()"
        )
