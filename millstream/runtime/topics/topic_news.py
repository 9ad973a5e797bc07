"""Changes of an application's topics, and how they are reported (KIP-662, KIP-671). Pure.

Descriptions in, news out (`compare`); news in, exceptions out: one for the topics that are read
(`missing_error`), and one for each pipeline that loses a topic that it writes (`lost_errors`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.errors import LostTopicException, MissingSourceTopicException
from millstream.ports import TopicDescription
from millstream.runtime.topics.topic_uses import TopicRole, topics_of
from millstream.topology.names import internal_pattern
from millstream.topology.nodes import Source
from millstream.topology.pipeline import Pipeline

__all__ = [
    "TopicNews",
    "Written",
    "compare",
    "lost_errors",
    "matching_topics",
    "missing_error",
    "source_patterns",
    "written_topics",
]

_KAFKAS_OWN = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
"""Topics that no pattern matches (Kafka's `exclude.internal.topics`)."""
_SHOWN = 10
"""The most topics that a message names; the exception's attributes have all of them."""
_START_AFRESH = "start afresh with `millstream reset` or KafkaStreams.reset()"


def source_patterns(pipelines: Iterable[Pipeline]) -> tuple[re.Pattern[str], ...]:
    """The patterns that sources name, each once, in the program's order."""
    return tuple(
        dict.fromkeys(
            node.pattern
            for pipeline in pipelines
            for node in pipeline.inputs
            if isinstance(node, Source) and node.pattern is not None
        )
    )


def matching_topics(
    patterns: Sequence[re.Pattern[str]], existing: Iterable[str], application_id: str
) -> tuple[str, ...]:
    """The topics that a pattern matches, sorted; without Kafka's own, and the application's internal ones."""
    own = re.compile(internal_pattern(application_id))
    return tuple(
        sorted(
            name
            for name in existing
            if name not in _KAFKAS_OWN
            and not own.fullmatch(name)
            and any(pattern.fullmatch(name) for pattern in patterns)
        )
    )


@dataclass(frozen=True)
class TopicNews:
    """What has changed since the client started.

    Attributes:
        missing: topics that a source names and that never existed, sorted.
        deleted: topics that existed and no longer do, sorted.
        recreated: topics that were deleted and created again: name to (id then, id now).
        unmatched: patterns that matched topics and no longer match any.
        grown: topics that have more partitions: name to (then, now).
        appeared: new topics that a pattern matches, with their partitions.
        arrived: topics that were missing when the client started and exist now.
        dropped: topics that only a pattern matched and that are gone or were replaced, sorted: their sources
            continue without them.
    """

    missing: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    recreated: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    unmatched: tuple[str, ...] = ()
    grown: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    appeared: Mapping[str, int] = field(default_factory=dict)
    arrived: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics with bad news, sorted."""
        return tuple(sorted({*self.missing, *self.deleted, *self.recreated}))

    @property
    def incident(self) -> frozenset[tuple[str, str, str]]:
        """The bad news in comparable form: (what, topic or pattern, current id)."""
        return frozenset(
            [("missing", name, "") for name in self.missing]
            + [("deleted", name, "") for name in self.deleted]
            + [("recreated", name, now) for name, (_, now) in self.recreated.items()]
            + [("unmatched", pattern, "") for pattern in self.unmatched]
        )


def compare(
    known: Mapping[str, TopicDescription],
    now: Mapping[str, TopicDescription],
    *,
    names: Iterable[str],
    patterns: Sequence[re.Pattern[str]] = (),
) -> TopicNews:
    """The changes between `known` and `now`.

    Args:
        known: the topics that existed when the client started, by name.
        now: the topics that exist now, among these, `names` and the patterns' topics.
        names: the topics that sources name.
        patterns: the sources' patterns.

    Differs: Kafka Streams does not compare topic ids, so it does not notice a topic that was deleted and
    created again.
    """
    named = set(names)
    deleted = [name for name in sorted(known) if name not in now]
    recreated = {
        name: (old.topic_id, now[name].topic_id)
        for name, old in sorted(known.items())
        if name in now and old.topic_id and now[name].topic_id and old.topic_id != now[name].topic_id
    }
    unmatched = [
        pattern
        for pattern in patterns
        if any(pattern.fullmatch(name) for name in known) and not any(pattern.fullmatch(name) for name in now)
    ]
    # A pattern reads what exists; one that no longer matches anything is an error, as in Kafka Streams.
    dropped = {
        name
        for name in (*deleted, *recreated)
        if name not in named
        and any(pattern.fullmatch(name) for pattern in patterns)
        and not any(pattern.fullmatch(name) for pattern in unmatched)
    }
    return TopicNews(
        missing=tuple(sorted(name for name in named if name not in known and name not in now)),
        deleted=tuple(name for name in deleted if name not in dropped),
        recreated={name: ids for name, ids in recreated.items() if name not in dropped},
        unmatched=tuple(pattern.pattern for pattern in unmatched),
        grown={
            name: (old.partitions, now[name].partitions)
            for name, old in sorted(known.items())
            if name in now and name not in recreated and now[name].partitions > old.partitions
        },
        appeared={
            name: found.partitions
            for name, found in sorted(now.items())
            if (name not in known or name in dropped) and name not in named
        },
        arrived=tuple(sorted(name for name in named if name not in known and name in now)),
        dropped=tuple(sorted(dropped)),
    )


# --- what is written ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """A topic that pipelines write and that is not a source.

    Attributes:
        pipelines: the pipelines affected by its loss.
    """

    name: str
    role: TopicRole
    pipelines: frozenset[str]

    @property
    def called(self) -> str:
        """Its name in messages."""
        return f"{self.role.value} '{self.name}'"


def written_topics(
    pipelines: Iterable[Pipeline],
    application_id: str,
    *,
    dead_letters: str | None,
    sources: Iterable[str],
) -> tuple[Written, ...]:
    """The topics that pipelines write, by name, except sources, which are checked as such. The readers of a
    repartition topic are affected as well.

    Args:
        dead_letters: the topic for dead letters, if any record can become one.
    """
    read = set(sources)
    roles: dict[str, TopicRole] = {}
    concerned: dict[str, set[str]] = {}
    for pipeline in pipelines:
        letters = dead_letters if pipeline.has_query else None
        for use in topics_of(pipeline, application_id, dead_letters=letters):
            if use.topic not in read and use.role not in (TopicRole.SOURCE, TopicRole.TABLE):
                role = TopicRole.REPARTITION if use.role is TopicRole.REPARTITION_READ else use.role
                roles.setdefault(use.topic, role)
                concerned.setdefault(use.topic, set()).add(pipeline.name)
    return tuple(Written(name, role, frozenset(concerned[name])) for name, role in sorted(roles.items()))


# --- messages ----------------------------------------------------------------------------------------------


def missing_error(
    news: TopicNews, servers: str, *, of_global_tables: bool = False
) -> MissingSourceTopicException | None:
    """The exception for bad news about topics that are read; None: there is none.

    Source: KIP-662. Differs: names each topic and what happened to it.
    """
    sentences = []
    if news.missing:
        sentences.append(f"{_list(news.missing)} {_do(news.missing)} not exist")
    if news.deleted:
        sentences.append(f"{_list(news.deleted)} {_was(news.deleted)} deleted while the client was running")
    if news.recreated:
        sentences.append(_few([_recreated(f"'{name}'", *ids) for name, ids in news.recreated.items()], "; "))
    sentences += [f"no topic matches the pattern '{pattern}' any longer" for pattern in news.unmatched]
    if not sentences:
        return None
    ways = []
    if news.missing:
        ways.append("create the missing ones, or correct the topology; the client continues once they exist")
    if (news.deleted or news.recreated or news.unmatched) and of_global_tables:
        ways.append(
            "create the missing topics, then start a new client; it refills the table from the new topic"
        )
    elif news.deleted or news.recreated or news.unmatched:
        ways.append(
            f"a new topic of the same name does not have what was read from the deleted one, so this client "
            f"does not continue with it: close it and, if the application may start from nothing, "
            f"{_START_AFRESH}, then start a new client"
        )
    what = "topics of global tables" if of_global_tables else "source topics"
    return MissingSourceTopicException(
        f"{what} on '{servers}': {'; '.join(sentences)}. Next: {'; '.join(ways)}",
        news.topics,
        deleted=news.deleted,
        recreated=tuple(news.recreated),
    )


def lost_errors(news: TopicNews, written: Iterable[Written], servers: str) -> dict[str, LostTopicException]:
    """For each pipeline, the exception for a topic it writes that is gone, or was replaced by another one."""
    lost = [each for each in written if each.name in news.deleted or each.name in news.recreated]
    return {
        pipeline: _lost_error(news, [each for each in lost if pipeline in each.pipelines], servers)
        for pipeline in sorted({name for each in lost for name in each.pipelines})
    }


def _lost_error(news: TopicNews, lost: Sequence[Written], servers: str) -> LostTopicException:
    sentences = [
        _recreated(each.called, *news.recreated[each.name])
        if each.name in news.recreated
        else f"{each.called} was deleted while the client was running"
        for each in lost
    ]
    ways = dict.fromkeys(_way_out(each.role, again=each.name in news.recreated) for each in lost)
    return LostTopicException(
        f"on '{servers}': {_few(sentences, '; ')}. Next: {'; '.join(ways)}",
        tuple(each.name for each in lost),
        deleted=tuple(each.name for each in lost if each.name in news.deleted),
        recreated=tuple(each.name for each in lost if each.name in news.recreated),
    )


def _way_out(role: TopicRole, *, again: bool) -> str:
    match role:
        case TopicRole.CHANGELOG:
            return (
                f"a new changelog does not have the old one's content: close all clients of the application "
                f"and {_START_AFRESH}"
            )
        case TopicRole.REPARTITION:
            return (
                "records in transit through the repartition topic may be lost: close "
                f"all clients of the application and {_START_AFRESH}"
            )
        case _ if again:
            return (
                "the new topic does not have what was written before; if its readers do not need it, have "
                "the handler answer REPLACE_THREAD, or start a new client, which continues with the new topic"
            )
        case _:
            return (
                "create the topic again, with as many partitions as its readers expect; if the handler "
                "answers REPLACE_THREAD, the client continues once the topic exists. The old records are lost"
            )


def _recreated(called: str, then: str, now: str) -> str:
    return f"{called} was deleted and created again (topic id {then} then, {now} now)"


def _list(names: Sequence[str]) -> str:
    return _few([f"'{name}'" for name in names], ", ")


def _few(sentences: Sequence[str], between: str) -> str:
    """The first few items, and how many more there are."""
    more = f"{between}and {len(sentences) - _SHOWN} more" if len(sentences) > _SHOWN else ""
    return between.join(sentences[:_SHOWN]) + more


def _do(names: Sequence[str]) -> str:
    return "does" if len(names) == 1 else "do"


def _was(names: Sequence[str]) -> str:
    return "was" if len(names) == 1 else "were"
