"""The architecture, held: who may import what, what may stand nowhere, and that ARCHITECTURE.md is true."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from syntax import nodes_of, syntax_of

from millstream import errors
from millstream.topology import nodes

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "millstream"

# --- the tables ------------------------------------------------------------------------------------------

BASE = {
    "caller",
    "clock",
    "config",
    "client_keys",
    "config_keys",
    "coroutines",
    "display",
    "errors",
    "foreign",
    "locations",
    "logs",
    "machine",
    "model",
    "not_there",
    "periodic",
    "permissions",
    "polling",
    "program_end",
    "small_files",
    "states",
}
"""What everything above may use."""

ON_THIS_MACHINE = {"cache", "class_data", "java", "jars", "kernel", "scratch"}
"""What finds Java and jars, for those that start a JVM."""

MAY_IMPORT: dict[str, set[str]] = {
    # base
    "model": set(),
    "caller": set(),
    "clock": {"errors"},
    "periodic": set(),
    "polling": set(),
    "coroutines": set(),
    "display": set(),
    "client_keys": set(),
    "foreign": set(),
    "logs": {"foreign"},
    "not_there": set(),
    "config_keys": set(),
    "locations": set(),
    "errors": {"model"},
    "program_end": {"errors"},
    "permissions": set(),
    "small_files": set(),
    "machine": {"clock", "errors"},
    "states": {"machine"},
    "config": {"client_keys", "config_keys", "errors", "foreign"},
    "cache": {"errors"},
    "scratch": set(),
    "supervised": {"permissions", "program_end"},
    "class_data": {"supervised"},
    "java": {"cache", "errors", "small_files"},
    "jars": {"cache", "errors", "java", "polling"},
    "kernel": {"errors"},
    # schema registries: who asks them, and one of our own
    "registry": BASE,
    # how keys and values are written as bytes
    "serdes": BASE | {"registry"},
    # what a program means
    "topology": BASE | {"serdes"},
    # what a task does
    "physical": BASE | {"topology"},
    "metrics": BASE | {"ports"},
    # Spark, Kafka and RocksDB, as the runtime sees them
    "ports": BASE | {"serdes", "topology"},
    # what the user writes, what keeps the state, what answers
    # a user's code, record by record, and what it sees of its stores
    "processors": BASE | {"ports", "serdes", "topology", "stores", "query"},
    "dsl": BASE | {"serdes", "topology", "processors"},
    "group": BASE | {"topology"},
    "stores": BASE | {"ports", "topology"},
    "query": BASE | {"serdes", "topology", "stores"},
    # stores over HTTP: who asks, and what travels; and who answers, who sees a client through a protocol
    "remote": BASE | {"serdes", "stores", "query"},
    "server": BASE | {"remote", "metrics", "serdes", "stores", "query", "topology"},
    # the engines: never each other, nor the runtime
    "spark": BASE
    | ON_THIS_MACHINE
    | {"ports", "serdes", "topology", "physical", "dsl", "processors", "registry"},
    "kafka": BASE | {"ports", "topology", "group"},
    # the operating model; engines only in the composition root, see MORE_IN
    "runtime": BASE
    | {"ports", "topology", "metrics", "processors", "registry", "serdes", "dsl", "group", "stores", "query"},
    # edges
    "broker": BASE | ON_THIS_MACHINE | {"kafka", "supervised"},
    "testing": BASE
    | {"topology", "metrics", "dsl", "stores", "query", "spark", "runtime"}
    | {"ports", "processors", "registry", "serdes"},
    "millstream": BASE | {"dsl", "processors", "query", "runtime", "serdes", "stores", "topology"},
    "cli": BASE
    | ON_THIS_MACHINE
    | {
        "ports",
        "millstream",
        "topology",
        "dsl",
        "query",
        "runtime",
        "broker",
        "kafka",
        "registry",
        "remote",
        "serdes",
        "stores",
    },
    "__main__": {"cli"},
}
"""For each part of millstream, the other parts it may import. `millstream` is the package's own file."""

