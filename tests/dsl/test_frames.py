"""DataFrames on both ends, as a program says it: what is refused, and what becomes of it in a topology."""

from __future__ import annotations

from typing import Any

import pytest

from millstream import (
    Consumed,
    DataFrameTable,
    Named,
    Repartitioned,
    Serdes,
    StreamDataFrame,
    StreamsBuilder,
    Topology,
    TopologyException,
)
from millstream.topology.internal_topics import plan_internal_topics
from millstream.topology.nodes import FrameRead, GlobalTable


class Static:
    """What a DataFrame of Spark has."""

    columns = ("id", "city")
    schema = "id string, city string"
    isStreaming = False
    sparkSession = None


class Streaming(Static):
    isStreaming = True


def program() -> tuple[StreamsBuilder, Any, DataFrameTable]:
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed.with_(Serdes.string(), Serdes.json("customer STRING")))
    return builder, orders, builder.from_dataframe(Static(), "id", named="customers")


def both_ends() -> Topology:
    """A program with all of it."""
    builder, orders, customers = program()
    joined = orders.join(customers, lambda order: order.customer, lambda order, customer: customer)
    orders.left_join(customers, lambda order, customer: customer, named="by-key").to("out")
    joined.to_spark(lambda df: df.writeStream, named="lake")
    joined.to_dataframe("clean")
    return builder.build()


def test_a_static_dataframe_or_a_function_becomes_a_table() -> None:
    """With a name, or a generated one in Kafka's manner, and with one column for a key or several."""
    builder = StreamsBuilder()
    named = builder.from_dataframe(Static(), "id", named=Named.as_("customers"))
    generated = builder.from_dataframe(lambda spark: spark.table("cities"), ["country", "city"])
    assert (named.name, generated.name) == ("customers", "DATAFRAME-TABLE-0000000003")
    assert repr(named) == "<DataFrameTable 'customers'>"


@pytest.mark.parametrize(
    ("frame", "key", "said"),
    [
        (
            Streaming(),
            "id",
            r"this DataFrame is streaming \(spark.readStream\), and a table needs a static one",
        ),
        (Static(), "number", "the DataFrame has no column 'number' for the key; it has id, city"),
        (Static(), (), r"key is the name of a column, or of several: key='id'; got \(\)"),
        (Static(), 7, r"key is the name of a column, or of several: key='id'; got 7"),
        ("customers", "id", "takes a Spark DataFrame, or a function that gets a SparkSession"),
        (lambda: None, "id", "must take one argument, a SparkSession"),
        (lambda spark, path: None, "id", "must take one argument, a SparkSession"),
    ],
    ids=["streaming", "no column", "no key", "a number", "text", "no argument", "two arguments"],
)
def test_what_cannot_be_a_table_is_refused_at_once(frame: Any, key: Any, said: str) -> None:
    """A streaming DataFrame above all, and what is none of Spark's."""
    with pytest.raises(TopologyException, match=said):
        StreamsBuilder().from_dataframe(frame, key)


def test_dataframes_of_others_are_told_from_sparks() -> None:
    """Of Spark Connect, whose Spark is elsewhere; and pandas', which Spark makes one from."""
    connect = type("DataFrame", (Static,), {"__module__": "pyspark.sql.connect.dataframe"})
    with pytest.raises(TopologyException, match="a Spark Connect DataFrame, which Millstream does not"):
        StreamsBuilder().from_dataframe(connect(), "id")
    pandas = type("DataFrame", (), {"__module__": "pandas.core.frame", "columns": ["id"]})
    with pytest.raises(TopologyException, match=r"pandas's DataFrame .* spark.createDataFrame\(frame\)"):
        StreamsBuilder().from_dataframe(pandas(), "id")


def test_a_column_that_is_there_twice_is_refused() -> None:
    """A row has one value of that name."""
    twice = type("Twice", (Static,), {"columns": ("id", "city", "city")})
    with pytest.raises(TopologyException, match="several columns called 'city'; rename or drop all but one"):
        StreamsBuilder().from_dataframe(twice(), "id")


