"""The development registry, over HTTP, and the client that asks registries: what they say and what they
refuse."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pytest

from millstream import (
    ConfigException,
    SchemaRegistryException,
    Serdes,
    SerializationException,
    TopologyException,
    avro_record,
)
from millstream.registry.compatibility import incompatibility
from millstream.registry.http import RegistryServer
from millstream.registry.mock import drop_mock_registry
from millstream.registry.registry_client import Registry
from millstream.registry.registry_settings import RegistrySettings
from millstream.serdes import avro_types
from millstream.serdes.registered import bound


def record(name: str, *fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": name, "fields": fields})


A, B = {"name": "a", "type": "int"}, {"name": "b", "type": "string", "default": ""}
ONE, TWO = record("R", A), record("R", A, B)

UNREADABLE = {"type": "record", "name": "a.R", "fields": [{"name": "c", "type": "int"}]}
READABLE = {"type": "record", "name": "b.R", "fields": []}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    server = RegistryServer()
    yield server
    server.close()


def settings(url: str, **more: Any) -> RegistrySettings:
    made = RegistrySettings.of(
        {"schema.registry.url": url, **{k.replace("_", "."): v for k, v in more.items()}}
    )
    assert made is not None
    return made


def ask(server: RegistryServer, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and answer of a plain HTTP request."""
    data = None if body is None else json.dumps(body).encode()
    kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(server.url + path, method=method, data=data, headers=kind)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_registry_answers_as_confluents_does(server: RegistryServer) -> None:
    """Ids are of schemas, versions of subjects; errors have Confluent's numbers."""
    assert ask(server, "POST", "/subjects/s-value/versions", {"schema": ONE}) == (200, {"id": 1})
    assert ask(server, "POST", "/subjects/t-value/versions", {"schema": ONE + " "}) == (200, {"id": 1})
    assert ask(server, "POST", "/subjects/s-value/versions", {"schema": TWO}) == (200, {"id": 2})
    assert ask(server, "GET", "/subjects") == (200, ["s-value", "t-value"])
    assert ask(server, "GET", "/subjects/s-value/versions") == (200, [1, 2])
    status, latest = ask(server, "GET", "/subjects/s-value/versions/latest")
    assert (status, latest["version"], latest["id"], json.loads(latest["schema"])) == (
        200,
        2,
        2,
        json.loads(TWO),
    )
    assert ask(server, "GET", "/schemas/ids/1/versions")[1][1] == {"subject": "t-value", "version": 1}
    assert ask(server, "POST", "/subjects/s-value", {"schema": ONE})[1]["version"] == 1
    wrong = [
        ("GET", "/subjects/no/versions", None, 404, 40401),
        ("GET", "/subjects/s-value/versions/9", None, 404, 40402),
        ("GET", "/subjects/s-value/versions/x", None, 422, 42202),
        ("GET", "/schemas/ids/9", None, 404, 40403),
        ("POST", "/subjects/s-value", {"schema": '"int"'}, 404, 40403),
        ("POST", "/subjects/s-value/versions", {"schema": "{"}, 422, 42201),
        (
            "POST",
            "/subjects/s-value/versions",
            {"schema": record("R", {"name": "c", "type": "int"})},
            409,
            409,
        ),
        ("PUT", "/config", {"compatibility": "SOME"}, 422, 42203),
        ("GET", "/nothing", None, 404, 404),
    ]
    for method, path, body, status, code in wrong:
        answered, said = ask(server, method, path, body)
        assert (answered, said["error_code"]) == (status, code), path
    assert ask(server, "PUT", "/config/s-value", {"compatibility": "NONE"})[0] == 200
    assert ask(server, "POST", "/subjects/s-value/versions", {"schema": '"int"'}) == (200, {"id": 3})
    assert ask(server, "DELETE", "/subjects/t-value") == (200, [1])
    assert ask(server, "GET", "/subjects") == (200, ["s-value"])
    assert ask(server, "GET", "/schemas/ids/1")[0] == 200, "records with it are still there"


def test_a_log_says_all_that_a_registry_knows(server: RegistryServer) -> None:
    """What one has written another one knows."""
    log: list[Any] = []
    first = RegistryServer(append=log.extend)
    ask(first, "POST", "/subjects/s/versions", {"schema": ONE})
    ask(first, "PUT", "/config/s", {"compatibility": "NONE"})
    ask(first, "POST", "/subjects/s/versions", {"schema": '"int"'})
    ask(first, "DELETE", "/subjects/s/versions/1")
    first.close()
    second = RegistryServer(known=json.loads(json.dumps(log)))
    assert ask(second, "GET", "/subjects/s/versions") == (200, [2])
    assert ask(second, "GET", "/config/s") == (200, {"compatibilityLevel": "NONE"})
    assert ask(second, "POST", "/subjects/s/versions", {"schema": ONE}) == (200, {"id": 1})
    second.close()


