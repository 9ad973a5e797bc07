"""`ports.CheckpointFiles`: the fake, a directory of this machine and Hadoop keep one contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_ports import FakeCheckpointFiles

from millstream.checkpoints.fencing import LocalCheckpointFiles
from millstream.errors import StreamsException
from millstream.ports import CheckpointFiles


@pytest.fixture(params=["fake", "local", pytest.param("hadoop", marks=pytest.mark.spark)])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointFiles:
    """Of a root that does not exist yet."""
    match request.param:
        case "fake":
            return FakeCheckpointFiles()
        case "local":
            return LocalCheckpointFiles(tmp_path / "root")
    from millstream.spark.run.checkpoint_files import HadoopCheckpointFiles

    return HadoopCheckpointFiles(request.getfixturevalue("spark"), (tmp_path / "a root").as_uri())


def test_what_is_not_there_is_empty_none_or_false(files: CheckpointFiles) -> None:
    """It is not an error: a client that claims a checkpoint looks before the checkpoint exists."""
    assert dict(files.list()) == dict(files.list("p0")) == {}
    assert files.read("p0/epoch") is None
    assert not files.exists("p0")
    assert not files.rename("p0/1", "p0/2")
    files.delete("p0/1")


def test_what_is_written_is_read_and_listed(files: CheckpointFiles) -> None:
    """Any bytes, as a whole; directories are made as they are needed."""
    files.write("p0/epoch", b"\0\xff1")
    files.write("p0/epoch", b"")
    files.write("p0/deep/er/file", b"2")
    files.make_directories("p0/1")
    files.make_directories("p0/1")
    files.make_directories("")
    assert files.read("p0/epoch") == b""
    assert dict(files.list()) == {"p0": True}
    assert dict(files.list("p0")) == {"1": True, "deep": True, "epoch": False}
    assert dict(files.list("p0/1")) == {}
    assert files.exists("p0/deep/er")


def test_of_two_that_create_a_file_one_succeeds(files: CheckpointFiles) -> None:
    """Anything with that name prevents it, also a directory. Fencing relies on this."""
    assert files.create_file("p0/1")
    assert not files.create_file("p0/1")
    assert files.read("p0/1") == b""
    files.make_directories("p0/2")
    assert not files.create_file("p0/2")
    assert dict(files.list("p0")) == {"1": False, "2": True}


def test_a_renaming_takes_along_what_is_inside(files: CheckpointFiles) -> None:
    """The target's parent is created. The old name no longer exists."""
    files.write("p0/1/offsets/0", b"zero")
    files.write("p0/10", b"another name that begins with the same")
    assert files.rename("p0/1", "taken/by/2")
    assert not files.rename("p0/1", "p0/3")
    assert files.read("taken/by/2/offsets/0") == b"zero"
    assert dict(files.list("p0")) == {"10": False}


def test_nothing_is_renamed_over_what_is_there(files: CheckpointFiles) -> None:
    """A file over a file, a directory over a directory with something in it: both are as they were."""
    files.write("a", b"a")
    files.write("b", b"b")
    files.write("one/x", b"1")
    files.write("two/x", b"2")
    with pytest.raises(StreamsException):
        files.rename("a", "b")
    with pytest.raises(StreamsException):
        files.rename("one", "two")
    assert [files.read(name) for name in ("a", "b", "one/x", "two/x")] == [b"a", b"b", b"1", b"2"]


def test_a_file_is_no_directory(files: CheckpointFiles) -> None:
    """What would be below one is refused, and a look below it finds nothing."""
    files.write("p0/1", b"a fence")
    refused = {}
    for name, change in {
        "write": lambda: files.write("p0/1/below", b""),
        "make_directories": lambda: files.make_directories("p0/1/below"),
        "create_file": lambda: files.create_file("p0/1/below"),
    }.items():
        try:
            refused[name] = change()
        except StreamsException:
            refused[name] = "refused"
    assert refused == dict.fromkeys(refused, "refused")
    assert files.read("p0/1") == b"a fence"
    assert not files.exists("p0/1/below")
    assert files.read("p0/1/below") is None


def test_a_directory_is_no_file(files: CheckpointFiles) -> None:
    """There is nothing to read, and it is not written over; what was tried leaves nothing behind."""
    files.make_directories("p0/1")
    assert files.read("p0/1") is None
    with pytest.raises(StreamsException):
        files.write("p0/1", b"")
    assert dict(files.list("p0")) == {"1": True}


def test_deleting_takes_all_that_is_inside(files: CheckpointFiles) -> None:
    """Names that only begin alike are kept."""
    files.write("p0/1/offsets/0", b"")
    files.write("p0/10/offsets/0", b"")
    files.delete("p0/1")
    files.delete("p0/1")
    assert dict(files.list("p0")) == {"10": True}
    files.delete("p0")
    assert dict(files.list()) == {}
