"""A client's metrics: Kafka's names, and values from a view."""

from __future__ import annotations

import pytest

from millstream.metrics.client_metrics import MetricName, MetricsView, client_metrics
from millstream.states import State, ThreadState


def view(state: str = "RUNNING", **threads: str) -> MetricsView:
    return MetricsView("app-1", "app", "uuid", "1.2", state, threads, failed=3, topology="Topologies:")


def test_each_metric_has_kafkas_name_group_and_tags() -> None:
    """All of them."""
    metrics = client_metrics(view(t1="RUNNING"))
    client = (("client-id", "app-1"),)
    full = (*client, ("process-id", "uuid"), ("application-id", "app"))
    assert {name: each.value for name, each in metrics.items()} == {
        MetricName("version", "stream-metrics", client): "1.2",
        MetricName("application-id", "stream-metrics", client): "app",
        MetricName("topology-description", "stream-metrics", client): "Topologies:",
        MetricName("state", "stream-metrics", client): "RUNNING",
        MetricName("client-state", "stream-metrics", full): 2,
        MetricName("alive-stream-threads", "stream-metrics", client): 1,
        MetricName("failed-stream-threads", "stream-metrics", client): 3,
        MetricName("thread-state", "stream-thread-metrics", (("thread-id", "t1"), ("process-id", "uuid"))): 4,
        MetricName("state", "stream-thread-metrics", (("thread-id", "t1"),)): "RUNNING",
    }
    assert all(name.description for name in metrics)
    assert len(metrics) == 9


@pytest.mark.parametrize("state", list(ThreadState))
def test_a_threads_state_is_its_number_and_whether_it_counts_as_alive(state: ThreadState) -> None:
    """The number is the state's place, as in Kafka."""
    metrics = client_metrics(view(t1=state.name, t2="RUNNING"))
    assert metrics.value("thread-state", thread_id="t1") == list(ThreadState).index(state)
    assert metrics.value("alive-stream-threads") == 1 + state.is_alive


@pytest.mark.parametrize("state", list(State))
def test_a_client_that_has_closed_has_no_metrics(state: State) -> None:
    """In all other states, the number is the state's ordinal."""
    metrics = client_metrics(view(state.name))
    if state.has_completed_shutdown:
        assert len(metrics) == 0
    else:
        assert metrics.value("client-state") == list(State).index(state)


def test_a_name_that_is_not_enough_is_refused() -> None:
    """Rather than giving any of them."""
    metrics = client_metrics(view(t1="RUNNING", t2="DEAD"))
    assert metrics.value("state", client_id="app-1") == "RUNNING"
    assert metrics.value("state", thread_id="t2") == "DEAD"
    with pytest.raises(KeyError, match="3 metrics have the name 'state'"):
        metrics.value("state")
    with pytest.raises(KeyError, match="0 metrics"):
        metrics.value("nothing")
