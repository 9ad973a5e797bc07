"""Which columns a DataFrame can have that becomes a table. Without Spark, whose types alone are needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import types as T

from millstream import TopologyException
from millstream.spark.compile.frame_columns import StaticFrame
from millstream.topology.nodes import FrameTable


def looked_at(name: str, type_: T.DataType = T.StringType()) -> StaticFrame:  # noqa: B008 - it is immutable
    schema = T.StructType([T.StructField("id", T.StringType()), T.StructField(name, type_)])
    frame = SimpleNamespace(schema=schema, columns=schema.names, isStreaming=False, sparkSession=None)
    table = FrameTable("customers", (), frame=lambda spark: frame, key=("id",))
    unused: Any = None
    return StaticFrame.of(table, unused)


@pytest.mark.parametrize("name", ["home.city", "city[]", "the city", "{}", "", "1st"])
@pytest.mark.parametrize("inner", [False, True])
def test_names_that_a_querys_state_cannot_have_are_refused(name: str, inner: bool) -> None:
    """Whole names, also of fields and of what is in lists."""
    within = T.ArrayType(T.StructType([T.StructField(name, T.StringType())]))
    with pytest.raises(TopologyException) as caught:
        looked_at("places", within) if inner else looked_at(name)
    assert f"a column '{'places[].' if inner else ''}{name}'" in str(caught.value)


def test_lists_and_maps_have_no_names() -> None:
    """Only what is in them."""
    inner = T.StructType([T.StructField("city", T.MapType(T.StringType(), T.ArrayType(T.LongType())))])
    assert looked_at("places", T.ArrayType(T.ArrayType(inner))).schema.names == ["id", "places"]