@pytest.mark.parametrize(
    ("reader", "writer", "why"),
    [
        (TWO, ONE, None),
        (ONE, TWO, None),
        (record("R", {**B, "name": "c"}, {"name": "d", "type": "int"}), ONE, "'d' is new and has no default"),
        ('"long"', '"int"', None),
        ('"int"', '"long"', "long cannot be read as int"),
        ('["null","int"]', '"int"', None),
        ('"int"', '["null","int"]', "null cannot be read as int"),
        (
            '{"type":"enum","name":"E","symbols":["A"]}',
            '{"type":"enum","name":"E","symbols":["A","B"]}',
            "no symbol B",
        ),
        (
            '{"type":"enum","name":"E","symbols":["A"],"default":"A"}',
            '{"type":"enum","name":"E","symbols":["A","B"]}',
            None,
        ),
        ('{"type":"fixed","name":"F","size":2}', '{"type":"fixed","name":"F","size":3}', "sizes of F differ"),
        ('{"type":"map","values":"int"}', '{"type":"array","items":"int"}', "array cannot be read as map"),
        (record("S", A), ONE, "R cannot be read as S"),
        ('{"type":"record"}', ONE, "has no name"),
        (
            record("T", {"name": "u", "type": [UNREADABLE, READABLE]}, {"name": "v", "type": "a.R"}),
            record("T", {"name": "u", "type": json.loads(ONE)}, {"name": "v", "type": "R"}),
            "'v.c' is new and has no default",
        ),
    ],
)
def test_avro_schemas_are_compared_as_avro_resolves_them(reader: str, writer: str, why: str | None) -> None:
    """Source: the Avro specification."""
    said = incompatibility(reader=[reader], writer=[writer])
    assert (said is None) if why is None else (said is not None and why in said)


def test_the_client_follows_references_and_asks_once(server: RegistryServer) -> None:
    """What a schema refers to comes before it, and makes one schema with it."""
    ask(server, "POST", "/subjects/item/versions", {"schema": record("Item", A)})
    order = {
        "schema": record("Order", {"name": "x", "type": "Item"}, {"name": "y", "type": "Item"}),
        "references": [{"name": "Item", "subject": "item", "version": 1}],
    }
    status, said = ask(server, "POST", "/subjects/order-value/versions", order)
    assert status == 200
    client = Registry(settings(server.url))
    found = client.by_id(said["id"])
    assert found is not None
    whole = avro_types.whole(found.texts)
    assert [field["name"] for field in avro_types.spark_type(whole)["fields"]] == ["x", "y"]
    asked = server.requests
    assert client.by_id(said["id"]) == found
    assert server.requests == asked
    assert client.by_id(99) is None


def test_bytes_that_are_deeper_than_a_stack_are_refused(server: RegistryServer) -> None:
    """A schema that has itself as a part says no depth, and what it refers to may be such a one."""
    loop = record("Node", {"name": "next", "type": ["null", "Node"]}, A)
    ask(server, "POST", "/subjects/node/versions", {"schema": loop})
    holder = {
        "schema": record("Holder", {"name": "node", "type": "Node"}, A),
        "references": [{"name": "Node", "subject": "node", "version": 1}],
    }
    _, said = ask(server, "POST", "/subjects/holder/versions", holder)
    serde = bound(Serdes.avro(record("Holder", A)), settings(server.url), "t")
    head = b"\0" + said["id"].to_bytes(4, "big")
    assert serde.deserialize(head + b"\x02\x00\x04\x02" + b"\x06") == {"a": 3}
    with pytest.raises(SerializationException, match=r"Avro .* read \(RecursionError"):
        serde.deserialize(head + b"\x02" * 100_000)


