"""Records of a source topic that fill a store; those that its serdes cannot read are for the handler.

Spark's pipelines ask the handler about the records that they read. A table's store reads the topic itself,
and must drop what a pipeline drops; an older value of the key stays.

A store never writes dead letters. It may read a record any number of times (on each client that takes it
over, as a standby, after its files are lost), and a pipeline that reads the topic has written one. The log
names the record, which still is in the topic.

Source: org.apache.kafka.streams.processor.internals.RecordDeserializer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millstream.clock import Clock
from millstream.config import StreamsConfig
from millstream.dsl.error_handlers import (
    ConsumerRecord,
    ErrorHandlerContext,
    ErrorHandlerResponse,
    ErrorHandlerResult,
)
from millstream.errors import SerializationException, StreamsException
from millstream.foreign import ESCAPED
from millstream.model import TaskId, TopicPartition
from millstream.ports import ChangelogBatch
from millstream.serdes.formats import BytesSerde, StringSerde
from millstream.serdes.serde import Serde, SerdePair
from millstream.topology.nodes import FrameTable, GlobalTable, TableSource
from millstream.topology.topology import Topology

__all__ = ["SourceRecords", "source_serdes"]

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)

_LOG_EVERY_S = 10.0

Entry = tuple[bytes, bytes | None, int]


def source_serdes(
    topology: Topology, default: SerdePair, bound: Callable[..., Any]
) -> dict[str, tuple[str, SerdePair]]:
    """The node and the serdes of the records that fill each store of a source topic, by the store's name.

    Args:
        default: the configured serdes.
        bound: configures a serde; called with the serde, `topic` and `is_key`.
    """
    found = {}
    for table in topology.nodes:
        if not isinstance(table, GlobalTable | TableSource) or isinstance(table, FrameTable):
            continue
        if table.stored is None:
            continue
        # A global store's own processor reads the topic with other serdes than the store's.
        stored = None if isinstance(table, GlobalTable) and table.supplier is not None else table.stored
        key = (stored and stored.key_serde) or table.key_serde or default[0]
        value = (stored and stored.value_serde) or table.value_serde or default[1]
        pair = (
            None if key is None else bound(key, topic=table.topic, is_key=True),
            None if value is None else bound(value, topic=table.topic, is_key=False),
        )
        found[table.stored.name] = (table.name, pair)
    return found


class SourceRecords:
    """Decides which records go into the stores of one thread. Used on one thread.

    Args:
        serdes: as `source_serdes` gives them.
    """

    def __init__(
        self,
        serdes: Mapping[str, tuple[str, SerdePair]],
        config: StreamsConfig,
        clock: Clock,
    ) -> None:
        self._continues = config.continues("deserialization")
        self._given = config.own_handlers.get("deserialization")
        self._configs = config.for_handlers
        self._handler: Any = None
        self._clock = clock
        self._nodes = {store: node for store, (node, _) in serdes.items()}
        self._checks = {store: _Check(*pair) for store, (_, pair) in serdes.items()}
        self._dropped: dict[TopicPartition, int] = {}
        self._logged_at: dict[TopicPartition, float] = {}

    def readable(self, store: str, task_id: TaskId, batch: ChangelogBatch) -> Sequence[Entry]:
        """The records that can be read.

        Raises:
            SerializationException: one cannot, and the handler says 'fail'; it names the record.
            StreamsException: the user's handler raised, or gave no answer.
        """
        check = self._checks.get(store)
        wrong = {} if check is None else check.unreadable(batch.entries)
        for at, why in wrong.items():
            offset = batch.offsets[at] if at < len(batch.offsets) else -1
            error = self._error(store, task_id, batch, offset, why)
            if not self._drops(store, task_id, batch, at, error):
                raise error
            self._log_dropped(store, batch.partition, offset)
        return [each for at, each in enumerate(batch.entries) if at not in wrong] if wrong else batch.entries

    def _error(
        self, store: str, task_id: TaskId, batch: ChangelogBatch, offset: int, why: SerializationException
    ) -> SerializationException:
        topic, partition = batch.partition
        where = f"offset {offset}" if offset >= 0 else f"an offset before {batch.next_offset}"
        error = SerializationException(
            f"the record at {topic}-{partition} {where}, which store '{store}' is filled from, cannot be "
            f"read: {why}; deserialization.exception.handler=continue drops such records",
            topic=topic,
            partition=partition,
            offset=offset if offset >= 0 else None,
            task_id=task_id,
        )
        error.__cause__ = why
        return error

    def _drops(
        self, store: str, task_id: TaskId, batch: ChangelogBatch, at: int, error: SerializationException
    ) -> bool:
        if self._given is None:
            return self._continues
        key, value, timestamp = batch.entries[at]
        topic, partition = batch.partition
        offset = -1 if error.offset is None else error.offset
        context = ErrorHandlerContext(
            topic, partition, offset, (), self._nodes[store], task_id, timestamp, key, value
        )
        record = ConsumerRecord(topic, partition, offset, key, value, timestamp)
        name = getattr(self._given, "__name__", type(self._given).__name__)
        try:
            if self._handler is None:
                self._handler = self._given() if isinstance(self._given, type) else self._given
                self._handler.configure(self._configs)
            response = self._handler.handle_error(context, record, error)
        except Exception as raised:
            raise StreamsException(
                f"the handler {name} of deserialization.exception.handler raised {type(raised).__name__} at "
                f"a record of {topic}-{partition} that store '{store}' is filled from"
            ) from raised
        if not isinstance(response, ErrorHandlerResponse):
            raise StreamsException(
                f"the handler {name} of deserialization.exception.handler returned "
                f"{type(response).__name__}; it must return ErrorHandlerResponse.resume() or .fail()"
            )
        return response.result is ErrorHandlerResult.RESUME

    def _log_dropped(self, store: str, partition: TopicPartition, offset: int) -> None:
        """Log dropped records, at first immediately, then at most every ten seconds."""
        self._dropped[partition] = self._dropped.get(partition, 0) + 1
        now = self._clock.now()
        if now - self._logged_at.get(partition, float("-inf")) < _LOG_EVERY_S:
            return
        self._logged_at[partition] = now
        log.warning(
            "store '%s': dropped %d records of '%s' that its serdes cannot read, the last at offset %d "
            "(deserialization.exception.handler)",
            store,
            self._dropped.pop(partition),
            partition,
            offset,
        )


class _Check:
    """Finds the records that two serdes cannot read. All of a batch are read at once, unless one cannot."""

    def __init__(self, key: Serde | None, value: Serde | None) -> None:
        self._key = None if isinstance(key, StringSerde | BytesSerde) else key
        self._value = None if isinstance(value, StringSerde | BytesSerde) else value
        self._keys = None if self._key is None else self._key.many_decoder()
        self._values = None if self._value is None else self._value.many_decoder()

    def unreadable(self, entries: Sequence[Entry]) -> dict[int, SerializationException]:
        """Why records cannot be read, by their places.

        Raises:
            StreamsException: the serde cannot decide it: its registry cannot be queried, say.
        """
        keys = [] if self._keys is None else [each[0] for each in entries]
        values = [] if self._values is None else [each[1] for each in entries if each[1] is not None]
        if _all_read(self._keys, keys) and _all_read(self._values, values):
            return {}
        wrong = {}
        for at, (key, value, _) in enumerate(entries):
            try:
                if self._key is not None:
                    self._key.deserialize(key)
                if self._value is not None:
                    self._value.deserialize(value)
            except SerializationException as error:
                wrong[at] = error
        return wrong


def _all_read(read: Callable[[list[bytes]], list[Any]] | None, data: list[bytes]) -> bool:
    if read is None or not data:
        return True
    try:
        return len(read(data)) == len(data)  # one that raises StopIteration only seems to be the last
    except Exception:  # of a quick decoder; `deserialize` says what it is
        return False
