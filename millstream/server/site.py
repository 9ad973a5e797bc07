"""The dashboard's page: the files of `ui/`, and what a browser may do with them. They hold no data.

A browser loads scripts and styles from here alone, shows the page in no frame, and sends its address to
nobody. Whatever is shown is asked for with the token, like any other question.
"""

from __future__ import annotations

from pathlib import Path

from millstream.server.answers import Answer, Refused

__all__ = ["Site"]

_FOLDER = Path(__file__).parent / "ui"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}


class Site:
    """The files, read once."""

    def __init__(self) -> None:
        self._files = {
            file.name: (_TYPES[file.suffix], file.read_bytes())
            for file in _FOLDER.iterdir()
            if file.suffix in _TYPES
        }

    def entrance(self) -> Answer:
        """Where the page is: its files are beside it, so its address ends in a slash."""
        return Answer(308, headers={**_HEADERS, "location": "ui/"}, raw=b"")

    def file(self, name: str) -> Answer:
        """A file; without a name the page.

        Raises:
            Refused: there is none of this name.
        """
        found = self._files.get(name or "index.html")
        if found is None:
            raise Refused(404, "NotFound", "the dashboard has no such file")
        kind, content = found
        return Answer(200, headers={**_HEADERS, "content-type": kind}, raw=content)
