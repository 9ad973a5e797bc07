"""Builds `millstream/kernel/millstream-kernel.jar` from the Java sources in `kernel/src`.

    kernel/build.py          build it, unless it is there and is these sources'
    kernel/build.py --check  compile it, unless these sources have passed before; a warning is an error

A build lets warnings pass: which ones there are depends on the Java that runs the compiler.

The compiler is ecj, one jar that any Java 17 or later runs, so nobody needs a JDK. It compiles against the
jars of the installed PySpark and the kafka-clients of Spark's connector. The jar is the same, byte for byte,
wherever it is built: entries are sorted, have one fixed time, and are stored without compression. In it
`io/millstream/kernel/kernel.properties` has Millstream's version and a digest of what it was made from.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "kernel" / "src"
TESTS = ROOT / "kernel" / "test"
JAR = ROOT / "millstream" / "kernel" / "millstream-kernel.jar"
CHECKED = ROOT / "build" / "kernel-checked"
CONSTANTS = ROOT / "millstream" / "kernel" / "constants.py"
CONSTANTS_JAVA = SOURCES / "io" / "millstream" / "kernel" / "Constants.java"
PROPERTIES = "io/millstream/kernel/kernel.properties"

JAVA_RELEASE = "17"

WARNINGS = (
    "-warn:none",
    "-warn:+allDeadCode,compareIdentical,conditionAssign,constructorName,deprecation,dep-ann,emptyBlock",
    "-warn:+enumSwitch,fallthrough,finally,hashCode,hiding,indirectStatic,intfNonInherited,invalidJavadoc",
    "-warn:+maskedCatchBlock,noEffectAssign,null,nullDereference,over-ann,paramAssign,pkgDefaultMethod,raw",
    "-warn:+resource,semicolon,static-access,super,suppress,syncOverride,tasks(FIXME),typeHiding",
    "-warn:+unchecked,unlikelyCollectionMethodArgumentType,unlikelyEqualsArgumentType,unused,unusedArgument",
    "-warn:+varargsCast,warningToken",
    "-failOnWarning",
)
"""What is an error although it compiles."""

_COMPILE_SECONDS = 300
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The first time that a zip file can express."""


class BuildError(Exception):
    """The kernel cannot be built; the message says why."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="build the kernel's jar")
    parser.add_argument("--check", action="store_true", help="only compile it; a warning is an error")
    options = parser.parse_args(arguments)
    try:
        if options.check:
            check()
        else:
            build(lint=False)
    except BuildError as error:
        print(f"kernel: {error}", file=sys.stderr)
        return 1
    return 0


def build(jar: Path = JAR, *, lint: bool = True) -> bool:
    """Make the jar be what the sources are; whether there was something to do.

    Args:
        lint: warnings are errors.

    Raises:
        BuildError: the sources do not compile, or something to compile them with is missing.
    """
    if CONSTANTS_JAVA.read_text(encoding="utf-8") != (text := constants_java()):
        CONSTANTS_JAVA.write_text(text, encoding="utf-8")
    made_from = identity()
    if identity_of(jar) == made_from:
        return False
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millstream-kernel-") as folder:
        classes = Path(folder)
        compile_java(SOURCES, classes, compile_path(), lint=lint)
        content = {path.relative_to(classes).as_posix(): path.read_bytes() for path in files(classes)}
    content[PROPERTIES] = "".join(f"{name}={value}\n" for name, value in made_from.items()).encode()
    write_jar(jar, content)
    print(f"kernel: built in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return True


def check(passed: Path = CHECKED) -> bool:
    """Compile the kernel; whether there was something to do.

    Args:
        passed: the file that records what has passed.

    Raises:
        BuildError: an error or a warning.
    """
    digest = identity()["digest"]
    if passed.is_file() and passed.read_bytes() == digest.encode():
        return False
    with tempfile.TemporaryDirectory(prefix="millstream-kernel-") as folder:
        compile_java(SOURCES, Path(folder), compile_path())
    passed.parent.mkdir(parents=True, exist_ok=True)
    passed.write_text(digest)
    return True


def constants_java() -> str:
    """`Constants.java`, of the constants that Python has; each is followed by its docstring."""
    body = ast.parse(CONSTANTS.read_text(encoding="utf-8")).body[1:]
    lines = []
    for assignment, doc in zip(body[::2], body[1::2], strict=True):
        assert isinstance(assignment, ast.Assign)
        assert isinstance(doc, ast.Expr)
        assert isinstance(assignment.targets[0], ast.Name)
        value, said = ast.literal_eval(assignment.value), ast.literal_eval(doc.value)
        if isinstance(value, int):
            declared = f"int {{}} = {value};"
        else:
            declared = f"byte {{}} = '{value}';" if len(value) == 1 else f'String {{}} = "{value}";'
        lines.append(f"    /** {said} */")
        lines.append(f"    public static final {declared.format(assignment.targets[0].id)}")
    return _CONSTANTS.format("\n".join(lines))


_CONSTANTS = """package io.millstream.kernel;

