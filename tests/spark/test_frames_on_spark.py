"""DataFrames on both ends, on Spark with records in memory: rows that are joined, writers that write.

On a broker, with a client's life around it: tests/end_to_end/test_frames_on_kafka.py.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream import (
    Consumed,
    DataFrameTable,
    KStream,
    PipelineException,
    Produced,
    Serdes,
    StreamsBuilder,
    StreamsException,
    TopologyException,
)
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

ORDER = Serdes.json("customer STRING, amount BIGINT")
JOINED = Serdes.json("amount BIGINT, city STRING")
Row = tuple[Any, ...]


def cities(rows: list[Row]) -> Callable[[SparkSession], DataFrame]:
    """A source whose rows change, as a file's or a database's do."""
    return lambda spark: spark.createDataFrame(rows, "id string, city string")


def program(frame: Any, key: Any = "id", **options: Any) -> tuple[StreamsBuilder, KStream, DataFrameTable]:
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed.with_(Serdes.string(), ORDER))
    return builder, orders, builder.from_dataframe(frame, key, named="customers", **options)


def with_city(orders: KStream, customers: DataFrameTable, join: str = "left_join") -> KStream:
    joined: KStream = getattr(orders, join)(
        customers,
        lambda order: order.customer,
        lambda order, customer: {"amount": order.amount, "city": customer.city},
    )
    return joined


def pipe(driver: TopologyTestDriver, *orders: Row) -> None:
    """Orders as one micro-batch: key, customer, amount."""
    topic = driver.create_input_topic("orders", Serdes.string(), ORDER)
    topic.pipe_key_value_list([(k, {"customer": who, "amount": n}) for k, who, n in orders])


def read(driver: TopologyTestDriver, topic: str = "out") -> list[Row]:
    output = driver.create_output_topic(topic, Serdes.string(), JOINED)
    found = [(kv.key, kv.value["amount"], kv.value["city"]) for kv in output.read_key_values_to_list()]
    return sorted(found, key=repr)


def test_rows_are_joined_as_they_were_when_the_table_was_last_read(spark: SparkSession) -> None:
    """New, changed and deleted rows count from the refresh on; what is unchanged is not written again."""
    rows: list[Row] = [("ann", "Bern"), ("bob", "Rome"), (None, "nowhere")]
    builder, orders, customers = program(cities(rows))
    with_city(orders, customers).to("out", Produced.with_(Serdes.string(), JOINED))
    with_city(orders, customers, "join").to("inner", Produced.with_(Serdes.string(), JOINED))
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        pipe(driver, ("1", "ann", 5), ("2", "cat", 7), ("3", None, 9))
        assert read(driver) == [("1", 5, "Bern"), ("2", 7, None), ("3", 9, None)]
        assert read(driver, "inner") == [("1", 5, "Bern")]
        rows[:] = [("ann", "Basel"), ("cat", "Oslo"), (None, "nowhere")]
        pipe(driver, ("1", "ann", 5))
        assert read(driver) == [("1", 5, "Bern")]  # nobody has asked yet
        assert driver.refresh_table(customers) == 3
        assert driver.refresh_table("customers") == 0
        pipe(driver, ("1", "ann", 5), ("2", "bob", 6), ("3", "cat", 7))
        assert read(driver) == [("1", 5, "Basel"), ("2", 6, None), ("3", 7, "Oslo")]


def test_a_join_by_the_records_own_key_and_a_key_of_several_columns(spark: SparkSession) -> None:
    """With one function the key is the record's; a struct finds the row whose columns it equals."""
    builder, orders, customers = program(cities([("o-1", "Bern")]))
    shelves = builder.from_dataframe(
        lambda spark: spark.createDataFrame(
            [("ann", 5, "A")], "customer string, amount bigint, shelf string"
        ),
        ["customer", "amount"],
    )
    orders.join(customers, lambda order, row: {"amount": order.amount, "city": row.city}).to("out")
    orders.join(
        shelves,
        lambda order: {"customer": order.customer, "amount": order.amount},
        lambda order, row: {"amount": order.amount, "city": row.shelf},
    ).to("shelves")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        pipe(driver, ("o-1", "ann", 5), ("o-2", "ann", 6))
        assert read(driver) == [("o-1", 5, "Bern")]
        assert read(driver, "shelves") == [("o-1", 5, "A")]


