"""`Serdes`, which makes them: by their formats, and by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millstream.caller import caller
from millstream.errors import ConfigException, TopologyException
from millstream.not_there import ExplainsPythonNames
from millstream.serdes.ddl import complaint
from millstream.serdes.formats import (
    BooleanSerde,
    BytesSerde,
    CustomSerde,
    FloatingSerde,
    IntegralSerde,
    JsonSerde,
    ListSerde,
    StringSerde,
    UuidSerde,
    VoidSerde,
)
from millstream.serdes.serde import Serde

__all__ = ["Serdes", "serde_named"]


class Serdes(metaclass=ExplainsPythonNames):
    """Makes serdes: `Serdes.string()`, `Serdes.json("user STRING, amount DOUBLE")`.

    Source: org.apache.kafka.common.serialization.Serdes.
    """

    @staticmethod
    def bytes() -> Serde:
        """Bytes as they are; a binary Column."""
        return BytesSerde()

    @staticmethod
    def string() -> Serde:
        """UTF-8; a string Column."""
        return StringSerde()

    @staticmethod
    def short() -> Serde:
        """2 bytes, big-endian; a smallint Column."""
        return IntegralSerde("short", 2)

    @staticmethod
    def integer() -> Serde:
        """4 bytes, big-endian; an int Column."""
        return IntegralSerde("integer", 4)

    @staticmethod
    def long() -> Serde:
        """8 bytes, big-endian; a bigint Column."""
        return IntegralSerde("long", 8)

    @staticmethod
    def float() -> Serde:
        """4 bytes, IEEE 754, big-endian; a float Column."""
        return FloatingSerde("float", 4)

    @staticmethod
    def double() -> Serde:
        """8 bytes, IEEE 754, big-endian; a double Column."""
        return FloatingSerde("double", 8)

    @staticmethod
    def boolean() -> Serde:
        """One byte, 1 or 0; a boolean Column."""
        return BooleanSerde()

    @staticmethod
    def uuid() -> Serde:
        """36 ASCII characters; a string Column."""
        return UuidSerde()

    @staticmethod
    def byte_buffer() -> Serde:
        """Same as `bytes`: Python has one type where Java has several."""
        return BytesSerde()

    @staticmethod
    def void() -> Serde:
        """Nothing but nulls."""
        return VoidSerde()

    @staticmethod
    def list(inner: Serde) -> Serde:
        """A list of values of this serde; an array Column.

        Raises:
            TopologyException: `inner` is not a serde.

        Source: KIP-466, Serdes.ListSerde. Differs: it takes no Java class.
        """
        if not isinstance(inner, Serde):
            raise TopologyException(
                f"Serdes.list() takes the serde of the elements, such as Serdes.string(), got {inner!r}"
            )
        return ListSerde(inner)

    @staticmethod
    def json(schema: Any) -> Serde:
        """A JSON object of this schema, a DDL string or a StructType; a struct Column. With the schema of one
        type, such as `ARRAY<STRING>`, `MAP<STRING, BIGINT>` or `DOUBLE`, a whole JSON value of that type.

        Raises:
            TopologyException: `schema` is neither, or is invalid as far as can be checked without Spark.
        """
        # A DataType is recognized by its attributes: this package does not import pyspark.
        is_type = hasattr(schema, "simpleString") and hasattr(schema, "jsonValue")
        if not is_type and not (isinstance(schema, str) and schema.strip()):
            raise TopologyException(
                f"Serdes.json() takes a schema, got {schema!r}; give a DDL string such as "
                '"user STRING, amount DOUBLE", or a StructType'
            )
        made_at = caller()
        if not is_type and (wrong := complaint(schema)) is not None:
            raise TopologyException(
                f"Serdes.json({schema!r}) at {made_at}: {wrong}. A schema is written as in Spark's DDL, "
                '"user STRING, amount DOUBLE, tags ARRAY<STRING>"'
            )
        return JsonSerde(schema, made_at)

    @staticmethod
    def avro(
        schema: Any = None,
        *,
        subject: str | None = None,
        record_name: str = "Record",
        registry: Mapping[str, Any] | None = None,
    ) -> Serde:
        """Avro with a schema registry, in Confluent's wire format; a struct Column for a record.

        Args:
            schema: to read and write with, as text or a dict; for a primitive type, its name. None: read with
                the subject's newest schema; write with the schema that was read, if the type is the same,
                else with one derived from the Column's type.
                subject: overrides the subject derived from the topic.
                record_name: the record's name in a schema derived from a type, such as `shop.Order`.
                registry: another registry than the configuration's: `schema.registry.url` and related
                    settings.

        Raises:
            TopologyException: this is not an Avro schema, or no Column has such a type.
            ConfigException: something is wrong with `registry`.

        Source: io.confluent.kafka.streams.serdes.avro.GenericAvroSerde.
        """
        from millstream.serdes.registered import avro_serde

        return avro_serde(schema, subject, record_name, registry)

    @staticmethod
    def json_schema(
        schema: Any = None,
        *,
        subject: str | None = None,
        title: str = "Record",
        registry: Mapping[str, Any] | None = None,
    ) -> Serde:
        """JSON with a JSON Schema and a schema registry, in Confluent's wire format. Arguments as of `avro`.

        Raises:
            TopologyException: this is not a JSON Schema, or no Column has such a type.
            ConfigException: something is wrong with `registry`.

        Source: io.confluent.kafka.streams.serdes.json.KafkaJsonSchemaSerde.
        """
        from millstream.serdes.registered import json_schema_serde

        return json_schema_serde(schema, subject, title, registry)

    @staticmethod
    def protobuf(
        message: Any = None,
        *,
        subject: str | None = None,
        message_name: str = "",
        registry: Mapping[str, Any] | None = None,
    ) -> Serde:
        """Protobuf with a schema registry, in Confluent's wire format; a struct Column.

        Args:
            message: the class generated by protoc. None: read with the subject's newest schema, as its
                message `message_name`, or the first one.
                subject: overrides the subject derived from the topic.
            registry: another registry than the configuration's.

        Raises:
            TopologyException: this is not such a class, or no Column has such a type.
            ConfigException: something is wrong with `registry`.

        Source: io.confluent.kafka.streams.serdes.protobuf.KafkaProtobufSerde.
        """
        from millstream.serdes.registered import protobuf_serde

        return protobuf_serde(message, subject, message_name, registry)

    @staticmethod
    def custom(
        name: str,
        *,
        serialize: Callable[[Any], Any],
        deserialize: Callable[[Any], Any],
        to_column: Callable[[Any], Any] | None = None,
        from_column: Callable[[Any], Any] | None = None,
        type: Any = None,
    ) -> Serde:
        """A format of your own: two Python functions, and for Spark either the Column's type, or the same
                functions on Columns, which is faster.

        Args:
            name: its name in messages; not the name of one of Kafka's serdes.
            serialize: Python value to bytes; never gets None.
            deserialize: bytes to Python value; never gets None.
            to_column: binary Column to value Column, such as `lambda data: data.cast("string")`.
            from_column: value Column to binary Column, such as `lambda value: value.cast("binary")`.
            type: of the Column, if these two are not given, in Spark's DDL. "amount DOUBLE" is a struct,
                whose values are dicts; "ARRAY<STRING>" a list. Python's functions run on Spark's workers.

        Raises:
            TopologyException: the name is taken, a function is not callable, or there is neither a type nor
                functions of Columns.
        """
        if not isinstance(name, str) or not name or name in {*_BY_NAME, "json"}:
            raise TopologyException(f"Serdes.custom() takes a name that no other serde has, got {name!r}")
        given: dict[str, Any] = {"serialize": serialize, "deserialize": deserialize}
        if type is None:
            given |= {"to_column": to_column, "from_column": from_column}
            if to_column is None and from_column is None:
                raise TopologyException(
                    f"serde '{name}' does not say what its Columns are: give a type, such as "
                    "type='user STRING, amount DOUBLE', or to_column= and from_column="
                )
        elif to_column is not None or from_column is not None:
            raise TopologyException(
                f"serde '{name}' has a type and functions of Columns; give the type, or both functions"
            )
        elif isinstance(type, str) and (wrong := complaint(type)) is not None:
            raise TopologyException(f"type={type!r} of serde '{name}': {wrong}")
        for word, function in given.items():
            if not callable(function):
                raise TopologyException(f"{word}= of serde '{name}' takes a function, got {function!r}")
        return CustomSerde(name, serialize, deserialize, to_column, from_column, type)

    @staticmethod
    def of(name: str | Serde) -> Serde:
        """The serde of that name, for configs such as `default.key.serde`; also by Kafka's class name.

        Raises:
            ConfigException: there is none.
        """
        if isinstance(name, Serde):
            return name
        # org.apache.kafka.common.serialization.Serdes$LongSerde, as it stands in a Java application's config.
        plain = str(name).rpartition("$")[2].removesuffix("Serde")
        factory = _BY_NAME.get(plain.lower()) or _BY_NAME.get(plain)
        if factory is None:
            hint = (
                "; a json serde has a schema: give Serdes.json(schema) itself"
                if plain.lower() == "json"
                else ""
            )
            raise ConfigException(
                f"no serde is called '{name}'; known names are {', '.join(sorted(_BY_NAME))}{hint}"
            )
        return factory()


_BY_NAME: dict[str, Callable[[], Serde]] = {
    "boolean": Serdes.boolean,
    "bytes": Serdes.bytes,
    "double": Serdes.double,
    "float": Serdes.float,
    "integer": Serdes.integer,
    "long": Serdes.long,
    "short": Serdes.short,
    "string": Serdes.string,
    "uuid": Serdes.uuid,
    "avro": Serdes.avro,
    "json_schema": Serdes.json_schema,
    "protobuf": Serdes.protobuf,
    "void": Serdes.void,
    # Kafka's class names that are not our word.
    "bytearray": Serdes.bytes,
    "bytebuffer": Serdes.bytes,
}


def serde_named(name: str) -> Serde | None:
    """The codec for a serde's name; None if the name is not enough (a user's serde).

    For data that clients exchange. A json serde has no schema then: only Spark needs it.
    """
    if name == "json":
        return JsonSerde()
    factory = _BY_NAME.get(name)
    return None if factory is None else factory()
