"""How many records a second a processor takes that gets and puts a value for each.

Against Quix Streams' stateful function, in turns, as folds.py has it. Here Millstream, too, writes an output
for each record, and a record of the changelog.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bench.figures import Goal, Progress, Report, median
from bench.folds import ORDERS, compared
from bench.lab import Lab
from millstream import Consumed, Serdes, Stores, StreamsBuilder
from millstream.processors.api import Processor
from millstream.topology.topology import Topology

__all__ = ["measure"]


class Totals(Processor):
    """The sum of the amounts of a key."""

    def init(self, context: Any) -> None:
        self.context = context
        self.totals = context.get_state_store("totals")

    def process(self, record: Any) -> None:
        total = (self.totals.get(record.key) or 0) + record.value["amount"]
        self.totals.put(record.key, total)
        self.context.forward(record.with_value(total))


def topology(what: str, source: str, output: str) -> Topology:
    """Orders, each with the total of its user so far."""
    builder = StreamsBuilder()
    totals = Stores.key_value_store_builder(
        Stores.persistent_key_value_store("totals"), Serdes.string(), Serdes.long()
    )
    orders = builder.stream(source, Consumed.with_(Serdes.string(), ORDERS))
    orders.process(Totals, totals, value_serde=Serdes.long()).to(output)
    return builder.build()


def measure(lab: Lab, *, quick: bool, tell: Progress) -> Report:
    """Each once to warm up, then in turns."""
    count = 60_000 if quick else 300_000
    lab.session(tuned=True)  # it stays, so that no run starts Spark
    table, faster, runs = compared(lab, "process", count, 3, tell, topology)
    rate = count / median([run.seconds for run in runs["millstream"]])
    goals = [Goal("records a second through a processor", rate, 10_000, "/s", at_least=True)]
    if faster is not None:
        goals.append(Goal("throughput against Quix Streams: a processor", faster, 2.0, "x", at_least=True))
    data = {name: [asdict(run) for run in of] for name, of in runs.items()}
    return Report("processors", (table,), tuple(goals), {"records": count, "runs": data})
