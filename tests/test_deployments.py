"""deploy/ and Millstream say the same: settings, ports, paths, users, versions. Nothing is started."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from millstream import StreamsConfig, __version__
from millstream.cli.command_settings import from_environment
from millstream.remote.routes import ROUTES

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
IMAGE = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "docker" / "compose.yml").read_text(encoding="utf-8"))
UNIT = DEPLOY / "systemd" / "millstream@.service"

PORT = 7070
LONGEST_CLOSE_S = 30
"""What docs/lifecycle.md asks for, before a client is killed."""


def _manifests() -> list[dict[str, Any]]:
    kustomization = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text(encoding="utf-8"))
    return [
        each
        for file in kustomization["resources"]
        for each in yaml.safe_load_all((KUBERNETES / file).read_text(encoding="utf-8"))
    ]


def _one(kind: str, name: str = "orders") -> dict[str, Any]:
    (found,) = (each for each in _manifests() if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


POD: dict[str, Any] = _one("StatefulSet")["spec"]["template"]
CONTAINER: dict[str, Any] = POD["spec"]["containers"][0]


def _environments() -> Iterator[tuple[str, Mapping[str, str]]]:
    yield "Dockerfile", dict(re.findall(r"(MILLSTREAM_\w+)=(\S+)", IMAGE))
    for name in ("orders-1", "orders-2"):
        yield name, COMPOSE["services"][name]["environment"]
    yield "StatefulSet", {each["name"]: each.get("value", "secret") for each in CONTAINER["env"]}
    yield "unit", dict(re.findall(r"^Environment=(MILLSTREAM_\w+)=(\S+)", UNIT.read_text(), re.MULTILINE))


@pytest.mark.parametrize(("where", "environment"), [*_environments()])
def test_each_variable_is_a_setting(where: str, environment: Mapping[str, str]) -> None:
    """A misspelt one would only be a warning in a log that nobody reads."""
    ours = {name: value for name, value in environment.items() if name.startswith("MILLSTREAM_")}
    assert ours, where
    settings, unknown = from_environment(ours)
    assert unknown == []
    StreamsConfig({"application.id": "orders", "bootstrap.servers": "kafka:9092", **settings})


def test_the_settings_of_the_manifests_are_settings() -> None:
    """With them several clients work together: a server that others reach."""
    settings = tomllib.loads((KUBERNETES / "orders.toml").read_text(encoding="utf-8"))
    flat = dict(_flat(settings))
    StreamsConfig({**flat, "query.server.token": "secret"})
    assert flat["query.server.listen"] == f"0.0.0.0:{PORT}"


def _flat(tables: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value


def test_probes_ask_what_the_server_answers_without_a_token() -> None:
    """They use the port at which it listens."""
    paths = {"/" + "/".join(each.path) for each in ROUTES if each.open}
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = CONTAINER[name]["httpGet"]
        assert asked["path"] in paths
        assert asked["port"] in {each["name"] for each in CONTAINER["ports"]}
    assert [each["containerPort"] for each in CONTAINER["ports"]] == [PORT]
    for name in ("orders", "orders-query"):
        assert [each["port"] for each in _one("Service", name)["spec"]["ports"]] == [PORT]


def test_selectors_find_the_pods() -> None:
    """A Service or a policy that selects nothing says so to nobody."""
    labels = POD["metadata"]["labels"]
    selected = [
        _one("StatefulSet")["spec"]["selector"]["matchLabels"],
        _one("Service")["spec"]["selector"],
        _one("Service", "orders-query")["spec"]["selector"],
        _one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        _one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        POD["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ]
    assert all(each.items() <= labels.items() for each in selected)
    server = next(each for each in CONTAINER["env"] if each["name"] == "MILLSTREAM_APPLICATION_SERVER")
    assert server["value"] == f"$(POD_NAME).{_one('StatefulSet')['spec']['serviceName']}:{PORT}"
    assert _one("Service")["spec"]["clusterIP"] == "None", "only then does each pod have a name"


def test_pods_may_do_little_and_write_where_they_need_to() -> None:
    """The user is the image's, whose cache it is; Java unpacks libraries into /tmp."""
    security = POD["spec"]["securityContext"]
    assert f"USER {security['runAsUser']}:{security['runAsGroup']}" in IMAGE
    assert security["runAsNonRoot"]
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"]
    mounts = {each["mountPath"]: each["name"] for each in CONTAINER["volumeMounts"]}
    state = dict(re.findall(r"(MILLSTREAM_\w+)=(\S+)", IMAGE))["MILLSTREAM_STATE_DIR"]
    assert {state, "/tmp"} <= set(mounts)
    claims = [each["metadata"]["name"] for each in _one("StatefulSet")["spec"]["volumeClaimTemplates"]]
    assert {each["name"] for each in POD["spec"]["volumes"]} | set(claims) == set(mounts.values())
    assert claims == [mounts[state]], "stores stay with their client"


