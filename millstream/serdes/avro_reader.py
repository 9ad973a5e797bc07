"""Reads Avro records with the schema that they were written with, as values of another one. Pure.

The kernel (AvroFormat.java) reads the same records with Avro's own library; a test compares both on mangled
records. A length or a count in a record is checked before anything is made of it. A new field's default is
converted once, when the two schemas are compiled into functions.

Source: the Avro specification, "Schema Resolution"; org.apache.avro.Resolver.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from millstream.serdes.avro_nodes import (
    NAMED,
    AvroNode,
    Field,
    MisreadError,
    default,
    is_called,
    meaning,
    parsed,
)

__all__ = ["reader"]

_MOST_EMPTY = 1 << 20
"""How many more elements than bytes a record may have, because some, such as nulls, take no bytes."""

_WIDER = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",)}


class _Source:
    """The bytes of one record, and how far they are read."""

    __slots__ = ("at", "data", "elements")

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at
        self.elements = 0


Read = Callable[[_Source], Any]


def reader(written: Sequence[str], schema: str) -> Callable[[bytes, int], Any]:
    """The function that reads records.

    Args:
        written: the schema that they were written with, preceded by those that it refers to.
        schema: the schema to read; empty: the written one.

    Raises:
        ValueError: one of them is not an Avro schema.

    Raises, from what it returns:
        MisreadError: the bytes, from the offset on, are not one whole record.
    """
    return _reader(tuple(written), schema)


@cache
def _reader(written: tuple[str, ...], schema: str) -> Callable[[bytes, int], Any]:
    try:
        writer = parsed(written)
        read = _Plans().of(writer, parsed((schema,)) if schema else writer)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"this is not an Avro schema ({type(error).__name__})") from None

    def whole(data: bytes, at: int) -> Any:
        source = _Source(data, at)
        try:
            value = read(source)
        except MisreadError:
            raise
        except RecursionError:
            raise MisreadError("Avro that its schema can read (RecursionError)") from None
        except (ValueError, IndexError, OverflowError, struct.error) as error:
            raise MisreadError(f"Avro that its schema can read ({type(error).__name__})") from None
        if source.at != len(data):
            raise MisreadError("Avro that ends where its record does")
        return value

    return whole


# --- resolution ---------------------------------------------------------------------------------------------


class _Wrong:
    """Where two schemas do not fit. Only a record that gets here cannot be read."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __call__(self, source: _Source) -> Any:
        raise MisreadError(f"Avro that its schema can read ({self._why})")


class _Plans:
    """Compiles a writer's and a reader's schema into the function that reads."""

    def __init__(self) -> None:
        self._begun: dict[tuple[int, int], list[Read]] = {}

    def of(self, writer: AvroNode, reader: AvroNode) -> Read:
        if writer.kind == "union":
            return _of_union([self.of(each, reader) for each in writer.inner])
        if reader.kind == "union":
            found = self._branch(writer, reader)
            return _Wrong("no type of a union fits") if found is None else self.of(writer, found)
        if writer.kind != reader.kind:
            return _promoted(writer, reader)
        match writer.kind:
            case "record":
                return self._record(writer, reader)
            case "array":
                return _of_array(self.of(writer.inner[0], reader.inner[0]))
            case "map":
                return _of_map(self.of(writer.inner[0], reader.inner[0]))
            case "enum":
                return _of_enum(writer, reader)
            case "fixed":
                if not is_called(writer, reader) or writer.size != reader.size:
                    return _Wrong("a fixed has another name or size")
                return _then(_of_fixed(writer.size), meaning(reader))
        return _then(_READ[writer.kind], meaning(reader))

    def _branch(self, writer: AvroNode, union: AvroNode) -> AvroNode | None:
        """The type of a union that something is read as: the first of its name or kind, or a wider one."""
        structure = None
        for each in union.inner:
            if each.kind != writer.kind:
                continue
            if writer.kind not in NAMED or is_called(writer, each):
                return each
            if writer.kind == "record" and self._fits(writer, each):
                same = writer.name.rpartition(".")[2] == each.name.rpartition(".")[2]
                structure = each if structure is None or same else structure
        if structure is not None:
            return structure
        return next((each for each in union.inner if _is_wider(writer.kind, each.kind)), None)

    def _fits(self, writer: AvroNode, reader: AvroNode) -> bool:
        """Whether a record can be read as another one, as far as its own fields say it."""
        if not all(has is not None or each.has_default for each, has in _paired(writer, reader).values()):
            return False
        return not any(
            isinstance(self.of(has.node, each.node), _Wrong)
            for each, has in _paired(writer, reader).values()
            if has is not None
        )

    def _record(self, writer: AvroNode, reader: AvroNode) -> Read:
        known = self._begun.get((id(writer), id(reader)))
        if known is not None:  # it contains itself
            return lambda source: known[0](source)
        begun = self._begun[id(writer), id(reader)] = []
        paired = _paired(writer, reader)
        missing = next((name for name, (each, has) in paired.items() if not (has or each.has_default)), None)
        if missing is not None:
            begun.append(_Wrong("a new field has no default"))
            return begun[0]
        names = {id(has): name for name, (_, has) in paired.items() if has is not None}
        steps: list[tuple[str | None, Read]] = []
        for has in writer.fields.values():
            name = names.get(id(has))
            read = _skip(has.node, {}) if name is None else self.of(has.node, reader.fields[name].node)
            steps.append((name, read))
        made = {name: default(each.node, each.default) for name, (each, has) in paired.items() if not has}
        begun.append(_of_record(steps, made, list(paired)))
        return begun[0]


