"""What a client's stores mean for its group, and what the group's assignment means for queries. Pure.

The client's stores and their positions become its report to the leader about its tasks (`task_offsets`,
`up_to_date`); the leader's answer becomes the location of everything (`placement_of`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from millstream.group.userdata import Assignment
from millstream.group.userdata_layout import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from millstream.model import LagInfo, TaskId, TopicPartition
from millstream.query.metadata import HostInfo, Placement, StorePartition
from millstream.runtime.state.assignment import Share, StorePart

__all__ = ["missing_standbys", "placement_of", "task_offsets", "up_to_date"]


def task_offsets(
    held: Share, lags: Mapping[TopicPartition, LagInfo], on_disk: Collection[TaskId], *, lost: bool
) -> dict[TaskId, int]:
    """What a client has of each task, in the terms of Kafka's SubscriptionInfo.

    Args:
        on_disk: the tasks with state on the disk: better than nothing, however old it is.
        lost: the client is no longer in the group. It then claims nothing as its own: what it had may belong
            to another client by now.

    Source: StreamThread/TaskManager.taskOffsetSums. Differs: an active task that is being restored counts as
        active, so that it stays where it is; `up_to_date` says that it cannot be read yet.
    """
    active = () if lost else held.active_tasks
    sums = dict.fromkeys(sorted(set(on_disk) - set(held.tasks)), UNKNOWN_OFFSET_SUM)
    sums |= dict.fromkeys(active, LATEST_OFFSET)
    for part in held.parts:
        if part.task_id not in active:
            known = lags.get(part.changelog)
            position = 0 if known is None else known.current_offset_position
            sums[part.task_id] = sums.get(part.task_id, 0) + position
    return sums


def up_to_date(
    held: Share,
    lags: Mapping[TopicPartition, LagInfo],
    caught_up: Collection[TopicPartition],
    acceptable_lag: int,
) -> frozenset[TaskId]:
    """The tasks all of whose stores have caught up once, or are only a few records behind.

    Source: KIP-441, acceptable.recovery.lag.
    """
    near = {at for at, lag in lags.items() if lag.offset_lag <= acceptable_lag}.union(caught_up)
    behind = {part.task_id for part in held.parts if part.changelog not in near}
    return frozenset(held.tasks) - behind


def placement_of(
    assignment: Assignment,
    parts: Iterable[StorePart],
    own_endpoint: str,
    global_stores: Mapping[str, frozenset[TopicPartition]],
) -> tuple[Placement, tuple[str, ...]]:
    """Where everything is; and the endpoints of other clients that are not addresses, which are left out."""
    hosts: dict[HostInfo, tuple[frozenset[TaskId], frozenset[TaskId]]] = {}
    odd = []
    for endpoint, (active, standby) in assignment.hosts.items():
        try:
            hosts[HostInfo.parse(endpoint)] = (frozenset(active), frozenset(standby))
        except ValueError:
            odd.append(endpoint)
    placement = Placement(
        places=tuple(StorePartition(part.store.name, part.task_id, part.changelog) for part in parts),
        hosts=hosts,
        local=HostInfo.parse(own_endpoint) if own_endpoint else HostInfo.unavailable(),
        global_stores=global_stores,
    )
    return placement, tuple(odd)


def missing_standbys(replicas: int, clients: int) -> int:
    """How many more clients are needed for this number of standbys of each task."""
    return max(0, replicas + 1 - clients)
