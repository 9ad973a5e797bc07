"""Reading one's own writes: how far a store has to be, and asking it until it is there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

import pytest
from fake_ports import ManualClock
from fake_world import FakeWorld
from scenes import SOON, SOON_S, Make, at_rest, put_into, running, with_global_table, word_count
from waiting import wait_until

from millstream.clock import SystemClock
from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.join_options import TableJoined
from millstream.dsl.options import Consumed, Materialized, Repartitioned
from millstream.errors import (
    StateStoreNotAvailableException,
    StreamsException,
    StreamsNotStartedException,
    TimeoutException,
    UnknownStateStoreException,
)
from millstream.model import PipelineMetadata, ThreadMetadata, TopicPartition
from millstream.query.position import Position, PositionBound
from millstream.query.request import KeyQuery, StateQueryRequest
from millstream.query.result import FailureReason
from millstream.runtime.own_writes import bound_after, bound_at_ends
from millstream.runtime.queries import _Progress
from millstream.serdes.serdes import Serdes
from millstream.states import State
from millstream.topology.topology import Topology
from millstream.topology.windows import JoinWindows

LINES = TopicPartition("lines", 1)
CHANGELOG = "app-counts-changelog"
LINES_SERDES = Consumed.with_(Serdes.string(), Serdes.string())


class Scripted:
    """A running client, by the book: each look is the next page; the last one stays."""

    def __init__(self, *pages: Mapping[str, Mapping[TopicPartition, int]], **ends: Mapping[int, int]) -> None:
        self.pages = list(pages)
        self.all_ends = ends
        self.asked: list[str] = []

    def finished(self, pipeline: str, needed: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        assert needed
        return self.pages[0].get(pipeline, {})

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, int]:
        self.asked += (wanted := list(topics))
        return {
            TopicPartition(topic, number): end
            for topic in wanted
            for number, end in self.all_ends[topic.replace("-", "_")].items()
        }

    def wait_until(self, fits: Callable[[], bool]) -> bool:
        while not fits():
            if len(self.pages) == 1:
                return False
            del self.pages[0]
        return True


def chain() -> Topology:
    """`lines` through a repartition topic into `counts`, and from its changes into `sums`."""
    builder = StreamsBuilder()
    stream = builder.stream("lines", Consumed.with_(Serdes.string(), Serdes.string()))
    counts = stream.repartition().group_by_key().count(Materialized.as_("counts"))
    builder.stream("others", Consumed.with_(Serdes.string(), Serdes.string())).group_by_key().count(
        Materialized.as_("elsewhere")
    )
    counts.to_stream().to("out")
    return builder.build()


def test_the_bound_follows_the_records_through_the_pipelines() -> None:
    """Each has to be done with what the one before has written; then the changelog's ends are the bound."""
    topology = chain()
    first, second = (
        next(each.name for each in topology.pipelines if fits(each))
        for fits in (
            lambda each: each.outputs and not each.stores,
            lambda each: any(s.name == "counts" for s in each.stores),
        )
    )
    (between,) = (node for each in topology.pipelines if each.name == first for node in each.outputs)
    topic = f"app-{between.topic}"  # type: ignore[union-attr]
    inner = TopicPartition(topic, 0)
    progress = Scripted(
        {},
        {first: {LINES: 7}},
        {first: {LINES: 8}},
        {first: {LINES: 8}, second: {inner: 40}},
        {first: {LINES: 8}, second: {inner: 41}},
        {},
    )
    progress.all_ends = {topic.replace("-", "_"): {0: 41, 1: 0}, "app_counts_changelog": {0: 5, 1: 0, 2: 9}}
    bound = bound_after(topology.stores["counts"], {LINES: 7}, topology, "app", progress)
    assert bound == PositionBound.at(Position.from_map({CHANGELOG: {0: 4, 2: 8}}))
    assert progress.asked == [topic, CHANGELOG]
    assert len(progress.pages) == 2, "it looked no longer than it had to"