def test_a_registry_that_is_away_or_says_no_is_told_of_in_time(server: RegistryServer) -> None:
    """The error has its address, without the password."""
    guarded = RegistryServer(users={"u": "secret-word"})
    with pytest.raises(SchemaRegistryException, match=r"denies access \(401\); check user and password"):
        Registry(settings(guarded.url)).latest("s")
    with_user = settings(guarded.url.replace("//", "//u:secret-word@"), schema_registry_timeout_ms=200)
    assert Registry(with_user).latest("s") is None
    guarded.close()
    with pytest.raises(SchemaRegistryException, match=r"cannot be queried: .*tried for 200 ms") as caught:
        Registry(with_user).latest("s")
    assert "secret-word" not in f"{caught.value}{with_user!r}"
    with pytest.raises(SchemaRegistryException, match="is not a schema registry"):
        Registry(settings(f"{server.url}/elsewhere")).latest("s")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schema.registry.url": "localhost:8081"}, "it must be an address such as http://localhost:8081"),
        ({"schema.registry.url": ""}, "is empty|it must be an address"),
        ({"schema.registry.url": "http://a", "schema.registry.user": "x"}, "unknown configuration"),
        ({"schema.registry.url": "http://a:80x"}, "a port that is not a number"),
        ({"schema.registry.url": "http://a", "basic.auth.user.info": "x"}, "separated by a colon"),
        (
            {"schema.registry.url": "http://a", "basic.auth.credentials.source": "SASL_INHERIT"},
            "URL, or USER_INFO",
        ),
        (
            {"schema.registry.url": "http://a", "bearer.auth.credentials.source": "OAUTHBEARER"},
            "not supported yet",
        ),
        ({"schema.registry.url": "http://a", "value.subject.name.strategy": "Mine"}, "TopicNameStrategy"),
        ({"schema.registry.url": "http://a", "auto.register.schemas": "often"}, "true or false"),
        ({"schema.registry.url": "http://a", "schema.registry.timeout.ms": 0}, "at least 1"),
    ],
)
def test_a_configuration_that_does_not_fit_gets_a_sentence(options: dict[str, Any], said: str) -> None:
    """The error has the key's name."""
    with pytest.raises(ConfigException, match=said):
        RegistrySettings.of(options)


@pytest.mark.parametrize(
    "options",
    [
        {"schema.registry.url": "http://u:secret/word@a:8081"},
        {"schema.registry.url": "http://u:secret#word@a:8081"},
        {"schema.registry.url": "http://u:secret,word@a:8081"},
        {"schema.registry.url": "http://a", "bearer.auth.token": "secret\nword"},
        {"schema.registry.url": "http://a", "bearer.auth.token": "secret\u20acword"},
    ],
)
def test_a_login_that_cannot_be_sent_is_refused_and_not_shown(options: dict[str, Any]) -> None:
    """Part of it would be taken for the address, or stand in the error of who sends it."""
    with pytest.raises(ConfigException) as caught:
        RegistrySettings.of(options)
    assert "secret" not in str(caught.value)
    assert "word" not in str(caught.value).replace("password", "")
    from_a_file = settings("http://a", bearer_auth_token="token\n")
    assert from_a_file.headers == (("Authorization", "Bearer token"),)


