"""What a group assignment means for a client, and what the client reports to the group in return. Pure.

The membership (kafka/membership.py) carries bytes; `group/` knows their content and how the leader decides.
`react` is the table of Kafka's assignment error codes; the rest is what reactions.py does about events of the
group and of the topics.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from millstream.errors import (
    ApplicationShutdownException,
    LostTopicException,
    MissingSourceTopicException,
    StreamsException,
    TaskAssignmentException,
)
from millstream.foreign import listed, printable
from millstream.group.codes import AssignorError
from millstream.group.userdata import MOST_REASON_CHARS, Assignment
from millstream.model import TaskId
from millstream.ports import TopicDescription
from millstream.runtime.state.assignment import Share
from millstream.runtime.state.events import (
    Assigned,
    DropTopics,
    FailThread,
    GrowTopics,
    KeepWarm,
    Reported,
    TakeAgreement,
    TopicsDropped,
)
from millstream.runtime.state.failure import Failure
from millstream.runtime.state.holdings import missing_standbys
from millstream.runtime.state.turn import Turn

__all__ = [
    "WARM_TOGETHER_S",
    "FailThreads",
    "Reaction",
    "ShutDown",
    "TakeWork",
    "agreement_asked",
    "assigned",
    "failed",
    "lost",
    "react",
    "report_serdes",
    "report_warm",
    "reported",
    "topics_dropped",
    "topics_grown",
    "topics_lost",
]

WARM_TOGETHER_S = 10.0
"""How long a task that has warmed up waits for the others that are warming up on this client."""


@dataclass(frozen=True)
class TakeWork:
    """The assignment is this client's work."""

    assignment: Assignment


@dataclass(frozen=True)
class ShutDown:
    """Another client has asked all clients to shut down: to ERROR, without calling the handler."""

    error: ApplicationShutdownException


@dataclass(frozen=True)
class FailThreads:
    """Every stream thread fails with this exception."""

    error: StreamsException


Reaction = TakeWork | ShutDown | FailThreads


def react(assignment: Assignment, client_id: str) -> Reaction:
    """What an assignment means for this client.

    Source: org.apache.kafka.streams.processor.internals.StreamsRebalanceListener.onPartitionsAssigned.
    """
    leader = printable(assignment.leader)
    reason = printable(assignment.reason, MOST_REASON_CHARS)
    match assignment.error_code:
        case AssignorError.NONE | AssignorError.VERSION_PROBING:
            return TakeWork(assignment)
        case AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA:
            names = tuple(sorted(assignment.missing_topics))
            missing = listed(names) or "(not named)"
            return FailThreads(
                MissingSourceTopicException(
                    f"One or more source topics were missing during rebalance: {missing}, according to the "
                    f"group leader '{leader}'. Create them, or change the topology",
                    names,
                )
            )
        case AssignorError.SHUTDOWN_REQUESTED:
            who = printable(assignment.asked_by) or "(unknown)"
            asked = f"client '{who}'" if who != client_id else "this client"
            return ShutDown(
                ApplicationShutdownException(
                    "A Kafka Streams client in this Kafka Streams application is requesting to shutdown the "
                    f"application: {asked}, because of: {reason or '(no reason given)'}",
                    client=who,
                )
            )
        case AssignorError.ASSIGNMENT_ERROR:
            return FailThreads(
                TaskAssignmentException(
                    "Hit an unexpected exception during task assignment phase of rebalance: "
                    + (reason or f"see the log of the group leader '{leader}'")
                )
            )
        case code:
            return FailThreads(
                TaskAssignmentException(
                    f"Hit an unrecognized exception during rebalance: error code {int(code)} from "
                    f"'{leader}'; run the same version of Millstream on all clients"
                )
            )


# --- what happens in the group -----------------------------------------------------------------------------


def agreement_asked(turn: Turn) -> None:
    """A thread starts. After a failed assignment the group has to rebalance."""
    if turn.state.group.refused:
        turn.set_group(refused=False)
        turn.rejoin("a stream thread restarts after the group could not agree")


