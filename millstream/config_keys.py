"""The table of configuration keys: what each is called, what fits, what it does. No behaviour.

`Effect` is honest about keys of Kafka Streams that are accepted so that a configuration can be taken over as
it is: some have nothing to act on here, some wait for a later version.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = ["KEYS", "PREFIXES", "SERDE_NAMES", "Effect", "Importance", "Key", "Type"]


class Type(Enum):
    """What kind of value a key takes."""

    STRING = "string"
    INT = "int"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    LIST = "list"
    SERDE = "serde"
    HANDLER = "handler"
    ANY = "any"


class Importance(Enum):
    """How likely one is to need a key. Source: org.apache.kafka.common.config.ConfigDef.Importance."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Effect(Enum):
    """Whether setting a key changes anything."""

    YES = ""
    LATER = "not used yet"
    NONE = "no effect"


@dataclass(frozen=True, slots=True)
class Key:
    """One row.

    Attributes:
        default: what holds when the key is not given; None: nothing does.
        required: whether there must be a value.
        valid: the values that fit (texts are compared without case); empty: any.
        least, most: the smallest and the largest number that fits.
        doc: one or two sentences. For a key without effect, why it has none.
        refused: values that Kafka Streams knows and Millstream refuses, each with the reason.
    """

    name: str
    type: Type
    default: Any
    importance: Importance
    doc: str
    required: bool = False
    valid: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    effect: Effect = Effect.YES
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def fits(self) -> str:
        """What fits, in words, beyond the type."""
        if self.valid:
            return ", ".join(self.valid)
        if self.least is not None and self.most is not None:
            return f"from {self.least} to {self.most}"
        return "" if self.least is None else f"{self.least} or more"


_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_SPARK_READS = "Spark reads and writes the records, so there is no consumer or producer of ours this acts on."
_CACHE = "0: every update goes out. Else a micro-batch is the cache: the last one of each key does."
_BALANCED = "The assignor balances by the number of threads."
_FAIL_OR_CONTINUE = ("fail", "continue")
_TIMEOUTS = "A timeout ends what waited, and reaches the thread that owns it."
_GLOBAL = "Spark does not process global tables."
_METRICS = "There is no registry of Java metrics."
_JAVA_CLASS = "It names a Java class."

