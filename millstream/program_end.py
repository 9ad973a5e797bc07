"""How a program ends: the order, the effect of SIGTERM, and what a forked child leaves alone.

*The end of the program* (main returns, `sys.exit`, Ctrl-C, an exception): open clients are closed, in
parallel, and only then the JVMs that they use. Python calls `atexit` functions in the reverse order of their
registration. With separate registrations, Spark's JVM, which a client starts, would end before the client,
which would treat that as a failure. So there is one hook here, which knows the order and moves to the front
with each client and JVM.

*SIGTERM* is how Kubernetes, Docker and systemd end a program. While `terminable` is active on the main
thread, and the program has no handler of its own, it raises `Terminated` there, as Ctrl-C raises
KeyboardInterrupt: `with` blocks and `finally` clauses run, and the exit status is 143, as for a JVM after its
shutdown hooks.

*A forked child* has copies of the parent's objects but none of its threads, and shares its files and sockets.
It must close nothing, because that would affect the parent's connections to brokers, JVM and databases.
Native destructors must not even run: they wait for threads that do not exist, or end the child with SIGSEGV.
See `leave_to_parent` and `close_in_child`.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from types import FrameType
from typing import Any, ParamSpec, Protocol, TypeVar

from millstream.errors import IllegalStateException

__all__ = [
    "Terminable",
    "Terminated",
    "at_once_next_time",
    "clients",
    "close_after_clients",
    "close_client",
    "close_in_child",
    "forget",
    "is_parents",
    "leave_to_parent",
    "terminable",
    "wait",
]

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_CLIENTS_S = 10.0
"""How long the end of the program waits for all its clients together."""


class Terminated(SystemExit):
    """SIGTERM came. The exit status is the one that shells, Docker and Kubernetes show for it: 143."""

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__(128 + number)


class _Ending:
    """An open client, and a thread that will close it when the program ends.

    From Python 3.12 on, no thread can be started at that time, so this one is started earlier; it costs
    nothing while it waits. With these threads, clients are closed in parallel, up to a deadline.
    """

    def __init__(
        self, client: object, name: str, close: Callable[[], object], parts: tuple[object, ...]
    ) -> None:
        self.client = client
        self.parts = parts
        self.name = name
        self._close = close
        self._decided = threading.Event()
        self._wanted = False
        self._thread = threading.Thread(target=self._run, name=f"{name}-ProgramEnd", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        self._wanted = True
        self._decided.set()

    def is_done(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def cancel(self) -> None:
        """The client is closed: end the thread."""
        self._decided.set()
        if self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def _run(self) -> None:
        self._decided.wait()
        if self._wanted:
            try:
                self._close()
            except Exception:
                log.exception("closing client '%s' at the end of the program", self.name)


_guard = threading.Lock()
_clients: dict[int, _Ending] = {}
_engines: dict[int, tuple[object, Callable[[], object]]] = {}
_in_child: dict[int, tuple[object, Callable[[], object]]] = {}
_natives: weakref.WeakSet[Any] = weakref.WeakSet()
_threads_kept = False
_parent = 0
"""In a forked child: its parent, if that has libraries with threads, which a child cannot use."""
_masks = threading.local()
"""The signals that a thread had blocked before it forked."""
_lost: dict[int, tuple[object, str]] = {}
"""In a forked child: the parent's clients. They are kept, so that no other object gets their ids."""


# --- the end of the program ------------------------------------------------------------------------------


def close_client(client: object, name: str, close: Callable[[], object], *parts: object) -> None:
    """Have a client closed when the program ends, unless `forget` is called first.

    Args:
        close: closes it, or waits until it is closed. It runs on a thread of its own.
        parts: further objects of the client that a forked child cannot use either.

    Raises:
        IllegalStateException: this process was forked from one that has run a client.
    """
    if _parent:
        raise IllegalStateException(
            f"client '{name}' cannot start in process {os.getpid()}, which was forked from {_parent} after a "
            f"client had run there: RocksDB's threads exist only in the parent. Start a separate process for "
            f"it "
            "(subprocess, or multiprocessing's 'spawn'), or fork before the parent's first client starts"
        )
    ending = _Ending(client, name, close, parts)
    with _guard:
        _clients[id(client)] = ending
    _to_the_front()


def clients() -> tuple[object, ...]:
    """The open clients, in the order of their starts."""
    with _guard:
        return tuple(ending.client for ending in _clients.values())


def close_after_clients(engine: object, close: Callable[[], object]) -> None:
    """Have something closed when the program ends, after all clients, which need it until then."""
    with _guard:
        _engines[id(engine)] = (engine, close)
    _to_the_front()


def forget(thing: object) -> None:
    """Something is closed, so nothing is left to do for it, at the end or in a child. Idempotent."""
    with _guard:
        ending = _clients.pop(id(thing), None)
        _engines.pop(id(thing), None)
        _in_child.pop(id(thing), None)
    if ending is not None:
        ending.cancel()


def _to_the_front() -> None:
    """Run before everything registered so far, such as by libraries that the clients use."""
    atexit.unregister(_end)
    atexit.register(_end)


def _end() -> None:
    with _guard:
        clients = tuple(_clients.values())
        engines = tuple(_engines.values())
    with at_once_next_time():
        for ending in clients:
            ending.begin()
        deadline = time.monotonic() + _CLIENTS_S
        for ending in clients:
            if not ending.is_done(max(0.0, deadline - time.monotonic())):
                log.warning(
                    "client '%s' did not close within %g s; the program exits without waiting for it",
                    ending.name,
                    _CLIENTS_S,
                )
        for _, close in reversed(engines):
            try:
                close()
            except Exception:
                log.exception("closing at the end of the program")


