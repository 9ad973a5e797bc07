"""The stores of processors in bytes: what they leave behind, and what their changelogs have.

What their methods return is compared with Kafka Streams in test_processor_calls.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from processors.homes import Bytes

from millstream import Serdes, SessionWindow, Windowed
from millstream.model import StoreKind, TimeWindow
from millstream.processors.graph import StoreSpec
from millstream.processors.stores import StoreIterator, store_of
from millstream.stores.keys import session_key, window_key

MINUTE = 60_000
STRINGS = (Serdes.string(), Serdes.string())


class Held:
    """A store, its bytes, and its changelog: the last record of each key."""

    def __init__(self, kind: StoreKind, **more: Any) -> None:
        self.spec = StoreSpec("s", kind, *STRINGS, **more)
        self.bytes = Bytes()
        self.log: dict[bytes, tuple[bytes | None, int]] = {}
        self.records: list[tuple[bytes, bytes | None, int]] = []
        self.scope = SimpleNamespace(live=True, timestamp=7)
        self.store: Any = self.again()

    def again(self) -> Any:
        """The same store in a task that is made anew."""
        self.store = store_of(self.spec, self.bytes, self.scope, self.changed)
        return self.store

    def changed(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        self.log[key] = (value, timestamp)
        self.records.append((key, value, timestamp))


def windows(**more: Any) -> Held:
    return Held(StoreKind.WINDOW, window_size_ms=10, retention_ms=2 * MINUTE, **more)


def sessions() -> Held:
    return Held(StoreKind.SESSION, retention_ms=2 * MINUTE)


def versions(history_ms: int = 1000) -> Held:
    return Held(StoreKind.KEY_VALUE, history_ms=history_ms)


def test_a_changelog_has_the_keys_of_kafkas() -> None:
    """Of windows, whose duplicates are numbered, and of sessions."""
    timed = windows()
    timed.store.put("a\0b", "x", 5)
    assert timed.records == [(window_key(b"a\0b", 5), b"x", 7)]
    several = windows(duplicates=True)
    several.store.put("a", "x", 5)
    several.store.put("a", "y", 5)
    assert several.records == [(window_key(b"a", 5, 1), b"x", 7), (window_key(b"a", 5, 2), b"y", 7)]
    of_sessions = sessions()
    of_sessions.store.put(Windowed("a", SessionWindow(3, 9)), "x")
    assert of_sessions.records == [(session_key(b"a", 3, 9), b"x", 7)]


@pytest.mark.parametrize("make", [windows, sessions])
def test_what_is_older_than_the_retention_goes_a_segment_at_a_time(make: Callable[[], Held]) -> None:
    """The state does not grow with the number of keys."""
    held = make()

    def put(key: str, time: int) -> None:
        if held.spec.kind is StoreKind.WINDOW:
            held.store.put(key, "x", time)
        else:
            held.store.put(Windowed(key, SessionWindow(time, time)), "x")

    sizes = []
    for number in range(300):
        put(f"k{number}", number * 5_000)
        sizes.append(len(held.bytes.content))
    # two minutes, a minute of the segment that is not over, and the store's own entry
    assert max(sizes) <= 3 * MINUTE // 5_000 + 2
    held.again()
    put("late", 299 * 5_000 - 2 * MINUTE)
    assert len(held.bytes.content) == sizes[-1]
    put("early", 299 * 5_000 - 2 * MINUTE + 1)
    assert len(held.bytes.content) == sizes[-1] + 1


def test_versions_are_forgotten_when_no_time_can_ask_for_them() -> None:
    """Those of keys that are never put again, and deletions, as well."""
    held = versions(history_ms=1000)
    for number in range(2_000):
        time = number * 10
        held.store.put(f"k{number % 50}", "x" if number % 3 else None, time)
        held.store.put(f"once{number}", "x", time)
        held.store.put(f"once{number}", None, time + 1)
    # 100 steps of history and a quarter more, each of them four entries at most, and what 50 keys have now
    assert len(held.bytes.content) < 8 * 125 + 60
    assert held.again().get("once5") is None


def test_versions_are_those_of_a_plain_dictionary() -> None:
    """A key has, as of each time in the history, what was put last before it by time."""
    for seed in range(20):
        rng = random.Random(seed)
        held, known, newest = versions(history_ms=300), {}, -1
        for _ in range(200):
            key, time = rng.choice("ab"), max(0, newest + rng.randrange(-400, 60))
            value = rng.choice(["x", "y", "z", None])
            result = held.store.put(key, value, time)
            if time < newest - 300:
                assert result == held.store.PUT_RETURN_CODE_NOT_PUT
                continue
            newest = max(newest, time)
            known[key, time] = value
            later = [other for name, other in known if name == key and other > time]
            assert result == min(later, default=-1)
            at = rng.randrange(max(0, newest - 300), newest + 10)
            before = max((other for name, other in known if name == key and other <= at), default=None)
            found = held.store.get(key, at)
            if before is None or known[key, before] is None:
                assert found is None
            else:
                after = min((other for name, other in known if name == key and other > at), default=None)
                assert (found.value, found.timestamp, found.valid_to) == (known[key, before], before, after)
            if rng.random() < 0.05:
                held.again()


def test_a_range_is_in_the_order_of_keys_and_may_be_written_to() -> None:
    """The range covers all segments. The iterator has Kafka's methods."""
    held = windows()
    for key, start in (("b", 0), ("a", 2 * MINUTE - 1), ("b", MINUTE), ("a", 0), ("c", 5)):
        held.store.put(key, key + str(start), start)
    found = [(entry.key.key, entry.key.window) for entry in held.store.fetch("a", "b", 0, 3 * MINUTE)]
    assert found == [
        ("a", TimeWindow(0, 10)),
        ("a", TimeWindow(2 * MINUTE - 1, 2 * MINUTE + 9)),
        ("b", TimeWindow(0, 10)),
        ("b", TimeWindow(MINUTE, MINUTE + 10)),
    ]
    assert [entry.key.key for entry in held.store.backward_all()] == ["c", "b", "b", "a", "a"]
    for entry in held.store.all():
        held.store.put(entry.key.key, None, entry.key.window.start_ms)
    assert list(held.store.all()) == []


