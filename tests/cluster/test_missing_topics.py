"""Source topics that are missing, deleted, or made anew (KIP-662), as several client processes see it.

The model is Kafka's HandlingSourceTopicDeletionIntegrationTest. A client whose topics are missing at its
start never starts Spark, so most of these are quick.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from cluster_world import ON_SPARK, WITHOUT_SPARK, ClientProcess, Cluster
from waiting import wait_until

pytestmark = pytest.mark.cluster

TWO = {"num.stream.threads": 2}


def _handled_on_every_thread(client: ClientProcess, threads: int = 2) -> list[dict[str, Any]]:
    def calls() -> list[dict[str, Any]]:
        found = [call for call in client.handled() if call["error"] == "MissingSourceTopicException"]
        return found if len({call["thread"] for call in found}) >= threads else []

    return wait_until(calls, client.told(f"{client.name}'s handler is called on {threads} threads"), 30)


@ON_SPARK
def test_missing_before_start_reaches_the_handler_on_every_thread_of_every_client(cluster: Cluster) -> None:
    """And asking for a topic does not make it."""
    missing = cluster.name("nowhere")
    spec = {"source": [cluster.topic("in"), missing], "handler": "patient"}
    cluster.start("a", TWO, fresh=True, **spec)
    cluster.start("b", TWO, fresh=True, **spec)
    cluster.start("c", TWO, fresh=True, **{**spec, "handler": "SHUTDOWN_CLIENT"})
    for client in cluster.clients:
        # Once one thread has said that the client shall end, the other one need not be asked.
        calls = _handled_on_every_thread(client, 1 if client.name == "c" else 2)
        assert all(call["topics"] == [missing] for call in calls)
        assert all(missing in call["text"] for call in calls)
        assert not client.has_jvm()
    client = cluster.clients[-1]
    client.reached("ERROR")
    assert client.states() == ["REBALANCING", "PENDING_ERROR", "ERROR"]
    assert missing not in cluster.kafka.topics()
    for client in cluster.clients:
        client.end()


@WITHOUT_SPARK
def test_a_thread_that_is_replaced_goes_on_when_the_topic_has_been_created(cluster: Cluster) -> None:
    """REPLACE_THREAD with a topic missing at the start: it looks again and again, and creates nothing."""
    source = cluster.name("late")
    cluster.start("a", TWO, source=source, handler="patient")
    client = cluster.clients[0]
    _handled_on_every_thread(client)
    wait_until(lambda: len(client.handled()) > 4, client.told("it tries again and again"), 30)
    assert client.ask("health")["status"] in ("waiting", "missing", "rebalancing")
    assert source not in cluster.kafka.topics()
    cluster.kafka.create_topic(source, 2)
    created = time.time()
    print(f"\ntopic created; RUNNING {client.reached('RUNNING', after=created) - created:.1f} s later")
    cluster.produce(source, ["x", "y"] * 10)
    cluster.wait_until_counted()
    client.end()


@ON_SPARK
def test_deleted_while_running_ends_every_client_and_names_the_topic(cluster: Cluster) -> None:
    """One of two topics; then nobody has asked for it so that it came back."""
    kept, deleted = cluster.topic("kept"), cluster.topic("deleted")
    spec = {"source": [kept, deleted], "handler": "SHUTDOWN_CLIENT"}
    cluster.start("a", TWO, **spec)
    cluster.start("b", TWO, **spec)
    cluster.wait_until_running()
    cluster.produce(kept, ["x"] * 10)
    cluster.produce(deleted, ["y"] * 10)
    cluster.wait_until_counted()
    asked_at = time.time()
    cluster.kafka.delete_topic(deleted)
    for client in cluster.clients:
        calls = _handled_on_every_thread(client, 1)
        assert all(call["topics"] == [deleted] for call in calls), calls
        assert any("deleted" in call["text"] for call in calls)
        assert len(calls) <= 2, "each thread is told once"
        print(
            f"\n{client.name}: handler {min(call['at'] for call in calls) - asked_at:.2f} s after the order"
        )
        assert min(call["at"] for call in calls) - asked_at < 5
        client.reached("ERROR")
        client.end()
    assert deleted not in cluster.kafka.topics()


@WITHOUT_SPARK
def test_what_is_written_is_watched_as_what_is_read(cluster: Cluster) -> None:
    """An output that is deleted is told at once, by its name, and nothing says that all is well; a client
    that tries again goes on exactly when the topic is back. A changelog that is deleted and at once made anew
    is told as well, and ends the client.
    """
    source, output = cluster.topic("in"), cluster.topic("out")
    client = cluster.start("a", source=source, output=output, handler="patient")
    cluster.wait_until_running()
    cluster.produce(source, ["x"] * 10)
    cluster.wait_until_counted()
    ordered = time.time()
    cluster.kafka.delete_topic(output)
    (first, *_) = wait_until(client.handled, client.told("the handler is asked"), 30)
    print(f"\nhandler {first['at'] - ordered:.2f} s after the order")
    assert (first["error"], first["topics"]) == ("LostTopicException", [output])
    assert f"output topic '{output}' was deleted while the client was running" in first["text"]
    assert first["at"] - ordered < 2, "half a second, and a busy machine"
    health = client.ask("health")
    assert not (health["status"] == "running" and health["ready"]), health
    cluster.produce(source, ["x", "y"] * 5)
    back = time.time()
    cluster.kafka.create_topic(output, 3)
    client.reached("RUNNING", after=back)
    cluster.wait_until_counted()
    assert output in client.log()

    changelog = f"{cluster.application_id}-counts-changelog"
    partitions = cluster.kafka.topics()
    assert changelog in partitions
    before = len(client.handled())
    with client.unaware():  # it cannot see that there is none, for a moment
        cluster.kafka.delete_topic(changelog)
        cluster.kafka.create_topic(changelog, 2)
    client.reached("ERROR")  # no thread of this client can do better, so it is not tried again
    (call,) = client.handled()[before:]
    assert (call["error"], call["topics"]) == ("LostTopicException", [changelog])
    assert f"changelog '{changelog}' was deleted and created again" in call["text"]
    client.end()


@WITHOUT_SPARK
def test_a_topic_that_was_made_anew_is_told_from_one_that_is_gone(cluster: Cluster) -> None:
    """Its records are others': going on from the old offsets would be wrong."""
    source = cluster.topic("renewed", 1)
    client = cluster.start("a", source=source, handler="SHUTDOWN_CLIENT")
    cluster.wait_until_running()
    cluster.produce(source, ["x"] * 10)
    cluster.wait_until_counted()
    with client.unaware():  # else it sees that the topic is gone, before there is another one
        cluster.kafka.delete_topic(source)
        cluster.kafka.create_topic(source, 1)
    calls = _handled_on_every_thread(client, 1)
    assert calls[0]["topics"] == [source]
    assert "deleted and created again" in calls[0]["text"]
    client.reached("ERROR")
    client.end()


