"""The kernel's sources and its jar: what they may use, and that the jar is what the sources say."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest
from java_programs import KernelJava

from millstream.errors import SetupException
from millstream.kernel import shipped_kernel

ROOT = Path(__file__).resolve().parent.parent.parent

MAY_IMPORT = (
    "io.millstream.kernel.",
    "java.",
    "javax.net.ssl.",
    "com.fasterxml.jackson.",  # comes with Spark; descriptions from Python are JSON
    "org.apache.avro.",  # comes with Spark
    "org.apache.datasketches.hll.",  # comes with Spark, whose functions keep such sketches
    "org.apache.datasketches.hash.MurmurHash3",  # likewise
    "org.apache.kafka.clients.",
    "org.apache.kafka.common.",
    "org.slf4j.",
    "org.apache.hadoop.fs.",  # comes with Spark; a file system of ours is one of Hadoop's
    # Spark's public interfaces
    "org.apache.spark.SparkFiles",
    "com.sun.management.OperatingSystemMXBean",
    "org.apache.spark.TaskContext",
    "org.apache.spark.sql.Column",
    "org.apache.spark.sql.Dataset",
    "org.apache.spark.sql.Row",
    "org.apache.spark.sql.RowFactory",
    "org.apache.spark.sql.SparkSession",
    "org.apache.spark.sql.api.java.",
    "org.apache.spark.sql.connector.",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.types.",
    "org.apache.spark.sql.util.CaseInsensitiveStringMap",
    "org.apache.spark.unsafe.types.UTF8String",
    "org.apache.spark.util.TaskCompletionListener",
)
"""Packages, which end in a full stop, and classes. Spark's are those that its API documentation shows."""

IN_SIGNATURES = {
    # Of Data Source V2: `DataWriter<InternalRow>` and what a row answers with.
    "org.apache.spark.sql.catalyst.InternalRow": ("sink/", "serdes/"),
    "org.apache.spark.sql.catalyst.util.ArrayData": ("sink/", "serdes/"),
    # Of functions in a catalog, which take and give values as rows have them; each function of others does
    # so.
    "org.apache.spark.sql.catalyst.expressions.GenericInternalRow": "serdes/",
    "org.apache.spark.sql.catalyst.util.ArrayBasedMapData": "serdes/",
    "org.apache.spark.sql.catalyst.util.GenericArrayData": "serdes/",
    "org.apache.spark.sql.catalyst.util.MapData": "serdes/",
}
"""Classes of Spark's inner packages of which its public interfaces speak; and where each may be used."""

IN_TASKS = (
    "org.apache.spark.api.python.PythonFunction",
    "org.apache.spark.api.python.SimplePythonFunction",
    "org.apache.spark.TaskContext",
    "org.apache.spark.SparkEnv",
    "org.apache.spark.rdd.",
    "org.apache.spark.rpc.",
    "org.apache.spark.sql.catalyst.",
    "org.apache.spark.sql.classic.",
    "org.apache.spark.sql.execution.Spark",
    "org.apache.spark.sql.internal.connector.",
    "org.apache.spark.util.RpcUtils",
    "org.rocksdb.",
    "scala.",
)
"""What tasks use besides: their operators are nodes of Spark's plans, and their rows are Spark's own. From
executors they reach the driver over Spark's RPC."""

CORE_MAY_NOT = ("org.apache.spark.", "org.apache.kafka.clients.")
"""What a pure core does not know."""

WIDEST = 120


def sources(folder: str = "src") -> list[Path]:
    found = sorted((ROOT / "kernel" / folder).rglob("*.java"))
    assert found
    return found


def inside(path: Path) -> str:
    return path.relative_to(ROOT / "kernel" / "src" / "io" / "millstream" / "kernel").as_posix()


NO_CODE = re.compile(
    r"""/\*.*?\*/  |  //[^\n]*  |  \"{3}.*?\"{3}  |  "(?:\\.|[^"\\\n])*"  |  '(?:\\.|[^'\\\n])+'""",
    re.DOTALL | re.VERBOSE,
)
WHOLE_NAME = re.compile(r"\b(?:org|com|io|scala|sun|jdk|javax)(?:\.\w+)+")


def code_of(text: str) -> str:
    """Without comments, strings and characters."""
    return re.sub(
        r'/\*.*?\*/|//[^\n]*|"""(?:.|\n)*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
        " ",
        text,
        flags=re.DOTALL,
    )


def names_in(text: str) -> set[str]:
    """Each class or package that a source imports, or writes with its whole name."""
    code = code_of(text)
    imported = re.findall(r"^import\s+(?:static\s+)?([\w.]+(?:\.\*)?)\s*;", code, re.MULTILINE)
    rest = re.sub(r"^(?:import|package)\s[^;]*;", "", code, flags=re.MULTILINE)
    return {name.removesuffix("*") for name in imported} | set(
        re.findall(r"\b(?:org|com|io|scala|sun|jdk|javax)(?:\.\w+)+", rest)
    )


