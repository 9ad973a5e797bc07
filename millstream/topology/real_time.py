"""Which pipelines run in Spark's Real-Time Mode, and why the others cannot. Pure.

There are two lists. Operations that the mode cannot do are rejected before anything starts, if the mode is
requested. Operations whose order differs from that in micro-batches run in micro-batches with `auto`, and in
Real-Time Mode with `real-time`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import CodeType
from typing import Any

from millstream.errors import ConfigException, TopologyException
from millstream.topology.functions import describe_function
from millstream.topology.nodes import (
    Aggregate,
    Cogroup,
    Fold,
    ForeignKeyJoin,
    ForeignKeyLookup,
    ForeignKeySubscribe,
    FrameRead,
    GlobalRead,
    Node,
    Process,
    SparkSink,
    StreamJoin,
    StreamTableJoin,
    Suppress,
    TableFold,
    TableGroupBy,
    TableJoin,
)
from millstream.topology.pipeline import Pipeline, Scan

__all__ = ["Mode", "Modes", "avoided", "obstacles", "refusal", "twice"]


class Mode(Enum):
    """The values of `processing.mode`."""

    MICRO_BATCH = "micro-batch"
    REAL_TIME = "real-time"
    AUTO = "auto"


@dataclass(frozen=True)
class Modes:
    """The mode of each pipeline, from a configuration.

    Attributes:
        default: the mode of pipelines that are not named.
        named: the modes by pipeline name.
        against: the configuration's obstacles for all pipelines, as sentences.
    """

    default: Mode = Mode.MICRO_BATCH
    named: Mapping[str, Mode] = field(default_factory=dict)
    against: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        """Whether a pipeline may run in Real-Time Mode."""
        modes = {self.default, *self.named.values()}
        return not self.against and modes != {Mode.MICRO_BATCH}

    def of(self, pipeline: Pipeline) -> Mode:
        return self.named.get(pipeline.name, self.default)

    def is_real_time(self, pipeline: Pipeline) -> bool:
        """Whether the pipeline should run in Real-Time Mode."""
        match self.of(pipeline):
            case Mode.MICRO_BATCH:
                return False
            case Mode.REAL_TIME:
                return True
            case Mode.AUTO:
                return pipeline.has_query and not self.why_not(pipeline)

    def why_not(self, pipeline: Pipeline) -> tuple[str, ...]:
        """Why `auto` runs it in micro-batches, as sentences; empty if it does not."""
        return (*self.against, *obstacles(pipeline), *avoided(pipeline))

    def check(self, pipelines: Iterable[Pipeline]) -> None:
        """Raise if the requested modes are not possible.

        Raises:
            ConfigException: a named pipeline does not exist, or the configuration is an obstacle.
            TopologyException: a pipeline should run in Real-Time Mode but cannot.
        """
        pipelines = list(pipelines)
        names = [pipeline.name for pipeline in pipelines]
        for name in self.named:
            if name not in names:
                raise ConfigException(
                    f"'processing.mode.{name}': there is no pipeline '{name}'; explain() shows them: "
                    f"{', '.join(names) or 'none'}"
                )
        for pipeline in pipelines:
            if self.of(pipeline) is not Mode.REAL_TIME or not pipeline.has_query:
                continue
            if self.against:
                raise ConfigException(refusal(pipeline.name, self.against))
            if found := obstacles(pipeline):
                raise TopologyException(refusal(pipeline.name, found))


def refusal(pipeline: str, why: Iterable[str]) -> str:
    """The message that rejects Real-Time Mode."""
    return (
        f"pipeline {pipeline} cannot run in Real-Time Mode: {' '.join(why)} Give "
        f"processing.mode.{pipeline}=micro-batch, or processing.mode=auto, which chooses by itself"
    )


def obstacles(pipeline: Pipeline) -> tuple[str, ...]:
    """What Real-Time Mode cannot do at all, as sentences; empty if the pipeline can run in it."""
    found = {sentence: None for node in pipeline.nodes for sentence in _obstacles(node)}
    found |= {sentence: None for node in pipeline.inputs for sentence in _read_whole(node)}
    return tuple(found)


def avoided(pipeline: Pipeline) -> tuple[str, ...]:
    """What depends on the order of records from several partitions, as sentences."""
    return tuple(sentence for node in pipeline.nodes if (sentence := _avoided(node)))


def _obstacles(node: Node) -> Iterable[str]:
    match node:
        case Process():
            yield f"{node.name} is a processor in Python, which gets its records in batches."
        case Aggregate(aggregation=Fold() | TableFold()):
            yield f"{node.name} is a fold in Python, which gets its records in batches."
        case Cogroup():
            yield f"{node.name} aggregates in Python, which gets its records in batches."
        case SparkSink():
            yield f"{node.name} is a query of the program's own."
        case _:
            pass
    for function in _functions(node):
        for name in _udfs(function):
            yield (
                f"'{name}' in {describe_function(function)} is a UDF, and Spark hands records to Python in "
                "batches; use functions of pyspark.sql instead."
            )


def _read_whole(node: Node) -> Iterable[str]:
    if isinstance(node, GlobalRead):
        what = "DataFrame" if isinstance(node, FrameRead) else "global table"
        yield f"The {what} '{node.name}' must be read completely before the stream."


def _avoided(node: Node) -> str:
    joins = (StreamJoin, StreamTableJoin, TableJoin)
    if isinstance(node, (*joins, ForeignKeyJoin, ForeignKeyLookup, ForeignKeySubscribe)):
        return f"{node.name} joins records in the order in which they arrive."
    if isinstance(node, Aggregate) and node.windows is not None:
        return f"{node.name} has windows, and which record is late depends on the order in which they arrive."
    if isinstance(node, Suppress):
        return f"{node.name} holds updates back by the order in which records arrive."
    if isinstance(node, TableGroupBy):
        return f"{node.name} first removes a row's old contribution, and readers could see that state."
    return ""


def _functions(node: Node) -> list[Callable[..., Any]]:
    """The user's functions in a node that are called with Columns."""
    found: list[Any] = []
    for value in vars(node).values():
        found += value if isinstance(value, tuple) else [value]
        found += vars(value).values() if isinstance(node, Aggregate) and value is node.aggregation else []
    return [each for each in found if callable(each) and not isinstance(each, type | Node)]


