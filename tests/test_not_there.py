"""What Kafka Streams has and Millstream has not: an AttributeError that says so, and nothing else changes."""

from __future__ import annotations

import copy
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from millstream import KafkaStreams, Serdes, Stores, StreamsBuilder, TimeWindows, Topology
from millstream.dsl.grouped import KGroupedStream
from millstream.not_there import NOT_YET, ExplainsMissingNames
from millstream.runtime.participation import topology_fingerprint


def objects() -> dict[str, Any]:
    """One of each class that knows."""
    from datetime import timedelta

    from millstream import SessionWindows

    builder = StreamsBuilder()
    stream = builder.stream("lines")
    grouped = stream.group_by_key()
    windowed = grouped.windowed_by(TimeWindows.of_size_with_no_grace(timedelta(minutes=1)))
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(timedelta(minutes=1)))
    topology = StreamsBuilder()
    topology.stream("a").to("b")
    return {
        "KStream": stream,
        "KTable": builder.table("table"),
        "KGroupedStream": grouped,
        "TimeWindowedKStream": windowed,
        "SessionWindowedKStream": sessions,
        "StreamsBuilder": builder,
        "Topology": topology.build(),
        "BranchedKStream": stream.split(),
        "GlobalKTable": builder.global_table("users"),
        "Stores": Stores,
    }


def message(read: Callable[[], object]) -> str:
    with pytest.raises(AttributeError) as raised:
        read()
    return str(raised.value)


def test_every_name_of_the_table_says_what_to_do_and_is_really_missing() -> None:
    """Names are checked in Python's and in Java's spelling."""
    made = objects()
    assert NOT_YET.keys() - {"KafkaStreams"} <= made.keys()
    for kind, names in NOT_YET.items():
        for name, instead in names.items():
            if kind == "KafkaStreams":
                assert issubclass(KafkaStreams, ExplainsMissingNames)
                assert not hasattr(KafkaStreams, name)
                continue
            assert not hasattr(made[kind], name)
            java = "".join(part.title() if number else part for number, part in enumerate(name.split("_")))
            for asked in (name, java):
                told = message(lambda asked=asked, kind=kind: getattr(made[kind], asked))  # type: ignore[misc]
                what = f"type object '{kind}'" if kind == "Stores" else f"'{kind}' object"
                assert told == (
                    f"{what} has no attribute '{asked}': Millstream does not have Kafka Streams' "
                    f"{kind}.{asked}; {instead}"
                )


def test_a_name_that_is_nearly_one_is_suggested_once() -> None:
    """Java's spelling and slips; in a traceback, Python adds no suggestion of its own."""
    made = objects()
    for kind, asked, meant in (
        ("KStream", "groupByKey", "group_by_key"),
        ("KStream", "flatmap_value", "flat_map_values"),
        ("KTable", "queryableStoreName", "queryable_store_name"),
        ("StreamsBuilder", "globalTable", "global_table"),
        ("BranchedKStream", "defaultBranch", "default_branch"),
        ("GlobalKTable", "queryable_store", "queryable_store_name"),
    ):
        with pytest.raises(AttributeError) as raised:
            getattr(made[kind], asked)
        assert str(raised.value) == f"'{kind}' object has no attribute '{asked}'. Did you mean '{meant}'?"
        assert "".join(traceback.format_exception(raised.value)).count("Did you mean") == 1
        assert raised.value.name == asked
    assert message(lambda: made["KStream"].zzz) == "'KStream' object has no attribute 'zzz'"


def test_a_class_that_is_asked_itself_knows_names_too() -> None:
    """Java's static methods."""
    for asked, meant in (("String", "string"), ("Long", "long"), ("UUID", "uuid"), ("jsn", "json")):
        told = message(lambda asked=asked: getattr(Serdes, asked))  # type: ignore[misc]
        assert told == f"type object 'Serdes' has no attribute '{asked}'. Did you mean '{meant}'?"
    assert not hasattr(Serdes, "__wrapped__")
    assert pickle.loads(pickle.dumps(Serdes)) is Serdes


def test_whoever_probes_for_what_may_be_there_finds_what_there_is() -> None:
    """hasattr, getattr with a default, copy, pickle, IPython's and pandas' questions."""
    for kind, each in objects().items():
        assert hasattr(each, "_repr_html_") == (kind in ("KafkaStreams", "Topology")), kind
        assert not hasattr(each, "_ipython_canary_method_should_not_exist_"), kind
        assert not hasattr(each, "__array__"), kind
        assert getattr(each, "transform", None) is None, kind
        assert type(copy.copy(each)) is type(each)
        assert isinstance(each, type) or type(each).__new__(type(each)) is not None
        assert message(lambda each=each: each.__array__).endswith("no attribute '__array__'")  # type: ignore[misc]
    topology: Topology = objects()["Topology"]
    assert topology_fingerprint(copy.deepcopy(topology)) == topology_fingerprint(topology)
    assert topology_fingerprint(pickle.loads(pickle.dumps(topology))) == topology_fingerprint(topology)
    assert not hasattr(KGroupedStream, "processed")


def test_a_property_that_fails_is_not_taken_for_a_missing_name() -> None:
    """Its own AttributeError is raised."""

    class Failing(ExplainsMissingNames):
        @property
        def broken(self) -> object:
            return object().nothing_here  # type: ignore[attr-defined]

    assert message(lambda: Failing().broken) == "'object' object has no attribute 'nothing_here'"
