"""Where pipelines keep their progress, and whether an existing checkpoint fits the program.

Spark resumes a query from its checkpoint by position: the first source, the first stateful operator. It does
not notice that the program has changed, and after some changes it would resume with another query's offsets
or counts. So next to each checkpoint is a fingerprint: what the pipeline read, which stores it filled and by
which kind of operator, and which internal topics it wrote. Stateless steps and output topics may change
freely. Next to it are the notes of the ids of its topics (identity.py).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from millstream.checkpoints.fencing import LocalCheckpointFiles, kept_after_delete
from millstream.checkpoints.identity import Noted, Notes
from millstream.checkpoints.object_fencing import live_of
from millstream.config import StreamsConfig
from millstream.errors import CheckpointException, StreamsException, TopologyException
from millstream.permissions import make_private
from millstream.ports import CheckpointClaim, CheckpointFiles
from millstream.small_files import from_json, list_in
from millstream.topology.nodes import Aggregate, Fold, Node, Repartition, Store, Suppress, ToTable
from millstream.topology.pipeline import Pipeline, input_label, state_before

__all__ = ["Checkpoints", "Fingerprint", "fingerprint", "read_notes"]

log = logging.getLogger(__name__)

_NEW_TOPICS = "topics-since.json"
"""A file in a checkpoint's directory: topics that the query has begun to read since the claim."""


FORMAT = 2
"""1, which was not noted: partitioned by crc32, timestamps in a header. 2: by murmur2, as in Kafka."""


@dataclass(frozen=True)
class Fingerprint:
    """What must not change under a checkpoint. All names are without the application id."""

    reads: tuple[str, ...]
    stores: tuple[str, ...]
    repartitions: tuple[str, ...]
    operators: tuple[str, ...] = ()
    """The kind of state that Spark keeps for each store."""
    format: int = FORMAT
    """The format of changelogs and repartition topics; other formats cannot be read."""


def fingerprint(pipeline: Pipeline) -> Fingerprint:
    """The fingerprint of a pipeline, from its nodes alone."""
    return Fingerprint(
        reads=tuple(input_label(node) for node in pipeline.inputs),
        stores=tuple(_fills(node, store) for node in pipeline.nodes for store in node.stores),
        repartitions=tuple(node.topic for node in pipeline.outputs if isinstance(node, Repartition)),
        operators=tuple(
            f"{node.store.name} {kind}{_place(node, pipeline)}"
            for node in pipeline.nodes
            if node.store is not None and (kind := _operator(node, pipeline)) is not None
        ),
    )


def _operator(node: Node, pipeline: Pipeline) -> str | None:
    """The kind of a node's state, which determines its form in Spark; None: it has none."""
    match node:
        case Aggregate():
            if not isinstance(node.aggregation, Fold):
                return "aggregate"
            return "fold in Python, by buckets" if node.windows is None else "windows folded in Python"
        case ToTable():
            return "last value" if node.parents[0] in pipeline.shuffles else None
        case Suppress():
            # Directly behind an aggregation it is part of that operator.
            return "held back" if isinstance(node.parents[0], Aggregate) else "held back by itself"
        case _:
            return None


def _place(node: Node, pipeline: Pipeline) -> str:
    before = state_before(node, pipeline)
    if before is None:
        return ""
    # Generated names depend on the nodes before, and for joins on their kind.
    return f" behind {before.stores[0].name if before.stores else type(before).__name__}"


def _fills(node: Node, store: Store) -> str:
    # Spark's state contains where windows end and close; mixed with other windows, its values would belong to
    # neither. The same holds for held-back updates and their times.
    filled = f"{type(node).__name__} {store.name}"
    if isinstance(node, Aggregate) and node.windows is not None:
        filled += f" by {node.windows}" + (", when they close" if node.on_close else "")
    elif isinstance(node, Suppress):
        filled += f" {node.delay_ms} ms after " + ("windows end" if node.until_close else "updates")
    return filled


