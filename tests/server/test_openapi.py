"""The OpenAPI document and the page: made of the routes, true of the answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from server_world import application, ask

from millstream.remote.routes import ROUTES, parse_request
from millstream.server.application import QueryApplication
from millstream.server.openapi import ABOUT, document


@pytest.fixture(scope="module")
def app() -> Iterator[QueryApplication]:
    world = application()
    world.put("a", 1)
    world.put_window("a", 1000, 2)
    world.put_session("a", 1000, 1500, 3)
    made = QueryApplication(world.clients[0])
    yield made
    made.close()


def document_of(app: QueryApplication) -> Any:
    return ask(app, "/openapi.json").body


def test_it_is_given_without_a_token() -> None:
    """It says nothing of the application, and whoever generates a client needs it first."""
    made = QueryApplication(application().clients[0], "secret")
    answers = [ask(made, "/openapi.json"), ask(made, "/")]
    made.close()
    assert [answer.status for answer in answers] == [200, 200]
    assert "counts" not in answers[0].raw.decode() + answers[1].raw.decode()


def test_each_route_is_in_it(app: QueryApplication) -> None:
    """Each has all of its parameters and a unique name."""
    paths = document_of(app)["paths"]
    found = {
        operation["operationId"]: (path, method, {each["name"] for each in operation["parameters"]})
        for path, item in paths.items()
        for method, operation in item.items()
    }
    assert {route.name for route in ROUTES} == ABOUT.keys()
    for_programs = [route for route in ROUTES if ABOUT[route.name].tag]
    assert found.keys() == {route.name for route in for_programs}
    for route in for_programs:
        path, method, parameters = found[route.name]
        assert (path, method) == ("/" + "/".join(route.path), route.method.lower())
        in_path = {part[1:-1] for part in route.path if part.startswith("{")}
        assert parameters == route.parameters | in_path


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for inner in node.values():
            yield from references(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from references(inner)


def test_what_it_refers_to_is_there(app: QueryApplication) -> None:
    """Each reference leads to a schema or an answer, and each of these is used."""
    whole = document_of(app)
    used = set(references(whole))
    there = {
        f"#/components/{kind}/{name}"
        for kind in ("schemas", "responses")
        for name in whole["components"][kind]
    }
    assert used == there


# --- whether answers are as it says ----------------------------------------------------------------------

_TYPES: dict[str, Any] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}


def mistakes(schema: Any, value: Any, at: str = "$") -> list[str]:
    """Where a value is not as its schema says: the parts of JSON Schema that the document uses."""
    if "$ref" in schema:
        schema = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        found = [mistakes(each, value, at) for each in schema["anyOf"]]
        return min(found, key=len)
    kinds = schema.get("type", list(_TYPES))
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not any(_TYPES[kind](value) for kind in kinds):
        return [f"{at} is no {kinds}"]
    found_here = [f"{at}: {value!r}"] if "enum" in schema and value not in schema["enum"] else []
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        found_here += [f"{at} lacks {name}" for name in schema.get("required", ()) if name not in value]
        if properties and "additionalProperties" not in schema:
            found_here += [f"{at} has {name}, too" for name in value if name not in properties]
        for name, inner in value.items():
            found_here += mistakes(properties.get(name, {}), inner, f"{at}.{name}")
    if isinstance(value, list):
        for number, inner in enumerate(value):
            found_here += mistakes(schema.get("items", {}), inner, f"{at}[{number}]")
    return found_here


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/healthz", 200),
        ("/readyz", 200),
        ("/v1/topology", 200),
        ("/v1/clients", 200),
        ("/v1/stores", 200),
        ("/v1/stores/counts", 200),
        ("/v1/stores/counts/count", 200),
        ("/v1/stores/counts/owner/a", 200),
        ("/v1/stores/counts/keys/a", 200),
        ("/v1/stores/counts/keys/b", 404),
        ("/v1/stores/nothing/keys/b", 404),
        ("/v1/stores/counts/keys/a?limit=1", 400),
        ("/v1/stores/counts/windows", 409),
        ("/v1/stores/counts/entries?limit=1", 200),
        ("/v1/stores/windows/windows", 200),
        ("/v1/stores/windows/windows/a", 200),
        ("/v1/stores/windows/windows/a?time=1000", 200),
        ("/v1/stores/windows/windows/a?time=1", 404),
        ("/v1/stores/sessions/sessions", 200),
        ("/v1/stores/sessions/sessions/a", 200),
        ("/v1/stores/sessions/sessions/a?start=1000&end=1500", 200),
    ],
)
def test_answers_are_as_it_says(app: QueryApplication, target: str, status: int) -> None:
    """Status and body of real answers, and nothing in them that the document does not name."""
    answer = ask(app, target)
    assert answer.status == status
    path, _, query = target.partition("?")
    try:
        route = parse_request("GET", path.encode(), query.encode()).route
    except Exception:
        route = parse_request("GET", path.encode(), b"").route
    operation = document()["paths"]["/" + "/".join(route.path)]["get"]
    response = operation["responses"][str(status)]
    if "$ref" in response:
        response = document()["components"]["responses"][response["$ref"].rpartition("/")[2]]
    assert mistakes(response["content"]["application/json"]["schema"], answer.body) == []


def test_many_keys_and_what_is_wrong_are_told_apart(app: QueryApplication) -> None:
    """The body of a POST is in it, too; and the check above does find mistakes."""
    operation = document()["paths"]["/v1/stores/{store}/keys"]["post"]
    answer = ask(app, "/v1/stores/counts/keys", body={"keys": ["a", "b"]})
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert mistakes(schema, answer.body) == []
    assert mistakes(operation["requestBody"]["content"]["application/json"]["schema"], {"keys": ["a"]}) == []
    assert mistakes(schema, {"store": 1, "partitions": [], "more": 0}) == [
        "$ lacks entries",
        "$ has more, too",
        "$.store is no ['string']",
    ]


def test_it_is_plain_json() -> None:
    """Nothing in it that JSON has not."""
    assert json.loads(json.dumps(document())) == document()


# --- the page --------------------------------------------------------------------------------------------


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


def test_the_page_leads_to_what_can_be_read(app: QueryApplication) -> None:
    """Each link is a path that is there, and none leads away; there are no scripts."""
    answer = ask(app, "/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "script" not in answer.headers["content-security-policy"]
    page = Links()
    page.feed(answer.raw.decode())
    assert "script" not in page.tags
    assert {"openapi.json", "v1/stores", "v1/topology", "healthz"} <= set(page.links)
    for link in page.links:
        assert parse_request("GET", f"/{link}".encode(), b"").route.method == "GET"


def test_the_topology_is_boxes_and_arrows(app: QueryApplication) -> None:
    """Arrows lead from box to box."""
    body = ask(app, "/v1/topology").body
    boxes = {box["id"]: box for box in body["boxes"]}
    assert {"lines", "out"} <= {box["label"] for box in body["boxes"]}
    assert all(arrow["from"] in boxes and arrow["to"] in boxes for arrow in body["arrows"])
    assert body["client"] == "c0"
