"""What the programs of proof_programs.py have to have written, and whether they have: once."""

from __future__ import annotations

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial

from cluster_world import Cluster, read_committed
from confluent_kafka import Producer
from waiting import wait_until

__all__ = ["JOINS", "PROGRAMS", "WINDOWS", "Proof", "entries_of"]

PROGRAMS = ("map", "count", "windows", "chain")
WINDOWS = ("sessions", "final")
JOINS = ("table", "global", "stream", "tables", "foreign", "grouped")
STORES = {"count": "counts", "chain": "chained", "table": "matched"}
"""The stores that have the count of each value, by program."""
ROUND_MS = 10_000
"""How far the records of two calls of `write` are apart, in event time: the windows of `final` close."""
WINDOW_MS = 5_000
Entry = tuple[str, bytes, int]
Check = Callable[[list[Entry]], list[str]]

_JOINED: dict[str, Callable[[str, str], tuple[str, str]]] = {
    "table": lambda name, word: (word, f"{name} row of {word}"),
    "global": lambda name, word: (name, f"{word} row of {word}"),
    "stream": lambda name, word: (name, f"{word} {word}"),
    "tables": lambda name, word: (name, f"{word} 1"),
    "foreign": lambda name, word: (name, f"{word} row of {word}"),
}
"""What comes of a record in the output of a join: key and value."""


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
        programs: some of PROGRAMS, WINDOWS, JOINS, and "processed".
        words: the values of all records, if they are joined.
        once: whether nothing may be there twice; else an output may have a record more than once.
    """

    def __init__(
        self,
        cluster: Cluster,
        programs: Iterable[str] = PROGRAMS,
        partitions: int = 3,
        *,
        words: Iterable[str] = (),
        once: bool = True,
    ) -> None:
        self.cluster = cluster
        self.source = cluster.topic("in", partitions)
        self.outputs = {program: cluster.topic(f"out-{program}", 2) for program in programs}
        self.words: Counter[str] = Counter()
        self.ids: set[str] = set()
        self.rounds: list[Counter[str]] = []
        self.once = once
        self._numbers = itertools.count()
        self._began_ms = int(time.time() * 1000) // ROUND_MS * ROUND_MS
        self._read: dict[str, object] = {}
        if any(program in JOINS for program in programs):
            self._read = {name: cluster.topic(name, partitions) for name in ("rows", "everywhere")}
            like_java = {
                "partitioner": "murmur2_random"
            }  # as repartition topics are, which are joined with it
            writer = Producer({"bootstrap.servers": cluster.servers, "log_level": 2, **like_java})
            for topic, word in itertools.product(self._read.values(), words):
                writer.produce(str(topic), key=word.encode(), value=f"row of {word}".encode(), timestamp=1)
            assert writer.flush(60) == 0

    def spec(self) -> dict[str, object]:
        """What a client of it is started with."""
        store = next((STORES[program] for program in STORES if program in self.outputs), "places")
        return {
            "source": self.source,
            "proof": self.outputs,
            "handler": "patient",
            "store": store,
            **self._read,
        }

    def id_of(self, word: str) -> str:
        """The key of the next record with this value; it counts as written."""
        key = f"{next(self._numbers)}-{word}"
        self.words[word] += 1
        self.ids.add(key)
        return key

    def write(self, words: Iterable[str], *, same_round: bool = False) -> None:
        """Records that are to be there once. They come at once, so that a micro-batch has all of them."""
        words = list(words)
        if not same_round or not self.rounds:
            self.rounds.append(Counter())
        self.rounds[-1].update(words)
        at_ms = self._began_ms + len(self.rounds) * ROUND_MS
        writer = self._writer
        writer.begin_transaction()
        for place, word in enumerate(words):
            key = self.id_of(word).encode()
            writer.produce(self.source, key=key, value=word.encode(), timestamp=at_ms + place % 1000)
        writer.commit_transaction(60)

    def broker_restarted(self) -> None:
        """A producer of librdkafka may not find an only broker again (kafka/patience.py)."""
        self.__dict__.pop("_writer", None)

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
        checks: dict[str, Check] = {
            "map": lambda entries: self._each(key for key, _, _ in entries),
            "count": self._counted,
            "chain": self._counted,
            "windows": lambda entries: [*self._repeated(entries), *_differing(_sums(entries), self.words)],
            "sessions": lambda entries: _differing(_sums(entries), self.words),
            "final": self._final,
            "grouped": self._last,  # a row that moves is removed and added, so counts go up and down
            "processed": self._processed,
            **{program: partial(self._joined, program) for program in _JOINED},
        }
        judged = [(topic, checks[program]) for program, topic in self.outputs.items()]
        judged += [
            (f"{self.cluster.application_id}-{store}-changelog", self._last)
            for program, store in STORES.items()
            if program in self.outputs
        ]
        for topic, check in judged:
            if wrong := self._judged(topic, check):
                yield wrong

    def results(self) -> int:
        """How many records there are in all outputs."""
        return sum(len(entries_of(self.cluster.servers, topic)[0]) for topic in self.outputs.values())

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

    def _each(self, found: Iterable[str]) -> list[str]:
        """What is wrong about keys that should be those of all records."""
        times = Counter(found)
        lost, strange = self.ids - times.keys(), times.keys() - self.ids
        return [
            *self._often(times),
            *(
                f"{what}: {len(which)} such as {sorted(which)[:5]}"
                for what, which in (("lost", lost), ("of nobody", strange))
                if which
            ),
        ]

    def _often(self, times: Counter[str]) -> list[str]:
        often = sorted(key for key, count in times.items() if count > 1) if self.once else []
        return [f"more than once: {len(often)} such as {often[:5]}"] if often else []

    def _counted(self, entries: list[Entry]) -> list[str]:
        return [*self._repeated(entries), *self._last(entries)]

    def _last(self, entries: list[Entry]) -> list[str]:
        return _differing(_last_values(entries), self.words)

    def _final(self, entries: list[Entry]) -> list[str]:
        """The counts of all rounds but the last one, whose window is open."""
        closed = sum(self.rounds[:-1], Counter())
        return [*self._often(Counter(key for key, _, _ in entries)), *_differing(_sums(entries), closed)]

    def _joined(self, program: str, entries: list[Entry]) -> list[str]:
        found, wrong = [], []
        for key, value, _ in entries:
            text = value.decode()
            name = text.partition(" ")[0] if program == "table" else key
            if (key, text) != _JOINED[program](name, name.partition("-")[2]):
                wrong.append(f"of nobody: {key}={text}")
            found.append(name)
        return [*wrong[:5], *self._each(found)]

    def _processed(self, entries: list[Entry]) -> list[str]:
        """Each record's place among those of its value in its partition; and the windows that there were."""
        partition_of = {
            key: partition for key, _, partition in entries_of(self.cluster.servers, self.source)[0]
        }
        places: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
        wrong = self._each(key for key, _, _ in entries)
        for key, value, _ in entries:
            word, place, windows = value.decode().split()
            places[word, partition_of.get(key, -1)].add(int(place))
            if place != windows or word != key.partition("-")[2]:
                wrong.append(f"of nobody: {key}={value.decode()}")
        expected = Counter(
            (key.partition("-")[2], partition_of[key]) for key in self.ids & partition_of.keys()
        )
        for where, there in places.items():
            if there != set(range(1, expected[where] + 1)):
                what = "counted too often" if max(there) > expected[where] else "places"
                wrong.append(f"{what}: {where} has {sorted(there)}, of {expected[where]} records")
        return wrong[:5]

    def _repeated(self, entries: list[Entry]) -> list[str]:
        """Updates of a count that do not grow: it only ever counts up."""
        if not self.once:
            return []
        seen: dict[str, int] = defaultdict(int)
        wrong = []
        for key, value, _ in entries:
            count = int.from_bytes(value, "big", signed=True)
            if count <= seen[key]:
                wrong.append(f"{key}: {count} after {seen[key]}")
            seen[key] = count
        return [f"updates that were there before: {wrong[:5]}"] if wrong else []


def _last_values(entries: list[Entry]) -> dict[str, int]:
    """The last value of each key that has not been deleted since."""
    last: dict[str, int] = {}
    for key, value, _ in entries:
        if value:
            last[key] = int.from_bytes(value, "big", signed=True)
        else:
            last.pop(key, None)
    return last


def _sums(entries: list[Entry]) -> Counter[str]:
    """The last values of each key `w3@start`, added up by `w3`."""
    sums: Counter[str] = Counter()
    for key, count in _last_values(entries).items():
        sums[key.partition("@")[0]] += count
    return sums


def _differing(there: dict[str, int] | Counter[str], expected: Counter[str]) -> list[str]:
    wrong = {
        key: (there.get(key, 0), expected.get(key, 0))
        for key in sorted({*there, *expected})
        if there.get(key, 0) != expected.get(key, 0)
    }
    what = "counted too often" if any(found > wanted for found, wanted in wrong.values()) else "last values"
    return [f"{what} (there, expected): {wrong}"] if wrong else []
