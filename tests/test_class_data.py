"""Class-data archives: when one is used, when one is made, and what a bad one does: nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.class_data import Archive, ArchiveMaking, short_of
from millstream.java import find_java

pytestmark = pytest.mark.disk


def test_an_archive_of_another_size_than_its_name_says_is_not_used(tmp_path: Path) -> None:
    """Java crashes on a truncated one."""
    archive = Archive(tmp_path)
    recording = archive.arguments(tmp_path / "classes.lst")
    assert f"-XX:DumpLoadedClassList={tmp_path}/classes.lst" in recording
    (tmp_path / "new").write_bytes(b"12345")
    archive.keep(tmp_path / "new")
    found = archive.find()
    assert found == tmp_path / "classes-5.jsa"
    assert f"-XX:SharedArchiveFile={found}" in archive.arguments(tmp_path / "classes.lst")
    found.write_bytes(b"1234")
    assert archive.find() is None
    assert archive.arguments(tmp_path / "classes.lst") == recording


def test_an_archive_that_a_broker_did_not_start_with_is_not_made_again(tmp_path: Path) -> None:
    """Otherwise every second start would fail first."""
    archive = Archive(tmp_path)
    (tmp_path / "classes-5.jsa").write_bytes(b"12345")
    archive.discard()
    assert archive.find() is None
    assert archive.arguments(tmp_path / "classes.lst") == []


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777], ids=oct)
def test_an_archive_that_others_could_have_written_is_not_used(mode: int, tmp_path: Path) -> None:
    """Java runs what is in it. The directory counts as well as the file, and a link is no file."""
    archive = Archive(tmp_path)
    (tmp_path / "new").write_bytes(b"12345")
    archive.keep(tmp_path / "new")
    (kept,) = tmp_path.glob("*.jsa")
    assert archive.find() == kept
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.chmod(mode)
    assert archive.find() is None
    kept.chmod(0o600)
    tmp_path.chmod(mode)
    assert archive.find() is None
    tmp_path.chmod(0o700)
    assert archive.find() == kept
    kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(tmp_path / "elsewhere")
    assert archive.find() is None


def test_the_directory_around_an_archives_is_closed_when_one_is_made(tmp_path: Path) -> None:
    """Who may write there could put another directory in its place; not so with the sticky bit."""
    directory, names = tmp_path / "key", tmp_path / "names"
    directory.mkdir()
    archive = Archive(directory)
    (directory / "new").write_bytes(b"12345")
    archive.keep(directory / "new")
    tmp_path.chmod(0o1777)
    assert archive.find() is not None
    tmp_path.chmod(0o775)
    assert archive.find() is None
    making = ArchiveMaking(
        archive, "test", java=Path("/no/java"), jvm_arguments=[], class_list=names, needed=1
    )
    assert making.wait_until_done(20)
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    assert archive.find() is not None


def test_archives_that_nobody_has_used_for_a_month_go(tmp_path: Path) -> None:
    """Those of other jars, which an upgrade has left. Whoever starts with one uses it."""
    found = {}
    for name, days in (("mine", 40), ("old", 40), ("used", 40), ("new", 1)):
        (tmp_path / name).mkdir()
        path = found[name] = tmp_path / name / "classes-5.jsa"
        path.write_bytes(b"12345")
        os.utime(path, (path.stat().st_mtime - days * 86400,) * 2)
    Archive(tmp_path / "used").arguments(tmp_path / "list")
    Archive(tmp_path / "mine").clear_others()
    assert {name for name, path in found.items() if path.exists()} == {"mine", "used", "new"}


def test_several_programs_make_one_archive_and_java_takes_it(tmp_path: Path) -> None:
    """Side by side: one makes it, the others leave it alone. A list whose last line is half is no harm."""
    java = find_java().java
    names = tmp_path / "classes.lst"
    subprocess.run([java, f"-XX:DumpLoadedClassList={names}", "-version"], capture_output=True, check=True)
    names.write_bytes(names.read_bytes() + b"java/util/conc")
    directory = tmp_path / "archive"
    directory.mkdir(mode=0o775)
    archive = Archive(directory)
    makings = [
        ArchiveMaking(archive, "test", java=java, jvm_arguments=["-Xmx256m"], class_list=names)
        for _ in range(3)
    ]
    for making in makings:
        assert making.wait_until_done(120)
        making.stop()
    found = archive.find()
    assert found is not None
    assert [path.name for path in directory.iterdir() if path.suffix in (".part", ".lst")] == []
    told = archive.arguments(names)
    assert f"-XX:SharedArchiveFile={found}" in told
    said = subprocess.run(
        [java, *told, "-Xshare:on", "-Xlog:cds=info:stderr", "-version"], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    whole = found.read_bytes()
    middle = len(whole) // 2
    turned = bytes(byte ^ 0xFF for byte in whole[middle : middle + 4096])
    for damaged in (whole[:middle], whole[:middle] + turned + whole[middle + 4096 :]):
        damage = tmp_path / "damaged"
        damage.write_bytes(damaged)
        archive.keep(damage)
        told = archive.arguments(names)
        assert f"-XX:SharedArchiveFile={archive.find()}" in told
        assert subprocess.run([java, *told, "-version"], capture_output=True).returncode == 0
        assert subprocess.run([java, *told, "-Xshare:on", "-version"], capture_output=True).returncode != 0


def test_an_archive_that_is_not_begun_yet_is_not_made(tmp_path: Path) -> None:
    """A program that ends before its time has come waits for nothing."""
    making = ArchiveMaking(
        Archive(tmp_path), "test", java=Path("/no/java"), jvm_arguments=[], class_list=tmp_path, after_s=3600
    )
    making.stop()
    assert making.wait_until_done(0)
    assert list(tmp_path.iterdir()) == []


def test_no_archive_is_made_where_disk_or_memory_is_short(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit is the machine's or the container's. The next start looks again."""
    caplog.set_level("INFO", "millstream")
    making = ArchiveMaking(
        Archive(tmp_path),
        "test",
        java=Path("/no/java"),
        jvm_arguments=[],
        class_list=tmp_path,
        needed=1 << 62,
    )
    assert making.wait_until_done(20)
    assert caplog.messages == ["no class-data archive is created: disk is low"]
    assert [path.name for path in tmp_path.iterdir() if path.name != ".archive.lock"] == []

    root = tmp_path / "root"

    def short(available_kb: int, limit: str = "max", current: int = 0) -> str | None:
        (root / "proc").mkdir(parents=True, exist_ok=True)
        (root / "sys/fs/cgroup").mkdir(parents=True, exist_ok=True)
        (root / "proc/meminfo").write_text(f"MemFree: 1 kB\nMemAvailable:  {available_kb} kB\n")
        (root / "sys/fs/cgroup/memory.max").write_text(f"{limit}\n")
        (root / "sys/fs/cgroup/memory.current").write_text(f"{current}\n")
        return short_of(tmp_path, 2 << 10, root)

    assert short(1) == "memory"
    assert short(2) is None
    assert short(9, "4096", 2048) is None
    assert short(9, "4096", 2049) == "memory"
    (root / "proc/self").mkdir()
    (root / "proc/self/cgroup").write_text("1:name=systemd:/\n0::/user.slice/app.scope\n")
    own = root / "sys/fs/cgroup/user.slice/app.scope"
    own.mkdir(parents=True)
    assert short(9) is None, "neither has a limit"
    for group in (own, own.parent):
        (group / "memory.max").write_text("4096\n")
        (group / "memory.current").write_text("2049\n")
        assert short(9) == "memory"
        (group / "memory.max").write_text("max\n")
    assert short_of(tmp_path, 2 << 10, tmp_path / "nowhere") is None


