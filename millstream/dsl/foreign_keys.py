"""The join of two tables by a foreign key: each row of the left one names a key of the right one.

Source: KTableImpl.doJoinOnForeignKey (KIP-213).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.dsl.join_options import TableJoined
from millstream.dsl.ktable import KTable, check_function, check_joiner, declare_store
from millstream.dsl.options import Materialized, Named, name_of, option
from millstream.errors import TopologyException
from millstream.topology import nodes
from millstream.topology.functions import arity, describe_function
from millstream.topology.nodes import JoinType

__all__ = ["join_tables"]

_PREFIX = "KTABLE-FK-JOIN-"
_REGISTRATION = f"{_PREFIX}SUBSCRIPTION-REGISTRATION-"
_PROCESSOR = f"{_PREFIX}SUBSCRIPTION-PROCESSOR-"
_RESPONSE = f"{_PREFIX}SUBSCRIPTION-RESPONSE-"
_OUTPUT = f"{_PREFIX}OUTPUT-"
_STEPS = (
    ("-subscription-registration", _REGISTRATION),
    ("-subscription-registration-processor", _REGISTRATION),
    ("-subscription-registration-sink", "KTABLE-SINK-"),
    ("-subscription-registration-source", "KTABLE-SOURCE-"),
    ("-subscription-store", f"{_PREFIX}SUBSCRIPTION-STATE-STORE-"),
    ("-subscription-receive", _PROCESSOR),
    ("-subscription-join-foreign", _PROCESSOR),
    ("-foreign-join-subscription", _PROCESSOR),
    ("-subscription-response", _RESPONSE),
    ("-subscription-response-sink", "KTABLE-SINK-"),
    ("-subscription-response-source", "KTABLE-SOURCE-"),
    ("-subscription-response-resolver", f"{_RESPONSE}RESOLVER-PROCESSOR-"),
    ("-result", _OUTPUT),
)
"""The suffix of each name that the join takes if it was named, and the prefix if it was not."""


def join_tables(
    operation: str,
    type: JoinType,
    left: KTable,
    right: KTable,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
) -> KTable:
    """A join by the same keys; by a foreign key if there are two functions.

    Raises:
        TopologyException: the arguments have neither form, or are invalid.
    """

    def by_key(joiner: Any, materialized: Any = None, *, named: Any = None) -> KTable:
        return left._join(operation, type, right, joiner, materialized, named)

    def by_foreign_key(
        foreign_key_extractor: Any,
        joiner: Any,
        table_joined: Any = None,
        materialized: Any = None,
        *,
        named: Any = None,
    ) -> KTable:
        if isinstance(table_joined, Materialized) and materialized is None:
            table_joined, materialized = None, table_joined
        return _join_by_foreign_key(
            operation, type, left, right, foreign_key_extractor, joiner, table_joined, materialized, named
        )

    two = callable(arguments[1]) if len(arguments) > 1 else bool(arguments) and "joiner" in options
    given = {"foreign_key_extractor", "table_joined"} & set(options)
    form = by_foreign_key if given or two else by_key
    try:
        inspect.signature(form).bind(*arguments, **options)
    except TypeError as error:
        raise TopologyException(
            f"{operation}() of tables is {operation}(table, joiner, materialized=None), or by a foreign key "
            f"{operation}(table, foreign_key_extractor, joiner, table_joined=None, materialized=None): "
            f"{error}"
        ) from None
    return form(*arguments, **options)


def _join_by_foreign_key(
    operation: str,
    type: JoinType,
    left: KTable,
    right: KTable,
    extractor: Any,
    joiner: Any,
    table_joined: TableJoined | None,
    materialized: Materialized | None,
    named: str | Named | None,
) -> KTable:
    """The table of the left one's keys.

    Raises:
        TopologyException: a function takes other arguments; the tables belong to different builders; a name
            is
        taken.
    """
    if not isinstance(right, KTable):
        raise TopologyException(f"{operation}() by a foreign key takes a KTable, got {right!r}")
    check_function(operation, extractor)
    if arity(extractor) == 3:
        raise TopologyException(
            f"the foreign key extractor of {operation}() is a function of the row alone, which may have been "
            "read long ago: `lambda value: …`, or `lambda key, value: …`; got "
            f"{describe_function(extractor)}"
        )
    check_joiner(operation, joiner)
    if left._drafts is not right._drafts:
        raise TopologyException(
            f"{operation}() got a KTable of another StreamsBuilder; build both with one builder"
        )
    if table_joined is not None:
        option(table_joined, TableJoined, operation)
    given = option(materialized, Materialized, operation)
    name = name_of(named if named is not None else table_joined)
    drafts = left._drafts
    if name is not None:
        names = [f"{name}{suffix}" for suffix, _ in _STEPS]
        topics, store = (names[0], names[8]), names[4]
        drafts.check(
            *(each for each in names if each not in (*topics, store)),
            stores=[store, *([given.store_name] if given.store_name is not None else [])],
        )
        for topic in topics:
            drafts.check_internal_topic(f"{topic}-topic")
    else:
        drafts.check(store=given.store_name)
    for side in (right._draft, left._draft):
        drafts.give_old_values(side)
        drafts.give_stores(side)
    generated = [drafts.names.processor(prefix) for _, prefix in _STEPS]
    names = generated if name is None else [f"{name}{suffix}" for suffix, _ in _STEPS]
    asks, send, sink, source, store, receive, lookup, changes, answers, back, again, resolver, result = names
    key_serde = given.key_serde or left._key_serde
    declared = declare_store(given, drafts.names, _OUTPUT, key_serde, given.value_serde)

    subscribe = drafts.add(nodes.ForeignKeySubscribe(send, (), extractor, type), left._draft)
    there = nodes.Repartition(
        source,
        (),
        topic=f"{asks}-topic",
        sink_name=sink,
        key_serde=right._key_serde,
        value_serde=right._value_serde,
    )
    subscriptions = nodes.Store(store, key_serde=right._key_serde, queryable=False)
    received = drafts.add(
        nodes.ForeignKeyLookup(lookup, (), (receive,), subscriptions),
        drafts.add(there, subscribe),
        right._draft,
    )
    changed = drafts.add(nodes.ForeignKeyChanges(changes, (), subscriptions), right._draft)
    return_ = nodes.Repartition(
        again,
        (),
        topic=f"{answers}-topic",
        sink_name=back,
        key_serde=left._key_serde,
        value_serde=right._value_serde,
    )
    node = nodes.ForeignKeyJoin(
        result, (), joiner, type, (resolver,), declared if declared.queryable else None
    )
    draft = drafts.add(node, drafts.add(return_, received, changed), left._draft)
    draft.spare_store = declared
    return KTable(drafts, draft, key_serde, given.value_serde, given.store_name)
