"""Fetches jars with Ivy, the client that ships with PySpark.

Ivy knows its default repository itself, as when Spark resolves `spark.jars.packages`. Dependency resolution
is off: every jar is named, and no POM is read. Ivy runs as a child process that ends with its work. Completed
downloads are kept when it is interrupted.

Ivy is Java, so it does not know the proxy and certificate settings of Python's tools; both are passed on.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import ssl
import struct
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from millstream.errors import ArtifactException
from millstream.jars.download_progress import DownloadProgress
from millstream.jars.jar_table import Jar
from millstream.java import find_java
from millstream.polling import pause

__all__ = ["fetch", "java_trust_store", "proxy_properties"]

RUN_SECONDS = 1200.0
"""The longest that one run may take; a connection that stalls is given up after 30 s, by Ivy."""

FRUITLESS_RUNS = 2
"""So many runs in a row that bring nothing, and it is given up."""

_LOOK_SECONDS = 0.2
_BACK_OFF_SECONDS = 1.0

_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="default"/>
  <caches defaultCacheDir={cache} artifactPattern="[artifact]-[revision].[ext]"/>
  <timeout-constraints>
    <timeout-constraint name="patient" connectionTimeout="15000" readTimeout="30000"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="default" m2compatible="true" usepoms="false" useMavenMetadata="false" checksums=""
             timeoutConstraint="patient"{root}/>
  </resolvers>
</ivysettings>
"""


def fetch(
    jars: Sequence[Jar], into: Path, progress: DownloadProgress, *, root: str | None = None
) -> Mapping[Jar, str]:
    """Fetch jars to `into`; a `Transport`. `root` is a repository's address in place of Ivy's default.

    Raises:
        JavaNotFoundException: Ivy needs Java, as Spark does.
        ArtifactException: PySpark is not installed, or has no Ivy.
    """
    ivy, java = find_ivy(), find_java()
    fruitless, said = 0, ""
    left = [jar for jar in jars if not (into / jar.file_name).exists()]
    while left and fruitless < FRUITLESS_RUNS:
        if fruitless:
            pause(_BACK_OFF_SECONDS * fruitless)
        said = _run(java.java, ivy, root, left, jars, into, progress)
        still_left = [jar for jar in left if not (into / jar.file_name).exists()]
        fruitless = fruitless + 1 if len(still_left) == len(left) else 0
        left = still_left
    return {jar: _reason(said, jar) for jar in left}


def find_ivy() -> Path:
    """Ivy's jar in the installed PySpark, which is found, not imported.

    Raises:
        ArtifactException: there is none.
    """
    spec = importlib.util.find_spec("pyspark")
    homes = [Path(place) for place in (spec.submodule_search_locations if spec else None) or ()]
    if os.environ.get("SPARK_HOME"):
        homes.append(Path(os.environ["SPARK_HOME"]))
    for home in homes:
        found = sorted((home / "jars").glob("ivy-*.jar"))
        if found:
            return found[-1]
    looked_at = ", ".join(str(home / "jars") for home in homes) or "PySpark is not installed"
    raise ArtifactException(
        f"Ivy, which downloads jars and comes with PySpark, was not found (searched: {looked_at}); "
        "install pyspark, or set MILLSTREAM_MAVEN_REPOSITORY to the address of a Maven repository",
        artifact="org.apache.ivy:ivy",
    )


def _run(
    java: Path,
    ivy: Path,
    root: str | None,
    wanted: Sequence[Jar],
    jars: Sequence[Jar],
    into: Path,
    progress: DownloadProgress,
) -> str:
    """One run of Ivy for `wanted`; what it said. `progress` counts all of `jars`."""
    with tempfile.TemporaryDirectory(prefix="millstream-ivy-") as scratch:
        settings, module, out = (Path(scratch) / name for name in ("settings.xml", "ivy.xml", "out.txt"))
        settings.write_text(_settings(into, root), encoding="utf-8")
        module.write_text(_module(wanted), encoding="utf-8")
        arguments = [str(java), "-Xmx256m", "-XX:+UseSerialGC"]
        arguments += proxy_properties(urllib.request.getproxies())
        bundle = os.environ.get("SSL_CERT_FILE")
        if bundle and Path(bundle).is_file():
            store = Path(scratch) / "trust.jks"
            store.write_bytes(java_trust_store(_certificates(Path(bundle))))
            arguments += [f"-Djavax.net.ssl.trustStore={store}"]
            arguments += ["-Djavax.net.ssl.trustStorePassword=changeit"]
        arguments += ["-jar", str(ivy), "-settings", str(settings), "-ivy", str(module)]
        arguments += ["-cache", str(into), "-confs", "default", "-warn"]
        with out.open("wb") as sink:
            process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, cwd=scratch
            )
            try:
                _wait(process, jars, into, progress)
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()
        return out.read_text(encoding="utf-8", errors="replace")


