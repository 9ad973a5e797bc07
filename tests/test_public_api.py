"""The public names, pinned: what is here is a promise, and a change of it is made on purpose."""

from __future__ import annotations

import ast
import inspect
import pickle
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from syntax import syntax_of

import millstream
from millstream import errors
from millstream.model import TaskId

ROOT = Path(__file__).resolve().parent.parent

PUBLIC = [
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

CLASSES = sorted(name for name in PUBLIC if isinstance(getattr(millstream, name, None), type))


def test_the_public_names_are_these() -> None:
    """`millstream.__all__` is the list above, in its order."""
    assert millstream.__all__ == PUBLIC


def test_each_public_name_can_be_imported() -> None:
    """`from millstream import *` works."""
    assert [name for name in PUBLIC if not hasattr(millstream, name)] == []


def test_each_exception_is_public() -> None:
    """What can be raised can be caught by a name from `millstream`."""
    assert set(errors.__all__) <= set(PUBLIC)
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert defined == set(errors.__all__)


def test_a_public_class_says_where_it_is_written() -> None:
    """So that `inspect.getsource`, and with it an editor or a notebook, shows its source; and the name that a
    traceback has for an exception can be imported."""
    for name in CLASSES:
        public = getattr(millstream, name)
        assert inspect.getsource(public).lstrip().startswith(("class ", "@")), name
        assert getattr(import_module(public.__module__), public.__qualname__) is public


def test_a_public_class_and_its_methods_are_documented() -> None:
    """`help()` says something about everything that one can call."""
    silent = [name for name in CLASSES if not getattr(millstream, name).__doc__]
    silent += [
        f"{name}.{method}"
        for name in CLASSES
        for method, value in inspect.getmembers(getattr(millstream, name))
        if not method.startswith("_")
        and (inspect.isroutine(value) or isinstance(value, property))
        and str(getattr(value, "__module__", "") or "").startswith("millstream")
        and not inspect.getdoc(value)
    ]
    assert silent == []


def test_an_exception_survives_pickling_with_its_facts() -> None:
    """Exceptions cross process borders: message and attributes arrive."""
    for name in errors.__all__:
        kind = getattr(errors, name)
        error = _an_instance(kind)
        if hasattr(error, "task_id"):
            error.task_id = TaskId(0, 3)
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind
        assert str(again) == str(error), name
        assert vars(again) == vars(error), name


def _an_instance(kind: type[BaseException]) -> BaseException:
    if "__init__" not in vars(kind) and kind.__base__ is RuntimeError:
        return kind("what happened")  # its signature is C's, which cannot be asked
    parameters = inspect.signature(kind).parameters.values()
    needed = {
        parameter.name: "p0"
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    }
    return kind("what happened", **needed)


def test_each_leaf_of_kip_216_says_whether_to_retry() -> None:
    """KIP-216: retriable are those that pass while the handle stays good."""
    leaves = errors.InvalidStateStoreException.__subclasses__()
    retriable = {leaf.__name__ for leaf in leaves if leaf.retriable}
    assert retriable == {"StreamsNotStartedException", "StreamsRebalancingException"}
    assert len(leaves) == 7


def test_what_is_loaded_later_is_where_type_checkers_find_it() -> None:
    """The table of homes says the same as the imports under TYPE_CHECKING."""
    (block,) = (
        node
        for node in syntax_of(Path(millstream.__file__)).body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name)
    )
    imported = {
        node.module.removeprefix("millstream."): sorted(alias.name for alias in node.names)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
    }
    assert {home: sorted(names.split()) for home, names in millstream._HOMES.items()} == imported


def test_the_public_names_are_listed_before_they_are_loaded() -> None:
    """`dir(millstream)` has them, for completion in a notebook; another name is no attribute."""
    code = "import millstream; print(sorted({*millstream.__all__} - {*dir(millstream)}))"
    assert said(code) == "[]"
    with pytest.raises(AttributeError, match=r"^module 'millstream' has no attribute 'KStreams'$"):
        _ = millstream.KStreams  # type: ignore[attr-defined]


def said(code: str) -> str:
    """What a Python of its own prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stdout.strip()


def test_importing_millstream_loads_nothing_else() -> None:
    """A worker, a command and a test load what they use. The exceptions are there, and what makes functions
    work before Spark."""
    code = (
        "import sys; before = {*sys.modules}; import millstream; "
        "print(*sorted(name for name in {*sys.modules} - before "
        "if name.split('.')[0] not in sys.stdlib_module_names), 'importlib.abc' in sys.modules)"
    )
    assert said(code) == "millstream millstream.dsl millstream.dsl.early_functions millstream.errors False"


def test_the_public_names_load_no_engine() -> None:
    """A program that only describes a topology, or a client that holds tasks only, does not pay for Spark;
    and one without a schema registry not for HTTP."""
    engines = {"pyspark", "py4j", "confluent_kafka", "kafka", "rocksdict", "duckdb"}
    heavy = engines | {
        "pandas",
        "numpy",
        "pyarrow",
        "fastapi",
        "uvicorn",
        "pydantic",
        "rich",
        "IPython",
        "http",
    }
    assert said(f"import sys; from millstream import *; print(sorted({{*sys.modules}} & {heavy}))") == "[]"


def test_the_version_is_the_projects() -> None:
    """`millstream.__version__` and pyproject.toml agree."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert millstream.__version__ == project["project"]["version"]
