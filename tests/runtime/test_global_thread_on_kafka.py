"""The global thread on a real broker and RocksDB: over a restart, and over re-creation of its topic."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.clock import SystemClock
from millstream.config import StreamsConfig
from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Materialized
from millstream.errors import MissingSourceTopicException, StreamsException
from millstream.kafka.consumer import KafkaChangelogConsumer
from millstream.kafka.topics import KafkaTopics
from millstream.model import TopicPartition
from millstream.ports import BytesStore, KeyValueBytesStore, TopicDescription
from millstream.runtime.state.assignment import StorePart
from millstream.runtime.threads.global_tables import find_global_parts
from millstream.runtime.threads.global_thread import GlobalStreamThread, global_thread_name
from millstream.runtime.threads.store_thread import Updater
from millstream.runtime.topics.topic_watch import TopicWatch
from millstream.states import GlobalThreadState
from millstream.stores.directory import StateDirectory
from millstream.stores.rocksdb_store import RocksDBStore
from millstream.stores.store_base import value_of
from millstream.stores.updater import StoreUpdater

pytestmark = pytest.mark.kafka

SOON = 30.0


class HeldTopics(KafkaTopics):
    """A look waits while somebody holds it up."""

    def __init__(self, config: StreamsConfig) -> None:
        super().__init__(config)
        self.held = threading.Lock()

    def look(self, names: Iterable[str], *, patient: bool = False) -> dict[str, TopicDescription]:
        with self.held:
            return super().look(names)


class Client:
    """As much of a client as a global thread needs: real topics, consumer, directory and stores."""

    def __init__(self, kafka: EmbeddedKafka, topic: str, path: Path) -> None:
        builder = StreamsBuilder()
        builder.global_table(topic, Materialized.as_("users"))
        self._topology = builder.build()
        self._config = StreamsConfig(
            {"application.id": "global-test", "bootstrap.servers": kafka.bootstrap_servers}
        )
        self._topics = KafkaTopics(self._config)
        self._watched = HeldTopics(self._config)
        self._directory = StateDirectory(path, "global-test")
        self.failures: list[StreamsException] = []
        self.stores: list[KeyValueBytesStore] = []
        self.restored: list[TopicPartition] = []
        self.restoring: list[TopicPartition] = []
        self.updater: StoreUpdater | None = None
        self.thread = GlobalStreamThread(
            global_thread_name("client"),
            self,
            Shown(self),
            clock=SystemClock(),
            on_failure=lambda thread, error: self.failures.append(error),
        )

    def global_parts(self) -> Sequence[StorePart]:
        return find_global_parts(self._topics, self._topology, "the broker", create_missing=False)

    def open_global_store(self, part: StorePart) -> KeyValueBytesStore:
        path = self._directory.global_store_path(part.store.name, part.task_id.partition)
        store = RocksDBStore(part.store.name, part.task_id, path)
        self.stores.append(store)
        return store

    def watch_global_topics(self, on_missing: Callable[[MissingSourceTopicException], None]) -> TopicWatch:
        watch = TopicWatch(
            self._watched,
            client_id="client",
            application_id="global-test",
            names=self._topology.global_topics,
            servers="the broker",
            on_missing=on_missing,
            of_global_tables=True,
        )
        watch.baseline(self._topics.confirm(self._topology.global_topics))
        watch.start()
        return watch

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        """What happens here is seen afterwards, all at once."""
        with self._watched.held:
            yield

    def make_updater(
        self,
        name: str,
        on_failure: Callable[[BaseException], None],
        on_restored: Callable[[TopicPartition], None],
        on_restoring: Callable[[TopicPartition], None],
    ) -> Updater:
        self.updater = StoreUpdater(
            name,
            KafkaChangelogConsumer(self._config),
            on_failure=on_failure,
            on_restored=on_restored,
            on_restoring=on_restoring,
        )
        return self.updater

    def table(self) -> dict[bytes, bytes]:
        return {key: value_of(data) for store in self.stores for key, data in store.range(None, None)}

    def close(self) -> None:
        self.thread.stop()
        assert self.thread.join(SOON)
        self._topics.close()
        self._watched.close()


class Shown:
    """`store_thread.StoresShown` of that client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def opened(self, thread: str, part: StorePart, store: BytesStore) -> None: ...

    def role_changed(self, part: StorePart) -> None: ...

    def caught_up(self, changelog: TopicPartition) -> None: ...

    def restored(self, changelog: TopicPartition) -> None:
        self.client.restored.append(changelog)

    def restoring(self, changelog: TopicPartition) -> None:
        self.client.restoring.append(changelog)

    def closing(self, changelog: TopicPartition) -> None: ...


