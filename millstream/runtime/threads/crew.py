"""The client's stream threads themselves.

The value in client_state.py says which threads there should be and what each does; this file holds the
objects, for callers that use one directly.
"""

from __future__ import annotations

from collections.abc import Mapping

from millstream.model import LagInfo, ThreadMetadata, TopicPartition
from millstream.runtime.threads.global_thread import GlobalStreamThread
from millstream.runtime.threads.thread import StreamThread
from millstream.states import GlobalThreadState, ThreadState

__all__ = ["Crew"]


class Crew:
    """The threads that are not DEAD, in the order of their creation.

    Only performer.py changes it, one instruction at a time; any thread may read.
    """

    def __init__(self) -> None:
        self._threads: Mapping[str, StreamThread] = {}
        self._global: GlobalStreamThread | None = None

    def keep(self, thread: GlobalStreamThread) -> None:
        """Set the global thread, if the client has one."""
        self._global = thread

    def add(self, thread: StreamThread) -> None:
        """Add a thread."""
        self._threads = {**self._threads, thread.name: thread}

    def forget(self, name: str) -> None:
        """Remove a thread that is DEAD."""
        self._threads = {each: thread for each, thread in self._threads.items() if each != name}

    def __getitem__(self, name: str) -> StreamThread:
        return self._threads[name]

    def get(self, name: str) -> StreamThread | None:
        """The thread with this name, if it exists."""
        return self._threads.get(name)

    @property
    def threads(self) -> tuple[StreamThread, ...]:
        """All of them."""
        return tuple(self._threads.values())

    @property
    def current(self) -> str | None:
        """The name of the thread that the caller runs on, if it is one of these."""
        return next((thread.name for thread in self.threads if thread.is_current()), None)

    def states(self) -> dict[str, ThreadState | GlobalThreadState]:
        """The state of each thread by its name, including the global one."""
        every = (*self.threads, *(() if self._global is None else (self._global,)))
        return {thread.name: thread.state for thread in every}

    def opening(self) -> dict[str, float]:
        """For how many seconds each thread has been opening stores, if it is; including the global one."""
        every = (*self.threads, *(() if self._global is None else (self._global,)))
        return {thread.name: seconds for thread in every if (seconds := thread.opening_s) is not None}

    def metadata(self) -> tuple[ThreadMetadata, ...]:
        """What each thread owns, and its progress."""
        return tuple(thread.metadata() for thread in self.threads if thread.state is not ThreadState.DEAD)

    def finish(self, pipeline: str) -> None:
        """Have the pipeline's query soon finish what it has read, if one of them runs it."""
        for thread in self.threads:
            thread.finish(pipeline)

    def lags(self) -> dict[TopicPartition, LagInfo]:
        """The lag of each changelog partition that a thread follows."""
        return {partition: lag for thread in self.threads for partition, lag in thread.lags().items()}