MORE_IN = {
    "runtime/wiring.py": {"spark", "kafka", "broker", "server"},
    "cli/demo.py": {"spark"},  # the demonstration has it started while its broker starts
    "cli/prepare.py": {"spark"},  # waits for the class-data archive of Spark's JVM
}
"""Single files that may import more than their folder."""

OUTSIDE: dict[str, set[str]] = {
    # windowed_text is called in users' functions of Columns, and topology/columns.py has the types of these.
    "pyspark": {
        "spark/",
        "topology/columns.py",
        "dsl/windowed.py",
        "dsl/early_functions.py",
    },
    "py4j": {"spark/"},
    "pandas": {"spark/worker/own_rows.py"},  # whose functions are the user's, and of pandas
    # What the runtime sees of a cluster is in kafka/; who starts a broker also deletes topics on it.
    "confluent_kafka": {"kafka/", "broker/admin.py", "registry/topic.py"},
    "fastavro": {"serdes/registered.py"},
    "google": {"serdes/protobuf_types.py"},
    "kafka": {"kafka/"},
    "rocksdict": {"stores/rocksdb_store.py"},
    "pyarrow": {
        "spark/",
        "query/arrow_stream.py",
        "query/iterators.py",
        "query/schemas.py",
        "query/sql.py",
        "query/sql_program.py",
        "query/store_tables.py",
    },
    "duckdb": {"query/sql_program.py", "cli/sql.py"},  # there for queries that the user has typed
    "filelock": {"broker/", "class_data.py", "jars/jar_cache.py", "scratch.py", "stores/directory.py"},
    "platformdirs": {"cache.py", "config.py"},
    "psutil": {"broker/", "cli/"},
    "prometheus_client": {"metrics/prometheus.py"},
    "opentelemetry": {"metrics/otel.py"},
    "rich": {"cli/", "jars/download_progress.py"},
    "typer": {"cli/"},
    "millstream_demo": {"cli/demo.py"},
    "subprocess": {
        "broker/",
        "cli/reload.py",
        "jars/ivy.py",
        "java.py",
        "query/sql_process.py",
        "spark/jvm/direct.py",
        "supervised.py",
    },
    "uvicorn": {"server/serving.py"},
    "h11": {"server/serving.py"},
    "socket": {
        "broker/",
        "kafka/patience.py",
        "registry/door.py",
        "server/connections.py",
        "server/serving.py",
    },
    "http.client": {
        "registry/registry_client.py",
        "jars/repository.py",
        "kafka/tokens.py",
        "remote/http_wire.py",
    },
    "urllib.request": {"jars/", "kafka/tokens.py", "registry/registry_client.py"},
    "urllib.error": {"jars/", "registry/registry_client.py"},
    "aws_msk_iam_sasl_signer": {"kafka/tokens.py"},
    "http.server": {"dashboard/", "registry/door.py", "registry/http.py"},
    "socketserver": {"dashboard/"},
    "pickle": {"spark/worker/program_worker.py"},
    "multiprocessing": set(),
    "asyncio": {"coroutines.py", "runtime/async_client.py", "server/"},
}
"""Every library, and the parts of the standard library that act on the world: where each may be imported."""


# --- reading the code ------------------------------------------------------------------------------------


def source_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def files_of_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


@dataclass(frozen=True, slots=True)
class Code:
    """What the rules below ask about one file; the syntax tree itself is not kept."""

    classes: list[str]
    """The classes at its top."""
    defined: set[str]
    """Functions, classes and constants; and methods, as `Class.method`."""
    imports: list[tuple[str, int]]
    calls: list[tuple[str, int]]
    """The dotted name of everything that is called, and the line."""
    attributes: list[tuple[str, int]]
    swallowing: list[int]
    """The lines of a bare `except`, or of a broad one that only passes."""
    threads: list[tuple[int, dict[str | None, ast.expr]]]
    """The line of each thread that is made, and the arguments it is given by name."""
    silent_tests: list[tuple[str, int]]
    """Tests without a docstring."""
    waited_for: list[tuple[str, int]]
    """The names of the events and conditions that are waited for."""
    kept: set[str]
    """What is assigned to a name or is part of what is: a table of exceptions, say."""
    made: set[str]
    """The names that are given an event or a condition of their own."""
    told: set[str]
    """Of what is set or notified, or handed on to somebody who may do that."""


