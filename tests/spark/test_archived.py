"""With which archive, list or neither Spark's JVM is started. The Java here only says so."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError

from millstream.java import JavaHome
from millstream.spark.jvm import direct
from millstream.spark.jvm.archived import archive_for, start_with_archive

pytestmark = pytest.mark.disk

_JAVA = f"""#!{sys.executable}
import json, os, struct, sys
from pathlib import Path

options = [word for word in sys.argv if word.startswith("-XX:") and "Unrecognized" not in word]
with open(Path(sys.argv[0]).with_name("said"), "a") as said:
    said.write(json.dumps(options) + "\\n")
if Path(sys.argv[0]).with_name("broken").exists() or "-XX:SharedArchiveFile" in str(options):
    sys.exit(134)
for option in options:
    if option.startswith("-XX:DumpLoadedClassList="):
        Path(option.partition("=")[2]).write_text("java/lang/Object id: 0\\n")
told = Path(os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"])
told.with_suffix(".part").write_bytes(struct.pack(">ii", 1234, 6) + b"secret")
told.with_suffix(".part").rename(told)
sys.stdin.read()
"""


class _World:
    """A Java that does not start with an archive, a jar, and a cache."""

    def __init__(self, directory: Path) -> None:
        self.bin = directory / "java" / "bin"
        self.bin.mkdir(parents=True)
        (self.bin / "java").write_text(_JAVA)
        (self.bin / "java").chmod(0o700)
        self.java = JavaHome(directory / "java", "17.0.1", "PATH")
        self.path = [directory / "spark.jar"]
        self.path[0].touch()
        self._list = directory / "classes.lst"
        archive = archive_for(self.java, self.path, {})
        assert archive is not None
        self.archive = archive

    def start(self, settings: dict[str, str] | None = None) -> tuple[bool, list[str]]:
        """Start it, and end it; whether an archive is made behind it, and about what it was told."""
        (self.bin / "said").write_text("")
        self._list.unlink(missing_ok=True)
        settings = settings or {}

        def run(options: Sequence[str]) -> direct.Started:
            command = direct.command(self.java.java, self.path, settings, options)
            return direct.start(command, os.environ, umask=0o077, output=None)

        started, _, making = start_with_archive(self.java, self.path, settings, self._list, run)
        assert started[1:] == (1234, "secret")
        assert started.process.stdin is not None
        started.process.stdin.close()
        assert started.process.wait(20) == 0
        if making is not None:
            making.stop()
        return making is not None, self.said

    @property
    def said(self) -> list[str]:
        """For each time that it was run, what it was to do about archives."""
        runs = [json.loads(line) for line in (self.bin / "said").read_text().splitlines()]
        kinds = ("SharedArchiveFile", "DumpLoadedClassList")
        return [" ".join(kind for kind in kinds if kind in " ".join(run)) for run in runs]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _World:
    monkeypatch.setenv("MILLSTREAM_CACHE_DIR", str(tmp_path / "cache"))
    return _World(tmp_path)


def _keep_an_archive(world: _World) -> Path:
    made = world.archive.directory / "made"
    made.write_bytes(b"12345")
    world.archive.keep(made)
    found = world.archive.find()
    assert found is not None
    return found


def test_a_start_that_fails_with_an_archive_is_tried_without_it(world: _World) -> None:
    """The archive goes, and no other one is made: not every second start may fail first."""
    assert world.start() == (True, ["DumpLoadedClassList"]), "the first start makes a list"
    _keep_an_archive(world)
    assert world.start() == (False, ["SharedArchiveFile", ""])
    assert world.archive.find() is None
    assert world.start() == (False, [""])


def test_a_start_that_fails_anyway_says_nothing_about_the_archive(world: _World) -> None:
    """It stays, for when the heap is small enough, or an option is corrected."""
    kept = _keep_an_archive(world)
    (world.bin / "broken").touch()
    with pytest.raises(PySparkRuntimeError):
        world.start()
    assert world.said == ["SharedArchiveFile", ""]
    assert world.archive.find() == kept
    kept.unlink()
    with pytest.raises(PySparkRuntimeError):
        world.start()
    assert world.said == ["DumpLoadedClassList"], "without one there is nothing to try again"


def test_an_archive_in_a_read_only_cache_is_used(world: _World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose image has one. Without one, none is made there."""
    kept = _keep_an_archive(world)
    monkeypatch.setattr("millstream.cache.os.access", lambda *_: False)
    found = archive_for(world.java, world.path, {})
    assert found is not None
    assert found.find() == kept
    kept.unlink()
    assert archive_for(world.java, world.path, {}) is None


@pytest.mark.parametrize(
    "option", ["-Xshare:auto", "-XX:SharedArchiveFile=mine.jsa", "-XX:ArchiveClassesAtExit=mine.jsa"]
)
def test_who_says_something_about_archives_is_left_alone(world: _World, option: str) -> None:
    """There is no key of ours to switch them off."""
    assert archive_for(world.java, world.path, {"spark.driver.extraJavaOptions": f"-Da=b {option}"}) is None


@pytest.mark.parametrize("change", [lambda jar: jar.write_bytes(b"1"), lambda jar: os.utime(jar, (1, 1))])
def test_another_jar_has_another_archive(world: _World, change: Callable[[Path], None]) -> None:
    """As it has in each new version."""
    change(world.path[0])
    other = archive_for(world.java, world.path, {})
    assert other is not None
    assert other.directory != world.archive.directory
