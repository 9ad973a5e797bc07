"""What a client must know about its global tables before their thread starts: their parts and their serdes.

A global store has one part for each partition of its topic, as if each were a task of the table's own
subtopology. These are not real tasks, but no other subtopology has that number, so the parts have unique ids.

Source: org.apache.kafka.streams.processor.internals.GlobalStateManagerImpl (topicPartitionsForStore).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from millstream.errors import MissingSourceTopicException, TopologyException
from millstream.model import TaskId, TopicPartition
from millstream.ports import Topics
from millstream.registry.registry_settings import RegistrySettings
from millstream.runtime.state.assignment import StorePart
from millstream.serdes.registered import bound
from millstream.serdes.serde import Serde, SerdePair
from millstream.topology.internal_topics import InternalTopic
from millstream.topology.nodes import FrameTable, GlobalTable, Store, TableSource
from millstream.topology.topology import Topology

__all__ = ["declared_serdes", "find_global_parts", "global_parts"]

log = logging.getLogger(__name__)


def global_parts(
    topology: Topology, partitions: Mapping[str, int], servers: str = ""
) -> tuple[StorePart, ...]:
    """The parts of all global stores, by store and partition; `partitions` counts them by topic.

    Raises:
        MissingSourceTopicException: a topic is not in `partitions`, or has none; it names all such topics.

    Differs: Kafka Streams throws a plain StreamsException, for the first such topic.
    """
    parts: list[StorePart] = []
    missing: dict[str, str] = {}
    for subtopology in topology.global_subtopologies:
        (store,), (topic,) = subtopology.stores, subtopology.source_topics
        count = partitions.get(topic, 0)
        if not count:
            missing[topic] = store.name
        parts += (
            StorePart(TaskId(subtopology.id, number), store, TopicPartition(topic, number))
            for number in range(count)
        )
    if missing:
        facts = "; ".join(
            f"There are no partitions available for topic {topic} when initializing global store {store}"
            for topic, store in missing.items()
        )
        where = f" on '{servers}'" if servers else ""
        raise MissingSourceTopicException(
            f"{facts}; create {'it' if len(missing) == 1 else 'them'}{where}, or correct the topology, then "
            f"start a new client",
            tuple(sorted(missing)),
        )
    return tuple(parts)


def find_global_parts(
    topics: Topics, topology: Topology, servers: str, *, create_missing: bool
) -> tuple[StorePart, ...]:
    """The same, with the partitions that the cluster has now.

    With `create_missing`, topics that do not exist are created with the broker's default number of
    partitions: an embedded broker has none of them yet.

    Raises:
        MissingSourceTopicException: a topic does not exist.
        StreamsException: the cluster cannot be reached.
    """
    if not topology.global_topics:
        return ()
    found = topics.confirm(topology.global_topics)
    absent = [name for name in topology.global_topics if name not in found]
    if create_missing and absent:
        log.info("creating topics %s for global tables on the embedded broker", ", ".join(absent))
        topics.create([InternalTopic(name, -1, {}) for name in absent], -1)
        found = topics.confirm(topology.global_topics)
    return global_parts(topology, {name: topic.partitions for name, topic in found.items()}, servers)


def declared_serdes(
    topology: Topology,
    default_key_serde: Serde | None = None,
    default_value_serde: Serde | None = None,
    registry: RegistrySettings | None = None,
) -> dict[str, SerdePair]:
    """The (key serde, value serde) of each store that no query fills: as declared, else the default.

    Raises:
        TopologyException: there is neither. Nothing can be inferred: no query of Spark's reads the table.
    """
    serdes: dict[str, SerdePair] = {}
    alone = {node for pipeline in topology.pipelines if not pipeline.has_query for node in pipeline.nodes}
    for table in topology.nodes:
        if isinstance(table, FrameTable):
            continue  # it has no store
        if isinstance(table, GlobalTable):
            stored: Store | None = table.stored
            what = "global_table"
        elif isinstance(table, TableSource) and table in alone:
            stored, what = table.stored, "table"
        else:
            continue
        if stored is None:
            continue
        key = stored.key_serde or table.key_serde or default_key_serde
        value = stored.value_serde or table.value_serde or default_value_serde
        for side, serde in (("key", key), ("value", value)):
            if serde is None:
                raise TopologyException(
                    f"{table.name}: no {side} serde for the {what.replace('_', ' ')} of topic "
                    f"'{table.topic}'; set one, builder.{what}('{table.topic}', "
                    f"Consumed.with_(Serdes.string(), Serdes.string())), or set the configuration "
                    f"default.{side}.serde"
                )
        serdes[stored.name] = (
            bound(key, registry, table.topic, is_key=True),
            bound(value, registry, table.topic),
        )
    return serdes
