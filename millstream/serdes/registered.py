"""Serdes whose schemas are in a schema registry: Avro, JSON Schema and Protobuf, in Confluent's wire format.

A serde made by the user says what is known of the schema. Used for a topic it is *bound*: it then knows the
registry (that of the configuration, unless it has its own) and the subject.
`spark/compile/registry_serdes.py` is the Spark half; both use the same registry, and a test checks that they
produce the same bytes.

Source: io.confluent.kafka.serializers, io.confluent.kafka.streams.serdes.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from millstream.errors import (
    ConfigException,
    SchemaRegistryException,
    SerializationException,
    TopologyException,
)
from millstream.registry.registry_settings import RegistrySettings
from millstream.serdes import avro_reader, avro_types, json_schema_types, protobuf_types
from millstream.serdes.avro_nodes import MisreadError
from millstream.serdes.formats import JsonSerde, ListSerde
from millstream.serdes.serde import Serde
from millstream.serdes.windowed_serdes import WindowedSerde

if TYPE_CHECKING:
    from millstream.registry.registry_client import Registered, Registry

__all__ = [
    "AvroSerde",
    "JsonSchemaSerde",
    "ProtobufSerde",
    "RegistrySerde",
    "SerdePlace",
    "bound",
    "header_of",
    "reading",
]


@dataclass(frozen=True)
class SerdePlace:
    """Where a serde is used: for the keys or the values of a topic."""

    topic: str
    is_key: bool


@dataclass(frozen=True, repr=False)
class RegistrySerde(Serde):
    """A serde of one of the three formats.

    Attributes:
        schema: the text of the schema to read and write. Empty: the subject's newest schema is read, and the
            one to write is derived from the column's type.
        record: the name of a schema derived from a type.
        settings: the registry; None: that of the configuration.
        place: where it is used; None: that is not known yet, or it is within the application.
    """

    schema: str = ""
    record: str = "Record"
    settings: RegistrySettings | None = None
    place: SerdePlace | None = None
    subject_name: str = ""

    kind: ClassVar[str]
    """As a registry calls it."""

    def __repr__(self) -> str:
        what = self._schema_name or ("a schema" if self.schema else "")
        return f"Serdes.{self.name}({what})"

    @property
    def registry(self) -> Registry:
        """The registry.

        Raises:
            ConfigException: none is configured.
        """
        from millstream.registry.registry_client import registry_of  # it loads HTTP

        if self.settings is None:
            raise ConfigException(
                f"serde '{self.name}' needs a schema registry: set the configuration 'schema.registry.url', "
                "or give "
                f"Serdes.{self.name}(..., registry={{'schema.registry.url': 'http://localhost:8081'}})"
            )
        return registry_of(self.settings)

    @property
    def subject(self) -> str:
        """The subject of what is written: of the topic, or of what stays within the application."""
        settings = self.registry.settings
        if self.subject_name:
            return self.subject_name
        # Of each schema a subject of its own: nobody reads one of these after the other.
        digest = hashlib.sha256(self.schema.encode()).hexdigest()[:12]
        place = self.place or SerdePlace(f"{settings.application or 'millstream'}-internal-{digest}", False)
        return settings.subject(place.topic, self._schema_name, is_key=place.is_key)

    def reading(self) -> Self:
        """With the schema to read: the subject's newest, if none was given.

        Raises:
            TopologyException: the subject has none.
            SchemaRegistryException: the registry cannot be reached.
        """
        if self.schema:
            return self
        if self.place is None and not self.subject_name:
            raise TopologyException(
                f"serde '{self.name}' has no schema, and no single topic whose subject could provide it "
                "(the "
                f"source has a pattern, say); give one, Serdes.{self.name}(schema)"
            )
        found = self.registry.latest(self.subject)
        if found is None:
            urls = ", ".join(self.registry.settings.urls)
            raise TopologyException(
                f"serde '{self.name}' has no schema, and the registry at {urls} has no "
                f"subject '{self.subject}'; give one, Serdes.{self.name}(schema), or register it there"
            )
        if found.kind != self.kind:
            raise TopologyException(
                f"the subject '{self.subject}' has a schema of type {found.kind}, and serde "
                f"'{self.name}' reads {self.kind}; use {_FOR_KIND.get(found.kind, 'another serde')}"
            )
        return replace(self, schema=self._text_of(found))

    def writing(self) -> Self:
        """With the schema to write: the subject's newest, where the configuration says `use.latest.version`.

        Raises:
            SchemaRegistryException: the registry cannot be reached, or has no such subject.
        """
        if not self.registry.settings.latest or self.place is None:
            return self
        found = self.registry.latest(self.subject)
        if found is None:
            if self.schema:
                return self
            raise SchemaRegistryException(
                f"there is no subject '{self.subject}' to take the latest version of (use.latest.version)",
                error_code=40401,
            )
        return replace(self, schema=self._text_of(found))

    @property
    def schema_id(self) -> int:
        """The id that the registry has for the schema; it is registered, if it has none and may be.

        Raises:
            SchemaRegistryException: the registry cannot be reached, or rejects the schema.
        """
        return self.registry.id_of(self.subject, self.kind, self.schema)

    @property
    @abstractmethod
    def _schema_name(self) -> str:
        """How its record is called; "" without a schema, or if that has no name."""

    @property
    @abstractmethod
    def type_json(self) -> Any:
        """The type of its columns, as Spark's JSON has it."""

    @abstractmethod
    def derived(self, type_json: Any) -> Self:
        """With the schema that follows from a type, if it has none."""

    def _text_of(self, found: Registered) -> str:
        """A schema of the registry's as one text."""
        return found.text

    def encoder(self) -> Callable[[Any], bytes | None]:
        ready: list[RegistrySerde] = []  # the registry is asked for the newest schema once

        def encode(value: Any) -> bytes | None:
            if value is None:
                return None
            if not ready:
                ready.append(self._ready())
            return ready[0]._encode(value)

        return encode

    def _ready(self) -> Self:
        """With a schema to write.

        Raises:
            SerializationException: there is none.
        """
        if self.schema:
            return self
        try:
            return self.reading()
        except TopologyException as error:
            raise SerializationException(str(error)) from error


