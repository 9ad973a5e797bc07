"""Fetches jars from a Maven repository that the user named, over HTTP (or from `file:`).

A few downloads run at a time. One that breaks off resumes where it was, in the same run and in the next.
Proxies and certificates are urllib's: `HTTPS_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`. A URL may contain a name
and a password (`https://name:password@...`); they are sent to that host only, and never shown.
"""

from __future__ import annotations

import base64
import http.client
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from millstream.errors import ArtifactException
from millstream.jars.download_progress import DownloadProgress
from millstream.jars.jar_table import Jar

if TYPE_CHECKING:
    from millstream.jars.download_progress import Transport

__all__ = ["from_repository"]

PARALLEL = 4
STALL_SECONDS = 30.0
"""A connection that gives nothing for so long is given up, and tried again."""
FRUITLESS_TRIES = 4
"""So many tries of one jar in a row that bring no byte, and it is given up."""
BACK_OFF_SECONDS = 0.25
"""The pause after the first fruitless try; each next one is twice as long."""
_CHUNK = 1 << 16


class _Refused(Exception):
    """The repository's answer is final: trying again would give the same."""


def from_repository(root: str, *, back_off_s: float = BACK_OFF_SECONDS) -> Transport:
    """A `Transport` from the repository at an address.

    Raises:
        ArtifactException: that is no address.
    """
    if urlsplit(root).scheme not in ("http", "https", "file"):
        raise ArtifactException(
            f"MILLSTREAM_MAVEN_REPOSITORY is {root!r}, which is not an http:, https: or file: address; set "
            f"it to the root of a Maven repository, or unset it for the default one"
        )
    base, authorization = _split(root)

    def fetch(jars: Sequence[Jar], into: Path, progress: DownloadProgress) -> Mapping[Jar, str]:
        stop = threading.Event()
        with ThreadPoolExecutor(PARALLEL, thread_name_prefix="millstream-download") as pool:
            try:
                futures = {
                    jar: pool.submit(_fetch_one, base, authorization, jar, into, progress, stop, back_off_s)
                    for jar in jars
                }
                reasons = {jar: future.result() for jar, future in futures.items()}
            finally:
                stop.set()  # after an interrupt: the others end at their next chunk
        return {jar: reason for jar, reason in reasons.items() if reason is not None}

    return fetch


def _fetch_one(
    base: str,
    authorization: str | None,
    jar: Jar,
    into: Path,
    progress: DownloadProgress,
    stop: threading.Event,
    back_off_s: float,
) -> str | None:
    """Fetch one jar; None, or why it could not be had."""
    if (into / jar.file_name).exists():
        return None  # it came whole in a run that was interrupted
    url = f"{base}/{jar.repository_path}"
    part = into / f"{jar.file_name}.part"
    fruitless, reason = 0, "interrupted"
    progress.add(_size(part))
    while not stop.is_set():
        before = _size(part)
        try:
            _continue(url, authorization, jar, part, progress, stop)
        except _Refused as refused:
            return f"{refused} from {url}"
        except (OSError, http.client.HTTPException) as error:
            reason = f"{type(error).__name__}: {error} from {url}"
        else:
            if stop.is_set():
                break
            part.replace(into / jar.file_name)
            return None
        fruitless = fruitless + 1 if _size(part) <= before else 0
        if fruitless >= FRUITLESS_TRIES:
            break
        if fruitless:
            stop.wait(back_off_s * 2 ** (fruitless - 1))
    return reason


def _continue(
    url: str,
    authorization: str | None,
    jar: Jar,
    part: Path,
    progress: DownloadProgress,
    stop: threading.Event,
) -> None:
    """Read what is still missing of a jar into its `.part` file.

    Raises:
        _Refused: the repository does not have it.
        OSError, HTTPException: the connection failed; the file keeps what came.
    """
    have = _size(part)
    if have >= jar.size:
        if have == jar.size:
            return
        part.unlink()  # longer than the jar is: it cannot become right
        progress.add(-have)
        have = 0
    request = urllib.request.Request(url)  # noqa: S310  the scheme was checked
    if authorization is not None:
        request.add_unredirected_header("Authorization", authorization)
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        answer = urllib.request.urlopen(request, timeout=STALL_SECONDS)  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code in (401, 403, 404, 410):
            raise _Refused(f"HTTP {error.code} {error.reason}") from error
        raise
    with answer:
        if have and answer.status != 206:  # a server (or file:) that cannot do ranges sends all of it
            progress.add(-have)
            have = 0
        with part.open("ab" if have else "wb") as file:
            while not stop.is_set() and (chunk := answer.read1(_CHUNK)):
                file.write(chunk)
                progress.add(len(chunk))
            file.flush()
            os.fsync(file.fileno())
    if not stop.is_set() and _size(part) < jar.size and answer.length:
        raise http.client.IncompleteRead(b"", answer.length)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _split(root: str) -> tuple[str, str | None]:
    """The address without name and password, and the header that carries these."""
    parts = urlsplit(root.rstrip("/"))
    if parts.username is None:
        return parts.geturl(), None
    secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return bare, "Basic " + base64.b64encode(secret.encode()).decode()