class _Odd(BaseHTTPRequestHandler):
    """An answer without an end, a long one, one that sends elsewhere, and schemas that refer to others."""

    seen: list[str]
    over: threading.Event

    def do_GET(self) -> None:
        self.seen.append(self.path)
        where, _, number = self.path.rpartition("/")
        elsewhere = self.path == "/schemas/ids/2"
        self.send_response(307 if elsewhere else 200)
        if elsewhere:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        if self.path == "/schemas/ids/9":
            with contextlib.suppress(OSError):
                for _ in range(9 << 4):
                    self.wfile.write(b" " * 65536)
        with contextlib.suppress(OSError):
            while self.path == "/schemas/ids/1" and not self.over.wait(0.01):
                self.wfile.write(b" ")
        if self.path == "/schemas/ids/3":
            to = [("ladder", 1)]
        elif where == "/subjects/ladder/versions":
            to = [("ladder", int(number) + step) for step in (1, 2) if int(number) + step <= 40]
        else:
            to = [("loop", 1)]
        references = [{"name": "n", "subject": subject, "version": version} for subject, version in to]
        with contextlib.suppress(OSError):
            said = {"id": int(number), "schema": self.path, "references": references}
            self.wfile.write(json.dumps(said).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def odd() -> Iterator[tuple[Registry, list[str]]]:
    seen: list[str] = []
    over = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Odd", (_Odd,), {"seen": seen, "over": over}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="odd", daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    yield Registry(settings(url, schema_registry_timeout_ms=300, bearer_auth_token="t")), seen
    over.set()
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_an_answer_without_an_end_does_not_hold_anybody_up(odd: tuple[Registry, list[str]]) -> None:
    """Each of its bytes comes in time."""
    with pytest.raises(SchemaRegistryException, match="its answer did not end in time; tried for 300 ms"):
        odd[0].by_id(1)


def test_an_answer_that_is_too_long_does_not_fill_the_memory(odd: tuple[Registry, list[str]]) -> None:
    """It has nine megabytes, and then a schema."""
    client = Registry(replace(odd[0].settings, patience_ms=60_000))
    with pytest.raises(SchemaRegistryException, match="/schemas/ids/9 has more than 8 MiB"):
        client.by_id(9)
    assert odd[1] == ["/schemas/ids/9"], "not asked for again"


def test_the_login_goes_nowhere_else(odd: tuple[Registry, list[str]]) -> None:
    """The kernel does not follow either."""
    with pytest.raises(SchemaRegistryException, match=r"redirects requests \(307\)"):
        odd[0].by_id(2)
    assert odd[1] == ["/schemas/ids/2"]


def test_references_are_asked_for_once_each_and_have_an_end(odd: tuple[Registry, list[str]]) -> None:
    """Each schema refers to the next two, so there are a hundred million ways through them."""
    client, seen = odd
    found = client.by_id(3)
    assert found is not None
    rungs = tuple(f"/subjects/ladder/versions/{number}" for number in range(40, 0, -1))
    assert found.texts == (*rungs, "/schemas/ids/3")
    assert len(seen) == 41
    seen.clear()
    with pytest.raises(SchemaRegistryException, match="whose references do not end"):
        client.by_id(4)


def test_subjects_are_called_as_the_strategy_says() -> None:
    """Source: io.confluent.kafka.serializers.subject."""
    for strategy, subject in (
        ("TopicNameStrategy", "t-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "shop.R"),
        ("TopicRecordNameStrategy", "t-shop.R"),
    ):
        made = settings("http://a", value_subject_name_strategy=strategy)
        assert made.subject("t", "shop.R", is_key=False) == subject
        assert made.subject("t", "shop.R", is_key=True) == "t-key"


def test_a_serde_without_a_registry_or_a_schema_says_so() -> None:
    """An invalid schema is refused where it is given."""
    with pytest.raises(ConfigException, match=r"set the configuration 'schema\.registry\.url'"):
        Serdes.avro(ONE).serialize({"a": 1})
    unknown = bound(Serdes.avro(), settings("mock://nothing"), "t")
    with pytest.raises(SerializationException, match="has no subject 't-value'; give one"):
        unknown.serialize({"a": 1})
    drop_mock_registry("nothing")
    loop = record("Node", {"name": "next", "type": ["null", "Node"]})
    for schema, said in (
        ("{", "it is not JSON"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "x", "type": "Y"}]},
            "nothing defines 'Y'",
        ),
        (loop, "contains itself"),
        ('["null", "string"]', "a union with null"),
        (7, "as text or a dict"),
    ):
        with pytest.raises(TopologyException, match=said):
            Serdes.avro(schema)
    with pytest.raises(TopologyException, match="a class generated by protoc"):
        Serdes.protobuf(int)
    with pytest.raises(TopologyException, match="one of several types"):
        Serdes.json_schema({"oneOf": [{"type": "string"}, {"type": "integer"}]})
    with pytest.raises(TopologyException, match="does not say what its Columns are"):
        Serdes.custom("own", serialize=str.encode, deserialize=bytes.decode)


def test_the_schema_of_a_primitive_type_is_its_name() -> None:
    """`long` is "long" in JSON, which is what Java's parser and registries take."""
    assert Serdes.avro("long") == Serdes.avro(' "long"') != Serdes.avro("int")


def test_what_a_schema_refers_to_is_put_in_once() -> None:
    """This includes a type defined within another definition, in either order."""
    inner = {"type": "record", "name": "Inner", "fields": [A]}
    outer = json.dumps(
        {
            "type": "record",
            "name": "x.Outer",
            "fields": [{"name": "i", "type": inner}, {"name": "j", "type": "Inner"}],
        }
    )
    for wanted in (["Outer", "Inner"], ["Inner", "Outer"], ["Inner", {"type": "Outer"}, "x.Inner"]):
        fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(wanted)]
        top = json.dumps({"type": "record", "name": "x.Top", "fields": fields})
        whole = avro_types.whole([outer, top])
        assert whole.count('"fields"') == 3
        fastavro.parse_schema(json.loads(whole))
        assert len(avro_types.spark_type(whole)["fields"]) == len(wanted)


def test_a_record_is_described_by_its_fields() -> None:
    """One that stands in another twice is defined once, which is all that Avro's parsers take."""
    kind = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    order = avro_record("shop.Order", id="long", kind=kind)
    pair = avro_record("shop.Pair", now=order, before=["null", order], all={"type": "array", "items": order})
    assert order["fields"] == [{"name": "id", "type": "long"}, {"name": "kind", "type": kind}]
    fastavro.parse_schema(pair)
    now, before, every = (field["type"] for field in pair["fields"])
    assert (now["name"], before, every["items"]) == ("shop.Order", ["null", "shop.Order"], "shop.Order")
    assert [field["name"] for field in avro_types.spark_type(json.dumps(pair))["fields"]] == [
        "now",
        "before",
        "all",
    ]


