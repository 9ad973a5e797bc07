"""What is written into topics between tasks is what Kafka Streams writes (snapshots/InternalAll.java)."""

from __future__ import annotations

import json
from pathlib import Path

from java_programs import KernelJava

EXPECTED = json.loads((Path(__file__).parent.parent / "snapshots" / "internal.json").read_text())
MAIN = "io.millstream.kernel.task.InternalBytesMain"


def test_the_hash_of_a_row_is_that_of_kafka_streams(kernel_java: KernelJava) -> None:
    """A row with a foreign key is known by it on the other side, whoever has sent it."""
    asked = "".join(f"hash {each['value']}\n" for each in EXPECTED["hashes"])
    assert kernel_java(MAIN, asked).split() == [each["hash"] for each in EXPECTED["hashes"]]


def test_a_change_of_a_grouped_table_is_that_of_kafka_streams(kernel_java: KernelJava) -> None:
    """With the new value, the old one, or both."""
    changes = [(each.get("new", "-"), each.get("old", "-"), each["change"]) for each in EXPECTED["changes"]]
    asked = "".join(f"change {new} {old}\n" for new, old, _ in changes)
    assert kernel_java(MAIN, asked).splitlines() == [f"{change} {new} {old}" for new, old, change in changes]
