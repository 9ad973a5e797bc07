"""Aggregate expressions taken apart, for windows that are merged out of others.

Spark does not show what its aggregate functions keep for a partial result. So an expression such as
`F.sum(value.amount) / F.count(value.amount)` is cut at its aggregate functions: each becomes one or two
*parts*. A part is a column of each record, a rule by which two of its values make one, and what the
function's result is once all are merged. The rest of the expression is put together again around those.

Parts travel as JSON, because their rules are Python; the types are Spark's, on both sides of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.errors import TopologyException
from millstream.spark.flow import Names

__all__ = ["JSON_OPTIONS", "MERGEABLE", "Mergeable", "Part", "PartsAlgebra", "take_apart"]

JSON_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
"""How Spark writes and reads the JSON that parts travel in: nothing of a timestamp is lost."""
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_ORDERED = (
    T.IntegralType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.StringType,
    T.BooleanType,
    T.DateType,
    T.TimestampType,
)
"""Types whose values Python orders as Spark does, by what JSON makes of them."""

MERGEABLE = "count, sum, avg, min, max, bool_and, bool_or, collect_list"


@dataclass(frozen=True)
class Part:
    """One value of each record that is merged.

    Attributes:
        name: of its field in the JSON.
        column: what a record has; NULL counts for nothing.
        type: of the column, and of what is merged.
        rule: a key of `_RULES`.
    """

    name: str
    column: Column
    type: T.DataType
    rule: str


@dataclass
class Mergeable:
    """An expression taken apart.

    Attributes:
        parts: what it is made of.
        result: the expression over columns that are called as the parts are.

    Parts travel as fields of a JSON object, each under its name.
    """

    parts: list[Part] = field(default_factory=list)
    result: Column = field(default_factory=lambda: F.lit(None))

    def algebra(self) -> PartsAlgebra:
        """How to merge, for a worker: names and rules, no Columns."""
        return PartsAlgebra(
            tuple((part.name, part.rule, part.type.simpleString()) for part in self.parts),
        )


# --- on the worker ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartsAlgebra:
    """Merges the parts of records. A payload and an aggregate are alike: a dict of what is not NULL."""

    parts: tuple[tuple[str, str, str], ...]
    is_associative = True

    def initial(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def add(self, aggregate: dict[str, Any], payload: dict[str, Any]) -> dict[str, Any]:
        """A record is an aggregate of one."""
        return self.merge(aggregate, payload)

    def merge(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        """Part by part."""
        merged = dict(one)
        for name, rule, type_ in self.parts:
            value = other.get(name)
            if value is not None:
                mine = merged.get(name)
                merged[name] = value if mine is None else _RULES[rule](mine, value, type_)
        return merged

    @property
    def is_exact(self) -> bool:
        """Whether there are decimals among them, whose digits must not go through a float."""
        return any("decimal" in type_ for _, _, type_ in self.parts)

    def payload(self, record: dict[str, Any]) -> dict[str, Any]:
        """What a record brings, from the fields of its JSON."""
        read = _exactly if self.is_exact else _as_read
        return {name: read(record[name], type_) for name, _, type_ in self.parts if name in record}

    def result(self, aggregate: dict[str, Any]) -> dict[str, Any]:
        """What Spark is to go on with, as fields of a JSON."""
        return aggregate


def _as_read(value: Any, type_: str) -> Any:
    return value


def _exactly(value: Any, type_: str) -> Any:
    """A value whose numbers were left as text, so that decimals keep their digits."""
    if isinstance(value, list):
        return [_exactly(item, type_.removeprefix("array<").removesuffix(">")) for item in value]
    if type_ in _BITS:
        return int(value)
    return _json_float(float(value)) if type_ in ("float", "double") else value


def _sum(one: Any, other: Any, type_: str) -> Any:
    if type_ in _BITS:
        total = one + other
        if not -(2**63) <= total < 2**63:
            raise ArithmeticError(f"the sum of a window does not fit a {type_}; sum decimals or doubles")
        return total
    if type_.startswith("decimal"):
        return str(Decimal(str(one)) + Decimal(str(other)))
    return _json_float(float(one) + float(other))


def _json_float(value: float) -> Any:
    """JSON has no words for these; Spark takes these texts for them."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _rank(value: Any, type_: str) -> Any:
    """What to compare values by. Spark takes NaN for the largest number."""
    if type_ in ("float", "double"):
        number = float(value)
        return (math.isnan(number), 0.0 if math.isnan(number) else number)
    if type_.startswith("decimal"):
        return Decimal(str(value))
    return value


