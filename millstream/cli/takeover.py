"""`millstream takeover`: what a program takes over from the same application in Kafka Streams."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from millstream.cli.cluster import NOBODY, cluster_config, topics_of
from millstream.cli.command_settings import ApplicationId, BootstrapServer, ConfigFile, Setting
from millstream.cli.error_messages import Debug
from millstream.cli.output import Json, counted, print_as, table, yes
from millstream.cli.program import AppDir, Program, load_topology
from millstream.cli.program_topics import look
from millstream.errors import StreamsException
from millstream.model import TopicPartition

if TYPE_CHECKING:
    from millstream.config import StreamsConfig
    from millstream.kafka.topics import KafkaTopics
    from millstream.topology.internal_topics import InternalTopics
    from millstream.topology.store_takeovers import StoreTakeover
    from millstream.topology.topology import Topology

__all__ = ["Takeover", "takeover", "takeover_as_dict", "takeover_text"]


@dataclass(frozen=True, slots=True)
class Takeover:
    """What there is of an application, and what becomes of it.

    Attributes:
        committed: the offsets of each source topic that its group has committed, added up.
        stores: each with the number of offsets in its changelog, or in the topic of its table.
        unknown: changelogs of the application of which the program knows no store.
        members: clients that are still in its group.
        problems: what else is in the way.
    """

    application_id: str
    committed: Mapping[str, int]
    stores: Sequence[tuple[StoreTakeover, int]]
    unknown: Sequence[str]
    members: Sequence[str]
    problems: Sequence[str]

    @property
    def is_whole(self) -> bool:
        """Whether everything goes on where it has stopped, if the program starts now."""
        hindered = any(store.forth and store.topic for store, _ in self.stores)
        return not (hindered or self.unknown or self.members or self.problems)


def takeover(
    program: Program,
    bootstrap_server: BootstrapServer = None,
    application_id: ApplicationId = None,
    config_file: ConfigFile = None,
    set_: Setting = None,
    app_dir: AppDir = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print what a program takes over from the same application in Kafka Streams, store by store.

    Both have the same application.id and the same topology. Stop the Java program, look here, then start this
    one: it goes on with the offsets and the state that it finds in Kafka. Nothing is changed. Exit code 1 if
    something does not go on.
    """
    topology = load_topology(program, app_dir)
    config = cluster_config(config_file, set_, bootstrap_server, application_id)
    if config.application_id == NOBODY:
        raise typer.BadParameter("which application is it?", param_hint="--application-id")
    with topics_of(config) as topics:
        found = _found(topology, config, topics)
    print_as(json, takeover_as_dict(found), takeover_text(found))
    if not found.is_whole:
        raise typer.Exit(1)


def _found(topology: Topology, config: StreamsConfig, topics: KafkaTopics) -> Takeover:
    """Looks at the cluster, and compiles the program.

    Raises:
        StreamsException: there is nothing to take over, or the program is wrong.
    """
    from millstream.runtime.wiring import real_parts
    from millstream.topology.internal_topics import plan_internal_topics
    from millstream.topology.store_takeovers import store_takeovers, unknown_changelogs

    needs, problems = look(topology, config, topics, None)
    problems += [f"{each.name}: {each.problem}" for each in needs if each.problem]
    counts = {
        each.name: each.found.partitions for each in needs if each.found is not None and not each.is_owned
    }
    internal = plan_internal_topics(topology, config.application_id, counts)
    sources = [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]
    committed: dict[str, int] = {}
    for place, offset in topics.committed(config.application_id, sources).items():
        committed[place.topic] = committed.get(place.topic, 0) + offset
    if not committed:
        raise StreamsException(
            f"group '{config.application_id}' has committed nothing of what the program reads on "
            f"{','.join(config.bootstrap_servers)}: it has read nothing yet, or this is the wrong cluster or "
            "application.id"
        )
    names = topics.names()
    closed = _closed(topology, config, internal)
    stores = store_takeovers(topology, internal, config.application_id, names, closed)
    held = _offsets(topics, {each.topic for each in stores} & names)
    groups = real_parts().groups(config)
    try:
        members = sorted(groups.members(config.application_id).values())
    finally:
        groups.close()
    return Takeover(
        config.application_id,
        committed,
        [(each, held.get(each.topic, 0)) for each in stores],
        unknown_changelogs(topology, internal, config.application_id, names),
        members,
        problems,
    )


def _closed(topology: Topology, config: StreamsConfig, internal: InternalTopics) -> dict[str, str]:
    """The stores whose values do not say enough to go on, by what their functions compute."""
    from millstream.runtime.wiring import real_parts
    from millstream.topology.pipeline import writers_first

    engine = real_parts().engine(config, threading.Event(), None)
    try:
        closed: dict[str, str] = {}
        for pipeline in writers_first([each for each in topology.pipelines if each.has_query]):
            closed |= engine.compile(pipeline, internal.partitions).closed
        return closed
    finally:
        engine.close()


def _offsets(topics: KafkaTopics, names: set[str]) -> dict[str, int]:
    """How many offsets there are in each of these topics."""
    places = [
        TopicPartition(name, number)
        for name, each in topics.describe(names).items()
        for number in range(each.partitions)
    ]
    begins, ends = topics.beginning_offsets(places), topics.end_offsets(places)
    found = dict.fromkeys(names, 0)
    for place in places:
        found[place.topic] += ends[place] - begins[place]
    return found


def takeover_as_dict(found: Takeover) -> dict[str, Any]:
    """A takeover in a form for `json.dumps`."""
    return {
        "application_id": found.application_id,
        "whole": found.is_whole,
        "committed": dict(found.committed),
        "stores": [
            {
                "name": store.store,
                "topic": store.topic or None,
                "offsets": offsets,
                "goes_on": not store.forth,
                "why_not": store.forth or None,
                "goes_back": not store.back,
                "why_not_back": store.back or None,
            }
            for store, offsets in found.stores
        ],
        "unknown_changelogs": list(found.unknown),
        "members": list(found.members),
        "problems": list(found.problems),
    }


def takeover_text(found: Takeover) -> str:
    """A line for each store, and below it what does not go on, and why."""
    read = ", ".join(f"{count:,} in {topic}" for topic, count in sorted(found.committed.items()))
    lines = [f"Application '{found.application_id}' has read up to offset {read}.", ""]
    rows = [
        (store.store, store.topic or None, f"{offsets:,}", yes(not store.forth), yes(not store.back))
        for store, offsets in found.stores
    ]
    lines += [table(("store", "kept in", "offsets", "goes on", "and back"), rows, ("offsets",)), ""]
    lines += [f"{store.store} does not go on: {store.forth}." for store, _ in found.stores if store.forth]
    lines += [
        f"{store.store} does not go back to Kafka Streams: {store.back}."
        for store, _ in found.stores
        if store.back and store.back != store.forth
    ]
    lines += [
        f"{topic} is state of which this program knows no store: is it the same topology? Or it is that of "
        f"another application, whose id begins with '{found.application_id}-'."
        for topic in found.unknown
    ]
    lines += found.problems
    if found.members:
        clients = counted(len(found.members), "client")
        lines.append(f"Its group still has {clients}: {', '.join(found.members)}. Stop them first.")
    elif found.is_whole:
        lines.append("Start the program: everything goes on where it has stopped.")
    else:
        lines.append(
            "What does not go on begins empty, or fails when its key comes: change the program, or let the "
            "application begin anew (millstream reset)."
        )
    return "\n".join(lines)
