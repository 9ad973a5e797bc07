"""Applications on a broker that wants to know who they are: all clients of each, Spark's among them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from secured import Secured
from waiting import wait_until

from millstream import (
    Consumed,
    KafkaStreams,
    Materialized,
    Produced,
    QueryableStoreTypes,
    Serdes,
    StoreQueryParameters,
    StreamsBuilder,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

LOGINS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "mutual TLS")


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    made = Secured(tmp_path)
    with made.broker:
        made.add_scram_users()
        yield made


@pytest.mark.timeout(240)
def test_an_application_runs_with_each_login(secured: Secured, tmp_path: Path) -> None:
    """One set of settings for the group's member, topics, stores, and Spark's source and sink. The broker
    lets nobody do anything there who has not logged in as the right user."""
    clients: dict[str, KafkaStreams] = {}
    producer = Producer({"bootstrap.servers": secured.broker.bootstrap_servers})
    try:
        for number, login in enumerate(LOGINS):
            source, target = f"in-{number}", f"out-{number}"
            for topic in (source, target):
                secured.broker.create_topic(topic, 1)
            builder = StreamsBuilder()
            stream = builder.stream(source, Consumed.with_(Serdes.string(), Serdes.string()))
            counts = stream.group_by_key().count(Materialized.as_("counts"))
            counts.to_stream().to(target, Produced.with_(Serdes.string(), Serdes.long()))
            config = {**secured.options_of(login), "state.dir": str(tmp_path / "state")}
            clients[login] = KafkaStreams(builder.build(), config)
            for _ in range(number + 1):
                producer.produce(source, key=b"k", value=b"v")
            clients[login].start()
        assert producer.flush(30) == 0
        for number, (login, client) in enumerate(clients.items()):
            client.wait_until_running(timedelta(minutes=3))
            kind = QueryableStoreTypes.key_value_store()
            store = client.store(StoreQueryParameters.from_name_and_type("counts", kind))
            wait_until(lambda s=store, n=number: s.get("k") == n + 1, f"{login} counts")  # type: ignore[misc]
            assert client.failures == ()
    finally:
        for client in clients.values():
            client.close(timedelta(seconds=30))
