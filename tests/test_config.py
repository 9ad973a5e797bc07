"""StreamsConfig: what it takes, and what it says about what it does not."""

from __future__ import annotations

import logging
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream.config import StreamsConfig, as_text, masked
from millstream.config_keys import KEYS, PREFIXES, SERDE_NAMES, Effect, Importance, Type
from millstream.dsl import handlers
from millstream.dsl.error_handlers import ErrorHandlerResponse, ProcessingExceptionHandler
from millstream.errors import ConfigException
from millstream.kafka.clients import membership_config, restore_consumer_config
from millstream.runtime.wiring import _spark_client, offset_reset
from millstream.serdes.serdes import Serdes

BASE = {"application.id": "app", "bootstrap.servers": "localhost:9092"}


def config(**options: Any) -> StreamsConfig:
    return StreamsConfig({**BASE, **{name.replace("__", "."): value for name, value in options.items()}})


def refusal(options: dict[str, Any]) -> str:
    with pytest.raises(ConfigException) as raised:
        StreamsConfig({**BASE, **options})
    return str(raised.value)


def test_two_keys_are_enough() -> None:
    """All others have a default, and it is typed."""
    made = StreamsConfig(BASE)
    assert made.application_id == "app"
    assert made.bootstrap_servers == ("localhost:9092",)
    assert made.num_stream_threads == 1
    assert made.replication_factor == -1
    assert made.request_timeout_s == 40.0
    assert made["commit.interval.ms"] == 100
    assert made.checkpoints == str(made.state_dir / "app" / "checkpoints")
    assert made.default_key_serde is None
    assert not made.embedded
    assert not made.in_memory_stores


def test_state_is_kept_in_a_place_that_survives_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Differs from upstream's, which is in the temporary directory."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/of-somebody")
    path = StreamsConfig(BASE).state_dir
    assert path.is_absolute()
    assert path.name == "millstream"
    assert not path.is_relative_to(tempfile.gettempdir())


def test_a_missing_application_id_is_explained() -> None:
    """What it is for, and what one looks like."""
    with pytest.raises(ConfigException, match=r"'application\.id' is missing; it names your application"):
        StreamsConfig({"bootstrap.servers": "localhost:9092"})


def test_missing_bootstrap_servers_mention_the_embedded_broker() -> None:
    """The message says that there is one; it is not started by accident."""
    with pytest.raises(ConfigException, match=r"'bootstrap\.servers' is missing.*'embedded' starts a Kafka"):
        StreamsConfig({"application.id": "app"})


