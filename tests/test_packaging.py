"""What is shipped, and what everything is installed from."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION = PROJECT["project"]["version"]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


KERNEL = "millstream/kernel/millstream-kernel.jar"
SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""How an archive is extracted: Python 3.11 has filters since 3.11.4."""


@cache
def script(name: str) -> ModuleType:
    """A program of scripts/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
        content.extractall(tmp_path, **SAFELY)
    unpacked = tmp_path / archive.name.removesuffix(".tar.gz")
    assert not (unpacked / KERNEL).exists()
    build(unpacked, "wheel", tmp_path)
    (built,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(built) as from_sources:
        assert from_sources.read(KERNEL) == wheel.read(KERNEL)
        assert sorted(from_sources.namelist()) == sorted(wheel.namelist())


PROGRAM = """
import json, millstream, millstream_demo
from millstream import StreamsBuilder
from millstream.kernel import shipped_kernel
JAR = shipped_kernel().jar
builder = StreamsBuilder()
builder.stream("in").filter(lambda value: value.isNotNull()).to("out")
said = {
    "files": [millstream.__file__, millstream_demo.__file__, str(JAR)],
    "kernel": JAR.stat().st_size,
    "topology": str(builder.build().describe()),
}
print(json.dumps(said))
"""


def test_an_installed_wheel_works(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """In an environment of its own, in which nothing of the checkout is found.

    What it depends on is that of the environment that runs the tests: this proves what the wheel has, and not
    that an index has the rest.
    """
    venv, python = tmp_path / "venv", tmp_path / "venv" / "bin" / "python"
    uv = script("environment").find_uv()
    make = [uv, "venv", "--quiet", "--offline", "--python", sys.executable, str(venv)]
    install = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--no-index",
        "--python",
        str(python),
    ]
    for command in (make, [*install, str(wheel.filename)]):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60)
    (packages,) = venv.glob("lib/*/site-packages")
    # A folder that a .pth file names is looked into, and its own .pth files, such as the checkout's, are not.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))

    def run(*arguments: str) -> str:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            arguments, cwd=tmp_path, env=clean, check=False, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert run(str(venv / "bin" / "millstream"), "--version").strip() == f"millstream {VERSION}"
    assert "Count words" in run(str(venv / "bin" / "millstream"), "demo", "--help")
    said = json.loads(run(str(python), "-c", PROGRAM))
    assert [file for file in said["files"] if not Path(file).is_relative_to(packages)] == []
    assert said["kernel"] == wheel.getinfo(KERNEL).file_size
    assert "KSTREAM-FILTER-0000000001" in said["topology"]


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


# --- releases --------------------------------------------------------------------------------------------

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_the_notes_of_a_release_are_its_part_of_the_changelog() -> None:
    """What the workflow that publishes a release says of it; a release that is not written has none."""
    changelog = (
        "# Changelog\n\n## 0.2.0 - 2027-01-31\n\n### Added\n\n- one\n\n## 0.1.0 - 2026-12-01\n\n- two\n"
    )
    notes = script("make_changelog").notes
    assert notes(changelog, "0.2.0") == "### Added\n\n- one\n"
    assert notes(changelog, "0.1.0") == "- two\n"
    assert notes(changelog, "0.1") is None
    assert notes("## 0.1.0 (unreleased)\n\nThe first.\n", "0.1.0") is None


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_what_is_there(workflow: Path) -> None:
    """Targets of the Makefile, and files of the project; nothing but what a developer can run as well."""
    text = workflow.read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    commands = re.findall(r"- run: (.+)", text)
    assert {".ci/run", "make test ALL=1"} & {*commands}
    for command in commands:
        program, *arguments = command.split()
        if program == "make":
            assert {each for each in arguments if "=" not in each} <= {*targets}
        elif program == "python":
            assert (ROOT / arguments[0]).exists()
        else:
            assert (ROOT / program).exists() or program == "gh", command


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_each_action_of_a_workflow_is_one_commit(workflow: Path) -> None:
    """A tag or a branch can be moved to other code. The version is beside it, for readers and for updates."""
    used = re.findall(r"\buses:\s*(.+)", workflow.read_text(encoding="utf-8"))
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []


def test_the_job_that_may_publish_runs_no_code_of_ours() -> None:
    """It has no other right: what could change the package has run before it, without that right."""
    workflows = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in WORKFLOWS]
    jobs = [job for workflow in workflows for job in workflow["jobs"].values()]
    (publishing,) = [job for job in jobs if "id-token" in job.get("permissions", {})]
    assert publishing["permissions"] == {"id-token": "write"}
    actions = [step["uses"].partition("@")[0] for step in publishing["steps"]]
    assert actions == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]
    assert all(workflow["permissions"] == {"contents": "read"} for workflow in workflows)


def test_who_publishes_has_no_secret() -> None:
    """Trusted publishing: the index believes the workflow by what it is; nobody keeps a token."""
    text = (ROOT / ".github" / "workflows" / "publish.yml").read_text(encoding="utf-8")
    assert "id-token: write" in text
    assert "secrets." not in text
    assert "password:" not in text


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
    """The address of a package is a setting of each machine; its content is not."""
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


def test_the_image_has_the_packages_that_the_tests_have() -> None:
    """All that the package and its extras there ask for, in the same versions."""
    image, tested = pins(ROOT / "requirements" / "image.lock"), pins(ROOT / "requirements" / "dev.lock")
    optional = PROJECT["project"]["optional-dependencies"]
    extras = [text for extra in script("environment").IMAGE_EXTRAS for text in optional[extra]]
    for requirement in map(Requirement, PROJECT["project"]["dependencies"] + extras):
        assert image.get(requirement.name), f"{requirement.name} is not in image.lock: make lock"
    assert {name: versions for name, versions in image.items() if tested.get(name) != versions} == {}


def test_the_java_of_the_lock_is_the_one_of_the_extra() -> None:
    """`make setup` on a machine without Java installs what `millstream[java]` would."""
    (requirement,) = (Requirement(text) for text in PROJECT["project"]["optional-dependencies"]["java"])
    (version,) = pins(ROOT / "requirements" / "java.lock")[requirement.name]
    assert requirement.specifier.contains(version)
