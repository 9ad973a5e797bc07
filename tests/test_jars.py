"""The table of jars, and getting them: from a real HTTP server on this machine into a cache of its own."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import re
import ssl
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path

import pytest

from millstream.errors import ArtifactException, SetupException
from millstream.jars import (
    BROKER_SET,
    Jar,
    connector_set,
    ensure_jars,
    ivy,
    jar_sets,
)
from millstream.jars import jar_cache as jars_cache
from millstream.jars.download_progress import DownloadProgress, Transport
from millstream.jars.jar_cache import ensure
from millstream.jars.jar_table import connector_versions
from millstream.jars.repository import from_repository
from millstream.java import find_java

# --- a Maven repository with two jars ---------------------------------------------------------------------


class Repository:
    """What the server has, how it misbehaves, and what it was asked."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.ranges = True
        self.cut_after: dict[str, int] = {}
        """Break the connection after so many bytes, once, for a path."""
        self.wrong_once: set[str] = set()
        self.wrong_always: set[str] = set()
        self.password: str | None = None
        self.asked: list[tuple[str, str | None]] = []
        """(path, Range header) of each GET."""
        self.url = ""

    def jar(self, name: str, content: bytes) -> Jar:
        """Publish a jar."""
        jar = Jar(f"org.example:{name}:1.0", len(content), hashlib.sha256(content).hexdigest())
        self.contents["/" + jar.repository_path] = content
        return jar

    def gets(self, jar: Jar) -> list[str | None]:
        """The Range header of each GET of a jar."""
        return [wanted for path, wanted in self.asked if path == "/" + jar.repository_path]


@pytest.fixture
def repository() -> Iterator[Repository]:
    repository = Repository()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            repository.asked.append((self.path, self.headers["Range"]))
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            if self.headers["Authorization"] != repository.password:
                self.send_error(401)
                return
            content = repository.contents.get(self.path)
            if content is None:
                self.send_error(404)
                return
            if body and (self.path in repository.wrong_once or self.path in repository.wrong_always):
                repository.wrong_once.discard(self.path)
                content = content[::-1]
            wanted = self.headers["Range"] if repository.ranges else None
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
            self.send_response(206 if wanted else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            if body:
                self.wfile.write(content[start : repository.cut_after.pop(self.path, len(content))])

        def log_message(self, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.005,), name="repository")
    thread.start()
    repository.url = f"http://127.0.0.1:{server.server_port}/maven"
    # Everything is below /maven, so that the address has a path, as most repositories' have.
    Handler.path = property(  # type: ignore[assignment]
        lambda self: self.__dict__["path"].removeprefix("/maven"),
        lambda self, value: self.__dict__.__setitem__("path", value),
    )
    yield repository
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of jars in a cache of this test."""
    monkeypatch.setenv("MILLSTREAM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "jars"


def http(repository: Repository) -> Transport:
    return from_repository(repository.url, back_off_s=0.001)


def get(repository: Repository, *jars: Jar) -> tuple[Path, ...]:
    return ensure(jars, "example", http(repository), progress=False)


# --- the table --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(jar_sets()))
def test_every_set_names_each_jar_once_with_its_length_and_checksum(name: str) -> None:
    """A set that is empty, or has a row that cannot be checked, would fail on the user's machine."""
    jars = jar_sets()[name]
    assert jars
    assert len({jar.file_name for jar in jars}) == len(jars)
    for jar in jars:
        assert re.fullmatch(r"[\w.-]+:[\w.-]+:[\w.-]+", jar.coordinates)
        assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256)
        assert jar.size > 1000


def test_a_jar_that_two_sets_share_is_the_same_file_in_both() -> None:
    """The cache has one file per name."""
    by_name: dict[str, Jar] = {}
    for jars in jar_sets().values():
        for jar in jars:
            assert by_name.setdefault(jar.file_name, jar) == jar


def test_the_table_says_which_jars_and_never_from_where() -> None:
    """The repository is Ivy's default or the user's; none is written down here."""
    assert "://" not in files("millstream.jars").joinpath("table.toml").read_text()


