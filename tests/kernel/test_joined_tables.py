"""Two joined tables that tell what has changed once a micro-batch, whatever their caches hold."""

from __future__ import annotations

import json
import random

import pytest
from java_programs import KernelJava


@pytest.mark.disk
@pytest.mark.parametrize(
    ("capacity", "budget", "keys"), [(2, 1 << 40, 12), (1_000, 1 << 40, 12), (1_000, 2_000, 100)]
)
def test_the_last_change_of_each_key_has_the_last_rows_of_both(
    capacity: int, budget: int, keys: int, kernel_java: KernelJava
) -> None:
    """Also where one cache is full, of slices or of bytes, while the other table tells. With room in it, a
    key is told once for each side that has changed."""
    chance = random.Random(capacity)
    batches = [
        [
            (chance.random() < 0.5, f"k{chance.randrange(keys)}", chance.choice(["x", "y", "z", None]))
            for _ in range(chance.randrange(4 * keys))
        ]
        for _ in range(30)
    ]
    asked = {"batches": batches, "capacity": capacity, "budget": budget}
    said = kernel_java("io.millstream.kernel.core.JoinedTablesMain", json.dumps(asked))
    told = [json.loads(line) for line in said.splitlines()]
    rows: dict[bool, dict[str, str | None]] = {True: {}, False: {}}
    for is_left, key, value in (update for batch in batches for update in batch):
        rows[is_left][key] = value
    last = {key: (left, right) for _, key, left, right in told}
    assert last == {key: (rows[True].get(key), rows[False].get(key)) for key in {*rows[True], *rows[False]}}
    changed = sum(len({(is_left, key) for is_left, key, _ in batch}) for batch in batches)
    has_room = capacity > keys and budget > 500 * keys
    assert len(told) == changed if has_room else len(told) > changed
