"""A program that runs a client and ends in one of several ways: `ending_program.py <state.dir> <way> [more]`.

`more` is what the way takes. Each way is a function of this file; it prints what its test looks at.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable

from fake_world import FakeWorld
from scenes import SOON, word_count

from millstream import program_end
from millstream.errors import IllegalStateException
from millstream.runtime.assembly import Assembly
from millstream.runtime.client import KafkaStreams
from millstream.states import State

WORLD = FakeWorld({"lines": 1, "out": 1})


def client(name: str = "app", world: FakeWorld = WORLD) -> KafkaStreams:
    config = {"application.id": name, "bootstrap.servers": "fake:9092", "state.dir": sys.argv[1]}
    return KafkaStreams(word_count(), config, parts=world.parts())


STREAMS = client()


def started(streams: KafkaStreams = STREAMS) -> None:
    streams.start()
    streams.wait_until_running(SOON)


def send(number: int) -> None:
    """Send a signal from a thread, as another process would: when the main thread waits, or soon after."""
    threading.Timer(0.1, os.kill, (os.getpid(), number)).start()


def says(text: object) -> None:
    print(text, flush=True)


def wait_for_a_signal() -> None:
    threading.Event().wait(SOON.total_seconds())


# --- the end of the program ------------------------------------------------------------------------------


def ctrl_c_in_wait() -> None:
    started()
    send(signal.SIGINT)
    says(f"wait gave {STREAMS.wait()} {WORLD.everything_closed}")


def two_clients(how: str) -> None:
    engine = object()
    atexit.register(lambda: says("an earlier hook"))
    started()
    other = client("other", FakeWorld({"lines": 1, "out": 1}))
    started(other)
    program_end.close_after_clients(engine, lambda: says(f"the JVM ends: {STREAMS.state} {other.state}"))
    says("done")
    if how == "exits":
        sys.exit(3)
    if how == "raises":
        raise ValueError("of the program")
    if how == "interrupted":
        send(signal.SIGINT)
        wait_for_a_signal()


def a_client_hangs() -> None:
    program_end._CLIENTS_S = 0.3
    hangs = threading.Event()
    program_end.close_client(hangs, "stuck", hangs.wait)
    program_end.close_after_clients(WORLD, lambda: says("the JVM ends"))


# --- signals ---------------------------------------------------------------------------------------------


def sigterm_in_wait() -> None:
    started()
    send(signal.SIGTERM)
    STREAMS.wait()
    says("not reached")


def sigterm_in_with() -> None:
    with STREAMS:
        STREAMS.wait_until_running(SOON)
        send(signal.SIGTERM)
        try:
            wait_for_a_signal()  # not in wait(): in the program's own code
        finally:
            says("finally")
    says("not reached")


def sigterm_in_both() -> None:
    with STREAMS:
        send(signal.SIGTERM)
        STREAMS.wait()
    says("not reached")


def in_asyncio(name: str) -> None:
    async def main() -> None:
        async with STREAMS:
            await STREAMS.wait_until_running_async(SOON)
            send(signal.Signals[name])
            try:
                await STREAMS.wait_async()
            finally:
                says("finally")

    asyncio.run(main())
    says("not reached")


def sigterm_while_starting() -> None:
    def opening(assembly: Assembly, is_wanted: Callable[[], bool]) -> None:
        send(signal.SIGTERM)
        wait_for_a_signal()

    Assembly.open = opening  # type: ignore[method-assign]
    STREAMS.start()


def two_signals(first: str, second: str) -> None:
    def listen(new: State, old: State) -> None:
        if new is State.PENDING_SHUTDOWN:
            says("closing")
            os.kill(os.getpid(), signal.Signals[second])
            wait_for_a_signal()

    STREAMS.set_state_listener(listen)
    started()
    send(signal.Signals[first])
    STREAMS.wait()


def own_handler() -> None:
    with client("other"):
        pass
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    signal.signal(signal.SIGTERM, lambda *_: (says("my own"), STREAMS.close()))
    with STREAMS:
        send(signal.SIGTERM)
        says(STREAMS.wait())


# --- fork ------------------------------------------------------------------------------------------------


def forks() -> None:
    def status_of(child: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    with STREAMS:
        STREAMS.wait_until_running(SOON)
        program_end.close_after_clients(WORLD, lambda: says("the JVM ends"))
        child = os.fork()
        if not child:
            for use in (lambda: STREAMS.state, lambda: repr(STREAMS), lambda: STREAMS.close()):
                try:
                    says(f"the child: {use()}")
                except IllegalStateException as error:
                    says(f"the child: {error}")
            sys.exit(7)
        says(f"status {status_of(child)}")
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGTERM)
        says(f"status {status_of(child)}")
        with multiprocessing.get_context("fork").Pool(2) as pool:
            says(pool.map(abs, [-1, -2]))
        says(f"the parent: {STREAMS.state}")


WAYS: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (
        ctrl_c_in_wait,
        two_clients,
        a_client_hangs,
        sigterm_in_wait,
        sigterm_in_with,
        sigterm_in_both,
        in_asyncio,
        sigterm_while_starting,
        two_signals,
        own_handler,
        forks,
    )
}

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    WAYS[sys.argv[2]](*sys.argv[3:])
