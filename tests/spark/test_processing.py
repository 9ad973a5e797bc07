"""The worker's half of processors: what a store shows of its chunk, and when processors are made anew."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from millstream.model import StoreKind
from millstream.processors.api import Processor, ProcessorContext, PunctuationType, Record
from millstream.processors.graph import Child, Graph, Input, Outside, ProcessorSpec, StoreSpec
from millstream.serdes.serdes import Serdes
from millstream.spark.worker.processing import NO_TIME, Processing, ProcessorError, _Entries

KEYS = st.binary(max_size=2)
ENTRIES = st.dictionaries(KEYS, st.binary(max_size=2), max_size=80)


class Kept:
    """What the kernel has of one store, and how often it was asked."""

    keys: tuple[bytes, ...] = ()

    def __init__(self, entries: dict[bytes, bytes], own: bytes | None = None) -> None:
        self.entries = entries
        self.own = own
        self.asked: list[str] = []

    def is_own(self, key: bytes) -> bool:
        return key == self.own

    def ask(self, what: int, number: int, *keys: bytes | None, limit: int = 0, reverse: bool = False) -> Any:
        self.asked.append(chr(what))
        if chr(what) == "o":
            return [self.entries.get(key) for key in self.keys]
        if chr(what) == "g":
            return [self.entries.get(key or b"") for key in keys]
        first, end = keys
        found = [
            (key, value)
            for key, value in sorted(self.entries.items(), reverse=reverse)
            if (first is None or key >= first) and (end is None or key < end)
        ]
        page = found[: min(limit, 40)]  # a page of large values ends early
        return [each for entry in page for each in entry], [len(page) == len(found)]


@given(ENTRIES, st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=2))), KEYS, KEYS, st.booleans())
@settings(max_examples=examples(300))
def test_a_range_shows_what_is_kept_and_what_was_put_since(
    kept: dict[bytes, bytes], puts: list[tuple[bytes, bytes | None]], first: bytes, end: bytes, reverse: bool
) -> None:
    """In the order of bytes, over several pages, deletions included; and so does a get."""
    store = _Entries(0, Kept(kept))  # type: ignore[arg-type]
    expected: dict[bytes, bytes | None] = dict(kept)
    for number, (key, value) in enumerate(puts):
        store.put(key, value)
        expected[key] = value
        if number % 3 == 0:
            list(store.range(None, None))
    there = sorted((key, value) for key, value in expected.items() if value is not None)
    bounded = [(key, value) for key, value in there if first <= key < end]
    assert list(store.range(None, None)) == there
    assert list(store.range(first, end, reverse)) == bounded[:: -1 if reverse else 1]
    assert {key: store.get(key) for key in expected} == expected


def test_an_entry_that_nobody_touches_is_shown_once_while_others_change() -> None:
    """A range is read in pages, and what is put meanwhile does not disturb it."""
    kept = {b"%03d" % number: b"" for number in range(0, 400, 2)}
    store = _Entries(0, Kept(kept))  # type: ignore[arg-type]
    store.put(b"001", b"")
    seen: list[bytes] = []
    for key, _ in store.range(None, None):
        seen.append(key)
        number = int(key)
        if number % 10 == 0:
            store.put(b"%03d" % (number + 6), None)
            store.put(b"%03d" % (number + 3), b"")
    untouched = [key for key in [*kept, b"001"] if int(key) % 10 != 6]
    assert sorted(key for key in seen if key in untouched) == sorted(untouched)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_range_goes_on_when_what_was_put_has_gone_to_the_kernel(reverse: bool) -> None:
    """A processor that keeps an iterator from one record to another, whose chunks differ."""
    entries: dict[bytes, bytes] = {b"b": b"2"}
    store = _Entries(0, Kept(entries))  # type: ignore[arg-type]
    for key in (b"a", b"c", b"d"):
        store.put(key, b"9")
    read = store.range(None, None, reverse)
    seen = [next(read)]
    entries |= {key: value for key, value in store.written.items() if value is not None}
    store.begin()
    store.put(b"c", None)
    seen += read
    assert [key for key, _ in seen if key != b"c"] == sorted((b"a", b"b", b"d"), reverse=reverse)


def test_the_first_get_of_a_records_own_key_brings_those_of_all() -> None:
    """Otherwise each would cost a round trip."""
    kept = Kept({b"a": b"1", b"b": b"2"}, own=b"a")
    kept.keys = (b"a", b"b", b"c")
    store = _Entries(0, kept)  # type: ignore[arg-type]
    assert [store.get(key) for key in kept.keys] == [b"1", b"2", None]
    assert kept.asked == ["o"]
    store.begin()
    kept.own = None
    assert [store.get(key) for key in (b"a", b"a")] == [b"1", b"1"]
    assert kept.asked == ["o", "g"]


class Counting(Processor):
    """Forwards how many records this very object has had."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.count = 0

    def process(self, record: Record) -> None:
        self.count += 1
        self.context.get_state_store("store").put(record.key, record.value)
        self.context.forward(record.with_value(str(self.count)))

    def close(self) -> None:
        CLOSED.append(self.count)