/** What Python and the kernel share: `kernel/build.py` writes it from millstream/kernel/constants.py. */
public final class Constants {{
{}

    private Constants() {{}}
}}
"""


def identity() -> dict[str, str]:
    """What the jar says of itself when it is made from the sources as they are now."""
    digest = hashlib.sha256()
    # Beside the sources: how they are compiled, and the versions of the jars that takes.
    for path in [*files(SOURCES), Path(__file__), ROOT / "millstream" / "jars" / "table.toml"]:
        digest.update(f"{path.relative_to(ROOT).as_posix()}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"version": project["version"], "digest": digest.hexdigest()}


def identity_of(jar: Path) -> dict[str, str]:
    """What a jar says of itself; empty when there is none, or it says nothing."""
    try:
        with zipfile.ZipFile(jar) as archive:
            lines = archive.read(PROPERTIES).decode().splitlines()
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return {}
    return dict(line.split("=", 1) for line in lines if "=" in line)


def compile_java(sources: Path, into: Path, class_path: Sequence[Path], *, lint: bool = True) -> None:
    """Compile each `.java` file below a folder.

    Raises:
        BuildError: with what the compiler said.
    """
    from millstream.errors import StreamsException
    from millstream.jars import COMPILER_SET, ensure_jars
    from millstream.java import find_java

    try:
        java, (compiler,) = find_java().java, ensure_jars(COMPILER_SET)
    except StreamsException as error:
        raise BuildError(str(error)) from error
    command = [str(java), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-jar", str(compiler)]
    command += [f"-{JAVA_RELEASE}", "-encoding", "UTF-8", "-proc:none", "-g", "-parameters"]
    command += [*(WARNINGS if lint else ["-nowarn"]), "-cp", os.pathsep.join(map(str, class_path))]
    command += ["-d", str(into), *(path.relative_to(sources).as_posix() for path in files(sources))]
    done = subprocess.run(
        command, cwd=sources, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False
    )
    if done.returncode != 0:
        raise BuildError(f"the sources in {sources} do not compile\n{done.stdout}{done.stderr}")


def compile_path() -> list[Path]:
    """The jars that the kernel finds when it runs: Spark's, and the client library of Kafka.

    Raises:
        BuildError: PySpark is not installed, or a jar cannot be had.
    """
    return [*spark_jars(), kafka_clients()]


def spark_jars() -> list[Path]:
    """PySpark's own jars. It is found, not imported.

    Raises:
        BuildError: it is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    homes = list(spec.submodule_search_locations or ()) if spec else []
    found = [jar for home in homes for jar in sorted(Path(home, "jars").glob("*.jar"))]
    if not found:
        raise BuildError("PySpark, against whose jars the kernel is compiled, is not installed: make setup")
    return found


def kafka_clients() -> Path:
    """The client library that comes with Spark's Kafka connector.

    Raises:
        BuildError: it cannot be had.
    """
    from importlib.metadata import version

    from millstream.errors import StreamsException
    from millstream.jars import connector_set, ensure_jars

    try:
        jars = ensure_jars(connector_set(version("pyspark")))
    except StreamsException as error:
        raise BuildError(str(error)) from error
    (clients,) = (jar for jar in jars if jar.name.startswith("kafka-clients-"))
    return clients


def write_jar(jar: Path, content: Mapping[str, bytes]) -> None:
    """Write a jar whose bytes depend on its content alone; it appears whole or not at all."""
    manifest = {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\r\n\r\n"}
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=jar.parent, prefix=".millstream-kernel-", delete=False) as file:
        try:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for name, data in [*manifest.items(), *sorted(content.items())]:
                    entry = zipfile.ZipInfo(name, _EPOCH)
                    entry.create_system, entry.external_attr = 3, 0o644 << 16
                    archive.writestr(entry, data)
            os.chmod(file.name, 0o644)
            os.replace(file.name, jar)
        except BaseException:
            os.unlink(file.name)
            raise


def files(folder: Path) -> list[Path]:
    """Every file below a folder, in an order that no file system decides."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