@cache
def code_of(path: Path) -> Code:
    """One parse and one walk for all rules: there are some 80,000 lines."""
    tree = syntax_of(path)
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    code = Code(classes, names_in(tree), [], [], [], [], [], [], [], set(), set(), set())
    for node in nodes_of(tree):
        _note(node, code, path)
    return code


def _note(node: ast.AST, code: Code, path: Path) -> None:
    match node:
        case ast.Call(func=func):
            name = dotted(func)
            if not is_yield(name, node):
                code.calls.append((name, node.lineno))
            if name in ("threading.Thread", "Thread"):
                code.threads.append((node.lineno, {given.arg: given.value for given in node.keywords}))
            owner, _, method = name.rpartition(".")
            if method == "wait" and not owner.startswith("asyncio."):  # which has no timeout: it is for ever
                code.waited_for.append((owner, node.lineno))
            elif method in ("set", "notify", "notify_all"):
                code.told.add(owner)
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            code.told.update(dotted(each).removesuffix(".set") for each in given)
        case ast.Assign(targets=targets, value=value):
            code.kept.update(each.id for each in nodes_of(value) if isinstance(each, ast.Name))
            for target in targets:
                code.made.update(events_in(target, value))
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            code.kept.update(each.id for each in nodes_of(value) if isinstance(each, ast.Name))
            code.made.update(events_in(target, value))
        case ast.Attribute():
            code.attributes.append((dotted(node), node.lineno))
        case ast.Import():
            code.imports.extend((alias.name, node.lineno) for alias in node.names)
        case ast.ImportFrom():
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            if node.module == "millstream":
                code.imports.extend((f"millstream.{alias.name}", node.lineno) for alias in node.names)
            else:
                module = node.module or ""
                code.imports.append((module, node.lineno))
                if module.startswith("millstream."):  # what is imported may be a module of that folder
                    code.imports.extend((f"{module}.{alias.name}", node.lineno) for alias in node.names)
        case ast.ExceptHandler(type=caught, body=body):
            broad = caught is not None and dotted(caught) in ("Exception", "BaseException")
            if caught is None or (broad and all(isinstance(each, ast.Pass) for each in body)):
                code.swallowing.append(node.lineno)
        case ast.FunctionDef(name=name) if name.startswith("test_") and not ast.get_docstring(node):
            code.silent_tests.append((name, node.lineno))


def is_yield(name: str, call: ast.Call) -> bool:
    """`sleep(0)` takes no time: it lets another thread or task go on."""
    zero = [argument for argument in call.args if isinstance(argument, ast.Constant) and argument.value == 0]
    return name.endswith("sleep") and len(zero) == 1


def events_in(target: ast.expr, value: ast.expr) -> Iterator[str]:
    """The names that an assignment gives an event or a condition of their own."""
    match target, value:
        case ast.Tuple(elts=targets), ast.Tuple(elts=values):
            for one, its_value in zip(targets, values, strict=False):
                yield from events_in(one, its_value)
        case _, ast.Call(func=func) if dotted(func).rpartition(".")[2] in ("Event", "Condition"):
            yield dotted(target)


def dotted(node: ast.expr) -> str:
    """`threading.Event().wait` of the expression that says so; what is no name shows as `?`."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{dotted(node.value)}.{node.attr}"
        case ast.Call():
            return f"{dotted(node.func)}()"
    return "?"


def inside(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def part_of(path: Path) -> str:
    """`spark` of spark/compile/sink.py, `model` of model.py."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "millstream" if first == "__init__" else first


def imports_of(path: Path) -> list[tuple[str, int]]:
    """Every module that a file imports, anywhere in it, and the line."""
    return code_of(path).imports


def calls_in(path: Path) -> list[tuple[str, int]]:
    """The dotted name of everything that is called, and the line."""
    return code_of(path).calls


# --- imports ---------------------------------------------------------------------------------------------


