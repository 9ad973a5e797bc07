"""Members of a real group that say what they like, beside honest clients: those never end in ERROR for it.

The broker, the group and the claims of the checkpoints are real; what would be Spark is the fake engine, as
no record is processed here.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_ports import FakeEngine
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.config import StreamsConfig
from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Consumed, Materialized
from millstream.errors import StreamsException, TaskAssignmentException
from millstream.group.userdata import Assignment, MemberInfo, Program
from millstream.group.userdata_layout import LATEST_OFFSET, SubscriptionInfo
from millstream.kafka.membership import KafkaMembership
from millstream.model import TaskId, TopicPartition
from millstream.runtime.client import KafkaStreams
from millstream.runtime.state.failure import StreamThreadExceptionResponse as Response
from millstream.runtime.wiring import real_parts
from millstream.serdes.serdes import Serdes
from millstream.states import State
from millstream.topology.topology import Topology

pytestmark = pytest.mark.kafka

TOPIC = "rogues-lines"
QUICK = {"consumer.session.timeout.ms": 6000, "consumer.heartbeat.interval.ms": 200}


def tables() -> Topology:
    """No pipeline: nothing that a checkpoint could tell about."""
    builder = StreamsBuilder()
    builder.table(TOPIC, Consumed.with_(Serdes.string(), Serdes.string()), Materialized.as_("lines"))
    return builder.build()


def counts() -> Topology:
    """One pipeline, `p0`, and a store."""
    builder = StreamsBuilder()
    stream = builder.stream(TOPIC, Consumed.with_(Serdes.string(), Serdes.string()))
    stream.group_by_key().count(Materialized.as_("counts"))
    return builder.build()


class Rogue:
    """A member that says what `says` makes, and as the leader answers what `leads` makes.

    Attributes:
        told: what it was assigned.
    """

    def __init__(
        self,
        says: Callable[[], bytes],
        leads: Callable[[Mapping[str, bytes]], Mapping[str, bytes]] | None = None,
    ) -> None:
        self._says = says
        self._leads = leads
        self.told: list[Assignment] = []

    def user_data(self) -> bytes:
        return self._says()

    def lead(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        if self._leads is None:
            return dict.fromkeys(members, Assignment(leader="rogue").encode())
        return self._leads(members)

    def partitions(self, assignment: bytes) -> Iterable[TopicPartition]:
        return ()

    def assigned(self, assignment: bytes, generation: int) -> None:
        self.told.append(Assignment.decode(assignment))

    def lost(self, reason: str) -> None: ...

    def failed(self, error: StreamsException) -> None:
        raise AssertionError("the rogue itself was refused") from error

    def tick(self) -> None: ...


class Overheard:
    """An honest member, and what it has said last: everybody in its group can read it."""

    def __init__(self, member: Any, said: dict[str, bytes], name: str) -> None:
        self._member = member
        self._said = said
        self._name = name

    def user_data(self) -> bytes:
        data: bytes = self._member.user_data()
        self._said[self._name] = data
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._member, name)


@dataclass
class Application:
    """Honest clients of one application, and the rogues in its group."""

    kafka: EmbeddedKafka
    path: Path
    topology: Callable[[], Topology]
    application_id: str = field(default_factory=lambda: f"rogues-{uuid.uuid4().hex[:8]}")
    clients: list[KafkaStreams] = field(default_factory=list)
    rogues: list[KafkaMembership] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    said: dict[str, bytes] = field(default_factory=dict)

    def config(self, name: str) -> dict[str, object]:
        return {
            "application.id": self.application_id,
            "bootstrap.servers": self.kafka.bootstrap_servers,
            "state.dir": str(self.path / name),
            "client.id": name,
            **QUICK,
        }

    def client(self, name: str, answer: Response | None = None) -> KafkaStreams:
        """An honest client, which has been started. Without an answer it has no handler."""
        real = real_parts()

        def membership(config: StreamsConfig, member: Any, *arguments: Any, **more: Any) -> Any:
            return real.membership(config, Overheard(member, self.said, name), *arguments, **more)

        parts = replace(real, engine=lambda *_: FakeEngine(), membership=membership)
        client = KafkaStreams(self.topology(), self.config(name), parts=parts)
        if answer is not None:
            given = answer

            def handler(error: BaseException) -> Response:
                self.errors.append(error)
                return given

            client.set_uncaught_exception_handler(handler)
        self.clients.append(client)
        client.start()
        return client

    def join(self, rogue: Rogue) -> KafkaMembership:
        """Let it into the group."""
        config = StreamsConfig(self.config("rogue"))
        membership = KafkaMembership(config, rogue, [TOPIC], client_id=f"rogue-{len(self.rogues)}")
        self.rogues.append(membership)
        membership.start()
        return membership

    def close(self) -> None:
        for rogue in self.rogues:
            rogue.close(5)
        for client in self.clients:
            client.close()

    def honest_word(self) -> MemberInfo:
        """What the client with most to lose has said of itself last."""
        said = [MemberInfo.from_subscription(SubscriptionInfo.decode(data)) for data in self.said.values()]
        return max(said, key=lambda info: (len(info.running), len(info.tasks)))


def held(*clients: KafkaStreams) -> list[str]:
    """The tasks, on whichever client."""
    threads = [thread for client in clients for thread in client.metadata_for_local_threads()]
    return sorted(str(task.task_id) for thread in threads for task in thread.active_tasks)


ALL = ["0_0", "0_1", "0_2", "0_3"]


Make = Callable[[Callable[[], Topology]], Application]


@pytest.fixture(scope="module")
def broker(kafka: EmbeddedKafka) -> EmbeddedKafka:
    """With the topic that all of them read."""
    kafka.create_topic(TOPIC, partitions=4)
    return kafka


@pytest.fixture
def application(broker: EmbeddedKafka, tmp_path: Path) -> Iterator[Make]:
    """Makes applications with a group of their own; none of their members outlives the test."""
    made: list[Application] = []

    def make(topology: Callable[[], Topology]) -> Application:
        made.append(Application(broker, tmp_path / str(len(made)), topology))
        return made[-1]

    yield make
    for each in made:
        each.close()


def running(client: KafkaStreams) -> bool:
    assert client.state is not State.ERROR, client.health
    return client.state is State.RUNNING


def boasting(**more: object) -> MemberInfo:
    """A member of another program that says it holds a lot."""
    return replace(
        MemberInfo(
            process_id=uuid.UUID(int=0),
            client_id="rogue\n\x1b[2J",
            topology="bigger",
            running=frozenset(TaskId(9, number) for number in range(200)),
            tasks=dict.fromkeys((TaskId(9, number) for number in range(16_000)), LATEST_OFFSET),
            program=Program((TaskId(9, 0),), (TaskId(9, 0),)),
        ),
        **more,  # type: ignore[arg-type]
    )


def encoded(info: MemberInfo) -> bytes:
    return info.to_subscription().encode()


@pytest.mark.parametrize("topology", [tables, counts])
def test_honest_clients_go_on_beside_members_that_only_talk(
    application: Make, topology: Callable[[], Topology], caplog: pytest.LogCaptureFixture
) -> None:
    """Neither 16,000 tasks, nor a bigger program, nor a copied process id, nor unreadable bytes
    take the work of clients that have no handler; and no name of a rogue's forges a line of the log.
    """
    app = application(topology)
    clients = [app.client("first"), app.client("second")]

    def all_run(when: str) -> None:
        wait_until(lambda: all(running(client) for client in clients), f"both run {when}")
        if topology is counts:
            wait_until(lambda: held(*clients) == ALL, f"all tasks are there {when}")

    all_run("before")
    mass = "16,000 tasks of the same program"
    # Made when it is told: by then the honest ones have said what they hold.
    stories: dict[str, Callable[[MemberInfo], bytes]] = {
        mass: lambda real: encoded(replace(boasting(), topology=real.topology)),
        "a bigger program": lambda real: encoded(boasting()),
        "a copied process id": lambda real: encoded(replace(boasting(), process_id=real.process_id)),
        "all that another one says": lambda real: encoded(replace(real, topology="other")),
        "nothing": lambda real: b"",
    }
    for story, said in stories.items():
        real = app.honest_word()
        assert story == mass or bool(real.running) == (topology is counts)
        rogue = Rogue(partial(said, real))
        membership = app.join(rogue)
        wait_until(partial(bool, rogue.told), f"the leader has answered: {story}")
        all_run(f"beside {story}")
        answer = rogue.told[-1]
        assert answer.leader in ("first", "second")
        assert not answer.runs, story
        assert bool(answer.reason) == (story != mass), story
        membership.close(5)
        all_run(f"after {story}")
    logged = [each.getMessage() for each in caplog.records if each.name.startswith("millstream.group")]
    assert all(line.isprintable() for line in logged)
    assert any("rogue\\n\\x1b[2J" in line for line in logged)
    assert sum("16,000 task(s)" in line for line in logged) == 1, "once, not in each round"


def test_what_a_rogue_leader_gives_is_refused_and_heals_when_it_leaves(
    application: Make,
) -> None:
    """It joined first, so it leads, which nothing prevents. That ends loudly, and not for good."""
    app = application(counts)

    def nonsense(members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        given = Assignment(active=(TaskId(0, 0), TaskId(99, 0)), leader="rogue\nleader")
        return dict.fromkeys(members, given.encode())

    rogue = Rogue(lambda: encoded(boasting()), nonsense)
    membership = app.join(rogue)
    wait_until(lambda: rogue.told, "the rogue leads")
    patient, strict = app.client("patient", Response.REPLACE_THREAD), app.client("strict")
    wait_until(lambda: app.errors, "the handler is asked")
    assert isinstance(app.errors[0], TaskAssignmentException)
    assert (
        "client 'rogue\\nleader', assigned work to this client that its topology does not have: "
        "'99_0'" in str(app.errors[0])
    )
    wait_until(lambda: strict.state is State.ERROR, "without a handler the client ends")
    membership.close(5)
    wait_until(lambda: running(patient), "the patient one runs when the rogue has left")
    wait_until(lambda: held(patient) == ALL, "it has all tasks")


def test_a_group_that_the_broker_cannot_keep_comes_back_when_the_member_leaves(application: Make) -> None:
    """User data of more than a megabyte: nobody has a group meanwhile, and nobody ends for it."""
    app = application(tables)
    client = app.client("first")
    wait_until(lambda: running(client), "it runs")
    rogue = Rogue(partial(bytes, b"\0" * 1_100_000))
    membership = app.join(rogue)
    wait_until(lambda: client.health.status == "lost", "the group is gone")
    assert client.state is not State.ERROR
    membership.close(5)
    wait_until(lambda: running(client), "it runs again")
    assert not rogue.told
