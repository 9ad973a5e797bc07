"""Every program compiles under every setting of handlers, dead letters, caches and guarantees.

Plans are analysed, and no query is started: what Spark refuses, it would refuse at the first start. Each plan
takes two seconds. So there are tests of a few programs of each kind, and tests of all.
"""

from __future__ import annotations

import itertools
import logging
import runpy
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import test_headers_on_spark as headers
import test_joins_on_spark as joins
import test_traces_on_spark as folds
from driving import STRINGS
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from snapshots.traces import Trace, traces
from test_own_handlers import Processing, Reading, Writing

from millstream import (
    GlobalKTable,
    Materialized,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
    Topology,
    TopologyException,
)
from millstream.runtime.wiring import _engine
from millstream.spark import engine
from millstream.spark.compile import task_compiler
from millstream.spark.engine import SparkEngine, SparkSettings
from millstream.spark.run.task_run import TaskSettings
from millstream.topology.internal_topics import plan_internal_topics
from millstream.topology.pipeline import writers_first

pytestmark = pytest.mark.spark

Setting = Mapping[str, Any]
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "deserialization.exception.handler": ("fail", "continue", Reading),
    "processing.exception.handler": ("fail", "continue", Processing),
    "production.exception.handler": ("fail", "continue", Writing),
    "errors.dead.letter.queue.topic.name": (None, "dlq"),
    "processing.guarantee": ("at_least_once", "exactly_once_v2"),
    "statestore.cache.max.bytes": (0, 1_000_000),
}
FILES = (*folds.HELD_BY_CORES, "chains", "own_windows")
JOINS = ("global_table", "stream_table", "stream_stream", "table_table", "foreign_key", "headers")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Examples = Mapping[str, tuple[Topology, Mapping[str, Any]]]
"""Programs by name, each with its own configuration."""


def pairs(setting: tuple[Any, ...]) -> set[Any]:
    return set(itertools.combinations(enumerate(setting), 2))


def covering() -> list[Setting]:
    """Few settings that have every two choices together in one of them."""
    every = list(itertools.product(*CHOICES.values()))
    missing = set[Any]().union(*map(pairs, every))
    chosen = []
    while missing:
        best = max(every, key=lambda setting: len(pairs(setting) & missing))
        missing -= pairs(best)
        chosen.append({name: value for name, value in zip(CHOICES, best, strict=True) if value is not None})
    return chosen


SETTINGS = covering()


class Compiling:
    """Compiles as a client does that starts, without the topics. One engine, because each takes a second."""

    def __init__(self, spark: SparkSession) -> None:
        tasks = TaskSettings(exactly_once=True, commit_ms=100, idle_ms=0, directory="")
        self.engine = SparkEngine(SparkSettings("app", "localhost:1", tasks, ""), spark)

    def compile(self, topology: Topology, setting: Setting, **more: Any) -> None:
        config = {**more, "application.id": "app", "bootstrap.servers": "localhost:1", **setting}
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(engine, "SparkEngine", lambda settings, *_, **__: settings)
            settings: Any = _engine(StreamsConfig(config), threading.Event(), None)
        self.engine._settings = settings
        self.engine._frames.clear()
        plan = plan_internal_topics(topology, "app", dict.fromkeys(topology.source_topics, 1))
        partitions = {name: count or 1 for name, count in plan.partitions.items()}
        for pipeline in writers_first(topology.pipelines):
            assert self.engine.compile(pipeline, partitions).plan is not None

    def refused(self, name: str, topology: Topology, setting: Setting, **more: Any) -> list[str]:
        """What is wrong with it, in a list."""
        try:
            self.compile(topology, setting, **more)
        except Exception as error:
            return [f"{name}, {dict(setting)}: {type(error).__name__}: {str(error)[:400]}"]
        return []

    def all_refused(self, topologies: Mapping[str, Topology], *, first: int = 0) -> list[str]:
        """What is wrong with these, each under a setting of its own."""
        return self.examples_refused({name: (each, {}) for name, each in topologies.items()}, first=first)

    def examples_refused(self, examples: Examples, *, first: int = 0) -> list[str]:
        """The same of programs with a configuration.

        Args:
            first: the number of the setting that the first one has.
        """
        settings = itertools.islice(itertools.cycle(SETTINGS), first, None)
        return [
            said
            for (name, (topology, own)), setting in zip(examples.items(), settings, strict=False)
            for said in self.refused(name, topology, setting, **own)
        ]


@pytest.fixture(scope="module")
def compiling(spark: SparkSession) -> Iterator[Compiling]:
    made = Compiling(spark)
    yield made
    made.engine.close()


def told_first(builder: StreamsBuilder, number: int) -> Any:
    """A stream with the results of a join, which are written, and go on."""
    table = builder.table(f"table-{number}", STRINGS)
    joined = builder.stream(f"in-{number}", STRINGS).left_join(table, lambda left, right: left)
    joined.to(f"joined-{number}")
    return joined


def kind(trace: Trace) -> Any:
    """Programs of one kind differ in what they compute, and in numbers."""
    return tuple((op["op"], op.get("windows"), "store" in op, "history" in op) for op in trace.program)


def programs() -> Iterator[tuple[str, Topology]]:
    """One program of each kind of trace of aggregations, behind a join whose results are written."""
    seen = set()
    for trace in traces(*FILES):
        if folds.can_be_said(trace, in_python=False) and kind(trace) not in seen:
            seen.add(kind(trace))
            builder = StreamsBuilder()
            folds.Program(0, trace).build(told_first(builder, 0))
            yield trace.name, builder.build()