def test_each_part_imports_only_what_the_table_allows() -> None:
    """The direction of dependencies: base, topology, DSL and stores, engines, runtime, edges."""
    wrong = []
    for path in source_files():
        part = part_of(path)
        allowed = MAY_IMPORT.get(part, set()) | MORE_IN.get(inside(path), set()) | {part}
        for module, line in imports_of(path):
            top, _, rest = module.partition(".")
            other = rest.split(".")[0]
            # What is no part is one of the public names: `from millstream import KafkaStreams`.
            if top == "millstream" and (other if other in MAY_IMPORT else "millstream") not in allowed:
                wrong.append(f"{inside(path)}:{line} imports {module}")
    assert wrong == []


def test_the_import_table_has_each_part_and_no_other() -> None:
    """A new folder or file at the top gets its row, and a row that is for nothing goes."""
    assert set(MAY_IMPORT) == {part_of(path) for path in source_files()}
    for file in MORE_IN:
        assert (PACKAGE / file).exists()


def test_the_import_table_has_no_cycle() -> None:
    """Parts can be put in an order."""
    remaining = {part: set(allowed) for part, allowed in MAY_IMPORT.items()}
    while remaining:
        free = [part for part, allowed in remaining.items() if not allowed & set(remaining)]
        assert free, f"these import each other: {sorted(remaining)}"
        for part in free:
            del remaining[part]


CIRCLES = [
    {
        "aggregations",
        "cogrouped",
        "foreign_keys",
        "frames",
        "grouped",
        "grouped_table",
        "join_options",
        "joins",
        "kstream",
        "ktable",
        "options",
        "windowed",
    },  # a stream becomes a table, and a table a stream
    {"drawing", "picture", "svg", "topology"},  # a topology draws itself
]
"""Modules that import each other, if only within functions or for type checkers: all there may be."""


def circles(imports: Mapping[str, Set[str]]) -> list[set[str]]:
    """The sets of modules of which each imports the others, directly or not."""
    reached = {module: {module} for module in imports}
    changed = True
    while changed:
        changed = False
        for module, found in reached.items():
            more = set().union(found, *(imports[other] for other in found))
            if more != found:
                reached[module] = more
                changed = True
    around = {
        frozenset(other for other in found if module in reached[other]) for module, found in reached.items()
    }
    return sorted((set(circle) for circle in around if len(circle) > 1), key=sorted)


def test_no_modules_import_each_other_but_those_that_must() -> None:
    """Values are below the decisions about them, so that a reader can begin with either."""
    modules = {inside(path).removesuffix(".py").replace("/", "."): path for path in source_files()}
    imports = {
        name: {other for other, _ in named_in(path) if other in modules} for name, path in modules.items()
    }
    found = [{module.rpartition(".")[2] for module in circle} for circle in circles(imports)]
    assert found == CIRCLES
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [{"b", "c"}]


def named_in(path: Path) -> Iterator[tuple[str, int]]:
    """Every module of ours that a file imports, or of which it imports something, without `millstream.`."""
    for module, line in imports_of(path):
        yield module.removeprefix("millstream."), line


def test_each_library_is_imported_only_where_the_table_says() -> None:
    """One engine, one place; and every library that is imported at all has a row."""
    wrong = []
    for path in source_files():
        for module, line in imports_of(path):
            top = module.split(".")[0]
            row = next((row for row in OUTSIDE if module == row or module.startswith(f"{row}.")), None)
            if row is None:
                known = top in sys.stdlib_module_names or top in ("millstream", "__future__")
                if not known:
                    wrong.append(f"{inside(path)}:{line} imports {module}, which has no row")
            elif not any(inside(path) == place or inside(path).startswith(place) for place in OUTSIDE[row]):
                wrong.append(f"{inside(path)}:{line} imports {module}")
    assert wrong == []


