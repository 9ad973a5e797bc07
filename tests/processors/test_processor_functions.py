"""`@processor`: functions as processors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from processors.homes import MemoryHome, fed, plan_of, task_of

from millstream import Record, Serdes, Stores, StreamsBuilder, processor
from millstream.errors import TopologyException

COUNTS = Stores.key_value_store_builder(
    Stores.persistent_key_value_store("counts"), Serdes.string(), Serdes.long()
)


@processor(store=COUNTS)
def count(record: Any, totals: Any) -> Iterator[Any]:
    """Counts."""
    total = (totals.get(record.key) or 0) + 1
    totals.put(record.key, total)
    yield record.with_value(total)


@processor
def by_names(record: Any, counts: Any, context: Any) -> Iterator[Any]:
    counts.put(record.key, context.current_stream_time_ms())
    yield "other", record.with_value(counts.get(record.key))


def left(home: MemoryHome) -> list[tuple[int, Any, int]]:
    return [(to, record.key, int.from_bytes(record.value, "big")) for to, record in home.left]


@pytest.mark.parametrize("operation", ["process", "process_values"])
def test_a_function_yields_what_goes_on(operation: str) -> None:
    """The same one for both; its store is its second parameter, whatever that is called."""
    builder = StreamsBuilder()
    getattr(builder.stream("in"), operation)(count, value_serde=Serdes.long()).to("out")
    home = MemoryHome()
    fed(task_of(plan_of(builder.build()), home), [("a", "x", 1), ("a", "x", 2), ("b", "x", 3)])
    assert left(home) == [(0, b"a", 1), (0, b"a", 2), (0, b"b", 1)]


def test_stores_are_found_by_the_names_of_parameters_and_children_by_name() -> None:
    """A parameter called `context` is given that."""
    builder = StreamsBuilder().add_state_store(COUNTS)
    stream = builder.stream("in").process(by_names, value_serde=Serdes.long())
    stream.to("out")
    stream.to("more", named="other")
    home = MemoryHome()
    fed(task_of(plan_of(builder.build()), home), [("a", "x", 5), ("b", "x", 4)])
    assert left(home) == [(1, b"a", 5), (1, b"b", 5)]


def test_a_function_may_return_instead() -> None:
    """One record, several, a pair, or nothing."""
    answers = iter(
        (
            None,
            Record("a", "1", 1),
            [Record("b", "2", 2), ("sink", Record("c", "3", 3))],
            ("sink", Record("d", "4", 4)),
        )
    )

    @processor
    def told(record: Any) -> Any:
        return next(answers)

    builder = StreamsBuilder()
    builder.stream("in").process(told).to("out", named="sink")
    home = MemoryHome()
    fed(task_of(plan_of(builder.build()), home), [("k", "x", time) for time in range(4)])
    assert [(record.key, record.timestamp) for _, record in home.left] == [
        (b"a", 1),
        (b"b", 2),
        (b"c", 3),
        (b"d", 4),
    ]


def test_what_is_yielded_has_been_processed_when_the_function_goes_on() -> None:
    """Depth first, as `forward`."""
    order: list[str] = []

    @processor
    def first(record: Any) -> Iterator[Any]:
        order.append("before")
        yield record
        order.append("after")

    @processor
    def second(record: Any) -> None:
        order.append("inside")

    builder = StreamsBuilder()
    builder.stream("in").process(first).process(second)
    fed(task_of(plan_of(builder.build()), MemoryHome()), [("a", "x", 1)])
    assert order == ["before", "inside", "after"]


def test_it_is_still_the_function() -> None:
    """A test can call it with a dictionary in place of a store."""
    assert count.__name__ == "count"
    assert count.__doc__ == "Counts."
    assert repr(count).startswith("@processor test_processor_functions.py:")

    class Totals(dict[str, int]):
        put = dict.__setitem__

    totals = Totals()
    assert [record.value for record in count(Record("a", "x", 1), totals)] == [1]
    assert totals == {"a": 1}


@pytest.mark.parametrize(
    ("told", "made"),
    [
        (
            r"has 1 parameters for stores \(one\) but 2 stores \(counts, more\)",
            lambda: processor(stores=[COUNTS, "more"])(lambda record, one: None),
        ),
        ("takes no record; write `def <lambda>", lambda: processor(lambda: None)),
        ("@processor takes store builders, .*or names of stores; got 5", lambda: processor(store=5)),
        ("@processor decorates a function", lambda: processor("counts")),
    ],
)
def test_a_function_that_does_not_go_with_its_stores_is_refused(
    told: str, made: Callable[[], object]
) -> None:
    """The error is raised where it is defined."""
    with pytest.raises(TopologyException, match=told):
        made()


@pytest.mark.parametrize("given", [5, [5], [("child", "x", 1)]])
def test_what_is_no_record_is_refused(given: Any) -> None:
    """The error names the record for which it is yielded."""

    @processor
    def wrong(record: Any) -> Any:
        return given

    builder = StreamsBuilder()
    builder.stream("in").process(wrong).to("out")
    with pytest.raises(TypeError, match=r"wrong produced .*; it must yield, or return, records"):
        fed(task_of(plan_of(builder.build()), MemoryHome()), [("a", "x", 1)])


def test_a_generator_without_the_decorator_is_told_of_it() -> None:
    """The commonest slip."""

    def plain(record: Any = None) -> Iterator[Any]:
        yield record

    with pytest.raises(TopologyException, match=r"the generator function .*put @processor above it"):
        StreamsBuilder().stream("in").process(plain)
