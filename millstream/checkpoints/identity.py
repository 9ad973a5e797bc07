"""Whether the topics and the checkpoint of a pipeline are still the ones that its progress belongs to.

A topic is identified by its id, not its name (KIP-516). If a topic was deleted and created again under the
same name, Spark would resume at the old topic's offsets, and a store would lack what it had. So the ids of
all topics that a pipeline reads and writes are noted beside its checkpoint (`Noted`), and compared with the
current ones (`compare`) before anything runs. Pure: descriptions in, findings out; `checkpoints.py` keeps the
notes, `reconcile.py` acts on the findings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from millstream.errors import (
    LostCheckpointException,
    LostTopicException,
    MissingSourceTopicException,
    StreamsException,
)
from millstream.model import TopicPartition
from millstream.small_files import from_json, list_in, text_in
from millstream.topology.names import changelog_topic, internal_topic
from millstream.topology.nodes import FrameRead, Repartition, Sink, Source, TableSource
from millstream.topology.pipeline import Pipeline, Scan

__all__ = [
    "Finding",
    "Found",
    "Noted",
    "Notes",
    "Policies",
    "TopicRole",
    "TopicUse",
    "What",
    "compare",
    "dropped_sentence",
    "error_of",
    "fresh_changelogs",
    "mendable",
    "note",
    "topics_of",
]


class TopicRole(Enum):
    """What a pipeline does with a topic."""

    SOURCE = "source topic"
    TABLE = "table's topic"
    REPARTITION_READ = "repartition topic read as a source"
    REPARTITION = "repartition topic"
    DATAFRAME = "topic with the rows of a DataFrame"
    CHANGELOG = "changelog"
    OUTPUT = "output topic"
    DEAD_LETTERS = "dead letter topic"

    @property
    def is_read(self) -> bool:
        """Whether the checkpoint has offsets in it."""
        return self in (TopicRole.SOURCE, TopicRole.TABLE, TopicRole.REPARTITION_READ, TopicRole.DATAFRAME)

    @property
    def is_internal(self) -> bool:
        """Whether Millstream created it."""
        return self in (
            TopicRole.REPARTITION_READ,
            TopicRole.REPARTITION,
            TopicRole.CHANGELOG,
            TopicRole.DATAFRAME,
        )


@dataclass(frozen=True, order=True)
class TopicUse:
    """One topic in one role; a topic that is both read and written has two of these."""

    topic: str
    role: TopicRole = field(compare=False)
    by_pattern: bool = field(default=False, compare=False)


def topics_of(
    pipeline: Pipeline,
    application_id: str,
    existing: Iterable[str] = (),
    dead_letters: str | None = None,
) -> tuple[TopicUse, ...]:
    """Every topic that a pipeline reads and writes, by its full name, in the order of its nodes.

    Topics that a function names for each record are not known here.

    Args:
        existing: topics that patterns may match, without internal ones (topic_watch.matching_topics).
        dead_letters: the topic for failed records, if they are kept.
    """
    uses: dict[tuple[str, TopicRole], None] = {}
    matched: set[str] = set()
    named: set[str] = set()
    for node in pipeline.inputs:
        match node:
            case Source(pattern=None):
                uses.update({(topic, TopicRole.SOURCE): None for topic in node.topics})
                named.update(node.topics)
            case Source():
                assert node.pattern is not None
                matching = [topic for topic in sorted(existing) if node.pattern.fullmatch(topic)]
                uses.update({(topic, TopicRole.SOURCE): None for topic in matching})
                matched.update(matching)
            case FrameRead():
                uses[internal_topic(application_id, node.topic), TopicRole.DATAFRAME] = None
            case TableSource():
                uses[node.topic, TopicRole.TABLE] = None
            case _:
                uses[internal_topic(application_id, node.topic), TopicRole.REPARTITION_READ] = None
    for out in pipeline.outputs:
        if isinstance(out, Repartition):
            uses[internal_topic(application_id, out.topic), TopicRole.REPARTITION] = None
        elif isinstance(out, Sink) and out.topic is not None:
            uses[out.topic, TopicRole.OUTPUT] = None
    for store in pipeline.stores:
        if store.logged and store.source_topic is None:
            uses[changelog_topic(application_id, store.name), TopicRole.CHANGELOG] = None
    if dead_letters is not None:
        uses[dead_letters, TopicRole.DEAD_LETTERS] = None
    return tuple(
        TopicUse(topic, role, by_pattern=role is TopicRole.SOURCE and topic in matched - named)
        for topic, role in uses
    )


# --- what is noted, and what there is -----------------------------------------------------------------------


@dataclass(frozen=True)
class Noted:
    """A topic as it was when the pipeline was last started.

    Attributes:
        starts: for a changelog, the first offset of each partition at that time.
    """

    topic_id: str
    partitions: int
    role: TopicRole
    starts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Found:
    """A topic as it is now.

    Attributes:
        starts, ends: the first offset of each partition, and the one after its last record; empty unless they
            were queried.
        forgets: whether the broker deletes old records.
    """

    topic_id: str
    partitions: int
    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    forgets: bool = False

    @property
    def has_content(self) -> bool:
        """Whether it may still contain anything that was written to it."""
        return any(end > start for start, end in zip(self.starts, self.ends, strict=True))


def note(uses: Iterable[TopicUse], found: Mapping[str, Found]) -> dict[str, Noted]:
    """The notes about the existing topics. For a topic with several roles, being read counts most."""
    notes: dict[str, Noted] = {}
    for use in uses:
        there = found.get(use.topic)
        if there is not None and (use.topic not in notes or use.role.is_read):
            starts = there.starts if use.role is TopicRole.CHANGELOG else ()
            notes[use.topic] = Noted(there.topic_id, there.partitions, use.role, starts)
    return notes


@dataclass(frozen=True)
class Notes:
    """The content of `<pipeline>.topics.json`, beside a checkpoint.

    Attributes:
        scans: the sources of the query that wrote the checkpoint, in its order.
        serdes: the names of the key and value serdes of each store, in which its changelog is written.
        layouts: the layout of each store's state (CompiledPipeline).
    """

    topics: Mapping[str, Noted]
    scans: tuple[Scan, ...] = ()
    serdes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    layouts: Mapping[str, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The content of the file."""
        topics = {
            name: {**asdict(each), "role": each.role.name.lower()}
            for name, each in sorted(self.topics.items())
        }
        scans = [{"reads": scan.reads, "feeds": scan.feeds} for scan in self.scans]
        kept = {
            "version": 1,
            "topics": topics,
            "scans": scans,
            "serdes": dict(sorted(self.serdes.items())),
            "layouts": dict(sorted(self.layouts.items())),
        }
        return json.dumps(kept, indent=1).encode()

    @classmethod
    def parse(cls, content: bytes | None) -> Notes | None:
        """The notes in a file's content; None: there are none, or they cannot be read."""
        try:
            return cls.read(content or b"")
        except ValueError:
            return None

    @classmethod
    def read(cls, content: bytes) -> Notes:
        """The notes in a file's content.

        Raises:
            ValueError: they cannot be read.
        """
        return from_json(content, cls._made, version=1)

    @classmethod
    def _made(cls, kept: dict[str, Any]) -> Notes:
        topics = {
            name: Noted(
                text_in(each["topic_id"]),
                int(each["partitions"]),
                TopicRole[text_in(each["role"]).upper()],
                tuple(int(start) for start in list_in(each.get("starts", []))),
            )
            for name, each in kept["topics"].items()
        }
        scans = tuple(
            Scan(text_in(each["reads"]), tuple(map(text_in, list_in(each["feeds"]))))
            for each in list_in(kept["scans"])
        )
        serdes = {name: (text_in(key), text_in(value)) for name, (key, value) in kept["serdes"].items()}
        layouts = {name: text_in(layout) for name, layout in kept.get("layouts", {}).items()}
        return cls(topics, scans, serdes, layouts)