def test_the_embedded_broker_is_asked_for_by_name() -> None:
    """`embedded` alone."""
    assert config(bootstrap__servers="embedded").embedded
    assert "not host:port" in refusal({"bootstrap.servers": "embedded,localhost:9092"})


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("aplication.id", "Did you mean 'application.id'?"),
        ("application_id", "Did you mean 'application.id'? Kafka's keys use dots"),
        ("num_stream_threads", "Did you mean 'num.stream.threads'? Kafka's keys use dots"),
        ("NUM_STREAM_THREADS", "Did you mean 'num.stream.threads'?"),
        ("num.streams.threads", "Did you mean 'num.stream.threads'?"),
        ("max_poll_records", "Did you mean 'max.poll.records'? Kafka's keys use dots"),
        ("retention.ms", "write 'topic.retention.ms'"),
        ("spark_master", "Did you mean 'spark.master'?"),
        ("auto.offset.rset", "Did you mean 'auto.offset.reset'?"),
        ("colour", "StreamsConfig.describe() lists the keys"),
        ("consumer.", "StreamsConfig.describe() lists the keys"),
    ],
)
def test_an_unknown_key_is_refused_with_a_suggestion(key: str, hint: str) -> None:
    """Upstream ignores it."""
    text = refusal({key: "1"})
    assert text.startswith(f"unknown configuration '{key}'")
    assert hint in text


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("num.stream.threads", "two", "it must be a whole number"),
        ("num.stream.threads", True, "a bool; it must be a whole number"),
        ("num.stream.threads", 1.5, "a float; it must be a whole number"),
        ("num.stream.threads", 0, "is 0; it must be 1 or more"),
        ("request.timeout.ms", "1s", "it must be a whole number"),
        ("request.timeout.ms", -1, "it must be 1 or more"),
        ("request.timeout.ms", 2.5, "milliseconds, or a timedelta"),
        ("replication.factor", 0, "1 or more, or -1"),
        ("replication.factor", -2, "-1 or more"),
        ("num.stream.threads", timedelta(seconds=1), "a whole number"),
        ("enable.metrics.push", "yes", "true or false"),
        ("state.dir", 7, "a text"),
        ("bootstrap.servers", 9092, "a comma-separated string"),
        ("bootstrap.servers", "", "is empty"),
        ("bootstrap.servers", "localhost", "not host:port"),
        ("bootstrap.servers", "localhost:kafka", "not host:port"),
        ("bootstrap.servers", "localhost:99999", "not host:port"),
        ("processing.guarantee", "exactly_once", "removed this name; the guarantee is exactly_once_v2"),
        ("processing.guarantee", "exactly_once_beta", "removed this name; the guarantee is exactly_once_v2"),
        ("default.dsl.store", "lmdb", "it can be rocksDB, in_memory"),
        ("security.protocol", "TLS", "it can be PLAINTEXT, SSL"),
        ("default.key.serde", "strnig", "Did you mean 'string'?"),
        ("default.key.serde", "json", "Serdes.json("),
        ("default.value.serde", str, "it must be a Serde"),
        ("default.value.serde", 3, "it must be a Serde"),
        ("spark.master", {"local": 2}, "is passed on"),
        ("consumer.auto.offset.reset", "newest", "it can be earliest, latest, none, or by_duration"),
        ("auto.offset.reset", "by_duration", "such as by_duration:PT1H"),
        ("auto.offset.reset", "by_duration:1 h", "such as by_duration:PT1H"),
        ("auto.offset.reset", f"by_duration:PT{'9' * 5_000}S", "such as by_duration:PT1H"),
        ("auto.offset.reset", "by_duration:P", "such as by_duration:PT1H"),
        ("auto.offset.reset", "by_duration:-PT1H", "a non-negative ISO 8601 duration"),
        ("application.id", "my app", "letters, digits"),
        ("application.id", "a/b", "letters, digits"),
        ("application.id", "", "letters, digits"),
        ("application.id", "..", "letters, digits"),
        ("application.id", "käse", "letters, digits"),
        ("application.id", "x" * 151, "151 characters"),
        ("application.id", 7, "a text"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_key(key: str, value: Any, told: str) -> None:
    """Key, value, and what would fit."""
    text = refusal({key: value})
    assert key in text
    assert told in text


def test_a_key_is_a_text() -> None:
    """A configuration is a mapping."""
    assert "a configuration key must be a string" in refusal({7: "x"})  # type: ignore[dict-item]
    with pytest.raises(ConfigException, match="must be a dict with Kafka's keys"):
        StreamsConfig("app.properties")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("num.stream.threads", "4", 4),
        ("request.timeout.ms", timedelta(seconds=2), 2000),
        ("bootstrap.servers", "a:1, b:2", ("a:1", "b:2")),
        ("bootstrap.servers", ["a:1", "SSL://[::1]:2"], ("a:1", "SSL://[::1]:2")),
        ("security.protocol", "sasl_ssl", "SASL_SSL"),
        ("default.dsl.store", "rocksdb", "rocksDB"),
        ("enable.metrics.push", "False", False),
        ("default.key.serde", "String", "string"),
        ("default.key.serde", "org.apache.kafka.common.serialization.Serdes$LongSerde", "long"),
        ("state.dir", Path("/var/lib/app"), "/var/lib/app"),
        ("num.standby.replicas", 1, 1),
    ],
)
def test_values_are_converted_to_their_type(key: str, value: Any, expected: Any) -> None:
    """Texts too, as properties files have them."""
    assert StreamsConfig({**BASE, key: value})[key] == expected


