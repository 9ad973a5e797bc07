"""The documents, held to the code: what README shows runs, generated parts are current, links lead on."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from syntax import nodes_of, syntax_of

import millstream
import millstream.broker
import millstream.server
import millstream.testing
from millstream import FailureContext, KafkaStreams, StreamsException, StreamThreadExceptionResponse
from millstream.client_keys import CLIENT_KEYS
from millstream.config_keys import KEYS
from millstream.runtime.state.failure import Failure
from millstream.runtime.threads.handler import ask
from millstream.states import State

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def snippets(document: Path) -> list[str]:
    """What a document shows as Python."""
    return re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)


def test_the_program_in_the_readme_is_the_example() -> None:
    """README.md shows examples/orders.py as it is, before anything else."""
    shown, *_ = snippets(ROOT / "README.md")
    assert shown == (ROOT / "examples" / "orders.py").read_text(encoding="utf-8")


def test_the_program_in_the_readme_is_a_topology() -> None:
    """It builds, and has a query for each of its subtopologies."""
    topology = runpy.run_path(str(ROOT / "examples" / "orders.py"))["topology"]
    assert [pipeline.name for pipeline in topology.pipelines] == ["p0", "p1"]
    assert "Sink: KSTREAM-SINK" in str(topology.describe())


def test_the_example_of_failures_has_a_handler_that_a_client_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It can be set, tells of the failure, and leaves the decision to the policy."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    example = runpy.run_path(str(ROOT / "examples" / "failures.py"))
    config = {"application.id": "a", "bootstrap.servers": "fake:9092", "state.dir": str(tmp_path)}
    KafkaStreams(example["topology"], config).set_uncaught_exception_handler(example["handler"])
    failure = Failure("t-1", StreamsException("full"), pipeline="p0")
    context = FailureContext.of(failure, client_id="a", client_state=State.RUNNING, attempt=2, previous=())
    answer = ask(example["handler"], failure, context)
    assert answer.response is StreamThreadExceptionResponse.REPLACE_THREAD
    assert answer.budget is not None
    assert answer.budget.then is StreamThreadExceptionResponse.SHUTDOWN_APPLICATION
    assert capsys.readouterr().err == "p0 failed, attempt 2: full\n"


def test_what_a_document_imports_of_millstream_is_there() -> None:
    """Each snippet is Python, and the names that it imports, or calls on what they name, exist."""
    for document in DOCUMENTS:
        for snippet in snippets(document):
            assert missing_in(ast.parse(snippet)) == [], document.name


def test_each_program_in_a_document_builds() -> None:
    """A snippet that makes a topology is a whole program, and Spark queries can run it."""
    programs = [
        (document.name, snippet)
        for document in DOCUMENTS
        for snippet in snippets(document)
        if re.search(r"^topology = ", snippet, re.MULTILINE)
        and re.search(r"import .*\bStreamsBuilder\b|^    StreamsBuilder,$", snippet, re.MULTILINE)
    ]
    assert len(programs) > 4
    for name, snippet in programs:
        topology = run(snippet, name)["topology"]
        assert topology.pipelines, name
        assert "Topologies:" in str(topology.describe()), name


def run(snippet: str, name: str) -> dict[str, Any]:
    """What a snippet defines; not as the main program."""
    made: dict[str, Any] = {"__name__": "a_document"}
    exec(compile(snippet, name, "exec"), made)
    return made


def missing_in(snippet: ast.Module) -> list[str]:
    """What a program takes for a name of ours that is none."""
    missing = []
    for node in ast.walk(snippet):
        if isinstance(node, ast.ImportFrom) and node.module == "millstream":
            missing += [alias.name for alias in node.names if not hasattr(millstream, alias.name)]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            named = getattr(millstream, node.value.id, None)
            if named is not None and not isinstance(named, ModuleType) and not hasattr(named, node.attr):
                missing.append(f"{node.value.id}.{node.attr}")
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "streams":
            missing += [] if hasattr(KafkaStreams, node.attr) else [f"KafkaStreams.{node.attr}"]
    return missing


def test_each_key_that_a_document_names_is_a_key() -> None:
    """What looks like one of our configuration keys in backticks is in the table of keys."""
    fields = {"key", "value"}  # what functions call so, and what strategies of subjects are called after
    families = "|".join(sorted({key.split(".")[0] for key in KEYS if "." in key} - fields))
    paths = r"\.(?:py|md|toml|sh|id)$"  # files, and an attribute
    known = KEYS.keys() | CLIENT_KEYS.keys()
    wrong = [
        f"{document.name}: {name}"
        for document in DOCUMENTS
        for name in re.findall(
            rf"`((?:{families})(?:\.[a-z_]+)+)(?:=[^`]*)?`", document.read_text(encoding="utf-8")
        )
        if name not in known
        and not name.startswith(("sasl.", "ssl.", "max.message."))  # Kafka's own, of which there are many
        and not re.search(paths, name)
    ]
    assert wrong == []


def test_each_link_leads_to_a_file() -> None:
    """Links between documents are relative and their targets exist."""
    wrong = [
        f"{document.name}: {target}"
        for document in DOCUMENTS
        for target in re.findall(r"\]\(([^)#\s]+)", document.read_text(encoding="utf-8"))
        if "://" not in target and not (document.parent / target).exists()
    ]
    assert wrong == []


NAV = re.compile(r"^ +- .*: ([\w./-]+\.md|[\w-]+/)$", re.MULTILINE)
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
CODE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def anchor(heading: str) -> str:
    """What GitHub and the site call a heading: lower case, hyphens for spaces, no other signs."""
    plain = re.sub(r"`|\*|\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def test_each_link_leads_to_a_heading() -> None:
    """A link into a document names one of its headings, as GitHub and the site make anchors of them."""
    wrong = []
    for document in DOCUMENTS:
        text = CODE.sub("", document.read_text(encoding="utf-8"))
        for target, name in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", text):
            path = document.parent / target if target else document
            if "://" in target or path.suffix != ".md":
                continue
            headings = HEADING.findall(CODE.sub("", path.read_text(encoding="utf-8")))
            if name not in [anchor(heading) for heading in headings]:
                wrong.append(f"{document.name}: {target}#{name}")
    assert wrong == []


def test_each_page_has_its_place_in_the_site() -> None:
    """mkdocs.yml names each page of docs/, or its folder, once; and none that is not there."""
    named = NAV.findall((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert len(named) > 25
    assert sorted({name for name in named if named.count(name) > 1}) == []
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    of_hooks = {"index.md"} | {name for name in named if name.startswith("project/")}
    assert sorted({name for name in named if name.endswith(".md")} - pages - of_hooks) == []
    folders = tuple(name for name in named if name.endswith("/"))
    assert sorted(page for page in pages - {*named} if not page.startswith(folders)) == []


def test_each_public_name_is_in_the_reference() -> None:
    """Once, in docs/reference, and nothing else is there."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md")]
    named = [name for text in texts for name in re.findall(r"^::: millstream\.(.+)$", text, re.MULTILINE)]
    public = {*millstream.__all__, "logging"}
    for module in (millstream.broker, millstream.server, millstream.testing):
        public |= {f"{module.__name__.removeprefix('millstream.')}.{name}" for name in module.__all__}
    assert sorted(named) == sorted(public)


