"""The client's methods for coroutines: `KafkaStreams` inherits them.

Each is one of the client's methods with `_async` appended to its name, and does the same: it takes the same
arguments and raises the same exceptions. Nothing here blocks the event loop (coroutines.py). Those that only
call the method on another thread stand beside it, made by `long_call`; the others are here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial, wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from millstream import program_end
from millstream.clock import seconds_of
from millstream.coroutines import Wait, awaitable, awaited, run
from millstream.foreign import ESCAPED
from millstream.query.parameters import StoreQueryParameters
from millstream.runtime.close_options import CloseOptions
from millstream.states import State

__all__ = ["AsyncClient", "long_call"]

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)

P = ParamSpec("P")
T = TypeVar("T")
Client = TypeVar("Client", bound="AsyncClient")

_ENDING_S = 30.0
"""How long leaving `async with` waits for a client that ends by a failure."""


def long_call(method: Callable[P, T], what: str) -> Callable[P, Coroutine[Any, Any, T]]:
    """A client's method for coroutines, each call on a thread of its own, `<client>-Async<what>`.

    If it is cancelled, the call goes on to its end in the background.
    """

    @wraps(method)
    def overridden(*arguments: P.args, **named: P.kwargs) -> T:
        client, *others = arguments
        result: T = getattr(client, method.__name__)(*others, **named)  # of a subclass, perhaps
        return result

    return awaitable(overridden, lambda client: f"{client._client_id}-Async{what}")


class AsyncClient:
    """What `KafkaStreams` has for coroutines.

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