TEXTS = sorted(key.name for key in KEYS.values() if key.type in (Type.STRING, Type.LIST))


@pytest.mark.parametrize(
    "text", ["a\0b", "a\x1b[2Jb", "a\nb", "a\rb", "a\x7fb", "a\x85b", "a\u2028b"], ids=ascii
)
def test_control_characters_are_refused_and_shown_escaped(text: str) -> None:
    """This holds for each text, and for texts of others that name a client. A secret is not shown."""
    wrong = []
    for name in [*TEXTS, "client.tag.zone", "consumer.client.id", "group.instance.id"]:
        said = refusal({name: text})
        shown = "[hidden]" if masked(name, "x") != "x" else text.encode("unicode_escape").decode()
        if f"'{name}' is '{shown}', which has a control character" not in said or not said.isprintable():
            wrong.append((name, said))
    assert not wrong
    pem = config(ssl__truststore__certificates="-----BEGIN\nCERTIFICATE-----\n")
    assert "\n" in pem["ssl.truststore.certificates"], "those of several lines are no names"


@pytest.mark.parametrize("name", ["letters of", "ü", "a/b", "x" * 250, "", ".", ".."])
def test_the_dead_letter_topic_has_the_name_of_a_topic(name: str) -> None:
    """Kafka would refuse it only when the first record fails."""
    assert "cannot be the name of a topic" in refusal({"errors.dead.letter.queue.topic.name": name})


def test_none_means_not_given() -> None:
    """So a dict can be built with `os.environ.get`."""
    assert StreamsConfig({**BASE, "client.id": None, "checkpoint.location": None}).client_id == ""
    with pytest.raises(ConfigException, match=r"application\.id"):
        StreamsConfig({**BASE, "application.id": None})


def test_a_serde_object_is_taken_as_it_is() -> None:
    """Or one of the names."""
    serde = Serdes.json("user STRING")
    assert config(default__value__serde=serde).default_value_serde is serde


@pytest.mark.parametrize("name", SERDE_NAMES)
def test_every_serde_name_is_a_serde(name: str) -> None:
    """`Serdes.<name>()` makes it."""
    assert config(default__key__serde=name).default_key_serde == getattr(Serdes, name)().name


def test_prefixed_keys_are_passed_on() -> None:
    """Each to whom it belongs, without the prefix; Spark's keep theirs."""
    made = StreamsConfig(
        {
            **BASE,
            "spark.master": "local[2]",
            "spark.sql.shuffle.partitions": 4,
            "spark.ui.enabled": False,
            "consumer.max.poll.records": 10,
            "main.consumer.max.poll.records": 20,
            "topic.segment.bytes": 1000,
            "sasl.mechanism": "PLAIN",
            "security.protocol": "SASL_SSL",
        }
    )
    assert made.spark == {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
    }
    assert made.with_prefix("consumer.") == {"max.poll.records": 10}
    assert made.with_prefix("main.consumer.") == {"max.poll.records": 20}
    assert made.with_prefix("topic.") == {"segment.bytes": 1000}
    assert made.security() == {"sasl.mechanism": "PLAIN", "security.protocol": "SASL_SSL"}


