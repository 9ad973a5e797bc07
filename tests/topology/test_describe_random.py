"""`describe()` against Kafka Streams' own text for programs that nobody would write.

tests/snapshots/describe/random.json was made by `random_program` (programs.py) and ReplayAll.java. Wide
graphs, diamonds and merged sources are in it, in which upstream's order depends on Java's collections.
"""

import json
from pathlib import Path

import pytest
from programs import replay

RANDOM = json.loads((Path(__file__).parent.parent / "snapshots" / "describe" / "random.json").read_text())


@pytest.mark.parametrize("case", RANDOM, ids=lambda case: f"{len(case['program'])}-operations")
def test_describe_of_random_programs_is_kafka_streams_text(case):
    """The text is the one that Kafka Streams wrote for the same program."""
    assert str(replay(case["program"]).build().describe()) == case["text"]