CLOSED: list[int] = []


def counting() -> Processing:
    text = Serdes.string()
    return Processing(
        Graph(
            "app",
            (ProcessorSpec("p", Counting, children=(Child(0, outside=True),), stores=(0,)),),
            (Input("in", (0,), text, text),),
            (Outside("out", text, text),),
            (StoreSpec("store", StoreKind.KEY_VALUE, text, text),),
        ),
        0,
    )


class Nobody:
    def __call__(self) -> None: ...

    def ask(self, frames: Any) -> Any:
        raise AssertionError("nobody is to be asked")


def call(program: Processing, run: str, batch: int, before: int, first: int = 1) -> Iterator[str]:
    """A chunk of one record; what came of it."""
    record = [(0,), [b"k"], [b"v"], (5,), [b"in"], (0,), (0,), (7,), (), [], [], ()]
    frames = [[run.encode(), b""], (0, batch, before, NO_TIME, first), *record]
    made = program(frames, Nobody())
    assert made[8:11] == [array("i", [0]), (b"k",), ((5).to_bytes(8, "big") + b"v",)]
    assert list(made[12]) == [b"k"]
    yield from (str(value, "utf-8") for value in made[3] if isinstance(value, bytes))


def test_processors_live_as_long_as_no_micro_batch_of_their_task_passes_them() -> None:
    """Another run of the query, a batch again, or one that another worker had: all begin anew, and
    what there was is closed."""
    CLOSED.clear()
    program = counting()
    assert list(call(program, "run", 0, -1)) == ["1"]
    assert list(call(program, "run", 0, -1, first=0)) == ["2"], "the next chunk of a batch"
    assert list(call(program, "run", 4, 0)) == ["3"], "the next one with records of this task"
    assert list(call(program, "run", 4, 0)) == ["1"], "again"
    assert list(call(program, "run", 9, 7)) == ["1"], "another worker had one meanwhile"
    assert list(call(program, "other", 10, 9)) == ["1"]
    assert CLOSED == [3, 1, 1]
    program.close()
    assert CLOSED == [3, 1, 1, 1]


class Failing(Processor):
    """Raises at a record that says so; and whenever it is punctuated, and when it is closed."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(timedelta(milliseconds=5), PunctuationType.STREAM_TIME, self.tell)

    def process(self, record: Record) -> None:
        if record.value == "bad":
            raise ValueError("no")

    def tell(self, now: int) -> None:
        raise ValueError(f"not at {now}")

    def close(self) -> None:
        self.context.get_state_store("store").get("k")


class Filling(Failing):
    def init(self, context: ProcessorContext) -> None: ...


def failing(*, passes_over: bool, fills_globals: bool = False) -> Processing:
    text = Serdes.string()
    kept = StoreSpec("store", StoreKind.KEY_VALUE, text, text)
    given = Input("in", (0,), text, text, is_global=fills_globals)
    supplier = Filling if fills_globals else Failing
    graph = Graph("app", (ProcessorSpec("p", supplier, stores=(0,)),), (given,), stores=(kept,))
    return Processing(graph, 0, passes_over=passes_over)


def chunk(program: Processing, values: list[bytes], *, to: int = 0, batch: int = 0, before: int = -1) -> Any:
    """Records of 5, 6, … ms, with the offsets 7, 8, …"""
    count = len(values)
    times, offsets = tuple(range(5, 5 + count)), tuple(range(7, 7 + count))
    columns = [(to,) * count, [b"k"] * count, values, times, [b"in"], (0,) * count, (0,) * count, offsets]
    frames = [[b"run", b""], (0, batch, before, NO_TIME, 1), *columns, (), [], [], ()]
    return program(frames, Nobody())


def test_what_a_punctuator_raises_is_no_records_failure() -> None:
    """The record that brought the time has been processed."""
    made = chunk(failing(passes_over=True), [b"good", b"bad"])
    assert [list(column) for column in made[16:19]] == [[0, 0], [-1, 1], [b"ValueError", b"ValueError"]]
    assert list(made[19]) == [b"p in task 0_0: not at 5", b"p in task 0_0, at in-0 offset 8: no"]
    with pytest.raises(ProcessorError, match=r"^p in task 0_0: ValueError: not at 5"):
        chunk(failing(passes_over=False), [b"good"])


def test_what_fills_a_global_store_is_not_passed_over() -> None:
    """Kafka Streams does not ask the processing exception handler there; and each client has a copy."""
    with pytest.raises(ProcessorError, match=r"^p in task 0_0, at in-0 offset 7: ValueError: no"):
        chunk(failing(passes_over=True, fills_globals=True), [b"bad"])


def test_a_close_that_fails_is_only_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """Also where it comes before the first record of a task that begins anew. Stores are there no more."""
    program = failing(passes_over=True)
    chunk(program, [b"good"])
    made = chunk(program, [b"good"])
    assert list(made[16]) == [0], "the punctuator of the new processor"
    assert "store 'store' was used while its task was not running" in capfd.readouterr().err
