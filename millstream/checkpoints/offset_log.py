"""The position of a Spark checkpoint, read from its files, and moved where that is safe.

Below a checkpoint's directory, `offsets/<n>` says up to where micro-batch n reads, one line for each source
of the query after two lines of its own; `commits/<n>` exists once the batch is done. So the newest commit
shows what has been read, and a newer file in `offsets` is a batch that was interrupted: Spark runs it again.

Only the client that has claimed the checkpoint may move it, and only while no query runs on it
(reconcile.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millstream.checkpoints.object_fencing import live_of
from millstream.errors import StreamsException
from millstream.model import TopicPartition
from millstream.ports import FENCE, CheckpointFiles
from millstream.small_files import from_json, list_in, text_in
from millstream.topology.pipeline import Scan

__all__ = [
    "OffsetLog",
    "aligned",
    "forget_unfinished",
    "log_of",
    "mark",
    "marked",
    "moved",
    "positions_of",
    "save",
    "unfinished",
    "unmark",
]

_TRIES = 20
_MARK = "offsets-moved.json"

Line = Mapping[str, Mapping[str, int]] | int
"""A number: the source is the time of day (spark/compile/processor_nodes.py), not a topic."""


@dataclass(frozen=True)
class OffsetLog:
    """The content of one file.

    Attributes:
        head: Spark's own first lines.
        lines: for each source, the offset after the last one to read, by topic and partition; None: the
            source had nothing yet.
    """

    batch: int
    head: tuple[str, ...]
    lines: tuple[Line | None, ...]

    @classmethod
    def parse(cls, batch: int, content: bytes) -> OffsetLog:
        """Parse a file's content.

        Raises:
            ValueError: its format is unknown.
        """
        text = content.decode("utf-8").rstrip("\n").split("\n")
        if len(text) < 3 or text[0] != "v1":
            raise ValueError(f"begins with {text[0][:20]!r}")
        lines: list[Line | None] = []
        for line in text[2:]:
            if line == "-":
                lines.append(None)
                continue
            try:
                offsets: Any = json.loads(line)
            except RecursionError:
                offsets = None
            if isinstance(offsets, int):
                lines.append(offsets)
                continue
            if not _are_offsets(offsets):
                raise ValueError(f"has a line {line[:60]!r}")
            lines.append(offsets)
        return cls(batch, (text[0], text[1]), tuple(lines))

    def to_bytes(self) -> bytes:
        """The content in Spark's format."""
        lines = ["-" if line is None else json.dumps(line, separators=(",", ":")) for line in self.lines]
        return "\n".join((*self.head, *lines)).encode()

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to read of each partition; the lowest, if several sources read it."""
        found: dict[TopicPartition, int] = {}
        for line in self.lines:
            for topic, partitions in ({} if line is None or isinstance(line, int) else line).items():
                for number, offset in partitions.items():
                    at = TopicPartition(topic, int(number))
                    found[at] = min(int(offset), found.get(at, int(offset)))
        return found


# --- deciding: pure -----------------------------------------------------------------------------------------


def moved(log: OffsetLog, to: Mapping[str, Mapping[int, int] | None]) -> OffsetLog:
    """The log with these topics at these offsets; None: the topic no longer exists."""

    def line(old: Line | None) -> Line | None:
        if old is None or isinstance(old, int):
            return old
        new = {topic: offsets for topic, offsets in old.items() if topic not in to}
        for topic, offsets in to.items():
            if topic in old and offsets is not None:
                new[topic] = {str(number): offset for number, offset in sorted(offsets.items())}
        return new

    return replace(log, lines=tuple(line(each) for each in log.lines))


def aligned(log: OffsetLog, before: Sequence[Scan] | None, now: Sequence[Scan]) -> OffsetLog | None:
    """The log for a query with other sources than the one that wrote it; None: that cannot be determined.

    A query reads an input once for its stateful part, and once more for output written beside that
    (docs/decisions/0004). So a new version of a program may have more or fewer sources, or have them in
    another order. The stateful part continues exactly where it was. New output beside it starts there, too.

    Args:
        before: the sources of the query that wrote the log; None: they were not noted. If their number
            differs, they belong to another query: earlier versions moved a log, noted it a moment later, and
            marked nothing.
    """
    if before is None or len(before) != len(log.lines):
        if len(log.lines) == len(now):
            return log
        lines = {json.dumps(line, sort_keys=True) for line in log.lines}
        inputs = {scan.reads for scan in now}
        # All of them read the same input and are at the same position, so it does not matter which one it
        # was.
        return replace(log, lines=(log.lines[0],) * len(now)) if len(lines) == len(inputs) == 1 else None
    if tuple(before) == tuple(now):
        return log
    lines_now = []
    for scan in now:
        same = [line for old, line in zip(before, log.lines, strict=True) if old == scan]
        beside = [line for old, line in zip(before, log.lines, strict=True) if old.reads == scan.reads]
        if same:
            lines_now.append(same[0])
        elif beside and not scan.feeds:
            lines_now.append(beside[0])
        else:
            return None
    return replace(log, lines=tuple(lines_now))


# --- files --------------------------------------------------------------------------------------------------


def positions_of(files: CheckpointFiles, pipeline: str) -> Mapping[TopicPartition, int] | None:
    """The next offset to read of each partition, from the pipeline's checkpoint.

    None: there is no checkpoint, or no query has begun anything with it. Empty: one has, but has finished
    nothing. Other clients may run or claim the pipeline meanwhile.

    Raises:
        StreamsException: the files cannot be read.
    """
    for _ in range(_TRIES):
        live = live_of(pipeline, files)
        if live is None:
            return None
        log = log_of(files, live)
        begun = bool(_numbers(files.list(f"{live}/offsets"))) or _is_in_first_batch(files, live)
        if live_of(pipeline, files) != live:
            continue  # it was claimed meanwhile, and so renamed
        if log is not None:
            return log.positions
        return {} if begun else None
    raise StreamsException(f"the checkpoint of pipeline '{pipeline}' keeps being claimed by others")


def _is_in_first_batch(files: CheckpointFiles, directory: str) -> bool:
    """Whether a query has begun, but no batch is planned or done.

    In Real-Time Mode the first batch writes records, for minutes, before Spark writes down at its end what it
    has read. Where it began to read stands there from the start. Looking at one source is enough: no batch
    begins before all of them have written it, the first one first.
    """
    names = files.list(directory)
    return (
        "metadata" in names
        and bool(_numbers(files.list(f"{directory}/sources/0")))
        and next(_done(files, directory), None) is None
    )


def log_of(files: CheckpointFiles, directory: str) -> OffsetLog | None:
    """What the newest completed batch has read; None: there is none, or Spark's format is unknown.

    Damaged files are left for Spark to report.
    """
    batch = next(_done(files, directory), None)
    content = None if batch is None else files.read(f"{directory}/offsets/{batch}")
    try:
        return None if batch is None or content is None else OffsetLog.parse(batch, content)
    except ValueError:
        return None


def unfinished(files: CheckpointFiles, directory: str) -> OffsetLog | None:
    """What the interrupted batch was to read; None: no batch was interrupted."""
    done = max(_numbers(files.list(f"{directory}/commits")), default=-1)
    planned = max(_numbers(files.list(f"{directory}/offsets")), default=-1)
    if planned <= done:
        return None
    content = files.read(f"{directory}/offsets/{planned}")
    try:
        return None if content is None else OffsetLog.parse(planned, content)
    except ValueError:
        return None


def forget_unfinished(files: CheckpointFiles, directory: str) -> None:
    """Have Spark plan the interrupted batch again; if no batch is done yet, as if it had never run."""
    done = max(_numbers(files.list(f"{directory}/commits")), default=-1)
    for batch in _numbers(files.list(f"{directory}/offsets")):
        if batch > done:
            _delete(files, f"{directory}/offsets", batch)
    if done < 0:
        for part in ("sources", "state"):  # where the first batch began, and its state so far
            files.delete(f"{directory}/{part}")


def save(files: CheckpointFiles, directory: str, log: OffsetLog) -> None:
    """Replace the file of this completed batch and of the previous one, which Spark also reads when it
    starts, but only to compare the number of sources.
    """
    before = f"{directory}/offsets/{log.batch - 1}"
    for batch in (log.batch - 1, log.batch):
        if batch == log.batch or files.exists(before):
            # Hadoop's checksum beside it would be wrong; without one, nothing is checked.
            files.delete(f"{directory}/offsets/.{batch}.crc")
            files.write(f"{directory}/offsets/{batch}", log.to_bytes())


def mark(files: CheckpointFiles, directory: str, log: OffsetLog, scans: Sequence[Scan]) -> None:
    """Record that this log belongs to these sources, before it is saved and until that is noted.

    A log does not say which line belongs to which source. If it were saved but not noted, the next alignment
    would assign its lines to the old sources, and sources that changed places would change back.
    """
    kept = {
        "log": [log.batch, log.to_bytes().decode()],
        "scans": [{"reads": scan.reads, "feeds": scan.feeds} for scan in scans],
    }
    files.write(f"{directory}/{_MARK}", json.dumps(kept, indent=1).encode())


def marked(files: CheckpointFiles, directory: str, log: OffsetLog) -> tuple[Scan, ...] | None:
    """The sources that this very log was marked with; None: it belongs to the noted ones.

    Raises:
        StreamsException: the mark cannot be read, so it is unknown which sources the log belongs to.
    """
    content = files.read(f"{directory}/{_MARK}")
    if content is None:
        return None

    def made(kept: dict[str, Any]) -> tuple[Scan, ...] | None:
        scans = tuple(
            Scan(text_in(each["reads"]), tuple(map(text_in, list_in(each["feeds"]))))
            for each in list_in(kept["scans"])
        )
        batch, text = list_in(kept["log"])
        # Another log was not saved; or it was noted, since batches were completed later.
        return scans if (int(batch), text_in(text)) == (log.batch, log.to_bytes().decode()) else None

    try:
        return from_json(content, made)
    except ValueError as error:
        raise StreamsException(
            f"'{directory}/{_MARK}', which says which sources the checkpoint's offsets belong to, cannot "
            f"be read ({error}); if the program has not changed since the application last ran, delete the "
            "file, otherwise start afresh with `millstream reset`"
        ) from error


def unmark(files: CheckpointFiles, directory: str) -> None:
    """Remove the mark, because the sources are noted now."""
    if files.exists(f"{directory}/{_MARK}"):
        files.delete(f"{directory}/{_MARK}")


def _are_offsets(found: Any) -> bool:
    """Whether it has an offset for each partition of each topic."""
    return isinstance(found, dict) and all(
        isinstance(each, dict)
        and all(number.isdecimal() and isinstance(offset, int) for number, offset in each.items())
        for each in found.values()
    )


def _delete(files: CheckpointFiles, directory: str, batch: int) -> None:
    files.delete(f"{directory}/.{batch}.crc")
    files.delete(f"{directory}/{batch}")


def _done(files: CheckpointFiles, directory: str) -> Iterator[int]:
    """The batches that are done, the newest first. A batch that is not done may be committed too: by the
    fence of another client that is claiming the checkpoint.
    """
    for batch in sorted(_numbers(files.list(f"{directory}/commits")), reverse=True):
        if files.read(f"{directory}/commits/{batch}") != FENCE:
            yield batch


def _numbers(names: Mapping[str, bool]) -> list[int]:
    return [int(name) for name, is_directory in names.items() if name.isdecimal() and not is_directory]
