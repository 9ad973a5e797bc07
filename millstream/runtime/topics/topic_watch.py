"""Whether the topics that are read and written are still the same ones (KIP-662, KIP-671).

Kafka Streams learns of a deleted source topic when the group's leader next refreshes its metadata, and of a
deleted output when its producer times out. Here each client checks for itself, several times a second:
describing topics takes about a millisecond, and never creates one.

Pure functions decide what has happened, and how it is reported (topic_news.py). The thread queries, has bad
news confirmed by the controller (a broker may learn late of a topic), and reports each incident once.

An application with very many topics is checked in slices, with pauses that grow with the time a check takes.
So the watch costs a few hundredths of a core at most, and a deletion is noticed some seconds later.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from millstream.errors import LostTopicException, MissingSourceTopicException, StreamsException
from millstream.ports import TopicDescription, Topics
from millstream.runtime.topics.topic_news import (
    TopicNews,
    Written,
    compare,
    lost_errors,
    matching_topics,
    missing_error,
)

__all__ = ["TopicWatch", "pause_after"]

log = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 2.0
"""The longest wait between two attempts to reach a cluster that does not answer."""
_SLICE = 500
"""How many topics one check queries; that takes about 15 ms of a core."""
_IDLE_SHARE = 4
"""The minimum ratio of the pause after a check to the duration of the check."""
_LIST_SHARE = 20
"""The same for listing all topics of a cluster."""


def pause_after(took_s: float, interval_s: float) -> float:
    """How long to wait after a check that took this long."""
    return max(interval_s, _IDLE_SHARE * took_s)


class TopicWatch:
    """Checks topics every `interval_s`, on a thread called `<client id>-TopicWatch`.

    A missing topic is fine once it is created, and `on_cleared` reports that. A deleted source stays an
    incident even when a topic of its name is created again, because that is another topic, with other
    offsets. The same holds for a changelog or a repartition topic, until the application is reset and a new
    client is started. The loss of one of several topics that only a pattern matches is not an incident: the
    source continues without it, and `on_dropped` reports that; a topic of its name that is created later is a
    new one. A deleted output is fine again once a topic of its name exists.

    Callbacks run on the watch's thread, one at a time. What they raise is logged, and the watch continues.

    Args:
        topics: must outlive the watch.
        names, patterns: the topics that the sources read.
        written: the topics that pipelines write and that are not sources.
        servers: `bootstrap.servers`, for messages.
        on_missing: called once for each confirmed incident of sources; again only if it gets worse.
        on_lost: the same for topics that a pipeline writes: gets the pipeline's name and the exception.
        on_grown: called once for partitions added to sources: for each name, the old number and the current
            topic; for a new topic that a pattern matches, the old number is 0.
        on_dropped: called for topics that only a pattern matched and that are gone or replaced, with the
            resulting length of `dropped`. It comes before `on_grown` for the topics that replaced them.
        on_cleared: called for sources that were missing and exist now.
        of_global_tables: `names` are topics of global tables; messages say so.
        name: the thread's name.
        interval_s: the minimum time from the end of a check to the next one.
        list_every_s: the minimum time between comparisons of patterns with the names of all topics.
        slice_size: how many topics one check queries.
    """

    def __init__(
        self,
        topics: Topics,
        *,
        client_id: str,
        application_id: str,
        names: Iterable[str],
        patterns: Sequence[re.Pattern[str]] = (),
        written: Iterable[Written] = (),
        servers: str,
        on_missing: Callable[[MissingSourceTopicException], None],
        on_lost: Callable[[str, LostTopicException], None] = lambda pipeline, error: None,
        on_grown: Callable[[Mapping[str, tuple[int, TopicDescription]]], None] = lambda grown: None,
        on_dropped: Callable[[tuple[str, ...], int], None] = lambda topics, number: None,
        on_cleared: Callable[[tuple[str, ...]], None] = lambda topics: None,
        of_global_tables: bool = False,
        interval_s: float = 0.1,
        list_every_s: float = 1.0,
        slice_size: int = _SLICE,
    ) -> None:
        self._topics = topics
        self._application_id = application_id
        self._names = tuple(sorted(set(names)))
        self._patterns = tuple(patterns)
        self._written = {each.name: each for each in written}
        self._servers = servers
        self._on_missing = on_missing
        self._on_lost = on_lost
        self._on_grown = on_grown
        self._on_dropped = on_dropped
        self._on_cleared = on_cleared
        self._of_global_tables = of_global_tables
        self._interval_s = interval_s
        self._list_every_s = list_every_s
        self._slice_size = slice_size
        self._changed = threading.Condition()
        self._known: dict[str, TopicDescription] = {}
        self._known_written: dict[str, TopicDescription] = {}
        self._era = 0
        self._fresh = True
        self._error: MissingSourceTopicException | None = None
        self._incident: frozenset[tuple[str, str, str]] = frozenset()
        self._reported: frozenset[tuple[str, str, str]] = frozenset()
        self._dropped: tuple[str, ...] = ()
        self._lost: dict[str, LostTopicException] = {}
        self._lost_reported: frozenset[tuple[str, str, str]] = frozenset()
        self._asked = 0
        self._answered = 0
        self._failed_looks = 0
        self._seen: dict[str, TopicDescription] = {}
        self._all: tuple[str, ...] = ()
        self._next = 0
        self._listed: tuple[str, ...] = ()
        self._list_at = float("-inf")
        self._closed = False
        thread = f"{client_id}-GlobalTopicWatch" if of_global_tables else f"{client_id}-TopicWatch"
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)

    def baseline(self, descriptions: Mapping[str, TopicDescription]) -> None:
        """Set the client's initial topics: named ones, patterns' topics, and written ones. Earlier reports
        are forgotten.
        """
        with self._changed:
            self._known_written = {
                name: found for name, found in descriptions.items() if name in self._written
            }
            self._known = {name: found for name, found in descriptions.items() if name not in self._written}
            self._era += 1
            self._fresh = True
            self._publish(TopicNews(), {})
            self._reported = self._lost_reported = frozenset()

    def start(self) -> None:
        """Start checking, after `baseline`. Does nothing if there is nothing to check."""
        if self._names or self._patterns or self._written:
            self._thread.start()

    def close(self, timeout_s: float = 5.0) -> bool:
        """Stop checking. Returns whether the thread has ended. Nothing new is reported from now on.
        Idempotent.

        A check of a cluster that does not answer may delay the thread's end.
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

    def look_now(self, timeout_s: float = 2.0) -> MissingSourceTopicException | LostTopicException | None:
        """What a fresh, confirmed check finds wrong that affects the whole client; None: nothing.

        These are problems with sources, else with internal topics. Used for a failure that may have the same
        cause. If the answer does not come in time, or the watch is not running, it is the last confirmed one.
        While an incident lasts, this and `on_missing` give the very same exception.
        """
        self._ask(timeout_s)
        with self._changed:
            if self._error is not None:
                return self._error
            return next((error for error in self._lost.values() if self._is_state(error.topics)), None)

    def lost(self, pipeline: str, timeout_s: float = 2.0) -> LostTopicException | None:
        """What a fresh, confirmed check finds wrong with the pipeline's outputs; None: nothing."""
        self._ask(timeout_s)
        with self._changed:
            return self._lost.get(pipeline)

    def lost_of(self, topics: Iterable[str]) -> LostTopicException | None:
        """The last confirmed problem with any of these written topics; None: there is none."""
        names = set(topics)
        with self._changed:
            return next((error for error in self._lost.values() if names.intersection(error.topics)), None)

    def dropped(self, timeout_s: float = 0.0) -> tuple[str, ...]:
        """The topics that patterns have lost so far, in order; with a timeout, after a fresh, confirmed
        check."""
        if timeout_s:
            self._ask(timeout_s)
        with self._changed:
            return self._dropped

    def missing_topics(self) -> tuple[str, ...]:
        """The sources that are confirmed to be missing, deleted or re-created, sorted."""
        with self._changed:
            return () if self._error is None else self._error.topics

    def _ask(self, timeout_s: float) -> None:
        """Have everything checked, and wait for that."""
        with self._changed:
            if self._thread.is_alive() and self._thread is not threading.current_thread():
                self._asked += 1
                ticket = self._asked
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._answered >= ticket or self._closed, timeout_s)

    # --- on the thread itself ----------------------------------------------------------------------------

    def _run(self) -> None:
        pause_s = self._interval_s
        while self._wait(pause_s):
            with self._changed:
                ticket = self._asked
                everything = ticket > self._answered
            began = time.monotonic()
            try:
                calls = self._look(everything)
            except StreamsException as error:
                # Nothing is known, so nothing is reported.
                self._failed_looks += 1
                if self._failed_looks == 1:
                    log.warning("the application's topics cannot be checked at present: %s", error)
                pause_s = min(_LONGEST_PAUSE_S, self._interval_s * 2 ** min(self._failed_looks, 10))
                calls = []
            except Exception:
                # A watch that ended here would leave a client that never notices a deleted topic.
                self._failed_looks += 1
                log.exception("checking the application's topics failed; the watch continues")
                pause_s = _LONGEST_PAUSE_S
                calls = []
            else:
                if self._failed_looks:
                    log.info("the application's topics can be checked again")
                self._failed_looks = 0
                pause_s = pause_after(time.monotonic() - began, self._interval_s)
            with self._changed:
                self._answered = ticket
                self._changed.notify_all()
            for call in calls:
                self._call(call)

    def _wait(self, pause_s: float) -> bool:
        """Wait until the next check is due or requested; False: there is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._asked > self._answered, pause_s)
            return not self._closed

    def _look(self, everything: bool) -> list[Callable[[], None]]:
        """Check the next slice, or all of them. Returns the reports to make.

        Raises:
            StreamsException: the cluster did not answer.
        """
        with self._changed:
            era, fresh = self._era, self._fresh
            if fresh:
                self._seen = {**self._known, **self._known_written}
            expected = self._seen.keys() | set(self._names)
        self._list(anew=False)
        news = fresh
        for names in self._slices(everything or fresh, expected):
            news = self._see(names, expected if fresh else frozenset()) or news
        if news and self._patterns and not self._known.keys() <= self._seen.keys():
            # Whether a pattern no longer matches anything depends on topics that may be new.
            self._list(anew=True)
            self._see(self._listed, frozenset())
        with self._changed:
            if self._closed or era != self._era:
                return []  # a new baseline has been set meanwhile
            self._fresh = False
            return self._take_in() if news else []

    def _slices(self, everything: bool, expected: Iterable[str]) -> list[tuple[str, ...]]:
        names = sorted({*expected, *self._known, *self._listed, *self._written})
        if everything or len(names) <= self._slice_size:
            self._next = 0
            return [tuple(names[at : at + self._slice_size]) for at in range(0, len(names), self._slice_size)]
        begin = self._next if self._next < len(names) else 0
        self._next = begin + self._slice_size
        return [tuple(names[begin : self._next])]

    def _see(self, names: Sequence[str], unsure: Iterable[str]) -> bool:
        """Check these topics. Returns whether anything has changed. Bad news is confirmed, and so are missing
        topics among `unsure`.
        """
        found = self._topics.look(names)
        suspects = [
            name
            for name in names
            if (name not in found and (name in self._seen or name in unsure))
            or (name in found and name in self._seen and found[name].topic_id != self._seen[name].topic_id)
        ]
        if suspects:
            sure = self._topics.confirm(suspects)
            found = {name: each for name, each in found.items() if name not in suspects} | sure
        news = False
        for name in names:
            old, new = self._seen.get(name), found.get(name)
            if _identity(old) != _identity(new):
                news = True
            if new is None:
                self._seen.pop(name, None)
            else:
                self._seen[name] = new
        return news

    def _list(self, *, anew: bool) -> None:
        """Find the topics that patterns match. The names of a cluster are a long list, so not in each
        check."""
        began = time.monotonic()
        if self._patterns and (anew or began >= self._list_at):
            self._listed = matching_topics(self._patterns, self._topics.names(), self._application_id)
            now = time.monotonic()
            self._list_at = now + max(self._list_every_s, _LIST_SHARE * (now - began))

    def _publish(self, news: TopicNews, lost: dict[str, LostTopicException]) -> None:
        """Set the answers to later queries. The lock is held."""
        if news.incident != self._incident:
            self._incident = news.incident
            self._error = missing_error(news, self._servers, of_global_tables=self._of_global_tables)
        self._lost = lost

    def _take_in(self) -> list[Callable[[], None]]:
        """Compare the current topics with the known ones. Returns the reports to make. The lock is held."""
        sources = {name: each for name, each in self._seen.items() if name not in self._written}
        news = compare(self._known, sources, names=self._names, patterns=self._patterns)
        more, lost = self._take_in_written()
        self._publish(news, lost)
        calls: list[Callable[[], None]] = []
        error = self._error
        if error is not None and not self._incident <= self._reported:
            calls.append(lambda: self._on_missing(error))
        self._reported = self._incident
        calls += more
        grown = {
            **{name: (0, sources[name]) for name in news.appeared},
            **{name: (then, sources[name]) for name, (then, _) in news.grown.items()},
        }
        if news.dropped:
            self._dropped += news.dropped
            number = len(self._dropped)
            for name in news.dropped:
                del self._known[name]
            log.info("topics that a pattern matched are gone: %s", _list(news.dropped))
            calls.append(lambda: self._on_dropped(news.dropped, number))
        for name in (*news.arrived, *grown):
            self._known[name] = sources[name]
        if news.arrived:
            log.info("source topics %s now exist", _list(news.arrived))
            calls.append(lambda: self._on_cleared(news.arrived))
        if grown:
            log.info(
                "source topics have more partitions: %s",
                ", ".join(f"'{name}' {then} -> {now.partitions}" for name, (then, now) in grown.items()),
            )
            calls.append(lambda: self._on_grown(grown))
        return calls

    def _take_in_written(self) -> tuple[list[Callable[[], None]], dict[str, LostTopicException]]:
        """The same for written topics. Returns the reports to make, and the current problems."""
        written = {name: self._seen[name] for name in self._written if name in self._seen}
        news = compare(self._known_written, written, names=())
        gone = {name for what, name, _ in self._lost_reported if what == "deleted"}
        back = {name for name in news.recreated if name in gone and not self._written[name].role.is_internal}
        if back:
            log.info("output topics exist again: %s", _list(sorted(back)))
        news = replace(
            news, recreated={name: ids for name, ids in news.recreated.items() if name not in back}
        )
        lost = lost_errors(news, self._written.values(), self._servers)
        fresh = {name for _, name, _ in news.incident - self._lost_reported}
        calls: list[Callable[[], None]] = [
            self._lost_call(pipeline, error)
            for pipeline, error in lost.items()
            if any(name in fresh for name in error.topics)
        ]
        self._lost_reported = news.incident
        # The writer of an output continues with the new one, once notified; nothing is read from it.
        again = {name for name in news.recreated if not self._written[name].role.is_internal}
        for name in (*back, *again, *news.appeared, *news.grown):
            self._known_written[name] = written[name]
        remaining = replace(
            news, recreated={name: ids for name, ids in news.recreated.items() if name not in again}
        )
        return calls, lost_errors(remaining, self._written.values(), self._servers)

    def _is_state(self, topics: Iterable[str]) -> bool:
        """Whether an internal topic of the application is among these."""
        return any(self._written[name].role.is_internal for name in topics)

    def _lost_call(self, pipeline: str, error: LostTopicException) -> Callable[[], None]:
        return lambda: self._on_lost(pipeline, error)

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            # The watch must survive failing callbacks, or the next incident would go unnoticed.
            log.exception("an event about the topics could not be handled; the watch continues")


def _identity(found: TopicDescription | None) -> tuple[str, int] | None:
    return None if found is None else (found.topic_id, found.partitions)


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