@pytest.fixture
def topic(kafka: EmbeddedKafka) -> str:
    name = f"users-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, 2)
    return name


def write(kafka: EmbeddedKafka, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
    # Idempotent, because a batch that is sent again would else come behind a later one.
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(SOON) == 0


def test_a_global_table_is_whole_after_the_start_and_goes_on_after_a_restart(
    kafka: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    """From all partitions; null keys are skipped, null values delete; a second start reads what is new."""
    users = [(b"k%d" % number, b"v%d" % number) for number in range(100)]
    write(kafka, topic, *users, (None, b"x"), (b"k7", None))
    expected = {key: value for key, value in users if key != b"k7"}
    first = Client(kafka, topic, tmp_path)
    assert first.thread.start(SOON) is True
    assert first.table() == expected
    assert sum(lag.current_offset_position for lag in first.thread.lags().values()) == 102
    write(kafka, topic, (b"new", b"1"))
    wait_until(lambda: first.table().get(b"new") == b"1", "the record written after the start", SOON)
    first.close()
    write(kafka, topic, (b"new", b"2"))
    second = Client(kafka, topic, tmp_path)
    assert second.thread.start(SOON) is True
    assert second.table() == {**expected, b"new": b"2"}
    assert second.updater is not None
    assert second.updater.records_applied == 1
    second.close()
    assert (first.failures, second.failures) == ([], [])


def test_a_topic_that_does_not_exist_is_named_by_start(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """The request does not create it."""
    client = Client(kafka, "nobody-made-this", tmp_path)
    with pytest.raises(
        MissingSourceTopicException, match="no partitions available for topic nobody-made-this"
    ):
        client.thread.start(SOON)
    assert client.thread.state is GlobalThreadState.DEAD
    again = Client(kafka, "nobody-made-this", tmp_path)
    with pytest.raises(MissingSourceTopicException):
        again.thread.start(SOON)
    client.close()
    again.close()


def test_a_topic_that_is_deleted_or_made_anew_is_told_at_once_by_its_name(
    kafka: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    """A MissingSourceTopicException, as at the start; a new client has the new topic's records, and nothing
    of the old one stays.
    """
    write(kafka, topic, *((b"old%d" % number, b"x") for number in range(50)))
    client = Client(kafka, topic, tmp_path)
    client.thread.start(SOON)
    assert len(client.table()) == 50
    kafka.delete_topic(topic)
    deleted_at = time.monotonic()
    wait_until(lambda: client.failures, "the failure", SOON)
    print(f"\ntold {time.monotonic() - deleted_at:.2f} s after the deletion")
    (error,) = client.failures
    assert isinstance(error, MissingSourceTopicException)
    assert error.deleted == (topic,)
    assert str(error).startswith(f"topics of global tables on 'the broker': '{topic}' was deleted while")
    client.close()

    kafka.create_topic(topic, 2)
    write(kafka, topic, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
    again = Client(kafka, topic, tmp_path / "again")
    again.thread.start(SOON)
    assert again.table() == {b"a": b"1", b"b": b"2", b"c": b"3"}
    with again.unwatched():
        kafka.delete_topic(topic)
        kafka.create_topic(topic, 2)
    wait_until(lambda: again.failures, "the failure", SOON)
    (error,) = again.failures
    assert isinstance(error, MissingSourceTopicException)
    assert error.recreated == (topic,)
    again.close()