def test_a_table_has_a_name_of_its_own_among_nodes_and_stores() -> None:
    """Its topic is named by it, as a store's changelog is."""
    builder, _, _ = program()
    with pytest.raises(TopologyException, match="a node named 'customers' already exists"):
        builder.from_dataframe(Static(), "id", named="customers")


def test_a_join_takes_a_joiner_or_a_selector_and_a_joiner() -> None:
    """By the record's key, or by one that it names; anything else is told with both forms."""
    _, orders, customers = program()
    with pytest.raises(TopologyException, match=r"join\(table, joiner\) or \(table, key_selector, joiner\)"):
        orders.join(customers)
    with pytest.raises(TopologyException, match="got a DataFrameTable of another StreamsBuilder"):
        orders.join(program()[2], lambda order, customer: customer)
    with pytest.raises(TopologyException, match="so there is no outer join with a table"):
        orders.outer_join(customers, lambda order, customer: customer, None)


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((lambda: None,), {}, "takes a function of one argument"),
        ((lambda df, spark: None,), {}, "takes a function of one argument, a streaming DataFrame"),
        (("parquet",), {}, "a streaming DataFrame; got 'parquet'"),
        ((lambda df: df,), {"table": ""}, "table is the name of a table, got ''"),
        (
            (lambda df: df, Repartitioned(partitioner=lambda key, value: key)),
            {},
            "a partitioner has no effect here",
        ),
    ],
    ids=["no argument", "two arguments", "text", "no name", "partitioner"],
)
def test_what_cannot_write_a_stream_is_refused_at_once(arguments: Any, options: Any, said: str) -> None:
    """As far as it can be seen without Spark."""
    with pytest.raises(TopologyException, match=said):
        program()[1].to_spark(*arguments, **options)


def test_to_dataframe_writes_a_topic_as_to_does() -> None:
    """It returns what the DataFrame is asked for with."""
    builder, orders, _ = program()
    assert orders.to_dataframe("clean") == StreamDataFrame("clean")
    assert "(topic: clean)" in str(builder.build().describe())
    with pytest.raises(TopologyException, match="topic name"):
        orders.to_dataframe("not a topic")


def test_a_writer_of_the_users_is_a_pipeline_behind_a_topic() -> None:
    """And a DataFrame's table is an input of the pipeline that joins it, with a topic of one partition."""
    topology = both_ends()
    joins, lake = topology.pipelines
    assert [table.name for table in joins.frame_tables] == ["customers"]
    assert (joins.spark_sink, lake.spark_sink and lake.spark_sink.name) == (None, "lake")
    assert [type(node) for node in joins.inputs if isinstance(node, GlobalTable | FrameRead)] == [FrameRead]
    assert (topology.global_stores, topology.global_topics, topology.global_subtopologies) == ({}, (), ())
    plan = plan_internal_topics(topology, "app", {"orders": 4})
    assert {topic.name: topic.partitions for topic in plan.topics} == {
        "app-customers-changelog": 1,
        "app-lake-repartition": 4,
    }


def test_describe_and_explain_show_both() -> None:
    """Kafka's text for what Kafka has: a global table, a repartition topic, a processor behind it."""
    text = str(both_ends().describe())
    assert (
        """Sub-topology: 1 for global store (will not generate tasks)
    Source: customers-source (topics: [customers-changelog])
      --> customers
    Processor: customers (stores: [customers])
"""
        in text
    )
    assert (
        """    Source: lake-repartition-source (topics: [lake-repartition])
      --> lake
    Processor: lake (stores: [])
"""
        in text
    )
    assert "lake-repartition-filter" not in text  # records with a null key are written too
    explained = both_ends().explain()
    assert "<application.id>-customers-changelog, whole, for joins with the DataFrame's rows" in explained
    assert "test_frames.py:" in explained
    assert "Table: customers (rows of a DataFrame by id)" in explained
