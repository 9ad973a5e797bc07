"""A fresh start: what to delete so that an application counts from zero again.

If a changelog stayed, the old keys would come back in every store that is restored from it, on every client;
a store on another machine would keep them too. So the internal topics are deleted: a topic that is created
again has another id, and each client's stores are wiped for it (stores/rocksdb_store.py). The group is
deleted first of all: a group with members cannot be deleted, so this does nothing while a client is running.

A broker that belongs to this client (embedded) is not running at that time; the topics to delete are noted,
and deleted once it has started.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from millstream.checkpoints.identity import Notes, topics_of
from millstream.errors import StreamsException
from millstream.ports import CheckpointFiles, Topics
from millstream.small_files import from_json, list_in, text_in, write_whole
from millstream.topology.names import markers_topic
from millstream.topology.topology import Topology

__all__ = ["delete_internal", "forget_later", "forget_now", "internal_topics"]

log = logging.getLogger(__name__)

_NOTE = "afresh.json"


def internal_topics(
    topology: Topology, application_id: str, files: CheckpointFiles | None
) -> tuple[str, ...]:
    """The internal topics of this program, and those noted beside checkpoints: an earlier program may have
    had others. Also the topic of the markers, whatever the guarantee is now: a remaining marker would fence
    the claims of new checkpoints, which count from 1 again. Sorted.
    """
    names = {
        use.topic
        for pipeline in topology.queries
        for use in topics_of(pipeline, application_id)
        if use.role.is_internal
    }
    for name in files.list() if files is not None else ():
        if files is None or not name.endswith(".topics.json"):
            continue
        notes = Notes.parse(files.read(name))
        if notes is None:
            log.warning("'%s' cannot be read; internal topics that only it names are not deleted", name)
        else:
            names.update(topic for topic, noted in notes.topics.items() if noted.role.is_internal)
    if topology.queries or names:
        names.add(markers_topic(application_id))
    return tuple(sorted(names))


def delete_internal(topics: Topics, application_id: str, names: tuple[str, ...]) -> None:
    """Delete the application's group, and then these topics.

    Raises:
        IllegalStateException: clients of the application are running.
        StreamsException: the cluster refuses, or cannot be reached.
    """
    topics.delete_group(application_id)
    topics.delete(names)
    log.info("deleted group '%s' and the internal topics %s", application_id, ", ".join(names) or "(none)")


def forget_later(state_path: Path, names: tuple[str, ...]) -> None:
    """Have the embedded broker's topics deleted the next time it runs. The state directory is locked."""
    file = state_path / _NOTE
    try:
        before = _noted(file)
    except ValueError as error:
        log.warning("'%s' cannot be read (%s) and is rewritten", file, error)
        before = ()
    write_whole(file, json.dumps({"topics": sorted({*names, *before})}))


def forget_now(state_path: Path, topics: Topics, application_id: str) -> None:
    """Delete the noted topics, now that the broker runs.

    Raises:
        StreamsException: the note cannot be read, or as `delete_internal`.
    """
    file = state_path / _NOTE
    if not file.exists():
        return
    try:
        names = _noted(file)
    except ValueError as error:
        raise StreamsException(
            f"'{file}', which lists the topics to delete for a fresh start, cannot be read ({error}); close "
            "the client and start afresh again: clean_up(checkpoints=True) writes it anew"
        ) from error
    delete_internal(topics, application_id, names)
    file.unlink()


def _noted(file: Path) -> tuple[str, ...]:
    if not file.exists():
        return ()
    return from_json(file.read_bytes(), lambda kept: tuple(text_in(name) for name in list_in(kept["topics"])))
