"""Which parts of a member's user data are trusted. Pure.

Anyone with permission can join the group, and a member's user data is only its own claim. Decisions that
affect others need more than that: which program an application runs, and who has a pipeline. So a client that
claims a pipeline's checkpoint (checkpoints/fencing.py) leaves a random secret there, and proves that it knows
it: the *proof* in its user data is an HMAC over its process id. An eavesdropper in the group can repeat a
proof only together with the process id that it was made for, and two members with one process id are noticed.

A client that can read the checkpoints' files is trusted: it could take over the pipelines in any case.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from uuid import UUID

from millstream.errors import TaskAssignmentException
from millstream.foreign import listed
from millstream.group.userdata import Assignment, MemberInfo, Program
from millstream.model import TaskId

__all__ = ["Evidence", "PipelineOwner", "only_known", "proof", "unknown_work", "without_holdings"]

_MOST_LOOKUPS = 200
"""How many pipelines of one member are looked up in a round; further claims do not count."""


@dataclass(frozen=True)
class PipelineOwner:
    """Who last claimed a pipeline's checkpoint, according to its files.

    Attributes:
        holder: the client id; "": no one has claimed it yet.
        secret: the key of proofs; "": the claim was made by a version that left none.
    """

    holder: str = ""
    secret: str = field(default="", repr=False)


def proof(secret: str, process_id: UUID, pipeline: str) -> str:
    """The proof that a client has claimed a pipeline's checkpoint."""
    return hmac.new(secret.encode(), f"{process_id} {pipeline}".encode(), hashlib.sha256).hexdigest()[:32]


class Evidence:
    """What the checkpoints say about members' claims; read only if claims disagree.

    Args:
        owner_of: returns the owner of a pipeline; None: unknown, such as on a file system that the leader
            currently cannot reach.
    """

    def __init__(self, owner_of: Callable[[str], PipelineOwner | None]) -> None:
        self._ask = owner_of
        self._owners: dict[str, PipelineOwner | None] = {}

    def owner(self, pipeline: str) -> PipelineOwner | None:
        """A pipeline's owner; None: unknown."""
        if pipeline not in self._owners:
            self._owners[pipeline] = self._ask(pipeline)
        found = self._owners[pipeline]
        return None if found is not None and found.holder and not found.secret else found

    def proves(self, info: MemberInfo, pipeline: str) -> bool:
        """Whether the member has proven that the pipeline is its own."""
        owner, given = self.owner(pipeline), info.claims.get(pipeline, "")
        if owner is None or not owner.secret or pipeline not in info.pipelines:
            return False
        return hmac.compare_digest(
            given.encode("utf-8", "replace"), proof(owner.secret, info.process_id, pipeline).encode()
        )

    def proven(self, info: MemberInfo) -> frozenset[str]:
        """The pipelines that it has proven to be its own."""
        return frozenset(
            name for name in _first(info.pipelines & info.claims.keys()) if self.proves(info, name)
        )

    def plausible(self, info: MemberInfo) -> frozenset[str]:
        """The pipelines that it claims to hold, without those that belong to others by the checkpoints."""
        return frozenset(
            name for name in _first(info.pipelines) if self.owner(name) is None or self.proves(info, name)
        )


def _first(pipelines: Iterable[str]) -> list[str]:
    return sorted(pipelines)[:_MOST_LOOKUPS]


def only_known(info: MemberInfo, program: Program) -> tuple[MemberInfo, str]:
    """A member without pipelines and tasks that the program does not have; and what was removed."""
    pipelines, tasks = frozenset(program.pipelines), frozenset(program.tasks)
    no_pipelines, no_tasks = info.pipelines - pipelines, info.tasks.keys() - tasks
    if not (no_pipelines or no_tasks or info.stopping - pipelines or info.up_to_date - tasks):
        return info, ""
    parts = []
    if no_pipelines:
        parts.append(f"{len(no_pipelines):,} pipeline(s): {listed(sorted(no_pipelines), 3)}")
    if no_tasks:
        parts.append(f"{len(no_tasks):,} task(s): {listed(sorted(no_tasks), 3)}")
    kept = replace(
        info,
        pipelines=info.pipelines & pipelines,
        stopping=info.stopping & pipelines,
        tasks={task: offset for task, offset in info.tasks.items() if task in tasks},
        up_to_date=info.up_to_date & tasks,
    )
    return kept, " and ".join(parts)


def unknown_work(
    assignment: Assignment, pipelines: Collection[str], tasks: Iterable[TaskId]
) -> TaskAssignmentException | None:
    """Why an assignment cannot be done here: it names pipelines or subtopologies that this topology lacks.

    A partition that this client does not know yet is not a reason: topics grow, and members notice it at
    different times.
    """
    subtopologies = {task.subtopology for task in tasks}
    strange: list[object] = [name for name in assignment.pipelines if name not in pipelines]
    strange += sorted(
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


def without_holdings(info: MemberInfo) -> MemberInfo:
    """A member as if it held nothing."""
    return replace(
        info, pipelines=frozenset(), stopping=frozenset(), claims={}, tasks={}, up_to_date=frozenset()
    )