DECIDES = [
    "topology/",
    "group/",
    "machine.py",
    "states.py",
    "model.py",
    "errors.py",
    "clock.py",
    "display.py",
    "ports.py",
    "metrics/client_metrics.py",
    "query/read_plan.py",
    "query/position.py",
    "query/read.py",
    "query/reading.py",
    "query/request.py",
    "query/result.py",
    "remote/answers.py",
    "remote/json_codec.py",
    "remote/pages.py",
    "runtime/checkup.py",
    "runtime/client_html.py",
    "runtime/health.py",
    "runtime/policies.py",
    "runtime/state/",
    "runtime/threads/handler.py",
]
"""What decides, or keeps what is decided: on the standard library alone."""

LOCKS = {"machine.py", "runtime/threads/handler.py"}
"""Those of them that any thread may call, and so import `threading`: for a lock, never for a thread."""

PATHS = {"topology/functions.py"}
"""Says where in a program a function is: with `os` and `pathlib` it takes the names of files apart."""

ACTS = {"asyncio", "concurrent", "os", "pathlib", "queue", "random", "select", "shutil", "signal", "sqlite3"}
ACTS |= {"subprocess", "socket", "tempfile", "threading", "time", "urllib"}
"""Parts of the standard library by which one acts on the world, waits for it, or asks it something."""


def deciding_files() -> list[Path]:
    found = [path for path in source_files() if any(inside(path).startswith(place) for place in DECIDES)]
    assert {place for place in DECIDES if any(inside(path).startswith(place) for path in found)} == {*DECIDES}
    return found


def test_what_decides_needs_the_standard_library_only() -> None:
    """It can be tested without an engine."""
    for path in deciding_files():
        for module, line in imports_of(path):
            top = module.split(".")[0]
            # The types of what users write name Columns, and import them for type checkers alone.
            of_types = inside(path) == "topology/columns.py" and top == "pyspark"
            assert of_types or top in sys.stdlib_module_names or top == "millstream", (
                f"{inside(path)}:{line} imports {module}"
            )


def test_what_decides_does_nothing() -> None:
    """It opens no file, starts no thread, and asks neither the clock nor chance: those are given to it."""
    wrong = []
    for path in deciding_files():
        allowed = {"threading"} if inside(path) in LOCKS else set()
        allowed |= {"time"} if inside(path) == "clock.py" else set()
        allowed |= {"os", "pathlib"} if inside(path) in PATHS else set()
        for module, line in imports_of(path):
            if module.split(".")[0] in ACTS - allowed:
                wrong.append(f"{inside(path)}:{line} imports {module}")
        for name, line in calls_in(path):
            if name in ("open", "print", "input", "threading.Thread", "datetime.now", "uuid.uuid4"):
                wrong.append(f"{inside(path)}:{line} calls {name}")
    assert wrong == []


def test_each_file_that_has_a_lock_uses_it() -> None:
    """A row of the table that is for nothing goes."""
    assert {
        place for place in LOCKS if any(m == "threading" for m, _ in imports_of(PACKAGE / place))
    } == LOCKS


# --- what stands nowhere ---------------------------------------------------------------------------------


def test_nothing_is_unpickled_or_evaluated() -> None:
    """Bytes and text from outside are never run. What a Python worker runs is from the process that started
    it: the user's functions, which come from the driver as Spark's own do."""
    dangerous = {"eval", "exec", "pickle.loads", "pickle.load", "cloudpickle.loads", "marshal.loads"}
    dangerous |= {"pickle.Unpickler", "pickle.Unpickler.load"}
    found = [
        f"{inside(path)} {name}"
        for path in source_files()
        for name, _ in calls_in(path)
        if name in dangerous or name.endswith("cloudpickle.loads")
    ]
    assert found == ["spark/worker/program_worker.py pickle.Unpickler.load"]


def test_no_exception_is_swallowed_unseen() -> None:
    """No bare `except`, and no broad one that only passes."""
    assert [f"{inside(path)}:{line}" for path in source_files() for line in code_of(path).swallowing] == []


def threads_without(argument: str) -> list[str]:
    return [
        f"{inside(path)}:{line}"
        for path in source_files()
        for line, given in code_of(path).threads
        if argument not in given
    ]


def test_each_thread_has_a_name() -> None:
    """A thread that shows in a dump or a log says whose it is."""
    assert threads_without("name") == []