# --- comparing ----------------------------------------------------------------------------------------------


class What(Enum):
    """What has happened."""

    DELETED = "deleted"
    RECREATED = "deleted and created again"
    EMPTIED = "emptied"
    SHRUNK = "fewer partitions"
    NEVER_THERE = "never there"
    CHECKPOINT_GONE = "checkpoint gone"


@dataclass(frozen=True)
class Finding:
    """One thing that has changed: its topic ('' for the checkpoint), and the facts in words.

    Attributes:
        by_pattern: it is read because a pattern matches its name; no source names it.
    """

    what: What
    topic: str
    role: TopicRole | None
    facts: str
    by_pattern: bool = False

    @property
    def is_dropped(self) -> bool:
        """Whether the pipeline continues without the topic: a pattern reads what exists, as in Kafka."""
        return self.by_pattern and self.what in (What.DELETED, What.RECREATED)

    @property
    def sentence(self) -> str:
        """What happened, with names and facts."""
        if self.what is What.CHECKPOINT_GONE or self.role is None:
            return self.facts
        happened = {
            What.DELETED: "was deleted",
            What.RECREATED: "was deleted and created again",
            What.EMPTIED: "was emptied",
            What.SHRUNK: "has fewer partitions than before",
            What.NEVER_THERE: "does not exist",
        }[self.what]
        return f"{self.role.value} '{self.topic}' {happened} ({self.facts})"


