"""`millstream topics`: the topics that a program reads, writes and owns, and whether they exist."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.cluster import NOBODY, cluster_config, topics_of
from millstream.cli.command_settings import ApplicationId, BootstrapServer, ConfigFile, Setting
from millstream.cli.error_messages import Debug
from millstream.cli.output import Json, counted, print_as, table, yes
from millstream.cli.program import AppDir, Program, load_topology
from millstream.errors import StreamsException

if TYPE_CHECKING:
    from millstream.config import StreamsConfig
    from millstream.ports import TopicDescription, Topics
    from millstream.topology.internal_topics import InternalTopic, InternalTopics
    from millstream.topology.topology import Topology

__all__ = ["Need", "look", "needs_as_dict", "needs_table", "refuse_other_counts", "topics"]

_READS, _WRITES, _OWNS = "reads", "writes", "owns"
_ANY_ID = "<application.id>"


@dataclass(frozen=True, slots=True)
class Need:
    """A topic of a program.

    Attributes:
        uses: any of "reads", "writes" and "owns". The client creates what it owns.
        found: what there is; None: it does not exist, or its name is not known without an application.id.
        planned: the partitions that an owned topic needs; None: not known yet.
        problem: why the program cannot use what there is; "" if it can.
    """

    name: str
    uses: tuple[str, ...]
    found: TopicDescription | None = None
    planned: int | None = None
    problem: str = ""

    @property
    def is_owned(self) -> bool:
        return _OWNS in self.uses

    @property
    def is_missing(self) -> bool:
        """Whether somebody has to create it."""
        return self.found is None and not self.is_owned


def topics(
    program: Program,
    bootstrap_server: BootstrapServer = None,
    application_id: ApplicationId = None,
    create: Annotated[
        bool,
        typer.Option(
            "--create", help="Create the topics that the program reads or writes and that are missing."
        ),
    ] = False,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --create: the number of partitions of each. [default: the broker's num.partitions]",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --create: the replicas of each. [default: the broker's default.replication.factor]",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this topic. Can be given more than once."),
    ] = None,
    config_file: ConfigFile = None,
    set_: Setting = None,
    app_dir: AppDir = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the topics that a program reads, writes and owns, and whether they exist.

    A program never creates the topics that it shares with others; --create does. If one of them exists with
    other counts than those given, nothing is created. The client creates what it owns, changelogs and
    repartition topics, when it starts. Exit code 1 if a topic is missing or does not fit.
    """
    from millstream.topology.internal_topics import InternalTopic

    if not create and (partitions is not None or replication_factor is not None):
        raise typer.BadParameter(
            "--partitions and --replication-factor say what to create; give --create too",
            param_hint="--create",
        )
    topology = load_topology(program, app_dir)
    config = cluster_config(config_file, set_, bootstrap_server, application_id)
    made: list[str] = []
    with topics_of(config) as cluster:
        needs, problems = look(topology, config, cluster, topic)
        if create:
            refuse_other_counts(needs, partitions, replication_factor)
            made = [each.name for each in needs if each.is_missing]
            new = [InternalTopic(name, partitions or -1, {}) for name in made]
            cluster.create(new, replication_factor or -1)
            if made:
                needs, problems = look(topology, config, cluster, topic)
                # Somebody may have created one at the same moment.
                refuse_other_counts(needs, partitions, replication_factor)
    print_as(json, needs_as_dict(needs, made, problems), needs_table(needs, made, problems))
    if problems or any(each.is_missing or each.problem for each in needs):
        raise typer.Exit(1)


def look(
    topology: Topology, config: StreamsConfig, cluster: Topics, only: Collection[str] | None
) -> tuple[list[Need], list[str]]:
    """The topics with what exists of them, and what is in the way of the program as a whole.

    Args:
        only: the names of the topics that are wanted; None: all.

    Raises:
        typer.BadParameter: the program does not use one of those.
        StreamsException: the cluster does not answer.
    """
    from millstream.runtime.topics.preparation import with_existing_counts

    known = config.application_id != NOBODY
    names = cluster.names()
    needs = _needs_of(topology, names, config.application_id, config.dead_letter_topic)
    shared = cluster.confirm(each.name for each in needs)
    needs = [replace(each, found=shared.get(each.name)) for each in needs]
    problems: list[str] = []
    try:
        plan, certain = _plan(topology, config, shared)
        owned = {each.name for each in plan.topics}
        there = cluster.describe(owned & names) if known else {}
        if certain:
            plan = with_existing_counts(plan, there, topology, config.application_id)
        needs += [_with_found(each, there.get(each.name), certain=certain) for each in plan.topics]
    except StreamsException as error:
        problems.append(str(error))
    if not known:
        needs = [replace(each, name=each.name.replace(NOBODY, _ANY_ID, 1)) for each in needs]
    if only:
        strange = [name for name in only if name not in {each.name for each in needs}]
        if strange:
            raise typer.BadParameter(
                f"the program does not use topic '{strange[0]}'; it uses "
                + ", ".join(f"'{each.name}'" for each in needs),
                param_hint="--topic",
            )
        needs = [each for each in needs if each.name in only]
    return needs, problems