def _min(one: Any, other: Any, type_: str) -> Any:
    return other if _rank(other, type_) < _rank(one, type_) else one


def _max(one: Any, other: Any, type_: str) -> Any:
    return other if _rank(other, type_) > _rank(one, type_) else one


_RULES: dict[str, Callable[[Any, Any, str], Any]] = {
    "sum": _sum,
    "min": _min,
    "max": _max,
    "and": lambda one, other, type_: one and other,
    "or": lambda one, other, type_: one or other,
    "concat": lambda one, other, type_: [*one, *other],
}


# --- when the topology is compiled -----------------------------------------------------------------------


def take_apart(df: DataFrame, expression: Column, keys: list[str], names: Names) -> Mergeable:
    """Cut an aggregate expression over `df`. `keys` are columns that it may use besides, as they are.

    Raises:
        TopologyException: there is a function in it whose partial results Millstream cannot merge.
    """
    taken = Mergeable()
    cutter = _Cutter(df, names, taken.parts)
    taken.result = cutter.column(cutter.rebuilt(_node(expression)))
    if not taken.parts:
        raise TopologyException(
            "there is no aggregate function in it of those whose partial results can be merged, as windows "
            f"of this kind need it: {MERGEABLE}"
        )
    left = df.select(
        *(F.col(key) for key in keys), *(F.lit(None).cast(part.type).alias(part.name) for part in taken.parts)
    )
    from pyspark.errors import AnalysisException

    try:
        left.select(taken.result).schema  # noqa: B018  (analysis is the point)
    except AnalysisException as error:
        raise TopologyException(
            "there is an aggregate function in it whose partial results cannot be merged, as windows of this "
            f"kind need it; there are {MERGEABLE}. What they cannot express is a Python aggregation: "
            "aggregate(initializer, adder, merger)"
        ) from error
    return taken