def compare(
    pipeline: str,
    uses: Sequence[TopicUse],
    noted: Mapping[str, Noted] | None,
    found: Mapping[str, Found],
    *,
    positions: Mapping[TopicPartition, int] | None,
    committed: Mapping[TopicPartition, int] | None = None,
    patterns: Sequence[re.Pattern[str]] = (),
) -> tuple[Finding, ...]:
    """What does not match the pipeline's progress, in the order of `uses`; empty: it may continue.

    Args:
        noted: the notes beside the checkpoint, or None.
        found: the existing topics.
        positions: the next offset to read of each partition, from the checkpoint; None: there is no
            checkpoint, or it has processed nothing.
        committed: the group's committed offsets in the pipeline's source topics.
        patterns: the patterns of the pipeline's sources.
    """
    if positions is None:
        gone = _gone(pipeline, uses, found, committed or {})
        return () if gone is None else (gone,)
    known = noted or {}
    seen: dict[str, Finding] = {}
    for use in uses:
        finding = _compared(use, known.get(use.topic), found.get(use.topic), positions)
        # A topic in several roles is reported once, for the role that loses most.
        if finding is not None and (use.topic not in seen or use.role.is_read):
            seen[use.topic] = finding
    # A lost topic that a pattern matched is no longer in any `use`.
    used = {use.topic for use in uses}
    for name, old in known.items():
        if name not in used and old.role is TopicRole.SOURCE and name not in found:
            seen[name] = Finding(What.DELETED, name, old.role, f"topic id {old.topic_id}")
    # It was read but never noted, because it existed only for a moment.
    for name in sorted({at.topic for at in positions}):
        if name not in used and name not in seen and name not in found and _matched(patterns, name):
            seen[name] = Finding(What.DELETED, name, TopicRole.SOURCE, "and it was never recorded")
    named = {use.topic for use in uses if use.role.is_read and not use.by_pattern}
    return tuple(
        replace(each, by_pattern=True)
        if each.role is TopicRole.SOURCE and each.topic not in named and _matched(patterns, each.topic)
        else each
        for each in seen.values()
    )


def _matched(patterns: Sequence[re.Pattern[str]], topic: str) -> bool:
    return any(pattern.fullmatch(topic) for pattern in patterns)


def fresh_changelogs(
    uses: Iterable[TopicUse],
    noted: Mapping[str, Noted] | None,
    found: Mapping[str, Found],
    positions: Mapping[TopicPartition, int] | None,
) -> frozenset[str]:
    """Changelogs that were never written, beside a checkpoint with progress but without notes.

    Older versions, which wrote no notes, leave such a checkpoint. It is impossible to tell whether such a
    changelog was deleted and created again, or whether the store was always empty.
    """
    return frozenset(
        use.topic
        for use in uses
        if use.role is TopicRole.CHANGELOG
        and positions
        and use.topic not in (noted or {})
        and use.topic in found
        and not any(found[use.topic].ends)
    )


