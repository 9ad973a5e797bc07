"""Which thread gets what: everything once, evenly, and nothing moves without need."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from millstream.model import TaskId, TopicPartition
from millstream.runtime.state.assignment import Share, StorePart, share_out
from millstream.topology.nodes import Store


def part(subtopology: int, partition: int, store: str = "s") -> StorePart:
    return StorePart(
        TaskId(subtopology, partition), Store(store), TopicPartition(f"{store}-changelog", partition)
    )


TASKS = st.sets(st.tuples(st.integers(0, 3), st.integers(0, 7)), max_size=20)
"""Tasks as pairs."""


def work_of(runs: set[tuple[int, int]], stored: set[tuple[int, int]], stores: int = 1) -> Share:
    """These tasks run, and those have stores; some may do both."""
    return Share(
        tuple(sorted(TaskId(*task) for task in runs)),
        tuple(part(*task, store=f"s{number}") for task in stored for number in range(stores)),
    )


def check_whole(shares: dict[str, Share], work: Share) -> None:
    """Each task has one owner and stays whole, and loads differ by one at most."""
    assert sorted(task for share in shares.values() for task in share.runs) == sorted(work.runs)
    owned = [task for share in shares.values() for task in share.tasks]
    assert sorted(owned) == sorted(work.tasks)
    assert sum(len(share.parts) for share in shares.values()) == len(work.parts)
    loads = [len(share.tasks) for share in shares.values()]
    assert max(loads) - min(loads) <= 1


@settings(max_examples=examples(100), deadline=None)
@given(runs=TASKS, stored=TASKS, stores=st.integers(1, 3), threads=st.integers(1, 5))
def test_everything_is_given_once_and_evenly(
    runs: set[tuple[int, int]], stored: set[tuple[int, int]], stores: int, threads: int
) -> None:
    """This holds for any work and any threads."""
    work = work_of(runs, stored, stores)
    check_whole(share_out(work, [f"t{number}" for number in range(threads)]), work)


def test_the_order_in_which_parts_are_given_does_not_matter() -> None:
    """The same client always makes the same assignment."""
    parts = tuple(part(0, number) for number in range(5))
    assert share_out(Share((), parts), ["a", "b"]) == share_out(Share((), parts[::-1]), ["a", "b"])


def test_no_threads_get_nothing() -> None:
    """There is nobody to give it to."""
    assert share_out(work_of({(0, 0)}, {(0, 0)}), []) == {}


def test_tasks_go_round() -> None:
    """A task that runs is where its store is; a thread runs its partitions of each pipeline."""
    pairs = {(pipeline, number) for pipeline in (0, 1) for number in range(2)}
    shares = share_out(work_of(pairs, {(1, 0), (1, 1)}), ["a", "b"])
    assert shares["a"].runs == shares["a"].tasks == (TaskId(0, 0), TaskId(1, 0))
    assert shares["a"].pipelines == ("p0", "p1")
    assert shares["a"].partitions("p1") == {0}
    assert [each.task_id for each in shares["b"].parts] == [TaskId(1, 1)]


@settings(max_examples=examples(200), deadline=None)
@given(
    runs=TASKS,
    stored=TASKS,
    before=st.sets(st.integers(0, 5), min_size=1, max_size=5),
    after=st.sets(st.integers(0, 5), min_size=1, max_size=5),
)
def test_no_more_moves_than_balance_needs(
    runs: set[tuple[int, int]], stored: set[tuple[int, int]], before: set[int], after: set[int]
) -> None:
    """When threads come and go, one that stays gives something away only if it has too much, and takes
    something only if it has too little."""
    work = work_of(runs, stored)
    old = share_out(work, [f"t{number}" for number in sorted(before)])
    held = {name: frozenset(share.tasks) for name, share in old.items()}
    new = share_out(work, [f"t{number}" for number in sorted(after)], held)
    check_whole(new, work)
    for name in old.keys() & new.keys():
        lost, won = held[name] - {*new[name].tasks}, {*new[name].tasks} - held[name]
        assert not (lost and won), f"{name} gives {lost} and takes {won}"


def test_the_same_again_changes_nothing() -> None:
    """Sharing out is stable."""
    work = work_of({(0, number) for number in range(7)}, {(0, number) for number in range(3)})
    first = share_out(work, ["a", "b", "c"])
    held = {name: frozenset(share.tasks) for name, share in first.items()}
    assert share_out(work, ["a", "b", "c"], held) == first


def test_what_two_claim_one_gets() -> None:
    """An inheritance that somebody else has by now."""
    both = {"a": frozenset({TaskId(0, 0)}), "b": frozenset({TaskId(0, 0)})}
    shares = share_out(work_of({(0, 0)}, set()), ["a", "b"], both)
    assert [share.runs for share in shares.values()] == [(TaskId(0, 0),), ()]
