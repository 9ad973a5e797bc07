"""Where sources are read from when a pipeline begins without a checkpoint, after a reset.

`starts.json` is next to the checkpoints. A reset writes it first, marked as incomplete, and again at its end.
So an interrupted reset is noticed at the next start, and a finished one says that the application is to begin
again, and where. A pipeline that has a checkpoint ignores it.

Spark keeps the offsets that a query first starts from in its checkpoint, `sources/<n>/0`, one file for each
source of the query. `begin` writes them there before the query starts, on behalf of the client that has
claimed it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.checkpoints.object_fencing import live_of
from millstream.errors import IllegalStateException, StreamsException
from millstream.model import TopicPartition
from millstream.ports import CheckpointFiles, TopicDescription, Topics
from millstream.small_files import from_json, text_in
from millstream.topology.nodes import OffsetReset, OffsetResetPolicy, Source, TableSource
from millstream.topology.pipeline import Pipeline, Scan, input_label

__all__ = [
    "STARTS",
    "Starts",
    "TopicStart",
    "begin",
    "initial_offsets",
    "raise_if_half_reset",
    "read_starts",
    "told_to_begin",
]

log = logging.getLogger(__name__)

STARTS = "starts.json"


@dataclass(frozen=True)
class TopicStart:
    """The next offset to read of each partition, in the topic that has this id."""

    topic_id: str
    offsets: Mapping[int, int]


@dataclass(frozen=True)
class Starts:
    """What a reset decided.

    Attributes:
        at: when, in ISO 8601, by the resetting machine's clock.
        complete: whether it was finished.
    """

    at: str
    complete: bool = True
    topics: Mapping[str, TopicStart] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The content of the file."""
        topics = {
            name: {
                "topic_id": start.topic_id,
                "offsets": {str(number): offset for number, offset in sorted(start.offsets.items())},
            }
            for name, start in sorted(self.topics.items())
        }
        kept = {"version": 1, "at": self.at, "complete": self.complete, "topics": topics}
        return json.dumps(kept, indent=1).encode()

    @classmethod
    def parse(cls, content: bytes) -> Starts:
        """Parse the content of the file.

        Raises:
            ValueError: the content is invalid.
        """

        def made(kept: dict[str, Any]) -> Starts:
            topics = {
                name: TopicStart(
                    text_in(each["topic_id"]),
                    {int(number): int(offset) for number, offset in each["offsets"].items()},
                )
                for name, each in kept["topics"].items()
            }
            return cls(text_in(kept["at"]), kept["complete"] is True, topics)

        return from_json(content, made, version=1)


def read_starts(files: CheckpointFiles, location: str) -> Starts | None:
    """The result of the last reset; None: there was none.

    Raises:
        StreamsException: it cannot be read, so the start positions are unknown.
    """
    content = files.read(STARTS)
    if content is None:
        return None
    try:
        return Starts.parse(content)
    except ValueError as error:
        raise StreamsException(
            f"'{location}/{STARTS}', which records where the application starts after a reset, cannot be "
            f"read ({error}); run `millstream reset` again, or delete the file: new checkpoints then start "
            f"where auto.offset.reset says"
        ) from error


def raise_if_half_reset(files: CheckpointFiles, location: str) -> None:
    """Raise if a reset was begun and not finished, because the remaining state may then be inconsistent.

    Raises:
        IllegalStateException: a reset is unfinished.
    """
    starts = read_starts(files, location)
    if starts is not None and not starts.complete:
        raise IllegalStateException(
            f"a reset of the application that began at {starts.at} has not finished (see "
            f"'{location}/{STARTS}'); run it again: `millstream reset`, or KafkaStreams.reset()"
        )


def told_to_begin(files: CheckpointFiles, location: str, pipeline: str) -> bool:
    """Whether a reset set the pipeline's start, and it has not got beyond that. Then missing progress does
    not mean lost progress.
    """
    if read_starts(files, location) is None:
        return False
    names = files.list()
    return f"{pipeline}.topics.json" not in names or live_of(pipeline, files) is not None


