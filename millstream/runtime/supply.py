"""What threads get from their client: `thread.Supplies` and `global_thread.GlobalSupplies`, put together from
the parts of the client that know."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.errors import MissingSourceTopicException, StreamsException, TaskMigratedException
from millstream.model import TopicPartition
from millstream.ports import BytesStore, PipelineEnd, RunningPipeline
from millstream.runtime.assembly import Assembly
from millstream.runtime.assignment import Share, StorePart
from millstream.runtime.participation import Participation
from millstream.runtime.roster import Roster
from millstream.runtime.store_thread import Updater
from millstream.runtime.topic_watch import TopicWatch
from millstream.runtime.view import ClientView

__all__ = ["Supply"]


class Supply:
    """One client's."""

    def __init__(
        self, assembly: Assembly, participation: Participation, roster: Roster, view: ClientView
    ) -> None:
        self._assembly = assembly
        self._participation = participation
        self._roster = roster
        self._view = view

    def take_part(self) -> None:
        self._participation.take_part()

    def settled(self, thread: str, share: Share, ticket: int) -> None:
        self._roster.settled(thread, share, ticket)

    def global_parts(self) -> Sequence[StorePart]:
        return self._assembly.global_parts()

    def watch_global_topics(self, on_missing: Callable[[MissingSourceTopicException], None]) -> TopicWatch:
        return self._assembly.watch_global_topics(on_missing)

    def open_store(self, part: StorePart) -> BytesStore:
        return self._assembly.open_store(part)

    def open_global_store(self, part: StorePart) -> BytesStore:
        return self._assembly.open_global_store(part)

    def make_updater(
        self,
        name: str,
        on_failure: Callable[[BaseException], None],
        on_restored: Callable[[TopicPartition], None],
        on_restoring: Callable[[TopicPartition], None],
    ) -> Updater:
        return self._assembly.make_updater(name, on_failure, on_restored, on_restoring)

    def start_pipeline(self, name: str, on_end: Callable[[PipelineEnd], None]) -> RunningPipeline:
        self._participation.check_written(name)
        return self._assembly.start_pipeline(name, on_end)

    def pipeline_migrated(self, thread: str, name: str, error: TaskMigratedException) -> None:
        self._participation.pipeline_migrated(thread, name, error)

    def diagnosed(self, error: StreamsException) -> StreamsException:
        return self._participation.diagnosed(error)

    def store_opened(self, thread: str, part: StorePart, store: BytesStore) -> None:
        self._view.opened(thread, part, store)

    def store_role_changed(self, part: StorePart) -> None:
        self._view.role_changed(part)

    def standby_caught_up(self, part: StorePart) -> None:
        self._view.caught_up(part.changelog)
        self._participation.standby_caught_up(part.task_id)

    def store_restored(self, partition: TopicPartition) -> None:
        self._view.restored(partition)

    def store_restoring(self, partition: TopicPartition) -> None:
        self._view.restoring(partition)

    def store_closing(self, partition: TopicPartition) -> None:
        self._view.closing(partition)