def _udfs(function: Any) -> list[str]:
    """The names of UDFs that a function refers to, as far as visible without calling it."""
    if _is_udf(function):
        return [getattr(function, "__name__", "a function")]
    plain = getattr(function, "__func__", function)
    code = getattr(plain, "__code__", None)
    if not isinstance(code, CodeType):
        return []
    seen: dict[str, Any] = {}
    names = {name for part in _codes(code) for name in part.co_names}
    seen |= {name: plain.__globals__[name] for name in sorted(names) if name in plain.__globals__}
    for name, cell in zip(code.co_freevars, plain.__closure__ or (), strict=True):
        try:
            seen[name] = cell.cell_contents
        except ValueError:  # it is still empty
            continue
    return [name for name, value in seen.items() if _is_udf(value)]


def _codes(code: CodeType) -> Iterable[CodeType]:
    """The code of a function and of the functions nested in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _is_udf(value: Any) -> bool:
    """Whether it is the result of PySpark's `udf`, `pandas_udf` or `arrow_udf`."""
    return callable(value) and not isinstance(value, type) and hasattr(value, "evalType")


# --- at compile time ----------------------------------------------------------------------------------------


def twice(scans: Iterable[Scan]) -> tuple[str, ...]:
    """The inputs that a query reads more than once, which Real-Time Mode does not support."""
    read = [scan.reads for scan in scans]
    return tuple(sorted({each for each in read if read.count(each) > 1}))
