"""Whether the source topics are still the ones that are being read (KIP-662).

Kafka Streams learns of a deleted topic when the group's leader next refreshes its metadata. Here each client
looks for itself, several times a second: describing topics takes about a millisecond, and never creates one.

What has happened is decided by two pure functions: `compare` (two sets of descriptions in, news out) and
`missing_error` (news in, the exception out). The thread asks, asks again before it tells bad news (a broker
that has only just learnt of a topic may say that there is none), and tells each incident once.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.errors import MissingSourceTopicException, StreamsException
from millstream.ports import TopicDescription, Topics
from millstream.topology.nodes import Source
from millstream.topology.pipeline import Pipeline

__all__ = [
    "TopicNews",
    "TopicWatch",
    "compare",
    "confirmed",
    "matching_topics",
    "missing_error",
    "source_patterns",
]

log = logging.getLogger(__name__)

_KAFKAS_OWN = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
"""No pattern matches these, whatever it says (Kafka's `exclude.internal.topics`)."""
_LONGEST_PAUSE_S = 2.0
"""How long the watch waits at most between two tries to reach a cluster that does not answer."""


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
    own = re.compile(rf"{re.escape(application_id)}-.+-(?:changelog|repartition)")
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
        missing: topics that a source names and that were never there, sorted.
        deleted: topics that were there and are not, sorted.
        recreated: topics that were deleted and created again: name to (id then, id now).
        unmatched: patterns that matched topics and match none any more.
        grown: topics that have more partitions: name to (then, now).
        appeared: new topics that a pattern matches, with their partitions.
        arrived: topics that were missing when the client started and are there now.
    """

    missing: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    recreated: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    unmatched: tuple[str, ...] = ()
    grown: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    appeared: Mapping[str, int] = field(default_factory=dict)
    arrived: tuple[str, ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that something bad has happened to, sorted."""
        return tuple(sorted({*self.missing, *self.deleted, *self.recreated}))

    @property
    def incident(self) -> frozenset[tuple[str, str, str]]:
        """What is bad about them, as something to compare: (what, topic or pattern, id now)."""
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
    """What has happened between `known` and `now`.

    Args:
        known: the topics that were there when the client started, by name.
        now: those of them, of `names`, and of the patterns' topics that are there now.
        names: the topics that sources name.
        patterns: the sources' patterns.

    Differs: upstream drops a deleted topic of a pattern silently while the pattern matches others. Here it is
    an incident as any other: records of it may be gone that Spark was to read, and Spark's query ends with
    that error anyway. Upstream does not compare ids, so that a topic that was deleted and created again goes
    unseen.
    """
    named = set(names)
    deleted = sorted(name for name in known if name not in now)
    recreated = {
        name: (old.topic_id, now[name].topic_id)
        for name, old in sorted(known.items())
        if name in now and old.topic_id and now[name].topic_id and old.topic_id != now[name].topic_id
    }
    return TopicNews(
        missing=tuple(sorted(name for name in named if name not in known and name not in now)),
        deleted=tuple(deleted),
        recreated=recreated,
        unmatched=tuple(
            pattern.pattern
            for pattern in patterns
            if any(pattern.fullmatch(name) for name in known)
            and not any(pattern.fullmatch(name) for name in now)
        ),
        grown={
            name: (old.partitions, now[name].partitions)
            for name, old in sorted(known.items())
            if name in now and name not in recreated and now[name].partitions > old.partitions
        },
        appeared={
            name: found.partitions
            for name, found in sorted(now.items())
            if name not in known and name not in named
        },
        arrived=tuple(sorted(name for name in named if name not in known and name in now)),
    )


def confirmed(first: TopicNews, second: TopicNews) -> TopicNews:
    """The second look's news; of the bad ones only those that the first look had too."""
    return TopicNews(
        missing=tuple(name for name in second.missing if name in first.missing),
        deleted=tuple(name for name in second.deleted if name in first.deleted),
        recreated={name: ids for name, ids in second.recreated.items() if first.recreated.get(name) == ids},
        unmatched=tuple(pattern for pattern in second.unmatched if pattern in first.unmatched),
        grown=second.grown,
        appeared=second.appeared,
        arrived=second.arrived,
    )


def missing_error(news: TopicNews, servers: str) -> MissingSourceTopicException | None:
    """The exception for bad news; None: there are none.

    Source: KIP-662. Differs: names each topic and what happened to it.
    """
    told = []
    if news.missing:
        told.append(f"{_list(news.missing)} {_do(news.missing)} not exist")
    if news.deleted:
        told.append(f"{_list(news.deleted)} {_was(news.deleted)} deleted while the client was running")
    for name, (then, now) in news.recreated.items():
        told.append(f"'{name}' was deleted and created again (topic id {then} then, {now} now)")
    for pattern in news.unmatched:
        told.append(f"no topic matches the pattern '{pattern}' any more")
    if not told:
        return None
    ways = []
    if news.missing:
        ways.append(
            "create the missing ones, or correct the topology; the client goes on once they are there"
        )
    if news.deleted or news.recreated or news.unmatched:
        ways.append(
            "what was read of a deleted topic is not in a new one of its name, so this client does not go on "
            "with it: close it and, if the application may start afresh, call "
            "KafkaStreams.clean_up(checkpoints=True) and start a new client"
        )
    return MissingSourceTopicException(
        f"source topics on '{servers}': {'; '.join(told)}. Next: {'; '.join(ways)}",
        news.topics,
        deleted=news.deleted,
        recreated=tuple(news.recreated),
    )


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _do(names: Sequence[str]) -> str:
    return "does" if len(names) == 1 else "do"


def _was(names: Sequence[str]) -> str:
    return "was" if len(names) == 1 else "were"


class TopicWatch:
    """Looks at the source topics every `interval_s`, on a thread called `<client id>-TopicWatch`.

    A topic that was missing and is created is fine from then on, and `on_cleared` tells so. One that was
    deleted stays an incident even when a topic of its name comes back, because that is another topic, with
    other offsets: until the client starts afresh (`clean_up(checkpoints=True)`, then a new client).

    Callbacks run on the watch's thread, one at a time. What they raise is logged; the watch goes on.

    Args:
        topics: must outlive the watch.
        names, patterns: what the sources read.
        servers: `bootstrap.servers`, for messages.
        on_missing: told of an incident once, confirmed; again only when something bad has come to it.
        on_grown: told of partitions that were added, name to (then, now), once; a new topic that a pattern
            matches grows from 0.
        on_cleared: told of topics that were missing and are there now.
        interval_s: from the end of a look to the next.
        confirm_s: from a look with bad news to the second one.
        list_every_s: how often patterns are compared with the names of all topics.
    """

    def __init__(
        self,
        topics: Topics,
        *,
        client_id: str,
        application_id: str,
        names: Iterable[str],
        patterns: Sequence[re.Pattern[str]] = (),
        servers: str,
        on_missing: Callable[[MissingSourceTopicException], None],
        on_grown: Callable[[Mapping[str, tuple[int, int]]], None] = lambda grown: None,
        on_cleared: Callable[[tuple[str, ...]], None] = lambda topics: None,
        interval_s: float = 0.1,
        confirm_s: float = 0.05,
        list_every_s: float = 1.0,
    ) -> None:
        self._topics = topics
        self._application_id = application_id
        self._names = tuple(sorted(set(names)))
        self._patterns = tuple(patterns)
        self._servers = servers
        self._on_missing = on_missing
        self._on_grown = on_grown
        self._on_cleared = on_cleared
        self._interval_s = interval_s
        self._confirm_s = confirm_s
        self._list_every_s = list_every_s
        self._changed = threading.Condition()
        self._known: dict[str, TopicDescription] = {}
        self._era = 0
        self._error: MissingSourceTopicException | None = None
        self._incident: frozenset[tuple[str, str, str]] = frozenset()
        self._told: frozenset[tuple[str, str, str]] = frozenset()
        self._asked = 0
        self._answered = 0
        self._failed_looks = 0
        self._listed: tuple[str, ...] = ()
        self._listed_at: float | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"{client_id}-TopicWatch", daemon=True)

    def baseline(self, descriptions: Mapping[str, TopicDescription]) -> None:
        """What the client starts with: named topics, and patterns' topics. What was told is forgotten."""
        with self._changed:
            self._known = dict(descriptions)
            self._era += 1
            self._publish(TopicNews())
            self._told = frozenset()

    def start(self) -> None:
        """Begin to look; after `baseline`. Nothing to look at: nothing happens."""
        if self._names or self._patterns:
            self._thread.start()

    def close(self, timeout_s: float = 5.0) -> bool:
        """Stop looking; whether the thread has ended. Nothing new is told from now on. Idempotent.

        A look at a cluster that does not answer may hold the thread up; it ends by itself when that ends.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.ident is None:
            return True
        if self._thread is threading.current_thread():
            return False
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def look_now(self, timeout_s: float = 2.0) -> MissingSourceTopicException | None:
        """What a fresh, confirmed look finds wrong; None: nothing.

        For a failure that may have the same cause. If the answer does not come in time, or the watch does not
        run, it is the last one that was confirmed. While an incident lasts, this and `on_missing` give the
        very same exception.
        """
        with self._changed:
            if self._thread.is_alive() and self._thread is not threading.current_thread():
                self._asked += 1
                ticket = self._asked
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._answered >= ticket or self._closed, timeout_s)
            return self._error

    def missing_topics(self) -> tuple[str, ...]:
        """The topics that are missing, deleted or re-created now, confirmed, sorted."""
        with self._changed:
            return () if self._error is None else self._error.topics

    # --- on the thread itself ----------------------------------------------------------------------------

    def _run(self) -> None:
        pause_s = self._interval_s
        while self._wait(pause_s):
            with self._changed:
                ticket = self._asked
            try:
                tell = self._look()
            except StreamsException as error:
                # Nothing is known, so nothing is told.
                self._failed_looks += 1
                if self._failed_looks == 1:
                    log.warning("the source topics cannot be looked at for now: %s", error)
                pause_s = min(_LONGEST_PAUSE_S, self._interval_s * 2 ** min(self._failed_looks, 10))
                tell = []
            except Exception:
                # A watch that ended here would leave a client that never notices a deleted topic.
                self._failed_looks += 1
                log.exception("looking at the source topics failed; the watch goes on")
                pause_s = _LONGEST_PAUSE_S
                tell = []
            else:
                if self._failed_looks:
                    log.info("the source topics can be looked at again")
                self._failed_looks = 0
                pause_s = self._interval_s
            with self._changed:
                self._answered = ticket
                self._changed.notify_all()
            for call in tell:
                self._call(call)

    def _wait(self, pause_s: float) -> bool:
        """Until the next look is due, or asked for; False: there is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._asked > self._answered, pause_s)
            return not self._closed

    def _look(self) -> list[Callable[[], None]]:
        """One look, or two; what there is to tell.

        Raises:
            StreamsException: the cluster did not answer.
        """
        with self._changed:
            era, known = self._era, dict(self._known)
        news, now = self._compared(known)
        # What is confirmed already needs no second look each time.
        if not news.incident <= self._incident:
            first = news
            with self._changed:
                if self._changed.wait_for(lambda: self._closed, self._confirm_s):
                    return []
            second, now = self._compared(known)
            news = confirmed(first, second)
        with self._changed:
            if self._closed or era != self._era:
                return []  # a new baseline has come meanwhile
            return self._take_in(news, now)

    def _compared(
        self, known: Mapping[str, TopicDescription]
    ) -> tuple[TopicNews, Mapping[str, TopicDescription]]:
        now = self._topics.look({*self._names, *known, *self._matching(anew=False)})
        if self._patterns and not known.keys() <= now.keys():
            # Whether a pattern matches nothing any more depends on topics that may be new.
            now = self._topics.look({*self._names, *known, *self._matching(anew=True)})
        return compare(known, now, names=self._names, patterns=self._patterns), now

    def _matching(self, *, anew: bool) -> tuple[str, ...]:
        """The topics that patterns match. All names of a cluster are a long list, so not at each look."""
        if not self._patterns:
            return ()
        if anew or self._listed_at is None or time.monotonic() - self._listed_at >= self._list_every_s:
            self._listed = matching_topics(self._patterns, self._topics.names(), self._application_id)
            self._listed_at = time.monotonic()
        return self._listed

    def _publish(self, news: TopicNews) -> None:
        """What `look_now` and `missing_topics` say from now on. The lock is held."""
        if news.incident != self._incident:
            self._incident = news.incident
            self._error = missing_error(news, self._servers)

    def _take_in(self, news: TopicNews, now: Mapping[str, TopicDescription]) -> list[Callable[[], None]]:
        """Remember the news; what there is to tell. The lock is held."""
        tell: list[Callable[[], None]] = []
        self._publish(news)
        error = self._error
        if error is not None and not self._incident <= self._told:
            tell.append(lambda: self._on_missing(error))
        self._told = self._incident
        grown = {**{name: (0, count) for name, count in news.appeared.items()}, **news.grown}
        for name in (*news.arrived, *grown):
            self._known[name] = now[name]
        if news.arrived:
            log.info("source topics %s are there now", _list(news.arrived))
            tell.append(lambda: self._on_cleared(news.arrived))
        if grown:
            log.info(
                "source topics have more partitions: %s",
                ", ".join(f"'{name}' {then} -> {count}" for name, (then, count) in grown.items()),
            )
            tell.append(lambda: self._on_grown(grown))
        return tell

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            # The watch must outlive whoever it tells, or the next incident would go unseen.
            log.exception("what was told of the source topics was not taken in; the watch goes on")