def test_settings_of_clients_need_no_prefix() -> None:
    """StreamsConfigTest: shouldSupportNonPrefixedConsumerConfigs and its kin. A prefix goes before none, the
    longer one before the shorter; each kind of client gets what it has."""
    made = StreamsConfig(
        {
            **BASE,
            "auto.offset.reset": "latest",
            "session.timeout.ms": timedelta(seconds=20),
            "max.poll.records": 1,
            "consumer.max.poll.records": 2,
            "main.consumer.max.poll.records": 3,
            "fetch.min.bytes": 4,
            "restore.consumer.fetch.min.bytes": 5,
            "linger.ms": 6,
            "compression.type": "zstd",
            "producer.compression.type": "lz4",
            "retries": 7,
            "admin.retries": 8,
        }
    )
    consumer = made.client_options("consumer.", "main.consumer.")
    assert consumer == {
        "auto.offset.reset": "latest",
        "session.timeout.ms": timedelta(seconds=20),
        "max.poll.records": 3,
        "fetch.min.bytes": 4,
    }
    assert made.client_options("consumer.", "restore.consumer.")["fetch.min.bytes"] == 5
    assert made.client_options("producer.") == {"linger.ms": 6, "compression.type": "lz4", "retries": 7}
    assert made.client_options("admin.") == {"retries": 8}
    assert membership_config(made)["session_timeout_ms"] == 20_000
    assert restore_consumer_config(made)["fetch.min.bytes"] == "5"
    assert "session.timeout.ms" not in restore_consumer_config(made)
    assert _spark_client(made, "producer.") == {"linger.ms": "6", "compression.type": "lz4", "retries": "7"}
    assert _spark_client(made, "consumer.", "main.consumer.") == {
        "max.poll.records": "3",
        "fetch.min.bytes": "4",
    }
    assert offset_reset(made).value == "latest"


@pytest.mark.parametrize("key", ["enable.auto.commit", "consumer.group.id", "main.consumer.key.deserializer"])
def test_a_setting_of_clients_without_effect_says_so(key: str, caplog: pytest.LogCaptureFixture) -> None:
    """As upstream warns of what it sets itself."""
    StreamsConfig({**BASE, key: "x"}).log_without_effect()
    assert f"configuration '{key}' has no effect: " in caplog.text


@pytest.mark.parametrize(
    "key",
    [
        "sasl.jaas.config",
        "sasl.oauthbearer.token.provider",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.keystore.key",
        "consumer.sasl.jaas.config",
        "admin.sasl.oauthbearer.client.secret",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.session.token",
        "sasl.password",
    ],
)
def test_secrets_are_not_shown(key: str) -> None:
    """In no repr, and so in no log."""
    assert "hush" not in repr(StreamsConfig({**BASE, key: "hush"}))
    assert masked(key, "hush") == "[hidden]"


@pytest.mark.parametrize(
    "key", ["default.key.serde", "application.id", "sasl.username", "topic.segment.bytes"]
)
def test_what_is_no_secret_is_shown(key: str) -> None:
    """`key` inside a name is a record's key."""
    assert masked(key, "string") == "string"


@pytest.mark.parametrize("given", ["http://a:1,https://user:hush@b:2", ["http://user:hush@b:2"]])
def test_an_address_with_a_login_is_not_shown(given: Any) -> None:
    """One without is."""
    config = StreamsConfig({"application.id": "a", "bootstrap.servers": "b:1", "schema.registry.url": given})
    assert "hush" not in repr(config)
    assert masked("schema.registry.url", "http://a:1") == "http://a:1"


def test_a_configuration_is_a_mapping_that_does_not_change() -> None:
    """`replace` makes another."""
    made = config(num__stream__threads=2)
    other = made.replace({"num.stream.threads": 3})
    assert (made["num.stream.threads"], other["num.stream.threads"]) == (2, 3)
    assert dict(made)["application.id"] == "app"
    assert len(made) == len(list(made))
    assert made.given == {**BASE, "bootstrap.servers": ("localhost:9092",), "num.stream.threads": 2}


@pytest.mark.parametrize(
    ("standbys", "given", "warm"),
    [(0, None, False), (1, None, True), (1, False, False), (0, True, True)],
)
def test_who_wants_standbys_has_spark_kept_warm(standbys: int, given: bool | None, warm: bool) -> None:
    """Unless it is said otherwise."""
    options = {**BASE, "num.standby.replicas": standbys}
    if given is not None:
        options["keep.spark.warm"] = given
    assert StreamsConfig(options).keeps_spark_warm is warm