def header_of(schema_id: int) -> bytes:
    """What stands before a value."""
    return struct.pack(">bI", 0, schema_id)


def _id_of(serde: RegistrySerde, data: bytes) -> int:
    if len(data) < _HEADER or data[0] != 0:
        raise serde._refuse_data(data, _TAKES)
    id = int.from_bytes(data[1:5], "big", signed=True)
    if id < 0:  # no registry has one
        raise serde._refuse_data(data, _TAKES)
    return id


_HEADER = 5
_TAKES = "a 0 and the id of a schema before the value, as Confluent's serializers write them"
_FOR_KIND = {"AVRO": "Serdes.avro()", "JSON": "Serdes.json_schema()", "PROTOBUF": "Serdes.protobuf()"}


def bound(
    serde: Any, settings: RegistrySettings | None, topic: str | None = None, *, is_key: bool = False
) -> Any:
    """The serde as it is used for a topic's keys or values, with the registry of the configuration.

    Serdes without a registry are unchanged. Without a topic, the data stays in the application: it must not
    add a version to the subject of a topic that is only read.
    """
    if isinstance(serde, WindowedSerde | ListSerde):
        inner = bound(serde.inner, settings, topic, is_key=is_key)
        return serde if inner is serde.inner else replace(serde, inner=inner)
    if not isinstance(serde, RegistrySerde):
        return serde
    of = serde.settings
    if of is None:
        of = settings
    elif settings is not None:
        of = of.of_application(settings.application)
    return replace(serde, settings=of, place=None if topic is None else SerdePlace(topic, is_key))


def reading(serde: Any) -> Any:
    """A bound serde with the schema that it reads; those without a registry as they were.

    Raises:
        TopologyException: it has none, and the registry has none for it.
        SchemaRegistryException: the registry cannot be reached.
    """
    if isinstance(serde, WindowedSerde | ListSerde):
        inner = reading(serde.inner)
        return serde if inner is serde.inner else replace(serde, inner=inner)
    return serde.reading() if isinstance(serde, RegistrySerde) else serde


