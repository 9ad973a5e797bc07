"""Regrouped tables: a row's old contribution is subtracted before its new one is added.

When a table's row changes under a new grouping key, the change is one record with the new value and the old
one, either of which may be missing. If the grouping key itself changes, there are two records, and the old
key's comes first.

Source: KTableRepartitionMap, KTableAggregate, KTableReduce.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millstream.errors import TopologyException
from millstream.spark.compile import serde_columns
from millstream.spark.compile.mergeable import Part
from millstream.topology.functions import describe_function
from millstream.topology.nodes import Aggregate, ColumnAggregation

__all__ = ["change", "changes", "of_both", "retractable"]


def changes(new: tuple[Column, Column], old: tuple[Column, Column], nothing: Column) -> Column:
    """An array of structs `key`, `value` and `old`: what a row contributes now, and what it contributed
    before.

    Each of the two is a key and a value; if either is NULL, it contributes nothing.

    Args:
        nothing: a NULL of the values' type. An untyped NULL makes Spark cast the structs, and its optimizer
            fails on that cast when the key has a window.
    """
    (key, value), (old_key, old_value) = new, old
    has_new, has_old = (F.coalesce(k.isNotNull() & v.isNotNull(), F.lit(False)) for k, v in (new, old))

    def each(key: Column, value: Column, old: Column) -> Column:
        return F.struct(key.alias("key"), value.alias("value"), old.alias("old"))

    both = F.array(each(key, value, old_value))
    only_new, only_old = each(key, value, nothing), each(old_key, nothing, old_value)
    return (
        F.when(has_new & has_old & (key == old_key), both)
        .when(has_new & has_old, F.array(only_old, only_new))
        .when(has_new, F.array(only_new))
        .when(has_old, F.array(only_old))
    )


def retractable(node: Aggregate, parts: Sequence[Part]) -> None:
    """Raise if a record's contribution cannot be subtracted from one of these.

    Raises:
        TopologyException: it cannot.
    """
    rules = sorted({part.rule for part in parts} - {"sum"})
    if rules:
        assert isinstance(node.aggregation, ColumnAggregation)
        raise TopologyException(
            f"{node.name} ({describe_function(node.aggregation.expression)}): when a row of a grouped table "
            "changes, its old value is subtracted first. Counts, sums and averages allow that; this one "
            f"does not ({', '.join(rules)}). A Python aggregation does: aggregate(initializer, adder, "
            "subtractor)"
        )


def of_both(df: DataFrame, value: str, old: str, parts: Sequence[Part]) -> tuple[DataFrame, list[Part]]:
    """The parts of a change: those of the new value minus those of the old one. `parts` are a value's."""
    names = {part.name: (f"{part.name}_new", f"{part.name}_old") for part in parts}
    there = F.col(value).isNotNull()
    df = df.withColumns({names[part.name][0]: F.when(there, part.column.cast(part.type)) for part in parts})
    aside = f"{value}_aside"
    df = df.withColumnsRenamed({value: aside}).withColumnsRenamed({old: value})
    df = df.withColumns({names[part.name][1]: F.when(there, part.column.cast(part.type)) for part in parts})
    df = df.withColumnsRenamed({value: old}).withColumnsRenamed({aside: value})
    zero = F.lit(0)
    return df, [
        replace(
            part,
            column=F.coalesce(F.col(new), zero.cast(part.type))
            - F.coalesce(F.col(gone), zero.cast(part.type)),
        )
        for part in parts
        for new, gone in (names[part.name],)
    ]


def change(value: Column, old: Column) -> Column:
    """A change as bytes, for Python: the old value's length (-1: none), the old value, then the new one."""

    def framed(content: Column) -> Column:
        length = serde_columns.write_number("integer", F.coalesce(F.octet_length(content), F.lit(-1)))
        return F.concat(length, F.coalesce(content, F.lit(bytearray())))

    return F.concat(framed(old), framed(value))
