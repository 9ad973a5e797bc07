"""The Python process that the kernel starts for a task, to run a program: a function from frames to frames.

The other end is `kernel/src/io/millstream/kernel/python/Worker.java`; `Message.java` beside it describes the
protocol of the pipe between them. A program gets the columns of a request and returns columns: lists of byte
strings or None, or of numbers. Before it answers, it may query its caller (`Caller.ask`).

It imports nothing of Spark, and of Millstream only what programs need, so that it starts quickly.
It ends when the pipe closes, whatever a function is doing then.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import struct
import sys
import threading
import traceback
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from io import BytesIO
from itertools import accumulate, pairwise
from operator import attrgetter
from time import monotonic
from types import ModuleType
from typing import Any, BinaryIO, Protocol, TypeAlias

from millstream.kernel import constants

__all__ = ["START", "Caller", "Column", "Program", "decoded", "encoded", "main"]

START = "from millstream.spark.worker.program_worker import main; main()"
"""What Python runs for a worker."""

Column: TypeAlias = "Sequence[bytes | None] | array[int]"
"""Byte strings, or numbers: of the type `i`, 4 bytes each, or `q`, 8 bytes."""


class Caller(Protocol):
    """Whoever has called a program."""

    def __call__(self) -> None:
        """To be called once for each record: the program is getting on."""

    def ask(self, frames: list[Column]) -> list[Any]:
        """Ask for something, and get the reply."""


Program: TypeAlias = "Callable[[list[Any], Caller], Sequence[Column]]"
"""Frames in, frames out."""

_PROGRAM, _CLOSE = ord(constants.MESSAGE_PROGRAM), ord(constants.MESSAGE_CLOSE)
_ANSWER, _ERROR = ord(constants.MESSAGE_ANSWER), ord(constants.MESSAGE_ERROR)
_ALIVE, _QUESTION = ord(constants.MESSAGE_ALIVE), ord(constants.MESSAGE_QUESTION)
_BYTES, _LONG = ord(constants.FRAME_BYTES), ord(constants.FRAME_LONGS)
_MOST_PROGRAMS = 32
_REPORT_EVERY_S = 1.0


def decoded(data: bytes) -> list[Any]:
    """The frames of a message, from the number of them on."""
    (count,), at = struct.unpack_from(">i", data), 4
    frames: list[Any] = []
    for _ in range(count):
        kind, size = struct.unpack_from(">bi", data, at)
        at += 5
        numbers = struct.unpack_from(f">{size}{chr(kind) if kind == _LONG else 'i'}", data, at)
        at += size * (8 if kind == _LONG else 4)
        if kind != _BYTES:
            frames.append(numbers)
            continue
        has_nulls = size > 0 and min(numbers) < 0
        sizes = [max(0, number) for number in numbers] if has_nulls else numbers
        places = list(accumulate(sizes, initial=at))
        column: list[bytes | None] = [data[start:end] for start, end in pairwise(places)]
        at = places[-1]
        if has_nulls:
            column = [None if number < 0 else item for number, item in zip(numbers, column, strict=True)]
        frames.append(column)
    return frames


def encoded(kind: int, frames: Sequence[Column]) -> bytes:
    """A message with these columns."""
    parts = [struct.pack(">bi", kind, len(frames))]
    for column in frames:
        if isinstance(column, array):
            code = column.typecode
            parts.append(struct.pack(f">bi{len(column)}{code}", ord(code), len(column), *column))
            continue
        sizes = [-1 if item is None else len(item) for item in column]
        parts.append(struct.pack(f">bi{len(sizes)}i", _BYTES, len(sizes), *sizes))
        parts += [item for item in column if item]
    data = b"".join(parts)
    return struct.pack(">i", len(data)) + data


def main() -> None:
    """Answer requests until the pipe ends."""
    requests, answers = _pipe()
    _end_with(requests)
    # The one that starts and ends this process is the JVM, by the pipe; systemd and Ctrl-C signal everybody.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    # A chunk makes some ten thousand objects at once, which live until it is done: by default that is ten
    # searches for garbage among them, a tenth of the time.
    gc.set_threshold(50_000, 20, 100)
    programs: dict[bytes, Program] = {}
    program: Program | None = None
    caller = _Caller(requests, answers)
    while True:
        kind, data = _read(requests)
        caller.reported_at = monotonic()
        try:
            frames = decoded(data)
            if kind == _PROGRAM:
                program = _loaded(programs, *frames[0])
                answer = encoded(_ANSWER, [])
            elif kind == _CLOSE:
                _close(programs)
                answer = encoded(_ANSWER, [])
            else:
                assert program is not None
                answer = encoded(_ANSWER, program(frames, caller))
        except BaseException as error:  # SystemExit as well: whoever waits learns what a function raised
            answer = encoded(_ERROR, [[_traceback_of(error)]])
        answers.write(answer)
        answers.flush()


class _Caller:
    """The other end of the pipe."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        self.reported_at = monotonic()
        self._requests = requests
        self._answers = answers

    def __call__(self) -> None:
        if (now := monotonic()) > self.reported_at + _REPORT_EVERY_S:
            self.reported_at = now
            self._write(encoded(_ALIVE, []))

    def ask(self, frames: list[Column]) -> list[Any]:
        self._write(encoded(_QUESTION, frames))
        _, data = _read(self._requests)
        return decoded(data)

    def _write(self, message: bytes) -> None:
        self._answers.write(message)
        self._answers.flush()