@dataclass
class Joining(headers.Program):
    """The program of a trace of joins, of global tables as well."""

    builder: StreamsBuilder

    def _step(self, source: Any, before: Any, other: Any, op: Mapping[str, Any], place: int) -> joins.Made:
        if op["op"] == "global_table":
            return joins.Made(self.builder.global_table(f"global-{place}", STRINGS))
        if other is not None and isinstance(other.it, GlobalKTable):
            looked_up = joins.KEYS[op["key"]] if op["key"] != "key" else lambda key, value: key
            return joins.Made(getattr(before.it, op["op"])(other.it, looked_up, joins.joiner))
        return super()._step(source, before, other, op, place)


def is_shuffled_first(trace: Trace) -> bool:
    """Whether its keys change before it joins: behind a join, the serdes would have to be given."""
    names = [op["op"] for op in trace.program]
    joined = max((place for place, name in enumerate(names) if "join" in name), default=0)
    return bool({"select_key", "group_by"} & set(names[:joined]))


def joining_programs() -> Iterator[tuple[str, Topology]]:
    """A few of all programs with joins, behind a join whose results are written."""
    for trace in joins.spread([each for each in traces(*JOINS) if not is_shuffled_first(each)], 10):
        builder = StreamsBuilder()
        Joining(0, trace, builder).build(told_first(builder, 0))
        yield trace.name, builder.build()


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Examples:
    """The programs among the examples, each with its own configuration."""
    for folder in (EXAMPLES, EXAMPLES / "tutorials"):
        monkeypatch.syspath_prepend(str(folder))
    found = {}
    for path in sorted((*EXAMPLES.glob("ported/*.py"), *EXAMPLES.glob("tutorials/[!t]*.py"))):
        made = runpy.run_path(str(path))
        if isinstance(made.get("topology"), Topology):
            own = {"schema.registry.url": "mock://ported", **made.get("config", {})}
            found[path.stem] = made["topology"], {**own, "state.dir": str(tmp_path)}
    return found


def joined_and_counted() -> Topology:
    builder = StreamsBuilder()
    told_first(builder, 0).group_by_key().count(Materialized.as_("counts")).to_stream().to("counts")
    return builder.build()


def test_results_of_a_join_that_are_written_and_go_on_compile_under_all_settings(
    compiling: Compiling,
) -> None:
    """What Spark knows of a column of one output, such as that it is never NULL, is not so of another."""
    topology = joined_and_counted()
    wrong = [said for setting in SETTINGS for said in compiling.refused("join", topology, setting)]
    assert not wrong, "\n".join(wrong)


def test_each_setting_compiles_with_a_program_of_the_traces_and_one_with_a_join(compiling: Compiling) -> None:
    """Settings that have every two choices together in one of them."""
    folding = joins.spread(list(programs()), len(SETTINGS))
    joining = joins.spread(list(joining_programs()), len(SETTINGS) // 2)
    wrong = compiling.all_refused(dict(folding))
    wrong += compiling.all_refused(dict(joining), first=len(SETTINGS) // 2)
    assert not wrong, "\n".join(wrong)


def test_some_examples_compile_under_some_settings(compiling: Compiling, ours: Examples) -> None:
    """With their own configuration. All are run, under one setting, in tests/test_ported_programs.py."""
    some = dict(joins.spread(list(ours.items()), len(SETTINGS) // 2))
    wrong = compiling.examples_refused(some)
    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(600)
def test_programs_of_the_traces_compile_under_all_settings(compiling: Compiling) -> None:
    """Each under one of settings that have every two choices together."""
    every = dict(programs())
    assert len(every) > 50
    wrong = compiling.all_refused(every)
    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(300)
def test_programs_with_joins_compile_under_all_settings(compiling: Compiling) -> None:
    """Each under one of settings that have every two choices together."""
    every = dict(joining_programs())
    assert {name.partition("/")[0] for name in every} == set(JOINS)
    wrong = compiling.all_refused(every)
    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(600)
def test_all_examples_compile_under_all_settings(compiling: Compiling, ours: Examples) -> None:
    """With its own configuration, each under one of settings that have every two choices together."""
    assert len(ours) > 25
    wrong = compiling.examples_refused(ours)
    assert not wrong, "\n".join(wrong)


def test_what_spark_refuses_of_a_plan_is_one_sentence_and_the_plan_is_in_the_log(
    spark: SparkSession,
    compiling: Compiling,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither the message nor the exception behind it has the plan; nor where a function is wrong."""

    def refuse(*_: object, **__: object) -> Any:
        return spark.range(1).select(F.col("id").cast("array<int>"))

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to("out")
    with monkeypatch.context() as patched, caplog.at_level(logging.DEBUG, "millstream"):
        patched.setattr(task_compiler, "see_all", refuse)
        with pytest.raises(StreamsException, match="pipeline p0: Spark does not accept its plan") as raised:
            compiling.compile(builder.build(), {})
    wrong = StreamsBuilder()
    wrong.stream("in", STRINGS).map_values(lambda value: value.cast("array<int>")).to("out")
    with pytest.raises(TopologyException, match="KSTREAM-MAPVALUES-0000000001") as mistake:
        compiling.compile(wrong.build(), {})
    for error in (raised.value, mistake.value):
        assert isinstance(error.__cause__, AnalysisException)
        for text in (str(error), str(error.__cause__)):
            assert "DATATYPE_MISMATCH" in text
            assert "\n" not in text
            assert "Project" not in text
    assert any("Project" in record.getMessage() for record in caplog.records)
