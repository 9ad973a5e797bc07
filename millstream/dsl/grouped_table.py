"""Grouped tables: rows under new keys, ready to be aggregated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from millstream.dsl.aggregations import arguments_of, check_initializer
from millstream.dsl.drafts import Draft, Drafts
from millstream.dsl.ktable import KTable, check_function, declare_store
from millstream.dsl.options import Materialized, Named, name_of, option
from millstream.errors import TopologyException
from millstream.not_there import ExplainsMissingNames
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import Serdes
from millstream.topology import nodes
from millstream.topology.columns import Expression, Folder
from millstream.topology.functions import accepts, describe_argument

__all__ = ["KGroupedTable"]


class KGroupedTable(ExplainsMissingNames):
    """A table's rows by another key.

    Unlike the records of a stream, a row can change or be deleted. So an aggregation here must be able to
    undo a row: a Python fold needs a subtractor. Rows with a null key are ignored.

    Source: org.apache.kafka.streams.kstream.KGroupedTable, KGroupedTableImpl.
    """

    def __init__(
        self,
        drafts: Drafts,
        draft: Draft,
        key_serde: Serde | None,
        value_serde: Serde | None,
        *,
        name: str | None,
    ) -> None:
        self._drafts = drafts
        self._draft = draft
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._name = name
        self._repartition: Draft | None = None

    def count(self, materialized: Materialized | None = None, *, named: str | Named | None = None) -> KTable:
        """How many rows each key has: `table.group_by(lambda value: (value.city, value)).count()`, a long."""
        given = option(materialized, Materialized, "count")
        return self._table(
            nodes.Count(), given, named, "KTABLE-AGGREGATE-", given.value_serde or Serdes.long()
        )

    def reduce(
        self,
        adder: Callable[[Any, Any], Any],
        subtractor: Callable[[Any, Any], Any] | None = None,
        /,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable:
        """One value of the values' own type, by Python functions.

        `reduce(lambda total, value: total + value, lambda total, value: total - value)`: when a row changes,
        the second function removes the old value, then the first one adds the new one.

        Raises:
            TopologyException: one of them is missing, or is not a function of two arguments.
        """
        functions: list[nodes.Function] = []
        for word, function in (("adder", adder), ("subtractor", subtractor)):
            if function is None or not callable(function) or not accepts(function, 2):
                raise TopologyException(
                    f"the {word} of reduce() of a grouped table is a function of aggregate and value, such "
                    f"as {_EXAMPLES[word]}; got {describe_argument(function)}"
                )
            functions.append(function)
        given = option(materialized, Materialized, "reduce")
        return self._table(
            nodes.TableFold(*functions),
            given,
            named,
            "KTABLE-REDUCE-",
            given.value_serde or self._value_serde,
        )

    @overload
    def aggregate(
        self,
        expression: Expression,
        /,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable: ...

    @overload
    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Folder,
        subtractor: Folder,
        /,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable: ...

    def aggregate(
        self,
        first: Any,
        /,
        *rest: Any,
        materialized: Materialized | None = None,
        named: str | Named | None = None,
    ) -> KTable:
        """One value of any type.

        `aggregate(lambda key, value: F.sum(value.amount))` aggregates by Spark expressions, which return a
        Column, or a dict of several by name for a struct of them.
        `aggregate(lambda: 0, adder, subtractor)` folds in Python: when a row changes or is
        deleted, `lambda key, value, total: total - value` removes what
        `lambda key, value, total: total + value` added.

        Raises:
            TopologyException: a function is missing, or takes other arguments.
        """
        functions, materialized = arguments_of(
            rest,
            materialized,
            most=2,
            taken="aggregate() of a grouped table takes an expression, or an initializer, an adder and a "
            "subtractor",
        )
        aggregation = _aggregation_of(first, functions)
        given = option(materialized, Materialized, "aggregate")
        return self._table(aggregation, given, named, "KTABLE-AGGREGATE-", given.value_serde)

    def _table(
        self,
        aggregation: nodes.Aggregation,
        materialized: Materialized,
        named: str | Named | None,
        prefix: str,
        value_serde: Serde | None,
    ) -> KTable:
        """Source: KGroupedTableImpl.doAggregate."""
        drafts, names = self._drafts, self._drafts.names
        given = name_of(named)
        shared = self._repartition is not None and self._name is not None
        steps = () if given is None or shared else (f"{given}-sink", f"{given}-source")
        drafts.check(given, *steps, store=materialized.store_name)
        prefix_of_topic = self._name or materialized.store_name
        if prefix_of_topic is not None and not shared:
            drafts.check_internal_topic(f"{prefix_of_topic}-repartition")
        key_serde = materialized.key_serde or self._key_serde
        # The store is an aggregation's in any case, as in Kafka Streams.
        store = declare_store(materialized, names, "KTABLE-AGGREGATE-", key_serde, value_serde)
        sink = names.processor("KSTREAM-SINK-", given and f"{given}-sink")
        source = names.processor("KSTREAM-SOURCE-", given and f"{given}-source")
        name = names.processor(prefix, given)
        if self._repartition is not None and shared:
            drafts.attach(self._repartition, self._draft)
        else:
            topic = f"{self._name or store.name}-repartition"
            drafts.check_internal_topic(topic)
            repartition = nodes.Repartition(
                source,
                (),
                topic=topic,
                sink_name=sink,
                key_serde=self._key_serde,
                value_serde=self._value_serde,
            )
            self._repartition = drafts.add(repartition, self._draft)
        node = nodes.Aggregate(name, (), aggregation, store, of_table=True)
        draft = drafts.add(node, self._repartition)
        return KTable(drafts, draft, key_serde, value_serde, materialized.store_name)


_EXAMPLES = {
    "adder": "`lambda total, value: total + value`",
    "subtractor": "`lambda total, value: total - value`, which removes a value that a row no longer has",
}


def _aggregation_of(first: Any, functions: list[Any]) -> nodes.Aggregation:
    """What the functions of `aggregate()` mean.

    Raises:
        TopologyException: they have none of the accepted forms.
    """
    if not functions:
        check_function("aggregate", first)
        return nodes.ColumnAggregation(first)
    check_initializer(first)
    if len(functions) < 2:
        raise TopologyException(
            f"aggregate() of a grouped table in Python ({describe_argument(functions[0])}) also needs a "
            "subtractor: the old value of a changed or deleted row must be removed; give `lambda key, value, "
            "total: total - value`, or aggregate with a Spark expression, "
            "aggregate(lambda key, value: F.sum(value))"
        )
    for word, function in zip(("adder", "subtractor"), functions, strict=True):
        if not accepts(function, 3):
            raise TopologyException(
                f"the {word} of aggregate() is a function of key, value and aggregate; "
                f"got {describe_argument(function)}"
            )
    return nodes.TableFold(functions[0], functions[1], first)