def test_a_join_by_a_foreign_key_is_followed_there_and_back() -> None:
    """The left side tells the right one, which answers: only what became of the answer is in the store."""
    builder = StreamsBuilder()
    users, orders = (builder.table(topic, LINES_SERDES) for topic in ("users", "orders"))
    orders.join(
        users, lambda user: user, lambda order, user: user, TableJoined.as_("j"), Materialized.as_("s")
    )
    topology = builder.build()
    right, left = (each.name for each in topology.pipelines)
    written = TopicPartition("orders", 0)
    told, answer = (
        TopicPartition(f"app-j-subscription-{topic}-topic", 0) for topic in ("registration", "response")
    )
    done = {left: {written: 1}}
    progress = Scripted(
        {},
        done,
        {**done, right: {told: 5}},
        {left: {written: 1, answer: 6}, right: {told: 5}},
        {left: {written: 1, answer: 7}, right: {told: 5}},
        {},
    )
    progress.all_ends = {each.topic.replace("-", "_"): {0: end} for each, end in ((told, 5), (answer, 7))}
    progress.all_ends["app_s_changelog"] = {0: 3}
    bound = bound_after(topology.stores["s"], {written: 0}, topology, "app", progress)
    assert bound == PositionBound.at(Position.from_map({"app-s-changelog": {0: 2}}))
    assert len(progress.pages) == 2, "it waited for the answer, and for nothing else"


def test_a_pipeline_that_reads_a_topic_of_its_own_is_followed_through_it() -> None:
    """The store only has the results of that topic's records."""
    builder = StreamsBuilder()
    lines, others = (builder.stream(topic, LINES_SERDES) for topic in ("lines", "others"))
    near = JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=5))
    lines.join(others, lambda line, other: line, near)
    again = lines.select_key(lambda line: line).repartition(Repartitioned.as_("again"))
    again.join(others, lambda line, other: line, near)
    again.group_by_key().count(Materialized.as_("counts"))
    topology = builder.build()
    (name,) = (each.name for each in topology.pipelines)
    own = TopicPartition("app-again-repartition", 0)
    progress = Scripted({}, {name: {LINES: 8}}, {name: {LINES: 8, own: 4}}, {name: {LINES: 8, own: 5}}, {})
    progress.all_ends = {"app_again_repartition": {0: 5}, "app_counts_changelog": {0: 3}}
    bound = bound_after(topology.stores["counts"], {LINES: 7}, topology, "app", progress)
    assert bound == PositionBound.at(Position.from_map({CHANGELOG: {0: 2}}))
    assert len(progress.pages) == 2, "it waited for its own records, and for nothing else"


def test_a_pipeline_that_is_not_done_in_time_is_told() -> None:
    """The error says how far it is."""
    topology = word_count()
    store = topology.stores["counts"]
    with pytest.raises(TimeoutException, match=r"pipeline 'p0' .* it has finished lines-1 up to 7"):
        bound_after(store, {LINES: 7}, topology, "app", Scripted({"p0": {LINES: 7}}))
    with pytest.raises(
        TimeoutException, match=r"it has finished lines-1 up to 0\. Allow more time; other cl"
    ):
        bound_after(store, {LINES: 7}, topology, "app", Scripted({}))


def test_a_topic_that_does_not_get_into_the_store_is_a_mistake() -> None:
    """It would be waited for in vain, or not at all."""
    topology = chain()
    for written in ({TopicPartition("others", 0): 1}, {TopicPartition("nobodys", 0): 1}, {}):
        progress = Scripted({"p0": written, "p1": written, "p2": dict.fromkeys(written, 99)})
        progress.all_ends = {}
        with pytest.raises(ValueError, match="store 'counts' is not built from"):
            bound_after(topology.stores["counts"], written, topology, "app", progress)


def test_the_records_of_a_tables_own_topic_are_the_bound_themselves() -> None:
    """The topic is the changelog: exact, and without waiting."""
    builder = StreamsBuilder()
    builder.table("users", Consumed.with_(Serdes.string(), Serdes.string()), Materialized.as_("users"))
    topology = builder.build()
    at = TopicPartition("users", 2)
    bound = bound_after(topology.stores["users"], {at: 17}, topology, "app", Scripted({"p0": {at: 18}}))
    assert bound.position.partition_positions("users") == {2: 17}


