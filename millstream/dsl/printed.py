"""Printed: where and how the records of a stream are printed.

Source: org.apache.kafka.streams.kstream.Printed, PrintForeachAction.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from millstream.errors import TopologyException
from millstream.topology.functions import accepts, describe_function
from millstream.topology.names import validate_name

__all__ = ["Printed", "printing"]

Mapper = Callable[[Any, Any], str]


@dataclass(frozen=True)
class Printed:
    """How a stream is printed: a line for each record, `[label]: key, value`.

    Attributes:
        path: of the file; None: the program's stdout.
        label: None: the name of the operation that the stream comes from.
        mapper: a Python function of key and value that returns the text after the label.
        name: of the operation that prints.

    Source: org.apache.kafka.streams.kstream.Printed.
    """

    path: str | None = None
    label: str | None = None
    mapper: Mapper | None = None
    name: str | None = None

    @classmethod
    def to_sys_out(cls) -> Printed:
        """To the stdout of the program."""
        return cls()

    @classmethod
    def to_file(cls, path: str | os.PathLike[str]) -> Printed:
        """To a file, which is truncated if it exists.

        Raises:
            TopologyException: it cannot be written.
        """
        name = os.fspath(path)
        if not name.strip():
            raise TopologyException("filePath can't be an empty string")
        try:
            open(name, "wb").close()
        except OSError as error:
            raise TopologyException(f"Unable to write stream to file at [{name}] {error}") from error
        return cls(path=os.path.abspath(name))

    def with_label(self, label: str) -> Printed:
        """The same with another label."""
        if not isinstance(label, str):
            raise TopologyException(f"the label of Printed is text, got {label!r}")
        return replace(self, label=label)

    def with_key_value_mapper(self, mapper: Mapper) -> Printed:
        """The same with another text after the label: `mapper` gets key and value, as Python values."""
        if not callable(mapper) or not accepts(mapper, 2):
            raise TopologyException(
                "with_key_value_mapper() takes a Python function of key and value, got "
                f"{describe_function(mapper)}"
            )
        return replace(self, mapper=mapper)

    def with_name(self, name: str | None) -> Printed:
        """The same with another name of the operation."""
        return replace(self, name=None if name is None else validate_name(name))


def printing(label: str, mapper: Mapper | None) -> Callable[[Any, Any], None]:
    """A function that prints a record, as Kafka Streams does."""

    def shown(value: Any) -> str:
        if value is None:
            return "null"
        return str(value).lower() if isinstance(value, bool) else str(value)

    def line(key: Any, value: Any) -> None:
        said = f"{shown(key)}, {shown(value)}" if mapper is None else shown(mapper(key, value))
        print(f"[{label}]: {said}")

    return line
