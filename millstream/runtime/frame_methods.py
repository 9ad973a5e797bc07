"""The client's methods for Spark's DataFrames: `KafkaStreams` inherits them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from millstream.dsl.frames import DataFrameTable, StreamDataFrame
from millstream.errors import IllegalStateException, StreamsNotStartedException, TopologyException
from millstream.foreign import ESCAPED
from millstream.runtime.assembly import Assembly
from millstream.runtime.threads.store_thread import Stopped
from millstream.states import State
from millstream.topology.topology import Topology

__all__ = ["DataFrames"]

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)

T = TypeVar("T")


class DataFrames:
    """The methods of `KafkaStreams` for DataFrames."""

    _topology: Topology
    _assembly: Assembly
    _client_id: str

    @property
    def state(self) -> State:
        """The client's state."""
        raise NotImplementedError

    def refresh_table(self, table: DataFrameTable | str) -> int:
        """Read the DataFrame of a table again; returns when the changed rows have been written.

        `table` is what `StreamsBuilder.from_dataframe` returned, or its name. Each client of the application
        can do it, for all of them. The refresh takes effect as a whole, on this client before this returns;
        records that were already processed are unaffected.

        Returns:
            How many rows came, changed or went away; 0: nothing is written.

        Raises:
            TopologyException: the program has no such table; or the DataFrame has other columns now.
            StreamsException: the DataFrame cannot be read, has several rows with one key, or cannot be
                written: the table stays as it was.
            StreamsNotStartedException: the client is CREATED.
            IllegalStateException: it has ended, or ends meanwhile.

        Runs on: the calling thread, and Spark. It starts Spark if the client has no pipeline to run.
        """
        name = table.name if isinstance(table, DataFrameTable) else table
        found = self._topology.frame_tables.get(name)
        if found is None:
            known = ", ".join(f"'{each}'" for each in self._topology.frame_tables) or "none"
            raise TopologyException(f"no DataFrame table is called {name!r}; the program has {known}")
        return self._while_running(lambda: self._assembly.refresh(found))

    def dataframe(self, stream: StreamDataFrame | str, **options: Any) -> Any:
        """A streaming DataFrame of what the program writes to a topic, for a query that you start and stop.

        `stream` is what `KStream.to_dataframe` returned, or the name of a topic that the program writes.
        `options` are those of Spark's Kafka source, such as `startingOffsets="latest"`; without one the query
        begins at the earliest record. With exactly_once_v2 it reads committed records alone.

        Shape: key, value, timestamp, partition int, offset bigint, headers array<struct<key, value>>; key and
            value have the types that the stream has.

        Raises:
            TopologyException: the program does not write this topic.
            StreamsNotStartedException: the client is CREATED.
            IllegalStateException: it has ended, or ends meanwhile.

        Runs on: the client's Spark session, which ends with the client unless you handed it over.
        """
        topic = stream.topic if isinstance(stream, StreamDataFrame) else stream
        given = {name: str(value) for name, value in options.items()}
        return self._while_running(lambda: self._assembly.dataframe(topic, given))

    def _while_running(self, what: Callable[[], T]) -> T:
        state = self.state
        if state is State.CREATED:
            raise StreamsNotStartedException(
                f"client '{self._client_id}' is CREATED; call start(), then try again"
            )
        try:
            if state.is_running_or_rebalancing:
                return what()
        except Stopped:
            pass
        raise IllegalStateException(
            f"client '{self._client_id}' is {self.state}, and its Spark session has ended or is about to"
        )
