"""Small files: what each does about damage, in one table; and no module writes or reads one by itself."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millstream import small_files
from millstream.broker.storage import DataDir, template
from millstream.class_data import Archive
from millstream.cli.doctor import _owner
from millstream.errors import (
    BrokerException,
    LockException,
    SetupException,
)
from millstream.jars import jar_cache as jars_cache
from millstream.jars.download_progress import DownloadProgress
from millstream.jars.jar_cache import ensure
from millstream.jars.jar_table import Jar
from millstream.java import JavaHome, home_for_spark
from millstream.kernel import shipped_kernel
from millstream.small_files import from_json, read_text, write_whole
from millstream.stores.directory import StateDirectory

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "millstream"

# --- the table -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Small:
    """A small file.

    Attributes:
        make: makes it, and what it stands beside; returns it.
        read: what a program does that reads it.
        told: the exception, and what its message says beside the file's name; or None: it is healed.
        healed: checks what was read, once it is healed. By default nothing.
        logged: what the log says when it is healed; None: nothing.
        future: whether a file of a later version is damage, too.
        harmless: the kinds of damage that it has no fields for, or that others notice.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    told: tuple[type[Exception], str] | None = None
    healed: Callable[[Path, Any], bool] = lambda path, found: True
    logged: str | None = None
    future: bool = False
    harmless: frozenset[str] = frozenset()


DAMAGE: Mapping[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "zeros": lambda content: b"\0" * len(content),
    "cut": lambda content: content[: len(content) // 2],
    "not text": lambda content: b"\x91\xff" + content,
    "garbage": lambda content: hashlib.sha512(content).digest() * 5,
    "a list": lambda content: b"[1, 2]",
    "a text": lambda content: b'"abcdefgh"',
    "an object of something else": lambda content: b'{"a": {"b": Infinity}}',
    "deeply nested": lambda content: b"[" * 100_000,
    "numbers out of range": lambda content: _with_numbers(content, float("inf")),
    "texts for numbers": lambda content: _with_numbers(content, "x"),
}


NUMBERS = frozenset({"numbers out of range", "texts for numbers"})


def _with_numbers(content: bytes, other: object) -> bytes:
    """The same JSON with another value for each number; other content is half of it."""

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: changed(each) for name, each in value.items()}
        if isinstance(value, list):
            return [changed(each) for each in value]
        return other if isinstance(value, int) and not isinstance(value, bool) else value

    try:
        new = json.dumps(changed(json.loads(content))).encode()
    except ValueError:
        return content[:1]
    return new if new != json.dumps(json.loads(content)).encode() else b"{}"


def _later(content: bytes) -> bytes:
    return json.dumps({**json.loads(content), "version": 2}).encode()


# --- the state directory


PROCESS = uuid.UUID("12345678-1234-4234-8234-123456789abc")


def _process_file(path: Path) -> Path:
    file = path / "app" / "kafka-streams-process-metadata"
    file.parent.mkdir()
    file.write_text(json.dumps({"processId": str(PROCESS), "version": 1}))
    return file


def _process_id(path: Path) -> uuid.UUID:
    with StateDirectory(path, "app") as directory:
        return directory.process_id()


def _owner_file(path: Path) -> Path:
    with StateDirectory(path, "app") as directory:
        content = (directory.path / ".owner").read_text()
    (path / "app" / ".owner").write_text(content)
    return path / "app" / ".owner"


def _taken(path: Path) -> str:
    held, other = StateDirectory(path, "app"), StateDirectory(path, "app")
    content = (path / "app" / ".owner").read_bytes()
    with held:
        (path / "app" / ".owner").write_bytes(content)
        with pytest.raises(LockException) as caught:
            other.lock()
    return str(caught.value)


# --- the cache, and what else is on the machine


def _java(path: Path) -> JavaHome:
    home = path / "java"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    (home / "bin" / "java").touch()
    return JavaHome(home, "17.0.1", "JAVA_HOME")


def _launched(path: Path) -> str:
    return (home_for_spark(_java(path)) / "bin" / "java").read_bytes().decode("latin-1")


def _launcher(path: Path) -> Path:
    return home_for_spark(_java(path)) / "bin" / "java"


META = "version=1\nnode.id=1\ndirectory.id=dddddddddddddddddddddd\ncluster.id=cccccccccccccccccccccc\n"


