"""`make` reaches an index as pip would: by its settings, and with the certificates that pip goes by."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import ssl
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """scripts/environment.py, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("environment_script", ROOT / "scripts" / "environment.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_setup_lists_no_packages_and_announces_the_long_build(script: ModuleType) -> None:
    """What uv says of downloads and errors stays."""
    told = ["Resolved 3 packages in 5ms\n", "   Building pyspark==4.3.0\n", "Downloading numpy (20MiB)\n"]
    listed = ["      Built pyspark==4.3.0\n", " Downloaded numpy\n", " + numpy==2\n", " - rich==1\n"]
    shown = list(script.telling([*told, *listed, "error: no network\n"]))
    announced = "setup: PySpark is published as sources; building it takes one to two minutes, silently\n"
    assert shown == [*told[:2], announced, told[2], "error: no network\n"]


def test_the_settings_of_pip_are_uvs_too(script: ModuleType) -> None:
    """An index, a proxy and certificates that pip has been told of need no second telling."""
    of_pip = {
        "index-url": "https://mirror.example/simple",
        "extra-index-url": "\nhttps://one.example/simple\nhttps://two.example/simple",
        "find-links": "/wheels /more",
        "trusted-host": "mirror.example",
        "cert": "/etc/our-ca.pem",
        "proxy": "http://proxy.example:3128",
        "timeout": "90",
        "no-index": "false",
    }
    assert script.uv_settings({}, of_pip) == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "mirror.example",
        "SSL_CERT_FILE": "/etc/our-ca.pem",
        "ALL_PROXY": "http://proxy.example:3128",
        "UV_HTTP_TIMEOUT": "90",
    }


def test_what_uv_was_told_itself_stands(script: ModuleType) -> None:
    """Its own variables take precedence over pip's, and a proxy for HTTPS over one for all."""
    own = {"UV_DEFAULT_INDEX": "https://own.example/simple", "HTTPS_PROXY": "http://own.example:1"}
    of_pip = {"index-url": "https://mirror.example/simple", "proxy": "http://proxy.example:2"}
    assert script.uv_settings(own, of_pip) == {"UV_SYSTEM_CERTS": "true"}


def test_without_certificates_of_its_own_uv_takes_the_systems(script: ModuleType) -> None:
    """Those of a proxy that inspects TLS are there, and in no bundle of uv's."""
    assert script.uv_settings({}, {}) == {"UV_SYSTEM_CERTS": "true"}
    assert script.uv_settings({"SSL_CERT_FILE": "/etc/our-ca.pem"}, {}) == {}
    assert script.uv_settings({"UV_SYSTEM_CERTS": "false"}, {}) == {}


def test_pips_files_and_variables_are_read(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable goes before a file."""
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://file.example/simple\ntimeout = 7\n")
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example/simple")
    script.pip_settings.cache_clear()
    found = script.pip_settings()
    script.pip_settings.cache_clear()
    assert found["index-url"] == "https://variable.example/simple"
    assert found["timeout"] == "7"


# --- an index behind certificates of its own -------------------------------------------------------------


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An index over HTTPS with one package; its address, and an authority that nobody else trusts."""
    pages = tmp_path / "pages"
    (pages / "simple" / "tiny").mkdir(parents=True)
    wheel = write_wheel(pages / "simple" / "tiny")
    (pages / "simple" / "tiny" / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes"]
    authority = ["-subj", "/CN=Our authority", "-keyout", "ca.key", "-out", "ca.pem"]
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-subj", "/CN=127.0.0.1", "-keyout", "own.key"]
    signed += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    for command in ([*new, *authority], [*new, *signed, "-out", "own.pem"]):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    handler = partial(SimpleHTTPRequestHandler, directory=str(pages))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "own.pem", tmp_path / "own.key")
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, name="index", daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}/simple", tmp_path / "ca.pem"
    server.shutdown()
    server.server_close()
    thread.join(10)


def write_wheel(folder: Path) -> Path:
    files = {
        "tiny.py": "",
        "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "tiny-1.0.dist-info/RECORD"
    rows = [f"{name},sha256={digest(text)},{len(text)}" for name, text in files.items()]
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, record: "\n".join([*rows, f"{record},,", ""])}.items():
            archive.writestr(name, text)
    return path


def digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.mark.disk
def test_uv_gets_through_with_the_certificates_that_pip_was_told_of(
    script: ModuleType, index: tuple[str, Path], tmp_path: Path
) -> None:
    """A proxy that inspects TLS needs them; without them the same index is refused."""
    address, certificate = index
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "UV_", "SSL_")) and not name.lower().endswith("_proxy")
    }
    clean |= {"NO_PROXY": "127.0.0.1", "UV_CACHE_DIR": str(tmp_path / "cache")}
    uv = script.find_uv()

    def install(of_pip: dict[str, str]) -> str:
        command = [uv, "pip", "install", "--target", str(tmp_path / "into"), "tiny"]
        environment = {**clean, **script.uv_settings(clean, of_pip)}
        done = subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True, timeout=60
        )
        return done.stderr

    assert "certificate" in install({"index-url": address})
    assert not (tmp_path / "into" / "tiny.py").exists()
    said = install({"index-url": address, "cert": str(certificate)})
    assert (tmp_path / "into" / "tiny.py").exists(), said