# --- signals ---------------------------------------------------------------------------------------------


class Terminable:
    """While this is active, SIGTERM raises `Terminated` on the main thread.

    It does nothing on other threads, which cannot handle signals, or if the program has its own handler or
    ignores the signal. The first SIGTERM restores the default, so a second one ends the program at once.
    """

    def __init__(self) -> None:
        self._holds = False

    def hold(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)
            self._holds = True

    def let_go(self) -> None:
        """Idempotent."""
        held, self._holds = self._holds, False
        if held and signal.getsignal(signal.SIGTERM) is _terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def __enter__(self) -> Terminable:
        self.hold()
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()


def terminable(function: Callable[P, T]) -> Callable[P, T]:
    """`Terminable` while a function runs."""

    @wraps(function)
    def wrapped(*arguments: P.args, **named: P.kwargs) -> T:
        with Terminable():
            return function(*arguments, **named)

    return wrapped


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise Terminated(number)


@contextmanager
def at_once_next_time() -> Iterator[None]:
    """While closing is in progress because of one signal, Ctrl-C ends the program at once, as a second
    SIGTERM does."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def wait(ended: threading.Event, timeout_s: float | None, *, close: Callable[[], object], owner: str) -> None:
    """Wait for an event; close on Ctrl-C and on SIGTERM.

    Raises:
        Terminated: SIGTERM came, and it has been closed.
    """
    with Terminable():
        try:
            ended.wait(timeout_s)
        except (KeyboardInterrupt, Terminated) as asked:
            what = "SIGTERM" if isinstance(asked, Terminated) else "Ctrl-C"
            log.info("%s %s: closing; a second signal ends the program at once", owner, what)
            with at_once_next_time():
                close()
            if isinstance(asked, Terminated):
                raise


# --- forks -----------------------------------------------------------------------------------------------


class _Shared(Protocol):
    """What a child shares with its parent: a file or a socket."""

    def close(self) -> object: ...


def close_in_child(owner: object, *shared: _Shared | Callable[[], object]) -> None:
    """Have a forked child close its copies of files and sockets; call `forget(owner)` once they are closed.

    Otherwise a child that outlives its parent would keep a port occupied, or a pipe open whose closing should
    end another process.

    Args:
        shared: objects with `close()`, or functions. They must only touch the child's own descriptors.
    """

    def close_all() -> None:
        for one in shared:
            with suppress(Exception):
                one() if callable(one) else one.close()

    with _guard:
        _in_child[id(owner)] = (owner, close_all)


def leave_to_parent(native: object, *, keeps_threads: bool = False) -> None:
    """Never destroy this object in a forked child: it holds a database or a client of a C library.

    Its destructor would wait for threads that only the parent has, or end the child with SIGSEGV.

    Args:
        keeps_threads: its library keeps threads until the process ends, even after the object is closed. A
            forked child then cannot use the library at all.
    """
    global _threads_kept
    _threads_kept |= keeps_threads
    _natives.add(native)


def is_parents(client: object) -> bool:
    """Whether this process is a forked child and the client belongs to its parent."""
    return id(client) in _lost


def _become_child() -> None:
    """Runs in a child, right after the fork. Nothing here may wait, log, or communicate."""
    global _guard, _parent
    _guard = threading.Lock()  # a thread that the child lacks may hold the old one
    atexit.unregister(_end)
    if signal.getsignal(signal.SIGTERM) is _terminate:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _let_sigterm_through()
    for native in list(_natives):
        _never_destroy(native)
    for _, close in list(_in_child.values()):
        close()
    for ending in list(_clients.values()):
        _never_destroy(ending.client)
        _lost[id(ending.client)] = (ending.client, ending.name)
        for part in (ending.client, *ending.parts):
            _refuse(part, ending.name)
    _clients.clear()
    _engines.clear()
    _in_child.clear()
    _natives.clear()
    if _threads_kept and not _parent:
        _parent = os.getppid()
        _skip_destructors_of_libraries()


def _skip_destructors_of_libraries() -> None:
    """Have the process end without the destructors that C++ libraries have registered so far.

    RocksDB's destructor joins its threads, which do not exist here. Later registrations still run, and Python
    has finished by then, including `atexit` and the flushing of its streams. Only C libraries with `on_exit`
    provide the exit status; elsewhere (macOS) the destructors do run.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "on_exit"):
        library.on_exit(library._exit, None)
        library.__cxa_atexit(library.fflush, None, None)  # runs before it, because the last one comes first


def _never_destroy(thing: object) -> None:
    # A reference that is never released; a list would be gone too soon, because modules lose their globals.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _refuse(thing: object, name: str) -> None:
    """Make each later use of an object raise."""
    parent, child = os.getppid(), os.getpid()
    message = (
        f"client '{name}' belongs to process {parent}, and this is {child}, which was forked from it. A "
        f"forked process cannot use its parent's client. Query it through its query server, or pass the data "
        f"to the child"
    )

    kind = type(thing).__name__

    class OfParent(type(thing)):  # type: ignore[misc]  # known when it runs
        def __getattribute__(self, attribute: str) -> Any:
            if attribute.startswith("__"):
                return object.__getattribute__(self, attribute)
            raise IllegalStateException(message)

        def __repr__(self) -> str:
            return f"<{kind} of client '{name}', of process {parent}>"

    with suppress(TypeError):  # a class with slots cannot be changed; is_parents() then decides
        thing.__class__ = OfParent


def _hold_sigterm_back() -> None:
    """A SIGTERM that a child gets before it has its own handling would be lost: Python forgets it."""
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _let_sigterm_through() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_sigterm_back, after_in_parent=_let_sigterm_through, after_in_child=_become_child
    )
