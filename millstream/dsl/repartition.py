"""A repartition: the step that brings equal keys together, whether by a topic or by a shuffle.

Source: KStreamImpl.createRepartitionedSource.
"""

from __future__ import annotations

from millstream.dsl.drafts import Draft, Drafts
from millstream.serdes.serde import Serde
from millstream.topology.names import repartition_names
from millstream.topology.nodes import Function, Repartition

__all__ = ["add_repartition", "check_repartition"]


def check_repartition(drafts: Drafts, prefix: str | None) -> None:
    """Raise if a repartition with names from `prefix` cannot be added; None: the names will be generated.

    Raises:
        TopologyException: a name is taken, or a pattern would read the topic.
    """
    names = repartition_names(prefix) if prefix is not None else None
    if names is not None:
        drafts.check(names.filter, names.sink, names.source)
        drafts.check_internal_topic(names.topic)


def add_repartition(
    drafts: Drafts,
    parent: Draft,
    prefix: str,
    key_serde: Serde | None,
    value_serde: Serde | None,
    *,
    partitions: int | None = None,
    implicit: bool = True,
    partitioner: Function | None = None,
) -> Draft:
    """A draft of a repartition whose topic is `<prefix>-repartition`."""
    names = drafts.names.repartition(prefix)
    drafts.check_internal_topic(names.topic)
    node = Repartition(
        names.source,
        (),
        topic=names.topic,
        sink_name=names.sink,
        filter_name=names.filter,
        key_serde=key_serde,
        value_serde=value_serde,
        partitions=partitions,
        implicit=implicit,
        partitioner=partitioner,
    )
    return drafts.add(node, parent)
