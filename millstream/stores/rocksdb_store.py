"""A key-value store on disk. The only file that imports the RocksDB binding.

Layout: entries in the default column family; in the column family `millstream` position, format, and the
id of the topic that fills the store. `apply` writes everything in one batch, with RocksDB's write-ahead
log enabled but not synced, and the two families are flushed together. So nothing is lost after `kill -9` once
`apply` has returned. After a power failure, the newest batches may be missing, but always with their
positions, and the changelog has them.

Observed properties of the binding, which shape this file:

- A single `get`, a write and a step of an iterator hold Python's lock; `get` of a list, `close`, flush and
  compaction release it. So `get` needs no extra lock: in a race with `close()`, it fails with one of two
  errors of the binding. Everything else passes through a `ReaderGate`.
- `close()` leaves the database (and its LOCK file) open while an iterator or column family lives.
- An iterator that reaches a damaged block just ends. Only a new `iter()` has a `status()` that reports the
  damage, so each scan is checked with one at its end (`_check_end`).
- `ReadOptions.set_iterate_lower_bound` has no effect, so a backward scan is cut off at its start here.
- A `Snapshot` with `ReadOptions`, which a bound needs, reads the current state. So `scan` creates its
  iterators between two reads of the sequence number, which show whether they see the same state.
- A write that RocksDB stalls would block the whole process, because it holds Python's lock. `no_slowdown`
  makes it fail instead, and `apply` waits in Python and retries. The failed batch cannot be reused.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from millstream import program_end
from millstream.errors import LockException, ProcessorStateException, TimeoutException
from millstream.model import TaskId
from millstream.polling import looks
from millstream.stores.merge import Read, merged, one_after_other
from millstream.stores.store_base import (
    MAX_ITERATORS,
    ClosedStoreError,
    Entry,
    KeyRange,
    OpenIterators,
    ReaderGate,
    SnapshotIterator,
    pack_timestamp,
)

__all__ = ["RocksDBStore"]

_log = logging.getLogger(__name__)

_META = "millstream"
_POSITION = b"position"
_TOPIC = b"topic"
_FORMAT = b"format"
_FORMAT_VERSION = b"1"
_DAMAGED = "DAMAGED"
"""A file with this name in a store's directory means that a read found damage, so the next open starts from
scratch."""

_KEYS = "rocksdb.estimate-num-keys"
_COUNTED = 1_000
"""Up to so many keys are counted, which takes a millisecond."""
_SKIPPED = 100
"""A step over more deleted keys than that ends the count."""
_PROPERTIES = (
    "num-immutable-mem-table",
    "cur-size-active-mem-table",
    "cur-size-all-mem-tables",
    "size-all-mem-tables",
    "num-entries-active-mem-table",
    "num-entries-imm-mem-tables",
    "num-deletes-active-mem-table",
    "num-deletes-imm-mem-tables",
    "mem-table-flush-pending",
    "num-running-flushes",
    "compaction-pending",
    "num-running-compactions",
    "estimate-pending-compaction-bytes",
    "total-sst-files-size",
    "live-sst-files-size",
    "num-live-versions",
    "block-cache-capacity",
    "block-cache-usage",
    "block-cache-pinned-usage",
    "estimate-num-keys",
    "estimate-table-readers-mem",
    "background-errors",
)

_SCAN_ATTEMPTS = 10
_CLOSE_TIMEOUT_S = 30.0
_STALL_TIMEOUT_S = 120.0
_STALL_PAUSE_S = 0.02

# One block cache and one budget for write buffers, for all stores of the process: memory does not grow with
# the number of tasks. (Kafka Streams has 50 MB and 48 MB for each store.)
_CACHE = Cache(64 << 20)
_WRITE_BUFFERS = WriteBufferManager(128 << 20, False)


class RocksDBStore:
    """One task's part of a key-value store, in RocksDB (ports.KeyValueBytesStore).

    Opens an existing database, or creates one. A damaged database is deleted, with a warning: its position is
    then None, and it is restored from its changelog.

    Args:
        topic_id: the id of the topic that fills it; None: unknown, and then it is not compared. A topic that
            was deleted and created again has another id (KIP-516), in which a position means nothing. So a
            store of another topic is deleted and restored too, and so is one that has data but no id.

    Raises:
        LockException: the directory is open elsewhere, in this process or another.
        ProcessorStateException: it cannot be opened, for example without permission or on a full disk.
    """

    def __init__(
        self,
        name: str,
        task_id: TaskId,
        path: Path,
        *,
        topic_id: str | None = None,
        max_iterators: int = MAX_ITERATORS,
    ) -> None:
        self._name = name
        self._task_id = task_id
        self._path = path
        self._topic_id = topic_id
        self._is_open = False
        self._writing = threading.Lock()
        self._write_options = WriteOptions()
        self._write_options.no_slowdown = True
        self._gate = ReaderGate(name)
        self._iterators = OpenIterators(name, max_iterators)
        self._position: int | None = None
        # Any: the binding's own annotations are those of its pickling mode, in which keys may be numbers.
        self._db: Any = self._open()
        program_end.leave_to_parent(self, keeps_threads=True)
        self._get: Any = self._db.get
        self._meta: Any = self._db.get_column_family_handle(_META)
        self._is_open = True

    @property
    def name(self) -> str:
        return self._name

    @property
    def task_id(self) -> TaskId:
        return self._task_id

    @property
    def path(self) -> Path:
        """Its directory."""
        return self._path

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def position(self) -> int | None:
        """The changelog offset up to which this store is complete; None if nothing was ever applied."""
        if not self._is_open:
            raise ClosedStoreError(self._name)
        return self._position

    # --- reads -------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """Timestamp and value of a key.

        Raises:
            ClosedStoreError: the store is closed.
            ProcessorStateException: the files on disk are damaged or cannot be read.
        """
        try:
            stored: bytes | None = self._get(key)
            return stored
        except Exception as error:
            raise self._translated(error, "read") from error

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The same for many keys, in the same order."""
        with self._gate:
            try:
                stored: list[bytes | None] = self._get(list(keys))
                return stored
            except Exception as error:
                raise self._translated(error, "read") from error

    def range(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False, end_inclusive: bool = True
    ) -> SnapshotIterator:
        """A consistent snapshot of the keys from `start` to `end`; None: unbounded.

        Raises:
            ClosedStoreError: the store is closed.
            IllegalStateException: too many iterators are open.
        """
        upper = end + b"\0" if end is not None and end_inclusive else end
        with self._gate:
            try:
                scan = _Scan(self._db, start, upper, reverse=reverse)
            except Exception as error:
                raise self._translated(error, "read") from error
            iterator = SnapshotIterator(self._name, self._gate, lambda count: self._read(scan.read, count))
            self._iterators.add(iterator)
        return iterator

    def scan(
        self,
        ranges: Callable[[bytes | None], Sequence[KeyRange]],
        *,
        mark: bytes,
        ignored: int = 0,
        reverse: bool = False,
        convert: Callable[[list[Entry]], Iterable[Any]] | None = None,
    ) -> SnapshotIterator:
        """A consistent snapshot of several ranges; see OrderedBytesStore.

        Raises:
            ClosedStoreError: the store is closed.
            IllegalStateException: too many iterators are open.
        """
        with self._gate:
            try:
                reads = [scan.read for scan in self._scans(ranges, mark, reverse)]
            except Exception as error:
                raise self._translated(error, "read") from error
            read = merged(reads, ignored, reverse=reverse) if ignored else one_after_other(reads)
            iterator = SnapshotIterator(
                self._name, self._gate, lambda count: self._read(read, count), convert
            )
            self._iterators.add(iterator)
        return iterator

    def _scans(
        self, ranges: Callable[[bytes | None], Sequence[KeyRange]], mark: bytes, reverse: bool
    ) -> list[_Scan]:
        # Each scan is a separate snapshot. They agree if nothing was written while they were created. That
        # takes microseconds, so it rarely has to be repeated. If it has to be often, the writer waits.
        for _ in range(_SCAN_ATTEMPTS):
            number = self._db.latest_sequence_number()
            scans = self._scans_now(ranges, mark, reverse)
            if self._db.latest_sequence_number() == number:
                return scans
        while not self._writing.acquire(timeout=_STALL_PAUSE_S):
            if not self._is_open:  # `close` has the lock, and waits for this thread to leave the gate
                raise ClosedStoreError(self._name)
        try:
            return self._scans_now(ranges, mark, reverse)
        finally:
            self._writing.release()

    def _scans_now(
        self, ranges: Callable[[bytes | None], Sequence[KeyRange]], mark: bytes, reverse: bool
    ) -> list[_Scan]:
        bounds = ranges(self._get(mark))
        scans = [_Scan(self._db, start, end, reverse=reverse) for start, end in bounds]
        return scans[::-1] if reverse else scans

    def _read(self, read: Read, count: int) -> list[Entry]:
        try:
            return read(count)
        except Exception as error:
            raise self._translated(error, "read") from error

    def approximate_num_entries(self) -> int:
        """Exact up to 1,000 keys, unless many deletions are not compacted yet; then RocksDB's estimate.

        That estimate counts each update of a key that is not compacted yet, so it is furthest off where few
        keys are updated often.
        """
        with self._gate:
            return self._number_of_keys()

    def _number_of_keys(self) -> int:
        options = ReadOptions()
        options.set_max_skippable_internal_keys(_SKIPPED)
        steps = self._db.iter(options)
        steps.seek_to_first()
        for count in range(_COUNTED + 1):
            if not steps.valid():
                try:
                    steps.status()
                except Exception:  # too many deleted keys in a row, or damage, which a read reports
                    break
                return count
            steps.next()
        return int(self._db.property_int_value(_KEYS) or 0)

    def properties(self) -> dict[str, int]:
        """RocksDB's own figures, by name without `rocksdb.`; see KIP-607 for their meaning.

        Raises:
            ClosedStoreError: the store is closed.
        """
        with self._gate:
            found = {name: int(self._db.property_int_value(f"rocksdb.{name}") or 0) for name in _PROPERTIES}
            return {**found, "estimate-num-keys": self._number_of_keys()}

    # --- writes ------------------------------------------------------------------------------------------

    def apply(
        self,
        entries: Sequence[tuple[bytes, bytes | None, int]],
        next_offset: int,
        *,
        drop: KeyRange | None = None,
    ) -> None:
        """Put and delete, and save `next_offset`, in one atomic write.

        `drop`: a range to delete first, in the same write.

        Raises:
            ClosedStoreError: the store is closed.
            ProcessorStateException: the write failed; nothing of the batch was written.
        """
        with self._writing:
            for _ in looks(_STALL_TIMEOUT_S, every_s=_STALL_PAUSE_S):
                if not self._is_open:
                    raise ClosedStoreError(self._name)
                batch = WriteBatch(raw_mode=True)
                put, delete, pack = batch.put, batch.delete, pack_timestamp
                if drop is not None:
                    batch.delete_range(*drop)
                for key, value, timestamp in entries:
                    if value is None:
                        delete(key)
                    else:
                        put(key, pack(timestamp) + value)
                put(_POSITION, next_offset.to_bytes(8, "big"), self._meta)
                try:
                    self._db.write(batch, self._write_options)
                except Exception as error:
                    if "Write stall" not in str(error):
                        raise self._translated(error, "written") from error
                    stalled = error  # compaction is behind; readers continue
                else:
                    self._position = next_offset
                    break
            else:
                raise self._translated(stalled, "written") from stalled
        # The binding held Python's lock. Waiting threads get it now, instead of after another five
        # milliseconds of this thread's next batch (sys.getswitchinterval).
        time.sleep(0)

    def wipe(self) -> None:
        """Delete entries and position; the store stays open. Open iterators keep their snapshot."""
        with self._writing:
            if not self._is_open:
                raise ClosedStoreError(self._name)
            try:
                self._wipe()
            except Exception as error:
                raise self._translated(error, "wiped") from error
            self._position = None

    def _wipe(self) -> None:
        ends = self._db.iter()
        ends.seek_to_first()
        first = ends.key() if ends.valid() else None
        ends.seek_to_last()
        last = ends.key() if ends.valid() else None
        ends.status()
        del ends
        batch = WriteBatch(raw_mode=True)
        if first is not None and last is not None:
            batch.delete_range(first, last + b"\0")
        batch.delete(_POSITION, self._meta)
        self._db.write(batch)
        if first is not None:
            self._db.compact_range(None, None)  # otherwise every scan would step over the deleted entries

    # --- opening and closing -----------------------------------------------------------------------------

    def close(self) -> None:
        """Release all resources, including iterators. Idempotent.

        Raises:
            TimeoutException: a read or write did not end; the store still rejects new calls.
        """
        self._is_open = False  # first, so that a write that waits for RocksDB gives up
        if not self._writing.acquire(timeout=_CLOSE_TIMEOUT_S):
            raise TimeoutException(
                f"store '{self._name}' of task {self._task_id} could not be closed: a write did not end "
                f"within {_CLOSE_TIMEOUT_S:g} s; close it again once it has ended"
            )
        try:
            self._gate.shut(_CLOSE_TIMEOUT_S)
            self._iterators.end_all()
            if self._meta is None:
                return
            # No object of the binding may remain referenced, or the LOCK file stays held.
            self._meta = None
            self._get = self._closed
            self._db.close()
        finally:
            self._writing.release()

    def _closed(self, _: Any) -> Any:
        raise ClosedStoreError(self._name)

    def _open(self) -> Rdict:
        try:
            # Path.mkdir raises one exception from another for each parent that is missing.
            os.makedirs(self._path, exist_ok=True)
            if (self._path / _DAMAGED).exists():
                return self._start_afresh("is damaged (a read in the last run found damaged data)")
            try:
                return self._open_database()
            except _OtherTopicError as error:
                return self._start_afresh(str(error))
            except Exception as error:
                if not _is_damage(error):
                    raise
                return self._start_afresh(f"is damaged ({error})")
        except Exception as error:
            raise self._translated(error, "opened") from error

    def _start_afresh(self, why: str) -> Rdict:
        _log.warning(
            "store '%s' of task %s at '%s' %s; it is deleted, and restored from its changelog",
            self._name,
            self._task_id,
            self._path,
            why,
        )
        shutil.rmtree(self._path)
        os.makedirs(self._path)
        return self._open_database()

    def _open_database(self) -> Rdict:
        db = Rdict(str(self._path), _options(), column_families={_META: _options()})
        try:
            meta = db.get_column_family(_META)
            saved_format, position = meta.get(_FORMAT), meta.get(_POSITION)
            if saved_format not in (None, _FORMAT_VERSION) or (position is not None and len(position) != 8):
                raise _DamageError(
                    f"format {saved_format!r} or position {position!r} is not from this version"
                )
            if saved_format is None:
                meta.put(_FORMAT, _FORMAT_VERSION)
            topic, wanted = meta.get(_TOPIC), self._topic_id
            if wanted is not None and topic != wanted.encode():
                why = _other_topic(topic, wanted, has_data=position is not None or _has_entries(db))
                if why is not None:
                    raise _OtherTopicError(why)
                meta.put(_TOPIC, wanted.encode())  # before anything is applied
        except BaseException:
            meta = None
            db.close()
            raise
        self._position = None if position is None else int.from_bytes(position, "big")
        return db

    def _translated(self, error: Exception, what: str) -> Exception:
        """Translates an exception of the binding; any other exception is returned unchanged."""
        if isinstance(error, TypeError | ClosedStoreError):
            raise error
        if what != "opened" and not self._is_open:
            return ClosedStoreError(self._name)
        text = str(error)
        where = f"store '{self._name}' of task {self._task_id} at '{self._path}'"
        if "lock hold by current process" in text or "While lock file" in text:
            return LockException(
                f"{where} is already open, in this process or another: {text}; close it there, or set "
                f"another state.dir for this client",
                task_id=self._task_id,
            )
        if _is_damage(error):
            advice = "it is deleted and restored from its changelog when the client next opens it"
            self._mark_damaged()
        else:
            advice = "check the space and the permissions there, then start the client again"
        message = f"{where} could not be {what}: {text}; {advice}"
        return ProcessorStateException(message, task_id=self._task_id)

    def _mark_damaged(self) -> None:
        try:
            (self._path / _DAMAGED).touch()
        except OSError as error:
            _log.warning("cannot record in '%s' that the store there is damaged: %s", self._path, error)

    def __repr__(self) -> str:
        state = "" if self._is_open else ", closed"
        return f"<RocksDBStore '{self._name}' of task {self._task_id} at '{self._path}'{state}>"


