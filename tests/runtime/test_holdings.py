"""What a client tells the group of its tasks, and what it makes of the answer: values in, values out."""

from __future__ import annotations

import pytest

from millstream.group.userdata import Assignment
from millstream.group.userdata_layout import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from millstream.model import LagInfo, TaskId, TopicPartition
from millstream.query.metadata import HostInfo, StorePartition
from millstream.runtime.state.assignment import Share, StorePart
from millstream.runtime.state.holdings import missing_standbys, placement_of, task_offsets, up_to_date
from millstream.topology.nodes import Store


def part(partition: int, store: str = "s", *, standby: bool = False) -> StorePart:
    changelog = TopicPartition(f"{store}-changelog", partition)
    return StorePart(TaskId(1, partition), Store(store), changelog, standby)


T0, T1, T2, T3 = (TaskId(1, number) for number in range(4))
HELD = Share((), (part(0), part(1, standby=True), part(1, "other", standby=True), part(2, standby=True)))
LAGS = {
    TopicPartition("s-changelog", 0): LagInfo(50, 50),
    TopicPartition("s-changelog", 1): LagInfo(40, 70),
    TopicPartition("other-changelog", 1): LagInfo(2, 2),
}


def test_the_offsets_of_tasks() -> None:
    """An active one says that it runs, a standby the sum over its stores, what is only on disk that it is
    there."""
    assert task_offsets(HELD, LAGS, {T0, T3}, lost=False) == {
        T0: LATEST_OFFSET,
        T1: 42,
        T2: 0,
        T3: UNKNOWN_OFFSET_SUM,
    }


def test_a_lost_client_claims_nothing_as_its_own() -> None:
    """It still reports its positions."""
    assert task_offsets(HELD, LAGS, (), lost=True) == {T0: 50, T1: 42, T2: 0}


@pytest.mark.parametrize(
    ("acceptable", "caught_up", "tasks"),
    [
        (0, set(), {T0}),
        (29, set(), {T0}),
        (30, set(), {T0, T1}),
        (0, {TopicPartition("s-changelog", 1)}, {T0, T1}),
        (0, {TopicPartition("s-changelog", 2)}, {T0, T2}),
    ],
)
def test_a_task_is_up_to_date_when_all_of_its_stores_are(
    acceptable: int, caught_up: set[TopicPartition], tasks: set[TaskId]
) -> None:
    """A store is if its lag is known and small, or if it has caught up once."""
    assert up_to_date(HELD, LAGS, caught_up, acceptable) == tasks


def test_an_assignment_as_a_placement() -> None:
    """Hosts by their addresses; one that is none is told apart, and hurts nobody."""
    told = Assignment(hosts={"a:1": ((T0,), (T1,)), "nonsense": ((T1,), ()), "b:2": ((T1,), ())})
    rates = {"rates": frozenset({TopicPartition("rates", 0)})}
    placement, odd = placement_of(told, HELD.parts[:1], "b:2", rates)
    assert placement.hosts == {
        HostInfo("a", 1): ({T0}, {T1}),
        HostInfo("b", 2): ({T1}, frozenset()),
    }
    assert placement.places == (StorePartition("s", T0, TopicPartition("s-changelog", 0)),)
    assert (placement.local, placement.global_stores, odd) == (HostInfo("b", 2), rates, ("nonsense",))
    assert placement_of(told, (), "", {})[0].local == HostInfo.unavailable()


@pytest.mark.parametrize(
    ("replicas", "clients", "missing"), [(0, 1, 0), (1, 1, 1), (1, 2, 0), (3, 2, 2), (1, 9, 0)]
)
def test_how_many_clients_are_missing(replicas: int, clients: int, missing: int) -> None:
    """A standby is never where the task is active."""
    assert missing_standbys(replicas, clients) == missing