def reported(turn: Turn, event: Reported) -> None:
    """The client has reported to the group. It reports again what has changed since."""
    turn.set_group(
        reports=turn.state.group.reports + 1,
        reported_threads=event.threads,
        reported_running=event.running,
        reported_up_to_date=event.up_to_date,
        reported_serdes=event.serdes,
        reported_warm=frozenset(),
        warm_since=None,
    )
    turn.report_released()


def assigned(turn: Turn, event: Assigned) -> None:
    """The group has a new assignment."""
    turn.set_group(lost=None)
    if isinstance(event.assignment, StreamsException):
        reaction: Reaction = FailThreads(event.assignment)
    else:
        reaction = react(event.assignment, turn.state.about.client_id)
    if isinstance(reaction, TakeWork):
        tasks = turn.state.plan.tasks if turn.state.plan is not None else ()
        strange = unknown_work(reaction.assignment, tasks)
        reaction = reaction if strange is None else FailThreads(strange)
    turn.set_group(took_part=isinstance(reaction, TakeWork))
    match reaction:
        case TakeWork(assignment):
            _take_work(turn, assignment, event)
        case ShutDown(asked):
            turn.set_group(placement=None)
            if turn.state.is_wanted:
                turn.say(logging.ERROR, str(asked))
            turn.close_to_error(Failure(f"{turn.state.about.client_id}-GroupThread", asked))
        case FailThreads(error):
            turn.say(logging.ERROR, str(error))
            # The group has given this client's work to others. A thread that starts later makes it rebalance.
            turn.set_group(placement=None, refused=True)
            _let_all_go(turn)
            turn.fail_all(error)


def _take_work(turn: Turn, assignment: Assignment, event: Assigned) -> None:
    plan, state = turn.state.plan, turn.state
    threads = state.group.reported_threads if assignment.threads is None else assignment.threads
    turn.set_group(agreed=assignment, placement=event.placement, agreed_threads=threads, refused=False)
    turn.do(TakeAgreement(assignment))
    turn.say(
        logging.INFO,
        f"generation {event.generation}: tasks {_all_of(assignment.active)}, standbys "
        f"{_all_of(assignment.standby)}"
        + (f", not yet {_all_of(assignment.withheld)}" if assignment.withheld else ""),
    )
    _warn_too_few(turn, assignment)
    parts = plan.parts_of(assignment.active, assignment.standby) if plan is not None else ()
    runs = [task for task in assignment.runs if task.pipeline in state.about.pipelines]
    turn.set(roster=turn.state.roster.assigning(runs, parts))
    turn.hand_out()
    turn.report_released()
    report_serdes(turn)
    coming = any(task.pipeline in state.about.pipelines for task in assignment.warming)
    if not runs and (state.about.keeps_warm or coming) and not state.group.kept_warm:
        turn.set_group(kept_warm=True)
        turn.do(KeepWarm())


def _all_of(things: Iterable[object]) -> str:
    return ", ".join(map(str, things)) or "none"


def _warn_too_few(turn: Turn, assignment: Assignment) -> None:
    """The leader warns once that the group is too small for its standbys."""
    about, there = turn.state.about, len(assignment.members)
    missing = missing_standbys(about.standbys, there) if assignment.leader == about.client_id else 0
    if missing and not turn.state.group.warned_too_few:
        turn.say(
            logging.WARNING,
            f"num.standby.replicas is {about.standbys} and the application has {there} client(s), so each "
            f"task has {about.standbys - missing} standby(s); start {missing} more client(s), or configure "
            f"fewer standbys",
        )
    turn.set_group(warned_too_few=bool(missing))


def report_serdes(turn: Turn) -> None:
    """The pipelines are compiled. Clients that run none learn the resulting serdes from the group.

    Also checked after each assignment: one without the serdes may have been in progress when they were found.
    """
    group = turn.state.group
    alone = group.agreed is None or len(group.agreed.members) <= 1
    if not alone and turn.state.serdes != group.reported_serdes:
        turn.rejoin("the serdes of stores are known")


