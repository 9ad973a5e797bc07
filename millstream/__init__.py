"""Kafka Streams for Python, driven by Spark.

General layout: `dsl` is what one writes, `topology` what it means, `spark` runs it; `stores` and `query`
keep and answer its state; `kafka` talks to the cluster; `runtime` is the operating model. ARCHITECTURE.md is
the map.
Everything public can be imported from here; exceptions also from `millstream.errors`, what tests need from
`millstream.testing`, the embedded broker from `millstream.broker`, queries over HTTP from
`millstream.server`.

They are loaded when they are first used, so that a command, a worker or a test only pays for what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from millstream.dsl.early_functions import install as _read_types_of_functions
from millstream.errors import (
    ApplicationShutdownException,
    ArtifactException,
    BrokerException,
    ConfigException,
    ExecutorLostException,
    IllegalStateException,
    InternalTopicException,
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    InvalidStateStoreTypeException,
    JavaNotFoundException,
    LockException,
    LostTopicException,
    MissingSourceTopicException,
    PipelineException,
    ProcessorStateException,
    PythonWorkerException,
    SchemaRegistryException,
    SerializationException,
    SetupException,
    StateStoreMigratedException,
    StateStoreNotAvailableException,
    StreamsException,
    StreamsNotStartedException,
    StreamsRebalancingException,
    TaskAssignmentException,
    TaskMigratedException,
    TimeoutException,
    TopologyException,
    UnknownStateStoreException,
)

if TYPE_CHECKING:
    from millstream.config import StreamsConfig
    from millstream.dsl.builder import StreamsBuilder
    from millstream.dsl.cogrouped import (
        CogroupedKStream,
        SessionWindowedCogroupedKStream,
        TimeWindowedCogroupedKStream,
    )
    from millstream.dsl.emission import (
        BufferConfig,
        EagerBufferConfig,
        EmitStrategy,
        StrictBufferConfig,
        Suppressed,
    )
    from millstream.dsl.error_handlers import (
        ConsumerRecord,
        DeserializationExceptionHandler,
        ErrorHandlerContext,
        ErrorHandlerResponse,
        ErrorHandlerResult,
        FailedRecord,
        ProcessingExceptionHandler,
        ProducerRecord,
        ProductionExceptionHandler,
        SerializationExceptionOrigin,
    )
    from millstream.dsl.frames import DataFrameTable, StreamDataFrame
    from millstream.dsl.globalktable import GlobalKTable
    from millstream.dsl.grouped import KGroupedStream
    from millstream.dsl.grouped_table import KGroupedTable
    from millstream.dsl.handlers import (
        DefaultProductionExceptionHandler,
        LogAndContinueExceptionHandler,
        LogAndContinueProcessingExceptionHandler,
        LogAndContinueProductionExceptionHandler,
        LogAndFailExceptionHandler,
        LogAndFailProcessingExceptionHandler,
    )
    from millstream.dsl.join_options import Joined, StreamJoined, TableJoined
    from millstream.dsl.kstream import BranchedKStream, KStream
    from millstream.dsl.ktable import KTable
    from millstream.dsl.options import (
        AutoOffsetReset,
        Branched,
        Consumed,
        Grouped,
        Materialized,
        Named,
        Produced,
        Repartitioned,
        StoreType,
    )
    from millstream.dsl.printed import Printed
    from millstream.dsl.store_builders import StoreBuilder
    from millstream.dsl.store_suppliers import Stores
    from millstream.dsl.timestamps import (
        FailOnInvalidTimestamp,
        LogAndSkipOnInvalidTimestamp,
        TimestampExtractor,
        UsePartitionTimeOnInvalidTimestamp,
        WallclockTimestampExtractor,
    )
    from millstream.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream, windowed_text
    from millstream.logs import logging as logging  # not in __all__: it would hide Python's own
    from millstream.model import (
        KeyValue,
        LagInfo,
        PipelineMetadata,
        SessionWindow,
        TaskId,
        TaskMetadata,
        ThreadMetadata,
        TimeWindow,
        TopicPartition,
        ValueAndTimestamp,
        Window,
        Windowed,
    )
    from millstream.processors.api import (
        Cancellable,
        FixedKeyProcessor,
        FixedKeyProcessorContext,
        FixedKeyRecord,
        Processor,
        ProcessorContext,
        PunctuationType,
        Record,
        RecordMetadata,
        ValueTransformerWithKey,
    )
    from millstream.processors.function_processors import processor
    from millstream.processors.stores import (
        KeyValueStore,
        SessionStore,
        TimestampedKeyValueStore,
        TimestampedWindowStore,
        VersionedKeyValueStore,
        WindowStore,
    )
    from millstream.query.composite import QueryableStoreTypes, ReadOnlyKeyValueStore
    from millstream.query.iterators import AsyncKeyValueIterator, KeyValueIterator, WindowStoreIterator
    from millstream.query.metadata import HostInfo, KeyQueryMetadata, StreamsMetadata
    from millstream.query.parameters import QueryableStoreType, StoreQueryParameters
    from millstream.query.position import (
        Position,
        PositionBound,
    )
    from millstream.query.request import (
        KeyQuery,
        MultiVersionedKeyQuery,
        Query,
        RangeQuery,
        ResultOrder,
        SessionRangeQuery,
        StateQueryRequest,
        TimestampedKeyQuery,
        TimestampedRangeQuery,
        VersionedKeyQuery,
        WindowKeyQuery,
        WindowRangeQuery,
    )
    from millstream.query.result import (
        FailureReason,
        QueryResult,
        StateQueryResult,
        VersionedRecord,
    )
    from millstream.query.windowed_handles import ReadOnlySessionStore, ReadOnlyWindowStore
    from millstream.runtime.client import KafkaStreams
    from millstream.runtime.close_options import CloseOptions, GroupMembershipOperation
    from millstream.runtime.health import Health
    from millstream.runtime.policies import UncaughtExceptionPolicy
    from millstream.runtime.state.failure import (
        StreamsUncaughtExceptionResponse,
        StreamThreadExceptionResponse,
    )
    from millstream.runtime.state.history import FailureRecord
    from millstream.runtime.threads.handler import FailureContext
    from millstream.runtime.threads.standby_updates import StandbyUpdateListener, SuspendReason
    from millstream.serdes.avro_types import avro_record
    from millstream.serdes.serde import Serde
    from millstream.serdes.serdes import Serdes
    from millstream.serdes.windowed_serdes import WindowedSerdes
    from millstream.stores.updater import StateRestoreListener
    from millstream.topology.columns import RecordContext
    from millstream.topology.topology import Topology
    from millstream.topology.windows import (
        DailyTimeWindows,
        JoinWindows,
        SessionWindows,
        SlidingWindows,
        TimeWindows,
        UnlimitedWindows,
    )

__version__ = "0.1.0"

__all__ = [
    "ApplicationShutdownException",
    "ArtifactException",
    "AsyncKeyValueIterator",
    "AutoOffsetReset",
    "Branched",
    "BranchedKStream",
    "BrokerException",
    "BufferConfig",
    "Cancellable",
    "CloseOptions",
    "CogroupedKStream",
    "ConfigException",
    "Consumed",
    "ConsumerRecord",
    "DailyTimeWindows",
    "DataFrameTable",
    "DefaultProductionExceptionHandler",
    "DeserializationExceptionHandler",
    "EagerBufferConfig",
    "EmitStrategy",
    "ErrorHandlerContext",
    "ErrorHandlerResponse",
    "ErrorHandlerResult",
    "ExecutorLostException",
    "FailOnInvalidTimestamp",
    "FailedRecord",
    "FailureContext",
    "FailureReason",
    "FailureRecord",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyRecord",
    "GlobalKTable",
    "GroupMembershipOperation",
    "Grouped",
    "Health",
    "HostInfo",
    "IllegalStateException",
    "InternalTopicException",
    "InvalidStateStoreException",
    "InvalidStateStorePartitionException",
    "InvalidStateStoreTypeException",
    "JavaNotFoundException",
    "JoinWindows",
    "Joined",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KafkaStreams",
    "KeyQuery",
    "KeyQueryMetadata",
    "KeyValue",
    "KeyValueIterator",
    "KeyValueStore",
    "LagInfo",
    "LockException",
    "LogAndContinueExceptionHandler",
    "LogAndContinueProcessingExceptionHandler",
    "LogAndContinueProductionExceptionHandler",
    "LogAndFailExceptionHandler",
    "LogAndFailProcessingExceptionHandler",
    "LogAndSkipOnInvalidTimestamp",
    "LostTopicException",
    "Materialized",
    "MissingSourceTopicException",
    "MultiVersionedKeyQuery",
    "Named",
    "PipelineException",
    "PipelineMetadata",
    "Position",
    "PositionBound",
    "Printed",
    "ProcessingExceptionHandler",
    "Processor",
    "ProcessorContext",
    "ProcessorStateException",
    "Produced",
    "ProducerRecord",
    "ProductionExceptionHandler",
    "PunctuationType",
    "PythonWorkerException",
    "Query",
    "QueryResult",
    "QueryableStoreType",
    "QueryableStoreTypes",
    "RangeQuery",
    "ReadOnlyKeyValueStore",
    "ReadOnlySessionStore",
    "ReadOnlyWindowStore",
    "Record",
    "RecordContext",
    "RecordMetadata",
    "Repartitioned",
    "ResultOrder",
    "SchemaRegistryException",
    "Serde",
    "Serdes",
    "SerializationException",
    "SerializationExceptionOrigin",
    "SessionRangeQuery",
    "SessionStore",
    "SessionWindow",
    "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream",
    "SessionWindows",
    "SetupException",
    "SlidingWindows",
    "StandbyUpdateListener",
    "StateQueryRequest",
    "StateQueryResult",
    "StateRestoreListener",
    "StateStoreMigratedException",
    "StateStoreNotAvailableException",
    "StoreBuilder",
    "StoreQueryParameters",
    "StoreType",
    "Stores",
    "StreamDataFrame",
    "StreamJoined",
    "StreamThreadExceptionResponse",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsException",
    "StreamsMetadata",
    "StreamsNotStartedException",
    "StreamsRebalancingException",
    "StreamsUncaughtExceptionResponse",
    "StrictBufferConfig",
    "Suppressed",
    "SuspendReason",
    "TableJoined",
    "TaskAssignmentException",
    "TaskId",
    "TaskMetadata",
    "TaskMigratedException",
    "ThreadMetadata",
    "TimeWindow",
    "TimeWindowedCogroupedKStream",
    "TimeWindowedKStream",
    "TimeWindows",
    "TimeoutException",
    "TimestampExtractor",
    "TimestampedKeyQuery",
    "TimestampedKeyValueStore",
    "TimestampedRangeQuery",
    "TimestampedWindowStore",
    "TopicPartition",
    "Topology",
    "TopologyException",
    "UncaughtExceptionPolicy",
    "UnknownStateStoreException",
    "UnlimitedWindows",
    "UsePartitionTimeOnInvalidTimestamp",
    "ValueAndTimestamp",
    "ValueTransformerWithKey",
    "VersionedKeyQuery",
    "VersionedKeyValueStore",
    "VersionedRecord",
    "WallclockTimestampExtractor",
    "Window",
    "WindowKeyQuery",
    "WindowRangeQuery",
    "WindowStore",
    "WindowStoreIterator",
    "Windowed",
    "WindowedSerdes",
    "avro_record",
    "processor",
    "windowed_text",
]

_HOMES = {
    "config": "StreamsConfig",
    "dsl.builder": "StreamsBuilder",
    "dsl.cogrouped": "CogroupedKStream SessionWindowedCogroupedKStream TimeWindowedCogroupedKStream",
    "dsl.emission": "BufferConfig EagerBufferConfig EmitStrategy StrictBufferConfig Suppressed",
    "dsl.error_handlers": (
        "ConsumerRecord DeserializationExceptionHandler ErrorHandlerContext ErrorHandlerResponse "
        "ErrorHandlerResult FailedRecord ProcessingExceptionHandler ProducerRecord "
        "ProductionExceptionHandler SerializationExceptionOrigin"
    ),
    "dsl.frames": "DataFrameTable StreamDataFrame",
    "dsl.globalktable": "GlobalKTable",
    "dsl.grouped": "KGroupedStream",
    "dsl.grouped_table": "KGroupedTable",
    "dsl.handlers": (
        "DefaultProductionExceptionHandler LogAndContinueExceptionHandler "
        "LogAndContinueProcessingExceptionHandler LogAndContinueProductionExceptionHandler "
        "LogAndFailExceptionHandler LogAndFailProcessingExceptionHandler"
    ),
    "dsl.join_options": "Joined StreamJoined TableJoined",
    "dsl.kstream": "BranchedKStream KStream",
    "dsl.ktable": "KTable",
    "dsl.options": (
        "AutoOffsetReset Branched Consumed Grouped Materialized Named Produced Repartitioned StoreType"
    ),
    "dsl.printed": "Printed",
    "dsl.store_builders": "StoreBuilder",
    "dsl.store_suppliers": "Stores",
    "dsl.timestamps": (
        "FailOnInvalidTimestamp LogAndSkipOnInvalidTimestamp TimestampExtractor "
        "UsePartitionTimeOnInvalidTimestamp WallclockTimestampExtractor"
    ),
    "dsl.windowed": "SessionWindowedKStream TimeWindowedKStream windowed_text",
    "logs": "logging",
    "model": (
        "KeyValue LagInfo PipelineMetadata SessionWindow TaskId TaskMetadata ThreadMetadata "
        "TimeWindow TopicPartition ValueAndTimestamp Window Windowed"
    ),
    "processors.api": (
        "Cancellable FixedKeyProcessor FixedKeyProcessorContext FixedKeyRecord Processor "
        "ProcessorContext PunctuationType Record RecordMetadata ValueTransformerWithKey"
    ),
    "processors.function_processors": "processor",
    "processors.stores": (
        "KeyValueStore SessionStore TimestampedKeyValueStore TimestampedWindowStore "
        "VersionedKeyValueStore WindowStore"
    ),
    "query.composite": "QueryableStoreTypes ReadOnlyKeyValueStore",
    "query.iterators": "AsyncKeyValueIterator KeyValueIterator WindowStoreIterator",
    "query.metadata": "HostInfo KeyQueryMetadata StreamsMetadata",
    "query.parameters": "QueryableStoreType StoreQueryParameters",
    "query.position": "Position PositionBound",
    "query.request": (
        "KeyQuery MultiVersionedKeyQuery Query RangeQuery ResultOrder SessionRangeQuery "
        "StateQueryRequest TimestampedKeyQuery TimestampedRangeQuery VersionedKeyQuery "
        "WindowKeyQuery WindowRangeQuery"
    ),
    "query.result": "FailureReason QueryResult StateQueryResult VersionedRecord",
    "query.windowed_handles": "ReadOnlySessionStore ReadOnlyWindowStore",
    "runtime.client": "KafkaStreams",
    "runtime.close_options": "CloseOptions GroupMembershipOperation",
    "runtime.health": "Health",
    "runtime.policies": "UncaughtExceptionPolicy",
    "runtime.state.failure": "StreamsUncaughtExceptionResponse StreamThreadExceptionResponse",
    "runtime.state.history": "FailureRecord",
    "runtime.threads.handler": "FailureContext",
    "runtime.threads.standby_updates": "StandbyUpdateListener SuspendReason",
    "serdes.avro_types": "avro_record",
    "serdes.serde": "Serde",
    "serdes.serdes": "Serdes",
    "serdes.windowed_serdes": "WindowedSerdes",
    "stores.updater": "StateRestoreListener",
    "topology.columns": "RecordContext",
    "topology.topology": "Topology",
    "topology.windows": (
        "DailyTimeWindows JoinWindows SessionWindows SlidingWindows TimeWindows UnlimitedWindows"
    ),
}
"""Where the names that are loaded later are: the imports above once more, as a test checks."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

_read_types_of_functions()

if not TYPE_CHECKING:  # who checks types is to refuse other names

    def __getattr__(name: str) -> Any:
        if name in _HOME_OF:
            found = globals()[name] = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
            return found
        inside = f"{__name__}.{name}"
        try:
            return import_module(inside)  # as if all had been loaded
        except ModuleNotFoundError as error:
            if error.name != inside:
                raise
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOME_OF})
