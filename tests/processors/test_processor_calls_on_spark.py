"""The same calls on Spark: a store in the kernel's state returns what Kafka Streams' store returns."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from driving import STRINGS, pipe, read
from processors import test_processor_calls
from processors.test_processor_calls import Player, comparable, store_builder, written
from pyspark import cloudpickle

from millstream import Processor, StreamsBuilder
from millstream.testing.driver import TopologyTestDriver

pytestmark = pytest.mark.spark

NAMES = [
    "key-value store, memory False",
    "timestamped store, memory False",
    "window store, memory False",
    "timestamped-window store, memory False",
    "windows with duplicates",
    "session store, memory False",
    "versioned store, history 10000",
]


class Telling(Player, Processor):
    """Makes the calls that a record tells it, and forwards what they returned."""

    def __init__(self, store: str, kind: str) -> None:
        super().__init__(SimpleNamespace(log=[], kinds={store: kind}, case={}, scheduled={}), "p")  # type: ignore[arg-type]

    def process(self, record: Any) -> None:
        self.of.log = []
        super().process(record)
        self.context.forward(record.with_value(json.dumps(self.of.log)))


def test_stores_in_spark_return_what_they_return_in_kafka_streams() -> None:
    """Five kinds of stores in one client, each with its own records, all of them in one micro-batch."""
    cloudpickle.register_pickle_by_value(test_processor_calls)
    cloudpickle.register_pickle_by_value(__import__(__name__))
    builder = StreamsBuilder()
    for number, name in enumerate(NAMES):
        store = {**written()[name]["stores"][0], "name": f"s{number}"}

        def supplier(store: Any = store) -> Telling:
            return Telling(store["name"], store["kind"])

        stream = builder.stream(f"in{number}", STRINGS)
        stream.process(supplier, store_builder(store)).to(f"out{number}")
    with TopologyTestDriver(builder.build()) as driver:
        for number, name in enumerate(NAMES):
            case = written()[name]
            records = []
            for key, script, timestamp in case["records"]:
                calls = [[method, f"s{number}", *rest] for method, _, *rest in script["p"]]
                records.append((key, json.dumps({"p": calls}), timestamp))
            pipe(driver, f"in{number}", *records)
            answered = [json.loads(value) for _, value in read(driver, f"out{number}")]
            expected = [step.get("log", []) for step in case["steps"][1:]]
            assert len(answered) == len(expected)
            for place, (ours, theirs) in enumerate(zip(answered, expected, strict=True)):
                one, other = ({"log": log} for log in (ours, theirs))
                assert comparable(case, one) == comparable(case, other), f"{name}, record {place}"