def test_keys_without_effect_are_said_to_be(caplog: pytest.LogCaptureFixture) -> None:
    """A warning for each that was given another value than its default; none for those that work."""
    made = StreamsConfig(
        {
            **BASE,
            "num.standby.replicas": 1,
            "rack.aware.assignment.strategy": "min_traffic",
            "state.cleanup.dir.max.age.ms": 5,
            "poll.ms": 5,
            "cache.max.bytes.buffering": 10_485_760,
            "num.stream.threads": 2,
        }
    )
    with caplog.at_level(logging.WARNING):
        made.log_without_effect()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "configuration 'poll.ms' has no effect",
        "configuration 'state.cleanup.dir.max.age.ms' has no effect yet",
    ]


@pytest.mark.parametrize("server", ["localhost:8080", "10.0.0.7:1", "[::1]:65535", " host:80 ", ""])
def test_an_application_server_is_a_host_and_a_port(server: str) -> None:
    """It is told to the other clients as it is; without one there is nothing to tell."""
    assert StreamsConfig({**BASE, "application.server": server}).application_server == server.strip()


@pytest.mark.parametrize(
    "server", ["localhost", ":8080", "localhost:", "localhost:0", "localhost:65536", "a b:1", "http://h:1"]
)
def test_an_application_server_that_is_none_is_refused(server: str) -> None:
    """At once, and not by the other clients."""
    with pytest.raises(ConfigException, match=r"'application\.server' is .* which is not host:port"):
        StreamsConfig({**BASE, "application.server": server})


def test_describe_lists_every_key_with_its_default_and_what_it_does() -> None:
    """One line each, required ones first, the prefixes at the end."""
    lines = StreamsConfig.describe().splitlines()
    assert len(lines) == 1 + len(KEYS) + len(PREFIXES)
    assert lines[1].split()[:4] == ["application.id", "string", "(required)", "high"]
    by_key = {line.split()[0]: line for line in lines[1:]}
    assert set(by_key) == {*KEYS, *(f"{prefix}*" for prefix in PREFIXES)}
    assert "(no effect)" in by_key["poll.ms"]
    assert "(not used yet)" in by_key["state.cleanup.dir.max.age.ms"]
    assert len(StreamsConfig.describe(Importance.HIGH).splitlines()) < len(lines)


@pytest.mark.parametrize(
    ("kind", "fails", "continues"),
    [
        ("deserialization", handlers.LogAndFailExceptionHandler, handlers.LogAndContinueExceptionHandler),
        (
            "processing",
            handlers.LogAndFailProcessingExceptionHandler,
            handlers.LogAndContinueProcessingExceptionHandler,
        ),
        (
            "production",
            handlers.DefaultProductionExceptionHandler,
            handlers.LogAndContinueProductionExceptionHandler,
        ),
    ],
)
def test_a_record_handler_has_many_names(kind: str, fails: type, continues: type) -> None:
    """The class, one of it, its name, Kafka's full name of it, or what it means; 'fail' is the default."""
    name = f"{kind}.exception.handler"
    assert not StreamsConfig(BASE).continues(kind)
    for handler, meaning in ((fails, "fail"), (continues, "continue")):
        short = handler.__name__
        upstream = f"org.apache.kafka.streams.errors.{short}"
        for value in (handler, handler(), short, f"millstream.{short}", upstream, meaning, meaning.upper()):
            made = StreamsConfig({**BASE, name: value})
            assert made[name] == meaning
            assert made.continues(kind) is (meaning == "continue")


@pytest.mark.parametrize("kind", ["deserialization", "production"])
def test_the_old_names_of_handlers_count_unless_the_new_one_is_given(kind: str) -> None:
    """As in Kafka Streams."""
    old, new = f"default.{kind}.exception.handler", f"{kind}.exception.handler"
    assert StreamsConfig({**BASE, old: "continue"}).continues(kind)
    assert not StreamsConfig({**BASE, old: "continue", new: "fail"}).continues(kind)


