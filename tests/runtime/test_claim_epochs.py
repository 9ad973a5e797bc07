"""Epochs count claims; a record of one that no claim can have had is refused."""

from __future__ import annotations

import pytest
from fake_ports import FakeChangelogConsumer, FakeLog

from millstream import StreamsException
from millstream.checkpoints.epochs import AHEAD, HIGHEST, check_epoch, floor, highest_epoch
from millstream.model import TopicPartition

AT = TopicPartition("app-n-changelog", 1)


def test_an_epoch_is_above_all_that_is_known_and_no_time_is_in_it() -> None:
    """The group's generation, and what the changelogs have; the last claim is fencing's own business."""
    assert floor(0, 0) == 0
    assert floor(3, 0) == 3
    assert floor(3, 7) == 8
    assert floor(9, 7) == 9
    by_the_clock = 1_700_000_000_000
    assert floor(9, by_the_clock) == by_the_clock + 1, "of a version that took the time of day"


@pytest.mark.parametrize(
    ("epoch", "claimed"),
    [(1, 1), (1 + AHEAD, 1), (1_700_000_000_000, None), (1_700_000_000_005, 1_700_000_000_005)],
)
def test_what_claims_can_have_had_is_believed(epoch: int, claimed: int | None) -> None:
    """Also a little ahead of the last that is known here, and of versions that took the time of day."""
    check_epoch(AT, epoch, 5, claimed)


@pytest.mark.parametrize(("epoch", "claimed"), [(2 + AHEAD, 1), (HIGHEST, None), (2**64 - 1, 7)])
def test_a_jump_that_cannot_be_right_is_refused_with_its_place(epoch: int, claimed: int | None) -> None:
    """Partition, offset, both epochs and the way out."""
    with pytest.raises(StreamsException) as raised:
        check_epoch(AT, epoch, 5, claimed)
    for told in ("'app-n-changelog-1'", f"epoch {epoch} at offset 5", "changelog.lost.policy=rebuild"):
        assert told in str(raised.value)


def test_the_highest_epoch_is_in_the_last_records() -> None:
    """Also where a client that had lost the pipeline wrote after it, where records have none, and in gaps."""
    log = FakeLog()
    other = TopicPartition("app-n-changelog", 0)
    empty = TopicPartition("app-n-changelog", 2)
    for epoch in (3, 9, 4, None):
        log.append(AT, (b"k", b"v", 1), epoch=epoch)
    log.gap(AT, 2)
    log.append(other, (b"k", b"v", 1), epoch=5)
    assert highest_epoch(FakeChangelogConsumer(log), [AT, other, empty], None) == 9
    assert highest_epoch(FakeChangelogConsumer(log), [empty], None) == 0
    log.append(AT, (b"k", b"v", 1), epoch=2**60)
    with pytest.raises(StreamsException, match="at offset 6"):
        highest_epoch(FakeChangelogConsumer(log), [AT, other], None)
