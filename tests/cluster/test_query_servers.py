"""Query servers of real client processes: any of them answers for all, also after one was killed."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from cluster_world import WITHOUT_SPARK, ClientProcess, Cluster
from waiting import wait_until

from millstream.errors import (
    InvalidStateStoreException,
    StateStoreNotAvailableException,
    TimeoutException,
)
from millstream.server import RemoteStore

pytestmark = [pytest.mark.cluster, WITHOUT_SPARK]

WORDS = [f"w{number}" for number in range(30)]


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


def client(cluster: Cluster, name: str, topic: str) -> tuple[ClientProcess, RemoteStore]:
    """A client with a query server, and its store from outside."""
    address = f"127.0.0.1:{free_port()}"
    config = {"application.server": address, "query.server.enabled": "true", "query.server.token": "t0ken"}
    started = cluster.start(name, config, source=topic)
    return started, RemoteStore(f"http://{address}", "counts", token="t0ken", page_size=7)


def all_of(store: RemoteStore) -> Any:
    """The whole store, read in three ways that have to agree; None where it cannot be read just now."""
    try:
        found = dict(store.all())
        same = found == dict(zip(WORDS, store.multi_get(WORDS), strict=True))
        return found if same and all(store.get(word) == found[word] for word in WORDS[:5]) else None
    except (InvalidStateStoreException, TimeoutException, KeyError):
        return None


def test_any_client_answers_for_all_and_the_one_that_is_left_for_both(cluster: Cluster) -> None:
    """Each word is at one of two clients; one of them is killed, and the other one takes its part over."""
    topic = cluster.topic("words", 4)
    (first, one), (second, two) = client(cluster, "A", topic), client(cluster, "B", topic)
    cluster.wait_until_running(first, second)
    cluster.produce(topic, WORDS * 3)
    cluster.wait_until_counted(first, second)
    wait_until(lambda: first.counts() and second.counts(), "each client has a part")
    expected = dict(cluster.expected)
    for store in (one, two):
        wait_until(lambda store=store: all_of(store) == expected, f"{store} answers for both")
    first.kill()
    with pytest.raises(StateStoreNotAvailableException):
        one.get("w0")
    cluster.produce(topic, WORDS)
    expected = dict(cluster.expected)
    wait_until(lambda: all_of(two) == expected, "the one that is left has all", 90)