def is_allowed(name: str, file: str) -> bool:
    if file.startswith("task/") and name.startswith(IN_TASKS):
        return True
    if name in IN_SIGNATURES:
        return file.startswith(IN_SIGNATURES[name])
    if file.startswith("core/") and name.startswith(CORE_MAY_NOT):
        return False
    return any(
        name.startswith(each) if each.endswith(".") else name == each or name.startswith(f"{each}.")
        for each in MAY_IMPORT
    )


def test_the_kernel_uses_public_interfaces_only() -> None:
    """Of Spark what its API documentation shows, so that the next Spark has it too; and pure cores nothing of
    Spark and no client of Kafka."""
    wrong = [
        f"{inside(path)} uses {name}"
        for path in sources()
        for name in sorted(names_in(path.read_text(encoding="utf-8")))
        if not is_allowed(name, inside(path))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "file", "allowed"),
    [
        ("import org.apache.spark.sql.Dataset;", "python/A.java", True),
        ("import org.apache.spark.sql.connector.write.*;", "sink/A.java", True),
        ("import org.apache.spark.sql.catalyst.InternalRow;", "sink/A.java", True),
        ("import org.apache.spark.sql.catalyst.InternalRow;", "python/A.java", False),
        ("import org.apache.spark.sql.catalyst.expressions.Expression;", "sink/A.java", False),
        ("import static org.apache.spark.sql.functions.col;", "python/A.java", True),
        ("import org.apache.spark.sql.execution.SparkPlan;", "python/A.java", False),
        ("import org.apache.spark.sql.DatasetHolder;", "python/A.java", False),
        ("import scala.Option;", "python/A.java", False),
        ("import org.apache.spark.sql.catalyst.rules.Rule;", "task/A.java", True),
        ("import org.apache.spark.sql.execution.datasources.A;", "task/A.java", False),
        ("class A { org.apache.spark.SparkEnv env; }", "python/A.java", False),
        ("// scala.Option\nclass A { String a = \"\\\"scala.Option\"; char b = '\"'; }", "A.java", True),
        ("import org.apache.spark.sql.Row;", "core/A.java", False),
        ("import org.apache.kafka.common.utils.Utils;", "core/A.java", True),
    ],
)  # fmt: skip
def test_the_rule_about_interfaces_sees_what_is_used(line: str, file: str, allowed: bool) -> None:
    """Imports of one class, of a package, of a static member, and names that are written out."""
    (name,) = names_in(line) or {"java."}
    assert is_allowed(name, file) is allowed


@pytest.mark.parametrize("folder", ["src", "test"])
def test_java_looks_like_the_rest(folder: str) -> None:
    """Lines of at most 120 characters, no tabs, nothing at the end of a line."""
    wrong = [
        f"{path.name}:{number}"
        for path in sources(folder)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > WIDEST or "\t" in line or line != line.rstrip()
    ]
    assert wrong == []


