"""A checkpoint belongs to the windows that it was made with."""

from __future__ import annotations

from datetime import timedelta

from millstream import Materialized, SessionWindows, StreamsBuilder, TimeWindows
from millstream.runtime.checkpoints import Fingerprint, fingerprint
from millstream.topology.windows import Windows

FIVE, ONE = timedelta(minutes=5), timedelta(minutes=1)


def of(windows: Windows | None) -> Fingerprint:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    materialized = Materialized.as_("s")
    if windows is None:
        grouped.count(materialized)
    else:
        grouped.windowed_by(windows).count(materialized.with_retention(timedelta(days=1)))
    (pipeline,) = builder.build().pipelines
    return fingerprint(pipeline)


def test_other_windows_are_another_program_under_a_checkpoint() -> None:
    """Size, advance, grace and kind are all in Spark's state; a retention is not, and may change."""
    tumbling = TimeWindows.of_size_with_no_grace(FIVE)
    different = [
        None,
        tumbling,
        tumbling.advance_by(ONE),
        TimeWindows.of_size_and_grace(FIVE, ONE),
        SessionWindows.of_inactivity_gap_with_no_grace(FIVE),
    ]
    assert len({of(windows) for windows in different}) == len(different)
    assert of(tumbling) == of(TimeWindows.of_size_with_no_grace(timedelta(seconds=300)))
    assert of(None).stores == ("Aggregate s",), "as it was before there were windows"
