"""Who makes room when all seats are taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from millstream.server.connections import most_connections, to_free


@dataclass
class Sitting:
    """As connections.py: Seat."""

    since: int
    address: str = "a"
    idle: bool = True
    admitted: bool = False
    stuck: bool = False


def freed(*seats: Sitting) -> int | None:
    found: Any = to_free(cast(Any, seats))
    return None if found is None else found.since


def test_who_has_to_make_room() -> None:
    """The oldest idle stranger of the address that has most; then who was let in, or takes no answer."""
    assert freed() is None
    assert freed(Sitting(1, idle=False), Sitting(2, idle=False, admitted=True)) is None
    assert freed(Sitting(3), Sitting(2), Sitting(4)) == 2
    assert freed(Sitting(1, admitted=True), Sitting(5)) == 5
    stuck = Sitting(1, idle=False, stuck=True)
    assert freed(stuck, Sitting(0, idle=False)) == 1
    assert freed(stuck, Sitting(7, admitted=True)) == 7
    assert freed(Sitting(2, admitted=True), Sitting(1, admitted=True), Sitting(0, idle=False)) == 1
    assert freed(Sitting(1, "probe"), Sitting(2, "flood"), Sitting(3, "flood")) == 2


def test_the_process_keeps_most_of_its_file_descriptors() -> None:
    """The configured number of connections may be larger."""
    assert most_connections(16) == 16
    assert most_connections(1 << 40) < 1 << 40
