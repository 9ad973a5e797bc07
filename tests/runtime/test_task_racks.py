"""In which racks the partitions of tasks are, and that tasks go there (KIP-925)."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping

import pytest
from fake_ports import FakeTopics
from fake_world import FakeWorld
from scenes import SOON_S, Make, at_rest, running
from waiting import wait_until

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Consumed, Materialized
from millstream.errors import StreamsException
from millstream.model import TaskId
from millstream.ports import TopicDescription
from millstream.runtime.state.work_plan import WorkPlan, store_parts, tasks_of
from millstream.runtime.topics.task_racks import RackLookup, TaskTopics, racks_of, topics_of_tasks
from millstream.serdes.serdes import Serdes
from millstream.topology.internal_topics import plan_internal_topics

COUNTS = TaskTopics((TaskId(0, 0), TaskId(0, 1)), {0: ("lines",)}, {0: ("app-counts-changelog",)})


def in_racks(cluster: FakeTopics) -> None:
    """Partitions have one replica, in rack r0, r1, …; those of changelogs one rack further."""
    cluster.racks = lambda topic, partition: frozenset({f"r{partition + topic.endswith('changelog')}"})


# --- which partitions --------------------------------------------------------------------------------------


def test_a_task_reads_sources_and_repartition_topics_and_keeps_changelogs() -> None:
    """Those of its own partition; topics of a pattern, and a table's topic, which is its changelog too."""
    builder = StreamsBuilder()
    strings = Consumed.with_(Serdes.string(), Serdes.string())
    words = builder.stream(re.compile("lines-.*"), strings)
    words.group_by(lambda key, value: value).count(Materialized.as_("counts"))
    builder.table("users", strings, Materialized.as_("users"))
    topology = builder.build()
    sources = {name: TopicDescription(name, count) for name, count in (("lines-a", 2), ("users", 1))}
    internal = plan_internal_topics(
        topology, "app", {name: each.partitions for name, each in sources.items()}
    )
    plan = WorkPlan(sources, internal, tuple(store_parts(internal)), tasks_of(topology, internal.tasks))
    topics = topics_of_tasks(topology, "app", plan)
    by_kind = sorted((topics.read[number], topics.kept.get(number, ())) for number in topics.read)
    assert by_kind == [
        (("app-counts-repartition",), ("app-counts-changelog",)),
        (("lines-a",), ()),
        (("users",), ("users",)),
    ]
    assert topics.tasks == plan.tasks


def test_a_topic_with_fewer_partitions_counts_for_fewer_tasks() -> None:
    """And the one task of a user's query reads them all."""
    found = {
        "a": TopicDescription("a", 1, racks=(frozenset({"r0"}),)),
        "b": TopicDescription("b", 2, racks=(frozenset({"r0"}), frozenset({"r1"}))),
    }
    tasks = (TaskId(0, 0), TaskId(0, 1), TaskId(1, 0))
    racks = racks_of(TaskTopics(tasks, {0: ("a", "b"), 1: ("b",)}, {}, frozenset({1})), found)
    assert racks.read == {
        tasks[0]: (frozenset({"r0"}), frozenset({"r0"})),
        tasks[1]: (frozenset({"r1"}),),
        tasks[2]: (frozenset({"r0"}), frozenset({"r1"})),
    }


# --- looking up --------------------------------------------------------------------------------------------


class Cluster:
    """Answers, and counts how often it was asked."""

    def __init__(self, **topics: int) -> None:
        self.topics = FakeTopics({name.replace("_", "-"): count for name, count in topics.items()})
        self.asked = 0
        self.gate = threading.Event()
        self.gate.set()

    def look(self, names: Iterable[str]) -> Mapping[str, TopicDescription]:
        self.asked += 1
        assert self.gate.wait(SOON_S)
        return self.topics.look(names)


def lookup(cluster: Cluster, now: list[float], patience_s: float = SOON_S) -> RackLookup:
    return RackLookup(
        cluster.look, patience_s=patience_s, keeps_s=60, thread_name="test-RackLookup", clock=lambda: now[0]
    )


def test_an_answer_is_good_for_a_while() -> None:
    """As long as the metadata of Kafka's own clients: successive rounds of a group decide alike."""
    cluster, now = Cluster(lines=2, app_counts_changelog=2), [0.0]
    in_racks(cluster.topics)
    racks = lookup(cluster, now)
    found = racks.racks(COUNTS)
    assert found.read[TaskId(0, 1)] == (frozenset({"r1"}),)
    assert found.kept[TaskId(0, 1)] == (frozenset({"r2"}),)
    assert racks.racks(COUNTS) == found
    assert cluster.asked == 1
    now[0] = 60.0
    assert racks.racks(COUNTS) == found
    assert cluster.asked == 2


def test_it_says_why_racks_are_not_known() -> None:
    """A broker without a rack, a topic that is gone, a cluster that is away."""
    cluster, now = Cluster(lines=2, app_counts_changelog=2), [0.0]
    with pytest.raises(
        StreamsException, match=r"have topics 'app-counts-changelog', 'lines' have no broker.rack"
    ):
        lookup(cluster, now).racks(COUNTS)
    in_racks(cluster.topics)
    cluster.topics.remove("lines")
    with pytest.raises(StreamsException, match="topics 'lines' are is not known"):
        lookup(cluster, now).racks(COUNTS)
    cluster.topics.away = True
    with pytest.raises(StreamsException):
        lookup(cluster, now).racks(COUNTS)


def test_the_group_does_not_wait_for_a_slow_cluster() -> None:
    """The answer that comes later serves the next round."""
    cluster = Cluster(lines=2, app_counts_changelog=2)
    in_racks(cluster.topics)
    cluster.gate.clear()
    racks = lookup(cluster, [0.0], patience_s=0.001)
    for _ in range(2):
        with pytest.raises(StreamsException, match=r"has not said in 0\.001 s"):
            racks.racks(COUNTS)
    cluster.gate.set()
    wait_until(lambda: not racks._asking.is_alive(), "it has answered", SOON_S)  # type: ignore[union-attr]
    assert racks.racks(COUNTS).read
    assert cluster.asked == 1


# --- in a group --------------------------------------------------------------------------------------------


def test_clients_get_the_tasks_whose_partitions_are_in_their_rack(member: Make, world: FakeWorld) -> None:
    """Racks of clients and brokers reach the leader's decision; which of the tasks that is, they decide."""
    in_racks(world.topics)
    options = {"rack__aware__assignment__strategy": "min_traffic", "num__stream__threads": 1}
    clients = [member(name, client__rack=rack, **options) for name, rack in (("A", "r2"), ("B", "r0"))]
    running(clients[0])
    running(clients[1])
    at_rest(world, *clients)
    wait_until(lambda: world.shares("p0").get("B", set()) >= {0}, "B has what is in its rack", SOON_S)
    at_rest(world, *clients)
    assert 2 in world.shares("p0")["A"]
    assert world.overlaps == []


def test_without_racks_of_brokers_a_group_shares_its_tasks(
    member: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader says once why racks do not count."""
    options = {"rack__aware__assignment__strategy": "min_traffic"}
    clients = [member(name, client__rack=rack, **options) for name, rack in (("A", "r2"), ("B", "r0"))]
    for client in clients:
        running(client)
    at_rest(world, *clients)
    wait_until(lambda: sorted(world.shares("p0")) == ["A", "B"], "both have some", SOON_S)
    assert caplog.text.count("Tasks are assigned without regard to racks: brokers that have topics") == 1