def _paired(writer: AvroNode, reader: AvroNode) -> dict[str, tuple[Field, Field | None]]:
    """The reader's fields, each with the writer's, if that has it."""
    aliased = is_called(writer, reader)
    found: dict[str, tuple[Field, Field | None]] = {}
    for name, each in reader.fields.items():
        names = (name, *each.aliases) if aliased else (name,)
        found[name] = (each, next((writer.fields[one] for one in names if one in writer.fields), None))
    return found


def _is_wider(written: str, read: str) -> bool:
    return read in _WIDER.get(written, ()) or {written, read} == {"string", "bytes"}


def _promoted(writer: AvroNode, reader: AvroNode) -> Read:
    if not _is_wider(writer.kind, reader.kind):
        return _Wrong(f"{writer.kind} is not {reader.kind}")
    read = _READ[writer.kind]
    if reader.kind == "float":
        return lambda source: _single(read(source))
    if reader.kind == "double":
        return lambda source: float(read(source))
    if reader.kind == "string":  # of bytes
        return _then(_string, meaning(reader))
    return _then(_bytes if reader.kind == "bytes" else read, meaning(reader))


def _single(number: int) -> float:
    """The nearest number of 32 bits; the way over 64 bits must not round twice."""
    extra = max(number.bit_length() - 50, 0)
    kept = number >> extra
    if kept << extra != number:
        kept |= 1
    found: float = struct.unpack("f", struct.pack("f", float(kept) * 2.0**extra))[0]
    return found


# --- reading ------------------------------------------------------------------------------------------------


def _varint(source: _Source, most: int) -> int:
    """A number of at most this many bits, as it is written."""
    data, at = source.data, source.at
    byte = data[at]
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift >= most:
            raise MisreadError("Avro whose numbers are not too long")
        at += 1
        byte = data[at]
        number |= (byte & 0x7F) << shift
        shift += 7
    source.at = at + 1
    return number & ((1 << most) - 1)


def _int(source: _Source) -> int:
    byte = source.data[source.at]
    if byte < 0x80:  # most are this short
        source.at += 1
        return (byte >> 1) ^ -(byte & 1)
    number = _varint(source, 32)
    return (number >> 1) ^ -(number & 1)


def _long(source: _Source) -> int:
    byte = source.data[source.at]
    if byte < 0x80:  # most are this short
        source.at += 1
        return (byte >> 1) ^ -(byte & 1)
    number = _varint(source, 64)
    return (number >> 1) ^ -(number & 1)


def _bytes(source: _Source) -> bytes:
    length = _long(source)
    at = source.at
    end = at + length
    if length < 0 or end > len(source.data):
        raise MisreadError("Avro that its schema can read (EOFError)")
    source.at = end
    return source.data[at:end]


def _string(source: _Source) -> str:
    try:
        return _bytes(source).decode()
    except UnicodeDecodeError:
        raise MisreadError("Avro whose texts are UTF-8") from None


