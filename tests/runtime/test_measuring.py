"""What a client measures of its own life: threads, tasks, the group, failures, the restoring of stores."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fake_world import FakeWorld
from scenes import Handler, Make, poison, running, word_count
from waiting import wait_until

from millstream.metrics.client_metrics import ClientMetrics
from millstream.model import BatchReport, TopicPartition
from millstream.runtime.client import KafkaStreams
from millstream.runtime.measuring import readers_of
from millstream.runtime.state.supervision import StreamThreadExceptionResponse as Response
from millstream.states import ThreadState


def until(client: KafkaStreams, fits: Callable[[ClientMetrics], bool], what: str) -> ClientMetrics:
    """Its metrics, once they fit."""
    wait_until(lambda: fits(client.metrics()), what)
    return client.metrics()


def test_a_running_client_knows_its_rebalance_its_tasks_and_how_long_it_took(make: Make) -> None:
    """Three tasks of the one store, created once; nothing is left to restore."""
    client = make()
    client.start()
    running(client)
    metrics = until(client, lambda now: now.value("recovery-total") == 1, "the client was RUNNING")
    (thread,) = (each.thread_name for each in client.metadata_for_local_threads())
    assert metrics.value("task-created-total", thread_id=thread) == 3
    assert metrics.value("task-closed-total", thread_id=thread) == 0
    assert metrics.value("rebalance-total") == 1
    assert metrics.value("failed-rebalance-total") == 0
    assert metrics.value("members") == 1
    assert float(metrics.value("last-rebalance-seconds-ago")) >= 0
    assert float(metrics.value("thread-start-time", thread_id=thread)) > 1_600_000_000_000
    for partition in range(3):
        assert metrics.value("restore-remaining-records-total", task_id=f"0_{partition}") == 0
    assert metrics.value("active-restoring-tasks", thread_id=f"{thread}-StateUpdater") == 0


def test_a_pipelines_reports_count_for_the_thread_that_has_it(make: Make, world: FakeWorld) -> None:
    """They also count for the tasks and nodes that read the topic."""
    client = make()
    client.start()
    running(client)
    world.engine.report(BatchReport("p0", batch_id=0, read={TopicPartition("lines", 2): 5}))
    (thread,) = (each.thread_name for each in client.metadata_for_local_threads())
    metrics = client.metrics()
    assert metrics.value("process-total", group="stream-thread-metrics", thread_id=thread) == 5
    assert metrics.value("records-consumed-total", group="stream-topic-metrics", task_id="0_2") == 5


def test_a_client_says_whether_it_is_paused(make: Make) -> None:
    """An alert asks for it: a paused client commits nothing, and nothing is wrong with it."""
    client = make()
    client.start()
    running(client)
    assert client.metrics().value("paused") == 0
    client.pause()
    until(client, lambda now: now.value("paused") == 1, "it is paused")
    client.resume()
    until(client, lambda now: now.value("paused") == 0, "it goes on")


def test_a_report_that_comes_while_its_thread_ends_leaves_nothing_behind(
    make: Make, world: FakeWorld
) -> None:
    """What it counted after the thread's figures were let go would stay for as long as the client lives."""
    client = make()
    client.start()
    running(client)
    (thread,) = (each.thread_name for each in client.metadata_for_local_threads())

    def figures() -> set[str]:
        """What is measured of the thread and its pipeline."""
        return {each.metric.name for each in client._measuring.readings() if {thread, "p0"} & {*each.tags}}

    class Drops(dict[tuple[str, str], int]):
        """The thread ends at the moment at which these are read."""

        def items(self) -> Any:
            client._measuring._thread(thread, ThreadState.DEAD, datetime.now(UTC))
            return super().items()

    world.engine.report(
        BatchReport("p0", read={TopicPartition("lines", 0): 5}, dropped=Drops({("late", "x"): 1}))
    )
    assert figures() == set()


def test_a_replaced_thread_takes_its_figures_along_and_its_failure_is_counted(
    make: Make, world: FakeWorld
) -> None:
    """Failures are told apart by the exception, and by what was done about it."""
    client = make()
    client.set_uncaught_exception_handler(Handler(Response.REPLACE_THREAD))
    client.start()
    running(client)
    world.engine.report(BatchReport("p0", read={TopicPartition("lines", 0): 5}))
    world.engine.end("p0", poison())
    metrics = until(client, lambda now: now.value("recovery-total") == 2, "the client has recovered")
    count = metrics.value("failures-total", exception="PipelineException", response="REPLACE_THREAD")
    assert count == 1
    assert float(metrics.value("last-failure-timestamp")) > 1_600_000_000_000
    (thread,) = (each.thread_name for each in client.metadata_for_local_threads())
    assert metrics.value("process-total", group="stream-thread-metrics", thread_id=thread) == 0


def test_what_reads_a_topic_is_known_by_name_by_pattern_and_for_internal_topics() -> None:
    """The source has Kafka Streams' name."""
    readers = readers_of(word_count(), "app")
    assert readers("lines") == ((0, "KSTREAM-SOURCE-0000000000"),)
    assert readers("nothing") == ()
