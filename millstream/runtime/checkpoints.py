"""Where pipelines keep their progress, and whether what is there fits the program.

Spark resumes a query from its checkpoint by position: the first source, the first stateful operator. It does
not know that the program behind it has changed, and with some changes it would go on with another's offsets
or counts. So next to each checkpoint lies a fingerprint: what the pipeline read, which stores it filled,
which internal topics it wrote. Stateless steps, and output topics, may change freely.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from millstream.config import StreamsConfig
from millstream.errors import StreamsException, TopologyException
from millstream.permissions import make_private
from millstream.runtime.fencing import LocalCheckpointFiles, kept_after_delete, places
from millstream.topology.nodes import Aggregate, Node, Repartition, Store
from millstream.topology.pipeline import Pipeline, input_label

__all__ = ["Checkpoints", "Fingerprint", "fingerprint"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fingerprint:
    """What must not change under a checkpoint. All names are without the application id."""

    reads: tuple[str, ...]
    stores: tuple[str, ...]
    repartitions: tuple[str, ...]


def fingerprint(pipeline: Pipeline) -> Fingerprint:
    """The fingerprint of a pipeline, from its nodes alone."""
    return Fingerprint(
        reads=tuple(input_label(node) for node in pipeline.inputs),
        stores=tuple(_fills(node, node.store) for node in pipeline.nodes if node.store),
        repartitions=tuple(node.topic for node in pipeline.outputs if isinstance(node, Repartition)),
    )


def _fills(node: Node, store: Store) -> str:
    # Where a window ends and closes is in Spark's state: with others, its values would be of neither.
    windows = node.windows if isinstance(node, Aggregate) else None
    return f"{type(node).__name__} {store.name}" + (f" by {windows}" if windows is not None else "")


class Checkpoints:
    """The checkpoints of an application: one for each pipeline, and `<pipeline>.topology.json` beside it.

    What the directory of a pipeline's checkpoint is called changes with each claim (runtime/fencing.py).
    Where the location is not a local path, the fingerprints are in the state directory of this client.
    """

    def __init__(self, config: StreamsConfig, state_path: Path) -> None:
        self._application_id = config.application_id
        self._location = (config.checkpoint_location or str(state_path / "checkpoints")).rstrip("/")
        if config.checkpoint_location is not None:
            self._location = f"{self._location}/{config.application_id}"
        self._local = _local_path(self._location)
        self._group_writes = config.lets_group_write
        self._fingerprints = self._local or state_path / "checkpoints"

    @property
    def root(self) -> str:
        """The directory with one checkpoint for each pipeline, as Spark takes it."""
        return str(self._local) if self._local is not None else self._location

    @property
    def is_local(self) -> bool:
        """Whether that is a path of this machine."""
        return self._local is not None

    def check(self, pipelines: Iterable[Pipeline]) -> None:
        """Compare each pipeline with what its checkpoint was made by, and note it where there was nothing.

        Raises:
            TopologyException: a checkpoint belongs to another program.
        """
        wanted = {pipeline.name: fingerprint(pipeline) for pipeline in pipelines}
        for name, new in wanted.items():
            old = self._stored(name)
            if old is not None and old != new:
                raise TopologyException(self._misfit(name, old, new))
        if self._local is not None:
            make_private(self._local, group_writes=self._group_writes)
        for name, new in wanted.items():
            self._store(name, new)

    def delete(self) -> None:
        """Delete all checkpoints of the application.

        What stays is the last claim of each pipeline, so that epochs go on growing: records of the old
        epochs are still in changelogs, and readers drop what is older than they have seen.

        Raises:
            StreamsException: they are not on this machine.
        """
        if self._local is None:
            raise StreamsException(
                f"the checkpoints are at '{self._location}', which is not a path of this machine; delete "
                "that folder with the tools of its file system"
            )
        files = LocalCheckpointFiles(self._local)
        names = files.list()
        kept = kept_after_delete(names)
        for name in sorted(names.keys() - kept):
            files.delete(name)

    def _stored(self, pipeline: str) -> Fingerprint | None:
        path = self._path(pipeline)
        if self._local is not None and not places(pipeline, LocalCheckpointFiles(self._local).list()).live:
            return None  # whoever deleted the checkpoint wants to start afresh
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return Fingerprint(**{name: tuple(content[name]) for name in Fingerprint.__dataclass_fields__})
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            log.warning("fingerprint '%s' cannot be read and is written anew: %s", path, error)
            return None

    def _store(self, pipeline: str, new: Fingerprint) -> None:
        path = self._path(pipeline)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place: a crash leaves the old one or the new one, not half of it.
        draft = path.with_suffix(f".{uuid.uuid4().hex[:12]}.tmp")  # clients may share the location
        draft.write_text(json.dumps(asdict(new), indent=1), encoding="utf-8")
        os.replace(draft, path)

    def _path(self, pipeline: str) -> Path:
        return self._fingerprints / f"{pipeline}.topology.json"

    def _misfit(self, pipeline: str, old: Fingerprint, new: Fingerprint) -> str:
        changes = "".join(
            f"\n  {what}: was {_listed(before)}, now {_listed(after)}"
            for what, before, after in (
                ("reads", old.reads, new.reads),
                ("fills stores", old.stores, new.stores),
                ("writes repartition topics", old.repartitions, new.repartitions),
            )
            if before != after
        )
        return (
            f"pipeline '{pipeline}' of application '{self._application_id}' has a checkpoint at "
            f"'{self._location}/{pipeline}' that was made by another program:{changes}\n"
            "Going on from it would mix up offsets or state. Use a new application.id, or start afresh with "
            "KafkaStreams.clean_up(checkpoints=True) and new internal topics"
        )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"


def _local_path(location: str) -> Path | None:
    parsed = urlparse(location)
    if parsed.scheme == "":
        return Path(location).expanduser().absolute()
    if parsed.scheme == "file":
        return Path(unquote(parsed.path))
    return None
