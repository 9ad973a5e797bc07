"""A client with joins, or with processors, is killed: no record loses its match, nothing is counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from proof import JOINS
from stopping import Running

from millstream.broker import EmbeddedKafka

pytestmark = pytest.mark.cluster

PROGRAMS = (*JOINS, "processed")
STOPS = (("0_0.logged", "0_1.offsets", "1_0.committed"), ("0_0.committed", "0_1.committed", "1_1.logged"))
"""Where some tasks have committed, and others have not."""


@pytest.mark.timeout(300)
def test_tables_and_stores_of_processors_are_exact_after_a_kill(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """At least once, twice in the middle of a backlog: a record may be written twice,
    and the same both times."""
    running = Running(kafka, tmp_path, PROGRAMS, once=False)
    try:
        running.start("a")
        running.cluster.wait_until_running()
        for _ in range(2):
            running.kill_in_a_backlog()
            running.settle("each record is there in each way")
    finally:
        running.cluster.close()


@pytest.mark.timeout(300)
def test_with_exactly_once_a_killed_client_has_each_result_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Killed between two steps of several tasks."""
    running = Running(kafka, tmp_path, PROGRAMS)
    try:
        running.start("a")
        running.cluster.wait_until_running()
        for places in STOPS:
            stops = {place: running.stopped_at(place) for place in places}
            running.write()
            running.those_reached(stops)
            running.kill_and_start_again()
            running.settle(f"each record is there once after a kill at {', '.join(places)}")
    finally:
        running.cluster.close()
