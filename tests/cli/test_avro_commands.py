"""`produce` and `tail` with Avro: on a real broker, with `millstream registry`'s own server."""

from __future__ import annotations

import json

import pytest
from cli_running import run

from millstream.broker import EmbeddedKafka
from millstream.registry.http import RegistryServer
from millstream.registry.registry_settings import RegistrySettings
from millstream.serdes.registered import bound
from millstream.serdes.serdes import Serdes

AMOUNT = {"name": "amount", "type": "double"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [AMOUNT, NOTE]}


@pytest.mark.kafka
def test_records_are_written_and_shown_by_the_schema_of_the_topic(kafka: EmbeddedKafka) -> None:
    """What a program has written is shown, and what is typed is written by the latest schema, or refused."""
    topic = "cli-avro-orders"
    kafka.create_topic(topic, 1)
    server = RegistryServer()
    try:
        settings = RegistrySettings.of({"schema.registry.url": server.url})
        serde = bound(Serdes.avro(json.dumps(ORDER)), settings, topic)
        serde.serialize({"amount": 1.0, "note": None})  # registers the schema, as a program does
        where = {
            "MILLSTREAM_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "MILLSTREAM_SCHEMA_REGISTRY_URL": server.url,
        }
        order = '{"amount": 9.75, "note": "gift"}'
        assert run("produce", topic, order, "--with-key", "ann", "--value", "avro", **where) == (
            0,
            f"{topic}-0@0\n",
        )
        code, text = run("tail", topic, "--value", "avro", "--json", **where)
        assert code == 0, text
        assert json.loads(text)["value"] == {"amount": 9.75, "note": "gift"}
        code, again = run("tail", topic, "--value", "avro", **where)
        assert (code, again.endswith('  ann  {"amount": 9.75, "note": "gift"}\n')) == (0, True), again
        code, text = run("produce", topic, '{"amount": "much"}', "--value", "avro", **where)
        assert (code != 0, "amount" in text) == (True, True), text
    finally:
        server.close()
    code, text = run("tail", topic, "--value", "avro", **where)
    assert "registry" in text, "it is gone, and that is told"