def test_what_is_no_handler_is_refused_with_the_reason() -> None:
    """What it can be is shown; a subclass of a ready-made one, which has no code, is none."""

    class Mine(handlers.LogAndContinueExceptionHandler):
        pass

    for value in (lambda record: "continue", Mine, Mine(), "com.example.Mine", None.__class__, 1):
        text = refusal({"deserialization.exception.handler": value})
        assert "'continue' (LogAndContinueExceptionHandler)" in text
        assert "a subclass of millstream.DeserializationExceptionHandler, as a class or an instance" in text
    text = refusal({"processing.exception.handler": handlers.LogAndContinueExceptionHandler})
    assert "is for 'deserialization.exception.handler'" in text


def test_a_handler_of_ones_own_is_a_class_or_an_instance() -> None:
    """Of the kind that the key is for, with the method that decides; what is shown of it has no address."""

    class Mine(ProcessingExceptionHandler):
        def handle_error(self, context: Any, record: Any, exception: Exception) -> ErrorHandlerResponse:
            return ErrorHandlerResponse.resume()

    class Unfinished(ProcessingExceptionHandler):
        pass

    class Demanding(Mine):
        def __init__(self, limit: int) -> None:
            self.limit = limit

    key = "processing.exception.handler"
    assert "whose constructor takes arguments; pass an instance" in refusal({key: Demanding})
    assert StreamsConfig({**BASE, key: Demanding(3)}).continues("processing")
    for handler in (Mine, Mine()):
        config = StreamsConfig({**BASE, key: handler})
        assert config.continues("processing")
        assert config.own_handlers == {"processing": handler}
        assert "Mine" in repr(config)
        assert " at 0x" not in repr(config)
    assert StreamsConfig(BASE).own_handlers == {}
    text = refusal({"production.exception.handler": Mine})
    assert "which is a ProcessingExceptionHandler; this key needs a ProductionExceptionHandler" in text
    assert "lacks the method handle_error(context, record, exception)" in refusal({key: Unfinished})


@pytest.mark.parametrize(("given", "ratio"), [(0, 0.0), ("0.25", 0.25), (1, 1.0), (0.5, 0.5)])
def test_the_share_of_records_that_may_be_dropped(given: Any, ratio: float) -> None:
    """A number from 0 to 1; 1 is the default and means any."""
    assert StreamsConfig({**BASE, "errors.continue.max.ratio": given}).continue_max_ratio == ratio
    assert StreamsConfig(BASE).continue_max_ratio == 1.0


@pytest.mark.parametrize("given", [-0.1, 1.01, "many", True, float("nan"), "inf", [1]])
def test_a_share_that_is_none_is_refused(given: Any) -> None:
    """With the key's name."""
    text = refusal({"errors.continue.max.ratio": given})
    assert text.startswith("'errors.continue.max.ratio' is ")
    assert "from 0 to 1" in text or "a number" in text


# Every key of Kafka Streams 4.3, as its ConfigDef prints them.
KAFKAS = [
    "acceptable.recovery.lag",
    "allow.os.group.write.access",
    "application.id",
    "application.server",
    "bootstrap.servers",
    "buffered.records.per.partition",
    "built.in.metrics.version",
    "cache.max.bytes.buffering",
    "client.id",
    "commit.interval.ms",
    "config.providers",
    "connections.max.idle.ms",
    "default.client.supplier",
    "default.deserialization.exception.handler",
    "default.dsl.store",
    "default.key.serde",
    "default.list.key.serde.inner",
    "default.list.key.serde.type",
    "default.list.value.serde.inner",
    "default.list.value.serde.type",
    "default.production.exception.handler",
    "default.timestamp.extractor",
    "default.value.serde",
    "deserialization.exception.handler",
    "dsl.store.format",
    "dsl.store.suppliers.class",
    "enable.metrics.push",
    "ensure.explicit.internal.resource.naming",
    "errors.dead.letter.queue.topic.name",
    "group.protocol",
    "log.summary.interval.ms",
    "max.task.idle.ms",
    "max.warmup.replicas",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "num.standby.replicas",
    "num.stream.threads",
    "poll.ms",
    "probing.rebalance.interval.ms",
    "processing.exception.handler",
    "processing.exception.handler.global.enabled",
    "processing.guarantee",
    "processor.wrapper.class",
    "production.exception.handler",
    "rack.aware.assignment.non_overlap_cost",
    "rack.aware.assignment.strategy",
    "rack.aware.assignment.tags",
    "rack.aware.assignment.traffic_cost",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "repartition.purge.interval.ms",
    "replication.factor",
    "request.timeout.ms",
    "retry.backoff.ms",
    "rocksdb.config.setter",
    "security.protocol",
    "send.buffer.bytes",
    "state.cleanup.delay.ms",
    "state.cleanup.dir.max.age.ms",
    "state.dir",
    "statestore.cache.max.bytes",
    "task.assignor.class",
    "task.timeout.ms",
    "topology.optimization",
    "upgrade.from",
    "window.size.ms",
    "windowed.inner.class.serde",
    "windowstore.changelog.additional.retention.ms",
]


