"""The Python worker's part in processors: it passes them the records of a task, chunk by chunk.

What they put into stores is kept here until the chunk is done, and then sent to the kernel, which has the
stores in Spark's state; what is not here is requested from it. The processors of a task live as long as the
same worker gets every batch of the task; otherwise they are created again.

The other end is `kernel/src/io/millstream/kernel/python/Processing.java`.
"""

from __future__ import annotations

import mmap
import struct
import time
import traceback
from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from millstream.kernel.constants import (
    ASK_COUNT,
    ASK_OWN_VALUE,
    ASK_RANGE,
    ASK_VALUE,
    NOTHING,
    RESTORED,
    TELL,
    TICK,
)
from millstream.model import TaskId
from millstream.processors.api import PunctuationType
from millstream.processors.graph import Graph
from millstream.processors.task import ProcessorTask, RawRecord
from millstream.spark.worker.program_worker import Caller, Column

__all__ = ["NO_TIME", "Processing", "ProcessorError", "unwritten_number"]

NO_TIME = -(2**63)
"""The stream time of a task without records so far."""

_NEVER = 2**63 - 1

_GET, _GET_OWN, _RANGE, _COUNT = map(ord, (ASK_VALUE, ASK_OWN_VALUE, ASK_RANGE, ASK_COUNT))
_FIRST_PAGE, _LARGEST_PAGE = 32, 2_048
_MOST_TOLD = 2_000
_PLACE = struct.Struct(">i")
_bookmark: mmap.mmap | bytearray = bytearray(_PLACE.size)
_Headers = tuple[tuple[str, bytes | None], ...]


class Processing:
    """The program of a worker (program_worker.py) for the processors of a graph.

    Frames of a request: the name of the query's run, and of a file for the number of the record being
    processed, in four bytes; empty if they were sent before. The task's number, this batch, its
    previous one, its stream time, and 1 in the first request of a batch. For each record its input, or
    what stands in its place (constants.TICK, TELL and RESTORED), its key, value, timestamp, topic (a position
    in the frame before), partition and offset; the number of headers of each, or nothing if none has any,
    their names and their values. Stores, and then for each store its values for the keys of the records, each
    key once.

    Frames of the answer: for each forwarded record the step outside, the record that it comes from or, if it
    comes from none, -1 - the place of what was processed; key, value, timestamp, and headers likewise; the
    changes of stores: store, key and value; likewise of their changelogs, with timestamps; the stream time,
    when the next punctuation by the time of day is due, or the largest number, and whether a commit is
    requested; and for each failure that is passed over the processor, the record, the exception's class and
    its message. A failure to write a record has a number after those of all processors: two for each step
    outside, for keys and for values (`unwritten_number`).

    Args:
        passes_over: if a processor raises, its record is dropped and reported, and processing continues.
        writes_over: likewise if a sink's serde cannot write what is forwarded to it.
        is_timed: for tests: the time of day is the last one received, not the machine's.
    """

    def __init__(
        self,
        graph: Graph,
        subtopology: int,
        *,
        passes_over: bool = False,
        writes_over: bool = False,
        is_timed: bool = False,
    ) -> None:
        self._graph = graph
        self._subtopology = subtopology
        self._passes_over = passes_over
        self._writes_over = writes_over
        self._is_timed = is_timed
        self._run = b""
        self._tasks: dict[int, _Task] = {}

    def __call__(self, frames: list[Any], caller: Caller) -> list[Column]:
        (run, bookmark), (partition, batch, before, stream_time, is_first), *records = frames
        if bookmark:
            _open_bookmark(bookmark.decode())
        if run != self._run:
            self.close()
            self._run = run
        task = self._tasks.get(partition)
        if task is None or (is_first and task.batch != before):
            if task is not None:
                task.close()
            task_id = TaskId(self._subtopology, partition)
            task = _Task(
                self._graph,
                task_id,
                stream_time,
                is_timed=self._is_timed,
                passes_over=self._passes_over,
                writes_over=self._writes_over,
            )
            self._tasks[partition] = task
        task.batch = batch
        return task.process(records, caller)

    def close(self) -> None:
        """Close all processors; later records start with new ones."""
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            task.close()