def _compared(
    use: TopicUse, old: Noted | None, now: Found | None, positions: Mapping[TopicPartition, int]
) -> Finding | None:
    def finding(what: What, facts: str) -> Finding:
        return Finding(what, use.topic, use.role, facts)

    mine = {at.partition: offset for at, offset in positions.items() if at.topic == use.topic}
    if now is None:
        if old is not None:
            return finding(What.DELETED, f"its topic id was {old.topic_id}")
        if use.role.is_read and mine:
            return finding(What.DELETED, f"read up to {_offsets(mine)}")
        # A checkpoint with progress proves that its changelogs existed.
        if use.role is TopicRole.CHANGELOG:
            return finding(What.DELETED, "the checkpoint has the store's state, but its changelog is gone")
        return finding(What.NEVER_THERE, "and it was never recorded") if use.role.is_read else None
    if old is not None and old.topic_id and now.topic_id and old.topic_id != now.topic_id:
        if use.role in (TopicRole.OUTPUT, TopicRole.DEAD_LETTERS, TopicRole.REPARTITION):
            return None  # later records go to the new topic, whose readers do the same comparison
        facts = f"topic id {old.topic_id} then, {now.topic_id} now"
        if use.role.is_read and mine:
            facts += f"; read up to {_offsets(mine)} of the old one"
        if now.partitions != old.partitions:
            facts += f"; {_partitions(old.partitions)} then, {now.partitions} now"
        return finding(What.RECREATED, facts)
    if old is not None and now.partitions < old.partitions:
        return finding(What.SHRUNK, f"{_partitions(old.partitions)} then, {now.partitions} now")
    if use.role.is_read and old is None and _is_another(use, mine, now):
        facts = f"it was never recorded; read up to {_offsets(mine)} of the old one, "
        return finding(What.RECREATED, f"{facts}{_partitions(now.partitions)} now")
    if use.role.is_read:
        return _read_past(use, mine, now)
    if use.role is TopicRole.CHANGELOG and old is not None and not now.forgets:
        gone = {
            number: (then, start)
            for number, (then, start) in enumerate(zip(old.starts, now.starts, strict=False))
            if start > then
        }
        if gone:
            facts = ", ".join(
                f"partition {number} began at offset {then} and begins at {start}"
                for number, (then, start) in gone.items()
            )
            return finding(What.EMPTIED, f"{facts}, although only compaction should remove records")
    return None


def _is_another(use: TopicUse, mine: Mapping[int, int], now: Found) -> bool:
    """Whether a topic without a noted id is not the one that was read, which existed only for a moment before
    the client ended. No topic loses partitions, and no topic just found by a pattern ends before the offsets
    read from it. A topic that was recreated with as many partitions and records looks the same.
    """
    ends = dict(enumerate(now.ends)) if use.by_pattern else {}
    return any(
        number >= now.partitions or offset > ends.get(number, offset) for number, offset in mine.items()
    )


def _read_past(use: TopicUse, mine: Mapping[int, int], now: Found) -> Finding | None:
    """Whether records were deleted before they were read, or the log ends before the read offsets."""
    facts = []
    for number, (start, end) in enumerate(zip(now.starts, now.ends, strict=True)):
        position = mine.get(number)
        if position is None:
            continue
        if position < start:
            facts.append(f"partition {number} was read up to {position} and begins at {start}")
        elif position > end:
            facts.append(f"partition {number} was read up to {position} and ends at {end}")
    return Finding(What.EMPTIED, use.topic, use.role, "; ".join(facts)) if facts else None


def _gone(
    pipeline: str,
    uses: Iterable[TopicUse],
    found: Mapping[str, Found],
    committed: Mapping[TopicPartition, int],
) -> Finding | None:
    filled = [
        f"changelog '{use.topic}' has records up to offset {max(found[use.topic].ends)}"
        for use in uses
        if use.role is TopicRole.CHANGELOG and use.topic in found and found[use.topic].has_content
    ]
    read = {use.topic for use in uses if use.role in (TopicRole.SOURCE, TopicRole.TABLE)}
    by_topic: dict[str, dict[int, int]] = {}
    for at, offset in sorted(committed.items()):
        if at.topic in read and offset > 0:
            by_topic.setdefault(at.topic, {})[at.partition] = offset
    filled += [
        f"the group has committed '{topic}' up to {_offsets(offsets)}" for topic, offsets in by_topic.items()
    ]
    if not filled:
        return None
    facts = f"pipeline '{pipeline}' has no checkpoint, but has run before: {'; '.join(filled)}"
    return Finding(What.CHECKPOINT_GONE, "", None, facts)


def _offsets(offsets: Mapping[int, int]) -> str:
    shown = [f"offset {offset} in partition {number}" for number, offset in sorted(offsets.items())]
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


@dataclass(frozen=True)
class Policies:
    """The configured repairs.

    Attributes:
        from_beginning: `source.lost.policy`: start at the beginning of the current source topic.
        rebuild_changelogs: `changelog.lost.policy`: rewrite a changelog from Spark's state.
    """

    from_beginning: bool = False
    rebuild_changelogs: bool = False


