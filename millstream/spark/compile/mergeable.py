"""Splits aggregate expressions into parts, so that partial results can be kept and merged.

Spark does not expose the partial results of its aggregate functions. So an expression such as
`F.sum(value.amount) / F.count(value.amount)` is cut at its aggregate functions: each becomes one or two
*parts*. A part is a column of each record, a rule that merges two of its values into one, and the function's
result once all are merged. The rest of the expression is put back together around these.

The rules are the kernel's (`io.millstream.kernel.core.Rules`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.spark.compile.flow import Names
from millstream.spark.jvm.java_names import java_class, kernel_column
from millstream.spark.run.failures import without_plan

__all__ = ["MERGEABLE", "Mergeable", "NotMergeableError", "Part", "take_apart"]

MERGEABLE = (
    "count sum product avg min max min_by max_by first last any_value bool_and bool_or bit_and bit_or "
    "bit_xor collect_list collect_set variance stddev count_if approx_count_distinct hll_sketch_agg "
    "hll_union_agg and count(DISTINCT)"
)


class NotMergeableError(Exception):
    """Why an expression cannot be taken apart, as a sentence without its subject."""


@dataclass(frozen=True)
class Part:
    """One value of each record, which is merged.

    Attributes:
        name: the name of its column.
        column: a record's value; NULL counts for nothing.
        type: the type of the column, and of the merged value.
        rule: the name of a kernel rule.
    """

    name: str
    column: Column
    type: T.DataType
    rule: str


@dataclass
class Mergeable:
    """An expression taken apart.

    Attributes:
        parts: its parts.
        result: the expression over columns named like the parts.
        type: of the result.
        back: for each part that the result says, how to find it there.
        hidden: the functions whose result does not say theirs.
    """

    parts: list[Part] = field(default_factory=list)
    result: Column = field(default_factory=lambda: F.lit(None))
    type: T.DataType = field(default_factory=T.NullType)
    back: dict[str, Callable[[Column], Column]] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)

    def parts_of(self, result: Column) -> Column | None:
        """The parts that have made a result, as a struct; None if it does not say them all."""
        if any(part.name not in self.back for part in self.parts):
            return None
        return F.struct(
            *(self.back[part.name](result).cast(part.type).alias(part.name) for part in self.parts)
        )


# --- when the topology is compiled -----------------------------------------------------------------------


def take_apart(df: DataFrame, expression: Column, keys: list[str], names: Names) -> Mergeable:
    """Cut an aggregate expression over `df`. `keys` are further columns that it may use unchanged.

    Raises:
        NotMergeableError: it contains a function whose partial results the kernel cannot merge.
    """
    taken = Mergeable()
    cutter = _Cutter(df, names, taken)
    taken.result = cutter.column(cutter.rebuilt(_node(expression)))
    if not taken.parts:
        raise NotMergeableError(f"it has none of the aggregate functions that can be: {MERGEABLE}")
    left = df.select(
        *(F.col(key) for key in keys), *(F.lit(None).cast(part.type).alias(part.name) for part in taken.parts)
    )
    from pyspark.errors import AnalysisException

    try:
        taken.type = left.select(taken.result).schema[0].dataType
    except AnalysisException as error:
        raise NotMergeableError(
            f"it has an aggregate function that cannot be. There are {MERGEABLE}"
        ) from without_plan(error)
    return taken


class _Cutter:
    """Walks Spark's tree of an unresolved expression (org.apache.spark.sql.internal.ColumnNode)."""

    def __init__(self, df: DataFrame, names: Names, taken: Mergeable) -> None:
        spark: SparkSession = df.sparkSession
        self._df = df
        self._names = names
        self._parts = taken.parts
        self._taken = taken
        self._jvm: Any = spark._jvm
        self._path: tuple[str, ...] | None = ()
        """The fields of the result in which the node at hand is, as it is; None: it is computed further."""

    def column(self, node: Any) -> Column:
        return Column(java_class(self._jvm, "org.apache.spark.sql.Column")(node))

    def _new_node(self, kind: str) -> Any:
        return java_class(self._jvm, f"org.apache.spark.sql.internal.{kind}")

    def rebuilt(self, node: Any) -> Any:
        """The node with columns of parts in place of its aggregate functions; itself if it has none."""
        before = len(self._parts)
        new = self._rebuilt(node)
        return node if len(self._parts) == before else new

    def _rebuilt(self, node: Any) -> Any:
        kind = node.getClass().getSimpleName()
        path, self._path = self._path, None
        if kind == "UnresolvedFunction":
            name = node.functionName().lower()
            if name in _CUTS:
                self._path = path
                return _node(self._cut(node))
            if self._aggregates(name):
                raise NotMergeableError(f"{name}() cannot be merged from partial results")
            children = []
            for child in _items(node.arguments()):
                is_field = name == "struct" and child.getClass().getSimpleName() == "Alias"
                self._path = (*path, _items(child.name())[0]) if is_field and path is not None else None
                children.append(self.rebuilt(child))
            return self._new_node("UnresolvedFunction")(
                node.functionName(),
                self._jvm.PythonUtils.toSeq(children),
                node.isDistinct(),
                node.isUserDefinedFunction(),
                node.isInternal(),
                node.origin(),
            )
        if kind == "Alias":
            self._path = path
            return self._new_node("Alias")(
                self.rebuilt(node.child()), node.name(), node.metadata(), node.origin()
            )
        if kind == "Cast":
            return self._new_node("Cast")(
                self.rebuilt(node.child()), node.dataType(), node.evalMode(), node.origin()
            )
        if kind == "UnresolvedExtractValue":
            return self._new_node("UnresolvedExtractValue")(
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
        return node  # a literal, a key; analysis finds an aggregate function in SQL text

    def _cut(self, node: Any) -> Column:
        name = node.functionName().lower()
        arguments = [self.column(child) for child in _items(node.arguments())]
        if node.isDistinct() and name != "count":
            raise NotMergeableError(f"{name}(DISTINCT …) cannot be merged from partial results")
        whole = self._type(self.column(node))
        path, before = self._path, len(self._parts)
        cut = (_cut_distinct if node.isDistinct() else _CUTS[name])(self, name, arguments, whole)
        if path is not None and name in _SAID and not node.isDistinct():
            (part,) = self._parts[before:]
            self._taken.back[part.name] = _field(
                path, is_in_struct=name in _IN_A_STRUCT and part.type != whole
            )
        else:
            self._taken.hidden.add(f"{name}()")
        return cut

    def _aggregates(self, name: str) -> bool:
        """Whether this is one of Spark's aggregate functions."""
        registry = java_class(self._jvm, "org.apache.spark.sql.catalyst.analysis.FunctionRegistry$")
        found = getattr(registry, "MODULE$").expressions().get(name)
        return bool(found.isDefined() and found.get()._1().getGroup() == "agg_funcs")

    def _type(self, column: Column) -> T.DataType:
        return self._df.agg(column.alias("x")).schema[0].dataType

    def part(self, column: Column, type_: T.DataType, rule: str) -> Column:
        name = self._names.new("l")
        self._parts.append(Part(name, column, type_, rule))
        return F.col(name)


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


def _cut_count_if(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    counted = cutter.part(F.when(arguments[0], F.lit(1)).cast("bigint"), T.LongType(), "sum")
    return F.coalesce(counted, F.lit(0).cast("bigint"))


def _cut_distinct(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    there = F.lit(True)
    for argument in arguments:
        there = there & argument.isNotNull()
    element = arguments[0] if len(arguments) == 1 else F.struct(*arguments)
    return F.coalesce(F.size(_values(cutter, element, there, "union")), F.lit(0)).cast("bigint")


def _cut_sum(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    if not isinstance(whole, T.LongType | T.DoubleType | T.DecimalType):
        raise NotMergeableError(f"{name}() of {whole.simpleString()} cannot be merged")
    return cutter.part(arguments[0].cast(whole), whole, "sum")


def _cut_product(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    return cutter.part(arguments[0].cast("double"), T.DoubleType(), "product")


def _cut_avg(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    total = cutter._type(F.sum(arguments[0])) if isinstance(whole, T.DecimalType) else T.DoubleType()
    if not isinstance(whole, T.NumericType):
        raise NotMergeableError(f"{name}() of {whole.simpleString()} cannot be merged")
    summed = cutter.part(arguments[0].cast(total), total, "sum")
    counted = cutter.part(F.when(arguments[0].isNotNull(), F.lit(1)).cast("bigint"), T.LongType(), "sum")
    return F.when(counted > 0, (summed / counted).cast(whole))


def _cut_same(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    return cutter.part(arguments[0], whole, _SAME[name])


_SAME = {
    "min": "min",
    "max": "max",
    "bool_and": "and",
    "every": "and",
    "bool_or": "or",
    "any": "or",
    "some": "or",
    "bit_and": "bit_and",
    "bit_or": "bit_or",
    "bit_xor": "bit_xor",
}
"""The functions whose partial result is itself a result, and the rules that merge it."""


_IN_A_STRUCT = ("first", "first_value", "any_value", "last", "last_value")
_SAID = (
    "count",
    "count_if",
    "sum",
    "product",
    "collect_list",
    "array_agg",
    "collect_set",
    *_SAME,
    *_IN_A_STRUCT,
)
"""The functions whose result says their part."""


def _field(path: tuple[str, ...], *, is_in_struct: bool) -> Callable[[Column], Column]:
    """Finds what is at a path of a result."""

    def found(result: Column) -> Column:
        for name in path:
            result = result.getField(name)
        return F.struct(result.alias("value")) if is_in_struct else result

    return found


def _cut_by(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    value, order = arguments
    type_ = T.StructType([T.StructField("by", cutter._type(F.max(order))), T.StructField("value", whole)])
    both = F.when(order.isNotNull(), F.struct(order.alias("by"), value.alias("value")))
    return cutter.part(both, type_, "largest" if name == "max_by" else "smallest")["value"]


def _cut_first(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    rule = "last" if name.startswith("last") else "first"
    if len(arguments) > 1 and _node(arguments[1]).value() is True:  # NULL does not count
        return cutter.part(arguments[0], whole, rule)
    type_ = T.StructType([T.StructField("value", whole)])
    return cutter.part(F.struct(arguments[0].alias("value")), type_, rule)["value"]


def _values(cutter: _Cutter, element: Column, there: Column, rule: str) -> Column:
    collected: Any = cutter._type(F.collect_list(element))
    type_ = T.ArrayType(collected.elementType)  # Spark 4.2 does not see that NULLs are left out
    return cutter.part(F.when(there, F.array(element)), type_, rule)


def _cut_collect(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    rule = "union" if name == "collect_set" else "concat"
    return F.coalesce(_values(cutter, arguments[0], arguments[0].isNotNull(), rule), F.array().cast(whole))


def _cut_variance(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    value = arguments[0].cast("double")
    names = ("n", "mean", "squares")
    type_ = T.StructType([T.StructField(field, T.DoubleType()) for field in names])
    columns = zip((F.lit(1.0), value, F.lit(0.0)), names, strict=True)
    one = F.when(value.isNotNull(), F.struct(*(column.alias(field) for column, field in columns)))
    moments = cutter.part(one, type_, "moments")
    if name.endswith("_pop"):
        variance = moments["squares"] / moments["n"]
    else:
        variance = F.when(moments["n"] > 1, moments["squares"] / (moments["n"] - 1))
    return F.sqrt(variance) if name.startswith("std") else variance


def _cut_approx_count(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    """By a sketch with the same relative standard deviation. Differs: Spark's own function uses another
    sketch, and so gives another estimate."""
    deviation = float(_node(arguments[1]).value()) if len(arguments) > 1 else 0.05
    size = min(21, max(4, math.ceil(2 * math.log2(1.04 / deviation))))
    hashed = F.when(arguments[0].isNotNull(), F.xxhash64(arguments[0]))
    counted = cutter.part(_sketch(hashed, size), T.BinaryType(), "hll")
    return F.coalesce(F.hll_sketch_estimate(counted), F.lit(0)).cast("bigint")


def _cut_sketch(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    size = int(_node(arguments[1]).value()) if len(arguments) > 1 else 12
    is_number = isinstance(cutter._type(F.max(arguments[0])), T.IntegerType | T.LongType)
    value = arguments[0].cast("bigint" if is_number else "binary")
    return cutter.part(_sketch(value, size), T.BinaryType(), "hll")


def _sketch(value: Column, size: int) -> Column:
    return kernel_column("Sketch", "of", value, size)


def _cut_union(cutter: _Cutter, name: str, arguments: list[Column], whole: T.DataType) -> Column:
    if len(arguments) > 1:
        raise NotMergeableError(f"{name}() of sketches of several sizes cannot be merged")
    return cutter.part(arguments[0], T.BinaryType(), "hll")


_CUTS: dict[str, Callable[[_Cutter, str, list[Column], T.DataType], Column]] = {
    "count": _cut_count,
    "count_if": _cut_count_if,
    "sum": _cut_sum,
    "product": _cut_product,
    "avg": _cut_avg,
    "mean": _cut_avg,
    **dict.fromkeys(_SAME, _cut_same),
    **dict.fromkeys(("min_by", "max_by"), _cut_by),
    **dict.fromkeys(("first", "first_value", "any_value", "last", "last_value"), _cut_first),
    **dict.fromkeys(("collect_list", "array_agg", "collect_set"), _cut_collect),
    "approx_count_distinct": _cut_approx_count,
    "hll_sketch_agg": _cut_sketch,
    "hll_union_agg": _cut_union,
    **dict.fromkeys(
        ("variance", "var_samp", "var_pop", "std", "stddev", "stddev_samp", "stddev_pop"), _cut_variance
    ),
}