def test_each_thread_is_a_daemon() -> None:
    """A program that ends does not wait for one that hangs."""
    assert threads_without("daemon") == []


def test_the_table_of_threads_has_each_one() -> None:
    """Names are compared, with `<…>` for what differs; threads of the demonstration are left out."""
    text = text_of(ROOT / "docs" / "threads.md")
    names = {
        "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"<\w+>" for part in parts)
        for path in source_files()
        if part_of(path) != "cli"
        for parts in names_of_threads(path)
    }
    assert len(names) > 8
    assert sorted(name for name in names if not re.search(f"`{name}`", text)) == []


def names_of_threads(path: Path) -> Iterator[list[ast.expr]]:
    """The name of each thread that a file makes, in its parts; without those that are given it."""
    for _, given in code_of(path).threads:
        match given.get("name"):
            case ast.JoinedStr(values=parts):
                yield parts
            case ast.Constant() as name:
                yield [name]


PAUSES = {
    "millstream/polling.py": "what nobody reports is looked at again and again, each time with a deadline",
    "millstream/kafka/patience.py": "between two requests to a cluster that is away; with a deadline",
    "millstream/jars/ivy.py": "between two runs of Ivy that fetched nothing; some of them, then it is told",
    "millstream/registry/registry_client.py": "between two requests to one that is away; with a deadline",
    "millstream/server/streaming.py": "between two looks at how far stores are; ends with who listens",
    "tests/waiting.py": "a condition with a deadline, and a span of time in which something holds",
    "tests/runtime/ending_program.py": "a program that waits until a signal ends it",
    "tests/cluster/chaos.py": "the faults of a run come at their times",
    "tests/cluster/faults.py": "a fault lasts for a while, and comes at a random moment",
}
"""The files that pause, and why nothing better will do."""


def pauses_in(path: Path, told: Set[str]) -> list[str]:
    """Where a file sleeps: by that name, by waiting for an event that is nobody's, or for one nobody sets.

    `told` are the attributes, by their own name, that some file sets or hands on: an object's event may be
    set from anywhere, and a variable only where it is.
    """
    code = code_of(path)
    sleeps = ("time.sleep", "asyncio.sleep", "sleep", "pause", "polling.pause")
    found = [(name, line) for name, line in code.calls if name in sleeps]
    for name, line in code.waited_for:
        own = name.rpartition(".")[2]
        nobodys = name.endswith(("Event()", "Condition()"))
        unset = name in code.made and name not in code.told and ("." not in name or own not in told)
        if nobodys or unset:
            found.append((f"{name}.wait", line))
    return [f"{path.relative_to(ROOT)}:{line} {name}" for name, line in found]


def test_nobody_sleeps_under_any_name() -> None:
    """What has to happen is waited for with a deadline, in the product and in the tests."""
    told = {
        name.rpartition(".")[2]
        for path in [*source_files(), *files_of_tests()]
        for name in code_of(path).told
        if "." in name
    }
    found = {
        path.relative_to(ROOT).as_posix(): pauses
        for path in [*source_files(), *files_of_tests()]
        if (pauses := pauses_in(path, told))
    }
    assert {path: pauses for path, pauses in found.items() if path not in PAUSES} == {}
    assert found.keys() == PAUSES.keys(), "a row that is for nothing goes"