def test_the_broker_set_has_the_broker_and_a_logger() -> None:
    """Without a binding for SLF4J, a broker that does not start says nothing."""
    artifacts = {jar.artifact for jar in jar_sets()[BROKER_SET]}
    assert {"kafka_2.13", "kafka-clients", "slf4j-simple"} <= artifacts


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.3.0"])
def test_each_supported_spark_has_the_whole_connector(version: str) -> None:
    """Four jars, each by name, since resolving them from the connector's own description fails."""
    artifacts = {jar.artifact for jar in jar_sets()[connector_set(version)]}
    assert artifacts == {
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
        "kafka-clients",
        "commons-pool2",
    }


@pytest.mark.parametrize("version", ["3.5.1", "5.0.0", "4.10.0", "nonsense"])
def test_an_unknown_spark_version_is_told_what_there_is_and_how_to_bring_one(version: str) -> None:
    """The user may have the matching connector."""
    with pytest.raises(ArtifactException) as caught:
        connector_set(version)
    for fact in (version, *(f"{known}.x" for known in connector_versions()), "spark.jars", "packages"):
        assert fact in str(caught.value)


def test_the_repository_path_is_mavens() -> None:
    """group/with/slashes/artifact/version/artifact-version.jar."""
    jar = Jar("org.apache.kafka:kafka_2.13:4.3.1", 1, "")
    assert jar.repository_path == "org/apache/kafka/kafka_2.13/4.3.1/kafka_2.13-4.3.1.jar"


# --- fetching ---------------------------------------------------------------------------------------------


def test_jars_are_fetched_once_and_then_used_without_a_network(repository: Repository, cache: Path) -> None:
    """The second call asks nobody."""
    jars = [repository.jar("one", b"1" * 5000), repository.jar("two", b"2" * 7000)]
    paths = get(repository, *jars)
    assert [path.read_bytes() for path in paths] == [b"1" * 5000, b"2" * 7000]
    assert [path.parent for path in paths] == [cache, cache]
    before = list(repository.asked)
    assert get(repository, *jars) == paths
    assert repository.asked == before