_WORKING = (
    Key(
        "application.id",
        Type.STRING,
        None,
        _HIGH,
        "Names the application: its clients share it, and it begins the names of internal topics, state "
        "directories and checkpoints. Letters, digits, '.', '_' and '-'.",
        required=True,
    ),
    Key(
        "bootstrap.servers",
        Type.LIST,
        None,
        _HIGH,
        "Where Kafka is, as host:port, several separated by commas; or 'embedded': a broker of this client's "
        "own, for trying things out.",
        required=True,
    ),
    Key(
        "state.dir",
        Type.STRING,
        None,
        _HIGH,
        "Where local stores are kept, in a folder named by the application id. By default the user's state "
        "directory of this machine, in 'millstream'. Differs: upstream's default is the temporary "
        "directory, which a restart may empty.",
    ),
    Key(
        "checkpoint.location",
        Type.STRING,
        None,
        _HIGH,
        "Where pipelines keep their progress and Spark its state: a path, or a URI that Spark can write, "
        "which all clients and executors reach: file, hdfs, viewfs, abfs, abfss or s3a. By default in "
        "state.dir, which is right for an application of one client.",
    ),
    Key(
        "source.lost.policy",
        Type.STRING,
        "fail",
        _MEDIUM,
        "What to do when a topic that a checkpoint has offsets in was deleted and created again, or has lost "
        "records before they were read. from-beginning keeps the state and reads what the topic has now from "
        "its beginning; what was gone before it was read stays gone.",
        valid=("fail", "from-beginning"),
    ),
    Key(
        "changelog.lost.policy",
        Type.STRING,
        "fail",
        _MEDIUM,
        "What to do when a changelog was deleted, created again or emptied, while the checkpoint has its "
        "store's state. rebuild writes all of it anew from Spark's state before the pipeline goes on.",
        valid=("fail", "rebuild"),
    ),
    Key(
        "processing.mode",
        Type.STRING,
        "micro-batch",
        _MEDIUM,
        "How Spark runs the pipelines. micro-batch: all that has come since the last time, together. "
        "real-time: each record as it comes, in milliseconds; what cannot run so is refused. auto: real-time "
        "where that gives what micro-batches give, and micro-batch elsewhere. See docs/real-time.md.",
        valid=("micro-batch", "real-time", "auto"),
    ),
    Key(
        "real.time.batch.ms",
        Type.INT,
        60_000,
        _LOW,
        "How long a batch lasts in Real-Time Mode; at its end it is committed, and a crash repeats at most "
        "one. From one to the next no record is processed for some tenths of a second, so a short one costs "
        "latency.",
        least=100,
    ),
    Key(
        "processing.guarantee",
        Type.STRING,
        "at_least_once",
        _MEDIUM,
        "What holds for output topics after a failure: with at_least_once records may be there twice; with "
        "exactly_once_v2 each is there once, for who reads with isolation.level=read_committed. Stores are "
        "exact either way: an update names its key's value, not a difference.",
        valid=("at_least_once", "exactly_once_v2"),
        refused=(
            ("exactly_once", "Kafka Streams 4.0 removed this name; the guarantee is exactly_once_v2"),
            ("exactly_once_beta", "Kafka Streams 4.0 removed this name; the guarantee is exactly_once_v2"),
        ),
    ),
    Key("num.stream.threads", Type.INT, 1, _MEDIUM, "How many stream threads the client has.", least=1),
    Key(
        "num.standby.replicas",
        Type.INT,
        0,
        _HIGH,
        "How many other clients keep a warm copy of each store partition, for a fail-over without restoring "
        "and for stale reads. The leader's value counts; with too few clients there are fewer copies.",
        least=0,
    ),
    Key(
        "acceptable.recovery.lag",
        Type.INT,
        10_000,
        _MEDIUM,
        "A store partition that is to move to another client for balance does so when that one's copy is "
        "behind by no more records than this.",
        least=0,
    ),
    Key(
        "windowstore.changelog.additional.retention.ms",
        Type.INT,
        86_400_000,
        _LOW,
        "How much longer than its store the changelog of a windowed store keeps records: clocks differ, and "
        "record timestamps are not those of the broker.",
        least=0,
    ),
    Key(
        "max.warmup.replicas",
        Type.INT,
        2,
        _MEDIUM,
        "How many store partitions are copied at a time, in the whole application, before they move. 0: they "
        "move at once, and cannot be read until they are restored where they have gone.",
        least=0,
    ),
    Key(
        "application.server",
        Type.STRING,
        "",
        _LOW,
        "Where the other clients reach this one, as host:port; told to all of them, so that each knows which "
        "client has a key. By default nowhere.",
    ),
    Key(
        "query.server.enabled",
        Type.BOOLEAN,
        False,
        _MEDIUM,
        "Whether the client answers queries over HTTP, and passes on what other clients have: see "
        "docs/query-server.md. It needs millstream[server].",
    ),
    Key(
        "ui.enabled",
        Type.BOOLEAN,
        False,
        _MEDIUM,
        "Whether the client has a dashboard for browsers, at /ui/ of its query server, which is started for "
        "it even if query.server.enabled is not set: see docs/dashboard.md. It needs millstream[server].",
    ),
    Key(
        "query.server.listen",
        Type.STRING,
        "",
        _MEDIUM,
        "Where it listens, as host:port. By default at application.server if that is this machine's "
        "loopback, else at 127.0.0.1 with that port; without application.server, at a port that is free.",
    ),
    Key(
        "query.server.token",
        Type.STRING,
        None,
        _MEDIUM,
        "What a query has to show, as 'Authorization: Bearer <token>'; the same for all clients of the "
        "application. It has to be set where others than this machine can reach the server. Between clients "
        "it is proved, and never sent.",
    ),
    Key(
        "query.server.peers",
        Type.LIST,
        (),
        _LOW,
        "Which endpoints of other clients this client asks: names ('*' for any characters), addresses or "
        "networks, each with ':port' or without. By default any that prove that they know the token; without "
        "a token, those on this machine.",
    ),
    Key(
        "query.server.ssl.certificate.location",
        Type.STRING,
        None,
        _LOW,
        "A PEM file with the query server's certificate, and those between it and its authority. Set, the "
        "server speaks https only, and asks the other clients over https: all of them have one.",
    ),
    Key(
        "query.server.ssl.key.location",
        Type.STRING,
        None,
        _LOW,
        "A PEM file with the key of that certificate. By default it is in the same file.",
    ),
    Key(
        "query.server.ssl.key.password",
        Type.STRING,
        None,
        _LOW,
        "What opens that key.",
    ),
    Key(
        "query.server.ssl.ca.location",
        Type.STRING,
        None,
        _LOW,
        "A PEM file with the authorities of the other clients' certificates. By default those that the "
        "machine trusts.",
    ),
    Key(
        "query.server.cors.origins",
        Type.LIST,
        (),
        _LOW,
        "The origins whose pages may read answers of the server in a browser (CORS), such as "
        "https://app.example.org; each exactly. By default none.",
    ),
    Key(
        "query.server.sql.enabled",
        Type.BOOLEAN,
        False,
        _LOW,
        "Whether the server answers SQL (POST /v1/sql) to who shows the token. The stores that a query names "
        "are read into this program's memory. It needs millstream[sql].",
    ),
    Key(
        "query.server.allow.anonymous",
        Type.BOOLEAN,
        False,
        _LOW,
        "Whether the server may listen without a token where others can reach it.",
    ),
    Key(
        "client.id",
        Type.STRING,
        "",
        _MEDIUM,
        "Names the client in logs and thread names. By default the application id and the process id of the "
        "state directory.",
    ),
    Key(
        "replication.factor",
        Type.INT,
        -1,
        _MEDIUM,
        "How many replicas internal topics get; -1: what the brokers' default is.",
        least=-1,
    ),
    Key(
        "max.batch.records",
        Type.INT,
        None,
        _MEDIUM,
        "How many records of a source a micro-batch takes at most. By default whatever there is, so a large "
        "backlog is one batch, and its first results come when all of it has been read.",
        least=1,
    ),
    Key(
        "group.protocol",
        Type.STRING,
        "classic",
        _MEDIUM,
        "How the clients of the application form their group.",
        valid=("classic",),
        refused=(
            ("streams", "its assignments are made by the broker, which does not know Spark's pipelines"),
            ("consumer", "its assignments are made by the broker, which does not know Spark's pipelines"),
        ),
    ),
    Key(
        "keep.spark.warm",
        Type.BOOLEAN,
        None,
        _MEDIUM,
        "Whether a client that has no pipeline to run starts Spark all the same, so that it can take one "
        "over in a second or two. Without, such a client has no Java process. Not given: true if "
        "num.standby.replicas is 1 or more, else false.",
    ),
    Key(
        "allow.os.group.write.access",
        Type.BOOLEAN,
        False,
        _LOW,
        "Whether the user's group may write the directories of stores and checkpoints (0770), or only read "
        "them (0750). Nobody else may enter them.",
    ),
    Key(
        "state.cleanup.delay.ms",
        Type.INT,
        600_000,
        _LOW,
        "How long the local state of a task that this client does not have is kept after its last use.",
        least=0,
    ),
    Key("default.key.serde", Type.SERDE, None, _MEDIUM, "The serde of keys where the topology names none."),
    Key(
        "default.value.serde", Type.SERDE, None, _MEDIUM, "The serde of values where the topology names none."
    ),
    Key(
        "schema.registry.url",
        Type.ANY,
        None,
        _MEDIUM,
        "Where the schema registry is, for serdes that have one: an address, several "
        "separated "
        "by commas, or 'mock://' and a name for tests.",
    ),
    Key(
        "schema.registry.timeout.ms",
        Type.INT,
        None,
        _LOW,
        "How long a schema registry that does not answer is asked again, 30 seconds by default; then the "
        "pipeline fails, and is tried again as the handler says.",
        least=1,
    ),
    Key(
        "auto.register.schemas",
        Type.BOOLEAN,
        None,
        _MEDIUM,
        "Whether schemas of what is written are registered, which is the default; else the registry has to "
        "have "
        "them.",
    ),
    Key(
        "use.latest.version",
        Type.BOOLEAN,
        None,
        _LOW,
        "Whether what is written has the newest schema of its subject.",
    ),
    Key(
        "key.subject.name.strategy",
        Type.STRING,
        None,
        _LOW,
        "How subjects of keys are called: TopicNameStrategy (the default), RecordNameStrategy or "
        "TopicRecordNameStrategy.",
    ),
    Key(
        "value.subject.name.strategy",
        Type.STRING,
        None,
        _LOW,
        "How subjects of values are called; as key.subject.name.strategy.",
    ),
    Key(
        "basic.auth.credentials.source",
        Type.STRING,
        None,
        _LOW,
        "Where the user of the schema registry is told: URL, in its address, or USER_INFO, in "
        "basic.auth.user.info.",
    ),
    Key(
        "basic.auth.user.info",
        Type.STRING,
        None,
        _MEDIUM,
        "The user of the schema registry and the password, with a colon between them.",
    ),
    Key(
        "bearer.auth.credentials.source",
        Type.STRING,
        None,
        _LOW,
        "STATIC_TOKEN: the schema registry is shown bearer.auth.token.",
    ),
    Key("bearer.auth.token", Type.STRING, None, _LOW, "What the schema registry is shown."),
    Key(
        "default.timestamp.extractor",
        Type.ANY,
        None,
        _MEDIUM,
        "What gives the records of a source their time, where Consumed says nothing: "
        "FailOnInvalidTimestamp() (the default), LogAndSkipOnInvalidTimestamp(), "
        "UsePartitionTimeOnInvalidTimestamp(), WallclockTimestampExtractor(), their names, or a "
        "function of the record.",
    ),
    Key(
        "default.dsl.store",
        Type.STRING,
        "rocksDB",
        _LOW,
        "Which kind of store tables get.",
        valid=("rocksDB", "in_memory"),
    ),
    Key(
        "commit.interval.ms",
        Type.INT,
        0,
        _LOW,
        "The shortest time from one micro-batch, which ends in a commit, to the next. With 0 one begins as "
        "soon as there is something to do. Longer: fewer, larger batches and fewer updates of tables.",
        least=0,
    ),
    Key(
        "request.timeout.ms",
        Type.INT,
        40_000,
        _LOW,
        "How long a question to Kafka may take, reaching it included.",
        least=1,
    ),
    Key(
        "metadata.max.age.ms", Type.INT, 300_000, _LOW, "How old knowledge about topics may become.", least=0
    ),
    Key("connections.max.idle.ms", Type.INT, None, _LOW, "When an idle connection is closed.", least=0),
    Key("reconnect.backoff.ms", Type.INT, None, _LOW, "How long to wait before connecting anew.", least=0),
    Key("reconnect.backoff.max.ms", Type.INT, None, _LOW, "How long that may become.", least=0),
    Key("retry.backoff.ms", Type.INT, None, _LOW, "How long to wait before asking again.", least=0),
    Key(
        "receive.buffer.bytes",
        Type.INT,
        None,
        _LOW,
        "The socket's receive buffer; -1: the system's.",
        least=-1,
    ),
    Key("send.buffer.bytes", Type.INT, None, _LOW, "The socket's send buffer; -1: the system's.", least=-1),
    Key(
        "replace.thread.max.failures",
        Type.INT,
        10,
        _MEDIUM,
        "For a handler that answers REPLACE_THREAD, and is no policy of its own: how many failures of a "
        "pipeline are answered so within replace.thread.window.ms, while it does not get past the records it "
        "fails on. 100 at most.",
        least=1,
    ),
    Key(
        "replace.thread.window.ms",
        Type.INT,
        3_600_000,
        _LOW,
        "For how long a failure counts against replace.thread.max.failures.",
        least=1,
    ),
    Key(
        "replace.thread.then",
        Type.STRING,
        "SHUTDOWN_CLIENT",
        _MEDIUM,
        "What takes the place of REPLACE_THREAD when there were more failures than that.",
        valid=("SHUTDOWN_CLIENT", "SHUTDOWN_APPLICATION", "SHUTDOWN_THREAD"),
    ),
    Key(
        "replace.thread.backoff.ms",
        Type.INT,
        100,
        _LOW,
        "The longest pause before a thread is replaced the second time; the first time there is none. It "
        "doubles with each failure, and a random part of it is taken.",
        least=0,
    ),
    Key(
        "replace.thread.backoff.max.ms",
        Type.INT,
        60_000,
        _LOW,
        "How long that may become.",
        least=0,
    ),
    Key(
        "security.protocol",
        Type.STRING,
        "PLAINTEXT",
        _MEDIUM,
        "How to talk to Kafka. With 'sasl.…' and 'ssl.…', which are passed on to every client of Kafka's.",
        valid=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    Key(
        "sasl.oauthbearer.token.provider",
        Type.ANY,
        None,
        _MEDIUM,
        "For OAUTHBEARER and AWS_MSK_IAM: a Python function that returns a token, or (token, seconds since "
        "1970 until which it is valid); or an object with such a method token(). It serves the clients in "
        "this process; Spark's Java client needs 'sasl.login.callback.handler.class'. See docs/logins.md.",
    ),
    Key(
        "deserialization.exception.handler",
        Type.HANDLER,
        "fail",
        _MEDIUM,
        "What happens to a record whose bytes its serde cannot read: 'fail' (LogAndFailExceptionHandler) "
        "ends the pipeline, 'continue' (LogAndContinueExceptionHandler) drops the record and counts it. Or a "
        "DeserializationExceptionHandler of your own, which is asked about each.",
        valid=_FAIL_OR_CONTINUE,
    ),
    Key(
        "default.deserialization.exception.handler",
        Type.HANDLER,
        None,
        _MEDIUM,
        "The old name of deserialization.exception.handler, which takes precedence.",
        valid=_FAIL_OR_CONTINUE,
    ),
    Key(
        "processing.exception.handler",
        Type.HANDLER,
        "fail",
        _MEDIUM,
        "What happens to a record for which the Columns of a function raise (a cast, an overflow, a division "
        "by zero): 'fail' (LogAndFailProcessingExceptionHandler) ends the pipeline, 'continue' "
        "(LogAndContinueProcessingExceptionHandler) drops the record and counts it. An exception in Python "
        "(a UDF, a fold) or within an aggregate function always ends the pipeline. Or a "
        "ProcessingExceptionHandler of your own, which is asked about each.",
        valid=_FAIL_OR_CONTINUE,
    ),
    Key(
        "production.exception.handler",
        Type.HANDLER,
        "fail",
        _MEDIUM,
        "What happens to a record that its serde cannot write, or that Kafka refuses (too large, a time or a "
        "null key that the topic does not take, no such partition): 'fail' "
        "(DefaultProductionExceptionHandler) ends the pipeline, 'continue' "
        "(LogAndContinueProductionExceptionHandler) drops the record and counts it. Failures that are not "
        "about one record, and those of changelog records, always end the pipeline. Or a "
        "ProductionExceptionHandler of your own, which is asked about each.",
        valid=_FAIL_OR_CONTINUE,
    ),
    Key(
        "default.production.exception.handler",
        Type.HANDLER,
        None,
        _MEDIUM,
        "The old name of production.exception.handler, which takes precedence.",
        valid=_FAIL_OR_CONTINUE,
    ),
    Key(
        "errors.dead.letter.queue.topic.name",
        Type.STRING,
        None,
        _MEDIUM,
        "A topic for the records that are dropped: key and value as they were read, their headers, and "
        "Kafka's '__streams.errors.…' headers, which say what happened. The topic has to exist.",
    ),
    Key(
        "errors.continue.max.ratio",
        Type.DOUBLE,
        1.0,
        _MEDIUM,
        "When more than this share of the records of recent batches was dropped, the pipeline ends with a "
        "PipelineException although a handler says 'continue'. 1: never.",
        least=0,
        most=1,
    ),
)


def _kept(effect: Effect, why: str, *rows: tuple[str, Type, Any, Importance]) -> tuple[Key, ...]:
    return tuple(
        Key(name, kind, default, importance, why, effect=effect) for name, kind, default, importance in rows
    )


_LATER = (
    *_kept(
        Effect.LATER,
        _BALANCED,
        ("rack.aware.assignment.non_overlap_cost", Type.INT, None, _LOW),
        ("rack.aware.assignment.strategy", Type.STRING, "none", _LOW),
        ("rack.aware.assignment.tags", Type.LIST, (), _LOW),
        ("rack.aware.assignment.traffic_cost", Type.INT, None, _LOW),
        ("task.assignor.class", Type.ANY, None, _MEDIUM),
    ),
    *_kept(
        Effect.LATER,
        _GLOBAL,
        ("processing.exception.handler.global.enabled", Type.BOOLEAN, False, _HIGH),
    ),
    *_kept(
        Effect.LATER,
        _TIMEOUTS,
        ("task.timeout.ms", Type.INT, 300_000, _MEDIUM),
    ),
    *_kept(
        Effect.LATER,
        "The directory of the application stays.",
        ("state.cleanup.dir.max.age.ms", Type.INT, -1, _LOW),
    ),
    *_kept(
        Effect.NONE,
        "For Kafka's console consumer; here WindowedSerdes makes the serdes of windowed keys.",
        ("window.size.ms", Type.INT, None, _LOW),
        ("windowed.inner.class.serde", Type.ANY, None, _LOW),
    ),
    *_kept(
        Effect.LATER,
        "Internal topics are named by Kafka Streams' rules, and not refused.",
        ("ensure.explicit.internal.resource.naming", Type.BOOLEAN, False, _HIGH),
    ),
)

_WITHOUT_EFFECT = (
    *_kept(
        Effect.NONE,
        "A client tells when the copy of a store partition is ready to take over, so nobody has to ask.",
        ("probing.rebalance.interval.ms", Type.INT, 600_000, _LOW),
    ),
    *_kept(
        Effect.NONE,
        _SPARK_READS,
        ("buffered.records.per.partition", Type.INT, 1000, _LOW),
        ("max.task.idle.ms", Type.INT, 0, _MEDIUM),
        ("poll.ms", Type.INT, 100, _LOW),
        ("repartition.purge.interval.ms", Type.INT, 30_000, _LOW),
    ),
    *_kept(
        Effect.YES,
        _CACHE,
        ("cache.max.bytes.buffering", Type.INT, 10_485_760, _MEDIUM),
        ("statestore.cache.max.bytes", Type.INT, 10_485_760, _MEDIUM),
    ),
    *_kept(
        Effect.NONE,
        _METRICS,
        ("built.in.metrics.version", Type.STRING, "latest", _LOW),
        ("enable.metrics.push", Type.BOOLEAN, True, _LOW),
        ("log.summary.interval.ms", Type.INT, 120_000, _LOW),
        ("metric.reporters", Type.LIST, (), _LOW),
        ("metrics.num.samples", Type.INT, 2, _LOW),
        ("metrics.recording.level", Type.STRING, "INFO", _LOW),
        ("metrics.sample.window.ms", Type.INT, 30_000, _LOW),
    ),
    *_kept(
        Effect.NONE,
        _JAVA_CLASS,
        ("config.providers", Type.LIST, (), _LOW),
        ("default.client.supplier", Type.ANY, None, _LOW),
        ("default.list.key.serde.inner", Type.ANY, None, _MEDIUM),
        ("default.list.key.serde.type", Type.ANY, None, _MEDIUM),
        ("default.list.value.serde.inner", Type.ANY, None, _MEDIUM),
        ("default.list.value.serde.type", Type.ANY, None, _MEDIUM),
        ("dsl.store.suppliers.class", Type.ANY, None, _LOW),
        ("processor.wrapper.class", Type.ANY, None, _LOW),
        ("rocksdb.config.setter", Type.ANY, None, _LOW),
    ),
    *_kept(
        Effect.NONE,
        "The clients of Kafka's that we use have a rule of their own for it.",
        ("metadata.recovery.rebootstrap.trigger.ms", Type.INT, 300_000, _LOW),
        ("metadata.recovery.strategy", Type.STRING, "rebootstrap", _LOW),
    ),
    *_kept(Effect.NONE, "There is one store format.", ("dsl.store.format", Type.STRING, "DEFAULT", _LOW)),
    *_kept(
        Effect.NONE,
        "Where Spark can shuffle, no repartition topic is made anyway.",
        ("topology.optimization", Type.STRING, "none", _MEDIUM),
    ),
    *_kept(Effect.NONE, "There is no older version to come from.", ("upgrade.from", Type.STRING, None, _LOW)),
)

KEYS: dict[str, Key] = {key.name: key for key in (*_WORKING, *_LATER, *_WITHOUT_EFFECT)}

PREFIXES: dict[str, str] = {
    "spark.": "a setting of the Spark session",
    "consumer.": "a setting of every consumer: Spark's sources, those that fill stores, the group's member; "
    "goes before the same key without a prefix",
    "main.consumer.": "a setting of Spark's sources and the group's member; goes before 'consumer.'",
    "restore.consumer.": "a setting of the consumers that fill stores; goes before 'consumer.'",
    "global.consumer.": "a setting of the consumer of global tables; goes before 'consumer.'",
    "producer.": "a setting of Spark's sinks",
    "admin.": "a setting of the client that creates and describes topics",
    "topic.": "a setting of every internal topic",
    "client.tag.": "describes this client, for placing standby tasks; not used yet",
    "schema.registry.": "a setting of what asks the schema registry: the keys of its login, and ssl.*",
    "processing.mode.": "the processing.mode of one pipeline, by the name that explain() shows: "
    "'processing.mode.p0'",
    "sasl.": "how every client of Kafka's logs in",
    "ssl.": "how every client of Kafka's encrypts",
}
"""Whatever begins with one of these is passed on, and checked by who gets it."""

SERDE_NAMES = (
    "bytes",
    "string",
    "integer",
    "long",
    "short",
    "float",
    "double",
    "boolean",
    "uuid",
    "void",
    "avro",
    "json_schema",
    "protobuf",
)
"""The serdes that a configuration can name."""