# --- Avro ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class AvroSerde(RegistrySerde):
    """Avro. A record is a struct Column in Spark, a dict in Python.

    Python's values are fastavro's: datetimes in UTC for timestamps, dates, times, Decimals, UUIDs; a
    union's value as it is. Differs: in Spark a `uuid` is a string, a time of day a number, and a union of
    several types a struct with a field for each (`member0`, `member1`).
    """

    name: str = field(default="avro", init=False)
    kind: ClassVar[str] = "AVRO"

    @property
    def _schema_name(self) -> str:
        return avro_types.record_name(self.schema) if self.schema else ""

    @property
    def type_json(self) -> Any:
        return _avro_type(self.schema)

    def _text_of(self, found: Registered) -> str:
        return avro_types.whole(found.texts)

    def derived(self, type_json: Any) -> Self:
        return self if self.schema else replace(self, schema=avro_types.avro_schema(type_json, self.record))

    def _encode(self, value: Any) -> bytes:
        serde = self._ready()
        out = io.BytesIO()
        out.write(header_of(serde.schema_id))
        try:
            _fastavro().schemaless_writer(out, _avro_parsed(serde.schema), value, strict_allow_default=True)
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError, ArithmeticError) as error:
            name = serde._schema_name or "its schema"
            where = _field_of(str(error))
            raise self._refuse_value(value, f"what {name} says{where} ({type(error).__name__})") from error
        return out.getvalue()

    def _decode(self, data: bytes) -> Any:
        id = _id_of(self, data)
        written = self.registry.by_id(id)
        if written is None:
            raise self._refuse_data(data, f"a schema id that the registry knows, and it does not know {id}")
        if written.kind != self.kind:
            raise self._refuse_data(data, f"Avro, and the schema of id {id} is {written.kind}")
        try:
            return avro_reader.reader(written.texts, self.schema)(data, _HEADER)
        except MisreadError as error:
            raise self._refuse_data(data, str(error)) from None
        except ValueError as error:
            raise self._refuse_data(data, f"a schema that fits its own ({error})") from error


_FIELDS = re.compile(r"(?: on field [A-Za-z_]\w*)+\Z")


def _field_of(said: str) -> str:
    """The field that fastavro complains of: the end of its message, which otherwise may quote the value."""
    found = _FIELDS.search(said)
    names = found[0].split(" on field ")[:0:-1] if found else []
    return f" in the field '{'.'.join(names)}'" if names else ""


def avro_serde(
    schema: Any, subject: str | None, record_name: str, registry: Mapping[str, Any] | None
) -> AvroSerde:
    """See Serdes.avro."""
    text = "" if schema is None else schema_text(schema, "Serdes.avro()")
    if text and text[0] not in '{["':
        text = json.dumps(text)  # `long` is the schema "long"; Avro in Java takes JSON alone
    if text:
        _avro_type(text)
    return AvroSerde(
        schema=text, record=record_name, settings=registry_settings(registry), subject_name=subject or ""
    )


@cache
def _avro_type(schema: str) -> Any:
    return avro_types.spark_type(schema)


@cache
def _avro_parsed(*texts: str) -> Any:
    names: dict[str, Any] = {}
    parsed = None
    for text in texts:
        schema = json.loads(text) if text.strip()[:1] in '{["' else text.strip()
        parsed = _fastavro().parse_schema(schema, named_schemas=names)
    return parsed


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError:
        raise ConfigException(
            "Avro in Python needs the package fastavro: pip install 'millstream[avro]'"
        ) from None
    return fastavro


# --- JSON Schema ---


@dataclass(frozen=True, repr=False)
class JsonSchemaSerde(RegistrySerde):
    """JSON with a JSON Schema: the bytes of a JSON serde after a schema id.

    Differs: the schema gives the type, and values are not validated beyond it. A reader does not request
        the schema
    that a record was written with: fields are found by name.
    """

    name: str = field(default="json_schema", init=False)
    kind: ClassVar[str] = "JSON"

    @property
    def _schema_name(self) -> str:
        return json_schema_types.title(self.schema) if self.schema else ""

    @property
    def type_json(self) -> Any:
        return json_schema_types.spark_type(self.schema)

    def derived(self, type_json: Any) -> Self:
        made = json_schema_types.json_schema
        return self if self.schema else replace(self, schema=made(type_json, self.record))

    def _encode(self, value: Any) -> bytes:
        serde = self._ready()
        return header_of(serde.schema_id) + (_json_serde(serde.schema).serialize(value) or b"")

    def _decode(self, data: bytes) -> Any:
        _id_of(self, data)
        return _json_serde(self._ready().schema).deserialize(data[5:])


@dataclass(frozen=True)
class _Described:
    """A type as JsonSerde wants it: with its JSON."""

    schema: str

    def jsonValue(self) -> Any:  # noqa: N802 - Spark's name
        return json_schema_types.spark_type(self.schema)

    def simpleString(self) -> str:  # noqa: N802 - Spark's name
        return "a JSON Schema's type"


@cache
def _json_serde(schema: str) -> JsonSerde:
    return JsonSerde(_Described(schema))


# --- Protobuf ---


