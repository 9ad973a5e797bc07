"""What a client keeps going beside its stream threads ends with the client."""

from __future__ import annotations

import threading

import pytest
from fake_world import FakeWorld
from scenes import SOON, SOON_S, Handler, Make, ended
from waiting import wait_until

from millstream.runtime.client import KafkaStreams
from millstream.runtime.state.failure import StreamThreadExceptionResponse as Response
from millstream.states import State

KINDS = {"CleanupThread", "RocksDBMetrics"}


def background(client: KafkaStreams) -> set[str]:
    """Which of its cleaner and its recorder of metrics are alive."""
    alive = {thread.name for thread in threading.enumerate()}
    return {kind for kind in KINDS if f"{client.client_id}-{kind}" in alive}


@pytest.mark.parametrize("response", [Response.SHUTDOWN_CLIENT, Response.SHUTDOWN_APPLICATION])
def test_the_cleaner_and_the_metrics_thread_stop_with_the_client(
    member: Make, world: FakeWorld, response: Response
) -> None:
    """KIP-671, of both responses that end clients: they are over by the time the listener is told ERROR."""
    clients = [member("one"), member("two")]
    at_the_end: dict[str, set[str]] = {}
    for client in clients:
        client.set_uncaught_exception_handler(Handler(response))

        def note(new: State, _: State, client: KafkaStreams = client) -> None:
            if new is State.ERROR:
                at_the_end[client.client_id] = background(client)

        client.set_state_listener(note)
        client.start()
        client.wait_until_running(SOON)
        assert background(client) == KINDS
    world.engine.end("p0")
    failed = wait_until(lambda: [each for each in clients if each.failures], "one has failed", SOON_S)
    stopped = clients if response is Response.SHUTDOWN_APPLICATION else failed
    for client in stopped:
        assert ended(client) is State.ERROR
    assert at_the_end == {client.client_id: set() for client in stopped}
    for client in set(clients) - set(stopped):
        assert background(client) == KINDS
