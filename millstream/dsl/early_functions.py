"""`F.udf(f, "string")` in a module, before Spark runs: the type is read here, since PySpark needs the JVM.

A topology is built before Spark is started, and its functions are made where modules make them. PySpark reads
a type that is written as text (`"string"`, `"a INT, b ARRAY<STRING>"`) when the function is made, and without
a running Spark refuses it. So this replaces PySpark's reader, in the one module that makes functions.
If Spark runs, or the type is not known here, PySpark's own reader is called, as without Millstream.

`import millstream` does not import PySpark, which may come before or after it; hence the finder.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader  # it loads thirty modules, and `import millstream` few

__all__ = ["data_type", "install"]

_MODULE = "pyspark.sql.udf"
_READER = "_parse_datatype_string"

_ATOMIC = {
    "BooleanType": "boolean",
    "ByteType": "tinyint byte",
    "ShortType": "smallint short",
    "IntegerType": "int integer",
    "LongType": "bigint long",
    "FloatType": "float real",
    "DoubleType": "double",
    "StringType": "string",
    "BinaryType": "binary",
    "DateType": "date",
    "TimestampType": "timestamp timestamp_ltz",
    "TimestampNTZType": "timestamp_ntz",
}
_CLASSES = {name: kind for kind, names in _ATOMIC.items() for name in names.split()}
_TOKEN = re.compile(r"\s*(\w+|`(?:[^`]|``)+`|[<>(),:])", re.ASCII)


def install() -> None:
    """From now on, functions can be made before Spark runs. Idempotent."""
    module = sys.modules.get(_MODULE)
    if module is not None and hasattr(module, _READER):
        _stand_in(module)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Patches one module when it is imported, then removes itself."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        # importlib.util.find_spec only looks: stay for the import to come.
        for finder in sys.meta_path:
            look = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = look(fullname, path, target) if look is not None else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]  # see the import
                return spec
        return None


class _Loader:
    def __init__(self, own: Loader, finder: _Finder) -> None:
        self._own, self._finder = own, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        module.__loader__ = self._own
        self._own.exec_module(module)
        _stand_in(module)


def _stand_in(module: ModuleType) -> None:
    pysparks: Callable[[str], Any] | None = getattr(module, _READER, None)
    if pysparks is None or hasattr(pysparks, "pysparks"):
        return  # another way of doing it in this PySpark, or already patched

    def parse(text: str) -> Any:
        from pyspark import SparkContext
        from pyspark.sql.utils import is_remote

        if SparkContext._active_spark_context is None and not is_remote():
            found = data_type(text)
            if found is not None:
                return found
        return pysparks(text)

    parse.pysparks = pysparks  # type: ignore[attr-defined]
    setattr(module, _READER, parse)


def data_type(text: str) -> Any:
    """The type that Spark reads from a text; None if that is not certain here.

    TIMESTAMP means the default, with a time zone.
    """
    tokens = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        tokens.append(match[1])
        at = match.end()
    for read in (_read_type, _read_fields):
        words = _Words(tokens)
        try:
            found = read(words)
        except _UnknownError:
            continue
        if words.now == "":
            return found
    return None


class _UnknownError(Exception):
    """A type that is not known here."""


class _Words:
    def __init__(self, words: Sequence[str]) -> None:
        self._words: Iterator[str] = iter(words)
        self.now = next(self._words, "")

    def take(self, wanted: str = "") -> str:
        word = self.now
        if not word or (wanted and word != wanted):
            raise _UnknownError
        self.now = next(self._words, "")
        return word


def _read_type(words: _Words) -> Any:
    from pyspark.sql import types

    name = words.take().lower()
    if name in _CLASSES:
        return getattr(types, _CLASSES[name])()
    if name in ("decimal", "dec", "numeric"):
        return _read_decimal(words)
    if name not in ("array", "map", "struct"):
        raise _UnknownError
    words.take("<")
    if name == "struct":
        made: Any = _read_fields(words)
    elif name == "array":
        made = types.ArrayType(_read_type(words))
    else:
        key = _read_type(words)
        words.take(",")
        made = types.MapType(key, _read_type(words))
    words.take(">")
    return made


def _read_decimal(words: _Words) -> Any:
    from pyspark.sql import types

    if words.now != "(":
        return types.DecimalType(10, 0)
    words.take("(")
    digits = [words.take()]
    if words.now == ",":
        words.take(",")
        digits.append(words.take())
    words.take(")")
    if not all(each.isdecimal() for each in digits) or not 0 < int(digits[0]) <= 38:
        raise _UnknownError
    precision, scale = int(digits[0]), int(digits[1]) if len(digits) > 1 else 0
    if scale > precision:
        raise _UnknownError
    return types.DecimalType(precision, scale)


def _read_fields(words: _Words) -> Any:
    from pyspark.sql import types

    fields = []
    while True:
        name = words.take()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not (name[0].isalpha() or name[0] == "_"):
            raise _UnknownError
        if words.now == ":":
            words.take()
        kind = _read_type(words)
        required = words.now.lower() == "not"
        if required:
            words.take()
            if words.take().lower() != "null":
                raise _UnknownError
        fields.append(types.StructField(name, kind, not required))
        if words.now != ",":
            return types.StructType(fields)
        words.take()