def _formatted(path: Path) -> Path:
    meta = path / "formatted" / "meta.properties"
    meta.parent.mkdir(exist_ok=True)
    meta.write_text(META)
    return meta


def _template(path: Path) -> Path:
    meta = _formatted(path)
    # It does what Kafka's tool does, as far as it matters here: format the directory in the settings.
    tool = (
        "#!/bin/sh\n"
        f"for settings do :; done\nmade=$(sed -n 's/^log.dirs=//p' \"$settings\")\n"
        f"mkdir -p \"$made\"\nprintf '%s' '{META}' > \"$made/meta.properties\"\n"
    )
    java = _java(path).java
    java.write_text(tool)
    java.chmod(0o755)
    return meta


def _data(path: Path) -> Path:
    directory = path / "data"
    with_data = DataDir(directory)
    _formatted(path)
    with_data.prepare(path / "formatted")
    with_data.release()
    return directory / "kafka" / "meta.properties"


def _prepared(path: Path) -> None:
    data = DataDir(path / "data")
    try:
        data.prepare(path / "formatted")
    finally:
        data.release()


def _settings(path: Path) -> Path:
    data = DataDir(path / "data")
    data.write_settings({"a": "b"})
    data.release()
    return data.properties_file


def _settings_again(path: Path) -> str:
    return _settings(path).read_text()


