"""What only a store on disk can get wrong: locks, damage, full disks, and what is there after a restart."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import rocksdict

from millstream.errors import LockException, ProcessorStateException
from millstream.model import TaskId
from millstream.stores import rocksdb_store
from millstream.stores.rocksdb_store import RocksDBStore
from millstream.stores.store_base import ClosedStoreError, to_stored

pytestmark = pytest.mark.disk

TASK = TaskId(1, 3)
MANY = [(b"%06d" % i, b"value-%d" % i, i) for i in range(5000)]


def open_at(path: Path) -> RocksDBStore:
    return RocksDBStore("counts", TASK, path)


def filled(path: Path) -> RocksDBStore:
    """A store with its entries in a table file, not only in the log."""
    store = open_at(path)
    store.apply(MANY, 77)
    store._db.flush()
    return store


def test_entries_and_position_are_there_after_a_restart(tmp_path: Path) -> None:
    """A store that was closed opens as it was."""
    filled(tmp_path).close()
    store = open_at(tmp_path)
    assert store.position == 77
    assert list(store.range(None, None)) == [(key, to_stored(value, at)) for key, value, at in MANY]
    store.close()


def test_missing_directories_are_made(tmp_path: Path) -> None:
    """The whole path, as the state directory lays it out."""
    path = tmp_path / "app" / "1_3" / "rocksdb" / "counts"
    open_at(path).close()
    assert path.is_dir()


def test_the_lock_is_free_after_close_whatever_is_still_referred_to(tmp_path: Path) -> None:
    """Iterators, bound methods and the store itself: none of them keeps the database open."""
    store = filled(tmp_path)
    iterators = [store.range(None, None), store.range(b"000100", None, reverse=True)]
    next(iterators[0])
    methods = [store.get, store.multi_get, store.apply]
    store.close()
    again = open_at(tmp_path)
    assert again.position == 77
    again.close()
    assert len(iterators) + len(methods) == 5


def test_a_get_that_was_on_its_way_when_the_store_was_closed_raises_closed_store_error(
    tmp_path: Path,
) -> None:
    """It has the binding's method in its hand already; the binding's own error does not come through."""
    store = filled(tmp_path)
    in_its_hand = store._get
    store.close()
    store._get = in_its_hand
    with pytest.raises(ClosedStoreError) as caught:
        store.get(b"000001")
    assert isinstance(caught.value.__cause__, rocksdict.DbClosedError)


def test_a_store_that_is_open_cannot_be_opened_again(tmp_path: Path) -> None:
    """The error names the store and its place; the open one goes on."""
    store = filled(tmp_path)
    with pytest.raises(
        LockException, match=r"'counts' of task 1_3 at '.*is already open.*state.dir"
    ) as caught:
        open_at(tmp_path)
    assert caught.value.task_id == TASK
    assert caught.value.__cause__ is not None
    assert store.get(b"000001") is not None
    store.close()


def test_a_path_of_which_many_parents_are_missing_is_one_cause() -> None:
    """The chain has no entry for each directory that could not be created."""
    missing = Path("/proc/nonesuch/state/app/global/rocksdb/counts")  # no one may create anything there
    with pytest.raises(ProcessorStateException, match="could not be opened") as caught:
        open_at(missing)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.__cause__ is None
    assert caught.value.__cause__.__context__ is None


def test_a_path_that_cannot_be_a_directory_is_told_with_its_cause(tmp_path: Path) -> None:
    """A file is in the way: the error names the path."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(ProcessorStateException, match=r"'.*file/counts' could not be opened") as caught:
        open_at(tmp_path / "file" / "counts")
    assert isinstance(caught.value.__cause__, OSError)


def cut(path: Path, pattern: str, size: int = 10) -> None:
    for file in path.glob(pattern):
        with file.open("r+b") as handle:
            handle.truncate(size)


def scribble(path: Path, pattern: str) -> None:
    for file in path.glob(pattern):
        with file.open("r+b") as handle:
            handle.write(b"garbage garbage")