def test_the_bound_of_now_is_the_end_of_the_changelog() -> None:
    """Each partition with a record has a bound."""
    store = word_count().stores["counts"]
    progress = Scripted({}, app_counts_changelog={0: 3, 1: 0})
    bound = bound_at_ends(store, "app", progress)
    assert bound.position == Position.from_map({CHANGELOG: {0: 2}})


# --- with a client ---------------------------------------------------------------------------------------


def request(key: str, bound: PositionBound) -> StateQueryRequest[int]:
    query = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key(key))
    return query.with_position_bound(bound)


def test_a_client_reads_what_was_written(make: Make, world: FakeWorld) -> None:
    """The path goes from a source offset over Spark's progress and the changelog's end to the count."""
    client = make(word_count())
    client.start()
    client.wait_until_running(SOON)
    found: list[PositionBound] = []

    def ask() -> None:
        found.append(client.position_bound_after("counts", {LINES: 4}, SOON))

    asking = threading.Thread(target=ask, name="asking", daemon=True)
    asking.start()
    world.log.append(TopicPartition(CHANGELOG, 2), (b"a", (11).to_bytes(8, "big"), 1))
    assert not found, "the pipeline is not done with the record"
    world.engine.progress("p0", {LINES: 5})
    asking.join(SOON_S)
    assert found == [PositionBound.at(Position().with_component(CHANGELOG, 2, 0))]
    assert client.position_bound_now("counts") == found[0]
    result = client.query(request("a", found[0]), wait=SOON)
    assert {number: each.failure for number, each in result.partition_results.items()} == dict.fromkeys(
        range(3)
    )
    assert result.partition_results[2].result == 11
    assert result.position.partition_positions(CHANGELOG)[2] == 0


def test_a_client_reads_what_another_one_has_processed(member: Make, world: FakeWorld) -> None:
    """It knows that from what the other one has committed."""
    first, second = member("A"), member("B")
    running(first, second)
    at_rest(world, first, second)
    for client in (first, second):
        elsewhere = min({0, 1, 2} - world.shares("p0")[client.client_id])
        written = TopicPartition("lines", elsewhere)
        with pytest.raises(TimeoutException, match=f"'p0' .* it has finished lines-{elsewhere} up to 0"):
            client.position_bound_after("counts", {written: 4}, timedelta(milliseconds=20))
        world.topics.commits["app"] = {written: 5}
        world.log.append(TopicPartition(CHANGELOG, elsewhere), (b"a", (11).to_bytes(8, "big"), 1))
        bound = client.position_bound_after("counts", {written: 4}, SOON)
        assert bound.position.partition_positions(CHANGELOG)[elsewhere] == 0


def test_a_query_waits_for_its_bound_and_no_longer(make: Make, world: FakeWorld) -> None:
    """It waits until the store has reached it; at the deadline it returns what there is."""
    client = make(word_count())
    client.start()
    client.wait_until_running(SOON)
    bound = PositionBound.at(Position().with_component(CHANGELOG, 0, 1))
    late = client.query(request("a", bound), wait=timedelta(milliseconds=30))
    assert late.partition_results[0].failure_reason is FailureReason.NOT_UP_TO_BOUND
    assert late.partition_results[1].is_success
    results = []
    asking = threading.Thread(
        target=lambda: results.append(client.query(request("a", bound), wait=SOON)),
        name="asking",
        daemon=True,
    )
    asking.start()
    world.log.append(TopicPartition(CHANGELOG, 0), *[(b"b", bytes(8), 1)] * 2)
    asking.join(SOON_S)
    assert [each.is_success for each in results[0].partition_results.values()] == [True] * 3


def test_a_query_waits_for_partitions_that_are_on_their_way(make: Make, world: FakeWorld) -> None:
    """While the client rebalances they are NOT_ACTIVE; once it runs they answer."""
    client = make(word_count())
    put_into(State.REBALANCING, client, world)
    active = request("a", PositionBound.unbounded()).require_active()
    now = client.query(active)
    assert {each.failure for each in now.partition_results.values()} == {FailureReason.NOT_ACTIVE}
    results = []
    asking = threading.Thread(
        target=lambda: results.append(client.query(active, wait=SOON)),
        name="asking",
        daemon=True,
    )
    asking.start()
    world.gate.set()
    asking.join(SOON_S)
    assert {each.failure for each in results[0].partition_results.values()} == {None}