def unwritten_number(graph: Graph, outside: int, part: str) -> int:
    """The number used in place of a processor's when a record could not be written."""
    return len(graph.processors) + 2 * outside + (part == "value")


class ProcessorError(Exception):
    """A processor raised (the `__cause__`); the message names the processor and the record."""


class _Task:
    """A task, from one batch to the next; the `Home` of its processors.

    Attributes:
        batch: the last batch in which it had records.
    """

    def __init__(
        self,
        graph: Graph,
        task_id: TaskId,
        stream_time: int,
        *,
        is_timed: bool,
        passes_over: bool,
        writes_over: bool,
    ) -> None:
        self.batch = -1
        self._graph = graph
        self._passes_over = passes_over
        self._writes_over = writes_over
        self._fills_globals = any(given.is_global for given in graph.inputs)
        self._task_id = task_id
        self._stores = [_Entries(number, self) for number in range(len(graph.stores))]
        self._clock_ms: int | None = 0 if is_timed else None
        self._caller: Caller | None = None
        self._place = 0
        self._key: bytes | None = None
        self._record: RawRecord | None = None
        self._keys: list[bytes] = []
        self._outputs: list[tuple[int, int, bytes | None, bytes | None, int, _Headers]] = []
        self._logged: list[tuple[int, bytes, bytes | None, int]] = []
        self._failures: list[tuple[int, int, bytes, bytes]] = []
        at = None if stream_time == NO_TIME else stream_time
        self._task = ProcessorTask(graph, task_id, self, stream_time_ms=at)

    def process(self, frames: list[Any], caller: Caller) -> list[Column]:
        inputs, keys, values, times, topics, numbers, partitions, offsets, counts, names, contents, *more = (
            frames
        )
        known, *held = more
        self._caller = caller
        self._outputs, self._logged, self._failures = [], [], []
        self._keys = list(dict.fromkeys(key for key in keys if key is not None))
        for store in self._stores:
            store.begin()
        for number, column in zip(known, held, strict=True):
            self._stores[number].learn(column)
        named: list[str | None] = [topic.decode() for topic in topics]
        named.append(None)  # which is at -1
        headers = _grouped(counts, names, contents)
        task = self._task
        for place, (input, key, value, at, topic, partition, offset) in enumerate(
            zip(inputs, keys, values, times, numbers, partitions, offsets, strict=True)
        ):
            caller()
            _PLACE.pack_into(_bookmark, 0, place)
            self._place, self._key = place, key
            if input in (TICK, TELL):
                self._record = None
                self._without_record(partial(self._tick, at) if input == TICK else self._tell)
                continue
            self._record = record = RawRecord(
                key, value, at, headers[place] if headers else (), named[topic], partition, offset
            )
            try:
                if input <= RESTORED:
                    task.restore(RESTORED - input, record)
                else:
                    task.process(input, record)
            except ProcessorError:
                raise
            except BaseException as error:
                raise self._raised(error) from error
        return self._made()

    def _tick(self, now_ms: int) -> None:
        if self._clock_ms is not None:
            self._clock_ms = now_ms
        self._task.advance_wall_clock(now_ms)

    def _tell(self) -> None:
        self._task.tell(_MOST_TOLD)

    def _without_record(self, what: Callable[[], None]) -> None:
        try:
            what()
        except ProcessorError:
            raise
        except BaseException as error:
            raise self._raised(error) from error

    def _raised(self, error: BaseException, name: str = "a processor") -> ProcessorError:
        innermost = traceback.extract_tb(error.__traceback__)[-1]
        what = traceback.format_exception_only(error)[0].strip()
        return ProcessorError(
            f"{name} in task {self._task_id}{self._where()}: {what}\n"
            f'File "{innermost.filename}", line {innermost.lineno}, in {innermost.name}'
        )

    def _where(self) -> str:
        """Where the record being processed was read."""
        return "" if self._record is None else ", at {}-{} offset {}".format(*self._record[-3:])

    def _made(self) -> list[Column]:
        to, of, keys, values, times, headers = (
            zip(*self._outputs, strict=True) if self._outputs else ((),) * 6
        )
        counts, names, contents = [], [], []
        if any(headers):
            for each in headers:
                counts.append(len(each))
                names += [name.encode() for name, _ in each]
                contents += [content for _, content in each]
        changes = [
            (number, key, value)
            for number, store in enumerate(self._stores)
            for key, value in store.written.items()
        ]
        changed, changed_keys, changed_values = zip(*changes, strict=True) if changes else ((), (), ())
        logged, log_keys, log_values, log_times = (
            zip(*self._logged, strict=True) if self._logged else ((),) * 4
        )
        failed, of_records, exceptions, messages = (
            zip(*self._failures, strict=True) if self._failures else ((),) * 4
        )
        at, due = self._task.stream_time_ms, self._task.next_due(PunctuationType.WALL_CLOCK_TIME)
        commits, self._task.wants_commit = self._task.wants_commit, False
        return [
            array("i", to),
            array("i", of),
            keys,
            values,
            array("q", times),
            array("i", counts),
            names,
            contents,
            array("i", changed),
            changed_keys,
            changed_values,
            array("i", logged),
            log_keys,
            log_values,
            array("q", log_times),
            array("q", [NO_TIME if at is None else at, _NEVER if due is None else due, commits]),
            array("i", failed),
            array("i", of_records),
            exceptions,
            messages,
        ]

    def close(self) -> None:
        """Close the processors; errors are only printed, so that no later record fails because of them."""
        try:
            self._task.close()
        except Exception:
            traceback.print_exc()

    # --- for the processors -------------------------------------------------------------------------------

    def store(self, number: int, /) -> _Entries:
        return self._stores[number]

    def changed(self, store: int, key: bytes, value: bytes | None, timestamp: int, /) -> None:
        self._logged.append((store, key, value, timestamp))

    def out(
        self,
        outside: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: _Headers,
        of: RawRecord | None,
        /,
    ) -> None:
        place = -1 - self._place if of is None or of.topic is None else self._place
        self._outputs.append((outside, place, key, value, timestamp, headers))

    def failed(self, processor: int, record: Any, error: Exception, /) -> None:
        name = self._graph.processors[processor].name
        # Every client fills a global store in the same way, so none may leave a record out.
        self._give_up(processor, name, error, may=self._passes_over and not self._fills_globals)

    def unwritten(self, outside: int, part: str, error: Exception, /) -> None:
        number = unwritten_number(self._graph, outside, part)
        self._give_up(number, self._graph.outside[outside].name, error, may=self._writes_over)

    def _give_up(self, number: int, name: str, error: Exception, *, may: bool) -> None:
        """Note that the record was dropped, if that is allowed; else raise."""
        has_record = self._task.has_record
        if not has_record:
            self._record = None
        if not may:
            raise self._raised(error, name) from error
        what = type(error)
        kind = (
            what.__qualname__ if what.__module__ == "builtins" else f"{what.__module__}.{what.__qualname__}"
        )
        message = f"{name} in task {self._task_id}{self._where()}: {error}"
        place = self._place if has_record else NOTHING
        self._failures.append((number, place, kind.encode(), message.encode(errors="replace")))

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 if self._clock_ms is None else self._clock_ms

    # --- for the stores -----------------------------------------------------------------------------------

    def is_own(self, key: bytes) -> bool:
        """Whether it is the key of the record that is being processed."""
        return key == self._key

    @property
    def keys(self) -> list[bytes]:
        """The keys of the chunk's records."""
        return self._keys

    def ask(self, what: int, number: int, *keys: bytes | None, limit: int = 0, reverse: bool = False) -> Any:
        assert self._caller is not None
        reply, *rest = self._caller.ask([array("i", (what, number, limit, reverse)), keys])
        return (reply, *rest) if rest else reply


