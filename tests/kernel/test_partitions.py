"""`Partitions`: where a key lies, compared with other clients of Kafka."""

from __future__ import annotations

import random

import pytest
from java_programs import KernelJava
from kafka.partitioner.default import murmur2


@pytest.mark.disk
def test_a_key_lies_where_other_clients_put_it(kernel_java: KernelJava) -> None:
    """kafka-python has a murmur2 of its own. Keys of all lengths around its words of four bytes, with bytes
    that Java takes for negative, and the empty key."""
    chance = random.Random(7)
    keys = [chance.randbytes(length) for length in range(40) for _ in range(25)]
    asked = [(key, chance.choice([1, 2, 3, 7, 10, 64, 1000])) for key in keys]
    said = kernel_java(
        "io.millstream.kernel.PartitionsMain", "".join(f"{key.hex()} {n}\n" for key, n in asked)
    )
    expected = [(murmur2(key) & 0x7FFFFFFF) % n for key, n in asked]
    assert [int(line) for line in said.split()] == expected
    assert len(set(expected)) > 100
