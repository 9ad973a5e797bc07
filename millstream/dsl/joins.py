"""The joins of a stream: with a table, with another stream, with a global table.

Source: KStreamImpl (join, leftJoin, outerJoin, doJoin, doStreamTableJoin, globalTableJoin,
    repartitionForJoin), KStreamImplJoin.
Differs: Kafka Streams 4.3 refuses some programs with "StateStore … is not added yet", since it adds a join
    before the table that it looks up; here they run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, overload

from millstream.clock import milliseconds
from millstream.dsl.drafts import Draft, Drafts
from millstream.dsl.frames import DataFrameTable
from millstream.dsl.globalktable import GlobalKTable
from millstream.dsl.join_options import Joined, StreamJoined
from millstream.dsl.ktable import KTable, check_function, check_joiner, check_sides
from millstream.dsl.options import Named, name_of, option
from millstream.dsl.repartition import add_repartition, check_repartition
from millstream.errors import TopologyException
from millstream.model import StoreKind
from millstream.serdes.serde import Serde
from millstream.topology import nodes
from millstream.topology.columns import Joiner, Mapper
from millstream.topology.nodes import JoinType
from millstream.topology.windows import JoinWindows

if TYPE_CHECKING:
    from millstream.dsl.kstream import KStream

__all__ = ["StreamJoins"]

_JOINABLE = "a KStream, a KTable or a GlobalKTable"
_OF_TABLE = "(table, joiner, joined=None)"
_OF_STREAM = "(stream, joiner, windows, stream_joined=None)"
_OF_GLOBAL_TABLE = "(global_table, key_selector, joiner)"
_OF_FRAME = "(table, joiner) or (table, key_selector, joiner)"


class StreamJoins:
    """The joins of a stream. Inner joins ignore records with a null key."""

    _drafts: Drafts
    _draft: Draft
    _key_serde: Serde | None
    _value_serde: Serde | None
    _repartition_required: bool
    _repartitioned_for_joins: Draft | None

    @overload
    def join(
        self,
        other: DataFrameTable,
        joiner: Joiner,
        /,
        *,
        named: str | Named | None = None,
    ) -> KStream: ...

    @overload
    def join(
        self,
        other: KTable,
        joiner: Joiner,
        /,
        joined: Joined | None = None,
        *,
        named: str | Named | None = None,
    ) -> KStream: ...

    @overload
    def join(
        self,
        other: KStream,
        joiner: Joiner,
        /,
        windows: JoinWindows,
        stream_joined: StreamJoined | None = None,
        *,
        named: str | Named | None = None,
    ) -> KStream: ...

    @overload
    def join(
        self,
        other: GlobalKTable,
        key_selector: Mapper,
        /,
        joiner: Joiner,
        *,
        named: str | Named | None = None,
    ) -> KStream: ...

    def join(self, other: Any, /, *arguments: Any, **options: Any) -> KStream:
        """Each record, joined with the other side's value for its key.

        `clicks.join(users, lambda click, user: …)` takes a table's current row; or, if the table has a
        history (`with_history`), the row as of the record's time;
        `clicks.join(views, lambda click, view: …, JoinWindows.of_time_difference_with_no_grace(…))` takes the
        records of another stream within the time difference; `clicks.join(cities, lambda key, click:
        click.city, lambda click, city: …)` takes the row of a global
        table whose key the first function returns; a DataFrame's table is joined the same way, or, with only
        a joiner, by the record's key.

        A record without a match has no result. The joiner gets Columns: the two values, or the key and the
        two values.

        Raises:
            TopologyException: a stream cannot be joined with `other`, or not with these arguments; the keys
                have different serdes on both sides; a name is taken; a table's history is shorter than the
                grace period.

        Source: org.apache.kafka.streams.kstream.KStream.join.
        Differs: a joiner gets Columns, as all functions do; `named=` also names a join, as its option does.
        """
        return self._join_with("join", JoinType.INNER, other, arguments, options)

    @overload
    def left_join(
        self,
        other: DataFrameTable,
        joiner: Joiner,
        /,
        *,
        named: str | Named | None = None,
    ) -> KStream: ...

    @overload
    def left_join(
        self,
        other: KTable,
        joiner: Joiner,
        /,
        joined: Joined | None = None,
        *,
        named: str | Named | None = None,
    ) -> KStream: ...

    @overload
    def left_join(
        self,
        other: KStream,
        joiner: Joiner,
        /,
        windows: JoinWindows,
        stream_joined: StreamJoined | None = None,
        *,
        named: str | Named | None = None,
    ) -> KStream: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable,
        key_selector: Mapper,
        /,
        joiner: Joiner,
        *,
        named: str | Named | None = None,
    ) -> KStream: ...

    def left_join(self, other: Any, /, *arguments: Any, **options: Any) -> KStream:
        """The same as `join`, but a record without a match also has a result: its right value is null.

        `clicks.left_join(users, lambda click, user: …)`. Between two streams, a record is known to have no
        match when stream time has passed the windows and their grace period.

        Raises:
            TopologyException: as `join`.

        Source: org.apache.kafka.streams.kstream.KStream.leftJoin.
        Differs: Kafka Streams does not wait for the grace period if a record is so late that its window is
            over. It sends a result without a match, even if a match follows.
        """
        return self._join_with("left_join", JoinType.LEFT, other, arguments, options)

    def outer_join(
        self,
        other: KStream,
        joiner: Joiner,
        /,
        windows: JoinWindows,
        stream_joined: StreamJoined | None = None,
        *,
        named: str | Named | None = None,
    ) -> KStream:
        """The same as `left_join` of two streams, but for the records of both sides.

        `left.outer_join(right, lambda left, right: …, JoinWindows.of_time_difference_with_no_grace(…))`

        Raises:
            TopologyException: as `join`.

        Source: org.apache.kafka.streams.kstream.KStream.outerJoin.
        Differs: as `left_join`.
        """
        if isinstance(other, KTable | GlobalKTable):
            raise TopologyException(
                f"outer_join() takes a KStream, got {other!r}: a table's update is not a record of a "
                "stream, so there is no outer join with a table; use left_join(), or to_stream() of the table"
            )
        return self._join_with(
            "outer_join",
            JoinType.OUTER,
            other,
            (joiner, windows, stream_joined),
            {"named": named},
        )

    def _join_with(
        self,
        operation: str,
        type: JoinType,
        other: Any,
        arguments: Sequence[Any],
        options: Mapping[str, Any],
    ) -> KStream:
        form: Callable[..., KStream]
        if isinstance(other, KTable):
            form, shape = self._join_table, _OF_TABLE
        elif isinstance(other, DataFrameTable):
            form, shape = self._join_frame, _OF_FRAME
        elif isinstance(other, GlobalKTable):
            form, shape = self._join_global_table, _OF_GLOBAL_TABLE
        elif isinstance(other, StreamJoins):
            form, shape = self._join_stream, _OF_STREAM
        else:
            raise TopologyException(f"{operation}() takes {_JOINABLE}, got {other!r}")
        try:
            inspect.signature(form).bind(operation, type, other, *arguments, **options)
        except TypeError as error:
            kind = "KStream" if isinstance(other, StreamJoins) else other.__class__.__name__
            raise TopologyException(f"{operation}() with a {kind} is {operation}{shape}: {error}") from None
        return form(operation, type, other, *arguments, **options)

    def _join_table(
        self,
        operation: str,
        type: JoinType,
        table: KTable,
        joiner: Joiner,
        joined: Joined | None = None,
        *,
        named: str | Named | None = None,
    ) -> KStream:
        check_joiner(operation, joiner)
        joined = option(joined, Joined, operation)
        name = name_of(named) or joined.name
        key_serde = joined.key_serde or self._key_serde
        check_sides(operation, self, table, key_serde)
        grace_ms = None
        if joined.grace_period is not None:
            grace_ms = milliseconds(joined.grace_period, "the grace period of Joined")
            _check_history(operation, table._draft, grace_ms)
        drafts = self._drafts
        drafts.check(name, store=None if name is None or grace_ms is None else f"{name}-Buffer")
        self._check_repartition(name or self._draft.node.name)

        prefix = "KSTREAM-LEFTJOIN-" if type is JoinType.LEFT else "KSTREAM-JOIN-"
        parent = self._repartitioned(name or self._draft.node.name, joined.key_serde, joined.value_serde)
        given = drafts.names.processor(prefix, name)
        drafts.give_stores(table._draft)
        buffer = None
        if grace_ms is not None:
            buffer = nodes.Store(
                f"{given}-Buffer",
                key_serde=key_serde,
                value_serde=joined.value_serde or self._value_serde,
                queryable=False,
            )
        node = nodes.StreamTableJoin(given, (), joiner, type, grace_ms, buffer)
        return self._stream(drafts.add(node, parent, table._draft), key_serde)

    def _join_global_table(
        self,
        operation: str,
        type: JoinType,
        table: GlobalKTable,
        key_selector: Mapper,
        joiner: Joiner,
        *,
        named: str | Named | None = None,
    ) -> KStream:
        check_function(operation, key_selector)
        check_joiner(operation, joiner)
        check_sides(operation, self, table, None)
        name = name_of(named)
        drafts = self._drafts
        drafts.check(name)
        # An inner join is called a left join too, as in Kafka Streams.
        given = drafts.names.processor("KSTREAM-LEFTJOIN-", name)
        node = nodes.StreamGlobalTableJoin(given, (), key_selector, joiner, type)
        draft = drafts.add(node, self._draft, table._draft)
        return self._stream(draft, self._key_serde, repartition_required=self._repartition_required)

    def _join_frame(
        self,
        operation: str,
        type: JoinType,
        table: DataFrameTable,
        function: Any,
        joiner: Joiner | None = None,
        *,
        named: str | Named | None = None,
    ) -> KStream:
        if joiner is not None:
            return self._join_global_table(operation, type, table, function, joiner, named=named)
        return self._join_global_table(operation, type, table, _its_key, function, named=named)

    def _join_stream(
        self,
        operation: str,
        type: JoinType,
        other: KStream,
        joiner: Joiner,
        windows: JoinWindows | None = None,
        stream_joined: StreamJoined | None = None,
        *,
        named: str | Named | None = None,
    ) -> KStream:
        check_joiner(operation, joiner)
        if not isinstance(windows, JoinWindows):
            raise TopologyException(
                f"{operation}() of two streams takes JoinWindows, such as "
                f"JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=5)); got {windows!r}"
            )
        options = option(stream_joined, StreamJoined, operation)
        name = name_of(named) or options.name
        if options.key_serde is None:
            check_sides(operation, self, other, self._key_serde)
        else:
            check_sides(operation, self, other, None)
        drafts = self._drafts
        left = self._draft.node.name if name is None else f"{name}-left"
        right = other._draft.node.name if name is None else f"{name}-right"
        steps = _Steps(type)
        drafts.check(*steps.given(name), stores=steps.stores(options.store_name, type))
        self._check_repartition(left)
        other._check_repartition(right)

        one = self._repartitioned(left, options.key_serde, options.value_serde)
        two = other._repartitioned(right, options.key_serde, options.other_value_serde)
        generated = steps.generate(drafts)
        names = steps.given(name) if name is not None else generated
        key_serde = options.key_serde or self._key_serde or other._key_serde
        stored = steps.stores(options.store_name, type, generated)
        declared = [
            nodes.Store(
                store,
                key_serde=key_serde,
                value_serde=value_serde,
                queryable=False,
                logged=options.logging_enabled,
                # Its changelog is never compacted, whatever was configured: as in Kafka Streams.
                topic_config={
                    key: value for key, value in options.topic_config.items() if key != "cleanup.policy"
                },
                kind=StoreKind.WINDOW,
                window_size_ms=windows.size_ms,
                retention_ms=max(1, windows.least_retention_ms),
                duplicates=True,
            )
            for store, value_serde in zip(
                stored[:2],
                (options.value_serde or self._value_serde, options.other_value_serde or other._value_serde),
                strict=True,
            )
        ]
        shared = None
        if type is not JoinType.INNER:
            shared = nodes.Store(
                stored[2],
                queryable=False,
                logged=options.logging_enabled,
                topic_config=dict(options.topic_config),
            )
        node = nodes.StreamJoin(
            names[-1], (), joiner, type, windows, tuple(names[:-1]), declared[0], declared[1], shared
        )
        return self._stream(drafts.add(node, one, two), key_serde)

    def _check_repartition(self, prefix: str) -> None:
        if self._repartition_required and not self._shares_repartition(prefix):
            check_repartition(self._drafts, prefix)
            self._drafts.check_internal_topic(f"{prefix}-repartition")

    def _shares_repartition(self, prefix: str) -> bool:
        return self._repartitioned_for_joins is not None and prefix == self._draft.node.name

    def _repartitioned(self, prefix: str, key_serde: Serde | None, value_serde: Serde | None) -> Draft:
        """The stream with equal keys together. Joins that have no name share the last repartition.

        Source: KStreamImpl.repartitionForJoin.
        """
        if not self._repartition_required:
            return self._draft
        if self._shares_repartition(prefix):
            self._drafts.names.repartition(prefix)  # its three counts are used up all the same
        else:
            self._repartitioned_for_joins = add_repartition(
                self._drafts,
                self._draft,
                prefix,
                key_serde or self._key_serde,
                value_serde or self._value_serde,
            )
        assert self._repartitioned_for_joins is not None
        return self._repartitioned_for_joins

    def _stream(
        self, draft: Draft, key_serde: Serde | None, *, repartition_required: bool = False
    ) -> KStream:
        """A stream of this class. A joiner's result has no serde yet."""
        make = cast("Callable[..., KStream]", type(self))  # a KStream is what has this
        return make(self._drafts, draft, key_serde, None, repartition_required=repartition_required)