@WITHOUT_SPARK
def test_a_pattern_that_matches_nothing_any_more(cluster: Cluster) -> None:
    """Both of its topics were deleted."""
    topics = [cluster.topic("shelf-1"), cluster.topic("shelf-2")]
    client = cluster.start("a", pattern=cluster.name("shelf-[0-9]"), handler="SHUTDOWN_CLIENT")
    cluster.wait_until_running()
    for topic in topics:
        cluster.produce(topic, ["x"] * 10)
    cluster.wait_until_counted()
    with client.unaware():
        for topic in topics:
            cluster.kafka.delete_topic(topic)
    calls = _handled_on_every_thread(client, 1)
    assert set(calls[0]["topics"]) == set(topics)
    assert "no topic matches the pattern" in calls[0]["text"]
    client.reached("ERROR")
    assert not set(topics) & cluster.kafka.topics()
    client.end()


@ON_SPARK
def test_new_partitions_are_counted_now_and_after_a_restart(cluster: Cluster) -> None:
    """Threads are added and removed meanwhile; neither loses or doubles a record."""
    source = cluster.topic("grows", 1)
    client = cluster.start("a", source=source)
    cluster.wait_until_running()
    cluster.produce(source, ["x"] * 10, partition=0)
    cluster.wait_until_counted()
    cluster.grow(source, 3)
    for partition in range(3):
        cluster.produce(source, ["x", f"p{partition}"] * 10, partition=partition)
    cluster.wait_until_counted()

    first = client.threads()
    added = client.ask("add")
    assert added not in first
    wait_until(
        lambda: sorted(t["state"] for t in client.ask("threads")) == ["RUNNING"] * 2,
        client.told("both threads run"),
    )
    cluster.produce(source, ["x"] * 10, partition=2)
    cluster.wait_until_counted()
    removed = client.ask("remove")
    assert removed in {*first, added}
    assert len(client.threads()) == 1
    cluster.produce(source, ["x"] * 10, partition=1)
    cluster.wait_until_counted()

    client.end()
    client = cluster.again(client)
    cluster.wait_until_running()
    for partition in range(3):
        cluster.produce(source, ["x", f"p{partition}"] * 10, partition=partition)
    cluster.wait_until_counted()
    client.end()
