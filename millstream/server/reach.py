"""What an answer is made from: the stores of this client, the other clients, and threads to wait for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from millstream.query.metadata import HostInfo
from millstream.server.answers import Answer, answer_to
from millstream.server.limits import Limits
from millstream.server.peers import Peers
from millstream.server.places import Places
from millstream.server.reads import LocalStores, QueriedStreams
from millstream.server.workers import Deadline, Workers

__all__ = ["Reach"]

T = TypeVar("T")


class Reach:
    """What one query server can read and ask.

    Attributes:
        stores: those of this client. `places`: who has the others. `peers`: asks them.
    """

    def __init__(
        self,
        streams: QueriedStreams,
        *,
        host: HostInfo | None,
        limits: Limits,
        peers: Peers,
    ) -> None:
        self.limits = limits
        self.stores = LocalStores(streams.store_view)
        self.places = Places(streams, self.stores, host)
        self.peers = peers
        self._readers = Workers(f"{streams.client_id}-QueryReader", limits.readers)

    async def read(self, deadline: Deadline, job: Callable[[], T]) -> T:
        """What `job` gives, from a thread that may block.

        Raises:
            TimeoutException: the time was over before its turn came.
            Exception: what the job raised.
        """

        def checked() -> T:
            deadline.check()  # it may have waited
            return job()

        return await self._readers.run(checked)

    def error(self, error: Exception, host: HostInfo | None = None) -> Answer:
        """The answer to what went wrong. `host`: the client to ask instead, if that may be asked."""
        snapshot = self.stores.snapshot()
        if host is not None and self.peers.refusal(host) is not None:
            host = None
        return answer_to(
            error,
            client_id=snapshot.client_id,
            client_state=snapshot.client_state,
            host=None if host is None else str(host),
        )

    def close(self) -> None:
        """End the threads, and the connections to other clients. Idempotent."""
        self._readers.close(1.0)
        self.peers.close()
