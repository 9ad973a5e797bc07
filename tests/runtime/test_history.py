"""What failed before, which of it counts, and how long the pause is: with times that are made up."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import MissingSourceTopicException, PipelineException, StreamsException
from millstream.model import TaskId, TopicPartition
from millstream.runtime.state.failure import Budget, Exhausted, Failure, Response, Retry
from millstream.runtime.state.history import FailureHistory, FailureRecord, in_a_row, plan_retry

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
P0, P1 = TopicPartition("lines", 0), TopicPartition("lines", 1)
Spans = Mapping[TopicPartition, tuple[int, int]]


def failed(spans: Spans | None = None, pipeline: str = "p0", thread: str = "t1") -> Failure:
    return Failure.of(thread, PipelineException("x", pipeline=pipeline, offsets=spans))


def record(failure: Failure, at: datetime = NOON, attempt: int = 1) -> FailureRecord:
    return FailureRecord.of(failure, at, Response.REPLACE_THREAD, attempt=attempt)


def story(*failures: Failure, every: timedelta = SECOND) -> list[FailureRecord]:
    """One after the other, the last one `every` before noon."""
    return [
        record(failure, NOON - every * (len(failures) - number)) for number, failure in enumerate(failures)
    ]


def half() -> float:
    return 0.5


def attempt(previous: list[FailureRecord], failure: Failure, budget: Budget | None = None) -> int:
    plan = plan_retry(previous, failure, budget or Budget(50), NOON, half)
    assert isinstance(plan, Retry)
    return plan.attempt


# --- pauses and budgets ------------------------------------------------------------------------------------


def test_the_first_failure_is_answered_at_once() -> None:
    """If the policy asks for a delay, it comes after that delay, which is not random."""
    assert plan_retry([], failed(), Budget(5), NOON, half) == Retry(1, 0.0, 5)
    assert plan_retry([], failed(), Budget(5, first_delay=3 * SECOND), NOON, half) == Retry(1, 3.0, 5)


def test_pauses_double_up_to_the_longest() -> None:
    """Half of each, with a draw of 0.5."""
    budget = Budget(50, backoff=SECOND, backoff_max=10 * SECOND)
    pauses = []
    for count in range(8):
        plan = plan_retry(story(*[failed()] * count), failed(), budget, NOON, half)
        assert isinstance(plan, Retry)
        pauses.append(plan.delay_s)
    assert pauses == [0, 0.5, 1, 2, 4, 5, 5, 5]


@given(count=st.integers(1, 99), seed=st.integers())
def test_a_pause_is_a_random_part_of_the_longest(count: int, seed: int) -> None:
    """Full jitter, for any number of failures; 100 doublings do not overflow."""
    budget = Budget(100, backoff=SECOND, backoff_max=timedelta(hours=1))
    plan = plan_retry(story(*[failed()] * count), failed(), budget, NOON, random.Random(seed).random)
    assert isinstance(plan, Retry)
    assert plan.attempt == count + 1
    assert 0 <= plan.delay_s <= min(3600, 2 ** (count - 1))


def test_a_budget_is_used_up_by_one_failure_more() -> None:
    """Three are replaced; the fourth is not."""
    budget = Budget(3, then=Response.SHUTDOWN_APPLICATION)
    plans = [plan_retry(story(*[failed()] * count), failed(), budget, NOON, half) for count in range(5)]
    assert [type(plan) for plan in plans] == [Retry, Retry, Retry, Exhausted, Exhausted]
    assert plans[3] == Exhausted(4, timedelta(minutes=10), Response.SHUTDOWN_APPLICATION)


def test_what_is_older_than_the_window_does_not_count() -> None:
    """The edge included: a failure one window ago is out."""
    budget = Budget(2, window=10 * SECOND)
    old = record(failed(), NOON - 10 * SECOND)
    young = record(failed(), NOON - 10 * SECOND + timedelta(milliseconds=1))
    assert attempt([old, old, old], failed(), budget) == 1
    assert attempt([old, young], failed(), budget) == 2
    assert isinstance(plan_retry([young, young], failed(), budget, NOON, half), Exhausted)


def test_a_clock_that_was_set_back_makes_no_room() -> None:
    """Failures that seem to be in the future count."""
    assert attempt([record(failed(), NOON + timedelta(hours=3))], failed()) == 2


def test_the_longest_window_there_is_can_be_asked_for() -> None:
    """No arithmetic of dates overflows."""
    assert attempt(story(failed()), failed(), Budget(5, window=timedelta.max)) == 2


# --- what counts together ----------------------------------------------------------------------------------


def of(error: StreamsException, is_global: bool = False, thread: str = "t1") -> Failure:
    return Failure.of(thread, error, is_global)


@pytest.mark.parametrize(
    ("before", "now", "together"),
    [
        (failed(thread="t1"), failed(thread="t7"), True),  # a replacement has another name
        (failed(pipeline="p0"), failed(pipeline="p1"), False),
        (failed(), of(StreamsException("x")), False),
        (
            of(StreamsException("x", task_id=TaskId(0, 1))),
            of(MissingSourceTopicException("x"), thread="t2"),
            False,
        ),
        (
            of(StreamsException("x", task_id=TaskId(0, 1))),
            of(StreamsException("y", task_id=TaskId(0, 1)), thread="t2"),
            True,
        ),
        (
            of(StreamsException("x", task_id=TaskId(0, 1))),
            of(StreamsException("x", task_id=TaskId(0, 2))),
            False,
        ),
        (of(MissingSourceTopicException("x")), of(MissingSourceTopicException("y"), thread="t2"), True),
        (of(MissingSourceTopicException("x")), of(StreamsException("x")), False),
        (of(StreamsException("x")), of(StreamsException("x"), is_global=True), False),
    ],
)
def test_failures_count_for_what_failed(before: Failure, now: Failure, together: bool) -> None:
    """The pipeline, else the task, else the kind of failure; never the thread."""
    assert attempt(story(before), now) == (2 if together else 1)


def test_another_pipeline_in_between_does_not_matter() -> None:
    """Neither failures nor progress of another pipeline count."""
    other = failed({P0: (0, 5)}, pipeline="p1")
    past = failed({P0: (9, 12)}, pipeline="p1")
    assert attempt(story(failed(), other, past, failed(), past), failed()) == 3


# --- progress ----------------------------------------------------------------------------------------------

BATCH = {P0: (10, 20), P1: (0, 0)}
HALF = {P0: (15, 25), P1: (0, 0)}
NEXT = {P0: (20, 30), P1: (0, 3)}
LATER = {P0: (90, 95), P1: (7, 7)}


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        pytest.param([BATCH, BATCH], 2, id="the same batch again"),
        pytest.param([BATCH, NEXT], 1, id="the next batch"),
        pytest.param([BATCH, LATER], 1, id="a later batch"),
        pytest.param([BATCH, HALF], 2, id="it overlaps"),
        pytest.param([BATCH, {P0: (20, 30)}], 2, id="one partition is not known now"),
        pytest.param([BATCH, {**NEXT, TopicPartition("lines", 2): (0, 9)}], 1, id="one partition more"),
        pytest.param([{P0: (10, 20), P1: (5, 9)}, {P0: (20, 30), P1: (5, 9)}], 2, id="one stands still"),
        pytest.param([{}, NEXT], 2, id="unknown before"),
        pytest.param([BATCH, {}], 2, id="unknown now"),
        pytest.param([{}, {}], 2, id="never known"),
        pytest.param([{P0: (10, 10)}, {P0: (10, 10)}], 2, id="nothing to read, twice"),
        pytest.param([{P0: (10, 10)}, {P0: (10, 20)}], 2, id="nothing to read, then something"),
        pytest.param([BATCH, {P0: (0, 4), P1: (0, 0)}], 2, id="back to an earlier place"),
        pytest.param([BATCH, BATCH, BATCH, NEXT], 1, id="past three failures at once"),
        pytest.param([BATCH, BATCH, NEXT, NEXT], 2, id="two, progress, two"),
        pytest.param([BATCH, NEXT, LATER], 1, id="one failure in each batch"),
        pytest.param([BATCH, {}, NEXT], 2, id="an unknown one after it counts"),
        pytest.param([{}, BATCH, NEXT], 1, id="an unknown one before it does not"),
        pytest.param([BATCH, NEXT, {}], 2, id="progress before an unknown one"),
        pytest.param([BATCH, NEXT, {P0: (0, 4), P1: (0, 0)}], 2, id="progress, then a topic made anew"),
    ],
)
def test_only_progress_past_the_failing_records_begins_the_count_anew(
    spans: list[Spans], expected: int
) -> None:
    """Being RUNNING for a while is no progress, and neither is an unknown position."""
    *before, now = [failed(each) for each in spans]
    assert attempt(story(*before), now) == expected


SPANS = st.dictionaries(
    st.sampled_from([P0, P1]),
    st.tuples(st.integers(0, 5), st.integers(0, 5)).map(lambda pair: (min(pair), max(pair))),
)


@given(st.lists(SPANS, max_size=8), SPANS)
def test_those_that_count_are_the_last_ones(spans: list[Spans], now: Spans) -> None:
    """An unbroken piece at the end, in order; and forgetting the oldest never makes the count larger."""
    previous = story(*[failed(each) for each in spans])
    counted = in_a_row(previous, failed(now), timedelta(hours=1), NOON)
    assert list(counted) == previous[len(previous) - len(counted) :]
    shorter = in_a_row(previous[1:], failed(now), timedelta(hours=1), NOON)
    assert len(counted) - 1 <= len(shorter) <= len(counted)


@given(st.lists(st.just(BATCH), max_size=8))
def test_a_poison_record_never_gets_a_new_budget(spans: list[Spans]) -> None:
    """The same batch, as often as it is tried."""
    assert len(in_a_row(story(*map(failed, spans)), failed(BATCH), timedelta(hours=1), NOON)) == len(spans)


# --- the history -------------------------------------------------------------------------------------------


def test_a_record_has_what_the_failure_had() -> None:
    """It also has the decision."""
    error = PipelineException("x", pipeline="p0", offsets={P0: (3, 5)}, batch_id=9, task_id=TaskId(0, 1))
    made = FailureRecord.of(
        Failure.of("t1", error, is_global=True),
        NOON,
        Response.REPLACE_THREAD,
        attempt=2,
        next_try=NOON + SECOND,
        most=5,
    )
    assert made == FailureRecord(
        at=NOON,
        thread="t1",
        pipeline="p0",
        task_id=TaskId(0, 1),
        exception=error,
        response=Response.REPLACE_THREAD,
        attempt=2,
        next_try=NOON + SECOND,
        offsets={P0: (3, 5)},
        batch_id=9,
        is_global=True,
        most=5,
    )


def test_a_history_keeps_the_last_of_each_pipeline() -> None:
    """They are in order of time; the count is of all failures ever."""
    history = FailureHistory(maxlen=2)
    assert (history.records(), history.last(), history.count) == ((), None, 0)
    quiet = record(failed(pipeline="p1"))
    noisy = [record(failed(), attempt=number) for number in range(1, 6)]
    for each in (noisy[0], quiet, *noisy[1:]):
        history = history.adding(each)
    assert history.records() == (quiet, noisy[3], noisy[4])
    assert history.last() is noisy[4]
    assert history.count == 6


def test_a_noisy_pipeline_does_not_hide_how_often_another_failed() -> None:
    """The largest budget there is can be used up, whatever else fails meanwhile."""
    history = FailureHistory()
    for _ in range(100):
        history = history.adding(record(failed(pipeline="p1"), NOON - SECOND))
        for _ in range(3):
            history = history.adding(record(failed(), NOON - SECOND))
    budget = Budget(100)
    assert isinstance(plan_retry(history.records(), failed(pipeline="p1"), budget, NOON, half), Exhausted)


def test_a_history_is_bounded_for_any_number_of_tasks() -> None:
    """What has been quiet for longest is forgotten first."""
    history = FailureHistory()
    for number in range(1500):
        history = history.adding(record(of(StreamsException("x", task_id=TaskId(0, number)))))
        history = history.adding(record(failed()))
    kept = history.records()
    assert history.count == 3000
    assert len([each for each in kept if each.pipeline is None]) == 999
    assert len([each for each in kept if each.pipeline == "p0"]) == 100


def test_a_history_without_room_is_refused() -> None:
    """It could not count."""
    with pytest.raises(ValueError, match="maxlen must be 1 or more; got 0"):
        FailureHistory(maxlen=0)


def test_a_history_does_not_change_under_who_reads_it() -> None:
    """Another one is made with each failure."""
    before = FailureHistory(maxlen=2).adding(record(failed()))
    seen = before.records()
    after = before.adding(record(failed(), attempt=2)).adding(record(failed(), attempt=3))
    assert before.records() == seen
    assert [each.attempt for each in after.records()] == [2, 3]
    assert (before.count, after.count) == (1, 3)


def test_what_fails_every_thread_counts_for_each_line_of_threads() -> None:
    """A topic that is missing fails all threads at once; each has a budget of its own, and its heirs go on
    with that."""
    missing = MissingSourceTopicException("gone", ("t",))
    records = [
        FailureRecord.of(Failure.of(f"t{line}", missing, line=line), NOON, Response.REPLACE_THREAD)
        for line in (1, 2, 3)
    ]
    again = Failure.of("t4", missing, line=2)
    plan = plan_retry(records, again, Budget(max_failures=2), NOON, lambda: 0.0)
    assert plan == Retry(2, 0.0, 2)
