"""What Python functions are compared by: their orders, in JSON and in Avro; the table and the goals."""

from __future__ import annotations

import io
import json
import struct
from contextlib import closing
from dataclasses import replace

import fastavro

from bench.folds import KEYS, Run, compared, orders
from bench.processors import cases
from millstream.registry.http import RegistryServer


def test_orders_are_the_same_in_json_and_in_the_wire_format_of_avro() -> None:
    """A zero, the schema's id in four bytes, and what Avro's own library reads. The sum is right."""
    with closing(RegistryServer()) as registry:
        in_json, in_avro = cases(registry.url)
        (expected, texts), (also, records) = orders(in_json, 200), orders(in_avro, 200)
        read = []
        for record in records:
            magic, schema = struct.unpack(">bI", record["value"][:5])
            assert magic == 0
            known = fastavro.parse_schema(json.loads(registry.state.by_id(schema).text))
            read.append(fastavro.schemaless_reader(io.BytesIO(record["value"][5:]), known))
    assert read == [json.loads(text["value"]) for text in texts]
    assert sum(order["amount"] for order in read) == expected == also
    assert len({order["user"] for order in read}) > 100


def test_a_goal_is_twice_quix_streams_and_java_only_has_a_ratio() -> None:
    """Ratios are taken within each round; a missing contestant has a note, but no row and no goal."""
    case = replace(cases("http://127.0.0.1:1")[0], title="T")
    seconds = {"millstream": [1.0, 2.0], "quix": [3.0, 6.0], "java": [0.5, 1.0]}
    runs = {name: [Run(each, 9) for each in of] for name, of in seconds.items()}
    cold = {name: Run(9.0, 9) for name in runs}
    table, goals = compared(case, KEYS, cold, runs, [])
    assert [row[-1] for row in table.rows] == ["", "3.00 (3.00 to 3.00)", "0.50 (0.50 to 0.50)"]
    assert [(goal.what, goal.measured, goal.limit, goal.met) for goal in goals] == [
        ("records a second: T", KEYS / 1.5, 10_000, False),
        ("throughput against Quix Streams: T", 3.0, 2.0, True),
    ]
    table, goals = compared(case, KEYS, cold, {"millstream": runs["millstream"]}, ["Quix Streams is away"])
    assert (len(table.rows), len(goals), table.notes[-1]) == (1, 1, "Quix Streams is away")
