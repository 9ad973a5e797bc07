"""Compares what a pipeline's checkpoint belongs to with the current topics, and repairs what is configured.

`identity.py` decides what is wrong; this queries Kafka and the checkpoint's files, and raises or repairs. It
happens twice: before anything runs or is created (`check`), if the checkpoints can be read without Spark, and
each time a pipeline is started, under its claim (`settle`), because others may have been at work in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import TypeVar

from millstream.checkpoints.checkpoints import Checkpoints, read_notes
from millstream.checkpoints.identity import (
    Finding,
    Found,
    Notes,
    Policies,
    TopicRole,
    TopicUse,
    compare,
    dropped_sentence,
    error_of,
    fresh_changelogs,
    mendable,
    note,
    topics_of,
)
from millstream.checkpoints.offset_log import (
    OffsetLog,
    aligned,
    forget_unfinished,
    log_of,
    mark,
    marked,
    moved,
    positions_of,
    save,
    unfinished,
    unmark,
)
from millstream.checkpoints.starts import told_to_begin
from millstream.errors import CheckpointException, TopologyException
from millstream.model import TopicPartition
from millstream.ports import CheckpointClaim, CheckpointFiles, CompiledPipeline, TopicDescription, Topics
from millstream.runtime.topics.topic_news import matching_topics, source_patterns
from millstream.topology.pipeline import Pipeline, Scan

__all__ = ["Reconciler"]

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class _Sight:
    """What is known about one pipeline at one moment."""

    notes: Notes | None
    found: Mapping[str, Found]
    uses: tuple[TopicUse, ...]
    findings: tuple[Finding, ...]
    fresh: frozenset[str] = frozenset()

    @property
    def others(self) -> tuple[str, ...]:
        """The topics that patterns match, sorted."""
        return tuple(sorted(use.topic for use in self.uses if use.by_pattern))


@dataclass(frozen=True)
class _Move:
    """How a checkpoint's offsets change.

    Attributes:
        to: the topics whose offsets change, with the new offsets; None: the topic is gone.
        before: the sources of the query that wrote the log.
        new: the corrected log of the newest completed batch; None: no batch is complete.
        forgets: an interrupted batch is planned again.
    """

    to: Mapping[str, Mapping[int, int] | None]
    before: tuple[Scan, ...] | None
    new: OffsetLog | None
    forgets: bool


class Reconciler:
    """The reconciler of one client. Not thread-safe: its callers serialize access.

    Args:
        pipelines: those with a query.
        topics: must outlive it.
        dead_letters: the topic for failed records, if they are kept.
    """

    def __init__(
        self,
        pipelines: Iterable[Pipeline],
        application_id: str,
        checkpoints: Checkpoints,
        topics: Topics,
        policies: Policies,
        dead_letters: str | None,
    ) -> None:
        self._pipelines = tuple(pipelines)
        self._application_id = application_id
        self._checkpoints = checkpoints
        self._topics = topics
        self._policies = policies
        self._dead_letters = dead_letters

    def check(self) -> None:
        """Check all pipelines, before topics are created. Nothing is changed.

        If the checkpoints are not on this machine, `settle` is the first to see them.

        Raises:
            MissingSourceTopicException, LostTopicException, LostCheckpointException: something has changed
                and is not configured to be repaired.
            StreamsException: Kafka or the files cannot be reached.
        """
        files = self._checkpoints.files
        if files is not None:
            self._raise([each for one in self._pipelines for each in self._look(one, files).findings])

    def settle(
        self,
        compiled: CompiledPipeline,
        claim: CheckpointClaim,
        files: CheckpointFiles,
        rebuild: Callable[[frozenset[str]], None],
        begin: Callable[[], None],
        written: Callable[[], int],
    ) -> None:
        """Make the pipeline's checkpoint fit its topics and its program, and note both. No query runs on it.

        Args:
            claim: held by this client.
            rebuild: rewrites these changelogs from the state in the checkpoint.
            begin: makes an empty checkpoint start where a reset said. It runs before the notes are written,
                because with notes an empty checkpoint counts as one that has lost its content.
            written: the micro-batch up to which Kafka has markers, as `Engine.written`. Called only if it
                matters.

        Raises:
            MissingSourceTopicException, LostTopicException, LostCheckpointException: as for `check`.
            TopologyException: the checkpoint belongs to another program.
            CheckpointException: a micro-batch is partly written, and could not be repeated unchanged.
            StreamsException: Kafka or the files cannot be reached.
        """
        pipeline, directory = compiled.pipeline, claim.path.rpartition("/")[2]
        self._checkpoints.check([pipeline], files)
        sight = self._look(pipeline, files)
        self._raise(sight.findings)
        serdes = {
            store: (key.name, value.name)
            for store, (key, value) in compiled.store_serdes.items()
            if key and value
        }
        self._raise_if_other_serdes(pipeline.name, sight.notes, serdes)
        self._raise_if_other_layouts(compiled, sight.notes)
        lost = frozenset(each.topic for each in sight.findings if each.role is TopicRole.CHANGELOG)
        # `check` may have found one of these deleted, and it may exist again now. Otherwise this does no
        # harm.
        lost = lost | sight.fresh if self._policies.rebuild_changelogs else frozenset()
        move = self._planned(pipeline.name, directory, files, compiled, sight)
        half = unfinished(files, directory)
        if half is not None and (lost or move.forgets) and written() > half.batch:
            raise _written_in_part(claim, half.batch, lost, move)
        for each in sight.findings:
            if each.is_dropped:
                log.warning(
                    "%s",
                    dropped_sentence(
                        pipeline.name,
                        each,
                        sight.others,
                        _positions(log_of(files, directory)),
                        _positions(half),
                    ),
                )
        if lost:
            log.warning("%s", _rebuilding(sight.findings, lost))
            rebuild(lost)
        self._move(pipeline.name, directory, files, compiled, move, half)
        begin()
        self._checkpoints.note(
            pipeline.name,
            Notes(note(sight.uses, sight.found), compiled.scans, serdes, compiled.layouts),
            files,
        )
        unmark(files, directory)

    def note_new(
        self, claim: CheckpointClaim, topics: Mapping[str, TopicDescription], files: CheckpointFiles
    ) -> None:
        """Note the topics among these that a pipeline's query reads: they are new, or have grown.

        Raises:
            StreamsException: the files cannot be reached, or the claim is no longer held.
        """
        pipeline = next(each for each in self._pipelines if each.name == claim.pipeline)
        uses = [
            use
            for use in topics_of(pipeline, self._application_id, topics)
            if use.role in (TopicRole.SOURCE, TopicRole.TABLE)
        ]
        found = {name: Found(topic.topic_id, topic.partitions) for name, topic in topics.items()}
        if new := note(uses, found):
            self._checkpoints.note_new(claim, new, files)
            log.info("pipeline %s has recorded new or grown topics: %s", pipeline.name, _list(new))

    def note_read(self, claim: CheckpointClaim, without: Set[str], files: CheckpointFiles) -> None:
        """Note what a pipeline's query has read but was not noted, before its checkpoint is released.

        Args:
            without: topics that were deleted meanwhile.

        Raises:
            StreamsException: the files or the broker cannot be reached, or the claim is no longer held.
        """
        read: dict[str, int] = {}
        for at in positions_of(files, claim.pipeline) or ():
            read[at.topic] = max(read.get(at.topic, 0), at.partition + 1)
        notes = read_notes(claim.pipeline, files)
        new = read.keys() - without - (notes.topics.keys() if notes is not None else set())
        if new:
            found = self._topics.look(sorted(new))
            fits = {name: topic for name, topic in found.items() if topic.partitions >= read[name]}
            self.note_new(claim, fits, files)

    # --- inside ------------------------------------------------------------------------------------------

    def _raise(self, findings: Iterable[Finding]) -> None:
        error = error_of(
            [each for each in findings if not mendable(each, self._policies)], self._checkpoints.root
        )
        if error is not None:
            raise error

    def _raise_if_other_serdes(
        self, pipeline: str, notes: Notes | None, serdes: Mapping[str, tuple[str, str]]
    ) -> None:
        for store, then, now in _changed(notes.serdes if notes is not None else {}, serdes):
            raise TopologyException(
                f"store '{store}' of pipeline '{pipeline}' was written with the serdes {then[0]} and "
                f"{then[1]}, but this program uses {now[0]} and {now[1]}, so its changelog could not be "
                f"read. Use the original serdes, or give the store another name and use a new "
                f"application.id, or "
                "start afresh with KafkaStreams.clean_up(checkpoints=True)"
            )

    def _raise_if_other_layouts(self, compiled: CompiledPipeline, notes: Notes | None) -> None:
        for store, then, now in _changed(notes.layouts if notes is not None else {}, compiled.layouts):
            raise TopologyException(
                f"the state of store '{store}' of pipeline '{compiled.pipeline.name}' belongs to another "
                f"aggregation or join:\n  was '{then}',\n  now '{now}'\n"
                "Resuming from it would misread it. Restore the program, or give the store another name and "
                "use a new application.id, or start afresh with `millstream reset` or "
                "KafkaStreams.clean_up(checkpoints=True)"
            )

    def _look(self, pipeline: Pipeline, files: CheckpointFiles) -> _Sight:
        positions = positions_of(files, pipeline.name)  # read first, because positions only grow
        notes = self._checkpoints.notes(pipeline.name, files) if positions is not None else None
        patterns = source_patterns([pipeline])
        existing = matching_topics(patterns, self._topics.names(), self._application_id) if patterns else ()
        uses = topics_of(pipeline, self._application_id, existing, self._dead_letters)
        known = notes.topics if notes is not None else {}
        found = self._found(uses, known, positions)
        committed: Mapping[TopicPartition, int] = {}
        if positions is None:
            read = [
                use.topic
                for use in uses
                if use.role in (TopicRole.SOURCE, TopicRole.TABLE) and use.topic in found
            ]
            committed = self._topics.committed(
                self._application_id,
                [TopicPartition(name, at) for name in read for at in range(found[name].partitions)],
            )
        if positions is None and told_to_begin(files, self._checkpoints.root, pipeline.name):
            return _Sight(notes, found, uses, ())
        findings = compare(
            pipeline.name, uses, known, found, positions=positions, committed=committed, patterns=patterns
        )
        fresh = fresh_changelogs(uses, known, found, positions)
        return _Sight(notes, found, uses, findings, fresh)

    def _found(
        self,
        uses: Iterable[TopicUse],
        known: Iterable[str],
        positions: Mapping[TopicPartition, int] | None,
    ) -> Mapping[str, Found]:
        roles = {use.topic: use.role for use in uses}
        changelogs = {name for name, role in roles.items() if role is TopicRole.CHANGELOG}
        described = {
            **self._topics.look({*known, *roles} - changelogs, patient=True),
            **self._topics.describe(changelogs),  # with their clean-up policies
        }
        read = {at.topic for at in positions or ()}
        partitions = [
            TopicPartition(name, number)
            for name, topic in described.items()
            if name in read or roles.get(name) is TopicRole.CHANGELOG
            for number in range(topic.partitions)
        ]
        starts = self._topics.beginning_offsets(partitions)
        ends = self._topics.end_offsets(partitions)
        return {
            name: Found(
                topic.topic_id,
                topic.partitions,
                _of(name, topic.partitions, starts),
                _of(name, topic.partitions, ends),
                forgets="delete" in topic.configs.get("cleanup.policy", ""),
            )
            for name, topic in described.items()
        }

    def _planned(
        self, name: str, directory: str, files: CheckpointFiles, compiled: CompiledPipeline, sight: _Sight
    ) -> _Move:
        """How the offsets must change to fit the existing topics and the sources of the query."""
        to = {
            each.topic: dict(enumerate(sight.found[each.topic].starts))
            if each.topic in sight.found
            else None  # lost by a pattern: repaired without it
            for each in sight.findings
            if each.role is not None and each.role.is_read
        }
        before = sight.notes.scans if sight.notes is not None else None
        log_now = log_of(files, directory)
        if log_now is None:
            return _Move(to, before, None, bool(to or (before and before != compiled.scans)))
        before = marked(files, directory, log_now) or before
        there = moved(log_now, to)
        new = aligned(there, before or None, compiled.scans) if compiled.scans else there
        if new is None:
            raise TopologyException(
                f"pipeline '{name}' has a checkpoint whose query had {len(log_now.lines)} sources; with this "
                f"program it has {len(compiled.scans)}, and they cannot be matched. Use a new "
                "application.id, or start afresh with KafkaStreams.clean_up(checkpoints=True)"
            )
        return _Move(to, before, new, new != log_now)

    def _move(
        self,
        name: str,
        directory: str,
        files: CheckpointFiles,
        compiled: CompiledPipeline,
        move: _Move,
        half: OffsetLog | None,
    ) -> None:
        if half is not None and (lost := [at for at in half.positions if at.topic in move.to]):
            log.warning(
                "pipeline %s: micro-batch %d was interrupted, and its input, up to %s, no longer exists. Its "
                "output may be in changelogs and output topics, but is not in the state",
                name,
                half.batch,
                ", ".join(f"{at} offset {half.positions[at]}" for at in lost),
            )
        new = move.new
        if new is not None and compiled.scans and (move.forgets or move.before != compiled.scans):
            mark(files, directory, new, compiled.scans)
        if move.forgets:
            if new is not None:
                log.info(
                    "pipeline %s resumes from moved offsets: %s",
                    name,
                    new.to_bytes().decode().replace("\n", " "),
                )
            forget_unfinished(files, directory)
            if new is not None:
                save(files, directory, new)


def _written_in_part(
    claim: CheckpointClaim, batch: int, lost: frozenset[str], move: _Move
) -> CheckpointException:
    """The error for a partly written batch under exactly-once: its repetition skips the written part, so it
    must be identical."""
    way_out = (
        "Start it once with processing.guarantee=at_least_once, until that micro-batch is done; its records "
        "may then be written twice"
    )
    if lost:
        why = (
            f"lost changelogs could not be rewritten: {_list(lost)}. They would lack what the micro-batch "
            f"has already written"
        )
    elif move.to:
        why = f"it can be neither finished nor dropped, because its input no longer exists: {_list(move.to)}"
    else:
        why = "this program reads other sources, so it would be a different micro-batch"
        way_out = (
            "Start the program as it was before until that micro-batch is done (running a client briefly is "
            "enough), then start this one"
        )
    return CheckpointException(
        f"pipeline {claim.pipeline}: micro-batch {batch} is partly written under exactly_once_v2, and {why}. "
        f"Nothing was changed. {way_out}; or start afresh with `millstream reset`",
        pipeline=claim.pipeline,
        path=claim.path,
    )


def _positions(log: OffsetLog | None) -> Mapping[TopicPartition, int]:
    return {} if log is None else log.positions


def _changed(before: Mapping[str, T], now: Mapping[str, T]) -> Iterator[tuple[str, T, T]]:
    """The stores whose noted value has changed: store, noted value, current value."""
    for store, value in now.items():
        then = before.get(store, value)
        if then != value:
            yield store, then, value


def _of(name: str, partitions: int, offsets: Mapping[TopicPartition, int]) -> tuple[int, ...]:
    """The offsets of a topic's partitions; empty if they were not queried."""
    asked = [offsets.get(TopicPartition(name, number)) for number in range(partitions)]
    return tuple(offset for offset in asked if offset is not None)


def _rebuilding(findings: Iterable[Finding], changelogs: Iterable[str]) -> str:
    told = [each.sentence for each in findings if each.role is TopicRole.CHANGELOG]
    return ". ".join(
        [*(["; ".join(told)] if told else []), f"Rewritten from Spark's state: {_list(changelogs)}"]
    )


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))
