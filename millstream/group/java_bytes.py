"""Java's bytes: big-endian numbers, counted arrays, and the strings of DataOutputStream.writeUTF.

The input comes from the network, so each count and length is checked against the remaining bytes before
anything is allocated: work and memory are proportional to the bytes received.
"""

from __future__ import annotations

import struct
from uuid import UUID

from millstream.errors import TaskAssignmentException

__all__ = ["ByteReader", "ByteWriter"]

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

_MOST_UTF_BYTES = 0xFFFF
_FIRST_FOUR_BYTE_LEAD = 0xF0
"""UTF-8 begins characters beyond U+FFFF with these; Java's modified UTF-8 has no such bytes."""


class ByteReader:
    """Reads from the front of some bytes.

    `what` names the message in errors. Each method raises TaskAssignmentException when the bytes do not hold
    what they should.
    """

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._position = 0

    @property
    def left(self) -> int:
        """How many bytes have not been read."""
        return len(self._data) - self._position

    def rest(self) -> bytes:
        """All bytes that have not been read."""
        return self.take(self.left)

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if not 0 <= size <= self.left:
            raise TaskAssignmentException(
                f"Failed to decode {self._what}: {size} bytes are expected at byte {self._position} of "
                f"{len(self._data)}, but only {self.left} are left"
            )
        start = self._position
        self._position += size
        return self._data[start : self._position]

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def uuid(self) -> UUID:
        return UUID(bytes=self.take(16))

    def count(self, smallest: int) -> int:
        """The number of entries of an array, each of which takes `smallest` bytes at least."""
        count = self.int32()
        if not 0 <= count <= self.left // smallest:
            raise TaskAssignmentException(
                f"Corrupted user data byte[]. {self._what} announces {count} entries at byte "
                f"{self._position - 4}, but only {self.left} bytes follow"
            )
        return count

    def text(self) -> str:
        """UTF-8 with a 4-byte length; invalid UTF-8 is replaced, as in Java's String."""
        return self.take(self.count(1)).decode("utf-8", "replace")

    def utf(self) -> str:
        """A string written by writeUTF: a 2-byte length and modified UTF-8."""
        data = self.take(self._number(_UINT16))
        if data.isascii():
            return data.decode("ascii")
        try:
            if max(data) >= _FIRST_FOUR_BYTE_LEAD:
                raise ValueError("a character of four bytes")
            # Java writes U+0000 as two bytes, and each half of a surrogate pair as three.
            halves = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
            return halves.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
        except ValueError as error:
            raise TaskAssignmentException(
                f"Failed to decode {self._what}: the string before byte {self._position} is not "
                "modified UTF-8"
            ) from error

    def _number(self, form: struct.Struct) -> int:
        value: int = form.unpack(self.take(form.size))[0]
        return value


class ByteWriter:
    """Collects bytes. Each method raises TaskAssignmentException for a value that does not fit its form."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._parts: list[bytes] = []

    def to_bytes(self) -> bytes:
        """All that was written."""
        return b"".join(self._parts)

    def raw(self, data: bytes) -> None:
        self._parts.append(data)

    def int8(self, value: int) -> None:
        self._number(_INT8, value)

    def int16(self, value: int) -> None:
        self._number(_INT16, value)

    def int32(self, value: int) -> None:
        self._number(_INT32, value)

    def int64(self, value: int) -> None:
        self._number(_INT64, value)

    def uuid(self, value: UUID) -> None:
        self.raw(value.bytes)

    def text(self, value: str) -> None:
        """UTF-8 with a 4-byte length."""
        data = value.encode("utf-8", "replace")
        self.int32(len(data))
        self.raw(data)

    def utf(self, value: str) -> None:
        """A string in the format of writeUTF: a 2-byte length and modified UTF-8."""
        units = value.encode("utf-16-be", "surrogatepass")
        halves = "".join(chr(unit) for (unit,) in _UINT16.iter_unpack(units))
        data = halves.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
        if len(data) > _MOST_UTF_BYTES:
            raise TaskAssignmentException(
                f"Failed to encode {self._what}: a string takes {len(data)} bytes, but the limit is "
                f"{_MOST_UTF_BYTES}"
            )
        self._number(_UINT16, len(data))
        self.raw(data)

    def _number(self, form: struct.Struct, value: int) -> None:
        try:
            self.raw(form.pack(value))
        except struct.error as error:
            raise TaskAssignmentException(
                f"Failed to encode {self._what}: {value} does not fit into {form.size} bytes"
            ) from error