def texts_of_the_code() -> set[str]:
    """Each text in the package that is no docstring, with … for what is put into it; and in the kernel."""
    found: set[str] = set()
    for path in (ROOT / "millstream").rglob("*.py"):
        for node in nodes_of(syntax_of(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = (str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values)
                found.add("".join(parts))
    for path in (ROOT / "kernel" / "src").rglob("*.java"):
        found.update(re.findall(r'"((?:[^"\\\n]|\\.)*)"', path.read_text(encoding="utf-8")))
    return found


def test_each_message_that_troubleshooting_quotes_is_in_the_code() -> None:
    """Word for word, with … for names and numbers; and each is followed by what to do."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    tables = page.partition("## By exception")[0].split("| message | what it means, and what to do |")[1:]
    rows = [row for table in tables for row in re.findall(r"^\| (`.*) \|$", table, re.MULTILINE)]
    assert len(rows) > 50
    texts = " ␞ ".join(texts_of_the_code())
    missing = []
    for row in rows:
        message, _, advice = row.partition("` | ")
        words = message.strip("`")
        pattern = "[^␞]{0,80}?".join(re.escape(part) for part in words.split("…"))
        if not re.search(pattern.replace(re.escape("\\|"), re.escape("|")), texts) or not advice:
            missing.append(words)
    assert missing == []


def test_the_generated_parts_of_the_documents_are_current() -> None:
    """Drawings and the table of keys are what the program's own tables say: `make docs`."""
    script = ROOT / "scripts" / "make_docs.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_each_fragment_of_the_changelog_is_of_a_known_kind() -> None:
    """`changes/<slug>.<kind>.md`, with a sentence in it; scripts/make_changelog.py gathers them."""
    fragments = [path for path in (ROOT / "changes").glob("*.md") if path.name != "README.md"]
    kinds = {"added", "changed", "deprecated", "removed", "fixed", "security"}
    assert [path.name for path in fragments if path.name.split(".")[1] not in kinds] == []
    assert [path.name for path in fragments if not path.read_text(encoding="utf-8").strip()] == []
