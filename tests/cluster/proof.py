"""What the programs of app.py's `build_proof` have to have written, and whether they have: once."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import cast

from cluster_world import Cluster, read_committed
from confluent_kafka import Producer
from waiting import wait_until

__all__ = ["PROGRAMS", "Proof", "entries_of"]

PROGRAMS = ("map", "count", "windows", "chain")
Entry = tuple[str, bytes, int]
Check = Callable[[list[Entry]], list[str]]


def entries_of(servers: str, topic: str) -> tuple[list[Entry], bool]:
    """Key, value and partition of every record that a reader of committed records finds, in order of offsets;
    and whether there is something behind them that is not committed yet, nor taken back.
    """
    messages, behind = read_committed(servers, topic)
    entries = [
        ((each.key() or b"").decode(), each.value() or b"", each.partition() or 0) for each in messages
    ]
    return entries, behind > 0


class Proof:
    """One source, one output for each program, and what was written to the source.

    Args:
        programs: some of PROGRAMS.
    """

    def __init__(self, cluster: Cluster, programs: Iterable[str] = PROGRAMS, partitions: int = 3) -> None:
        self.cluster = cluster
        self.source = cluster.topic("in", partitions)
        self.outputs = {program: cluster.topic(f"out-{program}", 2) for program in programs}
        self.words: Counter[str] = Counter()
        self.ids: set[str] = set()
        self._numbers = itertools.count()

    def spec(self) -> dict[str, object]:
        """What a client of it is started with."""
        return {"source": self.source, "proof": self.outputs, "handler": "patient", "store": "counts"}

    def id_of(self, word: str) -> str:
        """The key of the next record with this value; it counts as written."""
        key = f"{next(self._numbers)}-{word}"
        self.words[word] += 1
        self.ids.add(key)
        return key

    def write(self, words: Iterable[str]) -> None:
        """Records that are to be there once. They come at once, so that a micro-batch has all of them."""
        writer = self._writer
        writer.begin_transaction()
        for word in words:
            writer.produce(self.source, key=self.id_of(word).encode(), value=word.encode())
        writer.commit_transaction(60)

    @cached_property
    def _writer(self) -> Producer:
        writer = Producer(
            {
                "bootstrap.servers": self.cluster.servers,
                "transactional.id": f"{self.cluster.application_id}-writer",
                "log_level": 2,
            }
        )
        writer.init_transactions(60)
        return writer

    def expect_what_is_there(self) -> None:
        """Whatever became of the writer's records: what the source has is what the clients have to have."""
        entries, _ = entries_of(self.cluster.servers, self.source)
        self.words = Counter(value.decode() for _, value, _ in entries)
        self.ids = {key for key, _, _ in entries}
        assert len(self.ids) == len(entries), "the writer has written a record twice"

    def wrong(self) -> Iterator[list[str]]:
        """What is not as it has to be, by now: the findings of each topic that has any."""
        judged = [
            (topic, cast("Check", getattr(self, f"_{program}"))) for program, topic in self.outputs.items()
        ]
        for program, store in (("count", "counts"), ("chain", "chained")):
            if program in self.outputs:
                judged.append((f"{self.cluster.application_id}-{store}-changelog", self._last))
        for topic, check in judged:
            if wrong := self._judged(topic, check):
                yield wrong

    def settle(self, what: str, timeout_s: float) -> None:
        """Wait until all is there, and exactly that. What is there twice would never become right again."""

        def right() -> bool:
            wrong = next(self.wrong(), [])
            twice = [each for each in wrong if "more than once" in each or "were there before" in each]
            assert not twice, f"{what}: {twice}"
            return not wrong

        try:
            wait_until(right, what, timeout_s, every_s=0.1)
        except AssertionError as error:
            everything = [each for wrong in self.wrong() for each in wrong]
            raise AssertionError(f"{error}; by now: {everything}") from error

    def _judged(self, topic: str, check: Check) -> list[str]:
        entries, is_open = entries_of(self.cluster.servers, topic)
        wrong = [f"{topic}: {each}" for each in check(entries)]
        return [*wrong, f"{topic}: a transaction is open"] if is_open else wrong

    def _map(self, entries: list[Entry]) -> list[str]:
        times = Counter(key for key, _, _ in entries)
        often = sorted(key for key, count in times.items() if count > 1)
        lost, strange = self.ids - times.keys(), times.keys() - self.ids
        return [
            f"{what}: {len(which)} such as {sorted(which)[:5]}"
            for what, which in (("more than once", often), ("lost", lost), ("of nobody", strange))
            if which
        ]

    def _count(self, entries: list[Entry]) -> list[str]:
        return [*_repeated(entries), *self._last(entries)]

    def _chain(self, entries: list[Entry]) -> list[str]:
        return self._count(entries)

    def _windows(self, entries: list[Entry]) -> list[str]:
        sums: Counter[str] = Counter()
        for key, count in _last_values(entries).items():
            sums[key.partition("@")[0]] += count
        return [*_repeated(entries), *_differing(sums, self.words)]

    def _last(self, entries: list[Entry]) -> list[str]:
        return _differing(_last_values(entries), self.words)


def _last_values(entries: list[Entry]) -> dict[str, int]:
    return {key: int.from_bytes(value, "big", signed=True) for key, value, _ in entries}


def _differing(there: dict[str, int] | Counter[str], expected: Counter[str]) -> list[str]:
    wrong = {
        key: (there.get(key, 0), expected.get(key, 0))
        for key in sorted({*there, *expected})
        if there.get(key, 0) != expected.get(key, 0)
    }
    return [f"last values (there, expected): {wrong}"] if wrong else []


def _repeated(entries: list[Entry]) -> list[str]:
    """Updates of a count that do not grow: it only ever counts up."""
    seen: dict[str, int] = defaultdict(int)
    wrong = []
    for key, value, _ in entries:
        count = int.from_bytes(value, "big", signed=True)
        if count <= seen[key]:
            wrong.append(f"{key}: {count} after {seen[key]}")
        seen[key] = count
    return [f"updates that were there before: {wrong[:5]}"] if wrong else []