def test_a_cache_that_is_read_only_is_enough_once_the_jars_are_there(
    repository: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container whose image has the jars is such a case."""
    jars = [repository.jar("one", b"first")]
    ensure(jars, "test", from_repository(repository.url))
    monkeypatch.setattr("millstream.cache.os.access", lambda *_: False)
    assert [path.read_bytes() for path in ensure(jars, "test")] == [b"first"]
    with pytest.raises(SetupException, match="cannot be written"):
        ensure([repository.jar("two", b"second")], "test")


def test_only_what_is_missing_is_fetched(repository: Repository, cache: Path) -> None:
    """A jar that is there and right is not fetched again with the others."""
    one, two = repository.jar("one", b"1" * 5000), repository.jar("two", b"2" * 7000)
    get(repository, one)
    get(repository, one, two)
    assert (len(repository.gets(one)), len(repository.gets(two))) == (1, 1)


def test_a_jar_put_there_by_hand_is_checked_and_taken(repository: Repository, cache: Path) -> None:
    """Somebody without a network copies the files."""
    jar = repository.jar("one", b"1" * 5000)
    cache.mkdir(parents=True)
    (cache / jar.file_name).write_bytes(b"1" * 5000)
    get(repository, jar)
    assert repository.asked == []


@pytest.mark.parametrize("damage", [b"", b"1" * 100, b"x" * 5000], ids=["empty", "truncated", "changed"])
def test_a_damaged_jar_in_the_cache_is_moved_aside_and_fetched_again(
    repository: Repository, cache: Path, damage: bytes
) -> None:
    """It is noticed by its size, or, when it has changed since this process read it, by its checksum."""
    jar = repository.jar("one", b"1" * 5000)
    (path,) = get(repository, jar)
    path.write_bytes(damage)
    os.utime(path, ns=(1, 1))
    assert get(repository, jar) == (path,)
    assert path.read_bytes() == b"1" * 5000
    assert (cache / "one-1.0.jar.corrupt").read_bytes() == damage
    assert len(repository.gets(jar)) == 2


def test_a_jar_is_read_when_a_process_uses_it_first(
    repository: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another's bytes are noticed with the old length and the old modification time, too; later calls of the
    same process read nothing."""
    jar = repository.jar("one", b"1" * 5000)
    (path,) = get(repository, jar)
    before = path.stat()
    path.write_bytes(b"x" * 5000)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    monkeypatch.setattr(jars_cache, "_seen", {})  # as a process has it that has just begun
    assert get(repository, jar) == (path,)
    assert path.read_bytes() == b"1" * 5000
    assert (cache / "one-1.0.jar.corrupt").exists()
    read: list[Path] = []
    checksum = jars_cache._sha256
    monkeypatch.setattr(jars_cache, "_sha256", lambda path: (read.append(path), checksum(path))[1])
    assert get(repository, jar) == get(repository, jar) == (path,)
    assert read == [path], "once, since it was fetched anew"


def test_a_download_that_breaks_off_goes_on_where_it_was(repository: Repository, cache: Path) -> None:
    """The second request asks for the rest only."""
    jar = repository.jar("one", bytes(range(256)) * 1000)
    repository.cut_after["/" + jar.repository_path] = 100_000
    (path,) = get(repository, jar)
    assert path.read_bytes() == bytes(range(256)) * 1000
    assert repository.gets(jar) == [None, "bytes=100000-"]


def test_a_download_goes_on_from_what_an_earlier_process_left(repository: Repository, cache: Path) -> None:
    """A killed process leaves a `.part`."""
    jar = repository.jar("one", bytes(range(256)) * 1000)
    (cache / "incoming").mkdir(parents=True)
    (cache / "incoming" / "one-1.0.jar.part").write_bytes((bytes(range(256)) * 1000)[:77_777])
    get(repository, jar)
    assert repository.gets(jar) == ["bytes=77777-"]


def test_a_server_without_ranges_is_read_from_the_start(repository: Repository, cache: Path) -> None:
    """Appending its whole answer to the part would be wrong."""
    repository.ranges = False
    jar = repository.jar("one", bytes(range(256)) * 1000)
    repository.cut_after["/" + jar.repository_path] = 100_000
    (path,) = get(repository, jar)
    assert path.read_bytes() == bytes(range(256)) * 1000


def test_a_part_that_is_longer_than_the_jar_is_thrown_away(repository: Repository, cache: Path) -> None:
    """It cannot become right by going on."""
    jar = repository.jar("one", b"1" * 5000)
    (cache / "incoming").mkdir(parents=True)
    (cache / "incoming" / "one-1.0.jar.part").write_bytes(b"x" * 6000)
    (path,) = get(repository, jar)
    assert path.read_bytes() == b"1" * 5000


def test_what_comes_damaged_is_fetched_once_more(repository: Repository, cache: Path) -> None:
    """A glitch heals itself."""
    jar = repository.jar("one", bytes(range(256)) * 10)
    repository.wrong_once.add("/" + jar.repository_path)
    (path,) = get(repository, jar)
    assert path.read_bytes() == bytes(range(256)) * 10
    assert len(repository.gets(jar)) == 2


def test_what_comes_damaged_twice_is_an_error_with_both_checksums(
    repository: Repository, cache: Path
) -> None:
    """It names the jar, what was expected, what came, and where that is kept; nothing is put into place."""
    content = bytes(range(256)) * 10
    jar = repository.jar("one", content)
    repository.wrong_always.add("/" + jar.repository_path)
    with pytest.raises(ArtifactException) as caught:
        get(repository, jar)
    aside = cache / "one-1.0.jar.corrupt"
    actual = hashlib.sha256(content[::-1]).hexdigest()
    for fact in (jar.coordinates, jar.sha256, actual, str(aside), "MILLSTREAM_MAVEN_REPOSITORY"):
        assert fact in str(caught.value)
    assert caught.value.artifact == jar.coordinates
    assert aside.read_bytes() == content[::-1]
    assert not (cache / jar.file_name).exists()
    assert len(repository.gets(jar)) == 2


def test_a_jar_that_the_repository_lacks_is_named(repository: Repository, cache: Path) -> None:
    """With the answer, the cache, and the variables; and it is asked for once, not again and again."""
    there, lacking = repository.jar("one", b"1" * 5000), Jar("org.example:two:1.0", 5, "0" * 64)
    with pytest.raises(ArtifactException) as caught:
        get(repository, there, lacking)
    for fact in ("org.example:two:1.0", "404", str(cache), "MILLSTREAM_CACHE_DIR", "MILLSTREAM_MAVEN"):
        assert fact in str(caught.value)
    assert len(repository.gets(lacking)) == 1
    assert (cache / there.file_name).exists(), "what did arrive is kept"


def test_a_name_and_a_password_in_the_address_are_sent_and_never_shown(
    repository: Repository, cache: Path
) -> None:
    """A company's own repository may need them."""
    jar = repository.jar("one", b"1" * 5000)
    repository.password = "Basic " + base64.b64encode(b"me:p@ss").decode()
    wrong = from_repository(repository.url.replace("//", "//me:secret@"), back_off_s=0.001)
    with pytest.raises(ArtifactException, match="401") as caught:
        ensure([jar], "example", wrong, progress=False)
    assert "secret" not in str(caught.value)
    right = from_repository(repository.url.replace("//", "//me:p%40ss@"), back_off_s=0.001)
    (path,) = ensure([jar], "example", right, progress=False)
    assert path.read_bytes() == b"1" * 5000


def test_without_a_network_the_first_missing_jar_and_the_way_out_are_named(
    repository: Repository, cache: Path
) -> None:
    """Nothing listens on the address."""
    jars = [repository.jar("one", b"1" * 5000), repository.jar("two", b"2" * 5000)]
    nowhere = from_repository("http://127.0.0.1:1/maven", back_off_s=0.001)
    with pytest.raises(ArtifactException) as caught:
        ensure(jars, "example", nowhere, progress=False)
    for fact in ("org.example:one:1.0", "and 1 more", "needs a network", str(cache), "refused"):
        assert fact in str(caught.value)


def test_the_environment_names_the_repository(
    repository: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MILLSTREAM_MAVEN_REPOSITORY is asked for the real set's jars."""
    monkeypatch.setenv("MILLSTREAM_MAVEN_REPOSITORY", repository.url + "/")
    name = connector_set("4.3.0")
    with pytest.raises(ArtifactException):
        ensure_jars(name, progress=False)
    assert {path for path, _ in repository.asked} == {"/" + jar.repository_path for jar in jar_sets()[name]}


@pytest.mark.parametrize("address", ["repository", "ftp://127.0.0.1/maven", "/a/path"])
def test_an_address_that_is_none_is_refused_at_once(address: str) -> None:
    """The error names the variable, and says what it should be."""
    with pytest.raises(ArtifactException, match=r"MILLSTREAM_MAVEN_REPOSITORY.*https: or file:"):
        from_repository(address)


def test_a_directory_can_be_the_repository(repository: Repository, cache: Path, tmp_path: Path) -> None:
    """It has a file: address."""
    jar = repository.jar("one", b"1" * 5000)
    place = tmp_path / "maven" / jar.repository_path
    place.parent.mkdir(parents=True)
    place.write_bytes(b"1" * 5000)
    transport = from_repository((tmp_path / "maven").as_uri(), back_off_s=0.001)
    (path,) = ensure([jar], "example", transport, progress=False)
    assert path.read_bytes() == b"1" * 5000


def test_a_full_disk_is_not_taken_for_a_missing_network(repository: Repository, cache: Path) -> None:
    """The message says to make room, and not to connect."""
    jar = repository.jar("one", b"first")

    def full(jars: Sequence[Jar], into: Path, progress: DownloadProgress) -> dict[Jar, str]:
        return dict.fromkeys(jars, "java.io.IOException: No space left on device")

    with pytest.raises(
        ArtifactException, match="The disk is full: make room, or set MILLSTREAM_CACHE_DIR"
    ) as told:
        ensure([jar], "example", full, progress=False)
    assert "network" not in str(told.value)


def test_of_many_at_once_one_downloads(repository: Repository, cache: Path) -> None:
    """The others wait for it and then find everything there."""
    jars = [repository.jar(f"jar{number}", bytes([number]) * 50_000) for number in range(3)]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda _: get(repository, *jars), range(6)))
    assert len(set(results)) == 1
    assert len(repository.asked) == 3


