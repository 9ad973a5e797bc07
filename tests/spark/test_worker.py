"""The Python worker of the kernel, at the end of its pipe: frames, failures, and how it ends."""

from __future__ import annotations

import builtins
import os
import pickle
import struct
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from tiers import examples
from waiting import wait_until

from millstream.errors import SerializationException
from millstream.serdes.serdes import Serdes
from millstream.spark.worker.folding import Folding, FoldSerdes
from millstream.spark.worker.program_worker import START, decoded, encoded
from millstream.topology.nodes import Fold

pytestmark = pytest.mark.disk

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}".encode()
COLUMN = st.lists(st.none() | st.binary(max_size=20), max_size=20)


@given(st.lists(COLUMN, max_size=5))
@settings(max_examples=examples(100))
def test_frames_of_byte_strings_come_back_as_they_were(frames: list[list[bytes | None]]) -> None:
    """Empty ones and none at all included."""
    message = encoded(ord("R"), frames)
    assert struct.unpack(">i", message[:4]) == (len(message) - 4,)
    assert message[4:5] == b"R"
    assert decoded(message[5:]) == frames


def test_frames_of_numbers_come_back_as_they_were() -> None:
    """Beside byte strings, of both sizes, and none."""
    frames = struct.pack(">ibi2ibii1s", 2, ord("i"), 2, -1, 2**31 - 1, ord("y"), 1, 1, b"x")
    assert decoded(frames) == [(-1, 2**31 - 1), [b"x"]]
    numbers = [array("i", [-(2**31), 2**31 - 1]), array("q", [-(2**63), 2**63 - 1]), array("q")]
    assert decoded(encoded(ord("A"), [*numbers, [b"x"]])[5:]) == [*map(tuple, numbers), [b"x"]]