def test_an_archive_is_begun_when_the_list_hardly_grows(tmp_path: Path) -> None:
    """On a busy machine a start may take a minute, and the archive has to include what it loads by then."""
    names = tmp_path / "classes.lst"
    directory = tmp_path / "archive"
    directory.mkdir()
    names.write_text("java/lang/Object id: 0\n")
    making = ArchiveMaking(
        Archive(directory), "test", java=Path("/no/java"), jvm_arguments=[], class_list=names, after_s=1.0
    )
    for _ in range(12):
        assert not making.wait_until_done(0.1)
        names.write_text(names.read_text() * 2)
        assert list(directory.iterdir()) == []
    assert making.wait_until_done(20)
    assert [path.name for path in directory.iterdir()] != []


def test_what_makes_the_archive_goes_first_and_has_no_options_of_other_javas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes it before the program where memory runs out; an agent is not for it."""
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.setenv(name, "-javaagent:any.jar")
    java, told, names = tmp_path / "java", tmp_path / "told", tmp_path / "names"
    first = (
        'until [ "$(cat /proc/self/oom_score_adj)" = 1000 ]; do :; done' if sys.platform == "linux" else ":"
    )
    java.write_text(f"#!/bin/sh\n{first}\nenv > {told}\nexit 1\n")
    java.chmod(0o700)
    names.write_text("java/lang/Object\n")
    making = ArchiveMaking(Archive(tmp_path), "test", java=java, jvm_arguments=[], class_list=names, needed=1)
    try:
        assert making.wait_until_done(20)
    finally:
        making.stop()
    assert "PATH=" in told.read_text()
    assert "javaagent" not in told.read_text()
