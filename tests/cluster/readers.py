"""Threads that read a client's store of counts without a pause, in every way, and check what they get.

A count never goes down: a store that comes back after it was away, or is restored, has at least what it had.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from millstream import InvalidStateStoreException, KafkaStreams, QueryableStoreTypes, StoreQueryParameters

__all__ = ["Readers"]

METHODS = ("get", "get", "multi_get", "range", "all", "reverse", "half", "in")
PARAMETERS = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())


class Readers:
    """So many threads; `stop()` says what they met.

    Args:
        keys: what the store's keys are among.
    """

    def __init__(self, client: KafkaStreams, keys: Sequence[str], threads: int) -> None:
        self._client = client
        self._keys = tuple(keys)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._reads: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._wrong: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"reader-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> dict[str, Any]:
        """End the threads; reads by method, refusals by class, and what was not right."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)
        alive = [thread.name for thread in self._threads if thread.is_alive()]
        return {"reads": self._reads, "refused": self._refused, "wrong": self._wrong, "alive": alive}

    def _run(self, number: int) -> None:
        random = Random(number)
        reads: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        seen: dict[str, int] = {}
        store: Any = None
        try:
            while not self._stopping.is_set():
                try:
                    if store is None:
                        store = self._client.store(PARAMETERS)
                    method = random.choice(
                        ("get", "get", "multi_get", "range", "all", "reverse", "half", "in")
                    )
                    for key, count in self._read(store, method, random):
                        if key not in self._keys or count < seen.get(key, 0):
                            self._tell(f"{method}: {key} is {count} after {seen.get(key)}")
                        seen[key] = count
                    reads[method] += 1
                except InvalidStateStoreException as error:
                    refused[type(error).__name__] += 1
                    if type(error) is InvalidStateStoreException:
                        self._tell(f"KIP-216's parent was raised: {error}")
                    if not error.retriable:
                        store = None  # as the exception's documentation says
                    self._stopping.wait(0.001)
        except BaseException as error:
            self._tell(f"{type(error).__name__}: {error}")
        with self._lock:
            self._reads += reads
            self._refused += refused

    def _read(self, store: Any, method: str, random: Random) -> Iterable[tuple[str, int]]:
        key = random.choice(self._keys)
        match method:
            case "get":
                count = store.get(key)
                return [] if count is None else [(key, count)]
            case "multi_get":
                keys = random.sample(self._keys, 5)
                return [(key, n) for key, n in zip(keys, store.multi_get(keys), strict=True) if n is not None]
            case "range":
                low, high = sorted(random.sample(self._keys, 2))
                return self._in_order(store.range(low, high), backward=False)
            case "all":
                return self._in_order(store.all(), backward=False)
            case "reverse":
                return self._in_order(store.reverse_all(), backward=True)
            case "half":
                with store.all() as entries:
                    return [next(entries)] if entries.has_next() else []
            case _:
                return [(key, 0)] if key in store and key not in self._keys else []

    def _in_order(self, iterator: Any, *, backward: bool) -> list[tuple[str, int]]:
        with iterator:
            entries = list(iterator)
        keys = [key for key, _ in entries]
        if keys != sorted(keys, reverse=backward) or len(set(keys)) != len(keys):
            self._tell(f"not in order, or twice: {keys}")
        return entries

    def _tell(self, what: str) -> None:
        with self._lock:
            if len(self._wrong) < 20:
                self._wrong.append(what)