@pytest.mark.parametrize(
    "sleeps",
    [
        "threading.Event().wait(2)",
        "threading.Condition().wait(2)",
        "pause = threading.Event()\npause.wait(0.01)",
        "deadline, pause = 3, Event()\nwhile True:\n    pause.wait(0.01)",
        "self._pause = threading.Event()\nself._pause.wait(1)",
        "time.sleep(1)",
        "from time import sleep\nsleep(1)",
    ],
)
def test_a_sleep_is_known_by_its_shape(sleeps: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And an event that somebody sets, or is handed, is none."""
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "asleep.py").write_text(sleeps)
    assert len(pauses_in(tmp_path / "asleep.py", set())) == 1
    (tmp_path / "awake.py").write_text("done = threading.Event()\nrun(done)\ndone.wait(20)")
    assert pauses_in(tmp_path / "awake.py", set()) == []


def test_no_test_is_switched_off() -> None:
    """A test that is not run is not a test."""
    wrong = []
    for path in files_of_tests():
        for name, line in calls_in(path):
            if name in ("pytest.skip", "pytest.xfail", "pytest.importorskip"):
                wrong.append(f"{path.relative_to(ROOT)}:{line} {name}")
        for name, line in code_of(path).attributes:
            if name in ("pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail"):
                wrong.append(f"{path.relative_to(ROOT)}:{line} {name}")
    assert wrong == []


def test_each_test_says_what_it_claims() -> None:
    """Every test function has a sentence."""
    silent = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in files_of_tests()
        if path.name.startswith("test_")
        for name, line in code_of(path).silent_tests
    ]
    assert silent == []


PLACES_OF_ONE_MACHINE = [
    r"(?<![\w.])/w[o]rk/",
    r"(?<![\w.])/ro[o]t/",
    r"(?<![\w.])/ho[m]e/\w",
    r"(?<![\w.])/U[s]ers/\w",
    r"/tmp/(?!kafka-streams)\w",  # but for the default of upstream
    r"/op[t]/wheels",
    r"bash_j[o]bs",
]
REGISTRY_HOSTS = [
    r"repo1?\.m[a]ven\.",
    r"m[a]ven\.org",
    r"m[a]ven-central[.-]",
    r"pyp[i]\.org",
    r"pythonh[o]sted",
    r"npmj[s]\.",
    r"crates\.i[o]",
    r"proxy\.gol[a]ng",
    r"deb[i]an\.org",
]


def test_no_file_names_a_machines_path_or_a_registrys_host() -> None:
    """What is here works anywhere: where packages come from is each machine's own setting."""
    anything = re.compile("|".join([*PLACES_OF_ONE_MACHINE, *REGISTRY_HOSTS]))
    found = []
    for path in kept_files():
        text = text_of(path)
        for match in anything.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{path.relative_to(ROOT)}:{line} {match.group()}")
    assert found == []


@cache
def kept_files() -> tuple[Path, ...]:
    """The files of the project, as git would have them, without asking git."""
    folders = [
        "millstream",
        "tests",
        "scripts",
        "docs",
        "requirements",
        "changes",
        "bench",
        "examples",
        ".ci",
        ".github",
    ]
    found = [path for path in ROOT.iterdir() if path.is_file() and path.name not in (".coverage", ".git")]
    for folder in folders:
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return tuple(sorted(found))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


# --- the exceptions --------------------------------------------------------------------------------------

NEVER_RAISED = {
    "StreamsException": "the root; raised only where the cause has no class of its own",
    "InvalidStateStoreException": "the parent of KIP-216's leaves, which say more",
}
"""Exceptions that are there to be caught."""


@cache
def raised_names() -> frozenset[str]:
    """The names of all exceptions of errors.py that some file makes, or picks in order to make it."""
    files = [path for path in source_files() if path != PACKAGE / "errors.py"]
    called = {name.rsplit(".", 1)[-1] for path in files for name, _ in calls_in(path)}
    return frozenset(called | {name for path in files for name in code_of(path).kept})


def test_each_exception_is_raised_somewhere() -> None:
    """No class is only declared (upstream declares three of KIP-216 and never throws them)."""
    assert sorted({*errors.__all__} - {*NEVER_RAISED} - raised_names()) == []


def test_the_parent_of_kip_216_is_never_raised() -> None:
    """KIP-216: callers tell the leaves apart, so none of our code raises their parent."""
    assert "InvalidStateStoreException" not in raised_names()


def test_each_exception_is_tested() -> None:
    """Each is named by a test that is about it, not only about lists of names."""
    lists = {Path(__file__).name, "test_public_api.py"}
    named: set[str] = set()
    for path in files_of_tests():
        if path.name not in lists:
            named.update(re.findall(r"\b\w+(?:Exception|Error)\b", text_of(path)))
    assert all(re.fullmatch(r"\w+(?:Exception|Error)", name) for name in errors.__all__)
    assert sorted({*errors.__all__} - {*NEVER_RAISED} - named) == []


# --- ARCHITECTURE.md -------------------------------------------------------------------------------------


MAPS = ("ARCHITECTURE.md", "docs/threads.md", "docs/where-to-find.md")
"""The documents that lead to places in the code."""


def references() -> list[str]:
    """Each `file.py` and `file.py: name` that one of these has in backticks."""
    text = "".join(text_of(ROOT / name) for name in MAPS)
    return re.findall(r"`([\w./-]+\.(?:py|toml|md|sh)(?:: [\w.]+)?)`", text)


def test_the_architecture_has_references_to_check() -> None:
    """The next test would pass on a document that names nothing."""
    assert len([reference for reference in references() if ": " in reference]) > 20


def test_each_place_that_the_architecture_names_exists() -> None:
    """A map is tested or it lies."""
    wrong = []
    for reference in sorted(set(references())):
        file, _, name = reference.partition(": ")
        path = next((path for path in (PACKAGE / file, ROOT / file) if path.exists()), None)
        if path is None:
            wrong.append(f"there is no {file}")
        elif name and name not in code_of(path).defined:
            wrong.append(f"{file} has no {name}")
    assert wrong == []


def test_the_architecture_shows_each_folder() -> None:
    """One that is not on the map cannot be found with it; docs/modules.md, generated, has each file."""
    text = text_of(ROOT / "ARCHITECTURE.md")
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in source_files()} - {"."}
    assert [folder for folder in sorted(folders) if f"`{folder}/`" not in text] == []


