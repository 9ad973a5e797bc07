"""Threads that read a client's stores of counts without a pause, in every way, and check what they get.

A count never goes down: a store that comes back after it was away, or is restored, has at least what it had.
That of a session is another one when the session has grown; of those the order is checked.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from random import Random
from typing import Any, Protocol

from millstream import InvalidStateStoreException, KafkaStreams, QueryableStoreTypes, StoreQueryParameters

__all__ = ["STORES", "Readers"]

Counted = tuple[str, Hashable, int]
"""A key, what of it was counted (a window's start), and the count."""


class NotRight(Exception):
    """A reader got what no reader should get."""


class Reads(Protocol):
    """The ways to read one kind of store."""

    parameters: StoreQueryParameters[Any]
    methods: tuple[str, ...]

    def read(self, store: Any, method: str, keys: Sequence[str], random: Random) -> list[Counted]: ...


class KeyValueReads:
    """Of the store `counts`."""

    parameters = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
    methods = ("get", "get", "multi_get", "range", "all", "reverse", "half", "in")

    def read(self, store: Any, method: str, keys: Sequence[str], random: Random) -> list[Counted]:
        return [(key, None, count) for key, count in self._read(store, method, keys, random)]

    def _read(self, store: Any, method: str, keys: Sequence[str], random: Random) -> list[tuple[str, int]]:
        key = random.choice(keys)
        match method:
            case "get":
                count = store.get(key)
                return [] if count is None else [(key, count)]
            case "multi_get":
                some = random.sample(keys, 5)
                return [(key, n) for key, n in zip(some, store.multi_get(some), strict=True) if n is not None]
            case "range":
                low, high = sorted(random.sample(keys, 2))
                return _all_of(store.range(low, high), lambda entry: entry[0])
            case "all":
                return _all_of(store.all(), lambda entry: entry[0])
            case "reverse":
                return _all_of(store.reverse_all(), lambda entry: entry[0], backward=True)
            case "half":
                with store.all() as entries:
                    return [next(entries)] if entries.has_next() else []
            case _:
                return [(key, 0)] if key in store and key not in keys else []


class WindowReads:
    """Of the store `windows`."""

    parameters = StoreQueryParameters.from_name_and_type("windows", QueryableStoreTypes.window_store())
    methods = ("key", "key", "backward", "keys", "all", "window")

    def read(self, store: Any, method: str, keys: Sequence[str], random: Random) -> list[Counted]:
        key = random.choice(keys)
        match method:
            case "key":
                found = _all_of(store.fetch(key, 0, FOR_EVER), lambda entry: entry[0])
                return [(key, start, count) for start, count in found]
            case "backward":
                entries = store.backward_fetch(key, 0, FOR_EVER)
                found = _all_of(entries, lambda entry: entry[0], backward=True)
                return [(key, start, count) for start, count in found]
            case "keys":
                low, high = sorted(random.sample(keys, 2))
                return self._counted(store.fetch(low, high, 0, FOR_EVER))
            case "all":
                return self._counted(store.all())
            case _:
                with store.backward_fetch(key, 0, FOR_EVER) as entries:
                    start = next(entries)[0] if entries.has_next() else 0
                count = store.fetch(key, start)
                return [] if count is None else [(key, start, count)]

    def _counted(self, entries: Any) -> list[Counted]:
        found = _all_of(entries, None)
        if len({(where.key, where.window.start) for where, _ in found}) != len(found):
            raise NotRight(f"a window twice: {found}")
        return [(where.key, where.window.start, count) for where, count in found]


class SessionReads:
    """Of the store `sessions`."""

    parameters = StoreQueryParameters.from_name_and_type("sessions", QueryableStoreTypes.session_store())
    methods = ("key", "backward", "find", "keys")

    def read(self, store: Any, method: str, keys: Sequence[str], random: Random) -> list[Counted]:
        key = random.choice(keys)
        backward = False
        match method:
            case "key":
                entries = store.fetch(key)
            case "backward":
                entries, backward = store.backward_fetch(key), True
            case "find":
                entries = store.find_sessions(key, 0, FOR_EVER)
            case _:
                low, high = sorted(random.sample(keys, 2))
                found = _all_of(store.fetch(low, high), None)
                return [(where.key, where.window, count) for where, count in found]
        found = _all_of(
            entries, lambda entry: (entry[0].window.end, entry[0].window.start), backward=backward
        )
        return [(where.key, where.window, count) for where, count in found]


FOR_EVER = 2**53
STORES: dict[str, Reads] = {"counts": KeyValueReads(), "windows": WindowReads(), "sessions": SessionReads()}


def _all_of(iterator: Any, order: Any, *, backward: bool = False) -> list[Any]:
    with iterator:
        entries = list(iterator)
    if order is not None:
        keys = [order(entry) for entry in entries]
        if keys != sorted(keys, reverse=backward) or len(set(keys)) != len(keys):
            raise NotRight(f"not in order, or twice: {keys}")
    return entries


class Readers:
    """So many threads; `stop()` says what they met.

    Args:
        keys: what the stores' keys are among.
        stores: names of `STORES`; the threads take them in turns.
    """

    def __init__(
        self, client: KafkaStreams, keys: Sequence[str], threads: int, stores: Sequence[str] = ("counts",)
    ) -> None:
        self._client = client
        self._keys = tuple(keys)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._reads: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._wrong: list[str] = []
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(number, stores[number % len(stores)]),
                name=f"reader-{number}",
                daemon=True,
            )
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> dict[str, Any]:
        """End the threads; reads by store and method, refusals by class, and what was not right."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)
        alive = [thread.name for thread in self._threads if thread.is_alive()]
        return {"reads": self._reads, "refused": self._refused, "wrong": self._wrong, "alive": alive}

    def _run(self, number: int, name: str) -> None:
        random = Random(number)
        reads: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        seen: dict[tuple[str, Hashable], int] = {}
        try:
            for method, found in self._without_pause(name, random, refused):
                for key, part, count in found:
                    if key not in self._keys or count < seen.get((key, part), 1):
                        self._tell(f"{name}.{method}: {key} {part} is {count} after {seen.get((key, part))}")
                    seen[key, part] = count
                reads[f"{name}.{method}"] += 1
        except BaseException as error:
            self._tell(f"{name}: {type(error).__name__}: {error}")
        with self._lock:
            self._reads += reads
            self._refused += refused

    def _without_pause(
        self, name: str, random: Random, refused: Counter[str]
    ) -> Iterator[tuple[str, list[Counted]]]:
        ways = STORES[name]
        store: Any = None
        while not self._stopping.is_set():
            try:
                if store is None:
                    store = self._client.store(ways.parameters)
                method = random.choice(ways.methods)
                found = ways.read(store, method, self._keys, random)
            except InvalidStateStoreException as error:
                refused[type(error).__name__] += 1
                if type(error) is InvalidStateStoreException:
                    self._tell(f"KIP-216's parent was raised: {error}")
                if not error.retriable:
                    store = None  # as the exception's documentation says
                self._stopping.wait(0.001)
            else:
                yield method, found

    def _tell(self, what: str) -> None:
        with self._lock:
            if len(self._wrong) < 20:
                self._wrong.append(what)