def test_programs_have_the_time_to_close() -> None:
    """SIGTERM reaches the program, not a shell."""
    assert POD["spec"]["terminationGracePeriodSeconds"] >= LONGEST_CLOSE_S
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    assert int(unit["Service"]["TimeoutStopSec"]) >= LONGEST_CLOSE_S
    assert unit["Service"]["KillMode"] == "mixed"
    assert unit["Service"]["SuccessExitStatus"] == "143"
    for name in ("orders-1", "orders-2"):
        patience = COMPOSE["services"][name]["stop_grace_period"]
        assert int(patience.removesuffix("s")) >= LONGEST_CLOSE_S
    for file in (DEPLOY / "docker").glob("*ockerfile"):
        for line in re.findall(r"^(?:CMD|ENTRYPOINT) (.*)", file.read_text(encoding="utf-8"), re.MULTILINE):
            assert isinstance(json.loads(line), list), f"{file.name}: a shell would be process 1"


def test_images_have_this_version() -> None:
    """The example, the page and the comments that people copy are checked."""
    for file in (*DEPLOY.rglob("*"), *(ROOT / "docs" / "deploy").glob("*.md")):
        if file.is_file():
            named = re.findall(r"millstream:(\d+\.\d+\.\d+)", file.read_text(encoding="utf-8"))
            assert set(named) <= {__version__}, file


def test_images_of_others_have_a_digest() -> None:
    """A tag can be moved to another image. Ours are built here."""
    used = [service["image"] for service in COMPOSE["services"].values()]
    for file in (DEPLOY / "docker").glob("*ockerfile"):
        text = file.read_text(encoding="utf-8")
        arguments = dict(re.findall(r"^ARG (\w+)=(\S+)", text, re.MULTILINE))
        for name in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
            used.append(arguments[name[2:-1]] if name.startswith("${") else name)
    others = {image for image in used if not image.startswith(("millstream:", "orders:"))}
    assert len(others) == 4
    pinned = re.compile(r"[\w/.-]+:[\w.-]+@sha256:[0-9a-f]{64}")
    assert [image for image in others if not pinned.fullmatch(image)] == []


def test_the_image_installs_what_the_locks_have() -> None:
    """Each package with its hash; the wheel itself, which was built here, brings no others."""
    commands = re.findall(r"pip install ((?:[^&]|&(?!&))+)", IMAGE.replace("\\\n", " "))
    assert len(commands) == 3
    for command in commands:
        words = command.split()
        if "--require-hashes" in words:
            (lock,) = [word for word in words if word.endswith(".lock")]
            assert (ROOT / lock.removeprefix("/")).is_file()
            assert lock.removeprefix("/") in IMAGE.partition("COPY")[2]
        else:
            assert {"--no-deps", "--no-index"} <= set(words), command
    assert "!requirements/*.lock" in (ROOT / ".dockerignore").read_text(encoding="utf-8").split()


def test_compose_mounts_files_that_are_there() -> None:
    """The clients' ports on this machine are on loopback; /tmp lets Java load what it unpacks there."""
    for name, service in COMPOSE["services"].items():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            known = (DEPLOY / "docker" / source).is_file() if "/" in source else source in COMPOSE["volumes"]
            assert known, f"{name}: {volume}"
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        if service["image"].startswith("orders"):
            assert service["tmpfs"] == ["/tmp:exec,mode=1777"]