@dataclass
class Other:
    """The JVM's end of the pipe."""

    process: subprocess.Popen[bytes]

    def send(self, kind: str, *frames: list[bytes | None]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(encoded(ord(kind), list(frames)))
        self.process.stdin.flush()

    def answer(self) -> tuple[str, list[Any]]:
        assert self.process.stdout is not None
        (size,) = struct.unpack(">i", self.process.stdout.read(4))
        data = self.process.stdout.read(size)
        return chr(data[0]), decoded(data[1:])

    def call(self, kind: str, *frames: list[bytes | None]) -> tuple[str, list[Any]]:
        self.send(kind, *frames)
        return self.answer()

    def load(self, program: Callable[..., Any]) -> None:
        assert self.call("P", [VERSION, cloudpickle.dumps(program)]) == ("A", [])


@pytest.fixture
def other() -> Iterator[Other]:
    command = [sys.executable, "-c", START]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        yield Other(process)
        process.kill()


def reversing() -> Callable[..., Any]:
    """Inside a function, so that it is pickled with its code: the worker cannot import this module."""

    def program(frames: list[Any], alive: Callable[[], None]) -> list[list[bytes | None]]:
        alive()
        return [column[::-1] for column in frames]

    return program


def test_a_program_answers_request_after_request_and_another_takes_its_place(other: Other) -> None:
    """A task has a worker for itself, and the next one may bring another program."""
    other.load(reversing())
    assert other.call("R", [b"a", None], [b""]) == ("A", [[None, b"a"], [b""]])
    other.load(lambda frames, alive: [[b"other"]])
    assert other.call("R", []) == ("A", [[b"other"]])
    other.load(reversing())
    assert other.call("R", [b"x" * 3_000_000, b"y"]) == ("A", [[b"y", b"x" * 3_000_000]])


def test_a_worker_imports_no_more_than_a_program_needs(other: Other) -> None:
    """Neither PySpark nor the rest of Millstream; what a program asks for is there all the same."""

    def imported(frames: list[Any], alive: Callable[[], None]) -> list[list[bytes | None]]:
        names = [name for name in sys.modules if name in ("pyspark", "millstream.config", "pandas")]
        from pyspark import cloudpickle

        assert cloudpickle.dumps(imported)
        return [[name.encode() for name in names]]

    other.load(imported)
    assert other.call("R", []) == ("A", [[]])


class Asking:
    """Asks for what it is to answer with; and says when it is closed."""

    def __call__(self, frames: list[Any], caller: Any) -> list[Any]:
        (first,) = caller.ask([frames[0]])
        (second,) = caller.ask([first, array("i", [7])])
        return [second]

    def close(self) -> None:
        print("closed", file=sys.stderr, flush=True)


def test_a_program_asks_before_it_answers_and_is_told_when_nobody_comes_back(other: Other) -> None:
    """As often as it likes."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        other.load(Asking())
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert other.call("R", [b"1"]) == ("Q", [[b"1"]])
    assert other.call("Y", [b"2"]) == ("Q", [[b"2"], (7,)])
    assert other.call("Y", [b"3"]) == ("A", [[b"3"]])
    assert other.call("C") == ("A", [])
    assert other.process.stderr is not None
    assert other.process.stderr.readline() == b"closed\n"


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "ZeroDivisionError"])
def test_what_a_program_raises_is_told_with_the_place_and_without_frames_of_the_worker(
    other: Other, kind: str
) -> None:
    """Whatever it is; and the worker goes on."""

    def fails(frames: list[Any], alive: Callable[[], None]) -> list[list[bytes | None]]:
        raise getattr(builtins, kind)("bad \udcff text")

    other.load(fails)
    answer, [[told]] = other.call("R", [])
    lines = told.decode().splitlines()
    assert answer == "E"
    assert lines[0] == "Traceback (most recent call last):"
    assert "test_worker.py" in lines[1]
    assert "program_worker.py" not in told.decode().replace("test_worker.py", "")
    assert lines[-1] == f"{kind}: bad \\udcff text"
    other.load(reversing())
    assert other.call("R", [b"a"]) == ("A", [[b"a"]])


def test_a_program_of_another_python_is_refused(other: Other) -> None:
    """Byte code of one version means something else, or nothing, in another."""
    answer, [[told]] = other.call("P", [b"2.7", pickle.dumps(print)])
    assert answer == "E"
    assert b"the program runs with Python 2.7, and Spark's workers with" in told


def test_what_a_program_prints_and_reads_is_not_the_pipe(other: Other) -> None:
    """stdout goes where stderr does; stdin is empty. For what it starts, too."""

    def talks(frames: list[Any], alive: Callable[[], None]) -> list[list[bytes | None]]:
        print("printed", flush=True)
        os.system("echo by a child")
        return [[sys.stdin.read().encode()]]

    other.load(talks)
    assert other.call("R", []) == ("A", [[b""]])
    assert other.process.stdin is not None
    other.process.stdin.close()
    assert other.process.wait(10) == 0
    assert other.process.stderr is not None
    assert other.process.stderr.read() == b"printed\nby a child\n"


@pytest.mark.parametrize("busy", ["while True: pass", "import time; time.sleep(1000)"])
def test_it_ends_with_the_pipe_whatever_a_function_is_doing(other: Other, busy: str) -> None:
    """The JVM may be killed at any moment."""
    other.load(lambda frames, alive: exec(busy))
    other.send("R", [])
    assert other.process.stdin is not None
    other.process.stdin.close()
    wait_until(lambda: other.process.poll() is not None, "the worker's end")
    assert other.process.returncode == 0


def test_ctrl_c_and_sigterm_are_for_the_process_that_started_it(other: Other) -> None:
    """A terminal and systemd tell them to every process, and the client may still need it to close."""
    other.load(reversing())
    for number in (2, 15):
        other.process.send_signal(number)
        assert other.call("R", [b"a"]) == ("A", [[b"a"]])


def test_a_program_that_takes_long_says_that_it_gets_on(other: Other) -> None:
    """At most once a second, however many records there are."""

    def slow(frames: list[Any], alive: Callable[[], None]) -> list[list[bytes | None]]:
        import time

        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            alive()
        return [[b"done"]]

    other.load(slow)
    assert other.call("R", []) == ("B", [])
    assert other.answer() == ("A", [[b"done"]])


STRINGS = FoldSerdes(Serdes.string(), Serdes.string(), Serdes.string())


NOTHING, WANTED, USED_AGAIN = -1, 1, 2


def computed(
    folds: Sequence[tuple[Fold, FoldSerdes]],
    keys: Sequence[tuple[bytes, int]],
    steps: Sequence[tuple[int, int, int, list[bytes | None], int]],
    kept: Sequence[bytes | None] = (),
) -> list[bytes | None]:
    """What a program returns for aggregates: of which key, what each begins with, what is merged into that,
    its records, and whether it is wanted or used again. It tells that it gets on, for each call of a
    function."""
    told: list[int] = []
    frames = [
        [key for key, _ in keys],
        tuple(fold for _, fold in keys),
        *(tuple(step[place] for step in steps) for place in range(3)),
        tuple(len(step[3]) for step in steps),
        tuple(step[4] for step in steps),
        [value for step in steps for value in step[3]],
        list(kept),
    ]
    [wanted] = Folding(dict(enumerate(folds)))(frames, lambda: told.append(1))
    assert len(told) == sum(len(step[3]) + (step[2] != NOTHING) for step in steps)
    return wanted


def test_each_aggregate_is_folded_by_its_own_fold_from_what_it_begins_with() -> None:
    """A fold begins with its initializer, a reduction with the first value; None deletes, and begins anew."""
    joined = Fold(lambda key, value, so_far: None if value == "x" else f"{so_far}{key}{value}", lambda: "<")
    reduced = Fold(lambda one, other: one + other)
    assert computed(
        [(joined, STRINGS), (reduced, STRINGS)],
        [(b"a", 0), (b"b", 1)],
        [
            (0, NOTHING, NOTHING, [b"1", b"2"], WANTED),
            (0, 6, NOTHING, [b"1"], WANTED),
            (0, 6, NOTHING, [b"1", b"x"], WANTED),
            (0, 6, NOTHING, [b"x", b"1"], WANTED),
            (1, NOTHING, NOTHING, [b"1", b"2"], WANTED),
            (1, 6, NOTHING, [b"1"], WANTED),
        ],
        [b"["],
    ) == [b"<a1a2", b"[a1", None, b"<a1", b"12", b"[1"]


def test_aggregates_are_merged_and_what_is_on_the_way_to_others_is_not_returned() -> None:
    """Into what the initializer returns, one after the other. A reduction merges with its own function."""
    merging = Fold(
        lambda key, value, so_far: so_far + value, lambda: "<", lambda key, one, other: f"({one}{key}{other})"
    )
    reduced = Fold(lambda one, other: one + other)
    assert computed(
        [(merging, STRINGS), (reduced, STRINGS)],
        [(b"a", 0), (b"b", 1)],
        [
            (0, NOTHING, NOTHING, [b"1"], 0),
            (0, NOTHING, 0, [], 0),
            (0, 1, 6, [b"2"], WANTED),
            (1, NOTHING, NOTHING, [b"1"], 0),
            (1, NOTHING, 3, [], 0),
            (1, 4, 6, [b"2"], WANTED),
        ],
        [b"K"],
    ) == [b"((<a<1)aK)2", b"1K2"]


def test_a_function_may_change_what_it_is_given() -> None:
    """Others that come from the same aggregate get another copy, and what was returned stays as it was."""

    def append(key: str, value: str, so_far: dict[str, list[str]]) -> dict[str, list[str]]:
        so_far["all"].append(value)
        return so_far

    lists = FoldSerdes(Serdes.string(), Serdes.string(), Serdes.json("all array<string>"))
    assert computed(
        [(Fold(append, lambda: {"all": []}), lists)],
        [(b"a", 0)],
        [
            (0, NOTHING, NOTHING, [b"1"], WANTED | USED_AGAIN),
            (0, 0, NOTHING, [b"2"], WANTED),
            (0, 0, NOTHING, [b"3"], WANTED),
            (0, 2, NOTHING, [b"4"], WANTED),
        ],
    ) == [b'{"all":["1"]}', b'{"all":["1","2"]}', b'{"all":["1","3"]}', b'{"all":["1","3","4"]}']


def test_the_first_record_that_fails_is_the_one_that_is_told() -> None:
    """One behind it that cannot be read has not had its turn."""

    def refuse(key: str, value: int, so_far: str) -> str:
        raise KeyError(value)

    fold = (Fold(refuse, lambda: ""), FoldSerdes(Serdes.string(), Serdes.long(), Serdes.string()))
    one, cut = (1).to_bytes(8, "big"), b"1"
    with pytest.raises(KeyError, match="1"):
        computed([fold], [(b"a", 0)], [(0, NOTHING, NOTHING, [one, cut], WANTED)])
    with pytest.raises(SerializationException, match="long"):
        computed([fold], [(b"a", 0)], [(0, NOTHING, NOTHING, [cut, one], WANTED)])