class _Entries:
    """A store while a chunk is processed: what the kernel has, and what was put since.

    Attributes:
        written: what was put since.
    """

    def __init__(self, number: int, task: _Task) -> None:
        self.written: dict[bytes, bytes | None] = {}
        self._known: dict[bytes, bytes | None] = {}
        self._sorted: list[bytes] | None = None
        self._has_own = False
        self._number = number
        self._task = task

    def begin(self) -> None:
        self.written, self._known, self._sorted, self._has_own = {}, {}, None, False

    def learn(self, values: list[bytes | None]) -> None:
        """Take the kernel's values for the keys of the records."""
        self._known.update(zip(self._task.keys, values, strict=True))
        self._has_own = True

    def get(self, key: bytes, /) -> bytes | None:
        try:
            return self.written[key]
        except KeyError:
            pass
        try:
            return self._known[key]
        except KeyError:
            pass
        if not self._has_own and self._task.is_own(key):
            self.learn(self._task.ask(_GET_OWN, self._number))
        else:
            (self._known[key],) = self._task.ask(_GET, self._number, key)
        return self._known[key]

    def put(self, key: bytes, value: bytes | None, /) -> None:
        if self._sorted is not None and key not in self.written:
            insort(self._sorted, key)
        self.written[key] = value

    def range(
        self, first: bytes | None, end: bytes | None, reverse: bool = False, /
    ) -> Iterator[tuple[bytes, bytes]]:
        own = self._written_between(first, end, reverse)
        own_key = next(own, None)
        for key, value in self._kept(first, end, reverse):
            while own_key is not None and (own_key > key if reverse else own_key < key):
                if (put := self.get(own_key)) is not None:
                    yield own_key, put
                own_key = next(own, None)
            if own_key == key:
                own_key = next(own, None)
            found = self.written.get(key, value)
            if found is not None:
                yield key, found
        while own_key is not None:
            if (put := self.get(own_key)) is not None:  # if the chunk has ended, the kernel has it by now
                yield own_key, put
            own_key = next(own, None)

    def approximate_num_entries(self) -> int:
        (count,) = self._task.ask(_COUNT, self._number)
        return int(count)

    def _written_between(self, first: bytes | None, end: bytes | None, reverse: bool) -> Iterator[bytes]:
        if self._sorted is None:
            self._sorted = sorted(self.written)
        keys = self._sorted
        low = 0 if first is None else bisect_left(keys, first)
        high = len(keys) if end is None else bisect_left(keys, end)
        found = keys[low:high]
        return reversed(found) if reverse else iter(found)

    def _kept(self, first: bytes | None, end: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """The kernel's entries in the range, page by page."""
        limit = _FIRST_PAGE
        while True:
            page, (is_last,) = self._task.ask(_RANGE, self._number, first, end, limit=limit, reverse=reverse)
            yield from zip(page[::2], page[1::2], strict=True)
            if is_last:
                return
            if reverse:
                end = page[-2]
            else:
                first = page[-2] + b"\0"
            limit = min(4 * limit, _LARGEST_PAGE)


def _open_bookmark(name: str) -> None:
    """Open the bookmark file. It belongs to the worker, whatever program it runs."""
    global _bookmark
    with open(name, "r+b") as file:
        _bookmark = mmap.mmap(file.fileno(), _PLACE.size)


def _grouped(counts: Any, names: list[bytes], contents: list[bytes | None]) -> list[_Headers]:
    """The headers of each record; empty if none has any."""
    all_of_them = zip((name.decode() for name in names), contents, strict=True)
    return [tuple(next(all_of_them) for _ in range(count)) for count in counts]