def test_a_row_keeps_its_columns_and_their_types(spark: SparkSession) -> None:
    """Whatever JSON can carry: numbers, decimals, times, lists, structs, binary, and one called items."""
    schema = (
        "id string, price decimal(9,2), day date, at timestamp, tags array<string>, point struct<x: double>, "
        "raw binary, items int, attributes map<string,bigint>, flag boolean"
    )
    at = datetime(2026, 3, 1, 12, 0, 0, 123000, tzinfo=UTC)
    row = ("ann", Decimal("1.50"), date(2026, 3, 1), at, ["x", "y"], (1.5,), b"\x00\xff", 3, {"k": 7}, True)
    builder, orders, customers = program(lambda spark: spark.createDataFrame([row], schema))
    joined = orders.join(customers, lambda order: order.customer, lambda order, customer: customer)
    kept = joined.to_dataframe("rows")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        pipe(driver, ("1", "ann", 5))
        (found,) = driver.dataframe(kept).select("value.*").collect()
        before = spark.createDataFrame([row], schema).collect()[0]
        assert found.asDict(recursive=True) == before.asDict(recursive=True)


def test_files_that_came_later_are_found_also_by_a_dataframe_that_was_made_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark remembers the files that it found when a DataFrame was made; a refresh has them listed anew."""
    path = str(tmp_path / "customers")
    spark.createDataFrame([("ann", "Bern")], "id string, city string").write.parquet(path)
    builder, orders, customers = program(spark.read.parquet(path))
    with_city(orders, customers).to("out", Produced.with_(Serdes.string(), JOINED))
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        more = spark.createDataFrame([("bob", "Rome")], "id string, city string")
        more.write.mode("append").parquet(path)
        assert driver.refresh_table(customers) == 1
        pipe(driver, ("1", "ann", 5), ("2", "bob", 6))
        assert read(driver) == [("1", 5, "Bern"), ("2", 6, "Rome")]


def test_a_table_of_a_database(spark: SparkSession, tmp_path: Path) -> None:
    """By JDBC, as it is at each refresh."""
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))  # type: ignore[union-attr]
    url = f"jdbc:derby:memory:{uuid.uuid4().hex};create=true"

    def write(*rows: Row) -> None:
        frame = spark.createDataFrame(list(rows), "id string, city string")
        frame.write.mode("overwrite").jdbc(url, "customers")

    write(("ann", "Bern"))
    builder, orders, customers = program(lambda spark: spark.read.jdbc(url, "customers"))
    with_city(orders, customers).to("out", Produced.with_(Serdes.string(), JOINED))
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        write(("ann", "Basel"), ("bob", "Rome"))
        assert driver.refresh_table("customers") == 2
        pipe(driver, ("1", "ann", 5), ("2", "bob", 6))
        assert read(driver) == [("1", 5, "Basel"), ("2", 6, "Rome")]


def test_two_rows_with_one_key_are_refused_and_the_table_stays(spark: SparkSession) -> None:
    """At the start, and at a refresh, after which the rows are what they were."""
    rows: list[Row] = [("ann", "Bern"), ("ann", "Rome")]
    builder, orders, customers = program(cities(rows))
    with_city(orders, customers).to("out", Produced.with_(Serdes.string(), JOINED))
    said = r"customers: 1 key has more than one row .* \.dropDuplicates\(\['id'\]\)"
    with pytest.raises(StreamsException, match=said):
        TopologyTestDriver(builder.build(), spark=spark)
    del rows[1]
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        rows += [("ann", "Rome"), ("bob", "Oslo")]
        with pytest.raises(StreamsException, match=said):
            driver.refresh_table(customers)
        pipe(driver, ("1", "ann", 5), ("2", "bob", 6))
        assert read(driver) == [("1", 5, "Bern"), ("2", 6, None)]


def test_what_a_function_makes_is_looked_at_as_what_is_given(spark: SparkSession) -> None:
    """A streaming DataFrame, none, another thing, no such column, a type that JSON cannot carry, an error."""
    wrong: dict[str, Callable[[SparkSession], Any]] = {
        r"customers: this DataFrame is streaming": lambda spark: spark.readStream.format("rate").load(),
        r"customers: its function returned None; is a `return` missing\?": lambda spark: None,
        r"customers \(test_frames_on_spark.py:\d+ <lambda>\): ZeroDivisionError: .*by zero$": lambda spark: (
            1 / 0
        ),
        r"customers: takes a Spark DataFrame, or a function": lambda spark: "rows",
        r"customers: the DataFrame has no column 'id'": lambda spark: spark.range(1).select(
            F.lit(1).alias("n")
        ),
        r"the DataFrame has a column 'a b', .* withColumnRenamed\(\)": lambda spark: spark.sql(
            "select 'a' as id, 1 as `a b`"
        ),
        r"the column 'gap' of the DataFrame is interval .* its rows are JSON there": lambda spark: spark.sql(
            "select 'a' as id, interval '1' day as gap"
        ),
        r"customers \(test_frames_on_spark.py:\d+ <lambda>\): .*PATH_NOT_FOUND": lambda spark: (
            spark.read.parquet("/nowhere")
        ),
        r"keys of the same type on both sides, .* string, the keys of customers are bigint": lambda spark: (
            spark.range(3).withColumn("city", F.lit("x"))
        ),
    }
    missed = []
    for said, frame in wrong.items():
        builder, orders, customers = program(frame)
        with_city(orders, customers).to("out")
        try:
            with pytest.raises(TopologyException, match=said):
                TopologyTestDriver(builder.build(), spark=spark)
        except AssertionError as error:
            missed.append(str(error))
    assert missed == []


def test_other_columns_at_a_refresh_are_refused(spark: SparkSession) -> None:
    """What was compiled reads the columns of then."""
    frames = ["id string, city string", "id string, city string, zip int"]
    builder, orders, customers = program(lambda spark: spark.createDataFrame([], frames[0]))
    with_city(orders, customers).to("out")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        del frames[0]
        with pytest.raises(TopologyException, match="start a new client to use the new columns"):
            driver.refresh_table("customers")


def test_a_dataframe_of_another_spark_says_to_make_it_anew(spark: SparkSession) -> None:
    """It cannot be run in this one; the sentence has both ways out."""

    class Ended:
        sparkContext = object()

    made = spark.createDataFrame([("ann", "Bern")], "id string, city string")
    made._session = Ended()  # type: ignore[attr-defined]
    builder, orders, customers = program(made)
    with_city(orders, customers).to("out")
    with pytest.raises(TopologyException, match=r"was created in another Spark than .*spark=spark\)"):
        TopologyTestDriver(builder.build(), spark=spark)


def test_a_source_that_cannot_be_read_leaves_the_table_as_it_was(spark: SparkSession) -> None:
    """What goes wrong while rows are read, such as files that are damaged; told with the table's name."""
    broken: list[bool] = []
    builder, orders, customers = program(
        lambda spark: spark.sql(
            "select 'ann' as id, if("
            + ("true" if broken else "false")
            + ", raise_error('gone'), 'Bern') as city"
        )
    )
    with_city(orders, customers).to("out", Produced.with_(Serdes.string(), JOINED))
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        broken.append(True)
        with pytest.raises(
            StreamsException, match=r"table 'customers': its DataFrame could not be read; the .*gone"
        ):
            driver.refresh_table(customers)
        pipe(driver, ("1", "ann", 5))
        assert read(driver) == [("1", 5, "Bern")]


