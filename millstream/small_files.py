"""Small files: written as a whole or not at all, and checked when they are read.

A process can be killed in the middle of a write, and after a power failure a file can be there with nothing
or zeros in it. So a file is written under another name, synced, and renamed. What is read is not trusted
either, because a disk, a backup or a person may have changed it: each reader says what damage means, and no
exception of a parser reaches a user. `tests/test_small_files.py` has the table of all files, and checks that
no module writes or reads one in another way.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["from_json", "read_text", "sync_directory", "write_whole"]

T = TypeVar("T")

_WRONG_CONTENT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def write_whole(file: Path, content: bytes | str, *, mode: int = 0o666) -> None:
    """Replace a file's content. After a crash or a power failure it has the old or the new content.

    Raises:
        OSError: it cannot be written; it is unchanged.
    """
    draft = _draft(file, content, mode)
    try:
        os.replace(draft, file)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise
    sync_directory(file.parent)


def read_text(file: Path) -> str | None:
    """A file's text; None: there is no such file, or it cannot be read, or is not text."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def from_json(content: bytes, make: Callable[[dict[str, Any]], T], *, version: int | None = None) -> T:
    """What `make` makes of the JSON object in a file's content.

    Args:
        version: the file's version, if it has one: content of another version is not read.

    Raises:
        ValueError: the content is damaged, or of another version. The message says how, for `… cannot be read
            (…)`.
    """
    if not content.strip(b"\0 \t\r\n"):
        raise ValueError("it is empty")
    try:
        found = json.loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise ValueError("it is not text") from None
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    if version is not None and found.get("version") != version:
        raise ValueError(
            f"it has version {found.get('version')!r}, and this Millstream reads version {version}"
        )
    try:
        return make(found)
    except _WRONG_CONTENT as error:
        raise ValueError(f"its content is not as expected: {error!r}") from error


def sync_directory(directory: Path) -> None:
    """Have the names in a directory survive a power failure."""
    if os.name == "nt":
        return  # directories cannot be opened on this platform
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems sync no directories
            raise
    finally:
        os.close(descriptor)


def _draft(file: Path, content: bytes | str, mode: int) -> Path:
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex[:12]}.tmp")
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content.encode("utf-8") if isinstance(content, str) else content)
            opened.flush()
            os.fsync(opened.fileno())
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    return draft
