"""Names of nodes, stores and internal topics: Kafka Streams' own, to the digit.

Users who migrate an application keep its store names, and so its changelogs and dashboards. So the counter
advances exactly as in Kafka Streams 4.3.1, even if a name was given and the number is lost.

Source: InternalStreamsBuilder.newProcessorName, newStoreName; NamedInternal; Named.validate;
    KStreamImpl.createRepartitionedSource.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from millstream.errors import TopologyException
from millstream.foreign import printable

__all__ = [
    "NameProvider",
    "RepartitionNames",
    "changelog_topic",
    "internal_pattern",
    "internal_topic",
    "is_internal_topic",
    "repartition_names",
    "validate_name",
    "validate_topic",
]

MAX_NAME_LENGTH = 249
# Topics of foreign-key joins, which do not end with a word for their type.
_FOREIGN_KEYS = (
    "(?:-subscription-re(?:gistration|sponse)"
    "|KTABLE-FK-JOIN-SUBSCRIPTION-RE(?:GISTRATION|SPONSE)-[0-9]+)-topic"
)
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
# A prefix that Kafka Streams generated itself; only then do a repartition's nodes get generated names.
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")


class NameProvider:
    """Creates names from a counter."""

    def __init__(self) -> None:
        self._index = 0

    def processor(self, prefix: str, name: str | None = None) -> str:
        """The given name, or else `prefix` and the counter, which advances in both cases."""
        generated = f"{prefix}{self._next():010d}"
        return generated if name is None else name

    def store(self, prefix: str) -> str:
        """The name of a store without a given name."""
        return f"{prefix}STATE-STORE-{self._next():010d}"

    def repartition(self, prefix: str) -> RepartitionNames:
        """The names of the topic and the three nodes of a repartition; advances the counter by three."""
        sink = self.processor("KSTREAM-SINK-")
        filter = self.processor("KSTREAM-FILTER-")
        source = self.processor("KSTREAM-SOURCE-")
        names = repartition_names(prefix)
        return names if names is not None else RepartitionNames(f"{prefix}-repartition", sink, filter, source)

    def _next(self) -> int:
        index = self._index
        self._index += 1
        return index


class RepartitionNames(NamedTuple):
    """The parts of a repartition in Kafka Streams' description."""

    topic: str
    sink: str
    filter: str
    source: str


def repartition_names(prefix: str) -> RepartitionNames | None:
    """The names that a repartition gets from `prefix`; None if `prefix` is generated, so the names are
    too."""
    if _GENERATED.fullmatch(prefix):
        return None
    topic = prefix if prefix.endswith("-repartition") else f"{prefix}-repartition"
    return RepartitionNames(topic, f"{topic}-sink", f"{topic}-filter", f"{topic}-source")


def validate_name(name: str, what: str = "name") -> str:
    """`name`, if Kafka accepts it as a part of a topic name.

    Raises:
        TopologyException: Kafka does not accept it.

    Source: Named.validate.
    """
    if not isinstance(name, str):
        raise TopologyException(f"a {what} is a str, got {name!r}, a {type(name).__name__}")
    if not name:
        raise TopologyException(f"{what} is illegal, it can't be empty")
    if name in (".", ".."):
        raise TopologyException(f'{what} cannot be "." or ".."')
    if len(name) > MAX_NAME_LENGTH:
        raise TopologyException(
            f"{what} is illegal, it can't be longer than {MAX_NAME_LENGTH} characters, "
            f"and has {len(name)}: {printable(name)}"
        )
    if not _LEGAL.fullmatch(name):
        raise TopologyException(
            f'{what} "{printable(name)}" is illegal, it contains a character other than '
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return name


def validate_topic(topic: str) -> str:
    """`topic`, if it is a valid topic name.

    Differs: Kafka Streams only finds out at run time.
    """
    return validate_name(topic, "topic name")


def internal_topic(application_id: str, name: str) -> str:
    """The full name of an internal topic: `<application.id>-counts-repartition`."""
    return validate_name(f"{application_id}-{name}", "internal topic name")


def is_internal_topic(application_id: str, topic: str) -> bool:
    """Whether a topic is, by its name, a changelog, a repartition topic or a foreign-key join's topic of this
    application.

    Source: StreamsResetter.isInferredInternalTopic.
    """
    return re.fullmatch(internal_pattern(application_id), topic) is not None


def internal_pattern(application_id: str) -> str:
    """The pattern of an application's internal topic names, for Python and Java."""
    return rf"{re.escape(application_id)}-(?:.+-(?:changelog|repartition)|.*{_FOREIGN_KEYS})"


def changelog_topic(application_id: str, store: str) -> str:
    """The full name of a store's changelog topic: `<application.id>-counts-changelog`."""
    return internal_topic(application_id, f"{store}-changelog")
