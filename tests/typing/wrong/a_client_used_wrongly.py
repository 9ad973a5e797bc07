"""What a client and its stores refuse."""

from __future__ import annotations

from millstream import (
    KafkaStreams,
    QueryableStoreTypes,
    StoreQueryParameters,
    StreamsBuilder,
    TimeWindows,
)

streams = KafkaStreams(StreamsBuilder().build(), {"application.id": "orders"})
totals = streams.store(
    StoreQueryParameters.from_name_and_type("totals", QueryableStoreTypes.key_value_store())
)
totals.put("ann", 1)  # refused
totals.fetch("ann", 0, 10)  # refused
streams.store(3)  # refused
streams.wait(5)  # refused
streams.set_uncaught_exception_handler("replace")  # refused
StoreQueryParameters.from_name_and_type("totals", "key-value")  # refused
TimeWindows.of_size_with_no_grace(300)  # refused
StreamsBuilder().build().describe().nothing()  # refused