def test_an_iterator_is_asked_as_kafkas_or_as_pythons() -> None:
    """`has_next`, `next`, `peek_next_key` and `close`; or `for` and `with`."""
    held = Held(StoreKind.KEY_VALUE)
    held.store.put_all([("a", "1"), ("b", "2"), ("c", "3")])
    entries: StoreIterator = held.store.all()
    assert entries.has_next()
    assert entries.peek_next_key() == "a"
    assert entries.next() == ("a", "1")
    assert next(entries) == ("b", "2")
    entries.close()
    assert not entries.has_next()
    with pytest.raises(StopIteration):
        entries.peek_next_key()
    with held.store.range("b", None) as rest:
        assert [entry.key for entry in rest] == ["b", "c"]
    assert "a" in held.store
    assert "x" not in held.store
    assert (held.store.name(), held.store.persistent(), held.store.approximate_num_entries()) == (
        "s",
        True,
        3,
    )


def test_times_may_be_datetimes() -> None:
    """They have a time zone, as in queries."""
    held = windows()
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    held.store.put("a", "x", noon)
    assert held.store.fetch("a", noon) == "x"
    (entry,) = held.store.fetch("a", noon - timedelta(seconds=1), noon)
    assert entry == (int(noon.timestamp() * 1000), "x")
    with pytest.raises(ValueError, match="has no time zone"):
        held.store.fetch("a", datetime(2024, 1, 1))


@pytest.mark.parametrize(
    ("told", "used"),
    [
        ("fetch.. takes key and two times", lambda w, s: w.fetch("a")),
        ("backward_fetch.. takes key and two times", lambda w, s: w.backward_fetch("a", 5)),
        ("fetch.. takes a key, or two; got 3", lambda w, s: s.fetch("a", "b", "c")),
        ("find_sessions.. takes a key or two keys, and two times", lambda w, s: s.find_sessions("a")),
        (r"takes Windowed\(key, SessionWindow\(start, end\)\), got 'a'", lambda w, s: s.put("a", "x")),
    ],
)
def test_wrong_arguments_get_a_sentence(told: str, used: Callable[[Any, Any], object]) -> None:
    """It says what the method takes."""
    with pytest.raises(TypeError, match=told):
        used(windows().store, sessions().store)


def test_a_prefix_is_not_none() -> None:
    """Keys are not None either."""
    with pytest.raises(ValueError, match="store 's': a prefix cannot be None"):
        Held(StoreKind.KEY_VALUE).store.prefix_scan(None)
