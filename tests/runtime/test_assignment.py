"""Which thread gets what: everything once, evenly, and nothing moves without need."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from millstream.model import TaskId, TopicPartition
from millstream.runtime.state.assignment import Share, StorePart, Thing, share_out
from millstream.topology.nodes import Store


def part(subtopology: int, partition: int, store: str = "s") -> StorePart:
    return StorePart(
        TaskId(subtopology, partition), Store(store), TopicPartition(f"{store}-changelog", partition)
    )


WORK = {
    "pipelines": st.integers(0, 6),
    "tasks": st.sets(st.tuples(st.integers(0, 3), st.integers(0, 7)), max_size=20),
}


def check_whole(shares: dict[str, Share], names: list[str], parts: list[StorePart]) -> None:
    """Each pipeline and task has one owner, a task stays whole, and loads differ by one at most."""
    assert sorted(name for share in shares.values() for name in share.pipelines) == names
    owned = [task for share in shares.values() for task in share.tasks]
    assert sorted(owned) == sorted({each.task_id for each in parts})
    assert sum(len(share.parts) for share in shares.values()) == len(parts)
    loads = [len(share.things) for share in shares.values()]
    assert max(loads) - min(loads) <= 1


@settings(max_examples=examples(100), deadline=None)
@given(**WORK, stores=st.integers(1, 3), threads=st.integers(1, 5))
def test_everything_is_given_once_and_evenly(
    pipelines: int, tasks: set[tuple[int, int]], stores: int, threads: int
) -> None:
    """This holds for any work and any threads."""
    names = [f"p{number}" for number in range(pipelines)]
    parts = [part(*task, store=f"s{number}") for task in tasks for number in range(stores)]
    check_whole(share_out(names, parts, [f"t{number}" for number in range(threads)]), names, parts)


def test_the_order_in_which_parts_are_given_does_not_matter() -> None:
    """The same client always makes the same assignment."""
    parts = [part(0, number) for number in range(5)]
    assert share_out(["p0"], parts, ["a", "b"]) == share_out(["p0"], parts[::-1], ["a", "b"])


def test_no_threads_get_nothing() -> None:
    """There is nobody to give it to."""
    assert share_out(["p0"], [part(0, 0)], []) == {}


def test_things_go_round_pipelines_first() -> None:
    """The thread with a pipeline gets its task last."""
    shares = share_out(["p0"], [part(0, number) for number in range(3)], ["a", "b"])
    assert shares["a"].pipelines == ("p0",)
    assert shares["a"].tasks == (TaskId(0, 1),)
    assert shares["b"].tasks == (TaskId(0, 0), TaskId(0, 2))


@settings(max_examples=examples(200), deadline=None)
@given(
    **WORK,
    before=st.sets(st.integers(0, 5), min_size=1, max_size=5),
    after=st.sets(st.integers(0, 5), min_size=1, max_size=5),
)
def test_no_more_moves_than_balance_needs(
    pipelines: int, tasks: set[tuple[int, int]], before: set[int], after: set[int]
) -> None:
    """When threads come and go, one that stays gives something away only if it has too much, and takes
    something only if it has too little."""
    names = [f"p{number}" for number in range(pipelines)]
    parts = [part(*task) for task in tasks]
    old = share_out(names, parts, [f"t{number}" for number in sorted(before)])
    held: dict[str, frozenset[Thing]] = {name: share.things for name, share in old.items()}
    new = share_out(names, parts, [f"t{number}" for number in sorted(after)], held)
    check_whole(new, names, parts)
    for name in old.keys() & new.keys():
        lost, won = held[name] - new[name].things, new[name].things - held[name]
        assert not (lost and won), f"{name} gives {lost} and takes {won}"


def test_the_same_again_changes_nothing() -> None:
    """Sharing out is stable."""
    parts = [part(0, number) for number in range(7)]
    first = share_out(["p0", "p1"], parts, ["a", "b", "c"])
    assert share_out(["p0", "p1"], parts, ["a", "b", "c"], {n: s.things for n, s in first.items()}) == first


def test_what_two_claim_one_gets() -> None:
    """An inheritance that somebody else has by now."""
    both = {"a": frozenset({"p0"}), "b": frozenset({"p0"})}
    shares = share_out(["p0"], [], ["a", "b"], both)  # type: ignore[arg-type]
    assert [share.pipelines for share in shares.values()] == [("p0",), ()]
