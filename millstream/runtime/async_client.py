"""The client's methods for coroutines: `KafkaStreams` inherits them.

Each is one of the client's methods with `_async` appended to its name, and does the same: it takes the same
arguments and raises the same exceptions. Nothing here blocks the event loop (coroutines.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from millstream import program_end
from millstream.clock import seconds_of
from millstream.coroutines import Wait, awaited, run
from millstream.dsl.frames import DataFrameTable
from millstream.foreign import ESCAPED
from millstream.model import TopicPartition
from millstream.query.parameters import StoreQueryParameters
from millstream.query.position import PositionBound
from millstream.query.request import StateQueryRequest
from millstream.query.result import StateQueryResult
from millstream.runtime.close_options import CloseOptions
from millstream.runtime.reset.reset_plan import ResetPlan, To
from millstream.states import State

__all__ = ["AsyncClient"]

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)

T = TypeVar("T")
Client = TypeVar("Client", bound="AsyncClient")

_ENDING_S = 30.0
"""How long leaving `async with` waits for a client that ends by a failure."""


class AsyncClient:
    """The methods of `KafkaStreams` for coroutines.

    Any event loop may use a client, and several may; so may threads at the same time.
    """

    _client_id: str
    _terminable: program_end.Terminable
    _until_ended: Callable[[timedelta | None], Wait[State]]
    _until_running: Callable[[timedelta], Wait[None]]
    _until_queryable: Callable[[str | StoreQueryParameters[Any], timedelta], Wait[None]]
    _until_closed: Callable[[float | None], Wait[bool]]
    state: Any
    start: Callable[[], None]
    close: Callable[..., bool]
    query: Callable[..., Any]
    sql: Callable[..., Any]
    position_bound_now: Callable[[str], PositionBound]
    position_bound_after: Callable[..., PositionBound]
    clean_up: Callable[..., None]
    reset: Callable[..., ResetPlan]
    remove_stream_thread: Callable[[timedelta | None], str | None]
    refresh_table: Callable[[DataFrameTable | str], int]

    async def start_async(self) -> None:
        """`start()` for coroutines. Cancelling it closes the client, and waits until that is done."""
        if not self.state.has_not_started:
            self.start()  # raises, at once
        try:
            await self._call(self.start, "Start")
        except asyncio.CancelledError:
            log.info("stream-client [%s] start() was cancelled; closing", self._client_id)
            await self.close_async()
            raise

    async def close_async(self, timeout: timedelta | CloseOptions | None = None) -> bool:
        """`close()` for coroutines. Cancelling it ends the waiting; the client closes in the background."""
        given = timeout.timeout if isinstance(timeout, CloseOptions) else timeout
        seconds = None if given is None else seconds_of(given)
        closed = await self._call(partial(self.close, timedelta(0)), "Close")
        if closed or seconds == 0 or self.state in (State.PENDING_ERROR, State.ERROR):
            return closed
        return await awaited(self._until_closed(seconds))

    async def wait_async(self, timeout: timedelta | None = None) -> State:
        """`wait()` for coroutines. Signals are the event loop's: see docs/asyncio.md."""
        return await awaited(self._until_ended(timeout))

    async def wait_until_running_async(self, timeout: timedelta = timedelta(minutes=2)) -> None:
        """`wait_until_running()` for coroutines."""
        await awaited(self._until_running(timeout))

    async def wait_until_queryable_async(
        self, store: str | StoreQueryParameters[Any], timeout: timedelta = timedelta(minutes=2)
    ) -> None:
        """`wait_until_queryable()` for coroutines."""
        await awaited(self._until_queryable(store, timeout))

    async def query_async(
        self, request: StateQueryRequest[Any], *, wait: timedelta = timedelta(0)
    ) -> StateQueryResult[Any]:
        """`query()` for coroutines."""
        result: StateQueryResult[Any] = await self._call(partial(self.query, request, wait=wait), "Query")
        return result

    async def sql_async(
        self,
        query: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        timeout: timedelta = timedelta(seconds=30),
        memory_limit: str = "1GB",
    ) -> Any:
        """`sql()` for coroutines."""
        ask = partial(self.sql, query, parameters, timeout=timeout, memory_limit=memory_limit)
        return await self._call(ask, "Query")

    async def position_bound_now_async(self, store: str) -> PositionBound:
        """`position_bound_now()` for coroutines."""
        return await self._call(partial(self.position_bound_now, store), "Query")

    async def position_bound_after_async(
        self,
        store: str,
        written: Mapping[TopicPartition, int],
        timeout: timedelta = timedelta(seconds=30),
    ) -> PositionBound:
        """`position_bound_after()` for coroutines."""
        return await self._call(partial(self.position_bound_after, store, written, timeout), "Query")

    async def clean_up_async(self) -> None:
        """`clean_up()` for coroutines. Cancelling it does not stop it: it finishes in the background."""
        await self._call(self.clean_up, "CleanUp")

    async def reset_async(
        self,
        to: To = "earliest",
        *,
        topics: Sequence[str] | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> ResetPlan:
        """`reset()` for coroutines. Cancelling it does not stop it: it finishes in the background."""
        ask = partial(self.reset, to, topics=topics, dry_run=dry_run, force=force)
        return await self._call(ask, "Reset")

    async def remove_stream_thread_async(self, timeout: timedelta | None = None) -> str | None:
        """`remove_stream_thread()` for coroutines. Cancelling it does not keep the thread from ending."""
        return await self._call(partial(self.remove_stream_thread, timeout), "RemoveThread")

    async def refresh_table_async(self, table: DataFrameTable | str) -> int:
        """`refresh_table()` for coroutines. Cancelling it does not stop it: it finishes in the background."""
        return await self._call(partial(self.refresh_table, table), "Refresh")

    async def _call(self, call: Callable[[], T], what: str) -> T:
        return await run(call, thread=f"{self._client_id}-Async{what}")

    async def __aenter__(self: Client) -> Client:
        self._terminable.hold()
        try:
            await self.start_async()
        except BaseException:
            self._terminable.let_go()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if program_end.is_parents(self):
            return  # a forked child leaves the block
        try:
            if self.state in (State.PENDING_ERROR, State.ERROR):
                await awaited(self._until_closed(_ENDING_S))
            else:
                await self.close_async()
        finally:
            self._terminable.let_go()
