"""Avro with a schema registry on a real broker: in and out, evolution, state, and a registry that is away."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import functions as F
from waiting import wait_until
from world import World, content, key_value_store

from millstream import (
    Consumed,
    Materialized,
    Serde,
    Serdes,
    StreamsBuilder,
)
from millstream.registry.http import RegistryServer
from millstream.registry.registry_client import Registry
from millstream.registry.registry_settings import RegistrySettings
from millstream.registry.topic import RegistryTopic
from millstream.serdes.registered import bound

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

USER, PASSWORD = "alice", "open-sesame"


def record(*fields: Any) -> str:
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})


ID, AMOUNT = {"name": "id", "type": "string"}, {"name": "amount", "type": "double"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
OLD, NEW = record(ID, AMOUNT), record(ID, AMOUNT, NOTE)


@pytest.fixture
def registry(world: World) -> Iterator[RegistryServer]:
    """One with a login, whose schemas are in a topic of the broker."""
    log = RegistryTopic({"bootstrap.servers": world.kafka.bootstrap_servers}, world.name("_schemas"))
    server = RegistryServer(append=log.append, users={USER: PASSWORD})
    yield server
    server.close()


def config(registry: RegistryServer) -> dict[str, Any]:
    return {"schema.registry.url": registry.url, "basic.auth.user.info": f"{USER}:{PASSWORD}"}


def of(registry: RegistryServer, topic: str, schema: str | None = None) -> Serde:
    """What a program without Millstream would read and write the topic with."""
    made: Serde = bound(Serdes.avro(schema), RegistrySettings.of(config(registry)), topic)
    return made


def test_avro_goes_in_and_out_and_into_state_while_schemas_change_and_the_registry_is_away(
    world: World, registry: RegistryServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A filter and a sum over records of two schemas; the store, a later client's, answers; and no log has
    the password."""
    caplog.set_level(logging.DEBUG)
    source, big = world.topic("orders", 2), world.topic("big", 1)
    old, new = of(registry, source, OLD), of(registry, source, NEW)
    assert Registry(RegistrySettings.of(config(registry))).latest(f"{source}-value") is None  # type: ignore[arg-type]
    world.produce(source, [("a", old.serialize({"id": "1", "amount": 5.0}))])

    def program() -> Any:
        builder = StreamsBuilder()
        # Without a schema: what is the newest one, as the program starts.
        orders = builder.stream(source, Consumed.with_(Serdes.string(), Serdes.avro()))
        orders.filter(lambda key, value: value["amount"] > 10).to(big)
        orders.group_by_key().aggregate(
            lambda key, value: {"total": F.sum(value["amount"]), "count": F.count("*")},
            Materialized.as_("totals").with_value_serde(Serdes.avro(record_name="shop.Total")),
        )
        return builder.build()

    client = world.client(program(), **config(registry))
    totals = key_value_store(client, "totals")
    wait_until(lambda: content(totals) == {"a": {"total": 5.0, "count": 1}}, "the first sum")
    # A schema that executors have never heard of.
    world.produce(source, [("a", new.serialize({"id": "2", "amount": 50.0, "note": "x"}))])
    wait_until(lambda: content(totals) == {"a": {"total": 55.0, "count": 2}}, "the second sum")
    (written,) = world.consume(big, 1)
    assert of(registry, big).deserialize(written.value) == {"id": "2", "amount": 50.0}
    subjects = registry.state.subjects()
    assert f"{world.name('app')}-totals-changelog-value" in subjects
    client.close(timedelta(seconds=30))

    # Another one reads with the newer schema, and the registry has come back from its topic.
    log = RegistryTopic({"bootstrap.servers": world.kafka.bootstrap_servers}, world.name("_schemas"))
    again = RegistryServer(known=log.load(), append=log.append, users={USER: PASSWORD})
    assert again.state.subjects() == subjects
    again.close()
    client = world.client(program(), **config(registry))
    totals = key_value_store(client, "totals")
    assert totals.get("a") == {"total": 55.0, "count": 2}
    world.produce(source, [("b", old.serialize({"id": "3", "amount": 11.0}))])
    written = world.consume(big, 2)[1]
    assert of(registry, big).deserialize(written.value) == {"id": "3", "amount": 11.0, "note": None}
    assert PASSWORD not in caplog.text