def _needs_of(
    topology: Topology, existing: Collection[str], application_id: str, dead_letters: str | None
) -> list[Need]:
    """The topics that a program shares with others: first those it reads, then those it only writes.

    Args:
        existing: the cluster's topics, for sources with a pattern.
        dead_letters: the topic for records that fail, if there is one.
    """
    from millstream.runtime.topics.preparation import sink_topics
    from millstream.runtime.topics.topic_news import matching_topics, source_patterns

    read = {
        *topology.source_topics,
        *topology.global_topics,
        *matching_topics(source_patterns(topology.pipelines), existing, application_id),
    }
    written = {*sink_topics(topology.pipelines), *([] if dead_letters is None else [dead_letters])}
    needs = [Need(name, (_READS, _WRITES) if name in written else (_READS,)) for name in sorted(read)]
    return needs + [Need(name, (_WRITES,)) for name in sorted(written - read)]


def _plan(
    topology: Topology, config: StreamsConfig, shared: Mapping[str, TopicDescription]
) -> tuple[InternalTopics, bool]:
    """The internal topics, and whether their numbers of partitions are known. While a source is missing, only
    their names are.

    Raises:
        StreamsException: the sources that exist do not fit the program.
    """
    from millstream.topology.internal_topics import plan_internal_topics

    counts = {name: each.partitions for name, each in shared.items()}
    missing = [name for name in topology.source_topics if name not in counts]
    if missing:
        counts = dict.fromkeys([*counts, *missing], 1)
    plan = plan_internal_topics(topology, config.application_id, counts)
    return plan, not missing


def _with_found(topic: InternalTopic, found: TopicDescription | None, *, certain: bool) -> Need:
    """An internal topic and what there is of it.

    Args:
        certain: the program's sources exist, and so its number of partitions is known.
    """
    from millstream.runtime.topics.preparation import check_internal

    need = Need(topic.name, (_OWNS,), found, topic.partitions if certain else None)
    if found is None or not certain:
        return need
    try:
        check_internal(topic, found)
    except StreamsException as error:
        return replace(need, problem=str(error))
    return need


def refuse_other_counts(
    needs: Iterable[Need], partitions: int | None, replication_factor: int | None
) -> None:
    """Whether the shared topics that exist have these counts; None: any will do.

    Raises:
        StreamsException: one has others.
    """
    other = []
    for need in needs:
        if need.is_owned or need.found is None:
            continue
        facts = []
        if partitions not in (None, need.found.partitions):
            facts.append(f"{counted(need.found.partitions, 'partition')}, not {partitions}")
        if replication_factor is not None and need.found.replicas not in (0, replication_factor):
            facts.append(f"{counted(need.found.replicas, 'replica')}, not {replication_factor}")
        if facts:
            other.append(f"'{need.name}' has {' and '.join(facts)}")
    if other:
        raise StreamsException(
            f"these topics exist already, with other counts: {'; '.join(other)}. Nothing was created or "
            "changed for them; leave out the counts, or say with --topic which topics to create"
        )


def needs_as_dict(needs: Sequence[Need], made: Collection[str], problems: Sequence[str]) -> dict[str, Any]:
    """Ready for `json.dumps`."""
    return {
        "topics": [
            {
                "topic": each.name,
                "uses": list(each.uses),
                "exists": None if _is_unknown(each) else each.found is not None,
                "partitions": None if each.found is None else each.found.partitions,
                "replicas": None if each.found is None else each.found.replicas or None,
                "planned_partitions": each.planned,
                "problem": each.problem or None,
            }
            for each in needs
        ],
        "created": list(made),
        "problems": list(problems),
    }


def needs_table(needs: Sequence[Need], made: Collection[str], problems: Sequence[str]) -> str:
    """A line for each topic, and what is in the way."""
    rows = [
        (
            each.name,
            ", ".join(each.uses),
            "-" if _is_unknown(each) else yes(each.found is not None),
            None if each.found is None else each.found.partitions,
            None if each.found is None else each.found.replicas or None,
            _remark(each, made),
        )
        for each in needs
    ]
    heads = ("topic", "use", "exists", "partitions", "replicas", "")
    lines = [table(heads, rows, right=("partitions", "replicas")), *problems]
    return "\n".join([*lines, *(each.problem for each in needs if each.problem)])


def _remark(need: Need, made: Collection[str]) -> str:
    if need.problem:
        return "does not fit"
    if need.name in made:
        return "created now"
    if _is_unknown(need):
        return "exists? name the application: --application-id"
    if need.found is not None:
        return ""
    if not need.is_owned:
        return "missing; --create creates it"
    counts = "" if need.planned is None else f", with {need.planned} partitions"
    return f"the client creates it{counts}"


def _is_unknown(need: Need) -> bool:
    return need.is_owned and need.name.startswith(_ANY_ID)
