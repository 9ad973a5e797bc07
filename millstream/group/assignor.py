"""The group leader's decision: one assignment for each member, whatever the members report.

The order of the decisions:

1. Each member's user data is decoded. A member with unreadable data gets an error, one with a newer version
   gets our version; the others continue without them.
2. If a member requests that all clients shut down, that is the whole answer, for every member (KIP-671).
3. Members with different topologies cannot share the work: those that already work stay, and the others learn
   why they cannot take part. Who took part in the previous assignment counts first. And no member holds work
   that the program does not have.
4. If source topics are missing, that is the answer (KIP-662).
5. Tasks are distributed (`balance`), with regard to racks if that is configured and they are known (KIP-925).
   One that has state is first warmed up at its destination (`warmed_up_first`). A task that moves is withheld
   until its holder has released it, so nothing that it has not committed is computed twice.

What members report is believed, as in Kafka Streams: whoever may join the group can only disturb it. A task
has one owner in any case, because the broker fences all others by their transactional id.

Kafka Streams (StreamsPartitionAssignor.assign) decides in the same order, without step 3. Because of it,
the leader itself may be excluded. Its knowledge of topics is then about another program, so it does not use
it, and leads with what the others report about their topology (`Program`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from millstream.errors import StreamsException, TaskAssignmentException
from millstream.foreign import listed, printable
from millstream.group.balance import Racks, Work, balance, by_process, warmed_up_first
from millstream.group.codes import AssignorError
from millstream.group.racks import RackRules, TaskRacks
from millstream.group.userdata import (
    MOST_REASON_CHARS,
    MOST_USER_DATA_BYTES,
    Assignment,
    MemberInfo,
    Program,
)
from millstream.group.userdata_layout import SubscriptionInfo
from millstream.model import TaskId

__all__ = ["LeaderFacts", "Memory", "assign"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeaderFacts:
    """The leader's own knowledge.

    Attributes:
        tasks, stateful, standby_replicas: what its own topology has, as in `Program`.
        max_warmups: how many tasks are warmed up at a time before they move; 0: they move at once.
        missing_topics: source topics of its topology that are confirmed to be missing.
        topology: its own topology's fingerprint, as `MemberInfo.topology`.
        tags: the names of the clients' tags that keep standbys apart.
        racks: whether the racks of clients and partitions count, and how much.
    """

    tasks: tuple[TaskId, ...] = ()
    stateful: tuple[TaskId, ...] = ()
    standby_replicas: int = 0
    max_warmups: int = 0
    missing_topics: tuple[str, ...] = ()
    topology: str = ""
    tags: tuple[str, ...] = ()
    racks: RackRules = field(default_factory=RackRules)


class Memory:
    """What a client keeps between the rounds that it leads.

    Attributes:
        known: the member of each process id, for those that took part in the previous assignment.
        side: their topology; None: there was no assignment.
        own: this client's own report for the current round, if it took part in the previous assignment, so
            that a first-time leader knows at least itself. Otherwise empty.
    """

    _MOST = 1000

    def __init__(self) -> None:
        self.known: Mapping[UUID, str] = {}
        self.side: str | None = None
        self.own = b""
        self._warned: set[str] = set()

    def warn(self, text: str, *arguments: object) -> None:
        """Log a warning, unless an earlier round logged it."""
        said = text % arguments
        if said not in self._warned:
            if len(self._warned) >= self._MOST:
                self._warned.clear()
            self._warned.add(said)
            log.warning("%s", said)

    def forget(self) -> None:
        """The group has continued without this client, so its earlier members are no longer known."""
        self.known, self.side, self.own = {}, None, b""


def assign(
    facts: LeaderFacts,
    members: Mapping[str, bytes],
    leader_client_id: str,
    memory: Memory | None = None,
    look_up: Callable[[], TaskRacks] = TaskRacks,
) -> Mapping[str, bytes]:
    """An assignment for each member, by member id, in bytes. Never raises.

    `look_up`: asks where the partitions of tasks are; only called if that matters. A StreamsException says
    why it is not known.

    Source: StreamsPartitionAssignor.assign. Differs: one member that cannot be read, or that runs another
    program, does not fail the others; each error says why.
    """
    try:
        answers = _decide(facts, members, leader_client_id, memory or Memory(), look_up)
        if answers.keys() != members.keys():
            raise TaskAssignmentException(f"{len(answers)} assignments were made for {len(members)} members")
        return {member: answer.encode() for member, answer in answers.items()}
    except Exception as error:
        # No member must be left without an answer, or the group would rebalance endlessly and silently.
        log.exception("Caught an error in the task assignment. Returning an error assignment.")
        reason = f"{leader_client_id!r}, which leads the group, failed: {type(error).__name__}: {error}"
        answer = _failed(reason.encode("utf-8", "replace").decode()).encode()
        return dict.fromkeys(members, answer)


def _decide(
    facts: LeaderFacts,
    members: Mapping[str, bytes],
    leader: str,
    memory: Memory,
    look_up: Callable[[], TaskRacks],
) -> dict[str, Assignment]:
    infos, answers = _read(members, memory)
    asking = [info for info in _ordered(infos) if info.error_code is AssignorError.SHUTDOWN_REQUESTED]
    if asking:
        return dict.fromkeys(members, _shutdown(asking, leader, memory))
    known, before = _recalled(infos, members, memory)
    single, twice = _one_process_each(infos, known, memory)
    same, odd = _one_program(single, known, before)
    for member, reason in {**odd, **twice}.items():
        memory.warn("Group member '%s' cannot take part: %s", printable(member), reason)
        answers[member] = _failed(reason)
    topology = next((info.topology for info in same.values()), facts.topology)
    if facts.missing_topics and topology == facts.topology:
        missing = tuple(sorted(facts.missing_topics))
        log.error("Missing source topics. [%s]", listed(missing))
        answer = Assignment(error_code=AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA, missing_topics=missing)
        answers.update(dict.fromkeys(same, answer))
    else:
        program = _program_of(facts, topology, same)
        fit = _possible(same, program, memory)
        racks = _racks(facts, topology, fit, memory, look_up)
        answers.update(_share(program, fit, facts, racks))
        several = Counter(info.process_id for info in fit.values())
        memory.known = {info.process_id: each for each, info in fit.items() if several[info.process_id] == 1}
        memory.side = next((info.topology for info in fit.values()), memory.side)
    return {
        member: replace(answer, leader=leader, threads=infos[member].threads if member in infos else None)
        for member, answer in answers.items()
    }


def _recalled(
    infos: Mapping[str, MemberInfo], members: Mapping[str, bytes], memory: Memory
) -> tuple[Mapping[UUID, str], str | None]:
    """The members that the leader knows from before, and their program: at least itself, if exactly one
    member reports what it has reported.
    """
    mine = [member for member in infos if memory.own and members[member] == memory.own]
    if len(mine) != 1:
        return memory.known, memory.side
    own = infos[mine[0]]
    return {own.process_id: mine[0], **memory.known}, memory.side or own.topology


def _ordered(infos: Mapping[str, MemberInfo]) -> list[MemberInfo]:
    return [infos[member] for member in by_process(infos)]


# --- 1. reading ------------------------------------------------------------------------------------------


def _read(
    members: Mapping[str, bytes], memory: Memory
) -> tuple[dict[str, MemberInfo], dict[str, Assignment]]:
    """The members' reports, and the answers to members with unreadable ones."""
    infos: dict[str, MemberInfo] = {}
    answers: dict[str, Assignment] = {}
    for member, data in members.items():
        try:
            if len(data or b"") > MOST_USER_DATA_BYTES:
                raise TaskAssignmentException(
                    f"they take {len(data):,} bytes, but the limit is {MOST_USER_DATA_BYTES:,}"
                )
            info = MemberInfo.from_subscription(SubscriptionInfo.decode(bytes(data or b"")))
        except TaskAssignmentException as error:
            memory.warn("Group member '%s' sent user data that cannot be read: %s", printable(member), error)
            answers[member] = _failed(
                f"your user data cannot be read: {error}. Run the same version of Millstream on all clients"
            )
            continue
        if info.is_future:
            log.info("Group member '%s' sent version %d, newer than ours", printable(member), info.version)
            answers[member] = Assignment(error_code=AssignorError.VERSION_PROBING)
        else:
            infos[member] = info
    return infos, answers


