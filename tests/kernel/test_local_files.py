"""Hadoop's local file system, as the kernel has it, beside the one that starts processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from java_programs import KernelJava

pytestmark = pytest.mark.disk

_MAIN = "io.millstream.kernel.files.LocalFilesMain"
_OURS = "io.millstream.kernel.files.LocalFiles"
_HADOOPS = "org.apache.hadoop.fs.LocalFileSystem"


def modes(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): f"{path.stat().st_mode & 0o7777:o}"
        for path in sorted(directory.rglob("*"))
        if path.suffix != ".crc"
    }


def test_it_does_what_hadoops_does_and_starts_no_process(
    kernel_java: KernelJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files and directories have the same permissions, by the umask, and the bit that hands a directory's
    group on; a file gets its name in one step. Without `chmod` on the path Hadoop's own cannot do any of it.
    """
    said, left = {}, {}
    for name in (_HADOOPS, _OURS):
        own = tmp_path / name
        own.mkdir()
        (own / "shared").mkdir()
        (own / "shared").chmod(0o2750)
        script = f"""\
mkdirs {own}/a/b
write {own}/a/b/one first
write-new {own}/a/b/one second
read {own}/a/b/one
write {own}/a/b/.two.tmp whole
rename {own}/a/b/.two.tmp {own}/a/b/two
read {own}/a/b/two
rename {own}/a/b/none {own}/a/b/three
write {own}/a/b/one again
read {own}/a/b/one
mkdirs {own}/shared/child
write {own}/shared/file x
chmod {own}/shared/file 640
chmod {own}/shared 750
chmod {own}/a/b 1700
chmod {own}/nothing 600
list {own}/a/b
"""
        if name == _OURS:
            monkeypatch.setenv("PATH", str(tmp_path))
        said[name] = kernel_java(_MAIN, script, name, "027")
        left[name] = modes(own)
    assert left[_OURS] == left[_HADOOPS]
    assert left[_OURS] == {
        "a": "750",
        "a/b": "1700",
        "a/b/one": "640",
        "a/b/two": "640",
        "shared": "2750",
        "shared/child": "2750",
        "shared/file": "640",
    }
    assert said[_OURS].splitlines()[:-2] == said[_HADOOPS].splitlines()[:-2]
    assert said[_OURS].splitlines()[-1] == "list one two"
    assert said[_OURS].splitlines()[2:4] == ["write-new FileAlreadyExistsException", "read first"]


def test_it_writes_no_checksum_files_and_compares_those_that_are_there(
    kernel_java: KernelJava, tmp_path: Path
) -> None:
    """A checkpoint of before has some. A file that is written anew loses its old one."""
    kernel_java(_MAIN, f"write {tmp_path}/old text\nwrite {tmp_path}/bad text\n", _HADOOPS, "027")
    (tmp_path / "bad").write_text("tent")
    script = "\n".join(
        (
            f"read {tmp_path}/old",
            f"read {tmp_path}/bad",
            f"write {tmp_path}/.new.tmp other",
            f"rename {tmp_path}/.new.tmp {tmp_path}/old",
            f"read {tmp_path}/old",
        )
    )
    said = kernel_java(_MAIN, script, _OURS, "027").splitlines()
    assert said == ["read text", "read ChecksumException", "write true", "rename true", "read other"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".bad.crc", "bad", "old"]