class _Cutter:
    """Walks Spark's tree of an unresolved expression (org.apache.spark.sql.internal.ColumnNode)."""

    def __init__(self, df: DataFrame, names: Names, parts: list[Part]) -> None:
        spark: SparkSession = df.sparkSession
        self._df = df
        self._names = names
        self._parts = parts
        self._jvm: Any = spark._jvm

    def column(self, node: Any) -> Column:
        return Column(self._jvm.org.apache.spark.sql.Column(node))

    def rebuilt(self, node: Any) -> Any:
        """The node with columns of parts in the place of its aggregate functions; itself if it has none."""
        before = len(self._parts)
        new = self._rebuilt(node)
        return node if len(self._parts) == before else new

    def _rebuilt(self, node: Any) -> Any:
        nodes = self._jvm.org.apache.spark.sql.internal
        kind = node.getClass().getSimpleName()
        if kind == "UnresolvedFunction":
            if node.functionName().lower() in _CUTS:
                return _node(self._cut(node))
            children = [self.rebuilt(child) for child in _items(node.arguments())]
            return nodes.UnresolvedFunction(
                node.functionName(),
                self._jvm.PythonUtils.toSeq(children),
                node.isDistinct(),
                node.isUserDefinedFunction(),
                node.isInternal(),
                node.origin(),
            )
        if kind == "Alias":
            return nodes.Alias(self.rebuilt(node.child()), node.name(), node.metadata(), node.origin())
        if kind == "Cast":
            return nodes.Cast(self.rebuilt(node.child()), node.dataType(), node.evalMode(), node.origin())
        if kind == "UnresolvedExtractValue":
            return nodes.UnresolvedExtractValue(
                self.rebuilt(node.child()), self.rebuilt(node.extraction()), node.origin()
            )
        if kind == "CaseWhenOtherwise":
            result: Column | None = None
            for pair in _items(node.branches()):
                when = self.column(self.rebuilt(pair._1()))
                then = self.column(self.rebuilt(pair._2()))
                result = F.when(when, then) if result is None else result.when(when, then)
            assert result is not None
            if node.otherwise().isDefined():
                result = result.otherwise(self.column(self.rebuilt(node.otherwise().get())))
            return _node(result)
        return node  # a literal, a key; an aggregate function in SQL text is found out by analysis

    def _cut(self, node: Any) -> Column:
        name = node.functionName().lower()
        if node.isDistinct():
            raise TopologyException(
                f"{name}(DISTINCT …) cannot be merged from partial results, as windows of this kind need it; "
                f"there are {MERGEABLE}"
            )
        arguments = [self.column(child) for child in _items(node.arguments())]
        whole = self._type(self.column(node))
        return _CUTS[name](self, name, arguments, whole)

    def _type(self, column: Column) -> T.DataType:
        return self._df.agg(column.alias("x")).schema[0].dataType

    def part(self, column: Column, type_: T.DataType, rule: str) -> Column:
        name = self._names.new("l")
        self._parts.append(Part(name, column, type_, rule))
        return F.col(name)

    def ordered(self, name: str, type_: T.DataType) -> None:
        if not isinstance(type_, _ORDERED):
            raise TopologyException(
                f"{name}() of {type_.simpleString()} cannot be merged here; take a number, text, a date or a "
                "time, or aggregate in Python"
            )


def _node(column: Any) -> Any:
    return column._jc.node()


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _cut_count(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    there = F.lit(True)
    for argument in arguments:
        if _node(argument).getClass().getSimpleName() != "UnresolvedStar":
            there = there & argument.isNotNull()
    counted = cutter.part(F.when(there, F.lit(1)).cast("bigint"), T.LongType(), "sum")
    return F.coalesce(counted, F.lit(0).cast("bigint"))


def _cut_sum(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    if not isinstance(whole, T.NumericType):
        raise TopologyException(f"{name}() of {whole.simpleString()} cannot be merged here; sum numbers")
    return cutter.part(arguments[0].cast(whole), whole, "sum")


def _cut_avg(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    total = cutter._type(F.sum(arguments[0])) if isinstance(whole, T.DecimalType) else T.DoubleType()
    if not isinstance(whole, T.NumericType):
        raise TopologyException(f"{name}() of {whole.simpleString()} cannot be merged here; take numbers")
    summed = cutter.part(arguments[0].cast(total), total, "sum")
    counted = cutter.part(F.when(arguments[0].isNotNull(), F.lit(1)).cast("bigint"), T.LongType(), "sum")
    return F.when(counted > 0, (summed / counted).cast(whole))


def _cut_extreme(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    cutter.ordered(name, whole)
    return cutter.part(arguments[0], whole, name)


def _cut_boolean(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    return cutter.part(arguments[0], whole, "and" if name in ("bool_and", "every") else "or")


def _cut_list(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    assert isinstance(whole, T.ArrayType)
    cutter.ordered(name, whole.elementType)
    of_one = F.when(arguments[0].isNotNull(), F.array(arguments[0]))
    return F.coalesce(cutter.part(of_one, whole, "concat"), F.array().cast(whole))


_CUTS: dict[str, Callable[[_Cutter, str, list[Column], T.DataType], Column]] = {
    "count": _cut_count,
    "sum": _cut_sum,
    "avg": _cut_avg,
    "mean": _cut_avg,
    "min": _cut_extreme,
    "max": _cut_extreme,
    "bool_and": _cut_boolean,
    "every": _cut_boolean,
    "bool_or": _cut_boolean,
    "any": _cut_boolean,
    "some": _cut_boolean,
    "collect_list": _cut_list,
    "array_agg": _cut_list,
}
