"""The embedded broker: a real one, started, used, disturbed, killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from forgetful_broker import ForgetfulBroker
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.broker.admin import Admin
from millstream.broker.broker_settings import broker_settings, properties_text
from millstream.broker.storage import with_new_ids
from millstream.class_data import Archive
from millstream.errors import BrokerException, IllegalStateException

DEADLINE_SECONDS = 30.0


def produce(broker: EmbeddedKafka, topic: str, *values: str) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log.connection.close": False})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert failures == []


def consume(broker: EmbeddedKafka, topic: str, count: int) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": f"read-{topic}",
            "auto.offset.reset": "earliest",
            "log.connection.close": False,
        }
    )
    consumer.subscribe([topic])
    values: list[str] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(values) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, 0.2):
            value = message.value()
            assert message.error() is None
            assert value is not None
            values.append(value.decode())
    consumer.close()
    return values


# --- topics, on the broker that all tests share ----------------------------------------------------------


@pytest.mark.kafka
def test_a_topic_can_be_created_listed_and_deleted(kafka: EmbeddedKafka) -> None:
    """The topic exists, or is gone, when the call returns."""
    kafka.create_topic("embedded-lines", partitions=3)
    assert "embedded-lines" in kafka.topics()
    kafka.delete_topic("embedded-lines")
    assert "embedded-lines" not in kafka.topics()


@pytest.mark.kafka
def test_a_topic_has_the_partitions_and_configs_it_was_given(kafka: EmbeddedKafka) -> None:
    """Kafka's own admin API reports them."""
    kafka.create_topic("embedded-table", 4, {"cleanup.policy": "compact", "segment.ms": "12345"})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    assert len(admin.list_topics(timeout=10).topics["embedded-table"].partitions) == 4
    resource = ConfigResource(ResourceType.TOPIC, "embedded-table")
    configs = admin.describe_configs([resource])[resource].result(10)
    assert (configs["cleanup.policy"].value, configs["segment.ms"].value) == ("compact", "12345")


@pytest.mark.kafka
def test_a_topic_that_exists_is_not_created_again(kafka: EmbeddedKafka) -> None:
    """It is an error that names it."""
    kafka.create_topic("embedded-twice")
    with pytest.raises(BrokerException, match="'embedded-twice' could not be created: TOPIC_ALREADY_EXISTS"):
        kafka.create_topic("embedded-twice")


@pytest.mark.kafka
def test_a_wrong_config_is_an_error_that_names_it(kafka: EmbeddedKafka) -> None:
    """No topic is created."""
    with pytest.raises(BrokerException, match="cleanup"):
        kafka.create_topic("embedded-wrong", configs={"cleanup.policy": "tidy"})
    assert "embedded-wrong" not in kafka.topics()


@pytest.mark.kafka
def test_a_missing_topic_cannot_be_deleted(kafka: EmbeddedKafka) -> None:
    """It is an error that names it."""
    with pytest.raises(BrokerException, match="'embedded-none' could not be deleted: UNKNOWN_TOPIC"):
        kafka.delete_topic("embedded-none")