def _failed(reason: str) -> Assignment:
    return Assignment(error_code=AssignorError.ASSIGNMENT_ERROR, reason=reason[:MOST_REASON_CHARS])


# --- 2. shutting down ------------------------------------------------------------------------------------


def _shutdown(asking: Sequence[MemberInfo], leader: str, memory: Memory) -> Assignment:
    first = next((info for info in asking if info.reason), asking[0])
    memory.warn(
        "Client '%s' requests that all clients of the application shut down: %s",
        printable(first.client_id),
        printable(first.reason, MOST_REASON_CHARS),
    )
    return Assignment(
        error_code=AssignorError.SHUTDOWN_REQUESTED,
        reason=first.reason,
        asked_by=first.client_id,
        leader=leader,
    )


# --- 3. who belongs together -----------------------------------------------------------------------------


def _one_program(
    infos: Mapping[str, MemberInfo], known: Mapping[UUID, str], before: str | None
) -> tuple[dict[str, MemberInfo], dict[str, str]]:
    """The members that can share the work, and for each other one the reason why it cannot.

    Of several topologies, the one that already works stays: one that took part in the previous assignment. If
    that is not known, what members hold counts: most tasks that run, then most active ones; else most
    members; else the smallest process id.
    """
    sides: dict[str, list[str]] = {}
    for member in by_process(infos):
        sides.setdefault(infos[member].topology, []).append(member)
    if len(sides) <= 1:
        return dict(infos), {}

    def weight(side: str) -> tuple[bool, int, int, int]:
        of_side = {member: infos[member] for member in sides[side]}
        return (
            side == before and any(known.get(info.process_id) == each for each, info in of_side.items()),
            len(set().union(*(info.running for info in of_side.values()))),
            len(set().union(*(info.active_tasks for info in of_side.values()))),
            len(of_side),
        )

    # max() keeps the first of equals, and the sides are in the order of their smallest process id.
    chosen = max(sides, key=weight)
    others = _clients(infos[member] for member in sides[chosen])
    odd = {}
    for side, of_side in sides.items():
        if side != chosen:
            clients = _clients(infos[member] for member in of_side)
            reason = (
                f"{clients} run(s) a different topology ({_or_unknown(side)}) from {others} "
                f"({_or_unknown(chosen)}), which own(s) the work of this application. Run the same program "
                f"on all clients, or use another application.id"
            )
            odd.update(dict.fromkeys(of_side, reason))
    return {member: infos[member] for member in sides[chosen]}, odd