@pytest.mark.timeout(300)
def test_a_session_of_the_users_own(tmp_path: Path) -> None:
    """Handed over, its DataFrames are tables; else each case has a sentence. A function works in all."""
    program = Path(__file__).parent / "frames_of_a_users_session.py"
    ended = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    given, made_with_it, not_given, after_its_end, made_anew = ended.stdout.splitlines()
    assert (given, made_with_it, made_anew) == ("Bern", "Bern", "Bern")
    assert "started by someone else; pass its session to the client" in not_given
    assert (
        "in another Spark than the client's, or in one that has ended; make it anew, with a" in after_its_end
    )


# --- out ---------------------------------------------------------------------------------------------------


def test_a_writer_writes_what_the_stream_has(spark: SparkSession, tmp_path: Path) -> None:
    """Null keys and null values too, with the records' timestamps and places; to files here."""
    path = str(tmp_path / "lake")
    builder, orders, _ = program(cities([]))
    orders.to_spark(lambda df: df.writeStream.format("parquet").option("path", path), named="lake")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        pipe(driver, ("1", "ann", 5))
        topic = driver.create_input_topic("orders", Serdes.string(), ORDER)
        topic.pipe_input(None, {"customer": "bob", "amount": 6}, timestamp=1000, headers=[("h", b"x")])
        topic.pipe_input("2", None, timestamp=2000)
        found = spark.read.parquet(path).orderBy("offset").collect()
    assert [(row.key, row.value and row.value.customer) for row in found] == [
        ("1", "ann"),
        (None, "bob"),
        ("2", None),
    ]
    assert [(row.partition, row.offset) for row in found] == [(0, 0), (0, 1), (0, 2)]
    assert [row.timestamp.timestamp() for row in found[1:]] == [1.0, 2.0]
    assert [(header.key, bytes(header.value)) for header in found[1].headers] == [("h", b"x")]


def test_what_spark_can_do_comes_before_the_writer(spark: SparkSession) -> None:
    """An aggregation, whose state is in the checkpoint; a name of the user's; a function of each batch."""
    seen: list[tuple[int, int]] = []
    sessions: list[SparkSession] = []
    name = f"totals_{uuid.uuid4().hex}"
    builder, orders, _ = program(cities([]))
    orders.to_spark(
        lambda df: (
            _noted(df, sessions)
            .groupBy("value.customer")
            .agg(F.sum("value.amount").alias("total"))
            .writeStream.outputMode("complete")
            .format("memory")
            .queryName(name)
        )
    )
    orders.to_spark(
        lambda df: df.writeStream.foreachBatch(lambda rows, number: seen.append((number, rows.count())))
    )
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        pipe(driver, ("1", "ann", 5), ("2", "bob", 6))
        pipe(driver, ("3", "ann", 7))
        (of_client,) = sessions
        assert sorted(map(tuple, of_client.table(name).collect())) == [("ann", 12), ("bob", 6)]
    assert seen == [(0, 2), (1, 1)]