@pytest.mark.kafka
def test_asking_for_a_topic_does_not_create_it(kafka: EmbeddedKafka) -> None:
    """KIP-662 needs a deleted topic to stay deleted, even when a client asks to have it created."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "allow.auto.create.topics": True})
    for _ in range(3):
        asked = producer.list_topics("embedded-asked", timeout=10).topics["embedded-asked"]
        assert asked.error is not None
        assert asked.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert "embedded-asked" not in kafka.topics()


@pytest.mark.kafka
def test_a_broker_that_was_forgotten_is_found_again(kafka: EmbeddedKafka) -> None:
    """One that is so busy that it misses its heartbeats says for a while that there are no brokers."""
    kafka.create_topic("embedded-forgotten")
    kafka.create_topic("embedded-stays")
    broker = ForgetfulBroker(kafka.bootstrap_servers)
    admin = Admin(broker.bootstrap_servers, {"metadata.recovery.strategy": "none"}, (0.5, 10.0, 20.0))
    try:
        for ask, there in (
            (lambda: None, True),
            (lambda: admin.delete("embedded-forgotten"), False),
            (lambda: admin.create("embedded-forgotten", 1, {}), True),
        ):
            assert "embedded-stays" in admin.names()
            broker.knows_brokers = False
            denied = broker.denied
            admin.names()
            assert broker.denied > denied
            broker.knows_brokers = True
            ask()
            assert ("embedded-forgotten" in admin.names()) == there
    finally:
        broker.close()


@pytest.mark.kafka
def test_it_listens_on_the_loopback_address_only(kafka: EmbeddedKafka) -> None:
    """Broker and controller alike: nobody else's machine may reach them."""
    listening = [
        connection.laddr.ip
        for connection in psutil.Process(kafka.pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) == 2
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    assert kafka.bootstrap_servers.startswith("127.0.0.1:")


@pytest.mark.kafka
def test_records_with_an_old_timestamp_stay(kafka: EmbeddedKafka) -> None:
    """They carry the time of their event; the broker's retention would delete them by it."""
    assert "log.retention.ms=-1\n" in (kafka.data_dir / "server.properties").read_text()


# --- its life --------------------------------------------------------------------------------------------


@pytest.mark.kafka
def test_two_brokers_run_side_by_side(kafka: EmbeddedKafka) -> None:
    """Each with its own port, data and topics; the temporary data go with the broker."""
    with EmbeddedKafka() as other:
        assert other.bootstrap_servers != kafka.bootstrap_servers
        assert other.data_dir != kafka.data_dir
        other.create_topic("embedded-other")
        assert other.topics() == {"embedded-other"}
        assert "embedded-other" not in kafka.topics()
        data, pid = other.data_dir, other.pid
    assert not data.exists()
    assert not psutil.pid_exists(pid)


@pytest.mark.kafka
def test_kept_data_are_there_after_a_restart(tmp_path: Path) -> None:
    """Topics, records and committed offsets, on another port."""
    with EmbeddedKafka(tmp_path / "data") as broker:
        broker.create_topic("lines", 2)
        produce(broker, "lines", "one", "two")
        assert sorted(consume(broker, "lines", 2)) == ["one", "two"]
        first = broker.pid
    assert not psutil.pid_exists(first)
    with EmbeddedKafka(tmp_path / "data") as broker:
        assert "lines" in broker.topics()
        produce(broker, "lines", "three")
        assert consume(broker, "lines", 1) == ["three"], "the group's offsets were kept"
        assert "broker.session" not in (broker.data_dir / "server.properties").read_text()
        assert (tmp_path / "data" / "broker.log.1").exists(), "the log of the run before is kept"


@pytest.mark.kafka
def test_kept_data_survive_a_broker_that_was_killed(tmp_path: Path) -> None:
    """What was acknowledged is read by the next one."""
    broker = EmbeddedKafka(tmp_path).start()
    broker.create_topic("lines")
    produce(broker, "lines", "one", "two")
    os.kill(broker.pid, signal.SIGKILL)
    assert broker.wait_until_ended(timedelta(seconds=DEADLINE_SECONDS))
    with pytest.raises(BrokerException, match="has ended, with exit code 137"):
        broker.topics()
    broker.close()
    with EmbeddedKafka(tmp_path) as again:
        # By default the new one would wait 9 s for the session of the old one to time out.
        assert "broker.session.timeout.ms=3000\n" in (again.data_dir / "server.properties").read_text()
        assert consume(again, "lines", 2) == ["one", "two"]


@pytest.mark.kafka
def test_closing_is_idempotent_and_final(kafka: EmbeddedKafka) -> None:
    """A closed broker is not used, and not started again; one that was never started has no address."""
    broker = EmbeddedKafka()
    with pytest.raises(IllegalStateException, match=r"not started; call start\(\)"):
        _ = broker.bootstrap_servers
    broker.close()
    broker.close()
    with pytest.raises(IllegalStateException, match="closed"):
        _ = broker.bootstrap_servers
    with pytest.raises(IllegalStateException, match="create a new one"):
        broker.start()
    with pytest.raises(IllegalStateException, match="create a new one"):
        kafka.start()
    assert kafka.is_running


# --- what goes wrong -------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    """The error is raised before anything is started."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            BrokerException, match=f"port {port} on 127.0.0.1 cannot be used: Address already"
        ):
            EmbeddedKafka(tmp_path / "data", port=port).start()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    """The error is raised immediately."""
    with pytest.raises(BrokerException, match=f"port {port} is not valid"):
        EmbeddedKafka(port=port)


@pytest.mark.kafka
def test_a_data_directory_in_use_is_named(tmp_path: Path) -> None:
    """The one who has it goes on."""
    with EmbeddedKafka(tmp_path) as broker:
        with pytest.raises(BrokerException, match=f"{tmp_path} is in use by another embedded broker"):
            EmbeddedKafka(tmp_path).start()
        assert broker.topics() == set()


@pytest.mark.kafka
def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    """A slip of the path must not scatter a broker's files over a project."""
    (tmp_path / "important.txt").write_text("mine")
    with pytest.raises(BrokerException, match=r"is not empty and is not the data directory .*important\.txt"):
        EmbeddedKafka(tmp_path).start()
    assert {entry.name for entry in tmp_path.iterdir()} == {"important.txt"}


@pytest.mark.kafka
def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """Here because a file is in the way."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BrokerException, match=f"{tmp_path}/file/data cannot be used: Not a directory"):
        EmbeddedKafka(tmp_path / "file" / "data").start()


@pytest.mark.kafka
def test_a_broker_that_does_not_start_shows_the_last_of_its_log(tmp_path: Path) -> None:
    """Kafka's own words are in the message, and nothing of it goes on running."""
    broker = EmbeddedKafka(tmp_path, settings={"num.io.threads": "0"})
    with pytest.raises(BrokerException) as caught:
        broker.start()
    assert "Invalid value 0 for configuration num.io.threads" in str(caught.value)
    assert "exit code 1" in str(caught.value)
    assert not broker.is_running


