"""The table of configuration keys: their names, valid values and effects. No behaviour.

`Effect` is honest about keys that are accepted only so that a Kafka Streams configuration works unchanged:
some have nothing to act on here, others wait for a later version.
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
    """How likely users are to need a key. Source: org.apache.kafka.common.config.ConfigDef.Importance."""

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
                default: the value when the key is not given; None if there is none.
        required: whether a value must be given.
        valid: the valid values (compared without case); empty: any.
        least, most: the smallest and the largest valid number.
        doc: one or two sentences. For a key without effect, the reason.
        refused: values that Kafka Streams accepts and Millstream refuses, each with the reason.
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
        """The valid values in words, beyond the type."""
        if self.valid:
            return ", ".join(self.valid)
        if self.least is not None and self.most is not None:
            return f"from {self.least} to {self.most}"
        return "" if self.least is None else f"{self.least} or more"


_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_CACHE = "0: every update is sent. Otherwise only the last update of each key before a commit is sent."
_FAIL_OR_CONTINUE = ("fail", "continue")
_GLOBAL = "Spark does not process global tables."
_METRICS = "There is no registry of Java metrics."
_JAVA_CLASS = "It names a Java class."

_WORKING = (
    Key(
        "application.id",
        Type.STRING,
        None,
        _HIGH,
        "The application's name, shared by all its clients. Internal topics and state "
        "directories are prefixed with it. Letters, digits, '.', '_' and '-'.",
        required=True,
    ),
    Key(
        "bootstrap.servers",
        Type.LIST,
        None,
        _HIGH,
        "The Kafka brokers, as host:port, separated by commas; or 'embedded' for a broker of this client's "
        "own, to try things out.",
        required=True,
    ),
    Key(
        "state.dir",
        Type.STRING,
        None,
        _HIGH,
        "The directory of the local stores, which are in a folder named after the application id. Default: "
        "'millstream' in the user's state directory. Differs: Kafka Streams defaults to the temporary "
        "directory, which a restart may empty.",
    ),
    Key(
        "checkpoint.location",
        Type.STRING,
        None,
        _HIGH,
        "Where the queries of to_spark() keep their progress: a path, or a URI that Spark can write to and "
        "that all clients can reach. Default: inside state.dir, which is right for an application with one "
        "client. Everything else keeps its progress in Kafka.",
    ),
    Key(
        "source.lost.policy",
        Type.STRING,
        "fail",
        _MEDIUM,
        "What to do when a topic that offsets are committed of was deleted and created again, or lost "
        "records before they were read. from-beginning keeps the state and reads the topic as it is now "
        "from its beginning; records that were lost unread stay lost.",
        valid=("fail", "from-beginning"),
    ),
    Key(
        "processing.guarantee",
        Type.STRING,
        "at_least_once",
        _MEDIUM,
        "The guarantee for output topics after a failure. at_least_once: records may be duplicated. "
        "exactly_once_v2: readers with isolation.level=read_committed see each record once. Stores are "
        "exact either way: an update holds its key's value, not a difference.",
        valid=("at_least_once", "exactly_once_v2"),
        refused=(
            ("exactly_once", "Kafka Streams 4.0 removed this name; the guarantee is exactly_once_v2"),
            ("exactly_once_beta", "Kafka Streams 4.0 removed this name; the guarantee is exactly_once_v2"),
        ),
    ),
    Key("num.stream.threads", Type.INT, 1, _MEDIUM, "The number of stream threads of the client.", least=1),
    Key(
        "num.standby.replicas",
        Type.INT,
        0,
        _HIGH,
        "How many other clients keep a warm copy of each store partition, for failover without a restore "
        "and for stale reads. The group leader's value counts; with too few clients there are fewer copies.",
        least=0,
    ),
    Key(
        "acceptable.recovery.lag",
        Type.INT,
        10_000,
        _MEDIUM,
        "A store partition moves to another client for balance only once the copy there lags by at most "
        "this many records.",
        least=0,
    ),
    Key(
        "windowstore.changelog.additional.retention.ms",
        Type.INT,
        86_400_000,
        _LOW,
        "How much longer than the store itself the changelog of a windowed store keeps records. Clocks "
        "differ, and record timestamps are not the broker's.",
        least=0,
    ),
    Key(
        "max.warmup.replicas",
        Type.INT,
        2,
        _MEDIUM,
        "How many store partitions of the whole application may be warming up at the same time before they "
        "move, besides those that have state at their destination. 0: they move at once, and cannot be read "
        "at their destination until they are restored.",
        least=0,
    ),
    Key(
        "application.server",
        Type.STRING,
        "",
        _LOW,
        "The address at which the other clients reach this one, as host:port. It is shared with all "
        "clients, so that each knows which client has a key. Default: none.",
    ),
    Key(
        "query.server.enabled",
        Type.BOOLEAN,
        False,
        _MEDIUM,
        "Whether the client answers queries over HTTP, and forwards those for keys of other clients: see "
        "docs/query-server.md. Requires millstream[server].",
    ),
    Key(
        "ui.enabled",
        Type.BOOLEAN,
        False,
        _MEDIUM,
        "Whether the client serves a dashboard for browsers, at /ui/ of its query server. The server is "
        "started for it even if query.server.enabled is not set: see docs/dashboard.md. Requires "
        "millstream[server].",
    ),
    Key(
        "query.server.listen",
        Type.STRING,
        "",
        _MEDIUM,
        "The address that the query server listens on, as host:port. Default: application.server if that is"
        " this machine's loopback address, else 127.0.0.1 with the same port; without application.server, a"
        " free port.",
    ),
    Key(
        "query.server.token",
        Type.STRING,
        None,
        _MEDIUM,
        "The token that queries must present, as 'Authorization: Bearer <token>'; the same for all clients "
        "of the application. Required where other machines can reach the server. Clients prove to each "
        "other that they know it, and never send it.",
    ),
    Key(
        "query.server.peers",
        Type.LIST,
        (),
        _LOW,
        "The endpoints of other clients that this client may query: names ('*' stands for any characters), "
        "addresses or networks, with or without ':port'. Default: any that prove that they know the token; "
        "without a token, those on this machine.",
    ),
    Key(
        "query.server.ssl.certificate.location",
        Type.STRING,
        None,
        _LOW,
        "A PEM file with the query server's certificate and its intermediate certificates. If set, the "
        "server speaks https only and queries the other clients over https, so all of them need a "
        "certificate.",
    ),
    Key(
        "query.server.ssl.key.location",
        Type.STRING,
        None,
        _LOW,
        "A PEM file with the certificate's private key. Default: the certificate's file.",
    ),
    Key(
        "query.server.ssl.key.password",
        Type.STRING,
        None,
        _LOW,
        "The password of the private key.",
    ),
    Key(
        "query.server.ssl.ca.location",
        Type.STRING,
        None,
        _LOW,
        "A PEM file with the authorities that sign the other clients' certificates. Default: those that the"
        " machine trusts.",
    ),
    Key(
        "query.server.cors.origins",
        Type.LIST,
        (),
        _LOW,
        "The origins whose pages may read the server's answers in a browser (CORS), each in full, such as "
        "https://app.example.org. Default: none.",
    ),
    Key(
        "query.server.sql.enabled",
        Type.BOOLEAN,
        False,
        _LOW,
        "Whether the server answers SQL (POST /v1/sql) to clients that present the token. The stores that a"
        " query names are read into this program's memory. Requires millstream[sql].",
    ),
    Key(
        "query.server.allow.anonymous",
        Type.BOOLEAN,
        False,
        _LOW,
        "Whether the server may listen without a token on an address that other machines can reach.",
    ),
    Key(
        "client.id",
        Type.STRING,
        "",
        _MEDIUM,
        "The client's name in logs and thread names. Default: the application id and the process id of the "
        "state directory.",
    ),
    Key(
        "replication.factor",
        Type.INT,
        -1,
        _MEDIUM,
        "The number of replicas of internal topics; -1: the brokers' default.",
        least=-1,
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
        "Whether a client without a pipeline starts Spark all the same, so that it can take one over in a "
        "second or two. Otherwise such a client has no Java process. Default: true if num.standby.replicas "
        "is 1 or more, else false.",
    ),
    Key(
        "allow.os.group.write.access",
        Type.BOOLEAN,
        False,
        _LOW,
        "Whether the user's group may write to the directories of stores (0770), or only read them "
        "(0750). Other users have no access.",
    ),
    Key(
        "state.cleanup.delay.ms",
        Type.INT,
        600_000,
        _LOW,
        "How long the local state of a task that this client no longer owns is kept after its last use.",
        least=0,
    ),
    Key(
        "default.key.serde", Type.SERDE, None, _MEDIUM, "The serde of keys for which the topology names none."
    ),
    Key(
        "default.value.serde",
        Type.SERDE,
        None,
        _MEDIUM,
        "The serde of values for which the topology names none.",
    ),
    Key(
        "schema.registry.url",
        Type.ANY,
        None,
        _MEDIUM,
        "The address of the schema registry, for serdes that use one; several are separated by commas. "
        "'mock://' and a name is a registry for tests.",
    ),
    Key(
        "schema.registry.timeout.ms",
        Type.INT,
        None,
        _LOW,
        "How long a schema registry that does not answer is retried; 30 seconds by default. Then the "
        "pipeline fails, and the uncaught exception handler decides.",
        least=1,
    ),
    Key(
        "auto.register.schemas",
        Type.BOOLEAN,
        None,
        _MEDIUM,
        "Whether the schemas of written records are registered (the default). If not, the registry must "
        "have them already.",
    ),
    Key(
        "use.latest.version",
        Type.BOOLEAN,
        None,
        _LOW,
        "Whether records are written with the newest schema of their subject.",
    ),
    Key(
        "key.subject.name.strategy",
        Type.STRING,
        None,
        _LOW,
        "How subjects of keys are named: TopicNameStrategy (the default), RecordNameStrategy or "
        "TopicRecordNameStrategy.",
    ),
    Key(
        "value.subject.name.strategy",
        Type.STRING,
        None,
        _LOW,
        "How subjects of values are named; as key.subject.name.strategy.",
    ),
    Key(
        "basic.auth.credentials.source",
        Type.STRING,
        None,
        _LOW,
        "Where the schema registry's user and password are given: URL, in its address, or USER_INFO, in "
        "basic.auth.user.info.",
    ),
    Key(
        "basic.auth.user.info",
        Type.STRING,
        None,
        _MEDIUM,
        "The user and password for the schema registry, separated by a colon.",
    ),
    Key(
        "bearer.auth.credentials.source",
        Type.STRING,
        None,
        _LOW,
        "STATIC_TOKEN: bearer.auth.token is sent to the schema registry.",
    ),
    Key("bearer.auth.token", Type.STRING, None, _LOW, "The token for the schema registry."),
    Key(
        "default.timestamp.extractor",
        Type.ANY,
        None,
        _MEDIUM,
        "What sets the timestamps of source records if Consumed does not say: FailOnInvalidTimestamp() (the"
        " default), LogAndSkipOnInvalidTimestamp(), UsePartitionTimeOnInvalidTimestamp(), "
        "WallclockTimestampExtractor(), their names, or a function of the record.",
    ),
    Key(
        "default.dsl.store",
        Type.STRING,
        "rocksDB",
        _LOW,
        "The kind of store that tables get.",
        valid=("rocksDB", "in_memory"),
    ),
    Key(
        "commit.interval.ms",
        Type.INT,
        100,
        _LOW,
        "The shortest time from one commit of a task to the next. A commit writes what caches hold back, and "
        "makes results of exactly_once_v2 visible; longer intervals mean fewer updates of tables. Kafka's "
        "default is 30000 with at_least_once.",
        least=0,
    ),
    Key(
        "request.timeout.ms",
        Type.INT,
        40_000,
        _LOW,
        "How long a request to Kafka may take, including the connection.",
        least=1,
    ),
    Key(
        "metadata.max.age.ms",
        Type.INT,
        300_000,
        _LOW,
        "How old topic metadata may become before it is refreshed.",
        least=0,
    ),
    Key(
        "connections.max.idle.ms",
        Type.INT,
        None,
        _LOW,
        "How long a connection may be idle before it is closed.",
        least=0,
    ),
    Key("reconnect.backoff.ms", Type.INT, None, _LOW, "How long to wait before reconnecting.", least=0),
    Key("reconnect.backoff.max.ms", Type.INT, None, _LOW, "The longest that this wait may become.", least=0),
    Key("retry.backoff.ms", Type.INT, None, _LOW, "How long to wait before retrying a request.", least=0),
    Key(
        "receive.buffer.bytes",
        Type.INT,
        None,
        _LOW,
        "The size of the socket's receive buffer; -1: the system's default.",
        least=-1,
    ),
    Key(
        "send.buffer.bytes",
        Type.INT,
        None,
        _LOW,
        "The size of the socket's send buffer; -1: the system's default.",
        least=-1,
    ),
    Key(
        "replace.thread.max.failures",
        Type.INT,
        10,
        _MEDIUM,
        "For a handler that answers REPLACE_THREAD without a policy of its own: how many failures of a "
        "pipeline may be answered this way within replace.thread.window.ms while the pipeline does not get "
        "past the records it fails on. At most 100.",
        least=1,
    ),
    Key(
        "replace.thread.window.ms",
        Type.INT,
        3_600_000,
        _LOW,
        "How long a failure counts towards replace.thread.max.failures.",
        least=1,
    ),
    Key(
        "replace.thread.then",
        Type.STRING,
        "SHUTDOWN_CLIENT",
        _MEDIUM,
        "The answer that takes the place of REPLACE_THREAD once replace.thread.max.failures is exceeded.",
        valid=("SHUTDOWN_CLIENT", "SHUTDOWN_APPLICATION", "SHUTDOWN_THREAD"),
    ),
    Key(
        "replace.thread.backoff.ms",
        Type.INT,
        100,
        _LOW,
        "The longest pause before a thread is replaced for the second time; the first replacement is "
        "immediate. The pause doubles with each failure, and a random fraction of it is used.",
        least=0,
    ),
    Key(
        "replace.thread.backoff.max.ms",
        Type.INT,
        60_000,
        _LOW,
        "The upper limit of that pause.",
        least=0,
    ),
    Key(
        "security.protocol",
        Type.STRING,
        "PLAINTEXT",
        _MEDIUM,
        "The protocol for connections to Kafka. The 'sasl.…' and 'ssl.…' keys that go with it are passed on"
        " to every Kafka client.",
        valid=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    Key(
        "sasl.oauthbearer.token.provider",
        Type.ANY,
        None,
        _MEDIUM,
        "For OAUTHBEARER and AWS_MSK_IAM: a Python function that returns a token, or (token, expiry in "
        "seconds since 1970); or an object with a method token() that does. It serves the clients in this "
        "process; Spark's Java client needs 'sasl.login.callback.handler.class'. See docs/logins.md.",
    ),
    Key(
        "deserialization.exception.handler",
        Type.HANDLER,
        "fail",
        _MEDIUM,
        "What happens to a record whose bytes its serde cannot read: 'fail' (LogAndFailExceptionHandler) "
        "ends the pipeline, 'continue' (LogAndContinueExceptionHandler) drops the record and counts it. Or "
        "a DeserializationExceptionHandler of your own, which decides for each record.",
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
        "What happens to a record for which the Columns of a function raise (a cast, an overflow, a "
        "division by zero): 'fail' (LogAndFailProcessingExceptionHandler) ends the pipeline, 'continue' "
        "(LogAndContinueProcessingExceptionHandler) drops the record and counts it. An exception in Python "
        "(a UDF, a fold) or within an aggregate function always ends the pipeline. Or a "
        "ProcessingExceptionHandler of your own, which decides for each record.",
        valid=_FAIL_OR_CONTINUE,
    ),
    Key(
        "production.exception.handler",
        Type.HANDLER,
        "fail",
        _MEDIUM,
        "What happens to a record that its serde cannot write, or that Kafka rejects (too large, a "
        "timestamp or null key that the topic does not accept, no such partition): 'fail' "
        "(DefaultProductionExceptionHandler) ends the pipeline, 'continue' "
        "(LogAndContinueProductionExceptionHandler) drops the record and counts it. Failures that do not "
        "concern a single record, and those of changelog records, always end the pipeline. Or a "
        "ProductionExceptionHandler of your own, which decides for each record.",
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
        "rack.aware.assignment.strategy",
        Type.STRING,
        "none",
        _LOW,
        "Whether tasks go to clients in whose rack (client.rack) replicas of their partitions are (KIP-925). "
        "min_traffic: so that as few partitions as possible are read from another rack. balance_subtopology: "
        "the same, and each subtopology's tasks are spread over the clients. In any case, tasks stay evenly "
        "spread over threads. Every client needs a client.rack, and every broker a "
        "broker.rack; otherwise racks do not count, and the leader logs why. Clients read from a replica in "
        "their rack only if the brokers have replica.selector.class=org.apache.kafka.common.replica."
        "RackAwareReplicaSelector (KIP-392).",
        valid=("none", "min_traffic", "balance_subtopology"),
    ),
    Key(
        "rack.aware.assignment.traffic_cost",
        Type.INT,
        None,
        _LOW,
        "What each partition costs that a task with state, or a standby, reads from another rack. Default: "
        "10. For tasks without state it is 1.",
        least=0,
    ),
    Key(
        "rack.aware.assignment.non_overlap_cost",
        Type.INT,
        None,
        _LOW,
        "What it costs to move a task with state, or a standby, to another client for its rack. Default: 1. "
        "For tasks without state it is 0.",
        least=0,
    ),
    Key(
        "errors.dead.letter.queue.topic.name",
        Type.STRING,
        None,
        _MEDIUM,
        "A topic for dropped records: their key and value as they were read, their headers, and Kafka's "
        "'__streams.errors.…' headers, which describe the failure. The topic must exist.",
    ),
    Key(
        "errors.continue.max.ratio",
        Type.DOUBLE,
        1.0,
        _MEDIUM,
        "If more than this share of the records of recent batches was dropped, the pipeline ends with a "
        "PipelineException, even though a handler says 'continue'. 1: never.",
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
        "The assignor balances by the number of threads.",
        ("task.assignor.class", Type.ANY, None, _MEDIUM),
    ),
    *_kept(
        Effect.YES,
        "The names of up to five `client.tag.…` settings that tell where a client is. A task and its "
        "standbys go to clients for which these differ (KIP-708), as far as there are such.",
        ("rack.aware.assignment.tags", Type.LIST, (), _LOW),
    ),
    *_kept(
        Effect.LATER,
        _GLOBAL,
        ("processing.exception.handler.global.enabled", Type.BOOLEAN, False, _HIGH),
    ),
    *_kept(
        Effect.YES,
        "How long a task tries a request to Kafka again that times out, before it fails.",
        ("task.timeout.ms", Type.INT, 300_000, _MEDIUM),
    ),
    *_kept(
        Effect.LATER,
        "The application's directory is never deleted.",
        ("state.cleanup.dir.max.age.ms", Type.INT, -1, _LOW),
    ),
    *_kept(
        Effect.NONE,
        "Meant for Kafka's console consumer; here WindowedSerdes creates the serdes of windowed keys.",
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
        "A client reports when its copy of a store partition is ready to take over, so no probing is needed.",
        ("probing.rebalance.interval.ms", Type.INT, 600_000, _LOW),
    ),
    *_kept(
        Effect.YES,
        "How many records of a partition a task holds before it stops reading it for a while.",
        ("buffered.records.per.partition", Type.INT, 1000, _LOW),
    ),
    *_kept(
        Effect.YES,
        "How long a task waits for records of a partition without any while others have some, so that joins "
        "see records in the order of their times; -1: not even for those that are on their way.",
        ("max.task.idle.ms", Type.INT, 0, _MEDIUM),
    ),
    *_kept(
        Effect.YES,
        "How often records of repartition topics are deleted that are committed.",
        ("repartition.purge.interval.ms", Type.INT, 30_000, _LOW),
    ),
    *_kept(
        Effect.NONE,
        "A task waits for records until something else is due.",
        ("poll.ms", Type.INT, 100, _LOW),
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
        "The Kafka clients that we use have their own rule for this.",
        ("metadata.recovery.rebootstrap.trigger.ms", Type.INT, 300_000, _LOW),
        ("metadata.recovery.strategy", Type.STRING, "rebootstrap", _LOW),
    ),
    *_kept(
        Effect.NONE, "There is only one store format.", ("dsl.store.format", Type.STRING, "DEFAULT", _LOW)
    ),
    *_kept(
        Effect.NONE,
        "Nothing is optimized, except that a table's topic is its changelog.",
        ("topology.optimization", Type.STRING, "none", _MEDIUM),
    ),
    *_kept(
        Effect.NONE, "There is no older version to upgrade from.", ("upgrade.from", Type.STRING, None, _LOW)
    ),
)

KEYS: dict[str, Key] = {key.name: key for key in (*_WORKING, *_LATER, *_WITHOUT_EFFECT)}

PREFIXES: dict[str, str] = {
    "spark.": "a setting of the Spark session",
    "consumer.": "a setting of every consumer: Spark's sources, those that fill stores, the group member; "
    "overrides the same key without a prefix",
    "main.consumer.": "a setting of Spark's sources and the group member; overrides 'consumer.'",
    "restore.consumer.": "a setting of the consumers that fill stores; overrides 'consumer.'",
    "global.consumer.": "a setting of the consumer of global tables; overrides 'consumer.'",
    "producer.": "a setting of Spark's sinks",
    "admin.": "a setting of the client that creates and describes topics",
    "topic.": "a setting of every internal topic",
    "client.tag.": "where this client is, such as its zone; see rack.aware.assignment.tags",
    "schema.registry.": "a setting of the schema registry's client: the keys of its login, and ssl.*",
    "sasl.": "a login setting of every Kafka client",
    "ssl.": "an encryption setting of every Kafka client",
}
"""Keys with these prefixes are passed on, and checked by the component that receives them."""

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
"""The serdes that can be named in a configuration."""
