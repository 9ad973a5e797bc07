"""DataFrames on both ends of a running client: its whole life, on a real broker, with real Spark."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from waiting import wait_until
from world import World

from millstream import (
    Consumed,
    FailureContext,
    KafkaStreams,
    Serdes,
    StreamsBuilder,
    StreamsException,
    StreamThreadExceptionResponse,
    Topology,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "dataframes.md"
Row = tuple[Any, ...]


def orders_of(*orders: tuple[str, int]) -> list[tuple[bytes, bytes]]:
    return [(who.encode(), b'{"customer":"%s","amount":%d}' % (who.encode(), n)) for who, n in orders]


def test_the_page_is_a_program_that_runs(world: World, spark: SparkSession, tmp_path: Path) -> None:
    """docs/dataframes.md from its first line to its last, with a broker where it has a client."""
    lake = str(tmp_path / "lake")
    topics = {"orders", "orders-with-city", "clean-orders"}
    for topic in topics & world.kafka.topics():  # of the other engine
        world.kafka.delete_topic(topic)
    wait_until(lambda: not topics & world.kafka.topics(), "they are gone")
    for topic in topics:
        world.kafka.create_topic(topic, 2)
    world.produce("orders", orders_of(("ann", 5), ("bob", 6), ("cat", 7)))
    rows = [("ann", "Bern"), ("bob", "Rome")]
    spark.createDataFrame(rows, "id string, city string").write.parquet(f"{lake}/customers")

    def in_the_lake() -> list[Row]:
        if not Path(lake, "orders-with-city", "_spark_metadata", "0").exists():
            return []
        found = spark.read.parquet(f"{lake}/orders-with-city").select("key", "city").collect()
        return sorted((row.key, row.city) for row in found)

    class Patient(KafkaStreams):
        """Running, and done with what there is."""

        def wait_until_running(self, timeout: timedelta = timedelta(minutes=2)) -> None:
            super().wait_until_running(timeout)
            wait_until(lambda: len(in_the_lake()) == 3, "all orders are in the lake", 60)

    names: dict[str, Any] = {
        "config": {
            "application.id": world.name("page"),
            "bootstrap.servers": world.kafka.bootstrap_servers,
            "state.dir": str(tmp_path / "state"),
        }
    }
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 5
    for number, block in enumerate(blocks):
        block = block.replace('"lake/', f'"{lake}/')  # Spark's Java process is in another directory
        exec(compile(block, str(PAGE), "exec"), names)
        if number == 0:
            names["KafkaStreams"] = Patient
    assert names["changed"] == 0  # it was read when the query started, a moment before
    assert in_the_lake() == [("ann", "Bern"), ("bob", "Rome"), ("cat", None)]


def wait_for(warehouse: Warehouse, *expected: Row, after: int = 0) -> None:
    """Until a writer has written so many rows; then they are these."""
    what = f"{len(expected)} rows are written"
    wait_until(lambda: len(warehouse.rows) >= after + len(expected), what, 90)
    assert warehouse.rows[after:] == list(expected)


class Warehouse:
    """Where a writer puts micro-batches; it can be closed."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[Row]]] = []
        self.closed = False

    def take(self, rows: DataFrame, number: int) -> None:
        found = sorted((row.value.amount, row.value.city) for row in rows.collect())
        if found:
            self.batches.append((number, found))
        if self.closed:
            raise ConnectionRefusedError("the warehouse is closed")

    @property
    def rows(self) -> list[Row]:
        """By amount, which is the order in which they were written to the source."""
        return sorted(row for _, batch in self.batches for row in batch)


def program(source: str, rows: list[Row], warehouse: Warehouse, **options: Any) -> Topology:
    builder = StreamsBuilder()
    serde = Serdes.json("customer STRING, amount BIGINT")
    orders = builder.stream(source, Consumed.with_(Serdes.string(), serde))
    customers = builder.from_dataframe(
        lambda spark: spark.createDataFrame(list(rows), "id string, city string"),
        "id",
        named="customers",
        **options,
    )
    joined = orders.left_join(
        customers,
        lambda order: order.customer,
        lambda order, customer: {"amount": order.amount, "city": customer.city},
    )
    joined.to_spark(lambda df: df.writeStream.foreachBatch(warehouse.take), named="warehouse")
    return builder.build()


def test_a_writer_and_a_table_live_with_their_client(world: World, spark: SparkSession) -> None:
    """Exactly once: refreshed while it runs, seen in metadata, failed, replaced, closed and started again."""
    source = world.topic("orders", 1)
    rows: list[Row] = [("ann", "Bern")]
    warehouse = Warehouse()
    failures: list[tuple[BaseException, FailureContext]] = []

    def handler(error: BaseException, context: FailureContext) -> StreamThreadExceptionResponse:
        failures.append((error, context))
        warehouse.closed = False
        return StreamThreadExceptionResponse.REPLACE_THREAD

    client = world.created(
        program(source, rows, warehouse), processing_guarantee="exactly_once_v2", num_stream_threads=2
    )
    client.set_uncaught_exception_handler(handler)
    client.start()
    client.wait_until_running(timedelta(seconds=90))
    world.produce(source, orders_of(("ann", 1)))
    wait_for(warehouse, (1, "Bern"))

    # A refresh takes effect with what comes behind it, whole; one with doubles has none.
    rows[:] = [("ann", "Basel"), ("bob", "Rome")]
    assert client.refresh_table("customers") == 2
    rows.append(("bob", "Oslo"))
    with pytest.raises(StreamsException, match="customers: 1 key has more than one row"):
        client.refresh_table("customers")
    rows.pop()
    world.produce(source, orders_of(("ann", 2), ("bob", 3)))
    wait_for(warehouse, (2, "Basel"), (3, "Rome"), after=1)

    pipelines = {
        each.name: each for thread in client.metadata_for_local_threads() for each in thread.pipelines
    }
    assert set(pipelines) == {"p0", "p2"}
    assert pipelines["p2"].running
    assert {at.topic for at in pipelines["p2"].position} == {f"{world.name('app')}-warehouse-repartition"}
    assert client.health.ready

    # A failure of the writer reaches the handler, and its micro-batch is repeated with the same records.
    warehouse.closed = True
    world.produce(source, orders_of(("bob", 4)))
    wait_for(warehouse, (4, "Rome"), (4, "Rome"), after=3)
    ((error, context),) = failures
    assert context.pipeline == "p2"
    assert isinstance(error.__cause__, ConnectionRefusedError)
    numbers = [number for number, _ in warehouse.batches]
    assert numbers[-1] == numbers[-2]

    # Its checkpoint is with the client's, and survives.
    client.close()
    again = Warehouse()
    rows[:] = [("ann", "Chur")]
    client = world.client(
        program(source, rows, again, refresh_on_start=False), processing_guarantee="exactly_once_v2"
    )
    world.produce(source, orders_of(("ann", 5), ("bob", 6)))
    wait_for(again, (5, "Basel"), (6, "Rome"))  # nobody has refreshed since
    assert again.batches[0][0] > numbers[-1]
    assert client.refresh_table("customers") == 2
    world.produce(source, orders_of(("ann", 7), ("bob", 8)))
    wait_for(again, (7, "Chur"), (8, None), after=2)
