"""The Arrow type of a serde's values: from its name and, for a json serde, its schema.

A json serde's schema is Spark's, as a DDL string or a StructType. Values are as `codec.plain` parses them, so
types that JSON lacks stay text: dates, timestamps and binary are strings, decimals are doubles.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millstream.serdes.serde import Serde

__all__ = ["arrow_type", "for_arrow", "needs_preparing"]

_BY_SERDE: dict[str, pa.DataType] = {
    "bytes": pa.binary(),
    "string": pa.string(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "uuid": pa.string(),
}

_BY_SQL: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar": pa.string(),
    "char": pa.string(),
    # Types without a JSON form of their own.
    "dec": pa.float64(),
    "decimal": pa.float64(),
    "numeric": pa.float64(),
    "date": pa.string(),
    "timestamp": pa.string(),
    "timestamp_ltz": pa.string(),
    "timestamp_ntz": pa.string(),
    "binary": pa.string(),
}


def arrow_type(serde: Serde) -> pa.DataType | None:
    """The type of a serde's values; None if it depends on the values."""
    if serde.name != "json":
        return _BY_SERDE.get(serde.name)
    schema: Any = getattr(serde, "schema", None)
    try:
        if isinstance(schema, str):
            return _Ddl(schema).whole()
        if hasattr(schema, "jsonValue"):
            return _of_json(schema.jsonValue())
    except (_UnknownError, KeyError, TypeError):
        pass  # a type that is not in the tables: it depends on the values
    return None


def needs_preparing(kind: pa.DataType) -> bool:
    """Whether values of this type need `for_arrow`, because they contain a map."""
    if pa.types.is_map(kind):
        return True
    if pa.types.is_list(kind):
        return needs_preparing(kind.value_type)
    return pa.types.is_struct(kind) and any(needs_preparing(field.type) for field in kind)


def for_arrow(value: Any, kind: pa.DataType) -> Any:
    """A JSON value in pyarrow's form: objects that are maps become pairs."""
    if value is None or not needs_preparing(kind):
        return value
    if pa.types.is_map(kind):
        return [(key, for_arrow(inner, kind.item_type)) for key, inner in value.items()]
    if pa.types.is_list(kind):
        return [for_arrow(inner, kind.value_type) for inner in value]
    return {field.name: for_arrow(value.get(field.name), field.type) for field in kind}


class _UnknownError(Exception):
    """A schema that this module does not understand."""


# --- Spark's JSON form -----------------------------------------------------------------------------------


def _of_json(described: Any) -> pa.DataType:
    if isinstance(described, str):
        return _simple(described.partition("(")[0])
    match described["type"]:
        case "struct":
            return pa.struct([(field["name"], _of_json(field["type"])) for field in described["fields"]])
        case "array":
            return pa.list_(_of_json(described["elementType"]))
        case "map":
            return pa.map_(pa.string(), _of_json(described["valueType"]))
    raise _UnknownError(described["type"])


def _simple(name: str) -> pa.DataType:
    try:
        return _BY_SQL[name.strip().lower()]
    except KeyError:
        raise _UnknownError(name) from None


# --- Spark's DDL -----------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|'((?:[^'\\]|\\.)*)'|(\w+)|([<>(),:]))")


class _Ddl:
    """Reads `user STRING, tags ARRAY<STRING>, home STRUCT<street: STRING> NOT NULL COMMENT '…'`."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise _UnknownError(text)
            quoted, comment, word, sign = found.groups()
            if quoted is not None:
                self._tokens.append(("name", quoted.replace("``", "`")))
            elif comment is not None:
                self._tokens.append(("text", comment))
            else:
                self._tokens.append(("word", word) if word is not None else ("sign", sign))
            at = found.end()
        self._at = 0

    def whole(self) -> pa.DataType:
        # Both `a INT` and `STRUCT<a: INT>` are schemas.
        if self._is("word", "struct") and self._next_is("sign", "<"):
            kind = self._type()
        else:
            kind = pa.struct(self._list(self._field))
        if self._at != len(self._tokens):
            raise _UnknownError("more than a schema")
        return kind

    def _type(self) -> pa.DataType:
        name = self._take("word").lower()
        if name == "struct" and self._is("sign", "<"):
            return pa.struct(self._in_brackets(lambda: self._list(self._field)))
        if name == "array":
            return pa.list_(self._in_brackets(self._type))
        if name == "map":
            return pa.map_(pa.string(), self._in_brackets(self._value_of_map))
        if self._is("sign", "("):  # the size of a decimal or a varchar
            while not self._is("sign", ")"):
                self._at += 1
                if self._at >= len(self._tokens):
                    raise _UnknownError("(")
            self._at += 1
        return _simple(name)

    def _field(self) -> tuple[str, pa.DataType]:
        name = self._take("name") if self._is("name") else self._take("word")
        if self._is("sign", ":"):
            self._at += 1
        kind = self._type()
        if self._is("word", "not") and self._next_is("word", "null"):
            self._at += 2
        if self._is("word", "comment"):
            self._at += 1
            self._take("text")
        return name, kind

    def _list(self, item: Callable[[], Any]) -> list[Any]:
        items = [item()]
        while self._is("sign", ","):
            self._at += 1
            items.append(item())
        return items

    def _in_brackets(self, inner: Callable[[], Any]) -> Any:
        self._expect("<")
        found = inner()
        self._expect(">")
        return found

    def _value_of_map(self) -> pa.DataType:
        self._type()  # of the key, which is text in JSON
        self._expect(",")
        return self._type()

    def _expect(self, sign: str) -> None:
        if not self._is("sign", sign):
            raise _UnknownError(sign)
        self._at += 1

    def _is(self, kind: str, text: str | None = None, ahead: int = 0) -> bool:
        at = self._at + ahead
        if at >= len(self._tokens) or self._tokens[at][0] != kind:
            return False
        return text is None or self._tokens[at][1].lower() == text

    def _next_is(self, kind: str, text: str) -> bool:
        return self._is(kind, text, ahead=1)

    def _take(self, kind: str) -> str:
        if not self._is(kind):
            raise _UnknownError(kind)
        self._at += 1
        return self._tokens[self._at - 1][1]
