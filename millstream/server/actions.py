"""What a client does at the moment, and what it is told to do: threads, failures, pausing. It blocks.

What changes the client is only done for who has shown the token; a server without one takes no commands at
all, since whoever reaches it could stop the application (`entrance.py: Entrance.admit`).
"""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import Any

from millstream.errors import IllegalStateException, TimeoutException
from millstream.model import PipelineMetadata, ThreadMetadata
from millstream.server.answers import Answer
from millstream.server.codec import bad
from millstream.server.reading import QueriedStreams

__all__ = ["Actions"]

log = logging.getLogger(__name__)

_REMOVE_S = timedelta(seconds=5)


class Actions:
    """Asks and tells one client."""

    def __init__(self, streams: QueriedStreams) -> None:
        self._streams = streams

    def threads(self) -> Answer:
        """The stream threads, what each has, and how far its pipelines are."""
        found = [_thread(each) for each in self._streams.metadata_for_local_threads()]
        return self._answer(paused=self._streams.is_paused, threads=found)

    def failures(self) -> Answer:
        """The last failures, oldest first."""
        return self._answer(failures=[each.as_dict() for each in self._streams.failures])

    def pause(self, paused: bool) -> Answer:
        """Pause, or go on."""
        log.warning("%s is %s over HTTP", self._streams.client_id, "paused" if paused else "resumed")
        if paused:
            self._streams.pause()
        else:
            self._streams.resume()
        return self._answer(paused=self._streams.is_paused)

    def close(self) -> Answer:
        """Have the client close, in the background: this server is a part of it, and has yet to answer."""
        log.warning("%s is closed over HTTP", self._streams.client_id)
        self._streams.close(timedelta(0))
        return self._answer(closing=True)

    def change_threads(self, body: bytes) -> Answer:
        """Add a thread, or remove one; `done`: whether the one that goes has ended.

        Raises:
            Refused: the body says neither.
            IllegalStateException: the client does not run, or has no thread to remove.
        """
        change = _change(body)
        log.warning("%s is told over HTTP to %s a thread", self._streams.client_id, change)
        done = True
        name: str | None = None
        if change == "add":
            name = self._streams.add_stream_thread()
        else:
            try:
                name = self._streams.remove_stream_thread(_REMOVE_S)
            except TimeoutException:
                return self._answer(change=change, thread=None, done=False)
        if name is None:
            raise IllegalStateException(
                f"client '{self._streams.client_id}' does not run, or has no thread to remove; nothing "
                "was changed"
            )
        return self._answer(change=change, thread=name, done=done)

    def _answer(self, **facts: Any) -> Answer:
        return Answer(200, {"client": self._streams.client_id, **facts})


def _change(body: bytes) -> str:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    change = given.get("change") if isinstance(given, dict) else None
    if change not in ("add", "remove"):
        raise bad('the body is {"change": "add"} or {"change": "remove"}')
    return str(change)


def _thread(thread: ThreadMetadata) -> dict[str, Any]:
    return {
        "thread": thread.thread_name,
        "state": thread.thread_state,
        "tasks": sorted(str(task.task_id) for task in thread.active_tasks),
        "standby_tasks": sorted(str(task.task_id) for task in thread.standby_tasks),
        "pipelines": [_pipeline(each) for each in thread.pipelines],
    }


def _pipeline(pipeline: PipelineMetadata) -> dict[str, Any]:
    return {
        "name": pipeline.name,
        "running": pipeline.running,
        "records": pipeline.records,
        "records_per_second": round(pipeline.records_per_second, 1),
        "batch_id": pipeline.batch_id,
        "batch_ms": pipeline.batch_ms,
        "lag": None if pipeline.lag is None else sum(pipeline.lag.values()),
        "dropped": pipeline.dropped,
    }