def test_without_a_terminal_progress_is_lines(
    repository: Repository, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are on stderr; the last one says that everything has arrived."""
    jar = repository.jar("one", b"1" * 1_500_000)
    ensure([jar], "example", http(repository), progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("downloading example")
    assert "1.5 of 1.5 MB" in lines[-1]


def test_a_cache_that_cannot_be_made_is_named(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the variable that chooses another."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MILLSTREAM_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(SetupException, match="MILLSTREAM_CACHE_DIR"):
        get(repository, repository.jar("one", b"1"))


# --- Ivy --------------------------------------------------------------------------------------------------


def test_javas_proxy_settings_are_pythons() -> None:
    """Host, port and exceptions are carried over; a password is not."""
    found = {"https": "http://me:secret@proxy.example:3128", "http": "proxy.example", "no": "localhost, .lan"}
    assert ivy.proxy_properties(found) == [
        "-Dhttp.proxyHost=proxy.example",
        "-Dhttp.proxyPort=80",
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.lan",
    ]
    assert ivy.proxy_properties({"no": "localhost"}) == []


@pytest.mark.kafka
def test_ivy_fetches_named_jars_and_checks_nothing_else(repository: Repository, cache: Path) -> None:
    """No description and no metadata is asked for: the table has said it all."""
    jars = [repository.jar("one", b"1" * 5000), repository.jar("two", b"2" * 700_000)]
    transport = functools.partial(ivy.fetch, root=repository.url)
    paths = ensure(jars, "example", transport, progress=False)
    assert [path.read_bytes() for path in paths] == [b"1" * 5000, b"2" * 700_000]
    assert sorted(path for path, _ in repository.asked) == sorted("/" + jar.repository_path for jar in jars)


@pytest.mark.kafka
def test_what_ivy_brings_damaged_is_fetched_once_more(repository: Repository, cache: Path) -> None:
    """Ivy's own cache does not return the damaged file again."""
    jar = repository.jar("one", bytes(range(256)) * 10)
    repository.wrong_once.add("/" + jar.repository_path)
    transport = functools.partial(ivy.fetch, root=repository.url)
    (path,) = ensure([jar], "example", transport, progress=False)
    assert path.read_bytes() == bytes(range(256)) * 10


@pytest.mark.kafka
def test_what_ivy_cannot_get_is_an_error_that_says_why(repository: Repository, cache: Path) -> None:
    """Nothing listens there."""
    jar = repository.jar("one", b"1" * 5000)
    transport = functools.partial(ivy.fetch, root="http://127.0.0.1:1/maven")
    with pytest.raises(ArtifactException) as caught:
        ensure([jar], "example", transport, progress=False)
    for fact in ("org.example:one:1.0", "refused", str(cache)):
        assert fact in str(caught.value)


@pytest.mark.kafka
def test_java_reads_the_trust_store_that_is_made_for_it(tmp_path: Path) -> None:
    """Every certificate that Python trusts, under an alias of its own."""
    ders = ssl.create_default_context().get_ca_certs(binary_form=True)[:5]
    store = tmp_path / "trust.jks"
    store.write_bytes(ivy.java_trust_store(ders))
    keytool = find_java().home / "bin" / "keytool"
    done = subprocess.run(
        [keytool, "-list", "-keystore", store, "-storepass", "changeit"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert ders
    assert done.stdout.count("trustedCertEntry") == len(ders)
