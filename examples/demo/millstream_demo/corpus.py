"""The text that the demo counts: the files and their contents.

Text is UTF-8; other bytes are read as U+FFFD, which no word contains. The size and time of each file are
remembered, so that a file that somebody writes to in the meantime is not taken for a wrong count.
"""

from __future__ import annotations

import os
import stat
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from millstream_demo.words import WordTooLong, pieces

__all__ = ["Corpus", "TextFile", "UnfitText", "given", "standard_library"]

LIBRARY_BYTES = 10_000_000
"""The most that is read of the standard library, since some distributions ship more of it than others."""

_PROBE_BYTES = 8192
_BLOCK_CHARACTERS = 1 << 20
_NOT_OF_THE_LIBRARY = frozenset(
    {"__pycache__", "dist-packages", "idle_test", "site-packages", "test", "tests"}
)


class UnfitText(ValueError):
    """A file that cannot be counted; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file, as it was when it was chosen."""

    path: Path
    size: int
    modified_ns: int

    @property
    def has_changed(self) -> bool:
        """Whether it has been written to since, or is gone."""
        try:
            now = self.path.stat()
        except OSError:
            return True
        return (now.st_size, now.st_mtime_ns) != (self.size, self.modified_ns)

    def lines(self) -> Iterator[str]:
        """Its lines, without their ends. A line that is too long for a record comes in pieces.

        Raises:
            UnfitText: it cannot be read, or has a word that is too long for a record.
        """
        try:
            with self.path.open(encoding="utf-8", errors="replace") as file:
                for number, line in enumerate(file, start=1):
                    try:
                        yield from pieces(line.rstrip("\n"))
                    except WordTooLong as error:
                        raise UnfitText(f"{self.path}: line {number} {error}; is it text?") from None
        except OSError as error:
            raise UnfitText(f"{self.path}: cannot be read: {error.strerror or error}") from error

    def blocks(self) -> Iterator[str]:
        """All of its text, several lines at a time.

        Raises:
            UnfitText: it cannot be read.
        """
        try:
            with self.path.open(encoding="utf-8", errors="replace") as file:
                while block := file.readlines(_BLOCK_CHARACTERS):
                    yield "".join(block)
        except OSError as error:
            raise UnfitText(f"{self.path}: cannot be read: {error.strerror or error}") from error


@dataclass(frozen=True, slots=True)
class Corpus:
    """The files to count.

    Attributes:
        origin: where they are from, in a few words; empty if that would take many.
        note: what was left out, in words; empty if nothing was.
    """

    files: tuple[TextFile, ...]
    origin: str
    note: str = ""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def lines(self) -> Iterator[str]:
        """The lines of all files."""
        for file in self.files:
            yield from file.lines()

    def blocks(self) -> Iterator[str]:
        """The text of all files, in blocks of whole lines."""
        for file in self.files:
            yield from file.blocks()

    def changed(self) -> list[Path]:
        """The files that have changed since they were chosen."""
        return [file.path for file in self.files if file.has_changed]


def given(paths: Sequence[Path]) -> Corpus:
    """The named files, and all text files in the named directories.

    A named file has to be text. In directories, files that are hidden, unreadable or not text are left out.

    Raises:
        UnfitText: one cannot be used, or is empty; the message names it.
    """
    files: dict[Path, TextFile] = {}
    left_out = 0
    for path in paths:
        if path.is_dir():
            for found in _walk(path, frozenset({"__pycache__"})):
                try:
                    files.setdefault(found.resolve(), _text_file(found))
                except UnfitText:
                    left_out += 1
        else:
            files.setdefault(path.resolve(), _text_file(path))
    named = ", ".join(map(str, paths))
    if not files:
        raise UnfitText(f"{named}: contains no text file" + (f", but {left_out} others" if left_out else ""))
    if not any(file.size for file in files.values()):
        raise UnfitText(f"{named}: empty, so there is nothing to count")
    note = f"left out, because not text or not readable: {left_out:,}" if left_out else ""
    short = next((text for text in (named, ", ".join(path.name for path in paths)) if len(text) <= 40), "")
    return Corpus(tuple(files.values()), short, note)


def standard_library(limit: int = LIBRARY_BYTES) -> Corpus:
    """The sources of Python's standard library and its licence, up to `limit` bytes.

    Raises:
        UnfitText: this Python has its library in another form.
    """
    root = Path(sysconfig.get_path("stdlib"))
    licences, sources = [], []
    for path in _walk(root, _NOT_OF_THE_LIBRARY):
        if path.suffix == ".py":
            sources.append(path)
        elif path.suffix == ".txt" and path.name.lower().startswith(("licen", "copying")):
            licences.append(path)
    files: list[TextFile] = []
    total = left_out = 0
    for path in [*licences, *sources]:
        try:
            file = _text_file(path)
        except UnfitText:
            continue
        if total + file.size > limit:
            left_out += 1
            continue
        total += file.size
        files.append(file)
    if not total:
        raise UnfitText(f"this Python has no sources of its library in {root}; name files to count instead")
    note = f"{left_out:,} more were left out, since {limit // 1_000_000} MB are enough" if left_out else ""
    return Corpus(tuple(files), "Python's standard library", note)


def _walk(root: Path, unwanted: frozenset[str]) -> Iterable[Path]:
    """The files below a directory, in order. Skips hidden ones, and links to directories."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in unwanted and not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(folder, name)


def _text_file(path: Path) -> TextFile:
    """Raises:
    UnfitText: it is missing, not a file, unreadable, or not text.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UnfitText(f"{path}: not a regular file")
        with path.open("rb") as file:
            begin = file.read(_PROBE_BYTES)
    except OSError as error:
        raise UnfitText(f"{path}: {error.strerror or error}") from error
    if b"\0" in begin:
        raise UnfitText(f"{path}: contains zero bytes, so it is binary or UTF-16; give text in UTF-8")
    return TextFile(path, status.st_size, status.st_mtime_ns)
