"""Where a batch ends if more is unread than it may read (BatchEnds.java, Backlog.java), without Spark and
without a broker."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from java_programs import KernelJava

pytestmark = pytest.mark.disk

NOW = 1_790_000_000_000
DAY = 86_400_000


class Batches:
    """The batches of one case: the ends of each, and how often times were looked up for it."""

    def __init__(self, partitions: Sequence[Sequence[int]], text: str) -> None:
        self.partitions = partitions
        rows = [[int(word) for word in line.split()] for line in text.splitlines()]
        self.ends = [row[:-1] for row in rows]
        self.looked = [row[-1] for row in rows]

    @property
    def sizes(self) -> list[int]:
        totals = [0, *map(sum, self.ends)]
        return [after - before for before, after in pairwise(totals)]

    def read(self, batch: int) -> list[tuple[int, int]]:
        """The time and the partition of each record that the batch reads, partition by partition."""
        before = self.ends[batch - 1] if batch else [0] * len(self.partitions)
        return [
            (time, number)
            for number, times in enumerate(self.partitions)
            for time in times[before[number] : self.ends[batch][number]]
        ]


def batches(
    kernel_java: KernelJava, cases: Sequence[tuple[int, Sequence[Sequence[int]]]], has_times: bool = True
) -> list[Batches]:
    asked = "".join(
        f"{limit} {str(has_times).lower()} {' '.join(','.join(map(str, times)) for times in partitions)}\n"
        for limit, partitions in cases
    )
    answers = kernel_java("io.millstream.kernel.source.BatchEndsMain", asked).split("\n\n")
    return [Batches(partitions, text) for (_, partitions), text in zip(cases, answers, strict=False)]


def stamps(rng: random.Random, count: int, start: int, length: int, skew: float) -> list[int]:
    """Times in order, of which more are near the start the larger `skew` is above 1; near the end, below
    1."""
    return sorted(start + int(rng.random() ** skew * length) for _ in range(count))


def test_batches_are_parts_of_the_order_in_which_kafka_streams_reads(kernel_java: KernelJava) -> None:
    """Whatever the limit and however unevenly records are spread: each batch ends at one time in all
    partitions, so none has a record that is older than one of the batch before. It reads three quarters of
    the limit or more, and no more than the limit. To find the time takes few questions."""
    rng = random.Random(5)
    cases = []
    for limit in (7, 60, 500):
        for skews in ((1, 1), (3, 0.3), (0.2, 5, 1)):
            start = NOW - rng.choice([20 * DAY, 900 * DAY, -3 * DAY])
            counts = [rng.choice([2_000, 150, 20]) for _ in skews]
            cases.append(
                (
                    limit,
                    [stamps(rng, n, start, 14 * DAY, skew) for n, skew in zip(counts, skews, strict=True)],
                )
            )
    for (limit, partitions), found in zip(cases, batches(kernel_java, cases), strict=True):
        assert sum(found.sizes) == sum(map(len, partitions))
        read = [found.read(number) for number in range(len(found.ends))]
        for before, after in pairwise(read):
            assert max(before) < min(after), f"limit {limit}: {max(before)} before {min(after)}"
        assert max(found.sizes) <= limit
        assert min(found.sizes[:-1], default=limit) >= 0.75 * limit
        if limit == 500:
            assert found.looked[0] < 60
            assert sum(found.looked[1:]) <= 8 * len(found.looked)


def test_batches_end_within_one_time_only_if_it_has_too_many_records(kernel_java: KernelJava) -> None:
    """Of these each partition gets its share, and each batch reads something, with a limit of 1 as well."""
    same, apart = [5] * 100, [*range(40), *[50] * 30]
    one, two, three = batches(
        kernel_java, [(10, [same, [5] * 50]), (20, [apart, [10, 60]]), (1, [[7, 7], [7], [8]])]
    )
    assert one.ends[:2] == [[6, 3], [12, 6]]
    assert two.ends[-1] == [70, 2]
    for before, after in pairwise(two.ends):
        assert apart[before[0] - 1] < apart[before[0]] or apart[before[0]] == 50, f"{before} to {after}"
    assert three.ends[-1] == [2, 1, 1]
    assert all(three.sizes)


def test_a_record_far_ahead_holds_up_only_its_partition(kernel_java: KernelJava) -> None:
    """Kafka Streams takes it when it is the oldest of the first records; so it waits for the other
    partitions, and what is behind it with it. Records that are a little out of order change nothing."""
    ahead = [0, 1, 10**12, *range(2, 100)]
    rng = random.Random(1)
    jitter = [max(0, at - rng.randrange(4)) for at in range(1_000)]
    far, near = batches(kernel_java, [(20, [ahead, list(range(200))]), (50, [jitter, list(range(1_000))])])
    assert [end[0] for end in far.ends[:10]] == [2] * 10
    assert far.ends[-1] == [101, 200]
    assert all(abs(first - second) <= 5 for first, second in near.ends)


def test_without_times_each_partition_ends_at_the_same_share(kernel_java: KernelJava) -> None:
    """An extractor computes them, so the brokers do not know them; a single partition needs none."""
    (shared,) = batches(kernel_java, [(100, [[0] * 900, [0] * 100, [0] * 2])], has_times=False)
    assert shared.ends[0] == [89, 9, 1]
    (single,) = batches(kernel_java, [(100, [list(range(250))])])
    assert (single.ends, single.looked) == ([[100], [200], [250]], [0, 0, 0])


def test_the_limit_grows_while_batches_take_seconds(kernel_java: KernelJava) -> None:
    """From the first one of a run, which ends soon, to the most; and goes back if they take long. A pause
    between batches is no reason. A limit that was given is neither."""
    asked = (
        "limits 50 500 0 1 1 1 1 1 9 19 21 30 1",
        "limits 50 500 10 11 19 21 39 41",
        "limits 70 70 0 1 30 1",
    )
    told = kernel_java("io.millstream.kernel.source.BatchEndsMain", "\n".join(asked)).splitlines()
    assert told == [
        "50 100 200 400 500 500 500 500 250 125 250",
        "50 100 200 200 200 100",
        "70 70 70 70",
    ]


def test_the_sources_of_a_query_share_one_limit_and_tell_of_the_first_batch(kernel_java: KernelJava) -> None:
    """Whoever is asked first plans for all, from where each goes on after a restart; what several read counts
    once. How many records were unread is told until the first batch has ended: one that is repeated comes
    before that, and there is none if nothing is there. Where the log is not as expected, nothing is read
    again."""
    assert kernel_java("io.millstream.kernel.source.BacklogMain").splitlines() == [
        "new: unfinished -1",
        '{"a":{"1":40,"0":60}} {"b":{"0":1}} unfinished 1010',
        '{"a":{"1":80,"0":120}} {"b":{"0":2}} unfinished null',
        '{"a":{"1":120,"0":180}} {"b":{"0":3}} unfinished null',
        "again: unfinished -1",
        '{"a":{"1":400,"0":399}} {"b":{"0":6}} unfinished 305',
        '{"a":{"1":400,"0":498}} {"b":{"0":7}} unfinished null',
        "repeating: unfinished -1",
        '{"a":{"1":400,"0":397}} {"b":{"0":3}} unfinished null',
        "another log: unfinished -1",
        '{"a":{"1":2,"0":302}} {"b":{"0":9}} unfinished 710',
        "read twice: unfinished -1",
        '{"a":{"1":40,"0":60}} {"a":{"1":40,"0":60}} unfinished 1000',
        "made anew: unfinished -1",
        '{"a":{"1":400,"0":600}} {"b":{"0":10}} unfinished 10',
        "nothing: unfinished -1",
        "null null unfinished null",
        "the new one is there: true",
        "forgotten: true",
    ]