def mendable(finding: Finding, policies: Policies) -> bool:
    """Whether it is repaired once the checkpoint is claimed: topics lost by a pattern always, everything else
    if so configured.
    """
    if finding.is_dropped:
        return True
    if finding.role is TopicRole.CHANGELOG:
        return policies.rebuild_changelogs
    # A missing topic has no beginning.
    is_there = finding.what not in (What.DELETED, What.NEVER_THERE)
    return finding.role is not None and finding.role.is_read and is_there and policies.from_beginning


# --- telling ------------------------------------------------------------------------------------------------


def dropped_sentence(
    pipeline: str,
    finding: Finding,
    others: Iterable[str],
    read: Mapping[TopicPartition, int],
    planned: Mapping[TopicPartition, int],
) -> str:
    """The log message about a topic that a pattern has lost.

    Args:
        others: what patterns match now.
        read: the next offset to read of each partition, from the checkpoint.
        planned: the same, from the interrupted micro-batch.
    """
    mine = {at.partition: offset for at, offset in read.items() if at.topic == finding.topic}
    begun = {at.partition: offset for at, offset in planned.items() if at.topic == finding.topic}
    told = [f"read of it: up to {_offsets(mine)}" if mine else "none of it was read"]
    unread = {number: end - mine.get(number, 0) for number, end in begun.items()}
    unread = {number: count for number, count in unread.items() if count > 0}
    if unread:
        shown = ", ".join(f"{count} of partition {number}" for number, count in sorted(unread.items()))
        told.append(f"at least these offsets had not been read: {shown}")
    if finding.what is What.RECREATED:
        way = "the topic that now has its name is read from the beginning"
    else:
        rest = [f"'{name}'" for name in others if name != finding.topic]
        shown = ", ".join(rest[:4]) + (f" and {len(rest) - 4} more" if len(rest) > 4 else "")
        way = f"the pipeline continues with what the pattern matches now: {shown or 'no topic'}"
    return (
        f"pipeline {pipeline}: {finding.sentence}. It is read by a pattern and not by name, so {way}. Unread "
        f"records of the old topic are lost with it; {'; '.join(told)}"
    )


_AFRESH = (
    "start afresh with `millstream reset` or KafkaStreams.clean_up(checkpoints=True), or use a new "
    "application.id"
)


def error_of(findings: Sequence[Finding], location: str) -> StreamsException | None:
    """The exception for the findings, with the possible remedies; None: there are no findings.

    Args:
        location: where the checkpoints are.
    """
    if not findings:
        return None
    gone = [each for each in findings if each.what is What.CHECKPOINT_GONE]
    if gone:
        return LostCheckpointException(
            f"{'; '.join(each.sentence for each in gone)}. The checkpoints are expected at '{location}'. "
            f"Reprocessing what the sources still have would put wrong values into the stores. Next: restore "
            f"the checkpoints (the volume, or the previous checkpoint.location, which all clients of an "
            f"application share) and start again; or "
            f"{_AFRESH}"
        )
    told = "; ".join(each.sentence for each in findings)
    ways = []
    read = [each for each in findings if each.role is not None and each.role.is_read]
    changelogs = [each for each in findings if each.role is TopicRole.CHANGELOG]
    outputs = [each for each in findings if each not in read and each not in changelogs]
    if read:
        absent = any(each.what in (What.DELETED, What.NEVER_THERE) for each in read)
        first = "create the missing topics, " if absent else ""
        ways.append(
            f"the topic of that name no longer has what the checkpoint has read: to keep the state and read "
            f"the current topic from the beginning, {first}set source.lost.policy=from-beginning and start "
            f"again"
        )
    if changelogs:
        ways.append(
            "Spark's state still has the changelog's content: to rewrite the changelog from it, set "
            "changelog.lost.policy=rebuild and start again"
        )
    if outputs:
        ways.append("create the missing topics")
    if read or changelogs:
        ways.append(_AFRESH)
    message = f"{told}. Next: {'; or '.join(ways)}"
    topics = tuple(sorted(each.topic for each in findings))
    deleted, recreated, emptied = (
        tuple(sorted(each.topic for each in findings if each.what is what))
        for what in (What.DELETED, What.RECREATED, What.EMPTIED)
    )
    if read:
        return MissingSourceTopicException(
            message, topics, deleted=deleted, recreated=recreated, emptied=emptied
        )
    return LostTopicException(message, topics, deleted=deleted, recreated=recreated, emptied=emptied)