def test_what_python_calls_of_a_class_has_a_name_of_its_own() -> None:
    """No other public method has that name: py4j finds one of them, and which one depends on how Java started
    (`serdes/Functions.java: nameOf`)."""
    named = re.compile(r"^    public (static )?(?:<[^>]+> )?[\w.<>\[\], ?]+ (\w+)\(", re.MULTILINE)
    called = {
        name
        for path in (ROOT / "millstream").rglob("*.py")
        for name in re.findall(r'"io\.millstream\.kernel\.([\w.]+)"', path.read_text(encoding="utf-8"))
    }
    called |= {
        f"task.{name}"
        for path in (ROOT / "millstream").rglob("*.py")
        for name in re.findall(r'kernel_column\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    found, wrong = 0, []
    for path in sources():
        if inside(path).removesuffix(".java").replace("/", ".") in called:
            methods = named.findall(path.read_text(encoding="utf-8"))
            names = [name for _, name in methods]
            static = [name for is_static, name in methods if is_static]
            found += len(static)
            wrong += [f"{inside(path)}: {name}" for name in static if names.count(name) > 1]
    assert wrong == []
    assert found > 20


def test_the_kernel_is_small() -> None:
    """It consists of few parts: 17,500 lines, without comments and empty ones. Nine thousand are
    tasks, their state in the form of Kafka Streams, and how they move (docs/decisions/0078 to 0080); two and
    a half thousand are what windows, joins and tables do with a record, which Spark has no operators for
    (0033); nine hundred run functions and processors in Python (0034), a thousand deliver records and see to
    those that are refused, and the rest are formats that Spark cannot read (0035), or reads too leniently
    (0073).
    """
    texts = [code_of(path.read_text(encoding="utf-8")) for path in sources()]
    assert sum(1 for text in texts for line in text.splitlines() if line.strip()) < 17_500


# --- the jar ---------------------------------------------------------------------------------------------


def test_the_jar_says_that_it_is_made_from_these_sources(builder: ModuleType) -> None:
    """`make setup` builds it anew when a source changes; what Python reads is what the builder wrote."""
    kernel = shipped_kernel()
    assert {"version": kernel.version, "digest": kernel.digest} == builder.identity()
    assert kernel.jar == builder.JAR


@pytest.mark.disk
def test_the_jar_is_what_the_sources_compile_to(builder: ModuleType, tmp_path: Path) -> None:
    """Byte for byte, so that anybody can check the jar of a wheel."""
    again = tmp_path / "again.jar"
    assert builder.build(again)
    assert again.read_bytes() == builder.JAR.read_bytes()
    assert not builder.build(again), "there is nothing to do a second time"


@pytest.fixture
def copy(builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources, which the builder takes for the project's."""
    for part in ("kernel", "millstream/jars/table.toml", "pyproject.toml"):
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        copying = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copying(ROOT / part, tmp_path / part)
    monkeypatch.setattr(builder, "ROOT", tmp_path)
    monkeypatch.setattr(builder, "SOURCES", tmp_path / "kernel" / "src")
    monkeypatch.setattr(builder, "__file__", str(tmp_path / "kernel" / "build.py"))
    return tmp_path / "kernel" / "src" / "io" / "millstream" / "kernel"


def test_a_change_of_what_the_jar_is_made_from_is_noticed(builder: ModuleType, copy: Path) -> None:
    """That is a source's content or name, the builder, the jars it needs, and Millstream's version."""
    seen = [builder.identity()]

    def changed() -> bool:
        seen.append(builder.identity())
        return seen[-1] not in seen[:-1]

    assert not changed(), "nothing was changed"
    source = copy / "Partitions.java"
    source.write_text(source.read_text() + "\n")
    assert changed()
    source.rename(copy / "Another.java")
    assert changed()
    for path in (builder.ROOT / "kernel" / "build.py", builder.ROOT / "millstream" / "jars" / "table.toml"):
        path.write_text(path.read_text() + "\n")
        assert changed()
    project = builder.ROOT / "pyproject.toml"
    project.write_text(project.read_text().replace('version = "', 'version = "9.', 1))
    assert changed()
    assert seen[-1]["version"].startswith("9.")


@pytest.mark.disk
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import java.util.Set;\nclass Bad {}", "The import java.util.Set is never used"),
        ("class Bad { java.util.List bad; }", "List is a raw type"),
        ("class Bad { int bad() { return missing; } }", "missing cannot be resolved"),
    ],
    ids=["unused", "raw", "wrong"],
)
def test_a_warning_is_an_error(builder: ModuleType, copy: Path, tmp_path: Path, code: str, said: str) -> None:
    """The error has the compiler's words, the file and the line, and no jar is written."""
    (copy / "Bad.java").write_text(f"package io.millstream.kernel;\n{code}\n")
    with pytest.raises(builder.BuildError) as caught:
        builder.build(tmp_path / "bad.jar")
    assert said in str(caught.value)
    assert "Bad.java" in str(caught.value)
    assert not (tmp_path / "bad.jar").exists()


@pytest.mark.disk
def test_setup_lets_a_warning_pass_and_lint_does_not(builder: ModuleType, copy: Path, tmp_path: Path) -> None:
    """The compiler warns by the classes of the Java that runs it, and a user's Java is not ours; and what has
    passed is not checked again."""
    shutil.rmtree(copy)  # the rest takes seconds to compile
    copy.mkdir()
    (copy / "Unused.java").write_text(
        "package io.millstream.kernel;\nimport java.util.Set;\nclass Unused { int a; }\n"
    )
    assert builder.build(tmp_path / "a.jar", lint=False)
    passed = tmp_path / "build" / "passed"
    with pytest.raises(builder.BuildError, match=r"java\.util\.Set is never used"):
        builder.check(passed)
    assert not passed.exists()
    (copy / "Unused.java").write_text("package io.millstream.kernel;\nclass Unused { int a; }\n")
    assert builder.check(passed)
    assert not builder.check(passed)


def test_without_its_jar_a_package_says_how_to_get_it(tmp_path: Path) -> None:
    """The jar is missing in a checkout that was never set up, or where a file was deleted."""
    with pytest.raises(SetupException) as caught:
        shipped_kernel(tmp_path / "no.jar")
    for fact in (str(tmp_path / "no.jar"), "make setup", "--force-reinstall"):
        assert fact in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"no jar", None], ids=["empty", "other", "without properties"])
def test_a_damaged_jar_is_told_of(builder: ModuleType, tmp_path: Path, content: bytes | None) -> None:
    """The error says how to get a good one."""
    jar = tmp_path / "damaged.jar"
    if content is None:
        builder.write_jar(jar, {"a.txt": b""})
    else:
        jar.write_bytes(content)
    with pytest.raises(SetupException, match=r"damaged\.jar cannot be read .*make setup"):
        shipped_kernel(jar)


@pytest.mark.disk
def test_an_executor_with_another_kernel_refuses_its_work(
    kernel_java: KernelJava, builder: ModuleType
) -> None:
    """What is sent to it carries the driver's version and digest."""
    mine = builder.identity()
    main = "io.millstream.kernel.RequireMain"
    assert kernel_java(main, "", mine["version"], mine["digest"]) == "taken\n"
    said = kernel_java(main, "", "0.0.9", "f" * 64)
    for fact in (f"{mine['version']} ({mine['digest'][:12]})", f"0.0.9 ({'f' * 12})", "class path"):
        assert fact in said
