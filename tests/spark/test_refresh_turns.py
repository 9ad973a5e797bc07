"""Clients that refresh one slow table at the same time all come to the end of it."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

import pytest

from millstream.spark.compile.frame_columns import pause_s
from millstream.spark.engine import _REFRESH_TRIES


@dataclass
class Refresh:
    """One client's: it shuts out the others when it begins, and learns at its end whether it was."""

    takes_s: float
    fenced: int = 0
    number: int = 0


def tries(takes_s: list[float], chance: random.Random) -> list[int]:
    """How often each had to begin, if all begin at about the same time."""
    clients = [Refresh(seconds) for seconds in takes_s]
    todo = [(chance.random(), number, "begins") for number in range(len(clients))]
    heapq.heapify(todo)
    begun, last = 0, -1
    while todo:
        now, number, what = heapq.heappop(todo)
        client = clients[number]
        if what == "begins":
            begun += 1
            client.number = last = begun
            heapq.heappush(todo, (now + client.takes_s, number, "writes"))
        elif client.number != last:
            client.fenced += 1
            pause = pause_s(client.takes_s, client.fenced, chance.random())
            heapq.heappush(todo, (now + pause, number, "begins"))
    return [client.fenced + 1 for client in clients]


@pytest.mark.parametrize("count", [2, 3, 8])
def test_all_that_refresh_at_once_are_done_in_the_end(count: int) -> None:
    """As slow as they may be, and long before they give up."""
    worst = 0
    for seed in range(300):
        chance = random.Random(f"{count} {seed}")
        worst = max(worst, *tries([chance.uniform(100, 120) for _ in range(count)], chance))
    assert worst <= _REFRESH_TRIES * (0.5 if count < 8 else 1)


def test_one_that_is_much_quicker_than_the_other_shuts_it_out_once_at_most() -> None:
    """It does not come back when it is done."""
    for seed in range(50):
        slow, quick = tries([600, 5], random.Random(seed))
        assert slow <= 2
        assert quick <= 2
