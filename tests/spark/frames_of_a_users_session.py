"""A program with a Spark session of its own, and a DataFrame that it made before anything of Millstream's.

Prints what becomes of it, a line each: handed over, not handed over, and after its session has ended.
"""

from __future__ import annotations

from typing import Any

import pyspark
from pyspark.sql import SparkSession

from millstream import Consumed, IllegalStateException, Serdes, StreamsBuilder, StreamsException
from millstream.jars import connector_set, ensure_jars
from millstream.testing import TopologyTestDriver

ROWS = "select 'ann' as id, 'Bern' as city"


def joined(frame: Any, spark: SparkSession | None) -> str:
    """What an order of ann's is joined with."""
    builder = StreamsBuilder()
    customers = builder.from_dataframe(frame, "id")
    orders = builder.stream("orders", Consumed.with_(Serdes.string(), Serdes.string()))
    orders.join(customers, lambda order: order, lambda order, row: row.city).to("out")
    try:
        with TopologyTestDriver(builder.build(), spark=spark) as driver:
            driver.create_input_topic("orders", Serdes.string(), Serdes.string()).pipe_input("1", "ann")
            found = driver.create_output_topic("out", Serdes.string(), Serdes.string())
            return str(found.read_value())
    except (StreamsException, IllegalStateException) as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    jars = ",".join(map(str, ensure_jars(connector_set(pyspark.__version__))))
    own = (
        SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    )
    session = own.getOrCreate()
    made = session.sql(ROWS)
    print(joined(made, session))
    print(joined(lambda spark: spark.sql(ROWS), session))
    print(joined(made, None))
    session.stop()
    print(joined(made, None))
    print(joined(lambda spark: spark.sql(ROWS), None))


if __name__ == "__main__":
    main()