def _noted(df: DataFrame, sessions: list[SparkSession]) -> DataFrame:
    sessions.append(df.sparkSession)
    return df


def test_a_writer_by_table(spark: SparkSession, tmp_path: Path) -> None:
    """`table=` has it started with toTable, which is how catalogs are written to."""
    name = f"orders_{uuid.uuid4().hex}"
    spark.sql(f"create table {name} (key string) using parquet location '{tmp_path / 'table'}'")
    builder, orders, _ = program(cities([]))
    orders.to_spark(lambda df: df.select("key").writeStream.format("parquet"), table=name)
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        pipe(driver, ("1", "ann", 5))
    assert [row.key for row in spark.table(name).collect()] == ["1"]


def test_a_function_that_makes_no_writer_is_told_what_it_should(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing, a DataFrame, a query that runs, a checkpoint of its own, a trigger that ends, a slip."""
    place = str(tmp_path / "checkpoint")
    wrong: dict[str, Callable[[DataFrame], Any]] = {
        "its function returned None; is a `return` missing": lambda df: None,
        "its function returned a DataFrame; it has to return its writer": lambda df: df,
        "its function returned 5, a int; it has to return a DataStreamWriter": lambda df: 5,
        "its function started the query itself; leave out start": lambda df: (
            df.writeStream.format("noop").option("checkpointLocation", place).start()
        ),
        "has the option checkpointLocation, 'mine'; leave it out": lambda df: df.writeStream.format(
            "noop"
        ).option("checkpointLocation", "mine"),
        r"has a trigger with which the query ends by itself": lambda df: df.writeStream.trigger(
            availableNow=True
        ),
        r"lake \(test_frames_on_spark.py:\d+ <lambda>\): .*amonut": lambda df: (
            df.select("value.amonut").writeStream
        ),
    }
    missed = []
    for said, function in wrong.items():
        builder, orders, _ = program(cities([]))
        orders.to_spark(function, named="lake")
        try:
            with pytest.raises(TopologyException, match=said):
                TopologyTestDriver(builder.build(), spark=spark)
        except AssertionError as error:
            missed.append(str(error))
    assert missed == []
    assert spark.streams.active == []


def test_what_a_writer_fails_with_names_the_pipeline(spark: SparkSession) -> None:
    """A function of each batch that raises, as a client's thread would see it."""

    def fail(rows: DataFrame, number: int) -> None:
        raise ConnectionRefusedError("the warehouse is closed")

    builder, orders, _ = program(cities([]))
    orders.to_spark(lambda df: df.writeStream.foreachBatch(fail), named="lake")
    with (
        TopologyTestDriver(builder.build(), spark=spark) as driver,
        pytest.raises(
            PipelineException,
            match=r"pipeline p2: its query failed: a Python function raised ConnectionRefusedError: the w",
        ),
    ):
        pipe(driver, ("1", "ann", 5))


def test_a_function_of_each_batch_that_leaves_rows_unread_fails_the_batch(spark: SparkSession) -> None:
    """Else the batch would count as done without its state, and the checkpoint would break later."""
    builder, orders, _ = program(cities([]))
    orders.to_spark(
        lambda df: (
            df.groupBy("value.customer")
            .count()
            .writeStream.outputMode("update")
            .foreachBatch(lambda rows, number: None)
        )
    )
    with (
        TopologyTestDriver(builder.build(), spark=spark) as driver,
        pytest.raises(PipelineException, match="its query failed"),
    ):
        pipe(driver, ("1", "ann", 5))


def test_a_topic_that_is_written_is_a_dataframe_with_the_streams_types(spark: SparkSession) -> None:
    """In a driver a static one; a topic that the program does not write is told with those that it does."""
    builder, orders, _ = program(cities([]))
    kept = orders.map_values(lambda order: order.amount).to_dataframe("amounts")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        pipe(driver, ("1", "ann", 5), (None, "bob", 6))
        frame = driver.dataframe(kept)
        assert frame.schema.simpleString().startswith("struct<key:string,value:bigint,timestamp:timestamp,")
        assert sorted((row.key or "", row.value) for row in frame.collect()) == [("", 6), ("1", 5)]
        with pytest.raises(TopologyException, match="does not write the topic 'other'; it writes 'amounts'"):
            driver.dataframe("other")
