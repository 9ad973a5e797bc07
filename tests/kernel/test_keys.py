"""The keys of a processor's store: a sorted set in pages."""

from __future__ import annotations

import random

import pytest
from java_programs import KernelJava

pytestmark = pytest.mark.disk


def test_keys_in_pages_are_a_sorted_set(kernel_java: KernelJava) -> None:
    """Keys are added and removed in any order. Empty pages are removed, except one per level."""
    chosen = random.Random(13)
    keys: set[bytes] = set()
    lines: list[str] = []
    expected: list[str] = []

    def look(key: bytes) -> None:
        lines.append(f"={key.hex()}")
        ahead = "".join(f"{each.hex()} " for each in sorted(keys) if each >= key)
        behind = "".join(f" {each.hex()}" for each in sorted(keys, reverse=True) if not key or each < key)
        expected.append(f"{ahead}|{behind}")

    def change(sign: str, key: bytes) -> None:
        lines.append(f"{sign}{key.hex()}")
        (keys.add if sign == "+" else keys.discard)(key)

    def random_key() -> bytes:
        return chosen.randbytes(chosen.choice((0, 1, 2, 2, 2, 2, 3)))

    for more in (0.9, 0.5, 0.1):  # it grows, stays, and shrinks
        for _ in range(8_000):
            change("+" if chosen.random() < more else "-", random_key())
        look(b"")
        look(random_key())
    for number in range(15_000):  # in order, and from the front, as windows come and go
        change("+", b"w%06d" % number)
        if number >= 500:
            change("-", b"w%06d" % (number - 500))
        if number % 3_000 == 0:
            look(random_key())
    for key in chosen.sample(sorted(keys), len(keys)):
        change("-", key)
    look(b"")
    lines.append("!")
    said = kernel_java("io.millstream.kernel.core.KeysMain", "\n".join(lines)).splitlines()
    assert said[:-1] == expected
    assert int(said[-1]) <= 3, "pages without keys are still there"
