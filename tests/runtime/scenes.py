"""Clients in a fake world: topologies for them, and a way to put one into each state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Consumed, Materialized
from millstream.dsl.serdes import Serdes
from millstream.runtime.client import KafkaStreams
from millstream.runtime.states import State
from millstream.testing.world import FakeWorld
from millstream.topology.topology import Topology

SOON = timedelta(seconds=20)
Make = Callable[..., KafkaStreams]


def word_count() -> Topology:
    """One pipeline, one store `counts`."""
    builder = StreamsBuilder()
    stream = builder.stream("lines", Consumed.with_(Serdes.string(), Serdes.string()))
    stream.group_by_key().count(Materialized.as_("counts")).to_stream().to("out")
    return builder.build()


def two_pipelines() -> Topology:
    """Two pipelines without a store: `a` to `b` and `c` to `d`."""
    builder = StreamsBuilder()
    builder.stream("a").to("b")
    builder.stream("c").to("d")
    return builder.build()


def put_into(state: State, client: KafkaStreams, world: FakeWorld) -> None:
    """Bring a client that is CREATED into `state`, by what users and Spark do."""
    if state is State.CREATED:
        return
    if state is State.REBALANCING:
        world.engine.gate.clear()
        client.start()
        return
    client.start()
    client.wait_until_running(SOON)
    match state:
        case State.PENDING_SHUTDOWN:
            world.engine.stop_gate.clear()
            assert client.close(timedelta(0)) is False
        case State.NOT_RUNNING:
            assert client.close(SOON)
        case State.PENDING_ERROR:
            world.engine.stop_gate.clear()
            world.engine.end("p0")
            assert client._machine.wait_until({State.PENDING_ERROR}, SOON.total_seconds())
        case State.ERROR:
            world.engine.end("p0")
            assert client._closed.wait(SOON.total_seconds())
        case _:
            pass
    assert client.state is state
    client.check()