def _or_unknown(text: str) -> str:
    return printable(text, 100) or "not reported"


def _clients(infos: Iterable[MemberInfo]) -> str:
    return f"client(s) {listed(sorted({info.client_id for info in infos}), 5)}"


def _one_process_each(
    infos: Mapping[str, MemberInfo], known: Mapping[UUID, str], memory: Memory
) -> tuple[dict[str, MemberInfo], dict[str, str]]:
    """The members with unique process ids, and for each copy of one why it cannot take part.

    Of several members with the same id, the original is the one that had it in the previous assignment. If
    that is not known, all of them take part, and none is believed to hold anything.
    """
    by_id: dict[UUID, list[str]] = {}
    for member in sorted(infos):
        by_id.setdefault(infos[member].process_id, []).append(member)
    single, twice = dict(infos), {}
    for process_id, group in by_id.items():
        if len(group) == 1:
            continue
        before = known.get(process_id)
        if before not in group:
            memory.warn(
                "Group members %s have one process id, %s, and its owner cannot be determined: a state "
                "directory was copied, or one member impersonates another. The state that they claim to hold "
                "is ignored",
                listed(group, 5),
                process_id,
            )
            single.update({member: _holding_nothing(infos[member]) for member in group})
            continue
        for member in group:
            if member != before:
                del single[member]
                twice[member] = (
                    f"client {listed([infos[member].client_id])} has the process id {process_id} of client "
                    f"{listed([infos[before].client_id])}: its state directory is a copy. Delete the file "
                    "with the process id from the copy, or give the client an empty state.dir"
                )
    return single, twice


def _holding_nothing(info: MemberInfo) -> MemberInfo:
    return replace(info, running=frozenset(), stopping=frozenset(), tasks={}, up_to_date=frozenset())


def _possible(infos: Mapping[str, MemberInfo], program: Program, memory: Memory) -> dict[str, MemberInfo]:
    """The members with only the work that they can hold: that of the program."""
    found = {}
    for member, info in infos.items():
        found[member], strange = _only_known(info, program)
        if strange:
            memory.warn(
                "Group member '%s' claims %s task(s) that this application does not have; these claims are "
                "ignored: %s",
                printable(member),
                f"{len(strange):,}",
                listed(strange, 3),
            )
    return found