def _read(requests: BinaryIO) -> tuple[int, bytes]:
    """A message: its kind, and the rest. At the end of the pipe this process ends."""
    head = requests.read(5)
    if len(head) < 5:
        os._exit(0)
    size, kind = struct.unpack(">ib", head)
    return kind, requests.read(size - 1)


def _pipe() -> tuple[BinaryIO, BinaryIO]:
    """The ends of the pipe. What functions print goes to stderr; they have no input."""
    requests, answers = os.fdopen(os.dup(0), "rb", 1 << 16), os.fdopen(os.dup(1), "wb", 1 << 16)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return requests, answers


def _end_with(requests: BinaryIO) -> None:
    """Have this process end as soon as the other one has, whatever a function is doing."""
    poll = select.poll()
    poll.register(requests.fileno(), 0)  # reports that nobody can write any more, and nothing else

    def wait() -> None:
        poll.poll()
        os._exit(0)

    threading.Thread(target=wait, name="ends-with-parent", daemon=True).start()


def _loaded(programs: dict[bytes, Program], version: bytes, pickled: bytes) -> Program:
    if pickled not in programs:
        mine = ".".join(map(str, sys.version_info[:2]))
        if mine != version.decode():
            raise RuntimeError(
                f"the program runs with Python {version.decode()}, and Spark's workers with {mine} "
                f"({sys.executable}): both have to be of the same minor version (PYSPARK_PYTHON)"
            )
        if len(programs) >= _MOST_PROGRAMS:
            programs.clear()
        # From the driver, as Spark ships functions.
        programs[pickled] = pickle.Unpickler.load(_Unpickler(BytesIO(pickled)))
    return programs[pickled]


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("pyspark.cloudpickle") and (alone := _cloudpickle()) is not None:
            return attrgetter(name)(alone)
        return super().find_class(module, name)


@cache
def _cloudpickle() -> ModuleType | None:
    """What pickled functions are made with, by itself: all of PySpark before it would take 0.3 s of CPU.

    None: it is not where it was, or PySpark is there already.
    """
    if "pyspark" in sys.modules:
        return None
    path: Any = None
    for name in ("pyspark", "pyspark.cloudpickle", "pyspark.cloudpickle.cloudpickle"):
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            return None
        path = spec.submodule_search_locations
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _close(programs: dict[bytes, Program]) -> None:
    """Have programs let go of what they have kept; what goes wrong in that is only shown."""
    for program in programs.values():
        close = getattr(program, "close", None)
        if close is not None:
            try:
                close()
            except Exception:
                traceback.print_exc()


def _traceback_of(error: BaseException) -> bytes:
    """The traceback, without the frames of this file."""
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename == __file__:
        place = place.tb_next
    lines = traceback.format_exception(type(error), error, place)
    return "".join(lines).encode(errors="backslashreplace")


if __name__ == "__main__":
    main()
