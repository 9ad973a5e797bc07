"""What is shipped, and what everything is installed from."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


KERNEL = "millstream/kernel/millstream-kernel.jar"


def build(project: Path, target: str, into: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(into)]
    done = subprocess.run(command, cwd=project, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built with the build backend that is installed; nothing is downloaded."""
    folder = tmp_path_factory.mktemp("wheel")
    build(ROOT, "wheel", folder)
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_has_the_whole_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    """Sources, the kernel, the table of jars, `py.typed`, the demonstration; no tests, scripts or caches."""
    expected = {
        path.relative_to(package.parent).as_posix()
        for package in (ROOT / "millstream", ROOT / "examples" / "demo" / "millstream_demo")
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert {"millstream/py.typed", "millstream/jars/table.toml", KERNEL} <= shipped
    assert shipped == expected


@pytest.mark.disk
def test_a_wheel_from_the_source_distribution_has_the_same_kernel(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    """The jar is built there, from the sources: it is not in the source distribution."""
    build(ROOT, "sdist", tmp_path)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        content.extractall(tmp_path, filter="data")
    unpacked = tmp_path / archive.name.removesuffix(".tar.gz")
    assert not (unpacked / KERNEL).exists()
    build(unpacked, "wheel", tmp_path)
    (built,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(built) as from_sources:
        assert from_sources.read(KERNEL) == wheel.read(KERNEL)
        assert sorted(from_sources.namelist()) == sorted(wheel.namelist())


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    """Name, version, licence, the lowest Python; and the text of the licence is in it."""
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = HeaderParser().parsestr(wheel.read(name).decode())
    assert metadata["Name"] == "millstream"
    assert metadata["Version"] == PROJECT["project"]["version"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())


def test_the_command_starts_something_that_exists(wheel: zipfile.ZipFile) -> None:
    """`millstream` on the command line is a function of a module that is shipped."""
    module, _, function = PROJECT["project"]["scripts"]["millstream"].partition(":")
    tree = ast.parse(wheel.read(f"{module.replace('.', '/')}.py"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


# --- the locks -------------------------------------------------------------------------------------------


def pins(lock: Path) -> dict[str, list[str]]:
    """The versions that a lock has, by package; several where they depend on the Python version."""
    found: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([a-z0-9-]+)==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE):
        found.setdefault(name, []).append(version)
    return found


def wanted() -> list[Requirement]:
    project = PROJECT["project"]
    texts = (
        project["dependencies"]
        + project["optional-dependencies"]["pandas"]
        + PROJECT["dependency-groups"]["dev"]
    )
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_each_package_of_a_lock_has_a_hash_and_no_address(lock: Path) -> None:
    """Where a package comes from is a setting of each machine; what it is, is not."""
    text = lock.read_text(encoding="utf-8")
    blocks = re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]
    assert blocks
    assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []
    assert re.findall(r"\w+://|--index|--find-links|--trusted-host| @ ", text) == []


@pytest.mark.parametrize("name", ["dev", "spark-4.2.0"])
def test_the_lock_has_all_that_the_project_asks_for(name: str) -> None:
    """A dependency that was added or changed in pyproject.toml is locked: `make lock`."""
    locked = pins(ROOT / "requirements" / f"{name}.lock")
    for requirement in wanted():
        versions = locked.get(requirement.name, [])
        assert versions, f"{requirement.name} is not in {name}.lock: make lock"
        for version in versions:
            assert requirement.specifier.contains(version), f"{name}.lock has {requirement.name} {version}"


def test_the_locks_differ_in_spark_only() -> None:
    """A run with the other Spark says something about Spark, not about other packages."""
    usual, other = pins(ROOT / "requirements" / "dev.lock"), pins(ROOT / "requirements" / "spark-4.2.0.lock")
    assert usual["pyspark"] == ["4.3.0"]
    assert other["pyspark"] == ["4.2.0"]
    differing = {name for name in usual.keys() | other.keys() if usual.get(name) != other.get(name)}
    assert differing == {"pyspark"}


def test_the_java_of_the_lock_is_the_one_of_the_extra() -> None:
    """`make setup` on a machine without Java installs what `millstream[java]` would."""
    (requirement,) = (Requirement(text) for text in PROJECT["project"]["optional-dependencies"]["java"])
    (version,) = pins(ROOT / "requirements" / "java.lock")[requirement.name]
    assert requirement.specifier.contains(version)
