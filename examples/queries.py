"""Query the stores of a running program in every way. Start it twice, query either client, and kill one.

.venv/bin/millstream kafka --port 9092 --topic orders:2
.venv/bin/python examples/send_orders.py
.venv/bin/python examples/queries.py 8081
.venv/bin/python examples/queries.py 8082
curl localhost:8082/v1/stores/totals/keys/ann
"""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orders import order
from pyspark.sql import functions as F

from millstream import (
    Consumed,
    InvalidStateStoreException,
    KafkaStreams,
    Materialized,
    QueryableStoreTypes,
    Serdes,
    StoreQueryParameters,
    StreamsBuilder,
    TimeWindows,
)
from millstream.server import RemoteStore

builder = StreamsBuilder()
by_customer = builder.stream("orders", Consumed.with_(Serdes.string(), order)).group_by(
    lambda key, order: order.customer
)
by_customer.aggregate(lambda customer, order: F.sum(order.amount), Materialized.as_("totals"))
by_customer.windowed_by(TimeWindows.of_size_with_no_grace(timedelta(minutes=1))).count(
    Materialized.as_("orders-per-minute").with_retention(timedelta(hours=1))
)
topology = builder.build()

PER_MINUTE = StoreQueryParameters.from_name_and_type("orders-per-minute", QueryableStoreTypes.window_store())


def look(streams: KafkaStreams, everywhere: RemoteStore) -> None:
    """Print what this client has, and what all clients have together."""
    now = datetime.now(UTC)
    for customer in ("ann", "bob", "eve"):
        place = streams.query_metadata_for_key("totals", customer)
        print(f"{customer}: {everywhere.get(customer)} in all, on {place.active_host}")
    with streams.store(PER_MINUTE).fetch_all(now - timedelta(minutes=5), now) as windows:
        for (customer, window), count in windows:
            print(f"  {window.start:%H:%M} {customer}: {count} orders")
    print(streams.sql("select count(*) as customers, sum(value) as amount from totals").to_pylist())


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8081
    here = Path("build") / "example-queries"
    config = {
        "application.id": "orders-queries",
        "bootstrap.servers": "localhost:9092",
        "client.id": f"client-{port}",
        "state.dir": str(here / str(port)),
        "num.standby.replicas": 1,
        "keep.spark.warm": True,
        "application.server": f"localhost:{port}",
        "query.server.enabled": True,
    }
    with (
        KafkaStreams(topology, config) as streams,
        RemoteStore(f"http://localhost:{port}", "totals") as totals,
    ):
        streams.wait_until_running(timedelta(minutes=2))
        while streams.wait(timedelta(seconds=5)) is not KafkaStreams.State.NOT_RUNNING:  # Ctrl-C ends it
            try:
                look(streams, totals)
            except InvalidStateStoreException as error:
                print(f"not now: {error}")