class _Scan:
    """A scan of a snapshot of a database, in either direction."""

    __slots__ = ("_db", "_entries", "_last", "_passed", "_reverse", "_start", "_upper")

    def __init__(self, db: Any, start: bytes | None, upper: bytes | None, *, reverse: bool) -> None:
        self._db = db
        self._start = start
        self._upper = upper
        self._reverse = reverse
        self._last: bytes | None = None
        self._passed: list[bool] = []
        options = ReadOptions()
        if upper is not None:
            options.set_iterate_upper_bound(upper)
        entries: Iterator[Entry] = db.items(
            backwards=reverse, from_key=None if reverse else start, read_opt=options
        )
        # Not one step beyond the first entry below it: stepping over deleted entries there takes long.
        self._entries = (
            _until_below(start, entries, self._passed) if reverse and start is not None else entries
        )

    def read(self, count: int) -> list[Entry]:
        """Up to `count` more entries; fewer means that there are no more."""
        entries = list(islice(self._entries, count))
        if entries:
            self._last = entries[-1][0]
        if len(entries) < count and not self._passed:
            self._check_end()
        return entries

    def _check_end(self) -> None:
        """Raise if the scan ended at a damaged block instead of the end of its range."""
        steps = self._db.iter()
        if self._last is not None:
            (steps.seek_for_prev if self._reverse else steps.seek)(self._last)
            if steps.valid():
                (steps.prev if self._reverse else steps.next)()
        elif self._reverse:
            steps.seek_to_last() if self._upper is None else steps.seek_for_prev(self._upper)
        else:
            steps.seek_to_first() if self._start is None else steps.seek(self._start)
        steps.status()