CONFLUENTS = {
    "auto.register.schemas",
    "basic.auth.credentials.source",
    "basic.auth.user.info",
    "bearer.auth.credentials.source",
    "bearer.auth.token",
    "key.subject.name.strategy",
    "schema.registry.url",
    "use.latest.version",
    "value.subject.name.strategy",
}
"""What Confluent's serializers are configured with."""

OURS = {
    "checkpoint.location",
    "errors.continue.max.ratio",
    "keep.spark.warm",
    "query.server.allow.anonymous",
    "query.server.cors.origins",
    "query.server.ssl.ca.location",
    "query.server.ssl.certificate.location",
    "query.server.ssl.key.location",
    "query.server.ssl.key.password",
    "query.server.sql.enabled",
    "query.server.enabled",
    "query.server.listen",
    "query.server.peers",
    "query.server.token",
    "replace.thread.backoff.max.ms",
    "replace.thread.backoff.ms",
    "replace.thread.max.failures",
    "replace.thread.then",
    "replace.thread.window.ms",
    "sasl.oauthbearer.token.provider",
    "schema.registry.timeout.ms",
    "source.lost.policy",
    "ui.enabled",
}


def test_every_key_of_kafka_streams_is_known() -> None:
    """A configuration can be taken over; a few keys are our own."""
    assert set(KEYS) - set(KAFKAS) == OURS | CONFLUENTS
    assert set(KAFKAS) - set(KEYS) == set()


def test_every_default_fits_its_own_key() -> None:
    """Every doc is a sentence."""
    for key in KEYS.values():
        if key.default is not None:
            assert StreamsConfig({**BASE, key.name: key.default})[key.name] == key.default, key.name
        assert key.doc.endswith("."), key.name
        assert (key.effect is Effect.YES) or key.doc[0].isupper(), key.name


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (1000, "1000"), (timedelta(seconds=1), "1000"), (["a", "b"], "a,b"), ("x", "x")],
)
def test_values_are_written_as_kafka_writes_them(value: Any, text: str) -> None:
    """Java's and librdkafka's configurations take them."""
    assert as_text(value) == text


ONCE = {"processing.guarantee": "exactly_once_v2"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer.isolation.level", "read_uncommitted"),
        ("isolation.level", "read_uncommitted"),
        ("main.consumer.isolation.level", "read_uncommitted"),
        ("restore.consumer.isolation.level", "read_uncommitted"),
        ("global.consumer.isolation.level", "read_uncommitted"),
        ("producer.enable.idempotence", False),
        ("producer.acks", "1"),
        ("producer.retries", 0),
        ("producer.max.in.flight.requests.per.connection", 6),
    ],
)
def test_what_contradicts_exactly_once_is_refused(name: str, value: Any) -> None:
    """Each by its name; without the guarantee it is the user's affair."""
    said = refusal({**ONCE, name: value})
    assert name.endswith(said.split("'")[1])
    assert "exactly_once_v2" in said
    assert not StreamsConfig({**BASE, name: value}).exactly_once


