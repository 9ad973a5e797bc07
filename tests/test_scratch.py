"""Private directories: whose they are, who may read them, and that those of the dead are cleared away."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from millstream.broker.storage import DataDir
from millstream.errors import BrokerException
from millstream.scratch import LOCK, PrivateDirectory, clear_abandoned

_HOLDS_ONE = Path(__file__).with_name("holds_directory.py")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary directory, of this test's own, for child processes too."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_one_is_its_owners_alone_and_goes_with_it(temporary: Path) -> None:
    """No other user may read it; it is removed with its contents, once."""
    directory = PrivateDirectory("test")
    assert directory.path.parent == temporary
    assert f"-{os.getpid()}-" in directory.path.name
    assert directory.path.stat().st_mode & 0o777 == 0o700
    (directory.path / "sub").mkdir()
    (directory.path / "link").symlink_to("/nonesuch")
    assert clear_abandoned("test") == []
    directory.remove()
    directory.remove()
    assert list(temporary.iterdir()) == []


def test_what_the_dead_left_is_cleared_and_what_lives_or_is_not_ours_stays(temporary: Path) -> None:
    """By the next one of that kind. A live process keeps its own; other names, files, links and what is just
    being made are left alone."""
    others = [temporary / "millstream-test-file", temporary / "millstream-other-1", temporary / "else"]
    others[0].touch()
    others[1].mkdir()
    others[2].mkdir()
    link = temporary / "millstream-test-link"
    link.symlink_to(others[2])
    young, old = temporary / "millstream-test-1-young", temporary / "millstream-test-1-old"
    for path in (young, old):
        path.mkdir()
    hour_ago = time.time() - 3600
    os.utime(old, (hour_ago, hour_ago))
    processes = [
        subprocess.Popen(
            [sys.executable, str(_HOLDS_ONE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    paths = []
    for process in processes:
        assert process.stdout is not None
        paths.append(Path(process.stdout.readline().strip()))
    killed, lives = processes
    killed.kill()
    killed.wait(10)
    mine = PrivateDirectory("test")
    assert not old.exists()
    assert not paths[0].exists()
    assert (paths[1] / "deep" / "library.so").exists()
    assert {*temporary.iterdir()} == {*others, link, young, mine.path, paths[1]}
    lives.kill()
    lives.wait(10)
    assert clear_abandoned("test") == [paths[1]]
    mine.remove()
    for process in processes:
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()
    assert not (temporary / LOCK).exists()


def test_a_broker_clears_away_what_killed_ones_left(temporary: Path) -> None:
    """A directory that another one holds stays."""
    dead = temporary / "millstream-kafka-1-dead"
    (dead / "kafka").mkdir(parents=True)
    (dead / LOCK).touch()
    held = DataDir(None)
    new = DataDir(None)
    assert {*temporary.iterdir()} == {held.path, new.path}
    assert f"-{os.getpid()}-" in new.path.name
    held.release()
    new.release()
    assert list(temporary.iterdir()) == []


def test_a_kept_directory_of_a_broker_is_let_go_by_whichever_thread_closes_it(tmp_path: Path) -> None:
    """A directory of somebody else, given by mistake, is refused and unchanged."""
    data = DataDir(tmp_path / "kept")
    closing = threading.Thread(target=data.release)
    closing.start()
    closing.join(10)
    DataDir(tmp_path / "kept").release()
    other = tmp_path / "other"
    other.mkdir(mode=0o755)
    (other / "a file").touch()
    with pytest.raises(BrokerException, match="is not empty"):
        DataDir(other)
    assert other.stat().st_mode & 0o777 == 0o755