def _until_below(start: bytes, entries: Iterator[Entry], passed: list[bool]) -> Iterator[Entry]:
    """The entries not below `start`. The first one below it ends the scan, and adds an item to `passed`."""

    def is_above(entry: Entry) -> bool:
        if entry[0] >= start:
            return True
        passed.append(True)
        return False

    return takewhile(is_above, entries)


class _DamageError(Exception):
    """The database opens, but was not written by this version."""


class _OtherTopicError(Exception):
    """The database opens, but may have been filled from another topic."""


def _other_topic(saved: bytes | None, wanted: str, *, has_data: bool) -> str | None:
    """Why a database cannot be read on with a topic of which it does not have the id; None: it can."""
    if saved is not None:
        then = saved.decode("utf-8", "backslashreplace")
        return (
            "was filled from a topic that was deleted and created again "
            f"(topic id {then!r} then, {wanted!r} now)"
        )
    return "has data, but not the id of the topic that it is from" if has_data else None


def _has_entries(db: Any) -> bool:
    """Without a position it may have some, too: those that an interrupted deletion left."""
    first = db.iter()
    first.seek_to_first()
    return bool(first.valid())


def _is_damage(error: Exception) -> bool:
    """Whether the cause is damaged files, not the disk, the permissions or a temporary condition."""
    damage = ("Corruption", "Invalid argument", "IO error: No such file")  # the last: a file of the database
    return isinstance(error, _DamageError) or str(error).startswith(damage)


def _options() -> Options:
    table = BlockBasedOptions()
    table.set_block_cache(_CACHE)
    table.set_bloom_filter(10, False)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_atomic_flush(True)  # entries and position reach the disk together
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(16 << 20)
    options.set_max_write_buffer_number(3)
    options.set_write_buffer_manager(_WRITE_BUFFERS)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1 << 20)
    options.set_stats_dump_period_sec(0)
    return options