@pytest.mark.parametrize("more", [{}, ONCE])
def test_what_keeps_tasks_from_committing_is_refused(more: dict[str, Any]) -> None:
    """With each guarantee: a commit is a transaction in any case."""
    assert "fence each other" in refusal({**more, "spark.speculation": True})
    short = {"producer.transaction.timeout.ms": 50, "commit.interval.ms": 100}
    assert "'transaction.timeout.ms' is 50, less than commit.interval.ms=100" in refusal({**more, **short})


@pytest.mark.parametrize(
    "levels",
    [
        {
            "main.consumer.isolation.level": "read_committed",
            "restore.consumer.isolation.level": "read_uncommitted",
        },
        {"consumer.isolation.level": "read_uncommitted", "global.consumer.isolation.level": "read_committed"},
        {"isolation.level": "serializable"},
    ],
)
def test_stores_and_pipelines_cannot_have_two_isolation_levels(levels: dict[str, str]) -> None:
    """They would show different rows of one topic. And there are only two to choose from."""
    said = refusal(levels)
    assert said.startswith("'isolation.level' is ")
    assert all(level in said for level in levels.values())


def test_exactly_once_reads_what_is_committed_and_has_long_transactions() -> None:
    """Stores and global tables too; the timeout is the most that brokers allow unless they are told."""
    made = StreamsConfig({**BASE, **ONCE})
    assert made.exactly_once
    assert restore_consumer_config(made)["isolation.level"] == "read_committed"
    assert made.transaction_timeout_ms == 900_000
    assert (
        StreamsConfig({**BASE, **ONCE, "producer.transaction.timeout.ms": 5000}).transaction_timeout_ms
        == 5000
    )
    fitting = {"isolation.level": "read_committed", "acks": -1, "enable.idempotence": "TRUE"}
    assert StreamsConfig({**BASE, **ONCE, **fitting}).exactly_once


def test_each_application_has_a_folder_where_queries_of_to_spark_keep_their_progress() -> None:
    """A path, or a URI that only Spark can reach."""
    for given, there in (("/mnt/cp/", "/mnt/cp/app"), ("hdfs://nn:8020/cp", "hdfs://nn:8020/cp/app")):
        assert StreamsConfig({**BASE, "checkpoint.location": given}).checkpoints == there


def test_racks_count_as_in_kafka_streams() -> None:
    """KIP-925: three strategies, and two costs that are not negative; the rack is the main consumer's."""
    prefix = "rack.aware.assignment."
    assert config()[prefix + "strategy"] == "none"
    given = config(**{prefix + "strategy": "balance_subtopology", prefix + "traffic_cost": "7"})
    assert [given.get(prefix + name) for name in ("strategy", "traffic_cost", "non_overlap_cost")] == [
        "balance_subtopology",
        7,
        None,
    ]
    assert "none, min_traffic, balance_subtopology" in refusal({prefix + "strategy": "least"})
    for name in ("traffic_cost", "non_overlap_cost"):
        assert "must be 0 or more" in refusal({prefix + name: -1})
    assert config().client_rack == ""
    assert config(**{"client.rack": "r1"}).client_rack == "r1"
    assert config(**{"client.rack": "r1", "main.consumer.client.rack": "r2"}).client_rack == "r2"


def test_tags_say_where_a_client_is() -> None:
    """KIP-708: at most five, of limited length; those that keep standbys apart have to be there."""
    given = config(**{"client.tag.zone": "eu-1", "rack.aware.assignment.tags": "zone"})
    assert given.client_tags == {"zone": "eu-1"}
    assert given["rack.aware.assignment.tags"] == ("zone",)
    assert "no 'client.tag.zone'" in refusal({"rack.aware.assignment.tags": "zone"})
    assert "at most 20 characters" in refusal({f"client.tag.{'x' * 21}": "a"})
    assert "its value 30" in refusal({"client.tag.zone": "a" * 31})
    assert "the most is 5" in refusal({f"client.tag.t{number}": "a" for number in range(6)})
