"""What each answer of the uncaught exception handler does, with real failures in real processes (KIP-671).

The models are Kafka's StreamsUncaughtExceptionHandlerIntegrationTest and its kin. The poison is a record for
which a Python function raises: once, several times, or for ever (app.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cluster_world import ON_SPARK, WITHOUT_SPARK, Asked, ClientProcess, Cluster
from waiting import wait_until

pytestmark = pytest.mark.cluster

POISON = "poison"
WORDS = ["a", "b", "c", POISON]


def _poisonous(cluster: Cluster, times: str) -> tuple[Path, dict[str, str]]:
    flag = cluster.directory / "flag"
    flag.write_text(times)
    return flag, {"poison": str(flag), "source": cluster.topic("in", 2), "output": cluster.topic("out", 2)}


def _threads(count: int, **more: Any) -> dict[str, Any]:
    return {"num.stream.threads": count, "replace.thread.backoff.ms": 50, **more}


def _times(failed_at: float, clients: Sequence[ClientProcess]) -> str:
    return ", ".join(
        f"{client.name} PENDING_ERROR after {client.reached('PENDING_ERROR') - failed_at:.2f} s, ERROR after "
        f"{client.reached('ERROR') - failed_at:.2f} s"
        for client in clients
    )


@ON_SPARK
def test_replace_thread_tries_the_same_record_again_until_its_budget_is_used_up(cluster: Cluster) -> None:
    """shouldReplaceThreads, shouldEmitSameRecordAfterFailover: two failures, two new threads, exact counts;
    then a record that fails for ever ends the client as `replace.thread.then` says. Kafka's tools see how far
    the group is."""
    flag, spec = _poisonous(cluster, "..")
    client = cluster.start(
        "a",
        _threads(2, **{"replace.thread.max.failures": 3, "replace.thread.then": "SHUTDOWN_CLIENT"}),
        handler="REPLACE_THREAD",
        **spec,
    )
    cluster.wait_until_running()
    with pytest.raises(Asked, match="Can only set UncaughtExceptionHandler before calling start") as refused:
        client.ask("handler", "SHUTDOWN_CLIENT")
    assert refused.value.kind == "IllegalStateException"
    before = client.threads()
    written_at = cluster.produce(spec["source"], WORDS, partition=0)  # the first thread has it
    cluster.wait_until_counted()
    cluster.wait_until_running()
    assert [call["attempt"] for call in client.handled()] == [1, 2]
    assert {call["error"] for call in client.handled()} == {"PipelineException"}
    assert {call["cause"] for call in client.handled()} == {"ValueError"}
    assert [each[1] for each in client.ask("failures")] == ["REPLACE_THREAD"] * 2
    assert len(client.threads()) == 2
    assert client.threads() != before
    failed_at = client.handled()[-1]["at"]
    print(
        f"\nfailed {failed_at - written_at:.2f} s after the record; replaced, RUNNING again "
        f"{client.reached('RUNNING', after=failed_at) - failed_at:.2f} s after the failure"
    )
    cluster.produce(spec["source"], WORDS)  # the record goes past now
    cluster.wait_until_counted()
    assert cluster.last_values(spec["output"]) == cluster.expected
    all_of_it = 2 * len(WORDS)
    wait_until(lambda: cluster.committed(spec["source"]) == all_of_it, "Kafka's tools see all committed", 30)

    flag.write_text("*")
    cluster.produce(spec["source"], [POISON], partition=0)
    client.reached("ERROR")
    # The budget began anew: all partitions are past what failed before, also the one with nothing new.
    assert [call["attempt"] for call in client.handled()] == [1, 2, 1, 2, 3, 4]
    assert client.states()[-2:] == ["PENDING_ERROR", "ERROR"]
    assert "Not replacing thread" in client.log()
    client.end()


@WITHOUT_SPARK
def test_without_a_handler_the_client_ends_and_another_one_does_its_work(cluster: Cluster) -> None:
    """shouldShutdownClient, with a second client: it meets the same record, once that does no harm."""
    _, spec = _poisonous(cluster, ".")
    cluster.start("a", **spec)
    cluster.start("b", **spec)
    cluster.wait_until_running()
    owner = cluster.reader()
    other = next(client for client in cluster.clients if client is not owner)
    failed_at = cluster.produce(spec["source"], WORDS, partition=0)
    owner.reached("ERROR")
    print("\n" + _times(failed_at, [owner]))
    cluster.wait_until_counted(other)
    assert other.pipelines() == ["p0", "p1"]
    assert cluster.last_values(spec["output"]) == cluster.expected
    owner.end()
    assert "a poisonous record" in owner.log(), "the cause is in the log"


@WITHOUT_SPARK
@pytest.mark.parametrize("threads", [1, 2])
def test_shutdown_application_ends_every_client(cluster: Cluster, threads: int) -> None:
    """shouldShutdownSingleThreadApplication (the last live thread asks), shouldShutdownMultipleThread…"""
    _, spec = _poisonous(cluster, "*")
    config = _threads(threads)
    cluster.start("a", config, handler="SHUTDOWN_APPLICATION", **spec)
    cluster.start("b", config, handler="SHUTDOWN_APPLICATION", **spec)
    cluster.wait_until_running()
    owner = cluster.reader()
    other = next(client for client in cluster.clients if client is not owner)
    cluster.produce(spec["source"], WORDS, partition=0)
    for client in cluster.clients:
        client.reached("ERROR")
        assert client.states()[-2:] == ["PENDING_ERROR", "ERROR"]
    (call,) = owner.handled()
    assert not other.handled(), "who is told to end is not asked"
    print(f"\n{threads} threads: " + _times(call["at"], [owner, other]))
    said = next(
        line
        for line in other.log().splitlines()
        if "is requesting to shutdown" in line and f"client '{owner.name}'" in line
    )
    assert "PipelineException" in said
    assert "ValueError" in said or "p0" in said
    for client in cluster.clients:
        client.end()


@WITHOUT_SPARK
def test_shutdown_thread_leaves_the_others_the_last_one_ends_the_client(cluster: Cluster) -> None:
    """KIP-671's earlier draft: what the thread owned goes to the one that is left."""
    flag, spec = _poisonous(cluster, ".")
    client = cluster.start("a", _threads(2), handler="SHUTDOWN_THREAD", **spec)
    cluster.wait_until_running()
    cluster.produce(spec["source"], WORDS)
    cluster.wait_until_counted()
    assert len(client.threads()) == 1
    wait_until(client.is_running, client.told("RUNNING with one thread"))
    flag.write_text(".")
    cluster.produce(spec["source"], [POISON])
    client.reached("ERROR")
    assert len(client.handled()) == 2
    client.end()