def test_a_column_of_another_kind_does_not_fit_a_schema() -> None:
    """This holds even if neither has fields that could differ."""
    texts = {"type": "array", "elementType": "string", "containsNull": True}
    counts = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
    nothing: dict[str, Any] = {"type": "struct", "fields": []}
    for schema, fits in (
        ({"type": "array", "items": "string"}, texts),
        ({"type": "map", "values": "string"}, counts),
    ):
        for type_ in (texts, counts, nothing):
            assert (avro_types.misfit(json.dumps(schema), type_) is None) == (type_ is fits)
    union = json.dumps(["null", "string", "int"])
    fields = [{"name": f"member{at}", "type": each} for at, each in enumerate(("string", "integer"))]
    assert (
        avro_types.misfit(
            record("R", {"name": "u", "type": json.loads(union)}),
            {"type": "struct", "fields": [{"name": "u", "type": {"type": "struct", "fields": fields}}]},
        )
        is None
    )


def test_an_id_that_no_registry_has_is_the_records_fault(server: RegistryServer) -> None:
    """Registries answer in many ways to one below 0."""
    serde = bound(Serdes.avro(ONE), settings(server.url), "t")
    with pytest.raises(SerializationException, match="the id of a schema before the value"):
        serde.deserialize(b"\0\xff\xff\xff\xff\2")
    status, said = ask(server, "GET", "/schemas/ids/-1")
    assert (status, said["error_code"]) == (404, 40403)


def test_a_protobuf_schema_of_the_registry_may_import_what_nobody_has_imported() -> None:
    """Files of Protobuf's own; others are named."""
    program = Path(__file__).with_name("first_import.py")
    subprocess.run([sys.executable, str(program)], check=True, timeout=60)


def test_lists_are_written_as_kafkas_list_serializer_writes_them() -> None:
    """Bytes of Kafka 4.3.1's own (KIP-466); what is cut off is refused."""
    cases: list[tuple[Any, list[Any], str]] = [
        (Serdes.integer(), [1, None, -1], "0000000001000000010000000300000001ffffffff"),
        (Serdes.integer(), [], "000000000000000000"),
        (Serdes.string(), ["a", None, "", "bc"], "01000000040000000161ffffffff00000000000000026263"),
        (Serdes.boolean(), [True], "01000000010000000101"),
        (Serdes.short(), [5], "0000000000000000010005"),
    ]
    for inner, value, data in cases:
        serde = Serdes.list(inner)
        written = serde.serialize(value)
        assert written == bytes.fromhex(data)
        assert serde.deserialize(written) == value
        for cut in (written[:-1], written + b"x", b"", b"\x07" + written[1:]):
            with pytest.raises(SerializationException):
                serde.deserialize(cut)


def test_void_is_nothing() -> None:
    """Source: org.apache.kafka.common.serialization.VoidSerializer."""
    assert Serdes.void().serialize(None) is None
    assert Serdes.void().deserialize(None) is None
    with pytest.raises(SerializationException, match="None alone"):
        Serdes.void().serialize(1)
    with pytest.raises(SerializationException, match="no bytes at all"):
        Serdes.void().deserialize(b"")


def test_what_confluents_own_serializers_write_is_read(server: RegistryServer) -> None:
    """Bytes of confluent-kafka 2.16.0, whose client had registered the schemas with a registry of ours."""
    order = record("Order", {"name": "id", "type": "string"}, {"name": "amount", "type": "double"})
    title = {"title": "Order", "type": "object", "properties": {"id": {"type": "string"}}}
    assert Registry(settings(server.url)).id_of("avro-value", "AVRO", order) == 1
    assert Registry(settings(server.url)).id_of("json-value", "JSON", json.dumps(title)) == 2
    avro, plain = bound(Serdes.avro(), settings(server.url), "avro"), Serdes.json_schema()
    said = bytes.fromhex("00000000010261000000000000f83f")
    assert avro.deserialize(said) == {"id": "a", "amount": 1.5}
    assert (
        bound(Serdes.avro(order), settings(server.url), "avro").serialize({"id": "a", "amount": 1.5}) == said
    )
    data = bytes.fromhex("00000000047b226964223a2261222c22616d6f756e74223a312e357d")
    assert bound(plain, settings(server.url), "json").deserialize(data) == {"id": "a"}