def _wait(
    process: subprocess.Popen[bytes], jars: Sequence[Jar], into: Path, progress: DownloadProgress
) -> None:
    """Until Ivy has ended, or its time is up; meanwhile the files' growing is the progress."""
    deadline = time.monotonic() + RUN_SECONDS
    while time.monotonic() < deadline:
        try:
            process.wait(_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            progress.at(_arrived(jars, into))
            continue
        progress.at(_arrived(jars, into))
        return


def _arrived(jars: Sequence[Jar], into: Path) -> int:
    total = 0
    for jar in jars:
        for name in (jar.file_name, f"{jar.file_name}.part"):
            try:
                total += (into / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def _settings(into: Path, root: str | None) -> str:
    attribute = "" if root is None else f" root={quoteattr(root)}"
    return _SETTINGS.format(cache=quoteattr(str(into)), root=attribute)


def _module(jars: Sequence[Jar]) -> str:
    rows = "".join(
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
        ' transitive="false" conf="default->*">'
        f'<artifact name={quoteattr(jar.artifact)} type="jar" ext="jar"/></dependency>\n'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="millstream" module="jars"/>\n'
        '<configurations><conf name="default"/></configurations>\n'
        f"<dependencies>\n{rows}</dependencies></ivy-module>\n"
    )


def _reason(said: str, jar: Jar) -> str:
    """What Ivy said about a jar that it did not bring: the exception if there was one, else `not found`."""
    about = [line.strip() for line in said.splitlines() if jar.file_name in line and "rror" in line]
    if about:
        return re.sub(r"\s+", " ", about[0])[:400]
    errors = [line.strip() for line in said.splitlines() if "rror" in line or "xception" in line]
    return errors[0][:400] if errors else "Ivy did not find it in its default repository"


def proxy_properties(proxies: Mapping[str, str]) -> list[str]:
    """Java's settings for the proxies that `urllib.request.getproxies()` found. Carries no password."""
    arguments = []
    for scheme in ("http", "https"):
        if scheme in proxies:
            parts = urlsplit(proxies[scheme] if "//" in proxies[scheme] else f"//{proxies[scheme]}")
            if parts.hostname:
                arguments.append(f"-D{scheme}.proxyHost={parts.hostname}")
                arguments.append(f"-D{scheme}.proxyPort={parts.port or 80}")
    excluded = [name.strip() for name in proxies.get("no", "").split(",") if name.strip()]
    if excluded and arguments:
        hosts = "|".join(f"*{name}" if name.startswith(".") else name for name in excluded)
        arguments.append(f"-Dhttp.nonProxyHosts={hosts}")
    return arguments


def _certificates(bundle: Path) -> list[bytes]:
    """The certificates of a PEM file, each in DER."""
    text = bundle.read_text(encoding="ascii", errors="replace")
    blocks = re.findall(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", text, re.DOTALL)
    return [ssl.PEM_cert_to_DER_cert(block) for block in blocks]


def java_trust_store(certificates: Iterable[bytes], password: str = "changeit") -> bytes:  # noqa: S107
    """A Java key store (JKS) that trusts these certificates. The password guards nothing; Java wants one.

    Java cannot read the PEM file that `SSL_CERT_FILE` names, and `keytool` takes one certificate a time.

    Bytes: magic, version 2, count; per entry tag 2, alias, time in ms, "X.509", length, DER; at the end
        SHA-1 over the password in UTF-16, "Mighty Aphrodite" and all before. Strings have a 16-bit length.
    Source: sun.security.provider.JavaKeyStore.
    """
    entries = list(certificates)
    body = bytearray(struct.pack(">III", 0xFEEDFEED, 2, len(entries)))
    for number, der in enumerate(entries):
        alias = f"c{number}".encode()
        body += struct.pack(">IH", 2, len(alias)) + alias + struct.pack(">QH", 0, 5) + b"X.509"
        body += struct.pack(">I", len(der)) + der
    seal = hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body)  # noqa: S324
    return bytes(body) + seal.digest()