def _its_key(key: Any, value: Any) -> Any:
    """The key of the table's row is the record's key."""
    return key


class _Steps:
    """The names of the parts of a join of two streams: two windows, two joins, a merge, and stores.

    Source: KStreamImplJoin.join, StreamJoinedStoreFactory, OuterStreamJoinStoreFactory.
    """

    def __init__(self, type: JoinType) -> None:
        self._this = "-outer-this-join" if type is JoinType.OUTER else "-this-join"
        self._other = "-other-join" if type is JoinType.INNER else "-outer-other-join"
        self._prefixes = (
            "KSTREAM-WINDOWED-",
            "KSTREAM-WINDOWED-",
            "KSTREAM-OUTERTHIS-" if type is JoinType.OUTER else "KSTREAM-JOINTHIS-",
            "KSTREAM-JOINOTHER-" if type is JoinType.INNER else "KSTREAM-OUTEROTHER-",
            "KSTREAM-MERGE-",
        )

    def generate(self, drafts: Drafts) -> list[str]:
        """Names with counts, which are used up."""
        return [drafts.names.processor(prefix) for prefix in self._prefixes]

    def given(self, name: str | None) -> list[str]:
        """Names made from the one that was given."""
        suffixes = ("-this-windowed", "-other-windowed", self._this, self._other, "-merge")
        return [] if name is None else [f"{name}{suffix}" for suffix in suffixes]

    def stores(self, name: str | None, type: JoinType, generated: Sequence[str] = ()) -> list[str]:
        """Names of the stores, made from the one that was given, else from the steps' generated names."""
        shared = "-outer-shared-join" if type is JoinType.OUTER else "-left-shared-join"
        if name is not None:
            names = [f"{name}{self._this}", f"{name}{self._other}", f"{name}{shared}"]
        elif generated:
            this, other = generated[2:4]
            names = [this, other, f"KSTREAM-OUTERSHARED-{this[-10:]}"]
        else:
            names = []
        return [f"{each}-store" for each in (names[:2] if type is JoinType.INNER else names)]


def _check_history(operation: str, table: Draft, grace_ms: int) -> None:
    """Raise if a table's history does not cover the grace period.

    Raises:
        TopologyException: it has no history, or a shorter one.

    Source: KStreamImpl.doStreamTableJoin, StreamTableJoinNode.writeToTopology.
    """
    draft = table
    while isinstance(draft.node, nodes.TableFilter | nodes.TableMapValues) and draft.node.store is None:
        (draft,) = draft.parents
    store = draft.node.store or draft.spare_store
    history_ms = None if store is None else store.history_ms
    if history_ms is None:
        raise TopologyException(
            "KTable must be versioned to use a grace period in a stream table join: "
            f"{operation}() looks up rows in {draft.node.name} ({draft.where}), which has no history; give "
            "it one, Materialized.as_('name').with_history(timedelta(hours=1)), or leave the grace "
            "period out"
        )
    if history_ms < grace_ms:
        raise TopologyException(
            f"History retention must be at least grace period: {operation}() has a grace period of "
            f"{grace_ms} ms, and {draft.node.name} ({draft.where}) a history of {history_ms} ms; make "
            "the history longer with with_history()"
        )
