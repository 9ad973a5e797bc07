"""How many records a second a processor handles that gets and puts a value for each.

Measured in turns, as in folds.py: against Quix Streams' stateful function, over JSON and over Avro in
Confluent's wire format; and over JSON against the same processor in Java. Here Millstream too writes an
output and a changelog record for each record. The schema registry is that of `millstream registry`.
"""

from __future__ import annotations

import json
from contextlib import closing
from functools import partial
from typing import Any

from bench.figures import Progress, Report
from bench.folds import KEYS, ORDERS, Case, report
from bench.lab import Lab
from millstream import Consumed, Serde, Serdes, Stores, StreamsBuilder
from millstream.processors.api import Processor
from millstream.registry.http import RegistryServer
from millstream.registry.registry_settings import RegistrySettings
from millstream.serdes.registered import bound
from millstream.topology.topology import Topology

__all__ = ["cases", "measure"]

_ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "user", "type": "string"}, {"name": "amount", "type": "long"}],
    }
)


class Totals(Processor):
    """The sum of the amounts of a key."""

    def init(self, context: Any) -> None:
        self.context = context
        self.totals = context.get_state_store("totals")

    def process(self, record: Any) -> None:
        total = (self.totals.get(record.key) or 0) + record.value["amount"]
        self.totals.put(record.key, total)
        self.context.forward(record.with_value(total))


def topology(orders: Serde, source: str, output: str) -> Topology:
    """Orders, each with the total of its user so far."""
    builder = StreamsBuilder()
    totals = Stores.key_value_store_builder(
        Stores.persistent_key_value_store("totals"), Serdes.string(), Serdes.long()
    )
    stream = builder.stream(source, Consumed.with_(Serdes.string(), orders))
    stream.process(Totals, totals, value_serde=Serdes.long()).to(output)
    return builder.build()


def cases(registry: str) -> tuple[Case, ...]:
    """JSON and Avro; the latter needs the address of a schema registry."""
    avro = Serdes.avro(_ORDER)
    writer = bound(avro, RegistrySettings.of({"schema.registry.url": registry}), "orders")
    title = f"A processor, one get and one put per record, {KEYS:,} keys, {{}}"
    return (
        Case(
            "fold",
            title.format("JSON"),
            partial(topology, ORDERS),
            least=2.0,
            rate=10_000,
            names=("millstream", "quix", "java"),
            notes=("Kafka Streams: a thread for each core, JSON read with Jackson; no goal against it",),
        ),
        Case(
            "fold",
            title.format("Avro"),
            partial(topology, avro),
            least=2.0,
            rate=10_000,
            value=lambda user, amount: writer.serialize({"user": user, "amount": amount}),
            registry=registry,
        ),
    )


def measure(lab: Lab, *, quick: bool, tell: Progress) -> Report:
    """Run each once to warm up, then all in turns, one case after the other."""
    with closing(RegistryServer()) as registry:
        return report("processors", lab, cases(registry.url), 60_000 if quick else 300_000, tell)