CONTENT = b"a jar's content"
JAR = Jar("org.example:one:1.0", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


def _bring(jars: Sequence[Jar], into: Path, progress: DownloadProgress) -> Mapping[Jar, str]:
    for jar in jars:
        (into / jar.file_name).write_bytes(CONTENT)
    return {}


def _jar(path: Path) -> Path:
    return ensure([JAR], "test", _bring, progress=False)[0]


def _jar_again(path: Path) -> bytes:
    jars_cache._seen.clear()
    return _jar(path).read_bytes()


def _archive(path: Path) -> Path:
    directory = path / "archive"
    directory.mkdir(mode=0o700)
    (directory / "made").write_bytes(CONTENT)
    archive = Archive(directory)
    archive.keep(directory / "made")
    found = archive.find()
    assert found is not None
    return found


def _kernel(path: Path) -> Path:
    return Path(shutil.copy(shipped_kernel().jar, path / "kernel.jar"))


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("environment_script", ROOT / "scripts" / "environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _stamp(path: Path) -> Path:
    (path / "millstream-setup.json").write_text('{"python": [3, 11], "content": "x"}')
    return path / "millstream-setup.json"


FILES: Mapping[str, Small] = {
    "kafka-streams-process-metadata": Small(
        _process_file,
        _process_id,
        healed=lambda path, found: found != PROCESS and _process_id(path) == found,
        logged=r"kafka-streams-process-metadata' cannot be read \(it.*\); this client gets a new process id",
        harmless=NUMBERS,  # its version, which Kafka Streams does not look at either
    ),
    ".owner": Small(
        _owner_file,
        _taken,
        healed=lambda path, found: "is in use by" in found and "set another state.dir" in found,
    ),
    ".owner, read by millstream doctor": Small(
        _owner_file,
        lambda path: _owner(path / "app" / ".owner"),
        # A part of the number may be that of another process.
        healed=lambda path, found: found is None or str(os.getpid()).startswith(str(found)),
    ),
    "java/17.0.1-…/bin/java": Small(
        _launcher,
        _launched,
        healed=lambda path, found: found.startswith("#!/bin/sh\n") and os.access(_launcher(path), os.X_OK),
    ),
    "formatted/meta.properties": Small(
        _template,
        lambda path: (template(path, _java(path), ()) / "meta.properties").read_text(),
        healed=lambda path, found: found == META,
    ),
    "data/kafka/meta.properties": Small(
        _data, _prepared, told=(BrokerException, "is damaged; restore the directory .* or delete it")
    ),
    "server.properties": Small(_settings, _settings_again, healed=lambda path, found: found == "a=b\n"),
    "one-1.0.jar": Small(
        _jar,
        _jar_again,
        healed=lambda path, found: found == CONTENT,
        logged="has the wrong checksum; it is moved aside and downloaded again",
    ),
    "classes-15.jsa": Small(
        _archive,
        lambda path: Archive(path / "archive").find(),
        healed=lambda path, found: found is None,
        harmless=frozenset({"zeros"}),  # of the same size: Java verifies its checksums
    ),
    "kernel.jar": Small(
        _kernel,
        lambda path: shipped_kernel(path / "kernel.jar"),
        told=(SetupException, "reinstall Millstream"),
        harmless=frozenset({"not text"}),  # what is before an archive does not belong to it
    ),
    "millstream-setup.json": Small(
        _stamp,
        lambda path: _script()._read_stamp(path / "millstream-setup.json"),
        healed=lambda path, found: found != {"python": [3, 11], "content": "x"},
    ),
}
"""All small files that Millstream reads again. The mark DAMAGED in a store's directory and `archive.failed`
have no content; the id of a store's topic is in RocksDB (stores/test_rocksdb_store.py)."""


def _came_of(small: Small, path: Path, log: pytest.LogCaptureFixture, *, file: Path) -> str | None:
    """What is wrong with how damage to a file was handled; None: nothing."""
    try:
        found = small.read(path)
    except Exception as error:
        if small.told is None:
            return f"raised {error!r}"
        kind, text = small.told
        if type(error) is not kind:
            return f"raised {type(error).__name__}: {error}"
        return None if file.name in str(error) and _matches(text, str(error)) else f"says {error}"
    if small.told is not None:
        return f"was read as {found!r}"
    if small.logged is None and log.text:
        return f"logged {log.text}"
    if small.logged is not None and not _matches(small.logged, log.text):
        return f"logged {log.text!r}"
    return None if small.healed(path, found) else f"was read as {found!r}"


def _matches(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.DOTALL) is not None


@pytest.mark.disk
@pytest.mark.parametrize("name", FILES)
def test_damage_to_a_small_file_is_healed_or_told(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may have any bytes. No parser's exception is raised, and the undamaged file is read."""
    small = FILES[name]
    wrong: dict[str, str] = {}
    damage = {kind: damaged for kind, damaged in DAMAGE.items() if kind not in small.harmless}
    if small.future:
        damage["of a later version"] = _later
    for number, (kind, damaged) in enumerate(damage.items()):
        path = tmp_path / str(number)
        path.mkdir()
        monkeypatch.setenv("MILLSTREAM_CACHE_DIR", str(path / "cache"))
        file = small.make(path)
        content = file.read_bytes()
        if number == 0:
            with caplog.at_level(logging.WARNING):
                small.read(path)
            assert not caplog.text
            file = small.make(path) if not file.exists() else file
        file.write_bytes(damaged(content))
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            came = _came_of(small, path, caplog, file=file)
        caplog.clear()
        if came is not None:
            wrong[kind] = came
    assert not wrong


# --- the helper ------------------------------------------------------------------------------------------


def test_a_file_is_replaced_as_a_whole_and_nothing_else_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Synced before it gets its name; a write that fails leaves the old content, and no draft."""
    file = tmp_path / "file"
    steps: list[str] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: (steps.append("sync"), sync(number))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (steps.append("replace"), replace(a, b))[1])
    write_whole(file, "first\n")
    assert steps == ["sync", "replace", "sync"]
    write_whole(file, b"second", mode=0o700)
    assert file.read_bytes() == b"second"
    assert file.stat().st_mode & 0o700 == 0o700

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse)
            with pytest.raises(OSError, match="No space"):
                write_whole(file, "third")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert read_text(file) == "second"


def test_what_is_wrong_with_json_is_said_in_words() -> None:
    """The words are not the parser's."""
    said = {}
    for content in (b"", b"\0\0", b"\x91", b"{", b"[" * 100_000, b"5", b'{"version": 3}', b'{"version": 1}'):
        with pytest.raises(ValueError, match=r"^it") as caught:
            from_json(content, lambda kept: kept["name"], version=1)
        said[content[:14]] = str(caught.value)
    assert list(said.values()) == [
        "it is empty",
        "it is empty",
        "it is not text",
        "it is not JSON",
        "it is not JSON",
        "it is not a JSON object",
        "it has version 3, and this Millstream reads version 1",
        "its content is not as expected: KeyError('name')",
    ]
    assert from_json(b'{"version": 1, "name": "a"}', lambda kept: kept["name"], version=1) == "a"


# --- who writes and reads files --------------------------------------------------------------------------

BY_THEMSELVES: Mapping[str, str] = {
    # logs, and what others read while it is written
    "broker/embedded.py: _launch": "a log is emptied",
    "broker/embedded.py: _last_log": "a log is read",
    "broker/storage.py: prepare": "logs are moved and begun",
    "cli/demo.py: demo": "a log is begun",
    "dsl/printed.py: to_file": "the file that a program prints to",
    "spark/worker/printing.py: write": "the same",
    "supervised.py: __init__": "a child's log",
    "spark/jvm/session.py: _launch": "the same",
    "cli/show.py: graph": "the file that a user names, which may be a pipe",
    # directories and large files, whose names or checksums say whether they are whole
    "broker/storage.py: template": "a formatted directory; the settings are those of one run",
    "class_data.py: keep": "an archive, whose name has its size",
    "class_data.py: _make": "the list of one run; a hint to the kernel of the system",
    "class_data.py: discard": "a mark without content",
    "stores/directory.py: clean_in_spark": "a lock, which has no content",
    "java.py: _link": "a symbolic link",
    "jars/jar_cache.py: _accept": "a jar, which has a checksum",
    "jars/jar_cache.py: _is_good": "the same",
    "jars/jar_cache.py: _sha256": "the same",
    "jars/repository.py: _fetch_one": "the same",
    "jars/ivy.py: _run": "the files of one run, in a directory of its own",
    "jars/ivy.py: _certificates": "the certificates that the user names",
    # a mark without content
    "stores/rocksdb_store.py: _mark_damaged": "a mark without content",
    # secrets and channels of one process and its child
    "kafka/clients.py: _load_texts": "a key that only this process reads, at once",
    "query/sql_program.py: main": "/dev/null",
    "query/sql_program.py: _address_space": "/proc",
    "spark/jvm/direct.py: start": "the answer of the JVM, which gets its name when it is complete",
    "spark/worker/processing.py: _open_bookmark": "memory that is shared with the worker",
    "spark/worker/program_worker.py: _pipe": "the pipes of a worker",
    # what the system says
    "class_data.py: short_of": "/proc",
    "class_data.py: _groups": "/proc",
    "permissions.py: _umask": "/proc",
    # what comes with the package, or from the user
    "jars/jar_table.py: _table": "a file of the package",
    "server/dashboard.py: __init__": "files of the package",
    "spark/jvm/package.py: _archive": "modules of the package",
    "cli/command_settings.py: from_file": "the user's configuration",
    "cli/reset.py: target_of": "the user's list of offsets",
    # whose bytes are parsed by the helper
    "stores/directory.py: _saved_process_id": "parsed by from_json",
}
"""The functions that open files without `small_files`, and why they may."""

_METHODS = {"write_text", "write_bytes", "read_text", "read_bytes", "touch"}
_OF_OS = {"open", "fdopen", "replace", "rename", "link"}
_MAYBE = re.compile(
    rf"\.(?:{'|'.join(sorted(_METHODS))})\(|\bopen\(|os\.(?:fdopen|link)\(|\.(?:replace|rename)\((?![rbf]?[\"'])"
)


def _opens_a_file(call: ast.Call) -> bool:
    """Whether a call opens or renames a file. A `replace` with one argument is that of a path."""
    called = call.func
    if isinstance(called, ast.Name):
        return called.id == "open"
    if not isinstance(called, ast.Attribute):
        return False
    if isinstance(called.value, ast.Name) and called.value.id == "os":
        return called.attr in _OF_OS
    if called.attr == "open":
        return bool(call.args) and isinstance(call.args[0], ast.Constant)  # a mode
    if called.attr in ("replace", "rename"):
        return len(call.args) == 1 and not call.keywords and not isinstance(call.args[0], ast.Dict)
    return called.attr in _METHODS


def _places(file: Path) -> Iterator[str]:
    def within(node: ast.AST, function: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from within(child, child.name)
                continue
            if isinstance(child, ast.Call) and _opens_a_file(child):
                yield f"{file.relative_to(PACKAGE).as_posix()}: {function}"
            yield from within(child, function)

    text = file.read_text(encoding="utf-8")
    if _MAYBE.search(text):  # parsing all files takes seconds
        yield from within(ast.parse(text), "<module>")


def test_no_module_writes_or_reads_a_small_file_by_itself() -> None:
    """All of them go through `small_files`, but for those that say why not."""
    helper = Path(small_files.__file__)
    found = {each for file in sorted(PACKAGE.rglob("*.py")) if file != helper for each in _places(file)}
    assert sorted(found - BY_THEMSELVES.keys()) == []
    assert sorted(BY_THEMSELVES.keys() - found) == [], "these have nothing to explain any more"