def rewrite_meta(path: Path, key: bytes, value: bytes | None) -> None:
    options = rocksdict.Options(raw_mode=True)
    db = rocksdict.Rdict(str(path), options, column_families={"millstream": options})
    meta = db.get_column_family("millstream")
    if value is None:
        del meta[key]
    else:
        meta[key] = value
    del meta
    db.close()


DAMAGE: dict[str, Callable[[Path], None]] = {
    "CURRENT is gone": lambda path: (path / "CURRENT").unlink(),
    "CURRENT is garbage": lambda path: scribble(path, "CURRENT"),
    "the manifest is garbage": lambda path: scribble(path, "MANIFEST-*"),
    "the manifest is gone": lambda path: [file.unlink() for file in path.glob("MANIFEST-*")] and None,
    "a table file is cut": lambda path: cut(path, "*.sst"),
    "a table file is gone": lambda path: [file.unlink() for file in path.glob("*.sst")] and None,
    "another version's format": lambda path: rewrite_meta(path, b"format", b"99"),
    "a position that is none": lambda path: rewrite_meta(path, b"position", b"7"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_database_is_deleted_and_begins_afresh(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """A warning says so; the position is None, so that the store is restored; and it can be written."""
    filled(tmp_path).close()
    DAMAGE[damage](tmp_path)
    with caplog.at_level(logging.WARNING):
        store = open_at(tmp_path)
    assert "store 'counts' of task 1_3" in caplog.text
    assert "is damaged" in caplog.text
    assert store.position is None
    assert list(store.range(None, None)) == []
    store.apply(MANY, 5)
    store.close()
    assert open_at(tmp_path).position == 5


def of_topic(path: Path, topic_id: str | None) -> RocksDBStore:
    return RocksDBStore("counts", TASK, path, topic_id=topic_id)


OTHER_TOPICS: dict[str, tuple[Callable[[Path], None], str | None]] = {
    "the same topic": (lambda path: None, None),
    "another topic": (
        lambda path: rewrite_meta(path, b"topic", b"before"),
        r"was deleted and created again \(topic id 'before' then, 'now' now\)",
    ),
    "an id that is not text": (
        lambda path: rewrite_meta(path, b"topic", b"\x91\xff"),
        r"was deleted and created again \(topic id '\\\\x91\\\\xff' then, 'now' now\)",
    ),
    "an empty id": (lambda path: rewrite_meta(path, b"topic", b""), "topic id '' then"),
    "no id": (lambda path: rewrite_meta(path, b"topic", None), "has data, but not the id of the topic"),
    "no id and no position": (
        lambda path: [rewrite_meta(path, key, None) for key in (b"topic", b"position")] and None,
        "has data, but not the id of the topic",
    ),
}


@pytest.mark.parametrize("case", OTHER_TOPICS)
def test_a_store_is_only_read_on_with_the_topic_that_filled_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    """Else its position means another record. The id is there before anything is applied, and survives a
    wipe; if the topic's id is unknown, nothing is compared.
    """
    change, why = OTHER_TOPICS[case]
    store = of_topic(tmp_path, "now")
    store.wipe()
    store.apply(MANY, 77)
    store.close()
    change(tmp_path)
    of_topic(tmp_path, None).close()
    assert caplog.text == ""
    store = of_topic(tmp_path, "now")
    assert store.position == (77 if why is None else None)
    assert len(list(store.range(None, None))) == (len(MANY) if why is None else 0)
    if why is None:
        assert caplog.text == ""
    else:
        where = re.escape(f"store 'counts' of task 1_3 at '{tmp_path}' ")
        (told,) = caplog.messages
        assert re.fullmatch(f"{where}.*{why}.*; it is deleted, and restored from its changelog", told)
    store.close()
    caplog.clear()
    of_topic(tmp_path, "now").close()
    assert caplog.text == ""


def spoil_table(path: Path) -> None:
    table = max(path.glob("*.sst"), key=lambda file: file.stat().st_size)
    with table.open("r+b") as handle:
        handle.seek(table.stat().st_size // 2)
        handle.write(b"XXXXXXXXXXXXXXXXXXXX")


READS: dict[str, Callable[[RocksDBStore], object]] = {
    "a scan": lambda store: list(store.range(None, None)),
    "a scan backwards": lambda store: list(store.range(None, None, reverse=True)),
    "gets": lambda store: [store.get(key) for key, _, _ in MANY],
    "a multi_get": lambda store: store.multi_get([key for key, _, _ in MANY]),
}


@pytest.mark.parametrize("read", READS)
def test_a_damaged_block_is_an_error_and_never_a_missing_entry(tmp_path: Path, read: str) -> None:
    """The binding's iterators just end there; ours raise. The next open begins afresh."""
    filled(tmp_path).close()
    spoil_table(tmp_path)
    store = open_at(tmp_path)
    with pytest.raises(ProcessorStateException, match=r"could not be read: Corruption.*restored from its"):
        READS[read](store)
    store.close()
    again = open_at(tmp_path)
    assert again.position is None
    again.close()


def test_writes_wait_while_rocksdb_stalls_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tiny buffers and one compaction at a time, RocksDB refuses writes again and again; none is
    lost."""
    normal = rocksdb_store._options

    def tiny() -> rocksdict.Options:
        options = normal()
        options.set_write_buffer_size(1 << 16)
        options.set_max_write_buffer_number(2)
        options.set_level_zero_slowdown_writes_trigger(2)
        options.set_level_zero_stop_writes_trigger(3)
        options.set_max_background_jobs(1)
        return options

    monkeypatch.setattr(rocksdb_store, "_options", tiny)
    monkeypatch.setattr(rocksdb_store, "_STALL_PAUSE_S", 0.001)
    store = open_at(tmp_path)
    stalls = 0

    class CountingDatabase:
        """The database, with its refusals counted."""

        def __init__(self, db: rocksdict.Rdict) -> None:
            self.db = db

        def write(self, *args: object) -> None:
            nonlocal stalls
            try:
                self.db.write(*args)
            except Exception as error:
                stalls += "Write stall" in str(error)
                raise

    database = store._db
    store._db = CountingDatabase(database)
    for batch in range(300):
        store.apply([(b"%04d-%d" % (i, batch), b"v" * 100, 1) for i in range(200)], batch)
        if stalls > 3:
            break
    store._db = database
    assert stalls > 0
    assert store.position == batch
    assert len(list(store.range(None, None))) == (batch + 1) * 200
    store.close()


def test_wiping_frees_the_space(tmp_path: Path) -> None:
    """What was deleted does not stay on disk."""
    store = filled(tmp_path)
    before = sum(file.stat().st_size for file in tmp_path.glob("*.sst"))
    store.wipe()
    assert sum(file.stat().st_size for file in tmp_path.glob("*.sst")) < before / 2
    store.close()


def test_a_deleted_directory_under_an_open_store_does_not_hang_close(tmp_path: Path) -> None:
    """Somebody removed the files: close still returns."""
    store = filled(tmp_path / "s")
    shutil.rmtree(tmp_path / "s")
    store.close()
    with pytest.raises(ClosedStoreError):
        store.get(b"x")


@pytest.mark.cluster
def test_a_full_disk_is_a_processor_state_exception_and_loses_nothing(tmp_path: Path) -> None:
    """In a process that may not write large files (as good as a full disk), apply fails with path and
    cause; what had been applied is there afterwards, with its position."""
    program = Path(__file__).with_name("full_disk.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    applied, message = done.stdout.split(maxsplit=1)
    assert "check the space and the permissions" in message
    store = open_at(tmp_path)
    assert int(applied) >= 1
    assert store.position == int(applied)
    assert len(list(store.range(None, None))) == int(applied) * 50
    store.close()
