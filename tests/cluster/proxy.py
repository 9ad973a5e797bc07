"""A broker that is reached through a proxy, which can fail as networks do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["Proxy"]


class Proxy:
    """Between clients and the broker: connections can be cut, and held up. On a thread of its own."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open: set[asyncio.StreamWriter] = set()
        self._refuses = False
        self._loop = asyncio.new_event_loop()
        self._flows = asyncio.Event()
        self._flows.set()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()

    def _tell(self, function: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(function)

    def cut(self, *, refuse: bool = False) -> None:
        """Reset every connection; and refuse new ones, until `heal`."""

        def reset() -> None:
            self._refuses = refuse
            for writer in list(self._open):
                writer.transport.abort()

        self._tell(reset)

    def hold(self) -> None:
        """Forward nothing, until `heal`."""
        self._tell(self._flows.clear)

    def heal(self) -> None:
        def go_on() -> None:
            self._refuses = False
            self._flows.set()

        self._tell(go_on)

    def close(self) -> None:
        def end() -> None:
            self._server.close()
            for writer in list(self._open):
                writer.transport.abort()
            self._loop.stop()

        self._tell(end)
        self._thread.join(5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, back}
        try:
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        finally:
            self._open -= {writer, back}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(65536):
                await self._flows.wait()
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()