def test_no_module_and_no_public_class_has_the_name_of_another() -> None:
    """A name in a message, a traceback or a search leads to one place."""
    files = Counter(path.name for path in source_files() if path.name != "__init__.py")
    classes = Counter(
        name for path in source_files() for name in code_of(path).classes if not name.startswith("_")
    )
    assert [name for name, count in (files + classes).items() if count > 1] == []


def parts_of_the_compiler() -> list[str]:
    """The modules that ARCHITECTURE.md shows under what compiles a pipeline, from the top down."""
    shown = text_of(ROOT / "ARCHITECTURE.md").partition("What compiles a pipeline")[2].partition("\n\n")[2]
    return re.findall(r"^ +(\w+)\.py ", shown.partition("\n\n")[0], re.MULTILINE)


def test_each_part_of_the_compiler_imports_only_what_the_map_shows_below_it() -> None:
    """Other modules of spark/ only import its fronts: that of tasks, and that of queries of to_spark()."""
    parts = parts_of_the_compiler()
    fronts = ["task_compiler", "spark_query"]
    assert parts[0] == fronts[0]
    assert len(parts) > 8
    wrong = []
    for path in sorted((PACKAGE / "spark").rglob("*.py")):
        below = parts[parts.index(path.stem) + 1 :] if path.stem in parts else fronts
        for module, line in imports_of(path):
            other = module.removeprefix("millstream.spark.compile.")
            if other in parts and other not in below:
                wrong.append(f"{inside(path)}:{line} imports {module}")
    assert wrong == []


def test_each_node_has_a_row_in_the_compilers_table() -> None:
    """A global table has none, because it is in no pipeline; its reader has one. A query of to_spark() is no
    task."""
    rows = {name for name, _ in code_of(PACKAGE / "spark" / "compile" / "task_compiler.py").attributes}
    classes = [each for each in vars(nodes).values() if isinstance(each, type)]
    of_nodes = {each.__name__ for each in classes if issubclass(each, nodes.Node)}
    missing = {name for name in of_nodes if f"nodes.{name}" not in rows}
    assert missing == {"Node", "GlobalTable", "FrameTable", "SparkSink"}


def names_in(tree: ast.Module) -> set[str]:
    """What a file defines: functions, classes, constants; and methods, as `Class.method`."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
            names |= {f"{node.name}.{name}" for inner in node.body for name in _defined(inner)}
        names |= set(_defined(node))
    return names


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign):
        return [ast.unparse(node.target)]
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets]
    return []
