"""The state of `millstream registry`, built from the records of a log. Pure.

Each change is a record with a key and a value, as in the topic `_schemas` of Confluent's registry. The state
follows from these records in order, so a compacted topic is all that it needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.registry.compatibility import incompatibility

__all__ = ["LEVELS", "Change", "RefusedError", "RegistryState", "SchemaVersion"]

Change = tuple[dict[str, Any], dict[str, Any] | None]
"""A record of the log: its key and its value."""

LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
_MOST_REFERENCES = 100
KINDS = ("AVRO", "JSON", "PROTOBUF")


class RefusedError(Exception):
    """An error response: an HTTP status, Confluent's error code, and a message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = code if code < 1000 else code // 100


@dataclass(frozen=True)
class SchemaVersion:
    """A schema version of a subject."""

    subject: str
    version: int
    id: int
    kind: str
    text: str
    references: tuple[Mapping[str, Any], ...] = ()
    deleted: bool = False

    def shown(self) -> dict[str, Any]:
        said: dict[str, Any] = {
            "subject": self.subject,
            "version": self.version,
            "id": self.id,
            "schema": self.text,
        }
        if self.kind != "AVRO":
            said["schemaType"] = self.kind
        if self.references:
            said["references"] = [dict(each) for each in self.references]
        return said


@dataclass
class RegistryState:
    """All subjects and their versions."""

    _versions: dict[str, dict[int, SchemaVersion]] = field(default_factory=dict)
    _ids: dict[int, SchemaVersion] = field(default_factory=dict)
    _levels: dict[str, str] = field(default_factory=dict)

    # --- the log -------------------------------------------------------------------------------------------

    def apply(self, change: Change) -> None:
        """Apply a record of the log. Records of unknown kinds are ignored."""
        key, value = change
        if key.get("keytype") == "CONFIG":
            subject = key.get("subject") or ""
            if value is None:
                self._levels.pop(subject, None)
            else:
                self._levels[subject] = str(value["compatibilityLevel"])
        if key.get("keytype") == "SCHEMA":
            subject, version = str(key["subject"]), int(key["version"])
            if value is None:
                self._versions.get(subject, {}).pop(version, None)
                return
            made = SchemaVersion(
                subject,
                version,
                int(value["id"]),
                str(value.get("schemaType", "AVRO")),
                str(value["schema"]),
                tuple(value.get("references") or ()),
                bool(value.get("deleted")),
            )
            self._versions.setdefault(subject, {})[version] = made
            self._ids.setdefault(made.id, made)

    # --- queries -------------------------------------------------------------------------------------------

    def subjects(self) -> list[str]:
        return sorted(subject for subject in self._versions if self.versions(subject))

    def versions(self, subject: str) -> list[SchemaVersion]:
        """The versions that are not deleted, oldest first."""
        return [each for _, each in sorted(self._versions.get(subject, {}).items()) if not each.deleted]

    def known(self, subject: str) -> list[SchemaVersion]:
        found = self.versions(subject)
        if not found:
            raise RefusedError(40401, f"Subject '{subject}' not found.")
        return found

    def version(self, subject: str, version: str) -> SchemaVersion:
        found = self.known(subject)
        if version in ("latest", "-1"):
            return found[-1]
        if not re.fullmatch("[0-9]{1,10}", version) or not int(version):
            raise RefusedError(42202, f"The specified version '{version}' is not a valid version id.")
        for each in found:
            if each.version == int(version):
                return each
        raise RefusedError(40402, f"Version {version} not found.")

    def by_id(self, id: int) -> SchemaVersion:
        if id not in self._ids:
            raise RefusedError(40403, f"Schema {id} not found")
        return self._ids[id]

    def subjects_of(self, id: int) -> list[SchemaVersion]:
        self.by_id(id)
        return [each for subject in self.subjects() for each in self.versions(subject) if each.id == id]

    def level(self, subject: str) -> str:
        return self._levels.get(subject, self._levels.get("", "BACKWARD"))

    def lookup(self, subject: str, body: Mapping[str, Any]) -> SchemaVersion:
        kind, text, references = _given(body)
        for each in self.known(subject):
            if (each.kind, each.text, each.references) == (kind, text, references):
                return each
        raise RefusedError(40403, "Schema not found")

    def misfit(self, subject: str, body: Mapping[str, Any], only: SchemaVersion | None = None) -> str | None:
        """Why a schema is not compatible with earlier ones at the subject's compatibility level."""
        kind, text, references = _given(body)
        level = self.level(subject)
        before = self.versions(subject) if only is None else [only]
        if level == "NONE" or not before:
            return None
        for other in reversed(before) if level.endswith("_TRANSITIVE") else [before[-1]]:
            if other.kind != kind:
                return f"it is {kind}, but version {other.version} is {other.kind}"
            mine, theirs = self._whole(text, references), self._whole(other.text, other.references)
            if kind != "AVRO":
                continue  # this registry does not compare these, as its documentation says
            why = None if level.startswith("FORWARD") else incompatibility(reader=mine, writer=theirs)
            if why is not None:
                return f"it cannot read data of version {other.version}: {why}"
            why = None if level.startswith("BACKWARD") else incompatibility(reader=theirs, writer=mine)
            if why is not None:
                return f"version {other.version} cannot read its data: {why}"
        return None

    def _whole(self, text: str, references: tuple[Mapping[str, Any], ...]) -> list[str]:
        texts: list[str] = []
        done: set[tuple[str, int]] = set()

        def add(of: tuple[Mapping[str, Any], ...]) -> None:
            for each in of:
                found = self.version(str(each["subject"]), str(each["version"]))
                name = found.subject, found.version
                if name in done:  # added before, or about to be
                    continue
                if len(done) >= _MOST_REFERENCES:
                    raise RefusedError(
                        42201, f"Invalid schema: it has more than {_MOST_REFERENCES} references"
                    )
                done.add(name)
                add(found.references)
                texts.append(found.text)

        add(references)
        return [*texts, text]

    # --- changes -------------------------------------------------------------------------------------------

    def register(self, subject: str, body: Mapping[str, Any]) -> tuple[int, list[Change]]:
        """The id of a schema, and the records to write for it; none if it is already registered."""
        kind, text, references = _given(body)
        for each in self.versions(subject):
            if (each.kind, each.text, each.references) == (kind, text, references):
                return each.id, []
        self._whole(text, references)
        why = self.misfit(subject, body)
        if why is not None:
            raise RefusedError(
                409,
                f"Schema being registered is incompatible with an earlier schema for subject '{subject}': "
                f"{why}",
            )
        same = (
            each.id
            for each in self._ids.values()
            if (each.kind, each.text, each.references) == (kind, text, references)
        )
        id = next(same, max(self._ids, default=0) + 1)
        version = max(self._versions.get(subject, {}), default=0) + 1
        made = SchemaVersion(subject, version, id, kind, text, references)
        return id, [_change(made)]

    def delete(
        self, subject: str, version: str | None, *, permanently: bool
    ) -> tuple[list[int], list[Change]]:
        """The deleted versions, and the records to write."""
        every = list(self._versions.get(subject, {}).values())
        if permanently:
            wanted = [each for each in every if version in (None, str(each.version))]
            if not wanted:
                raise RefusedError(40401, f"Subject '{subject}' not found.")
            if any(not each.deleted for each in wanted):
                raise RefusedError(
                    40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
                )
            return [each.version for each in wanted], [(_key(each), None) for each in wanted]
        wanted = self.known(subject) if version is None else [self.version(subject, version)]
        return [each.version for each in wanted], [_change(each, deleted=True) for each in wanted]

    def set_level(self, subject: str, level: Any) -> list[Change]:
        if level not in LEVELS:
            raise RefusedError(42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}")
        key = {"keytype": "CONFIG", "subject": subject or None, "magic": 0}
        return [(key, {"subject": subject or None, "compatibilityLevel": level})]