@WITHOUT_SPARK
@pytest.mark.parametrize("answer", ["raises", "none", "SHUTDOWN_CLIENT", None])
def test_a_handler_that_does_not_answer_means_shutdown_client(cluster: Cluster, answer: str | None) -> None:
    """Kafka Streams is left RUNNING without threads. A missing source topic needs no Spark to fail."""
    spec = {"source": cluster.name("nowhere")} | ({} if answer is None else {"handler": answer})
    client = cluster.start("a", _threads(2), **spec)
    client.reached("ERROR")
    assert client.states() == ["REBALANCING", "PENDING_ERROR", "ERROR"]
    assert "MissingSourceTopicException" in client.log() or "source topics" in client.log()
    if answer == "raises":
        assert "the handler itself" in client.log()
    assert client.ask("state") == "ERROR"
    client.end()


@WITHOUT_SPARK
def test_the_global_thread_shuts_down_the_application_but_is_not_replaced(cluster: Cluster) -> None:
    """shouldShutDownClientIfGlobalStreamThreadWantsToReplaceThread, and SHUTDOWN_APPLICATION from it."""
    spec = {"source": cluster.topic("in", 2)}
    table = cluster.topic("table", 1)
    alone = cluster.topic("table-of-c", 1)
    cluster.start("a", _threads(1), table=table, handler="SHUTDOWN_APPLICATION", **spec)
    # A global table of its own, so that both programs have the same tasks.
    cluster.start("b", _threads(1), table=cluster.topic("table-of-b", 1), handler="REPLACE_THREAD", **spec)
    single = cluster.start(
        "c",
        {"application.id": cluster.name("single")},
        table=alone,
        handler="REPLACE_THREAD",
        **spec,
    )
    cluster.wait_until_running()
    first, second = cluster.clients[:2]
    started = time.time()
    cluster.kafka.delete_topic(table)
    first.reached("ERROR")
    second.reached("ERROR")
    print("\nglobal thread: " + _times(started, [first, second]))
    assert first.handled()[0]["thread"].endswith("GlobalStreamThread")
    assert "client 'a'" in second.log()
    assert not second.handled()
    assert single.is_running()
    cluster.kafka.delete_topic(alone)
    single.reached("ERROR")
    assert "The global thread cannot be replaced" in single.log()
    for client in cluster.clients:
        client.end()
