"""What of an application's state goes on when Kafka Streams hands it over to Millstream, or takes it back.
Pure.

Topics have Kafka Streams' names, and changelogs its keys and values. So what matters is whether a value says
all that is needed to go on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from millstream.topology.internal_topics import InternalTopics
from millstream.topology.names import changelog_topic
from millstream.topology.nodes import Aggregate, StreamJoin, StreamTableJoin, Suppress, TableGroupBy
from millstream.topology.topology import Topology

__all__ = ["StoreTakeover", "store_takeovers", "unknown_changelogs"]

_ON_CLOSE = "which windows it has emitted is noted in another form, so they would be emitted again"
_ITS_OWN = "Millstream's changelog has a form of its own there"


@dataclass(frozen=True, slots=True)
class StoreTakeover:
    """A store whose application changes hands.

    Attributes:
        topic: its changelog, or the topic of the table; "" for none.
        forth: why Millstream does not go on where Kafka Streams has stopped; "" if it does.
        back: why Kafka Streams does not go on where Millstream has stopped; "" if it does.
    """

    store: str
    topic: str
    forth: str = ""
    back: str = ""


def store_takeovers(
    topology: Topology,
    internal: InternalTopics,
    application_id: str,
    names: Collection[str],
    closed: Mapping[str, str],
) -> tuple[StoreTakeover, ...]:
    """All stores of a topology, by name.

    Args:
        names: the cluster's topics.
        closed: the stores whose values do not say enough, and why (ports.CompiledPipeline).
    """
    own, back, closed = set(), {}, dict(closed)
    for node in topology.nodes:
        if isinstance(node, Aggregate) and node.on_close:
            closed.setdefault(node.stored.name, _ON_CLOSE)
            back[node.stored.name] = _ON_CLOSE
        elif isinstance(node, StreamTableJoin) and node.stored is not None:
            own.add(node.stored.name)
        elif isinstance(node, Suppress):
            if node.stored.name in closed:
                own.add(node.stored.name)
            if any(isinstance(child, TableGroupBy) and node in child.parents for child in topology.nodes):
                back[node.stored.name] = "the rows behind it are grouped, which needs what it let go before"
        elif isinstance(node, StreamJoin):
            reasons = [closed[store.name] for store in node.stores if store.name in closed]
            if reasons and node.outer_stored is not None:
                closed.setdefault(node.outer_stored.name, reasons[0])
            own.update(store.name for store in node.stores if store.name in closed)
            if len(node.parents) == 1:
                back[node.other_stored.name] = "Millstream keeps the records of a join with itself once"
    found = []
    for name, source in sorted(internal.stores.items()):
        if source.is_source:
            copy = changelog_topic(application_id, name)
            stale = f"its changelog there, {copy}, does not get what comes to the topic meanwhile"
            found.append(StoreTakeover(name, source.topic or "", "", stale if copy in names else ""))
        elif source.topic is None:
            why = "it has no changelog, so it begins empty"
            found.append(StoreTakeover(name, "", why, why))
        elif source.topic not in names:
            found.append(
                StoreTakeover(name, source.topic, "the application has no such topic, so it begins empty")
            )
        else:
            returns = _ITS_OWN if name in own else back.get(name, "")
            found.append(StoreTakeover(name, source.topic, closed.get(name, ""), returns))
    return tuple(found)


def unknown_changelogs(
    topology: Topology, internal: InternalTopics, application_id: str, names: Collection[str]
) -> tuple[str, ...]:
    """Those of the cluster's topics that are changelogs of the application, but of none of its stores.

    A copy of a table's topic is not among them: the topic itself is the changelog here.
    """
    known = {topic.name for topic in internal.topics}
    known |= {changelog_topic(application_id, store) for store in topology.stores}
    begin, end = f"{application_id}-", "-changelog"
    return tuple(
        sorted(each for each in names if each.startswith(begin) and each.endswith(end) and each not in known)
    )