def _key(version: SchemaVersion) -> dict[str, Any]:
    return {"keytype": "SCHEMA", "subject": version.subject, "version": version.version, "magic": 1}


def _change(version: SchemaVersion, *, deleted: bool = False) -> Change:
    return _key(version), {**version.shown(), "deleted": deleted}


def _given(body: Mapping[str, Any]) -> tuple[str, str, tuple[Mapping[str, Any], ...]]:
    """A schema's kind, normalized text and references."""
    kind, text = str(body.get("schemaType") or "AVRO"), body.get("schema")
    references = _references(body.get("references") or ())
    if kind not in KINDS or not isinstance(text, str) or not text.strip():
        raise RefusedError(42201, f"Invalid schema: it must be a text of type {', '.join(KINDS)}")
    if kind == "PROTOBUF":
        return kind, text, references
    try:
        plain = json.loads(text)
    except RecursionError:
        raise RefusedError(42201, "Invalid schema: it is nested too deeply") from None
    except ValueError:
        plain = text.strip()
        if kind == "JSON" or not plain.isidentifier():
            raise RefusedError(42201, "Invalid schema: it is not JSON") from None
    whole = [json.dumps(plain)]
    # The referenced schemas may define its names.
    wrong = kind == "AVRO" and not references and incompatibility(reader=whole, writer=whole)
    if wrong:
        raise RefusedError(42201, f"Invalid schema: {wrong}")
    compact = json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
    return kind, compact, references


def _references(given: Any) -> tuple[Mapping[str, Any], ...]:
    wanted = {"name": str, "subject": str, "version": int}
    for each in given if isinstance(given, list | tuple) else (None,):
        if not isinstance(each, dict) or not all(type(each.get(name)) is of for name, of in wanted.items()):
            raise RefusedError(42201, "Invalid schema: a reference has a name, a subject and a version")
    return tuple(given)