def _only_known(info: MemberInfo, program: Program) -> tuple[MemberInfo, list[TaskId]]:
    """A member without tasks that the program does not have; and these, in order."""
    tasks = frozenset(program.tasks)
    strange = (info.running | info.tasks.keys() | info.stopping | info.up_to_date) - tasks
    if not strange:
        return info, []
    kept = replace(
        info,
        running=info.running & tasks,
        stopping=info.stopping & tasks,
        tasks={task: offset for task, offset in info.tasks.items() if task in tasks},
        up_to_date=info.up_to_date & tasks,
    )
    return kept, sorted(strange)


# --- 4. and 5. the work ----------------------------------------------------------------------------------


def _program_of(facts: LeaderFacts, topology: str, fit: Mapping[str, MemberInfo]) -> Program:
    """The work to distribute: the leader's own knowledge, if it has the same topology; else what members
    report.

    If no member reports it, it is what they hold, so that nothing that runs is taken away until one of them
    leads.
    """
    if topology == facts.topology:
        return Program(facts.tasks, facts.stateful, facts.standby_replicas)
    said = [info.program for info in _ordered(fit) if info.program is not None]
    if said:
        return max(said, key=lambda program: len(program.tasks))  # topics may have grown since some checked
    held = {task for info in fit.values() for task in info.active_tasks | info.running}
    return Program(tuple(sorted(held)), tuple(sorted(held)))


def _racks(
    facts: LeaderFacts,
    topology: str,
    fit: Mapping[str, MemberInfo],
    memory: Memory,
    look_up: Callable[[], TaskRacks],
) -> Racks | None:
    """What it takes to count racks; None: they do not count. If that is not what was asked for, it is logged.

    Source: RackAwareTaskAssignor.canEnableRackAwareAssignor.
    """
    if not facts.racks.is_used or topology != facts.topology:
        return None
    able = [info for info in fit.values() if info.threads]
    without = sorted({info.client_id for info in able if not info.rack})
    if without:
        memory.warn("%s: client(s) %s have no client.rack", _NO_RACKS, listed(without, 5))
        return None
    if len({info.rack for info in able}) < 2:
        return None
    try:
        return Racks(facts.racks, look_up())
    except StreamsException as error:
        memory.warn("%s: %s", _NO_RACKS, error)
        return None


_NO_RACKS = "Tasks are assigned without regard to racks"


def _share(
    program: Program, fit: Mapping[str, MemberInfo], facts: LeaderFacts, racks: Racks | None
) -> dict[str, Assignment]:
    target = balance(fit, program, facts.tags, racks)
    work, warming = warmed_up_first(fit, target, program, facts.max_warmups)
    withheld = _withheld(work, fit)
    hosts: dict[str, tuple[tuple[TaskId, ...], tuple[TaskId, ...]]] = {}
    members: dict[str, tuple[TaskId, ...]] = {}
    serdes: dict[str, tuple[str, str]] = {}
    for member in by_process(fit):
        info, gets = fit[member], work[member]
        if info.endpoint:
            active, standby = hosts.get(info.endpoint, ((), ()))
            hosts[info.endpoint] = (
                tuple(sorted({*active, *gets.active})),
                tuple(sorted({*standby, *gets.standby})),
            )
        runs = (task for task in gets.active if task not in withheld)
        members[info.client_id] = tuple(sorted({*members.get(info.client_id, ()), *runs}))
        for store, texts in info.serdes.items():
            serdes.setdefault(store, texts)
    return {
        member: Assignment(
            active=work[member].active,
            standby=work[member].standby,
            withheld=tuple(task for task in work[member].active if task in withheld),
            warming=warming.get(member, ()),
            hosts=hosts,
            members=members,
            serdes=serdes,
            rebalance_wanted=bool(withheld),
        )
        for member in by_process(fit)
    }


def _withheld(work: Mapping[str, Work], fit: Mapping[str, MemberInfo]) -> frozenset[TaskId]:
    """The tasks that no member runs in this round, because another member than the new owner still does.

    If the owner itself runs a task, it goes on, even if another member also claims it: that member has lost
    its membership and is stopping tasks that the broker has fenced, which must not stop a healthy one. If the
    owner is stopping the task, it waits for that other member like any new owner.
    Members that do not take part are not waited for: they stop everything when they learn it.
    """
    claims = Counter(task for info in fit.values() for task in info.running)

    def goes_on(owner: str, task: TaskId) -> bool:
        return task in fit[owner].running and task not in fit[owner].stopping

    return frozenset(
        task
        for owner, gets in work.items()
        for task in gets.active
        if claims[task] > (task in fit[owner].running) and not goes_on(owner, task)
    )