@pytest.mark.kafka
def test_a_broker_that_does_not_answer_in_time_is_ended(tmp_path: Path) -> None:
    """A start has a deadline."""
    broker = EmbeddedKafka(tmp_path, start_timeout=timedelta(milliseconds=50))
    with pytest.raises(BrokerException, match=r"did not answer on 127\.0\.0\.1:"):
        broker.start()
    assert not broker.is_running


# --- the processes ---------------------------------------------------------------------------------------

PARENT = Path(__file__).with_name("broker_parent.py")


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A Python process, in a process group of its own, that has started a broker."""
    process = subprocess.Popen(
        [sys.executable, str(PARENT)], stdout=subprocess.PIPE, text=True, process_group=0
    )
    yield process
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _line(process: subprocess.Popen[str]) -> dict[str, object]:
    assert process.stdout is not None
    answer: dict[str, object] = json.loads(process.stdout.readline())
    return answer


@pytest.mark.kafka
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_the_broker_ends_with_its_parent_however_that_ends(
    parent: subprocess.Popen[str], number: signal.Signals
) -> None:
    """Killed with -9 included; and the temporary data go too."""
    started = _line(parent)
    pid, data = int(str(started["pid"])), Path(str(started["data"]))
    assert psutil.pid_exists(pid)
    assert data.exists()
    parent.send_signal(number)
    wait_until(lambda: not psutil.pid_exists(pid), "the broker's process is gone")
    wait_until(lambda: not data.exists(), "its temporary data are gone")


@pytest.mark.kafka
def test_a_ctrl_c_reaches_the_parent_and_not_the_broker(parent: subprocess.Popen[str]) -> None:
    """The parent can still close its clients in order, and then the broker."""
    pid = int(str(_line(parent)["pid"]))
    os.killpg(parent.pid, signal.SIGINT)  # what a terminal does: the whole foreground process group
    assert _line(parent) == {"running": True, "topics": []}
    assert parent.wait(DEADLINE_SECONDS) == 0
    assert not psutil.pid_exists(pid)


# --- the class-data archive ------------------------------------------------------------------------------


@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_an_archive_is_made_once_used_and_never_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: EmbeddedKafka
) -> None:
    """The first start creates it. If it is damaged, brokers start without it."""
    from millstream.cache import cache_dir

    (tmp_path / "jars").symlink_to(cache_dir("jars"))
    monkeypatch.setenv("MILLSTREAM_CACHE_DIR", str(tmp_path))
    with EmbeddedKafka() as first:
        making = first._making
        assert making is not None
        assert making.wait_until_done(120)
    (made,) = (tmp_path / "broker").glob("*/classes-*.jsa")
    archive = Archive(made.parent)
    assert archive.find() == made

    with EmbeddedKafka() as second:
        assert second._making is None
        maps = {entry.path for entry in psutil.Process(second.pid).memory_maps()}
        assert str(made) in maps, "the second start uses it"

    # The worst damage there is: half of it, under a name that says that half is all. Java crashes on that.
    half = made.read_bytes()[: made.stat().st_size // 2]
    made.unlink()
    damaged = made.with_name(f"classes-{len(half)}.jsa")
    damaged.write_bytes(half)
    with EmbeddedKafka() as third:
        assert third.topics() == set()
    assert not damaged.exists()


# --- settings and storage, without a broker --------------------------------------------------------------


def test_a_setting_of_the_user_wins(tmp_path: Path) -> None:
    """It replaces ours."""
    overrides = {"log.retention.ms": "1000", "compression.type": "zstd"}
    settings = broker_settings(port=1, controller_port=2, log_dir=tmp_path, overrides=overrides)
    assert (settings["log.retention.ms"], settings["compression.type"]) == ("1000", "zstd")
    assert settings["auto.create.topics.enable"] == "false"


def test_a_setting_stays_one_line() -> None:
    """A backslash or a line break in a value must not make another setting of it."""
    assert properties_text({"a": "x\nb=y", "c": "d\\"}) == "a=x\\nb=y\nc=d\\\\\n"


def test_each_data_directory_has_ids_of_its_own() -> None:
    """Cluster and directory; the rest of the template stays."""
    meta = "#\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\nversion=1\ncluster.id=BBBBBBBBBBBBBBBBBBBBBB\n"
    first, second = with_new_ids(meta), with_new_ids(meta)
    pattern = r"#\nnode\.id=1\ndirectory\.id=(\w[\w-]{21})\nversion=1\ncluster\.id=(\w[\w-]{21})\n"
    one, two = re.fullmatch(pattern, first), re.fullmatch(pattern, second)
    assert one is not None
    assert two is not None
    assert len({*one.groups(), *two.groups()}) == 4
