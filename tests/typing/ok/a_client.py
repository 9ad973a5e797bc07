"""A client: what its handles, queries and handlers are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from millstream import (
    FailureContext,
    KafkaStreams,
    KeyQuery,
    QueryableStoreTypes,
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyWindowStore,
    StateQueryRequest,
    StoreQueryParameters,
    StreamsBuilder,
    StreamsUncaughtExceptionResponse,
    UncaughtExceptionPolicy,
)

config: dict[str, Any] = {"application.id": "orders", "bootstrap.servers": "localhost:9092"}


def decide(error: BaseException, context: FailureContext) -> StreamsUncaughtExceptionResponse:
    return StreamsUncaughtExceptionResponse.REPLACE_THREAD


def changed(new: KafkaStreams.State, old: KafkaStreams.State) -> None:
    print(new, old)


with KafkaStreams(StreamsBuilder().build(), config) as streams:
    streams.set_uncaught_exception_handler(decide)
    streams.set_uncaught_exception_handler(lambda error: StreamsUncaughtExceptionResponse.SHUTDOWN_CLIENT)
    streams.set_uncaught_exception_handler(UncaughtExceptionPolicy.replace(max_failures=5))
    streams.set_state_listener(changed)
    assert_type(streams.wait(timedelta(seconds=1)), KafkaStreams.State)

    of_keys = StoreQueryParameters.from_name_and_type("totals", QueryableStoreTypes.key_value_store())
    assert_type(streams.store(of_keys), ReadOnlyKeyValueStore[Any, Any])
    assert_type(streams.store(of_keys.with_partition(1)), ReadOnlyKeyValueStore[Any, Any])
    of_windows = StoreQueryParameters.from_name_and_type("hourly", QueryableStoreTypes.window_store())
    assert_type(streams.store(of_windows), ReadOnlyWindowStore[Any, Any])
    of_sessions = StoreQueryParameters.from_name_and_type("visits", QueryableStoreTypes.session_store())
    assert_type(streams.store(of_sessions), ReadOnlySessionStore[Any, Any])

    totals: ReadOnlyKeyValueStore[str, int] = streams.store("totals")
    assert_type(totals.get("ann"), int | None)
    for key, total in totals.all():
        assert_type(key, str)
        assert_type(total, int)
    result = streams.query(StateQueryRequest.in_store("totals").with_query(KeyQuery.with_key("ann")))
    print(result.only_partition_result, streams.health, streams.sql("select * from totals"))


async def look(totals: ReadOnlyKeyValueStore[str, int]) -> None:
    assert_type(await totals.get_async("ann"), int | None)
    async for key, total in totals.range_async("a", "c"):
        assert_type((key, total), tuple[str, int])
