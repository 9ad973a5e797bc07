"""What goes between Spark's JVM and a Python worker: both ends read what the other has written."""

from __future__ import annotations

import random
import struct
from array import array

import pytest
from java_programs import KernelJava

from millstream.spark.worker.program_worker import decoded, encoded

pytestmark = pytest.mark.disk


def test_java_writes_a_message_as_it_has_read_it(kernel_java: KernelJava) -> None:
    """Columns of byte strings, of numbers, none at all, and empty ones; what is no message is
    refused."""
    chosen = random.Random(7)
    columns = [
        [chosen.choice([None, b"", chosen.randbytes(chosen.randrange(300))]) for _ in range(size)]
        for size in (0, 1, 50)
    ]
    messages = [encoded(ord("R"), columns[:count]) for count in range(4)]
    body = struct.pack(">bibi2ibii1s", ord("R"), 2, ord("i"), 2, -1, 7, ord("y"), 1, 1, b"x")
    messages.append(struct.pack(">i", len(body)) + body)
    numbers = [array("i", [3]), array("q", [-(2**63), 5]), array("q")]
    messages.append(encoded(ord("A"), numbers))
    wrong = {
        b"\0\0\0\1R": "IOException a Python worker sent 1 as the size of a message",
        b"\xff\xff\xff\xffR": "IOException a Python worker sent -1 as the size of a message",
        b"\0\0\0\x09R\0\0\0": "EOFException null",
        b"\0\0\0\x0aR\0\0\0\1z\0\0\0\0": "IOException a Python worker sent a frame of the unknown type 122",
    }
    text = "\n".join(message.hex() for message in (*messages, *wrong))
    answered = kernel_java("io.millstream.kernel.python.MessageMain", text).splitlines()
    assert answered == [*(message.hex() for message in messages), *wrong.values()]
    assert decoded(bytes.fromhex(answered[3])[5:]) == columns
    assert decoded(bytes.fromhex(answered[4])[5:]) == [(-1, 7), [b"x"]]
    assert decoded(bytes.fromhex(answered[5])[5:]) == [*map(tuple, numbers)]
