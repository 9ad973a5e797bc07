"""Who may read what is kept on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millstream.permissions import make_private, umask_of_children
from millstream.stores.directory import StateDirectory

pytestmark = pytest.mark.disk


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_directories_are_made_for_this_user_and_its_group(tmp_path: Path) -> None:
    """All that are made on the way; those that are there stay as they are."""
    tmp_path.chmod(0o755)
    make_private(tmp_path / "a" / "b")
    assert [mode_of(path) for path in (tmp_path, tmp_path / "a", tmp_path / "a" / "b")] == [
        0o755,
        0o750,
        0o750,
    ]
    make_private(tmp_path / "c", group_writes=True)
    assert mode_of(tmp_path / "c") == 0o770


@pytest.mark.parametrize(
    ("before", "group_writes", "after"),
    [
        (0o755, False, 0o750),
        (0o777, False, 0o750),
        (0o777, True, 0o770),
        (0o700, False, 0o700),
        (0o700, True, 0o700),
        (0o750, False, 0o750),
        (0o2775, False, 0o2750),
    ],
)
def test_an_existing_directory_is_tightened_and_never_loosened(
    before: int, group_writes: bool, after: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A line is logged if that changes something; the set-group-id bit stays."""
    caplog.set_level("INFO")
    directory = StateDirectory(tmp_path, "app", group_writes=group_writes)
    directory.path.mkdir()
    directory.path.chmod(before)
    with directory:
        assert mode_of(directory.path) == after
    with directory:
        pass
    assert len(caplog.records) == (before != after)


def test_children_write_nothing_that_others_can_read() -> None:
    """They have this process's umask, which itself stays unchanged."""
    program = (
        "import os; from millstream.permissions import umask_of_children as u; os.umask(int('{}', 8))\n"
        "print(f'{{u():o}} {{u(group_writes=True):o}} {{os.umask(0):o}}')"
    )
    told = {
        own: subprocess.run(
            [sys.executable, "-c", program.format(own)], check=True, capture_output=True, text=True
        ).stdout.split()
        for own in ("022", "077", "002")
    }
    assert told == {"022": ["27", "7", "22"], "077": ["77", "57", "77"], "002": ["27", "7", "2"]}
    assert umask_of_children() & 0o007 == 0o007