def initial_offsets(
    topics: Iterable[TopicDescription],
    starts: Starts,
    reset: OffsetResetPolicy,
    first: Mapping[TopicPartition, int],
    last: Mapping[TopicPartition, int],
) -> tuple[dict[str, dict[str, int]] | None, tuple[str, ...]]:
    """A source's initial offsets in Spark's form, and warnings; None: the reset does not mention its topics.

    Args:
        topics: the topics that the source reads.
        reset: the start of topics that the reset does not mention: at their end, or else at their first
            record.
        first, last: each partition's first offset, and the one after its last record.
    """
    offsets: dict[str, dict[str, int]] = {}
    warnings: list[str] = []
    known = False
    for topic in topics:
        start = starts.topics.get(topic.name)
        if start is not None and start.topic_id != topic.topic_id:
            warnings.append(
                f"topic '{topic.name}' was deleted and created again after the reset of {starts.at}; it is "
                f"read from its {'latest' if reset is OffsetReset.LATEST else 'earliest'} record on"
            )
            start = None
        known = known or start is not None
        for number in range(topic.partitions):
            at = TopicPartition(topic.name, number)
            wanted = None if start is None else start.offsets.get(number)
            if wanted is None:
                wanted = last[at] if reset is OffsetReset.LATEST else first[at]
            elif wanted < first[at]:
                warnings.append(
                    f"'{at}' was to be read from offset {wanted}, as reset at {starts.at}, and begins at "
                    f"{first[at]} by now: {first[at] - wanted} records are gone"
                )
            begin_at = max(first[at], min(wanted, last[at]))
            offsets.setdefault(topic.name, {})[str(number)] = begin_at
    return (offsets if known else None), tuple(warnings)


def begin(
    pipeline: Pipeline,
    scans: Iterable[Scan],
    directory: str,
    files: CheckpointFiles,
    location: str,
    topics: Topics,
    sources: Mapping[str, TopicDescription],
    default: OffsetResetPolicy,
) -> None:
    """Make a pipeline without a checkpoint start where the last reset said, if there was one.

    No query runs on it. A source that may only start where a reset says is refused without one.

    Args:
        scans: the sources of its query, in their order.
        directory: the checkpoint's directory, below the root.
        sources: all topics that the application reads.
        default: `auto.offset.reset`.

    Raises:
        IllegalStateException: the last reset was not finished.
        StreamsException: Kafka or the files cannot be reached; or a source has AutoOffsetReset.none(),
            directly or by configuration, and no reset set its start.
    """
    raise_if_half_reset(files, location)
    starts = read_starts(files, location)
    if files.list(f"{directory}/offsets"):
        return
    nodes = {input_label(node): node for node in pipeline.inputs}
    for number, scan in enumerate(scans):
        node = nodes.get(scan.reads)
        if not isinstance(node, Source | TableSource) or files.exists(f"{directory}/sources/{number}/0"):
            continue
        reset = node.offset_reset or default
        if _began(pipeline, node, reset, number, directory, files, topics, sources, starts):
            continue
        if reset is OffsetReset.NONE:
            policy = "auto.offset.reset=none" if node.offset_reset is None else "AutoOffsetReset.none()"
            raise StreamsException(
                f"pipeline {pipeline.name}: {scan.reads} has {policy}, and neither a checkpoint nor a reset "
                f"says where to start; set it with `millstream reset`, or give the source another policy"
            )


def _began(
    pipeline: Pipeline,
    node: Source | TableSource,
    reset: OffsetResetPolicy,
    number: int,
    directory: str,
    files: CheckpointFiles,
    topics: Topics,
    sources: Mapping[str, TopicDescription],
    starts: Starts | None,
) -> bool:
    """Write the start of one source. Returns whether the last reset determined it."""
    if starts is None:
        return False
    read = _read(node, sources)
    partitions = [TopicPartition(topic.name, each) for topic in read for each in range(topic.partitions)]
    first, last = topics.beginning_offsets(partitions), topics.end_offsets(partitions)
    offsets, warnings = initial_offsets(read, starts, reset, first, last)
    for warning in warnings:
        log.warning("pipeline %s: %s", pipeline.name, warning)
    if offsets is None:
        return False
    # In Spark's format: a zero byte, a version, and the offsets.
    content = b"\0v1\n" + json.dumps(offsets, separators=(",", ":")).encode()
    files.write(f"{directory}/sources/{number}/0", content)
    log.info("pipeline %s begins, as reset at %s, at %s", pipeline.name, starts.at, offsets)
    return True


def _read(node: Source | TableSource, sources: Mapping[str, TopicDescription]) -> list[TopicDescription]:
    """The topics that an input reads."""
    if isinstance(node, TableSource):
        return [sources[node.topic]] if node.topic in sources else []
    pattern = node.pattern
    if pattern is None:
        return [sources[name] for name in node.topics if name in sources]
    return [topic for name, topic in sorted(sources.items()) if pattern.fullmatch(name)]