def _boolean(source: _Source) -> bool:
    byte = source.data[source.at]
    if byte > 1:
        raise MisreadError("Avro whose booleans are 0 or 1")
    source.at += 1
    return byte == 1


def _of_fixed(size: int) -> Read:
    def read(source: _Source) -> bytes:
        at = source.at
        end = at + size
        if end > len(source.data):
            raise MisreadError("Avro that its schema can read (EOFError)")
        source.at = end
        return source.data[at:end]

    return read


def _floating(form: str) -> Read:
    unpack, read = struct.Struct(form).unpack, _of_fixed(struct.calcsize(form))
    return lambda source: unpack(read(source))[0]


_READ: dict[str, Read] = {
    "null": lambda source: None,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _floating("<f"),
    "double": _floating("<d"),
    "bytes": _bytes,
    "string": _string,
}


def _then(read: Read, meaning: Callable[[Any], Any] | None) -> Read:
    return read if meaning is None else lambda source: meaning(read(source))


def _of_union(members: list[Read]) -> Read:
    def read(source: _Source) -> Any:
        which = _int(source)
        if which < 0:
            raise MisreadError("Avro whose unions have the types of its schema")
        return members[which](source)

    return read


def _of_enum(writer: AvroNode, reader: AvroNode) -> Read:
    if not is_called(writer, reader):
        return _Wrong("an enum has another name")
    symbols = [each if each in reader.symbols else reader.default for each in writer.symbols]

    def read(source: _Source) -> str:
        which = _int(source)
        symbol = symbols[which] if which >= 0 else None
        if symbol is None:
            raise MisreadError("Avro whose enums have the symbols of its schema")
        return symbol

    return read


def _block(source: _Source, *, skips: bool = False) -> int:
    """The number of elements that follow; 0 after the last one. With `skips`, blocks that say how long they
    are have been skipped."""
    count = _long(source)
    while count < 0:
        size = _long(source)
        if not skips:
            count = -count
            break
        if size < 0 or source.at + size > len(source.data):
            raise MisreadError("Avro that its schema can read (EOFError)")
        source.at += size
        count = _long(source)
    source.elements += count
    size = len(source.data)
    if count > size - source.at + _MOST_EMPTY or source.elements > size + _MOST_EMPTY:
        raise MisreadError("Avro that its schema can read (EOFError)")
    return count


def _of_array(item: Read) -> Read:
    def read(source: _Source) -> list[Any]:
        found: list[Any] = []
        while count := _block(source):
            found += [item(source) for _ in range(count)]
        return found

    return read


def _of_map(item: Read) -> Read:
    def read(source: _Source) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while count := _block(source):
            for _ in range(count):
                key = _string(source)
                found[key] = item(source)
        return found

    return read


def _of_record(
    steps: list[tuple[str | None, Read]], made: dict[str, Callable[[], Any]], order: list[str]
) -> Read:
    if not made and [name for name, _ in steps] == order:
        plain = [(str(name), read) for name, read in steps]
        return lambda source: {name: read(source) for name, read in plain}

    def read(source: _Source) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, one in steps:
            value = one(source)
            if name is not None:
                found[name] = value
        return {name: found[name] if name in found else made[name]() for name in order}

    return read


def _skip(node: AvroNode, begun: dict[int, list[Read]]) -> Read:
    """Reads over something that the reader does not have."""
    match node.kind:
        case "union":
            return _of_union([_skip(each, begun) for each in node.inner])
        case "fixed":
            return _of_fixed(node.size)
        case "enum":
            return _int
        case "string":
            return _bytes
        case "array":
            return _over(_skip(node.inner[0], begun))
        case "map":
            value = _skip(node.inner[0], begun)
            return _over(lambda source: (_bytes(source), value(source)))
        case "record":
            if id(node) in begun:
                own = begun[id(node)]
                return lambda source: own[0](source)
            begun[id(node)] = own = []
            parts = [_skip(each.node, begun) for each in node.fields.values()]
            own.append(lambda source: [each(source) for each in parts])
            return own[0]
    return _READ[node.kind]


def _over(one: Read) -> Read:
    def read(source: _Source) -> None:
        while count := _block(source, skips=True):
            for _ in range(count):
                one(source)

    return read
