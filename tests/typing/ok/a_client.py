"""A client: what its handles, queries and handlers are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from millstream import (
    FailureContext,
    KafkaStreams,
    KeyQuery,
    PositionBound,
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
from millstream.server import RemoteStore

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


async def look_back(hourly: ReadOnlyWindowStore[str, int], visits: ReadOnlySessionStore[str, int]) -> None:
    assert_type(await hourly.fetch_async("ann", 0), Any)
    async for windowed, total in hourly.fetch_all_async(None, None):
        assert_type((windowed.key, total), tuple[str, int])
    async for _, total in hourly.backward_fetch_async("ann", None, None):
        assert_type(total, int)
    async for visit, total in visits.find_sessions_async("ann", None, None):
        assert_type((visit.key, total), tuple[str, int])
    async for visit, total in visits.find_sessions_async("ann", "bob", None, None):
        assert_type((visit.key, total), tuple[str, int])


async def look_from_afar(totals: RemoteStore) -> None:
    assert_type(await totals.get_async("ann"), Any)
    assert_type(totals.approximate_num_entries(), int)
    async for entry in totals.range_async("a", "c"):
        assert_type(entry.key, Any)


async def change(client: KafkaStreams) -> None:
    assert_type(await client.position_bound_now_async("totals"), PositionBound)
    assert_type(await client.refresh_table_async("rates"), int)
    assert_type(await client.remove_stream_thread_async(timedelta(seconds=5)), str | None)
    await client.reset_async("latest", dry_run=True)