def test_a_global_store_answers_in_a_client(make: Make, world: FakeWorld) -> None:
    """It has one result over all its partitions, and its topic's offsets are its position."""
    world.topics.add("users", 2)
    world.log.append(TopicPartition("users", 1), (b"eva", b"Eva", 1))
    client = make(with_global_table())
    client.start()
    query = StateQueryRequest.in_store("users").with_query(KeyQuery.with_key("eva"))
    result = client.query(query, wait=SOON)
    assert result.partition_results == {}
    assert result.global_result is not None
    assert result.global_result.result == "Eva"
    assert result.position == Position().with_component("users", 1, 0)
    client.wait_until_running(SOON)
    assert client.sql("select value from users").to_pylist() == [{"value": "Eva"}]


def test_a_global_store_is_whole_while_stream_threads_start(make: Make, world: FakeWorld) -> None:
    """All of its partitions are here, and none is on its way."""
    world.topics.add("users", 2)
    world.log.append(TopicPartition("users", 1), (b"eva", b"Eva", 1))
    world.gate.clear()
    client = make(with_global_table())
    client.start()
    assert client.sql("select value from users").to_pylist() == [{"value": "Eva"}]
    assert client.state is State.REBALANCING
    world.gate.set()


def test_sql_over_the_stores_of_a_client(make: Make, world: FakeWorld) -> None:
    """Several partitions are one table."""
    client = make(word_count())
    client.start()
    client.wait_until_running(SOON)
    for number, word in enumerate("abc"):
        at = TopicPartition(CHANGELOG, number)
        world.log.append(at, (word.encode(), number.to_bytes(8, "big"), 1))

    def rows() -> list[dict[str, object]]:
        return client.sql("select key, value from counts where value >= ? order by 1 desc", [1]).to_pylist()

    wait_until(lambda: len(rows()) == 2, "the stores have it", SOON_S)
    assert rows() == [{"key": "c", "value": 2}, {"key": "b", "value": 1}]
    with pytest.raises(ValueError, match="negative"):
        client.sql("select 1", timeout=timedelta(seconds=-1))


def test_who_waits_for_records_is_told_that_the_client_closes(make: Make) -> None:
    """The wait ends immediately, not at the deadline, as if the pipeline were only slow."""
    client = make(word_count())
    client.start()
    client.wait_until_running(SOON)
    looked = threading.Event()
    raised: list[BaseException] = []
    metadata = client._crew.metadata

    def look() -> object:
        looked.set()
        return metadata()

    client._crew.metadata = look  # type: ignore[method-assign, assignment]

    def ask() -> None:
        try:
            client.position_bound_after("counts", {LINES: 4}, timedelta(hours=1))
        except BaseException as error:
            raised.append(error)

    asking = threading.Thread(target=ask, name="asking", daemon=True)
    asking.start()
    assert looked.wait(SOON_S)
    assert client.close(SOON)
    asking.join(SOON_S)
    assert [type(error) for error in raised] == [StateStoreNotAvailableException]


@pytest.mark.parametrize("state", [State.CREATED, State.NOT_RUNNING, State.ERROR])
def test_a_client_that_does_not_run_has_no_answers(make: Make, world: FakeWorld, state: State) -> None:
    """The same leaves from each method; what is unknown stays so in any state."""
    client = make(word_count())
    put_into(state, client, world)
    wanted = StreamsNotStartedException if state is State.CREATED else StateStoreNotAvailableException
    calls: list[Callable[[str], object]] = [
        lambda store: client.query(StateQueryRequest.in_store(store).with_query(KeyQuery.with_key("a"))),
        lambda store: client.position_bound_now(store),
        lambda store: client.position_bound_after(store, {LINES: 1}),
    ]
    for call in calls:
        with pytest.raises(wanted):
            call("counts")
        with pytest.raises(UnknownStateStoreException):
            call("count")
    with pytest.raises(wanted):
        client.sql("from counts")


