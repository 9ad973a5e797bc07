"""What is wrong with the schema of a serde, as far as can be found without Spark.

Only what is certainly wrong is refused here. The rest is left to Spark, which reads the schema when the
topology is compiled.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

__all__ = ["complaint"]

_TYPE_NAMES = (
    "boolean tinyint byte smallint short int integer bigint long float real double date time timestamp "
    "timestamp_ntz timestamp_ltz string character char varchar binary decimal dec numeric void interval "
    "variant array struct map geography geometry"
)
_TYPES = frozenset(_TYPE_NAMES.split())
_MEANT = {
    "str": "STRING",
    "text": "STRING",
    "uuid": "STRING",
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "number": "DOUBLE",
    "datetime": "TIMESTAMP",
    "bytes": "BINARY",
    "list": "ARRAY<STRING>",
    "dict": "MAP<STRING, STRING>",
    "object": "STRUCT<name TYPE, ...>",
}
_WORDS_AFTER_A_TYPE = (
    "not null comment collate default generated with without local time zone to year month day hour minute "
    "second"
)
_AFTER_A_TYPE = frozenset(_WORDS_AFTER_A_TYPE.split())
_TOKEN = re.compile(r"\s*(?:(\w+|`(?:[^`]|``)*`|'[^']*'|\"[^\"]*\"|[<>(),:])|(\S))", re.ASCII)
_HYPHEN = re.compile(r"[^\W\d]-\w")


class _WrongError(Exception):
    """What is wrong."""


def complaint(ddl: str) -> str | None:
    """What is wrong with a schema such as `user STRING, amount DOUBLE`; None if nothing is found here."""
    tokens = []
    for match in _TOKEN.finditer(ddl.rstrip()):
        if match[2] == "-" and _HYPHEN.match(ddl, match.start(2) - 1):
            return "a name with '-' in it must be in backticks: `user-id` STRING"
        if match[2]:
            return None  # Spark knows
        tokens.append(match[1])
    try:
        _schema(tokens)
    except _WrongError as wrong:
        return str(wrong)
    return None


def _schema(tokens: list[str]) -> None:
    end = len(tokens)
    if (len(tokens) > 1 and tokens[1] in "<(") or (end == 1 and tokens[0].lower() in _TYPES):
        at = _after_type(tokens, 0)  # one type, such as ARRAY<STRING> or BIGINT
    else:
        at = _after_fields(tokens, 0, "")
    if at < end:
        raise _WrongError(f"'{tokens[at]}' has no matching opening bracket")


def _after_fields(tokens: list[str], at: int, closing: str) -> int:
    """Where the fields end that begin at a token."""
    while True:
        at = _after_field(tokens, at, closing)
        if _at(tokens, at) != ",":
            return at
        at += 1


def _after_field(tokens: list[str], at: int, closing: str) -> int:
    name = _at(tokens, at)
    if name in ("", ",", ">", ")") or name == closing:
        raise _WrongError("there is one comma too many" if at else "it has no fields")
    if name in "<(:":
        raise _WrongError(f"a field's name is missing before '{name}'")
    at += 2 if _at(tokens, at + 1) == ":" else 1
    if _at(tokens, at) in ("", ",", ">", ")"):
        raise _WrongError(f"the field '{name.strip('`')}' has no type")
    at = _after_type(tokens, at)
    word = _at(tokens, at)
    if word not in ("", ",", ">", ")") and word.lower() not in _AFTER_A_TYPE:
        raise _WrongError(f"a comma is missing before '{word.strip('`')}'")
    return _after_rest(tokens, at)


def _after_rest(tokens: list[str], at: int) -> int:
    """Behind NOT NULL, COMMENT and the like."""
    depth = 0
    while at < len(tokens) and (depth or tokens[at] not in (",", ">", ")")):
        depth += {"(": 1, ")": -1}.get(tokens[at], 0)
        at += 1
    return at


def _after_type(tokens: list[str], at: int) -> int:
    name = tokens[at].lower()
    if name in (">", ","):
        raise _WrongError(f"a type is missing before '{name}'")
    if name not in _TYPES:
        raise _WrongError(f"there is no type {tokens[at].upper()}{_instead(name)}")
    following = _at(tokens, at + 1)
    if following == "(":  # DECIMAL(10, 2)
        closes = next((i for i in range(at + 2, len(tokens)) if tokens[i] == ")"), None)
        if closes is None:
            raise _WrongError("a '(' is not closed")
        return closes + 1
    if following != "<":
        if name in ("array", "map", "struct"):
            raise _WrongError(f"{name.upper()} needs a type in angle brackets: {_shown(name)}")
        return at + 1
    at += 2
    if name == "struct":
        if _at(tokens, at) != ">":
            at = _after_fields(tokens, at, ">")
    else:
        at = _after_element(tokens, at)
        if name == "map":
            if _at(tokens, at) != ",":
                raise _WrongError(f"MAP needs two types: {_shown(name)}")
            at = _after_element(tokens, at + 1)
    if _at(tokens, at) != ">":
        raise _WrongError("a '<' is not closed")
    return at + 1


def _after_element(tokens: list[str], at: int) -> int:
    if at >= len(tokens):
        raise _WrongError("a '<' is not closed")
    at = _after_type(tokens, at)
    while _at(tokens, at).lower() in _AFTER_A_TYPE or _at(tokens, at - 1).lower() == "collate":
        at += 1
    return at


def _at(tokens: list[str], at: int) -> str:
    return tokens[at] if at < len(tokens) else ""


def _instead(name: str) -> str:
    near = get_close_matches(name, _TYPES, n=1)
    meant = _MEANT.get(name) or (near[0].upper() if near else "")
    return f"; did you mean {meant}?" if meant else ""


def _shown(name: str) -> str:
    written = {"array": "ARRAY<STRING>", "map": "MAP<STRING, BIGINT>", "struct": "STRUCT<name TYPE, ...>"}
    return written.get(name.lower(), name.upper())
