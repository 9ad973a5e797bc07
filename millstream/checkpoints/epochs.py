"""Which epoch a claim gets, and which epochs a changelog record can have.

An epoch is a count of claims, not a time: one more than the last claim, and not below any epoch in the group
and the changelogs. After a record of a higher epoch, stores skip all records of a lower one. So an epoch that
no claim can have had must not be believed: stores would skip the records of the next real claims.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from millstream.errors import StreamsException
from millstream.model import TopicPartition
from millstream.ports import ChangelogConsumer

__all__ = ["AHEAD", "HIGHEST", "check_epoch", "floor", "highest_epoch"]

AHEAD = 1000
"""How far a record may be ahead of the last known claim: other clients' claims show a little later on a
mounted file system."""
_LAST = 100
"""How many records of each partition are read. Epochs grow with the offsets, except for records of a client
that has lost the pipeline."""
_WITHIN_S = 30.0
HIGHEST = 2**53
"""A number that no count of claims reaches. Epochs of versions that used the time of day, in milliseconds,
are below it."""


def check_epoch(partition: TopicPartition, epoch: int, offset: int, claimed: int | None) -> None:
    """Check that a claim can have had this epoch.

    Args:
        claimed: the epoch of the last known claim, or None.

    Raises:
        StreamsException: none can.
    """
    if epoch < HIGHEST and (claimed is None or epoch <= claimed + AHEAD):
        return
    last = "no claim is known" if claimed is None else f"the last claim has {claimed}"
    raise StreamsException(
        f"changelog '{partition}' has a record of epoch {epoch} at offset {offset}, which no claim can have "
        f"had ({last}): something other than Millstream wrote it. If it were accepted, everything that the "
        f"pipeline writes later would be ignored. Next: close the clients, delete that topic, and start with "
        f"changelog.lost.policy=rebuild, which rewrites it from Spark's state"
    )


def floor(generation: int, seen: int) -> int:
    """The lower bound of a new claim's epoch, which is also higher than those of all known claims.

    Args:
        generation: the group's, as last agreed.
        seen: the highest epoch in the changelogs of the pipeline; 0: none.
    """
    return max(generation, seen + 1 if seen else 0)


def highest_epoch(
    consumer: ChangelogConsumer, partitions: Sequence[TopicPartition], claimed: int | None
) -> int:
    """The highest epoch among the last records of these changelogs; 0: there is none.

    Raises:
        StreamsException: an epoch that no claim can have had, or the cluster does not answer.
    """
    starts, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    left = {each for each in partitions if ends[each] > starts[each]}
    highest = 0
    if left:
        consumer.assign({each: max(starts[each], ends[each] - _LAST) for each in left})
    deadline = time.monotonic() + _WITHIN_S
    while left:
        if time.monotonic() > deadline:
            raise StreamsException(
                f"the ends of changelogs {', '.join(map(str, sorted(left)))} could not be read in "
                f"{_WITHIN_S:g} s; check that the brokers that host them are up"
            )
        for batch in consumer.poll(0.1):
            if batch.rose_at >= 0:
                check_epoch(batch.partition, batch.epoch, batch.rose_at, claimed)
                highest = max(highest, batch.epoch)
            if batch.next_offset >= ends[batch.partition]:
                left.discard(batch.partition)
    return highest