@dataclass(frozen=True, repr=False)
class ProtobufSerde(RegistrySerde):
    """Protobuf. A message is a struct Column in Spark, a dict in Python; message objects are accepted too.

    Differs: a reader does not request the schema that a record was written with: fields are found by
        number. The
    position of the message in its file must be the same.
    """

    name: str = field(default="protobuf", init=False)
    kind: ClassVar[str] = "PROTOBUF"

    @property
    def descriptor(self) -> Any:
        """Of the message."""
        return protobuf_types.descriptor_of(self.schema, self.record)

    @property
    def _schema_name(self) -> str:
        return str(self.descriptor.full_name) if self.schema else ""

    @property
    def type_json(self) -> Any:
        return protobuf_types.spark_type(self.descriptor)

    def derived(self, type_json: Any) -> Self:
        if not self.schema:
            raise TopologyException(
                "Serdes.protobuf() cannot derive a schema, since fields need numbers: give a "
                "generated "
                "class, such as Serdes.protobuf(orders_pb2.Order)"
            )
        return self

    def _text_of(self, found: Registered) -> str:
        text = self.registry.serialized(found.id)
        assert text is not None
        return text

    def _encode(self, value: Any) -> bytes:
        serde = self._ready()
        message = value
        if isinstance(value, Mapping):
            try:
                message = protobuf_types.from_dict(value, protobuf_types.message_of(serde.descriptor))
            except (ValueError, TypeError, AttributeError) as error:
                raise self._refuse_value(
                    value, f"what {serde._schema_name} has ({type(error).__name__})"
                ) from error
        elif getattr(getattr(value, "DESCRIPTOR", None), "full_name", None) != serde._schema_name:
            raise self._refuse_value(value, f"a dict, or a {serde._schema_name}")
        data: bytes = message.SerializeToString(deterministic=True)
        return header_of(serde.schema_id) + _indexes(protobuf_types.indexes_of(serde.descriptor)) + data

    def _decode(self, data: bytes) -> Any:
        _id_of(self, data)
        serde = self._ready()
        indexes = protobuf_types.indexes_of(serde.descriptor)
        written = next(
            (each for each in (_indexes(indexes), _long_indexes(indexes)) if data[5:].startswith(each)), None
        )
        if written is None:
            raise self._refuse_data(data, "a message of its own type, and this is another of the file's")
        message = protobuf_types.message_of(serde.descriptor)
        try:
            message.ParseFromString(data[5 + len(written) :])
            return protobuf_types.to_dict(message)
        except Exception as error:  # of a class of protobuf's
            raise self._refuse_data(data, "Protobuf that is whole") from error


def _varint(number: int) -> bytes:
    number = number << 1  # zigzag
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _long_indexes(indexes: list[int]) -> bytes:
    return b"".join(map(_varint, [len(indexes), *indexes]))


def _indexes(indexes: list[int]) -> bytes:
    """Which message of its file it is; of the first one, a 0 stands for all."""
    return b"\0" if indexes == [0] else _long_indexes(indexes)


def json_schema_serde(
    schema: Any, subject: str | None, record_name: str, registry: Mapping[str, Any] | None
) -> JsonSchemaSerde:
    """See Serdes.json_schema."""
    text = "" if schema is None else schema_text(schema, "Serdes.json_schema()")
    if text:
        json_schema_types.spark_type(text)
    return JsonSchemaSerde(
        schema=text, record=record_name, settings=registry_settings(registry), subject_name=subject or ""
    )


def protobuf_serde(
    message: Any, subject: str | None, message_name: str, registry: Mapping[str, Any] | None
) -> ProtobufSerde:
    """See Serdes.protobuf."""
    schema, name = ("", message_name) if message is None else protobuf_types.schema_of(message)
    if schema:
        protobuf_types.spark_type(protobuf_types.descriptor_of(schema, name))
    return ProtobufSerde(
        schema=schema, record=name, settings=registry_settings(registry), subject_name=subject or ""
    )


def registry_settings(registry: Mapping[str, Any] | None) -> RegistrySettings | None:
    """Of what a serde was given as its own registry.

    Raises:
        ConfigException: it has no address, or something is wrong with it.
    """
    if registry is None:
        return None
    settings = RegistrySettings.of(registry)
    if settings is None:
        raise ConfigException(
            f"registry= has no 'schema.registry.url'; it has {', '.join(sorted(registry)) or 'nothing'}"
        )
    return settings


def schema_text(schema: Any, what: str) -> str:
    """A schema as text: of a text, or what JSON makes of a dict or a list.

    Raises:
        TopologyException: it is neither.
    """
    if isinstance(schema, str):
        return schema.strip()
    if isinstance(schema, Mapping | list):
        return json.dumps(schema, separators=(",", ":"))
    raise TopologyException(f"{what} takes a schema as text or a dict, got {schema!r}")