def report_warm(turn: Turn, tasks: frozenset[TaskId]) -> None:
    """Tasks that the group waits for to become active here are up to date, which the group does not know.

    They are reported together, because every report is a rebalance: the first one waits for the others, but
    not for one that takes long.
    """
    group = turn.state.group
    warming = frozenset() if group.agreed is None else frozenset(group.agreed.warming)
    warm = warming & tasks - group.reported_up_to_date
    if warm <= group.reported_warm:
        return
    since = turn.moment.now if group.warm_since is None else group.warm_since
    if warming <= tasks or turn.moment.now - since >= WARM_TOGETHER_S:
        turn.set_group(reported_warm=warm)
        turn.rejoin(f"warmed up here: task(s) {', '.join(map(str, sorted(warm)))}")
    else:
        turn.set_group(warm_since=since)


def lost(turn: Turn, reason: str) -> None:
    """The group has continued without this client."""
    turn.set_group(lost=reason, placement=None, took_part=False)
    turn.say(
        logging.WARNING,
        f"is no longer in its group: {reason}; it stops its pipelines and rejoins",
    )
    _let_all_go(turn)


def failed(turn: Turn, error: StreamsException) -> None:
    """The membership has ended for good: the threads fail, and a replacement joins again."""
    turn.set_group(lost=str(error), over=True, placement=None)
    _let_all_go(turn)
    turn.fail_all(error)


def _let_all_go(turn: Turn) -> None:
    roster, instructions = turn.state.roster.losing()
    turn.set(roster=roster)
    turn.do(*instructions)


def unknown_work(assignment: Assignment, tasks: Iterable[TaskId]) -> TaskAssignmentException | None:
    """Why an assignment cannot be done here: it names subtopologies that this topology lacks.

    A partition that this client does not know yet is not a reason: topics grow, and members notice it at
    different times.
    """
    subtopologies = {task.subtopology for task in tasks}
    strange = sorted(
        task for task in {*assignment.active, *assignment.standby} if task.subtopology not in subtopologies
    )
    if not strange:
        return None
    return TaskAssignmentException(
        f"the group's leader, client {listed([assignment.leader or '(not named)'])}, assigned work to this "
        f"client that its topology does not have: {listed(strange)}. It runs a different program: run the "
        f"same version on all clients, or stop that one; this client resumes once another client leads the "
        f"group"
    )


# --- topics ------------------------------------------------------------------------------------------------


def topics_grown(
    turn: Turn, grown: Mapping[str, tuple[int, TopicDescription]], tasks: Iterable[TaskId]
) -> None:
    """There are new partitions, or new topics that match a pattern. The plan includes them, so that the group
    assigns their tasks; and queries restart, so that tasks read topics that are new to them.
    """
    plan = turn.state.plan
    if plan is None:
        return
    topics = {name: topic for name, (_, topic) in grown.items()}
    turn.set(plan=replace(plan.with_tasks(tasks), sources={**plan.sources, **topics}))
    turn.say(
        logging.INFO,
        "source topics have more partitions, which are now read too: "
        + ", ".join(f"{name} {old} to {now.partitions}" for name, (old, now) in sorted(grown.items())),
    )
    for entry in turn.state.live:
        if turn.state.roster.given.get(entry.name, Share()).pipelines:
            turn.do(GrowTopics(entry.name, frozenset(topics)))
    turn.rejoin("source topics have more partitions")


def topics_dropped(turn: Turn, dropped: TopicsDropped) -> None:
    """Sources continue with what their patterns match: the client that runs a query restarts it."""
    plan = turn.state.plan
    if plan is None:
        return
    rest = {name: topic for name, topic in plan.sources.items() if name not in dropped.topics}
    turn.set(plan=replace(plan, sources=rest))
    for entry in turn.state.live:
        if turn.state.roster.given.get(entry.name, Share()).pipelines:
            turn.do(DropTopics(entry.name, dropped.topics, dropped.number))
    if turn.state.roster.held_runs:
        turn.rejoin("patterns have lost source topics")


def topics_lost(turn: Turn, pipeline: str, error: LostTopicException) -> None:
    """The threads that run the pipeline fail, and those with stores filled from a lost topic."""
    for entry in turn.state.live:
        share = turn.state.roster.given.get(entry.name, Share())
        if pipeline in share.pipelines or any(part.changelog.topic in error.topics for part in share.parts):
            turn.do(FailThread(entry.name, error))
