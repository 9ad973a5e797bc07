"""The configuration of a command: from a file, the environment and flags; later ones override earlier ones.
Pure, except for reading the file.

A setting's name in the environment is `MILLSTREAM_` followed by its key in capitals, with `_` for dots:
`MILLSTREAM_BOOTSTRAP_SERVERS`. A file has the keys unchanged, as TOML or as Java properties.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, time
from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.client_keys import CLIENT_KEYS
from millstream.config_keys import KEYS, PREFIXES

__all__ = [
    "ApplicationId",
    "BootstrapServer",
    "ConfigFile",
    "Setting",
    "from_environment",
    "from_file",
    "from_flags",
    "from_properties",
    "from_toml",
    "settings",
]

VARIABLE = "MILLSTREAM_"
OTHERS = frozenset(
    {
        "MILLSTREAM_CACHE_DIR",
        "MILLSTREAM_CA_FILE",
        "MILLSTREAM_COMPLETE",
        "MILLSTREAM_CONFIG_FILE",
        "MILLSTREAM_MAVEN_REPOSITORY",
        "MILLSTREAM_RELOADED",
        "MILLSTREAM_SPARK_LOG",
        "MILLSTREAM_TOKEN",
        "MILLSTREAM_URL",
    }
)
"""Millstream's variables that are not settings of a client."""
_OF_KUBERNETES = re.compile(r"MILLSTREAM_(?:.+_)?(?:SERVICE_(?:HOST|PORT.*)|PORT(?:_.*)?)")
"""Variables that Kubernetes and Docker set in each container if a service is called millstream."""

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config-file",
        "-c",
        exists=True,
        dir_okay=False,
        envvar="MILLSTREAM_CONFIG_FILE",
        show_envvar=True,
        help="The client's settings: TOML if the name ends in .toml, or else lines of name=value.",
    ),
]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="KEY=VALUE",
        help="One setting of the client, such as num.stream.threads=2. Can be given more than once. "
        "Overrides the environment (MILLSTREAM_NUM_STREAM_THREADS), which overrides the file.",
    ),
]
BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server", "-b", metavar="HOST:PORT", help="Kafka's address (bootstrap.servers)."
    ),
]
ApplicationId = Annotated[
    str | None, typer.Option("--application-id", "-a", metavar="ID", help="The application.id.")
]


def settings(
    file: Path | None,
    environ: Mapping[str, str],
    flags: Sequence[str] | None = None,
    named: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """All given settings; flags override the environment, which overrides the file.

    Args:
        named: the values of flags that have their own name, by key; None: not given.

    Raises:
        typer.BadParameter: the file, or a flag, cannot be read.
    """
    given: dict[str, Any] = {} if file is None else from_file(file)
    from_outside, unknown = from_environment(environ)
    for name in unknown:
        typer.echo(f"warning: {name} is not a setting; `millstream config` lists them", err=True)
    given |= from_outside
    given |= from_flags(flags or ())
    return given | {key: value for key, value in (named or {}).items() if value is not None}


def from_file(file: Path) -> dict[str, Any]:
    """The settings in a file.

    Raises:
        typer.BadParameter: it cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(f"{file} cannot be read: {error}") from error
    return from_toml(text, str(file)) if file.suffix == ".toml" else from_properties(text, str(file))


def from_properties(text: str, name: str) -> dict[str, Any]:
    """Java properties: `name=value`, one per line; # and ! begin a comment."""
    found: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, equals, value = stripped.partition("=")
        if not equals or not key.strip():
            raise _unreadable(f"{name}, line {number}: a setting must have the form name=value")
        found[key.strip()] = value.strip()
    return found


def from_toml(text: str, name: str) -> dict[str, Any]:
    """TOML: `application.id = "orders"`, or the same in tables, whose names are the keys' first parts."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # As of spark.hadoop.fs.s3a.endpoint and spark.hadoop.fs.s3a.endpoint.region.
        quote = '; put a key that another one begins with into quotes: "a.b" = 1, "a.b.c" = 2'
        more = quote if "overwrite a value" in str(error) else ""
        raise _unreadable(f"{name} is not TOML: {error}{more}") from error
    found: dict[str, Any] = {}
    _flatten(document, "", name, found)
    return found


def _flatten(table: Mapping[str, Any], prefix: str, name: str, found: dict[str, Any]) -> None:
    for key, value in table.items():
        full = prefix + key
        if isinstance(value, dict):
            _flatten(value, f"{full}.", name, found)
        elif isinstance(value, date | time):
            raise _unreadable(f"{name}: '{full}' is a date or a time, which no setting accepts")
        else:
            found[full] = value


def from_environment(environ: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The settings among the variables, and the variables that only look like settings."""
    found: dict[str, Any] = {}
    unknown = []
    for variable, value in sorted(environ.items()):
        if not variable.startswith(VARIABLE) or variable in OTHERS or _OF_KUBERNETES.fullmatch(variable):
            continue
        key = _key_of(variable.removeprefix(VARIABLE))
        if key is None:
            unknown.append(variable)
        else:
            found[key] = value
    return found, unknown


_BY_VARIABLE = {re.sub(r"[.-]", "_", key).upper(): key for key in (*CLIENT_KEYS, *KEYS)}


def _key_of(variable: str) -> str | None:
    if variable in _BY_VARIABLE:
        return _BY_VARIABLE[variable]
    for prefix in sorted(PREFIXES, key=len, reverse=True):
        begins = prefix.replace(".", "_").upper()
        if variable.startswith(begins) and len(variable) > len(begins):
            rest = variable.removeprefix(begins)
            # A prefix is followed by a key of Millstream's, of Kafka's, or an unknown one.
            return prefix + _BY_VARIABLE.get(rest, rest.replace("_", ".").lower())
    return None


def from_flags(flags: Sequence[str]) -> dict[str, Any]:
    """The settings of `--set KEY=VALUE`."""
    found: dict[str, Any] = {}
    for flag in flags:
        key, equals, value = flag.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(
                f"{flag!r} is not a setting; one looks like num.stream.threads=2", param_hint="--set"
            )
        found[key.strip()] = value
    return found


def _unreadable(message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint="--config-file")