class Sharing:
    """A client that runs two of four partitions, each on a thread of its own; and the rest of it."""

    def __init__(self) -> None:
        self.config = self
        self.application_id = "app"
        self.topics = self
        self.asked: list[list[TopicPartition]] = []
        self.commits: dict[TopicPartition, int] = {}
        self.away = False
        self.told: list[str] = []

    def metadata(self) -> tuple[ThreadMetadata, ...]:
        return tuple(
            ThreadMetadata(
                str(number),
                "RUNNING",
                pipelines=(
                    PipelineMetadata("p0", running=True, position={TopicPartition("lines", number): 5}),
                ),
            )
            for number in range(2)
        )

    def finish(self, pipeline: str) -> None:
        self.told.append(pipeline)

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        assert group == "app"
        self.asked.append(wanted := list(partitions))
        if self.away:
            raise StreamsException("nobody answers")
        return {at: self.commits[at] for at in wanted if at in self.commits}


def test_what_a_pipeline_has_finished_is_that_of_all_its_tasks() -> None:
    """Of those here as they say, and of others as they have committed; asked for now and then, and only if
    they matter."""
    every = [TopicPartition("lines", number) for number in range(4)]
    client, clock = Sharing(), ManualClock()
    progress = _Progress(client, client, clock, 1.0, lambda: None)  # type: ignore[arg-type]
    assert progress.finished("p0", dict.fromkeys(every[:2], 6)) == dict.fromkeys(every[:2], 5)
    assert client.asked == []
    client.commits = {every[3]: 7}
    for _ in range(3):
        found = progress.finished("p0", dict.fromkeys(every, 6))
        assert [found[at] for at in every] == [5, 5, 0, 7]
    assert client.asked == [every[2:]]
    client.commits = {every[2]: 9, every[3]: 8}
    clock.advance(1)
    found = progress.finished("p0", dict.fromkeys(every, 6))
    assert [found[at] for at in every] == [5, 5, 9, 8]
    assert client.told == []


def test_commits_that_a_client_cannot_ask_for_since_it_ends_are_no_failure_of_the_cluster() -> None:
    """That it ends is the reason; else the cluster is."""
    client, clock = Sharing(), ManualClock()
    client.away = True
    ended: list[BaseException] = []

    def raise_if_ended() -> None:
        if ended:
            raise ended[0]

    progress = _Progress(client, client, clock, 1.0, raise_if_ended)  # type: ignore[arg-type]
    with pytest.raises(StreamsException, match="nobody answers"):
        progress.finished("p0", {TopicPartition("lines", 2): 1})
    ended.append(StateStoreNotAvailableException("it closes"))
    with pytest.raises(StateStoreNotAvailableException, match="it closes"):
        progress.finished("p0", {TopicPartition("lines", 2): 1})


class Batching:
    """A crew whose pipeline has read five records and finished three, until it is told to finish."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def metadata(self) -> tuple[ThreadMetadata, ...]:
        finished = {LINES: 5 if self.told else 3}
        pipeline = PipelineMetadata("p0", running=True, position={LINES: 5}, finished=finished)
        return (ThreadMetadata("one", "RUNNING", pipelines=(pipeline,)),)

    def finish(self, pipeline: str) -> None:
        self.told.append(pipeline)


def test_a_batch_is_ended_when_it_has_read_what_is_waited_for_and_not_before() -> None:
    """In Real-Time Mode, where that can be a minute away."""
    crew = Batching()
    progress = _Progress(None, crew, SystemClock(), 1.0, lambda: None)  # type: ignore[arg-type]
    assert progress.finished("p0", {LINES: 3}) == {LINES: 3}
    assert progress.finished("p0", {LINES: 6}) == {LINES: 3}
    assert crew.told == []
    assert progress.finished("p0", {LINES: 5}) == {LINES: 3}
    assert crew.told == ["p0"]
    assert progress.finished("p0", {LINES: 5}) == {LINES: 5}
    assert crew.told == ["p0"]