class Checkpoints:
    """The checkpoints of an application: one for each pipeline, and beside it `<pipeline>.topology.json` and
    `<pipeline>.topics.json`.

    The name of a checkpoint's directory changes with each claim (fencing.py). If the location is not a local
    path, only Spark can read it, so it is checked when the checkpoint is claimed, and not before: a local
    copy would become stale.
    """

    def __init__(self, config: StreamsConfig, state_path: Path) -> None:
        self._application_id = config.application_id
        self._location = (config.checkpoint_location or str(state_path / "checkpoints")).rstrip("/")
        if config.checkpoint_location is not None:
            self._location = f"{self._location}/{config.application_id}"
        self._local = _local_path(self._location)
        self._group_writes = config.lets_group_write

    @property
    def root(self) -> str:
        """The directory with one checkpoint for each pipeline, in Spark's form."""
        return str(self._local) if self._local is not None else self._location

    @property
    def is_local(self) -> bool:
        """Whether that is a local path."""
        return self._local is not None

    @property
    def files(self) -> CheckpointFiles | None:
        """The files there; None: it is not a local path."""
        return LocalCheckpointFiles(self._local) if self._local is not None else None

    def check(self, pipelines: Iterable[Pipeline], files: CheckpointFiles | None = None) -> None:
        """Compare each pipeline with the program that made its checkpoint; note it if nothing was noted.

        Does nothing if the files are not accessible.

        Args:
            files: by default those of this machine.

        Raises:
            TopologyException: a checkpoint belongs to another program.
        """
        files = files or self.files
        if files is None:
            return
        wanted = self.compare(pipelines, files)
        if self._local is not None:
            make_private(self._local, group_writes=self._group_writes)
        for name, new in wanted.items():
            files.write(_fingerprint_of(name), json.dumps(asdict(new), indent=1).encode())

    def compare(
        self, pipelines: Iterable[Pipeline], files: CheckpointFiles | None = None
    ) -> Mapping[str, Fingerprint]:
        """As `check`, but notes nothing. Returns each pipeline's fingerprint.

        Raises:
            TopologyException: a checkpoint belongs to another program.
        """
        files = files or self.files
        wanted = {pipeline.name: fingerprint(pipeline) for pipeline in pipelines}
        for name, new in wanted.items():
            old = None if files is None else self._stored(name, files)
            if old is not None and old.format != new.format:
                raise TopologyException(self._other_format(name, old, new))
            if old is not None and old != new:
                raise TopologyException(self._misfit(name, old, new))
        return wanted

    def notes(self, pipeline: str, files: CheckpointFiles) -> Notes | None:
        """The notes about the pipeline's topics; None: there are none.

        Raises:
            CheckpointException: they cannot be read.
        """
        live = live_of(pipeline, files)
        for name in (_notes_of(pipeline), *([f"{live}/{_NEW_TOPICS}"] if live is not None else [])):
            self._read_notes(pipeline, name, files)
        return read_notes(pipeline, files)

    def note(self, pipeline: str, notes: Notes, files: CheckpointFiles) -> None:
        """Write the notes once the checkpoint is claimed: its progress belongs to these topics from now
        on."""
        if Notes.parse(files.read(_notes_of(pipeline))) != notes:
            files.write(_notes_of(pipeline), notes.to_bytes())
        live = live_of(pipeline, files)
        if live is not None and files.exists(f"{live}/{_NEW_TOPICS}"):
            files.delete(f"{live}/{_NEW_TOPICS}")  # they are in the notes now

    def note_new(self, claim: CheckpointClaim, topics: Mapping[str, Noted], files: CheckpointFiles) -> None:
        """Note further topics that the running pipeline has begun to read.

        The note is inside the checkpoint's directory, which the next claim renames and replaces by a fence.
        So this either adds to the claim's own notes or fails, and cannot overwrite those of a newer claim.

        Raises:
            CheckpointException: what was noted there before cannot be read.
            StreamsException: the files cannot be reached, or the claim is no longer held.
        """
        path = f"{claim.path.rpartition('/')[2]}/{_NEW_TOPICS}"
        before = self._read_notes(claim.pipeline, path, files)
        after = Notes({**(before.topics if before is not None else {}), **topics})
        if after != before:
            files.write(path, after.to_bytes())

    def delete(self) -> None:
        """Delete all checkpoints of the application.

        The last claim of each pipeline is kept, so that epochs continue to grow: changelogs still have
        records of old epochs, and readers drop records with an older epoch than they have seen.

        Raises:
            StreamsException: they are not on this machine.
        """
        if self._local is None:
            raise StreamsException(
                f"the checkpoints are at '{self._location}', which is not a local path; delete that folder "
                f"with the tools of its file system"
            )
        files = LocalCheckpointFiles(self._local)
        names = files.list()
        kept = kept_after_delete(names)
        for name in sorted(names.keys() - kept):
            files.delete(name)

    def _stored(self, pipeline: str, files: CheckpointFiles) -> Fingerprint | None:
        if not live_of(pipeline, files):
            return None  # deleting the checkpoint means starting afresh
        kept = files.read(_fingerprint_of(pipeline))
        if kept is None:
            return None

        def made(content: dict[str, Any]) -> Fingerprint:
            known = {name: tuple(list_in(content[name])) for name in ("reads", "stores", "repartitions")}
            operators = tuple(list_in(content.get("operators", [])))
            return Fingerprint(**known, operators=operators, format=int(content.get("format", 1)))

        try:
            return from_json(kept, made)
        except ValueError as error:
            raise self._damaged(
                pipeline,
                _fingerprint_of(pipeline),
                f"records which program made the checkpoint, cannot be read ({error}). Resuming from that of "
                "another program would mix up offsets or state",
                "if the program has not changed since the application last ran",
            ) from error

    def _read_notes(self, pipeline: str, name: str, files: CheckpointFiles) -> Notes | None:
        content = files.read(name)
        try:
            return None if content is None else Notes.read(content)
        except ValueError as error:
            raise self._damaged(
                pipeline,
                name,
                f"records which topics the checkpoint belongs to, cannot be read ({error}). If a topic "
                "was deleted and created again meanwhile, its records would be mixed up with those of "
                "the earlier one",
                "if none was",
            ) from error

    def _damaged(self, pipeline: str, name: str, what: str, fits: str) -> CheckpointException:
        path = f"{self._location}/{name}"
        return CheckpointException(
            f"'{path}', which {what}. Restore it from a backup; or {fits}, delete it: it is written anew; or "
            "start afresh with `millstream reset`",
            pipeline=pipeline,
            path=path,
        )

    def _other_format(self, pipeline: str, old: Fingerprint, new: Fingerprint) -> str:
        made = "an older" if old.format < new.format else "a newer"
        return (
            f"pipeline '{pipeline}' of application '{self._application_id}' has a checkpoint at "
            f"'{self._location}/{pipeline}' that was made by {made} version of Millstream (format "
            f"{old.format}, this one has {new.format}), which wrote its internal topics differently. "
            f"Resuming from it would look for keys in the wrong partitions. Start afresh with `millstream "
            f"reset`, use a new application.id, or keep using that version"
        )

    def _misfit(self, pipeline: str, old: Fingerprint, new: Fingerprint) -> str:
        changes = "".join(
            f"\n  {what}: was {_listed(before)}, now {_listed(after)}"
            for what, before, after in (
                ("reads", old.reads, new.reads),
                ("fills stores", old.stores, new.stores),
                ("writes repartition topics", old.repartitions, new.repartitions),
                ("keeps state", old.operators or new.operators, new.operators),
            )
            if before != after
        )
        return (
            f"pipeline '{pipeline}' of application '{self._application_id}' has a checkpoint at "
            f"'{self._location}/{pipeline}' that was made by another program:{changes}\n"
            "Resuming from it would mix up offsets or state; docs/semantics.md lists what may change. Use a "
            "new application.id, or start afresh with KafkaStreams.clean_up(checkpoints=True)"
        )


def read_notes(pipeline: str, files: CheckpointFiles) -> Notes | None:
    """The notes about the pipeline's topics, from its last claim and since; None: none, or damaged."""
    notes = Notes.parse(files.read(_notes_of(pipeline)))
    live = live_of(pipeline, files)
    new = Notes.parse(files.read(f"{live}/{_NEW_TOPICS}")) if live is not None else None
    if notes is None or new is None:
        return notes
    # A topic with another id was checked together with the checkpoint, by a later claim.
    fits = {
        name: each
        for name, each in new.topics.items()
        if name not in notes.topics or notes.topics[name].topic_id == each.topic_id
    }
    return replace(notes, topics={**notes.topics, **fits})


def _fingerprint_of(pipeline: str) -> str:
    return f"{pipeline}.topology.json"


def _notes_of(pipeline: str) -> str:
    return f"{pipeline}.topics.json"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"


def _local_path(location: str) -> Path | None:
    parsed = urlparse(location)
    if parsed.scheme == "":
        return Path(location).expanduser().absolute()
    if parsed.scheme == "file":
        return Path(unquote(parsed.path))
    return None
