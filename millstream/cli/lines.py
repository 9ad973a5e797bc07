"""Lines of standard input, in chunks: large ones from a file, and small ones soon if few lines arrive."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from queue import Empty, Queue

__all__ = ["pieces"]


def pieces(lines: Iterable[str], most: int, within_s: float) -> Iterator[list[str]]:
    """Lines without their line ends, in lists: up to `most`, or those within `within_s` after the first.

    They are read on a thread, which ends with the lines or with the process, because a read of a pipe cannot
    be interrupted. Ctrl-C takes effect after the lines read so far.

    Raises:
        OSError, ValueError: what reading them raised.
    """
    read: Queue[str | None] = Queue(most)
    failed: list[OSError | ValueError] = []

    def fill() -> None:
        try:
            for line in lines:
                read.put(line.rstrip("\r\n"))
        except (OSError, ValueError) as error:  # ValueError: it is not UTF-8
            failed.append(error)
        finally:
            read.put(None)

    threading.Thread(target=fill, name="cli-lines", daemon=True).start()
    piece: list[str] = []
    has_ended = False
    try:
        while not has_ended:
            has_ended = _fill(piece, read, most, within_s)
            if piece:
                handed_on, piece = piece, []
                yield handed_on
    except KeyboardInterrupt:
        while not read.empty():
            line = read.get_nowait()
            piece += [] if line is None else [line]
        if piece:
            yield piece
        raise
    if failed:
        raise failed[0]


def _fill(piece: list[str], read: Queue[str | None], most: int, within_s: float) -> bool:
    """Fill the list; whether the input has ended."""
    line = read.get()
    until = time.monotonic() + within_s
    while line is not None:
        piece.append(line)
        if len(piece) >= most:
            return False
        try:
            line = read.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            return False
    return True
